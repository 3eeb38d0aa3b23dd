//! Progress of plugins: how a posted update is read, and how it is laid over the one before.
//!
//! Pure: who may post and where it is shown is not known here.

use serde_json::Value;

use base::clock;
use client::protocol::{Progress, ResultId};

/// How many failures are kept of one plugin on one node. A list that only grows must end somewhere; the largest
/// suite in use has about 7,000 tests.
const MOST_FAILURES: usize = 20_000;

/// Reads a body as the readers of existing plugins do: any case of keys, unknown keys and whatever follows the
/// object ignored, null the same as absent, what is no Unicode replaced. `None` if it is no update.
pub(super) fn decode(body: &[u8]) -> Option<Progress> {
    // Names of tests and messages come from anywhere.
    let text = with_whole_letters(&String::from_utf8_lossy(body));
    let value = serde_json::Deserializer::from_str(&text).into_iter::<Value>().next()?.ok()?;
    let object = match value {
        Value::Null => return Some(Progress::default()),
        Value::Object(object) => object,
        _ => return None,
    };
    let mut fields = serde_json::Map::new();
    for (key, mut value) in object {
        let key = key.to_ascii_lowercase();
        match key.as_str() {
            _ if value.is_null() => {}
            // These three are the aggregator's own; only what could not be read at all is refused.
            "timestamp" if is_time(value.as_str()?) => {}
            "timestamp" => return None,
            "name" | "node" => {
                value.as_str()?;
            }
            _ => {
                if let Value::Array(entries) = &mut value {
                    entries.iter_mut().filter(|entry| entry.is_null()).for_each(|entry| *entry = "".into());
                }
                fields.insert(key, value);
            }
        }
    }
    serde_json::from_value(Value::Object(fields)).ok()
}

/// JSON whose escapes of half a letter are replaced: Python writes them for names that are not UTF-8.
fn with_whole_letters(json: &str) -> String {
    let unit = |escape: &str| {
        let digits = escape.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut whole = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        let second = |unit| (0xdc00..0xe000).contains(&unit);
        let length = match unit(escape) {
            Some(0xd800..0xdc00) if escape.get(6..).and_then(unit).is_some_and(second) => 12,
            Some(0xd800..0xe000) => 6,
            _ => escape.chars().take(2).map(char::len_utf8).sum(),
        };
        let (kept, after) = escape.split_at(length);
        whole.push_str(if length == 6 { "\\ufffd" } else { kept });
        rest = after;
    }
    whole.push_str(rest);
    whole
}

/// RFC 3339 of any year: libraries that do not set the time send the year 1.
fn is_time(text: &str) -> bool {
    let (Some(year), Some(rest)) = (text.get(..4), text.get(4..)) else { return false };
    year.bytes().all(|byte| byte.is_ascii_digit()) && clock::parse_rfc3339(&format!("2000{rest}")).is_some()
}

/// The progress of `id` after `update` came in at `now`, `before` being what was known.
pub(super) fn merged(id: &ResultId, before: Option<Progress>, update: Progress, now: String) -> Progress {
    let appending = update.append_totals || update.append_completed > 0 || !update.append_failing.is_empty();
    let mut after = if appending {
        let mut after = before.unwrap_or_default();
        after.msg = update.msg;
        after.completed = after.completed.saturating_add(update.append_completed);
        if update.append_totals {
            let failing = i64::try_from(update.append_failing.len()).unwrap_or(i64::MAX);
            after.total = after.total.saturating_add(update.append_completed).saturating_add(failing);
        }
        after.failures.extend(update.append_failing);
        after
    } else {
        update
    };
    after.failures.truncate(MOST_FAILURES);
    after.name.clone_from(&id.plugin);
    after.node.clone_from(&id.node);
    after.timestamp = now;
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(bodies: &[&str]) -> Progress {
        let id = ResultId::global("p");
        let updates = bodies.iter().map(|body| decode(body.as_bytes()).expect(body));
        updates.fold(None, |before, update| Some(merged(&id, before, update, "now".into()))).unwrap()
    }

    #[track_caller]
    fn check(bodies: &[&str], total: i64, completed: i64, failures: &[&str]) {
        let progress = after(bodies);
        assert_eq!((progress.total, progress.completed), (total, completed), "{bodies:?}");
        assert_eq!(progress.failures, failures, "{bodies:?}");
        assert!(
            !progress.append_totals && progress.append_completed == 0 && progress.append_failing.is_empty()
        );
    }

    const FIRST: &str = r#"{"appendtotals":true}"#;
    const FOO: &str = r#"{"appendtotals":true,"appendcompleted":3,"appendfailing":["foo"]}"#;
    const FOUR: &str = r#"{"appendtotals":true,"appendcompleted":4}"#;
    const BAR: &str = r#"{"appendtotals":true,"appendcompleted":5,"appendfailing":["bar"]}"#;
    const WHOLE: &str = r#"{"total":33,"completed":33}"#;

    #[test]
    fn appending_adds_and_whole_updates_replace() {
        check(&[FIRST], 0, 0, &[]);
        check(&[FIRST, FOO], 4, 3, &["foo"]);
        check(&[FIRST, FOO, FOUR], 8, 7, &["foo"]);
        check(&[FIRST, FOO, FOUR, BAR], 14, 12, &["foo", "bar"]);
        check(&[FIRST, FOO, FOUR, BAR, WHOLE], 33, 33, &[]);
        check(&[FIRST, FOO, WHOLE, FOUR], 37, 37, &[]);
        check(&[WHOLE, r#"{"appendcompleted":2}"#], 33, 35, &[]);
        check(&[WHOLE, r#"{"appendfailing":["x"]}"#], 33, 33, &["x"]);
        check(&[r#"{"completed":9223372036854775807}"#, FOUR], 4, i64::MAX, &[]);
    }

    #[test]
    fn errors_stay_while_appending_and_words_are_the_newest() {
        let progress = after(&[r#"{"msg":"a","errors":["e"]}"#, r#"{"msg":"b","appendcompleted":1}"#]);
        assert_eq!((progress.msg.as_str(), progress.errors.as_slice()), ("b", &["e".to_owned()][..]));
    }

    #[test]
    fn who_and_when_are_ours() {
        let progress = after(&[r#"{"name":"x","node":"y","timestamp":"0001-01-01T00:00:00Z"}"#]);
        assert_eq!((progress.name.as_str(), progress.node.as_str()), ("p", "global"));
        assert_eq!(progress.timestamp, "now");
    }

    #[test]
    fn what_is_not_utf_8_costs_a_letter_and_not_the_update() {
        let progress = decode(b"{\"msg\":\"caf\xe9\",\"completed\":1}").unwrap();
        assert_eq!((progress.msg.as_str(), progress.completed), ("caf\u{fffd}", 1));
        for (msg, read) in [
            (r"\ud83d\ude00", "\u{1f600}"),
            (r"a\udc80b\ud83d", "a\u{fffd}b\u{fffd}"),
            (r"\ud83d\ud83d\ude00\\udc80", "\u{fffd}\u{1f600}\\udc80"),
            (r"\ud83d\u0041\n", "\u{fffd}A\n"),
        ] {
            let progress = decode(format!(r#"{{"msg":"{msg}","errors":["{msg}"]}}"#).as_bytes()).expect(msg);
            assert_eq!((progress.msg.as_str(), progress.errors[0].as_str()), (read, read));
        }
        for broken in
            [r#"{"msg":"\"#, r#"{"msg":"\u"#, r#"{"msg":"\ud8"#, r#"{"msg":"\ud800\"#, r#"{"msg":"\ü"}"#]
        {
            assert!(decode(broken.as_bytes()).is_none(), "{broken}");
        }
    }

    #[test]
    fn bodies_are_read_as_plugins_write_them() {
        for good in [
            "{}",
            "null",
            r#"{"Total":1,"SKIPPED":2,"failed":[1]}"#,
            r#"{"failures":null,"total":null}"#,
            r#"{"failures":["a",null]}"#,
            r#"{"total":1} and more"#,
            r#"{"timestamp":"2024-01-01T00:00:00.5+02:00"}"#,
            r#"{"timestamp":"1969-12-31T23:59:59Z"}"#,
        ] {
            assert!(decode(good.as_bytes()).is_some(), "{good}");
        }
        for bad in [
            "",
            " ",
            "[]",
            "1",
            "{",
            r#"{"total":"1"}"#,
            r#"{"total":1.5}"#,
            r#"{"failures":"a"}"#,
            r#"{"timestamp":"yesterday"}"#,
            r#"{"timestamp":5}"#,
            r#"{"name":5}"#,
            r#"{"total":99999999999999999999}"#,
        ] {
            assert!(decode(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
