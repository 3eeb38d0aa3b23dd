//! Converts JUnit files to items: suites, the suites inside them, and their tests.
//!
//! What a file claims about itself is compared with what was read: a suite that counts more tests
//! or failures than it lists gets an item that says so, and so does one that did not succeed or ran
//! out of time.

use std::io::{BufRead, BufReader, Read};
use std::num::IntErrorKind;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::ending::{SuiteEnd, SuiteProperties};
use base::json::json;
use base::xml::{Lexer, Token};
use model::item::read::Visit;
use model::item::{ATTEMPTS, FAILED, FAILURE, Item, NOT_RUN, PASSED, REMEDY, Step, UNKNOWN};
use model::verdict::{SuiteClaims, SuiteContent, TestOutcome};

/// Maximum text kept of one test; the file contains the rest.
const TEXT_LIMIT: usize = 12 << 20;
/// Maximum attempts kept of one test.
const MAX_ATTEMPTS: usize = 100;
/// Maximum suites inside each other; each needs memory until it ends.
const MAX_DEPTH: usize = 90;

/// Attributes of a suite that count tests that may be missing in it.
const NOT_RUN_COUNTS: [&str; 4] = ["skipped", "skip", "disabled", "ignored"];

/// Sends the suites of a file with their tests to `visit`; on an error, those before it. `end` is
/// how its suite ended, if that was early; `file` is its path for items that are not tests. Returns
/// what was read.
pub(super) fn read(
    input: impl Read,
    end: Option<&SuiteEnd>,
    file: &str,
    visit: &mut Visit<'_>,
) -> Result<SuiteContent> {
    let mut lexer = Lexer::new(BufReader::with_capacity(64 << 10, input));
    ensure!(lexer.next_child()?, "EOF");
    let root = lexer.name().to_owned();
    let is_pytest = matches!(lexer.attribute("name"), Some("pytest" | "pytest tests"));
    let mut reader = Reader {
        lexer,
        end,
        file,
        is_pytest,
        visit,
    };
    match root.as_str() {
        "testsuite" => reader.suite(1, 0),
        "testsuites" => {
            let claims = reader.claims();
            let mut content = SuiteContent::default();
            reader.suites(&mut content, &mut 0, 0)?;
            reader.check(&root, &mut content, &claims)?;
            Ok(content)
        }
        other => bail!("expected element type <testsuite> but have <{other}>"),
    }
}

struct Reader<'a, 'v, R> {
    lexer: Lexer<R>,
    end: Option<&'a SuiteEnd>,
    file: &'a str,
    /// Whether the file is that of pytest, which counts subtests without listing them.
    is_pytest: bool,
    visit: &'a mut Visit<'v>,
}

impl<R: BufRead> Reader<'_, '_, R> {
    /// Reads the suites of a `<testsuites>` after its start tag; `position` counts them.
    fn suites(
        &mut self,
        content: &mut SuiteContent,
        position: &mut usize,
        depth: usize,
    ) -> Result<()> {
        while self.lexer.next_child()? {
            self.inner(content, position, depth)?;
        }
        Ok(())
    }

    /// Reads a child that may be a suite or a list of them; skips any other.
    fn inner(
        &mut self,
        content: &mut SuiteContent,
        position: &mut usize,
        depth: usize,
    ) -> Result<()> {
        ensure!(
            depth < MAX_DEPTH,
            "suites are nested deeper than {MAX_DEPTH}"
        );
        match self.lexer.name() {
            "testsuite" => {
                *position += 1;
                content.add(self.suite(*position, depth + 1)?);
                Ok(())
            }
            "testsuites" => self.suites(content, position, depth + 1),
            _ => self.lexer.skip_element(),
        }
    }

    /// Reads a suite after its start tag.
    fn suite(&mut self, position: usize, depth: usize) -> Result<SuiteContent> {
        self.check_numbers()?;
        let claims = self.claims();
        let name = self.lexer.attribute("name").filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("testsuite-{position:03}"), str::to_owned);
        (self.visit)(Step::Enter(Item::new(&name, PASSED)))?;
        let mut content = SuiteContent::default();
        let mut properties = SuiteProperties::default();
        let mut suites = 0;
        while self.lexer.next_child()? {
            match self.lexer.name() {
                "testcase" => {
                    let item = self.test(&mut content)?;
                    (self.visit)(Step::Item(item))?;
                }
                // The suite itself failed, outside any test.
                "failure" | "error" => {
                    let (mut text, mut room) = (FailureText::default(), TEXT_LIMIT);
                    text.read(&mut self.lexer, &mut room)?;
                    content.failures += 1;
                    let item = self.about(&name, FAILED);
                    let text = text.joined().unwrap_or_else(|| "the suite failed".into());
                    (self.visit)(Step::Item(item.with(FAILURE, text)))?;
                }
                "properties" => properties.read(&mut self.lexer)?,
                _ => self.inner(&mut content, &mut suites, depth)?,
            }
        }
        self.check(&name, &mut content, &claims)?;
        self.check_end(&name, &content, &properties)?;
        (self.visit)(Step::Leave)?;
        Ok(content)
    }

    /// An item about a suite, which is not a test and cannot be run again.
    fn about(&self, name: &str, status: &str) -> Item {
        Item::new(name, status).with_meta("file", self.file)
    }

    /// Adds an unknown item if a suite claims more than was read.
    fn check(
        &mut self,
        name: &str,
        content: &mut SuiteContent,
        claims: &SuiteClaims,
    ) -> Result<()> {
        match content.refute(claims) {
            Some(reason) => {
                let item = self.about(name, UNKNOWN).with_meta("error", &reason);
                (self.visit)(Step::Item(item))
            }
            None => Ok(()),
        }
    }

    /// Adds a failed item if a suite ended early, or did not succeed although no test failed.
    fn check_end(
        &mut self,
        name: &str,
        content: &SuiteContent,
        properties: &SuiteProperties,
    ) -> Result<()> {
        let text = match self.end.filter(|_| properties.ended_early()) {
            Some(end) => end.text.clone(),
            None if properties.failed() && content.failures == 0 => {
                "the suite says that it did not succeed, but none of its tests failed".into()
            }
            None => return Ok(()),
        };
        let mut item = self.about(name, FAILED).with(FAILURE, text);
        if properties.timed_out() {
            item = item.with(REMEDY, super::ending::REMEDY_OF_TIMEOUT);
        }
        (self.visit)(Step::Item(item))
    }

    /// What the current suite claims about itself.
    fn claims(&self) -> SuiteClaims {
        let number = |name: &str| {
            let text = self.lexer.attribute(name).map(str::trim);
            text.and_then(|text| text.parse::<u64>().ok())
                .unwrap_or_default()
        };
        let has = |name: &str| self.lexer.attribute(name).is_some();
        // Ginkgo 1 names no suite and counts no errors. Excerpts of its files are in use, which
        // list fewer tests than the whole had, so that only its number of failures is a
        // claim.
        let is_ginkgo_1 =
            self.lexer.name() == "testsuite" && has("time") && !has("name") && !has("errors");
        let tests = match number("tests") {
            _ if is_ginkgo_1 => 0,
            tests if self.is_pytest => tests.min(1),
            tests => tests,
        };
        SuiteClaims {
            tests,
            failures: number("failures").saturating_add(number("errors")),
            not_run: NOT_RUN_COUNTS
                .iter()
                .fold(0, |sum, name| u64::saturating_add(sum, number(name))),
        }
    }

    /// Checks the attributes that the original reads as numbers. Error messages about unreadable
    /// files are the original's, since they are part of the result.
    fn check_numbers(&self) -> Result<()> {
        for name in ["tests", "failures"] {
            check_number(&self.lexer, name, "strconv.ParseInt", |text| {
                match text.parse::<i64>() {
                    Ok(_) => None,
                    Err(error) => Some(match error.kind() {
                        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
                            "value out of range"
                        }
                        _ => "invalid syntax",
                    }),
                }
            })?;
        }
        check_number(
            &self.lexer,
            "time",
            "strconv.ParseFloat",
            |text| match without_separators(text).parse::<f64>() {
                Ok(number)
                    if number.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) =>
                {
                    Some("value out of range")
                }
                Ok(_) => None,
                Err(_) => Some("invalid syntax"),
            },
        )
    }

    /// Reads a test after its start tag, and counts it.
    fn test(&mut self, content: &mut SuiteContent) -> Result<Item> {
        let lexer = &mut self.lexer;
        let mut item = Item::new(lexer.attribute("name").unwrap_or_default(), "");
        let has_run = SuiteEnd::has_run(lexer);
        // The message and the text of `<failure>` and of `<error>`.
        let (mut failure, mut error) = (None, None);
        let mut attempts = Vec::new();
        let mut skip_message = String::new();
        let mut outcome = TestOutcome::Passed;
        let mut room = TEXT_LIMIT;
        while lexer.next_child()? {
            let child_outcome = TestOutcome::of_element(lexer.name());
            outcome = outcome.max(child_outcome);
            content.failures += u64::from(child_outcome >= TestOutcome::Flaky);
            match lexer.name() {
                "skipped" => {
                    lexer
                        .attribute("message")
                        .unwrap_or_default()
                        .clone_into(&mut skip_message);
                    lexer.skip_element()?;
                }
                "failure" => failure
                    .get_or_insert_with(FailureText::default)
                    .read(lexer, &mut room)?,
                "error" => error
                    .get_or_insert_with(FailureText::default)
                    .read(lexer, &mut room)?,
                _ if child_outcome == TestOutcome::Flaky && attempts.len() < MAX_ATTEMPTS => {
                    let mut text = FailureText::default();
                    text.read(lexer, &mut room)?;
                    attempts.push(
                        json!({"status": FAILED, (FAILURE): text.joined().unwrap_or_default()}),
                    );
                }
                name @ ("system-out" | "system-err") => {
                    let name = name.to_owned();
                    let text = read_text(lexer, &mut room)?;
                    if text.is_empty() {
                        item.details.remove(&name);
                    } else {
                        item.details.insert(name, Value::String(text));
                    }
                }
                _ => lexer.skip_element()?,
            }
        }
        content.tests += 1;
        content.not_run += u64::from(outcome == TestOutcome::Skipped);
        item.status = outcome.status().into();
        for (name, found) in [(FAILURE, failure), ("error", error)] {
            let text = found.and_then(|found| found.joined());
            let text = text.map(|text| self.end.map_or(text.clone(), |end| end.explain(text)));
            item.details
                .extend(text.map(|text| (name.to_owned(), text.into())));
        }
        match outcome {
            TestOutcome::Flaky if !attempts.is_empty() => {
                attempts.push(json!({"status": PASSED}));
                item.details.insert(ATTEMPTS.into(), attempts.into());
            }
            TestOutcome::Skipped if !has_run => {
                let end = self
                    .end
                    .filter(|end| end.cut_off(&item.name, &skip_message));
                item.details
                    .extend(end.map(|_| (NOT_RUN.to_owned(), true.into())));
            }
            _ => {}
        }
        Ok(item)
    }
}

/// The message and the text of an element that says why something failed.
#[derive(Default)]
struct FailureText {
    message: String,
    text: String,
}

impl FailureText {
    /// Reads the current element; of several, the last one counts.
    fn read<R: BufRead>(&mut self, lexer: &mut Lexer<R>, room: &mut usize) -> Result<()> {
        if let Some(message) = lexer.attribute("message") {
            message.clone_into(&mut self.message);
        }
        self.text = read_text(lexer, room)?;
        Ok(())
    }

    /// Both, if there is any text.
    fn joined(&self) -> Option<String> {
        let is_empty = self.message.is_empty() && self.text.is_empty();
        (!is_empty).then(|| format!("{} {}", self.message, self.text).trim().to_owned())
    }
}

/// Checks that an attribute of a suite is a number, if present; `wrong` formats the error.
fn check_number(
    lexer: &Lexer<impl BufRead>,
    name: &str,
    reader: &str,
    wrong: impl Fn(&str) -> Option<&'static str>,
) -> Result<()> {
    let text = lexer
        .attribute(name)
        .map(str::trim)
        .filter(|text| !text.is_empty());
    match text.and_then(|text| Some((text, wrong(text)?))) {
        Some((text, reason)) => bail!("{reader}: parsing {text:?}: {reason}"),
        None => Ok(()),
    }
}

/// Removes each `_` between two digits of a number.
fn without_separators(text: &str) -> String {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let separates = |at: usize| at > 0 && digit(bytes.get(at - 1)) && digit(bytes.get(at + 1));
    text.char_indices()
        .filter(|(at, c)| *c != '_' || !separates(*at))
        .map(|(_, c)| c)
        .collect()
}

/// Text of the current element without its children, truncated to `room`.
fn read_text<R: BufRead>(lexer: &mut Lexer<R>, room: &mut usize) -> Result<String> {
    let mut text = String::new();
    let mut cut = 0;
    loop {
        match lexer.next_token()? {
            Token::Open => lexer.skip_element()?,
            Token::Text if lexer.text().len() <= *room => {
                text.push_str(lexer.text());
                *room -= lexer.text().len();
            }
            Token::Text => {
                cut += lexer.text().len();
                *room = 0;
            }
            Token::Close | Token::End => break,
        }
    }
    if cut > 0 {
        text.push_str(&format!(
            "\n[{cut} further bytes are only in the file itself]"
        ));
    }
    Ok(text)
}
