//! The tables of facts: their source files and their columns.

use serde::Serialize;
use serde_json::{Map, Value};

use Of::{Derived, Number, Rounded, Sum, Text};

use super::super::words::{self, spoken};
use base::Joined as _;
use model::item::FAILED;
use model::item::read::items;
use model::layout;

/// Facts of one kind.
pub struct FactKind {
    /// The built-in plugin that gathers them.
    pub plugin: &'static str,
    /// The title for display.
    pub title: &'static str,
    /// The name of its file.
    pub file: &'static str,
    /// Parses the facts of such a file; null on failure.
    pub read: fn(&[u8]) -> Value,
    pub columns: &'static [FactColumn],
}

/// A column: its title, the words before its value in a sentence, the word for a missing value, and
/// the value.
pub struct FactColumn {
    pub title: &'static str,
    pub sentence: &'static str,
    pub none: &'static str,
    pub baseline: Baseline,
    /// The unit of numbers; empty for counts and text.
    unit: &'static str,
    value: Of,
}

/// The origin of a value; places are JSON pointers.
enum Of {
    /// Text, or a number that is as good as text.
    Text(&'static str),
    /// A number.
    Number(&'static str),
    /// A number divided by another one, at least 1.
    Rounded(&'static str, f64),
    /// The sum of some numbers, if the first place exists.
    Sum(&'static str, &'static [&'static str]),
    /// Any other.
    Derived(fn(&Value) -> Option<FactCell>),
}

/// The rule that marks odd values of a column.
#[derive(Clone, Copy)]
pub enum Baseline {
    /// No value is odd: nodes differ by nature.
    Nothing,
    /// The value of most nodes is normal.
    Majority,
    /// Numbers that are many times the median, and above a floor, are odd.
    Median { floor: f64 },
}

/// One value for display; empty if unknown.
#[derive(Default, Serialize)]
pub struct FactCell {
    pub text: String,
    #[serde(skip)]
    pub number: Option<f64>,
    /// Whether it deviates from those of most nodes.
    pub odd: bool,
}

impl FactColumn {
    pub(super) fn cell(&self, facts: &Value) -> FactCell {
        let number = |place: &str| facts.pointer(place)?.as_f64();
        let cell = match self.value {
            Text(place) => text(facts, place).map(FactCell::from),
            Number(place) => number(place).map(FactCell::from),
            Rounded(place, by) => number(place).map(|number| (number / by).max(1.0).round().into()),
            Sum(needed, places) => facts.pointer(needed).map(|_| {
                places
                    .iter()
                    .filter_map(|place| number(place))
                    .sum::<f64>()
                    .into()
            }),
            Derived(value) => value(facts),
        };
        let mut cell = cell.unwrap_or_default();
        if let Some(number) = cell.number {
            cell.text = self.text(number);
        }
        cell
    }

    /// The text of a cell, or the word for a missing value.
    pub fn value_or_none<'a>(&'a self, cell: &'a FactCell) -> &'a str {
        if cell.text.is_empty() {
            self.none
        } else {
            &cell.text
        }
    }

    /// Whether its values should be the same on all nodes.
    pub(super) fn is_common(&self) -> bool {
        matches!(self.baseline, Baseline::Majority)
    }

    /// Formats a number of this cell.
    pub(super) fn text(&self, number: f64) -> String {
        match (self.unit, self.baseline) {
            ("ms", _) if number < 1000.0 => format!("{number:.1} ms"),
            ("ms", _) => spoken(number / 1000.0),
            ("s", Baseline::Nothing) => spoken(number),
            ("s", _) if number.abs() < 0.05 => "0 s".into(),
            ("s", _) => format!("{number:+.1} s"),
            ("GiB", _) => format!("{number:.0} GiB"),
            _ => words::number(number as u64),
        }
    }

    /// Its title in JSON.
    pub(super) fn key(&self) -> String {
        self.title.to_lowercase().replace(' ', "_")
    }

    /// Its title in CSV, with the unit.
    pub(super) fn name(&self) -> String {
        let unit = self.unit.to_lowercase();
        [&*self.key(), &unit]
            .into_iter()
            .filter(|part| !part.is_empty())
            .joined("_")
    }

    const fn of(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }
}

impl From<f64> for FactCell {
    fn from(number: f64) -> Self {
        Self {
            number: Some(number),
            ..Self::default()
        }
    }
}

impl From<String> for FactCell {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

pub(super) const KINDS: [FactKind; 3] = [
    FactKind {
        plugin: "host-facts",
        title: "What the nodes are made of",
        file: layout::HOST_FACTS,
        read: |bytes| {
            serde_json::from_slice::<Value>(bytes)
                .unwrap_or_default()
                .get("ansible_facts")
                .cloned()
                .unwrap_or_default()
        },
        columns: &HOST,
    },
    FactKind {
        plugin: "network",
        title: "What the nodes reach, and how fast",
        file: layout::NETWORK,
        read: tree,
        columns: &NETWORK,
    },
    FactKind {
        plugin: "systemd-logs",
        title: "What the nodes log",
        file: layout::LOG_SUMMARY,
        read: tree,
        columns: &LOGS,
    },
];

/// A column whose values should be equal on all nodes.
const fn same(title: &'static str, sentence: &'static str, value: Of) -> FactColumn {
    FactColumn {
        title,
        sentence,
        none: "unknown",
        baseline: Baseline::Majority,
        unit: "",
        value,
    }
}

/// A column that is shown and never marked.
const fn unmarked(title: &'static str, value: Of) -> FactColumn {
    FactColumn {
        baseline: Baseline::Nothing,
        ..same(title, "", value)
    }
}

/// A column whose numbers should be similar on all nodes.
const fn number(title: &'static str, sentence: &'static str, floor: f64, value: Of) -> FactColumn {
    FactColumn {
        baseline: Baseline::Median { floor },
        ..same(title, sentence, value)
    }
}

const HOST: [FactColumn; 10] = [
    same(
        "OS",
        "run",
        Derived(|facts| {
            let version = text(facts, "/ansible_distribution_version").unwrap_or_default();
            Some(
                format!("{} {version}", text(facts, "/ansible_distribution")?)
                    .trim_end()
                    .to_owned()
                    .into(),
            )
        }),
    ),
    same("Kernel", "run kernel", Text("/ansible_kernel")),
    same("Arch", "have architecture", Text("/ansible_architecture")),
    same("CPUs", "have CPUs:", Text("/ansible_processor_vcpus")),
    // Rounded to a GiB: the kernel reserves a little, which varies.
    same(
        "Memory",
        "have memory of",
        Rounded("/ansible_memtotal_mb", 1024.0),
    )
    .of("GiB"),
    same(
        "Disk",
        "have a root disk of",
        Rounded("/sonobuoy_folders/~1/size_total", (1 << 30) as f64),
    )
    .of("GiB"),
    same(
        "Runtime",
        "run",
        Text("/sonobuoy_node_info/containerRuntimeVersion"),
    ),
    same(
        "Kubelet",
        "run kubelet",
        Text("/sonobuoy_node_info/kubeletVersion"),
    ),
    number(
        "Clock",
        "have a clock that is off",
        1.0,
        Number("/sonobuoy_clock_offset/seconds"),
    )
    .of("s"),
    unmarked("Uptime", Number("/ansible_uptime_seconds")).of("s"),
];

const NETWORK: [FactColumn; 8] = [
    FactColumn {
        none: "nothing",
        ..same(
            "Failed",
            "fail at:",
            Derived(|facts| Some(failed(facts.as_object()?).into())),
        )
    },
    number(
        "DNS",
        "have slow name servers",
        20.0,
        Derived(|facts| {
            let latencies = facts
                .pointer("/dns/servers")?
                .as_array()?
                .iter()
                .filter_map(|server| server.get("latency_ms")?.as_f64());
            Some(latencies.reduce(f64::max)?.into())
        }),
    )
    .of("ms"),
    number(
        "API",
        "are slow to reach the API server",
        50.0,
        Sum("/api/connect_ms", &["/api/connect_ms", "/api/handshake_ms"]),
    )
    .of("ms"),
    number(
        "Aggregator",
        "are slow to reach the aggregator",
        50.0,
        Sum(
            "/aggregator/connect_ms",
            &["/aggregator/connect_ms", "/aggregator/handshake_ms"],
        ),
    )
    .of("ms"),
    same(
        "Peers",
        "have peers in reach:",
        Derived(|facts| {
            let number = |place: &str| facts.pointer(place)?.as_u64();
            let (reached, all) = (number("/peers/reached")?, number("/peers/of")?);
            Some(format!("{reached} of {all}").into())
        }),
    ),
    number(
        "Peer latency",
        "are slow to reach a peer",
        20.0,
        Number("/peers/slowest_ms"),
    )
    .of("ms"),
    same(
        "Peer MTU",
        "have a path to a peer with the MTU",
        Text("/peers/path_mtu"),
    ),
    number(
        "Clock",
        "have a clock that is off",
        1.0,
        Number("/clock/offset_seconds"),
    )
    .of("s"),
];

const LOGS: [FactColumn; 7] = [
    FactColumn {
        none: "none",
        ..same(
            "Trouble",
            "log trouble:",
            Derived(|facts| Some(failed(facts.get("trouble")?.as_object()?).into())),
        )
    },
    unmarked("Entries", Number("/entries")),
    number(
        "Critical",
        "log many critical entries",
        10.0,
        Sum(
            "/priorities",
            &["/priorities/emerg", "/priorities/alert", "/priorities/crit"],
        ),
    ),
    number(
        "Errors",
        "log many errors",
        100.0,
        Sum("/priorities", &["/priorities/err"]),
    ),
    number(
        "Warnings",
        "log many warnings",
        1_000.0,
        Sum("/priorities", &["/priorities/warning"]),
    ),
    number(
        "Units",
        "have errors of many units",
        20.0,
        Derived(|facts| {
            let units = facts
                .get("units-with-errors")
                .and_then(Value::as_object)
                .into_iter()
                .flat_map(Map::values)
                .filter(|unit| unit.is_object())
                .count();
            facts.get("entries").map(|_| (units as f64).into())
        }),
    ),
    unmarked(
        "Most errors",
        Derived(|facts| {
            let (count, unit) = facts
                .get("units-with-errors")?
                .as_object()?
                .iter()
                .filter_map(|(unit, about)| Some((about.get("errors")?.as_u64()?, unit)))
                .max()?;
            Some(format!("{unit} ({count})").into())
        }),
    ),
];

fn text(facts: &Value, place: &str) -> Option<String> {
    match facts.pointer(place)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The names of the parts that failed.
fn failed(parts: &Map<String, Value>) -> String {
    parts
        .iter()
        .filter(|(_, part)| part.get("status").is_some_and(|status| status == FAILED))
        .map(|(name, _)| name.as_str())
        .joined(", ")
}

/// A tree of items as nested maps: the details of an item, and its children by name. Null if it
/// cannot be read.
fn tree(bytes: &[u8]) -> Value {
    let mut root = Value::Null;
    let read = items(bytes, None, |above, item| {
        let mut place = &mut root;
        for (depth, item) in above.iter().chain([&item]).enumerate() {
            if depth > 0 {
                place = &mut place[&*item.name];
            }
            if !place.is_object() {
                *place = item.details.clone().into_iter().collect();
                place["status"] = item.status.as_str().into();
            }
        }
        Ok(())
    });
    read.map(|_| root).unwrap_or_default()
}
