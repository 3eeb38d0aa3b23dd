//! The order in which a run starts the pods of a plugin itself: in waves of limited size.
//!
//! Pure: what is settled and what is ready are arguments.

use std::collections::{BTreeSet, VecDeque};

/// Changes of pods per check, so that a large cluster is not flooded with requests.
const MAX_CHANGES: usize = 4;

/// The places of one launch, in the order in which the run starts their pods itself: so many at
/// once, each until its result is settled. A place is a node, or the only one of a Job. What is
/// settled and ready are arguments.
pub(super) struct WaveQueue {
    waiting: VecDeque<String>,
    /// Places with a pod.
    active: BTreeSet<String>,
    size: usize,
    is_adopted: bool,
}

impl WaveQueue {
    /// Places in their order, `size` at once.
    pub(super) fn new(places: impl IntoIterator<Item = String>, size: usize) -> Self {
        Self {
            waiting: places.into_iter().collect(),
            active: BTreeSet::new(),
            size,
            is_adopted: false,
        }
    }

    /// Takes over, once, the places with pods from before a restart.
    pub(super) fn adopt(&mut self, occupied: impl FnOnce() -> BTreeSet<String>) {
        if self.is_adopted {
            return;
        }
        self.is_adopted = true;
        self.active = occupied();
        self.waiting.retain(|place| !self.active.contains(place));
    }

    /// Appends a node that joined.
    pub(super) fn append(&mut self, place: String) {
        self.waiting.push_back(place);
    }

    /// Gives a place that lost its pod the next one first.
    pub(super) fn put_first(&mut self, place: String) {
        self.active.remove(&place);
        self.waiting.push_front(place);
    }

    /// Takes places whose pods can be deleted.
    pub(super) fn take_settled(&mut self, is_settled: impl Fn(&str) -> bool) -> Vec<String> {
        let settled = self.active.iter().filter(|place| is_settled(place));
        let settled: Vec<_> = settled.take(MAX_CHANGES).cloned().collect();
        self.active.retain(|place| !settled.contains(place));
        settled
    }

    /// Takes places whose pods can be created. One that is not ready keeps its turn.
    pub(super) fn take_due(&mut self, is_ready: impl Fn(&str) -> bool) -> Vec<String> {
        let room = self.size.saturating_sub(self.active.len()).min(MAX_CHANGES);
        let ready = self.waiting.iter().filter(|place| is_ready(place));
        let due: Vec<_> = ready.take(room).cloned().collect();
        self.waiting.retain(|place| !due.contains(place));
        self.active.extend(due.iter().cloned());
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wave_is_refilled_as_results_settle() {
        let mut waves = WaveQueue::new(["a", "b", "c", "d"].map(str::to_owned), 2);
        assert_eq!(waves.take_due(|node| node != "b"), ["a", "c"]);
        assert_eq!(waves.take_due(|_| true), [""; 0]);
        assert_eq!(waves.take_settled(|node| node == "a"), ["a"]);
        assert_eq!(waves.take_due(|_| true), ["b"], "it kept its place");
        waves.put_first("c".into());
        assert_eq!(waves.take_due(|_| true), ["c"]);
        waves.append("e".into());
        assert_eq!(waves.take_settled(|_| true), ["b", "c"]);
        assert_eq!(waves.take_due(|_| true), ["d", "e"]);
    }

    #[test]
    fn pods_from_before_a_restart_count() {
        let mut waves = WaveQueue::new(["a", "b"].map(str::to_owned), 1);
        waves.adopt(|| ["b".to_owned()].into());
        waves.adopt(|| unreachable!());
        assert_eq!(waves.take_due(|_| true), [""; 0]);
        assert_eq!(waves.take_settled(|_| true), ["b"]);
    }
}
