//! Workers that run but have never contacted the aggregator: selects logs to read, explains the silence, decides when
//! it is a failure.
//!
//! Pure: running workers, contacts, logs and time are arguments. Logs arrive through the API server and the kubelet,
//! so
//! a cause is found although the worker itself cannot connect.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::names::WORKER_CONTAINER;
use crate::remedies;
use base::clock::{self, passed};
use base::kube::Object as _;
use client::protocol::ResultId;

/// Time within which a healthy worker contacts the aggregator.
const USUAL_CONTACT_TIME: Duration = Duration::from_secs(10);
/// Interval between reads of the same worker's log.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum logs read per check.
const MAX_LOOKS: usize = 3;

/// Workers of one launch without contact.
pub(super) struct Silences {
    /// Time limit for the first contact; `None` if a worker may stay silent until its result.
    pub(super) limit: Option<Duration>,
    /// Start of the aggregator; earlier contacts were impossible.
    began: SystemTime,
    /// When a worker last made first contact: others may be queued behind it.
    progress: SystemTime,
    workers: BTreeMap<String, Worker>,
}

struct Worker {
    id: ResultId,
    pod: String,
    since: SystemTime,
    looked: Option<SystemTime>,
    cause: Option<String>,
}

/// State of a silent worker.
#[derive(Debug, PartialEq)]
pub(super) enum Complaint {
    /// A probable cause was found.
    Trouble(String),
    /// The time limit has passed.
    Failure(String),
}

impl Silences {
    pub(super) fn new(limit: Option<Duration>, began: SystemTime) -> Self {
        Self { limit, began, progress: began, workers: BTreeMap::new() }
    }

    /// Records a pod's current state.
    pub(super) fn see(&mut self, uid: &str, id: &ResultId, pod: &Value) {
        let statuses = pod["status"]["containerStatuses"].items();
        let running = statuses.filter(|status| status["name"] == WORKER_CONTAINER);
        let started = running.filter_map(|status| status["state"]["running"]["startedAt"].as_str()).next();
        let Some(started) = started.and_then(clock::parse_rfc3339) else {
            // The pod itself explains every other state.
            self.lose(uid);
            return;
        };
        let since = started.max(self.began);
        let pod = pod.name().to_owned();
        let new = Worker { id: id.clone(), pod, since, looked: None, cause: None };
        let worker = self.workers.entry(uid.to_owned()).or_insert(new);
        worker.since = worker.since.max(since);
    }

    /// Records a pod's deletion.
    pub(super) fn lose(&mut self, uid: &str) {
        self.workers.remove(uid);
    }

    /// Drops the workers that made contact; returns the pods, by uid and name, whose logs may explain the silence.
    pub(super) fn look_at(
        &mut self,
        heard: &dyn Fn(&ResultId) -> bool,
        now: SystemTime,
    ) -> Vec<(String, String)> {
        let before = self.workers.len();
        self.workers.retain(|_, worker| !heard(&worker.id));
        if self.workers.len() < before {
            self.progress = now;
        }
        let Some(limit) = self.limit else { return Vec::new() };
        let due = |worker: &Worker| {
            passed(worker.since, USUAL_CONTACT_TIME.min(limit / 3), now)
                && worker.looked.is_none_or(|then| passed(then, LOOK_INTERVAL, now))
        };
        let workers = self.workers.iter_mut().filter(|(_, worker)| due(worker));
        let looks = workers.take(MAX_LOOKS).map(|(uid, worker)| {
            worker.looked = Some(now);
            (uid.clone(), worker.pod.clone())
        });
        looks.collect()
    }

    /// Records a worker's log.
    pub(super) fn explain(&mut self, uid: &str, log: &str) {
        if let Some(worker) = self.workers.get_mut(uid) {
            worker.cause = remedies::why_unreached(log).or(worker.cause.take());
        }
    }

    /// Returns the workers with a problem.
    pub(super) fn complaints(&self, now: SystemTime) -> Vec<(ResultId, Complaint)> {
        let Some(limit) = self.limit else { return Vec::new() };
        let complaint = |worker: &Worker| {
            let cause = worker
                .cause
                .as_ref()
                .map(|cause| format!("its worker {}", remedies::advised(&remedies::unreached(cause))));
            if passed(worker.since, limit, now) && passed(self.progress, limit / 4, now) {
                let cause = cause.unwrap_or_else(|| "its worker does not say why in its log".into());
                let said = format!("nothing was heard from it in {}: {cause}", clock::duration(limit));
                return Some(Complaint::Failure(said));
            }
            cause.map(Complaint::Trouble)
        };
        self.workers.values().filter_map(|worker| Some((worker.id.clone(), complaint(worker)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn id(node: &str) -> ResultId {
        ResultId::on_node("p", node)
    }

    fn worker(name: &str, state: &Value) -> Value {
        json!({"metadata": {"name": name}, "status": {"containerStatuses": [
            {"name": "plugin", "state": {"running": {"startedAt": clock::rfc3339(at(0))}}},
            {"name": "sonobuoy-worker", "state": state},
        ]}})
    }

    fn running(name: &str, since: u64) -> Value {
        worker(name, &json!({"running": {"startedAt": clock::rfc3339(at(since))}}))
    }

    fn silences(nodes: &[&str]) -> Silences {
        let mut silences = Silences::new(Some(Duration::from_secs(180)), at(0));
        for node in nodes {
            silences.see(node, &id(node), &running(node, 5));
        }
        silences
    }

    const REFUSED: &str =
        "time=\"t\" level=error msg=\"cannot reach the aggregator: `x`: connection refused\"\n";

    #[test]
    fn a_silent_worker_is_trouble_with_its_cause_and_a_failure_in_the_end() {
        let mut silences = silences(&["a"]);
        let nobody = |_: &ResultId| false;
        assert_eq!(silences.look_at(&nobody, at(14)), []);
        assert_eq!(silences.look_at(&nobody, at(15)), [("a".to_owned(), "a".to_owned())]);
        assert_eq!(silences.look_at(&nobody, at(24)), [], "its log was looked at");
        assert_eq!(silences.complaints(at(24)), []);
        silences.explain("a", REFUSED);
        let told = silences.complaints(at(24));
        let [(_, Complaint::Trouble(said))] = &told[..] else { panic!("{told:?}") };
        assert!(said.contains("`x`: connection refused; ") && said.contains("network policy"), "{said}");
        assert_eq!(silences.look_at(&nobody, at(25)).len(), 1, "it may say something else by now");
        silences.explain("a", "nothing of interest");
        let told = silences.complaints(at(185));
        let [(failed, Complaint::Failure(said))] = &told[..] else { panic!("{told:?}") };
        assert_eq!(*failed, id("a"));
        assert!(said.starts_with("nothing was heard from it in 3m0s: its worker cannot reach"), "{said}");
    }

    #[test]
    fn whoever_was_heard_of_or_does_not_run_is_not_silent() {
        let mut silences = silences(&["a", "b", "c"]);
        silences.see("b", &id("b"), &worker("b", &json!({"waiting": {"reason": "x"}})));
        silences.lose("c");
        assert_eq!(silences.look_at(&|_| true, at(100)), []);
        assert_eq!(silences.complaints(at(999)), []);
        let mut silent = Silences::new(None, at(0));
        silent.see("a", &id("a"), &running("a", 0));
        assert_eq!(
            silent.look_at(&|_| false, at(100)),
            [],
            "the original's workers say nothing before their result"
        );
        assert_eq!(silent.complaints(at(9_999)), []);
    }

    #[test]
    fn those_who_wait_for_their_turn_are_given_time() {
        let mut silences = silences(&["a", "b"]);
        silences.look_at(&|heard| *heard == id("a"), at(184));
        assert_eq!(silences.complaints(at(190)), []);
        assert_eq!(silences.complaints(at(229)).len(), 1);
    }

    #[test]
    fn few_logs_are_looked_at_at_once_and_all_of_them_in_the_end() {
        let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
        let mut silences = silences(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let looks: Vec<usize> =
            (20..25).map(|second| silences.look_at(&|_| false, at(second)).len()).collect();
        assert_eq!(looks, [3, 3, 3, 1, 0]);
    }

    #[test]
    fn nobody_was_listened_to_before_the_aggregator_began() {
        let mut silences = Silences::new(Some(Duration::from_secs(180)), at(1_000));
        silences.see("a", &id("a"), &running("a", 0));
        assert_eq!(silences.complaints(at(1_100)), []);
        assert_eq!(silences.complaints(at(1_180)).len(), 1);
    }
}
