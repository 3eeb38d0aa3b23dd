//! Facts of nodes, a row each: common values and exceptions.
//!
//! Reads the files of the built-in plugins: host facts in the form of Ansible's setup module,
//! connectivity, log counts. A new fact is a new entry in `columns`, which defines the tables;
//! `table` finds odd values in them; `comparison` compares all facts, key by key. An unreadable
//! file is a row that says so. Values that differ by nature are shown and never marked.

mod columns;
mod comparison;
mod table;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::iter::once;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::SCHEMA_VERSION;
use super::files::objects;
use super::terminal::TextOutput;
use super::words::majority;
use base::Joined as _;
use base::json::json;
use columns::{FactColumn, KINDS};
use comparison::SharedValue;
pub(crate) use comparison::parts;
use model::layout::{self, Delivered};
pub(crate) use table::Table;

/// Maximum size of a file; 100 KiB is usual.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// The facts of an archive, a table for each kind.
#[derive(Default)]
pub struct FactTables {
    /// By number of the kind.
    pub tables: BTreeMap<usize, Table>,
    /// Whether all facts are compared, not only those in tables.
    whole: bool,
    /// Facts from the snapshot about the programs of each node.
    known: BTreeMap<String, Value>,
}

impl FactTables {
    /// Creates an empty set; `whole` compares all facts.
    pub fn new(whole: bool) -> Self {
        Self {
            whole,
            ..Self::default()
        }
    }

    /// Only the table of a plugin, if one is chosen.
    pub fn only(mut self, plugin: Option<&str>) -> Self {
        self.tables
            .retain(|_, table| plugin.is_none_or(|plugin| plugin == table.kind.plugin));
        self
    }

    /// Adds the nodes of the snapshot; damaged files are ignored.
    pub fn see_cluster(&mut self, name: &str, content: &mut dyn Read) {
        if layout::resource_file(name) != Some(("", "core_v1_nodes.json")) {
            return;
        }
        let read = objects(content, |mut node| {
            if let Some(name) = node["metadata"]["name"].as_str() {
                let name = name.to_owned();
                self.known.insert(name, node["status"]["nodeInfo"].take());
            }
            true
        });
        if let Err(error) = read {
            log::debug!("the nodes of the snapshot cannot be read: {error}");
        }
    }

    /// Fills in values from the snapshot that gatherers lack, since their pods have no account to
    /// query the cluster, and compares the nodes.
    pub fn complete(&mut self) {
        let host_facts = self.tables.get_mut(&0);
        for (node, row) in host_facts.into_iter().flat_map(|table| &mut table.rows) {
            let info = json!({ "sonobuoy_node_info": self.known.remove(node) });
            for (cell, column) in row.iter_mut().zip(KINDS[0].columns) {
                if cell.text.is_empty() {
                    *cell = column.cell(&info);
                }
            }
        }
        self.tables.values_mut().for_each(Table::judge);
    }

    /// Adds a file of a plugin, if it holds facts.
    pub fn see(&mut self, found: Delivered<'_>, content: &mut dyn Read) -> Result<()> {
        let file = found
            .file
            .rsplit('/')
            .next()
            .filter(|_| found.is_result)
            .unwrap_or_default();
        if KINDS.iter().any(|kind| kind.file == file) {
            let mut bytes = Vec::new();
            content.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
            self.add_file(found.node, file, &bytes);
        }
        Ok(())
    }

    /// Adds facts gathered on a node, as if from a file of this name.
    pub fn add_file(&mut self, node: &str, file: &str, content: &[u8]) {
        let Some(at) = KINDS.iter().position(|kind| kind.file == file) else {
            return;
        };
        let kind = &KINDS[at];
        let facts = (kind.read)(content);
        let table = self.tables.entry(at).or_insert_with(|| Table::new(kind));
        table.add(node, &facts);
        if self.whole {
            table.all.add(node, &facts);
        }
    }

    /// The value of most nodes for each fact that should be the same on all, by its title.
    pub fn common(&self) -> BTreeMap<String, String> {
        let mut common = BTreeMap::new();
        for table in self.tables.values() {
            for (at, column) in table.kind.columns.iter().enumerate() {
                if !column.is_common() {
                    continue;
                }
                let texts = table.rows.values().map(|row| row[at].text.clone());
                if let Some(usual) = majority(texts)
                    && !usual.is_empty()
                {
                    common.insert(column.title.to_lowercase(), usual);
                }
            }
        }
        common
    }

    /// The changes, node by node: `n1: kernel 5.4.0 -> 6.1.0`.
    pub fn changes(&self, after: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (kind, before) in &self.tables {
            let Some(after) = after.tables.get(kind) else {
                continue;
            };
            for (node, row) in &before.rows {
                let cells = row.iter().zip(after.rows.get(node).into_iter().flatten());
                for (column, (was, is)) in before.kind.columns.iter().zip(cells) {
                    if column.is_common() && was.text != is.text {
                        let title = column.title.to_lowercase();
                        let (was, is) = (column.value_or_none(was), column.value_or_none(is));
                        changes.push(format!("{node}: {title} {was} -> {is}"));
                    }
                }
            }
        }
        changes
    }
}

impl FactTables {
    fn any(&self) -> Result<Vec<&Table>> {
        ensure!(
            !self.tables.is_empty(),
            "the archive has no facts of nodes; `sonobuoy run -p host-facts` gathers them, as do \
             `network` and `systemd-logs`"
        );
        Ok(self.tables.values().collect())
    }

    /// Writes tables, and a sentence for each rare value.
    pub fn write_text(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
        let tables = self.any()?;
        for (at, table) in tables.iter().enumerate() {
            if tables.len() > 1 {
                let gap = if at > 0 { "\n" } else { "" };
                writeln!(
                    terminal.out,
                    "{gap}{} ({})\n",
                    table.kind.title, table.kind.plugin
                )?;
            }
            table.write(terminal)?;
            table.write_findings(terminal)?;
            if self.whole {
                table.write_differences(terminal)?;
            }
        }
        Ok(())
    }

    /// The JSON document.
    pub fn json(&self) -> Result<Value> {
        let facts: Value = self
            .any()?
            .into_iter()
            .map(|table| (table.kind.plugin, table.json(self.whole)))
            .collect();
        Ok(json!({"schemaVersion": SCHEMA_VERSION, "facts": facts}))
    }

    /// Writes CSV as in RFC 4180 except for line ends: one table with a row per node, or a row per
    /// value of a differing key.
    pub fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        let tables = self.any()?;
        if self.whole {
            return write_differences(&tables, out);
        }
        let [table] = tables[..] else {
            let names = tables.iter().map(|table| table.kind.plugin).joined(", ");
            bail!("CSV is one table; choose with --plugin one of {names}");
        };
        let titles = table.kind.columns.iter().map(FactColumn::name);
        csv(out, once("node".into()).chain(titles))?;
        for (node, row) in &table.rows {
            let cells = row.iter().map(|cell| match cell.number {
                Some(number) => rounded(number),
                None => cell.text.clone(),
            });
            csv(out, once(node.clone()).chain(cells))?;
        }
        Ok(())
    }
}

fn write_differences(tables: &[&Table], out: &mut dyn Write) -> Result<()> {
    csv(out, ["plugin", "key", "value", "nodes", "examples"])?;
    for table in tables {
        for difference in table.all.differences() {
            for shared in &difference.values {
                let SharedValue {
                    value,
                    count,
                    nodes,
                } = shared;
                let value = value.as_deref().unwrap_or_default();
                let (count, nodes) = (count.to_string(), nodes.join(" "));
                let plugin = table.kind.plugin;
                csv(out, [plugin, &difference.key, value, &count, &nodes])?;
            }
        }
    }
    Ok(())
}

/// A number with at most three decimals: more of a measurement is noise.
fn rounded(number: f64) -> String {
    // A sum with zero has no sign of its own.
    ((number * 1e3).round() / 1e3 + 0.0).to_string()
}

/// Writes a line of CSV.
fn csv(out: &mut dyn Write, cells: impl IntoIterator<Item: AsRef<str>>) -> Result<()> {
    let quoted = cells.into_iter().map(|cell| match cell.as_ref() {
        cell if cell.contains(['"', ',', '\n', '\r']) => {
            format!("\"{}\"", cell.replace('"', "\"\""))
        }
        cell => cell.to_owned(),
    });
    Ok(writeln!(out, "{}", quoted.joined(","))?)
}

#[cfg(test)]
mod tests;
