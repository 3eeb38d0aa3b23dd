//! The snapshot of the cluster: every object that can be listed, logs of pods, what nodes and the server say of
//! themselves.
//!
//! Owns what is asked for, the files that hold the answers, and the records of what could not be had. One failing
//! group, node or log never stops the rest: it is recorded, and only a folder that cannot be written to ends a
//! snapshot. Knows nothing of plugins or of archives: it fills a folder. Threads: [`WORKERS`] that take one
//! question after the other, and one that waits for the end of the time; the rate is the client's.

mod health;
mod hosts;
mod kubelets;
mod list;
mod logs;
mod plan;
mod redact;
mod selector;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use crate::{config, layout};
use base::clock;
use base::json::json;
use base::kube;
use base::pattern;
use base::stop::Stop;

use health::Health;
use kubelets::{Kubelets, Times};
pub(crate) use redact::Redactor;

/// Questions under way at once; the rate limit of the client keeps the server from harm.
pub(crate) const WORKERS: usize = 16;
/// A question is asked again for so long. A server that restarts is back by then; a group whose server is away for
/// good must not hold up the rest.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two words about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// The longest name that is used for a file as it is; file systems take 255 bytes with the ending.
const MAX_NAME_BYTES: usize = 200;
/// Bounds answers that are kept whole: versions, groups, settings of a kubelet.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// How a snapshot is taken.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    /// The way to the cluster, at the rate that is allowed.
    pub client: &'a kube::Client,
    /// What is asked for.
    pub config: &'a config::Run,
    /// What is hidden, if anything.
    pub redactor: Option<&'a Redactor>,
    /// The folder that is filled.
    pub folder: &'a Path,
    /// Questions under way at once: [`WORKERS`] but for measuring.
    pub workers: usize,
}

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// Questions that were answered.
    pub answered: usize,
    /// Questions that were not, each with its reason.
    pub errors: Vec<Trouble>,
}

/// A question that could not be answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Trouble {
    /// What was asked for: a plural, `Nodes`, `PodLogs`, ….
    pub queryobj: String,
    /// The namespace, if it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The node, or pod and container.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Why not.
    pub error: String,
}

/// One question.
enum Task {
    List(list::Listing),
    Host(String),
    Log(logs::Log),
    ServerVersion,
    ServerGroups,
}

/// Why a question has no answer.
enum Fault {
    /// We lack the right; recorded.
    Forbidden(String),
    /// Anything else on the side of the cluster; recorded.
    Refused(String),
    /// Not asked, or with no answer that only concerns this question; what was learned of the node is told once.
    LeftOut,
    /// Ends the snapshot: the folder cannot be written to.
    Disk(anyhow::Error),
}

/// What a question brought.
#[derive(Default)]
struct Answer {
    health: Health,
    troubles: Vec<Trouble>,
}

/// A question with what came of it.
struct Outcome {
    timing: Timing,
    name: String,
    came: Came,
}

/// What came of a question.
enum Came {
    Answer(Answer),
    Error(String),
    /// Told with all else that is left out of its node.
    LeftOut,
}

/// What is said of questions that are not about a node when the time was over before they were answered.
const OVERDUE: &str = "left out: the time of the snapshot was over (`Limits.Snapshot.Time`)";

/// One line of `meta/query-time.json`.
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
    /// Takes the snapshot. `Err` only if nothing could be asked or the folder could not be written to.
    pub(crate) fn run(&self, stop: &Stop) -> anyhow::Result<Summary> {
        let meta = self.folder.join(layout::META);
        fs::create_dir_all(&meta).with_context(|| format!("creating `{}`", meta.display()))?;
        let namespaces = pattern::compile(&self.config.filters.namespaces).map_err(|why| {
            anyhow::anyhow!("`Filters.Namespaces` `{}`: {why}", self.config.filters.namespaces)
        })?;
        let choice = logs::Choice::new(self.config)?;
        let mut records = Records::default();

        let limit = match self.config.server.timeout_seconds {
            0 => config::Run::default().server.timeout_seconds,
            seconds => seconds,
        };
        let times = Times::new(
            self.config.limits.snapshot.time,
            Duration::from_secs(limit.try_into().unwrap_or_default()),
        );

        let labels = selector::checked("Filters.LabelSelector", &self.config.filters.label_selector);
        let plan = plan::make(self, &namespaces, labels)?;
        records.troubles.extend(plan.troubles);
        if plan.namespaced {
            for namespace in &plan.namespaces {
                let folder = self.folder.join(layout::resources(Some(&component(namespace))));
                fs::create_dir_all(&folder).with_context(|| format!("creating `{}`", folder.display()))?;
            }
        }
        // What fails for good ends what is under way, too, and so does the time.
        let end = stop.child();
        let client = self.client.under(&end).patience(RETRY_TIMEOUT);
        let query = Query { client: &client, ..*self };
        let kubelets = Kubelets::new(times);
        std::thread::scope(|scope| -> anyhow::Result<()> {
            let clock = std::thread::Builder::new().name("snapshot time".into());
            clock.spawn_scoped(scope, || {
                if times.is_some_and(|times| !end.wait_until(times.end)) {
                    log::warn!("the time of the snapshot is over: the rest is left out");
                    end.stop();
                }
            })?;
            let work = || {
                records.take(query.carry_out(plan.tasks, &kubelets, &end)?);
                if plan.logs
                    && let Some(choice) = choice
                {
                    let tasks = choice.tasks(&query, &plan.known, &mut records.troubles);
                    records.take(query.carry_out(tasks, &kubelets, &end)?);
                }
                Ok(())
            };
            let worked = work();
            end.stop();
            worked
        })?;
        records.troubles.extend(kubelets.troubles());
        anyhow::ensure!(!stop.stopped(), "the snapshot was interrupted");
        records.write(self.folder, self.redactor)?;
        Ok(Summary { answered: records.answered, errors: records.troubles })
    }

    /// Carries out all tasks, several at once; what comes back is in the order of the tasks, whatever the timing.
    fn carry_out(&self, tasks: Vec<Task>, kubelets: &Kubelets, stop: &Stop) -> anyhow::Result<Vec<Outcome>> {
        let next = AtomicUsize::new(0);
        let total = tasks.len();
        let (sender, done) = mpsc::sync_channel(WORKERS);
        let mut outcomes: Vec<_> = (0..total).map(|_| None).collect();
        let mut broken = None;
        std::thread::scope(|scope| {
            for number in 0..self.workers.min(total) {
                let (sender, next, tasks) = (sender.clone(), &next, &tasks);
                let work = move || {
                    while !stop.stopped() {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(task) = tasks.get(index) else { return };
                        let begin = Instant::now();
                        let outcome = self.ask(task, kubelets);
                        if sender.send((index, begin.elapsed(), outcome)).is_err() {
                            return;
                        }
                    }
                };
                let started =
                    std::thread::Builder::new().name(format!("query {number}")).spawn_scoped(scope, work);
                if let Err(error) = started {
                    // One thread is enough to get through.
                    log::debug!("starting a thread: {error}");
                }
            }
            drop(sender);
            let (mut told, mut count) = (Instant::now(), 0);
            loop {
                if told.elapsed() >= PROGRESS_INTERVAL {
                    told = Instant::now();
                    log::info!("{count} of {total} questions are answered");
                }
                let (index, time, outcome) = match done.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(answer) => answer,
                    Err(mpsc::RecvTimeoutError::Timeout) => continue,
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                };
                count += 1;
                match outcome {
                    Ok(answer) => outcomes[index] = Some((time, Came::Answer(answer))),
                    Err(Fault::LeftOut) => outcomes[index] = Some((time, Came::LeftOut)),
                    Err(Fault::Refused(_)) if stop.stopped() => {
                        outcomes[index] = Some((time, Came::Error(OVERDUE.into())));
                    }
                    Err(Fault::Refused(why) | Fault::Forbidden(why)) => {
                        outcomes[index] = Some((time, Came::Error(why)));
                    }
                    Err(Fault::Disk(error)) => {
                        broken = Some(error);
                        stop.stop();
                        break;
                    }
                }
            }
            // Workers that still have something to say end when nobody listens.
            drop(done);
        });
        if let Some(error) = broken {
            return Err(error);
        }
        let timed = tasks.iter().zip(outcomes).map(|(task, outcome)| {
            // Whoever was not asked was left out by the time.
            let (time, came) = outcome.unwrap_or_else(|| match task.node().filter(|node| !node.is_empty()) {
                Some(node) => {
                    kubelets.leave_out(node);
                    (Duration::ZERO, Came::LeftOut)
                }
                None => (Duration::ZERO, Came::Error(OVERDUE.into())),
            });
            let (queryobj, namespace) = task.subject();
            let error = match &came {
                Came::Answer(_) => None,
                Came::Error(why) => Some(why.clone()),
                Came::LeftOut => Some("left out".into()),
            };
            let timing = Timing { queryobj, namespace, time: clock::duration(time), error };
            Outcome { timing, name: task.name(), came }
        });
        Ok(timed.collect())
    }

    fn ask(&self, task: &Task, kubelets: &Kubelets) -> Result<Answer, Fault> {
        if task.node().is_some_and(|node| !kubelets.may_ask(node)) {
            return Err(Fault::LeftOut);
        }
        match task {
            Task::List(listing) => listing.fetch(self),
            Task::Host(node) => hosts::fetch(self, kubelets, node),
            Task::Log(log) => log.fetch(self, kubelets),
            Task::ServerVersion => self.document("/version", layout::SERVER_VERSION, |found, health| {
                health.api_version = found["gitVersion"].as_str().unwrap_or_default().into();
            }),
            Task::ServerGroups => self.server_groups(),
        }
    }

    /// Keeps one JSON answer as it is, keys sorted.
    fn document(
        &self,
        path: &str,
        file: &str,
        note: impl FnOnce(&Value, &mut Health),
    ) -> Result<Answer, Fault> {
        let found = self.client.send(&kube::Request::raw(kube::Method::Get, path))?;
        let mut answer = Answer::default();
        note(&found, &mut answer.health);
        keep(&self.folder.join(file), found.to_string().as_bytes())?;
        Ok(answer)
    }

    /// The groups as the client library of the original lists them: the core group first, without a name.
    fn server_groups(&self) -> Result<Answer, Fault> {
        let core = self.client.send(&kube::Request::raw(kube::Method::Get, "/api"))?;
        let mut found = self.client.send(&kube::Request::raw(kube::Method::Get, "/apis"))?;
        let versions: Vec<_> = core["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|version| json!({"groupVersion": version, "version": version}))
            .collect();
        let preferred = versions.first().cloned().unwrap_or_default();
        let legacy = json!({"name": "", "versions": versions, "preferredVersion": preferred});
        match found["groups"].as_array_mut() {
            Some(groups) => groups.insert(0, legacy),
            None => found["groups"] = json!([legacy]),
        }
        keep(&self.folder.join(layout::SERVER_GROUPS), found.to_string().as_bytes())?;
        Ok(Answer::default())
    }
}

impl Task {
    /// What it is called in `meta/query-time.json`, and its namespace.
    fn subject(&self) -> (String, String) {
        match self {
            Self::List(listing) => (listing.resource.plural.to_string(), listing.namespace.clone()),
            Self::Host(_) => ("Nodes".into(), String::new()),
            Self::Log(log) => ("PodLogs".into(), log.namespace.clone()),
            Self::ServerVersion => ("serverversion".into(), String::new()),
            Self::ServerGroups => ("servergroups".into(), String::new()),
        }
    }

    /// The node whose kubelet answers it.
    fn node(&self) -> Option<&str> {
        match self {
            Self::Host(node) => Some(node),
            Self::Log(log) => Some(&log.node),
            _ => None,
        }
    }

    /// The node or the container it asks about.
    fn name(&self) -> String {
        match self {
            Self::Host(node) => node.clone(),
            Self::Log(log) => format!("{}/{}", log.pod, log.container),
            _ => String::new(),
        }
    }
}

impl From<kube::Error> for Fault {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Sink(why) => Self::Disk(anyhow::anyhow!(why)),
            other if other.is_forbidden() => Self::Forbidden(other.to_string()),
            other => Self::Refused(other.to_string()),
        }
    }
}

/// What is written into `meta` at the end.
#[derive(Default)]
struct Records {
    timings: Vec<Timing>,
    troubles: Vec<Trouble>,
    health: Health,
    answered: usize,
}

impl Records {
    fn take(&mut self, outcomes: Vec<Outcome>) {
        for Outcome { timing, name, came } in outcomes {
            match came {
                Came::LeftOut => {}
                Came::Answer(answer) => {
                    self.answered += 1;
                    self.health.add(answer.health);
                    self.troubles.extend(answer.troubles);
                }
                Came::Error(error) => self.troubles.push(Trouble {
                    queryobj: timing.queryobj.clone(),
                    namespace: timing.namespace.clone(),
                    name,
                    error,
                }),
            }
            self.timings.push(timing);
        }
    }

    fn write(&self, folder: &Path, redactor: Option<&Redactor>) -> anyhow::Result<()> {
        let mut files = BTreeMap::from([
            (layout::QUERY_TIMES, serde_json::to_vec(&self.timings)?),
            (layout::QUERY_ERRORS, serde_json::to_vec(&self.troubles)?),
            (layout::HEALTH, self.health.to_json()?),
        ]);
        if let Some(redactor) = redactor {
            files.insert(layout::REDACTIONS, serde_json::to_vec(&redactor.counts())?);
        }
        for (name, content) in files {
            let path = folder.join(name);
            fs::write(&path, content).with_context(|| format!("writing `{}`", path.display()))?;
        }
        Ok(())
    }
}

/// A name from the cluster as the name of a file or folder: as it is, unless it could lead elsewhere.
fn component(name: &str) -> String {
    let plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | '%');
    if name.len() <= MAX_NAME_BYTES && !matches!(name, "" | "." | "..") && name.chars().all(plain) {
        return name.to_owned();
    }
    let mut out = String::new();
    for c in name.chars() {
        if plain(c) && c != '.' {
            out.push(c);
        } else {
            out.extend(c.to_string().bytes().map(|byte| format!("%{byte:02X}")));
        }
    }
    if name.is_empty() || out.len() > MAX_NAME_BYTES {
        // Cut at a character; the digest keeps apart what begins alike.
        let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
        let end = (0..=MAX_NAME_BYTES.min(out.len())).rev().find(|at| out.is_char_boundary(*at));
        out.truncate(end.unwrap_or_default());
        out.push('%');
        out.push_str(&base::hex(&digest.as_ref()[..8]));
    }
    out
}

/// Writes a small file and the folders above it.
fn keep(path: &Path, content: &[u8]) -> Result<(), Fault> {
    let write = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, content)
    };
    write().with_context(|| format!("writing `{}`", path.display())).map_err(Fault::Disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_its_folder() {
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
        assert!(component(&long).len() < 230 && component(&long) != component(&(long.clone() + "b")));
    }
}
