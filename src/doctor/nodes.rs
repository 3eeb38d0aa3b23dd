//! Checks the nodes: readiness, placement of the run's pods, and capacity.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Subject;
use super::finding::Check;
use crate::driver;
use crate::plugin::{Driver, pod::default_spec};
use base::kube::{Client, Error, Object as _, Resource, Selector};

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
    all: Vec<Node>,
    /// Number of pods on each node; empty if unknown.
    pods: BTreeMap<String, u64>,
}

struct Node {
    name: String,
    architecture: String,
    is_linux: bool,
    /// Why it is not ready.
    unready: Option<String>,
    object: Value,
}

impl Node {
    fn new(object: Value) -> Self {
        let info = &object["status"]["nodeInfo"];
        let unready = (!is(&object, "Ready", "True")).then(|| {
            let why = object.condition("Ready").map(|ready| ready["message"].text()).unwrap_or_default();
            format!("not ready{}{why}", if why.is_empty() { "" } else { ": " })
        });
        Self {
            name: object.name().to_owned(),
            architecture: info["architecture"].text().to_owned(),
            is_linux: info["operatingSystem"].is_null() || info["operatingSystem"] == "linux",
            unready,
            object,
        }
    }

    /// Why it does not accept a pod.
    fn refusal(&self, spec: &Value) -> Option<String> {
        let cordoned = self.object["spec"]["unschedulable"] == true;
        driver::refusal(spec, &self.object).or_else(|| cordoned.then(|| "it is cordoned".into()))
    }
}

impl Nodes {
    /// Lists nodes and counts pods; without permission to list pods, counts none.
    pub(crate) fn read(client: &Client) -> Result<Self, Error> {
        let all = client.list(&Resource::NODES, "", &Selector::all())?.into_iter().map(Node::new).collect();
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
        let linux = self.all.iter().filter(|node| node.is_linux && !node.architecture.is_empty());
        linux.map(|node| node.architecture.clone()).collect()
    }

    /// Whether no node has an image. False if a node may have more images than it reports.
    pub(super) fn lack(&self, image: &str) -> bool {
        let lacks = |images: &Vec<Value>| {
            let names = images.iter().filter_map(|one| one["names"].as_array()).flatten();
            images.len() < MAX_IMAGES_TOLD && !names.into_iter().any(|name| name == image)
        };
        let images = |node: &Node| node.object["status"]["images"].as_array().is_some_and(lacks);
        !self.all.is_empty() && self.all.iter().all(images)
    }

    /// Names of ready Linux nodes, ordered so that each architecture appears early.
    pub(super) fn usable(&self) -> Vec<&str> {
        self.ranked().into_iter().map(|(_, node)| node.name.as_str()).collect()
    }

    /// A ready node of each architecture.
    pub(super) fn one_each(&self) -> BTreeMap<String, String> {
        let first = self.ranked().into_iter().filter(|(rank, _)| *rank == 0);
        first.map(|(_, node)| (node.architecture.clone(), node.name.clone())).collect()
    }

    /// Ready Linux nodes, by their position among those of their architecture.
    fn ranked(&self) -> Vec<(usize, &Node)> {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let mut ranked = Vec::new();
        for node in self.all.iter().filter(|node| node.unready.is_none() && node.is_linux) {
            let next = seen.entry(&node.architecture).or_default();
            ranked.push((*next, node));
            *next += 1;
        }
        ranked.sort_by(|(a, one), (b, other)| (a, &one.name).cmp(&(b, &other.name)));
        ranked
    }

    /// Checks the nodes.
    pub(super) fn check(&self, subject: &Subject<'_>) -> Check {
        let mut check = Check::new("nodes");
        let mut find = |remedy: &str, problem: &dyn Fn(&Node) -> Option<String>| {
            let found = |node: &Node| Some((node.name.clone(), problem(node)?, Some(remedy.to_owned())));
            check.add_all(("nodes", self.all.len()), self.all.iter().filter_map(found));
        };
        find("look at the node and its kubelet, or remove the node from the cluster", &|node| {
            node.unready.clone()
        });
        for (condition, text, remedy) in PRESSURES {
            find(remedy, &|node| is(&node.object, condition, "True").then(|| text.to_owned()));
        }
        let needed = subject.pods_on_each_node();
        find("remove pods from the node, or raise `maxPods` of its kubelet", &|node| {
            let free = self.free(node).filter(|free| *free < needed)?;
            Some(format!("room for {free} more pods, but the run needs {needed}"))
        });
        self.find_unplaced(subject, &mut check);
        let architectures: Vec<String> = self.architectures().into_iter().collect();
        let ready = self.all.iter().filter(|node| node.unready.is_none()).count();
        check.seen = format!("{ready} of {} ready, {}", self.all.len(), architectures.join(" and "));
        check
    }

    /// Whether any node accepts the aggregator.
    pub(super) fn take_aggregator(&self, subject: &Subject<'_>) -> bool {
        subject.aggregator().is_none_or(|pod| self.take(&pod["spec"]))
    }

    fn take(&self, spec: &Value) -> bool {
        self.all.iter().any(|node| node.refusal(spec).is_none())
    }

    /// Checks whether any node accepts the aggregator, and the plugins that run once.
    fn find_unplaced(&self, subject: &Subject<'_>, check: &mut Check) {
        let once = subject.plugins.iter().filter(|plugin| plugin.config.driver == Driver::Job);
        let once = once.map(|plugin| {
            let spec = plugin.pod_spec.clone().unwrap_or_else(|| default_spec(Driver::Job, ""));
            (format!("plugin `{}`", plugin.name()), spec)
        });
        let aggregator = subject.aggregator().map(|pod| ("the aggregator".to_owned(), pod["spec"].clone()));
        let mut refused: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
        for (what, spec) in aggregator.into_iter().chain(once).filter(|(_, spec)| !self.take(spec)) {
            for node in &self.all {
                let why = node.refusal(&spec).unwrap_or_default();
                refused.entry((&node.name, why)).or_default().push(what.clone());
            }
        }
        let remedy = "remove the taint or cordon from a node, add a node, or choose others with \
                      `--aggregator-node-selector`, a toleration or a node selector in the plugin's pod spec";
        let refused = refused.into_iter().map(|((node, why), whats)| {
            (node.to_owned(), format!("no node for {}: {why}", whats.join(" and ")), Some(remedy.to_owned()))
        });
        check.add_all(("nodes", self.all.len()), refused);
    }

    fn free(&self, node: &Node) -> Option<u64> {
        let max = node.object["status"]["allocatable"]["pods"].as_str()?.parse::<u64>().ok()?;
        let used = self.pods.get(&node.name).copied().unwrap_or_default();
        (!self.pods.is_empty()).then(|| max.saturating_sub(used))
    }
}

fn is(node: &Value, kind: &str, status: &str) -> bool {
    node.condition(kind).is_some_and(|condition| condition["status"] == status)
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
    fn sample_has_every_architecture_and_only_ready_nodes() {
        let all = [("a", "amd64", true), ("b", "amd64", true), ("c", "arm64", true), ("d", "amd64", false)];
        let all = all
            .iter()
            .map(|(name, architecture, ready)| Node::new(node(name, architecture, *ready)))
            .collect();
        let nodes = Nodes { all, pods: BTreeMap::new() };
        assert_eq!(nodes.usable(), ["a", "c", "b"]);
        assert_eq!(nodes.architectures().into_iter().collect::<Vec<_>>(), ["amd64", "arm64"]);
    }

    #[test]
    fn node_problems_are_counted_by_cause() {
        let mut tainted = node("b", "amd64", true);
        tainted["spec"]["taints"] = json!([{"key": "mine", "effect": "NoSchedule"}]);
        let conditions = tainted["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({"type": "DiskPressure", "status": "True"}));
        let mut other = node("c", "amd64", false);
        other["spec"]["taints"] = json!([{"key": "mine", "effect": "NoExecute"}]);
        let pods = BTreeMap::from([("b".to_owned(), 3), ("c".to_owned(), 1)]);
        let nodes = Nodes { all: [tainted, other].map(Node::new).into(), pods };
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
