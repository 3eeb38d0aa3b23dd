//! XML as a stream of tags and pieces of text, as strict as the reader of the original and not more.
//!
//! Ours and not a crate's, because text must come in pieces (one test may print hundreds of megabytes), line feeds
//! in attributes must survive, and nothing may be expanded but the five named entities and character references:
//! a document type is skipped, never obeyed.

use std::io::{self, BufRead};

/// How large one attribute may be; failure messages of several megabytes exist.
const ATTRIBUTE_LIMIT: usize = 12 << 20;
/// How long a name may be and how many attributes a tag may have.
const NAME_LIMIT: usize = 4 << 10;
/// How deep elements may be nested.
const DEPTH: usize = 1000;
/// Text is handed on in pieces of about this size.
const PIECE: usize = 16 << 10;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum Token {
    /// An element begins; its name without prefix is in [`Lexer::name`], its attributes in [`Lexer::attribute`].
    Open,
    /// A piece of text, in [`Lexer::text`].
    Text,
    /// The element that was opened last ends.
    Close,
    /// The file ends.
    End,
}

/// What is wrong, and on which line.
#[derive(Debug)]
pub struct Error {
    line: u64,
    reason: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "XML syntax error on line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for Error {}

/// Reads XML piece by piece.
pub struct Lexer<R> {
    input: R,
    line: u64,
    open: Vec<String>,
    attributes: Vec<(String, String)>,
    text: String,
    /// Bytes of text that were not checked to be UTF-8 yet.
    raw: Vec<u8>,
    /// `<a/>` gives two tokens.
    close_pending: bool,
    in_cdata: bool,
}

impl<R: BufRead> Lexer<R> {
    /// Starts at the beginning of a file.
    pub fn new(input: R) -> Self {
        Self {
            input,
            line: 1,
            open: Vec::new(),
            attributes: Vec::new(),
            text: String::new(),
            raw: Vec::new(),
            close_pending: false,
            in_cdata: false,
        }
    }

    /// The name of the element that was just opened, without its prefix.
    pub fn name(&self) -> &str {
        self.open.last().map_or("", |name| local(name))
    }

    /// An attribute of the element that was just opened; of several with one name the last.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().rev().find(|(key, _)| local(key) == name).map(|(_, value)| value.as_str())
    }

    /// The piece of text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The next token.
    pub fn next(&mut self) -> Result<Token, Error> {
        if std::mem::take(&mut self.close_pending) {
            self.open.pop();
            return Ok(Token::Close);
        }
        if self.in_cdata {
            self.cdata()?;
            return Ok(Token::Text);
        }
        loop {
            match self.peek()? {
                None if self.open.is_empty() => return Ok(Token::End),
                None => return Err(self.error("unexpected end of file")),
                Some(b'<') => {
                    self.skip(1);
                    if let Some(token) = self.markup()? {
                        return Ok(token);
                    }
                }
                Some(_) => {
                    self.text_piece()?;
                    return Ok(Token::Text);
                }
            }
        }
    }

    /// Reads on to the end of the element that was just opened.
    pub fn skip_element(&mut self) -> Result<(), Error> {
        let mut depth = 1_u32;
        while depth > 0 {
            match self.next()? {
                Token::Open => depth += 1,
                Token::Close => depth -= 1,
                Token::Text => {}
                Token::End => return Err(self.error("unexpected end of file")),
            }
        }
        Ok(())
    }

    /// An error at the current line.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error { line: self.line, reason: reason.into() }
    }

    /// What follows `<`; `None` for what is no token.
    fn markup(&mut self) -> Result<Option<Token>, Error> {
        match self.peek()? {
            Some(b'/') => {
                self.skip(1);
                self.close_tag().map(Some)
            }
            Some(b'?') => self.instruction().map(|()| None),
            Some(b'!') => {
                self.skip(1);
                self.declaration()
            }
            _ => self.open_tag().map(Some),
        }
    }

    fn open_tag(&mut self) -> Result<Token, Error> {
        let name = self.read_name()?;
        if self.open.len() >= DEPTH {
            return Err(self.error(format!("elements are nested deeper than {DEPTH}")));
        }
        self.open.push(name);
        self.attributes.clear();
        loop {
            self.blanks()?;
            match self.peek()? {
                Some(b'>') => {
                    self.skip(1);
                    return Ok(Token::Open);
                }
                Some(b'/') => {
                    self.skip(1);
                    self.expect(b'>')?;
                    self.close_pending = true;
                    return Ok(Token::Open);
                }
                _ => {
                    let name = self.read_name()?;
                    self.blanks()?;
                    self.expect(b'=')?;
                    self.blanks()?;
                    let value = self.quoted()?;
                    if self.attributes.len() >= NAME_LIMIT {
                        return Err(self.error("a tag has too many attributes"));
                    }
                    self.attributes.push((name, value));
                }
            }
        }
    }

    fn close_tag(&mut self) -> Result<Token, Error> {
        let name = self.read_name()?;
        self.blanks()?;
        self.expect(b'>')?;
        match self.open.pop() {
            Some(open) if open == name => Ok(Token::Close),
            Some(open) => Err(self.error(format!("element <{open}> closed by </{name}>"))),
            None => Err(self.error(format!("unexpected end element </{name}>"))),
        }
    }

    /// `<?…?>`: of interest only for its encoding.
    fn instruction(&mut self) -> Result<(), Error> {
        self.raw.clear();
        loop {
            let byte = self.bump()?;
            if self.raw.len() < NAME_LIMIT {
                self.raw.push(byte);
            }
            if byte == b'?' && self.raw.len() > 1 && self.peek()? == Some(b'>') {
                self.skip(1);
                break;
            }
        }
        let text = String::from_utf8_lossy(&self.raw).into_owned();
        self.raw.clear();
        let Some(declaration) =
            text.strip_prefix("?xml").filter(|rest| rest.starts_with([' ', '\t', '\r', '\n']))
        else {
            return Ok(());
        };
        if let Some(version) = parameter(declaration, "version").filter(|version| *version != "1.0") {
            return Err(
                self.error(format!("unsupported version \"{version}\"; only version 1.0 is supported"))
            );
        }
        match parameter(declaration, "encoding") {
            Some(other) if !other.eq_ignore_ascii_case("utf-8") => {
                Err(self.error(format!("the encoding is {other}; only UTF-8 is supported")))
            }
            _ => Ok(()),
        }
    }

    /// What follows `<!`: a comment, a CDATA section, or a declaration, which is skipped with all it contains.
    fn declaration(&mut self) -> Result<Option<Token>, Error> {
        match self.peek()? {
            Some(b'-') => {
                self.skip(1);
                self.expect(b'-')?;
                self.comment().map(|()| None)
            }
            Some(b'[') => {
                for byte in *b"[CDATA[" {
                    self.expect(byte)?;
                }
                self.cdata().map(|()| Some(Token::Text))
            }
            _ => {
                let (mut depth, mut quote) = (1_u64, None);
                while depth > 0 {
                    match (self.bump()?, quote) {
                        (byte, Some(open)) if byte == open => quote = None,
                        (_, Some(_)) => {}
                        (byte @ (b'"' | b'\''), None) => quote = Some(byte),
                        (b'<', None) => depth += 1,
                        (b'>', None) => depth -= 1,
                        _ => {}
                    }
                }
                Ok(None)
            }
        }
    }

    fn comment(&mut self) -> Result<(), Error> {
        let mut dashes = 0;
        loop {
            match (self.bump()?, dashes) {
                (b'>', 2) => return Ok(()),
                (_, 2) => return Err(self.error("invalid sequence \"--\" not allowed in comments")),
                (b'-', _) => dashes += 1,
                _ => dashes = 0,
            }
        }
    }

    /// A CDATA section, or a piece of it.
    fn cdata(&mut self) -> Result<(), Error> {
        self.raw.clear();
        self.in_cdata = true;
        while self.raw.len() < PIECE || matches!(self.raw.last(), Some(b']' | b'>')) {
            let byte = self.bump()?;
            self.push(byte)?;
            if byte == b'>' && self.raw.ends_with(b"]]>") {
                self.raw.truncate(self.raw.len() - 3);
                self.in_cdata = false;
                break;
            }
            if byte != b']' {
                self.plain()?;
            }
        }
        self.end_piece()
    }

    /// Text up to the next tag, or a piece of it.
    fn text_piece(&mut self) -> Result<(), Error> {
        self.raw.clear();
        let mut brackets = 0;
        while self.raw.len() < PIECE {
            match self.peek()? {
                None | Some(b'<') => break,
                Some(b'&') => {
                    self.skip(1);
                    self.reference()?;
                    brackets = 0;
                }
                Some(b'>') if brackets >= 2 => return Err(self.error("unescaped ]]> not in CDATA section")),
                Some(byte) => {
                    brackets = if byte == b']' { brackets + 1 } else { 0 };
                    self.line += u64::from(byte == b'\n');
                    self.skip(1);
                    self.push(byte)?;
                    if brackets == 0 {
                        self.plain()?;
                    }
                }
            }
        }
        self.end_piece()
    }

    /// Ends a piece, though not inside a character.
    fn end_piece(&mut self) -> Result<(), Error> {
        while std::str::from_utf8(&self.raw).is_err_and(|error| error.error_len().is_none()) {
            let byte = self.bump()?;
            self.raw.push(byte);
        }
        self.check_text()
    }

    /// Takes over what the buffer holds of bytes that mean nothing, all at once.
    fn plain(&mut self) -> Result<(), Error> {
        let (line, room) = (self.line, PIECE.saturating_sub(self.raw.len()));
        let buffer = self.input.fill_buf().map_err(|error| failed(line, &error))?;
        let special = |byte: &u8| matches!(byte, b'<' | b'&' | b'\r' | b'\n' | b']');
        let end = buffer.iter().take(room).position(special).unwrap_or(buffer.len().min(room));
        self.raw.extend_from_slice(&buffer[..end]);
        self.input.consume(end);
        Ok(())
    }

    fn quoted(&mut self) -> Result<String, Error> {
        let quote = self.bump()?;
        if !matches!(quote, b'"' | b'\'') {
            return Err(self.error("unquoted or missing attribute value in element"));
        }
        self.raw.clear();
        loop {
            match self.bump()? {
                byte if byte == quote => break,
                b'<' => return Err(self.error("unescaped < inside quoted string")),
                b'&' => self.reference()?,
                byte => self.push(byte)?,
            }
            if self.raw.len() > ATTRIBUTE_LIMIT {
                return Err(self.error(format!("an attribute has more than {ATTRIBUTE_LIMIT} bytes")));
            }
        }
        self.check_text()?;
        Ok(std::mem::take(&mut self.text))
    }

    /// Adds a byte to the raw text, with every line end as a line feed.
    fn push(&mut self, byte: u8) -> Result<(), Error> {
        if byte == b'\r' {
            self.raw.push(b'\n');
            if self.peek()? == Some(b'\n') {
                self.skip(1);
            }
        } else {
            self.raw.push(byte);
        }
        Ok(())
    }

    /// What follows `&`.
    fn reference(&mut self) -> Result<(), Error> {
        let mut name = String::new();
        loop {
            match self.peek()? {
                Some(b';') => break self.skip(1),
                Some(byte) if name.len() < 12 && (byte.is_ascii_alphanumeric() || byte == b'#') => {
                    self.skip(1);
                    name.push(byte.into());
                }
                _ => return Err(self.error(format!("invalid character entity &{name} (no semicolon)"))),
            }
        }
        let character = match name.as_str() {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "apos" => '\'',
            "quot" => '"',
            other => {
                let code = match other.strip_prefix("#x") {
                    Some(digits) => u32::from_str_radix(digits, 16).ok(),
                    None => other.strip_prefix('#').and_then(|digits| digits.parse().ok()),
                };
                let code = code.filter(|code| *code <= 0x10_ffff);
                let code = code.ok_or_else(|| self.error(format!("invalid character entity &{name};")))?;
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
        };
        self.raw.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// Moves the raw text over into `text`, if it is text that XML may hold.
    fn check_text(&mut self) -> Result<(), Error> {
        let raw = std::mem::take(&mut self.raw);
        let text = String::from_utf8(raw).map_err(|_| self.error("invalid UTF-8"))?;
        let odd = |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
        if let Some(odd) = text.chars().find(|c| odd(*c)) {
            return Err(self.error(format!("illegal character code U+{:04X}", u32::from(odd))));
        }
        // The buffers take turns, so that text does not cost an allocation a piece.
        self.raw = std::mem::replace(&mut self.text, text).into_bytes();
        self.raw.clear();
        if self.raw.capacity() > 4 * PIECE {
            self.raw = Vec::new();
        }
        Ok(())
    }

    fn read_name(&mut self) -> Result<String, Error> {
        let mut name = Vec::new();
        while let Some(byte) =
            self.peek()?.filter(|b| b.is_ascii_alphanumeric() || b"_:.-".contains(b) || *b >= 0x80)
        {
            self.skip(1);
            name.push(byte);
            if name.len() > NAME_LIMIT {
                return Err(self.error("a name is too long"));
            }
        }
        match String::from_utf8(name) {
            Ok(name) if name.starts_with(|c: char| !c.is_ascii_digit() && c != '.' && c != '-') => Ok(name),
            Ok(_) => Err(self.error("expected a name after < or in a tag")),
            Err(_) => Err(self.error("invalid UTF-8")),
        }
    }

    fn blanks(&mut self) -> Result<(), Error> {
        while let Some(byte) = self.peek()?.filter(|byte| b" \t\r\n".contains(byte)) {
            self.skip(1);
            self.line += u64::from(byte == b'\n');
        }
        Ok(())
    }

    fn expect(&mut self, expected: u8) -> Result<(), Error> {
        if self.bump()? == expected {
            return Ok(());
        }
        Err(self.error(format!("expected `{}`", char::from(expected))))
    }

    fn bump(&mut self) -> Result<u8, Error> {
        let byte = self.peek()?.ok_or_else(|| self.error("unexpected end of file"))?;
        self.skip(1);
        self.line += u64::from(byte == b'\n');
        Ok(byte)
    }

    fn peek(&mut self) -> Result<Option<u8>, Error> {
        loop {
            match self.input.fill_buf() {
                Ok(buffer) => return Ok(buffer.first().copied()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(self.line, &error)),
            }
        }
    }

    fn skip(&mut self, count: usize) {
        self.input.consume(count);
    }
}

fn failed(line: u64, error: &io::Error) -> Error {
    Error { line, reason: error.to_string() }
}

fn local(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, local)| local)
}

/// `name="value"` in an XML declaration.
fn parameter<'t>(declaration: &'t str, name: &str) -> Option<&'t str> {
    let rest = &declaration[declaration.find(name)? + name.len()..];
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    rest[1..].split(quote).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens as text: `<name key=value>`, `>` for an end, pieces of text joined in quotes; or the error.
    fn read(input: &str) -> String {
        // A buffer of three bytes: every token is cut somewhere.
        let mut lexer = Lexer::new(io::BufReader::with_capacity(3, input.as_bytes()));
        let (mut out, mut text) = (String::new(), None::<String>);
        loop {
            let token = match lexer.next() {
                Ok(token) => token,
                Err(error) => return error.to_string(),
            };
            if token != Token::Text {
                out.extend(text.take().map(|text| format!("{text:?}")));
            }
            match token {
                Token::Open => {
                    out.push('<');
                    out.push_str(lexer.name());
                    for (key, value) in &lexer.attributes {
                        out.push_str(&format!(" {key}={value:?}"));
                    }
                    out.push('>');
                }
                Token::Text => text.get_or_insert_default().push_str(lexer.text()),
                Token::Close => out.push('/'),
                Token::End => return out,
            }
        }
    }

    #[test]
    fn tokens_come_as_they_stand() {
        for (input, expected) in [
            ("<a/>", "<a>/"),
            ("<a b = 'x' c=\"y\"  ></a >", "<a b=\"x\" c=\"y\">/"),
            ("<?xml version=\"1.0\" encoding='utf-8'?><a>t<b>u</b>v</a>", "<a>\"t\"<b>\"u\"/\"v\"/"),
            ("<a b=\"one\ntwo\r\nthree&#10;\t\"/>", "<a b=\"one\\ntwo\\nthree\\n\\t\">/"),
            ("<a>&lt;&gt;&amp;&apos;&quot;&#x41;&#66; ä</a>", "<a>\"<>&'\\\"AB ä\"/"),
            ("<a><![CDATA[<x>&lt;]]]]><![CDATA[>]]></a>", "<a>\"<x>&lt;]]>\"/"),
            ("<a><!-- <b> - --></a>", "<a>/"),
            ("<!DOCTYPE a [<!ENTITY x \"]>\"><!ENTITY y '<'>]><a/>", "<a>/"),
            ("<s:a xmlns:s='u'/>", "<a xmlns:s=\"u\">/"),
            ("\u{feff}<a/>\n", "\"\\u{feff}\"<a>/\"\\n\""),
            ("", ""),
        ] {
            assert_eq!(read(input), expected, "{input}");
        }
    }

    #[test]
    fn what_is_no_xml_is_refused_with_its_line() {
        for (input, reason) in [
            ("<a>", "line 1: unexpected end"),
            ("<a\n>\n\n<b></a>", "line 4: element <b> closed by </a>"),
            ("</a>", "unexpected end element"),
            ("<a>&lol;</a>", "invalid character entity &lol;"),
            ("<a>&#x110000;</a>", "invalid character entity"),
            ("<a>a & b</a>", "invalid character entity"),
            ("<a>]]></a>", "unescaped ]]>"),
            ("<a b=c/>", "unquoted"),
            ("<a b='<'/>", "unescaped <"),
            ("<a b/>", "expected `=`"),
            ("<a>\u{1}</a>", "illegal character code U+0001"),
            ("<?xml version='1.0' encoding='ISO-8859-1'?><a/>", "the encoding is ISO-8859-1"),
            ("<?xml version='1.1'?><a/>", "unsupported version"),
            ("<a><!-- -- --></a>", "comments"),
            ("< a/>", "expected a name"),
        ] {
            assert!(read(input).contains(reason), "{input}: {}", read(input));
        }
        assert!(read(&"<a>".repeat(2000)).contains("nested deeper"));
        let mut lexer = Lexer::new(&b"<a>\xff</a>"[..]);
        lexer.next().unwrap();
        assert!(lexer.next().unwrap_err().to_string().contains("invalid UTF-8"));
    }

    #[test]
    fn long_text_comes_in_pieces() {
        let long = "ä".repeat(100_000);
        for text in [format!("<a>{long}</a>"), format!("<a><![CDATA[{long}]]></a>")] {
            let mut lexer = Lexer::new(text.as_bytes());
            assert_eq!(lexer.next().unwrap(), Token::Open);
            let mut all = String::new();
            while lexer.next().unwrap() == Token::Text {
                assert!(lexer.text().len() < 2 * PIECE);
                all.push_str(lexer.text());
            }
            assert_eq!(all, long);
        }
    }
}
