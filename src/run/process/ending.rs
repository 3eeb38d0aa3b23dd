//! How a suite of Ginkgo ended, according to the properties in its JUnit file: one that ran out of
//! time lists the tests that it did not reach as skipped, like those that were not selected.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use anyhow::Result;
use regex::Regex;

use base::words::count;
use base::xml::{Lexer, Token};
use base::{clock, pattern};
use model::item::{is_suite_node, plain};

/// The remedy for a suite that ran out of time.
pub(super) const REMEDY_OF_TIMEOUT: &str = "give the suite more time: `--timeout` of `sonobuoy \
                                            run`, and Ginkgo's own, `--plugin-env \
                                            e2e.E2E_EXTRA_GINKGO_ARGS=--timeout=24h`; \
                                            `--rerun-failed` also runs the tests that did not run";

/// What Ginkgo writes about a whole suite.
#[derive(Default)]
pub(super) struct SuiteProperties {
    /// `SpecialSuiteFailureReason`: why it ended before its tests did.
    special_reason: String,
    /// `SuiteSucceeded` is false.
    failed: bool,
    focus: String,
    skip: String,
    labels: String,
}

impl SuiteProperties {
    /// Reads the content of `<properties>` after its start tag.
    pub(super) fn read<R: BufRead>(&mut self, lexer: &mut Lexer<R>) -> Result<()> {
        while lexer.next_child()? {
            if lexer.name() == "property" {
                let value = lexer.attribute("value").unwrap_or_default().trim();
                match lexer.attribute("name").unwrap_or_default() {
                    "SpecialSuiteFailureReason" => value.clone_into(&mut self.special_reason),
                    "SuiteSucceeded" => self.failed = value.eq_ignore_ascii_case("false"),
                    "FocusStrings" => value.clone_into(&mut self.focus),
                    "SkipStrings" => value.clone_into(&mut self.skip),
                    "LabelFilter" => value.clone_into(&mut self.labels),
                    _ => {}
                }
            }
            lexer.skip_element()?;
        }
        Ok(())
    }

    /// Whether the suite says that it did not succeed.
    pub(super) fn failed(&self) -> bool {
        self.failed
    }

    /// Whether it ended before its tests did.
    pub(super) fn ended_early(&self) -> bool {
        !self.special_reason.is_empty()
    }

    /// Whether it ran out of time.
    pub(super) fn timed_out(&self) -> bool {
        self.special_reason.to_ascii_lowercase().contains("timeout")
    }

    /// What selects its tests; `None` if that cannot be read from the file.
    fn selection(&self) -> Option<Selection> {
        if !self.labels.is_empty() {
            return None;
        }
        let compile = |text: &str| match text {
            "" => Some(None),
            text => pattern::compile(text).ok().map(Some),
        };
        Some(Selection {
            focus: compile(&self.focus)?,
            skip: compile(&self.skip)?,
        })
    }
}

/// The patterns that select tests.
struct Selection {
    focus: Option<Regex>,
    skip: Option<Regex>,
}

/// The early end of a suite.
pub(super) struct SuiteEnd {
    /// Why tests failed that were running, and how many did not run.
    pub text: String,
    selection: Option<Selection>,
}

impl SuiteEnd {
    /// Reads how the suite of a file ended; `None` if it ran to its end, which its first properties
    /// say.
    pub(super) fn read(input: impl Read) -> Result<Option<Self>> {
        let mut lexer = Lexer::new(BufReader::with_capacity(64 << 10, input));
        let mut properties = SuiteProperties::default();
        let mut seconds = None;
        loop {
            match lexer.next_token()? {
                Token::End => return Ok(None),
                Token::Text | Token::Close => continue,
                Token::Open => {}
            }
            match lexer.name() {
                "testsuite" => seconds = number(&lexer, "time"),
                "properties" => {
                    properties.read(&mut lexer)?;
                    break;
                }
                // Ginkgo writes properties first.
                "testcase" => return Ok(None),
                _ => {}
            }
        }
        if !properties.ended_early() {
            return Ok(None);
        }
        let mut end = Self {
            text: String::new(),
            selection: properties.selection(),
        };
        let not_run = end.count(&mut lexer)?;
        let after = seconds.map_or(String::new(), |time| {
            format!(" after {}", clock::duration(time))
        });
        let why = match properties.timed_out() {
            true => String::new(),
            false => format!(" ({})", properties.special_reason),
        };
        let tests = match (end.selection.is_some(), not_run) {
            (false, _) | (true, 0) => "not all of its tests may have run".into(),
            (true, not_run) => format!("{} did not run", count(not_run, "selected test")),
        };
        end.text = format!("the suite ended{after}{why}: {tests}");
        Ok(Some(end))
    }

    /// Number of selected tests that did not run.
    fn count<R: BufRead>(&self, lexer: &mut Lexer<R>) -> Result<u64> {
        let mut not_run = 0;
        loop {
            match lexer.next_token()? {
                Token::End => return Ok(not_run),
                Token::Open if lexer.name() == "testcase" => {}
                _ => continue,
            }
            let name = lexer.attribute("name").unwrap_or_default().to_owned();
            let mut is_cut_off = !Self::has_run(lexer);
            let mut is_skipped = false;
            while lexer.next_child()? {
                if lexer.name() == "skipped" {
                    is_skipped = true;
                    is_cut_off &=
                        self.cut_off(&name, lexer.attribute("message").unwrap_or_default());
                }
                lexer.skip_element()?;
            }
            not_run += u64::from(is_skipped && is_cut_off);
        }
    }

    /// Whether the current test case took any time.
    pub(super) fn has_run(lexer: &Lexer<impl BufRead>) -> bool {
        number(lexer, "time").is_some_and(|time| !time.is_zero())
    }

    /// Whether a skipped test was selected and not reached: one that skipped itself has a reason in
    /// its message.
    pub(super) fn cut_off(&self, name: &str, message: &str) -> bool {
        let Some(selection) = &self.selection else {
            return false;
        };
        let name = plain(name);
        let is_pending = message == "pending" || message.contains(" - ");
        !is_pending
            && !is_suite_node(name)
            && selection
                .focus
                .as_ref()
                .is_none_or(|focus| focus.is_match(name))
            && selection
                .skip
                .as_ref()
                .is_none_or(|skip| !skip.is_match(name))
    }

    /// The text of a failure, with the end of the suite as its first line if that is its cause.
    pub(super) fn explain(&self, text: String) -> String {
        let is_interrupted =
            text.contains("suite timeout occurred") || text.starts_with("Interrupted by");
        if is_interrupted {
            format!("{}\n{text}", self.text)
        } else {
            text
        }
    }
}

/// A duration in an attribute of the current element.
fn number(lexer: &Lexer<impl BufRead>, name: &str) -> Option<Duration> {
    let seconds = lexer.attribute(name)?.trim().parse::<f64>().ok()?;
    let duration = if seconds >= 1.0 {
        seconds.round()
    } else {
        seconds
    };
    Duration::try_from_secs_f64(duration).ok()
}
