//! Reads the JUnit file of a conformance run: required tests by outcome, and the options of the suite.
//!
//! Does not judge, and knows nothing of the log.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use crate::item::plain;
use crate::report::is_suite_node;
use base::xml::{Lexer, Token};

/// Marks a required test in its name.
const REQUIRED: &str = "[Conformance]";
/// The relevant content of a JUnit file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Junit {
    /// The options of the suite, which Ginkgo records since version 2.
    pub properties: BTreeMap<String, String>,
    /// The number of tests.
    pub tests: usize,
    /// The number of tests that ran.
    pub ran: usize,
    /// Required tests that passed exactly once, at the first attempt.
    pub passed: BTreeSet<String>,
    /// Required tests that did not run.
    pub skipped: BTreeSet<String>,
    /// Required tests that failed.
    pub failed: BTreeSet<String>,
    /// Required tests that passed after a failure.
    pub flaky: BTreeSet<String>,
    /// Required tests that are listed more than once.
    pub repeated: BTreeSet<String>,
}

/// Outcome of one test.
#[derive(Default)]
struct Outcome {
    skipped: bool,
    failed: bool,
    flaky: bool,
}

impl Junit {
    /// Reads a whole file.
    pub(super) fn read(input: impl BufRead) -> anyhow::Result<Self> {
        let mut lexer = Lexer::new(input);
        let mut junit = Self::default();
        let mut suites = 0_usize;
        loop {
            match lexer.next_token()? {
                Token::End => break,
                Token::Text | Token::Close => continue,
                Token::Open => {}
            }
            match lexer.name() {
                "testsuite" => suites += 1,
                "property" => {
                    let of = |name| lexer.attribute(name).unwrap_or_default().to_owned();
                    junit.properties.insert(of("name"), of("value"));
                }
                "testcase" => {
                    let name = lexer.attribute("name").unwrap_or_default().to_owned();
                    let outcome = outcome(&mut lexer)?;
                    junit.add(&name, &outcome);
                }
                _ => {}
            }
        }
        anyhow::ensure!(suites > 0, "it has no <testsuite>");
        Ok(junit)
    }

    /// The number of required tests.
    pub(super) fn required(&self) -> usize {
        [&self.passed, &self.skipped, &self.failed, &self.flaky].iter().map(|set| set.len()).sum()
    }

    /// Whether it lists a required test of this name, with or without Ginkgo's prefix.
    pub(super) fn lists(&self, name: &str) -> bool {
        let name = plain(name);
        [&self.passed, &self.skipped, &self.failed, &self.flaky].iter().any(|set| set.contains(name))
    }

    fn add(&mut self, name: &str, outcome: &Outcome) {
        if is_suite_node(name) {
            return;
        }
        self.tests += 1;
        self.ran += usize::from(!outcome.skipped);
        if !name.contains(REQUIRED) {
            return;
        }
        let name = plain(name);
        if self.lists(name) {
            self.repeated.insert(name.to_owned());
        }
        let set = match outcome {
            Outcome { failed: true, .. } => &mut self.failed,
            Outcome { flaky: true, .. } => &mut self.flaky,
            Outcome { skipped: true, .. } => &mut self.skipped,
            _ => &mut self.passed,
        };
        set.insert(name.to_owned());
    }
}

/// Outcome of the current test, from the elements inside it.
fn outcome(lexer: &mut Lexer<impl BufRead>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    loop {
        match lexer.next_token()? {
            Token::Close | Token::End => return Ok(outcome),
            Token::Text => continue,
            Token::Open => {}
        }
        match lexer.name() {
            "skipped" => outcome.skipped = true,
            "failure" | "error" => outcome.failed = true,
            "flakyFailure" | "flakyError" => outcome.flaky = true,
            _ => {}
        }
        lexer.skip_element()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(set: &BTreeSet<String>) -> Vec<&str> {
        set.iter().map(String::as_str).collect()
    }

    #[test]
    fn required_tests_are_told_apart_by_what_became_of_them() {
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
        assert_eq!(names(&junit.passed), ["a [Conformance]"]);
        assert_eq!(names(&junit.skipped), ["b [Conformance]"]);
        assert_eq!(names(&junit.failed), ["c [Conformance]", "d [Conformance]"]);
        assert_eq!(names(&junit.flaky), ["e [Conformance]"]);
        assert_eq!(names(&junit.repeated), ["a [Conformance]"]);
        assert_eq!((junit.tests, junit.ran, junit.required()), (8, 6, 5));
        assert_eq!(junit.properties["RandomSeed"], "7");
        assert!(junit.lists("[It] b [Conformance]") && !junit.lists("[It] g"));
    }

    #[test]
    fn what_is_not_junit_is_an_error() {
        for text in ["", "<testsuite><testcase", "<html></html>", "no xml"] {
            assert!(Junit::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
