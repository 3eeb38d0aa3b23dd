//! Checks the nodes: readiness, placement of the run's pods, and capacity.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Subject;
use super::finding::{Check, Severity};
use crate::driver;
use crate::plugin::{Driver, pod::default_spec};
use base::kube::{Client, Error, Resource, Selector};

/// Conditions that make a kubelet refuse or evict pods, and the scarce resource.
const PRESSURES: [(&str, &str, &str); 3] = [
    ("DiskPressure", "disk pressure", "free room on the node's disk: images, logs, volumes of pods"),
    ("MemoryPressure", "memory pressure", "find what uses the node's memory, or add nodes"),
    ("PIDPressure", "too many processes", "find what starts them on the node"),
];

/// Maximum images that a kubelet reports, the largest of them: the default of `nodeStatusMaxImages`.
const MAX_IMAGES_TOLD: usize = 50;

/// Nodes and their load.
#[derive(Default)]
pub(crate) struct Nodes {
    /// All nodes, as returned by the API.
    all: Vec<Value>,
    /// Number of pods on each node.
    pods: BTreeMap<String, u64>,
}

impl Nodes {
    /// Lists nodes and counts pods; without permission to list pods, counts none.
    pub(crate) fn read(client: &Client) -> Result<Self, Error> {
        let all = client.list(&Resource::NODES, "", &Selector::all())?;
        let mut pods = BTreeMap::new();
        let living = Selector::fields("status.phase!=Succeeded,status.phase!=Failed");
        let counted = client.each(&Resource::PODS, "", &living, &mut |pod| {
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                *pods.entry(node.to_owned()).or_default() += 1;
            }
            Ok(())
        });
        if let Err(error) = counted {
            log::debug!("pods are not counted: {error}");
            pods.clear();
        }
        Ok(Self { all, pods })
    }

    /// Architectures of nodes that may run the run's pods.
    pub(crate) fn architectures(&self) -> BTreeSet<String> {
        let of = |node: &Value| {
            let info = &node["status"]["nodeInfo"];
            Some((info["operatingSystem"].as_str()?.to_owned(), info["architecture"].as_str()?.to_owned()))
        };
        let all = self.all.iter().filter_map(of).filter(|(system, _)| system == "linux");
        all.map(|(_, architecture)| architecture).collect()
    }

    /// Whether no node has an image. False if a node may have more images than it reports.
    pub(super) fn lack(&self, image: &str) -> bool {
        let known =
            |node: &Value| node["status"]["images"].as_array().is_some_and(|all| all.len() < MAX_IMAGES_TOLD);
        let names = |node: &Value| {
            let images = node["status"]["images"].as_array().into_iter().flatten();
            images.flat_map(|one| one["names"].as_array().into_iter().flatten()).any(|name| name == image)
        };
        !self.all.is_empty() && self.all.iter().all(known) && !self.all.iter().any(names)
    }

    /// Names of ready Linux nodes, ordered so that each architecture appears early.
    pub(super) fn usable(&self) -> Vec<&str> {
        let mut found: Vec<(usize, &str)> = Vec::new();
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let fit = |node: &&Value| {
            unready(node).is_none()
                && node["status"]["nodeInfo"]["operatingSystem"].as_str().unwrap_or("linux") == "linux"
        };
        for node in self.all.iter().filter(fit) {
            let architecture = node["status"]["nodeInfo"]["architecture"].as_str().unwrap_or_default();
            let place = seen.entry(architecture).or_default();
            found.extend(name(node).map(|name| (*place, name)));
            *place += 1;
        }
        found.sort_unstable();
        found.into_iter().map(|(_, name)| name).collect()
    }

    /// A ready node of each architecture.
    pub(super) fn one_each(&self) -> BTreeMap<String, String> {
        let usable = self.usable();
        let of = |node: &Value| {
            let name = name(node).filter(|name| usable.contains(name))?;
            Some((node["status"]["nodeInfo"]["architecture"].as_str()?.to_owned(), name.to_owned()))
        };
        self.all.iter().rev().filter_map(of).collect()
    }

    /// Checks the nodes.
    pub(super) fn check(&self, subject: &Subject<'_>) -> Check {
        let mut check = Check::new("nodes");
        let total = ("nodes", self.all.len());
        let named = |node: &Value, text: String, remedy: Option<&str>| {
            (name(node).unwrap_or_default().to_owned(), text, remedy.map(str::to_owned))
        };
        let unready = self.all.iter().filter_map(|node| Some((node, unready(node)?)));
        let remedy = "look at the node and its kubelet, or remove the node from the cluster";
        check.add_all(Severity::Fails, total, unready.map(|(node, why)| named(node, why, Some(remedy))));
        for (condition, text, remedy) in PRESSURES {
            let pressed = self.all.iter().filter(|node| is(node, condition, "True"));
            check.add_all(Severity::Fails, total, pressed.map(|node| named(node, text.into(), Some(remedy))));
        }
        let needed = subject.pods_on_each_node();
        let full = self.all.iter().filter_map(|node| Some((node, self.free(node)?)));
        let full = full.filter(|(_, free)| *free < needed).map(|(node, free)| {
            let text = format!("room for {free} more pods, but the run needs {needed}");
            named(node, text, Some("remove pods from the node, or raise `maxPods` of its kubelet"))
        });
        check.add_all(Severity::Fails, total, full);
        self.taken(subject, &mut check);
        let architectures: Vec<String> = self.architectures().into_iter().collect();
        let ready = self.all.iter().filter(|node| self::unready(node).is_none()).count();
        check.seen = format!("{ready} of {} ready, {}", self.all.len(), architectures.join(" and "));
        check
    }

    /// Whether any node accepts the aggregator.
    pub(super) fn take_aggregator(&self, subject: &Subject<'_>) -> bool {
        let takes = |pod: &Value| self.all.iter().any(|node| untaken(&pod["spec"], node).is_none());
        subject.aggregator().is_none_or(takes)
    }

    /// Whether any node accepts the aggregator, and the plugins that run once.
    fn taken(&self, subject: &Subject<'_>, check: &mut Check) {
        let once = subject.plugins.iter().filter(|plugin| plugin.config.driver == Driver::Job);
        let once = once.map(|plugin| {
            let spec = plugin.pod_spec.clone().unwrap_or_else(|| default_spec(Driver::Job, ""));
            (format!("plugin `{}`", plugin.name()), spec)
        });
        let aggregator = subject.aggregator().map(|pod| ("the aggregator".to_owned(), pod["spec"].clone()));
        let mut refused: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for (what, spec) in aggregator.into_iter().chain(once) {
            // One node is enough.
            if self.all.iter().any(|node| untaken(&spec, node).is_none()) {
                continue;
            }
            for node in &self.all {
                let key =
                    (name(node).unwrap_or_default().to_owned(), untaken(&spec, node).unwrap_or_default());
                refused.entry(key).or_default().push(what.clone());
            }
        }
        let remedy = "remove the taint or cordon from a node, add a node, or choose others with \
                      `--aggregator-node-selector`, a toleration or a node selector in the plugin's pod spec";
        let refused = refused.into_iter().map(|((node, why), whats)| {
            (node, format!("no node for {}: {why}", whats.join(" and ")), Some(remedy.to_owned()))
        });
        check.add_all(Severity::Fails, ("nodes", self.all.len()), refused);
    }

    fn free(&self, node: &Value) -> Option<u64> {
        if self.pods.is_empty() {
            return None;
        }
        let most = node["status"]["allocatable"]["pods"].as_str()?.parse::<u64>().ok()?;
        Some(most.saturating_sub(self.pods.get(name(node)?).copied().unwrap_or_default()))
    }
}

fn name(node: &Value) -> Option<&str> {
    node["metadata"]["name"].as_str()
}

fn condition<'n>(node: &'n Value, kind: &str) -> Option<&'n Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn is(node: &Value, kind: &str, status: &str) -> bool {
    condition(node, kind).is_some_and(|condition| condition["status"] == status)
}

/// Why a node does not accept a pod.
fn untaken(spec: &Value, node: &Value) -> Option<String> {
    let cordoned = node["spec"]["unschedulable"] == true;
    driver::refusal(spec, node).or_else(|| cordoned.then(|| "it is cordoned".into()))
}

/// Why a node is not ready.
fn unready(node: &Value) -> Option<String> {
    if is(node, "Ready", "True") {
        return None;
    }
    let why = condition(node, "Ready").and_then(|ready| ready["message"].as_str()).unwrap_or_default();
    let colon = if why.is_empty() { "" } else { ": " };
    Some(format!("not ready{colon}{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    fn node(name: &str, architecture: &str, ready: bool) -> Value {
        json!({
            "metadata": {"name": name},
            "status": {
                "nodeInfo": {"operatingSystem": "linux", "architecture": architecture},
                "allocatable": {"pods": "3"},
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "message": "PLEG"}],
            },
        })
    }

    #[test]
    fn a_sample_has_every_architecture_and_no_node_that_is_not_ready() {
        let all = [("a", "amd64", true), ("b", "amd64", true), ("c", "arm64", true), ("d", "amd64", false)];
        let all = all.iter().map(|(name, architecture, ready)| node(name, architecture, *ready)).collect();
        let nodes = Nodes { all, pods: BTreeMap::new() };
        assert_eq!(nodes.usable(), ["a", "c", "b"]);
        assert_eq!(nodes.architectures().into_iter().collect::<Vec<_>>(), ["amd64", "arm64"]);
    }

    #[test]
    fn what_is_wrong_with_nodes_is_counted_by_its_cause() {
        let mut tainted = node("b", "amd64", true);
        tainted["spec"]["taints"] = json!([{"key": "mine", "effect": "NoSchedule"}]);
        let conditions = tainted["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({"type": "DiskPressure", "status": "True"}));
        let mut other = node("c", "amd64", false);
        other["spec"]["taints"] = json!([{"key": "mine", "effect": "NoExecute"}]);
        let pods = BTreeMap::from([("b".to_owned(), 3), ("c".to_owned(), 1)]);
        let nodes = Nodes { all: vec![tainted, other], pods };
        let objects = [
            json!({"kind": "Pod", "metadata": {"labels": {"sonobuoy-component": "aggregator"}}, "spec": {}}),
        ];
        let plugin = crate::plugin::Definition::new("logs", Driver::DaemonSet, json!({}));
        let subject =
            Subject { objects: &objects, namespace: "n", plugins: vec![plugin], run: Default::default() };
        let check = nodes.check(&subject);
        let lines: Vec<_> = check.findings.iter().map(super::super::finding::Finding::line).collect();
        assert_eq!(
            lines,
            [
                "1 of 2 nodes: not ready: PLEG (c)",
                "1 of 2 nodes: disk pressure (b)",
                "1 of 2 nodes: room for 0 more pods, but the run needs 1 (b)",
                "1 of 2 nodes: no node for the aggregator: taint `mine:NoSchedule` is not tolerated (b)",
                "1 of 2 nodes: no node for the aggregator: taint `mine:NoExecute` is not tolerated (c)",
            ]
        );
        assert!(check.findings.iter().all(|finding| finding.remedy.is_some()));
        assert_eq!(check.seen, "1 of 2 ready, amd64");
    }
}
