//! Follows a plugin's pods and nodes as the watches report them, and decides which results will not arrive.
//!
//! Owns the bookkeeping between events and findings, for both drivers. Pure: events and time are arguments. Does not
//! know
//! which results have arrived: the store prefers a real result to any finding.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::node::refusal;
use super::silence::{Complaint, Silences};
use super::verdict::{FAILED_GRACE, Verdict, judge};
use crate::config::Grace;
use crate::names::WORKER_CONTAINER;
use base::clock::passed;
use client::protocol::{Failure, FailureKind, Finding, ResultId};

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum Seen {
    /// A pod of the plugin, new or changed.
    Pod(Value),
    /// A pod of the plugin that was deleted.
    PodGone(Value),
    /// A node, new or changed.
    Node(Value),
    /// A node that was deleted, by name.
    NodeGone(String),
    /// Start of a list of all pods.
    PodsListing,
    /// End of a list of all pods; pods not listed are deleted.
    PodsListed,
}

/// Message for a plugin with a single pod, whether it was ever seen or not.
const DELETED: &str = "the plugin's pod was deleted before its result arrived";

/// The number and placement of a plugin's pods.
enum Scope {
    /// One pod; its node, once known.
    Once { node: Option<String> },
    /// One pod on each node that fits this pod spec.
    EachNode { spec: Value },
}

/// Follows one launch of a plugin.
pub(crate) struct Monitor {
    plugin: String,
    scope: Scope,
    grace: Grace,
    /// When the latest pod appeared, or the launch.
    progress: SystemTime,
    listed: bool,
    relisted: BTreeSet<String>,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    settled: BTreeSet<ResultId>,
    pending: Vec<Finding>,
    troubles: BTreeMap<ResultId, String>,
    expected: BTreeSet<String>,
    silences: Silences,
}

struct Pod {
    id: ResultId,
    verdict: Verdict,
    /// End of the period in which its result is being received.
    held: Option<SystemTime>,
    /// The pod, kept for the report only while it has a problem.
    object: Option<Value>,
}

struct Node {
    refusal: Option<String>,
    /// When the node became not ready.
    silent: Option<SystemTime>,
}

impl Monitor {
    /// Follows a plugin with a single pod.
    pub(crate) fn once(plugin: impl Into<String>, grace: Grace, launched: SystemTime) -> Self {
        Self::new(plugin.into(), Scope::Once { node: None }, BTreeSet::new(), grace, launched)
    }

    /// Follows a plugin with a pod of `spec` on each of the `expected` nodes.
    pub(crate) fn each_node(
        plugin: impl Into<String>,
        spec: Value,
        expected: BTreeSet<String>,
        grace: Grace,
        launched: SystemTime,
    ) -> Self {
        Self::new(plugin.into(), Scope::EachNode { spec }, expected, grace, launched)
    }

    fn new(
        plugin: String,
        scope: Scope,
        expected: BTreeSet<String>,
        grace: Grace,
        progress: SystemTime,
    ) -> Self {
        Self {
            plugin,
            scope,
            grace,
            progress,
            listed: false,
            relisted: BTreeSet::new(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            settled: BTreeSet::new(),
            pending: Vec::new(),
            troubles: BTreeMap::new(),
            expected,
            silences: Silences::new(None, progress),
        }
    }

    /// Expects each worker to contact the aggregator soon after its start.
    pub(crate) fn listening(mut self) -> Self {
        self.silences = Silences::new(Some(self.grace.silence), self.progress);
        self
    }

    /// Records the workers that were `heard`. Returns the pods, by uid and name, whose logs should be read and passed
    /// to [`Monitor::explain`].
    pub(crate) fn look_at(
        &mut self,
        heard: &dyn Fn(&ResultId) -> bool,
        now: SystemTime,
    ) -> Vec<(String, String)> {
        self.silences.look_at(&|id| self.settled.contains(id) || heard(id), now)
    }

    /// Records the log of a worker.
    pub(crate) fn explain(&mut self, uid: &str, log: &str) {
        self.silences.explain(uid, log);
    }

    /// Records an event in constant time; [`Monitor::check`] draws the conclusions.
    pub(crate) fn see(&mut self, seen: Seen, now: SystemTime) {
        let mut out = std::mem::take(&mut self.pending);
        match seen {
            Seen::Pod(pod) => self.see_pod(pod, now),
            Seen::PodGone(pod) => self.lose_pod(&uid(&pod), Some(&pod), now, &mut out),
            Seen::PodsListing => self.relisted.clear(),
            Seen::PodsListed => {
                self.listed = true;
                let present = std::mem::take(&mut self.relisted);
                let gone: Vec<_> = self.pods.keys().filter(|uid| !present.contains(*uid)).cloned().collect();
                for uid in gone {
                    self.lose_pod(&uid, None, now, &mut out);
                }
                if let Scope::Once { .. } = self.scope
                    && self.pods.is_empty()
                {
                    self.fail(Failure::new(ResultId::global(&self.plugin), DELETED), None, &mut out);
                }
            }
            Seen::Node(node) => self.see_node(&node, now, &mut out),
            Seen::NodeGone(name) => self.lose_node(&name, &mut out),
        }
        self.pending = out;
    }

    /// Suspends failures of pods whose results are being received.
    pub(crate) fn hold(&mut self, receiving: &dyn Fn(&ResultId) -> bool, now: SystemTime) {
        for pod in self.pods.values_mut() {
            if let Verdict::Trouble(_, fatal) = &mut pod.verdict
                && *fatal <= now
                && receiving(&pod.id)
            {
                *fatal = now + FAILED_GRACE;
                pod.held = Some(*fatal);
            }
        }
    }

    /// Returns findings from all events and the time; to be called after each batch of events, and about every
    /// second.
    pub(crate) fn check(&mut self, now: SystemTime) -> Vec<Finding> {
        let mut out = std::mem::take(&mut self.pending);
        let mut troubles = BTreeMap::new();
        let (mut failures, mut skipped) = (Vec::new(), Vec::new());
        let mut present = BTreeSet::new();
        // A pod that has no node yet belongs to no result.
        for pod in self.pods.values_mut().filter(|pod| !pod.id.node.is_empty()) {
            present.insert(pod.id.node.clone());
            if let Verdict::Quiet(reason, fatal) | Verdict::Trouble(reason, fatal) = &pod.verdict
                && *fatal <= now
            {
                pod.verdict = Verdict::Failed(reason.clone());
            }
            match &pod.verdict {
                Verdict::Fine | Verdict::Quiet(..) => {}
                Verdict::Trouble(reason, _) => {
                    troubles.insert(pod.id.clone(), reason.clone());
                }
                Verdict::Failed(reason) => failures.push((pod.id.clone(), reason.clone(), pod.object.take())),
            }
        }
        for (name, node) in &self.nodes {
            let id = match &self.scope {
                Scope::Once { node: Some(own) } if own == name => ResultId::global(&self.plugin),
                Scope::EachNode { .. } if present.contains(name) => ResultId::on_node(&self.plugin, name),
                _ => continue,
            };
            let Some(since) = node.silent else { continue };
            let reason = format!("node `{name}` is not ready");
            if passed(since, self.grace.node_lost, now) {
                failures.push((id, format!("{reason} since {} s", self.grace.node_lost.as_secs()), None));
            } else {
                troubles.entry(id).or_insert(reason);
            }
        }
        for (id, complaint) in self.silences.complaints(now) {
            match complaint {
                Complaint::Failure(reason) => failures.push((id, reason, None)),
                Complaint::Trouble(reason) => drop(troubles.entry(id).or_insert(reason)),
            }
        }
        if let Scope::EachNode { .. } = self.scope {
            let missing = self.expected.iter().filter(|name| !present.contains(*name));
            for name in missing {
                let id = ResultId::on_node(&self.plugin, name);
                let refusal = self.nodes.get(name).and_then(|node| node.refusal.as_deref());
                if let Some(refusal) = refusal {
                    skipped.push(Failure::skipped(id, refusal));
                } else if self.listed && passed(self.progress, self.grace.no_pod, now) {
                    let waited = self.grace.no_pod.as_secs();
                    let reason = format!(
                        "No pod was scheduled on node {name} within {waited} s of the last one that was. \
                         Check tolerations for plugin {}, and the events of its DaemonSet",
                        self.plugin
                    );
                    failures.push((id, reason, None));
                } else if passed(self.progress, self.grace.no_pod / 4, now) {
                    troubles.insert(id, "no pod on the node yet".into());
                }
            }
        }
        for (id, reason, object) in failures {
            self.fail(Failure::new(id, reason), object, &mut out);
        }
        for failure in skipped {
            self.fail(failure, None, &mut out);
        }
        troubles.retain(|id, _| !self.settled.contains(id));
        for (id, reason) in &troubles {
            if self.troubles.get(id) != Some(reason) {
                out.push(Finding::Trouble(id.clone(), Some(reason.clone())));
            }
        }
        for id in self.troubles.keys().filter(|id| !troubles.contains_key(*id) && !self.settled.contains(*id))
        {
            out.push(Finding::Trouble(id.clone(), None));
        }
        self.troubles = troubles;
        out
    }

    fn see_pod(&mut self, pod: Value, now: SystemTime) {
        let uid = uid(&pod);
        self.relisted.insert(uid.clone());
        let id = match &mut self.scope {
            Scope::Once { node } => {
                *node = pod["spec"]["nodeName"].as_str().map(ToOwned::to_owned);
                ResultId::global(&self.plugin)
            }
            Scope::EachNode { .. } => ResultId::on_node(&self.plugin, target(&pod)),
        };
        if !self.pods.contains_key(&uid) {
            self.progress = self.progress.max(now);
        }
        let mut verdict = judge(&pod, WORKER_CONTAINER, now, &self.grace);
        if matches!(verdict, Verdict::Fine | Verdict::Quiet(..)) && pod["status"]["phase"] == "Succeeded" {
            // The worker ends only after its result was accepted, or after a request to end.
            verdict = Verdict::Quiet(
                "all containers succeeded, but there is no result".into(),
                now + self.grace.ended,
            );
        }
        if matches!(verdict, Verdict::Fine | Verdict::Quiet(..))
            && !pod["metadata"]["deletionTimestamp"].is_null()
        {
            verdict = Verdict::Trouble("the pod is being deleted".into(), now + Duration::from_secs(86_400));
        }
        let held = self.pods.get(&uid).and_then(|pod| pod.held).filter(|until| *until > now);
        if let (Verdict::Failed(reason), Some(until)) = (&verdict, held) {
            verdict = Verdict::Trouble(reason.clone(), until);
        }
        self.silences.see(&uid, &id, &pod);
        // A repeated failure of the same pod changes nothing.
        let object = (verdict != Verdict::Fine).then_some(pod);
        self.pods.insert(uid, Pod { id, verdict, held, object });
    }

    fn lose_pod(&mut self, uid: &str, object: Option<&Value>, now: SystemTime, out: &mut Vec<Finding>) {
        let Some(pod) = self.pods.remove(uid) else { return };
        self.silences.lose(uid);
        match self.scope {
            Scope::Once { .. } => {
                let mut reason = DELETED.to_owned();
                let said = object
                    .and_then(|pod| pod["status"]["message"].as_str().or(pod["status"]["reason"].as_str()));
                if let Some(said) = said {
                    reason += &format!(": {said}");
                }
                self.fail(Failure::new(pod.id, reason), object.cloned(), out);
            }
            // The controller creates another one, whose time starts now.
            Scope::EachNode { .. } => self.progress = self.progress.max(now),
        }
    }

    fn see_node(&mut self, node: &Value, now: SystemTime, out: &mut Vec<Finding>) {
        let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let refusal = match &self.scope {
            Scope::Once { .. } => None,
            Scope::EachNode { spec } => refusal(spec, node),
        };
        let ready =
            node["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready");
        let silent = ready
            .filter(|ready| ready["status"] != "True")
            .map(|_| self.nodes.get(&name).and_then(|node| node.silent).unwrap_or(now));
        if let Scope::EachNode { .. } = self.scope
            && refusal.is_none()
            && self.expected.insert(name.clone())
        {
            self.progress = self.progress.max(now);
            out.push(Finding::Expect(ResultId::on_node(&self.plugin, &name)));
        }
        self.nodes.insert(name, Node { refusal, silent });
    }

    fn lose_node(&mut self, name: &str, out: &mut Vec<Finding>) {
        self.nodes.remove(name);
        match &self.scope {
            Scope::Once { node } if node.as_deref() == Some(name) => {
                let reason = format!("node `{name}` was deleted with the plugin's pod on it");
                self.fail(Failure::new(ResultId::global(&self.plugin), reason), None, out);
            }
            Scope::Once { .. } => {}
            Scope::EachNode { .. } => {
                if self.expected.remove(name) {
                    let id = ResultId::on_node(&self.plugin, name);
                    self.pods.retain(|_, pod| pod.id != id);
                    self.fail(Failure::skipped(id, "node deleted"), None, out);
                }
            }
        }
    }

    /// Whether the finding is about a pod that the controller does not create.
    pub(crate) fn lacks_pod(&self, finding: &Finding) -> bool {
        let id = match finding {
            Finding::Failure(failure) if failure.kind == FailureKind::Failed => &failure.id,
            Finding::Trouble(id, Some(_)) => id,
            _ => return false,
        };
        matches!(self.scope, Scope::EachNode { .. }) && !self.pods.values().any(|pod| pod.id == *id)
    }

    fn fail(&mut self, mut failure: Failure, pod: Option<Value>, out: &mut Vec<Finding>) {
        if self.settled.insert(failure.id.clone()) {
            if let Some(pod) = pod {
                failure.report.insert("pod".into(), pod);
            }
            out.push(Finding::Failure(failure));
        }
    }
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().or(pod["metadata"]["name"].as_str()).unwrap_or_default().to_owned()
}

/// Node of a DaemonSet's pod. Before it is scheduled, the controller's affinity names the node.
fn target(pod: &Value) -> String {
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return node.to_owned();
    }
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = required["nodeSelectorTerms"].as_array().into_iter().flatten();
    let mut fields = terms.flat_map(|term| term["matchFields"].as_array().into_iter().flatten());
    let name =
        fields.find(|field| field["key"] == "metadata.name").and_then(|field| field["values"][0].as_str());
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn once() -> Monitor {
        Monitor::once("p", Grace::default(), at(0))
    }

    fn on_nodes(names: &[&str]) -> Monitor {
        let expected = names.iter().map(|&name| name.to_owned()).collect();
        let mut monitor = Monitor::each_node("p", json!({}), expected, Grace::default(), at(0));
        for name in names {
            monitor.see(node(name, "True"), at(0));
        }
        assert_eq!(monitor.check(at(0)), []);
        monitor
    }

    fn node(name: &str, ready: &str) -> Seen {
        Seen::Node(
            json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
        )
    }

    fn pod(uid: &str, node: &str, status: Value) -> Value {
        json!({"metadata": {"uid": uid}, "spec": {"nodeName": node, "restartPolicy": "Never"}, "status": status})
    }

    fn see(monitor: &mut Monitor, seen: Seen, seconds: u64) -> Vec<Finding> {
        monitor.see(seen, at(seconds));
        monitor.check(at(seconds))
    }

    fn check(findings: &[Finding], expected: &[&str]) {
        let shown: Vec<_> = findings
            .iter()
            .map(|finding| match finding {
                Finding::Failure(failure) => format!("{}: {}", failure.id, failure.error()),
                Finding::Trouble(id, text) => format!("{id}? {}", text.as_deref().unwrap_or("passed")),
                Finding::Expect(id) => format!("{id}+"),
            })
            .collect();
        assert_eq!(shown.len(), expected.len(), "{shown:?}");
        for (shown, expected) in shown.iter().zip(expected) {
            assert!(shown.starts_with(expected), "{shown:?} does not begin with {expected:?}");
        }
    }

    #[test]
    fn a_job_pod_that_vanishes_fails_at_once() {
        let mut monitor = once();
        check(&see(&mut monitor, Seen::Pod(pod("u", "n", json!({"phase": "Running"}))), 1), &[]);
        check(
            &see(&mut monitor, Seen::PodGone(pod("u", "n", json!({}))), 2),
            &["p/global: the plugin's pod was deleted"],
        );
        check(&monitor.check(at(9)), &[]);
    }

    #[test]
    fn a_job_pod_missing_from_a_new_list_is_gone() {
        let mut monitor = once();
        monitor.see(Seen::Pod(pod("u", "n", json!({}))), at(1));
        check(&see(&mut monitor, Seen::PodsListed, 1), &[]);
        monitor.see(Seen::PodsListing, at(2));
        check(&see(&mut monitor, Seen::PodsListed, 2), &["p/global: the plugin's pod was deleted"]);
        check(&see(&mut once(), Seen::PodsListed, 1), &["p/global: the plugin's pod was deleted"]);
    }

    #[test]
    fn a_job_fails_with_its_node() {
        let mut monitor = once();
        monitor.see(Seen::Pod(pod("u", "n", json!({"phase": "Running"}))), at(1));
        check(&see(&mut monitor, Seen::NodeGone("other".into()), 2), &[]);
        check(&see(&mut monitor, Seen::NodeGone("n".into()), 2), &["p/global: node `n` was deleted"]);
    }

    #[test]
    fn a_node_that_is_not_ready_is_trouble_that_may_pass() {
        let mut monitor = once();
        monitor.see(Seen::Pod(pod("u", "n", json!({"phase": "Running"}))), at(1));
        check(&see(&mut monitor, node("n", "Unknown"), 10), &["p/global? node `n` is not ready"]);
        check(&see(&mut monitor, node("n", "True"), 20), &["p/global? passed"]);
        check(&see(&mut monitor, node("n", "False"), 30), &["p/global? node"]);
        check(&monitor.check(at(329)), &[]);
        check(&monitor.check(at(330)), &["p/global: node `n` is not ready since 300 s"]);
    }

    #[test]
    fn trouble_becomes_failure_with_the_pod_in_the_report() {
        let mut monitor = once();
        let status = json!({"conditions": [{"reason": "Unschedulable", "message": "m", "lastTransitionTime": base::clock::rfc3339(at(0))}]});
        check(&see(&mut monitor, Seen::Pod(pod("u", "", status)), 1), &["p/global? Can't schedule"]);
        check(&monitor.check(at(299)), &[]);
        let findings = monitor.check(at(300));
        check(&findings, &["p/global: Can't schedule"]);
        let Finding::Failure(failure) = &findings[0] else { panic!("{findings:?}") };
        assert_eq!(failure.report["pod"]["metadata"]["uid"], "u");
    }

    #[test]
    fn a_failed_plugin_whose_result_is_being_received_is_waited_for() {
        let mut monitor = once();
        let ended = |since| {
            let state = json!({"terminated": {"exitCode": 1, "finishedAt": base::clock::rfc3339(at(since))}});
            let mut pod = pod("u", "n", json!({"containerStatuses": [{"name": "plugin", "state": state}]}));
            pod["spec"]["restartPolicy"] = "Never".into();
            Seen::Pod(pod)
        };
        check(&see(&mut monitor, ended(0), 1), &["p/global? Container plugin is in a terminated state"]);
        monitor.hold(&|_| true, at(15));
        check(&monitor.check(at(15)), &[]);
        check(&see(&mut monitor, ended(0), 20), &[]);
        monitor.hold(&|_| false, at(30));
        check(&monitor.check(at(30)), &["p/global: Container plugin is in a terminated state (exit code 1)"]);
    }

    #[test]
    fn a_daemon_set_that_is_still_making_pods_is_no_failure() {
        let mut monitor = on_nodes(&["a", "b", "c"]);
        check(&see(&mut monitor, Seen::PodsListed, 0), &[]);
        monitor.see(Seen::Pod(pod("u1", "a", json!({}))), at(50));
        check(&monitor.check(at(64)), &[]);
        check(&see(&mut monitor, Seen::Pod(pod("u2", "b", json!({}))), 100), &[]);
        check(&monitor.check(at(120)), &["p/c? no pod on the node yet"]);
        check(&monitor.check(at(160)), &["p/c: No pod was scheduled on node c within 60 s"]);
        check(&monitor.check(at(999)), &[]);
    }

    #[test]
    fn nodes_come_and_go_during_a_run() {
        let mut monitor = on_nodes(&["a"]);
        check(&see(&mut monitor, node("b", "True"), 5), &["p/b+"]);
        check(&see(&mut monitor, Seen::NodeGone("a".into()), 6), &["p/a: skipped: node deleted"]);
        check(&see(&mut monitor, Seen::NodeGone("zzz".into()), 6), &[]);
    }

    #[test]
    fn a_node_without_a_pod_that_no_longer_fits_is_skipped() {
        let mut monitor = on_nodes(&["a"]);
        let tainted =
            json!({"metadata": {"name": "a"}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
        check(
            &see(&mut monitor, Seen::Node(tainted), 5),
            &["p/a: skipped: taint `k:NoExecute` is not tolerated"],
        );
    }

    #[test]
    fn a_waiting_pod_of_a_daemon_set_belongs_to_the_node_it_is_meant_for() {
        let mut monitor = on_nodes(&["a"]);
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}});
        let waiting = json!({"metadata": {"uid": "u"}, "spec": {"affinity": affinity},
            "status": {"conditions": [{"reason": "Unschedulable", "message": "no cpu", "lastTransitionTime": base::clock::rfc3339(at(0))}]}});
        check(&see(&mut monitor, Seen::Pod(waiting), 1), &["p/a? Can't schedule pod: no cpu"]);
        check(&monitor.check(at(300)), &["p/a: Can't schedule pod: no cpu"]);
    }

    #[test]
    fn five_thousand_pods_are_followed_without_holding_them() {
        let names: Vec<_> = (0..5_000).map(|n| format!("n{n}")).collect();
        let mut monitor = on_nodes(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names {
            monitor.see(Seen::Pod(pod(name, name, json!({"phase": "Running"}))), at(1));
        }
        check(&monitor.check(at(1)), &[]);
        assert!(monitor.pods.values().all(|pod| pod.object.is_none()));
        check(&monitor.check(at(9_999)), &[]);
    }
}
