//! Selects the part of a tree to show: all of it, or the first item of a name and its descendants.

use std::io::Read;

use crate::item::Item;
use crate::item::read::{Step, Visit, Writer, read};

/// An item requested by name that is not in a tree.
#[derive(Debug)]
pub(super) struct NoSuchItem(String);

impl std::fmt::Display for NoSuchItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node named {:?} not found", self.0)
    }
}

impl std::error::Error for NoSuchItem {}

/// Passes on the first item `name` of a tree and its descendants, or everything; fails if the item is missing.
pub(super) fn select(tree: impl Read, name: Option<&str>, visit: &mut Visit<'_>) -> anyhow::Result<()> {
    let name = name.filter(|name| !name.is_empty());
    let (mut depth, mut done) = (0_u32, false);
    read(tree, Writer::Aggregator, &mut |step| {
        let begins = |item: &Item| depth > 0 || !done && name.is_none_or(|name| name == item.name);
        match &step {
            Step::Enter(item) if begins(item) => depth += 1,
            Step::Item(item) if begins(item) => done |= depth == 0,
            Step::Leave if depth > 0 => {
                depth -= 1;
                done = depth == 0;
            }
            _ => return Ok(()),
        }
        visit(step)
    })?;
    match name {
        Some(name) if !done => Err(NoSuchItem(name.to_owned()).into()),
        _ => Ok(()),
    }
}
