//! Makes untrusted text safe to display: control characters, and characters that change the
//! direction of text, become escapes.
//!
//! Escapes are those of JSON, so that a JSON document keeps its meaning. Knows neither streams nor
//! whether one is a terminal. Starts no thread.

use std::borrow::Cow;
use std::io::{self, Write};

/// Maximum width of a table column: cells contain untrusted text, and format widths are limited,
/// too.
const MAX_COLUMN: usize = 1_000;

/// Removes the numbers that systems append to their errors, as in ` (os error 2)`, which repeat the
/// message.
pub fn without_codes(text: &str) -> Cow<'_, str> {
    const CODE: &str = " (os error ";
    let mut parts = text.split(CODE);
    let mut out = Cow::Borrowed(parts.next().unwrap_or_default());
    for part in parts {
        let after = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match after.strip_prefix(')').filter(|_| after.len() < part.len()) {
            Some(rest) => out.to_mut().push_str(rest),
            None => out.to_mut().extend([CODE, part]),
        }
    }
    out
}

/// Maximum characters that [`short`] returns; requests with two selectors fit.
const MAX_SHORT: usize = 240;

/// Width of a column with these cells.
pub fn width<'a>(cells: impl IntoIterator<Item = &'a str>) -> usize {
    let widths = cells.into_iter().map(|cell| cell.chars().count());
    widths.max().unwrap_or_default().min(MAX_COLUMN)
}

/// Whether a character must be escaped: control characters, U+2028 and similar ones, invisible
/// characters, and those that change the direction of text.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{e0000}'..='\u{e007f}')
}

/// One line: escapes line feeds and tabs, too, so that no name can add lines.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Any number of lines: keeps line feeds and tabs.
pub fn text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || c == '\t')
}

/// The beginning of an untrusted name or address, for messages: enough to recognise it.
pub fn short(text: &str) -> Cow<'_, str> {
    cut(text, MAX_SHORT)
}

/// At most `max` bytes from the beginning of a text, up to the end of a character.
pub fn head(text: &str, max: usize) -> &str {
    let end = (0..=text.len().min(max))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// A text cut after `max` bytes, with an ellipsis in place of the rest.
pub fn cut_bytes(text: &str, max: usize) -> String {
    let part = head(text, max);
    if part.len() == text.len() {
        text.to_owned()
    } else {
        format!("{part}…")
    }
}

/// A message of at most `max` bytes: what precedes a `; ` is cut, so that the advice behind it is
/// kept.
pub fn cut_before_advice(message: &str, max: usize) -> String {
    const ELLIPSIS_BYTES: usize = '…'.len_utf8();
    if message.len() <= max {
        return message.to_owned();
    }
    // An advice may have several parts: it begins at the first mark behind which all fits.
    let mut marks = message.match_indices("; ").map(|(at, _)| at);
    match marks.find(|at| message.len() - at <= max / 2) {
        Some(at) => {
            let (cause, advice) = message.split_at(at);
            format!(
                "{}{advice}",
                cut_bytes(cause, max.saturating_sub(advice.len() + ELLIPSIS_BYTES))
            )
        }
        None => cut_bytes(message, max.saturating_sub(ELLIPSIS_BYTES)),
    }
}

/// At most `max` bytes from the end of a text, from the start of a character.
pub fn tail(text: &str, max: usize) -> &str {
    let start = (text.len().saturating_sub(max)..).find(|start| text.is_char_boundary(*start));
    &text[start.unwrap_or_default()..]
}

/// The first `max` characters of a text, with an ellipsis in place of the rest.
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

fn escaped(text: &str, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_shown = |c| !hidden(c) || kept(c);
    let Some(first) = text.find(|c| !is_shown(c)) else {
        return Cow::Borrowed(text);
    };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        match c {
            c if is_shown(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.extend(
                c.encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}")),
            ),
        }
    }
    Cow::Owned(out)
}

/// Passes on written text as [`text`] shows it. Bytes that are not UTF-8 become U+FFFD.
pub struct Visible<W: Write> {
    inner: W,
    /// The start of an incomplete character.
    pending: Vec<u8>,
}

impl<W: Write> Visible<W> {
    /// A writer over `inner`.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            pending: Vec::new(),
        }
    }
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        let rest = self
            .pending
            .utf8_chunks()
            .last()
            .map_or(&[][..], |chunk| chunk.invalid());
        let is_cut = std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
        let end = self.pending.len() - if is_cut { rest.len() } else { 0 };
        let complete: Vec<u8> = self.pending.drain(..end).collect();
        self.inner
            .write_all(text(&String::from_utf8_lossy(&complete)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.pending).is_empty() {
            self.inner.write_all("\u{fffd}".as_bytes())?;
        }
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_error_numbers_are_omitted() {
        for (text, expected) in [
            ("a: none (os error 2)", "a: none"),
            ("a (os error 2): b (os error 111), c", "a: b, c"),
            ("a (os error x), (os error 2", "a (os error x), (os error 2"),
            ("a (os error ) (os error 5)", "a (os error )"),
        ] {
            assert_eq!(without_codes(text), expected);
        }
    }

    #[test]
    fn column_width_is_that_of_its_widest_cell() {
        assert_eq!(width([]), 0);
        assert_eq!(width(["a", "größe", ""]), 5);
        let wide = width(["x".repeat(70_000).as_str()]);
        assert!(format!("{:wide$}", "").len() <= MAX_COLUMN);
    }

    #[test]
    fn long_text_is_truncated_at_a_character() {
        assert_eq!(short("größe"), "größe");
        assert_eq!(short(&"ö".repeat(MAX_SHORT)), "ö".repeat(MAX_SHORT));
        assert_eq!(
            short(&"ö".repeat(MAX_SHORT + 1)),
            "ö".repeat(MAX_SHORT) + "…"
        );
        assert_eq!(cut_bytes("äöü", 6), "äöü");
        assert_eq!(cut_bytes("äöü", 5), "äö…");
        assert_eq!(
            (tail("äöü", 6), tail("äöü", 5), tail("äöü", 0)),
            ("äöü", "öü", "")
        );
    }

    #[test]
    fn cut_message_keeps_its_advice() {
        for (message, expected) in [
            ("short; advice", "short; advice"),
            (
                "a cause that is quite a bit longer; do this; or that",
                "a cause that is qui…; do this; or that",
            ),
            (
                "first; then a cause that is rather long; do it",
                "first; then a cause that is ra…; do it",
            ),
            (
                "a cause without any advice, but very long indeed",
                "a cause without any advice, but very …",
            ),
            (
                "x; an advice that is itself much too long for it",
                "x; an advice that is itself much too …",
            ),
        ] {
            let cut = cut_before_advice(message, 40);
            assert_eq!((cut.as_str(), cut.len() <= 40), (expected, true));
        }
    }

    #[test]
    fn control_characters_are_shown_escaped() {
        for (given, as_line, as_text) in [
            (
                "plain ä 日本 🦀 é",
                "plain ä 日本 🦀 é",
                "plain ä 日本 🦀 é",
            ),
            ("a\nb\tc", r"a\nb\tc", "a\nb\tc"),
            ("a\r\nb", r"a\r\nb", "a\\r\nb"),
            ("\u{1b}[31mred", r"\u001b[31mred", r"\u001b[31mred"),
            (
                "\u{1b}]0;title\u{7}",
                r"\u001b]0;title\u0007",
                r"\u001b]0;title\u0007",
            ),
            (
                "\u{9b}2J\u{7f}\u{8}",
                r"\u009b2J\u007f\u0008",
                r"\u009b2J\u007f\u0008",
            ),
            (
                "\u{202e}txt.exe\u{2066}\u{200f}",
                r"\u202etxt.exe\u2066\u200f",
                r"\u202etxt.exe\u2066\u200f",
            ),
            (
                "\u{2028}\u{e0041}",
                r"\u2028\udb40\udc41",
                r"\u2028\udb40\udc41",
            ),
        ] {
            assert_eq!(line(given), as_line);
            assert_eq!(text(given), as_text);
            let json = serde_json::to_string(given).unwrap();
            assert_eq!(
                serde_json::from_str::<String>(&text(&json)).unwrap(),
                given,
                "the same document"
            );
            for pieces in [1, 2, 3, 64] {
                let mut out = Visible::new(Vec::new());
                given
                    .as_bytes()
                    .chunks(pieces)
                    .for_each(|piece| out.write_all(piece).unwrap());
                out.flush().unwrap();
                assert_eq!(String::from_utf8(out.inner).unwrap(), as_text, "{pieces}");
            }
        }
    }

    #[test]
    fn invalid_utf_8_is_escaped() {
        for (given, expected) in [
            (&b"a\x9b2Jb"[..], "a\u{fffd}2Jb"),
            (b"\xff\xfe", "\u{fffd}\u{fffd}"),
            (b"cut \xe2\x80", "cut \u{fffd}"),
        ] {
            let mut out = Visible::new(Vec::new());
            out.write_all(given).unwrap();
            out.flush().unwrap();
            assert_eq!(String::from_utf8(out.inner).unwrap(), expected);
        }
        let mut out = Visible::new(Vec::new());
        [&b"\xff a \xe2\x82"[..], b"\xac b"]
            .iter()
            .for_each(|piece| out.write_all(piece).unwrap());
        assert_eq!(
            String::from_utf8(out.inner).unwrap(),
            "\u{fffd} a \u{20ac} b"
        );
    }
}
