//! Memory and swap, in MiB as Ansible counts them, and individual swap areas.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Facts, Node, Source, pairs};
use base::json::json;

pub(crate) struct Memory;

impl Source for Memory {
    fn gather(&self, node: &Node, facts: &mut Facts) {
        let Some(text) = node.text("/proc/meminfo") else { return };
        let kib: BTreeMap<&str, u64> = pairs(&text, ':')
            .filter_map(|(key, value)| Some((key, value.split_whitespace().next()?.parse().ok()?)))
            .collect();
        let mib = |key: &str| kib.get(key).copied().unwrap_or(0) / 1024;
        let (total, free) = (mib("MemTotal"), mib("MemFree"));
        let reclaimable =
            ["MemFree", "Cached", "Buffers"].iter().filter_map(|key| kib.get(*key)).sum::<u64>() / 1024;
        let (swap, swap_free) = (mib("SwapTotal"), mib("SwapFree"));
        facts.set("memtotal_mb", total);
        facts.set("memfree_mb", free);
        facts.set("swaptotal_mb", swap);
        facts.set("swapfree_mb", swap_free);
        facts.set(
            "memory_mb",
            json!({
                "real": { "total": total, "free": free, "used": total.saturating_sub(free) },
                "nocache": { "free": reclaimable, "used": total.saturating_sub(reclaimable) },
                "swap": { "total": swap, "free": swap_free, "used": swap.saturating_sub(swap_free), "cached": mib("SwapCached") },
            }),
        );
        facts.set_own("memavailable_mb", mib("MemAvailable"));
        facts.set_own("hugepages", hugepages(&kib));
        facts.set_own("swap", swaps(&node.text("/proc/swaps").unwrap_or_default()));
    }
}

fn hugepages(kib: &BTreeMap<&str, u64>) -> Value {
    let count = |key: &str| kib.get(key).copied().unwrap_or(0);
    json!({ "total": count("HugePages_Total"), "free": count("HugePages_Free"), "size_kb": count("Hugepagesize") })
}

/// The swap areas in use. By default, a kubelet refuses to start if there are any.
fn swaps(text: &str) -> Value {
    let areas = text.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [device, kind, size, used, ..] = words[..] else { return None };
        let mib = |text: &str| text.parse::<u64>().unwrap_or(0) / 1024;
        Some(json!({ "device": device, "type": kind, "size_mb": mib(size), "used_mb": mib(used) }))
    });
    let areas: Vec<Value> = areas.collect();
    json!({ "enabled": !areas.is_empty(), "areas": areas })
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn units_are_those_of_ansible() {
        let meminfo = "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nBuffers: 1536 kB\nCached: 1024000 kB\n\
                       SwapTotal: 2097152 kB\nSwapFree: 2000000 kB\n";
        let swaps = "Filename Type Size Used Priority\n/dev/sda2 partition 2097152 97152 -2\n";
        let (_scratch, node) = Scratch::node(&[("proc/meminfo", meminfo), ("proc/swaps", swaps)]);
        let mut facts = Facts::default();
        Memory.gather(&node, &mut facts);
        assert_eq!(facts.get("memtotal_mb"), Some(&json!(8192)));
        let memory = facts.get("memory_mb").unwrap();
        assert_eq!(memory["nocache"], json!({"free": 2025, "used": 6167}));
        assert_eq!(memory["swap"], json!({"total": 2048, "free": 1953, "used": 95, "cached": 0}));
        assert_eq!(facts.0["sonobuoy_swap"]["areas"][0]["device"], "/dev/sda2");
    }
}
