//! Processors, memory and firmware.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Facts, NodeFiles, field, pairs};
use base::json::json;

/// Folder of the firmware's texts, whose files are named as Ansible's facts, except that of the vendor.
const DMI: &str = "/sys/devices/virtual/dmi/id";

const FIRMWARE: &[&str] = &[
    "bios_date",
    "bios_vendor",
    "bios_version",
    "board_asset_tag",
    "board_name",
    "board_serial",
    "board_vendor",
    "board_version",
    "chassis_asset_tag",
    "chassis_serial",
    "chassis_vendor",
    "chassis_version",
    "product_name",
    "product_serial",
    "product_uuid",
    "product_version",
    "sys_vendor",
];

/// The chassis types of the SMBIOS specification, from number 0.
const CHASSIS: &[&str] = &[
    "Unknown",
    "Other",
    "Unknown",
    "Desktop",
    "Low Profile Desktop",
    "Pizza Box",
    "Mini Tower",
    "Tower",
    "Portable",
    "Laptop",
    "Notebook",
    "Hand Held",
    "Docking Station",
    "All In One",
    "Sub Notebook",
    "Space-saving",
    "Lunch Box",
    "Main Server Chassis",
    "Expansion Chassis",
    "Sub Chassis",
    "Bus Expansion Chassis",
    "Peripheral Chassis",
    "RAID Chassis",
    "Rack Mount Chassis",
    "Sealed-case PC",
    "Multi-system",
    "CompactPCI",
    "AdvancedTCA",
    "Blade",
    "Blade Enclosure",
    "Tablet",
    "Convertible",
    "Detachable",
    "IoT Gateway",
    "Embedded PC",
    "Mini PC",
    "Stick PC",
];

pub(super) fn gather(node: &NodeFiles, facts: &mut Facts) {
    if let Some(text) = node.text("/proc/cpuinfo") {
        processors(node, &text, facts);
    }
    if let Some(text) = node.text("/proc/meminfo") {
        memory(node, &text, facts);
    }
    for name in FIRMWARE {
        let text = node.some(&format!("{DMI}/{name}")).unwrap_or_else(|| "NA".into());
        facts.set(if *name == "sys_vendor" { "system_vendor" } else { name }, text);
    }
    let chassis = node.text(&format!("{DMI}/chassis_type")).map(|number| {
        let known = number.parse::<usize>().ok().and_then(|index| CHASSIS.get(index));
        known.map_or_else(|| format!("unknown ({number})"), ToString::to_string)
    });
    facts.set("form_factor", chassis.unwrap_or_else(|| "NA".into()));
}

fn processors(node: &NodeFiles, text: &str, facts: &mut Facts) {
    let found = Processors::read(text, facts.text("architecture"));
    facts.set("processor", found.names);
    // The last processor's, as in Ansible; other architectures name the field differently.
    let flags = pairs(text, ':').filter(|(key, _)| *key == "flags").last();
    facts.set_some("flags", flags.map(|(_, flags)| flags.split_whitespace().collect::<Vec<_>>()));
    facts.set("processor_count", found.sockets);
    facts.set("processor_cores", found.cores);
    facts.set("processor_threads_per_core", found.threads);
    facts.set("processor_vcpus", found.sockets * found.cores * found.threads);
    let status = node.text("/proc/self/status").unwrap_or_default();
    facts.set("processor_nproc", field(&status, ':', "Cpus_allowed_list").map_or(found.listed, count));
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let known = node.list(folder).into_iter();
    let known = known.filter_map(|name| node.text(&format!("{folder}/{name}")).map(|text| (name, text)));
    facts.set_own("cpu_vulnerabilities", known.collect::<BTreeMap<_, _>>());
}

/// Counts the numbers in a list such as `0-3,8`.
fn count(list: &str) -> u64 {
    let spans = list.split(',').filter_map(|span| {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        Some((last.parse::<u64>().ok()? + 1).saturating_sub(first.parse().ok()?))
    });
    spans.sum()
}

#[derive(Debug, PartialEq)]
struct Processors {
    /// In the order of /proc/cpuinfo.
    names: Vec<String>,
    listed: u64,
    sockets: u64,
    cores: u64,
    threads: u64,
}

impl Processors {
    fn read(text: &str, architecture: &str) -> Self {
        let names = ["model name", "Processor", "vendor_id", "cpu", "Vendor", "processor"];
        let names = pairs(text, ':').filter(|(key, _)| names.contains(key));
        let names = names.map(|(_, value)| value.to_owned()).collect();
        let listed = |name| pairs(text, ':').filter(|(key, _)| *key == name).count() as u64;
        // Cores and threads, by socket.
        let mut sockets: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut socket = "";
        for (key, value) in pairs(text, ':') {
            if key == "physical id" {
                socket = value;
            }
            if ["physical id", "cpu cores", "siblings"].contains(&key) {
                let (cores, threads) = sockets.entry(socket).or_insert((1, 1));
                match key {
                    "cpu cores" => *cores = value.parse().unwrap_or(1),
                    "siblings" => *threads = value.parse().unwrap_or(1),
                    _ => {}
                }
            }
        }
        let arm = ["armv", "aarch", "ppc"].iter().any(|start| architecture.starts_with(start));
        let count = match (sockets.len(), listed("vendor_id")) {
            // Without sockets, every listed processor counts as one.
            (0, vendors @ 1..) if !arm && vendors == listed("model name") => vendors,
            (0, _) => listed("processor"),
            (known, _) => known as u64,
        };
        let (cores, threads) = sockets.into_values().next().unwrap_or((1, 1));
        let cores = cores.max(1);
        Self { names, listed: listed("processor"), sockets: count, cores, threads: threads / cores }
    }
}

/// Memory and swap, in MiB as Ansible counts them.
fn memory(node: &NodeFiles, text: &str, facts: &mut Facts) {
    let kib = |key| -> u64 {
        let amount = field(text, ':', key).and_then(|value| value.split_whitespace().next());
        amount.and_then(|amount| amount.parse().ok()).unwrap_or(0)
    };
    let mib = |key| kib(key) / 1024;
    let (total, free) = (mib("MemTotal"), mib("MemFree"));
    let reclaimable = ["MemFree", "Cached", "Buffers"].map(kib).iter().sum::<u64>() / 1024;
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
    let (pages, free) = (kib("HugePages_Total"), kib("HugePages_Free"));
    facts.set_own("hugepages", json!({ "total": pages, "free": free, "size_kb": kib("Hugepagesize") }));
    // By default, a kubelet refuses to start if there are any.
    let swaps = node.text("/proc/swaps").unwrap_or_default();
    let areas = swaps.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [device, kind, size, used, ..] = words[..] else { return None };
        let mib = |text: &str| text.parse::<u64>().unwrap_or(0) / 1024;
        Some(json!({ "device": device, "type": kind, "size_mb": mib(size), "used_mb": mib(used) }))
    });
    let areas: Vec<Value> = areas.collect();
    facts.set_own("swap", json!({ "enabled": !areas.is_empty(), "areas": areas }));
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn units_equal_those_of_ansible() {
        let meminfo = "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nBuffers: 1536 kB\nCached: 1024000 kB\n\
                       SwapTotal: 2097152 kB\nSwapFree: 2000000 kB\n";
        let swaps = "Filename Type Size Used Priority\n/dev/sda2 partition 2097152 97152 -2\n";
        let (_scratch, node) = Scratch::node(&[("proc/meminfo", meminfo), ("proc/swaps", swaps)]);
        let mut facts = Facts::default();
        gather(&node, &mut facts);
        assert_eq!(facts.get("memtotal_mb"), Some(&json!(8192)));
        let memory = facts.get("memory_mb").unwrap();
        assert_eq!(memory["nocache"], json!({"free": 2025, "used": 6167}));
        assert_eq!(memory["swap"], json!({"total": 2048, "free": 1953, "used": 95, "cached": 0}));
        assert_eq!(facts.0["sonobuoy_swap"]["areas"][0]["device"], "/dev/sda2");
    }

    fn check(text: &str, architecture: &str, expected: (u64, u64, u64, u64)) {
        let found = Processors::read(text, architecture);
        assert_eq!((found.listed, found.sockets, found.cores, found.threads), expected, "{text}");
    }

    #[test]
    fn sockets_cores_and_threads() {
        let mut two_sockets = String::new();
        for cpu in 0..8 {
            let socket = cpu / 4;
            two_sockets += &format!(
                "processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nphysical id\t: {socket}\n\
                 siblings\t: 4\ncpu cores\t: 2\n\n"
            );
        }
        check(&two_sockets, "x86_64", (8, 2, 2, 2));
        check("processor\t: 0\nBogoMIPS\t: 48\n\nprocessor\t: 1\n", "aarch64", (2, 2, 1, 1));
        check("", "x86_64", (0, 0, 1, 1));
        let names = Processors::read(&two_sockets, "x86_64").names;
        assert_eq!(names[..3], ["0", "GenuineIntel", "Xeon"]);
        assert_eq!((count("0-3,8"), count("5"), count("")), (5, 1, 0));
    }
}
