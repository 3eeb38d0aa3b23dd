//! XML as a stream of tags and pieces of text, exactly as strict as the original's parser; escaping of text.
//!
//! Written by hand because text must come in pieces (one test may print hundreds of megabytes), line feeds in attributes
//! must survive, and only the five named entities and character references may be expanded: instructions, comments and
//! document types are skipped, never obeyed.

use std::io::{self, BufRead};

/// Maximum total bytes of a tag's attributes; failure messages of several megabytes exist.
const MAX_ATTRIBUTE_BYTES: usize = 12 << 20;
/// Maximum bytes of a name, and maximum attributes of a tag.
const MAX_NAME: usize = 4 << 10;
/// Maximum nesting of elements.
const MAX_DEPTH: usize = 1000;
/// Approximate size of a piece of text.
const PIECE_BYTES: usize = 16 << 10;

/// A token.
#[derive(Debug, PartialEq, Eq)]
pub enum Token {
    /// The start of an element; [`Lexer::name`] has its name without prefix, [`Lexer::attribute`] its attributes.
    Open,
    /// A piece of text, in [`Lexer::text`].
    Text,
    /// The end of the innermost open element.
    Close,
    /// The end of the file.
    End,
}

/// An error in the original's words, which become part of results.
#[derive(Debug)]
pub struct Error {
    /// Line number; 0 if the original reports none.
    line: u64,
    reason: String,
}

impl Error {
    /// An error about the file as a whole.
    fn of_file(reason: String) -> Self {
        Self { line: 0, reason }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.reason),
            line => write!(f, "XML syntax error on line {line}: {}", self.reason),
        }
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
    /// Bytes of text not yet checked to be UTF-8.
    raw: Vec<u8>,
    /// `<a/>` yields two tokens.
    close_pending: bool,
    in_cdata: bool,
}

impl<R: BufRead> Lexer<R> {
    /// A lexer at the beginning of a file.
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

    /// An attribute of the element that was just opened; the last one if several have that name.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().rev().find(|(key, _)| local(key) == name).map(|(_, value)| value.as_str())
    }

    /// The current piece of text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The next token.
    pub fn next_token(&mut self) -> Result<Token, Error> {
        if std::mem::take(&mut self.close_pending) {
            self.open.pop();
            return Ok(Token::Close);
        }
        if self.in_cdata {
            self.piece()?;
            return Ok(Token::Text);
        }
        loop {
            match self.peek()? {
                None if self.open.is_empty() => return Ok(Token::End),
                None => return Err(self.error("unexpected EOF")),
                Some(b'<') => {
                    self.skip(1);
                    if let Some(token) = self.markup()? {
                        return Ok(token);
                    }
                }
                Some(_) => {
                    self.piece()?;
                    return Ok(Token::Text);
                }
            }
        }
    }

    /// Opens the next element in the current one; false at the end of that.
    pub fn next_child(&mut self) -> Result<bool, Error> {
        loop {
            match self.next_token()? {
                Token::Open => return Ok(true),
                Token::Close | Token::End => return Ok(false),
                Token::Text => {}
            }
        }
    }

    /// Skips to the end of the element that was just opened.
    pub fn skip_element(&mut self) -> Result<(), Error> {
        let depth = self.open.len();
        while self.open.len() >= depth {
            // The end of the file inside an element is an error.
            self.next_token()?;
        }
        Ok(())
    }

    /// An error at the current line.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error { line: self.line, reason: reason.into() }
    }

    /// Reads the markup after `<`; `None` if it is not a token.
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
        let name = self.read_name("expected element name after <")?;
        if self.open.len() >= MAX_DEPTH {
            return Err(self.error(format!("elements are nested deeper than {MAX_DEPTH}")));
        }
        self.open.push(name);
        self.attributes.clear();
        let mut room = MAX_ATTRIBUTE_BYTES;
        loop {
            self.blanks()?;
            match self.peek()? {
                Some(b'>') => {
                    self.skip(1);
                    return Ok(Token::Open);
                }
                Some(b'/') => {
                    self.skip(1);
                    self.expect(b'>', "expected /> in element")?;
                    self.close_pending = true;
                    return Ok(Token::Open);
                }
                _ => {
                    let name = self.read_name("expected attribute name in element")?;
                    self.blanks()?;
                    self.expect(b'=', "attribute name without = in element")?;
                    self.blanks()?;
                    let value = self.quoted(room)?;
                    room -= value.len();
                    if self.attributes.len() >= MAX_NAME {
                        return Err(self.error("a tag has too many attributes"));
                    }
                    self.attributes.push((name, value));
                }
            }
        }
    }

    fn close_tag(&mut self) -> Result<Token, Error> {
        let name = self.read_name("expected element name after </")?;
        self.blanks()?;
        if self.bump()? != b'>' {
            return Err(self.error(format!("invalid characters between </{} and >", local(&name))));
        }
        match self.open.pop() {
            Some(open) if open == name => Ok(Token::Close),
            Some(open) => Err(self.error(format!("element <{open}> closed by </{name}>"))),
            None => Err(self.error(format!("unexpected end element </{name}>"))),
        }
    }

    /// Text up to the next tag, a CDATA section up to its end, or a piece of either.
    fn piece(&mut self) -> Result<(), Error> {
        self.raw.clear();
        let (in_cdata, mut brackets) = (self.in_cdata, 0);
        while self.raw.len() < PIECE_BYTES || in_cdata && matches!(self.raw.last(), Some(b']' | b'>')) {
            match self.peek()? {
                None if in_cdata => return Err(self.error("unexpected EOF in CDATA section")),
                None => break,
                Some(b'<') if !in_cdata => break,
                Some(b'&') if !in_cdata => {
                    self.skip(1);
                    self.reference()?;
                    brackets = 0;
                    continue;
                }
                Some(b'>') if !in_cdata && brackets >= 2 => {
                    return Err(self.error("unescaped ]]> not in CDATA section"));
                }
                Some(_) => {}
            }
            let byte = self.bump()?;
            self.push(byte)?;
            brackets = if byte == b']' { brackets + 1 } else { 0 };
            if in_cdata && self.raw.ends_with(b"]]>") {
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

    /// Ends a piece, but not inside a character.
    fn end_piece(&mut self) -> Result<(), Error> {
        while std::str::from_utf8(&self.raw).is_err_and(|error| error.error_len().is_none()) {
            let Some(byte) = self.peek()? else { break };
            self.skip(1);
            self.raw.push(byte);
        }
        self.check_text()
    }

    /// Copies all buffered bytes without a special meaning at once.
    fn plain(&mut self) -> Result<(), Error> {
        let (line, room) = (self.line, PIECE_BYTES.saturating_sub(self.raw.len()));
        let buffer = self.input.fill_buf().map_err(|error| failed(line, &error))?;
        let special = |byte: &u8| matches!(byte, b'<' | b'&' | b'\r' | b'\n' | b']');
        let end = buffer.iter().take(room).position(special).unwrap_or(buffer.len().min(room));
        self.raw.extend_from_slice(&buffer[..end]);
        self.input.consume(end);
        Ok(())
    }

    fn quoted(&mut self, room: usize) -> Result<String, Error> {
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
            if self.raw.len() > room {
                return Err(
                    self.error(format!("the attributes of a tag have more than {MAX_ATTRIBUTE_BYTES} bytes"))
                );
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
                self.line += 1;
            }
        } else {
            self.raw.push(byte);
        }
        Ok(())
    }

    /// Reads a reference after `&`.
    fn reference(&mut self) -> Result<(), Error> {
        let mut name = Vec::new();
        let number = self.peek()? == Some(b'#');
        if number {
            name.push(self.bump()?);
            if self.peek()? == Some(b'x') {
                name.push(self.bump()?);
            }
        }
        let hexadecimal = name.ends_with(b"x");
        let part = |byte: u8| match (number, hexadecimal) {
            (false, _) => in_name(byte),
            (true, false) => byte.is_ascii_digit(),
            (true, true) => byte.is_ascii_hexdigit(),
        };
        while let Some(byte) = self.peek()?.filter(|byte| part(*byte) && name.len() < MAX_NAME) {
            self.skip(1);
            name.push(byte);
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        match self.peek()? {
            Some(b';') => self.skip(1),
            None => return Err(self.error("unexpected EOF")),
            Some(_) => return Err(self.error(format!("invalid character entity &{name} (no semicolon)"))),
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

    /// Moves the raw text to `text`, if XML allows it.
    fn check_text(&mut self) -> Result<(), Error> {
        let raw = std::mem::take(&mut self.raw);
        let text = String::from_utf8(raw).map_err(|_| self.error("invalid UTF-8"))?;
        let odd = |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
        if let Some(odd) = text.chars().find(|c| odd(*c)) {
            return Err(self.error(format!("illegal character code U+{:04X}", u32::from(odd))));
        }
        // The buffers take turns, so that a piece of text does not cost an allocation.
        self.raw = std::mem::replace(&mut self.text, text).into_bytes();
        self.raw.clear();
        if self.raw.capacity() > 4 * PIECE_BYTES {
            self.raw = Vec::new();
        }
        Ok(())
    }

    /// Reads a name; the error `missing` if the next character does not start one.
    fn read_name(&mut self, missing: &str) -> Result<String, Error> {
        let mut name = Vec::new();
        while let Some(byte) = self.peek()?.filter(|byte| in_name(*byte)) {
            self.skip(1);
            name.push(byte);
            if name.len() > MAX_NAME {
                return Err(self.error("a name is too long"));
            }
        }
        if self.peek()?.is_none() {
            return Err(self.error("unexpected EOF"));
        }
        if name.is_empty() || name.iter().filter(|byte| **byte == b':').count() > 1 {
            return Err(self.error(missing));
        }
        let text = String::from_utf8_lossy(&name);
        if text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') || text.as_bytes() != name {
            return Err(self.error(format!("invalid XML name: {text}")));
        }
        Ok(text.into_owned())
    }

    fn blanks(&mut self) -> Result<(), Error> {
        while let Some(byte) = self.peek()?.filter(|byte| b" \t\r\n".contains(byte)) {
            self.skip(1);
            self.line += u64::from(byte == b'\n');
        }
        Ok(())
    }

    fn expect(&mut self, expected: u8, otherwise: &str) -> Result<(), Error> {
        if self.bump()? == expected {
            return Ok(());
        }
        Err(self.error(otherwise))
    }

    fn bump(&mut self) -> Result<u8, Error> {
        let byte = self.peek()?.ok_or_else(|| self.error("unexpected EOF"))?;
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

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_:.-".contains(&byte) || byte >= 0x80
}

fn local(name: &str) -> &str {
    match name.split_once(':') {
        Some((prefix, local)) if !prefix.is_empty() && !local.is_empty() => local,
        _ => name,
    }
}

impl<R: BufRead> Lexer<R> {
    /// `<?…?>`: only its encoding matters.
    fn instruction(&mut self) -> Result<(), Error> {
        self.skip(1);
        let target = self.read_name("expected target name after <?")?;
        self.blanks()?;
        let data = self.until(b"?>")?;
        if target != "xml" {
            return Ok(());
        }
        let declaration = String::from_utf8_lossy(&data);
        let refused = |reason| Err(Error::of_file(reason));
        match (parameter(&declaration, "version"), parameter(&declaration, "encoding")) {
            (Some(version), _) if version != "1.0" => {
                refused(format!("xml: unsupported version {version:?}; only version 1.0 is supported"))
            }
            (_, Some(encoding)) if !encoding.eq_ignore_ascii_case("utf-8") => {
                refused(format!("xml: encoding {encoding:?} declared but Decoder.CharsetReader is nil"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the markup after `<!`: a comment, a CDATA section, or a declaration, which is skipped with everything in it.
    fn declaration(&mut self) -> Result<Option<Token>, Error> {
        match self.bump()? {
            b'-' => {
                self.expect(b'-', "invalid sequence <!- not part of <!--")?;
                self.comment().map(|()| None)
            }
            b'[' => {
                for byte in *b"CDATA[" {
                    self.expect(byte, "invalid <![ sequence")?;
                }
                self.in_cdata = true;
                self.piece().map(|()| Some(Token::Text))
            }
            _ => self.skip_declaration().map(|()| None),
        }
    }

    /// The rest of a declaration. Quotes and comments in it may contain anything.
    fn skip_declaration(&mut self) -> Result<(), Error> {
        let (mut depth, mut quote) = (1_u64, None);
        let mut next = None;
        while depth > 0 {
            let byte = match next.take() {
                Some(byte) => byte,
                None => self.bump()?,
            };
            match (byte, quote) {
                (byte, Some(open)) if byte == open => quote = None,
                (_, Some(_)) => {}
                (b'"' | b'\'', None) => quote = Some(byte),
                (b'>', None) => depth -= 1,
                (b'<', None) => {
                    next = self.nested()?;
                    depth += u64::from(next.is_some());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the markup after `<` in a declaration: skips a comment; for anything else returns the first byte that differs.
    fn nested(&mut self) -> Result<Option<u8>, Error> {
        for expected in *b"!--" {
            let byte = self.bump()?;
            if byte != expected {
                return Ok(Some(byte));
            }
        }
        self.until(b"-->").map(|_| None)
    }

    fn comment(&mut self) -> Result<(), Error> {
        self.until(b"--")?;
        self.expect(b'>', "invalid sequence \"--\" not allowed in comments")
    }

    /// Skips past `end`; returns the first bytes before it.
    fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, Error> {
        let mut data = Vec::new();
        while !data.ends_with(end) {
            if data.len() == MAX_NAME + end.len() {
                data.remove(MAX_NAME);
            }
            data.push(self.bump()?);
        }
        data.truncate(data.len() - end.len());
        Ok(data)
    }
}

/// `name="value"` in an XML declaration, without blanks around the equals sign.
fn parameter<'t>(declaration: &'t str, name: &str) -> Option<&'t str> {
    let sign = format!("{name}=");
    let mut rest = declaration;
    loop {
        rest = &rest[rest.find(&sign)? + sign.len()..];
        if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            return rest[1..].split_once(quote).map(|(value, _)| value).filter(|value| !value.is_empty());
        }
    }
}

/// Escapes a text so that XML parsers return it, as far as XML can express it.
pub fn escape(text: &str, in_attribute: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' if in_attribute => out.push_str("&quot;"),
            '\n' | '\t' if in_attribute => out.push_str(&format!("&#{};", u32::from(c))),
            '\r' => out.push_str("&#13;"),
            '\n' | '\t' => out.push(c),
            // XML cannot express these characters in any form.
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens as text: `<name key=value>`, `/` for an end, pieces of text joined in quotes; or the error.
    fn read(input: &str) -> String {
        // A buffer of three bytes splits every token somewhere.
        let mut lexer = Lexer::new(io::BufReader::with_capacity(3, input.as_bytes()));
        let (mut out, mut text) = (String::new(), None::<String>);
        loop {
            let token = match lexer.next_token() {
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
    fn tokens_are_returned_in_order() {
        for (input, expected) in [
            ("<a/>", "<a>/"),
            ("<a b = 'x' c=\"y\"  ></a >", "<a b=\"x\" c=\"y\">/"),
            ("<?xml version=\"1.0\" encoding='utf-8'?><a>t<b>u</b>v</a>", "<a>\"t\"<b>\"u\"/\"v\"/"),
            ("<a b=\"one\ntwo\r\nthree&#10;\t\"/>", "<a b=\"one\\ntwo\\nthree\\n\\t\">/"),
            ("<a>&lt;&gt;&amp;&apos;&quot;&#x41;&#66; ä</a>", "<a>\"<>&'\\\"AB ä\"/"),
            ("<a><![CDATA[<x>&lt;]]]]><![CDATA[>]]></a>", "<a>\"<x>&lt;]]>\"/"),
            ("<a><!-- <b> - --></a>", "<a>/"),
            ("<!DOCTYPE a [<!ENTITY x \"]>\"><!ENTITY y '<'>]><a/>", "<a>/"),
            ("<!DOCTYPE a [ <!-- don't > --> <!ELEMENT b <c>> ]><a/>", "<a>/"),
            ("<?xml version='1.0' encoding = 'latin1'?><a/>", "<a>/"),
            ("<:a b:='1'/>", "<:a b:=\"1\">/"),
            ("<s:a xmlns:s='u'/>", "<a xmlns:s=\"u\">/"),
            ("\u{feff}<a/>\n", "\"\\u{feff}\"<a>/\"\\n\""),
            ("", ""),
        ] {
            assert_eq!(read(input), expected, "{input}");
        }
    }

    #[test]
    fn malformed_xml_is_reported_with_its_line() {
        for (input, reason) in [
            ("<a>", "line 1: unexpected EOF"),
            ("<a\n>\n\n<b></a>", "line 4: element <b> closed by </a>"),
            ("</a>", "unexpected end element"),
            ("<a>&lol;</a>", "invalid character entity &lol;"),
            ("<a>&#x110000;</a>", "invalid character entity"),
            ("<a>a & b</a>", "invalid character entity"),
            ("<a>]]></a>", "unescaped ]]>"),
            ("<a b=c/>", "unquoted"),
            ("<a b='<'/>", "unescaped <"),
            ("<a b/>", "attribute name without = in element"),
            ("<a>\u{1}</a>", "illegal character code U+0001"),
            ("<?xml version='1.0' encoding='ISO-8859-1'?><a/>", "xml: encoding \"ISO-8859-1\" declared"),
            ("<?xml version='1.1'?><a/>", "xml: unsupported version \"1.1\""),
            ("<a><!-- -- --></a>", "comments"),
            ("< a/>", "expected element name after <"),
            ("<1/>", "invalid XML name: 1"),
            ("<a b:c:d='1'/>", "expected attribute name in element"),
            ("<a /b>", "expected /> in element"),
            ("<a></a b>", "invalid characters between </a and >"),
            ("<a>&no.such;</a>", "invalid character entity &no.such;"),
            ("<a>&#xg;</a>", "invalid character entity &#x (no semicolon)"),
            ("<a>&lt", "unexpected EOF"),
            ("<!-a-><a/>", "invalid sequence <!- not part of <!--"),
            ("<![cdata[]]><a/>", "invalid <![ sequence"),
            ("<??><a/>", "expected target name after <?"),
            ("<!DOCTYPE a", "unexpected EOF"),
        ] {
            assert!(read(input).contains(reason), "{input}: {}", read(input));
        }
        assert!(read(&"<a>".repeat(2000)).contains("nested deeper"));
        let large = "x".repeat(MAX_ATTRIBUTE_BYTES / 2 + 1);
        for (attributes, expected) in
            [(1, "<a x0="), (2, "more than 12582912 bytes"), (60, "more than 12582912")]
        {
            let tag: String = (0..attributes).map(|number| format!(" x{number}='{large}'")).collect();
            let shown = read(&format!("<a{tag}/>"));
            assert!(shown.contains(expected), "{attributes}: {}", &shown[..100]);
        }
        for input in [&b"<a>\xff</a>"[..], b"<a>cut \xc3"] {
            let mut lexer = Lexer::new(input);
            lexer.next_token().unwrap();
            assert!(lexer.next_token().unwrap_err().to_string().contains("invalid UTF-8"));
        }
    }

    #[test]
    fn long_text_is_read_in_pieces() {
        let long = "ä".repeat(100_000);
        for text in [format!("<a>{long}</a>"), format!("<a><![CDATA[{long}]]></a>")] {
            let mut lexer = Lexer::new(text.as_bytes());
            assert_eq!(lexer.next_token().unwrap(), Token::Open);
            let mut all = String::new();
            while lexer.next_token().unwrap() == Token::Text {
                assert!(lexer.text().len() < 2 * PIECE_BYTES);
                all.push_str(lexer.text());
            }
            assert_eq!(all, long);
        }
    }
}
