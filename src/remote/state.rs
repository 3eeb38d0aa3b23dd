//! The state of a run, once or after each change: from the annotation of its aggregator's pod, or
//! from its status service.
//!
//! Finds that pod and reads its annotation, for every command, and the state of the pod's node,
//! since a dead node reports nothing. [`StatusSource::follow`] blocks until the source's stop; it
//! starts the thread `aggregator`, and joins it.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::Value;

use base::clock;
use base::stop::{Stop, StopOnDrop};
use kube::{
    Client, Delay, Error, Event, Method, Object as _, Request, Resource, Selector, is_delayed,
};
use model::names::{
    AGGREGATOR_SELECTORS, ANNOTATION_STATUS, AUTHORITY_MAP, POD_KEY, SONOBUOY, claim,
};
use model::verdict::RunEnd;
use model::{remedies, status};

/// Waiting reasons of a container without image.
const NO_IMAGE: [&str; 4] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
];
/// Waiting reason of a container that keeps ending.
const CRASH_LOOP: &str = "CrashLoopBackOff";
/// Waiting reasons that name no cause.
const UNEXPLAINED: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// Other waiting reasons that rarely resolve by themselves.
const STUCK_REASONS: [&str; 2] = ["CreateContainerConfigError", "CreateContainerError"];
/// Time limits for a stuck aggregator: the cause may be repaired, but an image missing from its
/// registry never appears.
const STUCK_TIMEOUT: Duration = Duration::from_secs(300);
const NO_REGISTRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum silence of a source during a transfer.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum aggregators listed; a namespace normally has one.
const MAX_AGGREGATORS: usize = 100;
/// Interval between two requests to a status service while following it.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which ages of heartbeats are updated without other changes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which followers are called without a change.
const TICK: Duration = Duration::from_secs(1);
/// Interval between two looks at the node of the aggregator and at the events of its pod, and the
/// time limit of a request.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without a response after which the service, and its run, count as gone.
const OUTAGE_LIMIT: Duration = Duration::from_secs(300);

/// State of a run.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a command holds one at a time")]
pub(crate) enum RunState {
    /// No aggregator.
    Absent,
    /// A pod without a current status.
    Silent {
        /// The phase of the pod.
        phase: String,
        /// Description, with the cause of a delay.
        message: String,
        /// Time limit for a repair of the cause that the message names.
        stuck: Option<Duration>,
        /// Message of the node about an image that it cannot pull.
        no_image: Option<String>,
    },
    /// The published status.
    Told(status::Run),
    /// The pod will not run again: the reason, and what to do.
    Lost(String),
}

impl RunState {
    /// Reads the state from a pod alone.
    pub(crate) fn of(pod: &Value) -> Self {
        Self::of_delayed(pod, None)
    }

    /// Reads the state from a pod, and from what its events say while it does not start.
    fn of_delayed(pod: &Value, delay: Option<&Delay>) -> Self {
        let phase = pod["status"]["phase"]
            .as_str()
            .unwrap_or("Pending")
            .to_owned();
        let annotation = pod["metadata"]["annotations"][ANNOTATION_STATUS].as_str();
        let mut reasons = Reasons::default();
        let annotation = annotation.filter(|_| matches!(&*phase, "Running" | "Succeeded"));
        let message = match annotation.map(status::Run::parse) {
            Some(Ok(run)) if phase == "Succeeded" && !RunEnd::of(&run).is_over() => {
                return Self::of_lost_pod(
                    pod,
                    "the aggregator's pod ended before the end of the run was published",
                );
            }
            Some(Ok(run)) => {
                let started = pod["metadata"]["creationTimestamp"]
                    .as_str()
                    .and_then(clock::parse_rfc3339);
                let message = if RunEnd::of(&run) == RunEnd::Running {
                    restarts(pod)
                } else {
                    run.message
                };
                return Self::Told(status::Run {
                    started,
                    message,
                    ..run
                });
            }
            Some(Err(error)) => {
                format!(
                    "the status on the aggregator's pod cannot be read: {error}; something else \
                     has changed the annotation `{ANNOTATION_STATUS}`, which the aggregator \
                     replaces when its status changes; `sonobuoy logs` shows what it does"
                )
            }
            None if phase == "Succeeded" => {
                "the aggregator has ended without reporting its status".into()
            }
            None => {
                reasons = Reasons::of(pod, delay);
                let because = reasons.texts.join("; ");
                let colon = if because.is_empty() { "" } else { ": " };
                match &*phase {
                    "Running" => format!(
                        "the aggregator is running but has not published its status \
                         yet{colon}{because}"
                    ),
                    _ => format!("the aggregator's pod is {phase}{colon}{because}"),
                }
            }
        };
        let Reasons {
            stuck,
            no_image,
            image,
            ..
        } = reasons;
        let local = image.filter(|image| remedies::is_local_image(image));
        let message = match &local {
            Some(image) => format!("{message}\n{}", remedies::load_commands(image)),
            None => remedies::advised(&message),
        };
        let stuck = stuck.then_some(if local.is_some() {
            NO_REGISTRY_TIMEOUT
        } else {
            STUCK_TIMEOUT
        });
        Self::Silent {
            no_image: no_image.filter(|_| phase == "Pending"),
            phase,
            message,
            stuck,
        }
    }

    /// Whether the run counts as failed in a single query.
    pub(crate) fn has_failed(&self) -> bool {
        match self {
            Self::Told(run) => RunEnd::of(run) == RunEnd::Failed,
            Self::Silent {
                no_image: Some(_), ..
            } => true,
            _ => self.is_over(),
        }
    }

    /// Whether the state is final.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Told(run) => RunEnd::of(run).is_over(),
            Self::Silent { phase, .. } => matches!(&**phase, "Failed" | "Unknown" | "Succeeded"),
            Self::Lost(_) => true,
            Self::Absent => false,
        }
    }

    /// The status document in any state; a run without status counts as running.
    pub(crate) fn document(&self) -> status::Run {
        let mut run = status::Run::default();
        match self {
            Self::Told(run) => return run.clone(),
            _ if self.has_failed() => {
                run.status = status::FAILED.into();
                run.error = Some(self.summary().to_owned());
            }
            _ => run.message = Some(self.summary().to_owned()),
        }
        run
    }

    /// The state in words.
    pub(crate) fn summary(&self) -> &str {
        match self {
            Self::Absent => "no aggregator exists yet",
            Self::Lost(message) | Self::Silent { message, .. } => message,
            Self::Told(run) => &run.status,
        }
    }

    /// The state of a pod, its node and its events.
    pub(crate) fn read_pod(client: &Client, pod: &Value) -> Self {
        Self::on(pod, &Surroundings::of(client, pod))
    }

    /// The state of a pod in these surroundings.
    fn on(pod: &Value, surroundings: &Surroundings) -> Self {
        let mut state = Self::of_delayed(pod, surroundings.delay.as_ref());
        let is_deleted = pod.is_terminating();
        if state.is_over() {
            return match &state {
                Self::Silent { message, .. } if is_deleted => Self::of_lost_pod(pod, message),
                _ => state,
            };
        }
        let Some(problem) = &surroundings.problem else {
            return state;
        };
        let node = pod["spec"]["nodeName"].text();
        let unready = match problem {
            NodeProblem::Gone => {
                return Self::of_lost_pod(
                    pod,
                    &format!("the aggregator's node `{node}` was deleted"),
                );
            }
            NodeProblem::NotReady(since) => match since.and_then(|since| since.elapsed().ok()) {
                None => "is not ready".into(),
                Some(elapsed) => {
                    let seconds = Duration::from_secs(elapsed.as_secs());
                    format!("has not been ready for {}", clock::duration(seconds))
                }
            },
        };
        if is_deleted {
            let why =
                format!("the aggregator's pod was evicted from its node `{node}`, which {unready}");
            return Self::of_lost_pod(pod, &why);
        }
        let results = claim(pod).map_or("it".into(), |claim| format!("the volume claim `{claim}`"));
        let problem =
            format!("the aggregator's node `{node}` {unready}; the results are on {results}");
        match &mut state {
            Self::Told(run) => run.message = Some(problem),
            Self::Silent { message, .. } => *message = problem,
            Self::Absent | Self::Lost(_) => {}
        }
        state
    }

    /// The state of a run whose pod was deleted, if its results are on a volume claim.
    fn deleted(client: &Client, namespace: &str) -> Option<Self> {
        stored_pod(client, namespace)
            .map(|pod| Self::of_lost_pod(&pod, "the aggregator's pod was deleted"))
    }

    /// The state of a run whose `pod` is lost.
    fn of_lost_pod(pod: &Value, why: &str) -> Self {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or(SONOBUOY);
        Self::Lost(match claim(pod) {
            Some(claim) => format!(
                "{why}; the results are on the volume claim `{claim}`: `sonobuoy wait --recover \
                 -n {namespace}` continues the run in a new pod"
            ),
            None => format!(
                "{why}, and the results with it; remove the run with `sonobuoy delete -n \
                 {namespace}`, then start it again; `run --results-pvc CLAIM` keeps results on a \
                 volume"
            ),
        })
    }
}

/// What decides about an aggregator besides its pod.
#[derive(Clone, Default, PartialEq)]
struct Surroundings {
    problem: Option<NodeProblem>,
    /// What the events of the pod say while it does not start.
    delay: Option<Delay>,
}

impl Surroundings {
    fn of(client: &Client, pod: &Value) -> Self {
        let problem = NodeProblem::of(client, pod);
        let events = client.once(LOOK_TIMEOUT);
        let delay = is_delayed(pod, SystemTime::now())
            .then(|| events.delay(pod.namespace(), pod))
            .and_then(|delay| {
                delay
                    .inspect_err(|error| log::debug!("no events of the aggregator: {error}"))
                    .ok()
            });
        Self {
            problem,
            delay: delay.flatten(),
        }
    }
}

/// What is wrong with the node of the aggregator.
#[derive(Clone, PartialEq)]
enum NodeProblem {
    Gone,
    NotReady(Option<SystemTime>),
}

impl NodeProblem {
    /// The problem of the pod's node; none if the node cannot be read.
    fn of(client: &Client, pod: &Value) -> Option<Self> {
        let name = pod["spec"]["nodeName"]
            .as_str()
            .filter(|name| !name.is_empty())?;
        match client.once(LOOK_TIMEOUT).get(&Resource::NODES, "", name) {
            Ok(node) => {
                let ready = node.condition("Ready")?;
                let since = ready["lastTransitionTime"]
                    .as_str()
                    .and_then(clock::parse_rfc3339);
                (ready["status"] != "True").then_some(Self::NotReady(since))
            }
            Err(error) => error.is_not_found().then_some(Self::Gone),
        }
    }
}

/// The aggregator's pod as it would be created, from the time when it ran; only if its results are
/// on a volume claim.
pub(crate) fn stored_pod(client: &Client, namespace: &str) -> Option<Value> {
    let map = client
        .once(LOOK_TIMEOUT)
        .get(&Resource::CONFIG_MAPS, namespace, AUTHORITY_MAP)
        .ok()?;
    let mut pod: Value = base::json::from_slice(map["data"][POD_KEY].as_str()?.as_bytes()).ok()?;
    pod["metadata"]["namespace"] = namespace.into();
    claim(&pod).is_some().then_some(pod)
}

/// Why the containers of a pod are not ready.
#[derive(Default)]
struct Reasons {
    texts: Vec<String>,
    /// Whether the reason rarely resolves by itself.
    stuck: bool,
    /// Message about a missing image.
    no_image: Option<String>,
    image: Option<String>,
}

impl Reasons {
    fn of(pod: &Value, delay: Option<&Delay>) -> Self {
        let mut reasons = Self::default();
        let both = |reason: &Value, message: &Value| match (reason.as_str(), message.as_str()) {
            (Some(reason), Some(message)) if !message.is_empty() => {
                Some(format!("{reason}: {message}"))
            }
            (reason, message) => reason.or(message).map(str::to_owned),
        };
        let status = &pod["status"];
        reasons
            .texts
            .extend(both(&status["reason"], &status["message"]));
        for condition in status["conditions"].items() {
            // A pod that the control plane deleted, such as one of a lost node, has no other
            // reason.
            let is_informative = condition["type"] == "PodScheduled"
                && condition["status"] == "False"
                || condition["type"] == "DisruptionTarget" && condition["status"] == "True";
            reasons.texts.extend(
                both(&condition["reason"], &condition["message"]).filter(|_| is_informative),
            );
        }
        let containers = status["initContainerStatuses"]
            .items()
            .chain(status["containerStatuses"].items());
        for container in containers {
            let name = container["name"].text();
            let waiting = &container["state"]["waiting"];
            let reason = waiting["reason"].text();
            if NO_IMAGE.contains(&reason) {
                reasons
                    .no_image
                    .get_or_insert_with(|| waiting["message"].text().to_owned());
                reasons.image = reasons
                    .image
                    .or_else(|| container["image"].as_str().map(str::to_owned));
            }
            reasons.stuck |= reasons.no_image.is_some() || STUCK_REASONS.contains(&reason);
            if matches!(delay, Some(Delay::Warning { .. })) && UNEXPLAINED.contains(&reason) {
                continue;
            }
            if reason == CRASH_LOOP {
                continue;
            }
            for state in [waiting, &container["state"]["terminated"]] {
                if let Some(reason) = both(&state["reason"], &state["message"]) {
                    let code = state["exitCode"]
                        .as_i64()
                        .map(|code| format!(", exit code {code}"));
                    reasons.texts.push(format!(
                        "container {name}: {reason}{}",
                        code.unwrap_or_default()
                    ));
                }
            }
        }
        if let Some(restarts) = restarts(pod) {
            // It ended before it could publish anything, and probably will again.
            reasons.stuck = true;
            reasons.texts = vec![restarts];
        }
        let is_unexplained = reasons.texts.is_empty() || delay == Some(&Delay::Unreadable);
        if let Some(delay) = delay.filter(|_| is_unexplained) {
            reasons.stuck |= matches!(delay, Delay::Warning { .. }) && !delay.is_unscheduled();
            reasons.texts.push(delay.to_string());
        }
        reasons
    }
}

/// How often and why the container of the aggregator has ended so far, if it has.
fn restarts(pod: &Value) -> Option<String> {
    let mut containers = pod["status"]["containerStatuses"].items();
    let container = containers.find(|container| container["restartCount"].as_u64() > Some(0))?;
    let count = container["restartCount"].as_u64().unwrap_or_default();
    let state = &container["state"];
    let last = [&state["terminated"], &container["lastState"]["terminated"]]
        .into_iter()
        .find(|ended| ended.is_object())
        .unwrap_or(&Value::Null);
    let code = last["exitCode"].as_i64().unwrap_or_default();
    let reason = last["reason"].as_str().filter(|reason| *reason != "Error");
    let reason = reason.map_or_else(String::new, |reason| format!(", {reason}"));
    let message = match last["message"].text().trim() {
        "" => String::new(),
        message => format!(": {message}"),
    };
    let times = if count == 1 {
        "once"
    } else {
        &format!("{count} times")
    };
    let end = format!("exit code {code}{reason}{message}");
    Some(if state["waiting"]["reason"] == CRASH_LOOP {
        format!("the aggregator has ended and was restarted {times}, and waits to be again: {end}")
    } else {
        format!("the aggregator was restarted {times}, and goes on: {end}")
    })
}

/// The aggregator's pod of a namespace.
pub(crate) fn find(client: &Client, namespace: &str) -> Result<Option<Value>, Error> {
    for labels in AGGREGATOR_SELECTORS {
        let (mut first, mut count) = (None, 0);
        client.each(
            &Resource::PODS,
            namespace,
            &Selector::labels(labels),
            &mut |pod| {
                count += 1;
                ensure!(
                    count <= MAX_AGGREGATORS,
                    "more than {MAX_AGGREGATORS} pods in namespace {namespace} are aggregators"
                );
                first.get_or_insert(pod);
                Ok(())
            },
        )?;
        if count > 1 {
            log::warn!(
                "{count} aggregator pods are in namespace {namespace}; the first one is asked"
            );
        }
        if first.is_some() {
            return Ok(first);
        }
    }
    client.find(&Resource::PODS, namespace, SONOBUOY)
}

/// The runs of all namespaces, with their states as their pods tell them, sorted by namespace.
pub(crate) fn find_all(client: &Client) -> Result<Vec<(String, RunState)>> {
    let mut runs = BTreeMap::new();
    for labels in AGGREGATOR_SELECTORS {
        let pods = client.list(&Resource::PODS, "", &Selector::labels(labels))?;
        for pod in pods {
            let state = RunState::of(&pod);
            runs.entry(pod.namespace().to_owned()).or_insert(state);
        }
    }
    Ok(runs.into_iter().collect())
}

/// Where to read the state of a run.
#[derive(Clone)]
pub(crate) struct StatusSource {
    /// A client of the cluster's API server, or of the run's status service.
    client: Client,
    is_service: bool,
    /// The start of the run, which a status service does not know.
    started: Option<SystemTime>,
    /// Name of the aggregator's pod, if this program has created it.
    created_pod: Option<String>,
}

impl StatusSource {
    /// The annotation of the aggregator's pod.
    pub(crate) fn pod(client: Client) -> Self {
        Self {
            client,
            is_service: false,
            started: None,
            created_pod: None,
        }
    }

    /// The same source, of a run whose aggregator's pod this program has created, so that it need
    /// not be looked for.
    pub(crate) fn of_created_pod(self, name: &str) -> Self {
        Self {
            created_pod: Some(name.to_owned()),
            ..self
        }
    }

    /// The run's status service, which needs no access to the cluster.
    pub(super) fn service(client: Client, started: Option<SystemTime>) -> Self {
        Self {
            client,
            is_service: true,
            started,
            created_pod: None,
        }
    }

    /// The same source, stopped by `stop`.
    pub(crate) fn under(&self, stop: &Stop) -> Self {
        Self {
            client: self.client.under(stop),
            ..self.clone()
        }
    }

    /// The stop of the source.
    pub(crate) fn stop(&self) -> &Stop {
        self.client.stop()
    }

    /// Access to the cluster, if the source has it.
    pub(crate) fn cluster(&self) -> Option<&Client> {
        (!self.is_service).then_some(&self.client)
    }

    /// The state of the run in a namespace. A missing namespace or aggregator is an error.
    pub(crate) fn read(&self, namespace: &str) -> Result<RunState> {
        match self.cluster() {
            Some(client) => read(client, namespace),
            None => self.status().map(RunState::Told),
        }
    }

    /// Passes the state on, now and after each change, and `None` every few seconds, until
    /// `changed` returns false or the source is stopped. Waits during outages.
    pub(crate) fn follow(
        &self,
        namespace: &str,
        changed: impl FnMut(Option<RunState>) -> bool,
    ) -> Result<()> {
        match self.cluster() {
            Some(client) => follow(client, namespace, self.created_pod.as_deref(), changed),
            None => self.poll(changed),
        }
    }

    /// The status that the service reports.
    pub(super) fn status(&self) -> Result<status::Run> {
        let run = match self.client.send(&Request::raw(Method::GET, "/status")) {
            // As text, since the error of an unreachable API server is explained by its kubeconfig.
            Err(error) if error.is_unreached() => {
                bail!("{error}; check the address in the credentials file, VPN, proxy and firewall")
            }
            answer => serde_json::from_value::<status::Run>(answer?)?,
        };
        Ok(status::Run {
            started: self.started,
            ..run
        })
    }

    /// Fails if the service does not respond within `limit`.
    pub(crate) fn probe(&self, limit: Duration) -> Result<()> {
        match self
            .stop()
            .within(limit, |over| self.under(over).status())?
        {
            Err(error) if matches!(error.downcast_ref(), Some(Error::Stopped)) => {
                bail!(
                    "`{}` did not answer within {}",
                    self.client.config().server,
                    clock::duration(limit)
                )
            }
            answered => answered.map(drop),
        }
    }

    /// Requests the service's archive from an offset, if it still has this digest, or another path
    /// below `/results`.
    pub(super) fn results(
        &self,
        ending: &str,
        range: Option<(u64, &str)>,
    ) -> Result<impl Read + use<>, Error> {
        let mut request =
            Request::raw(Method::GET, format!("/results{ending}")).header("accept", "*/*");
        if let Some((start, sha256)) = range {
            let tag = format!("\"{sha256}\"");
            request = request
                .header("range", format!("bytes={start}-"))
                .header("if-range", tag);
        }
        self.client.stream(&request, Some(SILENCE_TIMEOUT))
    }

    fn poll(&self, mut changed: impl FnMut(Option<RunState>) -> bool) -> Result<()> {
        let (mut shown, mut since) = (None, Instant::now());
        let (mut answered, mut reported) = (Instant::now(), false);
        while !self.stop().stopped() {
            let mut news = None;
            match self.status() {
                Ok(run) => {
                    (answered, reported) = (Instant::now(), false);
                    let ageless = Some(run.without_ages());
                    if shown != ageless || since.elapsed() > REFRESH_INTERVAL {
                        (shown, since) = (ageless, Instant::now());
                        news = Some(RunState::Told(run));
                    }
                }
                Err(_) if self.stop().stopped() => break,
                Err(error) if answered.elapsed() > OUTAGE_LIMIT => {
                    return Err(error.context(
                        "the run's status service is gone, and the run probably with it",
                    ));
                }
                Err(error) if !std::mem::replace(&mut reported, true) => {
                    log::warn!("the run's status service does not answer, retrying: {error:#}");
                }
                Err(_) => {}
            }
            if !changed(news) || self.stop().wait(FOLLOW_INTERVAL) {
                break;
            }
        }
        Ok(())
    }
}

fn read(client: &Client, namespace: &str) -> Result<RunState> {
    if let Some(pod) = find(client, namespace).context("looking for the aggregator")? {
        return Ok(RunState::read_pod(client, &pod));
    }
    if let Some(lost) = RunState::deleted(client, namespace) {
        return Ok(lost);
    }
    match client.get(&Resource::NAMESPACES, "", namespace) {
        Err(error) if error.is_not_found() => Err(anyhow!(
            "namespace `{namespace}` does not exist; name the namespace of the run with `-n`"
        )),
        _ => Err(anyhow!(
            "namespace `{namespace}` has no run; start one with `sonobuoy run`"
        )),
    }
}

fn follow(
    client: &Client,
    namespace: &str,
    created_pod: Option<&str>,
    mut told: impl FnMut(Option<RunState>) -> bool,
) -> Result<()> {
    let selector = match created_pod {
        Some(name) => Selector::name(name),
        None => match find(client, namespace) {
            // Older aggregators are found by name.
            Ok(Some(pod)) => Selector::name(pod.name()),
            Ok(None) => Selector::labels(AGGREGATOR_SELECTORS[0]),
            Err(Error::Stopped) => return Ok(()),
            Err(error) if error.is_passing() => {
                log::warn!("{error}; waiting until it answers");
                Selector::labels(AGGREGATOR_SELECTORS[0])
            }
            Err(error) => return Err(error).context("looking for the aggregator"),
        },
    };
    let over = client.stop().child();
    let watch = client
        .under(&over)
        .watch(&Resource::PODS, namespace, &selector);
    let (sender, events) = sync_channel(1);
    thread::scope(|scope| {
        let send = move || {
            watch
                .map(|event| sender.send(event))
                .take_while(Result::is_ok)
                .for_each(drop);
        };
        base::thread("aggregator").spawn_scoped(scope, send)?;
        // The watch ends before its thread is joined.
        let (events, _over) = (events, StopOnDrop(&over));
        let (mut pod, mut synced) = (None, false);
        let mut surroundings = Surroundings::default();
        let (mut looked, mut shown) = (None::<Instant>, Instant::now());
        loop {
            let event = events.recv_timeout(TICK);
            let is_event = event.is_ok();
            match event {
                Ok(event) => match event.context("watching the aggregator")? {
                    Event::Restarted => (pod, synced) = (None, false),
                    Event::Applied(found) => pod = Some(found),
                    Event::Deleted(_) => pod = None,
                    Event::Synced => synced = true,
                },
                Err(RecvTimeoutError::Timeout) if !told(None) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if !synced {
                continue;
            }
            let before = surroundings.clone();
            if looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL) {
                surroundings = match &pod {
                    Some(pod) => Surroundings::of(client, pod),
                    None => Surroundings::default(),
                };
                looked = Some(Instant::now());
            }
            let is_old = surroundings.problem.is_some() && shown.elapsed() >= REFRESH_INTERVAL;
            if !is_event && !is_old && surroundings == before {
                continue;
            }
            shown = Instant::now();
            let state = match &pod {
                Some(pod) => RunState::on(pod, &surroundings),
                None => RunState::deleted(client, namespace).unwrap_or(RunState::Absent),
            };
            if !told(Some(state)) {
                return Ok(());
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    fn check(pod: &Value, status: &str, words: &str, over: bool) {
        let state = RunState::of(pod);
        let document = state.document();
        let said = document.message.or(document.error).unwrap_or_default();
        assert_eq!(
            (&*document.status, state.is_over()),
            (status, over),
            "{pod}"
        );
        assert_eq!(said, words, "{pod}");
    }

    #[test]
    fn every_state_of_a_pod_is_described() {
        let pod = |phase: &str, more: Value| {
            let mut pod = json!({"metadata": {}, "status": {"phase": phase}});
            pod["status"]
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            pod
        };
        check(
            &pod("Pending", json!({})),
            "running",
            "the aggregator's pod is Pending",
            false,
        );
        check(
            &pod(
                "Pending",
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]}),
            ),
            "running",
            "the aggregator's pod is Pending: Unschedulable: 0/1 nodes; check the nodes' free CPU \
             and memory, their taints and the pod's node selector",
            false,
        );
        let waiting = json!({"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]});
        check(
            &pod("Pending", waiting),
            "failed",
            "the aggregator's pod is Pending: container c: ErrImagePull: no; check the image's \
             name and tag, the registry and the pull secret; `sonobuoy images` lists what a run \
             needs",
            false,
        );
        let waiting = json!({"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "CreateContainerConfigError"}}}]});
        let words = "the aggregator's pod is Pending: container c: CreateContainerConfigError";
        check(&pod("Pending", waiting), "running", words, false);
        check(
            &pod("Running", json!({})),
            "running",
            "the aggregator is running but has not published its status yet",
            false,
        );
        check(
            &pod("Failed", json!({"reason": "Evicted", "message": "disk"})),
            "failed",
            "the aggregator's pod is Failed: Evicted: disk",
            true,
        );
        let gone = json!({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "node is gone"}]});
        check(
            &pod("Failed", gone),
            "failed",
            "the aggregator's pod is Failed: DeletionByPodGC: node is gone",
            true,
        );
        check(
            &pod("Unknown", json!({})),
            "failed",
            "the aggregator's pod is Unknown",
            true,
        );
        let words = "the aggregator has ended without reporting its status";
        check(&pod("Succeeded", json!({})), "failed", words, true);
    }

    #[test]
    fn annotation_is_valid_while_the_pod_runs() {
        let annotated = |phase: &str, text: &str| json!({"metadata": {"annotations": {(ANNOTATION_STATUS): text}}, "status": {"phase": phase}});
        let text = serde_json::to_string(&status::Run::default()).unwrap();
        assert_eq!(
            RunState::of(&annotated("Running", &text)),
            RunState::Told(status::Run::default())
        );
        let lost = RunState::of(&annotated("Succeeded", &text));
        assert!(matches!(lost, RunState::Lost(_)) && lost.is_over() && lost.has_failed());
        let text_of = |status: &str, upload: Option<&str>| {
            let upload = upload.map(str::to_owned);
            serde_json::to_string(&status::Run {
                status: status.into(),
                upload,
                ..status::Run::default()
            })
            .unwrap()
        };
        for (status, upload, is_over) in [
            ("running", None, false),
            ("post-processing", None, false),
            ("complete", Some("running"), false),
            ("complete", None, true),
            ("complete", Some("failed"), true),
            ("failed", None, true),
        ] {
            let state = RunState::of(&annotated("Succeeded", &text_of(status, upload)));
            assert_eq!(
                matches!(state, RunState::Told(_)),
                is_over,
                "{status} {upload:?}"
            );
        }
        let failed = RunState::of(&annotated("Failed", &text));
        assert!(matches!(failed, RunState::Silent { .. }) && failed.is_over());
        // The next status may be readable.
        let unreadable = RunState::of(&annotated("Running", "{"));
        assert!(matches!(
            unreadable,
            RunState::Silent {
                stuck: None,
                no_image: None,
                ..
            }
        ));
        assert!(!unreadable.is_over());
        let said = unreadable.summary();
        assert!(
            said.contains("has changed the annotation") && !said.contains("plugin"),
            "{said}"
        );
    }

    #[test]
    fn aggregator_that_ends_before_its_status_is_stuck() {
        let ended = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "no API"}});
        let looping = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        for (state, last) in [
            (&looping, &ended),
            (&json!({"running": {}}), &ended),
            (&ended, &json!({})),
        ] {
            let container =
                json!({"name": "c", "restartCount": 2, "state": state, "lastState": last});
            let pod = json!({"metadata": {}, "status": {"phase": "Running", "containerStatuses": [container]}});
            let state = RunState::of(&pod);
            assert!(
                matches!(&state, RunState::Silent { stuck: Some(_), .. })
                    && state.summary().contains("2 times")
                    && state.summary().ends_with("exit code 1: no API"),
                "{}",
                state.summary()
            );
        }
    }
}
