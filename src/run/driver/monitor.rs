//! Follows a plugin's pods and nodes as the watches report them, and decides which results will not
//! arrive.
//!
//! Owns the bookkeeping between events and findings, for all drivers. Pure: events and time are
//! arguments. Does not know which results have arrived: the store prefers a real result to any
//! finding.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::node::refusal;
use super::pod::attempt;
use super::silence::SilentWorkers;
use super::verdict::{FAILED_GRACE, PodVerdict, containers_end, disruption, judge};
use base::clock::{self, passed};
use client::protocol::{ContainersEnd, Failure, FailureKind, Finding, Lost, ResultId};
use kube::{Delay, Event, Object as _, is_delayed};
use model::config::Grace;
use model::names::WORKER_CONTAINER;
use model::nodes::Choice;

/// An event of a watch.
pub(super) enum WatchEvent {
    /// About the pods of the plugin.
    Pod(Event),
    /// About the nodes.
    Node(Event),
}

/// Pods whose events are read in one check, so that a large cluster is not flooded with requests.
const MAX_EVENTS_READ: usize = 8;
/// Pause between the first reads of the events of a pod; then it doubles up to
/// [`MAX_EVENTS_PAUSE`].
const FIRST_EVENTS_PAUSE: Duration = Duration::from_secs(5);
const MAX_EVENTS_PAUSE: Duration = Duration::from_secs(60);

/// Message for a plugin with a single pod, whether it was ever seen or not.
const DELETED: &str = "the plugin's pod was deleted before its result arrived";

/// Follows one launch of a plugin.
pub(super) struct Monitor {
    plugin: String,
    /// The spec of the pods that each node gets; `None` for a single pod.
    spec: Option<Value>,
    /// The node of a single pod, once known.
    node: Option<String>,
    grace: Grace,
    /// When the latest pod appeared, or the launch.
    progress: SystemTime,
    /// Whether all existing pods are known.
    pub listed: bool,
    /// Pods since the start of their latest list.
    relisted: BTreeSet<String>,
    /// Nodes since the start of theirs.
    relisted_nodes: BTreeSet<String>,
    pods: BTreeMap<String, PodState>,
    nodes: BTreeMap<String, NodeState>,
    settled: BTreeSet<ResultId>,
    /// Those of them that have failed here.
    failed: BTreeSet<ResultId>,
    /// How the plugin's containers in pods have ended, as last reported.
    ended: BTreeMap<ResultId, ContainersEnd>,
    pending: Vec<Finding>,
    troubles: BTreeMap<ResultId, String>,
    expected: BTreeSet<String>,
    /// Workers that are expected to contact the aggregator soon after their start.
    pub silent: SilentWorkers,
    /// Further pods for one that was lost, if this run creates the pods itself.
    pub retries: u64,
    /// What was lost so far, of a single pod.
    lost: Vec<Lost>,
    /// The number of each result's current pod, if that is not the first. Earlier pods no longer
    /// matter.
    attempts: BTreeMap<ResultId, u64>,
    /// Places that need their next pod: theirs was lost, or the node came back.
    pub due: Vec<String>,
    /// Which nodes are taken when they join, if this run creates the pods itself, in waves: each
    /// pod is expected only after its wave has created it.
    pub waves: Option<Choice>,
}

struct PodState {
    id: ResultId,
    verdict: PodVerdict,
    start: Start,
    /// End of the period in which its result is being received.
    held: Option<SystemTime>,
    /// The pod, kept only while it has a problem, for the report, or does not start.
    object: Option<Value>,
}

/// What is known about the start of a pod.
#[derive(Default)]
struct Start {
    /// What its events say.
    delay: Option<Delay>,
    /// When a read of them last began, and how often they were read.
    read: Option<SystemTime>,
    reads: u32,
}

impl Start {
    /// Whether the events of a pod that does not start should be read: first after the time that
    /// pods usually need, then ever more rarely.
    fn is_due(&self, pod: &Value, now: SystemTime) -> bool {
        let pause = FIRST_EVENTS_PAUSE * 2u32.saturating_pow(self.reads.saturating_sub(3).min(8));
        let pause = pause.min(MAX_EVENTS_PAUSE);
        is_delayed(pod, now) && self.read.is_none_or(|read| passed(read, pause, now))
    }
}

struct NodeState {
    refusal: Option<String>,
    /// Since when the node is not ready, and why.
    down: Option<(SystemTime, String)>,
}

impl Monitor {
    /// Follows a plugin with a single pod, or with a pod of `spec` on each of the `expected` nodes.
    pub(super) fn new(
        plugin: &str,
        spec: Option<Value>,
        expected: BTreeSet<String>,
        grace: Grace,
        progress: SystemTime,
    ) -> Self {
        Self {
            plugin: plugin.to_owned(),
            spec,
            node: None,
            grace,
            progress,
            listed: false,
            relisted: BTreeSet::new(),
            relisted_nodes: BTreeSet::new(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            settled: BTreeSet::new(),
            failed: BTreeSet::new(),
            ended: BTreeMap::new(),
            pending: Vec::new(),
            troubles: BTreeMap::new(),
            expected,
            silent: SilentWorkers::new(progress),
            retries: 0,
            lost: Vec::new(),
            attempts: BTreeMap::new(),
            due: Vec::new(),
            waves: None,
        }
    }

    /// The number of the current pod at a place.
    pub(super) fn attempt(&self, place: &str) -> u64 {
        self.attempts
            .get(&ResultId::on_node(&self.plugin, place))
            .copied()
            .unwrap_or(1)
    }

    /// Nodes on which a single pod was lost.
    pub(super) fn lost_nodes(&self) -> Vec<String> {
        self.lost
            .iter()
            .map(|lost| lost.node.clone())
            .filter(|node| !node.is_empty())
            .collect()
    }

    /// Places with a pod.
    pub(super) fn occupied(&self) -> impl Iterator<Item = &str> {
        self.pods.values().map(|pod| pod.id.node.as_str())
    }

    /// Whether a pod can start at a place.
    pub(super) fn is_ready(&self, place: &str) -> bool {
        self.spec.is_none()
            || self
                .nodes
                .get(place)
                .is_some_and(|node| node.down.is_none())
    }

    /// Ignores what becomes of the pod at a place, whose result is settled.
    pub(super) fn settle_at(&mut self, place: &str) {
        let id = ResultId::on_node(&self.plugin, place);
        self.forget(&id);
        self.settled.insert(id);
    }

    /// Whether a controller creates the pods, and replaces lost ones.
    fn is_controlled(&self) -> bool {
        self.spec.is_some() && self.waves.is_none()
    }

    /// Forgets the pods of a result.
    fn forget(&mut self, id: &ResultId) {
        self.pods.retain(|uid, pod| {
            if pod.id == *id {
                self.silent.lose(uid);
            }
            pod.id != *id
        });
    }

    /// Requests the next pod of a result, while retries are left.
    fn start_next(&mut self, id: &ResultId) -> bool {
        let last = self.attempt(&id.node);
        if last <= self.retries {
            self.forget(id);
            self.attempts.insert(id.clone(), last + 1);
            self.due.push(id.node.clone());
        }
        last <= self.retries
    }

    /// The failure if the current pod at a place cannot be created.
    pub(super) fn cannot_start(&mut self, place: &str, why: &str) -> Failure {
        let again = if self.attempt(place) > 1 {
            "it cannot be started again: "
        } else {
            ""
        };
        self.settle_at(place);
        let failure = Failure::new(
            ResultId::on_node(&self.plugin, place),
            format!("{again}{why}"),
        );
        self.lost
            .last()
            .map_or(failure.clone(), |lost| failure.because(&lost.to_string()))
    }

    /// Records an event; [`Monitor::check`] draws the conclusions.
    pub(super) fn see(&mut self, seen: WatchEvent, now: SystemTime) {
        match seen {
            WatchEvent::Pod(Event::Applied(pod)) => self.see_pod(pod, now),
            WatchEvent::Pod(Event::Deleted(pod)) => self.lose_pod(&uid(&pod), Some(&pod), now),
            WatchEvent::Pod(Event::Restarted) => self.relisted.clear(),
            WatchEvent::Pod(Event::Synced) => {
                self.listed = true;
                let present = std::mem::take(&mut self.relisted);
                let gone: Vec<_> = self
                    .pods
                    .keys()
                    .filter(|uid| !present.contains(*uid))
                    .cloned()
                    .collect();
                for uid in gone {
                    self.lose_pod(&uid, None, now);
                }
                // The list may be older than a replacement.
                if self.spec.is_none() && self.pods.is_empty() && self.attempts.is_empty() {
                    let id = ResultId::global(&self.plugin);
                    self.lose(id.clone(), pod_lost(&id, DELETED.into(), now), None);
                }
            }
            WatchEvent::Node(Event::Applied(node)) => self.see_node(&node, now),
            WatchEvent::Node(Event::Deleted(node)) => self.lose_node(node.name(), now),
            WatchEvent::Node(Event::Restarted) => self.relisted_nodes.clear(),
            WatchEvent::Node(Event::Synced) => {
                // Expected nodes may be deleted before the first list.
                let known = self.nodes.keys().chain(&self.expected);
                let gone = known
                    .filter(|name| !self.relisted_nodes.contains(*name))
                    .cloned();
                for name in gone.collect::<BTreeSet<_>>() {
                    self.lose_node(&name, now);
                }
            }
        }
    }

    /// Suspends failures of pods whose results are being received.
    pub(super) fn hold(&mut self, receiving: &dyn Fn(&ResultId) -> bool, now: SystemTime) {
        for pod in self.pods.values_mut() {
            if let PodVerdict::Trouble(_, fatal) = &mut pod.verdict
                && *fatal <= now
                && receiving(&pod.id)
            {
                *fatal = now + FAILED_GRACE;
                pod.held = Some(*fatal);
            }
        }
    }

    /// Returns findings from all events and the time; to be called after each batch of events, and
    /// about every second.
    pub(super) fn check(&mut self, now: SystemTime) -> Vec<Finding> {
        // The rest of the list may have the pod that replaced a Job's first one, before a restart
        // of the aggregator.
        if self.spec.is_none() && !self.listed {
            return std::mem::take(&mut self.pending);
        }
        let mut troubles = BTreeMap::new();
        let (mut failures, mut lost) = (Vec::new(), Vec::new());
        let mut present = BTreeSet::new();
        // A pod that has no node yet belongs to no result.
        for pod in self.pods.values_mut().filter(|pod| !pod.id.node.is_empty()) {
            present.insert(pod.id.node.clone());
            if let PodVerdict::Quiet(reason, fatal) | PodVerdict::Trouble(reason, fatal) =
                &pod.verdict
                && *fatal <= now
            {
                pod.verdict = PodVerdict::Failed(reason.clone());
            }
            match &pod.verdict {
                PodVerdict::Fine | PodVerdict::Quiet(..) => {}
                PodVerdict::Trouble(reason, _) => {
                    troubles.insert(pod.id.clone(), reason.clone());
                }
                PodVerdict::Failed(reason) => {
                    failures.push(with_pod(
                        Failure::new(pod.id.clone(), reason),
                        pod.object.take(),
                    ));
                }
                PodVerdict::Lost(reason) => {
                    let pod_lost = pod_lost(&pod.id, reason.clone(), now);
                    lost.push((pod.id.clone(), pod_lost, pod.object.take()));
                }
            }
        }
        lost.extend(self.down_nodes(now, &mut troubles));
        failures.extend(self.silent.failures(now, &mut troubles));
        failures.extend(self.missing_pods(&present, now, &mut troubles));
        for (id, lost, object) in lost {
            self.lose(id, lost, object);
        }
        for failure in failures {
            self.fail(failure);
        }
        if let Some(lost) = self.lost.last() {
            let id = ResultId::global(&self.plugin);
            troubles
                .entry(id)
                .or_insert_with(|| format!("{lost}; it is started again"));
        }
        troubles.retain(|id, _| !self.settled.contains(id));
        for (id, reason) in &troubles {
            if self.troubles.get(id) != Some(reason) {
                self.pending
                    .push(Finding::Trouble(id.clone(), Some(reason.clone())));
            }
        }
        for id in self
            .troubles
            .keys()
            .filter(|id| !troubles.contains_key(*id) && !self.settled.contains(*id))
        {
            self.pending.push(Finding::Trouble(id.clone(), None));
        }
        self.troubles = troubles;
        std::mem::take(&mut self.pending)
    }

    /// Nodes that are not ready: lost after the grace period, trouble before.
    fn down_nodes(
        &self,
        now: SystemTime,
        troubles: &mut BTreeMap<ResultId, String>,
    ) -> Vec<(ResultId, Lost, Option<Value>)> {
        let mut lost = Vec::new();
        let limit = self.grace.node_not_ready;
        for (name, node) in &self.nodes {
            let Some((since, reason)) = &node.down else {
                continue;
            };
            let Some(id) = self.result_on(name) else {
                continue;
            };
            let node_lost = Lost {
                node: name.clone(),
                since: clock::rfc3339(*since),
                reason: reason.clone(),
                pod: false,
            };
            if !limit.is_zero() && passed(*since, limit, now) {
                lost.push((id, node_lost, None));
            } else {
                let since = node_lost.since.get(11..19).unwrap_or_default();
                // The node explains the state of its pods.
                troubles.insert(
                    id,
                    format!("node `{name}` is not ready since {since}: {reason}"),
                );
            }
        }
        lost
    }

    /// Nodes without the pod that they should have.
    fn missing_pods(
        &self,
        present: &BTreeSet<String>,
        now: SystemTime,
        troubles: &mut BTreeMap<ResultId, String>,
    ) -> Vec<Failure> {
        let mut failures = Vec::new();
        if self.spec.is_none() {
            return failures;
        }
        let is_down = |name: &String| self.nodes.get(name).is_some_and(|node| node.down.is_some());
        let missing = self
            .expected
            .iter()
            .filter(|name| !present.contains(*name) && !is_down(name));
        for name in missing {
            let id = ResultId::on_node(&self.plugin, name);
            let refusal = self
                .nodes
                .get(name)
                .and_then(|node| node.refusal.as_deref());
            if let Some(refusal) = refusal {
                failures.push(Failure::skipped(id, refusal));
            } else if self.waves.is_some() {
                // Its turn comes.
            } else if self.listed && passed(self.progress, self.grace.no_pod, now) {
                let waited = self.grace.no_pod.as_secs();
                let reason = format!(
                    "No pod was scheduled on node {name} within {waited} s of the last one that \
                     was. Check tolerations for plugin {}, and the events of its DaemonSet",
                    self.plugin
                );
                failures.push(Failure::new(id, reason));
            } else if passed(self.progress, self.grace.no_pod / 4, now) {
                troubles.insert(id, "no pod on the node yet".into());
            }
        }
        failures
    }

    fn see_pod(&mut self, pod: Value, now: SystemTime) {
        let uid = uid(&pod);
        self.relisted.insert(uid.clone());
        let id = match self.spec {
            None => ResultId::global(&self.plugin),
            Some(_) => ResultId::on_node(&self.plugin, target(&pod)),
        };
        if !self.is_controlled() {
            let (number, current) = (attempt(&pod), self.attempt(&id.node));
            if number < current {
                return;
            }
            if number > current {
                // From before a restart of the aggregator.
                self.forget(&id);
                self.attempts.insert(id.clone(), number);
            }
        }
        self.node = Some(pod["spec"]["nodeName"].text().to_owned()).filter(|node| !node.is_empty());
        if !self.pods.contains_key(&uid) {
            self.progress = self.progress.max(now);
        }
        let before = self.pods.remove(&uid);
        let (held, start) = before.map_or_else(Default::default, |pod| (pod.held, pod.start));
        let verdict = self.judge_pod(&pod, held, start.delay.as_ref(), now);
        self.silent.see(&uid, &id, &pod);
        self.note_end(&id, &pod);
        // A repeated failure of the same pod changes nothing.
        let is_kept = verdict != PodVerdict::Fine || pod["status"]["phase"] == "Pending";
        let object = is_kept.then_some(pod);
        self.pods.insert(
            uid,
            PodState {
                id,
                verdict,
                start,
                held,
                object,
            },
        );
    }

    /// Judges a pod of the plugin; `held` is the end of the period in which its result is being
    /// received.
    fn judge_pod(
        &self,
        pod: &Value,
        held: Option<SystemTime>,
        delay: Option<&Delay>,
        now: SystemTime,
    ) -> PodVerdict {
        let mut verdict = judge(pod, WORKER_CONTAINER, delay, now, &self.grace);
        if matches!(verdict, PodVerdict::Fine | PodVerdict::Quiet(..))
            && pod["status"]["phase"] == "Succeeded"
        {
            // The worker ends only after its result was accepted, or after a request to end.
            verdict = PodVerdict::Quiet(
                "all containers succeeded, but there is no result".into(),
                now + self.grace.ended,
            );
        }
        let deleted = pod.is_terminating();
        let controlled = self.is_controlled();
        let quiet = matches!(verdict, PodVerdict::Fine | PodVerdict::Quiet(..));
        verdict = match verdict {
            // Whatever its containers do now, the deletion is the reason.
            _ if deleted && (quiet || !controlled) => {
                let why = disruption(&pod["status"])
                    .map(|why| format!(": {why}"))
                    .unwrap_or_default();
                PodVerdict::Trouble(
                    format!("the pod is being deleted{why}"),
                    now + Duration::from_secs(86_400),
                )
            }
            // The controller replaces it.
            PodVerdict::Lost(reason) if controlled => {
                PodVerdict::Trouble(reason, now + self.grace.no_pod)
            }
            other => other,
        };
        match (verdict, held.filter(|until| *until > now)) {
            (PodVerdict::Failed(reason), Some(until)) => PodVerdict::Trouble(reason, until),
            (verdict, _) => verdict,
        }
    }

    /// Takes pods that do not start although their status names no problem: those whose events were
    /// read least recently.
    pub(super) fn delayed_pods(&mut self, now: SystemTime) -> Vec<Value> {
        let is_unexplained =
            |pod: &PodState| pod.verdict == PodVerdict::Fine || pod.start.delay.is_some();
        let mut due: Vec<_> = self
            .pods
            .values_mut()
            .filter(|pod| !self.settled.contains(&pod.id) && is_unexplained(pod))
            .filter(|pod| {
                let object = pod.object.as_ref();
                object.is_some_and(|object| pod.start.is_due(object, now))
            })
            .collect();
        due.sort_by_key(|pod| pod.start.read);
        let read = due.into_iter().take(MAX_EVENTS_READ).filter_map(|pod| {
            pod.start.read = Some(now);
            pod.object.clone()
        });
        read.collect()
    }

    /// Records what the events of a pod say about its start.
    pub(super) fn explain_delay(&mut self, pod: &Value, delay: Option<Delay>, now: SystemTime) {
        let uid = uid(pod);
        let held = self.pods.get(&uid).and_then(|state| state.held);
        let verdict = self.judge_pod(pod, held, delay.as_ref(), now);
        if let Some(state) = self.pods.get_mut(&uid) {
            state.start.delay = delay;
            state.start.reads += 1;
            state.verdict = verdict;
        }
    }

    /// Reports how the plugin's containers have ended, whenever that changes. A pod that is being
    /// deleted says nothing about the one that replaces it.
    fn note_end(&mut self, id: &ResultId, pod: &Value) {
        if pod.is_terminating() {
            return;
        }
        let end = containers_end(pod, WORKER_CONTAINER);
        if self.ended.get(id).copied() == end {
            return;
        }
        match end {
            Some(end) => drop(self.ended.insert(id.clone(), end)),
            None => drop(self.ended.remove(id)),
        }
        self.pending.push(Finding::Ended(id.clone(), end));
    }

    fn lose_pod(&mut self, uid: &str, object: Option<&Value>, now: SystemTime) {
        let Some(pod) = self.pods.remove(uid) else {
            return;
        };
        self.silent.lose(uid);
        if self.is_controlled() {
            // The controller creates another one, whose time starts now.
            self.progress = self.progress.max(now);
            return;
        }
        let status = object.map(|pod| &pod["status"]);
        let said = status.and_then(|status| {
            status["message"]
                .as_str()
                .or(disruption(status))
                .or(status["reason"].as_str())
        });
        let reason = said.map_or_else(|| DELETED.to_owned(), |said| format!("{DELETED}: {said}"));
        let lost = pod_lost(&pod.id, reason, now);
        self.lose(pod.id, lost, object.cloned());
    }

    fn see_node(&mut self, node: &Value, now: SystemTime) {
        let name = node.name().to_owned();
        self.relisted_nodes.insert(name.clone());
        let refusal = self.spec.as_ref().and_then(|spec| refusal(spec, node));
        let ready = node.condition("Ready");
        let known = self
            .nodes
            .get(&name)
            .and_then(|node| node.down.as_ref())
            .map(|(since, _)| *since);
        let down = ready
            .filter(|ready| ready["status"] != "True")
            .map(|ready| {
                let told = ready["lastTransitionTime"]
                    .as_str()
                    .and_then(clock::parse_rfc3339);
                let since = known.or(told.filter(|told| *told <= now)).unwrap_or(now);
                let said = [
                    ready["message"].text(),
                    ready["reason"].text(),
                    "the node is not ready",
                ];
                let said = said
                    .into_iter()
                    .find(|said| !said.is_empty())
                    .unwrap_or_default();
                (since, said.trim_end_matches('.').to_owned())
            });
        let id = ResultId::on_node(&self.plugin, &name);
        let is_lost = self.failed.contains(&id);
        let is_back = down.is_none() && (known.is_some() || !self.nodes.contains_key(&name));
        if self.waves.is_some() && is_lost && is_back && refusal.is_none() {
            // Its result, if it comes in time, replaces the failure.
            self.expected.insert(name.clone());
            self.start_next(&id);
        }
        if self.spec.is_some()
            && refusal.is_none()
            && self
                .waves
                .as_ref()
                .is_none_or(|choice| choice.takes_joined(node))
            && self.expected.insert(name.clone())
        {
            self.progress = self.progress.max(now);
            self.pending.push(Finding::Expect(id));
        }
        self.nodes.insert(name, NodeState { refusal, down });
    }

    fn lose_node(&mut self, name: &str, now: SystemTime) {
        let down = self.nodes.remove(name).and_then(|node| node.down);
        let (since, reason) =
            down.unwrap_or_else(|| (now, "it was deleted with the plugin's pod on it".into()));
        let lost = Lost {
            node: name.to_owned(),
            since: clock::rfc3339(since),
            reason,
            pod: false,
        };
        let Some(id) = self.result_on(name) else {
            return;
        };
        self.expected.remove(name);
        let before = self.pods.len();
        if self.spec.is_some() {
            self.pods.retain(|_, pod| pod.id != id);
        }
        if self.spec.is_none() || self.pods.len() < before {
            self.lose(id, lost, None);
        } else {
            self.fail(Failure::skipped(id, "node deleted"));
        }
    }

    /// The result that is expected from a node.
    fn result_on(&self, node: &str) -> Option<ResultId> {
        match self.spec {
            None => (self.node.as_deref() == Some(node)).then(|| ResultId::global(&self.plugin)),
            Some(_) => self
                .expected
                .contains(node)
                .then(|| ResultId::on_node(&self.plugin, node)),
        }
    }

    /// Records a loss: another pod replaces one of this run, while retries are left; otherwise the
    /// result has failed.
    fn lose(&mut self, id: ResultId, mut lost: Lost, pod: Option<Value>) {
        if self.settled.contains(&id) || self.due.contains(&id.node) {
            return;
        }
        if self.spec.is_none() {
            lost.node = self.node.take().unwrap_or(lost.node);
            self.lost.push(lost.clone());
        }
        self.pending.push(Finding::Lost(id.clone(), lost.clone()));
        // On a lost node, only a Job's pod can be replaced, by one on another node.
        if !(lost.pod && self.waves.is_some() || self.spec.is_none()) || !self.start_next(&id) {
            // Earlier losses are in the list of results.
            self.settle(with_pod(Failure::lost(id, &lost), pod));
        }
    }

    /// Whether the finding is about a pod that the controller does not create.
    pub(super) fn lacks_pod(&self, finding: &Finding) -> bool {
        let id = match finding {
            Finding::Failure(failure) if failure.kind == FailureKind::Failed => &failure.id,
            Finding::Trouble(id, Some(_)) => id,
            _ => return false,
        };
        self.spec.is_some() && !self.pods.values().any(|pod| pod.id == *id)
    }

    /// Records a failure, after the cause of an earlier loss.
    fn fail(&mut self, failure: Failure) {
        if self.due.contains(&failure.id.node) {
            return;
        }
        let failure = match self.lost.last() {
            Some(lost) => failure.because(&format!("{lost}; it was started again")),
            None => failure,
        };
        self.settle(failure);
    }

    fn settle(&mut self, failure: Failure) {
        if self.settled.insert(failure.id.clone()) {
            self.failed.insert(failure.id.clone());
            self.pending.push(Finding::Failure(failure));
        }
    }
}

fn with_pod(mut failure: Failure, pod: Option<Value>) -> Failure {
    failure.report.extend(pod.map(|pod| ("pod".into(), pod)));
    failure
}

/// The loss of a pod alone; a Job's node is added later.
fn pod_lost(id: &ResultId, reason: String, now: SystemTime) -> Lost {
    let node = if id.is_global() {
        String::new()
    } else {
        id.node.clone()
    };
    Lost {
        node,
        since: clock::rfc3339(now),
        reason,
        pod: true,
    }
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"]
        .as_str()
        .or(pod["metadata"]["name"].as_str())
        .unwrap_or_default()
        .to_owned()
}

/// Node of a DaemonSet's pod. Before it is scheduled, the controller's affinity names the node.
fn target(pod: &Value) -> String {
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let fields = required["nodeSelectorTerms"]
        .items()
        .flat_map(|term| term["matchFields"].items());
    let named = fields
        .filter(|field| field["key"] == "metadata.name")
        .map(|field| field["values"][0].text());
    [pod["spec"]["nodeName"].text()]
        .into_iter()
        .chain(named)
        .find(|node| !node.is_empty())
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    const NONE: [&str; 0] = [];

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn once() -> Monitor {
        Monitor::new("p", None, BTreeSet::new(), Grace::default(), at(0))
    }

    fn on_nodes(names: &[&str]) -> Monitor {
        let expected = names.iter().map(|&name| name.to_owned()).collect();
        let mut monitor = Monitor::new("p", Some(json!({})), expected, Grace::default(), at(0));
        for name in names {
            monitor.see(node(name, "True"), at(0));
        }
        assert_eq!(monitor.check(at(0)), []);
        monitor
    }

    fn node(name: &str, ready: &str) -> WatchEvent {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        WatchEvent::Node(Event::Applied(
            json!({"metadata": {"name": name}, "status": {"conditions": conditions}}),
        ))
    }

    const LISTING: WatchEvent = WatchEvent::Pod(Event::Restarted);
    const LISTED: WatchEvent = WatchEvent::Pod(Event::Synced);

    fn applied(pod: Value) -> WatchEvent {
        WatchEvent::Pod(Event::Applied(pod))
    }

    fn deleted_pod(pod: Value) -> WatchEvent {
        WatchEvent::Pod(Event::Deleted(pod))
    }

    fn deleted_node(name: &str) -> WatchEvent {
        WatchEvent::Node(Event::Deleted(json!({"metadata": {"name": name}})))
    }

    fn pod(uid: &str, node: &str, status: Value) -> Value {
        let spec = json!({"nodeName": node, "restartPolicy": "Never"});
        json!({"metadata": {"uid": uid, "name": uid.replace('u', "pod-")}, "spec": spec, "status": status})
    }

    fn see(monitor: &mut Monitor, seen: WatchEvent, seconds: u64) -> Vec<Finding> {
        monitor.see(seen, at(seconds));
        monitor.check(at(seconds))
    }

    fn check(findings: &[Finding], expected: &[impl AsRef<str>]) {
        let shown: Vec<_> = findings
            .iter()
            .map(|finding| match finding {
                Finding::Failure(failure) => format!("{}: {}", failure.id, failure.error()),
                Finding::Trouble(id, text) => {
                    format!("{id}? {}", text.as_deref().unwrap_or("passed"))
                }
                Finding::Expect(id) => format!("{id}+"),
                Finding::Lost(id, lost) => format!("{id}! {}", lost.node),
                Finding::Ended(id, end) => {
                    format!("{id}. {}", end.map_or("runs", ContainersEnd::name))
                }
            })
            .collect();
        assert_eq!(shown.len(), expected.len(), "{shown:?}");
        for (shown, expected) in shown.iter().zip(expected) {
            let expected = expected.as_ref();
            assert!(
                shown.starts_with(expected),
                "{shown:?} does not begin with {expected:?}"
            );
        }
    }

    #[test]
    fn vanished_job_pod_fails_at_once() {
        let mut monitor = once();
        check(
            &see(
                &mut monitor,
                applied(pod("u", "n", json!({"phase": "Running"}))),
                1,
            ),
            &NONE,
        );
        check(
            &see(&mut monitor, deleted_pod(pod("u", "n", json!({}))), 2),
            &["p/global! n", "p/global: the plugin's pod was deleted"],
        );
        check(&monitor.check(at(9)), &NONE);
    }

    #[test]
    fn job_pod_missing_from_a_list_is_gone() {
        let mut monitor = once();
        monitor.see(applied(pod("u", "n", json!({}))), at(1));
        check(&see(&mut monitor, LISTED, 1), &NONE);
        monitor.see(LISTING, at(2));
        let deleted = |node| {
            [
                format!("p/global! {node}"),
                "p/global: the plugin's pod was deleted".into(),
            ]
        };
        check(&see(&mut monitor, LISTED, 2), &deleted("n"));
        check(&see(&mut once(), LISTED, 1), &deleted(""));
    }

    #[test]
    fn expected_node_missing_from_a_list_is_gone() {
        let expected = ["a", "b"].map(str::to_owned).into();
        let mut monitor = Monitor::new("p", Some(json!({})), expected, Grace::default(), at(0));
        let synced = || WatchEvent::Node(Event::Synced);
        monitor.see(node("b", "True"), at(1));
        check(
            &see(&mut monitor, synced(), 1),
            &["p/a: skipped: node deleted"],
        );
        monitor.see(WatchEvent::Node(Event::Restarted), at(2));
        check(
            &see(&mut monitor, synced(), 2),
            &["p/b: skipped: node deleted"],
        );
    }

    #[test]
    fn job_fails_with_its_node() {
        let mut monitor = once();
        monitor.see(applied(pod("u", "n", json!({"phase": "Running"}))), at(1));
        check(&see(&mut monitor, deleted_node("other"), 2), &NONE);
        check(
            &see(&mut monitor, deleted_node("n"), 2),
            &[
                "p/global! n",
                "p/global: node `n` was lost at 13:46:42: it was deleted with the plugin's pod on \
                 it",
            ],
        );
    }

    #[test]
    fn unready_node_is_trouble_that_may_pass() {
        let mut monitor = once();
        monitor.see(applied(pod("u", "n", json!({"phase": "Running"}))), at(1));
        monitor.see(LISTED, at(1));
        check(
            &see(&mut monitor, node("n", "Unknown"), 10),
            &["p/global? node `n` is not ready"],
        );
        check(
            &see(&mut monitor, node("n", "True"), 20),
            &["p/global? passed"],
        );
        check(
            &see(&mut monitor, node("n", "False"), 30),
            &["p/global? node"],
        );
        check(&monitor.check(at(149)), &NONE);
        check(
            &monitor.check(at(150)),
            &[
                "p/global! n",
                "p/global: node `n` was lost at 13:47:10: the node is not",
            ],
        );
    }

    fn down(name: &str, since: u64) -> WatchEvent {
        let condition = json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": clock::rfc3339(at(since)),
            "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."});
        WatchEvent::Node(Event::Applied(
            json!({"metadata": {"name": name}, "status": {"conditions": [condition]}}),
        ))
    }

    #[test]
    fn lost_node_has_time_and_message_of_its_condition() {
        let mut monitor = on_nodes(&["a", "b"]);
        monitor.see(applied(pod("u", "a", json!({"phase": "Running"}))), at(1));
        let said = "13:46:50: Kubelet stopped posting node status";
        // The node counts although it has no pod.
        check(
            &see(&mut monitor, down("b", 10), 60),
            &[format!("p/b? node `b` is not ready since {said}")],
        );
        check(
            &see(&mut monitor, down("a", 10), 60),
            &[format!("p/a? node `a` is not ready since {said}")],
        );
        let findings = monitor.check(at(130));
        let lost = |node| {
            [
                format!("p/{node}! {node}"),
                format!("p/{node}: node `{node}` was lost at {said}"),
            ]
        };
        check(&findings, &[lost("a"), lost("b")].concat());
        let Finding::Failure(failure) = &findings[1] else {
            panic!("{findings:?}")
        };
        assert_eq!(
            (failure.kind, &failure.report["lost"]["node"]),
            (FailureKind::NodeLost, &json!("a"))
        );
        check(&monitor.check(at(9_999)), &NONE);
    }

    #[test]
    fn grace_of_zero_disables_node_loss() {
        let grace = Grace {
            node_not_ready: Duration::ZERO,
            ..Grace::default()
        };
        let mut monitor = Monitor::new("p", None, BTreeSet::new(), grace, at(0));
        monitor.see(applied(pod("u", "n", json!({"phase": "Running"}))), at(1));
        monitor.see(LISTED, at(1));
        check(
            &see(&mut monitor, down("n", 10), 20),
            &["p/global? node `n` is not ready since"],
        );
        check(&monitor.check(at(99_999)), &NONE);
    }

    #[test]
    fn job_is_judged_by_all_its_pods() {
        let mut monitor = Monitor {
            retries: 1,
            ..once()
        };
        monitor.see(LISTING, at(1000));
        monitor.see(
            applied(pod("u1", "n", json!({"phase": "Running"}))),
            at(1000),
        );
        check(&see(&mut monitor, down("n", 10), 1000), &NONE);
        let mut second = pod("u2", "m", json!({"phase": "Running"}));
        second["metadata"]["name"] = json!("pod-u-2");
        monitor.see(applied(second), at(1000));
        check(&see(&mut monitor, LISTED, 1000), &NONE);
    }

    fn retried() -> Monitor {
        let mut monitor = Monitor {
            retries: 1,
            ..once()
        };
        monitor.see(applied(pod("u1", "n", json!({"phase": "Running"}))), at(1));
        check(&see(&mut monitor, LISTED, 1), &NONE);
        monitor
    }

    #[test]
    fn single_pod_is_restarted_once() {
        let mut monitor = retried();
        let again = "p/global? node `n` was lost at 13:46:50: Kubelet stopped posting node \
                     status; it is started again";
        check(
            &see(&mut monitor, down("n", 10), 130),
            &["p/global! n", again],
        );
        assert_eq!(std::mem::take(&mut monitor.due), ["global"]);
        assert_eq!(
            (monitor.attempt("global"), monitor.lost_nodes()),
            (2, vec!["n".to_owned()])
        );
        let failed = json!({"phase": "Failed", "reason": "NodeLost"});
        check(
            &see(&mut monitor, applied(pod("u1", "n", failed)), 131),
            &NONE,
        );
        check(
            &see(
                &mut monitor,
                applied(pod("u2", "m", json!({"phase": "Running"}))),
                132,
            ),
            &NONE,
        );
        check(
            &see(&mut monitor, deleted_pod(pod("u1", "n", json!({}))), 133),
            &NONE,
        );
        let ended = json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"});
        check(
            &see(&mut monitor, applied(pod("u2", "m", ended)), 140),
            &["p/global! m", "p/global: Pod failed: Evicted: low on disk"],
        );
        assert_eq!(std::mem::take(&mut monitor.due), NONE);
    }

    #[test]
    fn loss_precedes_the_failure_of_the_pod() {
        let mut monitor = retried();
        check(
            &see(&mut monitor, deleted_pod(pod("u1", "n", json!({}))), 2),
            &["p/global! n", "p/global? the plugin's"],
        );
        assert_eq!(
            (std::mem::take(&mut monitor.due), monitor.lost_nodes()),
            (vec!["global".into()], vec!["n".into()])
        );
        let unscheduled = json!({"conditions": [{"reason": "Unschedulable", "message": "0/1 nodes", "lastTransitionTime": clock::rfc3339(at(0))}]});
        check(
            &see(&mut monitor, applied(pod("u2", "", unscheduled)), 3),
            &["p/global? Can't schedule pod"],
        );
        check(
            &monitor.check(at(300)),
            &[
                "p/global: the plugin's pod was deleted before its result arrived; it was started \
                 again; Can't schedule pod",
            ],
        );
    }

    #[test]
    fn drained_pod_is_lost() {
        let mut monitor = retried();
        let ended = json!({"terminated": {"exitCode": 143, "finishedAt": clock::rfc3339(at(2))}});
        let status = json!({
            "phase": "Failed", "containerStatuses": [{"name": WORKER_CONTAINER, "state": ended}],
            "conditions": [{"type": "DisruptionTarget", "status": "True", "message": "Eviction API: evicting"}],
        });
        let mut drained = pod("u1", "n", status);
        drained["metadata"]["deletionTimestamp"] = json!(clock::rfc3339(at(2)));
        check(
            &see(&mut monitor, applied(drained.clone()), 3),
            &["p/global? the pod is being deleted: Eviction API: evicting"],
        );
        let findings = see(&mut monitor, deleted_pod(drained), 32);
        check(
            &findings,
            &[
                "p/global! n",
                "p/global? the plugin's pod was deleted before its result arrived: Eviction API",
            ],
        );
    }

    #[test]
    fn evicted_daemon_set_pod_may_be_replaced() {
        let mut monitor = on_nodes(&["a"]);
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"});
        check(
            &see(&mut monitor, applied(pod("u1", "a", evicted)), 10),
            &["p/a? Pod failed: Evicted"],
        );
        check(&monitor.check(at(69)), &NONE);
        monitor.see(deleted_pod(pod("u1", "a", json!({}))), at(70));
        check(
            &see(
                &mut monitor,
                applied(pod("u2", "a", json!({"phase": "Running"}))),
                70,
            ),
            &["p/a? passed"],
        );
        check(&monitor.check(at(9_999)), &NONE);
    }

    #[test]
    fn recreated_node_is_lost_once() {
        let mut monitor = on_nodes(&["a"]);
        monitor.see(applied(pod("u1", "a", json!({"phase": "Running"}))), at(1));
        check(
            &see(&mut monitor, deleted_node("a"), 2),
            &["p/a! a", "p/a: node `a` was lost"],
        );
        check(&see(&mut monitor, node("a", "True"), 3), &["p/a+"]);
        monitor.see(applied(pod("u2", "a", json!({"phase": "Running"}))), at(4));
        check(&see(&mut monitor, deleted_node("a"), 5), &NONE);
    }

    #[test]
    fn trouble_becomes_failure_with_the_pod_in_the_report() {
        let mut monitor = once();
        let status = json!({"conditions": [{"reason": "Unschedulable", "message": "m", "lastTransitionTime": base::clock::rfc3339(at(0))}]});
        monitor.see(applied(pod("u", "", status)), at(1));
        check(&see(&mut monitor, LISTED, 1), &["p/global? Can't schedule"]);
        check(&monitor.check(at(299)), &NONE);
        let findings = monitor.check(at(300));
        check(&findings, &["p/global: Can't schedule"]);
        let Finding::Failure(failure) = &findings[0] else {
            panic!("{findings:?}")
        };
        assert_eq!(failure.report["pod"]["metadata"]["uid"], "u");
    }

    #[test]
    fn failure_waits_for_a_result_in_transfer() {
        let mut monitor = once();
        let ended = |since| {
            let state = json!({"terminated": {"exitCode": 1, "finishedAt": base::clock::rfc3339(at(since))}});
            let mut pod = pod(
                "u",
                "n",
                json!({"containerStatuses": [{"name": "plugin", "state": state}]}),
            );
            pod["spec"]["restartPolicy"] = "Never".into();
            applied(pod)
        };
        monitor.see(ended(0), at(1));
        check(
            &see(&mut monitor, LISTED, 1),
            &["p/global? Container plugin is in a terminated state"],
        );
        monitor.hold(&|_| true, at(15));
        check(&monitor.check(at(15)), &NONE);
        check(&see(&mut monitor, ended(0), 20), &NONE);
        monitor.hold(&|_| false, at(30));
        check(
            &monitor.check(at(30)),
            &["p/global: Container plugin is in a terminated state (exit code 1)"],
        );
    }

    #[test]
    fn end_of_containers_is_reported_once_and_withdrawn_for_the_next_pod() {
        let mut monitor = on_nodes(&["a"]);
        let good = json!({"terminated": {"exitCode": 0}});
        let of = |uid: &str, containers: Value| {
            let mut pod = pod(
                uid,
                "a",
                json!({"phase": "Running", "containerStatuses": containers}),
            );
            pod["spec"]["restartPolicy"] = "Always".into();
            pod
        };
        let (running, ended) = (json!([]), json!([{"name": "plugin", "state": good}]));
        check(
            &see(&mut monitor, applied(of("u1", running.clone())), 1),
            &NONE,
        );
        check(
            &see(&mut monitor, applied(of("u1", ended.clone())), 2),
            &["p/a. succeeded"],
        );
        check(
            &see(&mut monitor, applied(of("u1", ended.clone())), 3),
            &NONE,
        );
        let mut deleted = of("u1", running.clone());
        deleted["metadata"]["deletionTimestamp"] = json!(clock::rfc3339(at(4)));
        check(
            &see(&mut monitor, applied(deleted), 4),
            &["p/a? the pod is being deleted"],
        );
        check(
            &see(&mut monitor, applied(of("u2", running)), 5),
            &["p/a. runs"],
        );
    }

    #[test]
    fn daemon_set_still_creating_pods_is_no_failure() {
        let mut monitor = on_nodes(&["a", "b", "c"]);
        check(&see(&mut monitor, LISTED, 0), &NONE);
        monitor.see(applied(pod("u1", "a", json!({}))), at(50));
        check(&monitor.check(at(64)), &NONE);
        check(
            &see(&mut monitor, applied(pod("u2", "b", json!({}))), 100),
            &NONE,
        );
        check(&monitor.check(at(120)), &["p/c? no pod on the node yet"]);
        check(
            &monitor.check(at(160)),
            &["p/c: No pod was scheduled on node c within 60 s"],
        );
        check(&monitor.check(at(999)), &NONE);
    }

    #[test]
    fn joining_and_leaving_nodes_are_followed() {
        let mut monitor = on_nodes(&["a"]);
        check(&see(&mut monitor, node("b", "True"), 5), &["p/b+"]);
        check(
            &see(&mut monitor, deleted_node("a"), 6),
            &["p/a: skipped: node deleted"],
        );
        check(&see(&mut monitor, deleted_node("zzz"), 6), &NONE);
    }

    #[test]
    fn unsuitable_node_without_a_pod_is_skipped() {
        let mut monitor = on_nodes(&["a"]);
        let tainted = json!({"metadata": {"name": "a"}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
        check(
            &see(&mut monitor, WatchEvent::Node(Event::Applied(tainted)), 5),
            &["p/a: skipped: taint `k:NoExecute` is not tolerated"],
        );
    }

    #[test]
    fn pending_daemon_set_pod_belongs_to_its_node() {
        let mut monitor = on_nodes(&["a"]);
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}});
        let waiting = json!({"metadata": {"uid": "u"}, "spec": {"affinity": affinity},
            "status": {"conditions": [{"reason": "Unschedulable", "message": "no cpu", "lastTransitionTime": base::clock::rfc3339(at(0))}]}});
        check(
            &see(&mut monitor, applied(waiting), 1),
            &["p/a? Can't schedule pod: no cpu"],
        );
        check(
            &monitor.check(at(300)),
            &["p/a: Can't schedule pod: no cpu"],
        );
    }

    #[test]
    fn events_of_a_waiting_pod_are_read_ever_more_rarely() {
        let mut monitor = once();
        let mut waiting = pod("u", "n", json!({"phase": "Pending"}));
        waiting["metadata"]["creationTimestamp"] = json!(clock::rfc3339(at(0)));
        monitor.see(applied(waiting), at(0));
        let mut reads = Vec::new();
        for second in 0..150 {
            for pod in monitor.delayed_pods(at(second)) {
                reads.push(second);
                // The second read fails.
                if reads.len() != 2 {
                    monitor.explain_delay(&pod, None, at(second));
                }
            }
        }
        assert_eq!(reads, [15, 20, 25, 30, 35, 45, 65, 105]);
        monitor.see(LISTED, at(150));
        check(&monitor.check(at(150)), &NONE);
        let pod = monitor.pods["u"].object.clone().unwrap();
        let delay = Delay::Warning {
            reason: "FailedMount".into(),
            message: "m".into(),
        };
        monitor.explain_delay(&pod, Some(delay), at(20));
        check(
            &monitor.check(at(20)),
            &["p/global? Pod cannot start: FailedMount: m"],
        );
        check(
            &monitor.check(at(60)),
            &["p/global: Pod cannot start: FailedMount: m"],
        );
    }

    #[test]
    fn events_of_many_pods_are_read_in_turn() {
        let names: Vec<_> = (0..20).map(|number| format!("n{number:02}")).collect();
        let mut monitor = on_nodes(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names {
            let mut waiting = pod(name, name, json!({"phase": "Pending"}));
            waiting["metadata"]["creationTimestamp"] = json!(clock::rfc3339(at(0)));
            monitor.see(applied(waiting), at(1));
        }
        let read = [15, 16, 17, 18].map(|second| monitor.delayed_pods(at(second)).len());
        assert_eq!(read, [8, 8, 4, 0]);
    }

    #[test]
    fn monitor_of_five_thousand_pods_is_small() {
        let names: Vec<_> = (0..5_000).map(|n| format!("n{n}")).collect();
        let mut monitor = on_nodes(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names {
            monitor.see(applied(pod(name, name, json!({"phase": "Running"}))), at(1));
        }
        check(&monitor.check(at(1)), &NONE);
        assert!(monitor.pods.values().all(|pod| pod.object.is_none()));
        check(&monitor.check(at(9_999)), &NONE);
    }
}
