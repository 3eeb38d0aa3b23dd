//! Converts the events of `go test -json` to items, one for each finished test.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

use anyhow::{Result, anyhow};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::item::read::Metered;
use crate::item::tree::Tree;
use crate::item::{DURATION, FAILED, FAILURE, Item, PASSED, SKIPPED, UNKNOWN};
use base::visible::tail;
use base::{clock, json};

/// Maximum bytes kept from the end of a test's output, which contains the failure.
const OUTPUT_LIMIT: usize = 32 << 10;
/// Maximum bytes held for all running tests; the file contains the rest.
const OUTPUTS_LIMIT: usize = 8 << 20;
/// Overhead of a test's output besides its text.
const OUTPUT_COST: usize = 128;

/// Relevant fields of an event; others are only type-checked.
#[derive(Default)]
struct GoTestEvent {
    action: String,
    package: String,
    test: String,
    output: String,
    elapsed: Option<f64>,
}

/// Output of running tests.
#[derive(Default)]
struct TestOutputs {
    of: HashMap<(String, String), String>,
    size: usize,
}

impl TestOutputs {
    fn add(&mut self, event: GoTestEvent) {
        // The frame of `go test` repeats the event that ends a test.
        let line = event.output.trim_start();
        if ["=== ", "--- "].iter().any(|frame| line.starts_with(frame)) {
            return;
        }
        let key = (event.package, event.test);
        let cost = if self.of.contains_key(&key) { 0 } else { cost(&key) };
        if self.size + cost + event.output.len() > OUTPUTS_LIMIT {
            return;
        }
        self.size += cost + event.output.len();
        let text = self.of.entry(key).or_default();
        text.push_str(&event.output);
        if text.len() > OUTPUT_LIMIT {
            let start = text.len() - tail(text, OUTPUT_LIMIT).len();
            text.drain(..start);
            self.size -= start;
        }
    }

    fn take(&mut self, event: &GoTestEvent) -> String {
        let key = (event.package.clone(), event.test.clone());
        let Some(text) = self.of.remove(&key) else { return String::new() };
        self.size -= cost(&key) + text.len();
        text
    }
}

fn cost((package, test): &(String, String)) -> usize {
    package.len() + test.len() + OUTPUT_COST
}

/// Adds the tests of a file to the current group. After an error, previous tests are kept.
pub(crate) fn read(input: impl Read, tree: &mut Tree) -> Result<()> {
    let (last, taken) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let metered = Metered { input, taken: taken.clone() };
    let input = Last { input: BufReader::with_capacity(64 << 10, metered), last: last.clone() };
    let mut outputs = TestOutputs::default();
    for event in serde_json::Deserializer::from_reader(input).into_iter::<Option<GoTestEvent>>() {
        taken.set(0);
        let event = event.map_err(|error| reason(&error, last.get()))?.unwrap_or_default();
        let status = match event.action.as_str() {
            _ if event.test.is_empty() => continue,
            "output" => {
                outputs.add(event);
                continue;
            }
            "run" | "pause" | "cont" | "bench" => continue,
            "pass" => PASSED,
            "fail" => FAILED,
            "skip" => SKIPPED,
            _ => UNKNOWN,
        };
        let output = outputs.take(&event);
        let mut item = Item::new(event.test, status);
        if status == FAILED && !output.trim().is_empty() {
            item = item.with(FAILURE, output.trim());
        }
        if let Some(seconds) = event.elapsed.filter(|seconds| *seconds > 0.0) {
            item = item.with(DURATION, seconds);
        }
        tree.item(&item)?;
    }
    Ok(())
}

/// Records the last byte read, which errors refer to.
struct Last<R> {
    input: R,
    last: Rc<Cell<u8>>,
}

impl<R: Read> Read for Last<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        buffer[..count].last().into_iter().for_each(|byte| self.last.set(*byte));
        Ok(count)
    }
}

/// Reason of a read error. It becomes part of the item, so common reasons use the original's words.
fn reason(error: &serde_json::Error, last: u8) -> anyhow::Error {
    if error.is_eof() {
        return anyhow!("unexpected EOF");
    }
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let context = match text.strip_suffix(&place).unwrap_or(&text) {
        "expected value" => "looking for beginning of value",
        "trailing comma" if last == b']' => "looking for beginning of value",
        "trailing comma" | "key must be a string" => "looking for beginning of object key string",
        "expected `:`" => "after object key",
        "expected `,` or `}`" => "after object key:value pair",
        "expected `,` or `]`" => "after array element",
        _ => return anyhow!(text),
    };
    let quoted = match char::from(last) {
        '"' => "\"".into(),
        c @ ('\'' | '\\' | '\t' | '\r' | '\n') => c.escape_debug().to_string(),
        '\u{7}' => "\\a".into(),
        '\u{8}' => "\\b".into(),
        '\u{b}' => "\\v".into(),
        '\u{c}' => "\\f".into(),
        '\0'..='\u{1f}' | '\u{7f}' => format!("\\x{last:02x}"),
        '\u{80}'..='\u{a0}' | '\u{ad}' => format!("\\u{last:04x}"),
        c => c.to_string(),
    };
    anyhow!("invalid character '{quoted}' {context}")
}

impl<'de> Deserialize<'de> for GoTestEvent {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = GoTestEvent;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an event of `go test -json`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<GoTestEvent, A::Error> {
                let mut event = GoTestEvent::default();
                while let Some(Text(key)) = map.next_key()? {
                    // Keys match in any case, as in Go; null leaves a field unchanged.
                    match key.to_ascii_lowercase().as_str() {
                        "action" => replace(&mut event.action, map.next_value()?),
                        "test" => replace(&mut event.test, map.next_value()?),
                        "package" => replace(&mut event.package, map.next_value()?),
                        "output" => replace(&mut event.output, map.next_value()?),
                        "elapsed" => event.elapsed = map.next_value::<Option<f64>>()?,
                        "time" => {
                            let time = map.next_value::<Option<Text>>()?;
                            if let Some(Text(time)) =
                                time.filter(|Text(time)| clock::parse_rfc3339(time).is_none())
                            {
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

fn replace(field: &mut String, value: Option<Text>) {
    if let Some(Text(value)) = value {
        *field = value;
    }
}

/// A string in which bytes that are not UTF-8 are replaced, since tests may print any.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        json::lossy(input, |text| Self(text.to_owned()))
    }
}
