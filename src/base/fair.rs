//! Entries that wait in turn, in one line for each key: connections of an address, reviews of a
//! network's tokens.
//!
//! Pure bookkeeping: owners number the entries in order of arrival, and choose keys, bounds and
//! deadlines. Each operation on one entry takes logarithmic time, since strangers determine how
//! many there are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The length of a line and its oldest entry: the greatest rank is the longest line's, among equals
/// the oldest one's.
type Rank = (usize, Reverse<u64>);

/// Lines of entries, each of which is asleep or ready.
pub struct FairQueue<K, T> {
    lines: HashMap<K, Line<T>>,
    /// The key of each entry.
    keys: BTreeMap<u64, K>,
    /// The key of each line with a ready entry, by its first.
    fronts: BTreeMap<u64, K>,
    ranks: BTreeMap<Rank, K>,
    ready: usize,
}

struct Line<T> {
    asleep: BTreeMap<u64, T>,
    ready: BTreeMap<u64, T>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            asleep: BTreeMap::new(),
            ready: BTreeMap::new(),
        }
    }
}

impl<T> Line<T> {
    fn front(&self) -> Option<u64> {
        self.ready.first_key_value().map(|(number, _)| *number)
    }

    fn rank(&self) -> Option<Rank> {
        let asleep = self.asleep.first_key_value().map(|(number, _)| *number);
        let oldest = asleep.into_iter().chain(self.front()).min()?;
        Some((self.asleep.len() + self.ready.len(), Reverse(oldest)))
    }
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            keys: BTreeMap::new(),
            fronts: BTreeMap::new(),
            ranks: BTreeMap::new(),
            ready: 0,
        }
    }
}

impl<K: Eq + Hash + Clone, T> FairQueue<K, T> {
    /// Adds an entry that is ready for its turn. Numbers must ascend.
    pub fn push(&mut self, number: u64, key: K, entry: T) {
        self.change(&key, |line| line.ready.insert(number, entry));
        self.keys.insert(number, key);
    }

    /// Adds an entry that has no turn before [`Self::wake`]. Numbers must ascend.
    pub fn push_asleep(&mut self, number: u64, key: K, entry: T) {
        self.change(&key, |line| line.asleep.insert(number, entry));
        self.keys.insert(number, key);
    }

    /// Makes an entry ready; `None` if it is not asleep.
    pub fn wake(&mut self, number: u64) -> Option<&T> {
        let key = self.keys.get(&number)?.clone();
        self.change(&key, |line| {
            let entry = line.asleep.remove(&number);
            entry.map(|entry| line.ready.insert(number, entry))
        })?;
        self.lines.get(&key)?.ready.get(&number)
    }

    /// Removes an entry.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let key = self.keys.remove(&number)?;
        self.change(&key, |line| {
            line.asleep
                .remove(&number)
                .or_else(|| line.ready.remove(&number))
        })
    }

    /// Whether an entry still waits.
    pub fn contains(&self, number: u64) -> bool {
        self.keys.contains_key(&number)
    }

    /// Whether an entry is the first ready one of its line.
    pub fn is_front(&self, number: u64) -> bool {
        self.fronts.contains_key(&number)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The number of entries that are ready.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// The number of entries of `key`.
    pub fn len_of(&self, key: &K) -> usize {
        self.lines
            .get(key)
            .and_then(Line::rank)
            .map_or(0, |(length, _)| length)
    }

    /// The newest entry of `key`.
    pub fn newest_of(&self, key: &K) -> Option<u64> {
        let line = self.lines.get(key)?;
        let asleep = line.asleep.last_key_value().map(|(number, _)| *number);
        let ready = line.ready.last_key_value().map(|(number, _)| *number);
        asleep.max(ready)
    }

    /// The first ready entry of each line, in order of arrival.
    pub fn fronts(&self) -> impl Iterator<Item = (u64, &K)> {
        self.fronts.iter().map(|(number, key)| (*number, key))
    }

    /// Every line, the longest first, among equals that with the oldest entry: its oldest entry,
    /// and its key.
    pub fn longest(&self) -> impl Iterator<Item = (u64, &K)> {
        self.ranks
            .iter()
            .rev()
            .map(|((_, Reverse(oldest)), key)| (*oldest, key))
    }

    /// The oldest entry of all.
    pub fn oldest(&self) -> Option<(u64, &T)> {
        let (number, key) = self.keys.first_key_value()?;
        let line = self.lines.get(key)?;
        let entry = line.asleep.get(number).or_else(|| line.ready.get(number))?;
        Some((*number, entry))
    }

    /// All entries that are asleep.
    pub fn asleep(&self) -> impl Iterator<Item = (u64, &T)> {
        self.lines
            .values()
            .flat_map(|line| &line.asleep)
            .map(|(number, entry)| (*number, entry))
    }

    /// Changes a line, and what is known about it.
    fn change<R>(&mut self, key: &K, change: impl FnOnce(&mut Line<T>) -> R) -> R {
        let line = self.lines.entry(key.clone()).or_default();
        if let Some(rank) = line.rank() {
            self.ranks.remove(&rank);
        }
        if let Some(front) = line.front() {
            self.fronts.remove(&front);
        }
        self.ready -= line.ready.len();
        let result = change(line);
        self.ready += line.ready.len();
        if let Some(front) = line.front() {
            self.fronts.insert(front, key.clone());
        }
        match line.rank() {
            Some(rank) => drop(self.ranks.insert(rank, key.clone())),
            None => drop(self.lines.remove(key)),
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of `(key, is_ready)`, numbered from 0; each entry is its number.
    fn queue(entries: &[(char, bool)]) -> FairQueue<char, u64> {
        let mut queue = FairQueue::default();
        for (number, (key, is_ready)) in (0..).zip(entries) {
            match is_ready {
                true => queue.push(number, *key, number),
                false => queue.push_asleep(number, *key, number),
            }
        }
        queue
    }

    fn fronts(queue: &FairQueue<char, u64>) -> Vec<(u64, char)> {
        queue.fronts().map(|(number, key)| (number, *key)).collect()
    }

    #[test]
    fn fronts_are_the_first_ready_entries_in_order() {
        let mut queue = queue(&[
            ('a', false),
            ('b', true),
            ('b', true),
            ('a', true),
            ('c', false),
        ]);
        assert_eq!(fronts(&queue), [(1, 'b'), (3, 'a')]);
        assert_eq!(queue.wake(0), Some(&0));
        assert_eq!(fronts(&queue), [(0, 'a'), (1, 'b')]);
        assert_eq!(queue.remove(1), Some(1));
        assert_eq!(fronts(&queue), [(0, 'a'), (2, 'b')]);
        assert_eq!((queue.len(), queue.ready()), (4, 3));
        assert_eq!(queue.wake(0), None, "it is ready");
        assert_eq!(queue.wake(1), None, "it has gone");
        assert_eq!(queue.remove(1), None, "it has gone");
    }

    #[test]
    fn longest_lines_count_entries_asleep_and_ready() {
        for (entries, expected) in [
            (
                &[('a', true), ('b', false), ('b', true)][..],
                vec![(1, 'b'), (0, 'a')],
            ),
            (
                &[('a', false), ('b', false), ('a', true)],
                vec![(0, 'a'), (1, 'b')],
            ),
            (
                &[('a', true), ('b', true), ('c', true)],
                vec![(0, 'a'), (1, 'b'), (2, 'c')],
            ),
        ] {
            let queue = queue(entries);
            let found: Vec<_> = queue
                .longest()
                .map(|(number, key)| (number, *key))
                .collect();
            assert_eq!(found, expected, "{entries:?}");
        }
    }

    #[test]
    fn keys_without_entries_are_forgotten() {
        let mut queue = queue(&[('a', false), ('b', true), ('a', true)]);
        assert_eq!((queue.len_of(&'a'), queue.newest_of(&'a')), (2, Some(2)));
        while let Some((number, _)) = queue.oldest() {
            assert!(queue.contains(number));
            queue.remove(number);
        }
        assert!(queue.is_empty() && queue.lines.is_empty() && queue.ranks.is_empty());
        assert_eq!((queue.ready(), fronts(&queue)), (0, Vec::new()));
    }
}
