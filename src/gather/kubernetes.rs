//! Kubernetes prerequisites of a node: sysctls, cgroups, limits, entropy, runtime and kubelet, and
//! free space in their folders.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{NodeFiles, field, storage};
use base::json::{json, list};

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

pub(super) fn gather(node: &NodeFiles) -> Value {
    let sysctl = |name: &&'static str| {
        let value = node.text(&format!("/proc/sys/{}", name.replace('.', "/")))?;
        Some((*name, value.replace('\t', " ")))
    };
    let folder = |path: &&'static str| Some((*path, space(node, path)?));
    let pressure = ["cpu", "io", "memory"].into_iter().filter_map(|kind| {
        Some((
            kind,
            pressure(&node.text(&format!("/proc/pressure/{kind}"))?),
        ))
    });
    json!({
        "sonobuoy_sysctl": SYSCTLS.iter().filter_map(sysctl).collect::<Value>(),
        "sonobuoy_cgroup": cgroup(node),
        "sonobuoy_entropy_available": node.number("/proc/sys/kernel/random/entropy_avail"),
        "sonobuoy_packages": packages(&node.text("/var/lib/dpkg/status").unwrap_or_default()),
        "sonobuoy_runtime_sockets": list(SOCKETS.iter().filter(|path| node.exists(path))),
        "sonobuoy_folders": FOLDERS.iter().filter_map(folder).collect::<Value>(),
        "sonobuoy_pressure": pressure.collect::<Value>(),
        "sonobuoy_open_files": node.number("/proc/sys/fs/file-nr"),
    })
}

fn cgroup(node: &NodeFiles) -> Value {
    if let Some(text) = node.text("/sys/fs/cgroup/cgroup.controllers") {
        return json!({ "version": 2, "controllers": list(text.split_whitespace()) });
    }
    let version = node.exists("/sys/fs/cgroup/memory").then_some(1);
    let text = node.text("/proc/cgroups").unwrap_or_default();
    let controllers = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split('\t').next());
    json!({ "version": version, "controllers": list(controllers) })
}

/// The cluster's processes on this node, and the limits of these and of the first process.
pub(super) fn processes(node: &NodeFiles) -> Value {
    let mut pids = BTreeMap::from([("init".to_owned(), "1".to_owned())]);
    for pid in node
        .list("/proc")
        .into_iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    {
        let name = node.text(&format!("/proc/{pid}/comm")).unwrap_or_default();
        if PROCESSES.contains(&&*name) {
            pids.entry(name).or_insert(pid);
        }
    }
    let limits: Value = pids
        .iter()
        .filter_map(|(name, pid)| {
            Some((
                name,
                limit_lines(&node.text(&format!("/proc/{pid}/limits"))?),
            ))
        })
        .collect();
    pids.remove("init");
    let processes = pids.into_iter().map(|(name, pid)| {
        let program = node
            .link(&format!("/proc/{pid}/exe"))
            .map(|path| path.to_string_lossy().into_owned());
        (
            name,
            json!({ "pid": pid.parse::<u64>().ok(), "program": program }),
        )
    });
    json!({ "sonobuoy_limits": limits, "sonobuoy_processes": processes.collect::<Value>() })
}

/// `Max open files  1024  4096  files` as `open_files: {soft, hard}`.
fn limit_lines(text: &str) -> Value {
    text.lines()
        .filter_map(|line| {
            let (name, values) = line.strip_prefix("Max ")?.split_once("  ")?;
            let value = |text: &str| {
                text.parse::<u64>()
                    .map_or_else(|_| Value::from(text), Value::from)
            };
            let mut values = values.split_whitespace().map(value);
            Some((
                name.replace(' ', "_"),
                json!({ "soft": values.next()?, "hard": values.next()? }),
            ))
        })
        .collect()
}

/// Versions from dpkg's list; lists of other package managers need their own tools.
fn packages(status: &str) -> Value {
    status
        .split("\n\n")
        .filter_map(|block| {
            let name = field(block, ':', "Package").filter(|name| PACKAGES.contains(name))?;
            field(block, ':', "Status").filter(|status| status.ends_with(" installed"))?;
            Some((name, field(block, ':', "Version")))
        })
        .collect()
}

fn space(node: &NodeFiles, folder: &str) -> Option<Value> {
    let path = node
        .resolve(folder, true)
        .ok()
        .filter(|path| path.is_dir())?;
    let sizes = storage::sizes(&path)?;
    let mut facts = json!({});
    for kind in ["size", "inode"] {
        let [total, available] = ["total", "available"].map(|part| format!("{kind}_{part}"));
        // Some file systems do not count inodes.
        let percent = sizes[&*available]
            .saturating_mul(100)
            .checked_div(sizes[&*total]);
        facts[format!("{available}_percent")] = percent.into();
        for name in [total, available] {
            facts[&name] = sizes[&*name].into();
        }
    }
    Some(facts)
}

/// `some avg10=0.00 avg60=0.12 …` as the percentage of a minute in which a task waited.
fn pressure(text: &str) -> Option<f64> {
    text.lines()
        .find(|line| line.starts_with("some "))?
        .split(' ')
        .filter_map(|word| word.strip_prefix("avg60="))
        .find_map(|value| value.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn limits_and_packages() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \nMax \
             open files            1024                 524288               files     \nMax cpu \
             time              unlimited            unlimited            seconds   \n";
        let found = limit_lines(limits);
        assert_eq!(found["open_files"], json!({"soft": 1024, "hard": 524_288}));
        assert_eq!(found["cpu_time"]["hard"], "unlimited");
        let status = "Package: kubelet\nStatus: install ok installed\nVersion: \
                      1.30.1-1.1\n\nPackage: runc\nStatus: deinstall ok config-files\nVersion: \
                      1\n\nPackage: bash\nStatus: install ok installed\nVersion: 5\n";
        assert_eq!(packages(status), json!({"kubelet": "1.30.1-1.1"}));
    }

    #[test]
    fn cluster_node_is_described() {
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
                "some avg10=0.00 avg60=1.25 avg300=0.00 total=1\nfull avg10=0 avg60=0 avg300=0 \
                 total=0\n",
            ),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
            ("var/lib/kubelet/config.yaml", ""),
        ];
        let (_scratch, node) = Scratch::node(&files);
        let (facts, running) = (gather(&node), processes(&node));
        assert_eq!(running["sonobuoy_processes"]["kubelet"]["pid"], 700);
        assert_eq!(
            running["sonobuoy_limits"]["kubelet"]["processes"]["hard"],
            200
        );
        assert_eq!(
            facts["sonobuoy_sysctl"]["net.ipv4.ip_local_port_range"],
            "32768 60999"
        );
        assert_eq!(facts["sonobuoy_cgroup"]["version"], 2);
        assert_eq!(facts["sonobuoy_pressure"]["memory"], 1.25);
        assert!(facts["sonobuoy_folders"]["/var/lib/kubelet"]["inode_total"].is_u64());
    }
}
