//! Runs plugins on this machine: a pod is a worker and the plugin's commands as child processes.
//!
//! A pod has a directory with its results and config files, and one log per container, at the same
//! path as in a cluster. Its processes are in separate process groups, and end as in a cluster:
//! those of the driver Nodes with the plugin's results, all others with the results of the whole
//! run, so that a plugin can clean up. None outlives [`LocalDriver::end`], except one that cannot
//! be killed, because it has become one of another user: it is named, and the run goes on. Starts a
//! thread for each pod, and joins it, and one for each process, which ends with the process.

use base::at::At as _;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

pub use super::container::check;
use super::container::{self, PodFields, ProcessSpec};
use super::pod::object_name;
use super::process::{self, ALONE, BESIDE, Talk};
use super::{Driver, PluginLaunch, session};
use base::stop::{Stop, caught};
use base::sys::{self, Group};
use base::{clock, lock, temp};
use client::env as var;
use client::protocol::{DONE_FILE, Failure, Finding, ResultId};
use model::names::{RESULTS_VOLUME, WORKER_CONTAINER, env};
use model::plugin::{Definition, DriverKind};
use model::remedies::LAST_OUTPUT;
use model::{config, layout};

/// Time between the request to end and the kill after an interrupt: a user is waiting.
const INTERRUPTED_GRACE: Duration = Duration::from_secs(2);
/// Time between the request to end and a message that the pod is still waited for.
const QUIET_GRACE: Duration = Duration::from_secs(2);
/// Time for the processes of a Job to end after the request to, which follows the results of the
/// whole run; workers use it to send a result that is almost ready.
const JOB_GRACE: Duration = Duration::from_secs(60);
/// The same for a DaemonSet, whose processes only sleep by then.
const DAEMON_SET_GRACE: Duration = Duration::from_secs(1);
/// The same as Kubernetes' default.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// Time for a plugin without a worker to read the answer to its result and to end by itself.
const ANSWER_GRACE: Duration = Duration::from_secs(1);
/// Time between the kill and giving up.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs plugins on this machine.
pub struct LocalDriver {
    machine: Arc<Machine>,
    /// Stopped when all results of the run are in.
    over: Stop,
    /// Threads of pods that go on until then.
    pods: Mutex<Vec<JoinHandle<()>>>,
}

/// What all pods of a run on this machine share.
pub struct Machine {
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
    /// Settings of the run.
    pub config: config::Run,
    /// Token of the worker of each result.
    pub tokens: BTreeMap<ResultId, String>,
    /// Node of plugins that run once.
    pub node: String,
    /// Environment of workers, unless the plugin overrides it.
    pub worker_env: Vec<(String, String)>,
    /// Stopped if the run is interrupted.
    pub interrupted: Stop,
}

impl LocalDriver {
    pub fn new(machine: Machine) -> Self {
        let over = machine.interrupted.child();
        Self {
            machine: Arc::new(machine),
            over,
            pods: Mutex::default(),
        }
    }

    /// Ends all pods, once all results of the run are in.
    pub fn end(&self) {
        self.over.stop();
        for pod in lock(&self.pods).drain(..) {
            // A panic was reported as the failure of its result.
            let _ = pod.join();
        }
    }

    /// Starts the pod of one result.
    fn start(
        &self,
        definition: &Arc<Definition>,
        id: &ResultId,
        findings: &SyncSender<Finding>,
        settled: &Stop,
    ) -> io::Result<JoinHandle<()>> {
        let ends = match definition.config.driver {
            DriverKind::Nodes => settled.clone(),
            DriverKind::Job | DriverKind::DaemonSet => self.over.clone(),
        };
        let (machine, definition, id) = (
            Arc::clone(&self.machine),
            Arc::clone(definition),
            id.clone(),
        );
        let (findings, settled) = (findings.clone(), settled.clone());
        base::thread(format!("pod {id}")).spawn(move || {
            let run = || {
                let pod =
                    LocalPod::prepare(&machine, &definition, &id, &findings, &settled, &ends)?;
                pod.run();
                Ok(())
            };
            if let Err(error) = caught(run) {
                report_failure(&findings, &id, &error);
            }
        })
    }
}

impl Drop for LocalDriver {
    fn drop(&mut self) {
        self.end();
    }
}

fn report_failure(findings: &SyncSender<Finding>, id: &ResultId, error: &anyhow::Error) {
    let failure = Failure::new(id.clone(), format!("{error:#}"));
    // The receiver lives as long as the run; once it has ended, failures no longer matter.
    drop(findings.send(Finding::Failure(failure)));
}

impl Driver for LocalDriver {
    fn run(
        &self,
        plugin: &PluginLaunch<'_>,
        findings: &SyncSender<Finding>,
        stop: &Stop,
    ) -> Result<()> {
        let definition = Arc::new(plugin.definition.clone());
        let mut pods = Vec::new();
        for id in &plugin.ids {
            match self.start(&definition, id, findings, stop) {
                Ok(pod) => pods.push(pod),
                Err(error) => {
                    let error = anyhow::Error::from(error).context("cannot start a thread for it");
                    report_failure(findings, id, &error);
                }
            }
        }
        stop.wait_forever();
        if definition.config.driver == DriverKind::Nodes {
            pods.into_iter().for_each(|pod| drop(pod.join()));
        } else {
            lock(&self.pods).extend(pods);
        }
        Ok(())
    }

    fn remove(&self, plugin: &Definition) -> Result<()> {
        let dir = self.machine.pods.join(plugin.name());
        base::if_exists(fs::remove_dir_all(&dir))
            .at("cannot remove", &dir)
            .map(drop)
    }
}

/// The worker, or the keeper in its place, which only kills the plugin if this process is killed.
const WORKER: Option<usize> = None;

enum ProcessEvent {
    /// The end of a container, by its number, or of [`WORKER`].
    Ended(Option<usize>, io::Result<ExitStatus>),
    Stop,
}

/// Processes of a pod, each in a group. The first holds the lifeline: the worker, or a keeper.
struct Processes {
    sender: SyncSender<ProcessEvent>,
    receiver: Receiver<ProcessEvent>,
    groups: Vec<Group>,
    /// Standard input of the lifeline's holder. Receives the number of each group; kills all
    /// groups if closed early.
    lifeline: Option<ChildStdin>,
    running: Vec<RunningProcess>,
}

struct RunningProcess {
    container: Option<usize>,
    number: u32,
    command: String,
}

impl Processes {
    fn add(&mut self, container: Option<usize>, process: Started) -> Result<()> {
        let Started {
            group,
            mut child,
            command,
        } = process;
        let number = group.id();
        match &mut self.lifeline {
            // A holder that has ended needs no update.
            Some(lifeline) => drop(writeln!(lifeline, "{number}")),
            None => self.lifeline = child.stdin.take(),
        }
        self.groups.push(group);
        let sender = self.sender.clone();
        let wait = move || drop(sender.send(ProcessEvent::Ended(container, child.wait())));
        // Not joined: a process of another user may never end.
        base::thread("process").spawn(wait)?;
        self.running.push(RunningProcess {
            container,
            number,
            command,
        });
        Ok(())
    }

    fn next(&mut self) -> Result<ProcessEvent> {
        let event = self.receiver.recv()?;
        self.note(&event);
        Ok(event)
    }

    fn note(&mut self, event: &ProcessEvent) {
        if let ProcessEvent::Ended(container, _) = event {
            self.running
                .retain(|process| process.container != *container);
        }
    }

    /// Ends all processes and their children: asks them to, and kills those that remain after
    /// `grace`, or soon after an interrupt.
    fn end(mut self, id: &ResultId, grace: Duration, interrupted: &Stop) {
        // Those of other users are not waited for: no signal reaches them.
        let unreachable = self
            .groups
            .iter()
            .filter(|group| !group.terminate())
            .count();
        if !interrupted.stopped() && !self.wait(unreachable, grace.min(QUIET_GRACE), interrupted) {
            let remaining = grace.saturating_sub(QUIET_GRACE);
            if !remaining.is_zero() && !interrupted.stopped() {
                log::info!(
                    "`{id}` was asked to end and has {} for it",
                    clock::duration(remaining)
                );
                self.wait(unreachable, remaining, interrupted);
            }
        }
        if interrupted.stopped() {
            self.wait(unreachable, INTERRUPTED_GRACE, interrupted);
        }
        // Also those whose first process has ended.
        self.groups.iter().for_each(Group::kill);
        self.wait(0, KILL_TIMEOUT, interrupted);
        for RunningProcess {
            number, command, ..
        } in &self.running
        {
            log::warn!("process {number} (`{command}`) cannot be ended, and is left behind");
        }
    }

    /// Waits until at most `rest` processes run; false if they still do after `limit`, or at an
    /// interrupt.
    fn wait(&mut self, rest: usize, limit: Duration, interrupted: &Stop) -> bool {
        let was_interrupted = interrupted.stopped();
        let deadline = Instant::now() + limit;
        while self.running.len() > rest {
            match self
                .receiver
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(ProcessEvent::Stop) if interrupted.stopped() && !was_interrupted => {
                    return false;
                }
                Ok(event) => self.note(&event),
                Err(_) => return false,
            }
        }
        true
    }
}

/// A process that was started.
struct Started {
    group: Group,
    child: Child,
    command: String,
}

/// One plugin on one node.
struct LocalPod<'a> {
    local: &'a Machine,
    definition: &'a Definition,
    id: &'a ResultId,
    node: &'a str,
    name: String,
    dir: PathBuf,
    logs: PathBuf,
    findings: &'a SyncSender<Finding>,
    /// Stopped when the results of the plugin are in.
    settled: &'a Stop,
    /// Stopped when this pod has to end.
    ends: &'a Stop,
}

impl<'a> LocalPod<'a> {
    fn prepare(
        local: &'a Machine,
        definition: &'a Definition,
        id: &'a ResultId,
        findings: &'a SyncSender<Finding>,
        settled: &'a Stop,
        ends: &'a Stop,
    ) -> Result<Self> {
        let mut name = object_name(definition, &session(&local.config, definition.name()));
        let node = match definition.config.driver.is_per_node() {
            true => {
                name += &format!("-{}", id.node);
                id.node.as_str()
            }
            false => local.node.as_str(),
        };
        let dir = local.pods.join(definition.name()).join(&id.node);
        let logs = local
            .run_dir
            .join(layout::pod_logs(&local.config.namespace, &name));
        let pod = Self {
            local,
            definition,
            id,
            node,
            name,
            dir,
            logs,
            findings,
            settled,
            ends,
        };
        for dir in [&pod.results(), &pod.config(), &pod.logs] {
            fs::create_dir_all(dir).at("cannot create", dir)?;
        }
        if let Some(token) = local.tokens.get(id) {
            let path = pod.token();
            temp::write(&path, 0o600, token).at("cannot write", &path)?;
        }
        for (file, text) in &definition.config_map {
            let path = pod.config().join(file);
            fs::write(&path, text).at("cannot write", &path)?;
        }
        Ok(pod)
    }

    fn run(&self) {
        let (first, together) = container::containers(self.definition);
        // Capacity for every possible event, so that no sender blocks.
        let starts =
            (together.len() + first.len()) * (1 + usize::from(self.definition.max_failures()));
        let (sender, receiver) = sync_channel(starts + 3);
        let interrupted = &self.local.interrupted;
        let _hooks = [self.ends, interrupted].map(|stop| {
            let event_sender = sender.clone();
            stop.on_stop(move || drop(event_sender.try_send(ProcessEvent::Stop)))
        });
        let (groups, running) = (Vec::new(), Vec::new());
        let mut processes = Processes {
            sender,
            receiver,
            groups,
            lifeline: None,
            running,
        };
        if let Err(error) = self.live(&first, &together, &mut processes) {
            self.fail(Failure::new(self.id.clone(), format!("{error:#}")));
        }
        if !self.definition.config.has_worker() && !interrupted.stopped() {
            // All but the keeper.
            processes.wait(1, ANSWER_GRACE, interrupted);
        }
        processes.end(self.id, self.grace(), interrupted);
    }

    /// The time between the request to end and the kill, as in a cluster.
    fn grace(&self) -> Duration {
        let spec = self.definition.pod_spec.as_ref();
        let of_spec = spec.and_then(|spec| spec["terminationGracePeriodSeconds"].as_u64());
        match self.definition.config.driver {
            DriverKind::Job => JOB_GRACE,
            DriverKind::DaemonSet => DAEMON_SET_GRACE,
            DriverKind::Nodes => of_spec.map_or(DEFAULT_GRACE, Duration::from_secs),
        }
    }

    /// Starts all processes in order, and watches them until the end of the pod is requested.
    fn live(&self, first: &[&Value], together: &[&Value], processes: &mut Processes) -> Result<()> {
        let volumes = container::host_volumes(self.definition);
        let facts = PodFields {
            node: self.node,
            pod: &self.name,
            namespace: &self.local.config.namespace,
            volumes: &volumes,
        };
        let resolve = |value: &Value, variables: &[_]| {
            container::resolve(self.definition.name(), value, &facts, variables)
        };
        // The worker inherits variables of the plugin, so they are resolved before its port is
        // known.
        let plugin_container = resolve(&self.definition.spec, &self.shared_variables(Some(0)))?;
        let port = self.start_worker(&plugin_container, processes)?;
        let variables = self.shared_variables(port);
        for value in first {
            if !self.watch(&[resolve(value, &variables)?], true, processes)? {
                return Ok(());
            }
        }
        let containers = together
            .iter()
            .map(|value| resolve(value, &variables))
            .collect::<Result<Vec<_>, _>>()?;
        self.watch(&containers, false, processes).map(drop)
    }

    /// Runs containers: one that must succeed before others, until its end; or all that run
    /// together, until the end of the pod is requested. Returns whether the pod continues.
    fn watch(
        &self,
        containers: &[ProcessSpec],
        is_first: bool,
        processes: &mut Processes,
    ) -> Result<bool> {
        for (index, container) in containers.iter().enumerate() {
            processes.add(Some(index), self.start(container)?)?;
        }
        let mut failures = vec![0; containers.len()];
        let (mut open, mut all_well) = (containers.len(), true);
        loop {
            let (index, status) = match processes.next()? {
                ProcessEvent::Stop => return Ok(false),
                ProcessEvent::Ended(Some(index), status) => (index, status?),
                ProcessEvent::Ended(WORKER, status) => {
                    let status = status?;
                    if !status.success() && self.definition.config.has_worker() {
                        let ended = self.ended("the worker", WORKER_CONTAINER, status);
                        self.fail(Failure::new(self.id.clone(), ended));
                    }
                    continue;
                }
            };
            let container = &containers[index];
            if !status.success() && failures[index] < self.definition.max_failures() {
                failures[index] += 1;
                let ending = process::ending(status);
                log::info!(
                    "container `{}` of `{}` {ending} and is started again",
                    container.name,
                    self.id
                );
                processes.add(Some(index), self.start(container)?)?;
                continue;
            }
            open -= 1;
            all_well &= status.success();
            if is_first && all_well {
                return Ok(true);
            }
            let is_over = open == 0 && all_well;
            if is_over && self.definition.config.has_worker() {
                let marker = self.marker();
                fs::write(&marker, "").at("cannot write", &marker)?;
                continue;
            }
            // The plugin's own container is the last; a result that was sent before the failure
            // wins over it.
            let counts = open == 0 || index + 1 == containers.len();
            if is_over || !all_well && counts && !self.results().join(DONE_FILE).exists() {
                self.container_failed(&container.name, status);
            }
        }
    }

    /// Starts the worker; returns the port that it announces. A plugin without a worker gets a
    /// keeper, which has no port.
    fn start_worker(&self, plugin: &ProcessSpec, processes: &mut Processes) -> Result<Option<u16>> {
        let (how, log) = match self.definition.config.has_worker() {
            true => (BESIDE, self.log(WORKER_CONTAINER)),
            false => (ALONE, self.dir.join("keeper.txt")),
        };
        let mut command = Command::new(&self.local.program);
        let role = self.definition.config.driver.worker_role();
        command
            .args(["worker", role, "--level=info"])
            .env_clear()
            .envs(self.local.worker_env.clone())
            .envs(&plugin.env)
            .envs(self.shared_variables(None))
            .env(env::NAMESPACE, &self.local.config.namespace)
            .env(env::PLUGIN_POD, &self.name)
            .env(env::OTHERS_ENDED_FILE, self.marker())
            // It kills the plugin's processes if this process is killed.
            .env(env::LIFELINE, how)
            // Many pods share this machine's ports, so each takes a free one and announces it.
            .env(env::PROGRESS_PORT, "0")
            // At the end of the pod its result has arrived, or is not wanted.
            .env(env::SHUTDOWN_GRACE, "0s");
        if self.definition.config.results_anywhere {
            command.env(env::RESULTS_ANYWHERE, "true");
        }
        let program = self.local.program.display();
        let (group, mut child) = process::start(&mut command, &log, Talk::WithUs)
            .with_context(|| format!("cannot start the worker `{program}`"))?;
        let command = program.to_string();
        if how == ALONE {
            processes.add(
                WORKER,
                Started {
                    group,
                    child,
                    command,
                },
            )?;
            return Ok(None);
        }
        let number = group.id();
        let _asked = self.ends.on_stop(move || sys::kill_group(number));
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // A worker that fails to start prints nothing.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        processes.add(
            WORKER,
            Started {
                group,
                child,
                command,
            },
        )?;
        let port = line.trim().parse().map(Some);
        port.map_err(|_| anyhow!("the worker did not start: {}", process::tail(&log)))
    }

    fn start(&self, container: &ProcessSpec) -> Result<Started> {
        let [program, args @ ..] = container.command.as_slice() else {
            bail!("container `{}` has no command", container.name);
        };
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(&container.env);
        if let Some(dir) = &container.dir {
            command.current_dir(dir);
        }
        let started = process::start(&mut command, &self.log(&container.name), Talk::Alone);
        let (group, child) = started.with_context(|| {
            format!(
                "cannot start the command `{program}` of container `{}`",
                container.name
            )
        })?;
        Ok(Started {
            group,
            child,
            command: container.command.join(" ").escape_debug().to_string(),
        })
    }

    /// Variables of every container of the pod: the worker's port, or all that the worker, or a
    /// plugin without one, needs to upload.
    fn shared_variables(&self, port: Option<u16>) -> Vec<(String, String)> {
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let channel = match port {
            Some(port) => vec![(env::PROGRESS_PORT, port.to_string())],
            None => vec![
                (var::AGGREGATOR_URL, self.local.aggregator.clone()),
                (var::CA_CERT, self.local.ca_cert.clone()),
                (var::RESULT_TYPE, self.definition.name().to_owned()),
                (var::TOKEN_FILE, path(self.token())),
                (
                    var::RESULT_URL,
                    format!("{}{}", self.local.aggregator, self.id.result_path()),
                ),
                (
                    var::PROGRESS_URL,
                    format!("{}{}", self.local.aggregator, self.id.progress_path()),
                ),
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
        common
            .into_iter()
            .chain(channel)
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn fail(&self, failure: Failure) {
        // What happens after the result, such as a failing cleanup, does not change it.
        if self.settled.stopped() {
            return;
        }
        // The receiver lives as long as the run; once it has ended, failures no longer matter.
        drop(self.findings.send(Finding::Failure(failure)));
    }

    fn container_failed(&self, container: &str, status: ExitStatus) {
        let what = format!("container `{container}`");
        let mut failure = Failure::new(self.id.clone(), self.ended(&what, container, status));
        failure
            .report
            .extend(status.code().map(|code| ("exit-code".into(), code.into())));
        self.fail(failure);
    }

    fn ended(&self, what: &str, container: &str, status: ExitStatus) -> String {
        let ending = process::ending(status);
        let tail = process::tail(&self.log(container));
        let output = if tail.is_empty() {
            "it printed nothing".into()
        } else {
            format!("{LAST_OUTPUT}\n{tail}")
        };
        format!("{what} {ending} and left no result; {output}")
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
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '_'
            }
        };
        self.logs.join(format!(
            "{}.txt",
            container.chars().map(plain).collect::<String>()
        ))
    }
}
