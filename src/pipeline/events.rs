//! Kubernetes Events on the aggregator's pod: the run has started, a plugin has failed, with the first cause, a node was lost,
//! the run is over.
//!
//! Each event is created once, also by the next container of the pod: its name is a digest of its content. At most
//! [`MAX_EVENTS`], so that no failure floods the cluster. A failed creation is only logged at debug level, since the status
//! has the same information. Starts no thread.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::board::{sentence, troubles};
use crate::names::{self, SONOBUOY};
use crate::status::{self, Run};
use base::json::json;
use base::kube::{Client, Resource};
use base::{clock, hex, lock, sha256};

/// Maximum events of a container.
const MAX_EVENTS: usize = 20;
/// Maximum characters of a message, and nodes to name; the API refuses more than 1,024 bytes.
const MAX_CHARS: usize = 250;
const MAX_PLACES: usize = 3;

/// Time limit of a creation.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The events of a pod.
pub(super) struct Events<'a> {
    client: Client,
    namespace: &'a str,
    /// The pod's name and UID.
    pod: (String, String),
    created: Mutex<HashSet<String>>,
}

impl<'a> Events<'a> {
    pub(super) fn new(client: &Client, namespace: &'a str, pod: (String, String)) -> Self {
        // An API server that does not answer must not delay the run.
        let client = client.once(TIMEOUT);
        Self { client, namespace, pod, created: Mutex::default() }
    }

    /// Creates the events of this status that do not exist yet.
    pub(super) fn tell(&self, run: &Run) {
        let entries = run.plugins.as_deref().unwrap_or_default();
        if !entries.is_empty() {
            let plugins: HashSet<_> = entries.iter().map(|entry| &entry.plugin).collect();
            let text = format!("{} results of {} plugins are expected", entries.len(), plugins.len());
            self.create("Normal", "Started", "", &text);
        }
        for (reason, lost) in [("NodeLost", true), ("PluginFailed", false)] {
            let is_lost = |entry: &status::Entry| entry.lost.as_ref().is_some_and(|lost| !lost.pod);
            let failed =
                entries.iter().filter(|entry| entry.status == status::FAILED && is_lost(entry) == lost);
            let failed = failed.cloned().collect();
            for trouble in troubles(&Run { plugins: Some(failed), ..Run::default() }) {
                // Causes may name pods, so that no two are the same.
                let key = if lost { &trouble.cause } else { &trouble.task };
                self.create("Warning", reason, key, &sentence(&trouble, MAX_PLACES));
            }
        }
        match run.status.as_str() {
            status::COMPLETE => {
                self.create("Normal", "Complete", "", &format!("the archive is `{}`", run.archive.name));
            }
            status::FAILED => self.create("Warning", "Failed", "", run.error.as_deref().unwrap_or_default()),
            _ => {}
        }
    }

    /// Creates an event, unless there is one of this reason and `key`.
    fn create(&self, kind: &str, reason: &str, key: &str, message: &str) {
        let (pod, uid) = &self.pod;
        let name = format!("{pod}.{}", hex(&sha256(format!("{uid} {reason} {key}")).as_ref()[..8]));
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
            "metadata": {"labels": names::own_labels(), "name": name, "namespace": self.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": self.namespace, "uid": uid},
            "type": kind, "reason": reason, "message": message,
            "source": {"component": SONOBUOY},
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        if let Err(error) = self.client.create(&Resource::EVENTS, self.namespace, &event)
            && !error.already_exists()
        {
            log::debug!("the event `{reason}` was not created: {error}");
        }
    }
}
