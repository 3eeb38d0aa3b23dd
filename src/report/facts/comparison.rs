//! All facts of one kind compared key by key.
//!
//! Of each key only a few values with a few nodes each are held, so that memory does not grow with
//! the nodes. Keys whose values differ by nature are only named.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::super::words::{count, named};
use base::Joined as _;
use base::json::json;
use base::visible;

/// Maximum number of keys; nodes with unique key names could produce any number.
const MAX_KEYS: usize = 20_000;
/// Maximum distinct values of a key, and nodes to name per value.
pub(super) const MAX_VALUES: usize = 8;
const MAX_NAMED_NODES: usize = 5;
/// Maximum bytes of a value to compare and show.
const MAX_VALUE_BYTES: usize = 100;
/// Minimum run of hexadecimal digits that marks a word of a key as random on every node.
const MIN_RANDOM_DIGITS: usize = 8;

/// Parts of keys that differ by nature: times, counters, addresses, serial numbers.
pub(super) const VOLATILE_PARTS: [&str; 60] = [
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
const VOLATILE_PREFIXES: [&str; 2] = ["ssh_host_key_", "fibre_channel_wwn"];

/// The values of each key, and the nodes that have them.
#[derive(Default)]
pub(super) struct ValueCounts {
    keys: BTreeMap<String, ValueDifference>,
    /// Number of nodes.
    nodes: u64,
    /// Keys that differ by nature and are not compared.
    pub(super) volatile: BTreeSet<String>,
}

/// A key that differs between nodes.
#[derive(Clone, Default, Serialize)]
pub(super) struct ValueDifference {
    pub key: String,
    /// The most frequent first.
    pub values: Vec<SharedValue>,
    /// Number of nodes with further values.
    pub others: u64,
}

/// A value that several nodes share.
#[derive(Clone, Serialize)]
pub(super) struct SharedValue {
    /// `None` for nodes without the key.
    pub value: Option<String>,
    /// Number of nodes.
    pub count: u64,
    /// Some of the nodes.
    pub nodes: Vec<String>,
}

impl ValueCounts {
    /// Adds the facts of a node.
    pub(super) fn add(&mut self, node: &str, facts: &Value) {
        self.nodes += 1;
        let mut leaves = BTreeMap::new();
        self.walk("", facts, &mut leaves);
        for (key, text) in leaves {
            if self.keys.len() >= MAX_KEYS && !self.keys.contains_key(&key) {
                continue;
            }
            self.keys.entry(key).or_default().count(node, text);
        }
    }

    /// Collects the comparable leaves below a path.
    fn walk(&mut self, path: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
        // A list of plain values is one value: its elements have no names.
        let is_plain_list = match value {
            Value::Array(list) => !list.iter().any(Value::is_object),
            _ => false,
        };
        let Some(parts) = parts(value).filter(|_| !is_plain_list) else {
            let text = visible::cut(&text(value), MAX_VALUE_BYTES).into();
            leaves.insert(path.trim_start_matches('.').into(), text);
            return;
        };
        for (step, part) in parts {
            let random_start = random_start(&step);
            let path = match random_start {
                Some(at) => format!("{path}{}*", &step[..at]),
                None => format!("{path}{step}"),
            };
            let is_comparable =
                random_start.is_none() && !is_volatile(step.trim_matches(['.', '[', ']', '"']));
            if is_comparable {
                self.walk(&path, part, leaves);
            } else if self.volatile.len() < MAX_KEYS {
                self.volatile
                    .insert(path.trim_start_matches('.').to_owned());
            }
        }
    }

    /// The differences, those with few odd nodes first.
    pub(super) fn differences(&self) -> Vec<ValueDifference> {
        let mut differences = Vec::new();
        for (key, counted) in &self.keys {
            let mut difference = ValueDifference {
                key: key.clone(),
                ..counted.clone()
            };
            let counts = counted.values.iter().map(|shared| shared.count);
            let without_key = self.nodes - counted.others - counts.sum::<u64>();
            if without_key > 0 {
                difference.values.push(SharedValue {
                    value: None,
                    count: without_key,
                    nodes: Vec::new(),
                });
            }
            if difference.values.len() > 1 {
                difference
                    .values
                    .sort_by_key(|shared| Reverse(shared.count));
                differences.push(difference);
            }
        }
        differences.sort_by_key(|difference| Reverse(difference.values[0].count));
        differences
    }
}

impl ValueDifference {
    /// Adds a node with this value.
    fn count(&mut self, node: &str, text: String) {
        for shared in &mut self.values {
            if shared.value.as_ref() == Some(&text) {
                shared.count += 1;
                if shared.nodes.len() < MAX_NAMED_NODES {
                    shared.nodes.push(node.to_owned());
                }
                return;
            }
        }
        if self.values.len() < MAX_VALUES {
            self.values.push(SharedValue {
                value: Some(text),
                count: 1,
                nodes: vec![node.to_owned()],
            });
        } else {
            self.others += 1;
        }
    }

    /// `60 on 298 nodes; 10 on 2: n1, n2`.
    pub(super) fn sentence(&self) -> String {
        let mut parts = Vec::new();
        for (at, shared) in self.values.iter().enumerate() {
            let value = match shared.value.as_deref() {
                None => "none",
                Some("") => "\"\"",
                Some(value) => value,
            };
            let mut part = format!("{value} on {}", count(shared.count, "node"));
            // Of the most frequent value, only the number matters.
            if at > 0 && !shared.nodes.is_empty() {
                part += &format!(": {}", named(&shared.nodes, shared.count));
            }
            parts.push(part);
        }
        if self.others > 0 {
            parts.push(format!("other values on {}", count(self.others, "node")));
        }
        parts.join("; ")
    }
}

fn is_volatile(part: &str) -> bool {
    let part = part
        .strip_prefix("ansible_")
        .or_else(|| part.strip_prefix("sonobuoy_"))
        .unwrap_or(part);
    VOLATILE_PARTS.binary_search(&part).is_ok()
        || VOLATILE_PREFIXES
            .iter()
            .any(|prefix| part.starts_with(prefix))
}

/// Start of the random part of a word: `veth1a2b3c4d`, a pod's folder.
fn random_start(part: &str) -> Option<usize> {
    let mut runs = part.split(|c: char| !matches!(c, '0'..='9' | 'a'..='f'));
    let run = runs
        .find(|run| run.len() >= MIN_RANDOM_DIGITS && run.contains(|c: char| c.is_ascii_digit()))?;
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
const NAME_FIELDS: [&str; 4] = ["mount", "name", "server", "device"];

/// The parts of an object or a list by their step in a path: `.field`, `[name]` if all elements
/// have names, else `[0]`; `None` for a value without parts.
pub(crate) fn parts(value: &Value) -> Option<BTreeMap<String, &Value>> {
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(key, value)| (field_step(key), value));
            Some(fields.collect())
        }
        Value::Array(list) => Some(named_elements(list).unwrap_or_else(|| {
            let steps = (0..list.len()).map(|at| format!("[{at}]"));
            steps.zip(list).collect()
        })),
        _ => None,
    }
}

fn field_step(key: &str) -> String {
    let is_simple = key
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if is_simple {
        format!(".{key}")
    } else {
        format!("[{}]", json!(key))
    }
}

/// The elements of a list by their names; `None` unless each has its own.
fn named_elements(list: &[Value]) -> Option<BTreeMap<String, &Value>> {
    let mut elements = BTreeMap::new();
    for element in list {
        let mut names = NAME_FIELDS.iter().filter_map(|field| element.get(field));
        let name = names.find_map(Value::as_str)?;
        elements.insert(format!("[{name}]"), element);
    }
    (elements.len() == list.len()).then_some(elements)
}
