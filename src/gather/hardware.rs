//! Processors, memory and firmware, and whether the node is a virtual guest, or a host for guests.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use self::Role::{Guest, Host, Nested};
use super::{NodeFiles, field, pairs, platform, values};
use base::json::{json, list};

/// Folder of the firmware's texts, whose files are named as Ansible's facts, except that of the
/// vendor.
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

pub(super) fn firmware(node: &NodeFiles) -> Value {
    let read = |name: &str| {
        node.text(&format!("{DMI}/{name}"))
            .unwrap_or_else(|| "NA".into())
    };
    let mut facts: Value = FIRMWARE
        .iter()
        .map(|name| (format!("ansible_{name}"), read(name)))
        .collect();
    facts["ansible_system_vendor"] = read("sys_vendor").into();
    let number = read("chassis_type");
    let form_factor = number
        .parse::<usize>()
        .ok()
        .and_then(|index| CHASSIS.get(index).copied());
    let unknown = if number == "NA" {
        number
    } else {
        format!("unknown ({number})")
    };
    facts["ansible_form_factor"] = form_factor.unwrap_or(&unknown).into();
    facts
}

pub(super) fn processors(node: &NodeFiles) -> Value {
    let Some(text) = &node.text("/proc/cpuinfo") else {
        return Value::Null;
    };
    let names = [
        "model name",
        "Processor",
        "vendor_id",
        "cpu",
        "Vendor",
        "processor",
    ];
    let names = pairs(text, ':')
        .filter(|(key, _)| names.contains(key))
        .map(|(_, name)| name);
    // The last processor's, as in Ansible; other architectures name the field differently.
    let flags = values(text, ':', "flags").last();
    let listed = |name| values(text, ':', name).count() as u64;
    let sockets: BTreeSet<&str> = values(text, ':', "physical id").collect();
    let machine = platform::machine(node).unwrap_or_default();
    let arm = ["armv", "aarch", "ppc"]
        .iter()
        .any(|start| machine.starts_with(start));
    let count = match (sockets.len(), listed("vendor_id")) {
        // Without sockets, every listed processor counts as one.
        (0, vendors @ 1..) if !arm && vendors == listed("model name") => vendors,
        (0, _) => listed("processor"),
        (known, _) => known as u64,
    };
    let number = |name| {
        field(text, ':', name)
            .and_then(|number| number.parse().ok())
            .unwrap_or(1)
    };
    let cores = number("cpu cores").max(1);
    let threads = number("siblings") / cores;
    let status = node.text("/proc/self/status").unwrap_or_default();
    // A bit for each processor, in hexadecimal digits.
    let digits =
        field(&status, ':', "Cpus_allowed").map(|mask| mask.chars().filter_map(|c| c.to_digit(16)));
    let allowed = digits.map(|digits| digits.map(u32::count_ones).sum::<u32>().into());
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let vulnerabilities = node.list(folder).into_iter().filter_map(|name| {
        node.text(&format!("{folder}/{name}"))
            .map(|text| (name, text))
    });
    json!({
        "ansible_processor": list(names),
        "ansible_flags": flags.map(|flags| list(flags.split_whitespace())),
        "ansible_processor_count": count,
        "ansible_processor_cores": cores,
        "ansible_processor_threads_per_core": threads,
        "ansible_processor_vcpus": count.saturating_mul(cores).saturating_mul(threads),
        "ansible_processor_nproc": allowed.unwrap_or_else(|| listed("processor")),
        "sonobuoy_cpu_vulnerabilities": vulnerabilities.collect::<Value>(),
    })
}

/// Memory and swap, in MiB as Ansible counts them.
pub(super) fn memory(node: &NodeFiles) -> Value {
    let Some(text) = &node.text("/proc/meminfo") else {
        return Value::Null;
    };
    let kib = |key| -> u64 {
        let amount = field(text, ':', key).and_then(|value| value.split_whitespace().next());
        amount.and_then(|amount| amount.parse().ok()).unwrap_or(0)
    };
    let [total, free, swap, swap_free, cached, available] = [
        "MemTotal",
        "MemFree",
        "SwapTotal",
        "SwapFree",
        "SwapCached",
        "MemAvailable",
    ]
    .map(|key| kib(key) / 1024);
    let reclaimable = ["MemFree", "Cached", "Buffers"]
        .map(kib)
        .iter()
        .sum::<u64>()
        / 1024;
    // By default, a kubelet refuses to start if there are any.
    let swaps = node.text("/proc/swaps").unwrap_or_default();
    let areas: Vec<Value> = swaps
        .lines()
        .skip(1)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [device, kind, size, used, ..] = words[..] else { return None };
            let mib = |text: &str| text.parse::<u64>().unwrap_or(0) / 1024;
            Some(json!({ "device": device, "type": kind, "size_mb": mib(size), "used_mb": mib(used) }))
        })
        .collect();
    json!({
        "ansible_memtotal_mb": total,
        "ansible_memfree_mb": free,
        "ansible_swaptotal_mb": swap,
        "ansible_swapfree_mb": swap_free,
        "ansible_memory_mb": {
            "real": { "total": total, "free": free, "used": total.saturating_sub(free) },
            "nocache": { "free": reclaimable, "used": total.saturating_sub(reclaimable) },
            "swap": { "total": swap, "free": swap_free, "used": swap.saturating_sub(swap_free), "cached": cached },
        },
        "sonobuoy_memavailable_mb": available,
        "sonobuoy_hugepages": {
            "total": kib("HugePages_Total"), "free": kib("HugePages_Free"), "size_kb": kib("Hugepagesize"),
        },
        "sonobuoy_swap": { "enabled": !areas.is_empty(), "areas": areas },
    })
}

/// What a sign means for the node.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Guest,
    Host,
    /// A guest that can itself have guests.
    Nested,
}

/// A file, a pattern in it, empty if its existence suffices, and the technology, empty if it is the
/// text found. The first match is the node's type.
const SIGNS: &[(&str, &str, &str, Role)] = &[
    ("/proc/1/cgroup", "/docker[/-]", "docker", Guest),
    (
        "/proc/1/cgroup",
        r"/lxc/|/machine\.slice/machine-lxc",
        "lxc",
        Guest,
    ),
    (
        "/proc/1/cgroup",
        r"/system\.slice/containerd\.service",
        "containerd",
        Guest,
    ),
    (
        "/proc/1/environ",
        r"(^|\x00)container=lxc($|\x00)",
        "lxc",
        Guest,
    ),
    (
        "/proc/1/environ",
        r"(^|\x00)container=podman($|\x00)",
        "podman",
        Guest,
    ),
    (
        "/proc/1/environ",
        r"(^|\x00)container=[^\x00]",
        "container",
        Guest,
    ),
    ("/proc/bc", "", "openvz", Host),
    ("/proc/vz", "", "openvz", Guest),
    ("/run/systemd/container", "^.+", "", Guest),
    ("/.dockerenv", "", "docker", Guest),
    ("/.dockerinit", "", "docker", Guest),
    ("/run/.containerenv", "", "podman", Guest),
    ("/proc/xen/capabilities", "control_d", "xen", Host),
    ("/proc/xen", "", "xen", Guest),
    (
        "/sys/devices/virtual/dmi/id/product_name",
        "^(KVM|KVM Server|Bochs|AHV)$",
        "kvm",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        "^oVirt$",
        "oVirt",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/product_name",
        "^(VMware Virtual Platform|VMware7,1|VMware20,1)$",
        "VMware",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/product_name",
        "^OpenStack (Compute|Nova)$",
        "openstack",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/bios_vendor",
        "^Xen$",
        "xen",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/bios_vendor",
        "^innotek GmbH$",
        "virtualbox",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/bios_vendor",
        "^(Amazon EC2|DigitalOcean|Hetzner)$",
        "kvm",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        "^(QEMU|Amazon EC2|DigitalOcean|Google|Scaleway|Nutanix)$",
        "kvm",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        "^KubeVirt$",
        "KubeVirt",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        "^Microsoft Corporation$",
        "VirtualPC",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        r"^Parallels Software International Inc\.$",
        "parallels",
        Guest,
    ),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        "^OpenStack Foundation$",
        "openstack",
        Guest,
    ),
    (
        "/proc/cpuinfo",
        "(?m)^model name.*QEMU Virtual CPU",
        "kvm",
        Guest,
    ),
    ("/proc/modules", "(?m)^kvm ", "kvm", Host),
    ("/proc/modules", "(?m)^vboxdrv ", "virtualbox", Host),
    ("/proc/modules", "(?m)^virtio ", "kvm", Nested),
    ("/dev/kvm", "", "kvm", Host),
];

/// Technologies that are also reported as containers.
const CONTAINERS: &[&str] = &["docker", "lxc", "podman", "openvz", "containerd"];

pub(super) fn virtualization(node: &NodeFiles) -> Value {
    let mut first = None;
    let (mut guests, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for (file, pattern, technology, role) in SIGNS {
        let matched = if pattern.is_empty() {
            node.exists(file).then(String::new)
        } else {
            let pattern = Regex::new(pattern).ok();
            node.text(file)
                .and_then(|text| Some(pattern?.find(&text)?.as_str().to_owned()))
        };
        let Some(matched) = matched else { continue };
        let technology = if technology.is_empty() {
            matched
        } else {
            (*technology).to_owned()
        };
        // CloudLinux has the files of OpenVZ, and a host of a technology those of its guests.
        if technology == "openvz" && node.exists("/proc/lve")
            || *role == Guest && hosts.contains(&technology)
        {
            continue;
        }
        first.get_or_insert((
            technology.clone(),
            if *role == Host { "host" } else { "guest" },
        ));
        if *role == Guest {
            &mut guests
        } else {
            &mut hosts
        }
        .insert(technology);
    }
    if CONTAINERS.iter().any(|kind| guests.contains(*kind)) {
        guests.insert("container".into());
    }
    let (kind, role) = first.unwrap_or(("NA".into(), "NA"));
    let modules = node.text("/proc/modules").unwrap_or_default();
    let modules: BTreeSet<&str> = modules
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    json!({
        "ansible_virtualization_type": kind,
        "ansible_virtualization_role": role,
        "ansible_virtualization_tech_guest": guests,
        "ansible_virtualization_tech_host": hosts,
        "sonobuoy_kernel_modules": modules,
    })
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn units_equal_those_of_ansible() {
        let meminfo = "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nBuffers: 1536 kB\nCached: \
                       1024000 kB\nSwapTotal: 2097152 kB\nSwapFree: 2000000 kB\n";
        let swaps = "Filename Type Size Used Priority\n/dev/sda2 partition 2097152 97152 -2\n";
        let (_scratch, node) = Scratch::node(&[("proc/meminfo", meminfo), ("proc/swaps", swaps)]);
        let facts = memory(&node);
        assert_eq!(facts["ansible_memtotal_mb"], 8192);
        let memory = &facts["ansible_memory_mb"];
        assert_eq!(memory["nocache"], json!({"free": 2025, "used": 6167}));
        assert_eq!(
            memory["swap"],
            json!({"total": 2048, "free": 1953, "used": 95, "cached": 0})
        );
        assert_eq!(facts["sonobuoy_swap"]["areas"][0]["device"], "/dev/sda2");
    }

    fn check(text: &str, architecture: &str, expected: [u64; 4]) {
        let files = [
            ("proc/cpuinfo", text),
            ("proc/sys/kernel/arch", architecture),
        ];
        let (_scratch, node) = Scratch::node(&files);
        let facts = processors(&node);
        let keys = ["nproc", "count", "cores", "threads_per_core"];
        let found = keys.map(|key| facts[&format!("ansible_processor_{key}")].as_u64().unwrap());
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn sockets_cores_and_threads() {
        let mut two_sockets = String::new();
        for cpu in 0..8 {
            let socket = cpu / 4;
            two_sockets += &format!(
                "processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nphysical \
                 id\t: {socket}\nsiblings\t: 4\ncpu cores\t: 2\n\n"
            );
        }
        check(&two_sockets, "x86_64", [8, 2, 2, 2]);
        check(
            "processor\t: 0\nBogoMIPS\t: 48\n\nprocessor\t: 1\n",
            "aarch64",
            [2, 2, 1, 1],
        );
        check("BogoMIPS\t: 48\n", "x86_64", [0, 0, 1, 1]);
        let files = [
            ("proc/cpuinfo", &*two_sockets),
            ("proc/self/status", "Cpus_allowed:\tf,0000000f\n"),
        ];
        let (_scratch, node) = Scratch::node(&files);
        let facts = processors(&node);
        assert_eq!(
            facts["ansible_processor"].as_array().unwrap()[..3],
            ["0", "GenuineIntel", "Xeon"]
        );
        assert_eq!(facts["ansible_processor_nproc"], 8);
    }

    fn check_type(name: &str, files: &[(&str, &str)], product: &str, expected: (&str, &str)) {
        let product = [("sys/devices/virtual/dmi/id/product_name", product)];
        let (_scratch, node) = Scratch::node(&[files, &product].concat());
        let facts = virtualization(&node);
        let found = ["type", "role"].map(|key| {
            facts[format!("ansible_virtualization_{key}")]
                .as_str()
                .unwrap()
        });
        assert_eq!(found, [expected.0, expected.1], "{name}");
    }

    #[test]
    fn the_first_finding_counts() {
        check_type("metal", &[], "PowerEdge R640", ("NA", "NA"));
        check_type(
            "host",
            &[("proc/modules", "kvm 100 1 kvm_intel, Live 0x0\n")],
            "PowerEdge R640",
            ("kvm", "host"),
        );
        check_type(
            "guest",
            &[("proc/modules", "kvm 100 1 - Live 0x0\n")],
            "KVM",
            ("kvm", "guest"),
        );
        check_type(
            "docker",
            &[(".dockerenv", ""), ("proc/modules", "kvm 1 1 - Live 0\n")],
            "",
            ("docker", "guest"),
        );
        check_type(
            "podman",
            &[("proc/1/environ", "A=b\0container=podman\0")],
            "",
            ("podman", "guest"),
        );
        check_type("vmware", &[], "VMware7,1", ("VMware", "guest"));
        check_type(
            "xen host",
            &[("proc/xen/capabilities", "control_d\n")],
            "",
            ("xen", "host"),
        );
        check_type(
            "xen guest",
            &[("proc/xen/capabilities", "\n")],
            "",
            ("xen", "guest"),
        );
        check_type(
            "nspawn",
            &[("run/systemd/container", "systemd-nspawn\n")],
            "",
            ("systemd-nspawn", "guest"),
        );
    }

    #[test]
    fn every_pattern_compiles() {
        assert!(
            SIGNS
                .iter()
                .all(|(_, pattern, ..)| Regex::new(pattern).is_ok())
        );
    }
}
