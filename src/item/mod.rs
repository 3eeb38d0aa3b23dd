//! The tree of results in `sonobuoy_results.yaml`, from the whole plugin down to a single test.
//!
//! Owns the structure, the names of statuses and the roll-up. Knows neither how a tree is built from files (`process`
//! does) nor how it is displayed.

pub(crate) mod read;
pub(crate) mod tree;
mod utf16;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use base::Joined as _;
use base::clock;

/// The known statuses; any other text is a custom status.
pub(crate) const PASSED: &str = "passed";
/// See [`PASSED`].
pub(crate) const FAILED: &str = "failed";
/// See [`PASSED`].
pub(crate) const SKIPPED: &str = "skipped";
/// See [`PASSED`].
pub(crate) const UNKNOWN: &str = "unknown";
/// See [`PASSED`].
pub(crate) const TIMEOUT: &str = "timeout";
/// Failed at first and passed on retry.
pub(crate) const FLAKY: &str = "flaky";

/// The name that counts items beyond the limit of distinct statuses.
pub(crate) const OTHER: &str = "other";

/// Maximum number of distinct statuses; a plugin with a separate status for each of a million items would exhaust
/// memory.
const DISTINCT: usize = 1_000;
/// Maximum length of a status; the rest is ignored.
const STATUS_BYTES: usize = 256;
/// Maximum depth of items, and of details.
const DEPTH: usize = 100;
/// The detail with an item's duration in seconds.
pub(crate) const DURATION: &str = "duration";
/// The detail with the suggested fix, and the one with a link to more information.
pub(crate) const REMEDY: &str = "remedy";
/// See [`REMEDY`].
pub(crate) const LINK: &str = "link";
/// The detail with the reason of a failure.
pub(crate) const FAILURE: &str = "failure";
/// The detail with every attempt at a test that was retried, including the first: a list of objects with a `status`
/// and, unless that is passed, a [`FAILURE`].
pub(crate) const ATTEMPTS: &str = "attempts";

/// The detail with the interrupted run in which a test ran, if not this run.
pub(crate) const RESUMED: &str = "resumed";

/// The name of a test without the prefix of its framework.
pub(crate) fn plain(name: &str) -> &str {
    let name = name.trim();
    name.strip_prefix("[It]").unwrap_or(name).trim()
}

/// Whether a status is known or empty.
pub(crate) fn is_known(status: &str) -> bool {
    matches!(status, PASSED | FAILED | SKIPPED | UNKNOWN | TIMEOUT | FLAKY | "")
}

/// Whether a status is that of a failure.
pub(crate) fn is_failure(status: &str) -> bool {
    matches!(status, FAILED | TIMEOUT)
}

/// A result, or a group of results. Fields are in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Item {
    /// Plugin, node, file, suite or test.
    pub name: String,
    /// One of the known statuses, or a custom one.
    pub status: String,
    /// `file` (relative to the plugin's folder), `type` (`summary`, `node`, `file`), `error`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Arbitrary details from the plugin.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, Value>,
    /// Children; only items without any count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
}

impl Item {
    /// An item without details and children.
    pub(crate) fn new(name: impl Into<String>, status: &str) -> Self {
        Self { name: name.into(), status: status.into(), ..Self::default() }
    }

    /// The same item with one more detail.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// The same item with one more entry of its metadata.
    pub(crate) fn with_meta(mut self, key: &str, value: &str) -> Self {
        self.meta.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Duration according to the details: a number of seconds, or a duration in Go's notation.
    pub(crate) fn duration(&self) -> Option<f64> {
        let seconds = match self.details.get(DURATION)? {
            Value::String(text) => {
                clock::parse_duration(text).map(|span| span.as_secs_f64()).or_else(|| text.parse().ok())
            }
            other => other.as_f64(),
        };
        seconds.filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
    }
}

/// A step of the walk through a tree, depth first.
pub(crate) enum Step {
    /// An item with children starts; its fields are those that precede its children.
    Enter(Item),
    /// The innermost such item ends.
    Leave,
    /// An item without children.
    Item(Item),
}

/// Counts below an item so far, which determine its status.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    /// Items without children by status, custom ones included.
    counts: BTreeMap<String, u64>,
    children: u64,
    /// Groups whose items' statuses sum to nothing; counted as unknown.
    nothing: i64,
}

impl Tally {
    /// Adds an item without children.
    pub(crate) fn item(&mut self, status: &str) {
        self.children += 1;
        self.count(status, 1);
    }

    /// Adds a finished group.
    pub(crate) fn group(&mut self, group: &Self) {
        self.children += 1;
        for (status, count) in &group.counts {
            self.count(status, *count);
        }
        self.nothing += group.nothing + i64::from(group.has_custom() && group.summands().is_empty());
    }

    fn count(&mut self, status: &str, more: u64) {
        if let Some(count) = self.counts.get_mut(status) {
            *count += more;
        } else if status.len() <= STATUS_BYTES && (self.counts.len() < DISTINCT || is_known(status)) {
            self.counts.insert(status.to_owned(), more);
        } else {
            *self.counts.entry(OTHER.to_owned()).or_default() += more;
        }
    }

    /// Number of children added.
    pub(crate) fn children(&self) -> u64 {
        self.children
    }

    /// Whether any item has a custom status, which changes the statuses of the whole tree.
    pub(crate) fn has_custom(&self) -> bool {
        self.counts.keys().any(|status| !is_known(status))
    }

    fn has(&self, statuses: [&str; 2]) -> bool {
        statuses.iter().any(|status| self.counts.contains_key(*status))
    }

    /// The number of items with each status.
    pub(crate) fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// The status of the group. `custom` says whether any item of the whole tree, not only of this group, has a
    /// custom status: then the status of groups is a count of each status instead of a verdict.
    pub(crate) fn status(&self, custom: bool) -> String {
        if self.children == 0 {
            UNKNOWN.into()
        } else if custom {
            self.summands().iter().map(|(status, count)| format!("{status}: {count}")).joined(", ")
        } else if self.has([FAILED, TIMEOUT]) {
            FAILED.into()
        } else if self.has([UNKNOWN, ""]) {
            UNKNOWN.into()
        } else {
            PASSED.into()
        }
    }

    /// The counts to add up: an item's status may itself be a sum, `a: 2, b: 1`; anything that is not a number is ignored.
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
                if let Some(count) = words.next().map_or(Some(1), |count| count.parse::<i64>().ok()) {
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
            assert!(tally.counts().len() <= DISTINCT + 6, "{}", tally.counts().len());
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
