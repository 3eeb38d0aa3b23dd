//! Selects the part of a tree to show: all of it, or the first item of a name and its descendants.

use std::io::{Read, Seek};

use crate::item::Item;
use crate::item::read::{self, Visit, Writer};

/// An item requested by name that is not in a tree.
#[derive(Debug)]
pub(super) struct NoSuchItem(String);

impl std::fmt::Display for NoSuchItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node named {:?} not found", self.0)
    }
}

impl std::error::Error for NoSuchItem {}

/// Passes on the first item of a name and its descendants, or everything.
pub(crate) struct Select<'a, V> {
    name: Option<&'a str>,
    depth: u32,
    done: bool,
    /// The receiver.
    pub inner: V,
}

impl<'a, V: Visit> Select<'a, V> {
    /// Selects the item `name`.
    pub(crate) fn new(name: Option<&'a str>, inner: V) -> Self {
        Self { name: name.filter(|name| !name.is_empty()), depth: 0, done: false, inner }
    }

    /// Reads a tree; fails if the item is missing.
    pub(crate) fn run(&mut self, input: impl Read + Seek) -> anyhow::Result<()> {
        read::read(input, Writer::Aggregator, self)?;
        match self.name {
            Some(name) if !self.done => Err(NoSuchItem(name.to_owned()).into()),
            _ => Ok(()),
        }
    }

    fn begins(&self, item: &Item) -> bool {
        self.depth > 0 || !self.done && self.name.is_none_or(|name| name == item.name)
    }
}

impl<V: Visit> Visit for Select<'_, V> {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        if !self.begins(&item) {
            return Ok(());
        }
        self.depth += 1;
        self.inner.enter(item)
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        if self.depth == 0 {
            return Ok(());
        }
        self.depth -= 1;
        self.done = self.depth == 0;
        self.inner.leave()
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        if !self.begins(&item) {
            return Ok(());
        }
        self.done |= self.depth == 0;
        self.inner.leaf(item)
    }
}
