//! YAML text to nodes: composes the events of the YAML reader, resolves anchors, merge keys and
//! tags.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of a type with a lifetime is not general enough for `read`"
)]

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use libyaml_safer::{Event, EventData, Mark, Parser, ScalarStyle};

use super::{Content, Error, Key, MAX_DEPTH, Node, Position, scalar};

/// Maximum bytes that aliases may add to one text. The largest definitions in practice have a few
/// hundred nodes.
const MAX_ALIAS_BYTES: usize = 16 << 20;
/// Approximate memory of a node without its text.
const NODE_BYTES: usize = 128;

/// The tag of binary data.
pub const BINARY: &str = "tag:yaml.org,2002:binary";
const MERGE: &str = "tag:yaml.org,2002:merge";

/// The start of a text.
const START: Position = Position { line: 1, column: 1 };

/// Reads the first document; an empty text is null.
pub fn document(text: &str) -> Result<Node, Error> {
    let first = read(text, Duplicates::LastWins, |reader| reader.next_document())?;
    Ok(first.unwrap_or(Node {
        position: START,
        content: Content::Null,
    }))
}

/// Reads every document of a text that a person wrote: the second value of a key is an error.
pub fn written(text: &str) -> Result<Vec<Node>, Error> {
    read(text, Duplicates::Rejected, |reader| reader.all_documents())
}

/// Reads the first JSON value of a text and ignores the rest. The second value of a key is an
/// error.
pub fn json(text: &str) -> Result<Node, Error> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    match values.next() {
        None => Err(START.error("empty, but must be a JSON value")),
        Some(Err(error)) => {
            let words = error.to_string();
            let message = words.split(" at line ").next().unwrap_or(&words).to_owned();
            Err(Error {
                line: error.line(),
                column: error.column().max(1),
                message,
            })
        }
        Some(Ok(_)) => {
            let value = without_pairs(&text[..values.byte_offset()]);
            let first = read(&value, Duplicates::Rejected, |reader| {
                reader.next_document()
            })?;
            Ok(first.unwrap_or(Node {
                position: START,
                content: Content::Null,
            }))
        }
    }
}

/// JSON as YAML, which lacks escapes that only mean a character in pairs.
fn without_pairs(json: &str) -> std::borrow::Cow<'_, str> {
    static PAIR: LazyLock<Option<regex::Regex>> =
        LazyLock::new(|| regex::Regex::new(r"\\u[dD][89abAB]..\\u....|\\.").ok());
    let character = |found: &regex::Captures<'_>| {
        let pair = found[0].len() > 2;
        pair.then(|| serde_json::from_str(&format!("\"{}\"", &found[0])).ok())
            .flatten()
            .unwrap_or_else(|| found[0].to_owned())
    };
    PAIR.as_ref()
        .map_or(json.into(), |pair| pair.replace_all(json, character))
}

/// Reads every document.
pub fn documents(text: &str) -> Result<Vec<Node>, Error> {
    read(text, Duplicates::LastWins, |reader| reader.all_documents())
}

/// What becomes of a map with two values of one key.
#[derive(Clone, Copy, PartialEq)]
enum Duplicates {
    /// As for Go and other readers of YAML 1.1.
    LastWins,
    Rejected,
}

fn read<T>(
    text: &str,
    duplicates: Duplicates,
    take: impl FnOnce(&mut Composer<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let ended_text = &ended(text);
    let mut bytes = ended_text.as_bytes();
    take(&mut Composer::new(text, duplicates, &mut bytes))
}

/// The text with a final line feed, since the parser fails on a literal block without one. Also
/// with a byte order mark if the parser would mistake the first letter, one of the last of the
/// basic plane, for an incomplete mark.
fn ended(text: &str) -> std::borrow::Cow<'_, str> {
    let marked = text.as_bytes().first() != Some(&0xef) || text.starts_with('\u{feff}');
    if marked && (text.is_empty() || text.ends_with('\n')) {
        return text.into();
    }
    let (mark, end) = (
        if marked { "" } else { "\u{feff}" },
        if text.ends_with('\n') { "" } else { "\n" },
    );
    format!("{mark}{text}{end}").into()
}

struct Composer<'t> {
    /// The original text, perhaps without a final line feed.
    text: &'t str,
    duplicates: Duplicates,
    /// The last line, and the number of lines: computed once, since a text may contain any number
    /// of blocks.
    last: &'t str,
    lines: usize,
    parser: Events<'t>,
    /// `None` while the anchored node is still being read.
    anchors: HashMap<String, Option<Node>>,
    alias_bytes_left: usize,
    depth: usize,
    /// Position of the last event's end.
    position: Position,
}

/// The events of a text. A single type, so that there is only one copy of the parser's machine
/// code.
pub type Events<'t> = Parser<&'t mut (dyn BufRead + 't)>;

/// The next event of a parser; `None` at the end. An error is final; without a cause, the parser
/// panicked.
///
/// It does so on a few texts, such as `[!a,]`; `cli` does not report such a panic as a bug.
pub fn next_event(parser: &mut Events<'_>) -> Result<Option<Event>, Option<libyaml_safer::Error>> {
    #[cfg(fuzzing)]
    super::fuzz::tolerate_parser();
    let next = catch_unwind(AssertUnwindSafe(|| parser.next())).map_err(|_| None)?;
    next.transpose().map_err(Some)
}

impl<'t> Composer<'t> {
    fn new(text: &'t str, duplicates: Duplicates, bytes: &'t mut &'t [u8]) -> Self {
        let mut parser = Events::new();
        parser.set_input(bytes);
        Self {
            text,
            duplicates,
            last: text.rsplit('\n').next().unwrap_or_default(),
            lines: text.matches('\n').count() + 1,
            parser,
            anchors: HashMap::new(),
            alias_bytes_left: MAX_ALIAS_BYTES,
            depth: 0,
            position: START,
        }
    }

    fn all_documents(&mut self) -> Result<Vec<Node>, Error> {
        let mut documents = Vec::new();
        while let Some(node) = self.next_document()? {
            documents.push(node);
        }
        Ok(documents)
    }

    fn next_document(&mut self) -> Result<Option<Node>, Error> {
        self.anchors.clear();
        loop {
            let Some((event, _)) = self.event()? else {
                return Ok(None);
            };
            if let EventData::DocumentStart { .. } = event {
                break;
            }
        }
        self.node()
    }

    fn event(&mut self) -> Result<Option<(EventData, Position)>, Error> {
        match next_event(&mut self.parser) {
            Ok(None) => Ok(None),
            Ok(Some(event)) => {
                self.position = position(event.end_mark);
                Ok(Some((event.data, position(event.start_mark))))
            }
            Err(Some(error)) => Err(explain(&error, self.text)),
            Err(None) => Err(self.position.error("cannot be read as YAML from here on")),
        }
    }

    fn node(&mut self) -> Result<Option<Node>, Error> {
        Ok(self.word()?.map(|(node, _)| node))
    }

    /// The next node, and whether it is a merge key, if it is the key of a map; `None` at the end
    /// of what is being read.
    fn word(&mut self) -> Result<Option<(Node, bool)>, Error> {
        let Some((event, position)) = self.event()? else {
            return Ok(None);
        };
        let (anchor, content, merges) = match event {
            EventData::Scalar {
                anchor,
                tag,
                mut value,
                plain_implicit,
                style,
                ..
            } => {
                if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
                    self.take_added_line_feed(&mut value);
                }
                let merges = value == "<<" && (plain_implicit || tag.as_deref() == Some(MERGE));
                let content = meaning(tag.as_deref(), value, plain_implicit)
                    .map_err(|m| position.error(m))?;
                (anchor, content, merges)
            }
            EventData::SequenceStart { anchor, .. } => {
                self.enter(anchor.as_deref(), position)?;
                let mut items = Vec::new();
                while let Some(node) = self.node()? {
                    items.push(node);
                }
                self.depth -= 1;
                (anchor, Content::List(items), false)
            }
            EventData::MappingStart { anchor, .. } => {
                self.enter(anchor.as_deref(), position)?;
                let entries = self.entries()?;
                self.depth -= 1;
                (anchor, Content::Map(entries), false)
            }
            EventData::Alias { anchor } => {
                return Ok(Some((self.alias(&anchor, position)?, false)));
            }
            _ => return Ok(None),
        };
        let node = Node { position, content };
        if let Some(anchor) = anchor {
            self.spend(&node, position)?;
            self.anchors.insert(anchor, Some(node.clone()));
        }
        Ok(Some((node, merges)))
    }

    /// A block at the very end of the text ends with a line feed only if one was written.
    fn take_added_line_feed(&self, value: &mut String) {
        if self.last.is_empty() || self.position.line <= self.lines {
            return;
        }
        // One blank line at the end is kept, or all.
        let end = if self.last.trim().is_empty() {
            "\n"
        } else {
            self.last.trim_start()
        };
        if value
            .strip_suffix('\n')
            .is_some_and(|rest| rest.ends_with(end))
        {
            value.pop();
        }
    }

    fn enter(&mut self, anchor: Option<&str>, position: Position) -> Result<(), Error> {
        self.depth += 1;
        self.check_depth(self.depth, position)?;
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor.to_owned(), None);
        }
        Ok(())
    }

    fn alias(&mut self, anchor: &str, position: Position) -> Result<Node, Error> {
        let node = match self.anchors.get(anchor) {
            Some(Some(node)) => node.clone(),
            Some(None) => return Err(position.error(format!("anchor `{anchor}` contains itself"))),
            None => return Err(position.error(format!("unknown anchor `{anchor}`"))),
        };
        let depth = self.spend(&node, position)?;
        self.check_depth(self.depth + depth, position)?;
        Ok(node)
    }

    /// Charges the copy of a node to the limit of aliases; returns its depth.
    fn spend(&mut self, node: &Node, position: Position) -> Result<usize, Error> {
        let (bytes, depth) = measure(node);
        let bytes_left = self.alias_bytes_left.checked_sub(bytes);
        self.alias_bytes_left = bytes_left
            .ok_or_else(|| position.error("aliases expand to too much; write out the values"))?;
        Ok(depth)
    }

    fn check_depth(&self, depth: usize, position: Position) -> Result<(), Error> {
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        Err(position.error(format!("nested deeper than {MAX_DEPTH} levels")))
    }

    /// The entries of a map.
    fn entries(&mut self) -> Result<Vec<(Key, Node)>, Error> {
        let (mut written, mut merged) = (Vec::new(), Vec::new());
        while let Some((key, merges)) = self.word()? {
            let position = key.position;
            let Some(value) = self.node()? else { break };
            if merges {
                sources(value, &mut merged)?;
            } else {
                written.push((
                    Key {
                        position,
                        text: key_text(key)?,
                    },
                    value,
                ));
            }
        }
        if self.duplicates == Duplicates::Rejected {
            check_unique(&written)?;
        }
        // The last of duplicate keys counts, and merged entries never override written ones.
        let mut keys = HashSet::new();
        let all = written.into_iter().rev().chain(merged);
        let mut entries: Vec<_> = all
            .filter(|(key, _)| keys.insert(key.text.clone()))
            .collect();
        entries.reverse();
        Ok(entries)
    }
}

/// Rejects the second value of a key.
fn check_unique(entries: &[(Key, Node)]) -> Result<(), Error> {
    let mut lines = HashMap::new();
    for (key, _) in entries {
        if let Some(line) = lines.insert(key.text.as_str(), key.position.line) {
            let message = format!(
                "`{}` is already set in line {line}; remove one of them",
                key.text
            );
            return Err(key.position.error(message));
        }
    }
    Ok(())
}

/// The entries that a merge key adds, in order of precedence.
fn sources(value: Node, into: &mut Vec<(Key, Node)>) -> Result<(), Error> {
    let position = value.position;
    match value.content {
        Content::Map(entries) => into.extend(entries),
        Content::List(items)
            if items
                .iter()
                .all(|item| matches!(item.content, Content::Map(_))) =>
        {
            for item in items {
                sources(item, into)?;
            }
        }
        _ => return Err(position.error("the merge key `<<` needs a map or a list of maps")),
    }
    Ok(())
}

fn key_text(node: Node) -> Result<String, Error> {
    match node.content {
        Content::Text(text) => Ok(text),
        Content::Bool(flag) => Ok(flag.to_string()),
        Content::Number(number) => Ok(number.to_string()),
        _ => Err(node
            .position
            .error(format!("a key cannot be {}; quote it", node.kind()))),
    }
}

/// Resolves a scalar, given its tag and whether it was written without quotes.
pub fn meaning(tag: Option<&str>, value: String, plain: bool) -> Result<Content, String> {
    match tag {
        None if plain => scalar::resolve(&value).map_err(str::to_owned),
        Some(BINARY) => {
            let bytes = binary(&value).ok_or("`!!binary` value is not base64")?;
            Ok(Content::Text(
                String::from_utf8(bytes).map_err(|_| "`!!binary` value is not UTF-8")?,
            ))
        }
        tag => match tag.and_then(|tag| tag.strip_prefix("tag:yaml.org,2002:")) {
            Some(name @ ("null" | "bool" | "int" | "float")) => {
                let content = scalar::resolve(&value)?;
                let fits = match &content {
                    Content::Null => name == "null",
                    Content::Bool(_) => name == "bool",
                    Content::Number(number) => {
                        name == "float" || (name == "int" && !number.is_f64())
                    }
                    _ => false,
                };
                if fits {
                    Ok(content)
                } else {
                    Err(format!("`{value}` is not a valid {name}, which is its tag"))
                }
            }
            _ => Ok(Content::Text(value)),
        },
    }
}

/// Decodes the text of a binary value, which may be broken into lines.
pub fn binary(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let packed: String = text.split_whitespace().collect();
    base64::engine::general_purpose::STANDARD
        .decode(packed)
        .ok()
}

/// Memory of a node, and its depth.
fn measure(node: &Node) -> (usize, usize) {
    let add = |(sum, max): (usize, usize), (bytes, depth): (usize, usize)| {
        (sum + bytes, max.max(depth + 1))
    };
    match &node.content {
        Content::Text(text) => (NODE_BYTES + text.len(), 0),
        Content::List(items) => items.iter().map(measure).fold((NODE_BYTES, 1), add),
        Content::Map(entries) => entries
            .iter()
            .map(|(key, value)| add((key.text.len(), 0), measure(value)))
            .fold((NODE_BYTES, 0), |(sum, max), (bytes, depth)| {
                (sum + bytes, max.max(depth))
            }),
        _ => (NODE_BYTES, 0),
    }
}

fn position(mark: Mark) -> Position {
    let from_one = |number: u64| {
        usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_add(1)
    };
    Position {
        line: from_one(mark.line),
        column: from_one(mark.column),
    }
}

fn explain(error: &libyaml_safer::Error, text: &str) -> Error {
    let mut message = error.problem().to_owned();
    if let Some(context) = error.context() {
        message = format!("{message} {context}");
    }
    if message.contains("cannot start any token") || message.contains("tab") {
        message
            .push_str("; indent with spaces, and quote text that begins with a special character");
    }
    let position = error
        .problem_mark()
        .map_or_else(|| unreadable(text), position);
    position.error(message)
}

/// Position of the first character that YAML does not allow.
fn unreadable(text: &str) -> Position {
    let odd = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t' | '\r' | '\u{85}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    let before = &text[..text.find(odd).unwrap_or(text.len())];
    let line = before.rsplit('\n').next().unwrap_or_default();
    Position {
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse, parse_all};
    use super::*;
    use base::json::json;

    fn fails(text: &str, line: usize, column: usize, words: &str) {
        let error = parse(text).expect_err(text);
        assert!(error.message.contains(words), "{text}: {error}");
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{text}: {error}"
        );
    }

    #[test]
    fn anchors_merges_tags_and_duplicates() {
        for (text, value) in [
            ("", json!(null)),
            ("a: |\n  text", json!({"a": "text"})),
            // Letters and marks that share the first byte of a byte order mark.
            ("\u{fb00}: 1", json!({"\u{fb00}": 1})),
            ("\u{feff}a: 1", json!({"a": 1})),
            ("a: |\n  text\n", json!({"a": "text\n"})),
            ("a: |+\n  more\n   text", json!({"a": "more\n text"})),
            ("a: >\n  more\n  text", json!({"a": "more text"})),
            ("a: |\n  text\n  ", json!({"a": "text\n"})),
            ("a: |+\n  text\n  ", json!({"a": "text\n"})),
            ("a: |\n  text\n# text", json!({"a": "text\n"})),
            ("a: |\n  text\nb: text", json!({"a": "text\n", "b": "text"})),
            ("- |\n  text\n- text", json!(["text\n", "text"])),
            ("---\n", json!(null)),
            ("# only a comment\n", json!(null)),
            ("a: 1\n---\nb: 2\n", json!({"a": 1})),
            ("---\na: 1\n...\n", json!({"a": 1})),
            (
                "a: &x {b: 0644}\nc: *x\n",
                json!({"a": {"b": 420}, "c": {"b": 420}}),
            ),
            (
                "d: &d {a: 1, b: 2}\ne: {<<: *d, b: 3}\n",
                json!({"d": {"a": 1, "b": 2}, "e": {"a": 1, "b": 3}}),
            ),
            (
                "e: {b: 3, <<: {a: 1, b: 2}}\n",
                json!({"e": {"a": 1, "b": 3}}),
            ),
            (
                "e: {<<: [{a: 1}, {a: 2, b: 2}]}\n",
                json!({"e": {"a": 1, "b": 2}}),
            ),
            ("\"<<\": {a: 1}\n", json!({"<<": {"a": 1}})),
            ("a: 1\na: 2\n", json!({"a": 2})),
            (
                "1: a\nyes: b\n1.5: c\n",
                json!({"1": "a", "true": "b", "1.5": "c"}),
            ),
            (
                "[!!str 12, !!int '12', !!float 1, !!binary aGFs\tbG8=, !x y, '12', \"yes\"]",
                json!(["12", 12, 1, "hallo", "y", "12", "yes"]),
            ),
            (
                "a: |\n  x\n  y\nb: >-\n  x\n  y\n",
                json!({"a": "x\ny\n", "b": "x y"}),
            ),
            ("a:\n- b\n- - c\n", json!({"a": ["b", ["c"]]})),
        ] {
            assert_eq!(parse(text).expect(text), value, "{text}");
        }
        assert_eq!(
            parse_all("a\n---\n---\nb\n").unwrap(),
            [json!("a"), json!(null), json!("b")]
        );
    }

    #[test]
    fn positions_are_those_of_the_values() {
        let node = document("a:\n  - b: 1\n    c: x\n").unwrap();
        let Content::List(items) = &node.get("a").unwrap().content else {
            panic!("a list")
        };
        assert_eq!(
            items[0].get("c").unwrap().position,
            Position { line: 3, column: 8 }
        );
        assert_eq!(
            items[0].entries()[1].0.position,
            Position { line: 3, column: 5 }
        );
    }

    #[test]
    fn mistakes_are_reported_with_their_position() {
        fails("a: *x\n", 1, 4, "unknown anchor `x`");
        fails("\u{fb00}: *x\n", 1, 4, "unknown anchor `x`");
        fails("a: &x [*x]\n", 1, 8, "contains itself");
        fails("a: {<<: 1}\n", 1, 9, "merge key");
        fails("a: .inf\n", 1, 4, "infinity");
        fails("? [a]\n: b\n", 1, 3, "a key cannot be a list");
        fails("~: b\n", 1, 1, "a key cannot be null");
        fails("a: !!int x\n", 1, 4, "is not a valid int");
        fails("a: !!binary '%'\n", 1, 4, "base64");
        fails("a: b\n\tc: d\n", 2, 1, "indent with spaces");
        fails("a: @b\n", 1, 4, "quote text");
        fails("a: [!x,]\n", 1, 5, "cannot be read");
        fails("a: !%ff b\n", 1, 5, "UTF-8");
        fails("a: 'x\n", 2, 1, "unexpected end of stream");
        fails("a: b: c\n", 1, 5, "mapping values are not allowed");
        fails("a: \u{1}\n", 1, 4, "control characters");
        fails(&"[".repeat(5000), 1, 101, "nested deeper");
    }

    #[test]
    fn aliases_cannot_expand_without_bound() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let last = level - 1;
            bomb.push_str(&format!(
                "a{level}: &a{level} [{}*a{last}]\n",
                format!("*a{last}, ").repeat(8)
            ));
        }
        assert!(parse(&bomb).unwrap_err().message.contains("aliases expand"));
        let wide = format!(
            "a: &a \"{}\"\nb: [{}]\n",
            "x".repeat(1 << 20),
            "*a, ".repeat(40)
        );
        assert!(parse(&wide).unwrap_err().message.contains("aliases expand"));
        let mut deep = "a0: &a0 [x]\n".to_owned();
        for level in 1..150 {
            deep.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert!(parse(&deep).unwrap_err().message.contains("nested deeper"));
    }

    #[test]
    fn json_values_equal_those_of_serde() {
        for text in [
            r#"{"a":[1,-2.5e-3,"x\"\\\u00e9\ud83d\ude00",null,true,false,{}],"b":{"c":[]},"a ":""}"#,
            " [ ] ",
            "\"\\\\\"",
            "{\"a\":\n\t{ \"b\" : 1 , \"c\":[ [ ] , 2 ] } }",
            "18446744073709551615",
        ] {
            let expected: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(json(text).unwrap().into_value(), expected, "{text}");
        }
    }

    #[test]
    fn json_has_positions_and_may_have_trailing_text() {
        let node = json("{\"a\": 1,\n  \"b\": [true]}\ntrailing").unwrap();
        let position = |line, column| Position { line, column };
        assert_eq!(node.entries()[1].0.position, position(2, 3));
        assert_eq!(node.get("b").unwrap().position, position(2, 8));
        assert_eq!(json("{\"a\": x}").unwrap_err().line, 1);
        assert_eq!(json("{\"a\": 1,\n}").unwrap_err().line, 2);
        assert!(json("").is_err());
        assert!(json(&"[".repeat(100_000)).is_err());
    }
}
