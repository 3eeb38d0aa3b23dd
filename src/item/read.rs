//! Reads a tree of items from YAML, item by item, in constant memory.
//!
//! Strings keep their source text, whatever their meaning in YAML (`name: 123`, `status: yes`); details have their
//! meaning in YAML 1.1. Unknown keys are ignored, and the last of duplicate keys counts.

use std::cell::Cell;
use std::io::{self, BufRead, Read, Seek};
use std::rc::Rc;

use libyaml_safer::{EventData, ScalarStyle};
use serde_json::{Map, Value};

use super::tree::DEPTH;
use super::utf16::Utf16;
use crate::item::Item;
use base::yaml::{self, Quick, Unusual};

/// Maximum text of one item.
const ITEM_LIMIT: u64 = 32 << 20;
/// Maximum size of children buffered for fields that may follow them.
const HELD_LIMIT: usize = 512 << 10;

/// Receives a tree, depth first. An item with children is entered and left; one without is a leaf.
pub(crate) trait Visit {
    /// A group starts; its fields are those that precede its children.
    fn enter(&mut self, _: Item) -> anyhow::Result<()> {
        Ok(())
    }

    /// The innermost group ends.
    fn leave(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// An item without children.
    fn leaf(&mut self, item: Item) -> anyhow::Result<()>;
}

/// The author of a tree, which determines the meaning of its plain scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A plugin: `yes` is a boolean.
    Plugin,
    /// The aggregator, or an editor of its file: `yes` is text, as in the original's output.
    Aggregator,
}

/// Passes the tree in the first document of `input`, which is at its start, to `visitor`.
///
/// Machine-written files are read by a fast path. Any other text is read again from the start by the full parser,
/// skipping what the visitor has already received.
pub(crate) fn read(
    mut input: impl Read + Seek,
    writer: Writer,
    visitor: &mut impl Visit,
) -> anyhow::Result<()> {
    let mut teller = Teller { visitor, told: 0, skip: 0 };
    let taken = Rc::new(Cell::new(0));
    let metered = Metered { input: &mut input, taken: taken.clone() };
    let source = Quick::new(io::BufReader::with_capacity(32 << 10, metered));
    match (Reader { source, taken, writer }).document(&mut teller) {
        Err(error) if error.is::<Unusual>() => {}
        other => return other,
    }
    input.rewind()?;
    (teller.skip, teller.told) = (teller.told, 0);
    read_any(input, writer, &mut teller)
}

/// Passes on what the visitor has not received yet.
struct Teller<'v, V> {
    visitor: &'v mut V,
    told: u64,
    skip: u64,
}

impl<V> Teller<'_, V> {
    fn is_new(&mut self) -> bool {
        self.told += 1;
        self.told > self.skip
    }
}

impl<V: Visit> Visit for Teller<'_, V> {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        if self.is_new() { self.visitor.enter(item) } else { Ok(()) }
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        if self.is_new() { self.visitor.leave() } else { Ok(()) }
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        if self.is_new() { self.visitor.leaf(item) } else { Ok(()) }
    }
}

/// Reads with the full parser.
fn read_any(input: impl Read, writer: Writer, visitor: &mut impl Visit) -> anyhow::Result<()> {
    let taken = Rc::new(Cell::new(0));
    let mut input = io::BufReader::with_capacity(32 << 10, Metered { input, taken: taken.clone() });
    let big_endian = match input.fill_buf()? {
        [0xff, 0xfe, ..] => Some(false),
        [0xfe, 0xff, ..] => Some(true),
        _ => None,
    };
    let input: Box<dyn BufRead> = match big_endian {
        None => Box::new(input),
        Some(big_endian) => {
            input.consume(2);
            Box::new(io::BufReader::new(Utf16::new(input, big_endian)))
        }
    };
    // The parser fails on a block of text that ends without a line feed.
    let mut input = input.chain(&b"\n"[..]);
    let mut reader = Reader { source: yaml::Events::new(), taken, writer };
    reader.source.set_input(&mut input);
    loop {
        match reader.event()? {
            EventData::StreamEnd => anyhow::bail!("EOF"),
            EventData::DocumentStart { .. } => break,
            _ => {}
        }
    }
    reader.document(visitor)
}

/// A source of events.
trait Source {
    fn event(&mut self) -> anyhow::Result<EventData>;
}

impl<R: BufRead> Source for Quick<R> {
    fn event(&mut self) -> anyhow::Result<EventData> {
        Ok(Quick::event(self)?)
    }
}

impl Source for yaml::Events<'_> {
    fn event(&mut self) -> anyhow::Result<EventData> {
        match yaml::next_event(self) {
            // The cause has the same text.
            Ok(Some(event)) => Ok(event.map_err(|error| anyhow::anyhow!("{error}"))?.data),
            Ok(None) => Ok(EventData::StreamEnd),
            Err(yaml::Unreadable) => anyhow::bail!("not a result: it cannot be read as YAML"),
        }
    }
}

/// Counts bytes read by the parser, so that a single item cannot use unlimited memory.
pub(crate) struct Metered<R> {
    pub(crate) input: R,
    /// Bytes since the reader last set it to 0.
    pub(crate) taken: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken.get() > ITEM_LIMIT {
            let message = format!("one item has more than {} MiB of text", ITEM_LIMIT >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let count = self.input.read(buffer)?;
        self.taken.set(self.taken.get() + count as u64);
        Ok(count)
    }
}

struct Reader<S> {
    source: S,
    taken: Rc<Cell<u64>>,
    writer: Writer,
}

/// The destination of an item's children: buffered, since an item's fields may follow them in hand-written files,
/// until there are too many; then the visitor.
struct Children<'v> {
    /// The fields of the item so far.
    item: Item,
    visitor: &'v mut dyn Visit,
    held: Vec<Step>,
    held_size: usize,
    through: bool,
}

enum Step {
    Enter(Item),
    Leave,
    Leaf(Item),
}

impl Visit for Children<'_> {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        self.step(Step::Enter(item))
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        self.step(Step::Leave)
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        self.step(Step::Leaf(item))
    }
}

impl Children<'_> {
    fn step(&mut self, step: Step) -> anyhow::Result<()> {
        if self.through {
            return tell(step, self.visitor);
        }
        self.held_size += size_of::<Step>();
        if let Step::Enter(item) | Step::Leaf(item) = &step {
            self.held_size += item.name.len();
            self.held_size += item.details.values().map(size).sum::<usize>();
        }
        self.held.push(step);
        if self.held_size > HELD_LIMIT { self.let_go() } else { Ok(()) }
    }

    /// Drops buffered children when another list of children replaces them.
    fn forget(&mut self) {
        self.held.clear();
        self.held_size = 0;
    }

    fn let_go(&mut self) -> anyhow::Result<()> {
        self.through = true;
        self.visitor.enter(std::mem::take(&mut self.item))?;
        std::mem::take(&mut self.held).into_iter().try_for_each(|step| tell(step, self.visitor))
    }

    fn finish(mut self) -> anyhow::Result<()> {
        if !self.through && self.held.is_empty() {
            return self.visitor.leaf(self.item);
        }
        if !self.through {
            self.let_go()?;
        }
        self.visitor.leave()
    }
}

/// Approximate memory of a value.
fn size(value: &Value) -> usize {
    let below = match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 0,
    };
    size_of::<Value>() + below
}

fn tell(step: Step, visitor: &mut dyn Visit) -> anyhow::Result<()> {
    match step {
        Step::Enter(item) => visitor.enter(item),
        Step::Leave => visitor.leave(),
        Step::Leaf(item) => visitor.leaf(item),
    }
}

impl<S: Source> Reader<S> {
    /// The document, followed by its root.
    fn document(&mut self, visitor: &mut impl Visit) -> anyhow::Result<()> {
        match self.event()? {
            EventData::MappingStart { .. } => self.item(visitor, 0),
            EventData::Scalar { value, .. } if matches!(yaml::resolve(&value), Ok(yaml::Content::Null)) => {
                visitor.leaf(Item::default())
            }
            _ => anyhow::bail!("not a result: the document is not a map"),
        }
    }

    /// The rest of an item whose map has just started.
    fn item(&mut self, visitor: &mut dyn Visit, depth: usize) -> anyhow::Result<()> {
        anyhow::ensure!(depth < DEPTH, "items are nested deeper than {DEPTH}");
        let mut all =
            Children { item: Item::default(), visitor, held: Vec::new(), held_size: 0, through: false };
        loop {
            self.taken.set(0);
            let Some(key) = self.key()? else { return all.finish() };
            match key.as_str() {
                "name" => all.item.name = self.text("name")?.unwrap_or_default(),
                "status" => all.item.status = self.text("status")?.unwrap_or_default(),
                "meta" => all.item.meta = self.meta()?,
                "details" => all.item.details = self.details()?,
                "items" => {
                    all.forget();
                    self.items(&mut all, depth)?;
                }
                _ => self.skip_value()?,
            }
        }
    }

    fn items(&mut self, visitor: &mut dyn Visit, depth: usize) -> anyhow::Result<()> {
        match self.event()? {
            EventData::SequenceStart { .. } => {}
            EventData::Scalar { value, style: ScalarStyle::Plain, .. } if is_null(&value) => return Ok(()),
            EventData::Alias { .. } => return Err(Reference.into()),
            _ => anyhow::bail!("not a result: `items` is not a list"),
        }
        loop {
            match self.event()? {
                EventData::SequenceEnd => return Ok(()),
                EventData::MappingStart { .. } => self.item(visitor, depth + 1)?,
                EventData::Scalar { value, style: ScalarStyle::Plain, .. } if is_null(&value) => {
                    visitor.leaf(Item::default())?;
                }
                EventData::Alias { .. } => return Err(Reference.into()),
                _ => anyhow::bail!("not a result: one of `items` is not a map"),
            }
        }
    }

    /// The next key, or `None` at the end of the map.
    fn key(&mut self) -> anyhow::Result<Option<String>> {
        match self.event()? {
            EventData::MappingEnd => Ok(None),
            EventData::Scalar { value, .. } if value == "<<" => Err(Reference.into()),
            EventData::Scalar { value, style: ScalarStyle::Plain, .. } if is_null(&value) => {
                Ok(Some(String::new()))
            }
            EventData::Scalar { value, .. } => Ok(Some(value)),
            _ => anyhow::bail!("not a result: a key is not text"),
        }
    }

    /// The next key within details, where keys have their meaning: `0x1f: x` has the key `31`.
    fn key_of_value(&mut self) -> anyhow::Result<Option<String>> {
        match self.event()? {
            EventData::MappingEnd => Ok(None),
            EventData::Scalar { value, .. } if value == "<<" => Err(Reference.into()),
            EventData::Scalar { value, style, tag, .. } => match self.scalar(value, style, tag.as_deref())? {
                Value::String(text) => Ok(Some(text)),
                other => Ok(Some(other.to_string())),
            },
            _ => anyhow::bail!("not a result: a key is not text"),
        }
    }

    /// A string: the source text of any scalar; `None` for null.
    fn text(&mut self, key: &str) -> anyhow::Result<Option<String>> {
        match self.event()? {
            EventData::Scalar { value, style: ScalarStyle::Plain, tag: None, .. } if is_null(&value) => {
                Ok(None)
            }
            EventData::Scalar { value, tag: None, .. } => Ok(Some(value)),
            EventData::Scalar { value, style, tag, .. } => {
                match self.scalar(value.clone(), style, tag.as_deref())? {
                    Value::Null => Ok(None),
                    Value::String(text) => Ok(Some(text)),
                    _ => Ok(Some(value)),
                }
            }
            EventData::Alias { .. } => Err(Reference.into()),
            _ => anyhow::bail!("not a result: `{key}` is not text"),
        }
    }

    fn meta(&mut self) -> anyhow::Result<std::collections::BTreeMap<String, String>> {
        let mut meta = std::collections::BTreeMap::new();
        if self.begin_map("meta")? {
            while let Some(key) = self.key()? {
                let value = self.text("meta")?.unwrap_or_default();
                meta.insert(key, value);
            }
        }
        Ok(meta)
    }

    fn details(&mut self) -> anyhow::Result<std::collections::BTreeMap<String, Value>> {
        let mut details = std::collections::BTreeMap::new();
        if self.begin_map("details")? {
            while let Some(key) = self.key()? {
                let event = self.event()?;
                details.insert(key, self.value(event, 0)?);
            }
        }
        Ok(details)
    }

    /// Starts a map; false if it is null instead.
    fn begin_map(&mut self, key: &str) -> anyhow::Result<bool> {
        match self.event()? {
            EventData::MappingStart { .. } => Ok(true),
            EventData::Scalar { value, style: ScalarStyle::Plain, .. } if is_null(&value) => Ok(false),
            EventData::Alias { .. } => Err(Reference.into()),
            _ => anyhow::bail!("not a result: `{key}` is not a map"),
        }
    }

    fn value(&mut self, event: EventData, depth: usize) -> anyhow::Result<Value> {
        anyhow::ensure!(depth < DEPTH, "details are nested deeper than {DEPTH}");
        Ok(match event {
            EventData::Scalar { value, style, tag, .. } => self.scalar(value, style, tag.as_deref())?,
            EventData::SequenceStart { .. } => {
                let mut list = Vec::new();
                loop {
                    match self.event()? {
                        EventData::SequenceEnd => break Value::Array(list),
                        event => list.push(self.value(event, depth + 1)?),
                    }
                }
            }
            EventData::MappingStart { .. } => {
                let mut map = Map::new();
                while let Some(key) = self.key_of_value()? {
                    let event = self.event()?;
                    map.insert(key, self.value(event, depth + 1)?);
                }
                Value::Object(map)
            }
            EventData::Alias { .. } => return Err(Reference.into()),
            _ => anyhow::bail!("not a result: the text ends within an item"),
        })
    }

    /// The meaning of a scalar in details.
    fn scalar(&self, value: String, style: ScalarStyle, tag: Option<&str>) -> anyhow::Result<Value> {
        if tag == Some(yaml::BINARY) {
            // The original's form of text that is not UTF-8.
            use base64::Engine as _;
            let packed: String = value.split_whitespace().collect();
            let bytes = base64::engine::general_purpose::STANDARD.decode(packed);
            let bytes = bytes.map_err(|_| anyhow::anyhow!("not a result: `!!binary` is not base64"))?;
            return Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        }
        let plain = style == ScalarStyle::Plain;
        let is_true_or_false = || value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false");
        let content = match tag {
            Some(_) => yaml::meaning(tag, value.clone(), plain)
                .map_err(|reason| anyhow::anyhow!("not a result: {reason}"))?,
            // Infinity, which JSON cannot express, is text too.
            None if plain => yaml::resolve(&value).unwrap_or(yaml::Content::Text(String::new())),
            None => yaml::Content::Text(String::new()),
        };
        Ok(match content {
            yaml::Content::Null => Value::Null,
            yaml::Content::Bool(_)
                if tag.is_none() && self.writer == Writer::Aggregator && !is_true_or_false() =>
            {
                Value::String(value)
            }
            yaml::Content::Bool(flag) => Value::Bool(flag),
            yaml::Content::Number(number) => Value::Number(number),
            _ => Value::String(value),
        })
    }

    fn skip_value(&mut self) -> anyhow::Result<()> {
        let event = self.event()?;
        self.value(event, 0).map(drop)
    }

    fn event(&mut self) -> anyhow::Result<EventData> {
        self.source.event()
    }
}

/// The tree uses an anchor or a merge key. Programs do not write them, and their expansion could use unlimited
/// memory; see [`read_expanded`].
#[derive(Debug)]
pub(crate) struct Reference;

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("anchors and merge keys are not read here")
    }
}

impl std::error::Error for Reference {}

fn is_null(word: &str) -> bool {
    matches!(word, "" | "~" | "null" | "Null" | "NULL")
}

/// Passes on a tree with the anchors and merge keys that [`read`] refuses; the text is held in memory and its
/// expansion is bounded.
pub(crate) fn read_expanded(text: &str, visitor: &mut dyn Visit) -> anyhow::Result<()> {
    value_item(&yaml::parse(text)?, visitor, 0)
}

fn value_item(value: &Value, visitor: &mut dyn Visit, depth: usize) -> anyhow::Result<()> {
    anyhow::ensure!(depth < DEPTH, "items are nested deeper than {DEPTH}");
    let none = Map::new();
    let map = match value {
        Value::Object(map) => map,
        Value::Null => &none,
        _ => anyhow::bail!("not a result: an item is not a map"),
    };
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let entries = |key| map.get(key).and_then(Value::as_object).into_iter().flatten();
    let item = Item {
        name: text(map.get("name")),
        status: text(map.get("status")),
        meta: entries("meta").map(|(key, value)| (key.clone(), text(Some(value)))).collect(),
        details: entries("details").map(|(key, value)| (key.clone(), value.clone())).collect(),
        items: Vec::new(),
    };
    match map.get("items").and_then(Value::as_array).filter(|items| !items.is_empty()) {
        None => visitor.leaf(item),
        Some(items) => {
            visitor.enter(item)?;
            items.iter().try_for_each(|item| value_item(item, visitor, depth + 1))?;
            visitor.leave()
        }
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
