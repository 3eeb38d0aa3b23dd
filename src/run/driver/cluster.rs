//! Starts a plugin in a cluster, follows it by watches, removes it.
//!
//! Owns the API calls of one launch. [`super::pod`] defines the objects, [`super::monitor`] judges
//! the events. Knows neither the recipient of findings nor when the plugin is finished: a [`Stop`]
//! signals that. Also keeps the order in which pods are started in waves, and the roster of all
//! pods, which decides whether one belongs to this run. Threads while following: one watch of the
//! plugin's pods, one of the nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::monitor::{Monitor, WatchEvent};
use super::node::refusal;
pub use super::pod::object_name;
use super::pod::{ClusterLaunch, attempt};
use super::{Driver, POD_GRACE, PluginLaunch, session};
use crate::backplane::Authority;
use base::clock::{self, passed};
use base::json::{json, list_in};
use base::lock;
use base::stop::{Stop, StopOnDrop};
use client::protocol::{Failure, Finding, ResultId};
use kube::{
    self, Delay, Event, Object as _, Obstacle, Request, Resource, Selector, Stage, forget_managers,
};
use model::config;
use model::names::{LABEL_SESSION, WORKER_CONTAINER, env};
use model::nodes::{Choice, Order, Ring, zone};
use model::plugin::{Definition, DriverKind, default_spec};

/// Interval of checks for findings that depend on time alone.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes read from the end of a silent worker's log, and the time limit of that request.
const LOG_BYTES: u64 = 16 << 10;
const LOG_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of a request for events.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a node to end a pod after the end of its grace period.
const REMOVAL_GRACE: Duration = Duration::from_secs(15);
/// Capacity of the queue between the watches and their reader.
const MAX_QUEUED_EVENTS: usize = 1024;
/// Changes of pods per check, so that a large cluster is not flooded with requests.
const MAX_CHANGES: usize = 4;

/// Runs plugins in a cluster.
pub struct ClusterDriver<'r> {
    /// Client that retries long enough to outlast an outage of the API server.
    pub client: kube::Client,
    /// Settings of the run.
    pub config: &'r config::Run,
    /// Authority of the run.
    pub authority: &'r Authority,
    /// Audience of the tokens that Kubernetes issues to the pods, unless the workers of a plugin
    /// share a certificate.
    pub audience: Option<String>,
    /// Whether workers are in this program's image, and so send heartbeats.
    pub has_own_workers: bool,
    /// Name and uid of the aggregator's pod, which owns everything.
    pub owner: (String, String),
    /// The plugins' pods, for checking which pod a token belongs to.
    pub roster: Roster,
    /// The nodes at the start of the run, for plugins that probe others.
    pub ring: Ring,
    /// Whether the worker of a result has ever contacted the aggregator, or is not awaited.
    pub heard: &'r (dyn Fn(&ResultId) -> bool + Sync),
    /// Whether a result is being received.
    pub receiving: &'r (dyn Fn(&ResultId) -> bool + Sync),
    /// Whether a result has arrived or failed.
    pub settled: &'r (dyn Fn(&ResultId) -> bool + Sync),
    /// Keeps the logs of a pod that is about to be deleted.
    pub keep_logs: &'r (dyn Fn(&Value) + Sync),
}

impl Driver for ClusterDriver<'_> {
    fn run(
        &self,
        plugin: &PluginLaunch<'_>,
        findings: &SyncSender<Finding>,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let launch = self.launch(plugin.definition);
        let driver = plugin.definition.config.driver;
        if self.audience.is_none() {
            let identity = self.authority.client(plugin.definition.name())?;
            self.create(
                &Resource::SECRETS,
                &launch.secret(&identity.cert_pem, &identity.key_pem),
                stop,
            )?;
        }
        if driver != DriverKind::Nodes && !self.was_replaced(&launch)? {
            self.create(resource(&launch), &launch.object(), stop)?;
        }
        self.follow(&launch, &plugin.ids, findings, stop);
        Ok(())
    }

    fn remove(&self, plugin: &Definition) -> anyhow::Result<()> {
        let launch = self.launch(plugin);
        let (namespace, selector) = (&self.config.namespace, launch.selector());
        let pods = Request::delete_collection(&Resource::PODS, namespace, &selector);
        // Before their DaemonSet, whose deletion would give them the time in their specs.
        self.client.send(&pods.grace_period(cleanup_time(plugin)))?;
        if plugin.config.driver == DriverKind::DaemonSet {
            let sets = Request::delete_collection(&Resource::DAEMON_SETS, namespace, &selector);
            self.client.send(&sets)?;
        }
        if self.audience.is_some() {
            return Ok(());
        }
        Ok(self
            .client
            .delete(&Resource::SECRETS, namespace, &launch.secret_name())?)
    }
}

/// Results expected from a plugin, given all `nodes` of the cluster, and the reason for each node
/// without one. The same `seed` chooses the same sample.
pub fn expected(
    definition: &Definition,
    config: &config::Run,
    nodes: &[Value],
    seed: &str,
) -> (Vec<ResultId>, BTreeMap<String, String>) {
    let plugin = definition.name();
    let driver = definition.config.driver;
    if driver == DriverKind::Job {
        return (vec![ResultId::global(plugin)], BTreeMap::new());
    }
    let default = default_spec(driver, &config.service_account_name);
    let spec = definition.pod_spec.as_ref().unwrap_or(&default);
    let mut excluded = BTreeMap::new();
    let fit = nodes.iter().filter(|node| {
        refusal(spec, node)
            .map(|why| excluded.insert(node.name().to_owned(), why))
            .is_none()
    });
    let choice = if driver == DriverKind::Nodes {
        config.nodes.clone()
    } else {
        Choice::default()
    };
    let (mut chosen, others) = choice.choose(fit, seed);
    if definition.config.waves.order == Order::Zone {
        chosen.sort_by_key(|node| zone(node));
    }
    excluded.extend(others);
    (
        chosen
            .into_iter()
            .map(|node| ResultId::on_node(plugin, node.name()))
            .collect(),
        excluded,
    )
}

/// Session of a dry run.
const NO_SESSION: &str = "0000000000000000";

/// Whether a secret of this name in the pod of a dry run is created by the run.
pub fn is_made_later(name: &str) -> bool {
    name.ends_with(NO_SESSION)
}

/// The pod that a plugin would get, for a dry run.
pub fn pod(definition: &Definition, config: &config::Run) -> Value {
    let session = NO_SESSION.to_owned();
    let ca_cert = String::new();
    let launch = ClusterLaunch {
        definition,
        session,
        config,
        ca_cert,
        owner: ("", ""),
        audience: None,
    };
    let metadata = json!({
        "name": launch.object_name(),
        "namespace": config.namespace,
        "labels": launch.object()["metadata"]["labels"],
    });
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": launch.pod_spec()})
}

/// Drops the fields of a node that neither [`expected`] nor [`Ring`] reads; the list of images alone can be
/// long.
pub fn shrink_node(node: &mut Value) {
    *node = json!({
        "metadata": {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]},
        "spec": {"taints": node["spec"]["taints"]},
        "status": {
            "conditions": node.condition("Ready").as_slice(),
            "addresses": node["status"]["addresses"],
            "daemonEndpoints": node["status"]["daemonEndpoints"],
        },
    });
}

impl ClusterDriver<'_> {
    fn launch<'a>(&'a self, definition: &'a Definition) -> ClusterLaunch<'a> {
        ClusterLaunch {
            definition,
            session: session(self.config, definition.name()),
            config: self.config,
            ca_cert: self.authority.certificate_pem(),
            owner: (&self.owner.0, &self.owner.1),
            audience: self.audience.as_deref(),
        }
    }

    /// Whether another pod has replaced a Job's first one, before a restart of the aggregator.
    fn was_replaced(&self, launch: &ClusterLaunch<'_>) -> anyhow::Result<bool> {
        if launch.definition.config.driver != DriverKind::Job || self.config.retries.node_lost == 0
        {
            return Ok(false);
        }
        let pods = self
            .client
            .list(&Resource::PODS, &self.config.namespace, &launch.selector())?;
        let own = |pod: &&Value| is_own(&pod["metadata"]["ownerReferences"], "", &self.owner.1);
        Ok(pods.iter().filter(own).any(|pod| attempt(pod) > 1))
    }

    /// Deletes pods whose results are settled, and creates the next ones; returns those that cannot
    /// be created.
    fn advance(
        &self,
        launch: &ClusterLaunch<'_>,
        waves: &mut WaveQueue,
        monitor: &mut Monitor,
        stop: &Stop,
    ) -> Vec<Failure> {
        let plugin = launch.definition.name();
        let per_node = launch.definition.config.driver.is_per_node();
        let settled = |place: &str| (self.settled)(&ResultId::on_node(plugin, place));
        waves.adopt(|| monitor.occupied().map(str::to_owned).collect());
        let mut due = Vec::new();
        for place in std::mem::take(&mut monitor.due) {
            // The lost one ends if its node comes back.
            self.delete_pod(&launch.pod_name(&place, monitor.attempt(&place) - 1));
            // A node that came back is not waited for.
            if settled(&place) {
                due.push(place);
            } else {
                waves.again(place);
            }
        }
        for place in waves.finished(|place| per_node && settled(place)) {
            let pod = launch.pod(&place, monitor.attempt(&place), &[]);
            monitor.settle_at(&place);
            if monitor.is_ready(&place) && !launch.definition.config.skip_cleanup {
                let mut ended = pod.clone();
                ended["status"] = json!({"phase": "Succeeded"});
                (self.keep_logs)(&ended);
            }
            self.delete_pod(pod.name());
        }
        due.extend(waves.due(|place| monitor.is_ready(place)));
        let mut failures = Vec::new();
        for place in due {
            let mut pod = launch.pod(&place, monitor.attempt(&place), &monitor.lost_nodes());
            self.name_peers(&mut pod, launch.definition, &place);
            if let Err(error) = self.create(&Resource::PODS, &pod, stop) {
                failures.push(monitor.cannot_start(&place, &format!("{error:#}")));
            }
        }
        failures
    }

    /// Tells the plugin in a pod on `node` about other nodes, if it asks for them.
    fn name_peers(&self, pod: &mut Value, plugin: &Definition, node: &str) {
        let count = usize::from(plugin.config.peers);
        if count == 0 || !plugin.config.driver.is_per_node() {
            return;
        }
        let peers = json!(self.ring.peers(node, count)).to_string();
        let containers = pod["spec"]["containers"].as_array_mut();
        let mut containers = containers.into_iter().flatten();
        let own = containers.find(|container| container["name"] == plugin.spec["name"]);
        if let Some(container) = own {
            let variable = json!({"name": env::PEERS, "value": peers});
            list_in(container, "env").push(variable);
        }
    }

    /// Deletes a pod now, or leaves it for the end of the run.
    fn delete_pod(&self, name: &str) {
        let client = self.client.once(LOG_TIMEOUT);
        let request = Request::delete(&Resource::PODS, &self.config.namespace, name);
        if let Err(error) = client.send(&request.grace_period(POD_GRACE)) {
            log::debug!("`{name}` is deleted later: {error}");
        }
    }

    /// Creates an object. Adopts an existing one of this aggregator pod, from before a restart;
    /// waits until one of an earlier pod is deleted.
    fn create(&self, resource: &Resource, object: &Value, stop: &Stop) -> anyhow::Result<()> {
        loop {
            match self.client.create(resource, &self.config.namespace, object) {
                // The outcome is unknown; the fixed name prevents a duplicate.
                Err(kube::Error::Transport {
                    stage: Stage::Sent, ..
                }) if !stop.wait(CHECK_INTERVAL) => {}
                Err(error)
                    if error.already_exists()
                        && self.is_left_over(resource, object)
                        && !stop.wait(CHECK_INTERVAL) => {}
                Err(error) if !error.already_exists() => {
                    let what = format!("creating {} `{}`", resource.kind, object.name());
                    return Err(match remedy(error.obstacle()) {
                        Some(remedy) => anyhow::anyhow!("{what}: {error}; {remedy}"),
                        None => anyhow::Error::new(error).context(what),
                    });
                }
                _ => return Ok(()),
            }
        }
    }

    /// Whether the object with the name of `object` is owned by another pod, or was deleted
    /// meanwhile. Removes it if its node has not done that in time.
    fn is_left_over(&self, resource: &Resource, object: &Value) -> bool {
        let namespace = &self.config.namespace;
        let Ok(found) = self.client.find(resource, namespace, object.name()) else {
            return false;
        };
        let Some(found) = found else { return true };
        let meta = &found["metadata"];
        if ["", &*self.owner.1].contains(&meta["ownerReferences"][0]["uid"].text()) {
            return false;
        }
        // The time of a deletion includes the grace period.
        let deleted = meta["deletionTimestamp"]
            .as_str()
            .and_then(clock::parse_rfc3339);
        if deleted.is_some_and(|deleted| passed(deleted, REMOVAL_GRACE, SystemTime::now())) {
            log::info!(
                "removing `{}` of an earlier aggregator, whose node does not respond",
                object.name()
            );
            if let Err(error) = self.client.delete_now(resource, namespace, &found) {
                log::debug!("`{}` is not removed: {error}", object.name());
            }
        }
        true
    }

    /// Reports findings about a plugin until `stop`.
    fn follow(
        &self,
        launch: &ClusterLaunch<'_>,
        expected: &[ResultId],
        findings: &SyncSender<Finding>,
        stop: &Stop,
    ) {
        let plugin = launch.definition.name();
        let driver = launch.definition.config.driver;
        let places = || expected.iter().map(|id| id.node.clone());
        let (spec, nodes) = match driver {
            DriverKind::Job => (None, BTreeSet::new()),
            _ => (Some(launch.pod_spec()), places().collect()),
        };
        let mut monitor = Monitor::new(
            plugin,
            spec,
            nodes,
            self.config.graces.clone(),
            SystemTime::now(),
        );
        monitor.retries = self.config.retries.node_lost;
        let mut waves = match driver {
            DriverKind::DaemonSet => None,
            // The first pod exists.
            DriverKind::Job => Some(WaveQueue::new([], 1)),
            DriverKind::Nodes => {
                monitor.waves = Some(self.config.nodes.clone());
                let waves = launch.definition.config.waves;
                Some(WaveQueue::new(
                    places(),
                    waves.size(self.config.nodes.max_parallel, expected.len()),
                ))
            }
        };
        let mut changed = None::<Instant>;
        let contacts_soon = launch.audience.is_some() || self.has_own_workers;
        if contacts_soon && launch.definition.config.has_worker() {
            // The worker requests a certificate, or sends a heartbeat; the original's does neither.
            monitor.silent.limit = Some(self.config.graces.silence);
        }
        let client = &self.client.under(stop);
        let (sender, seen) = sync_channel(MAX_QUEUED_EVENTS);
        std::thread::scope(|scope| {
            // A panic ends the watches, too.
            let _over = StopOnDrop(stop);
            let nodes = sender.clone();
            let thread = |name: &str| base::thread(format!("{name} of {plugin}"));
            let pods = thread("pods").spawn_scoped(scope, move || {
                watch_pods(client, launch, &self.roster, &sender);
            });
            let nodes = thread("nodes").spawn_scoped(scope, move || watch_nodes(client, &nodes));
            if let Err(error) = pods.and(nodes) {
                log::error!("changes of plugin `{plugin}` are noticed late: {error}");
            }
            while !stop.stopped() {
                match seen.recv_timeout(CHECK_INTERVAL) {
                    Ok(first) => {
                        // Judge queued events together.
                        let queued = seen.try_iter().take(MAX_QUEUED_EVENTS);
                        for event in std::iter::once(first).chain(queued) {
                            monitor.see(event, SystemTime::now());
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        stop.wait(CHECK_INTERVAL);
                    }
                }
                for finding in self.judge(client, launch, &mut monitor) {
                    if let (Finding::Expect(id), Some(waves)) = (&finding, &mut waves) {
                        waves.join(id.node.clone());
                    }
                    if findings.send(finding).is_err() {
                        return;
                    }
                }
                // Losses are sent before the next pods are created, so that a restarted aggregator
                // knows them.
                if let Some(waves) = &mut waves
                    && monitor.listed
                    && changed.is_none_or(|changed| changed.elapsed() >= CHECK_INTERVAL)
                {
                    changed = Some(Instant::now());
                    let failures = self.advance(launch, waves, &mut monitor, stop).into_iter();
                    if failures
                        .map(Finding::Failure)
                        .any(|finding| findings.send(finding).is_err())
                    {
                        return;
                    }
                }
            }
            // A watch that is blocked on a full queue must notice that the reader is gone.
            drop(seen);
        });
    }

    /// Judges all events so far, and explains the findings.
    fn judge(
        &self,
        client: &kube::Client,
        launch: &ClusterLaunch<'_>,
        monitor: &mut Monitor,
    ) -> Vec<Finding> {
        if let Some((uid, pod)) = monitor.silent.look_at(self.heard, SystemTime::now()) {
            match worker_log(client, launch, &pod) {
                Ok(log) => monitor.silent.explain(&uid, &log),
                Err(error) => log::debug!("no log of the worker in `{pod}`: {error}"),
            }
        }
        explain_delays(client, launch, monitor);
        monitor.hold(self.receiving, SystemTime::now());
        let mut why = None;
        let mut found = monitor.check(SystemTime::now());
        for finding in &mut found {
            complete_report(client, launch, finding);
            if monitor.lacks_pod(finding) {
                finding.add(why.get_or_insert_with(|| no_pod(client, launch)));
            }
        }
        found
    }
}

/// Time for the pods of a plugin to end after the run: what its definition asks for.
fn cleanup_time(plugin: &Definition) -> Duration {
    let spec = plugin.pod_spec.as_ref();
    let seconds = spec.and_then(|spec| spec["terminationGracePeriodSeconds"].as_u64());
    seconds.map_or(POD_GRACE, Duration::from_secs)
}

fn resource(launch: &ClusterLaunch<'_>) -> &'static Resource {
    let is_set = launch.definition.config.driver == DriverKind::DaemonSet;
    if is_set {
        &Resource::DAEMON_SETS
    } else {
        &Resource::PODS
    }
}

fn watch_pods(
    client: &kube::Client,
    launch: &ClusterLaunch<'_>,
    roster: &Roster,
    seen: &SyncSender<WatchEvent>,
) {
    let pods = client.watch(
        &Resource::PODS,
        &launch.config.namespace,
        &launch.selector(),
    );
    for event in pods.shrink(shrink_pod) {
        match &event {
            Ok(Event::Applied(pod)) => roster.enter(launch, pod),
            Ok(Event::Deleted(pod)) => roster.leave(pod),
            Ok(Event::Restarted | Event::Synced) => {}
            Err(error) => {
                log::warn!(
                    "pods of plugin `{}` cannot be watched: {error}",
                    launch.definition.name()
                );
            }
        }
        if event.is_ok_and(|event| seen.send(WatchEvent::Pod(event)).is_err()) {
            return;
        }
    }
}

fn watch_nodes(client: &kube::Client, seen: &SyncSender<WatchEvent>) {
    for event in client
        .watch(&Resource::NODES, "", &Selector::all())
        .shrink(shrink_node)
    {
        let told = match event {
            Ok(event) => seen.send(WatchEvent::Node(event)),
            // Without permission to watch nodes, the pods alone are followed.
            Err(error) => return log::info!("nodes cannot be watched: {error}"),
        };
        if told.is_err() {
            return;
        }
    }
}

/// Drops the fields of a pod that are not judged: thousands of pods are kept.
fn shrink_pod(pod: &mut Value) {
    let (meta, spec) = (&pod["metadata"], &pod["spec"]);
    *pod = json!({
        "metadata": {
            "name": meta["name"], "uid": meta["uid"],
            "creationTimestamp": meta["creationTimestamp"], "deletionTimestamp": meta["deletionTimestamp"],
            "labels": meta["labels"], "ownerReferences": meta["ownerReferences"],
        },
        "spec": {
            "nodeName": spec["nodeName"], "restartPolicy": spec["restartPolicy"],
            "affinity": {"nodeAffinity": spec["affinity"]["nodeAffinity"]},
        },
        "status": pod["status"],
    });
}

/// Remedy when a pod may not be created.
fn remedy(obstacle: Option<Obstacle>) -> Option<&'static str> {
    match obstacle? {
        Obstacle::PodSecurity => Some(
            "give the plugin a securityContext that the namespace allows, or label the namespace \
             `pod-security.kubernetes.io/enforce=privileged`",
        ),
        Obstacle::Quota => {
            // A quota on limits also refuses containers without limits.
            Some(
                "raise the quota of the namespace, or give each of the plugin's containers \
                 `resources` within it, and the worker in `WorkerResources` of the configuration",
            )
        }
        _ => None,
    }
}

/// Why the controller creates no pods, from its latest event. One request for all nodes of a batch.
fn no_pod(client: &kube::Client, launch: &ClusterLaunch<'_>) -> String {
    let events = client.once(EVENTS_TIMEOUT);
    match events.delay(&launch.config.namespace, &launch.object()) {
        Ok(Some(Delay::Warning { message, .. })) => {
            let remedy = remedy(Obstacle::of(&message)).map(|remedy| format!("; {remedy}"));
            format!(": {message}{}", remedy.unwrap_or_default())
        }
        Ok(Some(Delay::Unreadable)) => format!("; {}", Delay::Unreadable),
        Ok(None) => String::new(),
        Err(error) => {
            log::debug!("no events of `{}`: {error}", launch.object_name());
            String::new()
        }
    }
}

/// Reads the events of pods that do not start.
fn explain_delays(client: &kube::Client, launch: &ClusterLaunch<'_>, monitor: &mut Monitor) {
    let events = client.once(EVENTS_TIMEOUT);
    for pod in monitor.delayed_pods(SystemTime::now()) {
        match events.delay(&launch.config.namespace, &pod) {
            Ok(delay) => monitor.explain_delay(&pod, delay, SystemTime::now()),
            Err(error) => {
                log::debug!("no events of `{}`: {error}", pod.name());
                // The others would probably wait as long, and the check with them.
                return;
            }
        }
    }
}

/// The end of the log of a pod's worker.
fn worker_log(
    client: &kube::Client,
    launch: &ClusterLaunch<'_>,
    pod: &str,
) -> Result<String, kube::Error> {
    let request = Request::get(&Resource::PODS, &launch.config.namespace, pod).subresource("log");
    let request = request
        .query("container", WORKER_CONTAINER)
        .query("tailLines", "100");
    client.once(LOG_TIMEOUT).text(&request, LOG_BYTES)
}

/// Adds the whole pod to the report of its failure, if the API still has it.
fn complete_report(client: &kube::Client, launch: &ClusterLaunch<'_>, finding: &mut Finding) {
    if let Finding::Failure(Failure { report, .. }) = finding
        && let Some(pod) = report.get_mut("pod")
        && let Some(name) = pod["metadata"]["name"].as_str()
        && let Ok(mut whole) = client.get(&Resource::PODS, &launch.config.namespace, name)
        && whole["metadata"]["uid"] == pod["metadata"]["uid"]
    {
        forget_managers(&mut whole);
        *pod = whole;
    }
}

/// The places of one launch, in the order in which the run starts their pods itself: so many at
/// once, each until its result is settled. A place is a node, or the only one of a Job. What is
/// settled and ready are arguments.
struct WaveQueue {
    waiting: VecDeque<String>,
    /// Places with a pod.
    active: BTreeSet<String>,
    size: usize,
    adopted: bool,
}

impl WaveQueue {
    /// Places in their order, `size` at once.
    fn new(places: impl IntoIterator<Item = String>, size: usize) -> Self {
        Self {
            waiting: places.into_iter().collect(),
            active: BTreeSet::new(),
            size,
            adopted: false,
        }
    }

    /// Takes over, once, the places with pods from before a restart.
    fn adopt(&mut self, occupied: impl FnOnce() -> BTreeSet<String>) {
        if !std::mem::replace(&mut self.adopted, true) {
            self.active = occupied();
            self.waiting.retain(|place| !self.active.contains(place));
        }
    }

    /// Appends a node that joined.
    fn join(&mut self, place: String) {
        self.waiting.push_back(place);
    }

    /// Gives a place that lost its pod the next one first.
    fn again(&mut self, place: String) {
        self.active.remove(&place);
        self.waiting.push_front(place);
    }

    /// Takes places whose pods can be deleted.
    fn finished(&mut self, is_settled: impl Fn(&str) -> bool) -> Vec<String> {
        let settled: Vec<_> = self
            .active
            .iter()
            .filter(|place| is_settled(place))
            .take(MAX_CHANGES)
            .cloned()
            .collect();
        self.active.retain(|place| !settled.contains(place));
        settled
    }

    /// Takes places whose pods can be created. One that is not ready keeps its turn.
    fn due(&mut self, is_ready: impl Fn(&str) -> bool) -> Vec<String> {
        let room = self.size.saturating_sub(self.active.len()).min(MAX_CHANGES);
        let due: Vec<_> = self
            .waiting
            .iter()
            .filter(|place| is_ready(place))
            .take(room)
            .cloned()
            .collect();
        self.waiting.retain(|place| !due.contains(place));
        self.active.extend(due.iter().cloned());
        due
    }
}

/// A pod of a plugin.
#[derive(Clone)]
pub struct Seat {
    /// Session, which identifies plugin and run.
    pub session: String,
    /// Node; empty before scheduling.
    pub node: String,
    /// Addresses of the pod.
    pub addresses: Vec<String>,
    /// Addresses of its node, which connections from all its pods may have.
    pub host_addresses: Vec<String>,
}

/// The plugins' pods as the watches see them, by uid: shared by the drivers, which fill it, and by
/// the check of tokens.
#[derive(Clone, Default)]
pub struct Roster(Arc<Mutex<HashMap<String, Seat>>>);

impl Seat {
    /// Reads a pod's seat and uid; `None` for pods of other runs.
    pub fn of(pod: &Value) -> Option<(String, Self)> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let meta = &pod["metadata"];
        let addresses = |single: &str, list: &str| {
            let listed = pod["status"][list].items();
            text(&pod["status"][single])
                .into_iter()
                .chain(listed.filter_map(|entry| text(&entry["ip"])))
                .collect()
        };
        let seat = Self {
            session: text(&meta["labels"][LABEL_SESSION])?,
            node: text(&pod["spec"]["nodeName"]).unwrap_or_default(),
            addresses: addresses("podIP", "podIPs"),
            host_addresses: addresses("hostIP", "hostIPs"),
        };
        Some((text(&meta["uid"])?, seat))
    }
}

/// Whether a pod was created by this launch, directly or by its DaemonSet's controller. Labels
/// alone prove nothing: any pod may have them.
pub fn is_own(owner: &Value, object_name: &str, aggregator_uid: &str) -> bool {
    let references = owner.items();
    references.into_iter().any(|reference| {
        reference["uid"] == *aggregator_uid && reference["kind"] == "Pod"
            || reference["kind"] == "DaemonSet" && reference["name"] == *object_name
    })
}

impl Roster {
    /// The pod with this uid.
    pub fn seat(&self, uid: &str) -> Option<Seat> {
        lock(&self.0).get(uid).cloned()
    }

    /// Whether the address belongs to another pod than `uid` or to another node, and not to this
    /// pod.
    pub fn is_elsewhere(&self, uid: &str, own: &Seat, address: &str) -> bool {
        let has = |addresses: &[String]| addresses.iter().any(|known| known == address);
        // A pod connects before its own status has any address.
        let elsewhere = |seat: &Seat| {
            if has(&seat.host_addresses) {
                seat.node != own.node
            } else {
                has(&seat.addresses)
            }
        };
        !has(&own.addresses)
            && !has(&own.host_addresses)
            && lock(&self.0)
                .iter()
                .any(|(other, seat)| other != uid && elsewhere(seat))
    }

    fn enter(&self, launch: &ClusterLaunch<'_>, pod: &Value) {
        if is_own(
            &pod["metadata"]["ownerReferences"],
            &launch.object_name(),
            launch.owner.1,
        ) && let Some((uid, seat)) = Seat::of(pod)
        {
            lock(&self.0).insert(uid, seat);
        }
    }

    fn leave(&self, pod: &Value) {
        if let Some(uid) = pod["metadata"]["uid"].as_str() {
            lock(&self.0).remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wave_is_refilled_as_results_settle() {
        let mut waves = WaveQueue::new(["a", "b", "c", "d"].map(str::to_owned), 2);
        assert_eq!(waves.due(|node| node != "b"), ["a", "c"]);
        assert_eq!(waves.due(|_| true), [""; 0]);
        assert_eq!(waves.finished(|node| node == "a"), ["a"]);
        assert_eq!(waves.due(|_| true), ["b"], "it kept its place");
        waves.again("c".into());
        assert_eq!(waves.due(|_| true), ["c"]);
        waves.join("e".into());
        assert_eq!(waves.finished(|_| true), ["b", "c"]);
        assert_eq!(waves.due(|_| true), ["d", "e"]);
    }

    #[test]
    fn pods_from_before_a_restart_count() {
        let mut waves = WaveQueue::new(["a", "b"].map(str::to_owned), 1);
        waves.adopt(|| ["b".to_owned()].into());
        waves.adopt(|| unreachable!());
        assert_eq!(waves.due(|_| true), [""; 0]);
        assert_eq!(waves.finished(|_| true), ["b"]);
    }

    #[test]
    fn address_of_the_own_node_is_not_that_of_another_pod() {
        let seat = |uid: &str, node: &str, status: Value| {
            let meta = json!({"uid": uid, "name": uid, "labels": {LABEL_SESSION: "s"}});
            Seat::of(&json!({"metadata": meta, "spec": {"nodeName": node}, "status": status}))
                .unwrap()
        };
        let roster = Roster::default();
        lock(&roster.0).extend([
            seat(
                "beside",
                "a",
                json!({"podIPs": [{"ip": "10.0.0.1"}], "hostIP": "1.1.1.1"}),
            ),
            seat(
                "in-host-network",
                "a",
                json!({"podIP": "1.1.1.1", "hostIPs": [{"ip": "1.1.1.1"}]}),
            ),
            seat(
                "away",
                "b",
                json!({"podIP": "10.0.0.2", "hostIP": "2.2.2.2"}),
            ),
        ]);
        let (uid, fresh) = seat("own", "a", json!({}));
        for (address, expected) in [
            ("1.1.1.1", false),
            ("10.0.0.1", true),
            ("10.0.0.2", true),
            ("2.2.2.2", true),
            ("192.0.2.1", false),
        ] {
            assert_eq!(
                roster.is_elsewhere(&uid, &fresh, address),
                expected,
                "{address}"
            );
        }
        let (uid, known) = seat(
            "away",
            "b",
            json!({"podIP": "10.0.0.2", "hostIP": "2.2.2.2"}),
        );
        assert!(
            ["10.0.0.2", "2.2.2.2"]
                .iter()
                .all(|address| !roster.is_elsewhere(&uid, &known, address))
        );
    }
}
