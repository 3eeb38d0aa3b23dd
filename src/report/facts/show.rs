//! Facts as text, CSV and JSON.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::super::SCHEMA_VERSION;
use super::super::terminal::TextOutput;
use super::super::words::{count, named, number};
use super::value_counts::ValueDifference;
use super::{Baseline, FactColumn, FactTables, Odd, Table};
use base::Joined as _;
use base::json::{json, list};

impl FactTables {
    fn any(&self) -> Result<Vec<&Table>> {
        ensure!(
            !self.tables.is_empty(),
            "the archive has no facts of nodes; `sonobuoy run -p host-facts` gathers them, as do `network` and `systemd-logs`"
        );
        Ok(self.tables.values().collect())
    }

    /// Writes tables, and a sentence for each rare value.
    pub(crate) fn write_text(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
        let tables = self.any()?;
        for (at, table) in tables.iter().enumerate() {
            if tables.len() > 1 {
                let gap = if at > 0 { "\n" } else { "" };
                writeln!(terminal.out, "{gap}{} ({})\n", table.kind.title, table.kind.plugin)?;
            }
            table.write(terminal)?;
            let own = json!({"whole": self.whole});
            terminal.fill(include_str!("facts.txt"), &[&table.values(), &own])?;
        }
        Ok(())
    }

    /// The JSON document.
    pub(crate) fn json(&self) -> Result<Value> {
        let tables = self.any()?.into_iter();
        let facts: BTreeMap<_, _> = tables.map(|table| (table.kind.plugin, table.json(self.whole))).collect();
        Ok(json!({"schemaVersion": SCHEMA_VERSION, "facts": facts}))
    }

    /// Writes CSV as in RFC 4180 except for line ends: one table with a row per node, or a row per value of a
    /// differing key.
    pub(crate) fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        let tables = self.any()?;
        if self.whole {
            csv(out, &["plugin", "key", "value", "nodes", "examples"])?;
            for table in tables {
                for difference in table.all.differences() {
                    for value in &difference.values {
                        let (text, nodes) =
                            (value.value.as_deref().unwrap_or_default(), value.count.to_string());
                        csv(
                            out,
                            &[table.kind.plugin, &*difference.key, text, &nodes, &value.nodes.join(" ")],
                        )?;
                    }
                }
            }
            return Ok(());
        }
        let [table] = tables[..] else {
            let names: Vec<&str> = tables.iter().map(|table| table.kind.plugin).collect();
            bail!("CSV is one table; choose with --plugin one of {}", names.join(", "));
        };
        let titles = table.kind.columns.iter().map(FactColumn::name);
        csv(out, &std::iter::once("node".into()).chain(titles).collect::<Vec<_>>())?;
        for (node, row) in &table.rows {
            let cells =
                row.iter().map(|cell| cell.number.map_or(cell.text.clone(), |number| number.to_string()));
            csv(out, &std::iter::once(node.clone()).chain(cells).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

/// Writes a line of CSV.
fn csv<C: AsRef<str>>(out: &mut dyn Write, cells: &[C]) -> Result<()> {
    let quoted = cells.iter().map(|cell| match cell.as_ref() {
        cell if cell.contains(['"', ',', '\n', '\r']) => format!("\"{}\"", cell.replace('"', "\"\"")),
        cell => cell.to_owned(),
    });
    Ok(writeln!(out, "{}", quoted.joined(","))?)
}

/// A title such as `MOST ERRORS` in a sentence or on the page.
pub(crate) fn title_case(title: &str) -> String {
    match title {
        "CPUS" => "CPUs".into(),
        "OS" | "DNS" | "API" => title.into(),
        word => format!("{}{}", &word[..1], word[1..].to_lowercase()),
    }
}

impl Table {
    /// Writes the table alone.
    pub(crate) fn write(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
        let titles = self.kind.columns.iter().map(|column| column.title);
        let head = std::iter::once("NODE").chain(titles).map(str::to_owned).collect();
        let rows = self.rows.iter().map(|(node, row)| {
            let cells = row.iter().map(|cell| match &*cell.text {
                "" => "-".into(),
                text if cell.odd => format!("{text} *"),
                text => text.to_owned(),
            });
            std::iter::once(node.clone()).chain(cells).collect()
        });
        terminal.table(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), usize::MAX, |_| "")
    }

    /// What text and page say about the table.
    pub(crate) fn values(&self) -> Value {
        let odd = self.odd.iter().map(|odd| json!({"what": odd.what(self), "nodes": odd.nodes}));
        let spread = self.spread.iter().filter(|_| self.rows.len() > 1).map(|spread| {
            let (text, node) = &spread.highest;
            // Offsets deviate in both directions.
            let most = if text.starts_with(['+', '-']) { "furthest" } else { "highest" };
            let (title, median) = (title_case(spread.column.title), spread.column.text(spread.median));
            format!("{title}: median {median}, {most} {text} ({node})")
        });
        let differences = self.all.differences();
        let differences = differences.iter().map(|one| json!({"key": one.key, "values": one.sentence()}));
        json!({
            "title": self.kind.title, "plugin": self.kind.plugin, "odd": list(odd),
            "spread": list(spread), "differences": list(differences),
            "volatile": self.all.volatile,
        })
    }

    fn json(&self, whole: bool) -> Value {
        let nodes = self.rows.iter().map(|(node, row)| {
            let cells = self.kind.columns.iter().zip(row);
            (node, cells.map(|(column, cell)| (column.key(), &cell.text)).collect::<BTreeMap<_, _>>())
        });
        let odd = self
            .odd
            .iter()
            .map(|odd| json!({"fact": odd.column.key(), "value": odd.value, "nodes": odd.nodes}));
        let spread = self.spread.iter().map(|spread| {
            let (highest, node) = &spread.highest;
            (spread.column.key(), json!({"median": spread.median, "highest": highest, "node": node}))
        });
        let (nodes, spread): (BTreeMap<_, _>, BTreeMap<_, _>) = (nodes.collect(), spread.collect());
        let mut document = json!({"nodes": nodes, "odd": list(odd), "spread": spread});
        if whole {
            document["differences"] = json!(self.all.differences());
            document["notCompared"] = json!(self.all.volatile);
        }
        document
    }
}

/// A verb phrase in agreement with the number of nodes: `run kernel 5.4`, `runs kernel 5.4`.
fn agreed(what: &str, nodes: usize) -> String {
    let (verb, rest) = what.split_once(' ').unwrap_or((what, ""));
    match (nodes, verb) {
        (1, "have") => format!("has {rest}"),
        (1, "are") => format!("is {rest}"),
        (1, "do") => format!("does {rest}"),
        (1, verb) => format!("{verb}s {rest}"),
        _ => what.to_owned(),
    }
}

impl Odd {
    /// `3 of 5,000 nodes run kernel 5.4.0`.
    pub(crate) fn what(&self, table: &Table) -> String {
        let FactColumn { sentence, none, title, .. } = self.column;
        let what = match (&*self.value, self.column.baseline) {
            (_, Baseline::Median { .. }) => (*sentence).to_owned(),
            ("", _) if *none != "unknown" => {
                format!("do not {}", sentence.trim_end_matches(':').trim_end_matches(" at"))
            }
            ("", _) => format!("do not report: {}", title.to_lowercase()),
            (value, _) => format!("{sentence} {value}"),
        };
        let nodes = self.nodes.len();
        format!("{} of {} {}", number(nodes), count(table.rows.len(), "node"), agreed(&what, nodes))
    }
}

impl ValueDifference {
    /// `60 on 298 nodes; 10 on 2: n1, n2`.
    pub(crate) fn sentence(&self) -> String {
        let told = self.values.iter().enumerate().map(|(at, shared)| {
            let value =
                shared.value.as_deref().map_or("none", |value| if value.is_empty() { "\"\"" } else { value });
            let nodes = match &shared.nodes[..] {
                nodes if at > 0 && !nodes.is_empty() => format!(": {}", named(nodes, shared.count)),
                _ => String::new(),
            };
            format!("{value} on {}{nodes}", count(shared.count, "node"))
        });
        let more = (self.others > 0).then(|| format!("other values on {}", count(self.others, "node")));
        told.chain(more).joined("; ")
    }
}
