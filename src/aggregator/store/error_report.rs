//! Error reports of workers: how they are recognised and what is kept of them.

use serde::Deserialize;

use crate::aggregator::limits;

/// Bytes of a body that tell whether it can be such a report.
pub(super) const START_BYTES: u64 = 512;

/// Whether a nameless body with this start may be the report of an older worker.
pub(super) fn may_be_bare(start: &[u8]) -> bool {
    let start = start.trim_ascii_start();
    start.is_empty()
        || start.strip_prefix(b"{").is_some_and(|rest| {
            let rest = rest.trim_ascii_start();
            let key = b"\"error\"";
            rest.starts_with(&key[..key.len().min(rest.len())])
        })
}

/// Whether a nameless body is the report of an older worker: an object with `error` and nothing else.
pub(super) fn is_bare(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Bare {
        #[allow(dead_code, reason = "only its type counts")]
        error: String,
    }
    serde_json::from_slice::<Bare>(body).is_ok()
}

/// The bytes to keep of a report, and its sentence. A body that is not a report becomes the sentence of one.
pub(super) fn parse(body: Vec<u8>) -> (Vec<u8>, String) {
    #[derive(Deserialize)]
    struct Report {
        error: String,
    }
    if let Ok(Report { error }) = serde_json::from_slice(&body) {
        return (body, sentence(error));
    }
    let text = String::from_utf8_lossy(&body);
    let text = if text.trim().is_empty() { "the worker gave no reason" } else { text.trim() };
    (base::json::json!({ "error": text }).to_string().into_bytes(), sentence(text.to_owned()))
}

/// The part of an error that is kept in memory.
pub(super) fn sentence(error: String) -> String {
    limits::cut(error, limits::MAX_SENTENCE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_recognised_and_other_bodies_become_one() {
        for (body, bare, error) in [
            (r#"{"error":"no file"}"#, true, "no file"),
            (r#"{"error":"no file","pod":{}}"#, false, "no file"),
            (r#"{"error":1}"#, false, r#"{"error":1}"#),
            ("disk on fire\n", false, "disk on fire"),
            ("", false, "the worker gave no reason"),
            ("[", false, "["),
        ] {
            assert_eq!(is_bare(body.as_bytes()), bare, "{body}");
            assert!(may_be_bare(body.as_bytes()) || !bare, "{body}");
            assert_eq!(parse(body.into()).1, error, "{body}");
        }
        for (start, may) in [
            ("", true),
            (" {", true),
            ("{\"err", true),
            ("{\n\"error\" :", true),
            ("{\"a\"", false),
            ("<a", false),
        ] {
            assert_eq!(may_be_bare(start.as_bytes()), may, "{start}");
        }
    }
}
