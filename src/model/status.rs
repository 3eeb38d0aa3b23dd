//! The status document of a run: the annotation `sonobuoy.hept.io/status`, `status --json`, `GET
//! /status`.
//!
//! Owns its structure. `aggregator` fills it, `cli` shows it. Scripts rely on the names and
//! presence of fields; fields that the original lacks are omitted when empty.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::timings::Timings;
use base::clock;
use client::protocol::{Lost, Progress};

/// Still running.
pub const RUNNING: &str = "running";
/// All results have arrived, and are being processed and packed.
pub const POST_PROCESSING: &str = "post-processing";
/// Done: a run has its archive, a plugin on a node its result.
pub const COMPLETE: &str = "complete";
/// Done without a result.
pub const FAILED: &str = "failed";

/// Prefix of a progress message that names the running test, and the separator before its start
/// time.
const RUNNING_TEST: &str = "RUNNING ";
const SINCE: &str = " since ";

/// The progress message that names the running test; `since` unless the test has just started.
pub fn running_test(name: &str, since: Option<SystemTime>) -> String {
    let since = since.map(|since| format!("{SINCE}{}", clock::rfc3339(since)));
    format!("{RUNNING_TEST}{name}{}", since.unwrap_or_default())
}

/// The running test according to the latest progress, and its start time.
pub fn running_of(progress: &Progress) -> Option<(&str, Option<SystemTime>)> {
    let name = progress.msg.strip_prefix(RUNNING_TEST)?;
    let name_and_start = name
        .rsplit_once(SINCE)
        .and_then(|(name, since)| Some((name, clock::parse_rfc3339(since)?)));
    Some(match name_and_start {
        Some((name, since)) => (name, Some(since)),
        None => (name, clock::parse_rfc3339(&progress.timestamp)),
    })
}

/// Maximum value of a count, so that sums do not overflow.
const MAX_COUNT: u64 = 1 << 40;

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// One entry for each expected result; null until they are known.
    pub plugins: Option<Vec<Entry>>,
    /// [`RUNNING`], [`POST_PROCESSING`], [`COMPLETE`] or [`FAILED`].
    // Without one, nothing is known of its state.
    #[serde(default)]
    pub status: String,
    /// The archive; zeros until it exists.
    #[serde(rename = "tar-info")]
    pub archive: Archive,
    /// The share of expected results that have arrived, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent_complete: Option<f64>,
    /// True if entries were shortened or folded to fit into an annotation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// State of the archive's upload by the aggregator: [`RUNNING`], [`COMPLETE`] or [`FAILED`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// The reason why a run, or the upload of its archive, has [`FAILED`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why some nodes lack the condition that tells their verdict.
    #[serde(rename = "not-marked", skip_serializing_if = "Option::is_none")]
    pub not_marked: Option<String>,
    /// The problem that prevents a run from starting; only known outside the aggregator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long the parts of a complete run took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// Creation time of the aggregator's pod; only known outside the aggregator, and never
    /// serialized.
    #[serde(skip)]
    pub started: Option<SystemTime>,
    /// Bytes of the results that have arrived; only known inside the aggregator, and never
    /// serialized.
    #[serde(skip)]
    pub received_bytes: u64,
    /// Requests of workers that were refused; as `received_bytes`.
    #[serde(skip)]
    pub refusals: u64,
}

impl Run {
    /// The reason why the aggregator could not upload the archive.
    pub fn not_uploaded(&self) -> Option<&str> {
        let failed = self.upload.as_deref() == Some(FAILED);
        failed.then(|| self.error.as_deref().unwrap_or("it does not say why"))
    }

    /// The document without the ages of heartbeats, which change constantly.
    pub fn without_ages(&self) -> Self {
        let mut run = self.clone();
        run.plugins
            .iter_mut()
            .flatten()
            .for_each(|entry| entry.last_heartbeat = None);
        run
    }

    /// Parses the text of an annotation or of the status service, as its other readers do: keys are
    /// case-insensitive, and absent equals null.
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        let mut run = base::json::from_slice(text.as_bytes())?;
        let fields = plain(&mut run)?;
        for entry in fields
            .get_mut("plugins")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let entry = plain(entry)?;
            if let Some(Value::Object(counts)) = entry.get_mut("result-counts") {
                counts
                    .values_mut()
                    .filter(|count| count.is_null())
                    .for_each(|count| *count = 0.into());
            }
            if let Some(progress) = entry.get_mut("progress") {
                let progress = plain(progress)?;
                for texts in progress.values_mut().filter_map(Value::as_array_mut) {
                    texts
                        .iter_mut()
                        .filter(|text| text.is_null())
                        .for_each(|text| *text = "".into());
                }
                // Readers require a time.
                progress
                    .entry("timestamp")
                    .or_insert_with(|| clock::ZERO.into());
            }
        }
        if let Some(archive) = fields.get_mut("tar-info") {
            plain(archive)?;
        }
        // Deserializes from a value, as other readers do, so that the machine code exists once.
        let mut run: Self = serde_json::from_value(run)?;
        for entry in run.plugins.iter_mut().flatten() {
            let counts = entry
                .result_counts
                .iter_mut()
                .flat_map(BTreeMap::values_mut);
            counts
                .chain(&mut entry.count)
                .for_each(|count| *count = (*count).min(MAX_COUNT));
        }
        Ok(run)
    }
}

/// The non-null fields of an object, with lower-case names; null has no fields.
fn plain(value: &mut Value) -> serde_json::Result<&mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(fields) = value else {
        return Err(serde::de::Error::custom(format_args!(
            "{value} stands where an object is needed"
        )));
    };
    let entries = std::mem::take(fields)
        .into_iter()
        .filter(|(_, value)| !value.is_null());
    fields.extend(entries.map(|(name, value)| (name.to_ascii_lowercase(), value)));
    Ok(fields)
}

/// One plugin on one node, or once for the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// The plugin's name.
    pub plugin: String,
    /// The node's name, or `global`.
    pub node: String,
    /// [`RUNNING`], [`COMPLETE`] or [`FAILED`].
    pub status: String,
    /// The status of the processed result; empty until then.
    #[serde(rename = "result-status")]
    pub result_status: String,
    /// Items of the processed result by status; null until then.
    #[serde(rename = "result-counts")]
    pub result_counts: Option<BTreeMap<String, u64>>,
    /// The latest progress of the plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Arc<Progress>>,
    /// Seconds since the worker's last contact.
    #[serde(rename = "last-heartbeat", skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<u64>,
    /// Whether it exceeded its time limit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// The node or pod whose loss is the reason for a missing result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// The number of nodes in a folded entry; absent means one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Precision of the sender's identification: `node` by a separate certificate, `plugin` by one
    /// shared by all nodes of the plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The problem, in a sentence, and its remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The finished archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Archive {
    /// Its file name, without the folder.
    pub name: String,
    /// Completion time, RFC 3339.
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
            upload: None,
            error: None,
            not_marked: None,
            message: None,
            timings: None,
            started: None,
            received_bytes: 0,
            refusals: 0,
        }
    }
}

impl Default for Archive {
    fn default() -> Self {
        Self {
            name: String::new(),
            created: clock::ZERO.into(),
            sha256: String::new(),
            size: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_document_equals_the_original() {
        let text = serde_json::to_string(&Run::default()).unwrap();
        assert_eq!(
            text,
            r#"{"plugins":null,"status":"running","tar-info":{"name":"","created":"0001-01-01T00:00:00Z","sha256":"","size":0}}"#
        );
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), Run::default());
    }

    #[test]
    fn documents_of_any_age_are_read() {
        let check = |text: &str, expected: &str| {
            let run = Run::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(serde_json::to_string(&run).unwrap(), expected, "{text}");
        };
        let nothing =
            r#""tar-info":{"name":"","created":"0001-01-01T00:00:00Z","sha256":"","size":0}}"#;
        check(
            "null",
            &format!(r#"{{"plugins":null,"status":"",{nothing}"#),
        );
        check(
            r#"{"status":null,"tar-info":null}"#,
            &format!(r#"{{"plugins":null,"status":"",{nothing}"#),
        );
        check(
            r#"{"Status":"running","other":1,"plugins":[null,{"Plugin":"p","progress":{"Total":2,"failures":[null]},"result-counts":{"A":null}}]}"#,
            &format!(
                "{}{}{nothing}",
                r#"{"plugins":[{"plugin":"","node":"","status":"","result-status":"","result-counts":null},{"plugin":"p","node":"","status":"","result-status":"","result-counts":{"A":0},"#,
                r#""progress":{"name":"","node":"","timestamp":"0001-01-01T00:00:00Z","msg":"","total":2,"completed":0,"failures":[""]}}],"status":"running","#
            ),
        );
        check(
            r#"{"status":"complete","tar-info":{"name":"a.tar.gz"}}"#,
            r#"{"plugins":null,"status":"complete","tar-info":{"name":"a.tar.gz","created":"0001-01-01T00:00:00Z","sha256":"","size":0}}"#,
        );
        for wrong in [
            "",
            "[]",
            "{",
            r#"{"status":1}"#,
            r#"{"plugins":{}}"#,
            r#"{"plugins":[[]]}"#,
            "{} {}",
        ] {
            assert!(Run::parse(wrong).is_err(), "{wrong}");
        }
    }
}
