//! YAML as the original reads it (version 1.1) and writes it (sorted keys, ambiguous strings
//! quoted).
//!
//! Owns the tree of a document with the position of each node, so that errors of type can name line
//! and column; reading YAML and JSON (`read`) into it, what an unquoted word means (`scalar`),
//! getting typed values out of it (`typed`), and writing (`write`).
//! Knows nothing about plugins or Kubernetes. Depth and the expansion of aliases are bounded.

#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod read;
mod scalar;
pub mod schema;
pub mod typed;
mod write;

use std::fmt;

use serde_json::{Number, Value};

pub use read::{BINARY, Events, binary, document, documents, json, meaning, next_event, written};
pub use scalar::resolve;
pub use write::{entry, escaped, key_text, natural, write};

/// Maximum nesting of lists and maps; definitions in practice stay below 20.
const MAX_DEPTH: usize = 100;

/// An error in a text, and its position; lines and columns are counted from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// Line, from 1; 0 if the position is unknown.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Description of the error.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A position in a text; both numbers count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
}

impl Position {
    /// An error at this position.
    pub fn error(self, message: impl Into<String>) -> Error {
        Error {
            line: self.line,
            column: self.column,
            message: message.into(),
        }
    }
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Position of its start.
    pub position: Position,
    /// What it is.
    pub content: Content,
}

/// Content of a node. A map keeps the order of the text; the last of duplicate keys wins, unless
/// its reader rejects them.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// `null`, `~` or nothing.
    Null,
    /// A boolean, in any of its eleven spellings.
    Bool(bool),
    /// An integer or float.
    Number(Number),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map.
    Map(Vec<(Key, Node)>),
}

/// The key of a map entry; scalars of any kind become text.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Position of its start.
    pub position: Position,
    /// Its text.
    pub text: String,
}

impl Node {
    /// The value of a key, if this is a map that has it; null counts as absent, as it does for Go.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries()
            .iter()
            .find(|(k, _)| k.text == key)
            .map(|(_, node)| node)
            .filter(|node| !node.is_null())
    }

    /// The entries; empty if this is not a map.
    pub fn entries(&self) -> &[(Key, Self)] {
        if let Content::Map(entries) = &self.content {
            entries
        } else {
            &[]
        }
    }

    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        self.content == Content::Null
    }

    /// The kind of value, for messages: `a number`, `a list`.
    pub fn kind(&self) -> &'static str {
        match self.content {
            Content::Null => "null",
            Content::Bool(_) => "a boolean",
            Content::Number(_) => "a number",
            Content::Text(_) => "text",
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
        }
    }

    /// Converts to JSON, without positions.
    pub fn into_value(self) -> Value {
        match self.content {
            Content::Null => Value::Null,
            Content::Bool(flag) => Value::Bool(flag),
            Content::Number(number) => Value::Number(number),
            Content::Text(text) => Value::String(text),
            Content::List(items) => Value::Array(items.into_iter().map(Self::into_value).collect()),
            Content::Map(entries) => Value::Object(
                entries
                    .into_iter()
                    .map(|(key, node)| (key.text, node.into_value()))
                    .collect(),
            ),
        }
    }
}

/// Reads the first document; an empty text is null.
pub fn parse(text: &str) -> Result<Value, Error> {
    Ok(document(text)?.into_value())
}

/// Reads every document.
pub fn parse_all(text: &str) -> Result<Vec<Value>, Error> {
    Ok(documents(text)?.into_iter().map(Node::into_value).collect())
}
