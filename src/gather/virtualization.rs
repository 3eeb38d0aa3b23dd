//! Whether the node is a virtual guest, or a host for guests.

use std::collections::BTreeSet;

use super::{Facts, Node, Source};
use base::json::json;

pub(crate) struct Virtualization;

/// Firmware texts that identify hypervisors: Ansible's fact, a text in it, technology.
const FIRMWARE: &[(&str, &[&str], &str)] = &[
    ("product_name", &["KVM", "KVM Server", "Bochs", "AHV"], "kvm"),
    ("system_vendor", &["oVirt"], "oVirt"),
    ("product_name", &["VMware Virtual Platform", "VMware7,1", "VMware20,1"], "VMware"),
    ("product_name", &["OpenStack Compute", "OpenStack Nova"], "openstack"),
    ("bios_vendor", &["Xen"], "xen"),
    ("bios_vendor", &["innotek GmbH"], "virtualbox"),
    ("bios_vendor", &["Amazon EC2", "DigitalOcean", "Hetzner"], "kvm"),
    ("system_vendor", &["QEMU", "Amazon EC2", "DigitalOcean", "Google", "Scaleway", "Nutanix"], "kvm"),
    ("system_vendor", &["KubeVirt"], "KubeVirt"),
    ("system_vendor", &["Microsoft Corporation"], "VirtualPC"),
    ("system_vendor", &["Parallels Software International Inc."], "parallels"),
    ("system_vendor", &["OpenStack Foundation"], "openstack"),
];

/// Technologies that are also reported as containers.
const CONTAINERS: &[&str] = &["docker", "lxc", "podman", "openvz", "containerd"];

/// Kernel modules, their technology, and whether they indicate a host rather than a guest.
const MODULES: &[(&str, &str, bool)] =
    &[("kvm", "kvm", true), ("vboxdrv", "virtualbox", true), ("virtio", "kvm", false)];

impl Source for Virtualization {
    fn gather(&self, node: &Node, facts: &mut Facts) {
        let mut found = Found::default();
        containers(node, &mut found);
        for (fact, texts, technology) in FIRMWARE {
            if texts.contains(&facts.text(fact)) {
                found.guest(technology);
            }
        }
        let cpus = node.text("/proc/cpuinfo").unwrap_or_default();
        if cpus.lines().any(|line| line.starts_with("model name") && line.contains("QEMU Virtual CPU")) {
            found.guest("kvm");
        }
        let loaded = node.text("/proc/modules").unwrap_or_default();
        let loaded: BTreeSet<&str> = loaded.lines().filter_map(|line| line.split(' ').next()).collect();
        for (module, technology, host) in MODULES {
            if loaded.contains(module) {
                found.host(technology, *host);
            }
        }
        if node.exists("/dev/kvm") {
            found.host("kvm", true);
        }
        let (kind, role) = found.first.unwrap_or(("NA".into(), "NA"));
        facts.set("virtualization_type", kind);
        facts.set("virtualization_role", role);
        facts.set("virtualization_tech_guest", json!(found.guests));
        facts.set("virtualization_tech_host", json!(found.hosts));
        facts.set_own("kernel_modules", json!(loaded));
    }
}

/// Findings; the first one determines the node's type and role.
#[derive(Default)]
struct Found {
    first: Option<(String, &'static str)>,
    guests: BTreeSet<String>,
    hosts: BTreeSet<String>,
}

impl Found {
    fn guest(&mut self, technology: &str) {
        self.guests.insert(technology.to_owned());
        self.first.get_or_insert((technology.to_owned(), "guest"));
    }

    fn host(&mut self, technology: &str, host: bool) {
        self.hosts.insert(technology.to_owned());
        self.first.get_or_insert((technology.to_owned(), if host { "host" } else { "guest" }));
    }
}

fn containers(node: &Node, found: &mut Found) {
    for line in node.text("/proc/1/cgroup").unwrap_or_default().lines() {
        if line.contains("/docker/") || line.contains("/docker-") {
            found.guest("docker");
        } else if line.contains("/lxc/") || line.contains("/machine.slice/machine-lxc") {
            found.guest("lxc");
        } else if line.contains("/system.slice/containerd.service") {
            found.guest("containerd");
        }
    }
    let environment = node.bytes("/proc/1/environ").unwrap_or_default();
    for variable in environment.split(|byte| *byte == 0).map(String::from_utf8_lossy) {
        match variable.strip_prefix("container=") {
            Some("lxc") => found.guest("lxc"),
            Some("podman") => found.guest("podman"),
            Some(kind) if !kind.is_empty() => found.guest("container"),
            _ => {}
        }
    }
    if node.exists("/proc/vz") && !node.exists("/proc/lve") {
        if node.exists("/proc/bc") { found.host("openvz", true) } else { found.guest("openvz") }
    }
    if let Some(kind) = node.some("/run/systemd/container") {
        found.guest(&kind);
    }
    if node.exists("/.dockerenv") || node.exists("/.dockerinit") {
        found.guest("docker");
    }
    if node.exists("/run/.containerenv") {
        found.guest("podman");
    }
    if CONTAINERS.iter().any(|kind| found.guests.contains(*kind)) {
        found.guests.insert("container".into());
    }
    if node.exists("/proc/xen") {
        let control = node.text("/proc/xen/capabilities").is_some_and(|text| text.contains("control_d"));
        if control { found.host("xen", true) } else { found.guest("xen") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    fn check(name: &str, files: &[(&str, &str)], product: &str, expected: (&str, &str)) {
        let (_scratch, node) = Scratch::node(files);
        let mut facts = Facts::default();
        facts.set("product_name", product);
        Virtualization.gather(&node, &mut facts);
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
    }
}
