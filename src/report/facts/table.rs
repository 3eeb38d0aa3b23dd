//! The facts of one kind as a table: odd values, sentences about them, text and JSON.

use std::collections::BTreeMap;
use std::iter::once;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::super::terminal::TextOutput;
use super::super::words::{count, majority, named, number};
use super::columns::{Baseline, FactCell, FactColumn, FactKind};
use super::comparison::ValueCounts;
use base::Joined as _;
use base::json::json;
use yaml::natural;

/// Maximum differing keys in the text.
const MAX_DIFFERENCES: usize = 500;
/// Multiple of the median from which a number is odd.
const ODD_FACTOR: f64 = 5.0;

/// The facts of one kind.
pub struct Table {
    pub kind: &'static FactKind,
    /// The values of each row, by node.
    pub rows: BTreeMap<String, Vec<FactCell>>,
    /// Values that deviate from those of most nodes; deviating numbers of a column are one entry.
    pub odd: Vec<Odd>,
    spread: Vec<Spread>,
    /// All facts, if they are compared.
    pub(super) all: ValueCounts,
}

/// A value of few nodes; empty for numbers.
#[derive(Serialize)]
pub struct Odd {
    fact: String,
    value: String,
    pub nodes: Vec<String>,
    /// `3 of 5,000 nodes run kernel 5.4.0`.
    pub what: String,
}

/// The distribution of a column's numbers.
#[derive(Serialize)]
struct Spread {
    #[serde(skip)]
    column: &'static FactColumn,
    median: f64,
    /// The number farthest from zero, formatted, and its node.
    highest: String,
    node: String,
}

impl Table {
    /// An empty table.
    pub(super) fn new(kind: &'static FactKind) -> Self {
        Self {
            kind,
            rows: BTreeMap::new(),
            odd: Vec::new(),
            spread: Vec::new(),
            all: ValueCounts::default(),
        }
    }

    /// Adds the row of a node.
    pub(super) fn add(&mut self, node: &str, facts: &Value) {
        let cells = self.kind.columns.iter().map(|column| column.cell(facts));
        self.rows.insert(node.to_owned(), cells.collect());
    }
}

impl Table {
    /// Marks odd values, column by column.
    pub(super) fn judge(&mut self) {
        let all = self.rows.len();
        for (at, column) in self.kind.columns.iter().enumerate() {
            let Some(normal) = self.normal_values(at) else {
                continue;
            };
            let mut odd = BTreeMap::<String, Vec<String>>::new();
            for (node, row) in &mut self.rows {
                let cell = &mut row[at];
                cell.odd = normal.is_odd(cell);
                if cell.odd {
                    let value = if column.is_common() {
                        cell.text.clone()
                    } else {
                        String::new()
                    };
                    odd.entry(value).or_default().push(node.clone());
                }
            }
            self.odd.extend(odd.into_iter().map(|(value, nodes)| Odd {
                fact: column.key(),
                what: column.what(&value, nodes.len(), all),
                value,
                nodes,
            }));
        }
    }
    /// What is normal in a column; `None` if nothing can be odd. Records the spread of numbers.
    fn normal_values(&mut self, at: usize) -> Option<NormalValues> {
        let column = &self.kind.columns[at];
        let cells = self.rows.iter().map(|(node, row)| (node, &row[at]));
        match column.baseline {
            Baseline::Nothing => None,
            Baseline::Majority => {
                let usual = majority(cells.map(|(_, cell)| cell.text.clone()))?;
                Some(NormalValues::Text(usual))
            }
            Baseline::Median { floor } => {
                let numbers = cells.filter_map(|(node, cell)| Some((cell.number?, cell, node)));
                let mut numbers: Vec<_> = numbers.collect();
                numbers.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
                let last = numbers.len().checked_sub(1)?;
                // The mean of the two in the middle, which are the same one if the count is odd.
                let median = f64::midpoint(numbers[last / 2].0, numbers[last.div_ceil(2)].0);
                let is_first = numbers[0].0.abs() > numbers[last].0.abs();
                let (_, cell, node) = numbers[if is_first { 0 } else { last }];
                let spread = Spread {
                    column,
                    median,
                    highest: cell.text.clone(),
                    node: node.clone(),
                };
                self.spread.push(spread);
                Some(NormalValues::UpTo(floor.max(median.abs() * ODD_FACTOR)))
            }
        }
    }
}

/// The values of a column that are not odd.
enum NormalValues {
    Text(String),
    /// Numbers up to this distance from zero.
    UpTo(f64),
}

impl NormalValues {
    fn is_odd(&self, cell: &FactCell) -> bool {
        match self {
            Self::Text(usual) => cell.text != *usual,
            Self::UpTo(limit) => cell.number.is_some_and(|number| number.abs() > *limit),
        }
    }
}

impl FactColumn {
    /// A sentence about nodes with an odd value, whose verb agrees with their number.
    fn what(&self, value: &str, nodes: usize, all: usize) -> String {
        let Self {
            sentence,
            none,
            title,
            ..
        } = self;
        let what = match value {
            _ if !self.is_common() => (*sentence).to_owned(),
            "" if *none != "unknown" => {
                format!(
                    "do not {}",
                    sentence.trim_end_matches(':').trim_end_matches(" at")
                )
            }
            "" => format!("do not report: {}", title.to_lowercase()),
            value => format!("{sentence} {value}"),
        };
        // The sentence of a column is in the plural: `have swap`, `run kernel`.
        let (verb, rest) = what.split_once(' ').unwrap_or((&what, ""));
        let verb = match verb {
            verb if nodes != 1 => verb.to_owned(),
            "have" => "has".into(),
            "are" => "is".into(),
            "do" => "does".into(),
            verb => format!("{verb}s"),
        };
        format!("{} of {} {verb} {rest}", number(nodes), count(all, "node"))
    }
}

impl Table {
    /// Writes the table alone.
    pub fn write(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
        let titles = self.kind.columns.iter().map(|column| column.title);
        let head = once("Node").chain(titles).map(str::to_uppercase).collect();
        let rows = self.sorted_rows().into_iter().map(|(node, row)| {
            let cells = row.iter().map(|cell| match &*cell.text {
                "" => "-".into(),
                text if cell.odd => format!("{text} *"),
                text => text.to_owned(),
            });
            once(node.clone()).chain(cells).collect()
        });
        terminal.table(once(head).chain(rows), usize::MAX, &[])
    }

    /// The rows in natural order of their nodes.
    pub fn sorted_rows(&self) -> Vec<(&String, &Vec<FactCell>)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_cached_key(|(node, _)| natural(node));
        rows
    }

    /// The median of each column of numbers, and the one farthest from it.
    pub fn spread_sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        for spread in self.spread.iter().filter(|_| self.rows.len() > 1) {
            let Spread {
                column,
                median,
                highest,
                node,
            } = spread;
            // Offsets deviate in both directions.
            let most = if highest.starts_with(['+', '-']) {
                "furthest"
            } else {
                "highest"
            };
            let (title, median) = (column.title, column.text(*median));
            sentences.push(format!(
                "{title}: median {median}, {most} {highest} ({node})"
            ));
        }
        sentences
    }

    /// Each key that differs between nodes, with its values.
    pub fn differences(&self) -> Vec<(String, String)> {
        let differences = self.all.differences();
        differences
            .iter()
            .map(|difference| (difference.key.clone(), difference.sentence()))
            .collect()
    }

    /// The keys that are not compared.
    pub fn volatile(&self) -> String {
        self.all.volatile.iter().map(String::as_str).joined(", ")
    }

    /// Writes what the table shows: the spread of numbers, and rare values.
    pub(super) fn write_findings(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
        let spread = self.spread_sentences();
        if !spread.is_empty() {
            terminal.blank()?;
        }
        for sentence in spread {
            terminal.line(&sentence)?;
        }
        if !self.odd.is_empty() {
            terminal.blank()?;
            terminal.line("* differs from most nodes:")?;
        }
        for odd in &self.odd {
            let nodes = named(&odd.nodes, odd.nodes.len() as u64);
            terminal.line(&format!("{}: {nodes}", odd.what))?;
        }
        Ok(())
    }

    /// Writes every key that differs between nodes.
    pub(super) fn write_differences(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
        terminal.blank()?;
        let differences = self.differences();
        if differences.is_empty() {
            terminal.line("Nothing else differs between nodes.")?;
        } else {
            let number = number(differences.len());
            terminal.line(&format!("Every key that differs between nodes: {number}"))?;
            let lines: Vec<_> = differences
                .iter()
                .map(|(key, values)| format!("{key}: {values}"))
                .collect();
            terminal.list(&lines, MAX_DIFFERENCES)?;
        }
        let volatile = self.volatile();
        if !volatile.is_empty() {
            terminal.blank()?;
            terminal.wrapped(&format!(
                "Not compared, since they always differ (times, counters, addresses): {volatile}"
            ))?;
        }
        Ok(())
    }

    pub(super) fn json(&self, whole: bool) -> Value {
        let nodes = self.rows.iter().map(|(node, row)| {
            let cells = self.kind.columns.iter().zip(row);
            (
                node,
                cells
                    .map(|(column, cell)| (column.key(), &*cell.text))
                    .collect::<Value>(),
            )
        });
        let spread = self
            .spread
            .iter()
            .map(|spread| (spread.column.key(), json!(spread)));
        let (nodes, spread): (Value, Value) = (nodes.collect(), spread.collect());
        let mut document = json!({"nodes": nodes, "odd": self.odd, "spread": spread});
        if whole {
            document["differences"] = json!(self.all.differences());
            document["notCompared"] = json!(self.all.volatile);
        }
        document
    }
}
