//! The ends of the pod logs in an archive, collected while it is read, and the node of each pod.
//!
//! Does not know which of them are shown.

use std::collections::BTreeMap;
use std::io::{self, Read};

use super::source::Stat;
use super::spool::Spool;
use crate::layout;

/// Maximum bytes of one log to keep.
const TAIL: usize = 12 << 10;
/// Maximum size of a namespace's list of pods.
const PODS: u64 = 64 << 20;

/// The ends of all logs, in archive order.
#[derive(Default)]
pub(crate) struct Tails {
    /// The ends themselves.
    pub ends: Spool,
    /// Their names and sizes.
    pub found: Vec<(String, u64)>,
    /// The node of each pod.
    pub pods: BTreeMap<String, String>,
}

impl Tails {
    /// Whether a file of an archive is a log or a list of pods.
    pub(crate) fn wants(name: &str) -> bool {
        layout::below_pod_logs(name).is_some() || is_list_of_pods(name)
    }

    /// Adds such a file.
    pub(crate) fn see(&mut self, name: &str, stat: Stat, content: &mut dyn Read) -> anyhow::Result<()> {
        if layout::below_pod_logs(name).is_some() && stat.size > 0 {
            self.ends.add(name, &tail(content)?[..])?;
            self.found.push((name.to_owned(), stat.size));
        }
        if is_list_of_pods(name) {
            self.pods.extend(nodes_of_pods(content));
        }
        Ok(())
    }
}

/// Only pods of runs matter, and their namespace has logs in the archive.
fn is_list_of_pods(name: &str) -> bool {
    layout::resource_file(name).is_some_and(|(_, file)| file == "core_v1_pods.json")
}

/// The node of each pod of a namespace; empty if the file is invalid.
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
    // A partial first line is misleading.
    if let (true, Some(end)) = (cut, tail.iter().position(|byte| *byte == b'\n')) {
        tail.drain(..=end);
    }
    Ok(tail)
}
