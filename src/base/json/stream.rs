//! Untrusted JSON as a stream of which no part makes its reader keep much: a long text is cut, the rest has limits.
//!
//! What is not Unicode is replaced, in bytes and in escapes, since names and messages come from anywhere. Whether it is
//! JSON otherwise is its reader's concern.

use std::io::{self, Read};

/// What is read at once.
const WINDOW: usize = 16 << 10;
/// No piece is longer: the escapes of both halves of a letter.
const PIECE: usize = 12;
/// The deepest nesting: its reader remembers each level, as deep as other readers go.
const DEPTH: usize = 10_000;
/// The longest number: its reader may remember the digits.
const WORD: usize = 4 << 10;

/// A reader of such JSON.
pub struct Stream<R> {
    input: R,
    /// Begins with so much that was read and not looked at.
    raw: Vec<u8>,
    read: usize,
    ended: bool,
    /// What was looked at, of which the first `given` bytes were given away.
    ready: Vec<u8>,
    given: usize,
    failure: Option<&'static str>,
    /// No text is longer, as it is written.
    longest: usize,
    /// How much there was of the text that is being read.
    text: Option<usize>,
    word: usize,
    depth: usize,
}

impl<R: Read> Stream<R> {
    /// Texts are cut somewhere behind `most` bytes of what they stand for.
    pub fn new(input: R, most: usize) -> Self {
        // One byte may be written with six.
        let longest = most.saturating_mul(6).saturating_add(PIECE);
        Self {
            input,
            raw: vec![0; WINDOW],
            read: 0,
            ended: false,
            ready: Vec::new(),
            given: 0,
            failure: None,
            longest,
            text: None,
            word: 0,
            depth: 0,
        }
    }

    /// Looks at what was read, as far as no piece may be cut.
    fn look(&mut self) {
        let whole = if self.ended { 0 } else { PIECE };
        let mut at = 0;
        while self.read > at + whole && self.failure.is_none() {
            let rest = &self.raw[at..self.read];
            let (length, replaced) = match self.text {
                Some(_) => piece(rest),
                None => (1, false),
            };
            at += length;
            let first = rest[0];
            let kept = match &mut self.text {
                Some(_) if first == b'"' => {
                    self.text = None;
                    true
                }
                Some(passed) => {
                    *passed += length;
                    *passed <= self.longest
                }
                None => {
                    self.failure = self.step(first);
                    true
                }
            };
            match (kept, replaced, first) {
                (false, ..) => {}
                (true, true, b'\\') => self.ready.extend(b"\\ufffd"),
                (true, true, _) => self.ready.extend("\u{fffd}".bytes()),
                (true, false, _) => self.ready.extend(&self.raw[at - length..at]),
            }
        }
        self.raw.copy_within(at..self.read, 0);
        self.read -= at;
    }

    /// A byte outside of texts; what is wrong with it.
    fn step(&mut self, byte: u8) -> Option<&'static str> {
        let word = std::mem::take(&mut self.word);
        match byte {
            b'"' => self.text = Some(0),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.word = word + 1,
        }
        (self.word > WORD)
            .then_some("a number is too long")
            .or((self.depth > DEPTH).then_some("it is nested too deeply"))
    }
}

/// How much of `rest`, inside a text, belongs together, and whether that is replaced.
fn piece(rest: &[u8]) -> (usize, bool) {
    match rest[0] {
        b'\\' => match unit(rest) {
            Some(0xd800..0xdc00)
                if rest.get(6..).and_then(unit).is_some_and(|low| (0xdc00..0xe000).contains(&low)) =>
            {
                (12, false)
            }
            Some(unit) => (6, (0xd800..0xe000).contains(&unit)),
            None => (rest.len().min(2), false),
        },
        0..0x80 => (1, false),
        _ => {
            let chunk = rest[..rest.len().min(4)].utf8_chunks().next();
            let (valid, invalid) = chunk.map_or(("", rest), |chunk| (chunk.valid(), chunk.invalid()));
            valid.chars().next().map_or((invalid.len(), true), |letter| (letter.len_utf8(), false))
        }
    }
}

/// What the escape of half a letter, or of a whole one, stands for.
fn unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    u16::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| is_hex)?, 16).ok()
}

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.ready.len() {
            self.given = 0;
            self.ready.clear();
            if let Some(failure) = self.failure {
                return Err(io::Error::new(io::ErrorKind::InvalidData, failure));
            }
            if self.ended && self.read == 0 {
                return Ok(0);
            }
            let got = self.input.read(&mut self.raw[self.read..])?;
            self.read += got;
            self.ended = got == 0;
            self.look();
        }
        let got = buffer.len().min(self.ready.len() - self.given);
        buffer[..got].copy_from_slice(&self.ready[self.given..self.given + got]);
        self.given += got;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(self.1);
            self.0.read(&mut buffer[..most])
        }
    }

    fn passed(json: &[u8], most: usize) -> Result<String, String> {
        let read = |step| {
            let mut text = String::new();
            let read = Stream::new(Drip(json, step), most).read_to_string(&mut text);
            read.map(|_| text).map_err(|error| error.to_string())
        };
        let all = read(usize::MAX);
        assert_eq!((read(1), read(7)), (all.clone(), all.clone()), "{}", json.escape_ascii());
        all
    }

    #[test]
    fn what_is_not_unicode_is_replaced() {
        for (given, expected) in [
            (&b"{\"a\": [1, \"b\\n\\\"\xc3\xa4\"]} more"[..], "{\"a\": [1, \"b\\n\\\"\u{e4}\"]} more"),
            (b"\"caf\xe9\"", "\"caf\u{fffd}\""),
            (b"\"\xff\xfe \xe2\x82\"", "\"\u{fffd}\u{fffd} \u{fffd}\""),
            (b"\"\xe2\x82", "\"\u{fffd}"),
            (br#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (br#""a\udc80b\ud83d""#, r#""a\ufffdb\ufffd""#),
            (br#""\ud83d\ud83d\ude00\\udc80""#, r#""\ufffd\ud83d\ude00\\udc80""#),
            (br#""\ud83d\u0041\n""#, r#""\ufffd\u0041\n""#),
            (br#""\u+123\u12"#, r#""\u+123\u12"#),
            (br#""\"#, r#""\"#),
        ] {
            assert_eq!(passed(given, 100).as_deref(), Ok(expected), "{}", given.escape_ascii());
        }
    }

    #[test]
    fn a_long_text_is_cut_behind_what_is_wanted_of_it_and_between_its_pieces() {
        for piece in ["x", "\u{e4}", "\\n", "\\u00e4", "\\ud83d\\ude00"] {
            let long = piece.repeat(1 << 13);
            let text = passed(format!(r#"{{"{long}": ["{long}", "short"]}}"#).as_bytes(), 100).unwrap();
            assert!(text.len() < 2 * (6 * 100 + PIECE) + 20, "{piece}: {}", text.len());
            let (key, list): (String, Vec<String>) = {
                let read = serde_json::from_str::<std::collections::BTreeMap<_, _>>(&text).expect(piece);
                read.into_iter().next().unwrap()
            };
            assert_eq!((list[0].as_str(), list[1].as_str()), (key.as_str(), "short"));
            assert!(key.len() > 100, "{piece}: {}", key.len());
        }
    }

    #[test]
    fn what_a_reader_would_have_to_remember_has_a_limit() {
        for (json, fails) in [
            ("[".repeat(DEPTH), None),
            ("[".repeat(DEPTH + 1), Some("nested too deeply")),
            ("[{}]".repeat(DEPTH), None),
            ("1".repeat(WORD), None),
            ("1".repeat(WORD + 1), Some("number is too long")),
            (" ".repeat(3 * WORD), None),
            ("12,".repeat(WORD), None),
        ] {
            let error = passed(json.as_bytes(), 100).err().unwrap_or_default();
            assert_eq!(!error.is_empty(), fails.is_some(), "{error}");
            assert!(error.contains(fails.unwrap_or_default()), "{error}");
        }
    }
}
