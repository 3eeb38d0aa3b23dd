//! Contents of files that a report takes from an archive: in memory, or in an unlinked file once
//! they are large.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Take, Write};

use anyhow::{Context as _, Result, ensure};
use serde::de::{DeserializeOwned, DeserializeSeed as _};
use serde_json::Value;

use base::json::{self, Bounded, Page};
use base::{sys, temp};
use model::layout::{CONFIG, INFO, SERVER_VERSION, WHY};

/// Maximum bytes in memory; the results of 20,000 tests are 5 MiB.
const MEMORY: u64 = 8 << 20;

/// Maximum size of a file read as a whole: lists that grow with the cluster, the log, definitions.
const MAX_HELD_BYTES: u64 = 16 << 20;
/// Maximum size of a file that describes the whole run.
const MAX_SMALL_BYTES: u64 = 1 << 20;
const SMALL: [&str; 4] = [SERVER_VERSION, INFO, CONFIG, WHY];

/// Maximum size of a document in memory: a small text can become a large tree.
const MAX_TREE_BYTES: usize = 24 << 20;

/// Named contents, stored consecutively.
#[derive(Default)]
pub struct ExtractedFiles {
    memory: Vec<u8>,
    /// The contents once they exceed memory; an unlinked file.
    file: Option<File>,
    end: u64,
    /// Offset and length of each content.
    ranges: BTreeMap<String, (u64, u64)>,
}

impl ExtractedFiles {
    /// Adds a content under `name`; the first of a name is kept.
    pub fn add(&mut self, name: &str, mut content: impl Read) -> Result<()> {
        if self.has(name) {
            return Ok(());
        }
        let start = self.end;
        let mut buffer = vec![0; 64 << 10];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self
                    .write(&buffer[..count])
                    .context("cannot write a temporary file; `TMPDIR` names its folder")?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.ranges
            .insert(name.to_owned(), (start, self.end - start));
        Ok(())
    }

    /// Whether a content of that name exists.
    pub fn has(&self, name: &str) -> bool {
        self.ranges.contains_key(name)
    }

    /// Opens a content at its start.
    pub fn open(&self, name: &str) -> Option<ContentReader<'_>> {
        let (at, length) = *self.ranges.get(name)?;
        Some(OffsetReader { files: self, at }.take(length))
    }

    /// The bytes of a small file.
    pub fn small(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(mut content) = self.open(name) else {
            return Ok(None);
        };
        let limit = if SMALL.contains(&name) {
            MAX_SMALL_BYTES
        } else {
            MAX_HELD_BYTES
        };
        ensure!(
            content.limit() <= limit,
            "`{name}` is larger than {} MiB",
            limit >> 20
        );
        let mut bytes = Vec::with_capacity(usize::try_from(content.limit())?);
        content
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot read `{name}`"))?;
        Ok(Some(bytes))
    }

    /// A small JSON file; the default if it is missing or broken.
    pub fn json<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T> {
        let tree = self.small(name)?.and_then(|text| tree(&text).ok());
        Ok(tree
            .and_then(|tree| serde_json::from_value(tree).ok())
            .unwrap_or_default())
    }

    /// A JSON document; `None` if it is missing.
    pub fn document(&self, name: &str) -> Result<Option<Value>> {
        self.small(name)?
            .map(|text| tree(&text).with_context(|| format!("`{name}`")))
            .transpose()
    }

    /// A list that grows with the cluster; empty if it is missing, broken or too long.
    pub fn list<T: DeserializeOwned>(&self, name: &str) -> Vec<T> {
        let text = self.small(name).ok().flatten().unwrap_or_default();
        json::entries(&mut serde_json::Deserializer::from_slice(&text)).unwrap_or_default()
    }

    /// The names of the folders in `folder`.
    pub fn folders(&self, folder: &str) -> BTreeSet<String> {
        let below = |name: &String| {
            let (first, _) = name
                .strip_prefix(folder)?
                .strip_prefix('/')?
                .split_once('/')?;
            Some(first.to_owned())
        };
        self.ranges.keys().filter_map(below).collect()
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let end = self.end + data.len() as u64;
        if self.file.is_none() && end > MEMORY {
            let mut file = temp::file(temp::dir())?;
            file.write_all(&std::mem::take(&mut self.memory))?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(data)?,
            None => self.memory.extend_from_slice(data),
        }
        self.end = end;
        Ok(())
    }
}

fn tree(text: &[u8]) -> serde_json::Result<Value> {
    Bounded(&mut { MAX_TREE_BYTES }).deserialize(&mut serde_json::Deserializer::from_slice(text))
}

/// A reader of one content.
pub(super) type ContentReader<'s> = Take<OffsetReader<'s>>;

/// A reader of all contents from some offset on.
pub struct OffsetReader<'s> {
    files: &'s ExtractedFiles,
    at: u64,
}

impl Read for OffsetReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &self.files.file {
            Some(file) => sys::read_at(file, buffer, self.at)?,
            None => (&self.files.memory[usize::try_from(self.at).unwrap_or(usize::MAX)..])
                .read(buffer)?,
        };
        self.at += count as u64;
        Ok(count)
    }
}

/// Passes each object of a list to `take`, until it returns false.
pub(crate) fn objects(
    content: &mut dyn Read,
    mut take: impl FnMut(Value) -> bool,
) -> serde_json::Result<()> {
    let content = BufReader::with_capacity(64 << 10, content);
    Page(&mut take)
        .deserialize(&mut serde_json::Deserializer::from_reader(content))
        .map(drop)
}
