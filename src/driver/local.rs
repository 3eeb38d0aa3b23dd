//! Runs plugins on this machine: a pod is a worker and the plugin's commands as child processes.
//!
//! A pod has a directory with its results and config files, and one log per container, at the same path as in a
//! cluster. Its processes are in separate process groups, and none outlives [`Driver::run`]. Starts a thread for each
//! pod and for each of its processes, and joins them.

use base::at::At as _;
use base::sys::Open as _;
use std::cell::Cell;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::container::{self, Container, Facts};
use super::lifeline;
use super::pod::object_name;
use super::process::{self, Talk};
use super::{Driver, Plugin, Proof};
use crate::layout;
use crate::names::{RESULTS_VOLUME, WORKER_CONTAINER, env};
use crate::plugin::Definition;
use base::stop::{Stop, caught};
use base::sys::{self, Group};
use client::env as var;
use client::protocol::{DONE_FILE, Failure, Finding, ResultId};

/// Time between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(2);

/// Runs plugins on this machine.
pub(crate) struct Local {
    /// This program, which also contains the worker.
    pub program: PathBuf,
    /// Parent of the pods' directories.
    pub pods: PathBuf,
    /// Directory of the run, for the logs of containers.
    pub run_dir: PathBuf,
    /// The address of the aggregator, `https://host:port`.
    pub aggregator: String,
    /// Certificate of the run's authority, PEM.
    pub ca_cert: String,
    /// Namespace given to pods.
    pub namespace: String,
    /// Node of plugins that run once.
    pub node: String,
    /// Environment of workers, unless the plugin overrides it.
    pub worker_env: Vec<(String, String)>,
}

/// Checks that a definition can run here, before anything is started.
pub(crate) fn check(definition: &Definition) -> anyhow::Result<()> {
    container::check(definition)?;
    for file in definition.config_map.keys() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !matches!(file.as_str(), "" | "." | "..") && file.chars().all(plain),
            "plugin `{}`: `{file}` in its config-map is not a file name",
            definition.name()
        );
    }
    Ok(())
}

/// Adopts processes that plugins leave behind; [`end_strays`] kills them.
pub(crate) fn adopt_strays() {
    if let Err(error) = sys::adopt_strays() {
        log::debug!("processes that plugins leave behind may not be found: {error}");
    }
}

/// Kills processes that plugins left behind, and all other children of this process. For the end of a run.
pub(crate) fn end_strays() {
    sys::end_strays();
}

impl Driver for Local {
    fn run(&self, plugin: &Plugin<'_>, findings: &SyncSender<Finding>, stop: &Stop) -> anyhow::Result<()> {
        thread::scope(|scope| {
            for id in &plugin.ids {
                let fail = move |error: anyhow::Error| {
                    let failure = Failure::new(id.clone(), format!("{error:#}"));
                    // The receiver lives as long as the run; once it has ended, failures no longer matter.
                    drop(findings.send(Finding::Failure(failure)));
                };
                let pod = move || {
                    caught(|| self.run_pod(plugin, id, findings, stop)).unwrap_or_else(fail);
                };
                let pod = thread::Builder::new().name(format!("pod {id}")).spawn_scoped(scope, pod);
                pod.context("cannot start a thread for it").map_or_else(fail, drop);
            }
            Ok(())
        })
    }

    fn remove(&self, plugin: &Plugin<'_>) -> anyhow::Result<()> {
        let dir = self.pods.join(plugin.definition.name());
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).at("cannot remove", &dir)
            }
            _ => Ok(()),
        }
    }
}

impl Local {
    fn run_pod(
        &self,
        plugin: &Plugin<'_>,
        id: &ResultId,
        findings: &SyncSender<Finding>,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let pod = Pod::prepare(self, plugin, id, stop)?;
        let (first, together) = container::containers(plugin.definition);
        // Capacity for every possible event, so that no sender blocks.
        let starts = (together.len() + first.len()) * (1 + usize::from(plugin.definition.max_failures()));
        let (sender, receiver) = sync_channel(starts + 2);
        thread::scope(|scope| {
            let watch = |at: At, mut child: Child| {
                let sender = sender.clone();
                let wait = move || drop(sender.send(Event::Ended(at, child.wait())));
                thread::Builder::new().name("process".into()).spawn_scoped(scope, wait).map(drop)
            };
            let asked = sender.clone();
            let _asked = stop.on_stop(move || drop(asked.try_send(Event::Stop)));
            let events = Events { receiver, alive: Cell::new(0) };
            let mut groups = Groups { all: Vec::new(), lifeline: None };
            let result = pod.live(&first, &together, &mut groups, &watch, &events, findings);
            if let Err(error) = &result {
                let _ = findings.send(Finding::Failure(Failure::new(id.clone(), format!("{error:#}"))));
            }
            events.end(groups);
            Ok(())
        })
    }
}

/// A process of a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Worker,
    /// In place of a worker: only kills the plugin if this process is killed.
    Keeper,
    First,
    Together(usize),
}

enum Event {
    Ended(At, std::io::Result<ExitStatus>),
    Stop,
}

/// Events of a pod, and the number of its running processes.
struct Events {
    receiver: Receiver<Event>,
    alive: Cell<usize>,
}

impl Events {
    fn next(&self) -> anyhow::Result<Event> {
        let event = self.receiver.recv().context("nothing runs any more")?;
        if matches!(event, Event::Ended(..)) {
            self.alive.update(|alive| alive - 1);
        }
        Ok(event)
    }

    /// The next event except the keeper's end.
    fn next_but_keeper(&self) -> anyhow::Result<Event> {
        loop {
            match self.next()? {
                Event::Ended(At::Keeper, _) => {}
                event => return Ok(event),
            }
        }
    }

    /// Ends all processes and their children.
    fn end(self, groups: Groups) {
        groups.all.iter().for_each(Group::terminate);
        let deadline = Instant::now() + GRACE;
        let mut alive = self.alive.get();
        while alive > 0 {
            match self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Ended(..)) => alive -= 1,
                Ok(Event::Stop) => {}
                Err(_) => break,
            }
        }
        // Dropping a group kills its remaining processes.
        drop(groups);
    }
}

/// Process groups of a pod; the first holds the lifeline: the worker, or a keeper.
struct Groups {
    all: Vec<Group>,
    /// Standard input of the lifeline's holder. Receives the number of each group; kills all groups if closed early.
    lifeline: Option<ChildStdin>,
}

impl Groups {
    fn add(&mut self, group: Group, child: &mut Child) {
        match &mut self.lifeline {
            // A holder that has ended needs no update.
            Some(lifeline) => drop(writeln!(lifeline, "{}", group.id())),
            None => self.lifeline = child.stdin.take(),
        }
        self.all.push(group);
    }
}

/// One plugin on one node.
struct Pod<'a> {
    local: &'a Local,
    plugin: &'a Plugin<'a>,
    id: &'a ResultId,
    node: &'a str,
    name: String,
    dir: PathBuf,
    logs: PathBuf,
    stop: &'a Stop,
}

impl<'a> Pod<'a> {
    fn prepare(
        local: &'a Local,
        plugin: &'a Plugin<'a>,
        id: &'a ResultId,
        stop: &'a Stop,
    ) -> anyhow::Result<Self> {
        let definition = plugin.definition;
        let mut name = object_name(definition, &plugin.session);
        let node = match definition.config.driver.is_per_node() {
            true => {
                name += &format!("-{}", id.node);
                id.node.as_str()
            }
            false => local.node.as_str(),
        };
        let dir = local.pods.join(definition.name()).join(&id.node);
        let logs = local.run_dir.join(layout::pod_logs(&local.namespace, &name));
        let pod = Self { local, plugin, id, node, name, dir, logs, stop };
        for dir in [&pod.results(), &pod.config(), &pod.logs] {
            fs::create_dir_all(dir).at("cannot create", dir)?;
        }
        if let Proof::Tokens(tokens) = &plugin.proof
            && let Some(token) = tokens.get(id)
        {
            let path = pod.token();
            let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut file| file.write_all(token.as_bytes())).at("cannot write", &path)?;
        }
        for (file, text) in &definition.config_map {
            let path = pod.config().join(file);
            fs::write(&path, text).at("cannot write", &path)?;
        }
        Ok(pod)
    }

    /// Starts all processes in order, and watches them until the end of the pod is requested.
    fn live(
        &self,
        first: &[&Value],
        together: &[&Value],
        groups: &mut Groups,
        watch: &dyn Fn(At, Child) -> std::io::Result<()>,
        events: &Events,
        findings: &SyncSender<Finding>,
    ) -> anyhow::Result<()> {
        let mut keep = |at, (group, mut child): (Group, Child)| {
            groups.add(group, &mut child);
            watch(at, child).context("cannot start a thread that waits for a process")?;
            events.alive.update(|alive| alive + 1);
            anyhow::Ok(())
        };
        let plugin = self.plugin.definition.name();
        let volumes = container::host_volumes(self.plugin.definition);
        let facts =
            Facts { node: self.node, pod: &self.name, namespace: &self.local.namespace, volumes: &volumes };

        // The worker inherits variables of the plugin, so they are resolved before its port is known.
        let has_worker = self.plugin.definition.config.has_worker();
        let given = if has_worker {
            let own = container::resolve(
                plugin,
                &self.plugin.definition.spec,
                &facts,
                &self.shared_variables(Some(0)),
            )?;
            let (group, mut child) = self.start_worker(&own)?;
            let number = group.id();
            let _asked = self.stop.on_stop(move || sys::kill_group(number));
            let port = child.stdout.take().and_then(|stdout| {
                let mut line = String::new();
                BufReader::new(stdout).read_line(&mut line).ok()?;
                line.trim().parse::<u16>().ok()
            });
            keep(At::Worker, (group, child))?;
            if port.is_none() {
                bail!("the worker did not start: {}", process::tail(&self.log(WORKER_CONTAINER)));
            }
            self.shared_variables(port)
        } else {
            keep(At::Keeper, self.start_keeper()?)?;
            self.shared_variables(None)
        };

        let max_failures = self.plugin.definition.max_failures();
        for value in first {
            let container = container::resolve(plugin, value, &facts, &given)?;
            for failures in 0..=max_failures {
                keep(At::First, self.start(&container)?)?;
                match events.next_but_keeper()? {
                    Event::Stop => return Ok(()),
                    Event::Ended(At::First, status) => {
                        let status = status?;
                        if status.success() {
                            break;
                        }
                        if failures == max_failures {
                            let _ = findings.send(Finding::Failure(self.failure(&container.name, status)));
                            return Ok(());
                        }
                    }
                    Event::Ended(_, status) => bail!("{}", self.worker_failure(status?)),
                }
            }
        }

        let mut containers = Vec::new();
        for (index, value) in together.iter().enumerate() {
            let container = container::resolve(plugin, value, &facts, &given)?;
            keep(At::Together(index), self.start(&container)?)?;
            containers.push((container, 0));
        }
        let mut open = containers.len();
        let mut all_well = true;
        loop {
            match events.next_but_keeper()? {
                Event::Stop => return Ok(()),
                Event::Ended(At::Worker, status) => {
                    let status = status?;
                    if !status.success() {
                        let failure = Failure::new(self.id.clone(), self.worker_failure(status));
                        let _ = findings.send(Finding::Failure(failure));
                    }
                }
                Event::Ended(At::First | At::Keeper, _) => {}
                Event::Ended(At::Together(index), status) => {
                    let status = status?;
                    let last = index + 1 == containers.len();
                    let (container, failures) = &mut containers[index];
                    if !status.success() && *failures < max_failures {
                        *failures += 1;
                        log::info!(
                            "container `{}` of `{}` {} and is started again",
                            container.name,
                            self.id,
                            process::ending(status)
                        );
                        keep(At::Together(index), self.start(container)?)?;
                        continue;
                    }
                    open -= 1;
                    all_well &= status.success();
                    let counts = last || open == 0;
                    if open == 0 && all_well && !has_worker {
                        // A result that was sent before the failure wins over it.
                        let _ = findings.send(Finding::Failure(self.failure(&container.name, status)));
                    } else if open == 0 && all_well {
                        let marker = self.marker();
                        fs::write(&marker, "").at("cannot write", &marker)?;
                    } else if !all_well && counts && !self.results().join(DONE_FILE).exists() {
                        let _ = findings.send(Finding::Failure(self.failure(&container.name, status)));
                    }
                }
            }
        }
    }

    fn start_worker(&self, plugin: &Container) -> anyhow::Result<(Group, Child)> {
        let mut command = Command::new(&self.local.program);
        let role = self.plugin.definition.config.driver.worker_role();
        let results = self.results();
        command
            .args(["worker", role, "--level=info"])
            .env_clear()
            .envs(self.local.worker_env.iter().map(|(name, value)| (name, value)))
            .envs(plugin.env.iter().map(|(name, value)| (name, value)))
            .env(var::NODE_NAME, self.node)
            .env(env::OLD_RESULTS_DIR, &results)
            .env(env::RESULTS_DIR, &results)
            .env(var::RESULT_TYPE, self.plugin.definition.name())
            .env(var::AGGREGATOR_URL, &self.local.aggregator)
            .env(var::CA_CERT, &self.local.ca_cert)
            .env(var::TOKEN_FILE, self.token())
            .env(env::NAMESPACE, &self.local.namespace)
            .env(env::PLUGIN_POD, &self.name)
            .env(env::WORKER_CONTAINER, WORKER_CONTAINER)
            .env(env::OTHERS_ENDED_FILE, self.marker())
            // The worker kills the plugin's processes if this process is killed.
            .env(env::LIFELINE, lifeline::BESIDE)
            // Many pods share this machine's ports, so each takes a free one and announces it.
            .env(env::PROGRESS_PORT, "0")
            // At the end of the pod its result has arrived, or is not wanted.
            .env(env::SHUTDOWN_GRACE, "0s");
        if self.plugin.definition.config.results_anywhere {
            command.env(env::RESULTS_ANYWHERE, "true");
        }
        let program = self.local.program.display();
        process::start(&mut command, &self.log(WORKER_CONTAINER), Talk::WithUs)
            .with_context(|| format!("cannot start the worker `{program}`"))
    }

    /// Starts a keeper for a plugin without a worker.
    fn start_keeper(&self) -> anyhow::Result<(Group, Child)> {
        let mut command = Command::new(&self.local.program);
        command
            .args(["worker", "global"])
            .env_clear()
            .env(env::RESULTS_DIR, self.results())
            .env(env::LIFELINE, lifeline::ALONE);
        process::start(&mut command, &self.dir.join("keeper.txt"), Talk::WithUs)
            .at("cannot start", &self.local.program)
    }

    fn start(&self, container: &Container) -> anyhow::Result<(Group, Child)> {
        let [program, args @ ..] = container.command.as_slice() else {
            bail!("container `{}` has no command", container.name);
        };
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(container.env.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &container.dir {
            command.current_dir(dir);
        }
        process::start(&mut command, &self.log(&container.name), Talk::Alone).with_context(|| {
            format!("cannot start the command `{program}` of container `{}`", container.name)
        })
    }

    /// Variables of every container of the pod: the worker's port, or all that a plugin without worker needs to
    /// upload.
    fn shared_variables(&self, port: Option<u16>) -> Vec<(String, String)> {
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let channel = match port {
            Some(port) => vec![(env::PROGRESS_PORT, port.to_string())],
            None => vec![
                (var::AGGREGATOR_URL, self.local.aggregator.clone()),
                (var::CA_CERT, self.local.ca_cert.clone()),
                (var::RESULT_TYPE, self.plugin.definition.name().to_owned()),
                (var::TOKEN_FILE, path(self.token())),
                (var::RESULT_URL, format!("{}{}", self.local.aggregator, self.id.result_path())),
                (var::PROGRESS_URL, format!("{}{}", self.local.aggregator, self.id.progress_path())),
            ],
        };
        let common = [
            (var::NODE_NAME, self.node.to_owned()),
            (env::OLD_RESULTS_DIR, path(self.results())),
            ("SONOBUOY", "true".to_owned()),
            (env::AGGREGATOR_URL, self.local.aggregator.clone()),
            (env::CONFIG_DIR, path(self.config())),
            (env::RESULTS_DIR, path(self.results())),
        ];
        common.into_iter().chain(channel).map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn failure(&self, container: &str, status: ExitStatus) -> Failure {
        let (ending, said) = (process::ending(status), self.last_output(container));
        let mut failure = Failure::new(
            self.id.clone(),
            format!("container `{container}` {ending} and left no result; {said}"),
        );
        if let Some(code) = status.code() {
            failure.report.insert("exit-code".into(), code.into());
        }
        failure
    }

    fn worker_failure(&self, status: ExitStatus) -> String {
        format!(
            "the worker {} and left no result; {}",
            process::ending(status),
            self.last_output(WORKER_CONTAINER)
        )
    }

    fn last_output(&self, container: &str) -> String {
        let tail = process::tail(&self.log(container));
        if tail.is_empty() { "it printed nothing".into() } else { format!("its last output:\n{tail}") }
    }

    fn results(&self) -> PathBuf {
        self.dir.join(RESULTS_VOLUME)
    }

    fn config(&self) -> PathBuf {
        self.dir.join("config")
    }

    /// File with the token of this pod.
    fn token(&self) -> PathBuf {
        self.dir.join("token")
    }

    /// File that signals the worker that all containers have succeeded.
    fn marker(&self) -> PathBuf {
        self.dir.join("ended")
    }

    fn log(&self, container: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        self.logs.join(format!("{}.txt", container.chars().map(plain).collect::<String>()))
    }
}
