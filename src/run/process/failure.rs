//! Reads `error.json`: why a result is missing, according to worker or aggregator.
//!
//! Formats values as Go prints them (`map[a:1 b:[x y]]`), since readers of the original expect
//! that.

use std::io::Read;

use serde::Deserialize as _;
use serde_json::{Map, Value};

use base::Joined as _;
use client::protocol::FailureKind;
use model::item::{FAILED, Item, SKIPPED, TIMEOUT};
use model::layout::ERROR_FILE;

/// The item of a report; the caller adds its path.
pub(super) fn read(mut input: impl Read) -> Item {
    let mut item = Item::new(ERROR_FILE, FAILED);
    let mut bytes = Vec::new();
    if input.read_to_end(&mut bytes).is_err() {
        return item;
    }
    // The output of a failed program need not be UTF-8.
    let text = String::from_utf8_lossy(&bytes);
    let report = Option::<Map<_, _>>::deserialize(&mut serde_json::Deserializer::from_str(&text));
    let Ok(report) = report else { return item };
    let report = report.unwrap_or_default().into_iter();
    item.details = report
        .map(|(key, value)| (key, Value::String(go(&value))))
        .collect();
    let error = item
        .details
        .get("error")
        .and_then(Value::as_str)
        .unwrap_or("<nil>");
    item.status = match FailureKind::of(error) {
        FailureKind::Skipped => SKIPPED,
        FailureKind::TimedOut => TIMEOUT,
        FailureKind::Failed | FailureKind::NodeLost => FAILED,
    }
    .into();
    if !error.is_empty() {
        error.clone_into(&mut item.name);
    }
    item
}

/// Formats a value as Go's `%v` after decoding JSON, where every number is a float.
fn go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => go_float(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go).joined(" ")),
        Value::Object(map) => {
            let entries = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", go(value)));
            format!("map[{}]", entries.joined(" "))
        }
    }
}

/// Shortest digits of a number, with a two-digit exponent from 10^6 on and below 10^-4.
fn go_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(report: &str, name: &str, status: &str, details: &[(&str, &str)]) {
        let item = read(report.as_bytes());
        assert_eq!(
            (item.name.as_str(), item.status.as_str()),
            (name, status),
            "{report}"
        );
        let found: Vec<_> = item
            .details
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str().unwrap()))
            .collect();
        assert_eq!(found, details, "{report}");
    }

    #[test]
    fn invalid_utf_8_in_failures_is_replaced() {
        let item = read(&b"{\"error\":\"a \xff b\"}"[..]);
        assert_eq!(item.name, "a \u{fffd} b");
    }

    #[test]
    fn values_are_formatted_like_go() {
        check(
            r#"{"error":"a timeout"}"#,
            "a timeout",
            "timeout",
            &[("error", "a timeout")],
        );
        let skipped = "skipped: node deleted";
        check(
            r#"{"error":"skipped: node deleted"}"#,
            skipped,
            "skipped",
            &[("error", skipped)],
        );
        check(r#"{"b":1}"#, "<nil>", "failed", &[("b", "1")]);
        check(
            r#"{"error":null} trailing"#,
            "<nil>",
            "failed",
            &[("error", "<nil>")],
        );
        check("[1]", "error.json", "failed", &[]);
        check("", "error.json", "failed", &[]);
        check("null", "<nil>", "failed", &[]);
        check(r#"{"error":""}"#, "error.json", "failed", &[("error", "")]);
        for (json, text) in [
            (
                r#"{"z":[1,"x",true,null],"a":{}}"#,
                "map[a:map[] z:[1 x true <nil>]]",
            ),
            ("1000000", "1e+06"),
            ("999999", "999999"),
            ("1234567.5", "1.2345675e+06"),
            ("1073741824", "1.073741824e+09"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("-2.50", "-2.5"),
            ("1e100", "1e+100"),
            ("0", "0"),
        ] {
            check(
                &format!(r#"{{"error":"e","v":{json}}}"#),
                "e",
                "failed",
                &[("error", "e"), ("v", text)],
            );
        }
    }
}
