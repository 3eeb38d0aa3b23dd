//! Reads the two files of a conformance run. The JUnit file: required tests by outcome, and the
//! options of the suite. The log: the suite's final result, its seed, and the versions of tests and
//! server if verbose.
//!
//! Does not judge. Long lines of a log are cut and none are stored: a line of dots may be long, and
//! a log has gigabytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Read as _};

use super::minor;
use anyhow::{Result, ensure};
use base::xml::{Lexer, Token};
use model::item::{is_suite_node, plain};
use model::verdict::TestOutcome;

/// Marks a required test in its name.
pub(super) const REQUIRED: &str = "[Conformance]";

/// The relevant content of a JUnit file.
#[derive(Default)]
pub(super) struct Junit {
    /// The options of the suite, which Ginkgo records since version 2.
    pub properties: BTreeMap<String, String>,
    /// The number of tests.
    pub tests: usize,
    /// The number of tests that ran.
    pub ran: usize,
    /// Required tests by outcome; a test that is listed more than once has several.
    pub required: BTreeMap<TestOutcome, BTreeSet<String>>,
    /// Required tests that are listed more than once.
    pub repeated: BTreeSet<String>,
}

impl Junit {
    /// Reads a whole file.
    pub(super) fn read(input: impl BufRead) -> Result<Self> {
        let mut lexer = Lexer::new(input);
        let mut junit = Self::default();
        let mut suites = 0_usize;
        loop {
            match lexer.next_token()? {
                Token::End => break,
                Token::Text | Token::Close => continue,
                Token::Open => {}
            }
            let attribute = |name| lexer.attribute(name).unwrap_or_default().to_owned();
            match lexer.name() {
                "testsuite" => suites += 1,
                "property" => drop(
                    junit
                        .properties
                        .insert(attribute("name"), attribute("value")),
                ),
                "testcase" => {
                    let name = attribute("name");
                    junit.add(&name, outcome(&mut lexer)?);
                }
                _ => {}
            }
        }
        ensure!(suites > 0, "it has no <testsuite>");
        Ok(junit)
    }

    /// The number of required tests.
    pub(super) fn number(&self) -> usize {
        self.required.values().map(BTreeSet::len).sum()
    }

    /// Whether it lists a required test of this name, with or without Ginkgo's prefix.
    pub(super) fn lists(&self, name: &str) -> bool {
        self.required
            .values()
            .any(|names| names.contains(plain(name)))
    }

    fn add(&mut self, name: &str, outcome: TestOutcome) {
        if is_suite_node(name) {
            return;
        }
        self.tests += 1;
        self.ran += usize::from(outcome != TestOutcome::Skipped);
        if name.contains(REQUIRED) {
            if self.lists(name) {
                self.repeated.insert(plain(name).to_owned());
            }
            self.required
                .entry(outcome)
                .or_default()
                .insert(plain(name).to_owned());
        }
    }
}

/// Outcome of the current test, from the elements inside it.
fn outcome(lexer: &mut Lexer<impl BufRead>) -> Result<TestOutcome> {
    let mut outcome = TestOutcome::Passed;
    while lexer.next_child()? {
        outcome = outcome.max(TestOutcome::of_element(lexer.name()));
        lexer.skip_element()?;
    }
    Ok(outcome)
}

/// Maximum bytes of a relevant line.
const MAX_LINE_BYTES: u64 = 4 << 10;

/// Prefixes of the versions of tests and server in a verbose log.
const VERSIONS: [(&str, &str); 2] = [
    ("tests", "e2e test version: "),
    ("server", "kube-apiserver version: "),
];

/// The relevant content of a log.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SuiteLog {
    /// The minor versions of `tests` and `server`, if the log is verbose.
    pub versions: BTreeSet<(&'static str, String)>,
    /// The seeds of the order of tests.
    pub seeds: BTreeSet<String>,
    /// The numbers of tests that ran and of all tests, for each end of a suite.
    pub ends: Vec<(usize, usize)>,
    /// The counts of `Passed`, `Failed`, `Pending` and `Flaked` of the last suite.
    pub counts: [usize; 4],
    /// Whether the last result is that the suite passed.
    pub passed: bool,
}

impl SuiteLog {
    /// Reads a whole log.
    pub(super) fn read(mut input: impl BufRead) -> std::io::Result<Self> {
        let mut log = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if input
                .by_ref()
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)?
                == 0
            {
                return Ok(log);
            }
            let whole = line.ends_with(b"\n");
            log.take(uncoloured(&String::from_utf8_lossy(&line)).trim());
            if !whole {
                input.skip_until(b'\n')?;
            }
        }
    }

    fn take(&mut self, line: &str) {
        self.versions.extend(
            VERSIONS
                .iter()
                .filter_map(|(who, mark)| Some((*who, minor(line.split_once(mark)?.1)?))),
        );
        if let Some(seed) = line.strip_prefix("Random Seed: ") {
            self.seeds
                .extend(seed.split_whitespace().next().map(str::to_owned));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["Ran", ran, "of", all, "Specs", ..] = words[..]
            && let (Ok(ran), Ok(all)) = (ran.parse(), all.parse())
        {
            self.ends.push((ran, all));
            self.passed = false;
        }
        if line.starts_with("SUCCESS!") || line.starts_with("FAIL!") {
            let count = |word: &str| {
                let at = words.iter().position(|other| *other == word)?;
                words.get(at.checked_sub(1)?)?.parse().ok()
            };
            self.counts =
                ["Passed", "Failed", "Pending", "Flaked"].map(|word| count(word).unwrap_or(0));
        }
        match line {
            "Test Suite Passed" => self.passed = true,
            "Test Suite Failed" => self.passed = false,
            _ => {}
        }
    }
}

/// A line without terminal colours.
fn uncoloured(line: &str) -> String {
    line.split("\x1b[")
        .enumerate()
        .map(|(at, part)| {
            part.split_once('m')
                .filter(|_| at > 0)
                .map_or(part, |(_, rest)| rest)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(junit: &Junit, outcome: TestOutcome) -> Vec<&str> {
        junit.required[&outcome]
            .iter()
            .map(String::as_str)
            .collect()
    }

    #[test]
    fn required_tests_are_grouped_by_outcome() {
        let text = r#"<testsuites><testsuite name="s"><properties><property name="RandomSeed" value="7"/></properties>
<testcase name="[BeforeSuite] [Conformance]"/>
<testcase name="[It] a [Conformance]"><system-err>x <![CDATA[<failure>]]></system-err></testcase>
<testcase name="[It] b [Conformance]"><skipped message="no"/></testcase>
<testcase name="[It] c [Conformance]"><failure message="no">x</failure></testcase>
<testcase name="d [Conformance]"><error/></testcase>
<testcase name="[It] e [Conformance]"><flakyFailure/></testcase>
<testcase name="[It] f"><failure/></testcase>
<testcase name="[It] g"><skipped/></testcase>
<testcase name="a [Conformance]"/></testsuite></testsuites>"#;
        let junit = Junit::read(text.as_bytes()).unwrap();
        assert_eq!(names(&junit, TestOutcome::Passed), ["a [Conformance]"]);
        assert_eq!(names(&junit, TestOutcome::Skipped), ["b [Conformance]"]);
        assert_eq!(
            names(&junit, TestOutcome::Failed),
            ["c [Conformance]", "d [Conformance]"]
        );
        assert_eq!(names(&junit, TestOutcome::Flaky), ["e [Conformance]"]);
        assert_eq!(
            junit.repeated.iter().collect::<Vec<_>>(),
            ["a [Conformance]"]
        );
        assert_eq!((junit.tests, junit.ran, junit.number()), (8, 6, 5));
        assert_eq!(junit.properties["RandomSeed"], "7");
        assert!(junit.lists("[It] b [Conformance]") && !junit.lists("[It] g"));
    }

    #[test]
    fn other_files_than_junit_are_errors() {
        for text in ["", "<testsuite><testcase", "<html></html>", "no xml"] {
            assert!(Junit::read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn verdict_versions_and_seed_are_found() {
        let dots = "S".repeat(100_000);
        let text = format!(
            "Random Seed: 7 - will randomize all specs\n  I1122 e2e.go:116] e2e test version: \
             v1.33.1\nI1122 e2e.go:125] kube-apiserver version: v1.34.2-k+3 \n{dots}\nRan 3 of 9 \
             Specs in 0.9 seconds\n\x1b[1mSUCCESS!\x1b[0m -- \x1b[32m3 Passed\x1b[0m | 0 Failed | \
             1 Flaked | 2 Pending | 6 Skipped\nPASS\n\nTest Suite Passed"
        );
        let log = SuiteLog::read(text.as_bytes()).unwrap();
        let expected = SuiteLog {
            versions: BTreeSet::from([("tests", "v1.33".into()), ("server", "v1.34".into())]),
            seeds: BTreeSet::from(["7".into()]),
            ends: vec![(3, 9)],
            counts: [3, 0, 2, 1],
            passed: true,
        };
        assert_eq!(log, expected);
    }

    #[test]
    fn unfinished_suite_has_not_passed() {
        for text in [
            "",
            "Test Suite Passed\nRan 1 of 2 Specs",
            "Test Suite Passed\nTest Suite Failed",
        ] {
            assert!(!SuiteLog::read(text.as_bytes()).unwrap().passed, "{text}");
        }
        assert_eq!(
            SuiteLog::read(&b"FAIL! -- 1 Passed | 2 Failed"[..])
                .unwrap()
                .counts,
            [1, 2, 0, 0]
        );
    }
}
