//! The tree of results in `sonobuoy_results.yaml`, from the whole plugin down to a single test.
//!
//! Owns the structure. Knows neither how a tree is built from files (`process` does), nor what its
//! statuses mean together (`verdict` does), nor how it is displayed.

mod failure;
pub mod read;
pub mod tree;
mod utf16;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use failure::{Failure, MessageMark};

pub use crate::verdict::{
    FAILED, FLAKY, OTHER, PASSED, SKIPPED, TIMEOUT, UNKNOWN, is_failure, is_known,
};
use base::clock;

/// Maximum depth of items, and of details.
const DEPTH: usize = 100;
/// The detail with an item's duration in seconds.
pub const DURATION: &str = "duration";
/// The detail with the suggested fix, and the one with a link to more information.
pub const REMEDY: &str = "remedy";
/// See [`REMEDY`].
pub const LINK: &str = "link";
/// The detail with the reason of a failure.
pub const FAILURE: &str = "failure";
/// The detail with every attempt at a test that was retried, including the first: a list of objects
/// with a `status` and, unless that is passed, a [`FAILURE`].
pub const ATTEMPTS: &str = "attempts";

/// The detail of a skipped test that was selected and did not run, because its suite ended early.
pub const NOT_RUN: &str = "not-run";

/// The entry of the metadata with the path of the file that an item is from.
pub const FILE: &str = "file";
/// The entry of the metadata with the reason why an item could not be read, or not to its end.
pub const ERROR: &str = "error";

/// The detail with the interrupted run in which a test ran, if not this run.
pub const RESUMED: &str = "resumed";

/// The name of a test without the prefix of its framework.
pub fn plain(name: &str) -> &str {
    let name = name.trim();
    name.strip_prefix("[It]").unwrap_or(name).trim()
}

/// Entries that Ginkgo reports besides tests.
const SUITE_NODES: [&str; 9] = [
    "[BeforeSuite]",
    "[AfterSuite]",
    "[SynchronizedBeforeSuite]",
    "[SynchronizedAfterSuite]",
    "[ReportBeforeSuite]",
    "[ReportAfterSuite]",
    "[DeferCleanup (Suite)]",
    "[CleanupAfterSuite]",
    "[CleanupAfterAll]",
];

/// Whether an entry is a node of the suite, which always runs and cannot be selected.
pub fn is_suite_node(name: &str) -> bool {
    SUITE_NODES.iter().any(|node| name.starts_with(node))
}

/// A result, or a group of results. Fields are in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Item {
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
    pub fn new(name: impl Into<String>, status: &str) -> Self {
        Self {
            name: name.into(),
            status: status.into(),
            ..Self::default()
        }
    }

    /// The same item with one more detail.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// The same item with one more entry of its metadata.
    pub fn with_meta(mut self, key: &str, value: &str) -> Self {
        self.meta.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Duration according to the details: a number of seconds, or a duration in Go's notation.
    pub fn duration(&self) -> Option<f64> {
        let seconds = match self.details.get(DURATION)? {
            Value::String(text) => clock::parse_duration(text)
                .map(|span| span.as_secs_f64())
                .or_else(|| text.parse().ok()),
            other => other.as_f64(),
        };
        seconds.filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
    }
}

/// A step of the walk through a tree, depth first.
pub enum Step {
    /// An item with children starts; its fields are those that precede its children.
    Enter(Item),
    /// The innermost such item ends.
    Leave,
    /// An item without children.
    Item(Item),
}
