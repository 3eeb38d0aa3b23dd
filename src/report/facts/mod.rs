//! Facts of nodes, a row each: common values and exceptions.
//!
//! Reads the files of the built-in plugins: host facts in the form of Ansible's setup module, connectivity, log
//! counts. `columns` defines the tables, `value_counts` compares everything else, `show` writes. An unreadable file is
//! a row that says so. Values that differ by nature are shown and never marked.

mod columns;
mod show;
mod value_counts;

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;

use super::source::{Next, Source, objects};
use crate::layout::{self, Delivered};
use base::json::json;
use columns::{Baseline, Cell, Column, KINDS, Kind};
pub(crate) use show::{named, title_case};
use value_counts::ValueCounts;

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
    all: ValueCounts,
}

/// A value of few nodes.
pub(crate) struct Odd<'f> {
    column: &'static Column,
    value: &'f str,
    /// The nodes with this value.
    pub nodes: Vec<&'f str>,
}

/// The distribution of a column's numbers.
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
        Source::open(archive)?.extract(|_, name, _, content| {
            match layout::delivered(name) {
                Some(found) if plugin.is_none_or(|plugin| plugin == found.plugin) => {
                    facts.see(found, content)?;
                }
                Some(_) => {}
                None => facts.see_cluster(name, content),
            }
            Ok(Next::Skip)
        })?;
        facts.complete();
        Ok(facts)
    }

    /// Adds the nodes of the snapshot; damaged files are ignored.
    pub(crate) fn see_cluster(&mut self, name: &str, content: &mut dyn Read) {
        if layout::resource_file(name) != Some(("", "core_v1_nodes.json")) {
            return;
        }
        let read = objects(content, |mut node| {
            if let Some(name) = node["metadata"]["name"].as_str() {
                self.known.insert(name.to_owned(), node["status"]["nodeInfo"].take());
            }
            true
        });
        read.unwrap_or_else(|error| log::debug!("the nodes of the snapshot cannot be read: {error}"));
    }

    /// Fills in values from the snapshot that gatherers lack, since their pods have no account to query the cluster.
    pub(crate) fn complete(&mut self) {
        let Some(hosts) = self.tables.get_mut(&0) else { return };
        for (node, row) in &mut hosts.rows {
            let told = json!({ "sonobuoy_node_info": self.known.remove(node) });
            for (cell, column) in row.iter_mut().zip(hosts.kind.columns) {
                if cell.text.is_empty() {
                    *cell = column.cell(&told);
                }
            }
        }
    }

    /// Adds a file of a plugin, if it holds facts.
    pub(crate) fn see(&mut self, found: Delivered<'_>, content: &mut dyn Read) -> anyhow::Result<()> {
        let file = found.file.rsplit('/').next().filter(|_| found.is_result).unwrap_or_default();
        if KINDS.iter().any(|kind| kind.file == file) {
            let mut bytes = Vec::new();
            content.take(LIMIT).read_to_end(&mut bytes)?;
            self.add_file(found.node, file, &bytes);
        }
        Ok(())
    }

    /// Adds facts gathered on a node, as if from a file of this name.
    pub(crate) fn add_file(&mut self, node: &str, file: &str, content: &[u8]) {
        let Some(at) = KINDS.iter().position(|kind| kind.file == file) else { return };
        let kind = &KINDS[at];
        let facts = (kind.read)(content);
        let new = || Table { kind, rows: BTreeMap::new(), all: ValueCounts::default() };
        let table = self.tables.entry(at).or_insert_with(new);
        table.rows.insert(node.to_owned(), kind.columns.iter().map(|column| column.cell(&facts)).collect());
        if self.whole {
            table.all.add(node, &facts);
        }
    }

    /// The tables in order of kind.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// The changes, node by node: `n1: kernel 5.4.0 -> 6.1.0`.
    pub(crate) fn changes(&self, after: &Self) -> Vec<String> {
        let both = self.tables.iter().filter_map(|(kind, table)| Some((table, after.tables.get(kind)?)));
        let rows = both.flat_map(|(was, is)| {
            was.rows.iter().filter_map(|(node, row)| Some((node, was.kind.columns, row, is.rows.get(node)?)))
        });
        let cells = rows.flat_map(|(node, columns, was, is)| {
            let cells = columns.iter().zip(was.iter().zip(is));
            cells.map(move |(column, (was, is))| (node, column, &*was.text, &*is.text))
        });
        let changed =
            cells.filter(|(_, column, was, is)| matches!(column.baseline, Baseline::Majority) && was != is);
        let changes = changed.map(|(node, column, was, is)| {
            let [was, is] = [was, is].map(|text| if text.is_empty() { column.none } else { text });
            format!("{node}: {} {was} -> {is}", column.title.to_lowercase())
        });
        changes.collect()
    }
}

impl Table {
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
        let rules: Vec<_> = (0..self.kind.columns.len()).map(|at| self.rule(at)).collect();
        self.rows.iter().map(move |(node, row)| {
            let cells = row.iter().zip(&rules).map(|(cell, is_odd)| (cell.text.as_str(), is_odd(cell)));
            (node.as_str(), cells.collect())
        })
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rule that marks odd values of a column.
    fn rule(&self, at: usize) -> Box<dyn Fn(&Cell) -> bool + '_> {
        match self.kind.columns[at].baseline {
            Baseline::Nothing => Box::new(|_| false),
            Baseline::Majority => {
                let usual = self.majority(at);
                Box::new(move |cell| usual.is_some_and(|usual| cell.text != usual))
            }
            Baseline::Median { floor } => {
                let limit = self.median(at).map(|median| floor.max(median.abs() * ODD_FACTOR));
                Box::new(move |cell| {
                    cell.number.zip(limit).is_some_and(|(number, limit)| number.abs() > limit)
                })
            }
        }
    }

    /// The value of a column on more than half of the nodes.
    fn majority(&self, at: usize) -> Option<&str> {
        let mut counts = BTreeMap::<&str, usize>::new();
        for row in self.rows.values() {
            *counts.entry(&row[at].text).or_default() += 1;
        }
        let (value, _) = counts.into_iter().find(|(_, count)| count * 2 > self.rows.len())?;
        Some(value)
    }

    fn median(&self, at: usize) -> Option<f64> {
        let mut numbers: Vec<f64> = self.rows.values().filter_map(|row| row[at].number).collect();
        numbers.sort_unstable_by(f64::total_cmp);
        let last = numbers.len().checked_sub(1)?;
        Some(f64::midpoint(numbers[last / 2], numbers[last.div_ceil(2)]))
    }

    /// The values that deviate from most nodes; deviating numbers of a column are one entry.
    pub(crate) fn odd(&self) -> Vec<Odd<'_>> {
        let mut odd = Vec::new();
        for (at, column) in self.kind.columns.iter().enumerate() {
            let is_odd = self.rule(at);
            let mut of = BTreeMap::<&str, Vec<&str>>::new();
            for (node, row) in self.rows.iter().filter(|(_, row)| is_odd(&row[at])) {
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
        let spread = numbers.filter_map(|(at, column)| {
            let known =
                self.rows.iter().filter_map(|(node, row)| Some((row[at].number?.abs(), &row[at].text, node)));
            let (_, text, node) = known.max_by(|(a, ..), (b, ..)| a.total_cmp(b))?;
            Some(Spread { column, median: self.median(at)?, highest: (text, node) })
        });
        spread.collect()
    }
}

#[cfg(test)]
mod tests;
