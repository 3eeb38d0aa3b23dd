//! The events of `go test -json` to items, one a test that ended.

use std::io::BufRead;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::tree::Tree;
use crate::clock;
use crate::item::{FAILED, Item, PASSED, SKIPPED, UNKNOWN};

/// The two words of an event that matter; the others are only checked for their types.
#[derive(Default)]
struct Event {
    action: String,
    test: String,
}

/// Adds the tests of a file to the group that is open. On an error it keeps those before it.
pub fn read(input: impl BufRead, tree: &mut Tree) -> anyhow::Result<()> {
    for event in serde_json::Deserializer::from_reader(input).into_iter::<Option<Event>>() {
        let event = event?.unwrap_or_default();
        let status = match event.action.as_str() {
            _ if event.test.is_empty() => continue,
            "run" | "pause" | "cont" | "bench" | "output" => continue,
            "pass" => PASSED,
            "fail" => FAILED,
            "skip" => SKIPPED,
            _ => UNKNOWN,
        };
        tree.leaf(&Item { name: event.test, status: status.into(), ..Item::default() })?;
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Event;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an event of `go test -json`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
                let mut event = Event::default();
                while let Some(key) = map.next_key::<String>()? {
                    // Any case, as Go reads its own keys; null leaves a field as it is.
                    match key.to_ascii_lowercase().as_str() {
                        "action" => replace(&mut event.action, map.next_value()?),
                        "test" => replace(&mut event.test, map.next_value()?),
                        "package" => drop(map.next_value::<Option<String>>()?),
                        "elapsed" => drop(map.next_value::<Option<f64>>()?),
                        "time" => {
                            let time = map.next_value::<Option<String>>()?;
                            if let Some(time) = time.filter(|time| clock::parse_rfc3339(time).is_none()) {
                                return Err(serde::de::Error::custom(format!("no time: {time:?}")));
                            }
                        }
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(event)
            }
        }
        input.deserialize_map(Fields)
    }
}

fn replace(field: &mut String, value: Option<String>) {
    if let Some(value) = value {
        *field = value;
    }
}
