//! XML as a stream of tags and pieces of text, as strict as the original's parser; escaping of
//! text.
//!
//! Written by hand because text must come in pieces (one test may print hundreds of megabytes),
//! line feeds in attributes must survive, and only the five named entities and character references
//! may be expanded: instructions, comments and document types are skipped, never obeyed. Errors are
//! in the original's words, which become part of results.

use std::fmt::Display;
use std::io::BufRead;

use anyhow::{Result, anyhow, bail};

/// Maximum total bytes of a tag's attributes; failure messages of several megabytes exist.
const MAX_ATTRIBUTE_BYTES: usize = 12 << 20;
/// Maximum bytes of a name.
const MAX_NAME: usize = 4 << 10;
/// Maximum nesting of elements.
const MAX_DEPTH: usize = 1000;
/// Approximate size of a piece of text.
const PIECE_BYTES: usize = 16 << 10;

/// A token.
#[derive(Debug, PartialEq, Eq)]
pub enum Token {
    /// The start of an element; [`Lexer::name`] has its name without prefix, [`Lexer::attribute`]
    /// its attributes.
    Open,
    /// A piece of text, in [`Lexer::text`].
    Text,
    /// The end of the innermost open element.
    Close,
    /// The end of the file.
    End,
}

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
        self.attributes
            .iter()
            .rev()
            .find(|(key, _)| local(key) == name)
            .map(|(_, value)| value.as_str())
    }

    /// The current piece of text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The next token.
    pub fn next_token(&mut self) -> Result<Token> {
        if std::mem::take(&mut self.close_pending) {
            self.open.pop();
            return Ok(Token::Close);
        }
        loop {
            if self.in_cdata || !matches!(self.peek()?, None | Some(b'<')) {
                self.piece()?;
                return Ok(Token::Text);
            }
            if !self.next_is(b'<')? {
                return if self.open.is_empty() {
                    Ok(Token::End)
                } else {
                    self.fail("unexpected EOF")
                };
            }
            if self.next_is(b'/')? {
                return self.close_tag();
            } else if self.next_is(b'?')? {
                self.instruction()?;
            } else if self.next_is(b'!')? {
                self.declaration()?;
            } else {
                return self.open_tag();
            }
        }
    }

    /// Opens the next element in the current one; false at the end of that.
    pub fn next_child(&mut self) -> Result<bool> {
        loop {
            match self.next_token()? {
                Token::Open => return Ok(true),
                Token::Close | Token::End => return Ok(false),
                Token::Text => {}
            }
        }
    }

    /// Skips to the end of the element that was just opened.
    pub fn skip_element(&mut self) -> Result<()> {
        let depth = self.open.len();
        while self.open.len() >= depth {
            // The end of the file inside an element is an error.
            self.next_token()?;
        }
        Ok(())
    }

    /// An error at the current line.
    fn fail<T>(&self, reason: impl Display) -> Result<T> {
        Err(anyhow!("XML syntax error on line {}: {reason}", self.line))
    }

    fn open_tag(&mut self) -> Result<Token> {
        let name = self.read_name("expected element name after <")?;
        if self.open.len() >= MAX_DEPTH {
            return self.fail(format_args!("elements are nested deeper than {MAX_DEPTH}"));
        }
        self.open.push(name);
        self.attributes.clear();
        let mut size = 0;
        loop {
            self.blanks()?;
            if self.next_is(b'>')? {
                return Ok(Token::Open);
            }
            if self.next_is(b'/')? {
                self.expect(b'>', "expected /> in element")?;
                self.close_pending = true;
                return Ok(Token::Open);
            }
            let name = self.read_name("expected attribute name in element")?;
            self.blanks()?;
            self.expect(b'=', "attribute name without = in element")?;
            self.blanks()?;
            size += size_of::<(String, String)>() + name.len();
            let value = self.quoted(size)?;
            size += value.len();
            self.attributes.push((name, value));
        }
    }

    fn close_tag(&mut self) -> Result<Token> {
        let name = self.read_name("expected element name after </")?;
        self.blanks()?;
        self.expect(
            b'>',
            format_args!("invalid characters between </{} and >", local(&name)),
        )?;
        match self.open.pop() {
            Some(open) if open == name => Ok(Token::Close),
            Some(open) => self.fail(format_args!("element <{open}> closed by </{name}>")),
            None => self.fail(format_args!("unexpected end element </{name}>")),
        }
    }

    /// Text up to the next tag, a CDATA section up to its end, or a piece of either.
    fn piece(&mut self) -> Result<()> {
        self.raw.clear();
        // Where the text begins that is written as it is: brackets of references end no section.
        let mut written = 0;
        while self.raw.len() < PIECE_BYTES
            || self.in_cdata && matches!(self.raw.last(), Some(b']' | b'>'))
        {
            match self.peek()? {
                None if self.in_cdata => return self.fail("unexpected EOF in CDATA section"),
                Some(b'<') if !self.in_cdata => break,
                Some(b'&') if !self.in_cdata => {
                    self.bump()?;
                    self.reference()?;
                    written = self.raw.len();
                    continue;
                }
                None => break,
                Some(_) => {}
            }
            let byte = self.bump()?;
            self.push(byte)?;
            match byte {
                b'>' if self.raw[written..].ends_with(b"]]>") => {
                    if !std::mem::take(&mut self.in_cdata) {
                        return self.fail("unescaped ]]> not in CDATA section");
                    }
                    self.raw.truncate(self.raw.len() - 3);
                    break;
                }
                b']' => {}
                _ => self.plain()?,
            }
        }
        // A piece does not end inside a character.
        while std::str::from_utf8(&self.raw).is_err_and(|error| error.error_len().is_none()) {
            let Some(byte) = self.next_if(|_| true)? else {
                break;
            };
            self.raw.push(byte);
        }
        self.check_text()
    }

    /// Copies all buffered bytes without a special meaning at once.
    fn plain(&mut self) -> Result<()> {
        let room = PIECE_BYTES.saturating_sub(self.raw.len());
        let buffer = self.input.fill_buf()?;
        let special = |byte: &u8| matches!(byte, b'<' | b'&' | b'\r' | b'\n' | b']');
        let end = buffer
            .iter()
            .take(room)
            .position(special)
            .unwrap_or(buffer.len().min(room));
        self.raw.extend_from_slice(&buffer[..end]);
        self.input.consume(end);
        Ok(())
    }

    /// Reads the value of an attribute; `size` counts what the tag has before it.
    fn quoted(&mut self, size: usize) -> Result<String> {
        let quote = self.bump()?;
        if !matches!(quote, b'"' | b'\'') {
            return self.fail("unquoted or missing attribute value in element");
        }
        self.raw.clear();
        loop {
            if size + self.raw.len() > MAX_ATTRIBUTE_BYTES {
                return self.fail(format_args!(
                    "the attributes of a tag have more than {MAX_ATTRIBUTE_BYTES} bytes"
                ));
            }
            match self.bump()? {
                byte if byte == quote => break,
                b'<' => return self.fail("unescaped < inside quoted string"),
                b'&' => self.reference()?,
                byte => self.push(byte)?,
            }
        }
        self.check_text()?;
        Ok(std::mem::take(&mut self.text))
    }

    /// Adds a byte to the raw text, with every line end as a line feed.
    fn push(&mut self, byte: u8) -> Result<()> {
        if byte == b'\r' {
            self.next_is(b'\n')?;
        }
        self.raw.push(if byte == b'\r' { b'\n' } else { byte });
        Ok(())
    }

    /// Reads a reference after `&`.
    fn reference(&mut self) -> Result<()> {
        let mut name = Vec::new();
        while name.len() < MAX_NAME
            && let Some(byte) = self.next_if(|byte| match &name[..] {
                [] => in_name(byte) || byte == b'#',
                [b'#'] => byte == b'x' || byte.is_ascii_digit(),
                [b'#', b'x', ..] => byte.is_ascii_hexdigit(),
                [b'#', ..] => byte.is_ascii_digit(),
                _ => in_name(byte),
            })?
        {
            name.push(byte);
        }
        let name = String::from_utf8_lossy(&name);
        match self.peek()? {
            Some(b';') => self.input.consume(1),
            Some(_) => {
                return self.fail(format_args!(
                    "invalid character entity &{name} (no semicolon)"
                ));
            }
            None => return self.fail("unexpected EOF"),
        }
        let character = match &*name {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "apos" => '\'',
            "quot" => '"',
            other => {
                let code = match other.strip_prefix("#x") {
                    Some(digits) => u32::from_str_radix(digits, 16).ok(),
                    None => other
                        .strip_prefix('#')
                        .and_then(|digits| digits.parse().ok()),
                };
                match code {
                    Some(code @ ..=0x10_ffff) => {
                        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
                    }
                    _ => return self.fail(format_args!("invalid character entity &{name};")),
                }
            }
        };
        self.raw
            .extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// Copies the raw text to `text`, if XML allows it.
    fn check_text(&mut self) -> Result<()> {
        let Ok(text) = std::str::from_utf8(&self.raw) else {
            return self.fail("invalid UTF-8");
        };
        let odd = |c: &char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
        if let Some(odd) = text.chars().find(odd) {
            return self.fail(format_args!(
                "illegal character code U+{:04X}",
                u32::from(odd)
            ));
        }
        text.clone_into(&mut self.text);
        Ok(())
    }

    /// Reads a name; the error `missing` if the next character does not start one.
    fn read_name(&mut self, missing: &str) -> Result<String> {
        let mut name = Vec::new();
        while let Some(byte) = self.next_if(in_name)? {
            name.push(byte);
            if name.len() > MAX_NAME {
                return self.fail("a name is too long");
            }
        }
        if self.peek()?.is_none() {
            return self.fail("unexpected EOF");
        }
        if name.is_empty() || name.iter().filter(|byte| **byte == b':').count() > 1 {
            return self.fail(missing);
        }
        let text = String::from_utf8_lossy(&name);
        if text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
            || text.as_bytes() != name
        {
            return self.fail(format_args!("invalid XML name: {text}"));
        }
        Ok(text.into_owned())
    }

    fn blanks(&mut self) -> Result<()> {
        while self.next_if(|byte| b" \t\r\n".contains(&byte))?.is_some() {}
        Ok(())
    }

    fn expect(&mut self, expected: u8, otherwise: impl Display) -> Result<()> {
        if self.bump()? == expected {
            Ok(())
        } else {
            self.fail(otherwise)
        }
    }

    fn bump(&mut self) -> Result<u8> {
        match self.next_if(|_| true)? {
            Some(byte) => Ok(byte),
            None => self.fail("unexpected EOF"),
        }
    }

    fn next_is(&mut self, wanted: u8) -> Result<bool> {
        Ok(self.next_if(|byte| byte == wanted)?.is_some())
    }

    /// Consumes the next byte, if it is `wanted`.
    fn next_if(&mut self, wanted: impl Fn(u8) -> bool) -> Result<Option<u8>> {
        let next = self.peek()?.filter(|byte| wanted(*byte));
        if let Some(byte) = next {
            self.input.consume(1);
            self.line += u64::from(byte == b'\n');
        }
        Ok(next)
    }

    fn peek(&mut self) -> Result<Option<u8>> {
        Ok(self.input.fill_buf()?.first().copied())
    }

    /// The rest of `<?…?>`: only its encoding matters.
    fn instruction(&mut self) -> Result<()> {
        let target = self.read_name("expected target name after <?")?;
        self.blanks()?;
        let data = self.until(b"?>")?;
        if target != "xml" {
            return Ok(());
        }
        let declaration = String::from_utf8_lossy(&data);
        match ["version", "encoding"].map(|name| parameter(&declaration, name)) {
            [Some(version), _] if version != "1.0" => {
                bail!("xml: unsupported version {version:?}; only version 1.0 is supported")
            }
            [_, Some(encoding)] if !encoding.eq_ignore_ascii_case("utf-8") => {
                bail!("xml: encoding {encoding:?} declared but Decoder.CharsetReader is nil")
            }
            _ => Ok(()),
        }
    }

    /// Reads the markup after `<!`: a comment, the start of a CDATA section, or a declaration.
    /// Everything in a declaration is skipped; quotes and comments in it may contain anything.
    fn declaration(&mut self) -> Result<()> {
        match self.bump()? {
            b'-' => {
                self.expect(b'-', "invalid sequence <!- not part of <!--")?;
                self.until(b"--")?;
                return self.expect(b'>', "invalid sequence \"--\" not allowed in comments");
            }
            b'[' => {
                for byte in *b"CDATA[" {
                    self.expect(byte, "invalid <![ sequence")?;
                }
                self.in_cdata = true;
                return Ok(());
            }
            _ => {}
        }
        let (mut depth, mut quote) = (1_u64, None);
        while depth > 0 {
            match (self.bump()?, quote) {
                (byte, Some(open)) if byte == open => quote = None,
                (_, Some(_)) => {}
                (byte @ (b'"' | b'\''), None) => quote = Some(byte),
                (b'>', None) => depth -= 1,
                (b'<', None)
                    if self.next_is(b'!')? && self.next_is(b'-')? && self.next_is(b'-')? =>
                {
                    self.until(b"-->")?;
                }
                (b'<', None) => depth += 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Skips past `end`; returns the first bytes before it.
    fn until(&mut self, end: &[u8]) -> Result<Vec<u8>> {
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

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_:.-".contains(&byte) || byte >= 0x80
}

fn local(name: &str) -> &str {
    match name.split_once(':') {
        Some((prefix, local)) if !prefix.is_empty() && !local.is_empty() => local,
        _ => name,
    }
}

/// `name="value"` in an XML declaration, without blanks around the equals sign.
fn parameter<'t>(declaration: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = declaration.split_once(&format!("{name}="))?;
    match rest.split(['"', '\'']).collect::<Vec<_>>()[..] {
        ["", value, _, ..] if !value.is_empty() => Some(value),
        _ => None,
    }
}

/// Escapes a text so that XML parsers return it, as far as XML can express it.
pub fn escape(text: &str, in_attribute: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let escape = match c {
            '<' => "&lt;",
            '>' => "&gt;",
            '&' => "&amp;",
            '"' if in_attribute => "&quot;",
            '\n' if in_attribute => "&#10;",
            '\t' if in_attribute => "&#9;",
            '\r' => "&#13;",
            // XML cannot express these characters in any form.
            '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => "\u{fffd}",
            c => {
                out.push(c);
                continue;
            }
        };
        out.push_str(escape);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// The tokens as text: `<name key=value>`, `/` for an end, pieces of text joined in quotes; or
    /// the error.
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
            (
                "<?xml version=\"1.0\" encoding='utf-8'?><a>t<b>u</b>v</a>",
                "<a>\"t\"<b>\"u\"/\"v\"/",
            ),
            (
                "<a b=\"one\ntwo\r\nthree&#10;\t\"/>",
                "<a b=\"one\\ntwo\\nthree\\n\\t\">/",
            ),
            (
                "<a>&lt;&gt;&amp;&apos;&quot;&#x41;&#66; ä</a>",
                "<a>\"<>&'\\\"AB ä\"/",
            ),
            (
                "<a><![CDATA[<x>&lt;]]]]><![CDATA[>]]></a>",
                "<a>\"<x>&lt;]]>\"/",
            ),
            ("<a><!-- <b> - --></a>", "<a>/"),
            (
                "<!DOCTYPE a [<!ENTITY x \"]>\"><!ENTITY y '<'>]><a/>",
                "<a>/",
            ),
            (
                "<!DOCTYPE a [ <!-- don't > --> <!ELEMENT b <c>> ]><a/>",
                "<a>/",
            ),
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
            (
                "<?xml version='1.0' encoding='ISO-8859-1'?><a/>",
                "xml: encoding \"ISO-8859-1\" declared",
            ),
            (
                "<?xml version='1.1'?><a/>",
                "xml: unsupported version \"1.1\"",
            ),
            ("<a><!-- -- --></a>", "comments"),
            ("< a/>", "expected element name after <"),
            ("<1/>", "invalid XML name: 1"),
            ("<a b:c:d='1'/>", "expected attribute name in element"),
            ("<a /b>", "expected /> in element"),
            ("<a></a b>", "invalid characters between </a and >"),
            ("<a>&no.such;</a>", "invalid character entity &no.such;"),
            (
                "<a>&#xg;</a>",
                "invalid character entity &#x (no semicolon)",
            ),
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
        for (attributes, expected) in [
            (1, "<a x0="),
            (2, "more than 12582912 bytes"),
            (60, "more than 12582912"),
        ] {
            let tag: String = (0..attributes)
                .map(|number| format!(" x{number}='{large}'"))
                .collect();
            let shown = read(&format!("<a{tag}/>"));
            assert!(shown.contains(expected), "{attributes}: {}", &shown[..100]);
        }
        for input in [&b"<a>\xff</a>"[..], b"<a>cut \xc3"] {
            let mut lexer = Lexer::new(input);
            lexer.next_token().unwrap();
            assert!(
                lexer
                    .next_token()
                    .unwrap_err()
                    .to_string()
                    .contains("invalid UTF-8")
            );
        }
    }

    #[test]
    fn long_text_is_read_in_pieces() {
        let long = "ä".repeat(100_000);
        for text in [
            format!("<a>{long}</a>"),
            format!("<a><![CDATA[{long}]]></a>"),
        ] {
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
