//! Facts of nodes, a row each: what most nodes have, and which have something else.
//!
//! Reads what the host-facts plugin left, in the shape of Ansible's setup module. A file that cannot be read is a row that
//! says so. Clock offset and uptime differ everywhere by nature, so they are shown and never marked.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use serde_json::Value;

use super::diff::{Look, fit};
use super::json::SCHEMA_VERSION;
use super::source::Source;
use super::times::spoken;
use super::words::{count, number};
use crate::layout;
use base::json::json;
use base::visible;

/// What the file of a node is called.
const FILE: &str = "host-facts.json";
/// How large it may be; 100 KiB is usual.
const LIMIT: u64 = 8 << 20;
/// How many nodes are named for a value that few have.
const NAMED: usize = 5;

/// A column: its title, the words for it in a sentence, whether nodes should agree on it, and what stands there.
struct Column {
    title: &'static str,
    sentence: &'static str,
    common: bool,
    value: fn(&Value) -> Option<String>,
}

const COLUMNS: [Column; 10] = [
    Column {
        title: "OS",
        sentence: "run",
        common: true,
        value: |facts| {
            let version = text(facts, "ansible_distribution_version").unwrap_or_default();
            Some(format!("{} {version}", text(facts, "ansible_distribution")?).trim_end().to_owned())
        },
    },
    Column {
        title: "KERNEL",
        sentence: "run kernel",
        common: true,
        value: |facts| text(facts, "ansible_kernel"),
    },
    Column {
        title: "ARCH",
        sentence: "have architecture",
        common: true,
        value: |facts| text(facts, "ansible_architecture"),
    },
    Column {
        title: "CPUS",
        sentence: "have this many CPUs:",
        common: true,
        value: |facts| text(facts, "ansible_processor_vcpus"),
    },
    // To the next GiB: the kernel keeps a little for itself, not the same everywhere.
    Column {
        title: "MEMORY",
        sentence: "have memory of",
        common: true,
        value: |facts| {
            let mib = facts.get("ansible_memtotal_mb")?.as_f64()?;
            Some(format!("{:.0} GiB", (mib / 1024.0).max(1.0)))
        },
    },
    Column {
        title: "DISK",
        sentence: "have a root disk of",
        common: true,
        value: |facts| {
            let bytes = facts.pointer("/sonobuoy_folders/~1/size_total")?.as_f64()?;
            Some(format!("{:.0} GiB", bytes / f64::from(1 << 30)))
        },
    },
    Column {
        title: "RUNTIME",
        sentence: "run",
        common: true,
        value: |facts| info(facts, "containerRuntimeVersion"),
    },
    Column {
        title: "KUBELET",
        sentence: "run kubelet",
        common: true,
        value: |facts| info(facts, "kubeletVersion"),
    },
    Column {
        title: "CLOCK",
        sentence: "",
        common: false,
        value: |facts| Some(format!("{:+.1} s", facts.pointer("/sonobuoy_clock_offset/seconds")?.as_f64()?)),
    },
    Column {
        title: "UPTIME",
        sentence: "",
        common: false,
        value: |facts| Some(spoken(facts.get("ansible_uptime_seconds")?.as_f64()?)),
    },
];

fn text(facts: &Value, key: &str) -> Option<String> {
    match facts.get(key)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn info(facts: &Value, key: &str) -> Option<String> {
    text(facts.get("sonobuoy_node_info")?, key)
}

/// The facts of some nodes.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// What stands in each column, by node; empty where it is not known.
    rows: BTreeMap<String, [String; COLUMNS.len()]>,
}

/// A value that few nodes have.
struct Odd<'f> {
    column: &'static Column,
    value: &'f str,
    nodes: Vec<&'f str>,
}

impl Facts {
    /// Those that lie in an archive; an archive without any has no rows.
    pub(crate) fn read(source: &Source) -> anyhow::Result<Self> {
        let mut facts = Self::default();
        source.each(|name, _, content| {
            let Some(found) = layout::delivered(name).filter(|found| found.is_result) else { return Ok(()) };
            if found.file.rsplit('/').next() == Some(FILE) {
                let mut bytes = Vec::new();
                content.take(LIMIT).read_to_end(&mut bytes)?;
                facts.add(found.node, &serde_json::from_slice(&bytes).unwrap_or_default());
            }
            Ok(())
        })?;
        Ok(facts)
    }

    /// Takes in what was gathered on a node.
    pub(crate) fn add(&mut self, node: &str, document: &Value) {
        let none = Value::Null;
        let facts = document.get("ansible_facts").unwrap_or(&none);
        let row = std::array::from_fn(|at| (COLUMNS[at].value)(facts).unwrap_or_default());
        self.rows.insert(node.to_owned(), row);
    }

    /// What most nodes have in a column, if more than half of them agree.
    fn usual(&self, at: usize) -> Option<&str> {
        let mut counts = BTreeMap::<&str, usize>::new();
        for row in self.rows.values() {
            *counts.entry(&row[at]).or_default() += 1;
        }
        let (value, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        (COLUMNS[at].common && most * 2 > self.rows.len()).then_some(value)
    }

    /// The values that are not those of the majority.
    fn odd(&self) -> Vec<Odd<'_>> {
        let mut odd = Vec::new();
        for (at, column) in COLUMNS.iter().enumerate() {
            let Some(usual) = self.usual(at) else { continue };
            let mut of = BTreeMap::<&str, Vec<&str>>::new();
            for (node, row) in self.rows.iter().filter(|(_, row)| row[at] != usual) {
                of.entry(&row[at]).or_default().push(node);
            }
            odd.extend(of.into_iter().map(|(value, nodes)| Odd { column, value, nodes }));
        }
        odd
    }

    /// Writes a table, and a sentence for each value that few nodes have.
    pub(crate) fn write_text(&self, look: Look, out: &mut dyn Write) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.rows.is_empty(),
            "the archive has no facts of nodes; `sonobuoy run -p host-facts` gathers them"
        );
        let usual: Vec<Option<&str>> = (0..COLUMNS.len()).map(|at| self.usual(at)).collect();
        let head =
            std::iter::once("NODE".to_owned()).chain(COLUMNS.iter().map(|column| column.title.to_owned()));
        let mut rows = vec![head.collect::<Vec<_>>()];
        for (node, row) in &self.rows {
            let cells = row.iter().zip(&usual).map(|(value, usual)| match (value.as_str(), usual) {
                ("", _) => "-".into(),
                (value, Some(usual)) if value != *usual => format!("{value} *"),
                (value, _) => value.to_owned(),
            });
            rows.push(std::iter::once(node.clone()).chain(cells).collect());
        }
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..=COLUMNS.len()).map(width).collect();
        for row in &rows {
            let cells =
                row.iter().zip(&widths).map(|(cell, width)| format!("{:width$}", visible::line(cell)));
            writeln!(out, "{}", fit(cells.collect::<Vec<_>>().join("  ").trim_end(), look.width))?;
        }
        let odd = self.odd();
        if !odd.is_empty() {
            writeln!(out, "\n* not what most nodes have:")?;
        }
        for line in odd.iter().map(|odd| self.sentence(odd)) {
            writeln!(out, "{}", fit(&visible::line(&line), look.width))?;
        }
        Ok(())
    }

    /// `3 of 5,000 nodes run kernel 5.4.0: n1, n2, n3`.
    fn sentence(&self, odd: &Odd<'_>) -> String {
        let what = if odd.value.is_empty() {
            format!("do not tell: {}", odd.column.title.to_lowercase())
        } else {
            format!("{} {}", odd.column.sentence, odd.value)
        };
        let named = odd.nodes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = odd.nodes.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {} more", number(more as u64)) } else { String::new() };
        format!(
            "{} of {} {what}: {named}{more}",
            number(odd.nodes.len() as u64),
            count(self.rows.len() as u64, "node")
        )
    }

    /// Writes one JSON document.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let named = |row: &[String; COLUMNS.len()]| {
            let entries =
                COLUMNS.iter().zip(row).map(|(column, value)| (column.title.to_lowercase(), json!(value)));
            Value::Object(entries.collect())
        };
        let nodes: serde_json::Map<_, _> =
            self.rows.iter().map(|(node, row)| (node.clone(), named(row))).collect();
        let odd: Vec<Value> = self
            .odd()
            .iter()
            .map(|odd| json!({"fact": odd.column.title.to_lowercase(), "value": odd.value, "nodes": odd.nodes}))
            .collect();
        let document = json!({"schemaVersion": SCHEMA_VERSION, "nodes": nodes, "odd": odd});
        Ok(writeln!(out, "{document:#}")?)
    }

    /// Writes CSV, as RFC 4180 has it but for its line ends.
    pub(crate) fn write_csv(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let quoted = |cell: &str| match cell.contains(['"', ',', '\n', '\r']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.to_owned(),
        };
        let titles: Vec<String> = COLUMNS.iter().map(|column| column.title.to_lowercase()).collect();
        writeln!(out, "node,{}", titles.join(","))?;
        for (node, row) in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            writeln!(out, "{},{}", quoted(node), cells.join(","))?;
        }
        Ok(())
    }

    /// What is not as it was, node by node: `n1: kernel 5.4.0 -> 6.1.0`.
    pub(crate) fn changes(&self, after: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (node, row) in &self.rows {
            let Some(now) = after.rows.get(node) else { continue };
            for ((column, was), is) in COLUMNS.iter().zip(row).zip(now) {
                if column.common && was != is {
                    let word =
                        |value: &str| if value.is_empty() { "unknown".to_owned() } else { value.to_owned() };
                    changes.push(format!(
                        "{node}: {} {} -> {}",
                        column.title.to_lowercase(),
                        word(was),
                        word(is)
                    ));
                }
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(kernels: &[&str]) -> Facts {
        let mut facts = Facts::default();
        for (at, kernel) in kernels.iter().enumerate() {
            let document = json!({"ansible_facts": {
                "ansible_distribution": "Debian", "ansible_distribution_version": "12", "ansible_kernel": kernel,
                "ansible_processor_vcpus": 4, "ansible_memtotal_mb": 16_000, "ansible_uptime_seconds": at * 100,
                "sonobuoy_node_info": {"kubeletVersion": "v1.34.2, \"x\""},
            }});
            facts.add(&format!("n{at}"), &document);
        }
        facts
    }

    fn text(facts: &Facts) -> String {
        let mut out = Vec::new();
        facts.write_text(Look::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_few_nodes_have_is_marked_and_said() {
        let text = text(&facts(&["6.1", "6.1", "5.4", "6.1"]));
        assert!(text.starts_with("NODE  OS         KERNEL  ARCH  CPUS  MEMORY"), "{text}");
        assert!(text.contains("\nn2    Debian 12  5.4 *   -     4     16 GiB"), "{text}");
        assert!(
            text.ends_with("\n\n* not what most nodes have:\n1 of 4 nodes run kernel 5.4: n2\n"),
            "{text}"
        );
        // Without a majority nothing is odd, and uptimes never are.
        assert!(!super::tests::text(&facts(&["6.1", "5.4"])).contains('*'));
        assert!(Facts::default().write_text(Look::default(), &mut Vec::new()).is_err());
    }

    #[test]
    fn programs_read_them_too() {
        let facts = facts(&["6.1", "6.1", "5.4"]);
        let mut csv = Vec::new();
        facts.write_csv(&mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        assert_eq!(
            csv.lines().next(),
            Some("node,os,kernel,arch,cpus,memory,disk,runtime,kubelet,clock,uptime")
        );
        assert_eq!(csv.lines().nth(1), Some("n0,Debian 12,6.1,,4,16 GiB,,,\"v1.34.2, \"\"x\"\"\",,0 s"));
        let mut json = Vec::new();
        facts.write_json(&mut json).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(
            (&json["nodes"]["n2"]["kernel"], &json["odd"][0]["nodes"]),
            (&json!("5.4"), &json!(["n2"]))
        );
    }

    #[test]
    fn two_runs_differ_in_what_changed_on_a_node() {
        let changes = facts(&["6.1", "6.1"]).changes(&facts(&["6.1", "6.2", "7"]));
        assert_eq!(changes, ["n1: kernel 6.1 -> 6.2"]);
    }
}
