//! The snapshot of the cluster: every object that can be listed, pod logs, what nodes and the
//! server say about themselves.
//!
//! Owns what to query, the files with the answers, and the records of what could not be retrieved.
//! A failing group, node or log never stops the rest: it is recorded, and only a folder that is not
//! writable ends a snapshot. Knows nothing about plugins or archives: it fills a folder. Threads:
//! [`WORKERS`], which take one query after the other, and one that waits for the end of the time;
//! the client limits the rate.

mod kubelets;
mod log_file;
mod logs;
mod objects;
mod redact;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use regex::Regex;
use serde::Serialize;
use serde_json::Value;

use base::at::At as _;
use base::json::{self, json};
use base::stop::{Stop, StopOnDrop};
use base::{clock, lock, pattern, visible};
use kube::{self, Object as _};
pub use model::health::FailedQuery;
use model::health::{Detail, Health};
use model::{config, layout};

use kubelets::{Kubelets, SnapshotDeadlines};
pub use redact::Redactor;

/// Concurrent queries; the client's rate limit protects the server.
pub const WORKERS: usize = 16;
/// Time limit for retries of a query: enough for a server to restart, while a permanently missing
/// one must not delay the rest.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum length of a name before it is shortened; file systems allow 255 bytes including the
/// extension.
const MAX_NAME_BYTES: usize = 200;
/// Maximum size of responses held in memory: versions, groups, settings of a kubelet.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// Lines of logs that are counted, by the name of their kind.
static COUNTED: LazyLock<[(Regex, &str); 2]> = LazyLock::new(|| {
    let kinds = [
        (r"[fF]ailed|[eE]rror|^E[0-9]+|level=error", "Errors"),
        (r"[wW]arn|^W[0-9]+|level=warn", "Warnings"),
    ];
    kinds.map(|(pattern, kind)| (Regex::new(pattern).expect("a valid pattern"), kind))
});

/// How to take a snapshot.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// Access to the cluster, at the permitted rate.
    pub client: &'a kube::Client,
    /// What to query.
    pub config: &'a config::Run,
    /// What to hide, if anything.
    pub redactor: Option<&'a Redactor>,
    /// The folder to fill.
    pub folder: &'a Path,
    /// Concurrent queries: [`WORKERS`], except for benchmarks.
    pub workers: usize,
}

/// The outcome of a snapshot.
#[derive(Default)]
pub struct SnapshotSummary {
    /// Successful queries.
    pub answered: usize,
    /// Failed queries, each with its reason.
    pub errors: Vec<FailedQuery>,
}

/// A query.
struct QueryTask {
    /// Its name in `meta/query-time.json`.
    queryobj: String,
    namespace: String,
    /// The node, or pod and container.
    name: String,
    /// The node whose kubelet responds; empty for none.
    node: String,
    what: What,
}

enum What {
    List(objects::Listing),
    Host,
    Log(logs::LogRequest),
    Version,
    Groups,
}

/// Why a query has no answer.
enum Fault {
    /// Missing permissions; recorded.
    Forbidden(String),
    /// Any other failure of the cluster; recorded.
    Refused(String),
    /// Not sent, or failed because of the node, which is reported once.
    LeftOut,
    /// Ends the snapshot: the folder is not writable.
    Disk(anyhow::Error),
}

/// A line of `meta/query-time.json`.
#[derive(Serialize)]
struct Timing {
    queryobj: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Query<'_> {
    /// Takes the snapshot. `Err` only if nothing could be queried or the folder is not writable.
    pub fn run(&self, stop: &Stop) -> Result<SnapshotSummary> {
        let meta = self.folder.join(layout::META);
        fs::create_dir_all(&meta).at("cannot create", &meta)?;
        let namespaces =
            pattern::compile(&self.config.filters.namespaces).map_err(anyhow::Error::msg)?;
        let choice = logs::PodSelection::new(self.config)?;
        let mut records = Records::default();

        let limit = match self.config.server.timeout_seconds {
            0 => config::Run::standard().server.timeout_seconds,
            seconds => seconds,
        };
        let limit = Duration::from_secs(limit.try_into().unwrap_or_default());
        let times = SnapshotDeadlines::new(self.config.limits.snapshot.time, limit);

        let labels = objects::checked("Filters.LabelSelector", &self.config.filters.label_selector);
        let plan = objects::plan(self, &namespaces, labels, &mut records.troubles)?;
        let kubelets = Kubelets::new(times);
        let time_left = times.map_or(Duration::MAX, |times| {
            times.end.saturating_duration_since(Instant::now())
        });
        // A fatal failure also ends active queries, and so does the time limit.
        stop.within(time_left, |end| -> Result<()> {
            let client = self.client.under(end).retry_timeout(RETRY_TIMEOUT);
            let query = Query {
                client: &client,
                ..*self
            };
            query.carry_out(plan.tasks, &kubelets, end, &mut records)?;
            let logs = plan
                .logs
                .then(|| choice.tasks(&query, &plan.known, &mut records.troubles));
            query.carry_out(logs.unwrap_or_default(), &kubelets, end, &mut records)?;
            if end.stopped() && !stop.stopped() {
                log::warn!("the snapshot's time is up: the rest is skipped");
            }
            Ok(())
        })??;
        records.troubles.extend(kubelets.troubles());
        ensure!(!stop.stopped(), "the snapshot was interrupted");
        records.write(self.folder, self.redactor)?;
        Ok(SnapshotSummary {
            answered: records.answered,
            errors: records.troubles,
        })
    }

    /// Keeps the logs of one pod, if the settings select them.
    pub fn keep_logs(&self, pod: &Value, stop: &Stop) -> Result<()> {
        let tasks = logs::PodSelection::new(self.config)?.of_pod(pod, self.config);
        let mut records = Records::default();
        self.carry_out(tasks, &Kubelets::new(None), &stop.child(), &mut records)?;
        match records.troubles.pop() {
            Some(trouble) => Err(anyhow!("{}", trouble.error)),
            None => Ok(()),
        }
    }

    /// Performs all tasks in parallel, and records them in their order.
    fn carry_out(
        &self,
        tasks: Vec<QueryTask>,
        kubelets: &Kubelets,
        stop: &Stop,
        records: &mut Records,
    ) -> Result<()> {
        let (next, total) = (AtomicUsize::new(0), tasks.len());
        let outcomes = Mutex::new(BTreeMap::new());
        let over = stop.child();
        let work = || {
            let _over = StopOnDrop(&over);
            while !stop.stopped() {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(index) else { return };
                let begin = Instant::now();
                let mut outcome = self.ask(task, kubelets);
                match outcome {
                    Err(Fault::Disk(_)) => stop.stop(),
                    Err(Fault::Refused(_)) if stop.stopped() => outcome = Err(overdue()),
                    _ => {}
                }
                lock(&outcomes).insert(index, (begin.elapsed(), outcome));
            }
        };
        std::thread::scope(|scope| {
            let start = |number: &usize| {
                let thread = base::thread(format!("query {number}"));
                thread
                    .spawn_scoped(scope, work)
                    .inspect_err(|error| log::debug!("{error}"))
                    .is_ok()
            };
            // One thread is enough to make progress.
            if (0..self.workers.min(total)).filter(start).count() == 0 {
                work();
            }
            while !over.wait(PROGRESS_INTERVAL) {
                log::info!("{} of {total} queries were answered", lock(&outcomes).len());
            }
        });
        let mut outcomes = outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        for (index, task) in tasks.into_iter().enumerate() {
            // Tasks that were not performed were skipped for lack of time.
            let (time, outcome) = outcomes.remove(&index).unwrap_or_else(|| {
                let is_of_node = !task.node.is_empty();
                (
                    Duration::ZERO,
                    Err(if is_of_node {
                        kubelets.leave_out(&task.node)
                    } else {
                        overdue()
                    }),
                )
            });
            records.add(task, time, outcome)?;
        }
        Ok(())
    }

    fn ask(&self, task: &QueryTask, kubelets: &Kubelets) -> Result<Records, Fault> {
        if !kubelets.may_ask(&task.node) {
            return Err(Fault::LeftOut);
        }
        let get = |path: &str| {
            self.client
                .send(&kube::Request::raw(kube::Method::GET, path))
        };
        let (file, document) = match &task.what {
            What::List(listing) => return listing.fetch(self, &task.namespace),
            What::Host => return kubelets::fetch_host(self, kubelets, &task.node),
            What::Log(log) => return log.fetch(self, kubelets, task),
            What::Version => (layout::SERVER_VERSION, get("/version")?),
            What::Groups => (
                layout::SERVER_GROUPS,
                server_groups(&get("/api")?, get("/apis")?),
            ),
        };
        keep(&self.folder.join(file), document.to_string())?;
        let mut answer = Records::default();
        answer.health.api_version = document["gitVersion"].text().into();
        Ok(answer)
    }
}

/// API groups as the original's client library lists them: the core group first, without a name.
fn server_groups(core: &Value, mut groups: Value) -> Value {
    let versions: Vec<_> = core["versions"]
        .items()
        .map(|version| json!({"groupVersion": version, "version": version}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    let legacy = json!({"name": "", "versions": versions, "preferredVersion": preferred});
    json::list_in(&mut groups, "groups").insert(0, legacy);
    groups
}

/// The fault of skipped queries that are not about a node.
fn overdue() -> Fault {
    Fault::Refused("skipped: the time for the snapshot was up (`Limits.Snapshot.Time`)".into())
}

impl QueryTask {
    /// A query that no kubelet answers.
    fn new(queryobj: &str, namespace: &str, what: What) -> Self {
        let [queryobj, namespace] = [queryobj, namespace].map(str::to_owned);
        Self {
            queryobj,
            namespace,
            name: String::new(),
            node: String::new(),
            what,
        }
    }
}

impl From<kube::Error> for Fault {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Sink(why) => Self::Disk(why),
            other if other.is_forbidden() => Self::Forbidden(other.to_string()),
            other => Self::Refused(other.to_string()),
        }
    }
}

impl From<anyhow::Error> for Fault {
    fn from(error: anyhow::Error) -> Self {
        Self::Disk(error)
    }
}

/// What queries have found, written to `meta` at the end.
#[derive(Default)]
struct Records {
    timings: Vec<Timing>,
    troubles: Vec<FailedQuery>,
    health: Health,
    answered: usize,
}

impl Records {
    fn add(
        &mut self,
        task: QueryTask,
        time: Duration,
        outcome: Result<Records, Fault>,
    ) -> Result<()> {
        let error = match outcome {
            Ok(answer) => {
                self.answered += 1;
                self.health.add(answer.health);
                self.troubles.extend(answer.troubles);
                None
            }
            // Reported together with all other skipped queries of its node.
            Err(Fault::LeftOut) => Some("left out".to_owned()),
            Err(Fault::Disk(error)) => return Err(error),
            Err(Fault::Refused(why) | Fault::Forbidden(why)) => {
                self.troubles.push(FailedQuery::new(
                    &task.queryobj,
                    &task.namespace,
                    &task.name,
                    &*why,
                ));
                Some(why)
            }
        };
        let QueryTask {
            queryobj,
            namespace,
            ..
        } = task;
        self.timings.push(Timing {
            queryobj,
            namespace,
            time: clock::duration(time),
            error,
        });
        Ok(())
    }

    fn write(&self, folder: &Path, redactor: Option<&Redactor>) -> Result<()> {
        write_json(&folder.join(layout::HEALTH), &self.health)?;
        write_json(&folder.join(layout::QUERY_ERRORS), &self.troubles)?;
        write_json(&folder.join(layout::QUERY_TIMES), &self.timings)?;
        match redactor {
            Some(redactor) => write_json(&folder.join(layout::REDACTIONS), &redactor.counts()),
            None => Ok(()),
        }
    }
}

fn write_json(path: &Path, document: &impl Serialize) -> Result<()> {
    fs::write(path, serde_json::to_vec(document)?).at("cannot write", path)
}

/// Counts an object in the health of the cluster, before it is written.
fn count_object<'o>(health: &mut Health, resource: &kube::Resource, object: &'o Value) {
    let status = &object["status"];
    let detail = |healthy, condition: [&str; 3]| {
        let [ready, reason, message] = condition.map(str::to_owned);
        let (name, namespace) = (object.name().into(), object.namespace().into());
        vec![Detail {
            name,
            healthy,
            ready,
            reason,
            message,
            namespace,
        }]
    };
    let of =
        |condition: &'o Value| ["status", "reason", "message"].map(|key| condition[key].text());
    let ready = ["Ready", "", ""];
    match (&*resource.group, &*resource.plural) {
        ("", "nodes") => {
            let condition = object.condition("Ready").map_or(ready, of);
            health
                .node_health
                .add(detail(condition[0] == "True", condition));
        }
        ("", "pods") => {
            let healthy = status["phase"] == "Running" || status["phase"] == "Succeeded";
            let mut conditions = status["conditions"].items();
            let condition = match conditions.find(|condition| condition["status"] != "True") {
                _ if healthy => ready,
                Some(first) => of(first),
                None => {
                    let reason = if status["reason"].is_null() {
                        "phase"
                    } else {
                        "reason"
                    };
                    ["False", status[reason].text(), status["message"].text()]
                }
            };
            health.pod_health.add(detail(healthy, condition));
        }
        _ => {}
    }
}

/// Counts a suspicious line of the log stored in `file`.
fn count_log_line(health: &mut Health, file: &str, line: &str) {
    for (pattern, kind) in &*COUNTED {
        if pattern.is_match(line) {
            let files = health.error_summary.entry((*kind).into()).or_default();
            *files.entry(file.to_owned()).or_default() += 1;
        }
    }
}

/// Converts a name from the cluster to a file name: unchanged unless it could lead to another
/// folder.
fn component(name: &str) -> String {
    let plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | '%');
    if name.len() <= MAX_NAME_BYTES && !matches!(name, "" | "." | "..") && name.chars().all(plain) {
        return name.to_owned();
    }
    let mut out = base::percent_encoded(name).replace('.', "%2E");
    if name.is_empty() || out.len() > MAX_NAME_BYTES {
        // Truncated between characters; the digest distinguishes names with the same prefix.
        let digest = base::sha256(name);
        out = format!(
            "{}%{}",
            visible::head(&out, MAX_NAME_BYTES),
            base::hex(&digest.as_ref()[..8])
        );
    }
    out
}

/// Writes a small file and creates its parent folders.
fn keep(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    create_parent(path)?;
    fs::write(path, content).at("cannot write", path)
}

fn create_parent(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).at("cannot create", folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_snapshot_folder() {
        let check = |name: &str, expected: &str| assert_eq!(component(name), expected, "{name:?}");
        check("kube-system", "kube-system");
        check("node1.example.com", "node1.example.com");
        check("system:node", "system:node");
        check("..", "%2E%2E");
        check(".", "%2E");
        check("../../etc", "%2E%2E%2F%2E%2E%2Fetc");
        check("a\\b\0", "a%5Cb%00");
        check("a%2Fb", "a%25%32Fb".replace("%32", "2").as_str());
        check("", "%e3b0c44298fc1c14");
        let long = "ä".repeat(300);
        assert!(
            component(&long).len() < 230 && component(&long) != component(&(long.clone() + "b"))
        );
    }
}
