//! Reports of workers that there is no result: how they are recognised and what is kept of them.

use serde_json::{Map, Value};

use super::budget;

/// So much of a body tells whether it can be such a report.
pub(super) const REPORT_START_BYTES: u64 = 512;

/// Whether a nameless body that begins so may be the report of an older worker.
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
    serde_json::from_slice::<Map<String, Value>>(body)
        .is_ok_and(|report| report.len() == 1 && report.get("error").is_some_and(Value::is_string))
}

/// The report in `body`; a body that is none becomes the sentence of one.
pub(super) fn parse(body: &[u8]) -> Map<String, Value> {
    match serde_json::from_slice::<Map<String, Value>>(body) {
        Ok(report) if report.get("error").is_some_and(Value::is_string) => report,
        _ => {
            let text = String::from_utf8_lossy(body);
            let text = if text.trim().is_empty() { "the worker gave no reason" } else { text.trim() };
            Map::from_iter([("error".to_owned(), Value::from(text))])
        }
    }
}

/// What people read of it.
pub(super) fn sentence(report: &Map<String, Value>) -> String {
    let error = report.get("error").and_then(Value::as_str).unwrap_or("unknown error");
    budget::beginning(error, budget::SENTENCE).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_recognised_and_anything_else_becomes_one() {
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
            assert_eq!(sentence(&parse(body.as_bytes())), error, "{body}");
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
