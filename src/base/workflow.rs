//! Keeps untrusted text from becoming a command of GitHub Actions.
//!
//! There the runner reads both streams of every step: a line that begins with `::`, after any
//! blanks, and `##[` anywhere are commands, which set results of the step or stop its log. One
//! character of them becomes an escape of JSON, so that text stays readable and a JSON document
//! keeps its meaning. Starts no thread.

use std::borrow::Cow;

use crate::sys;

/// Set by the runner for every step.
const VARIABLE: &str = "GITHUB_ACTIONS";

/// Whether the output of this process is read for commands.
pub fn reads_commands() -> bool {
    sys::variable(VARIABLE).is_some()
}

/// What a line contains so far.
#[derive(Clone, Copy, Default, PartialEq)]
enum Line {
    /// Nothing that the runner does not skip.
    #[default]
    Blank,
    /// Then a single colon.
    Colon,
    /// Anything else.
    Text,
}

/// Breaks commands in text that arrives piece by piece.
#[derive(Default)]
pub struct CommandBreaker {
    line: Line,
    /// The number of `#` at the end, at most two.
    hashes: u8,
}

impl CommandBreaker {
    /// A breaker at the start of a line.
    pub const fn new() -> Self {
        Self {
            line: Line::Blank,
            hashes: 0,
        }
    }

    /// The next piece without commands.
    pub fn break_commands<'p>(&mut self, piece: &'p [u8]) -> Cow<'p, [u8]> {
        let mut out = Cow::Borrowed(piece);
        for (index, &byte) in piece.iter().enumerate() {
            let escape = self.escape_of(byte);
            match (&mut out, escape) {
                (Cow::Borrowed(_), None) => {}
                (Cow::Borrowed(_), Some(escape)) => {
                    out = Cow::Owned([&piece[..index], escape].concat());
                }
                (Cow::Owned(out), None) => out.push(byte),
                (Cow::Owned(out), Some(escape)) => out.extend_from_slice(escape),
            }
        }
        out
    }

    /// The escape in place of the next byte, if that would complete the start of a command.
    fn escape_of(&mut self, byte: u8) -> Option<&'static [u8]> {
        let hashes = std::mem::take(&mut self.hashes);
        match byte {
            b'\n' | b'\r' => self.line = Line::Blank,
            b' ' | b'\t' if self.line == Line::Blank => {}
            // The runner compares texts as people read them: invisible characters do not count.
            0..=0x08 | 0x0b..=0x1f | 0x7f.. => self.hashes = hashes,
            b':' if self.line == Line::Colon => {
                self.line = Line::Text;
                return Some(br"\u003a");
            }
            b':' if self.line == Line::Blank => self.line = Line::Colon,
            b'[' if hashes > 1 => {
                self.line = Line::Text;
                return Some(br"\u005b");
            }
            _ => {
                self.line = Line::Text;
                self.hashes = if byte == b'#' { (hashes + 1).min(2) } else { 0 };
            }
        }
        None
    }
}

/// Whole lines without commands, where there could be any.
pub fn safe_lines(text: &str) -> Cow<'_, str> {
    if !reads_commands() {
        return Cow::Borrowed(text);
    }
    match CommandBreaker::new().break_commands(text.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(safe) => Cow::Owned(String::from_utf8_lossy(&safe).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_a_command() {
        for (given, expected) in [
            ("::set-output name=a::b\n", ":\\u003aset-output name=a::b\n"),
            ("  \t::stop-commands::x", "  \t:\\u003astop-commands::x"),
            ("a\n\u{3000}\u{a0}::x::", "a\n\u{3000}\u{a0}:\\u003ax::"),
            ("a\r::x::", "a\r:\\u003ax::"),
            (":\u{200b}:x::", ":\u{200b}\\u003ax::"),
            ("##[error]x", "##\\u005berror]x"),
            ("passed ##[group]x", "passed ##\\u005bgroup]x"),
            (
                "#\u{ad}#\u{200b}[x]###[y]",
                "#\u{ad}#\u{200b}\\u005bx]###\\u005by]",
            ),
            ("\"##[a]\"", "\"##\\u005ba]\""),
            (":::x", ":\\u003a:x"),
        ] {
            for size in [1, 2, 100] {
                let mut breaker = CommandBreaker::new();
                let mut out = Vec::new();
                for piece in given.as_bytes().chunks(size) {
                    out.extend_from_slice(&breaker.break_commands(piece));
                }
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{size}: {given}");
            }
        }
    }

    #[test]
    fn other_text_is_unchanged() {
        for text in [
            "a ::b::\n",
            ": :x\n",
            "## [link](x)\n",
            "# #[x]\n",
            "#[x]\n",
            "\"::x\"\n",
        ] {
            let mut breaker = CommandBreaker::new();
            let broken = breaker.break_commands(text.as_bytes());
            assert!(matches!(broken, Cow::Borrowed(_)), "{text}");
        }
    }
}
