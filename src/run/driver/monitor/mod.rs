//! Follows a plugin's pods and nodes as the watches report them, and decides which results will not
//! arrive.
//!
//! Owns the bookkeeping between events and findings, for all drivers: [`PodTable`] what exists and
//! how it is, [`NodeTable`] where results are expected, [`Relaunches`] which pods were lost and
//! replaced. Pure: events and time are arguments. Does not know which results have arrived: the
//! store prefers a real result to any finding.

mod nodes;
mod pods;
mod relaunches;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use self::nodes::{NodeTable, NotReady};
use self::pods::{PodTable, uid};
use self::relaunches::Relaunches;
use super::node::refusal;
use super::pod::attempt;
use super::silence::SilentWorkers;
use super::verdict::disruption;
use base::clock::{self, passed};
use client::protocol::{Failure, FailureKind, Finding, Lost, ResultId};
use kube::{Delay, Event, Object as _};
use model::config::Grace;
use model::nodes::Choice;

/// An event of a watch.
pub(super) enum WatchEvent {
    /// About the pods of the plugin.
    Pod(Event),
    /// About the nodes.
    Node(Event),
}

/// Where the pods of a launch run, and who creates them.
pub(super) enum Placement {
    /// A single pod, created by this run.
    Single,
    /// A pod of this spec on each node, created by a controller.
    Controlled(Value),
    /// A pod of this spec on each node, created by this run in waves; of nodes that join, as the
    /// choice says. Each pod is expected only after its wave has created it.
    Waves(Value, Choice),
}

impl Placement {
    /// The spec of the pods that each node gets.
    fn spec(&self) -> Option<&Value> {
        match self {
            Self::Single => None,
            Self::Controlled(spec) | Self::Waves(spec, _) => Some(spec),
        }
    }

    fn is_single(&self) -> bool {
        matches!(self, Self::Single)
    }

    fn is_controlled(&self) -> bool {
        matches!(self, Self::Controlled(_))
    }

    fn is_in_waves(&self) -> bool {
        matches!(self, Self::Waves(..))
    }

    /// Whether a suitable node gets a pod if it joins during the run.
    fn takes_joined(&self, node: &Value) -> bool {
        match self {
            Self::Single => false,
            Self::Controlled(_) => true,
            Self::Waves(_, choice) => choice.takes_joined(node),
        }
    }
}

/// What a launch is followed by.
pub(super) struct MonitorSettings {
    pub(super) plugin: String,
    pub(super) placement: Placement,
    pub(super) grace: Grace,
    /// Further pods for one that was lost, if this run creates the pods itself.
    pub(super) max_relaunches: u64,
    /// Time limit for the first contact of a worker; `None` if it may stay silent until its result.
    pub(super) contact_timeout: Option<Duration>,
}

/// Message for a plugin with a single pod, whether it was ever seen or not.
const POD_DELETED: &str = "the plugin's pod was deleted before its result arrived";

/// Follows one launch of a plugin.
pub(super) struct Monitor {
    plugin: String,
    placement: Placement,
    grace: Grace,
    pods: PodTable,
    nodes: NodeTable,
    relaunches: Relaunches,
    /// The node of a single pod, once known.
    single_node: Option<String>,
    /// When the latest pod appeared, or the launch.
    last_progress: SystemTime,
    /// Results that need no finding any more.
    settled: BTreeSet<ResultId>,
    /// Those of them that have failed here.
    failed: BTreeSet<ResultId>,
    /// Troubles as last reported.
    troubles: BTreeMap<ResultId, String>,
    /// Findings since the last check.
    pending: Vec<Finding>,
}

/// What the states of pods and nodes mean at one time.
#[derive(Default)]
struct Assessment {
    troubles: BTreeMap<ResultId, String>,
    failures: Vec<Failure>,
    losses: Vec<LostResult>,
}

/// A pod or node that was lost, with the result that it was to send.
struct LostResult {
    id: ResultId,
    loss: Lost,
    /// The pod, for the report.
    pod: Option<Value>,
}

impl Monitor {
    /// Follows a plugin with a single pod, or with a pod on each of the `expected` nodes, from the
    /// time `start`.
    pub(super) fn new(
        settings: MonitorSettings,
        expected: BTreeSet<String>,
        start: SystemTime,
    ) -> Self {
        let is_controlled = settings.placement.is_controlled();
        let silent = SilentWorkers::new(settings.contact_timeout, start);
        Self {
            plugin: settings.plugin,
            placement: settings.placement,
            grace: settings.grace.clone(),
            pods: PodTable::new(settings.grace, is_controlled, silent),
            nodes: NodeTable::new(expected),
            relaunches: Relaunches::new(settings.max_relaunches),
            single_node: None,
            last_progress: start,
            settled: BTreeSet::new(),
            failed: BTreeSet::new(),
            troubles: BTreeMap::new(),
            pending: Vec::new(),
        }
    }

    /// Whether all existing pods are known.
    pub(super) fn knows_all_pods(&self) -> bool {
        self.pods.is_complete()
    }

    /// The number of the current pod at a place.
    pub(super) fn attempt(&self, place: &str) -> u64 {
        self.relaunches.attempt(&self.result_at(place))
    }

    /// Nodes on which a single pod was lost.
    pub(super) fn lost_nodes(&self) -> Vec<String> {
        self.relaunches.lost_nodes()
    }

    /// Takes the places that need their next pod: theirs was lost, or the node came back.
    pub(super) fn take_relaunches(&mut self) -> Vec<String> {
        self.relaunches.take_pending()
    }

    /// Places with a pod.
    pub(super) fn occupied_places(&self) -> impl Iterator<Item = &str> {
        self.pods.occupied_places()
    }

    /// Whether a pod can start at a place.
    pub(super) fn is_ready(&self, place: &str) -> bool {
        self.placement.is_single() || self.nodes.is_ready(place)
    }

    /// Ignores what becomes of the pod at a place, whose result is settled.
    pub(super) fn settle_place(&mut self, place: &str) {
        let id = self.result_at(place);
        self.pods.remove_pods_of(&id);
        self.settled.insert(id);
    }

    /// The failure if the current pod at a place cannot be created.
    pub(super) fn fail_start(&mut self, place: &str, error: &str) -> Failure {
        let prefix = if self.attempt(place) > 1 {
            "it cannot be started again: "
        } else {
            ""
        };
        self.settle_place(place);
        let failure = Failure::new(self.result_at(place), format!("{prefix}{error}"));
        match self.relaunches.last_loss() {
            Some(lost) => failure.because(&lost.to_string()),
            None => failure,
        }
    }

    /// The pod, by uid and name, whose worker's log should be read now to explain its silence.
    pub(super) fn next_silent_worker(
        &mut self,
        has_contacted: &dyn Fn(&ResultId) -> bool,
        now: SystemTime,
    ) -> Option<(String, String)> {
        self.pods.next_silent_worker(has_contacted, now)
    }

    /// Records the log of a silent worker.
    pub(super) fn explain_silence(&mut self, uid: &str, log: &str) {
        self.pods.explain_silence(uid, log);
    }

    /// Takes pods that do not start although their status names no problem: those whose events were
    /// read least recently.
    pub(super) fn take_delayed_pods(&mut self, now: SystemTime) -> Vec<Value> {
        self.pods.take_delayed(&self.settled, now)
    }

    /// Records what the events of a pod say about its start.
    pub(super) fn explain_delay(&mut self, pod: &Value, delay: Option<Delay>, now: SystemTime) {
        self.pods.explain_delay(pod, delay, now);
    }

    /// Suspends failures of pods whose results are being received.
    pub(super) fn suspend_failures(
        &mut self,
        is_receiving: &dyn Fn(&ResultId) -> bool,
        now: SystemTime,
    ) {
        self.pods.suspend_failures(is_receiving, now);
    }

    /// Whether the finding is about a pod that the controller does not create.
    pub(super) fn lacks_pod(&self, finding: &Finding) -> bool {
        let id = match finding {
            Finding::Failure(failure) if failure.kind == FailureKind::Failed => &failure.id,
            Finding::Trouble(id, Some(_)) => id,
            _ => return false,
        };
        !self.placement.is_single() && !self.pods.has_pod_of(id)
    }
}

/// Events.
impl Monitor {
    /// Records an event; [`Monitor::check`] draws the conclusions.
    pub(super) fn record(&mut self, event: WatchEvent, now: SystemTime) {
        match event {
            WatchEvent::Pod(Event::Applied(pod)) => self.update_pod(pod, now),
            WatchEvent::Pod(Event::Deleted(pod)) => self.remove_pod(&uid(&pod), Some(&pod), now),
            WatchEvent::Pod(Event::Restarted) => self.pods.begin_list(),
            WatchEvent::Pod(Event::Synced) => self.end_list_of_pods(now),
            WatchEvent::Node(Event::Applied(node)) => self.update_node(&node, now),
            WatchEvent::Node(Event::Deleted(node)) => self.remove_node(node.name(), now),
            WatchEvent::Node(Event::Restarted) => self.nodes.begin_list(),
            WatchEvent::Node(Event::Synced) => {
                for name in self.nodes.missing_from_list() {
                    self.remove_node(&name, now);
                }
            }
        }
    }

    fn update_pod(&mut self, pod: Value, now: SystemTime) {
        let uid = uid(&pod);
        self.pods.note_listed(&uid);
        let id = match self.placement {
            Placement::Single => ResultId::global(&self.plugin),
            Placement::Controlled(_) | Placement::Waves(..) => self.result_at(&target_node(&pod)),
        };
        if !self.placement.is_controlled() && !self.is_current_attempt(&id, &pod) {
            return;
        }
        let node = pod["spec"]["nodeName"].text();
        self.single_node = (!node.is_empty()).then(|| node.to_owned());
        let changed_end = self.pods.changed_end(&id, &pod);
        if let Some(end) = changed_end {
            self.pending.push(Finding::Ended(id.clone(), end));
        }
        if self.pods.insert(uid, id, pod, now) {
            self.record_progress(now);
        }
    }

    /// Whether a pod is not an earlier one than the current pod of its result. A later one becomes
    /// the current pod.
    fn is_current_attempt(&mut self, id: &ResultId, pod: &Value) -> bool {
        let (number, current) = (attempt(pod), self.relaunches.attempt(id));
        if number > current {
            // From before a restart of the aggregator.
            self.pods.remove_pods_of(id);
            self.relaunches.adopt(id, number);
        }
        number >= current
    }

    fn end_list_of_pods(&mut self, now: SystemTime) {
        for uid in self.pods.end_list() {
            self.remove_pod(&uid, None, now);
        }
        // The list may be older than a replacement.
        if self.placement.is_single() && self.pods.is_empty() && !self.relaunches.has_begun() {
            let id = ResultId::global(&self.plugin);
            let loss = pod_loss(&id, POD_DELETED.to_owned(), now);
            self.record_loss(LostResult {
                id,
                loss,
                pod: None,
            });
        }
    }

    /// Records that a pod is gone; `object` is its last state, if known.
    fn remove_pod(&mut self, uid: &str, object: Option<&Value>, now: SystemTime) {
        let Some(id) = self.pods.remove(uid) else {
            return;
        };
        if self.placement.is_controlled() {
            // The controller creates another one, whose time starts now.
            self.record_progress(now);
            return;
        }
        let reason = match object.and_then(|pod| deletion_cause(&pod["status"])) {
            Some(cause) => format!("{POD_DELETED}: {cause}"),
            None => POD_DELETED.to_owned(),
        };
        let loss = pod_loss(&id, reason, now);
        let pod = object.cloned();
        self.record_loss(LostResult { id, loss, pod });
    }

    fn update_node(&mut self, node: &Value, now: SystemTime) {
        let name = node.name();
        let spec = self.placement.spec();
        let refusal = spec.and_then(|spec| refusal(spec, node));
        let is_suitable = refusal.is_none();
        let is_back = self.nodes.update(node, refusal, now);
        if !is_suitable {
            return;
        }
        let id = self.result_at(name);
        if is_back && self.placement.is_in_waves() && self.failed.contains(&id) {
            // Its result, if it comes in time, replaces the failure.
            self.nodes.expect(name);
            self.relaunch(&id);
        }
        if self.placement.takes_joined(node) && self.nodes.expect(name) {
            self.record_progress(now);
            self.pending.push(Finding::Expect(id));
        }
    }

    fn remove_node(&mut self, name: &str, now: SystemTime) {
        let down = self.nodes.remove(name);
        let Some(id) = self.expected_result(name) else {
            return;
        };
        self.nodes.stop_expecting(name);
        if !self.placement.is_single() && !self.pods.remove_pods_of(&id) {
            self.record_failure(Failure::skipped(id, "node deleted"));
            return;
        }
        let down = down.unwrap_or_else(|| NotReady {
            since: now,
            reason: "it was deleted with the plugin's pod on it".into(),
        });
        let loss = node_loss(name, &down);
        self.record_loss(LostResult {
            id,
            loss,
            pod: None,
        });
    }

    fn record_progress(&mut self, now: SystemTime) {
        self.last_progress = self.last_progress.max(now);
    }
}

/// Conclusions.
impl Monitor {
    /// Returns findings from all events and the time; to be called after each batch of events, and
    /// about every second.
    pub(super) fn check(&mut self, now: SystemTime) -> Vec<Finding> {
        // The rest of the list may have the pod that replaced a Job's first one, before a restart
        // of the aggregator.
        if self.placement.is_single() && !self.pods.is_complete() {
            return std::mem::take(&mut self.pending);
        }
        let assessment = self.assess(now);
        // Losses first: a failure on the same node is their consequence.
        for lost in assessment.losses {
            self.record_loss(lost);
        }
        for failure in assessment.failures {
            self.record_failure(failure);
        }
        self.report_troubles(assessment.troubles);
        std::mem::take(&mut self.pending)
    }

    /// What the states of all pods and nodes mean at this time.
    fn assess(&mut self, now: SystemTime) -> Assessment {
        let mut assessment = Assessment::default();
        let occupied = self.pods.assess(now, &mut assessment);
        // The state of a node explains that of its pods, and replaces it.
        self.assess_down_nodes(now, &mut assessment);
        self.pods.assess_silence(now, &mut assessment);
        self.assess_missing_pods(&occupied, now, &mut assessment);
        assessment
    }

    /// Adds the nodes that are not ready: lost after the grace period, trouble before.
    fn assess_down_nodes(&self, now: SystemTime, assessment: &mut Assessment) {
        let limit = self.grace.node_not_ready;
        for (name, down) in self.nodes.down() {
            let Some(id) = self.expected_result(name) else {
                continue;
            };
            let loss = node_loss(name, down);
            if !limit.is_zero() && passed(down.since, limit, now) {
                assessment.losses.push(LostResult {
                    id,
                    loss,
                    pod: None,
                });
            } else {
                let time_of_day = loss.since.get(11..19).unwrap_or_default();
                let reason = &down.reason;
                let trouble = format!("node `{name}` is not ready since {time_of_day}: {reason}");
                assessment.troubles.insert(id, trouble);
            }
        }
    }

    /// Adds the nodes without the pod that they should have.
    fn assess_missing_pods(
        &self,
        occupied: &BTreeSet<String>,
        now: SystemTime,
        assessment: &mut Assessment,
    ) {
        if self.placement.is_single() {
            return;
        }
        for name in self.nodes.expected() {
            if occupied.contains(name) || self.nodes.is_down(name) {
                continue;
            }
            let id = self.result_at(name);
            if let Some(refusal) = self.nodes.refusal(name) {
                assessment.failures.push(Failure::skipped(id, refusal));
                continue;
            }
            if self.placement.is_in_waves() {
                // Its turn comes.
                continue;
            }
            let limit = self.grace.no_pod;
            if self.pods.is_complete() && passed(self.last_progress, limit, now) {
                let reason = format!(
                    "No pod was scheduled on node {name} within {} s of the last one that was. \
                     Check tolerations for plugin {}, and the events of its DaemonSet",
                    limit.as_secs(),
                    self.plugin
                );
                assessment.failures.push(Failure::new(id, reason));
            } else if passed(self.last_progress, limit / 4, now) {
                let trouble = "no pod on the node yet".to_owned();
                assessment.troubles.insert(id, trouble);
            }
        }
    }

    /// Reports the differences between these troubles and those reported before.
    fn report_troubles(&mut self, mut troubles: BTreeMap<ResultId, String>) {
        if let Some(lost) = self.relaunches.last_loss() {
            let id = ResultId::global(&self.plugin);
            let restart = || format!("{lost}; it is started again");
            troubles.entry(id).or_insert_with(restart);
        }
        troubles.retain(|id, _| !self.settled.contains(id));
        for (id, reason) in &troubles {
            if self.troubles.get(id) != Some(reason) {
                let finding = Finding::Trouble(id.clone(), Some(reason.clone()));
                self.pending.push(finding);
            }
        }
        for id in self.troubles.keys() {
            if !troubles.contains_key(id) && !self.settled.contains(id) {
                self.pending.push(Finding::Trouble(id.clone(), None));
            }
        }
        self.troubles = troubles;
    }

    /// Records a loss: another pod replaces one of this run, while retries are left; otherwise the
    /// result has failed.
    fn record_loss(&mut self, lost: LostResult) {
        let LostResult { id, mut loss, pod } = lost;
        if self.settled.contains(&id) || self.relaunches.is_pending(&id.node) {
            return;
        }
        if self.placement.is_single() {
            loss.node = self.single_node.take().unwrap_or(loss.node);
            self.relaunches.record_loss(loss.clone());
        }
        self.pending.push(Finding::Lost(id.clone(), loss.clone()));
        // On a lost node, only a Job's pod can be replaced, by one on another node.
        let is_replaceable = match self.placement {
            Placement::Single => true,
            Placement::Controlled(_) => false,
            Placement::Waves(..) => loss.pod,
        };
        if is_replaceable && self.relaunch(&id) {
            return;
        }
        // Without earlier losses, which are in the list of results.
        self.settle_as_failed(with_pod(Failure::lost(id, &loss), pod));
    }

    /// Records a failure, after the cause of an earlier loss.
    fn record_failure(&mut self, failure: Failure) {
        if self.relaunches.is_pending(&failure.id.node) {
            return;
        }
        let failure = match self.relaunches.last_loss() {
            Some(lost) => failure.because(&format!("{lost}; it was started again")),
            None => failure,
        };
        self.settle_as_failed(failure);
    }

    /// Requests the next pod of a result, while retries are left.
    fn relaunch(&mut self, id: &ResultId) -> bool {
        let is_requested = self.relaunches.request(id);
        if is_requested {
            self.pods.remove_pods_of(id);
        }
        is_requested
    }

    fn settle_as_failed(&mut self, failure: Failure) {
        if self.settled.insert(failure.id.clone()) {
            self.failed.insert(failure.id.clone());
            self.pending.push(Finding::Failure(failure));
        }
    }

    /// The result that is expected from a node.
    fn expected_result(&self, node: &str) -> Option<ResultId> {
        if self.placement.is_single() {
            let is_on_node = self.single_node.as_deref() == Some(node);
            return is_on_node.then(|| ResultId::global(&self.plugin));
        }
        let is_expected = self.nodes.is_expected(node);
        is_expected.then(|| self.result_at(node))
    }

    /// The result of a place, expected or not.
    fn result_at(&self, place: &str) -> ResultId {
        ResultId::on_node(&self.plugin, place)
    }
}

fn with_pod(mut failure: Failure, pod: Option<Value>) -> Failure {
    if let Some(pod) = pod {
        failure.report.insert("pod".into(), pod);
    }
    failure
}

/// The loss of a pod alone; a Job's node is added later.
fn pod_loss(id: &ResultId, reason: String, now: SystemTime) -> Lost {
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

/// The loss of a node with the pod on it.
fn node_loss(name: &str, down: &NotReady) -> Lost {
    Lost {
        node: name.to_owned(),
        since: clock::rfc3339(down.since),
        reason: down.reason.clone(),
        pod: false,
    }
}

/// Why a pod was deleted, according to its last status.
fn deletion_cause(status: &Value) -> Option<&str> {
    let message = status["message"].as_str();
    message.or(disruption(status)).or(status["reason"].as_str())
}

/// Node of a DaemonSet's pod. Before it is scheduled, the controller's affinity names the node.
fn target_node(pod: &Value) -> String {
    let scheduled = pod["spec"]["nodeName"].text();
    if !scheduled.is_empty() {
        return scheduled.to_owned();
    }
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    for term in required["nodeSelectorTerms"].items() {
        for field in term["matchFields"].items() {
            let node = field["values"][0].text();
            if field["key"] == "metadata.name" && !node.is_empty() {
                return node.to_owned();
            }
        }
    }
    String::new()
}
