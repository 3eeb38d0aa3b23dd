//! The nodes of the cluster as one launch sees them: which are ready, which suit the plugin, and
//! from which a result is expected.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use serde_json::Value;

use base::clock;
use kube::Object as _;

/// The nodes of the cluster, by name.
pub(super) struct NodeTable {
    nodes: BTreeMap<String, NodeState>,
    /// Nodes since the start of their latest list.
    listed: BTreeSet<String>,
    /// Nodes from which a result is expected.
    expected: BTreeSet<String>,
}

struct NodeState {
    /// Why the plugin's pods do not run on the node.
    refusal: Option<String>,
    down: Option<NotReady>,
}

/// Since when a node is not ready, and why.
pub(super) struct NotReady {
    pub(super) since: SystemTime,
    pub(super) reason: String,
}

impl NodeTable {
    pub(super) fn new(expected: BTreeSet<String>) -> Self {
        Self {
            nodes: BTreeMap::new(),
            listed: BTreeSet::new(),
            expected,
        }
    }

    /// Begins a new list of all nodes.
    pub(super) fn begin_list(&mut self) {
        self.listed.clear();
    }

    /// The nodes that were not in the list that has ended.
    pub(super) fn missing_from_list(&self) -> BTreeSet<String> {
        // Expected nodes may be deleted before the first list.
        let names = self.nodes.keys().chain(&self.expected);
        let missing = names.filter(|name| !self.listed.contains(*name));
        missing.cloned().collect()
    }

    /// Records the current state of a node; returns whether the node has come back: it is ready,
    /// and was not ready or not there before.
    pub(super) fn update(
        &mut self,
        node: &Value,
        refusal: Option<String>,
        now: SystemTime,
    ) -> bool {
        let name = node.name().to_owned();
        self.listed.insert(name.clone());
        let before = self.nodes.get(&name);
        let down_before = before.and_then(|state| state.down.as_ref());
        let down = not_ready(node, down_before, now);
        let is_back = down.is_none() && (before.is_none() || down_before.is_some());
        self.nodes.insert(name, NodeState { refusal, down });
        is_back
    }

    /// Removes a node; returns since when it was not ready, if it was not.
    pub(super) fn remove(&mut self, name: &str) -> Option<NotReady> {
        self.nodes.remove(name)?.down
    }

    /// Expects a result from a node; returns whether that is new.
    pub(super) fn expect(&mut self, name: &str) -> bool {
        self.expected.insert(name.to_owned())
    }

    /// Expects no result from a node any more.
    pub(super) fn stop_expecting(&mut self, name: &str) {
        self.expected.remove(name);
    }

    pub(super) fn is_expected(&self, name: &str) -> bool {
        self.expected.contains(name)
    }

    /// Nodes from which a result is expected.
    pub(super) fn expected(&self) -> impl Iterator<Item = &String> {
        self.expected.iter()
    }

    /// Whether a pod can start on a node.
    pub(super) fn is_ready(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|node| node.down.is_none())
    }

    /// Whether a node is known not to be ready.
    pub(super) fn is_down(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|node| node.down.is_some())
    }

    /// The nodes that are not ready.
    pub(super) fn down(&self) -> impl Iterator<Item = (&String, &NotReady)> {
        self.nodes
            .iter()
            .filter_map(|(name, node)| Some((name, node.down.as_ref()?)))
    }

    /// Why the plugin's pods do not run on a node.
    pub(super) fn refusal(&self, name: &str) -> Option<&str> {
        self.nodes.get(name)?.refusal.as_deref()
    }
}

/// Since when a node is not ready and why; `None` for a ready node.
fn not_ready(node: &Value, before: Option<&NotReady>, now: SystemTime) -> Option<NotReady> {
    let condition = node.condition("Ready")?;
    if condition["status"] == "True" {
        return None;
    }
    let transition = condition["lastTransitionTime"].as_str();
    let transition = transition.and_then(clock::parse_rfc3339);
    let since = match before {
        // `Unknown` may become `False`, which is another transition of the same outage.
        Some(before) => before.since,
        // The clock of the control plane may be ahead of this one.
        None => transition.filter(|time| *time <= now).unwrap_or(now),
    };
    let texts = [condition["message"].text(), condition["reason"].text()];
    let reason = texts.into_iter().find(|text| !text.is_empty());
    let reason = reason.unwrap_or("the node is not ready");
    Some(NotReady {
        since,
        reason: reason.trim_end_matches('.').to_owned(),
    })
}
