//! Reads the JUnit file of a conformance run: required tests by outcome, and the options of the
//! suite. Does not judge.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

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
}
