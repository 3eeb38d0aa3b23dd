//! What a snapshot lacks of nodes: which kubelets did not answer, and what was left out for it.

use serde::Deserialize;

use super::source::Files;
use crate::layout::QUERY_ERRORS;

/// What the questions are called that go to a node.
const NODES: &str = "Nodes";

/// A node of which something is missing.
#[derive(Deserialize)]
pub(crate) struct Missing {
    #[serde(default)]
    queryobj: String,
    /// The node, perhaps with the question.
    #[serde(default)]
    pub name: String,
    /// Why, and what.
    #[serde(default)]
    pub error: String,
}

impl Missing {
    /// Those that an archive tells of; one that tells nothing, or too much for a glance, has none.
    pub(crate) fn read(files: &Files) -> Vec<Self> {
        let Ok(Some(bytes)) = files.small(QUERY_ERRORS) else { return Vec::new() };
        let all: Vec<Self> = base::json::from_slice(&bytes).and_then(Vec::deserialize).unwrap_or_default();
        all.into_iter().filter(|missing| missing.queryobj == NODES).collect()
    }
}
