//! Converts JUnit files to items: suites and their tests.

use std::io::{BufRead, BufReader, Read};
use std::num::IntErrorKind;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use crate::item::read::Visit;
use crate::item::{FAILED, FAILURE, Item, PASSED, SKIPPED, Step};
use base::xml::{Lexer, Token};

/// Maximum text kept of one test; the file contains the rest.
const TEXT_LIMIT: usize = 12 << 20;

/// Sends the suites of a file with their tests to `visit`; on an error, those before it.
pub(super) fn read(input: impl Read, visit: &mut Visit<'_>) -> Result<()> {
    let mut lexer = Lexer::new(BufReader::with_capacity(64 << 10, input));
    ensure!(lexer.next_child()?, "EOF");
    match lexer.name() {
        "testsuite" => suite(&mut lexer, visit, 1),
        "testsuites" => {
            let mut position = 0;
            while lexer.next_child()? {
                if lexer.name() == "testsuite" {
                    position += 1;
                    suite(&mut lexer, visit, position)?;
                } else {
                    lexer.skip_element()?;
                }
            }
            Ok(())
        }
        other => bail!("expected element type <testsuite> but have <{other}>"),
    }
}

/// Reads a suite after its start tag.
fn suite<R: BufRead>(lexer: &mut Lexer<R>, visit: &mut Visit<'_>, position: usize) -> Result<()> {
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
    visit(Step::Enter(Item::new(name, PASSED)))?;
    while lexer.next_child()? {
        match lexer.name() {
            "testcase" => visit(Step::Item(test(lexer)?))?,
            _ => lexer.skip_element()?,
        }
    }
    visit(Step::Leave)
}

/// Checks that an attribute of a suite is a number, if present; `wrong` formats the error.
fn check(
    lexer: &Lexer<impl BufRead>,
    name: &str,
    reader: &str,
    wrong: impl Fn(&str) -> Option<&'static str>,
) -> Result<()> {
    let text = lexer.attribute(name).map(str::trim).filter(|text| !text.is_empty());
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
    text.char_indices().filter(|(at, c)| *c != '_' || !separates(*at)).map(|(_, c)| c).collect()
}

/// Reads a test after its start tag.
fn test<R: BufRead>(lexer: &mut Lexer<R>) -> Result<Item> {
    let mut item = Item::new(lexer.attribute("name").unwrap_or_default(), "");
    // The message and the text of `<failure>` and of `<error>`.
    let (mut failure, mut error, mut skipped) = (None, None, false);
    let mut room = TEXT_LIMIT;
    while lexer.next_child()? {
        match lexer.name() {
            "skipped" => {
                skipped = true;
                lexer.skip_element()?;
            }
            name @ ("failure" | "error") => {
                let found = if name == "error" { &mut error } else { &mut failure };
                let (message, content) = found.get_or_insert_with(<(String, String)>::default);
                lexer.attribute("message").into_iter().for_each(|told| told.clone_into(message));
                *content = text(lexer, &mut room)?;
            }
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
    for (name, found) in [(FAILURE, failure), ("error", error)] {
        let found = found.filter(|(message, text)| !message.is_empty() || !text.is_empty());
        let detail = found.map(|(message, text)| format!("{message} {text}").trim().into());
        item.details.extend(detail.map(|detail| (name.to_owned(), detail)));
    }
    Ok(item)
}

/// Text of the current element without its children, truncated to `room`.
fn text<R: BufRead>(lexer: &mut Lexer<R>, room: &mut usize) -> Result<String> {
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
