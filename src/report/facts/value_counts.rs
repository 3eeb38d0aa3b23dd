//! Compares all facts, key by key: differences between nodes, and keys that differ by nature.
//!
//! Of each key only a few values with a few nodes each are held, so that memory does not grow with the nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use base::Joined as _;
use base::visible;

/// Maximum number of keys; nodes with unique key names could produce any number.
const KEYS: usize = 20_000;
/// Maximum distinct values of a key, and nodes to name per value.
const VALUES: usize = 8;
const NAMED: usize = 5;
/// Maximum bytes of a value to compare and show.
const SHOWN: usize = 100;
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

/// The values of all keys, and the nodes that have them.
#[derive(Default)]
pub(super) struct ValueCounts {
    of: BTreeMap<String, Key>,
    /// Nodes in order of arrival.
    nodes: Vec<String>,
    /// Keys that differ by nature and are not compared.
    pub volatile: BTreeSet<String>,
}

#[derive(Default)]
struct Key {
    count: u64,
    values: Vec<Seen>,
    /// Number of nodes with any other value.
    others: u64,
    /// Lowest and highest, with the node of the highest.
    range: Option<(f64, f64, usize)>,
    last: Option<usize>,
}

struct Seen {
    text: String,
    count: u64,
    nodes: Vec<usize>,
}

/// A key that differs between nodes.
#[derive(Serialize)]
pub(crate) struct Difference<'k> {
    /// The key.
    pub key: &'k str,
    /// Its values, the most frequent first; null for nodes without one.
    pub values: Vec<Shared<'k>>,
    /// Number of nodes with further values.
    pub others: u64,
    /// Whether no two nodes agree.
    pub everywhere: bool,
    /// The range of numbers, if there are many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range<'k>>,
}

/// A value that several nodes share.
#[derive(Serialize)]
pub(crate) struct Shared<'k> {
    /// The value.
    pub value: Option<&'k str>,
    /// Number of nodes.
    pub count: u64,
    /// Some of the nodes.
    pub nodes: Vec<&'k str>,
}

/// A range of numbers.
#[derive(Serialize)]
pub(crate) struct Range<'k> {
    /// The lowest.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
    /// The node with the highest.
    pub node: &'k str,
}

impl ValueCounts {
    /// Adds the facts of a node.
    pub(super) fn add(&mut self, node: &str, facts: &Value) {
        self.nodes.push(node.to_owned());
        self.walk(&mut String::new(), facts);
    }

    fn walk(&mut self, path: &mut String, value: &Value) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| self.step(path, key, value)),
            Value::Array(list) if list.iter().any(Value::is_object) => {
                for (at, value) in list.iter().enumerate() {
                    let named =
                        ["mount", "name", "server", "device"].iter().find_map(|key| value.get(key)?.as_str());
                    self.step(path, named.unwrap_or(&at.to_string()), value);
                }
            }
            value => self.note(path, value),
        }
    }

    fn step(&mut self, path: &mut String, part: &str, value: &Value) {
        let before = path.len();
        let random = random(part);
        path.push_str(if before > 0 { "." } else { "" });
        path.push_str(&part[..random.unwrap_or(part.len())]);
        path.push_str(if random.is_some() { "*" } else { "" });
        if random.is_none() && !is_volatile(part) {
            self.walk(path, value);
        } else if self.volatile.len() < KEYS {
            self.volatile.insert(path.clone());
        }
        path.truncate(before);
    }

    fn note(&mut self, path: &str, value: &Value) {
        let node = self.nodes.len() - 1;
        if self.of.len() >= KEYS && !self.of.contains_key(path) {
            return;
        }
        let key = self.of.entry(path.to_owned()).or_default();
        // Of equal keys the first counts.
        if key.last.replace(node) == Some(node) {
            return;
        }
        key.count += 1;
        if let Some(number) = value.as_f64() {
            let (low, high, of) = key.range.get_or_insert((number, number, node));
            *low = low.min(number);
            if number > *high {
                (*high, *of) = (number, node);
            }
        }
        let text = visible::cut(&text(value), SHOWN).into_owned();
        let room = key.values.len() < VALUES;
        match key.values.iter_mut().find(|seen| seen.text == text) {
            Some(seen) => {
                seen.count += 1;
                if seen.nodes.len() < NAMED {
                    seen.nodes.push(node);
                }
            }
            None if room => key.values.push(Seen { text, count: 1, nodes: vec![node] }),
            None => key.others += 1,
        }
    }

    /// The differences, those with few odd nodes first.
    pub(super) fn differences(&self) -> Vec<Difference<'_>> {
        let all = self.nodes.len() as u64;
        let mut found = Vec::new();
        for (name, key) in &self.of {
            let absent = all - key.count;
            if absent == 0 && key.values.len() < 2 {
                continue;
            }
            let shared = key.values.iter().map(|seen| Shared {
                value: Some(seen.text.as_str()),
                count: seen.count,
                nodes: seen.nodes.iter().map(|node| self.nodes[*node].as_str()).collect(),
            });
            let none = (absent > 0).then(|| Shared { value: None, count: absent, nodes: Vec::new() });
            let mut values: Vec<_> = shared.chain(none).collect();
            values.sort_by_key(|value| std::cmp::Reverse(value.count));
            let everywhere = all > 2 && values.iter().all(|value| value.count == 1);
            let many = key.others > 0 || everywhere;
            let range = key.range.filter(|_| many).map(|(lowest, highest, node)| Range {
                lowest,
                highest,
                node: &self.nodes[node],
            });
            found.push(Difference { key: name, values, others: key.others, everywhere, range });
        }
        found.sort_by_key(|difference| {
            let most = difference.values.first().map_or(0, |value| value.count);
            if most * 2 > all { (0, all - most) } else { (1, difference.values.len() as u64) }
        });
        found
    }
}

fn is_volatile(part: &str) -> bool {
    let part = part.strip_prefix("ansible_").or_else(|| part.strip_prefix("sonobuoy_")).unwrap_or(part);
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    #[test]
    fn what_differs_by_nature_is_not_compared() {
        assert!(VOLATILE.is_sorted(), "searched by halves");
        let mut keys = ValueCounts::default();
        for (node, swap) in [("n1", 60), ("n2", 60), ("n3", 10)] {
            let mount = |name: &str| json!({"mount": name, "size_available": swap, "fstype": "ext4"});
            keys.add(
                node,
                &json!({
                    "ansible_uptime_seconds": swap, "ansible_ssh_host_key_rsa_public": node,
                    "ansible_veth0a1b2c10d4": {"mtu": swap}, "ansible_veth07680169": {"mtu": swap},
                    "sonobuoy_sysctl": {"vm.swappiness": swap, "vm.overcommit": 1},
                    "ansible_mounts": [mount("/"), mount("/data")],
                    "list": ["a", node],
                }),
            );
        }
        let volatile: Vec<_> = keys.volatile.iter().map(String::as_str).collect();
        assert_eq!(
            volatile,
            [
                "ansible_mounts./.size_available",
                "ansible_mounts./data.size_available",
                "ansible_ssh_host_key_rsa_public",
                "ansible_uptime_seconds",
                "ansible_veth*",
            ]
        );
        let differences = keys.differences();
        let told: Vec<_> =
            differences.iter().map(|difference| (difference.key, difference.values.len())).collect();
        assert_eq!(told, [("sonobuoy_sysctl.vm.swappiness", 2), ("list", 3)]);
        assert_eq!(differences[0].values[1].nodes, ["n3"]);
    }

    #[test]
    fn many_values_are_bounded_and_numbers_have_a_range() {
        let mut keys = ValueCounts::default();
        let only = |node: i32| if node == 7 { json!(true) } else { json!({}) };
        for node in 0..100 {
            keys.add(&format!("n{node}"), &json!({"errors": node, "only": only(node)}));
        }
        let differences = keys.differences();
        assert_eq!(differences[0].key, "only");
        assert_eq!((differences[0].values[0].value, differences[0].values[0].count), (None, 99));
        let errors = &differences[1];
        assert_eq!((errors.values.len(), errors.others), (VALUES, 92));
        let range = errors.range.as_ref().unwrap();
        assert_eq!((range.lowest, range.highest, range.node), (0.0, 99.0, "n99"));
    }
}
