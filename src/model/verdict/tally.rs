//! The roll-up of a tree: counts of items by status, and the status of a group that follows from
//! them.

use std::collections::BTreeMap;

use super::{FAILED, OTHER, PASSED, SKIPPED, TIMEOUT, UNKNOWN, is_known};
use base::Joined as _;

/// Maximum number of distinct statuses; a plugin with a separate status for each of a million items
/// would exhaust memory.
const DISTINCT: usize = 1_000;
/// Maximum length of a status; the rest is ignored.
const STATUS_BYTES: usize = 256;

/// What is known of a group of items when it is complete, besides the items.
#[derive(Clone, Copy, Default)]
pub struct GroupEnd<'a> {
    /// Its status if it has no items.
    pub own_status: &'a str,
    /// Whether it counts as skipped if all its items do.
    pub may_skip: bool,
    /// Whether it is the whole tree.
    pub is_root: bool,
}

/// Counts below an item so far, which determine its status.
#[derive(Clone, Default)]
pub struct Tally {
    /// Items without children by status, custom ones included.
    counts: BTreeMap<String, u64>,
    children: u64,
    /// Groups whose items' statuses sum to nothing; counted as unknown.
    nothing: i64,
    /// Whether a group could not be read to its end.
    has_error: bool,
}

impl Tally {
    /// Adds an item without children.
    pub fn item(&mut self, status: &str) {
        self.children += 1;
        self.count(status, 1);
    }

    /// Adds a finished group.
    pub fn group(&mut self, group: &Self) {
        self.children += 1;
        for (status, count) in &group.counts {
            self.count(status, *count);
        }
        self.has_error |= group.has_error;
        self.nothing +=
            group.nothing + i64::from(group.has_custom() && group.summands().is_empty());
    }

    fn count(&mut self, status: &str, more: u64) {
        if let Some(count) = self.counts.get_mut(status) {
            *count += more;
        } else if status.len() <= STATUS_BYTES && (self.counts.len() < DISTINCT || is_known(status))
        {
            self.counts.insert(status.to_owned(), more);
        } else {
            *self.counts.entry(OTHER.to_owned()).or_default() += more;
        }
    }

    /// Number of children added.
    pub fn children(&self) -> u64 {
        self.children
    }

    /// Whether any item has a custom status, which changes the statuses of the whole tree.
    pub fn has_custom(&self) -> bool {
        self.counts.keys().any(|status| !is_known(status))
    }

    fn has(&self, statuses: [&str; 2]) -> bool {
        statuses
            .iter()
            .any(|status| self.counts.contains_key(*status))
    }

    /// The number of items with each status.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Counts of `counts` as items, which are not empty.
    pub fn of(counts: &BTreeMap<String, u64>) -> Self {
        Self {
            counts: counts.clone(),
            children: counts.values().sum(),
            ..Self::default()
        }
    }

    /// Records that the group could not be read to its end: it and the groups around it have not
    /// passed.
    pub fn fail_reading(&mut self) {
        self.has_error = true;
    }

    /// The status that a group is given in the tree; `custom` as for [`Self::status`].
    pub fn status_of(&self, group: &GroupEnd<'_>, custom: bool) -> String {
        let is_empty = self.children == 0;
        let is_skipped = group.may_skip && !self.has_error && self.counts.keys().eq([SKIPPED]);
        let status = match is_empty {
            true if self.has_error => UNKNOWN.into(),
            true => group.own_status.into(),
            false if is_skipped => SKIPPED.into(),
            false => self.status(custom),
        };
        // Statuses that sum to nothing are unknown.
        if status.is_empty() && (is_empty || !group.is_root) {
            UNKNOWN.into()
        } else {
            status
        }
    }

    /// The numbers of items by status; a group without any counts as one of `status`.
    pub fn counts_or(&self, status: &str) -> BTreeMap<String, u64> {
        match self.children {
            0 => BTreeMap::from([(status.to_owned(), 1)]),
            _ => self.counts.clone(),
        }
    }

    /// The status of the group. `custom` says whether any item of the whole tree, not only of this
    /// group, has a custom status: then the status of groups is a count of each status instead
    /// of a verdict.
    pub fn status(&self, custom: bool) -> String {
        if self.children == 0 {
            UNKNOWN.into()
        } else if custom {
            self.summands()
                .iter()
                .map(|(status, count)| format!("{status}: {count}"))
                .joined(", ")
        } else if self.has([FAILED, TIMEOUT]) {
            FAILED.into()
        } else if self.has([UNKNOWN, ""]) || self.has_error {
            UNKNOWN.into()
        } else {
            PASSED.into()
        }
    }

    /// The counts to add up: an item's status may itself be a sum, `a: 2, b: 1`; anything that is
    /// not a number is ignored.
    fn summands(&self) -> BTreeMap<&str, i64> {
        let mut sum = BTreeMap::new();
        if self.nothing > 0 {
            sum.insert(UNKNOWN, self.nothing);
        }
        for (status, items) in &self.counts {
            let status = if status.is_empty() { UNKNOWN } else { status };
            for part in status.split(", ") {
                let mut words = part.split(": ");
                let name = words.next().unwrap_or_default();
                if let Some(count) = words
                    .next()
                    .map_or(Some(1), |count| count.parse::<i64>().ok())
                {
                    let all = count.wrapping_mul(i64::try_from(*items).unwrap_or(i64::MAX));
                    let entry: &mut i64 = sum.entry(name).or_default();
                    *entry = entry.wrapping_add(all);
                }
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of statuses separated by `|`; returns the status of their common root.
    fn check(groups: &str, expected: &str) {
        let tallies: Vec<Tally> = groups
            .split('|')
            .map(|statuses| {
                let mut tally = Tally::default();
                statuses
                    .split(';')
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .for_each(|word| tally.item(word));
                tally
            })
            .collect();
        let mut root = Tally::default();
        tallies.iter().for_each(|tally| root.group(tally));
        assert_eq!(root.status(root.has_custom()), expected, "{groups}");
    }

    #[test]
    fn surplus_statuses_are_counted_together() {
        let mut tally = Tally::default();
        for number in 0..5_000 {
            tally.item(&format!("status {number}"));
            tally.item(PASSED);
            tally.item(&"x".repeat(1_000 + number));
        }
        let mut root = Tally::default();
        root.group(&tally);
        root.item(FAILED);
        for tally in [&tally, &root] {
            assert!(
                tally.counts().len() <= DISTINCT + 6,
                "{}",
                tally.counts().len()
            );
            assert_eq!(tally.counts()[PASSED], 5_000);
            assert!(tally.counts()[OTHER] >= 9_000);
        }
        assert_eq!(root.counts().values().sum::<u64>(), 15_001);
    }

    #[test]
    fn statuses_roll_up() {
        check("passed;skipped", "passed");
        check("skipped|skipped", "passed");
        check("passed;unknown", "unknown");
        check("unknown|failed", "failed");
        check("passed|timeout", "failed");
        check("passed;flaky", "passed");
        check("flaky|failed", "failed");
        check("foo;foo|bar", "bar: 1, foo: 2");
        check("foobar", "foobar: 1");
        check("foo;failed|passed", "failed: 1, foo: 1, passed: 1");
        check("a: 2, b: 1|a", "a: 3, b: 1");
        check("a: many;b", "b: 1");
        check("a: many|b", "b: 1, unknown: 1");
        check("a: many", "unknown: 1");
        check("a: 1: 2;b: -1;, c", ": 1, a: 1, b: -1, c: 1");
        assert_eq!(Tally::default().status(false), "unknown");
        assert_eq!(Tally::default().status(true), "unknown");
    }
}
