//! Queries kubelets about themselves, through the API server, and keeps their state during a
//! snapshot.
//!
//! Owns `hosts/<node>/`: `configz.json`, `healthz.json`, `metrics-resource.txt`, and the kubelet's
//! own log, `kubelet.log`, where its settings say that it answers log queries. A node that
//! refuses one query still gets the others; a silent or unreachable node does not.
//!
//! A kubelet that is silent, or unreachable according to the API server, is not queried again,
//! neither for logs nor about the host. After the time limit of the snapshot, responsive kubelets
//! are still queried, and new ones as long as most respond. Skipped queries are reported once per
//! node.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::log_file::{LOG_TIMEOUT, SILENCE_TIMEOUT, keep_log};
use super::objects::includes_logs;
use super::{FailedQuery, Fault, MAX_TEXT_BYTES, Query, Records, component, keep};
use base::json::json;
use base::{clock, lock};
use kube::{Client, Error, Request, Resource};
use model::config;
use model::layout::{HOSTS, KUBELET_CONFIG, KUBELET_HEALTH, KUBELET_LOG, KUBELET_METRICS};

/// Timeout of a response; a healthy kubelet responds within a second.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for retries; short, since the API server detects an unreachable kubelet at once.
const RETRY_TIMEOUT: Duration = Duration::from_secs(3);
/// The API server's response if it cannot reach a kubelet.
pub(super) const UNREACHABLE: &[u16] = &[500, 502, 504];
/// Maximum consecutive failures of a kubelet that has responded before.
const FAILURES: u32 = 2;
/// After the time of the snapshot, at most one in this many may be silent for new kubelets to be
/// queried.
const SHARE: usize = 4;

/// Time limits of a snapshot.
#[derive(Clone, Copy)]
pub(super) struct SnapshotDeadlines {
    /// Until then, all kubelets are queried.
    pub due: Instant,
    /// Ends the snapshot.
    pub end: Instant,
    limit: Duration,
}

impl SnapshotDeadlines {
    /// From now: `limit`, plus a tenth of the run's own limit for responsive kubelets. 0 means no
    /// limit.
    pub(super) fn new(limit: Duration, run: Duration) -> Option<Self> {
        let due = Instant::now().checked_add(limit)?;
        (!limit.is_zero()).then_some(Self {
            due,
            end: due + run / 10,
            limit,
        })
    }
}

pub(super) struct Kubelets {
    times: Option<SnapshotDeadlines>,
    known: Mutex<KnownKubelets>,
}

/// All kubelets, and their numbers.
#[derive(Default)]
struct KnownKubelets {
    kubelets: BTreeMap<String, Kubelet>,
    numbers: Numbers,
}

/// The numbers of kubelets that were queried and are silent: a large cluster has a hundred thousand
/// queries, each of which compares them.
#[derive(Default)]
struct Numbers {
    tried: usize,
    silent: usize,
}

#[derive(Default)]
struct Kubelet {
    answered: bool,
    failures: u32,
    silent: Option<String>,
    left_out: u64,
}

impl Kubelets {
    pub(super) fn new(times: Option<SnapshotDeadlines>) -> Self {
        Self {
            times,
            known: Mutex::default(),
        }
    }

    fn change<T>(&self, node: &str, change: impl FnOnce(&mut Kubelet, &mut Numbers) -> T) -> T {
        let KnownKubelets { kubelets, numbers } = &mut *lock(&self.known);
        change(kubelets.entry(node.to_owned()).or_default(), numbers)
    }

    /// Whether to send a kubelet another query; if not, the query counts as skipped.
    pub(super) fn may_ask(&self, node: &str) -> bool {
        let overdue = self.times.is_some_and(|times| Instant::now() >= times.due);
        // A pod without a node has no kubelet.
        node.is_empty()
            || self.change(node, |kubelet, numbers| {
                let most_answer = numbers.silent * SHARE <= numbers.tried;
                let may = kubelet.silent.is_none() && (!overdue || kubelet.answered || most_answer);
                kubelet.left_out += u64::from(!may);
                may
            })
    }

    pub(super) fn answered(&self, node: &str) {
        self.change(node, |kubelet, numbers| {
            numbers.tried += usize::from(!kubelet.answered && kubelet.silent.is_none());
            (kubelet.answered, kubelet.failures) = (true, 0);
        });
    }

    /// Records a failed query; returns whether the kubelet counts as silent from now on. In that
    /// case the failure is reported with the skipped queries.
    pub(super) fn failed(&self, node: &str, error: &Error) -> bool {
        let unreachable = matches!(error, Error::Transport { .. } | Error::Stopped)
            || error.code().is_some_and(|code| UNREACHABLE.contains(&code));
        if !unreachable || node.is_empty() {
            return false;
        }
        self.change(node, |kubelet, numbers| {
            kubelet.failures += 1;
            if kubelet.answered && kubelet.failures < FAILURES && !matches!(error, Error::Stopped) {
                return false;
            }
            kubelet.left_out += 1;
            if kubelet.silent.is_none() {
                numbers.silent += 1;
                numbers.tried += usize::from(!kubelet.answered);
                kubelet.silent = Some(reason(error));
            }
            true
        })
    }

    /// Counts a query that was never sent.
    pub(super) fn leave_out(&self, node: &str) -> Fault {
        self.change(node, |kubelet, _| kubelet.left_out += 1);
        Fault::LeftOut
    }

    /// Skipped queries, node by node.
    pub(super) fn troubles(&self) -> Vec<FailedQuery> {
        let limit = self.times.map(|times| clock::duration(times.limit));
        let limit = limit.unwrap_or_default();
        let mut troubles = Vec::new();
        for (node, kubelet) in &lock(&self.known).kubelets {
            let questions = match kubelet.left_out {
                0 => continue,
                1 => "1 request for its data or logs is".to_owned(),
                number => format!("{number} requests for its data and logs are"),
            };
            let why = match &kubelet.silent {
                Some(why) => format!(", since its kubelet does not answer: {why}"),
                None => format!(": the {limit} for the snapshot were up (`Limits.Snapshot.Time`)"),
            };
            let message = format!("{questions} skipped{why}");
            troubles.push(FailedQuery::new("Nodes", "", node, message));
        }
        troubles
    }
}

/// Time for the first part of a kubelet's log, for which it gives its system's journal 30 s.
const LOG_ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
/// Lines of a kubelet's log, unless the limits of logs set another number, and the maximum that a
/// kubelet accepts.
const DEFAULT_LOG_LINES: i64 = 10_000;
const MAX_LOG_LINES: i64 = 100_000;
/// A kubelet answers a query that failed with 200, too, and with an empty line before the reason.
const REFUSAL_START: &[u8] = b"\n";
/// The reason if the log is a file instead of a part of a journal.
const REFUSED_OPTIONS: &str = "try without specifying options";
const MAX_REFUSAL_BYTES: u64 = 1 << 10;

/// The query for a kubelet's log, within the limits of logs if it `has_options`.
fn log_query(node: &str, limits: &config::PodLogs, has_options: bool) -> Request {
    let request = Request::get(&Resource::NODES, "", node)
        .subresource("proxy")
        .subresource("logs/")
        // A kubelet has nothing else for a client that wants JSON.
        .header("accept", "*/*")
        .query("query", "kubelet");
    if !has_options {
        return request;
    }
    let lines = limits.tail_lines.unwrap_or(DEFAULT_LOG_LINES);
    let request = request.query("tailLines", lines.clamp(0, MAX_LOG_LINES).to_string());
    let age = limits
        .since_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    let start = age.and_then(|age| SystemTime::now().checked_sub(Duration::from_secs(age)));
    match start.map(clock::rfc3339).or(limits.since_time.clone()) {
        Some(since) => request.query("sinceTime", since),
        None => request,
    }
}

/// Keeps the end of a kubelet's log; returns what is wrong with it.
fn keep_kubelet_log(
    query: &Query<'_>,
    client: &Client,
    node: &str,
) -> Result<Option<String>, LogError> {
    let client = client.clone().within(LOG_ANSWER_TIMEOUT);
    let limits = &query.config.limits.pod_logs;
    for has_options in [true, false] {
        let request = log_query(node, limits, has_options);
        let stream = client.stream(&request, Some(SILENCE_TIMEOUT))?;
        let mut stream = BufReader::new(stream);
        let start = match stream.fill_buf() {
            Ok(start) => start,
            Err(error) => return Ok(Some(format!("the log was cut off: {error}"))),
        };
        if !start.starts_with(REFUSAL_START) {
            let place = format!("{HOSTS}/{}/{KUBELET_LOG}", component(node));
            return Ok(keep_log(query, stream, &place, LOG_TIMEOUT, |_| ())?);
        }
        let mut refusal = Vec::new();
        // What cannot be read is not the reason.
        let _ = stream.take(MAX_REFUSAL_BYTES).read_to_end(&mut refusal);
        let refusal = String::from_utf8_lossy(&refusal).trim().replace('\n', "; ");
        if !(has_options && refusal.contains(REFUSED_OPTIONS)) {
            return Ok(Some(format!(
                "the kubelet has no log of its own: {refusal}"
            )));
        }
    }
    Ok(None)
}

/// Why a log is not kept.
enum LogError {
    Refused(Error),
    Fault(Fault),
}

impl From<Error> for LogError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Fault> for LogError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Whether a kubelet with these settings answers log queries: another one lists files instead.
fn answers_log_queries(settings: &Value) -> bool {
    let settings = &settings["kubeletconfig"];
    settings["enableSystemLogQuery"] == true && settings["enableSystemLogHandler"] != false
}

/// Queries one node.
pub(super) fn fetch_host(
    query: &Query<'_>,
    kubelets: &Kubelets,
    node: &str,
) -> Result<Records, Fault> {
    let mut answer = Records::default();
    let client = query
        .client
        .clone()
        .within(ANSWER_TIMEOUT)
        .retry_timeout(RETRY_TIMEOUT)
        .no_retry_codes(UNREACHABLE);
    let folder = query.folder.join(HOSTS).join(component(node));
    let ask = |path: &str| {
        Request::get(&Resource::NODES, "", node)
            .subresource("proxy")
            .subresource(path)
    };
    let mut failed = |what: &str, error: &Error| {
        if kubelets.failed(node, error) {
            return Err(Fault::LeftOut);
        }
        answer.troubles.push(FailedQuery::new(
            "Nodes",
            "",
            &format!("{node}/{what}"),
            error.to_string(),
        ));
        Ok(())
    };
    let mut has_log = false;
    match client.send(&ask("configz")) {
        Ok(mut settings) => {
            kubelets.answered(node);
            has_log = answers_log_queries(&settings);
            if let Some(redactor) = query.redactor {
                redactor.document(&mut settings);
            }
            keep(&folder.join(KUBELET_CONFIG), settings.to_string())?;
        }
        Err(error) => failed("configz", &error)?,
    }
    // Only the status matters, and that of an unhealthy node is valid too; missing permissions are
    // not.
    let healthz = client.text(&ask("healthz"), MAX_TEXT_BYTES).map(|_| 200);
    match healthz.or_else(|error| {
        error
            .code()
            .filter(|code| !matches!(code, 401 | 403))
            .ok_or(error)
    }) {
        Ok(status) => keep(
            &folder.join(KUBELET_HEALTH),
            json!({"status": status}).to_string(),
        )?,
        Err(error) => failed("healthz", &error)?,
    }
    match client.text(&ask("metrics/resource"), MAX_TEXT_BYTES) {
        Ok(metrics) => keep(&folder.join(KUBELET_METRICS), metrics)?,
        // Available since 1.18, but not from every virtual kubelet.
        Err(error) if error.is_not_found() => {}
        Err(error) => failed("metrics/resource", &error)?,
    }
    if has_log && includes_logs(query.config) {
        match keep_kubelet_log(query, &client, node) {
            Ok(cut) => {
                let name = format!("{node}/logs");
                let trouble = |error| FailedQuery::new("Nodes", "", &name, error);
                answer.troubles.extend(cut.map(trouble));
            }
            Err(LogError::Refused(error)) => failed("logs", &error)?,
            Err(LogError::Fault(fault)) => return Err(fault),
        }
    }
    Ok(answer)
}

/// Reason in a normalised form, for grouping nodes.
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
    use kube::Stage;

    use super::*;

    fn refusal(code: u16) -> Error {
        Error::from_answer(code, None, b"no", "GET /x")
    }

    fn silence() -> Error {
        Error::Transport {
            what: "GET /x".into(),
            why: "no answer in time".into(),
            stage: Stage::Sent,
        }
    }

    #[test]
    fn log_is_queried_within_the_limits_of_logs() {
        let query = |limits: &config::PodLogs, has_options| {
            let query = log_query("n", limits, has_options).query;
            let pairs = query
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>().join("&")
        };
        let mut limits = config::PodLogs::default();
        assert_eq!(query(&limits, true), "query=kubelet&tailLines=10000");
        assert_eq!(query(&limits, false), "query=kubelet");
        limits.tail_lines = Some(7_000_000);
        limits.since_time = Some("2026-01-02T03:04:05Z".into());
        assert_eq!(
            query(&limits, true),
            "query=kubelet&tailLines=100000&sinceTime=2026-01-02T03:04:05Z"
        );
        limits.since_time = None;
        limits.since_seconds = Some(60);
        let minute = query(&limits, true);
        let since = minute.rsplit('=').next().and_then(clock::parse_rfc3339);
        let age = since.unwrap().elapsed().unwrap();
        assert!((59..70).contains(&age.as_secs()), "{minute}");
    }

    #[test]
    fn absent_kubelet_is_queried_once() {
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
        assert!(
            !kubelets.failed("n", &refusal(500)),
            "one container's log is not the whole node"
        );
        assert!(kubelets.failed("n", &refusal(500)));
        assert!(!kubelets.may_ask("n") && !kubelets.may_ask("n"));
        let told = kubelets.troubles();
        assert_eq!(told.len(), 1);
        assert!(
            told[0]
                .error
                .starts_with("3 requests for its data and logs are skipped"),
            "{told:?}"
        );
    }

    #[test]
    fn only_responding_kubelets_continue_after_the_limit() {
        let over = Instant::now();
        let kubelets = Kubelets::new(Some(SnapshotDeadlines {
            due: over,
            end: over,
            limit: Duration::from_secs(120),
        }));
        kubelets.answered("good");
        assert!(
            kubelets.may_ask("good") && kubelets.may_ask("new"),
            "most answer"
        );
        assert!(kubelets.failed("bad", &refusal(500)));
        assert!(
            kubelets.may_ask("good") && !kubelets.may_ask("newer"),
            "half do not"
        );
        let told: Vec<_> = kubelets
            .troubles()
            .into_iter()
            .map(|trouble| (trouble.name, trouble.error))
            .collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[1].1.contains("the 2m0s for the snapshot were up"),
            "{told:?}"
        );
    }

    #[test]
    fn time_limit_of_kubelets_is_a_tenth_of_the_run() {
        let seconds = Duration::from_secs;
        assert!(SnapshotDeadlines::new(seconds(0), seconds(100)).is_none());
        let times = SnapshotDeadlines::new(seconds(120), seconds(90)).unwrap();
        assert_eq!(times.end - times.due, seconds(9));
    }
}
