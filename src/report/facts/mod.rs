//! Facts of nodes, a row each: common values and exceptions.
//!
//! Reads the files of the built-in plugins: host facts in the form of Ansible's setup module, connectivity, log
//! counts. `columns` defines the tables, `keys` compares everything else, `show` writes. An unreadable file is a row
//! that says so. Values that differ by nature are shown and never marked.

mod columns;
mod keys;
mod show;

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use serde::de::DeserializeSeed as _;
use serde_json::Value;

use super::source::Source;
use crate::layout::{self, Delivered};
use base::json::{Saved, json};
use columns::{Baseline, Cell, Column, KINDS, Kind};
pub(crate) use keys::Difference;
use keys::Keys;
pub(crate) use show::named;

/// Maximum size of a file; 100 KiB is usual.
const LIMIT: u64 = 8 << 20;
/// Multiple of the median from which a number is odd.
const ODD_FACTOR: f64 = 5.0;

/// The facts of an archive, a table for each kind.
#[derive(Default)]
pub(crate) struct Facts {
    tables: BTreeMap<usize, Table>,
    /// Whether all facts are compared, not only those in tables.
    whole: bool,
    /// Facts from the snapshot about the programs of each node.
    known: BTreeMap<String, Value>,
}

/// The facts of one kind.
pub(crate) struct Table {
    kind: &'static Kind,
    /// The values of each row, by node.
    rows: BTreeMap<String, Vec<Cell>>,
    keys: Keys,
}

/// A value of few nodes.
pub(crate) struct Odd<'f> {
    column: &'static Column,
    value: &'f str,
    /// The nodes with this value.
    pub nodes: Vec<&'f str>,
}

/// The distribution of a column's numbers.
#[derive(Clone, Copy)]
pub(crate) struct Spread<'f> {
    column: &'static Column,
    median: f64,
    /// The number farthest from zero, formatted, and its node.
    highest: (&'f str, &'f str),
}

impl Facts {
    /// Creates an empty set; `whole` compares all facts.
    pub(crate) fn new(whole: bool) -> Self {
        Self { whole, ..Self::default() }
    }

    /// Reads the facts of an archive, optionally of one plugin.
    pub(crate) fn read(archive: &str, plugin: Option<&str>, whole: bool) -> anyhow::Result<Self> {
        let mut facts = Self::new(whole);
        Source::open(archive)?.each(|name, _, content| match layout::delivered(name) {
            Some(found) if plugin.is_none_or(|plugin| plugin == found.plugin) => facts.see(found, content),
            Some(_) => Ok(()),
            None => {
                facts.see_cluster(name, content);
                Ok(())
            }
        })?;
        facts.complete();
        Ok(facts)
    }

    /// Adds the nodes of the snapshot; damaged files are ignored.
    pub(crate) fn see_cluster(&mut self, name: &str, content: &mut dyn Read) {
        if layout::resource_file(name) != Some(("", "core_v1_nodes.json")) {
            return;
        }
        let mut keep = |mut node: Value| {
            if let Some(name) = node["metadata"]["name"].as_str() {
                self.known.insert(name.to_owned(), node["status"]["nodeInfo"].take());
            }
            true
        };
        let mut input = serde_json::Deserializer::from_reader(BufReader::new(content));
        if let Err(error) = Saved(&mut keep).deserialize(&mut input) {
            log::debug!("the nodes of the snapshot cannot be read: {error}");
        }
    }

    /// Fills in values from the snapshot that gatherers lack, since their pods have no account to query the cluster.
    pub(crate) fn complete(&mut self) {
        let Some(hosts) = self.tables.get_mut(&0) else { return };
        for (node, row) in &mut hosts.rows {
            let Some(info) = self.known.remove(node) else { continue };
            let told = json!({ "sonobuoy_node_info": info });
            for (cell, column) in
                row.iter_mut().zip(hosts.kind.columns).filter(|(cell, _)| cell.text.is_empty())
            {
                *cell = column.cell(&told);
            }
        }
    }

    /// Adds a file of a plugin, if it holds facts.
    pub(crate) fn see(&mut self, found: Delivered<'_>, content: &mut dyn Read) -> anyhow::Result<()> {
        let Some(kind) = kind(found) else { return Ok(()) };
        let mut bytes = Vec::new();
        content.take(LIMIT).read_to_end(&mut bytes)?;
        self.add(kind, found.node, &(KINDS[kind].read)(&bytes));
        Ok(())
    }

    /// Adds facts gathered on a node, as if from a file of this name.
    #[allow(dead_code, reason = "only `gather` calls it, which is not there on every system")]
    pub(crate) fn add_file(&mut self, node: &str, file: &str, content: &[u8]) {
        if let Some(kind) = KINDS.iter().position(|kind| kind.file == file) {
            self.add(kind, node, &(KINDS[kind].read)(content));
        }
    }

    fn add(&mut self, kind: usize, node: &str, facts: &Value) {
        let table = self.tables.entry(kind).or_insert_with(|| Table::new(&KINDS[kind]));
        table
            .rows
            .insert(node.to_owned(), table.kind.columns.iter().map(|column| column.cell(facts)).collect());
        if self.whole {
            table.keys.add(node, facts);
        }
    }

    /// The tables in order of kind.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// The changes, node by node: `n1: kernel 5.4.0 -> 6.1.0`.
    pub(crate) fn changes(&self, after: &Self) -> Vec<String> {
        let both = self.tables.iter().filter_map(|(kind, table)| Some((table, after.tables.get(kind)?)));
        both.flat_map(|(was, is)| was.changes(is)).collect()
    }
}

/// The kind of facts in a file.
fn kind(found: Delivered<'_>) -> Option<usize> {
    let name = found.file.rsplit('/').next();
    KINDS.iter().position(|kind| found.is_result && name == Some(kind.file))
}

impl Table {
    fn new(kind: &'static Kind) -> Self {
        Self { kind, rows: BTreeMap::new(), keys: Keys::default() }
    }

    /// The plugin that gathers them.
    pub(crate) fn plugin(&self) -> &'static str {
        self.kind.plugin
    }

    /// The title of the table.
    pub(crate) fn title(&self) -> &'static str {
        self.kind.title
    }

    /// The column titles.
    pub(crate) fn titles(&self) -> impl Iterator<Item = &'static str> {
        self.kind.columns.iter().map(|column| column.title)
    }

    /// Each node with its values and whether each is odd; unknown values are empty.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, Vec<(&str, bool)>)> {
        let marks: Vec<_> = (0..self.kind.columns.len()).map(|at| self.mark(at)).collect();
        self.rows.iter().map(move |(node, row)| {
            let cells = row.iter().zip(&marks).map(|(cell, mark)| (cell.text.as_str(), mark.is_odd(cell)));
            (node.as_str(), cells.collect())
        })
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn mark(&self, at: usize) -> Mark<'_> {
        match self.kind.columns[at].baseline {
            Baseline::Nothing => Mark::Nothing,
            Baseline::Majority => self.majority(at).map_or(Mark::Nothing, Mark::Other),
            Baseline::Median { floor } => Mark::Beyond(
                self.median(at).map_or(f64::INFINITY, |median| floor.max(median.abs() * ODD_FACTOR)),
            ),
        }
    }

    /// The value of a column on more than half of the nodes.
    fn majority(&self, at: usize) -> Option<&str> {
        let mut counts = BTreeMap::<&str, usize>::new();
        for row in self.rows.values() {
            *counts.entry(&row[at].text).or_default() += 1;
        }
        let (value, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        (most * 2 > self.rows.len()).then_some(value)
    }

    fn median(&self, at: usize) -> Option<f64> {
        let mut numbers: Vec<f64> = self.rows.values().filter_map(|row| row[at].number).collect();
        numbers.sort_unstable_by(f64::total_cmp);
        let middle = *numbers.get(numbers.len() / 2)?;
        let below = if numbers.len().is_multiple_of(2) { numbers[numbers.len() / 2 - 1] } else { middle };
        Some(f64::midpoint(below, middle))
    }

    /// The values that deviate from most nodes; deviating numbers of a column are one entry.
    pub(crate) fn odd(&self) -> Vec<Odd<'_>> {
        let mut odd = Vec::new();
        for (at, column) in self.kind.columns.iter().enumerate() {
            let mark = self.mark(at);
            let mut of = BTreeMap::<&str, Vec<&str>>::new();
            for (node, row) in self.rows.iter().filter(|(_, row)| mark.is_odd(&row[at])) {
                let is_measured = matches!(column.baseline, Baseline::Median { .. });
                let value = if is_measured { "" } else { row[at].text.as_str() };
                of.entry(value).or_default().push(node);
            }
            odd.extend(of.into_iter().map(|(value, nodes)| Odd { column, value, nodes }));
        }
        odd
    }

    /// The distribution of numbers, by column.
    pub(crate) fn spread(&self) -> Vec<Spread<'_>> {
        let columns = self.kind.columns.iter().enumerate();
        let numbers = columns.filter(|(_, column)| matches!(column.baseline, Baseline::Median { .. }));
        numbers
            .filter_map(|(at, column)| {
                let far = |cell: &Cell| cell.number.map(f64::abs);
                let (node, row) = self.rows.iter().filter(|(_, row)| row[at].number.is_some()).max_by(
                    |(_, a), (_, b)| far(&a[at]).unwrap_or(0.0).total_cmp(&far(&b[at]).unwrap_or(0.0)),
                )?;
                Some(Spread { column, median: self.median(at)?, highest: (&row[at].text, node) })
            })
            .collect()
    }

    /// Other differences, those of few nodes first; only if all facts were compared.
    pub(crate) fn differences(&self) -> Vec<Difference<'_>> {
        self.keys.differences()
    }

    /// Keys that differ by nature and were not compared.
    pub(crate) fn volatile(&self) -> impl Iterator<Item = &str> {
        self.keys.volatile()
    }

    fn changes(&self, after: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (node, row) in &self.rows {
            let Some(now) = after.rows.get(node) else { continue };
            for ((column, was), is) in self.kind.columns.iter().zip(row).zip(now) {
                if matches!(column.baseline, Baseline::Majority) && was.text != is.text {
                    let word =
                        |text: &str| if text.is_empty() { column.none.to_owned() } else { text.to_owned() };
                    let name = column.title.to_lowercase();
                    changes.push(format!("{node}: {name} {} -> {}", word(&was.text), word(&is.text)));
                }
            }
        }
        changes
    }
}

/// The rule that marks odd values of a column.
enum Mark<'t> {
    /// No value is odd.
    Nothing,
    /// Any other value is odd.
    Other(&'t str),
    /// Values farther from zero are odd.
    Beyond(f64),
}

impl Mark<'_> {
    fn is_odd(&self, cell: &Cell) -> bool {
        match self {
            Self::Nothing => false,
            Self::Other(usual) => cell.text != *usual,
            Self::Beyond(limit) => cell.number.is_some_and(|number| number.abs() > *limit),
        }
    }
}

#[cfg(test)]
mod tests;
