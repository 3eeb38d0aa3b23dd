//! What was learned of the kubelets while they were asked, for all questions that go to one.
//!
//! One that is silent, or whose API server answers for it that it cannot be reached, is asked nothing more: logs and
//! questions about the host alike. Once the time of the snapshot is over, only those go on being asked that have
//! answered, and others as long as most do. What was left out is told once for each node. Knows no request.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Trouble;
use base::clock;
use base::kube::Error;

/// What the API server answers when it cannot reach a kubelet.
pub(super) const UNREACHABLE: &[u16] = &[500, 502, 504];
/// A kubelet that has answered before may fail so often.
const FAILURES: u32 = 2;
/// Beyond the time of the snapshot, no more than one of so many may be silent for others to be asked.
const SHARE: usize = 4;

/// How long a snapshot may take.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// Until then everybody is asked.
    pub(super) due: Instant,
    /// Then everything ends.
    pub(super) end: Instant,
    limit: Duration,
}

impl Times {
    /// From now on: `limit`, and a tenth of what the run itself may take for those who answer. 0 means no limit.
    pub(super) fn new(limit: Duration, run: Duration) -> Option<Self> {
        let due = Instant::now().checked_add(limit)?;
        (!limit.is_zero()).then_some(Self { due, end: due + run / 10, limit })
    }
}

pub(super) struct Kubelets {
    times: Option<Times>,
    known: Mutex<BTreeMap<String, Kubelet>>,
}

#[derive(Default)]
struct Kubelet {
    answered: bool,
    failures: u32,
    silent: Option<String>,
    left_out: u64,
}

impl Kubelets {
    pub(super) fn new(times: Option<Times>) -> Self {
        Self { times, known: Mutex::default() }
    }

    /// Whether a kubelet shall be asked another question; if not, the question counts as left out.
    pub(super) fn may_ask(&self, node: &str) -> bool {
        let overdue = self.times.is_some_and(|times| Instant::now() >= times.due);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // A pod that is on no node has no kubelet.
        if node.is_empty() {
            return true;
        }
        let tried = known.values().filter(|kubelet| kubelet.answered || kubelet.silent.is_some()).count();
        let silent = known.values().filter(|kubelet| kubelet.silent.is_some()).count();
        let kubelet = known.entry(node.to_owned()).or_default();
        let may = kubelet.silent.is_none() && (!overdue || kubelet.answered || silent * SHARE <= tried);
        kubelet.left_out += u64::from(!may);
        may
    }

    pub(super) fn answered(&self, node: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let kubelet = known.entry(node.to_owned()).or_default();
        (kubelet.answered, kubelet.failures) = (true, 0);
    }

    /// Notes that a question failed; whether the kubelet counts as silent from now on. Then the failure is told with
    /// what is left out.
    pub(super) fn failed(&self, node: &str, error: &Error) -> bool {
        let unreachable = match error {
            Error::Transport { .. } | Error::Stopped => true,
            _ => error.code().is_some_and(|code| UNREACHABLE.contains(&code)),
        };
        if !unreachable || node.is_empty() {
            return false;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let kubelet = known.entry(node.to_owned()).or_default();
        kubelet.failures += 1;
        if kubelet.answered && kubelet.failures < FAILURES && !matches!(error, Error::Stopped) {
            return false;
        }
        kubelet.left_out += 1;
        kubelet.silent.get_or_insert_with(|| reason(error));
        true
    }

    /// Counts questions that nobody came to ask.
    pub(super) fn leave_out(&self, node: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(node.to_owned()).or_default().left_out += 1;
    }

    /// What was left out, a node at a time.
    pub(super) fn troubles(&self) -> Vec<Trouble> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let left = known.iter().filter(|(_, kubelet)| kubelet.left_out > 0);
        let trouble = |(node, kubelet): (&String, &Kubelet)| {
            let questions = match kubelet.left_out {
                1 => "1 question about it or its logs is".to_owned(),
                number => format!("{number} questions about it and its logs are"),
            };
            let error = match &kubelet.silent {
                Some(why) => format!("{questions} left out, since its kubelet does not answer: {why}"),
                None => {
                    let limit = self.times.map(|times| clock::duration(times.limit)).unwrap_or_default();
                    format!(
                        "{questions} left out: the {limit} of the snapshot were over (`Limits.Snapshot.Time`)"
                    )
                }
            };
            Trouble { queryobj: "Nodes".into(), namespace: String::new(), name: node.clone(), error }
        };
        left.map(trouble).collect()
    }
}

/// Why, in words that are the same for every node that is silent for the same reason.
fn reason(error: &Error) -> String {
    match error {
        Error::Api(refusal) if !refusal.message.is_empty() => {
            format!("{} ({})", refusal.message, refusal.code)
        }
        Error::Transport { why, .. } => why.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use base::kube::Stage;

    use super::*;

    fn refusal(code: u16) -> Error {
        Error::from_answer(code, None, b"no", "GET /x")
    }

    fn silence() -> Error {
        Error::Transport { what: "GET /x".into(), why: "no answer in time".into(), stage: Stage::Sent }
    }

    #[test]
    fn the_first_sign_of_an_absent_kubelet_ends_the_asking() {
        for (error, ends) in [
            (refusal(500), true),
            (refusal(502), true),
            (refusal(504), true),
            (silence(), true),
            (refusal(400), false),
            (refusal(403), false),
            (refusal(404), false),
            (refusal(503), false),
        ] {
            let kubelets = Kubelets::new(None);
            assert!(kubelets.may_ask("n"));
            assert_eq!(kubelets.failed("n", &error), ends, "{error}");
            assert_eq!(kubelets.may_ask("n"), !ends, "{error}");
            assert!(kubelets.may_ask("other") && kubelets.may_ask(""));
            assert_eq!(kubelets.troubles().len(), usize::from(ends), "{error}");
        }
        let kubelets = Kubelets::new(None);
        kubelets.answered("n");
        assert!(!kubelets.failed("n", &refusal(500)), "one container's log is not the whole node");
        assert!(kubelets.failed("n", &refusal(500)));
        assert!(!kubelets.may_ask("n") && !kubelets.may_ask("n"));
        let told = kubelets.troubles();
        assert_eq!(told.len(), 1);
        assert!(told[0].error.starts_with("3 questions about it and its logs are left out"), "{told:?}");
    }

    #[test]
    fn after_the_time_only_those_go_on_that_answer() {
        let over = Instant::now();
        let kubelets = Kubelets::new(Some(Times { due: over, end: over, limit: Duration::from_secs(120) }));
        kubelets.answered("good");
        assert!(kubelets.may_ask("good") && kubelets.may_ask("new"), "most answer");
        assert!(kubelets.failed("bad", &refusal(500)));
        assert!(kubelets.may_ask("good") && !kubelets.may_ask("newer"), "half do not");
        let told: Vec<_> =
            kubelets.troubles().into_iter().map(|trouble| (trouble.name, trouble.error)).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[1].1.contains("the 2m0s of the snapshot were over"), "{told:?}");
    }

    #[test]
    fn a_run_that_may_take_long_may_take_a_tenth_of_it_more() {
        let seconds = Duration::from_secs;
        assert!(Times::new(seconds(0), seconds(100)).is_none());
        let times = Times::new(seconds(120), seconds(90)).unwrap();
        assert_eq!(times.end - times.due, seconds(9));
    }
}
