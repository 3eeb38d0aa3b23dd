//! XML other than elements and text: instructions, comments, document types. Skipped, never obeyed.

use std::io::BufRead;

use super::{Error, Lexer, MAX_NAME, Token};

impl<R: BufRead> Lexer<R> {
    /// `<?…?>`: only its encoding matters.
    pub(super) fn instruction(&mut self) -> Result<(), Error> {
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

    /// What follows `<!`: a comment, a CDATA section, or a declaration, which is skipped with everything in it.
    pub(super) fn declaration(&mut self) -> Result<Option<Token>, Error> {
        match self.bump()? {
            b'-' => {
                self.expect(b'-', "invalid sequence <!- not part of <!--")?;
                self.comment().map(|()| None)
            }
            b'[' => {
                for byte in *b"CDATA[" {
                    self.expect(byte, "invalid <![ sequence")?;
                }
                self.cdata().map(|()| Some(Token::Text))
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

    /// What follows `<` in a declaration: a comment is skipped; for anything else the deciding byte is returned.
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

    /// Skips to the end of `end`; returns the beginning of what precedes it.
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
