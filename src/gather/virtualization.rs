//! Whether the node is a virtual guest, or a host for guests.

use std::collections::BTreeSet;

use regex::Regex;

use self::Role::{Guest, Host, Nested};
use super::{Facts, NodeFiles};

/// What a sign means for the node.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Guest,
    Host,
    /// A guest that can itself have guests.
    Nested,
}

/// A file, a pattern in it, empty if its existence suffices, and the technology, empty if it is the text found. The first
/// match is the node's type.
const SIGNS: &[(&str, &str, &str, Role)] = &[
    ("/proc/1/cgroup", "/docker[/-]", "docker", Guest),
    ("/proc/1/cgroup", r"/lxc/|/machine\.slice/machine-lxc", "lxc", Guest),
    ("/proc/1/cgroup", r"/system\.slice/containerd\.service", "containerd", Guest),
    ("/proc/1/environ", r"(^|\x00)container=lxc($|\x00)", "lxc", Guest),
    ("/proc/1/environ", r"(^|\x00)container=podman($|\x00)", "podman", Guest),
    ("/proc/1/environ", r"(^|\x00)container=[^\x00]", "container", Guest),
    ("/proc/bc", "", "openvz", Host),
    ("/proc/vz", "", "openvz", Guest),
    ("/run/systemd/container", "^.+", "", Guest),
    ("/.dockerenv", "", "docker", Guest),
    ("/.dockerinit", "", "docker", Guest),
    ("/run/.containerenv", "", "podman", Guest),
    ("/proc/xen/capabilities", "control_d", "xen", Host),
    ("/proc/xen", "", "xen", Guest),
    ("/sys/devices/virtual/dmi/id/product_name", "^(KVM|KVM Server|Bochs|AHV)$", "kvm", Guest),
    ("/sys/devices/virtual/dmi/id/sys_vendor", "^oVirt$", "oVirt", Guest),
    (
        "/sys/devices/virtual/dmi/id/product_name",
        "^(VMware Virtual Platform|VMware7,1|VMware20,1)$",
        "VMware",
        Guest,
    ),
    ("/sys/devices/virtual/dmi/id/product_name", "^OpenStack (Compute|Nova)$", "openstack", Guest),
    ("/sys/devices/virtual/dmi/id/bios_vendor", "^Xen$", "xen", Guest),
    ("/sys/devices/virtual/dmi/id/bios_vendor", "^innotek GmbH$", "virtualbox", Guest),
    ("/sys/devices/virtual/dmi/id/bios_vendor", "^(Amazon EC2|DigitalOcean|Hetzner)$", "kvm", Guest),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        "^(QEMU|Amazon EC2|DigitalOcean|Google|Scaleway|Nutanix)$",
        "kvm",
        Guest,
    ),
    ("/sys/devices/virtual/dmi/id/sys_vendor", "^KubeVirt$", "KubeVirt", Guest),
    ("/sys/devices/virtual/dmi/id/sys_vendor", "^Microsoft Corporation$", "VirtualPC", Guest),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        r"^Parallels Software International Inc\.$",
        "parallels",
        Guest,
    ),
    ("/sys/devices/virtual/dmi/id/sys_vendor", "^OpenStack Foundation$", "openstack", Guest),
    ("/proc/cpuinfo", "(?m)^model name.*QEMU Virtual CPU", "kvm", Guest),
    ("/proc/modules", "(?m)^kvm ", "kvm", Host),
    ("/proc/modules", "(?m)^vboxdrv ", "virtualbox", Host),
    ("/proc/modules", "(?m)^virtio ", "kvm", Nested),
    ("/dev/kvm", "", "kvm", Host),
];

/// Technologies that are also reported as containers.
const CONTAINERS: &[&str] = &["docker", "lxc", "podman", "openvz", "containerd"];

pub(super) fn gather(node: &NodeFiles, facts: &mut Facts) {
    let mut first = None;
    let (mut guests, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for (file, pattern, technology, role) in SIGNS {
        let found = if pattern.is_empty() {
            node.exists(file).then(String::new)
        } else {
            let pattern = Regex::new(pattern).ok();
            node.text(file).and_then(|text| Some(pattern?.find(&text)?.as_str().to_owned()))
        };
        let Some(found) = found else { continue };
        let technology = if technology.is_empty() { found } else { (*technology).to_owned() };
        // CloudLinux has the files of OpenVZ, and a host of a technology those of its guests.
        if technology == "openvz" && node.exists("/proc/lve") || *role == Guest && hosts.contains(&technology)
        {
            continue;
        }
        first.get_or_insert((technology.clone(), if *role == Host { "host" } else { "guest" }));
        if *role == Guest { &mut guests } else { &mut hosts }.insert(technology);
    }
    if CONTAINERS.iter().any(|kind| guests.contains(*kind)) {
        guests.insert("container".into());
    }
    let (kind, role) = first.unwrap_or(("NA".into(), "NA"));
    facts.set("virtualization_type", kind);
    facts.set("virtualization_role", role);
    facts.set("virtualization_tech_guest", guests);
    facts.set("virtualization_tech_host", hosts);
    let modules = node.text("/proc/modules").unwrap_or_default();
    let modules: BTreeSet<&str> = modules.lines().filter_map(|line| line.split(' ').next()).collect();
    facts.set_own("kernel_modules", modules);
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    fn check(name: &str, files: &[(&str, &str)], product: &str, expected: (&str, &str)) {
        let product = [("sys/devices/virtual/dmi/id/product_name", product)];
        let (_scratch, node) = Scratch::node(&[files, &product].concat());
        let mut facts = Facts::default();
        gather(&node, &mut facts);
        assert_eq!(
            (facts.text("virtualization_type"), facts.text("virtualization_role")),
            expected,
            "{name}"
        );
    }

    #[test]
    fn the_first_finding_counts() {
        check("metal", &[], "PowerEdge R640", ("NA", "NA"));
        check(
            "host",
            &[("proc/modules", "kvm 100 1 kvm_intel, Live 0x0\n")],
            "PowerEdge R640",
            ("kvm", "host"),
        );
        check("guest", &[("proc/modules", "kvm 100 1 - Live 0x0\n")], "KVM", ("kvm", "guest"));
        check(
            "docker",
            &[(".dockerenv", ""), ("proc/modules", "kvm 1 1 - Live 0\n")],
            "",
            ("docker", "guest"),
        );
        check("podman", &[("proc/1/environ", "A=b\0container=podman\0")], "", ("podman", "guest"));
        check("vmware", &[], "VMware7,1", ("VMware", "guest"));
        check("xen host", &[("proc/xen/capabilities", "control_d\n")], "", ("xen", "host"));
        check("xen guest", &[("proc/xen/capabilities", "\n")], "", ("xen", "guest"));
        check("nspawn", &[("run/systemd/container", "systemd-nspawn\n")], "", ("systemd-nspawn", "guest"));
    }

    #[test]
    fn every_pattern_compiles() {
        assert!(SIGNS.iter().all(|(_, pattern, ..)| Regex::new(pattern).is_ok()));
    }
}
