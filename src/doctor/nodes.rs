//! Checks the nodes: readiness, placement of the run's pods, and capacity.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Subject;
use super::finding::Check;
use crate::deploy::load::images;
use base::Joined as _;
use kube::{Client, Error, Object as _, Resource, Selector};
use model::plugin::{DriverKind, default_spec};
use run::driver;

/// Conditions that make a kubelet refuse or evict pods, and the scarce resource.
const PRESSURES: [(&str, &str, &str); 3] = [
    (
        "DiskPressure",
        "disk pressure",
        "free room on the node's disk: images, logs, volumes of pods",
    ),
    (
        "MemoryPressure",
        "memory pressure",
        "find what uses the node's memory, or add nodes",
    ),
    (
        "PIDPressure",
        "too many processes",
        "find what starts them on the node",
    ),
];

/// Maximum images that a kubelet reports, the largest of them: the default of
/// `nodeStatusMaxImages`.
const MAX_IMAGES_REPORTED: usize = 50;

/// Nodes and their load.
#[derive(Default)]
pub(crate) struct Nodes {
    all: Vec<Value>,
    /// Number of pods on each node; empty if unknown.
    pods: BTreeMap<String, u64>,
}

fn architecture(node: &Value) -> &str {
    node["status"]["nodeInfo"]["architecture"].text()
}

fn is_linux(node: &Value) -> bool {
    let system = &node["status"]["nodeInfo"]["operatingSystem"];
    system.is_null() || system == "linux"
}

/// Whether a condition holds for a node.
fn is(node: &Value, condition: &str) -> bool {
    node.condition(condition)
        .is_some_and(|condition| condition["status"] == "True")
}

/// Why a node is not ready.
fn unready(node: &Value) -> Option<String> {
    if is(node, "Ready") {
        return None;
    }
    let condition = node.condition("Ready");
    Some(
        match condition.map_or("", |ready| ready["message"].text()) {
            "" => "not ready".to_owned(),
            why => format!("not ready: {why}"),
        },
    )
}

/// Why a node does not accept a pod.
fn refusal(node: &Value, spec: &Value) -> Option<String> {
    if let Some(refusal) = driver::refusal(spec, node) {
        return Some(refusal);
    }
    let is_cordoned = node["spec"]["unschedulable"] == true;
    is_cordoned.then(|| "it is cordoned".to_owned())
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
        let mut architectures = BTreeSet::new();
        for node in &self.all {
            let architecture = architecture(node);
            if is_linux(node) && !architecture.is_empty() {
                architectures.insert(architecture.to_owned());
            }
        }
        architectures
    }

    /// The usable nodes that lack an image, and the number of all of them. A node that may have
    /// more images than it reports lacks none.
    pub(super) fn lacking(&self, image: &str) -> (Vec<&str>, usize) {
        let usable = self.usable();
        let mut lacking = Vec::new();
        for node in &usable {
            let reported = node["status"]["images"].as_array().map(Vec::len);
            // A longer list of images is cut by the kubelet.
            let is_complete = reported.is_some_and(|count| count < MAX_IMAGES_REPORTED);
            if is_complete && !images(node).any(|name| name == image) {
                lacking.push(node.name());
            }
        }
        (lacking, usable.len())
    }

    /// A ready node of each architecture.
    pub(super) fn one_each(&self) -> BTreeMap<String, String> {
        let mut nodes = BTreeMap::new();
        for node in self.usable() {
            let architecture = architecture(node).to_owned();
            nodes
                .entry(architecture)
                .or_insert_with(|| node.name().to_owned());
        }
        nodes
    }

    /// Ready Linux nodes, ordered so that each architecture appears early.
    pub(super) fn usable(&self) -> Vec<&Value> {
        let mut next_ranks: BTreeMap<&str, usize> = BTreeMap::new();
        let mut ranked = Vec::new();
        for node in &self.all {
            if unready(node).is_none() && is_linux(node) {
                let next = next_ranks.entry(architecture(node)).or_default();
                ranked.push((*next, node.name(), node));
                *next += 1;
            }
        }
        ranked.sort_by_key(|(rank, name, _)| (*rank, *name));
        ranked.into_iter().map(|(.., node)| node).collect()
    }

    /// Checks the nodes.
    pub(super) fn check(&self, subject: &Subject<'_>) -> Check {
        let mut check = Check::new("nodes");
        let mut find = |remedy: &str, problem: &dyn Fn(&Value) -> Option<String>| {
            let mut failures = Vec::new();
            for node in &self.all {
                if let Some(problem) = problem(node) {
                    failures.push((node.name().to_owned(), problem, Some(remedy.to_owned())));
                }
            }
            check.add_all(("nodes", self.all.len()), failures);
        };
        find(
            "look at the node and its kubelet, or remove the node from the cluster",
            &unready,
        );
        for (condition, text, remedy) in PRESSURES {
            find(remedy, &|node| is(node, condition).then(|| text.to_owned()));
        }
        let needed = subject
            .plugins
            .iter()
            .filter(|plugin| plugin.config.driver.is_per_node())
            .count() as u64;
        find(
            "remove pods from the node, or raise `maxPods` of its kubelet",
            &|node| {
                let free = self.free(node).filter(|free| *free < needed)?;
                Some(format!(
                    "room for {free} more pods, but the run needs {needed}"
                ))
            },
        );
        self.find_unplaced(subject, &mut check);
        let architectures = self.architectures().into_iter().joined(" and ");
        let ready = self
            .all
            .iter()
            .filter(|node| unready(node).is_none())
            .count();
        check.seen = format!("{ready} of {} ready, {architectures}", self.all.len());
        check
    }

    /// Whether any node accepts a pod with this spec.
    pub(super) fn take(&self, spec: &Value) -> bool {
        self.all.iter().any(|node| refusal(node, spec).is_none())
    }

    /// Checks whether any node accepts the aggregator, and the plugins that run once.
    fn find_unplaced(&self, subject: &Subject<'_>, check: &mut Check) {
        let mut pods = Vec::new();
        if let Some(pod) = subject.aggregator() {
            pods.push(("the aggregator".to_owned(), pod["spec"].clone()));
        }
        for plugin in &subject.plugins {
            if plugin.config.driver == DriverKind::Job {
                let spec = plugin.pod_spec.clone();
                let spec = spec.unwrap_or_else(|| default_spec(DriverKind::Job, ""));
                pods.push((format!("plugin `{}`", plugin.name()), spec));
            }
        }
        pods.retain(|(_, spec)| !self.take(spec));
        let mut refused: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
        for (what, spec) in pods {
            for node in &self.all {
                let why = refusal(node, &spec).unwrap_or_default();
                let pods_refused = refused.entry((node.name(), why)).or_default();
                pods_refused.push(what.clone());
            }
        }
        let remedy = "remove the taint or cordon from a node, add a node, or choose others with \
                      `--aggregator-node-selector`, a toleration or a node selector in the \
                      plugin's pod spec";
        let refused = refused.into_iter().map(|((node, why), whats)| {
            (
                node.to_owned(),
                format!("no node for {}: {why}", whats.join(" and ")),
                Some(remedy.to_owned()),
            )
        });
        check.add_all(("nodes", self.all.len()), refused);
    }

    fn free(&self, node: &Value) -> Option<u64> {
        if self.pods.is_empty() {
            // They could not be counted.
            return None;
        }
        let max = node["status"]["allocatable"]["pods"].text();
        let max = max.parse::<u64>().ok()?;
        let used = self.pods.get(node.name()).copied().unwrap_or_default();
        Some(max.saturating_sub(used))
    }
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
        let all = [
            ("a", "amd64", true),
            ("b", "amd64", true),
            ("c", "arm64", true),
            ("d", "amd64", false),
        ];
        let all = all
            .iter()
            .map(|(name, architecture, ready)| node(name, architecture, *ready))
            .collect();
        let nodes = Nodes {
            all,
            pods: BTreeMap::new(),
        };
        let usable: Vec<_> = nodes.usable().into_iter().map(Value::name).collect();
        assert_eq!(usable, ["a", "c", "b"]);
        assert_eq!(nodes.one_each()["amd64"], "a");
        assert_eq!(
            nodes.architectures().into_iter().collect::<Vec<_>>(),
            ["amd64", "arm64"]
        );
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
        let nodes = Nodes {
            all: vec![tainted, other],
            pods,
        };
        let objects = [
            json!({"kind": "Pod", "metadata": {"labels": {"sonobuoy-component": "aggregator"}}, "spec": {}}),
        ];
        let plugin = model::plugin::Definition::new("logs", DriverKind::DaemonSet, json!({}));
        let subject = Subject {
            objects: &objects,
            namespace: "n",
            plugins: vec![plugin],
            run: Default::default(),
        };
        let check = nodes.check(&subject);
        let lines: Vec<_> = check
            .findings
            .iter()
            .map(super::super::finding::CheckFinding::line)
            .collect();
        assert_eq!(
            lines,
            [
                "1 of 2 nodes: not ready: PLEG (c)",
                "1 of 2 nodes: disk pressure (b)",
                "1 of 2 nodes: room for 0 more pods, but the run needs 1 (b)",
                "1 of 2 nodes: no node for the aggregator: taint `mine:NoSchedule` is not \
                 tolerated (b)",
                "1 of 2 nodes: no node for the aggregator: taint `mine:NoExecute` is not \
                 tolerated (c)",
            ]
        );
        assert!(
            check
                .findings
                .iter()
                .all(|finding| finding.remedy.is_some())
        );
        assert_eq!(check.seen, "1 of 2 ready, amd64");
    }
}
