//! Processors: names in the order of /proc/cpuinfo, sockets, cores, threads.

use std::collections::BTreeMap;

use super::{Facts, Node, Source, pairs};
use base::json::json;

pub(crate) struct Processor;

impl Source for Processor {
    fn gather(&self, node: &Node, facts: &mut Facts) {
        let Some(text) = node.text("/proc/cpuinfo") else { return };
        let found = Found::read(&text, facts.text("architecture"));
        facts.set("processor", found.names);
        // The last processor's, as in Ansible; other architectures name the field differently.
        let flags = pairs(&text, ':').filter(|(key, _)| *key == "flags").last();
        facts.set_some("flags", flags.map(|(_, flags)| flags.split_whitespace().collect::<Vec<_>>()));
        facts.set("processor_count", found.sockets);
        facts.set("processor_cores", found.cores);
        facts.set("processor_threads_per_core", found.threads);
        facts.set("processor_vcpus", found.sockets * found.cores * found.threads);
        let status = node.text("/proc/self/status").unwrap_or_default();
        let allowed = pairs(&status, ':').find(|(key, _)| *key == "Cpus_allowed_list");
        facts.set("processor_nproc", allowed.map_or(found.listed, |(_, list)| count(list)));
        let folder = "/sys/devices/system/cpu/vulnerabilities";
        let known = node.list(folder).into_iter();
        let known: BTreeMap<String, String> = known
            .filter_map(|name| Some((node.text(&format!("{folder}/{name}"))?, name)))
            .map(|(k, v)| (v, k))
            .collect();
        facts.set_own("cpu_vulnerabilities", json!(known));
    }
}

/// Counts the numbers in a list such as `0-3,8`.
fn count(list: &str) -> u64 {
    let spans = list.split(',').filter_map(|span| {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.saturating_sub(first) + 1)
    });
    spans.sum()
}

#[derive(Debug, PartialEq)]
struct Found {
    names: Vec<String>,
    listed: u64,
    sockets: u64,
    cores: u64,
    threads: u64,
}

impl Found {
    fn read(text: &str, architecture: &str) -> Self {
        let (mut names, mut listed, mut vendors, mut models) = (Vec::new(), 0, 0, 0);
        // Cores and threads, by socket.
        let mut sockets: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut socket = "";
        for (key, value) in pairs(text, ':') {
            match key {
                "model name" | "Processor" | "vendor_id" | "cpu" | "Vendor" | "processor" => {
                    names.push(value.to_owned());
                    vendors += u64::from(key == "vendor_id");
                    models += u64::from(key == "model name");
                    listed += u64::from(key == "processor");
                }
                "physical id" => {
                    socket = value;
                    sockets.entry(socket).or_insert((1, 1));
                }
                "siblings" => sockets.entry(socket).or_insert((1, 1)).1 = value.parse().unwrap_or(1),
                "cpu cores" => sockets.entry(socket).or_insert((1, 1)).0 = value.parse().unwrap_or(1),
                _ => {}
            }
        }
        let arm = ["armv", "aarch", "ppc"].iter().any(|start| architecture.starts_with(start));
        let count = match sockets.len() {
            // Without sockets, every listed processor counts as one.
            0 if !arm && vendors > 0 && vendors == models => vendors,
            0 => listed,
            known => u64::try_from(known).unwrap_or(1),
        };
        let (cores, threads) = sockets.values().next().copied().unwrap_or((1, 1));
        let cores = cores.max(1);
        Self { names, listed, sockets: count, cores, threads: threads / cores }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, architecture: &str, expected: (u64, u64, u64, u64)) {
        let found = Found::read(text, architecture);
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
        let names = Found::read(&two_sockets, "x86_64").names;
        assert_eq!(names[..3], ["0", "GenuineIntel", "Xeon"]);
        assert_eq!((count("0-3,8"), count("5"), count("")), (5, 1, 0));
    }
}
