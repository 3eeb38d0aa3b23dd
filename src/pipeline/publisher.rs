//! Publishes the status of a run: in the annotation of the aggregator's pod, as events of that pod,
//! and through the status service.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::context::{ClusterRun, uid};
use crate::progress_view::{sentence, troubles};
use base::at::At as _;
use base::json::json;
use base::stop::Stop;
use base::{clock, hex, lock, sha256, temp};
use kube::{Object as _, Resource};
use model::annotation::shorten;
use model::layout;
use model::names::{self, ANNOTATION_STATUS, SONOBUOY};
use model::status::{self, Run};

/// Maximum events of a container.
const MAX_EVENTS: usize = 20;
/// Maximum characters of a message, and nodes to name; the API refuses more than 1,024 bytes.
const MAX_CHARS: usize = 250;
const MAX_PLACES: usize = 3;
/// Time between two attempts to publish the last status.
const REPEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit of the creation of an event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the status is published.
pub(super) struct StatusPublisher<'a> {
    pub run: &'a ClusterRun<'a>,
    /// The aggregator's own, if it is known.
    pub pod: Option<&'a Value>,
    /// The events that were created, at most [`MAX_EVENTS`], so that no failure floods the
    /// cluster.
    created: Mutex<HashSet<String>>,
    /// The latest status, if it could not be published.
    unpublished: Mutex<Option<Run>>,
    /// Whether the status of the complete run is stored, which an older one must not replace.
    has_last: Mutex<bool>,
}

impl<'a> StatusPublisher<'a> {
    pub(super) fn new(run: &'a ClusterRun<'a>, pod: Option<&'a Value>) -> Self {
        Self {
            run,
            pod,
            created: Mutex::default(),
            unpublished: Mutex::default(),
            has_last: Mutex::default(),
        }
    }

    /// Writes the status into the annotation of the pod.
    pub(super) fn publish(&self, status: &Run) -> Result<()> {
        let Some(pod) = self.pod else { return Ok(()) };
        let published = self.annotate(pod, status);
        *lock(&self.unpublished) = published.is_err().then(|| status.clone());
        published
    }

    /// Publishes a status unless this container is being stopped: it could not send it any more,
    /// and the next one has more to report.
    pub(super) fn publish_unless_stopped(&self, status: &Run, stop: &Stop) -> Result<()> {
        if stop.stopped() {
            return Ok(());
        }
        self.publish(status)
    }

    /// Whether the latest status is in the annotation of the pod.
    pub(super) fn is_published(&self) -> bool {
        self.pod.is_some() && lock(&self.unpublished).is_none()
    }

    /// Repeats a publication that failed until it succeeds or `stop`, if this container stays: a
    /// command that follows the run waits for it.
    pub(super) fn repeat_failed(&self, stop: &Stop) {
        while self.run.stays && !stop.wait(Duration::ZERO) {
            let unpublished = lock(&self.unpublished).clone();
            let Some(status) = unpublished else { return };
            if stop.wait(REPEAT_INTERVAL) {
                return;
            }
            if let Err(error) = self.publish(&status) {
                log::warn!("the last status could not be published: {error:#}");
            }
        }
    }

    fn annotate(&self, pod: &Value, status: &Run) -> Result<()> {
        let short = shorten(status.clone());
        if short.truncated {
            // `status --json --all` reads it.
            if let Err(error) = self.store(status) {
                log::warn!("{error:#}");
            }
        }
        let patch = json!({"metadata": {"annotations": {(ANNOTATION_STATUS): serde_json::to_string(&short)?}}});
        let namespace = &self.run.config.namespace;
        self.run
            .client
            .merge_patch(&Resource::PODS, namespace, pod.name(), &patch)?;
        self.create_events(pod, status);
        Ok(())
    }

    /// Serves a status that no longer changes.
    fn serve(&self, last: &Run) {
        if let Some(status_service) = self.run.status_service {
            let last = last.clone();
            status_service.show(move || last.clone());
        }
    }

    /// Serves and publishes a status that no longer changes.
    pub(super) fn publish_final(&self, last: Run) {
        self.serve(&last);
        if let Err(error) = self.publish(&last) {
            log::warn!("the status could not be published: {error:#}");
        }
    }

    /// Stores a status durably, for the next container and for clients that need all of it.
    pub(super) fn store(&self, status: &Run) -> Result<()> {
        let mut has_last = lock(&self.has_last);
        let is_last = status.status == status::COMPLETE;
        if *has_last && !is_last {
            return Ok(());
        }
        *has_last = is_last;
        let path = self.run.folder.join(layout::LAST_STATUS);
        let text = serde_json::to_string(status)?;
        temp::write(&path, 0o600, text).at("cannot write", &path)
    }

    /// Creates the events of this status that do not exist yet: the run has started, a plugin has
    /// failed, with the first cause, a node was lost, the run is over.
    fn create_events(&self, pod: &Value, run: &Run) {
        let entries = run.plugins.as_deref().unwrap_or_default();
        if !entries.is_empty() {
            let plugins: HashSet<_> = entries.iter().map(|entry| &entry.plugin).collect();
            let text = format!(
                "{} results of {} plugins are expected",
                entries.len(),
                plugins.len()
            );
            self.create_event(pod, "Normal", "Started", "", &text);
        }
        for (reason, lost) in [("NodeLost", true), ("PluginFailed", false)] {
            let is_lost = |entry: &status::Entry| entry.lost.as_ref().is_some_and(|lost| !lost.pod);
            let failed = entries
                .iter()
                .filter(|entry| entry.status == status::FAILED && is_lost(entry) == lost);
            let failed = failed.cloned().collect();
            for trouble in troubles(&Run {
                plugins: Some(failed),
                ..Run::default()
            }) {
                // Causes may name pods, so that no two are the same.
                let key = if lost { &trouble.cause } else { &trouble.task };
                self.create_event(pod, "Warning", reason, key, &sentence(&trouble, MAX_PLACES));
            }
        }
        match run.status.as_str() {
            status::COMPLETE => {
                self.create_event(
                    pod,
                    "Normal",
                    "Complete",
                    "",
                    &format!("the archive is `{}`", run.archive.name),
                );
            }
            status::FAILED => {
                self.create_event(
                    pod,
                    "Warning",
                    "Failed",
                    "",
                    run.error.as_deref().unwrap_or_default(),
                );
            }
            _ => {}
        }
    }

    /// Creates an event once, also by the next container of the pod: its name is a digest of its
    /// reason and `key`. A failed creation is only logged at debug level, since the status has
    /// the same information.
    fn create_event(&self, pod: &Value, kind: &str, reason: &str, key: &str, message: &str) {
        let (pod, uid, namespace) = (pod.name(), uid(pod), &self.run.config.namespace);
        let name = format!(
            "{pod}.{}",
            hex(&sha256(format!("{uid} {reason} {key}")).as_ref()[..8])
        );
        {
            let mut created = lock(&self.created);
            if created.len() >= MAX_EVENTS || !created.insert(name.clone()) {
                return;
            }
        }
        let message: String = message.chars().take(MAX_CHARS).collect();
        let now = clock::now();
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"labels": names::own_labels(), "name": name, "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": namespace, "uid": uid},
            "type": kind, "reason": reason, "message": message,
            "source": {"component": SONOBUOY},
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        // An API server that does not answer must not delay the run.
        let client = self.run.client.once(EVENT_TIMEOUT);
        if let Err(error) = client.create(&Resource::EVENTS, namespace, &event)
            && !error.already_exists()
        {
            log::debug!("the event `{reason}` was not created: {error}");
        }
    }
}
