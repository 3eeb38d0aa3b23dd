//! The tables of facts: their source files and their columns.

use std::collections::BTreeMap;
use std::io::Cursor;

use serde_json::{Map, Value};

use super::super::times::spoken;
use crate::item::read::{Visit, Writer, read};
use crate::item::{FAILED, Item};
use crate::layout;

/// Facts of one kind.
pub(super) struct Kind {
    /// The built-in plugin that gathers them.
    pub plugin: &'static str,
    /// The title for display.
    pub title: &'static str,
    /// The name of its file.
    pub file: &'static str,
    /// Parses the facts of such a file; null on failure.
    pub read: fn(&[u8]) -> Value,
    pub columns: &'static [Column],
}

/// A column: its title, the words before its value in a sentence, the word for a missing value, and the value.
pub(super) struct Column {
    pub title: &'static str,
    pub sentence: &'static str,
    pub none: &'static str,
    pub baseline: Baseline,
    /// The unit of numbers; empty for counts and text.
    pub unit: &'static str,
    value: fn(&Value) -> Option<Cell>,
}

/// The rule that marks odd values of a column.
#[derive(Clone, Copy)]
pub(super) enum Baseline {
    /// No value is odd: nodes differ by nature.
    Nothing,
    /// The value of most nodes is normal.
    Majority,
    /// Numbers that are many times the median, and above a floor, are odd.
    Median { floor: f64 },
}

/// One value for display; empty if unknown.
#[derive(Default)]
pub(super) struct Cell {
    pub text: String,
    pub number: Option<f64>,
}

impl Column {
    pub(super) fn cell(&self, facts: &Value) -> Cell {
        let mut cell = (self.value)(facts).unwrap_or_default();
        if let Some(number) = cell.number.filter(|_| cell.text.is_empty()) {
            cell.text = self.text(number);
        }
        cell
    }

    /// Formats a number of this cell.
    pub(super) fn text(&self, number: f64) -> String {
        match self.unit {
            "ms" if number < 1000.0 => format!("{number:.1} ms"),
            "ms" => spoken(number / 1000.0),
            "s" if number.abs() < 0.05 => "0 s".into(),
            "s" => format!("{number:+.1} s"),
            "GiB" => format!("{number:.0} GiB"),
            _ => super::super::words::number(number as u64),
        }
    }

    /// Its title in CSV, with the unit.
    pub(super) fn name(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!("_{}", self.unit) };
        (self.title.to_owned() + &unit).to_lowercase().replace(' ', "_")
    }

    const fn of(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self { text: String::new(), number: Some(number) }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, number: None }
    }
}

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        plugin: "host-facts",
        title: "What the nodes are made of",
        file: layout::HOST_FACTS,
        read: |bytes| {
            let document = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
            document.get("ansible_facts").cloned().unwrap_or_default()
        },
        columns: &HOST,
    },
    Kind {
        plugin: "network",
        title: "What the nodes reach, and how fast",
        file: layout::NETWORK,
        read: tree,
        columns: &NETWORK,
    },
    Kind {
        plugin: "systemd-logs",
        title: "What the nodes log",
        file: layout::LOG_SUMMARY,
        read: tree,
        columns: &LOGS,
    },
];

/// A column whose values should be equal on all nodes.
const fn same(title: &'static str, sentence: &'static str, value: fn(&Value) -> Option<Cell>) -> Column {
    Column { title, sentence, none: "unknown", baseline: Baseline::Majority, unit: "", value }
}

/// A column that is shown and never marked.
const fn shown(title: &'static str, value: fn(&Value) -> Option<Cell>) -> Column {
    Column { title, sentence: "", none: "unknown", baseline: Baseline::Nothing, unit: "", value }
}

/// A column whose numbers should be similar on all nodes.
const fn number(
    title: &'static str,
    sentence: &'static str,
    floor: f64,
    value: fn(&Value) -> Option<Cell>,
) -> Column {
    Column { title, sentence, none: "unknown", baseline: Baseline::Median { floor }, unit: "", value }
}

const HOST: [Column; 10] = [
    same("OS", "run", |facts| {
        let version = text(facts, "ansible_distribution_version").unwrap_or_default();
        Some(format!("{} {version}", text(facts, "ansible_distribution")?).trim_end().to_owned().into())
    }),
    same("KERNEL", "run kernel", |facts| Some(text(facts, "ansible_kernel")?.into())),
    same("ARCH", "have architecture", |facts| Some(text(facts, "ansible_architecture")?.into())),
    same("CPUS", "have CPUs:", |facts| Some(text(facts, "ansible_processor_vcpus")?.into())),
    // Rounded up to a GiB: the kernel reserves a little, which varies.
    same("MEMORY", "have memory of", |facts| {
        let mib = facts.get("ansible_memtotal_mb")?.as_f64()?;
        Some((mib / 1024.0).max(1.0).round().into())
    })
    .of("GiB"),
    same("DISK", "have a root disk of", |facts| {
        let bytes = facts.pointer("/sonobuoy_folders/~1/size_total")?.as_f64()?;
        Some((bytes / f64::from(1 << 30)).round().into())
    })
    .of("GiB"),
    same("RUNTIME", "run", |facts| Some(info(facts, "containerRuntimeVersion")?.into())),
    same("KUBELET", "run kubelet", |facts| Some(info(facts, "kubeletVersion")?.into())),
    number("CLOCK", "have a clock that is off", 1.0, |facts| {
        Some(facts.pointer("/sonobuoy_clock_offset/seconds")?.as_f64()?.into())
    })
    .of("s"),
    shown("UPTIME", |facts| {
        let seconds = facts.get("ansible_uptime_seconds")?.as_f64()?;
        Some(Cell { text: spoken(seconds), number: Some(seconds) })
    })
    .of("s"),
];

const NETWORK: [Column; 5] = [
    Column {
        title: "FAILED",
        sentence: "fail at:",
        none: "nothing",
        baseline: Baseline::Majority,
        unit: "",
        value: |facts| Some(failed(facts.as_object()?).into()),
    },
    number("DNS", "have slow name servers", 20.0, |facts| {
        let servers = facts.pointer("/dns/servers")?.as_array()?;
        let slowest = servers.iter().filter_map(|server| server.get("latency_ms")?.as_f64());
        Some(slowest.reduce(f64::max)?.into())
    })
    .of("ms"),
    number("API", "are slow to reach the API server", 50.0, |facts| dialled(facts.get("api")?)).of("ms"),
    number("AGGREGATOR", "are slow to reach the aggregator", 50.0, |facts| dialled(facts.get("aggregator")?))
        .of("ms"),
    number("CLOCK", "have a clock that is off", 1.0, |facts| {
        Some(facts.pointer("/clock/offset_seconds")?.as_f64()?.into())
    })
    .of("s"),
];

const LOGS: [Column; 7] = [
    Column {
        title: "TROUBLE",
        sentence: "log trouble:",
        none: "none",
        baseline: Baseline::Majority,
        unit: "",
        value: |facts| Some(failed(facts.get("trouble")?.as_object()?).into()),
    },
    shown("ENTRIES", |facts| Some(facts.get("entries")?.as_f64()?.into())),
    number("CRITICAL", "log many critical entries", 10.0, |facts| {
        priorities(facts, &["emerg", "alert", "crit"])
    }),
    number("ERRORS", "log many errors", 100.0, |facts| priorities(facts, &["err"])),
    number("WARNINGS", "log many warnings", 1_000.0, |facts| priorities(facts, &["warning"])),
    number("UNITS", "have errors of many units", 20.0, |facts| {
        let units = facts.get("units-with-errors").and_then(Value::as_object);
        let units = units.into_iter().flat_map(Map::values).filter(|unit| unit.is_object()).count();
        facts.get("entries").map(|_| (units as f64).into())
    }),
    shown("MOST ERRORS", |facts| {
        let units = facts.get("units-with-errors")?.as_object()?.iter();
        let errors = units.filter_map(|(unit, about)| Some((about.get("errors")?.as_u64()?, unit)));
        let (count, unit) = errors.max()?;
        Some(format!("{unit} ({count})").into())
    }),
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

/// Time until a connection was usable.
fn dialled(leg: &Value) -> Option<Cell> {
    let part = |key: &str| leg.get(key)?.as_f64();
    Some((part("connect_ms")? + part("handshake_ms").unwrap_or_default()).into())
}

/// The names of the parts that failed.
fn failed(parts: &Map<String, Value>) -> String {
    let failed = parts.iter().filter(|(_, part)| part.get("status").is_some_and(|status| status == FAILED));
    failed.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

fn priorities(facts: &Value, names: &[&str]) -> Option<Cell> {
    let counts = facts.get("priorities")?.as_object()?;
    Some(names.iter().filter_map(|name| counts.get(*name)?.as_f64()).sum::<f64>().into())
}

/// A tree of items as nested maps: the details of an item, and its children by name.
fn tree(bytes: &[u8]) -> Value {
    let mut maps = Maps::default();
    // Whatever precedes an error is useful.
    let _ = read(Cursor::new(bytes), Writer::Plugin, &mut maps);
    maps.done.pop().map(|(_, map)| Value::Object(map)).unwrap_or_default()
}

#[derive(Default)]
struct Maps {
    open: Vec<(String, Map<String, Value>)>,
    done: Vec<(String, Map<String, Value>)>,
}

impl Maps {
    fn close(&mut self, name: String, map: Map<String, Value>) {
        match self.open.last_mut() {
            Some((_, above)) => drop(above.insert(name, Value::Object(map))),
            None => self.done.push((name, map)),
        }
    }
}

fn about(details: BTreeMap<String, Value>, status: String) -> Map<String, Value> {
    let mut map: Map<String, Value> = details.into_iter().collect();
    map.insert("status".into(), status.into());
    map
}

impl Visit for Maps {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        self.open.push((item.name, about(item.details, item.status)));
        Ok(())
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        if let Some((name, map)) = self.open.pop() {
            self.close(name, map);
        }
        Ok(())
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        self.close(item.name, about(item.details, item.status));
        Ok(())
    }
}
