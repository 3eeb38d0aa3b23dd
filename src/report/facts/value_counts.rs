//! Compares all facts, key by key: differences between nodes, and keys that differ by nature.
//!
//! Of each key only a few values with a few nodes each are held, so that memory does not grow with the nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::super::diff::parts;
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

/// The values of each key, and the nodes that have them.
#[derive(Default)]
pub(super) struct ValueCounts {
    keys: BTreeMap<String, ValueDifference>,
    /// Number of nodes.
    nodes: u64,
    /// Keys that differ by nature and are not compared.
    pub volatile: BTreeSet<String>,
}

/// A key that differs between nodes.
#[derive(Clone, Default, Serialize)]
pub(crate) struct ValueDifference {
    pub key: String,
    /// The most frequent first.
    pub values: Vec<SharedValue>,
    /// Number of nodes with further values.
    pub others: u64,
}

/// A value that several nodes share.
#[derive(Clone, Serialize)]
pub(crate) struct SharedValue {
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
            if self.keys.len() >= KEYS && !self.keys.contains_key(&key) {
                continue;
            }
            let ValueDifference { values, others, .. } = self.keys.entry(key).or_default();
            let has_room = values.len() < VALUES;
            match values.iter_mut().find(|shared| shared.value.as_ref() == Some(&text)) {
                Some(shared) => {
                    shared.count += 1;
                    shared.nodes.extend((shared.nodes.len() < NAMED).then(|| node.to_owned()));
                }
                None if has_room => {
                    values.push(SharedValue { value: Some(text), count: 1, nodes: vec![node.to_owned()] });
                }
                None => *others += 1,
            }
        }
    }

    /// Collects the comparable leaves below a path.
    fn walk(&mut self, path: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
        let is_list = value.as_array().is_some_and(|list| !list.iter().any(Value::is_object));
        let Some(parts) = parts(value).filter(|_| !is_list) else {
            leaves.insert(path.trim_start_matches('.').into(), visible::cut(&text(value), SHOWN).into());
            return;
        };
        for (step, part) in parts {
            let random = random(&step);
            let path = format!("{path}{}", random.map_or(step.clone(), |at| format!("{}*", &step[..at])));
            if random.is_none() && !is_volatile(step.trim_matches(['.', '[', ']', '"'])) {
                self.walk(&path, part, leaves);
            } else if self.volatile.len() < KEYS {
                self.volatile.insert(path.trim_start_matches('.').to_owned());
            }
        }
    }

    /// The differences, those with few odd nodes first.
    pub(super) fn differences(&self) -> Vec<ValueDifference> {
        let all = self.keys.iter().map(|(key, counted)| {
            let mut found = ValueDifference { key: key.clone(), ..counted.clone() };
            let count =
                self.nodes - counted.others - counted.values.iter().map(|shared| shared.count).sum::<u64>();
            found.values.extend((count > 0).then(|| SharedValue { value: None, count, nodes: Vec::new() }));
            found.values.sort_by_key(|shared| Reverse(shared.count));
            found
        });
        let mut found: Vec<_> = all.filter(|found| found.values.len() > 1).collect();
        found.sort_by_key(|found| Reverse(found.values[0].count));
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
    fn naturally_varying_facts_are_not_compared() {
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
                "ansible_mounts[/].size_available",
                "ansible_mounts[/data].size_available",
                "ansible_ssh_host_key_rsa_public",
                "ansible_uptime_seconds",
                "ansible_veth*",
            ]
        );
        let differences = keys.differences();
        let told: Vec<_> =
            differences.iter().map(|difference| (&*difference.key, difference.values.len())).collect();
        assert_eq!(told, [("sonobuoy_sysctl[\"vm.swappiness\"]", 2), ("list", 3)]);
        assert_eq!(differences[0].values[1].nodes, ["n3"]);
    }

    #[test]
    fn many_values_are_bounded() {
        let mut keys = ValueCounts::default();
        let only = |node: i32| if node == 7 { json!(true) } else { json!({}) };
        for node in 0..100 {
            keys.add(&format!("n{node}"), &json!({"errors": node, "only": only(node)}));
        }
        let differences = keys.differences();
        assert_eq!(differences[0].key, "only");
        assert_eq!((differences[0].values[0].value.as_deref(), differences[0].values[0].count), (None, 99));
        let errors = &differences[1];
        assert_eq!((errors.values.len(), errors.others), (VALUES, 92));
    }
}
