//! Nodes that a snapshot lacks data of: kubelets that did not answer, and the data omitted for each.

use serde::Deserialize;

use super::source::Files;
use crate::layout::QUERY_ERRORS;

/// The name of queries to nodes.
const NODES: &str = "Nodes";

/// A node with missing data.
#[derive(Deserialize)]
pub(crate) struct Missing {
    #[serde(default)]
    queryobj: String,
    /// The node.
    #[serde(default)]
    pub name: String,
    /// The cause, and the missing data.
    #[serde(default)]
    pub error: String,
}

impl Missing {
    /// The nodes in an archive's list of errors, each once; empty if the list is missing or too large.
    pub(crate) fn read(files: &Files) -> Vec<Self> {
        let Ok(Some(bytes)) = files.small(QUERY_ERRORS) else { return Vec::new() };
        let all: Vec<Self> = base::json::from_slice(&bytes).and_then(Vec::deserialize).unwrap_or_default();
        let mut nodes = Vec::<Self>::new();
        for mut missing in all.into_iter().filter(|missing| missing.queryobj == NODES) {
            if let Some((node, what)) = missing.name.split_once('/') {
                (missing.error, missing.name) = (format!("{what}: {}", missing.error), node.to_owned());
            }
            match nodes.last_mut().filter(|last| last.name == missing.name) {
                Some(last) => last.error.extend(["; ", &missing.error]),
                None => nodes.push(missing),
            }
        }
        nodes
    }
}
