//! Reads the result of a suite of `go test`: its log, and its stream of events. Does not judge.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read};

use anyhow::{Result, anyhow, ensure};

use base::visible;
use model::go_test::{GoTestEvent, GoTestLine, log_line};
use model::verdict::TestOutcome;

/// Maximum bytes of the names of tests and packages.
const MAX_NAMES_BYTES: usize = 16 << 20;
/// Maximum bytes of a line of the log that is read.
const MAX_LINE_BYTES: u64 = 4 << 10;
/// Maximum bytes of a test's last line.
const MAX_REASON_BYTES: usize = 500;
/// Beginnings of lines that only Ginkgo prints.
const GINKGO: [&str; 2] = ["Running Suite: ", "Will run "];

/// Tests, as one of the two files tells.
#[derive(Debug, Default)]
pub(super) struct SuiteTests {
    of: BTreeMap<String, TestRecord>,
    names_size: usize,
}

/// What is known about a test.
#[derive(Debug, Default)]
struct TestRecord {
    runs: usize,
    /// The worst, if it ended more than once.
    outcome: Option<TestOutcome>,
    /// The last line of its output.
    last_line: String,
}

impl SuiteTests {
    fn record(&mut self, name: &str) -> Result<&mut TestRecord> {
        if !self.of.contains_key(name) {
            self.grow(name.len() + size_of::<TestRecord>())?;
        }
        Ok(self.of.entry(name.to_owned()).or_default())
    }

    fn grow(&mut self, bytes: usize) -> Result<()> {
        self.names_size += bytes;
        ensure!(self.names_size <= MAX_NAMES_BYTES, "it has too many tests");
        Ok(())
    }

    fn begin(&mut self, name: &str) -> Result<()> {
        self.record(name)?.runs += 1;
        Ok(())
    }

    fn end(&mut self, name: &str, outcome: TestOutcome) -> Result<()> {
        let record = self.record(name)?;
        record.outcome = record.outcome.max(Some(outcome));
        Ok(())
    }

    /// The number of tests.
    pub(super) fn number(&self) -> usize {
        self.of.len()
    }

    /// The tests with this outcome; with none, those that did not end.
    pub(super) fn with(&self, outcome: Option<TestOutcome>) -> Vec<&str> {
        self.names(|record| record.outcome == outcome)
    }

    /// The tests that began more than once.
    pub(super) fn repeated(&self) -> Vec<&str> {
        self.names(|record| record.runs > 1)
    }

    fn names(&self, is_wanted: impl Fn(&TestRecord) -> bool) -> Vec<&str> {
        let wanted = self.of.iter().filter(|(_, record)| is_wanted(record));
        wanted.map(|(name, _)| name.as_str()).collect()
    }

    /// The tests about which `other` says something else, or nothing.
    pub(super) fn differing(&self, other: &Self) -> Vec<&str> {
        let outcome = |name: &str| other.of.get(name).and_then(|record| record.outcome);
        let differing = self
            .of
            .iter()
            .filter(|(name, record)| record.outcome != outcome(name));
        differing.map(|(name, _)| name.as_str()).collect()
    }

    /// How a test ended. One that passed although everything inside it was skipped has shown
    /// nothing: it counts as skipped.
    pub(super) fn outcome(&self, name: &str) -> Option<TestOutcome> {
        let outcome = self.of.get(name)?.outcome?;
        let below = format!("{name}/");
        let mut children = self
            .of
            .range(below.clone()..)
            .take_while(|(child, _)| child.starts_with(&below))
            .peekable();
        let is_empty = children.peek().is_some()
            && children.all(|(_, child)| child.outcome == Some(TestOutcome::Skipped));
        if is_empty && outcome == TestOutcome::Passed {
            return Some(TestOutcome::Skipped);
        }
        Some(outcome)
    }

    /// The last line of a test's output, which says why it was skipped.
    pub(super) fn last_line(&self, name: &str) -> &str {
        self.of.get(name).map_or("", |record| &record.last_line)
    }
}

/// The content of the stream.
#[derive(Debug, Default)]
pub(super) struct EventStream {
    pub tests: SuiteTests,
    /// All packages.
    pub packages: BTreeSet<String>,
    /// How many packages ended.
    pub ended: usize,
    /// Why a package failed as a whole: the last line of its output.
    pub failure: Option<String>,
}

impl EventStream {
    /// Reads a whole stream; fails at the first line that is no event.
    pub(super) fn read(input: impl BufRead) -> Result<Self> {
        let mut stream = Self::default();
        let mut last_line = String::new();
        for event in serde_json::Deserializer::from_reader(input).into_iter::<GoTestEvent>() {
            let event = event.map_err(|error| {
                if error.is_eof() {
                    anyhow!(
                        "it is cut: it ends within an event, in line {}",
                        error.line()
                    )
                } else {
                    anyhow!("it is no stream of `go test -json`: {error}")
                }
            })?;
            stream.take(&event, &mut last_line)?;
        }
        Ok(stream)
    }

    fn take(&mut self, event: &GoTestEvent, last_line: &mut String) -> Result<()> {
        if !self.packages.contains(&event.package) {
            self.tests.grow(event.package.len())?;
            self.packages.insert(event.package.clone());
        }
        if event.test.is_empty() {
            return self.take_package_event(event, last_line);
        }
        if event.action == "run" {
            return self.tests.begin(&event.test);
        }
        if let Some(outcome) = event.outcome() {
            return self.tests.end(&event.test, outcome);
        }
        let line = event.output.trim();
        if !line.is_empty() && log_line(line).is_none() && !line.starts_with("=== ") {
            let record = self.tests.record(&event.test)?;
            record.last_line = visible::head(line, MAX_REASON_BYTES).to_owned();
        }
        Ok(())
    }

    fn take_package_event(&mut self, event: &GoTestEvent, last_line: &mut String) -> Result<()> {
        let line = event.output.trim();
        if !line.is_empty() && line != "FAIL" {
            *last_line = visible::head(line, MAX_REASON_BYTES).to_owned();
        }
        if let Some(outcome) = event.outcome() {
            self.ended += 1;
            if outcome == TestOutcome::Failed {
                self.failure = Some(last_line.clone());
            }
        }
        Ok(())
    }
}

/// The content of the log.
#[derive(Debug, Default)]
pub(super) struct SuiteText {
    pub tests: SuiteTests,
    /// Whether it has lines that only Ginkgo prints.
    pub is_ginkgo: bool,
}

impl SuiteText {
    /// Reads a whole log.
    pub(super) fn read(mut input: impl BufRead) -> Result<Self> {
        let mut log = Self::default();
        let mut line = Vec::new();
        while read_line(&mut input, &mut line)? {
            let text = String::from_utf8_lossy(&line);
            log.is_ginkgo |= GINKGO.iter().any(|start| text.starts_with(start));
            match log_line(&text) {
                Some(GoTestLine::Run(name)) => log.tests.begin(name)?,
                Some(GoTestLine::End(outcome, name)) => log.tests.end(name, outcome)?,
                None => {}
            }
        }
        Ok(log)
    }
}

/// Reads the start of the next line; false at the end.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let count = input
        .by_ref()
        .take(MAX_LINE_BYTES)
        .read_until(b'\n', line)?;
    if count > 0 && !line.ends_with(b"\n") {
        input.skip_until(b'\n')?;
    }
    Ok(count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = r#"{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"pass","Package":"p","Test":"TestA/x","Elapsed":0.1}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b.go:3: set -b\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"pass","Package":"p","Elapsed":0.2}
"#;
    const LOG: &str = "=== RUN   TestA\n=== RUN   TestA/x\n--- PASS: TestA (0.10s)\n    --- PASS: \
        TestA/x (0.10s)\n=== RUN   TestB\n    b.go:3: set -b\n--- SKIP: TestB (0.00s)\nPASS\n";

    fn stream(text: &str) -> EventStream {
        EventStream::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn stream_and_log_tell_the_same() {
        let stream = stream(EVENTS);
        let log = SuiteText::read(LOG.as_bytes()).unwrap();
        assert_eq!(stream.tests.differing(&log.tests), [""; 0]);
        assert_eq!(log.tests.differing(&stream.tests), [""; 0]);
        assert_eq!(
            stream.tests.with(Some(TestOutcome::Passed)),
            ["TestA", "TestA/x"]
        );
        assert_eq!(stream.tests.outcome("TestA"), Some(TestOutcome::Passed));
        assert_eq!(stream.tests.outcome("TestB"), Some(TestOutcome::Skipped));
        assert_eq!(stream.tests.outcome("TestC"), None);
        assert_eq!(stream.tests.last_line("TestB"), "b.go:3: set -b");
        assert_eq!(
            (stream.tests.number(), stream.ended, stream.failure),
            (3, 1, None)
        );
        assert!(!log.is_ginkgo);
    }

    #[test]
    fn test_whose_parts_were_all_skipped_has_shown_nothing() {
        let text = EVENTS.replacen(
            r#""pass","Package":"p","Test":"TestA/x""#,
            r#""skip","Package":"p","Test":"TestA/x""#,
            1,
        );
        let stream = stream(&text);
        assert_eq!(stream.tests.outcome("TestA"), Some(TestOutcome::Skipped));
    }

    #[test]
    fn two_runs_are_seen_in_both_files() {
        let events = stream(&EVENTS.repeat(2));
        assert_eq!(events.tests.repeated(), ["TestA", "TestA/x", "TestB"]);
        let log = SuiteText::read(LOG.repeat(2).as_bytes()).unwrap();
        assert_eq!(log.tests.repeated(), ["TestA", "TestA/x", "TestB"]);
        let other = EVENTS.replace("\"p\"", "\"q\"");
        assert_eq!(stream(&[EVENTS, &other].concat()).packages.len(), 2);
    }

    #[test]
    fn cut_stream_is_an_error_or_has_no_end() {
        let error = EventStream::read(&EVENTS.as_bytes()[..EVENTS.len() - 9]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is cut: it ends within an event, in line 12"
        );
        let lines: Vec<&str> = EVENTS.lines().collect();
        let cut = stream(&lines[..5].join("\n"));
        assert_eq!((cut.tests.with(None), cut.ended), (vec!["TestA"], 0));
        assert!(EventStream::read(&b"PASS\n"[..]).is_err());
    }

    #[test]
    fn failed_package_names_its_last_line() {
        let text = EVENTS
            .replace("PASS\\n", "panic: test timed out after 1s\\n")
            .replace(
                r#""pass","Package":"p","Elapsed":0.2"#,
                r#""fail","Package":"p","Elapsed":0.2"#,
            );
        let reason = stream(&text).failure;
        assert_eq!(reason.as_deref(), Some("panic: test timed out after 1s"));
    }

    #[test]
    fn log_of_ginkgo_has_no_test_of_go() {
        let text = "Running Suite: Kubernetes e2e suite\nWill run 5 of 6741 specs\nPASS\n";
        let log = SuiteText::read(text.as_bytes()).unwrap();
        assert!(log.is_ginkgo);
        assert_eq!(log.tests.number(), 0);
    }
}
