//! The order in which nodes get their pods, with the driver Nodes: so many at once, each until its result is settled.
//!
//! Pure: what is settled and ready are arguments.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Changes of pods per check, so that a large cluster is not flooded with requests.
const MAX_CHANGES: usize = 4;

/// The nodes of one launch.
pub(super) struct Waves {
    waiting: VecDeque<String>,
    /// Nodes with a pod, and its number.
    active: BTreeMap<String, u64>,
    /// The number of each node's last pod, if that was not the first.
    again: BTreeMap<String, u64>,
    size: usize,
    adopted: bool,
}

impl Waves {
    /// Nodes in their order, `size` at once.
    pub(super) fn new(nodes: impl IntoIterator<Item = String>, size: usize) -> Self {
        let waiting = nodes.into_iter().collect();
        Self { waiting, active: BTreeMap::new(), again: BTreeMap::new(), size, adopted: false }
    }

    /// Takes over, once, the nodes with pods from before a restart.
    pub(super) fn adopt(&mut self, occupied: impl FnOnce() -> BTreeSet<String>) {
        if !std::mem::replace(&mut self.adopted, true) {
            let occupied = occupied();
            self.waiting.retain(|node| !occupied.contains(node));
            self.active.extend(occupied.into_iter().map(|node| (node, 1)));
        }
    }

    /// Appends a node that joined.
    pub(super) fn join(&mut self, node: String) {
        self.waiting.push_back(node);
    }

    /// Gives a node that lost its pod, or came back, the next one first.
    pub(super) fn again(&mut self, node: String) {
        let last = self.active.remove(&node).unwrap_or(1);
        self.again.insert(node.clone(), last + 1);
        self.waiting.push_front(node);
    }

    /// Takes nodes whose pods can be deleted, with the numbers of the pods.
    pub(super) fn finished(&mut self, is_settled: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
        let settled = self.active.iter().filter(|(node, _)| is_settled(node)).take(MAX_CHANGES);
        let settled: Vec<_> = settled.map(|(node, number)| (node.clone(), *number)).collect();
        self.active.retain(|node, _| !settled.iter().any(|(settled, _)| settled == node));
        settled
    }

    /// Takes nodes whose pods can be created, with the numbers of the pods. A node that is not ready keeps its place.
    pub(super) fn due(&mut self, is_ready: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
        let room = self.size.saturating_sub(self.active.len()).min(MAX_CHANGES);
        let due: Vec<_> = self.waiting.iter().filter(|node| is_ready(node)).take(room).cloned().collect();
        self.waiting.retain(|node| !due.contains(node));
        let numbered = due.into_iter().map(|node| {
            let number = self.again.get(&node).copied().unwrap_or(1);
            self.active.insert(node.clone(), number);
            (node, number)
        });
        numbered.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(found: Vec<(String, u64)>) -> Vec<String> {
        found.into_iter().map(|(node, number)| format!("{node}-{number}")).collect()
    }

    #[test]
    fn a_wave_is_filled_as_results_are_settled() {
        let mut waves = Waves::new(["a", "b", "c", "d"].map(str::to_owned), 2);
        assert_eq!(names(waves.due(|node| node != "b")), ["a-1", "c-1"]);
        assert_eq!(names(waves.due(|_| true)), [""; 0]);
        assert_eq!(names(waves.finished(|node| node == "a")), ["a-1"]);
        assert_eq!(names(waves.due(|_| true)), ["b-1"], "it kept its place");
        waves.again("c".into());
        assert_eq!(names(waves.due(|_| true)), ["c-2"]);
        waves.join("e".into());
        assert_eq!(names(waves.finished(|_| true)), ["b-1", "c-2"]);
        assert_eq!(names(waves.due(|_| true)), ["d-1", "e-1"]);
    }

    #[test]
    fn pods_from_before_a_restart_count() {
        let mut waves = Waves::new(["a", "b"].map(str::to_owned), 1);
        waves.adopt(|| ["b".to_owned()].into());
        waves.adopt(|| unreachable!());
        assert_eq!(names(waves.due(|_| true)), [""; 0]);
        assert_eq!(names(waves.finished(|_| true)), ["b-1"]);
    }
}
