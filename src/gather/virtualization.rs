//! Whether the node is a virtual guest, or a host for guests.

use std::collections::BTreeSet;

use regex::Regex;

use super::{Facts, Node};

/// A file, a pattern in it, empty if its existence suffices, and the technology, empty if it is the text found; whether the
/// node has it for its guests, and the role that follows. The first match is the node's type.
const SIGNS: &[(&str, &str, &str, bool, &str)] = &[
    ("/proc/1/cgroup", "/docker[/-]", "docker", false, "guest"),
    ("/proc/1/cgroup", r"/lxc/|/machine\.slice/machine-lxc", "lxc", false, "guest"),
    ("/proc/1/cgroup", r"/system\.slice/containerd\.service", "containerd", false, "guest"),
    ("/proc/1/environ", r"(^|\x00)container=lxc($|\x00)", "lxc", false, "guest"),
    ("/proc/1/environ", r"(^|\x00)container=podman($|\x00)", "podman", false, "guest"),
    ("/proc/1/environ", r"(^|\x00)container=[^\x00]", "container", false, "guest"),
    ("/proc/bc", "", "openvz", true, "host"),
    ("/proc/vz", "", "openvz", false, "guest"),
    ("/run/systemd/container", "^.+", "", false, "guest"),
    ("/.dockerenv", "", "docker", false, "guest"),
    ("/.dockerinit", "", "docker", false, "guest"),
    ("/run/.containerenv", "", "podman", false, "guest"),
    ("/proc/xen/capabilities", "control_d", "xen", true, "host"),
    ("/proc/xen", "", "xen", false, "guest"),
    ("/sys/devices/virtual/dmi/id/product_name", "^(KVM|KVM Server|Bochs|AHV)$", "kvm", false, "guest"),
    ("/sys/devices/virtual/dmi/id/sys_vendor", "^oVirt$", "oVirt", false, "guest"),
    (
        "/sys/devices/virtual/dmi/id/product_name",
        "^(VMware Virtual Platform|VMware7,1|VMware20,1)$",
        "VMware",
        false,
        "guest",
    ),
    ("/sys/devices/virtual/dmi/id/product_name", "^OpenStack (Compute|Nova)$", "openstack", false, "guest"),
    ("/sys/devices/virtual/dmi/id/bios_vendor", "^Xen$", "xen", false, "guest"),
    ("/sys/devices/virtual/dmi/id/bios_vendor", "^innotek GmbH$", "virtualbox", false, "guest"),
    ("/sys/devices/virtual/dmi/id/bios_vendor", "^(Amazon EC2|DigitalOcean|Hetzner)$", "kvm", false, "guest"),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        "^(QEMU|Amazon EC2|DigitalOcean|Google|Scaleway|Nutanix)$",
        "kvm",
        false,
        "guest",
    ),
    ("/sys/devices/virtual/dmi/id/sys_vendor", "^KubeVirt$", "KubeVirt", false, "guest"),
    ("/sys/devices/virtual/dmi/id/sys_vendor", "^Microsoft Corporation$", "VirtualPC", false, "guest"),
    (
        "/sys/devices/virtual/dmi/id/sys_vendor",
        r"^Parallels Software International Inc\.$",
        "parallels",
        false,
        "guest",
    ),
    ("/sys/devices/virtual/dmi/id/sys_vendor", "^OpenStack Foundation$", "openstack", false, "guest"),
    ("/proc/cpuinfo", "(?m)^model name.*QEMU Virtual CPU", "kvm", false, "guest"),
    ("/proc/modules", "(?m)^kvm ", "kvm", true, "host"),
    ("/proc/modules", "(?m)^vboxdrv ", "virtualbox", true, "host"),
    ("/proc/modules", "(?m)^virtio ", "kvm", true, "guest"),
    ("/dev/kvm", "", "kvm", true, "host"),
];

/// Technologies that are also reported as containers.
const CONTAINERS: &[&str] = &["docker", "lxc", "podman", "openvz", "containerd"];

pub(super) fn gather(node: &Node, facts: &mut Facts) {
    let mut first = None;
    let (mut guests, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for (file, pattern, technology, for_guests, role) in SIGNS {
        let found = if pattern.is_empty() {
            node.exists(file).then(String::new)
        } else {
            let pattern = Regex::new(pattern).ok();
            node.text(file).and_then(|text| Some(pattern?.find(&text)?.as_str().to_owned()))
        };
        let Some(found) = found else { continue };
        let technology = if technology.is_empty() { found } else { (*technology).to_owned() };
        // CloudLinux has the files of OpenVZ, and a host of a technology those of its guests.
        if technology == "openvz" && node.exists("/proc/lve") || !for_guests && hosts.contains(&technology) {
            continue;
        }
        first.get_or_insert((technology.clone(), *role));
        if *for_guests { &mut hosts } else { &mut guests }.insert(technology);
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
    fn every_pattern_is_one() {
        assert!(SIGNS.iter().all(|(_, pattern, ..)| Regex::new(pattern).is_ok()));
    }
}
