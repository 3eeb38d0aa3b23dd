//! Reads a tree of items from YAML, item by item, in constant memory.
//!
//! Strings keep their source text, whatever their meaning in YAML (`name: 123`, `status: yes`);
//! details have their meaning in YAML 1.1. Unknown keys are ignored, and the last of duplicate keys
//! counts.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use libyaml_safer::{EventData, ScalarStyle};
use serde_json::{Map, Value};

use EventData::{
    Alias, DocumentStart, MappingEnd, MappingStart, Scalar, SequenceEnd, SequenceStart, StreamEnd,
};

use super::utf16::Utf16;
use super::{DEPTH, Item, Step};
use base::json::weight;
use yaml::{self, Content};

/// Maximum text of one item.
const ITEM_LIMIT: u64 = 32 << 20;
/// Maximum size of children buffered for fields that may follow them.
const HELD_LIMIT: usize = 512 << 10;

/// The error of a tree that uses an anchor or a merge key. Programs do not write them, and their
/// expansion could use unlimited memory; see [`read_expanded`].
pub const ANCHORS: &str = "anchors and merge keys are not read here";
/// The key that merges other maps.
const MERGE: &str = "<<";

/// Receives a tree.
pub type Visit<'v> = dyn FnMut(Step) -> Result<()> + 'v;

/// The author of a tree, which determines the meaning of its plain scalars.
#[derive(Clone, Copy, PartialEq)]
pub enum Writer {
    /// A plugin: `yes` is a boolean.
    Plugin,
    /// The aggregator, or an editor of its file: `yes` is text, as in the original's output.
    Aggregator,
}

/// Passes the tree in the first document of `input` to `visit`.
pub fn read(input: impl Read, writer: Writer, visit: &mut Visit<'_>) -> Result<()> {
    let bytes_read = Rc::new(Cell::new(0));
    let mut input = io::BufReader::with_capacity(
        32 << 10,
        Metered {
            input,
            bytes_read: bytes_read.clone(),
        },
    );
    let input: Box<dyn BufRead> = match *input.fill_buf()? {
        [first @ (0xff | 0xfe), second, ..] if first ^ second == 1 => {
            input.consume(2);
            Box::new(io::BufReader::new(Utf16::new(input, first == 0xfe)))
        }
        _ => Box::new(input),
    };
    // The parser fails on a block of text that ends without a line feed.
    let mut input = input.chain(&b"\n"[..]);
    let mut reader = Reader {
        source: yaml::Events::new(),
        bytes_read,
        writer,
    };
    reader.source.set_input(&mut input);
    loop {
        match reader.event()? {
            StreamEnd => bail!("EOF"),
            DocumentStart { .. } => break,
            _ => {}
        }
    }
    match reader.event()? {
        MappingStart { .. } => reader.item(visit, 0),
        event if is_null(&event) => visit(Step::Item(Item::default())),
        _ => bail!("not a result: the document is not a map"),
    }
}

/// Counts bytes read by the parser, so that a single item cannot use unlimited memory.
pub struct Metered<R> {
    pub input: R,
    /// Bytes since the reader last set it to 0.
    pub bytes_read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes_read.get() > ITEM_LIMIT {
            return Err(io::Error::other(format!(
                "one item has more than {} MiB of text",
                ITEM_LIMIT >> 20
            )));
        }
        let count = self.input.read(buffer)?;
        self.bytes_read.set(self.bytes_read.get() + count as u64);
        Ok(count)
    }
}

/// Buffers an item's children, since its fields may follow them in hand-written files, until there
/// are too many.
struct Children<'v, 'i> {
    visit: &'v mut Visit<'i>,
    /// The fields of the item so far.
    item: Item,
    held: Vec<Step>,
    held_size: usize,
    released: bool,
}

impl Children<'_, '_> {
    fn take(&mut self, step: Step) -> Result<()> {
        if self.released {
            return (self.visit)(step);
        }
        self.held_size += size_of::<Step>();
        if let Step::Enter(item) | Step::Item(item) = &step {
            self.held_size += item.name.len() + item.details.values().map(weight).sum::<usize>();
        }
        self.held.push(step);
        if self.held_size > HELD_LIMIT {
            self.release()
        } else {
            Ok(())
        }
    }

    fn release(&mut self) -> Result<()> {
        self.released = true;
        (self.visit)(Step::Enter(std::mem::take(&mut self.item)))?;
        std::mem::take(&mut self.held)
            .into_iter()
            .try_for_each(&mut self.visit)
    }

    fn finish(mut self) -> Result<()> {
        if !self.released {
            if self.held.is_empty() {
                return (self.visit)(Step::Item(self.item));
            }
            self.release()?;
        }
        (self.visit)(Step::Leave)
    }
}

struct Reader<'i> {
    source: yaml::Events<'i>,
    bytes_read: Rc<Cell<u64>>,
    writer: Writer,
}

impl Reader<'_> {
    /// The rest of an item whose map has just started.
    fn item(&mut self, visit: &mut Visit<'_>, depth: usize) -> Result<()> {
        ensure!(depth < DEPTH, "items are nested deeper than {DEPTH}");
        let mut all = Children {
            visit,
            item: Item::default(),
            held: Vec::new(),
            held_size: 0,
            released: false,
        };
        loop {
            self.bytes_read.set(0);
            let Some(key) = self.key()? else {
                return all.finish();
            };
            match key.as_str() {
                "name" => all.item.name = self.text("name")?,
                "status" => all.item.status = self.text("status")?,
                "meta" => all.item.meta = self.map("meta", |reader| reader.text("meta"))?,
                "details" => {
                    all.item.details = self.map("details", |reader| {
                        let event = reader.event()?;
                        reader.value(event, 0)
                    })?;
                }
                "items" => {
                    // Another list of children replaces the buffered one.
                    all.held.clear();
                    all.held_size = 0;
                    self.items(&mut |step| all.take(step), depth)?;
                }
                _ => {
                    let event = self.event()?;
                    self.value(event, 0)?;
                }
            }
        }
    }

    fn items(&mut self, visit: &mut Visit<'_>, depth: usize) -> Result<()> {
        match self.event()? {
            SequenceStart { .. } => {}
            event if is_null(&event) => return Ok(()),
            _ => bail!("not a result: `items` is not a list"),
        }
        loop {
            match self.event()? {
                SequenceEnd => return Ok(()),
                MappingStart { .. } => self.item(visit, depth + 1)?,
                event if is_null(&event) => visit(Step::Item(Item::default()))?,
                _ => bail!("not a result: one of `items` is not a map"),
            }
        }
    }

    /// The entries of a map with their values; none if it is null.
    fn map<T>(
        &mut self,
        name: &str,
        mut value: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<BTreeMap<String, T>> {
        let mut map = BTreeMap::new();
        match self.event()? {
            MappingStart { .. } => {}
            event if is_null(&event) => return Ok(map),
            _ => bail!("not a result: `{name}` is not a map"),
        }
        while let Some(key) = self.key()? {
            map.insert(key, value(self)?);
        }
        Ok(map)
    }

    /// The source text of the next key, or `None` at the end of the map.
    fn key(&mut self) -> Result<Option<String>> {
        Ok(match self.event()? {
            MappingEnd => None,
            event if is_null(&event) => Some(String::new()),
            Scalar { value, .. } if value == MERGE => bail!(ANCHORS),
            Scalar { value, .. } => Some(value),
            _ => bail!("not a result: a key is not text"),
        })
    }

    /// A string: the source text of any scalar; empty for null.
    fn text(&mut self, key: &str) -> Result<String> {
        let event = self.event()?;
        Ok(match event {
            event if is_null(&event) => String::new(),
            Scalar {
                value, tag: None, ..
            } => value,
            Scalar {
                value, style, tag, ..
            } => match self.scalar(value.clone(), style, tag.as_deref())? {
                Value::Null => String::new(),
                Value::String(text) => text,
                _ => value,
            },
            _ => bail!("not a result: `{key}` is not text"),
        })
    }

    fn value(&mut self, event: EventData, depth: usize) -> Result<Value> {
        ensure!(depth < DEPTH, "details are nested deeper than {DEPTH}");
        Ok(match event {
            Scalar {
                value, style, tag, ..
            } => self.scalar(value, style, tag.as_deref())?,
            SequenceStart { .. } => {
                let mut list = Vec::new();
                loop {
                    match self.event()? {
                        SequenceEnd => break Value::Array(list),
                        event => list.push(self.value(event, depth + 1)?),
                    }
                }
            }
            MappingStart { .. } => {
                let mut map = Map::new();
                loop {
                    // Keys have their meaning here: `0x1f: x` has the key `31`.
                    let key = match self.event()? {
                        MappingEnd => break Value::Object(map),
                        Scalar { value, .. } if value == MERGE => bail!(ANCHORS),
                        key @ Scalar { .. } => self.value(key, depth)?,
                        _ => bail!("not a result: a key is not text"),
                    };
                    let event = self.event()?;
                    let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                    map.insert(key, self.value(event, depth + 1)?);
                }
            }
            _ => bail!("not a result: the text ends within an item"),
        })
    }

    /// The meaning of a scalar in details.
    fn scalar(&self, value: String, style: ScalarStyle, tag: Option<&str>) -> Result<Value> {
        if tag == Some(yaml::BINARY) {
            // The original's form of text that is not UTF-8.
            let bytes = yaml::binary(&value).context("not a result: `!!binary` is not base64")?;
            return Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        }
        let plain = style == ScalarStyle::Plain;
        let content = match tag {
            Some(_) => {
                let meaning = yaml::meaning(tag, value.clone(), plain);
                Some(meaning.map_err(|reason| anyhow!("not a result: {reason}"))?)
            }
            // Infinity, which JSON cannot express, is text too.
            None => Some(&value)
                .filter(|_| plain)
                .and_then(|word| yaml::resolve(word).ok()),
        };
        let is_written = || {
            ["true", "false"]
                .iter()
                .any(|word| value.eq_ignore_ascii_case(word))
        };
        Ok(match content {
            Some(Content::Null) => Value::Null,
            Some(Content::Bool(flag))
                if tag.is_some() || self.writer == Writer::Plugin || is_written() =>
            {
                Value::Bool(flag)
            }
            Some(Content::Number(number)) => Value::Number(number),
            _ => Value::String(value),
        })
    }

    fn event(&mut self) -> Result<EventData> {
        let event = match yaml::next_event(&mut self.source) {
            Ok(event) => event.map_or(StreamEnd, |event| event.data),
            // The cause has the same text.
            Err(Some(error)) => bail!("{error}"),
            Err(None) => bail!("not a result: it cannot be read as YAML"),
        };
        match &event {
            Alias { .. } => bail!(ANCHORS),
            _ => Ok(event),
        }
    }
}

fn is_null(event: &EventData) -> bool {
    matches!(event, Scalar { value, style: ScalarStyle::Plain, tag: None, .. }
        if matches!(value.as_str(), "" | "~" | "null" | "Null" | "NULL"))
}

/// Passes on a tree with the anchors and merge keys that [`read`] refuses; the text is held in
/// memory and its expansion is bounded.
pub fn read_expanded(text: &str, visit: &mut Visit<'_>) -> Result<()> {
    value_item(&yaml::parse(text)?, visit, 0)
}

/// Passes on a tree in JSON, where escapes and control characters have another meaning than in
/// YAML; false if the text is no JSON.
pub fn read_json(text: &[u8], visit: &mut Visit<'_>) -> Result<bool> {
    match base::json::from_slice(text) {
        Ok(value) => value_item(&value, visit, 0).map(|()| true),
        Err(_) => Ok(false),
    }
}

/// Passes each item without children to `take`, after the items above it: of the first item `name`
/// of a tree of the aggregator and its descendants, or of the whole tree; returns whether there is
/// such an item.
pub fn items(
    tree: impl Read,
    name: Option<&str>,
    mut take: impl FnMut(&[Item], Item) -> Result<()>,
) -> Result<bool> {
    let name = name.filter(|name| !name.is_empty());
    let (mut above, mut done) = (Vec::new(), false);
    read(tree, Writer::Aggregator, &mut |step| {
        let begins = |item: &Item, above: &[Item]| {
            !above.is_empty() || !done && name.is_none_or(|name| name == item.name)
        };
        match step {
            Step::Enter(item) if begins(&item, &above) => above.push(item),
            Step::Leave => done |= above.pop().is_some() && above.is_empty(),
            Step::Item(item) if begins(&item, &above) => {
                done |= above.is_empty();
                take(&above, item)?;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(done || name.is_none())
}

fn value_item(value: &Value, visit: &mut Visit<'_>, depth: usize) -> Result<()> {
    ensure!(depth < DEPTH, "items are nested deeper than {DEPTH}");
    let none = Map::new();
    let map = match value {
        Value::Object(map) => map,
        Value::Null => &none,
        _ => bail!("not a result: an item is not a map"),
    };
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let entries = |key| {
        map.get(key)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
    };
    let item = Item {
        name: text(map.get("name")),
        status: text(map.get("status")),
        meta: entries("meta")
            .map(|(key, value)| (key.clone(), text(Some(value))))
            .collect(),
        details: entries("details")
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        items: Vec::new(),
    };
    match map
        .get("items")
        .and_then(Value::as_array)
        .filter(|items| !items.is_empty())
    {
        None => visit(Step::Item(item)),
        Some(items) => {
            visit(Step::Enter(item))?;
            items
                .iter()
                .try_for_each(|item| value_item(item, visit, depth + 1))?;
            visit(Step::Leave)
        }
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
