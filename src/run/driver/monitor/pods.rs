//! The pods of one launch: which exist, how each is judged, which are slow to start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::Assessment;
use crate::driver::silence::SilentWorkers;
use crate::driver::verdict::{FAILED_GRACE, PodVerdict, containers_end, disruption, judge};
use base::clock::passed;
use client::protocol::{ContainersEnd, Failure, ResultId};
use kube::{Delay, Object as _, is_delayed};
use model::config::Grace;
use model::names::WORKER_CONTAINER;

/// Pods whose events are read in one check, so that a large cluster is not flooded with requests.
const MAX_EVENTS_READ: usize = 8;
/// Pause between the first reads of the events of a pod; then it doubles up to
/// [`MAX_EVENTS_PAUSE`].
const FIRST_EVENTS_PAUSE: Duration = Duration::from_secs(5);
const MAX_EVENTS_PAUSE: Duration = Duration::from_secs(60);
/// Reads before the pause begins to double.
const UNHURRIED_READS: u32 = 3;
/// Time for a deleted pod to disappear; its deletion is an event of its own, so any long time does.
const DELETION_TIMEOUT: Duration = Duration::from_secs(86_400);

/// The pods of one launch, by uid.
pub(super) struct PodTable {
    grace: Grace,
    /// Whether a controller creates the pods, and replaces lost ones.
    is_controlled: bool,
    pods: BTreeMap<String, PodState>,
    /// Pods since the start of their latest list.
    listed_uids: BTreeSet<String>,
    /// Whether a list of all existing pods has been read.
    is_complete: bool,
    /// How the plugin's containers have ended, as last reported.
    ends: BTreeMap<ResultId, ContainersEnd>,
    /// Workers that are expected to contact the aggregator soon after their start.
    silent: SilentWorkers,
}

struct PodState {
    id: ResultId,
    verdict: PodVerdict,
    start: Start,
    /// End of the period in which its result is being received.
    receiving_until: Option<SystemTime>,
    /// The pod, kept only while it has a problem, for the report, or does not start.
    object: Option<Value>,
}

/// What is known about the start of a pod.
#[derive(Default)]
struct Start {
    /// What its events say.
    delay: Option<Delay>,
    /// When a read of them last began, and how often they were read.
    last_read: Option<SystemTime>,
    reads: u32,
}

impl Start {
    /// Whether the events of a pod that does not start should be read: first after the time that
    /// pods usually need, then ever more rarely.
    fn is_read_due(&self, pod: &Value, now: SystemTime) -> bool {
        let doublings = self.reads.saturating_sub(UNHURRIED_READS).min(8);
        let pause = FIRST_EVENTS_PAUSE * 2u32.pow(doublings);
        let pause = pause.min(MAX_EVENTS_PAUSE);
        is_delayed(pod, now) && self.last_read.is_none_or(|read| passed(read, pause, now))
    }
}

impl PodTable {
    pub(super) fn new(grace: Grace, is_controlled: bool, silent: SilentWorkers) -> Self {
        Self {
            grace,
            is_controlled,
            pods: BTreeMap::new(),
            listed_uids: BTreeSet::new(),
            is_complete: false,
            ends: BTreeMap::new(),
            silent,
        }
    }

    /// Begins a new list of all pods.
    pub(super) fn begin_list(&mut self) {
        self.listed_uids.clear();
    }

    /// Ends the list; returns the uids of the pods that were not in it.
    pub(super) fn end_list(&mut self) -> Vec<String> {
        self.is_complete = true;
        let listed = std::mem::take(&mut self.listed_uids);
        let is_gone = |uid: &&String| !listed.contains(*uid);
        self.pods.keys().filter(is_gone).cloned().collect()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Marks a pod as part of the current list.
    pub(super) fn note_listed(&mut self, uid: &str) {
        self.listed_uids.insert(uid.to_owned());
    }

    /// Whether a pod of the result exists.
    pub(super) fn has_pod_of(&self, id: &ResultId) -> bool {
        self.pods.values().any(|pod| pod.id == *id)
    }

    /// Places with a pod.
    pub(super) fn occupied_places(&self) -> impl Iterator<Item = &str> {
        self.pods.values().map(|pod| pod.id.node.as_str())
    }

    /// Records the current state of a pod; returns whether the pod is new.
    pub(super) fn insert(
        &mut self,
        uid: String,
        id: ResultId,
        pod: Value,
        now: SystemTime,
    ) -> bool {
        let before = self.pods.remove(&uid);
        let is_new = before.is_none();
        let (receiving_until, start) = match before {
            Some(state) => (state.receiving_until, state.start),
            None => (None, Start::default()),
        };
        let verdict = self.judge_pod(&pod, receiving_until, start.delay.as_ref(), now);
        self.silent.see(&uid, &id, &pod);
        // A large cluster has thousands of pods, nearly all of them fine.
        let is_kept = verdict != PodVerdict::Fine || pod["status"]["phase"] == "Pending";
        let state = PodState {
            id,
            verdict,
            start,
            receiving_until,
            object: is_kept.then_some(pod),
        };
        self.pods.insert(uid, state);
        is_new
    }

    /// Removes a pod; returns the result that it was to send.
    pub(super) fn remove(&mut self, uid: &str) -> Option<ResultId> {
        let pod = self.pods.remove(uid)?;
        self.silent.remove(uid);
        Some(pod.id)
    }

    /// Removes the pods of a result; returns whether there were any.
    pub(super) fn remove_pods_of(&mut self, id: &ResultId) -> bool {
        let before = self.pods.len();
        self.pods.retain(|uid, pod| {
            if pod.id == *id {
                self.silent.remove(uid);
            }
            pod.id != *id
        });
        self.pods.len() < before
    }

    /// How the plugin's containers in a pod have ended, if that differs from the last report. A pod
    /// that is being deleted says nothing about the one that replaces it.
    pub(super) fn changed_end(
        &mut self,
        id: &ResultId,
        pod: &Value,
    ) -> Option<Option<ContainersEnd>> {
        if pod.is_terminating() {
            return None;
        }
        let end = containers_end(pod, WORKER_CONTAINER);
        if self.ends.get(id).copied() == end {
            return None;
        }
        match end {
            Some(end) => self.ends.insert(id.clone(), end),
            None => self.ends.remove(id),
        };
        Some(end)
    }

    /// Judges a pod of the plugin; `receiving_until` is the end of the period in which its result
    /// is being received.
    fn judge_pod(
        &self,
        pod: &Value,
        receiving_until: Option<SystemTime>,
        delay: Option<&Delay>,
        now: SystemTime,
    ) -> PodVerdict {
        let mut verdict = judge(pod, WORKER_CONTAINER, delay, now, &self.grace);
        if is_quiet(&verdict) && pod["status"]["phase"] == "Succeeded" {
            // The worker ends only after its result was accepted, or after a request to end.
            verdict = PodVerdict::Quiet(
                "all containers succeeded, but there is no result".into(),
                now + self.grace.ended,
            );
        }
        if pod.is_terminating() && (is_quiet(&verdict) || !self.is_controlled) {
            // Whatever its containers do now, the deletion is the reason.
            verdict = deletion_trouble(&pod["status"], now);
        }
        match (verdict, receiving_until.filter(|until| *until > now)) {
            // The controller replaces it.
            (PodVerdict::Lost(reason), _) if self.is_controlled => {
                PodVerdict::Trouble(reason, now + self.grace.no_pod)
            }
            (PodVerdict::Failed(reason), Some(until)) => PodVerdict::Trouble(reason, until),
            (verdict, _) => verdict,
        }
    }

    /// Suspends failures of pods whose results are being received.
    pub(super) fn suspend_failures(
        &mut self,
        is_receiving: &dyn Fn(&ResultId) -> bool,
        now: SystemTime,
    ) {
        for pod in self.pods.values_mut() {
            if let PodVerdict::Trouble(_, fatal) = &mut pod.verdict
                && *fatal <= now
                && is_receiving(&pod.id)
            {
                *fatal = now + FAILED_GRACE;
                pod.receiving_until = Some(*fatal);
            }
        }
    }

    /// Adds what the state of each pod means at this time; returns the places with pods.
    pub(super) fn assess(
        &mut self,
        now: SystemTime,
        assessment: &mut Assessment,
    ) -> BTreeSet<String> {
        let mut occupied = BTreeSet::new();
        for pod in self.pods.values_mut() {
            // A pod that has no node yet belongs to no result.
            if pod.id.node.is_empty() {
                continue;
            }
            occupied.insert(pod.id.node.clone());
            if let PodVerdict::Quiet(reason, fatal) | PodVerdict::Trouble(reason, fatal) =
                &pod.verdict
                && *fatal <= now
            {
                pod.verdict = PodVerdict::Failed(reason.clone());
            }
            assessment.add_pod(pod, now);
        }
        occupied
    }

    /// Adds the workers that have not made contact in time.
    pub(super) fn assess_silence(&self, now: SystemTime, assessment: &mut Assessment) {
        let failures = self.silent.failures(now, &mut assessment.troubles);
        assessment.failures.extend(failures);
    }

    /// The pod, by uid and name, whose worker's log should be read now to explain its silence.
    pub(super) fn next_silent_worker(
        &mut self,
        has_contacted: &dyn Fn(&ResultId) -> bool,
        now: SystemTime,
    ) -> Option<(String, String)> {
        self.silent.next_to_read(has_contacted, now)
    }

    /// Records the log of a silent worker.
    pub(super) fn explain_silence(&mut self, uid: &str, log: &str) {
        self.silent.explain(uid, log);
    }

    /// Takes pods that do not start although their status names no problem: those whose events were
    /// read least recently.
    pub(super) fn take_delayed(
        &mut self,
        settled: &BTreeSet<ResultId>,
        now: SystemTime,
    ) -> Vec<Value> {
        let mut due = Vec::new();
        for pod in self.pods.values_mut() {
            let is_unexplained = pod.verdict == PodVerdict::Fine || pod.start.delay.is_some();
            if let Some(object) = &pod.object
                && is_unexplained
                && !settled.contains(&pod.id)
                && pod.start.is_read_due(object, now)
            {
                due.push((object, &mut pod.start));
            }
        }
        due.sort_by_key(|(_, start)| start.last_read);
        due.truncate(MAX_EVENTS_READ);
        let mut objects = Vec::new();
        for (object, start) in due {
            start.last_read = Some(now);
            objects.push(object.clone());
        }
        objects
    }

    /// Records what the events of a pod say about its start.
    pub(super) fn explain_delay(&mut self, pod: &Value, delay: Option<Delay>, now: SystemTime) {
        let uid = uid(pod);
        let receiving_until = self.pods.get(&uid).and_then(|state| state.receiving_until);
        let verdict = self.judge_pod(pod, receiving_until, delay.as_ref(), now);
        if let Some(state) = self.pods.get_mut(&uid) {
            state.start.delay = delay;
            state.start.reads += 1;
            state.verdict = verdict;
        }
    }

    /// The pod, if it is kept for a report.
    #[cfg(test)]
    pub(super) fn object(&self, uid: &str) -> Option<&Value> {
        self.pods.get(uid)?.object.as_ref()
    }
}

impl Assessment {
    fn add_pod(&mut self, pod: &mut PodState, now: SystemTime) {
        match &pod.verdict {
            PodVerdict::Fine | PodVerdict::Quiet(..) => {}
            PodVerdict::Trouble(reason, _) => {
                self.troubles.insert(pod.id.clone(), reason.clone());
            }
            PodVerdict::Failed(reason) => {
                let failure = Failure::new(pod.id.clone(), reason);
                self.failures
                    .push(super::with_pod(failure, pod.object.take()));
            }
            PodVerdict::Lost(reason) => self.losses.push(super::LostResult {
                id: pod.id.clone(),
                loss: super::pod_loss(&pod.id, reason.clone(), now),
                pod: pod.object.take(),
            }),
        }
    }
}

fn is_quiet(verdict: &PodVerdict) -> bool {
    matches!(verdict, PodVerdict::Fine | PodVerdict::Quiet(..))
}

fn deletion_trouble(status: &Value, now: SystemTime) -> PodVerdict {
    let reason = match disruption(status) {
        Some(cause) => format!("the pod is being deleted: {cause}"),
        None => "the pod is being deleted".to_owned(),
    };
    PodVerdict::Trouble(reason, now + DELETION_TIMEOUT)
}

/// Identifies a pod: a pod that replaces another one may have its name.
pub(super) fn uid(pod: &Value) -> String {
    let meta = &pod["metadata"];
    let uid = meta["uid"].as_str().or(meta["name"].as_str());
    uid.unwrap_or_default().to_owned()
}
