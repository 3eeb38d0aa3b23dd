//! Writes `sonobuoy_results.yaml` as its items become known, in constant memory.
//!
//! The status of a group precedes its children in the file but depends on them, and on whether any
//! item of the whole tree has a custom status. So the text goes to a temporary file with *holes*,
//! which are filled when it is copied to the final file. A hole costs some bytes of memory, an item
//! none.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{DEPTH, ERROR, Item, Step, UNKNOWN, is_known};
use crate::verdict::{GroupEnd, Tally, status_with_error};
use base::at::At as _;
use base::temp::NewFile;
use base::visible::head;

/// Longer texts are written escaped on one line, piece by piece, instead of as a readable block.
const BLOCK_LIMIT: usize = 64 << 10;
/// Maximum memory of holes and their texts; a group has up to two.
const MAX_HELD_BYTES: usize = 64 << 20;

/// An offset in the text, and what is inserted there: in a tree without custom statuses, and in one
/// with them.
type Hole = (u64, [String; 2]);

/// A tree being written, depth first.
pub struct Tree {
    out: BufWriter<File>,
    path: PathBuf,
    written: u64,
    /// Maximum size of the file.
    limit: u64,
    holes: Vec<Hole>,
    held: usize,
    open: Vec<OpenGroup>,
}

#[derive(Clone)]
struct OpenGroup {
    tally: Tally,
    status_hole: usize,
    late_hole: Option<usize>,
    own_status: String,
}

/// A place to return to.
pub struct Mark {
    written: u64,
    holes: usize,
    open: Vec<OpenGroup>,
}

impl Tree {
    /// Starts in a temporary file next to `path`.
    pub fn create(path: &Path) -> Result<Self> {
        let path = path.with_extension("yaml.part");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .at("cannot write", &path)?;
        let out = BufWriter::with_capacity(64 << 10, file);
        Ok(Self {
            out,
            path,
            written: 0,
            limit: u64::MAX,
            holes: Vec::new(),
            held: 0,
            open: Vec::new(),
        })
    }

    /// Copies a step of another tree; an item that remains without children keeps its status.
    pub fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Enter(item) => self.enter(&item, &item.status),
            Step::Leave => {
                self.leave(None, false);
                Ok(())
            }
            Step::Item(item) => self.item(&item),
        }
    }

    /// Opens a group inside the open one. `own_status` counts only if it remains without children.
    pub fn enter(&mut self, item: &Item, own_status: &str) -> Result<()> {
        ensure!(
            self.open.len() <= DEPTH,
            "items are nested deeper than {DEPTH}"
        );
        ensure!(self.held <= MAX_HELD_BYTES, "there are too many groups");
        self.begin(&item.name)?;
        let indent = self.open.len() * 2;
        self.write(&format!("{:indent$}status: ", ""))?;
        let status_hole = self.hole();
        self.write("\n")?;
        self.map(
            "meta",
            &item.meta,
            |text| Cow::Owned(text.as_str().into()),
            indent,
        )?;
        // A reason may be added to the other metadata when the group is left.
        let late_hole = (!item.meta.is_empty()).then(|| self.hole());
        self.map("details", &item.details, Cow::Borrowed, indent)?;
        let own_status = own_status.to_owned();
        let mut tally = Tally::default();
        if item.meta.contains_key(ERROR) {
            tally.fail_reading();
        }
        self.open.push(OpenGroup {
            tally,
            status_hole,
            late_hole,
            own_status,
        });
        Ok(())
    }

    /// Adds an item without children to the open group.
    pub fn item(&mut self, item: &Item) -> Result<()> {
        self.begin(&item.name)?;
        let indent = self.open.len() * 2;
        let status = match item.meta.contains_key(ERROR) {
            true => status_with_error(&item.status),
            false if item.status.is_empty() => UNKNOWN,
            false => &item.status,
        };
        self.write(&format!(
            "{:indent$}status: {}\n",
            "",
            yaml::key_text(status)
        ))?;
        self.map(
            "meta",
            &item.meta,
            |text| Cow::Owned(text.as_str().into()),
            indent,
        )?;
        self.map("details", &item.details, Cow::Borrowed, indent)?;
        if let Some(group) = self.open.last_mut() {
            group.tally.item(status);
        }
        Ok(())
    }

    /// Closes the open group; `error` says why it is incomplete, `may_skip` that it counts as
    /// skipped if all items in it do. Returns what was counted below it, and its status in a
    /// tree without custom statuses and in one with them.
    pub fn leave(&mut self, error: Option<&str>, may_skip: bool) -> (Tally, [String; 2]) {
        let Some(mut group) = self.open.pop() else {
            return Default::default();
        };
        let indent = self.open.len() * 2 + 2;
        if let (Some(hole), Some(error)) = (group.late_hole, error) {
            let text = format!("{:indent$}error: {}\n", "", yaml::key_text(error));
            self.fill(hole, [text.clone(), text]);
        }
        if error.is_some() {
            group.tally.fail_reading();
        }
        let end = GroupEnd {
            own_status: &group.own_status,
            may_skip,
            is_root: self.open.is_empty(),
        };
        let statuses = [false, true].map(|custom| group.tally.status_of(&end, custom));
        self.fill(
            group.status_hole,
            statuses.each_ref().map(|status| {
                if is_known(status) {
                    status.clone()
                } else {
                    yaml::key_text(status)
                }
            }),
        );
        if let Some(parent) = self.open.last_mut() {
            match group.tally.children() {
                0 => parent.tally.item(&statuses[0]),
                _ => parent.tally.group(&group.tally),
            }
        }
        (group.tally, statuses)
    }

    /// The items of the open group so far, by status.
    pub fn counted(&self) -> BTreeMap<String, u64> {
        self.open
            .last()
            .map(|group| group.tally.counts().clone())
            .unwrap_or_default()
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Makes writing beyond `limit` an error.
    pub fn limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The place to which [`Tree::back`] returns.
    pub fn mark(&self) -> Mark {
        Mark {
            written: self.written,
            holes: self.holes.len(),
            open: self.open.clone(),
        }
    }

    /// Discards everything since `mark`.
    pub fn back(&mut self, mark: Mark) -> Result<()> {
        self.out.flush()?;
        self.out.get_ref().set_len(mark.written)?;
        self.out.seek(SeekFrom::Start(mark.written))?;
        self.written = mark.written;
        let dropped = self.holes.split_off(mark.holes);
        self.held -= dropped.iter().map(held).sum::<usize>();
        self.open = mark.open;
        Ok(())
    }

    /// Leaves the root, combines text and holes in `path`, and returns what was counted.
    pub fn finish(mut self, path: &Path) -> Result<Tally> {
        let (tally, _) = self.leave(None, false);
        let result = self.assemble(path, usize::from(tally.has_custom()));
        let _ = fs::remove_file(&self.path);
        result.at("cannot write", path).map(|()| tally)
    }

    fn assemble(&mut self, path: &Path, form: usize) -> io::Result<()> {
        self.out.flush()?;
        self.out.seek(SeekFrom::Start(0))?;
        let mut text = BufReader::with_capacity(64 << 10, self.out.get_ref());
        let mut out = BufWriter::with_capacity(64 << 10, NewFile::create(path, 0o666)?);
        let mut place = 0;
        for (next, inserted) in &self.holes {
            copy(&mut text, &mut out, next - place)?;
            place = *next;
            out.write_all(inserted[form].as_bytes())?;
        }
        io::copy(&mut text, &mut out)?;
        out.into_inner()?.commit(true)
    }

    /// Writes the first line of an item, with `items:` before the first child.
    fn begin(&mut self, name: &str) -> Result<()> {
        let name = yaml::key_text(name);
        let Some(group) = self.open.last() else {
            return self.write(&format!("name: {name}\n"));
        };
        let indent = (self.open.len() - 1) * 2;
        let first = group.tally.children() == 0;
        // Groups are counted when they are left: if the first child is a group, its line is still
        // missing, too.
        if first {
            self.write(&format!("{:indent$}items:\n", ""))?;
        }
        self.write(&format!("{:indent$}- name: {name}\n", ""))
    }

    fn map<'v, V>(
        &mut self,
        name: &str,
        entries: &'v BTreeMap<String, V>,
        value: fn(&'v V) -> Cow<'v, Value>,
        indent: usize,
    ) -> Result<()> {
        if !entries.is_empty() {
            self.write(&format!("{:indent$}{name}:\n", ""))?;
        }
        entries
            .iter()
            .try_for_each(|(key, entry)| self.entry(key, value(entry), indent + 2))
    }

    fn entry(&mut self, key: &str, value: Cow<'_, Value>, indent: usize) -> Result<()> {
        if let Value::String(text) = &*value
            && text.len() > BLOCK_LIMIT
        {
            self.write(&format!("{:indent$}{}: \"", "", yaml::key_text(key)))?;
            pieces(text).try_for_each(|piece| self.write(&yaml::escaped(piece)))?;
            return self.write("\"\n");
        }
        for line in
            yaml::write(&Value::from_iter([(key, value.into_owned())])).split_inclusive('\n')
        {
            // Empty lines in blocks are not indented.
            let indent = if line == "\n" { 0 } else { indent };
            self.write(&format!("{:indent$}{line}", ""))?;
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.written += text.len() as u64;
        ensure!(self.written <= self.limit, "its node has too many results");
        Ok(())
    }

    fn hole(&mut self) -> usize {
        self.holes.push((self.written, Default::default()));
        self.held += self.holes.last().map_or(0, held);
        self.holes.len() - 1
    }

    fn fill(&mut self, hole: usize, texts: [String; 2]) {
        self.held -= held(&self.holes[hole]);
        self.holes[hole].1 = texts;
        self.held += held(&self.holes[hole]);
    }
}

/// Memory of a hole.
fn held(hole: &Hole) -> usize {
    size_of::<Hole>() + hole.1.iter().map(String::len).sum::<usize>()
}

/// Copies through the buffers on both sides. `io::copy` would bypass them and make a system call
/// for the few bytes between two holes.
fn copy(from: &mut impl BufRead, to: &mut dyn Write, mut count: u64) -> io::Result<()> {
    while count > 0 {
        let buffer = from.fill_buf()?;
        let length = buffer
            .len()
            .min(usize::try_from(count).unwrap_or(usize::MAX));
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&buffer[..length])?;
        from.consume(length);
        count -= length as u64;
    }
    Ok(())
}

/// `text` in pieces of a few kilobytes that end between characters.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let piece = head(text, 16 << 10);
        text = &text[piece.len()..];
        (!piece.is_empty()).then_some(piece)
    })
}
