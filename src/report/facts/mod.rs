//! Facts of nodes, a row each: common values and exceptions.
//!
//! Reads the files of the built-in plugins: host facts in the form of Ansible's setup module,
//! connectivity, log counts. `columns` defines the tables. An unreadable file is a row that says
//! so. Values that differ by nature are shown and never marked.
//!
//! All facts can be compared, too, key by key. Of each key only a few values with a few nodes each
//! are held, so that memory does not grow with the nodes.

mod columns;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::iter::once;

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;

use super::SCHEMA_VERSION;
use super::files::objects;
use super::terminal::TextOutput;
use super::words::{count, majority, named, number};
use base::Joined as _;
use base::json::json;
use base::visible;
use columns::{Baseline, FactCell, FactColumn, FactKind, KINDS};
use model::layout::{self, Delivered};
use yaml::natural;

/// Maximum size of a file; 100 KiB is usual.
const LIMIT: u64 = 8 << 20;
/// Maximum differing keys in the text.
const MAX_DIFFERENCES: usize = 500;
/// Multiple of the median from which a number is odd.
const ODD_FACTOR: f64 = 5.0;

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

/// The facts of one kind.
pub struct Table {
    pub kind: &'static FactKind,
    /// The values of each row, by node.
    pub rows: BTreeMap<String, Vec<FactCell>>,
    /// Values that deviate from those of most nodes; deviating numbers of a column are one entry.
    pub odd: Vec<Odd>,
    spread: Vec<Spread>,
    all: ValueCounts,
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
                self.known
                    .insert(name.to_owned(), node["status"]["nodeInfo"].take());
            }
            true
        });
        read.unwrap_or_else(|error| {
            log::debug!("the nodes of the snapshot cannot be read: {error}");
        });
    }

    /// Fills in values from the snapshot that gatherers lack, since their pods have no account to
    /// query the cluster, and compares the nodes.
    pub fn complete(&mut self) {
        for (node, row) in self
            .tables
            .get_mut(&0)
            .into_iter()
            .flat_map(|hosts| &mut hosts.rows)
        {
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
            content.take(LIMIT).read_to_end(&mut bytes)?;
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
        let table = self.tables.entry(at).or_insert_with(|| Table {
            kind,
            rows: BTreeMap::new(),
            odd: Vec::new(),
            spread: Vec::new(),
            all: ValueCounts::default(),
        });
        table.rows.insert(
            node.to_owned(),
            kind.columns
                .iter()
                .map(|column| column.cell(&facts))
                .collect(),
        );
        if self.whole {
            table.all.add(node, &facts);
        }
    }

    /// The value of most nodes for each fact that should be the same on all, by its title.
    pub fn common(&self) -> BTreeMap<String, String> {
        let mut common = BTreeMap::new();
        for table in self.tables.values() {
            for (at, column) in table
                .kind
                .columns
                .iter()
                .enumerate()
                .filter(|(_, column)| column.is_common())
            {
                let usual = majority(table.rows.values().map(|row| row[at].text.clone()))
                    .filter(|text| !text.is_empty());
                common.extend(usual.map(|usual| (column.title.to_lowercase(), usual)));
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
                        let [was, is] = [was, is].map(|cell| {
                            if cell.text.is_empty() {
                                column.none
                            } else {
                                &cell.text
                            }
                        });
                        changes.push(format!(
                            "{node}: {} {was} -> {is}",
                            column.title.to_lowercase()
                        ));
                    }
                }
            }
        }
        changes
    }
}

impl Table {
    /// Marks odd values, column by column.
    fn judge(&mut self) {
        let all = self.rows.len();
        for (at, column) in self.kind.columns.iter().enumerate() {
            let cells = self.rows.iter().map(|(node, row)| (node, &row[at]));
            let is_odd: Box<dyn Fn(&FactCell) -> bool> = match column.baseline {
                Baseline::Nothing => continue,
                Baseline::Majority => match majority(cells.map(|(_, cell)| cell.text.clone())) {
                    Some(usual) => Box::new(move |cell| cell.text != usual),
                    None => continue,
                },
                Baseline::Median { floor } => {
                    let mut numbers: Vec<_> = cells
                        .filter_map(|(node, cell)| Some((cell.number?, &cell.text, node)))
                        .collect();
                    numbers.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
                    let Some(last) = numbers.len().checked_sub(1) else {
                        continue;
                    };
                    let median = f64::midpoint(numbers[last / 2].0, numbers[last.div_ceil(2)].0);
                    let is_lowest = numbers[0].0.abs() > numbers[last].0.abs();
                    let (_, text, node) = numbers[if is_lowest { 0 } else { last }];
                    let (highest, node) = (text.clone(), node.clone());
                    self.spread.push(Spread {
                        column,
                        median,
                        highest,
                        node,
                    });
                    let limit = floor.max(median.abs() * ODD_FACTOR);
                    Box::new(move |cell| cell.number.is_some_and(|number| number.abs() > limit))
                }
            };
            let mut odd = BTreeMap::<String, Vec<String>>::new();
            for (node, row) in &mut self.rows {
                let cell = &mut row[at];
                cell.odd = is_odd(cell);
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
            csv(out, ["plugin", "key", "value", "nodes", "examples"])?;
            for table in tables {
                for difference in table.all.differences() {
                    for SharedValue {
                        value,
                        count,
                        nodes,
                    } in &difference.values
                    {
                        let (value, count) =
                            (value.as_deref().unwrap_or_default(), count.to_string());
                        csv(
                            out,
                            [
                                table.kind.plugin,
                                &difference.key,
                                value,
                                &count,
                                &nodes.join(" "),
                            ],
                        )?;
                    }
                }
            }
            return Ok(());
        }
        let [table] = tables[..] else {
            let names = tables.iter().map(|table| table.kind.plugin).joined(", ");
            bail!("CSV is one table; choose with --plugin one of {names}");
        };
        let titles = table.kind.columns.iter().map(FactColumn::name);
        csv(out, once("node".into()).chain(titles))?;
        for (node, row) in &table.rows {
            let cells = row.iter().map(|cell| {
                cell.number
                    .map_or(cell.text.clone(), |number| number.to_string())
            });
            csv(out, once(node.clone()).chain(cells))?;
        }
        Ok(())
    }
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
    fn write_findings(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
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
    fn write_differences(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
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

    fn json(&self, whole: bool) -> Value {
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

impl ValueDifference {
    /// `60 on 298 nodes; 10 on 2: n1, n2`.
    fn sentence(&self) -> String {
        let values = self.values.iter().enumerate().map(|(at, shared)| {
            let value = shared.value.as_deref().map_or("none", |value| {
                if value.is_empty() { "\"\"" } else { value }
            });
            let nodes = match &shared.nodes[..] {
                nodes if at > 0 && !nodes.is_empty() => format!(": {}", named(nodes, shared.count)),
                _ => String::new(),
            };
            format!("{value} on {}{nodes}", count(shared.count, "node"))
        });
        let more =
            (self.others > 0).then(|| format!("other values on {}", count(self.others, "node")));
        values.chain(more).joined("; ")
    }
}

/// Maximum number of keys; nodes with unique key names could produce any number.
const KEYS: usize = 20_000;
/// Maximum distinct values of a key, and nodes to name per value.
const VALUES: usize = 8;
const NAMED: usize = 5;
/// Maximum bytes of a value to compare and show.
const MAX_VALUE_BYTES: usize = 100;
/// Minimum run of hexadecimal digits that marks a word of a key as random on every node.
const RANDOM: usize = 8;

/// Parts of keys that differ by nature: times, counters, addresses, serial numbers.
const VOLATILE: [&str; 60] = [
    "address",
    "alias",
    "all_ipv4_addresses",
    "all_ipv6_addresses",
    "block_available",
    "block_used",
    "board_serial",
    "bootID",
    "boot_id",
    "broadcast",
    "cached",
    "chassis_serial",
    "clock_offset",
    "connect_ms",
    "date_time",
    "device_links",
    "domain",
    "entries",
    "entropy_available",
    "example",
    "first",
    "fqdn",
    "free",
    "handshake_ms",
    "hostname",
    "hostnqn",
    "inode_available",
    "inode_available_percent",
    "inode_used",
    "ipv4",
    "ipv4_secondaries",
    "ipv6",
    "iscsi_iqn",
    "last",
    "latency_ms",
    "loadavg",
    "macaddress",
    "machineID",
    "machine_id",
    "memavailable_mb",
    "memfree_mb",
    "net.netfilter.nf_conntrack_count",
    "network",
    "nodename",
    "offset_seconds",
    "open_files",
    "pressure",
    "processes",
    "product_serial",
    "product_uuid",
    "serial",
    "size_available",
    "size_available_percent",
    "swapfree_mb",
    "systemUUID",
    "uncertainty_seconds",
    "unread",
    "uptime_seconds",
    "used",
    "uuid",
];
/// Prefixes of such parts.
const PREFIXES: [&str; 2] = ["ssh_host_key_", "fibre_channel_wwn"];

/// The values of each key, and the nodes that have them.
#[derive(Default)]
struct ValueCounts {
    keys: BTreeMap<String, ValueDifference>,
    /// Number of nodes.
    nodes: u64,
    /// Keys that differ by nature and are not compared.
    volatile: BTreeSet<String>,
}

/// A key that differs between nodes.
#[derive(Clone, Default, Serialize)]
struct ValueDifference {
    pub key: String,
    /// The most frequent first.
    pub values: Vec<SharedValue>,
    /// Number of nodes with further values.
    pub others: u64,
}

/// A value that several nodes share.
#[derive(Clone, Serialize)]
struct SharedValue {
    /// `None` for nodes without the key.
    pub value: Option<String>,
    /// Number of nodes.
    pub count: u64,
    /// Some of the nodes.
    pub nodes: Vec<String>,
}

impl ValueCounts {
    /// Adds the facts of a node.
    fn add(&mut self, node: &str, facts: &Value) {
        self.nodes += 1;
        let mut leaves = BTreeMap::new();
        self.walk("", facts, &mut leaves);
        for (key, text) in leaves {
            if self.keys.len() >= KEYS && !self.keys.contains_key(&key) {
                continue;
            }
            let ValueDifference { values, others, .. } = self.keys.entry(key).or_default();
            let has_room = values.len() < VALUES;
            match values
                .iter_mut()
                .find(|shared| shared.value.as_ref() == Some(&text))
            {
                Some(shared) => {
                    shared.count += 1;
                    shared
                        .nodes
                        .extend((shared.nodes.len() < NAMED).then(|| node.to_owned()));
                }
                None if has_room => {
                    values.push(SharedValue {
                        value: Some(text),
                        count: 1,
                        nodes: vec![node.to_owned()],
                    });
                }
                None => *others += 1,
            }
        }
    }

    /// Collects the comparable leaves below a path.
    fn walk(&mut self, path: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
        let is_list = value
            .as_array()
            .is_some_and(|list| !list.iter().any(Value::is_object));
        let Some(parts) = parts(value).filter(|_| !is_list) else {
            leaves.insert(
                path.trim_start_matches('.').into(),
                visible::cut(&text(value), MAX_VALUE_BYTES).into(),
            );
            return;
        };
        for (step, part) in parts {
            let random = random(&step);
            let path = format!(
                "{path}{}",
                random.map_or(step.clone(), |at| format!("{}*", &step[..at]))
            );
            if random.is_none() && !is_volatile(step.trim_matches(['.', '[', ']', '"'])) {
                self.walk(&path, part, leaves);
            } else if self.volatile.len() < KEYS {
                self.volatile
                    .insert(path.trim_start_matches('.').to_owned());
            }
        }
    }

    /// The differences, those with few odd nodes first.
    fn differences(&self) -> Vec<ValueDifference> {
        let all = self.keys.iter().map(|(key, counted)| {
            let mut difference = ValueDifference {
                key: key.clone(),
                ..counted.clone()
            };
            let count = self.nodes
                - counted.others
                - counted
                    .values
                    .iter()
                    .map(|shared| shared.count)
                    .sum::<u64>();
            difference.values.extend((count > 0).then(|| SharedValue {
                value: None,
                count,
                nodes: Vec::new(),
            }));
            difference
                .values
                .sort_by_key(|shared| Reverse(shared.count));
            difference
        });
        let mut differences: Vec<_> = all.filter(|key| key.values.len() > 1).collect();
        differences.sort_by_key(|difference| Reverse(difference.values[0].count));
        differences
    }
}

fn is_volatile(part: &str) -> bool {
    let part = part
        .strip_prefix("ansible_")
        .or_else(|| part.strip_prefix("sonobuoy_"))
        .unwrap_or(part);
    VOLATILE.binary_search(&part).is_ok() || PREFIXES.iter().any(|prefix| part.starts_with(prefix))
}

/// Start of the random part of a word: `veth1a2b3c4d`, a pod's folder.
fn random(part: &str) -> Option<usize> {
    let mut runs = part.split(|c: char| !matches!(c, '0'..='9' | 'a'..='f'));
    let run = runs.find(|run| run.len() >= RANDOM && run.contains(|c: char| c.is_ascii_digit()))?;
    part.find(run)
}

/// A value in its compared form.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).joined(", "),
        other => other.to_string(),
    }
}

/// Fields that name the element of a list.
const NAMES: [&str; 4] = ["mount", "name", "server", "device"];

/// The parts of an object or a list by their step in a path: `.field`, `[name]` if all elements
/// have names, else `[0]`; `None` for a value without parts.
pub(super) fn parts(value: &Value) -> Option<BTreeMap<String, &Value>> {
    let is_simple = |key: &str| {
        key.chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    let field = |key: &String| {
        if is_simple(key) {
            format!(".{key}")
        } else {
            format!("[{}]", json!(key))
        }
    };
    let named = |element: &Value| {
        NAMES
            .iter()
            .find_map(|name| Some(format!("[{}]", element.get(name)?.as_str()?)))
    };
    match value {
        Value::Object(map) => Some(map.iter().map(|(key, value)| (field(key), value)).collect()),
        Value::Array(list) => {
            let by_name: Option<BTreeMap<_, _>> = list
                .iter()
                .map(|element| Some((named(element)?, element)))
                .collect();
            let by_index = || (0..).map(|at| format!("[{at}]")).zip(list).collect();
            Some(
                by_name
                    .filter(|named| named.len() == list.len())
                    .unwrap_or_else(by_index),
            )
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
