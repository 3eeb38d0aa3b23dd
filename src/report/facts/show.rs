//! Facts as text, CSV and JSON.

use std::io::Write;

use serde_json::Value;

use super::super::json::SCHEMA_VERSION;
use super::super::look::{Look, fit, table};
use super::super::words::{count, number};
use super::{Column, Difference, Facts, Odd, Spread, Table};
use base::json::json;
use base::visible;

/// Maximum number of nodes to name for a rare value.
const NAMED: usize = 5;
/// Maximum number of differing keys to list.
const MAX_LISTED: usize = 500;

impl Facts {
    fn any(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.tables().next().is_some(),
            "the archive has no facts of nodes; `sonobuoy run -p host-facts` gathers them, as do `network` and `systemd-logs`"
        );
        Ok(())
    }

    /// Writes tables, and a sentence for each rare value.
    pub(crate) fn write_text(&self, look: Look, out: &mut dyn Write) -> anyhow::Result<()> {
        self.any()?;
        let many = self.tables().count() > 1;
        for (at, table) in self.tables().enumerate() {
            if many {
                let gap = if at > 0 { "\n" } else { "" };
                writeln!(out, "{gap}{} ({})\n", table.title(), table.plugin())?;
            }
            table.write_text(look, out)?;
            if self.whole {
                table.write_differences(look, out)?;
            }
        }
        Ok(())
    }

    /// Writes one JSON document.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.any()?;
        let facts: serde_json::Map<_, _> =
            self.tables().map(|table| (table.plugin().to_owned(), table.json(self.whole))).collect();
        Ok(writeln!(out, "{:#}", json!({"schemaVersion": SCHEMA_VERSION, "facts": facts}))?)
    }

    /// Writes CSV as in RFC 4180 except for line ends: one table with a row per node, or a row per value of a
    /// differing key.
    pub(crate) fn write_csv(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.any()?;
        let tables: Vec<&Table> = self.tables().collect();
        if self.whole {
            line(out, ["plugin", "key", "value", "nodes", "examples"])?;
            for table in tables {
                table.differences_csv(out)?;
            }
            return Ok(());
        }
        let [table] = tables[..] else {
            let names: Vec<&str> = tables.iter().map(|table| table.plugin()).collect();
            anyhow::bail!("CSV is one table; choose with --plugin one of {}", names.join(", "));
        };
        let titles: Vec<String> = table.kind.columns.iter().map(Column::name).collect();
        line(out, std::iter::once("node").chain(titles.iter().map(String::as_str)))?;
        for (node, row) in &table.rows {
            let cells =
                row.iter().map(|cell| cell.number.map_or(cell.text.clone(), |number| number.to_string()));
            let cells: Vec<String> = cells.collect();
            line(out, std::iter::once(node.as_str()).chain(cells.iter().map(String::as_str)))?;
        }
        Ok(())
    }
}

/// A line of CSV.
fn line<'c>(out: &mut dyn Write, cells: impl IntoIterator<Item = &'c str>) -> anyhow::Result<()> {
    let quoted = cells.into_iter().map(|cell| match cell.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    });
    Ok(writeln!(out, "{}", quoted.collect::<Vec<_>>().join(","))?)
}

/// A title as a JSON key.
fn name(title: &str) -> String {
    title.to_lowercase().replace(' ', "_")
}

impl Table {
    fn write_text(&self, look: Look, out: &mut dyn Write) -> anyhow::Result<()> {
        let head = std::iter::once("NODE".to_owned()).chain(self.titles().map(str::to_owned));
        let mut rows = vec![head.collect::<Vec<_>>()];
        for (node, cells) in self.rows() {
            let cells = cells.iter().map(|(text, odd)| match (*text, odd) {
                ("", _) => "-".into(),
                (text, true) => format!("{text} *"),
                (text, false) => text.to_owned(),
            });
            rows.push(std::iter::once(node.to_owned()).chain(cells).collect());
        }
        table(&rows, look, out)?;
        let spread: Vec<String> = self.spread().iter().map(Spread::sentence).collect();
        if !spread.is_empty() && self.len() > 1 {
            writeln!(out)?;
            spread.iter().try_for_each(|line| writeln!(out, "{}", fit(&visible::line(line), look.width)))?;
        }
        let odd = self.odd();
        if !odd.is_empty() {
            writeln!(out, "\n* differs from most nodes:")?;
        }
        for line in odd.iter().map(|odd| odd.sentence(self)) {
            writeln!(out, "{}", fit(&visible::line(&line), look.width))?;
        }
        Ok(())
    }

    fn write_differences(&self, look: Look, out: &mut dyn Write) -> anyhow::Result<()> {
        let differences = self.differences();
        match differences.len() {
            0 => writeln!(out, "\nNothing else differs between nodes.")?,
            found => writeln!(out, "\nEvery key that differs between nodes: {}", number(found as u64))?,
        }
        for difference in differences.iter().take(MAX_LISTED) {
            let told = format!("  {}: {}", difference.key, difference.sentence());
            writeln!(out, "{}", fit(&visible::line(&told), look.width))?;
        }
        if differences.len() > MAX_LISTED {
            writeln!(out, "  and {} more", number((differences.len() - MAX_LISTED) as u64))?;
        }
        let volatile: Vec<&str> = self.volatile().collect();
        if !volatile.is_empty() {
            let told = format!(
                "\nNot compared, since they always differ (times, counters, addresses): {}",
                volatile.join(", ")
            );
            writeln!(out, "{}", fit(&visible::text(&told), look.width.map(|_| 2_000)))?;
        }
        Ok(())
    }

    fn json(&self, whole: bool) -> Value {
        let titles: Vec<String> = self.titles().map(name).collect();
        let nodes: serde_json::Map<_, _> = self
            .rows
            .iter()
            .map(|(node, row)| {
                let cells = titles.iter().zip(row).map(|(title, cell)| (title.clone(), json!(cell.text)));
                (node.clone(), Value::Object(cells.collect()))
            })
            .collect();
        let odd: Vec<Value> = self.odd().iter().map(Odd::json).collect();
        let spread: serde_json::Map<_, _> =
            self.spread().iter().map(|spread| (name(spread.column.title), spread.json())).collect();
        let mut document = json!({"nodes": nodes, "odd": odd, "spread": spread});
        if whole {
            document["differences"] = json!(self.differences());
            document["notCompared"] = json!(self.volatile().collect::<Vec<_>>());
        }
        document
    }

    fn differences_csv(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for difference in self.differences() {
            for value in &difference.values {
                let (nodes, examples) = (value.count.to_string(), value.nodes.join(" "));
                let cells =
                    [self.plugin(), difference.key, value.value.unwrap_or_default(), &nodes, &examples];
                line(out, cells)?;
            }
        }
        Ok(())
    }
}

/// A verb phrase in agreement with the number of nodes: `run kernel 5.4`, `runs kernel 5.4`.
fn agreed(what: &str, nodes: u64) -> String {
    let (verb, rest) = what.split_once(' ').unwrap_or((what, ""));
    match (nodes, verb) {
        (1, "have") => format!("has {rest}"),
        (1, "are") => format!("is {rest}"),
        (1, "do") => format!("does {rest}"),
        (1, verb) => format!("{verb}s {rest}"),
        _ => what.to_owned(),
    }
}

/// Some names, and the number of others.
pub(crate) fn named(nodes: &[&str], all: u64) -> String {
    let shown = nodes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = all.saturating_sub(nodes.len().min(NAMED) as u64);
    if more > 0 { format!("{shown} and {} more", number(more)) } else { shown }
}

impl Odd<'_> {
    /// `3 of 5,000 nodes run kernel 5.4.0: n1, n2, n3`.
    pub(crate) fn sentence(&self, table: &Table) -> String {
        format!("{}: {}", self.what(table), named(&self.nodes, self.nodes.len() as u64))
    }

    /// The sentence without the nodes.
    pub(crate) fn what(&self, table: &Table) -> String {
        let column = self.column;
        let what = match column.baseline {
            super::Baseline::Median { .. } => column.sentence.to_owned(),
            _ if self.value.is_empty() && column.none != "unknown" => {
                format!("do not {}", column.sentence.trim_end_matches(':').trim_end_matches(" at"))
            }
            _ if self.value.is_empty() => format!("do not report: {}", column.title.to_lowercase()),
            _ => format!("{} {}", column.sentence, self.value),
        };
        let nodes = self.nodes.len() as u64;
        format!("{} of {} {}", number(nodes), count(table.len(), "node"), agreed(&what, nodes))
    }

    fn json(&self) -> Value {
        json!({"fact": name(self.column.title), "value": self.value, "nodes": self.nodes})
    }
}

impl Spread<'_> {
    /// `API: median 3.1 ms, highest 230.0 ms (n1)`.
    pub(crate) fn sentence(&self) -> String {
        let (text, node) = self.highest;
        let title = match self.column.title {
            short @ ("DNS" | "API") => short.to_owned(),
            word => format!("{}{}", &word[..1], word[1..].to_lowercase()),
        };
        // Offsets deviate in both directions.
        let most = if text.starts_with(['+', '-']) { "furthest" } else { "highest" };
        format!("{title}: median {}, {most} {text} ({node})", self.column.text(self.median))
    }

    fn json(&self) -> Value {
        json!({"median": self.median, "highest": self.highest.0, "node": self.highest.1})
    }
}

impl Difference<'_> {
    /// `60 on 298 nodes; 10 on 2: n1, n2`.
    pub(crate) fn sentence(&self) -> String {
        if let Some(range) = &self.range {
            return format!("from {} to {} ({})", range.lowest, range.highest, range.node);
        }
        if self.everywhere {
            return "different on every node".into();
        }
        let told = self.values.iter().enumerate().map(|(at, shared)| {
            let value = shared.value.map_or("none", |value| if value.is_empty() { "\"\"" } else { value });
            let nodes = match (at, &shared.nodes[..]) {
                (0, _) | (_, []) => String::new(),
                (_, nodes) => format!(": {}", named(nodes, shared.count)),
            };
            format!("{value} on {}{nodes}", count(shared.count, "node"))
        });
        let more = (self.others > 0).then(|| format!("other values on {}", count(self.others, "node")));
        told.chain(more).collect::<Vec<_>>().join("; ")
    }
}
