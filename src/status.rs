//! The status document of a run: the annotation `sonobuoy.hept.io/status`, `status --json`, `GET /status`.
//!
//! Owns its shape. Who fills it is `aggregator`, who shows it is `cli`. The names and the presence of fields are
//! what scripts index into; fields of ours are left out where they say nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::protocol::Progress;

/// The annotation on the aggregator's pod that holds the document.
pub const ANNOTATION: &str = "sonobuoy.hept.io/status";

/// Still at work.
pub const RUNNING: &str = "running";
/// All results are in; they are processed and packed.
pub const POST_PROCESSING: &str = "post-processing";
/// Over: for a run, the archive is there; for a plugin on a node, its result is.
pub const COMPLETE: &str = "complete";
/// Over without a result.
pub const FAILED: &str = "failed";

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// One entry for each expected result; null before they are known.
    #[serde(default)]
    pub plugins: Option<Vec<Entry>>,
    /// [`RUNNING`], [`POST_PROCESSING`], [`COMPLETE`] or [`FAILED`].
    pub status: String,
    /// The archive; zeros until there is one.
    #[serde(rename = "tar-info", default)]
    pub archive: Archive,
    /// How much of the expected has come in, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent_complete: Option<f64>,
    /// True when entries were shortened or folded to fit an annotation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Why a run that [`FAILED`] did so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What holds a run up that has not begun; only whoever asks from outside can know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Run {
    /// Reads the text of an annotation or of the status service.
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        // Through a value, as every reader of it does: one copy of the machine code is enough.
        serde_json::from_value(serde_json::from_str(text)?)
    }
}

/// One plugin on one node, or once for the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The plugin's name.
    pub plugin: String,
    /// The node's name, or `global`.
    pub node: String,
    /// [`RUNNING`], [`COMPLETE`] or [`FAILED`].
    pub status: String,
    /// The status of the processed result; empty before.
    #[serde(rename = "result-status", default)]
    pub result_status: String,
    /// Leaves of the processed result by status; null before.
    #[serde(rename = "result-counts", default)]
    pub result_counts: Option<BTreeMap<String, u64>>,
    /// The newest progress the plugin has told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Seconds since the worker was last heard of.
    #[serde(rename = "last-heartbeat", default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<u64>,
    /// True when its time limit ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// For how many nodes this entry stands when entries were folded; absent means one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// What is wrong, in a sentence, and what to look at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The finished archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Archive {
    /// Its file name, without folder.
    pub name: String,
    /// When it was finished, RFC 3339.
    pub created: String,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            plugins: None,
            status: RUNNING.into(),
            archive: Archive::default(),
            percent_complete: None,
            truncated: false,
            error: None,
            message: None,
        }
    }
}

impl Default for Archive {
    fn default() -> Self {
        Self { name: String::new(), created: clock::ZERO.into(), sha256: String::new(), size: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_document_is_the_one_that_readers_know() {
        let text = serde_json::to_string(&Run::default()).unwrap();
        assert_eq!(
            text,
            r#"{"plugins":null,"status":"running","tar-info":{"name":"","created":"0001-01-01T00:00:00Z","sha256":"","size":0}}"#
        );
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), Run::default());
    }
}
