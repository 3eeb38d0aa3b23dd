//! Follows one launch of a plugin in a cluster: reads its watches, explains and sends findings,
//! starts further pods.
//!
//! [`super::monitor`] judges the events. Knows neither the recipient of findings nor when the
//! plugin is finished: a [`Stop`] signals that. Threads: one watch of the plugin's pods, one of the
//! nodes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::POD_GRACE;
use super::monitor::{Monitor, MonitorSettings, Placement, WatchEvent};
use super::node::shrink_node;
use super::objects::{CHECK_INTERVAL, ClusterDriver, remedy};
use super::pod::ClusterLaunch;
use super::roster::Roster;
use super::waves::WaveQueue;
use base::json::json;
use base::stop::{Stop, StopOnDrop};
use client::protocol::{Failure, Finding, ResultId};
use kube::{
    self, Delay, Event, Object as _, Obstacle, Request, Resource, Selector, forget_managers,
};
use model::names::WORKER_CONTAINER;
use model::plugin::DriverKind;

/// Bytes read from the end of a silent worker's log, and the time limit of that request.
const MAX_LOG_BYTES: u64 = 16 << 10;
const LOG_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of a request for events.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of a request to delete a pod.
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);
/// Capacity of the queue between the watches and their reader.
const MAX_QUEUED_EVENTS: usize = 1024;

/// Reports findings about a plugin until `stop`.
pub(super) fn follow(
    driver: &ClusterDriver<'_>,
    launch: &ClusterLaunch<'_>,
    expected: &[ResultId],
    findings: &SyncSender<Finding>,
    stop: &Stop,
) {
    let plugin = launch.definition.name();
    let client = &driver.client.under(stop);
    let mut follower = Follower {
        driver,
        client,
        launch,
        monitor: monitor(driver, launch, expected),
        waves: waves(driver, launch, expected),
        last_change: None,
    };
    let (pod_sender, events) = sync_channel(MAX_QUEUED_EVENTS);
    let node_sender = pod_sender.clone();
    std::thread::scope(|scope| {
        // A panic ends the watches, too.
        let _stop_watches = StopOnDrop(stop);
        let pods = base::thread(format!("pods of {plugin}")).spawn_scoped(scope, move || {
            watch_pods(client, launch, &driver.roster, &pod_sender);
        });
        let nodes = base::thread(format!("nodes of {plugin}"))
            .spawn_scoped(scope, move || watch_nodes(client, &node_sender));
        if let Err(error) = pods.and(nodes) {
            log::error!("changes of plugin `{plugin}` are noticed late: {error}");
        }
        follower.follow_events(&events, findings, stop);
        // A watch that is blocked on a full queue must notice that the reader is gone.
        drop(events);
    });
}

/// What judges the events of a launch.
fn monitor(
    driver: &ClusterDriver<'_>,
    launch: &ClusterLaunch<'_>,
    expected: &[ResultId],
) -> Monitor {
    let config = driver.config;
    let placement = match launch.definition.config.driver {
        DriverKind::Job => Placement::Single,
        DriverKind::DaemonSet => Placement::Controlled(launch.pod_spec()),
        DriverKind::Nodes => Placement::Waves(launch.pod_spec(), config.nodes.clone()),
    };
    let nodes = match placement {
        Placement::Single => Vec::new(),
        Placement::Controlled(_) | Placement::Waves(..) => places(expected),
    };
    // The worker requests a certificate, or sends a heartbeat; the original's does neither.
    let contacts_soon = launch.audience.is_some() || driver.has_own_workers;
    let is_awaited = contacts_soon && launch.definition.config.has_worker();
    let settings = MonitorSettings {
        plugin: launch.definition.name().to_owned(),
        placement,
        grace: config.graces.clone(),
        max_relaunches: config.retries.node_lost,
        contact_timeout: is_awaited.then_some(config.graces.silence),
    };
    Monitor::new(settings, nodes.into_iter().collect(), SystemTime::now())
}

/// The pods that this run starts itself; `None` if a controller starts them.
fn waves(
    driver: &ClusterDriver<'_>,
    launch: &ClusterLaunch<'_>,
    expected: &[ResultId],
) -> Option<WaveQueue> {
    match launch.definition.config.driver {
        DriverKind::DaemonSet => None,
        // The first pod exists.
        DriverKind::Job => Some(WaveQueue::new([], 1)),
        DriverKind::Nodes => {
            let max_parallel = driver.config.nodes.max_parallel;
            let waves = launch.definition.config.waves;
            let size = waves.size(max_parallel, expected.len());
            Some(WaveQueue::new(places(expected), size))
        }
    }
}

fn places(expected: &[ResultId]) -> Vec<String> {
    expected.iter().map(|id| id.node.clone()).collect()
}

/// What follows one launch.
struct Follower<'a> {
    driver: &'a ClusterDriver<'a>,
    /// Client whose requests end with the launch.
    client: &'a kube::Client,
    launch: &'a ClusterLaunch<'a>,
    monitor: Monitor,
    waves: Option<WaveQueue>,
    /// When pods were last created or deleted.
    last_change: Option<Instant>,
}

impl Follower<'_> {
    /// Reads events and sends findings, until `stop`, or nobody reads the findings any more.
    fn follow_events(
        &mut self,
        events: &Receiver<WatchEvent>,
        findings: &SyncSender<Finding>,
        stop: &Stop,
    ) {
        while !stop.stopped() {
            self.record_events(events, stop);
            if !send_all(self.judge(), findings) {
                return;
            }
            // Losses are sent before the next pods are created, so that a restarted aggregator
            // knows them.
            let failures = self.change_pods(stop);
            if !send_all(failures.into_iter().map(Finding::Failure), findings) {
                return;
            }
        }
    }

    /// Waits for events, or for the next check.
    fn record_events(&mut self, events: &Receiver<WatchEvent>, stop: &Stop) {
        match events.recv_timeout(CHECK_INTERVAL) {
            Ok(first) => {
                self.monitor.record(first, SystemTime::now());
                // Judge queued events together.
                for event in events.try_iter().take(MAX_QUEUED_EVENTS) {
                    self.monitor.record(event, SystemTime::now());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                stop.wait(CHECK_INTERVAL);
            }
        }
    }

    /// Judges all events so far, and explains the findings.
    fn judge(&mut self) -> Vec<Finding> {
        self.read_silent_worker();
        self.explain_delays();
        let is_receiving = self.driver.is_receiving;
        self.monitor
            .suspend_failures(is_receiving, SystemTime::now());
        let mut findings = self.monitor.check(SystemTime::now());
        // One request for all nodes of a batch.
        let mut no_pod_cause = None;
        for finding in &mut findings {
            self.complete_report(finding);
            if self.monitor.lacks_pod(finding) {
                finding.add(no_pod_cause.get_or_insert_with(|| self.no_pod_cause()));
            }
            if let (Finding::Expect(id), Some(waves)) = (finding, &mut self.waves) {
                waves.append(id.node.clone());
            }
        }
        findings
    }

    /// Reads the log of a worker that runs but has not made contact.
    fn read_silent_worker(&mut self) {
        let has_contacted = self.driver.has_contacted;
        let worker = self
            .monitor
            .next_silent_worker(has_contacted, SystemTime::now());
        let Some((uid, pod)) = worker else { return };
        match self.worker_log(&pod) {
            Ok(log) => self.monitor.explain_silence(&uid, &log),
            Err(error) => log::debug!("no log of the worker in `{pod}`: {error}"),
        }
    }

    /// The end of the log of a pod's worker.
    fn worker_log(&self, pod: &str) -> Result<String, kube::Error> {
        let request = Request::get(&Resource::PODS, self.namespace(), pod)
            .subresource("log")
            .query("container", WORKER_CONTAINER)
            .query("tailLines", "100");
        let client = self.client.once(LOG_TIMEOUT);
        client.text(&request, MAX_LOG_BYTES)
    }

    /// Reads the events of pods that do not start.
    fn explain_delays(&mut self) {
        let client = self.client.once(EVENTS_TIMEOUT);
        for pod in self.monitor.take_delayed_pods(SystemTime::now()) {
            match client.delay(self.namespace(), &pod) {
                Ok(delay) => self.monitor.explain_delay(&pod, delay, SystemTime::now()),
                Err(error) => {
                    log::debug!("no events of `{}`: {error}", pod.name());
                    // The others would probably wait as long, and the check with them.
                    return;
                }
            }
        }
    }

    /// Adds the whole pod to the report of its failure, if the API still has it.
    fn complete_report(&self, finding: &mut Finding) {
        if let Finding::Failure(Failure { report, .. }) = finding
            && let Some(pod) = report.get_mut("pod")
            && let Some(name) = pod["metadata"]["name"].as_str()
            && let Ok(mut full_pod) = self.client.get(&Resource::PODS, self.namespace(), name)
            && full_pod["metadata"]["uid"] == pod["metadata"]["uid"]
        {
            forget_managers(&mut full_pod);
            *pod = full_pod;
        }
    }

    /// Why the controller creates no pods, from its latest event.
    fn no_pod_cause(&self) -> String {
        let client = self.client.once(EVENTS_TIMEOUT);
        match client.delay(self.namespace(), &self.launch.object()) {
            Ok(Some(Delay::Warning { message, .. })) => match remedy(Obstacle::of(&message)) {
                Some(remedy) => format!(": {message}; {remedy}"),
                None => format!(": {message}"),
            },
            Ok(Some(Delay::Unreadable)) => format!("; {}", Delay::Unreadable),
            Ok(None) => String::new(),
            Err(error) => {
                log::debug!("no events of `{}`: {error}", self.launch.object_name());
                String::new()
            }
        }
    }

    /// Deletes pods whose results are settled, and creates the next ones, with a pause after each
    /// change; returns the failures of those that cannot be created.
    fn change_pods(&mut self, stop: &Stop) -> Vec<Failure> {
        let is_early = self
            .last_change
            .is_some_and(|change| change.elapsed() < CHECK_INTERVAL);
        // A pod from before a restart must not be created a second time.
        if is_early || !self.monitor.knows_all_pods() {
            return Vec::new();
        }
        let Some(mut waves) = self.waves.take() else {
            return Vec::new();
        };
        waves.adopt(|| self.monitor.occupied_places().map(str::to_owned).collect());
        let mut due = self.delete_lost_pods(&mut waves);
        self.delete_settled_pods(&mut waves);
        due.extend(waves.take_due(|place| self.monitor.is_ready(place)));
        self.waves = Some(waves);
        self.create_pods(due, stop)
    }

    /// Deletes the pods that are replaced, and gives their places the next turn; returns the places
    /// that do not wait for one.
    fn delete_lost_pods(&mut self, waves: &mut WaveQueue) -> Vec<String> {
        let mut due_now = Vec::new();
        for place in self.monitor.take_relaunches() {
            let lost_attempt = self.monitor.attempt(&place) - 1;
            // The lost one ends if its node comes back.
            self.delete_pod(&self.launch.pod_name(&place, lost_attempt));
            // A node that came back is not waited for.
            if self.is_settled(&place) {
                due_now.push(place);
            } else {
                waves.put_first(place);
            }
        }
        due_now
    }

    fn delete_settled_pods(&mut self, waves: &mut WaveQueue) {
        let launch = self.launch;
        let config = &launch.definition.config;
        if !config.driver.is_per_node() {
            return;
        }
        for place in waves.take_settled(|place| self.is_settled(place)) {
            let pod = launch.pod(&place, self.monitor.attempt(&place), &[]);
            self.monitor.settle_place(&place);
            if self.monitor.is_ready(&place) && !config.skip_cleanup {
                // A manifest has no status, and only logs of pods that have started are read.
                let mut ended_pod = pod.clone();
                ended_pod["status"] = json!({"phase": "Succeeded"});
                (self.driver.keep_logs)(&ended_pod);
            }
            self.delete_pod(pod.name());
        }
    }

    fn create_pods(&mut self, places: Vec<String>, stop: &Stop) -> Vec<Failure> {
        let mut failures = Vec::new();
        for place in places {
            let attempt = self.monitor.attempt(&place);
            let mut pod = self.launch.pod(&place, attempt, &self.monitor.lost_nodes());
            self.driver
                .name_peers(&mut pod, self.launch.definition, &place);
            self.last_change = Some(Instant::now());
            if let Err(error) = self.driver.create(&Resource::PODS, &pod, stop) {
                failures.push(self.monitor.fail_start(&place, &format!("{error:#}")));
            }
        }
        failures
    }

    /// Deletes a pod now, or leaves it for the end of the run.
    fn delete_pod(&mut self, name: &str) {
        self.last_change = Some(Instant::now());
        let request = Request::delete(&Resource::PODS, self.namespace(), name);
        let client = self.driver.client.once(DELETE_TIMEOUT);
        if let Err(error) = client.send(&request.grace_period(POD_GRACE)) {
            log::debug!("`{name}` is deleted later: {error}");
        }
    }

    fn is_settled(&self, place: &str) -> bool {
        let id = ResultId::on_node(self.launch.definition.name(), place);
        (self.driver.is_settled)(&id)
    }

    fn namespace(&self) -> &str {
        &self.driver.config.namespace
    }
}

/// Sends findings; returns whether somebody reads them.
fn send_all(findings: impl IntoIterator<Item = Finding>, sender: &SyncSender<Finding>) -> bool {
    findings
        .into_iter()
        .all(|finding| sender.send(finding).is_ok())
}

fn watch_pods(
    client: &kube::Client,
    launch: &ClusterLaunch<'_>,
    roster: &Roster,
    sender: &SyncSender<WatchEvent>,
) {
    let namespace = &launch.config.namespace;
    let pods = client.watch(&Resource::PODS, namespace, &launch.selector());
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
        if event.is_ok_and(|event| sender.send(WatchEvent::Pod(event)).is_err()) {
            return;
        }
    }
}

fn watch_nodes(client: &kube::Client, sender: &SyncSender<WatchEvent>) {
    let nodes = client.watch(&Resource::NODES, "", &Selector::all());
    for event in nodes.shrink(shrink_node) {
        let event = match event {
            Ok(event) => WatchEvent::Node(event),
            // Without permission to watch nodes, the pods alone are followed.
            Err(error) => return log::info!("nodes cannot be watched: {error}"),
        };
        if sender.send(event).is_err() {
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
