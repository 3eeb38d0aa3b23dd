//! Kubernetes prerequisites of a node: sysctls, cgroups, limits, entropy, runtime and kubelet, and free space in their
//! folders.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Facts, Node, field, mounts};
use base::json::json;

/// Kernel settings that matter to the kubelet, network plugins and busy nodes.
const SYSCTLS: &[&str] = &[
    "fs.file-max",
    "fs.inotify.max_user_instances",
    "fs.inotify.max_user_watches",
    "fs.nr_open",
    "kernel.keys.root_maxbytes",
    "kernel.keys.root_maxkeys",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.pid_max",
    "kernel.threads-max",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.bridge.bridge-nf-call-iptables",
    "net.core.somaxconn",
    "net.ipv4.conf.all.forwarding",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv6.conf.all.disable_ipv6",
    "net.ipv6.conf.all.forwarding",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
    "user.max_user_namespaces",
    "vm.max_map_count",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "vm.swappiness",
];

/// Processes of a cluster node.
const PROCESSES: &[&str] = &[
    "kubelet",
    "containerd",
    "crio",
    "dockerd",
    "cri-dockerd",
    "kube-proxy",
    "etcd",
    "kube-apiserver",
    "k3s",
    "rke2",
];

/// Packages of these processes.
const PACKAGES: &[&str] = &[
    "containerd",
    "containerd.io",
    "cri-o",
    "cri-tools",
    "docker-ce",
    "docker.io",
    "kubeadm",
    "kubectl",
    "kubelet",
    "kubernetes-cni",
    "runc",
];

const SOCKETS: &[&str] = &[
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/var/run/docker.sock",
];

/// Folders whose disk, when full, makes a node evict pods or fail.
const FOLDERS: &[&str] = &[
    "/",
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/etcd",
    "/var/lib/rancher",
    "/var/log",
    "/run",
];

pub(super) fn gather(node: &Node, facts: &mut Facts) {
    let sysctls = SYSCTLS.iter().filter_map(|name| {
        let value = node.some(&format!("/proc/sys/{}", name.replace('.', "/")))?;
        Some(((*name).to_owned(), Value::from(value.replace('\t', " "))))
    });
    facts.set_own("sysctl", sysctls.collect::<Map<_, _>>());
    facts.set_own("cgroup", cgroup(node));
    facts.set_own("entropy_available", json!(node.number::<u64>("/proc/sys/kernel/random/entropy_avail")));
    let processes = processes(node);
    facts.set_own("limits", limits(node, &processes));
    facts.set_own("processes", processes);
    facts.set_own("packages", packages(&node.text("/var/lib/dpkg/status").unwrap_or_default()));
    let sockets = SOCKETS.iter().filter(|path| node.exists(path));
    facts.set_own("runtime_sockets", sockets.map(|path| Value::from(*path)).collect::<Vec<_>>());
    facts.set_own("folders", folders(node));
    facts.set_own("boot_id", json!(node.some("/proc/sys/kernel/random/boot_id")));
    let pressure = ["cpu", "io", "memory"].iter().filter_map(|kind| {
        let text = node.some(&format!("/proc/pressure/{kind}"))?;
        Some(((*kind).to_owned(), json!(pressure(&text))))
    });
    facts.set_own("pressure", pressure.collect::<Map<_, _>>());
    let files = node.text("/proc/sys/fs/file-nr").unwrap_or_default();
    facts.set_own(
        "open_files",
        json!(files.split_whitespace().next().and_then(|word| word.parse::<u64>().ok())),
    );
}

fn cgroup(node: &Node) -> Value {
    let unified = node.some("/sys/fs/cgroup/cgroup.controllers");
    let version = if unified.is_some() { Some(2) } else { node.is_dir("/sys/fs/cgroup/memory").then_some(1) };
    let named = node.text("/proc/cgroups").unwrap_or_default();
    let named =
        || named.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split('\t').next());
    let controllers: Vec<String> = match &unified {
        Some(text) => text.split_whitespace().map(ToOwned::to_owned).collect(),
        None => named().map(ToOwned::to_owned).collect(),
    };
    json!({ "version": version, "controllers": controllers })
}

/// The cluster's processes on this node, with their IDs.
fn processes(node: &Node) -> Value {
    let mut found = Map::new();
    for pid in node.list("/proc").iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        let Some(name) = node.text(&format!("/proc/{pid}/comm")) else { continue };
        if PROCESSES.contains(&name.as_str()) && !found.contains_key(&name) {
            let program =
                node.link(&format!("/proc/{pid}/exe")).map(|path| path.to_string_lossy().into_owned());
            found.insert(name, json!({ "pid": pid.parse::<u64>().unwrap_or(0), "program": program }));
        }
    }
    Value::Object(found)
}

/// The limits of the first process and of the cluster's processes.
fn limits(node: &Node, processes: &Value) -> Value {
    let mut found = Map::new();
    let known = processes
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, process)| (name.as_str(), process["pid"].to_string()));
    for (name, pid) in [("init", "1".to_owned())].into_iter().chain(known) {
        if let Some(text) = node.some(&format!("/proc/{pid}/limits")) {
            found.insert(name.to_owned(), json!(limit_lines(&text)));
        }
    }
    Value::Object(found)
}

/// `Max open files  1024  4096  files` as `open_files: {soft, hard}`.
fn limit_lines(text: &str) -> BTreeMap<String, Value> {
    let lines = text.lines().filter_map(|line| {
        let line = line.strip_prefix("Max ")?;
        let (name, values) = line.split_once("  ")?;
        let mut values = values.split_whitespace();
        let (soft, hard) = (values.next()?, values.next()?);
        let value = |text: &str| text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from);
        Some((name.replace(' ', "_"), json!({ "soft": value(soft), "hard": value(hard) })))
    });
    lines.collect()
}

/// Versions from dpkg's list; lists of other package managers need their own tools.
fn packages(status: &str) -> Value {
    let mut found = Map::new();
    for block in status.split("\n\n") {
        let field = |name| field(block, ':', name);
        let Some(name) = field("Package").filter(|name| PACKAGES.contains(name)) else { continue };
        if field("Status").is_some_and(|status| status.ends_with(" installed")) {
            found.insert(name.to_owned(), json!(field("Version")));
        }
    }
    Value::Object(found)
}

fn folders(node: &Node) -> Value {
    let mut found = Map::new();
    for folder in FOLDERS {
        if !node.is_dir(folder) {
            continue;
        }
        let sizes = node.resolve(folder, true).ok().and_then(|path| mounts::sizes(&path));
        let Some(sizes) = sizes else { continue };
        let sizes: BTreeMap<&str, u64> = sizes.into_iter().collect();
        let free = |available: &str, total: &str| {
            // Some file systems do not count inodes.
            json!(sizes[available].saturating_mul(100).checked_div(sizes[total]))
        };
        let facts = json!({
            "size_total": sizes["size_total"], "size_available": sizes["size_available"],
            "size_available_percent": free("size_available", "size_total"),
            "inode_total": sizes["inode_total"], "inode_available": sizes["inode_available"],
            "inode_available_percent": free("inode_available", "inode_total"),
        });
        found.insert((*folder).to_owned(), facts);
    }
    Value::Object(found)
}

/// `some avg10=0.00 avg60=0.12 …` as the percentage of a minute in which a task waited.
fn pressure(text: &str) -> Option<f64> {
    let words = text.lines().find(|line| line.starts_with("some "))?.split(' ');
    words.filter_map(|word| word.strip_prefix("avg60=")).find_map(|value| value.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn limits_and_packages() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n\
                      Max cpu time              unlimited            unlimited            seconds   \n";
        let found = limit_lines(limits);
        assert_eq!(found["open_files"], json!({"soft": 1024, "hard": 524_288}));
        assert_eq!(found["cpu_time"]["hard"], "unlimited");
        let status = "Package: kubelet\nStatus: install ok installed\nVersion: 1.30.1-1.1\n\nPackage: runc\nStatus: deinstall ok config-files\nVersion: 1\n\nPackage: bash\nStatus: install ok installed\nVersion: 5\n";
        assert_eq!(packages(status), json!({"kubelet": "1.30.1-1.1"}));
    }

    #[test]
    fn a_node_of_a_cluster_is_described() {
        let files = [
            ("proc/1/comm", "systemd\n"),
            ("proc/700/comm", "kubelet\n"),
            (
                "proc/700/limits",
                "Max processes             100                  200                  processes\n",
            ),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
            (
                "proc/pressure/memory",
                "some avg10=0.00 avg60=1.25 avg300=0.00 total=1\nfull avg10=0 avg60=0 avg300=0 total=0\n",
            ),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
            ("var/lib/kubelet/config.yaml", ""),
        ];
        let (_scratch, node) = Scratch::node(&files);
        let mut facts = Facts::default();
        gather(&node, &mut facts);
        let facts = Value::Object(facts.0);
        assert_eq!(facts["sonobuoy_processes"]["kubelet"]["pid"], 700);
        assert_eq!(facts["sonobuoy_limits"]["kubelet"]["processes"]["hard"], 200);
        assert_eq!(facts["sonobuoy_sysctl"]["net.ipv4.ip_local_port_range"], "32768 60999");
        assert_eq!(facts["sonobuoy_cgroup"]["version"], 2);
        assert_eq!(facts["sonobuoy_pressure"]["memory"], 1.25);
        assert!(facts["sonobuoy_folders"]["/var/lib/kubelet"]["inode_total"].is_u64());
    }
}
