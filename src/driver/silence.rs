//! Workers that run and have never been heard of: whose logs are worth a look, what these say, and when it is a failure.
//!
//! Pure: it is told which workers run, who was heard of, what a log says and what time it is. A log comes by way of the
//! API server and the kubelet, so that a cause is known although nothing comes from the worker itself.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::causes;
use crate::names::WORKER_CONTAINER;
use base::clock::{self, passed};
use client::protocol::ResultId;

/// A worker that has found its way is heard of by then.
const USUAL_CONTACT_TIME: Duration = Duration::from_secs(10);
/// Between two looks at the log of the same worker.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// So many logs are looked at in one go.
const MAX_LOOKS: usize = 3;

/// The workers of one launch that have not been heard of.
pub(super) struct Silences {
    /// How long a worker may be silent; `None` if it need not say anything before its result.
    limit: Option<Duration>,
    /// Nobody listened before.
    began: SystemTime,
    /// When one of them was heard of for the first time, lately: the others may be waiting for their turn.
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

/// What is to be said of a worker.
#[derive(Debug, PartialEq)]
pub(super) enum Complaint {
    /// Something seems to be in its way.
    Trouble(String),
    /// It will not be waited for any more.
    Failure(String),
}

impl Silences {
    pub(super) fn new(limit: Option<Duration>, began: SystemTime) -> Self {
        Self { limit, began, progress: began, workers: BTreeMap::new() }
    }

    /// Takes in a pod as it is now.
    pub(super) fn see(&mut self, uid: &str, id: &ResultId, pod: &Value) {
        let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        let running = statuses.filter(|status| status["name"] == WORKER_CONTAINER);
        let started = running.filter_map(|status| status["state"]["running"]["startedAt"].as_str()).next();
        let Some(started) = started.and_then(clock::parse_rfc3339) else {
            // What became of it otherwise is told by its pod.
            self.lose(uid);
            return;
        };
        let since = started.max(self.began);
        let pod = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let new = Worker { id: id.clone(), pod, since, looked: None, cause: None };
        let worker = self.workers.entry(uid.to_owned()).or_insert(new);
        worker.since = worker.since.max(since);
    }

    /// A pod is gone.
    pub(super) fn lose(&mut self, uid: &str) {
        self.workers.remove(uid);
    }

    /// Leaves out whoever was heard of; names the pods, by uid and name, whose workers' logs may tell why nothing comes.
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

    /// What the log of a worker says.
    pub(super) fn explain(&mut self, uid: &str, log: &str) {
        if let Some(worker) = self.workers.get_mut(uid) {
            worker.cause = causes::why_unreached(log).or(worker.cause.take());
        }
    }

    /// What there is to say.
    pub(super) fn complaints(&self, now: SystemTime) -> Vec<(ResultId, Complaint)> {
        let Some(limit) = self.limit else { return Vec::new() };
        let complaint = |worker: &Worker| {
            let cause = worker
                .cause
                .as_ref()
                .map(|cause| format!("its worker {}", causes::advised(&causes::unreached(cause))));
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
