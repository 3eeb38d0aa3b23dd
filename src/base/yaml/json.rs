//! JSON text to nodes with their places; anything after the first value is ignored.

use super::{Content, Error, Key, MAX_DEPTH, Node, Place};

/// Reads the first JSON value of a text.
pub fn read(text: &str) -> Result<Node, Error> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    match stream.next() {
        None => return Err(Place { line: 1, column: 1 }.error("empty, but must be a JSON value")),
        Some(Err(error)) => {
            let words = error.to_string();
            let message = words.split(" at line ").next().unwrap_or(&words).to_owned();
            return Err(Error { line: error.line(), column: error.column().max(1), message });
        }
        Some(Ok(_)) => {}
    }
    let mut reader = Reader { rest: text, place: Place { line: 1, column: 1 } };
    reader.value(0)
}

/// Walks over text that is known to be JSON.
struct Reader<'t> {
    rest: &'t str,
    place: Place,
}

impl<'t> Reader<'t> {
    fn value(&mut self, depth: usize) -> Result<Node, Error> {
        self.blanks();
        let place = self.place;
        if depth > MAX_DEPTH {
            return Err(place.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let content = match self.rest.as_bytes().first() {
            Some(b'{') => Content::Map(self.map(depth)?),
            Some(b'[') => Content::List(self.list(depth)?),
            Some(b'"') => Content::Text(self.text()?),
            _ => self.word()?,
        };
        Ok(Node { place, content })
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Key, Node)>, Error> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut index = std::collections::HashMap::new();
        self.take(1);
        while !self.closes('}') {
            let place = self.place;
            let text = self.text()?;
            self.blanks();
            self.take(1);
            let node = self.value(depth + 1)?;
            let entry = (Key { place, text: text.clone() }, node);
            match index.get(&text) {
                Some(&at) => entries[at] = entry,
                None => {
                    index.insert(text, entries.len());
                    entries.push(entry);
                }
            }
        }
        Ok(entries)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Error> {
        let mut items = Vec::new();
        self.take(1);
        while !self.closes(']') {
            items.push(self.value(depth + 1)?);
        }
        Ok(items)
    }

    /// Advances to the next entry; true if the list or map ends here.
    fn closes(&mut self, end: char) -> bool {
        self.blanks();
        if self.rest.starts_with(',') {
            self.take(1);
            self.blanks();
        }
        let closes = self.rest.is_empty() || self.rest.starts_with(end);
        if closes {
            self.take(1.min(self.rest.len()));
        }
        closes
    }

    fn text(&mut self) -> Result<String, Error> {
        let place = self.place;
        let mut escaped = false;
        let end = self.rest.bytes().enumerate().skip(1).find(|&(_, byte)| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let raw = self.take(end.map_or(self.rest.len(), |(at, _)| at + 1));
        serde_json::from_str(raw).map_err(|error| place.error(error.to_string()))
    }

    fn word(&mut self) -> Result<Content, Error> {
        let place = self.place;
        let end = self.rest.find(|c: char| ",]}".contains(c) || c.is_ascii_whitespace());
        let raw = self.take(end.unwrap_or(self.rest.len()));
        match raw {
            "null" => Ok(Content::Null),
            "true" => Ok(Content::Bool(true)),
            "false" => Ok(Content::Bool(false)),
            _ => {
                serde_json::from_str(raw).map(Content::Number).map_err(|error| place.error(error.to_string()))
            }
        }
    }

    fn blanks(&mut self) {
        let end = self.rest.find(|c: char| !c.is_ascii_whitespace()).unwrap_or(self.rest.len());
        self.take(end);
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        for c in taken.chars() {
            if c == '\n' {
                self.place = Place { line: self.place.line + 1, column: 1 };
            } else {
                self.place.column += 1;
            }
        }
        self.rest = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_serde() {
        for text in [
            r#"{"a":[1,-2.5e3,"x\"\\\u00e9\ud83d\ude00",null,true,false,{}],"b":{"c":[]},"a ":""}"#,
            " [ ] ",
            "\"\\\\\"",
            "{\"a\":\n\t{ \"b\" : 1 , \"c\":[ [ ] , 2 ] } }",
            "18446744073709551615",
        ] {
            let expected: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text).unwrap().into_value(), expected, "{text}");
        }
    }

    #[test]
    fn places_and_trailing_text() {
        let node = read("{\"a\": 1,\n  \"b\": [true]}\ntrailing").unwrap();
        let place = |line, column| Place { line, column };
        assert_eq!(node.entries()[1].0.place, place(2, 3));
        assert_eq!(node.get("b").unwrap().place, place(2, 8));
        assert_eq!(read("{\"a\": x}").unwrap_err().line, 1);
        assert_eq!(read("{\"a\": 1,\n}").unwrap_err().line, 2);
        assert!(read("").is_err());
        assert!(read(&"[".repeat(100_000)).is_err());
    }
}
