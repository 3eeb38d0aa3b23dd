//! A fast reader for the YAML that programs write: indented lists and maps, and scalars of every style but folded.
//!
//! Yields the same events as the full reader, or [`Unusual`] if a text contains anything else: flow collections, anchors,
//! tags, comments, several documents, tabs, errors. In that case the caller starts again with the full reader, which can
//! also explain errors. Memory: one line and one scalar.

use std::io::{self, BufRead};

use libyaml_safer::{EventData, MappingStyle, ScalarStyle, SequenceStyle};

/// Maximum key length, as in the full reader.
const MAX_KEY_BYTES: usize = 1000;
/// Maximum nesting of collections.
const MAX_DEPTH: usize = 250;

/// The text contains something that this reader does not support.
#[derive(Debug)]
pub struct Unusual;

impl std::fmt::Display for Unusual {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this YAML needs the full reader")
    }
}

impl std::error::Error for Unusual {}

impl From<io::Error> for Unusual {
    fn from(_: io::Error) -> Self {
        Self
    }
}

type Result<T> = std::result::Result<T, Unusual>;

/// An open collection, and the column of its entries.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    Map(usize),
    List(usize),
}

/// The expected next token.
#[derive(Clone, Copy, PartialEq)]
enum Want {
    /// A line that starts an entry of an open collection.
    Line,
    /// The value after a key or a dash on the current line, from this column.
    Value(usize),
    /// The same after a dash, where a map may start.
    Entry(usize),
    /// Nothing more.
    End,
}

/// Reads the first document of a text that a program wrote.
pub struct Quick<R> {
    input: R,
    /// The current line without its line feed, possibly partly consumed.
    line: String,
    bytes: Vec<u8>,
    at_hand: bool,
    over: bool,
    open: Vec<Open>,
    want: Want,
    /// A key whose map was started by the previous event.
    key: Option<(String, ScalarStyle, usize)>,
}

fn list() -> EventData {
    EventData::SequenceStart { anchor: None, tag: None, implicit: true, style: SequenceStyle::Block }
}

fn map() -> EventData {
    EventData::MappingStart { anchor: None, tag: None, implicit: true, style: MappingStyle::Block }
}

fn scalar(value: String, style: ScalarStyle) -> EventData {
    let plain = style == ScalarStyle::Plain;
    EventData::Scalar {
        anchor: None,
        tag: None,
        value,
        plain_implicit: plain,
        quoted_implicit: !plain,
        style,
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

impl<R: BufRead> Quick<R> {
    /// Starts at the beginning of a text.
    pub fn new(input: R) -> Self {
        Self {
            input,
            line: String::new(),
            bytes: Vec::new(),
            at_hand: false,
            over: false,
            open: Vec::new(),
            want: Want::Line,
            key: None,
        }
    }

    /// The next event, beginning with the document's root.
    pub fn event(&mut self) -> Result<EventData> {
        if let Some((key, style, column)) = self.key.take() {
            self.want = Want::Value(column);
            return Ok(scalar(key, style));
        }
        match self.want {
            Want::Line => self.begin_line(),
            Want::Value(column) => self.value(column),
            Want::Entry(column) => self.entry(column),
            Want::End => Ok(EventData::StreamEnd),
        }
    }

    /// Reads a line unless there is a current one; false at the end.
    fn peek(&mut self) -> Result<bool> {
        if self.at_hand {
            return Ok(true);
        }
        if self.over {
            return Ok(false);
        }
        self.bytes.clear();
        self.input.read_until(b'\n', &mut self.bytes)?;
        if self.bytes.pop_if_line_feed() == 0 {
            self.over = true;
            return Ok(false);
        }
        if self.bytes.iter().any(|byte| *byte < b' ' && *byte != b'\t' || *byte == 0x7f) {
            return Err(Unusual);
        }
        let text = std::str::from_utf8(&self.bytes).map_err(|_| Unusual)?;
        let odd = |c: char| {
            matches!(c, '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
        };
        if !text.is_ascii() && text.chars().any(odd) || text.starts_with("---") || text.starts_with("...") {
            return Err(Unusual);
        }
        self.line.clear();
        self.line.push_str(text);
        self.at_hand = true;
        Ok(true)
    }

    /// The indentation of the next line that is not blank; `None` at the end.
    fn next_indent(&mut self) -> Result<Option<usize>> {
        while self.peek()? {
            let indent = indent(&self.line);
            if indent < self.line.len() {
                return Ok(Some(indent));
            }
            self.at_hand = false;
        }
        Ok(None)
    }

    fn is_dash(&self, column: usize) -> bool {
        let rest = &self.line[column..];
        rest == "-" || rest.starts_with("- ")
    }

    fn begin_line(&mut self) -> Result<EventData> {
        let Some(column) = self.next_indent()? else {
            return if self.open.is_empty() { Err(Unusual) } else { Ok(self.close()) };
        };
        match self.open.last().copied() {
            None if self.is_dash(column) => Err(Unusual),
            None => self.begin_map(column),
            Some(Open::Map(at) | Open::List(at)) if column < at => Ok(self.close()),
            // A list may start in the same column as its key.
            Some(Open::List(at)) if column == at && !self.is_dash(column) => Ok(self.close()),
            Some(Open::List(at)) if column == at => {
                self.want = Want::Entry(column + 1);
                self.event()
            }
            Some(Open::Map(at)) if column == at && !self.is_dash(column) => {
                let (key, style, after) = self.key(column)?.ok_or(Unusual)?;
                self.want = Want::Value(after);
                Ok(scalar(key, style))
            }
            Some(_) => Err(Unusual),
        }
    }

    /// Closes the innermost collection.
    fn close(&mut self) -> EventData {
        let ended = self.open.pop();
        self.want = if self.open.is_empty() { Want::End } else { Want::Line };
        match ended {
            Some(Open::Map(_)) => EventData::MappingEnd,
            Some(Open::List(_)) => EventData::SequenceEnd,
            None => EventData::StreamEnd,
        }
    }

    fn begin_map(&mut self, column: usize) -> Result<EventData> {
        self.key = Some(self.key(column)?.ok_or(Unusual)?);
        self.push(Open::Map(column))?;
        Ok(map())
    }

    fn push(&mut self, open: Open) -> Result<()> {
        self.open.push(open);
        if self.open.len() > MAX_DEPTH { Err(Unusual) } else { Ok(()) }
    }

    /// Reads the text after a dash.
    fn entry(&mut self, column: usize) -> Result<EventData> {
        let start = column + indent(&self.line[column..]);
        if start == self.line.len() || self.is_dash(start) {
            return Err(Unusual);
        }
        if self.key(start)?.is_some() {
            return self.begin_map(start);
        }
        self.value(column)
    }

    /// The key at a column, with the column after its colon; `None` if the line has no key there.
    fn key(&mut self, column: usize) -> Result<Option<(String, ScalarStyle, usize)>> {
        let rest = &self.line[column..];
        let (key, style, end) = match rest.as_bytes().first() {
            Some(quote @ (b'"' | b'\'')) => {
                let mut text = String::new();
                let Some(length) = quoted(&rest[1..], *quote, &mut text)? else { return Ok(None) };
                let style =
                    if *quote == b'"' { ScalarStyle::DoubleQuoted } else { ScalarStyle::SingleQuoted };
                (text, style, length + 1)
            }
            _ => {
                let end = match rest.find(": ") {
                    Some(end) => end,
                    None if rest.ends_with(':') => rest.len() - 1,
                    None => return Ok(None),
                };
                let key = rest[..end].trim_end();
                if !is_plain(key) || key.contains(" #") || key.contains('\t') {
                    return Err(Unusual);
                }
                (key.to_owned(), ScalarStyle::Plain, end)
            }
        };
        let after = &rest[end..];
        if !(after == ":" || after.starts_with(": ")) {
            return Ok(None);
        }
        if end > MAX_KEY_BYTES { Err(Unusual) } else { Ok(Some((key, style, column + end + 1))) }
    }

    /// Reads the text after a key or a dash, from this column of the current line.
    fn value(&mut self, column: usize) -> Result<EventData> {
        let start = column + indent(&self.line[column..]);
        self.want = Want::Line;
        let Some(first) = self.line.as_bytes().get(start).copied() else { return self.below() };
        match first {
            b'\'' | b'"' => self.quoted(start, first),
            b'|' => self.literal(start),
            _ => self.plain(start),
        }
    }

    /// The value of a key without a value on its line: the indented lines below, or null.
    fn below(&mut self) -> Result<EventData> {
        self.at_hand = false;
        let Some(Open::Map(parent)) = self.open.last().copied() else { return Err(Unusual) };
        match self.next_indent()? {
            Some(column) if self.is_dash(column) && column >= parent => {
                self.push(Open::List(column))?;
                Ok(list())
            }
            Some(column) if column > parent => self.begin_map(column),
            _ => Ok(scalar(String::new(), ScalarStyle::Plain)),
        }
    }

    fn parent(&self) -> usize {
        match self.open.last() {
            Some(Open::Map(column) | Open::List(column)) => *column,
            None => 0,
        }
    }

    fn plain(&mut self, start: usize) -> Result<EventData> {
        let mut text = self.line[start..].trim_end_matches(' ').to_owned();
        if !is_plain(&text) || !continues(&text) {
            return Err(Unusual);
        }
        self.at_hand = false;
        let parent = self.parent();
        let mut blank = 0;
        while self.peek()? {
            let column = indent(&self.line);
            if column == self.line.len() {
                blank += 1;
            } else if column > parent {
                let more = self.line[column..].trim_end_matches(' ');
                if !continues(more) || more.starts_with('#') {
                    return Err(Unusual);
                }
                fold(&mut text, &mut blank);
                text.push_str(more);
            } else {
                break;
            }
            self.at_hand = false;
        }
        Ok(scalar(text, ScalarStyle::Plain))
    }

    fn quoted(&mut self, start: usize, quote: u8) -> Result<EventData> {
        let mut text = String::new();
        let style = if quote == b'"' { ScalarStyle::DoubleQuoted } else { ScalarStyle::SingleQuoted };
        let (mut from, mut blank) = (start + 1, 0);
        loop {
            if let Some(length) = quoted(&self.line[from..], quote, &mut text)? {
                // A comment or a second value follows.
                if !self.line[from + length..].trim_end_matches(' ').is_empty() {
                    return Err(Unusual);
                }
                self.at_hand = false;
                return Ok(scalar(text, style));
            }
            // Tabs around a line break would be dropped with it.
            if self.line.contains('\t') {
                return Err(Unusual);
            }
            // A line break becomes a blank, unless a backslash precedes it.
            let escaped = quote == b'"' && text.ends_with(ESCAPED_BREAK);
            if escaped {
                text.pop();
            } else {
                let written = self.line[from..].trim_end_matches(' ').len();
                let blanks = self.line.len() - from - written;
                text.truncate(text.len() - blanks);
            }
            loop {
                self.at_hand = false;
                if !self.peek()? {
                    return Err(Unusual);
                }
                from = indent(&self.line);
                if self.line.contains('\t') {
                    return Err(Unusual);
                }
                if from < self.line.len() {
                    break;
                }
                blank += 1;
            }
            if escaped {
                text.extend(std::iter::repeat_n('\n', std::mem::take(&mut blank)));
            } else {
                fold(&mut text, &mut blank);
            }
        }
    }

    fn literal(&mut self, start: usize) -> Result<EventData> {
        let header = self.line[start + 1..].trim_end_matches(' ');
        let (mut chomp, mut given) = (None, None);
        for c in header.chars() {
            match c {
                '-' | '+' if chomp.is_none() => chomp = Some(c),
                '1'..='9' if given.is_none() => given = c.to_digit(10),
                _ => return Err(Unusual),
            }
        }
        self.at_hand = false;
        let parent = self.parent();
        // A list in its key's column has its entries there, and a scalar in it is indented one further.
        let mut column = match (given, self.open.last()) {
            (Some(given), Some(Open::Map(_))) => Some(parent + given as usize),
            (Some(_), _) => return Err(Unusual),
            (None, _) => None,
        };
        let (mut text, mut blank) = (String::new(), 0);
        while self.peek()? {
            let spaces = indent(&self.line);
            let inner = column.unwrap_or(spaces.max(parent + 1));
            if spaces == self.line.len() && (column.is_none() || spaces <= inner) {
                // Leading blank lines would determine the indentation.
                if column.is_none() && spaces > 0 {
                    return Err(Unusual);
                }
                blank += 1;
            } else if spaces >= inner && spaces > parent {
                if column.is_none() && self.line[spaces..].starts_with('\t') {
                    return Err(Unusual);
                }
                column = Some(inner);
                text.extend(std::iter::repeat_n('\n', std::mem::take(&mut blank)));
                text.push_str(&self.line[inner..]);
                text.push('\n');
            } else if spaces > parent {
                return Err(Unusual);
            } else {
                break;
            }
            self.at_hand = false;
        }
        match chomp {
            Some('-') => text.truncate(text.trim_end_matches('\n').len()),
            Some(_) => text.extend(std::iter::repeat_n('\n', blank)),
            None if text.is_empty() => {}
            None => {
                text.truncate(text.trim_end_matches('\n').len());
                text.push('\n');
            }
        }
        Ok(scalar(text, ScalarStyle::Literal))
    }
}

/// Placeholder for a line break that a backslash removes; it occurs in no line.
const ESCAPED_BREAK: char = '\u{1}';

/// Line breaks within a scalar: one becomes a blank; of several, the first is dropped.
fn fold(text: &mut String, blank: &mut usize) {
    match std::mem::take(blank) {
        0 => text.push(' '),
        count => text.extend(std::iter::repeat_n('\n', count)),
    }
}

/// Whether a plain scalar or key may start like this.
fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    match chars.next() {
        None => false,
        Some('-' | '?' | ':') => chars.next().is_some_and(|c| c != ' '),
        Some(c) => !"&*!{}[],#|>@`\"'%=".contains(c),
    }
}

/// Whether a line may be part of a plain scalar.
fn continues(text: &str) -> bool {
    !text.ends_with(':') && !text.contains(": ") && !text.contains(" #") && !text.contains('\t')
}

/// Appends the text up to the closing quote; returns the length including it, or `None` if the line ends first.
fn quoted(rest: &str, quote: u8, text: &mut String) -> Result<Option<usize>> {
    let bytes = rest.as_bytes();
    let (mut at, mut from) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\'' if quote == b'\'' => {
                text.push_str(&rest[from..at]);
                if bytes.get(at + 1) != Some(&b'\'') {
                    return Ok(Some(at + 1));
                }
                text.push('\'');
                at += 2;
                from = at;
            }
            b'"' if quote == b'"' => {
                text.push_str(&rest[from..at]);
                return Ok(Some(at + 1));
            }
            b'\\' if quote == b'"' => {
                text.push_str(&rest[from..at]);
                at += 1 + escape(&rest[at + 1..], text)?;
                from = at;
            }
            _ => at += 1,
        }
    }
    text.push_str(&rest[from..]);
    Ok(None)
}

/// Appends the character of an escape, given the text after its backslash; returns the length of the escape.
fn escape(rest: &str, text: &mut String) -> Result<usize> {
    let Some(first) = rest.chars().next() else {
        text.push(ESCAPED_BREAK);
        return Ok(0);
    };
    let digits = match first {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => 0,
    };
    if digits > 0 {
        let number =
            rest.get(1..=digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = number.and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
        text.push(code.filter(|c| *c != ESCAPED_BREAK).ok_or(Unusual)?);
        return Ok(1 + digits);
    }
    text.push(match first {
        '0' => '\0',
        'a' => '\u{7}',
        'b' => '\u{8}',
        't' => '\t',
        'n' => '\n',
        'v' => '\u{b}',
        'f' => '\u{c}',
        'r' => '\r',
        'e' => '\u{1b}',
        ' ' | '"' | '\\' | '/' => first,
        _ => return Err(Unusual),
    });
    Ok(1)
}

/// Removes the line feed; returns the length before, 0 at the end of the input.
trait LineFeed {
    fn pop_if_line_feed(&mut self) -> usize;
}

impl LineFeed for Vec<u8> {
    fn pop_if_line_feed(&mut self) -> usize {
        let length = self.len();
        if self.last() == Some(&b'\n') {
            self.pop();
        }
        length
    }
}
