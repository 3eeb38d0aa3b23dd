//! Selects the ends of pod logs for the page: the useful part of possibly gigabytes.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::overview::{Overview, Verdict};
use super::tails::Tails;
use crate::{layout, names};

/// Maximum bytes of all logs to show.
const ALL: usize = 200 << 10;
/// Maximum logs to list without content.
const MAX_LISTED: usize = 500;

/// One log.
pub(crate) struct Log {
    /// Its path in the archive.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// Number of lines that look like errors.
    pub errors: u64,
    /// The node of its pod, if the snapshot has it.
    pub node: Option<String>,
    /// Its end, if shown.
    pub tail: Option<String>,
}

/// The logs of an archive, shown ones first.
pub(crate) struct Logs {
    /// Shown and listed logs.
    pub logs: Vec<Log>,
    /// Number of further logs.
    pub more: usize,
}

impl Logs {
    /// Selects the logs to show: those of failed plugins first, then those with the most errors.
    pub(crate) fn read(overview: &Overview<'_>) -> anyhow::Result<Self> {
        let Tails { ends, found, pods } = &overview.opened.tails;
        let counted = overview.health.as_ref().map(|health| &health.error_summary);
        let errors: BTreeMap<&String, u64> = counted
            .and_then(|kinds| kinds.get("Errors"))
            .into_iter()
            .flatten()
            .map(|(f, n)| (f, *n))
            .collect();
        let logs = found.iter().map(|(name, size)| {
            let errors = errors.get(name).copied().unwrap_or_default();
            Log { name: name.clone(), size: *size, errors, node: None, tail: None }
        });
        let mut logs: Vec<Log> = logs.collect();
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
            if let Some(mut tail) = ends.open(&log.name) {
                tail.read_to_end(&mut bytes)?;
            }
            if bytes.len() > left {
                break;
            }
            left -= bytes.len();
            log.tail = Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        let shown = logs.iter().filter(|log| log.tail.is_some()).count();
        let more = logs.len().saturating_sub(shown + MAX_LISTED);
        logs.truncate(shown + MAX_LISTED);
        Ok(Self { logs, more })
    }

    /// A shown log.
    pub(crate) fn shown(&self, name: &str) -> Option<&Log> {
        self.logs.iter().find(|log| log.name == name && log.tail.is_some())
    }

    /// The shown logs of a plugin's pod, on a given node if known.
    pub(crate) fn of_pod<'l>(&'l self, plugin: &str, node: Option<&'l str>) -> impl Iterator<Item = &'l Log> {
        let part = format!("/sonobuoy-{plugin}-");
        let here = move |log: &&Log| match (node, &log.node) {
            (Some(node), Some(of)) => node == of,
            // The pod of a local run is named after its node.
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
