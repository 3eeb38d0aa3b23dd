//! Progress of plugins: reads a posted update and merges it into the previous one. Pure.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::aggregator::limits;
use base::{json, visible};
use client::protocol::{Progress, ResultId};

/// Maximum failures that are kept of one plugin on one node. The largest suite in use has about
/// 7,000 tests.
const MAX_FAILURES: usize = 20_000;
/// Memory of an entry of a list beside its letters.
const ENTRY_BYTES: usize = 48;
/// The last entry of a list that was cut.
const MARK: &str = "… and more than are kept";

/// Reads an update as existing plugins send it: keys in any case; unknown keys and text after the
/// object are ignored; null equals absent; invalid Unicode is replaced.
pub(crate) fn decode(body: &[u8]) -> serde_json::Result<Progress> {
    serde_json::Deserializer::from_slice(body).deserialize_any(Fields)
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Progress;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a progress update")
    }

    fn visit_unit<E>(self) -> Result<Progress, E> {
        Ok(Progress::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Progress, A::Error> {
        let mut progress = Progress::default();
        while let Some(Text(key)) = map.next_key()? {
            match key.to_ascii_lowercase().as_str() {
                "msg" => set(
                    &mut progress.msg,
                    map.next_value::<Option<Text>>()?.map(|text| text.0),
                ),
                "total" => set(&mut progress.total, map.next_value()?),
                "completed" => set(&mut progress.completed, map.next_value()?),
                "appendcompleted" => set(&mut progress.append_completed, map.next_value()?),
                "appendtotals" => set(&mut progress.append_totals, map.next_value()?),
                "errors" => set(&mut progress.errors, texts(&mut map)?),
                "failures" => set(&mut progress.failures, texts(&mut map)?),
                "appendfailing" => set(&mut progress.append_failing, texts(&mut map)?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(progress)
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn texts<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Vec<String>>, A::Error> {
    Ok(map.next_value::<Option<Texts>>()?.map(|texts| texts.0))
}

/// A text of which the beginning is kept. Read as bytes, which need not be Unicode.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        json::lossy(input, |text| {
            Self(visible::cut_bytes(text, limits::MAX_TEXT_BYTES))
        })
    }
}

/// A list of texts, of which as much is kept as fits.
struct Texts(Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Texts;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a list of texts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let (mut texts, mut room) = (Vec::new(), limits::MAX_PROGRESS_BYTES);
                while let Some(text) = list.next_element::<Option<Text>>()? {
                    let text = text.map_or_else(String::new, |text| text.0);
                    let Some(left) = room.checked_sub(cost(&text)) else {
                        texts.push(MARK.into());
                        while list.next_element::<Option<Text>>()?.is_some() {}
                        break;
                    };
                    room = left;
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        input.deserialize_seq(List)
    }
}

/// The memory of one entry of a list.
fn cost(text: &str) -> usize {
    text.len() + ENTRY_BYTES
}

/// The progress of `id` after `update` arrived at `now`, in at most `share` bytes; and whether it
/// was cut for that.
pub(super) fn merged(
    id: &ResultId,
    before: Option<Progress>,
    update: Progress,
    now: String,
    share: usize,
) -> (Progress, bool) {
    let appending =
        update.append_totals || update.append_completed > 0 || !update.append_failing.is_empty();
    let mut after = if appending {
        let mut after = before.unwrap_or_default();
        after.msg = update.msg;
        after.completed = after.completed.saturating_add(update.append_completed);
        if update.append_totals {
            let failing = i64::try_from(update.append_failing.len()).unwrap_or(i64::MAX);
            after.total = after
                .total
                .saturating_add(update.append_completed)
                .saturating_add(failing);
        }
        if after.failures.last().is_none_or(|last| last != MARK) {
            after.failures.extend(update.append_failing);
        }
        after
    } else {
        update
    };
    after.msg = visible::cut_bytes(&after.msg, share / 2);
    let mut room = share.saturating_sub(after.msg.len());
    let are_complete = [&mut after.failures, &mut after.errors].map(|list| keep(list, &mut room));
    after.name.clone_from(&id.plugin);
    after.node.clone_from(&id.node);
    after.timestamp = now;
    (after, are_complete.contains(&false))
}

/// Cuts `list` to `room`; true if all of it fits.
fn keep(list: &mut Vec<String>, room: &mut usize) -> bool {
    let marked = list.pop_if(|last| last == MARK).is_some();
    let fits = |text: &String| {
        let remaining = room.checked_sub(cost(text));
        *room = remaining.unwrap_or(0);
        remaining.is_some()
    };
    let fitting = list
        .iter()
        .map(fits)
        .take_while(|fits| *fits)
        .count()
        .min(MAX_FAILURES);
    let is_complete = fitting == list.len() && !marked;
    list.truncate(fitting);
    if !is_complete {
        list.push(MARK.into());
    }
    list.shrink_to_fit();
    is_complete
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(body: impl AsRef<[u8]>) -> Option<Progress> {
        decode(body.as_ref()).ok()
    }

    fn after(bodies: &[&str]) -> Progress {
        let id = ResultId::global("p");
        let updates = bodies.iter().map(|body| decoded(body).expect(body));
        let merge = |before, update| {
            Some(
                merged(
                    &id,
                    before,
                    update,
                    "now".into(),
                    limits::MAX_PROGRESS_BYTES,
                )
                .0,
            )
        };
        updates.fold(None, merge).unwrap()
    }

    #[track_caller]
    fn check(bodies: &[&str], total: i64, completed: i64, failures: &[&str]) {
        let progress = after(bodies);
        assert_eq!(
            (progress.total, progress.completed),
            (total, completed),
            "{bodies:?}"
        );
        assert_eq!(progress.failures, failures, "{bodies:?}");
        assert!(
            !progress.append_totals
                && progress.append_completed == 0
                && progress.append_failing.is_empty()
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
        check(
            &[r#"{"completed":9223372036854775807}"#, FOUR],
            4,
            i64::MAX,
            &[],
        );
    }

    #[test]
    fn appending_keeps_errors_and_replaces_messages() {
        let progress = after(&[
            r#"{"msg":"a","errors":["e"]}"#,
            r#"{"msg":"b","appendcompleted":1}"#,
        ]);
        assert_eq!(
            (progress.msg.as_str(), progress.errors.as_slice()),
            ("b", &["e".to_owned()][..])
        );
    }

    #[test]
    fn sender_and_time_are_set_by_the_aggregator() {
        let progress = after(&[r#"{"name":"x","node":"y","timestamp":"0001-01-01T00:00:00Z"}"#]);
        assert_eq!(
            (progress.name.as_str(), progress.node.as_str()),
            ("p", "global")
        );
        assert_eq!(progress.timestamp, "now");
    }

    #[test]
    fn invalid_utf_8_is_replaced() {
        let progress = decoded(b"{\"msg\":\"caf\xe9\",\"completed\":1}").unwrap();
        assert_eq!(
            (progress.msg.as_str(), progress.completed),
            ("caf\u{fffd}", 1)
        );
        for (msg, read) in [
            (r"\ud83d\ude00", "\u{1f600}"),
            (
                r"a\udc80b\ud83d",
                "a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}\u{fffd}\u{fffd}",
            ),
            (r"\ud83d\u0041\n", "\u{fffd}\u{fffd}\u{fffd}A\n"),
        ] {
            let progress = decoded(format!(r#"{{"msg":"{msg}","errors":["{msg}"]}}"#)).expect(msg);
            assert_eq!(
                (progress.msg.as_str(), progress.errors[0].as_str()),
                (read, read)
            );
        }
        for broken in [
            r#"{"msg":"\"#,
            r#"{"msg":"\u"#,
            r#"{"msg":"\ud8"#,
            r#"{"msg":"\ud800\"#,
            r#"{"msg":"\ü"}"#,
        ] {
            assert!(decoded(broken).is_none(), "{broken}");
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
            r#"{"timestamp":"yesterday","name":5}"#,
        ] {
            assert!(decoded(good).is_some(), "{good}");
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
            r#"{"total":99999999999999999999}"#,
        ] {
            assert!(decoded(bad).is_none(), "{bad}");
        }
    }
    #[test]
    fn memory_of_a_body_is_bounded_by_the_kept_part() {
        let size = |progress: &Progress| {
            let lists = [
                &progress.failures,
                &progress.errors,
                &progress.append_failing,
            ];
            lists
                .into_iter()
                .flatten()
                .map(|text| text.capacity() + ENTRY_BYTES)
                .sum::<usize>()
                + progress.msg.capacity()
        };
        let long = "x".repeat(3 << 20);
        let many = vec!["\"\""; 1_300_000].join(",");
        for body in [
            format!(r#"{{"msg":"{long}"}}"#),
            format!(r#"{{"failures":["{long}"]}}"#),
            format!(r#"{{"failures":[{many}]}}"#),
            format!(r#"{{"failures":[{many}],"errors":["a"],"appendfailing":["b"]}}"#),
            format!(r#"{{"other":[{}]}}"#, vec!["{}"; 1_000_000].join(",")),
            format!(r#"{{"{long}":1}}"#),
        ] {
            let progress = decoded(body).unwrap();
            assert!(
                size(&progress) <= limits::MAX_PROGRESS_BYTES + 4 * limits::MAX_TEXT_BYTES,
                "{}",
                size(&progress)
            );
        }
        let progress = decoded(format!(r#"{{"failures":[{many}]}}"#)).unwrap();
        assert_eq!(progress.failures.last().unwrap(), MARK);
        assert!(
            decoded(format!(r#"{{"msg":"{long}"}}"#))
                .unwrap()
                .msg
                .ends_with('…')
        );
    }

    #[test]
    fn kept_progress_is_bounded() {
        let (id, mut before) = (ResultId::global("p"), None);
        let names: Vec<String> = (0..50).map(|number| format!("\"{number:0100}\"")).collect();
        let body = format!(
            r#"{{"appendfailing":[{}],"errors":["e"]}}"#,
            names.join(",")
        );
        for round in 0..10 {
            let update = decoded(&body).unwrap();
            let (after, cut) = merged(&id, before.take(), update, "now".into(), 10_000);
            assert_eq!(cut, round > 0, "{round}");
            assert!(
                after.failures.iter().map(|text| cost(text)).sum::<usize>() <= 10_000 + cost(MARK)
            );
            assert_eq!(
                after.failures.iter().filter(|text| *text == MARK).count(),
                usize::from(cut)
            );
            before = Some(after);
        }
    }
}
