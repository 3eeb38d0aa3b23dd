//! Further pods for those that were lost, where this run creates the pods itself.

use std::collections::BTreeMap;

use client::protocol::{Lost, ResultId};

/// What was lost, and which pods replace it.
pub(super) struct Relaunches {
    /// Further pods for one that was lost.
    max_per_result: u64,
    /// The number of each result's current pod, if that is not the first. Earlier pods no longer
    /// matter.
    attempts: BTreeMap<ResultId, u64>,
    /// Places that need their next pod: theirs was lost, or the node came back.
    pending: Vec<String>,
    /// What was lost so far, of a single pod.
    losses: Vec<Lost>,
}

impl Relaunches {
    pub(super) fn new(max_per_result: u64) -> Self {
        Self {
            max_per_result,
            attempts: BTreeMap::new(),
            pending: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// The number of the current pod of a result.
    pub(super) fn attempt(&self, id: &ResultId) -> u64 {
        self.attempts.get(id).copied().unwrap_or(1)
    }

    /// Whether any pod was replaced.
    pub(super) fn has_begun(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// Takes over a replacement from before a restart of the aggregator.
    pub(super) fn adopt(&mut self, id: &ResultId, attempt: u64) {
        self.attempts.insert(id.clone(), attempt);
    }

    /// Requests the next pod of a result; refuses when it has had all of them.
    pub(super) fn request(&mut self, id: &ResultId) -> bool {
        let attempt = self.attempt(id);
        if attempt > self.max_per_result {
            return false;
        }
        self.attempts.insert(id.clone(), attempt + 1);
        self.pending.push(id.node.clone());
        true
    }

    /// Whether a place waits for its next pod.
    pub(super) fn is_pending(&self, place: &str) -> bool {
        self.pending.iter().any(|pending| pending == place)
    }

    /// Takes the places that need their next pod.
    pub(super) fn take_pending(&mut self) -> Vec<String> {
        std::mem::take(&mut self.pending)
    }

    /// Records the loss of a single pod.
    pub(super) fn record_loss(&mut self, loss: Lost) {
        self.losses.push(loss);
    }

    /// The latest loss of a single pod.
    pub(super) fn last_loss(&self) -> Option<&Lost> {
        self.losses.last()
    }

    /// Nodes on which a single pod was lost.
    pub(super) fn lost_nodes(&self) -> Vec<String> {
        let nodes = self.losses.iter().map(|lost| lost.node.clone());
        nodes.filter(|node| !node.is_empty()).collect()
    }
}
