//! Reads what a suite of `go test` prints: the events of `-json`, and the lines of `-v`.
//!
//! Does not judge, and stores nothing: a stream has as many events as a suite has lines.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::verdict::TestOutcome;
use base::{clock, json};

/// Relevant fields of an event; others are only type-checked.
#[derive(Debug, Default, PartialEq)]
pub struct GoTestEvent {
    /// What happened: `run`, `output`, `pass`, `fail`, `skip`, …
    pub action: String,
    /// The package.
    pub package: String,
    /// The test, `Parent/Child` for one inside another; empty for the whole package.
    pub test: String,
    /// A piece of output.
    pub output: String,
    /// Seconds that the test took.
    pub elapsed: Option<f64>,
}

/// A line of `go test -v` about a test.
#[derive(Debug, PartialEq)]
pub enum GoTestLine<'l> {
    /// The test begins.
    Run(&'l str),
    /// The test ended.
    End(TestOutcome, &'l str),
}

/// The words of a line that ends a test.
const ENDINGS: [(&str, TestOutcome); 3] = [
    ("--- PASS: ", TestOutcome::Passed),
    ("--- FAIL: ", TestOutcome::Failed),
    ("--- SKIP: ", TestOutcome::Skipped),
];

/// What a line of `go test -v` says about a test, if it does.
pub fn log_line(line: &str) -> Option<GoTestLine<'_>> {
    // With `-test.v=test2json`, such a line begins with a control character.
    let line = line.trim_start_matches(['\u{16}', ' ', '\t']);
    let name = |rest: &'_ str| -> Option<usize> {
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        (length > 0).then_some(length)
    };
    if let Some(rest) = line.strip_prefix("=== RUN ") {
        let rest = rest.trim_start();
        return Some(GoTestLine::Run(&rest[..name(rest)?]));
    }
    ENDINGS.iter().find_map(|(word, outcome)| {
        let rest = line.strip_prefix(word)?;
        Some(GoTestLine::End(*outcome, &rest[..name(rest)?]))
    })
}

impl GoTestEvent {
    /// How the test or the package ended, if this event says so.
    pub fn outcome(&self) -> Option<TestOutcome> {
        match self.action.as_str() {
            "pass" => Some(TestOutcome::Passed),
            "fail" => Some(TestOutcome::Failed),
            "skip" => Some(TestOutcome::Skipped),
            _ => None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_tests_are_told_from_their_output() {
        use GoTestLine::{End, Run};
        for (line, expected) in [
            ("=== RUN   TestA", Some(Run("TestA"))),
            ("\u{16}=== RUN   TestA/b_c\n", Some(Run("TestA/b_c"))),
            (
                "--- PASS: TestA (0.00s)",
                Some(End(TestOutcome::Passed, "TestA")),
            ),
            (
                "    --- FAIL: TestA/b (1.5s)",
                Some(End(TestOutcome::Failed, "TestA/b")),
            ),
            (
                "\u{16}--- SKIP: TestA (0.00s)",
                Some(End(TestOutcome::Skipped, "TestA")),
            ),
            ("=== PAUSE TestA", None),
            ("--- PASS: ", None),
            ("=== RUN   ", None),
            ("    a_test.go:7: --- PASS: TestA", None),
            ("PASS", None),
            ("", None),
        ] {
            assert_eq!(log_line(line), expected, "{line:?}");
        }
    }
}
