//! The ends of the pod logs in an archive, for the page: of a gigabyte of logs it shows what helps.

use std::collections::BTreeMap;
use std::io::{self, Read};

use super::overview::{Overview, Verdict};
use super::spool::Spool;
use crate::{layout, names};

/// How much of the end of one log is shown.
const TAIL: usize = 12 << 10;
/// How much of all logs together is shown.
const ALL: usize = 300 << 10;
/// How large the list of a namespace's pods may be.
const PODS: u64 = 64 << 20;
/// How many logs are listed that are not shown.
const LISTED: usize = 500;

/// One log.
pub(crate) struct Log {
    /// Its path in the archive.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// How many of its lines look like errors.
    pub errors: u64,
    /// The node of its pod, where the snapshot tells.
    pub node: Option<String>,
    /// Its end, if it is shown.
    pub tail: Option<String>,
}

/// The logs of an archive, those that are shown first.
pub(crate) struct Logs {
    /// Shown and listed ones.
    pub logs: Vec<Log>,
    /// How many there are besides.
    pub more: usize,
}

impl Logs {
    /// Reads them: those of pods of failed plugins before others, among them those with most errors.
    pub(crate) fn read(overview: &Overview<'_>) -> anyhow::Result<Self> {
        let mut tails = Spool::default();
        let mut logs = Vec::<Log>::new();
        let mut pods = BTreeMap::new();
        let counted = overview.health.as_ref().map(|health| &health.error_summary);
        let errors: BTreeMap<&String, u64> = counted
            .and_then(|kinds| kinds.get("Errors"))
            .into_iter()
            .flatten()
            .map(|(f, n)| (f, *n))
            .collect();
        overview.opened.source.each(|name, stat, content| {
            if layout::below_pod_logs(name).is_some() && stat.size > 0 {
                tails.add(name, &tail(content)?[..])?;
                let errors = errors.get(&name.to_owned()).copied().unwrap_or_default();
                logs.push(Log { name: name.to_owned(), size: stat.size, errors, node: None, tail: None });
            }
            // Only the pods of runs are looked for, and their namespace is one that has logs of them.
            if layout::resource_file(name).is_some_and(|(_, file)| file == "core_v1_pods.json") {
                pods.extend(nodes_of_pods(content));
            }
            Ok(())
        })?;
        for log in &mut logs {
            log.node = pods.get(log.pod()).cloned();
        }
        let bad = overview.plugins.iter().filter(|plugin| plugin.verdict() != Verdict::Passed);
        let bad: Vec<&str> = bad.map(|plugin| plugin.name.as_str()).collect();
        logs.sort_by_cached_key(|log| {
            let of_failed = bad.iter().any(|plugin| names::is_of_plugin(&log.name, plugin));
            (!of_failed, std::cmp::Reverse(log.errors), log.name.clone())
        });
        let mut left = ALL;
        for log in &mut logs {
            let mut bytes = Vec::new();
            if let Some(mut tail) = tails.open(&log.name) {
                tail.read_to_end(&mut bytes)?;
            }
            if bytes.len() > left {
                break;
            }
            left -= bytes.len();
            log.tail = Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        let shown = logs.iter().filter(|log| log.tail.is_some()).count();
        let more = logs.len().saturating_sub(shown + LISTED);
        logs.truncate(shown + LISTED);
        Ok(Self { logs, more })
    }

    /// A log that is shown.
    pub(crate) fn shown(&self, name: &str) -> Option<&Log> {
        self.logs.iter().find(|log| log.name == name && log.tail.is_some())
    }

    /// The shown logs of a plugin's pod, on a node where that is known.
    pub(crate) fn of_pod<'l>(&'l self, plugin: &str, node: Option<&'l str>) -> impl Iterator<Item = &'l Log> {
        let part = format!("/sonobuoy-{plugin}-");
        let here = move |log: &&Log| match (node, &log.node) {
            (Some(node), Some(of)) => node == of,
            // The pod of a local run is called after its node.
            (Some(node), None) => log.pod().ends_with(&format!("-{node}")),
            (None, _) => true,
        };
        self.logs.iter().filter(move |log| log.tail.is_some() && log.name.contains(&part)).filter(here)
    }
}

impl Log {
    fn pod(&self) -> &str {
        layout::below_pod_logs(&self.name).and_then(|path| path.split('/').nth(1)).unwrap_or_default()
    }

    /// The container that wrote it.
    pub(crate) fn container(&self) -> &str {
        let file = self.name.rsplit('/').next().unwrap_or_default();
        file.strip_suffix(".txt").unwrap_or(file)
    }
}

/// On which node each pod of a namespace is; none of them if the file is not what it should be.
fn nodes_of_pods(content: &mut dyn Read) -> BTreeMap<String, String> {
    #[derive(serde::Deserialize)]
    struct Pods {
        items: Vec<Pod>,
    }
    #[derive(serde::Deserialize)]
    struct Pod {
        metadata: Metadata,
        #[serde(default)]
        spec: Spec,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        name: String,
    }
    #[derive(Default, serde::Deserialize)]
    struct Spec {
        #[serde(default, rename = "nodeName")]
        node: String,
    }
    let pods = serde_json::from_reader::<_, Pods>(io::BufReader::new(content.take(PODS)));
    let pods = pods.map(|pods| pods.items).unwrap_or_default();
    pods.into_iter()
        .map(|pod| (pod.metadata.name, pod.spec.node))
        .filter(|(_, node)| !node.is_empty())
        .collect()
}

/// The last lines of a stream.
fn tail(content: &mut dyn Read) -> anyhow::Result<Vec<u8>> {
    let mut tail = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let mut cut = false;
    loop {
        match content.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                tail.extend_from_slice(&buffer[..count]);
                if tail.len() > TAIL {
                    tail.drain(..tail.len() - TAIL);
                    cut = true;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    // A line without its beginning misleads.
    if let (true, Some(end)) = (cut, tail.iter().position(|byte| *byte == b'\n')) {
        tail.drain(..=end);
    }
    Ok(tail)
}
