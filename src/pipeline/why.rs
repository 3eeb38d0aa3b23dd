//! Explains, in the archive, why a run produced only errors.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::definition::write_json;
use crate::layout;
use crate::remedies::{Event, Why};
use base::json::json;
use base::small;

/// Maximum bytes read of an error's file.
const MAX_ERROR_BYTES: u64 = 256 << 10;

/// Writes the explanation if every result in `received` is an error.
pub(super) fn write(received: &Value, run_dir: &Path) -> Result<()> {
    let results = received.as_array().map(Vec::as_slice).unwrap_or_default();
    let events: Option<Vec<Event>> = results.iter().map(|result| event(result, run_dir)).collect();
    match events {
        Some(events) if !events.is_empty() => {
            write_json(&run_dir.join(layout::WHY), &json!(Why::new(events)))
        }
        _ => Ok(()),
    }
}

/// The error in place of a result; none if the result arrived.
fn event(result: &Value, run_dir: &Path) -> Option<Event> {
    let text = |key: &str| result[key].as_str().map(str::to_owned);
    let (time, plugin, node) = (text("failed")?, text("plugin")?, text("node")?);
    let path =
        run_dir.join(layout::plugin(&plugin)).join(layout::ERRORS).join(&node).join(layout::ERROR_FILE);
    let report =
        small::read(&path, MAX_ERROR_BYTES).ok().and_then(|bytes| base::json::from_slice(&bytes).ok());
    let error = report.as_ref().and_then(|report| report["error"].as_str()).unwrap_or_default().to_owned();
    Some(Event { time, plugin, node, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_without_any_result_is_explained() {
        let folder = base::temp::Folder::new().unwrap();
        std::fs::create_dir_all(folder.join("meta")).unwrap();
        let errors = folder.join("plugins/p/errors/n1");
        std::fs::create_dir_all(&errors).unwrap();
        std::fs::write(errors.join("error.json"), r#"{"error": "no route to host"}"#).unwrap();
        let failed = json!({"plugin": "p", "node": "n1", "failed": "2026-01-01T00:00:00Z"});
        let came = json!({"plugin": "p", "node": "n2", "arrived": "2026-01-01T00:00:00Z"});
        for received in [json!([]), json!([failed, came])] {
            write(&received, &folder).unwrap();
            assert!(!folder.join(layout::WHY).exists(), "{received}");
        }
        write(&json!([failed]), &folder).unwrap();
        let text = std::fs::read_to_string(folder.join(layout::WHY)).unwrap();
        let why: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(why["results"], 1);
        assert_eq!(why["first"]["error"], "no route to host");
        assert_eq!(why["causes"][0]["nodes"], 1);
        assert!(why["causes"][0]["remedy"].as_str().unwrap().contains("routes"));
    }
}
