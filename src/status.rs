//! The status document of a run: the annotation `sonobuoy.hept.io/status`, `status --json`, `GET /status`.
//!
//! Owns its shape. Who fills it is `aggregator`, who shows it is `cli`. The names and the presence of fields are
//! what scripts index into; fields of ours are left out where they say nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use base::clock;
use client::protocol::Progress;

/// Still at work.
pub(crate) const RUNNING: &str = "running";
/// All results are in; they are processed and packed.
pub(crate) const POST_PROCESSING: &str = "post-processing";
/// Over: for a run, the archive is there; for a plugin on a node, its result is.
pub(crate) const COMPLETE: &str = "complete";
/// Over without a result.
pub(crate) const FAILED: &str = "failed";

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// One entry for each expected result; null before they are known.
    #[serde(default)]
    pub plugins: Option<Vec<Entry>>,
    /// [`RUNNING`], [`POST_PROCESSING`], [`COMPLETE`] or [`FAILED`].
    #[serde(default)]
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
    /// Reads the text of an annotation or of the status service, as its other readers do: keys in any case, and what
    /// is absent or null says nothing.
    pub(crate) fn parse(text: &str) -> serde_json::Result<Self> {
        let mut run = base::json::from_slice(text.as_bytes())?;
        let fields = plain(&mut run)?;
        for entry in fields.get_mut("plugins").and_then(Value::as_array_mut).into_iter().flatten() {
            let entry = plain(entry)?;
            if let Some(Value::Object(counts)) = entry.get_mut("result-counts") {
                counts.values_mut().filter(|count| count.is_null()).for_each(|count| *count = 0.into());
            }
            if let Some(progress) = entry.get_mut("progress") {
                let progress = plain(progress)?;
                for texts in progress.values_mut().filter_map(Value::as_array_mut) {
                    texts.iter_mut().filter(|text| text.is_null()).for_each(|text| *text = "".into());
                }
                // Its readers want a time.
                progress.entry("timestamp").or_insert_with(|| clock::ZERO.into());
            }
        }
        if let Some(archive) = fields.get_mut("tar-info") {
            plain(archive)?;
        }
        // Through a value, as every reader of it does: one copy of the machine code is enough.
        serde_json::from_value(run)
    }
}

/// The fields of an object, their names in lower case, without those that are null. Null itself has none.
fn plain(value: &mut Value) -> serde_json::Result<&mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(fields) = value else {
        return Err(serde::de::Error::custom(format_args!("{value} stands where an object is needed")));
    };
    let known = std::mem::take(fields).into_iter().filter(|(_, value)| !value.is_null());
    fields.extend(known.map(|(name, value)| (name.to_ascii_lowercase(), value)));
    Ok(fields)
}

/// One plugin on one node, or once for the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    /// The plugin's name.
    pub plugin: String,
    /// The node's name, or `global`.
    pub node: String,
    /// [`RUNNING`], [`COMPLETE`] or [`FAILED`].
    pub status: String,
    /// The status of the processed result; empty before.
    #[serde(rename = "result-status")]
    pub result_status: String,
    /// Leaves of the processed result by status; null before.
    #[serde(rename = "result-counts")]
    pub result_counts: Option<BTreeMap<String, u64>>,
    /// The newest progress the plugin has told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Arc<Progress>>,
    /// Seconds since the worker was last heard of.
    #[serde(rename = "last-heartbeat", skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<u64>,
    /// True when its time limit ended it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// For how many nodes this entry stands when entries were folded; absent means one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How closely the sender of the result is known: `node` by a certificate of its own, `plugin` by one that all
    /// nodes of the plugin share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// What is wrong, in a sentence, and what to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The finished archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Archive {
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

    #[test]
    fn documents_of_any_age_are_read() {
        let check = |text: &str, expected: &str| {
            let run = Run::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(serde_json::to_string(&run).unwrap(), expected, "{text}");
        };
        let nothing = r#""tar-info":{"name":"","created":"0001-01-01T00:00:00Z","sha256":"","size":0}}"#;
        check("null", &format!(r#"{{"plugins":null,"status":"",{nothing}"#));
        check(r#"{"status":null,"tar-info":null}"#, &format!(r#"{{"plugins":null,"status":"",{nothing}"#));
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
        for wrong in ["", "[]", "{", r#"{"status":1}"#, r#"{"plugins":{}}"#, r#"{"plugins":[[]]}"#, "{} {}"] {
            assert!(Run::parse(wrong).is_err(), "{wrong}");
        }
    }
}
