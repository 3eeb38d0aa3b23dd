//! Workers that run but have never contacted the aggregator: selects logs to read, explains the
//! silence, decides when it is a failure.
//!
//! Pure: running workers, contacts, logs and time are arguments. Logs arrive through the API server
//! and the kubelet, so that a cause is found although the worker itself cannot connect.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use base::clock::{self, passed};
use client::protocol::{Failure, ResultId};
use kube::Object as _;
use model::names::WORKER_CONTAINER;
use model::remedies;

/// Time within which a healthy worker contacts the aggregator.
const USUAL_CONTACT_TIME: Duration = Duration::from_secs(10);
/// Pause between two logs; it doubles up to [`MAX_PAUSE`], since silent workers often share a
/// cause.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Workers of one launch without contact.
pub(super) struct SilentWorkers {
    /// Time limit for the first contact; `None` if a worker may stay silent until its result.
    limit: Option<Duration>,
    /// Start of the aggregator; earlier contacts were impossible.
    began: SystemTime,
    /// When a worker last made first contact: others may be queued behind it.
    progress: SystemTime,
    /// When the next log may be read, and the pause after that.
    next: SystemTime,
    pause: Duration,
    workers: BTreeMap<String, SilentWorker>,
}

struct SilentWorker {
    id: ResultId,
    pod: String,
    since: SystemTime,
    /// When its log was last read.
    last_read: Option<SystemTime>,
    cause: Option<String>,
}

impl SilentWorkers {
    pub(super) fn new(limit: Option<Duration>, began: SystemTime) -> Self {
        Self {
            limit,
            began,
            progress: began,
            next: began,
            pause: FIRST_PAUSE,
            workers: BTreeMap::new(),
        }
    }

    /// Records a pod's current state.
    pub(super) fn see(&mut self, uid: &str, id: &ResultId, pod: &Value) {
        let statuses = pod["status"]["containerStatuses"].items();
        let mut workers = statuses.filter(|status| status["name"] == WORKER_CONTAINER);
        let started = workers.find_map(|status| status["state"]["running"]["startedAt"].as_str());
        let Some(started) = started.and_then(clock::parse_rfc3339) else {
            // The pod itself explains every other state.
            self.remove(uid);
            return;
        };
        let since = started.max(self.began);
        let pod = pod.name().to_owned();
        let new = SilentWorker {
            id: id.clone(),
            pod,
            since,
            last_read: None,
            cause: None,
        };
        let worker = self.workers.entry(uid.to_owned()).or_insert(new);
        worker.since = worker.since.max(since);
    }

    /// Records a pod's deletion.
    pub(super) fn remove(&mut self, uid: &str) {
        self.workers.remove(uid);
    }

    /// Drops the workers that made contact; returns the pod, by uid and name, whose log may explain
    /// the silence: the one that was read least recently.
    pub(super) fn next_to_read(
        &mut self,
        has_contacted: &dyn Fn(&ResultId) -> bool,
        now: SystemTime,
    ) -> Option<(String, String)> {
        let before = self.workers.len();
        self.workers.retain(|_, worker| !has_contacted(&worker.id));
        if self.workers.len() < before {
            self.progress = now;
        }
        let usual = USUAL_CONTACT_TIME.min(self.limit? / 3);
        if now < self.next {
            return None;
        }
        let workers = self.workers.iter_mut();
        let overdue = workers.filter(|(_, worker)| passed(worker.since, usual, now));
        let (uid, worker) = overdue.min_by_key(|(_, worker)| worker.last_read)?;
        worker.last_read = Some(now);
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Some((uid.clone(), worker.pod.clone()))
    }

    /// Records a worker's log.
    pub(super) fn explain(&mut self, uid: &str, log: &str) {
        if let Some(worker) = self.workers.get_mut(uid) {
            worker.cause = remedies::why_unreached(log).or(worker.cause.take());
        }
    }

    /// Failures of workers whose time limit has passed; adds the probable causes of others to
    /// `troubles`.
    pub(super) fn failures(
        &self,
        now: SystemTime,
        troubles: &mut BTreeMap<ResultId, String>,
    ) -> Vec<Failure> {
        let mut failures = Vec::new();
        let Some(limit) = self.limit else {
            return failures;
        };
        // Others may be queued behind a worker that has just made contact.
        let is_stuck = passed(self.progress, limit / 4, now);
        for worker in self.workers.values() {
            let cause = worker.cause_text();
            if is_stuck && passed(worker.since, limit, now) {
                let message = worker.silence_message(limit, cause);
                failures.push(Failure::new(worker.id.clone(), message));
            } else if let Some(cause) = cause {
                troubles.entry(worker.id.clone()).or_insert(cause);
            }
        }
        failures
    }
}

impl SilentWorker {
    /// The probable cause according to its log, with a remedy.
    fn cause_text(&self) -> Option<String> {
        let unreached = remedies::unreached(self.cause.as_ref()?);
        Some(format!("its worker {}", remedies::advised(&unreached)))
    }

    fn silence_message(&self, limit: Duration, cause: Option<String>) -> String {
        let silence = format!("nothing was heard from it in {}", clock::duration(limit));
        match cause {
            Some(cause) => format!("{silence}: {cause}"),
            None if self.last_read.is_some() => {
                format!("{silence}: its worker does not say why in its log")
            }
            None => silence,
        }
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
        worker(
            name,
            &json!({"running": {"startedAt": clock::rfc3339(at(since))}}),
        )
    }

    fn silent_workers(nodes: &[&str]) -> SilentWorkers {
        let mut silent = SilentWorkers::new(Some(Duration::from_secs(180)), at(0));
        for node in nodes {
            silent.see(node, &id(node), &running(node, 5));
        }
        silent
    }

    /// Errors of failures, and troubles.
    fn found(silent: &SilentWorkers, now: SystemTime) -> (Vec<(ResultId, String)>, Vec<String>) {
        let mut troubles = BTreeMap::new();
        let failures = silent.failures(now, &mut troubles).into_iter();
        (
            failures
                .map(|failure| (failure.id.clone(), failure.error().to_owned()))
                .collect(),
            troubles.into_values().collect(),
        )
    }

    const NOTHING: (Vec<(ResultId, String)>, Vec<String>) = (Vec::new(), Vec::new());

    const REFUSED: &str =
        "time=\"t\" level=error msg=\"cannot reach the aggregator: `x`: connection refused\"\n";

    #[test]
    fn silent_worker_is_trouble_and_finally_a_failure() {
        let mut silent = silent_workers(&["a"]);
        let nobody = |_: &ResultId| false;
        assert_eq!(silent.next_to_read(&nobody, at(14)), None);
        assert_eq!(
            silent.next_to_read(&nobody, at(15)),
            Some(("a".to_owned(), "a".to_owned()))
        );
        assert_eq!(
            silent.next_to_read(&nobody, at(24)),
            None,
            "its log was read"
        );
        assert_eq!(found(&silent, at(24)), NOTHING);
        silent.explain("a", REFUSED);
        let (failures, troubles) = found(&silent, at(24));
        let ([], [trouble]) = (&failures[..], &troubles[..]) else {
            panic!("{failures:?} {troubles:?}")
        };
        assert!(
            trouble.contains("`x`: connection refused; ") && trouble.contains("network policy"),
            "{trouble}"
        );
        assert!(
            silent.next_to_read(&nobody, at(25)).is_some(),
            "the log may have another line by now"
        );
        silent.explain("a", "nothing of interest");
        let (failures, troubles) = found(&silent, at(185));
        let ([(failed, said)], []) = (&failures[..], &troubles[..]) else {
            panic!("{failures:?} {troubles:?}")
        };
        assert_eq!(*failed, id("a"));
        assert!(
            said.starts_with("nothing was heard from it in 3m0s: its worker cannot reach"),
            "{said}"
        );
    }

    #[test]
    fn heard_and_stopped_workers_are_not_silent() {
        let mut silent = silent_workers(&["a", "b", "c"]);
        silent.see(
            "b",
            &id("b"),
            &worker("b", &json!({"waiting": {"reason": "x"}})),
        );
        silent.remove("c");
        assert_eq!(silent.next_to_read(&|_| true, at(100)), None);
        assert_eq!(found(&silent, at(999)), NOTHING);
        let mut silent = SilentWorkers::new(None, at(0));
        silent.see("a", &id("a"), &running("a", 0));
        assert_eq!(
            silent.next_to_read(&|_| false, at(100)),
            None,
            "workers of the original send no heartbeats"
        );
        assert_eq!(found(&silent, at(9_999)), NOTHING);
    }

    #[test]
    fn queued_workers_are_given_time() {
        let mut silent = silent_workers(&["a", "b"]);
        silent.next_to_read(&|heard| *heard == id("a"), at(184));
        assert_eq!(found(&silent, at(190)), NOTHING);
        assert_eq!(found(&silent, at(229)).0.len(), 1);
    }

    #[test]
    fn logs_of_many_silent_workers_are_read_in_turn_and_ever_more_rarely() {
        let mut silent = silent_workers(&["a", "b", "c"]);
        let read: Vec<(u64, String)> = (0..170)
            .filter_map(|second| Some((second, silent.next_to_read(&|_| false, at(second))?.0)))
            .collect();
        let expected = [(15, "a"), (25, "b"), (45, "c"), (85, "a"), (145, "b")];
        assert_eq!(read, expected.map(|(second, uid)| (second, uid.to_owned())));
    }

    #[test]
    fn silence_before_the_aggregator_started_does_not_count() {
        let mut silent = SilentWorkers::new(Some(Duration::from_secs(180)), at(1_000));
        silent.see("a", &id("a"), &running("a", 0));
        assert_eq!(found(&silent, at(1_100)), NOTHING);
        assert_eq!(found(&silent, at(1_180)).0.len(), 1);
    }
}
