//! Converts JUnit files to items: suites and their tests.

use std::io::BufRead;
use std::num::IntErrorKind;

use serde_json::Value;

use crate::item::read::Visit;
use crate::item::{FAILED, FAILURE, Item, PASSED, SKIPPED};
use base::xml::{Lexer, Token};

/// Maximum text kept of one test; the file contains the rest.
const TEXT_LIMIT: usize = 12 << 20;

/// Sends the suites of a file with their tests to `tree`; on an error, those before it.
pub(super) fn read(input: impl BufRead, tree: &mut dyn Visit) -> anyhow::Result<()> {
    let mut lexer = Lexer::new(input);
    loop {
        match lexer.next_token()? {
            Token::Open => break,
            Token::End => anyhow::bail!("EOF"),
            Token::Text | Token::Close => {}
        }
    }
    match lexer.name() {
        "testsuite" => suite(&mut lexer, tree, 1),
        "testsuites" => {
            let mut position = 0;
            loop {
                match lexer.next_token()? {
                    Token::Open if lexer.name() == "testsuite" => {
                        position += 1;
                        suite(&mut lexer, tree, position)?;
                    }
                    Token::Open => lexer.skip_element()?,
                    Token::Text => {}
                    Token::Close | Token::End => return Ok(()),
                }
            }
        }
        other => anyhow::bail!("expected element type <testsuite> but have <{other}>"),
    }
}

/// Reads a suite after its start tag.
fn suite<R: BufRead>(lexer: &mut Lexer<R>, tree: &mut dyn Visit, position: usize) -> anyhow::Result<()> {
    // Error messages about unreadable files are the original's, since they are part of the result.
    for name in ["tests", "failures"] {
        check(lexer, name, "strconv.ParseInt", |text| match text.parse::<i64>() {
            Ok(_) => None,
            Err(error) => Some(match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            }),
        })?;
    }
    check(lexer, "time", "strconv.ParseFloat", |text| match without_separators(text).parse::<f64>() {
        Ok(number) if number.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) => {
            Some("value out of range")
        }
        Ok(_) => None,
        Err(_) => Some("invalid syntax"),
    })?;
    let name = lexer.attribute("name").filter(|name| !name.is_empty());
    let name = name.map_or_else(|| format!("testsuite-{position:03}"), str::to_owned);
    tree.enter(Item { name, status: PASSED.into(), ..Item::default() })?;
    loop {
        match lexer.next_token()? {
            Token::Open if lexer.name() == "testcase" => tree.leaf(test(lexer)?)?,
            Token::Open => lexer.skip_element()?,
            Token::Text => {}
            Token::Close | Token::End => break,
        }
    }
    tree.leave()
}

/// Checks that an attribute of a suite is a number, if present; `wrong` formats the error.
fn check(
    lexer: &Lexer<impl BufRead>,
    name: &str,
    reader: &str,
    wrong: impl Fn(&str) -> Option<&'static str>,
) -> anyhow::Result<()> {
    let text = lexer.attribute(name).map(str::trim).filter(|text| !text.is_empty());
    match text.and_then(|text| Some((text, wrong(text)?))) {
        Some((text, reason)) => anyhow::bail!("{reader}: parsing {text:?}: {reason}"),
        None => Ok(()),
    }
}

/// Removes each `_` between two digits of a number.
fn without_separators(text: &str) -> String {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let separates = |at: usize| at > 0 && digit(bytes.get(at - 1)) && digit(bytes.get(at + 1));
    text.char_indices().filter(|(at, c)| *c != '_' || !separates(*at)).map(|(_, c)| c).collect()
}

/// Content of `<failure>` or `<error>`.
#[derive(Default)]
struct Complaint {
    message: String,
    text: String,
}

impl Complaint {
    fn into_detail(self) -> Option<Value> {
        if self.message.is_empty() && self.text.is_empty() {
            return None;
        }
        Some(Value::String(format!("{} {}", self.message, self.text).trim().to_owned()))
    }
}

/// Reads a test after its start tag.
fn test<R: BufRead>(lexer: &mut Lexer<R>) -> anyhow::Result<Item> {
    let mut item = Item { name: lexer.attribute("name").unwrap_or_default().to_owned(), ..Item::default() };
    let (mut failure, mut error, mut skipped) = (None::<Complaint>, None::<Complaint>, false);
    let mut room = TEXT_LIMIT;
    loop {
        match lexer.next_token()? {
            Token::Open => {}
            Token::Text => continue,
            Token::Close | Token::End => break,
        }
        match lexer.name() {
            "skipped" => {
                skipped = true;
                lexer.skip_element()?;
            }
            "failure" => complaint(lexer, failure.get_or_insert_default(), &mut room)?,
            "error" => complaint(lexer, error.get_or_insert_default(), &mut room)?,
            name @ ("system-out" | "system-err") => {
                let name = name.to_owned();
                let text = text(lexer, &mut room)?;
                if text.is_empty() {
                    item.details.remove(&name);
                } else {
                    item.details.insert(name, Value::String(text));
                }
            }
            _ => lexer.skip_element()?,
        }
    }
    item.status = match (skipped, failure.is_some() || error.is_some()) {
        (true, _) => SKIPPED,
        (false, true) => FAILED,
        (false, false) => PASSED,
    }
    .into();
    for (name, complaint) in [(FAILURE, failure), ("error", error)] {
        if let Some(detail) = complaint.and_then(Complaint::into_detail) {
            item.details.insert(name.into(), detail);
        }
    }
    Ok(item)
}

fn complaint<R: BufRead>(
    lexer: &mut Lexer<R>,
    complaint: &mut Complaint,
    room: &mut usize,
) -> anyhow::Result<()> {
    if let Some(message) = lexer.attribute("message") {
        message.clone_into(&mut complaint.message);
    }
    complaint.text = text(lexer, room)?;
    Ok(())
}

/// Text of the current element without its children, truncated to `room`.
fn text<R: BufRead>(lexer: &mut Lexer<R>, room: &mut usize) -> anyhow::Result<String> {
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
        text.push_str(&format!("\n[{cut} further bytes are only in the file itself]"));
    }
    Ok(text)
}
