//! YAML text to nodes: composes the events of the YAML reader, resolves anchors, merge keys and tags.

use std::collections::HashMap;
use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libyaml_safer::{Event, EventData, Mark, Parser, ScalarStyle};

use super::{Content, Error, Key, MAX_DEPTH, Node, Place, scalar};

/// Maximum nodes that aliases may add to one text. The largest definitions in practice have a few hundred nodes.
const MAX_ALIAS_NODES: usize = 100_000;
/// Maximum bytes that aliases may add to one text.
const MAX_ALIAS_BYTES: usize = 16 << 20;

const STR: &str = "tag:yaml.org,2002:str";
/// The tag of binary data.
pub const BINARY: &str = "tag:yaml.org,2002:binary";
const MERGE: &str = "tag:yaml.org,2002:merge";

/// Reads the first document; an empty text is null.
pub fn document(text: &str) -> Result<Node, Error> {
    let whole = &ended(text);
    let mut bytes = whole.as_bytes();
    let nothing = Node { place: Place { line: 1, column: 1 }, content: Content::Null };
    Ok(Reader::new(text, &mut bytes).next_document()?.unwrap_or(nothing))
}

/// Reads every document.
pub fn documents(text: &str) -> Result<Vec<Node>, Error> {
    let whole = &ended(text);
    let mut bytes = whole.as_bytes();
    let mut reader = Reader::new(text, &mut bytes);
    let mut documents = Vec::new();
    while let Some(node) = reader.next_document()? {
        documents.push(node);
    }
    Ok(documents)
}

/// The text with a final line feed, since the parser fails on a literal block without one. Also with a byte order mark if
/// the parser would mistake the first letter, one of the last of the basic plane, for an incomplete mark.
fn ended(text: &str) -> std::borrow::Cow<'_, str> {
    let marked = text.as_bytes().first() != Some(&0xef) || text.starts_with('\u{feff}');
    if marked && (text.is_empty() || text.ends_with('\n')) {
        return text.into();
    }
    let (mark, end) = (if marked { "" } else { "\u{feff}" }, if text.ends_with('\n') { "" } else { "\n" });
    format!("{mark}{text}{end}").into()
}

struct Reader<'t> {
    /// The original text, perhaps without a final line feed.
    text: &'t str,
    /// The last line, and the number of lines: computed once, since a text may contain any number of blocks.
    last: &'t str,
    lines: usize,
    parser: Events<'t>,
    /// `None` while the anchored node is still being read.
    anchors: HashMap<String, Option<Node>>,
    nodes_left: usize,
    bytes_left: usize,
    depth: usize,
    /// Position of the last event's end.
    place: Place,
}

/// The events of a text. A single type, so that there is only one copy of the parser's machine code.
pub type Events<'t> = Parser<&'t mut (dyn BufRead + 't)>;

/// A failure of the YAML parser without an explanation.
pub struct Unreadable;

/// The next event of a parser, which must not be used again after [`Unreadable`].
///
/// The parser panics on a few texts, such as `[!a,]`; `cli` does not report such a panic as a bug.
pub fn next_event(
    parser: &mut Events<'_>,
) -> Result<Option<Result<Event, libyaml_safer::Error>>, Unreadable> {
    #[cfg(fuzzing)]
    super::fuzz::tolerate_parser();
    catch_unwind(AssertUnwindSafe(|| parser.next())).map_err(|_| Unreadable)
}

/// A node, or the end of the list or map that was being read.
enum Part {
    Node(Node),
    End,
}

/// A node that may be the key of a map, with the properties that a merge key depends on.
struct Word {
    node: Node,
    merges: bool,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str, bytes: &'t mut &'t [u8]) -> Self {
        let mut parser = Events::new();
        parser.set_input(bytes);
        Self {
            text,
            last: text.rsplit('\n').next().unwrap_or_default(),
            lines: text.matches('\n').count() + 1,
            parser,
            anchors: HashMap::new(),
            nodes_left: MAX_ALIAS_NODES,
            bytes_left: MAX_ALIAS_BYTES,
            depth: 0,
            place: Place { line: 1, column: 1 },
        }
    }

    fn next_document(&mut self) -> Result<Option<Node>, Error> {
        self.anchors.clear();
        loop {
            let Some((event, _)) = self.event()? else { return Ok(None) };
            if let EventData::DocumentStart { .. } = event {
                break;
            }
        }
        let node = match self.part()? {
            Part::Node(node) => node,
            Part::End => return Ok(None),
        };
        Ok(Some(node))
    }

    fn event(&mut self) -> Result<Option<(EventData, Place)>, Error> {
        match next_event(&mut self.parser) {
            Ok(None) => Ok(None),
            Ok(Some(Ok(event))) => {
                self.place = place(event.end_mark);
                Ok(Some((event.data, place(event.start_mark))))
            }
            Ok(Some(Err(error))) => Err(explain(&error, self.text)),
            Err(Unreadable) => Err(self.place.error("cannot be read as YAML from here on")),
        }
    }

    fn part(&mut self) -> Result<Part, Error> {
        Ok(self.word()?.map_or(Part::End, |word| Part::Node(word.node)))
    }

    /// The next node; `None` at the end of what is being read.
    fn word(&mut self) -> Result<Option<Word>, Error> {
        let Some((event, place)) = self.event()? else { return Ok(None) };
        let (anchor, content, merges) = match event {
            EventData::Scalar { anchor, tag, mut value, plain_implicit, style, .. } => {
                if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
                    self.take_added_line_feed(&mut value);
                }
                let merges = value == "<<" && (plain_implicit || tag.as_deref() == Some(MERGE));
                let content = meaning(tag.as_deref(), value, plain_implicit).map_err(|m| place.error(m))?;
                (anchor, content, merges)
            }
            EventData::SequenceStart { anchor, .. } => {
                self.enter(anchor.as_deref(), place)?;
                let mut items = Vec::new();
                while let Part::Node(node) = self.part()? {
                    items.push(node);
                }
                self.depth -= 1;
                (anchor, Content::List(items), false)
            }
            EventData::MappingStart { anchor, .. } => {
                self.enter(anchor.as_deref(), place)?;
                let entries = self.entries()?;
                self.depth -= 1;
                (anchor, Content::Map(entries), false)
            }
            EventData::Alias { anchor } => return self.alias(&anchor, place).map(Some),
            _ => return Ok(None),
        };
        let node = Node { place, content };
        if let Some(anchor) = anchor {
            self.spend(&node, place)?;
            self.anchors.insert(anchor, Some(node.clone()));
        }
        Ok(Some(Word { node, merges }))
    }

    /// A block at the very end of the text ends with a line feed only if one was written.
    fn take_added_line_feed(&self, value: &mut String) {
        if self.last.is_empty() || self.place.line <= self.lines {
            return;
        }
        // One blank line at the end is kept, or all.
        let end = if self.last.trim().is_empty() { "\n" } else { self.last.trim_start() };
        if value.strip_suffix('\n').is_some_and(|rest| rest.ends_with(end)) {
            value.pop();
        }
    }

    fn enter(&mut self, anchor: Option<&str>, place: Place) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(place.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor.to_owned(), None);
        }
        Ok(())
    }

    fn alias(&mut self, anchor: &str, place: Place) -> Result<Word, Error> {
        let node = match self.anchors.get(anchor) {
            Some(Some(node)) => node.clone(),
            Some(None) => return Err(place.error(format!("anchor `{anchor}` contains itself"))),
            None => return Err(place.error(format!("unknown anchor `{anchor}`"))),
        };
        self.spend(&node, place)?;
        if self.depth + depth(&node) > MAX_DEPTH {
            return Err(place.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(Word { node, merges: false })
    }

    /// Charges the copy of a node to the limits of aliases.
    fn spend(&mut self, node: &Node, place: Place) -> Result<(), Error> {
        let (nodes, bytes) = size(node);
        match (self.nodes_left.checked_sub(nodes), self.bytes_left.checked_sub(bytes)) {
            (Some(nodes), Some(bytes)) => {
                (self.nodes_left, self.bytes_left) = (nodes, bytes);
                Ok(())
            }
            _ => Err(place.error("aliases expand to too much; write out the values")),
        }
    }

    /// The entries of a map; merged entries never override written ones.
    fn entries(&mut self) -> Result<Vec<(Key, Node)>, Error> {
        let mut entries = Entries::default();
        let mut merged = Vec::new();
        while let Some(word) = self.word()? {
            let place = word.node.place;
            let Part::Node(value) = self.part()? else { break };
            if word.merges {
                sources(value, &mut merged)?;
            } else {
                entries.set(Key { place, text: key_text(word.node)? }, value);
            }
        }
        for (key, value) in merged {
            entries.add(key, value);
        }
        Ok(entries.list)
    }
}

/// Entries in the order of the text, with an index, so that many keys do not slow it down.
#[derive(Default)]
struct Entries {
    list: Vec<(Key, Node)>,
    index: HashMap<String, usize>,
}

impl Entries {
    fn set(&mut self, key: Key, value: Node) {
        match self.index.get(&key.text) {
            Some(&at) => self.list[at] = (key, value),
            None => self.add(key, value),
        }
    }

    fn add(&mut self, key: Key, value: Node) {
        if !self.index.contains_key(&key.text) {
            self.index.insert(key.text.clone(), self.list.len());
            self.list.push((key, value));
        }
    }
}

/// The entries that a merge key adds, in order of precedence.
fn sources(value: Node, into: &mut Vec<(Key, Node)>) -> Result<(), Error> {
    let place = value.place;
    match value.content {
        Content::Map(entries) => into.extend(entries),
        Content::List(items) if items.iter().all(|item| matches!(item.content, Content::Map(_))) => {
            for item in items {
                sources(item, into)?;
            }
        }
        _ => return Err(place.error("the merge key `<<` needs a map or a list of maps")),
    }
    Ok(())
}

fn key_text(node: Node) -> Result<String, Error> {
    match node.content {
        Content::Text(text) => Ok(text),
        Content::Bool(flag) => Ok(flag.to_string()),
        Content::Number(number) => Ok(number.to_string()),
        _ => Err(node.place.error(format!("a key cannot be {}; quote it", node.kind()))),
    }
}

/// Resolves a scalar, given its tag and whether it was written without quotes.
pub fn meaning(tag: Option<&str>, value: String, plain: bool) -> Result<Content, String> {
    match tag {
        None if plain => scalar::resolve(&value).map_err(str::to_owned),
        None | Some(STR | MERGE) => Ok(Content::Text(value)),
        Some(BINARY) => {
            use base64::Engine as _;
            let packed: String = value.split_whitespace().collect();
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(packed)
                .map_err(|_| "`!!binary` value is not base64".to_owned())?;
            String::from_utf8(bytes)
                .map(Content::Text)
                .map_err(|_| "`!!binary` value is not UTF-8".to_owned())
        }
        Some(tag) => match tag.strip_prefix("tag:yaml.org,2002:") {
            Some(name @ ("null" | "bool" | "int" | "float")) => {
                let content = scalar::resolve(&value)?;
                let fits = match &content {
                    Content::Null => name == "null",
                    Content::Bool(_) => name == "bool",
                    Content::Number(number) => name == "float" || (name == "int" && !number.is_f64()),
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

fn size(node: &Node) -> (usize, usize) {
    let add = |(n, b): (usize, usize), (nodes, bytes): (usize, usize)| (n + nodes, b + bytes);
    match &node.content {
        Content::Text(text) => (1, text.len()),
        Content::List(items) => items.iter().map(size).fold((1, 0), add),
        Content::Map(entries) => {
            entries.iter().map(|(key, value)| add(size(value), (1, key.text.len()))).fold((1, 0), add)
        }
        _ => (1, 0),
    }
}

fn depth(node: &Node) -> usize {
    match &node.content {
        Content::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Content::Map(entries) => 1 + entries.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}

fn place(mark: Mark) -> Place {
    let from_one = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).saturating_add(1);
    Place { line: from_one(mark.line), column: from_one(mark.column) }
}

fn explain(error: &libyaml_safer::Error, text: &str) -> Error {
    let mut message = error.problem().to_owned();
    if let Some(context) = error.context() {
        message = format!("{message} {context}");
    }
    if message.contains("cannot start any token") || message.contains("tab") {
        message.push_str("; indent with spaces, and quote text that begins with a special character");
    }
    let place = error.problem_mark().map_or_else(|| unreadable(text), place);
    place.error(message)
}

/// Position of the first character that YAML does not allow.
fn unreadable(text: &str) -> Place {
    let mut place = Place { line: 1, column: 1 };
    for c in text.chars() {
        match c {
            '\n' => place = Place { line: place.line + 1, column: 1 },
            '\t' | '\r' | '\u{85}' => place.column += 1,
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => break,
            _ => place.column += 1,
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::super::{parse, parse_all};
    use super::*;
    use crate::json::json;

    fn fails(text: &str, line: usize, column: usize, words: &str) {
        let error = parse(text).expect_err(text);
        assert!(error.message.contains(words), "{text}: {error}");
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
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
            ("a: &x {b: 0644}\nc: *x\n", json!({"a": {"b": 420}, "c": {"b": 420}})),
            (
                "d: &d {a: 1, b: 2}\ne: {<<: *d, b: 3}\n",
                json!({"d": {"a": 1, "b": 2}, "e": {"a": 1, "b": 3}}),
            ),
            ("e: {b: 3, <<: {a: 1, b: 2}}\n", json!({"e": {"a": 1, "b": 3}})),
            ("e: {<<: [{a: 1}, {a: 2, b: 2}]}\n", json!({"e": {"a": 1, "b": 2}})),
            ("\"<<\": {a: 1}\n", json!({"<<": {"a": 1}})),
            ("a: 1\na: 2\n", json!({"a": 2})),
            ("1: a\nyes: b\n1.5: c\n", json!({"1": "a", "true": "b", "1.5": "c"})),
            (
                "[!!str 12, !!int '12', !!float 1, !!binary aGFs\tbG8=, !x y, '12', \"yes\"]",
                json!(["12", 12, 1, "hallo", "y", "12", "yes"]),
            ),
            ("a: |\n  x\n  y\nb: >-\n  x\n  y\n", json!({"a": "x\ny\n", "b": "x y"})),
            ("a:\n- b\n- - c\n", json!({"a": ["b", ["c"]]})),
        ] {
            assert_eq!(parse(text).expect(text), value, "{text}");
        }
        assert_eq!(parse_all("a\n---\n---\nb\n").unwrap(), [json!("a"), json!(null), json!("b")]);
    }

    #[test]
    fn places_are_those_of_the_values() {
        let node = document("a:\n  - b: 1\n    c: x\n").unwrap();
        let Content::List(items) = &node.get("a").unwrap().content else { panic!("a list") };
        assert_eq!(items[0].get("c").unwrap().place, Place { line: 3, column: 8 });
        assert_eq!(items[0].entries()[1].0.place, Place { line: 3, column: 5 });
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
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
    fn aliases_cannot_blow_up() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let last = level - 1;
            bomb.push_str(&format!("a{level}: &a{level} [{}*a{last}]\n", format!("*a{last}, ").repeat(8)));
        }
        assert!(parse(&bomb).unwrap_err().message.contains("aliases expand"));
        let wide = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(40));
        assert!(parse(&wide).unwrap_err().message.contains("aliases expand"));
        let mut deep = "a0: &a0 [x]\n".to_owned();
        for level in 1..150 {
            deep.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert!(parse(&deep).unwrap_err().message.contains("nested deeper"));
    }
}
