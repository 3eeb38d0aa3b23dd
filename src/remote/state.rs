//! The state of a run in a cluster, once or after each change: from the annotation of its aggregator's pod, or from
//! its
//! status service.
//!
//! Finds that pod and reads its annotation, for every command. Starts no thread: [`Source::follow`] blocks
//! until the client's stop.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use super::service::StatusClient;
use crate::names::{AGGREGATOR_SELECTORS, ANNOTATION_STATUS, SONOBUOY};
use crate::{causes, status};
use base::clock;
use base::kube::{Client, Error, Event, Resource, Selector};
use base::stop::Stop;

/// Waiting reasons of a container without image.
const NO_IMAGE: [&str; 4] = ["ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName"];
/// Other waiting reasons that rarely resolve by themselves.
const STUCK_REASONS: [&str; 2] = ["CreateContainerConfigError", "CreateContainerError"];
/// Time limits for a stuck aggregator: the cause may be repaired, but an image missing from its registry never
/// appears.
const STUCK_TIMEOUT: Duration = Duration::from_secs(300);
const NO_REGISTRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum aggregators listed; a namespace normally has one.
const MAX_AGGREGATORS: usize = 100;

/// State of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// No aggregator.
    Absent,
    /// A pod without a current status.
    Silent {
        /// The phase of the pod.
        phase: String,
        /// Description, with the cause of a delay.
        message: String,
        /// Whether the run cannot continue by itself.
        lost: bool,
        /// Time limit for a repair of the cause that the message names.
        stuck: Option<Duration>,
        /// Message of the node about an image that it cannot pull.
        no_image: Option<String>,
    },
    /// The published status.
    Told(status::Run),
}

impl State {
    /// Reads the state from a pod.
    pub(crate) fn of(pod: &Value) -> Self {
        let phase = pod["status"]["phase"].as_str().unwrap_or("Pending").to_owned();
        let annotation = &pod["metadata"]["annotations"][ANNOTATION_STATUS];
        if let ("Running" | "Succeeded", Some(text)) = (&*phase, annotation.as_str()) {
            return match status::Run::parse(text) {
                Ok(run) => Self::Told(status::Run { started: created(pod), ..run }),
                Err(error) => Self::Silent {
                    phase,
                    message: format!("the status on the aggregator's pod cannot be read: {error}"),
                    lost: false,
                    stuck: None,
                    no_image: None,
                },
            };
        }
        let Reasons { texts: reasons, stuck, no_image, image } = reasons(pod);
        let because = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
        let message = match &*phase {
            "Running" => format!("the aggregator is running but has not published its status yet{because}"),
            "Succeeded" => "the aggregator has ended without reporting its status".to_owned(),
            _ => format!("the aggregator's pod is {phase}{because}"),
        };
        let local = image.filter(|image| causes::is_local_image(image));
        let message = match &local {
            Some(image) => format!("{message}\n{}", causes::load_commands(image)),
            None => causes::advised(&message),
        };
        let stuck = stuck.then_some(if local.is_some() { NO_REGISTRY_TIMEOUT } else { STUCK_TIMEOUT });
        let lost = matches!(&*phase, "Failed" | "Unknown");
        Self::Silent { no_image: no_image.filter(|_| phase == "Pending"), phase, message, lost, stuck }
    }

    /// Whether the run counts as failed in a single query.
    pub(crate) fn has_failed(&self) -> bool {
        match self {
            Self::Told(run) => run.status == status::FAILED,
            Self::Silent { phase, lost, no_image, .. } => *lost || phase == "Succeeded" || no_image.is_some(),
            Self::Absent => false,
        }
    }

    /// Whether the state is final.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Told(run) => run.is_over(),
            Self::Silent { lost, phase, .. } => *lost || phase == "Succeeded",
            Self::Absent => false,
        }
    }

    /// The status document in any state; a run without status counts as running.
    pub(crate) fn document(&self) -> status::Run {
        match self {
            Self::Told(run) => run.clone(),
            Self::Silent { message, .. } if self.has_failed() => status::Run {
                status: status::FAILED.into(),
                error: Some(message.clone()),
                ..status::Run::default()
            },
            Self::Silent { message, .. } => {
                status::Run { message: Some(message.clone()), ..status::Run::default() }
            }
            Self::Absent => {
                status::Run { message: Some("there is no aggregator yet".into()), ..status::Run::default() }
            }
        }
    }
}

fn created(pod: &Value) -> Option<SystemTime> {
    clock::parse_rfc3339(pod["metadata"]["creationTimestamp"].as_str()?)
}

/// Why the containers of a pod are not ready.
struct Reasons {
    texts: Vec<String>,
    /// Whether the reason rarely resolves by itself.
    stuck: bool,
    /// Message about a missing image.
    no_image: Option<String>,
    image: Option<String>,
}

fn reasons(pod: &Value) -> Reasons {
    let mut reasons = Vec::new();
    let (mut stuck, mut no_image, mut image) = (false, None, None);
    let both = |reason: &Value, message: &Value| match (reason.as_str(), message.as_str()) {
        (Some(reason), Some(message)) if !message.is_empty() => Some(format!("{reason}: {message}")),
        (Some(reason), _) => Some(reason.to_owned()),
        (None, message) => message.map(str::to_owned),
    };
    reasons.extend(both(&pod["status"]["reason"], &pod["status"]["message"]));
    let list = |field: &str| pod["status"][field].as_array().cloned().unwrap_or_default();
    for condition in list("conditions") {
        // A pod that the control plane deleted, such as one of a lost node, has no other reason.
        let told = condition["type"] == "PodScheduled" && condition["status"] == "False"
            || condition["type"] == "DisruptionTarget" && condition["status"] == "True";
        if told {
            reasons.extend(both(&condition["reason"], &condition["message"]));
        }
    }
    for container in list("initContainerStatuses").iter().chain(&list("containerStatuses")) {
        let name = container["name"].as_str().unwrap_or_default();
        let (waiting, ended) = (&container["state"]["waiting"], &container["state"]["terminated"]);
        let reason = waiting["reason"].as_str().unwrap_or_default();
        if NO_IMAGE.contains(&reason) {
            no_image.get_or_insert_with(|| waiting["message"].as_str().unwrap_or_default().to_owned());
            image = image.or_else(|| container["image"].as_str().map(str::to_owned));
        }
        stuck |= no_image.is_some() || STUCK_REASONS.contains(&reason);
        for state in [waiting, ended] {
            if let Some(reason) = both(&state["reason"], &state["message"]) {
                let code = state["exitCode"].as_i64().map(|code| format!(", exit code {code}"));
                reasons.push(format!("container {name}: {reason}{}", code.unwrap_or_default()));
            }
        }
    }
    Reasons { texts: reasons, stuck, no_image, image }
}

/// The aggregator's pod of a namespace.
pub(crate) fn find(client: &Client, namespace: &str) -> Result<Option<Value>, Error> {
    for labels in AGGREGATOR_SELECTORS {
        let (mut first, mut count) = (None, 0);
        client.each(&Resource::PODS, namespace, &Selector::labels(labels), &mut |pod| {
            count += 1;
            if count > MAX_AGGREGATORS {
                return Err(format!(
                    "more than {MAX_AGGREGATORS} pods in namespace {namespace} are aggregators"
                ));
            }
            first.get_or_insert(pod);
            Ok(())
        })?;
        if count > 1 {
            log::warn!("{count} aggregator pods are in namespace {namespace}; the first one is asked");
        }
        if first.is_some() {
            return Ok(first);
        }
    }
    match client.get(&Resource::PODS, namespace, SONOBUOY) {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where to read the state of a run.
#[derive(Clone)]
pub(crate) enum Source {
    /// The annotation of the aggregator's pod.
    Cluster(Client),
    /// The run's status service, which needs no access to the cluster.
    Service(StatusClient),
}

impl Source {
    /// The state of the run in a namespace. A missing namespace or aggregator is an error.
    pub(crate) fn read(&self, namespace: &str) -> Result<State> {
        match self {
            Self::Cluster(client) => read(client, namespace),
            Self::Service(client) => client.status().map(State::Told),
        }
    }

    /// Passes the state on, now and after each change, until `changed` returns false or the source is stopped. Waits
    /// during outages of the API server.
    pub(crate) fn follow(&self, namespace: &str, mut changed: impl FnMut(State) -> bool) -> Result<()> {
        match self {
            Self::Cluster(client) => follow(client, namespace, changed),
            Self::Service(client) => client.follow(|run| changed(State::Told(run))),
        }
    }

    /// The same source, stopped by `stop`.
    pub(crate) fn under(&self, stop: &Stop) -> Self {
        match self {
            Self::Cluster(client) => Self::Cluster(client.under(stop)),
            Self::Service(client) => Self::Service(client.under(stop)),
        }
    }

    /// The stop of the source.
    pub(crate) fn stop(&self) -> &Stop {
        match self {
            Self::Cluster(client) => client.stop(),
            Self::Service(client) => client.stop(),
        }
    }

    /// Access to the cluster, if the source has it.
    pub(crate) fn cluster(&self) -> Option<&Client> {
        match self {
            Self::Cluster(client) => Some(client),
            Self::Service(_) => None,
        }
    }
}

fn read(client: &Client, namespace: &str) -> Result<State> {
    if let Some(pod) = find(client, namespace).context("looking for the aggregator")? {
        return Ok(State::of(&pod));
    }
    match client.get(&Resource::NAMESPACES, "", namespace) {
        Err(error) if error.is_not_found() => {
            Err(anyhow!("there is no namespace `{namespace}`; name the namespace of the run with `-n`"))
        }
        _ => Err(anyhow!("there is no run in namespace `{namespace}`; start one with `sonobuoy run`")),
    }
}

fn follow(client: &Client, namespace: &str, mut told: impl FnMut(State) -> bool) -> Result<()> {
    // Older aggregators are found by name.
    let selector = match find(client, namespace) {
        Ok(Some(pod)) => Selector::name(pod["metadata"]["name"].as_str().unwrap_or(SONOBUOY)),
        Ok(None) => Selector::labels(AGGREGATOR_SELECTORS[0]),
        Err(Error::Stopped) => return Ok(()),
        Err(error) if error.is_passing() => {
            log::warn!("{error}; waiting until it answers");
            Selector::labels(AGGREGATOR_SELECTORS[0])
        }
        Err(error) => return Err(error).context("looking for the aggregator"),
    };
    let (mut latest, mut synced) = (State::Absent, false);
    for event in client.watch(&Resource::PODS, namespace, &selector) {
        match event.context("watching the aggregator")? {
            Event::Restarted => (latest, synced) = (State::Absent, false),
            Event::Applied(pod) => latest = State::of(&pod),
            Event::Deleted(_) => latest = State::Absent,
            Event::Synced => synced = true,
        }
        if synced && !told(latest.clone()) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    fn check(pod: &Value, status: &str, words: &str, over: bool) {
        let state = State::of(pod);
        let document = state.document();
        let said = document.message.or(document.error).unwrap_or_default();
        assert_eq!((&*document.status, state.is_over()), (status, over), "{pod}");
        assert_eq!(said, words, "{pod}");
    }

    #[test]
    fn a_pod_in_every_state() {
        let pod = |phase: &str, more: Value| {
            let mut pod = json!({"metadata": {}, "status": {"phase": phase}});
            pod["status"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            pod
        };
        check(&pod("Pending", json!({})), "running", "the aggregator's pod is Pending", false);
        check(
            &pod(
                "Pending",
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]}),
            ),
            "running",
            "the aggregator's pod is Pending: Unschedulable: 0/1 nodes; check the nodes' free CPU and memory, their taints and the \
             pod's node selector",
            false,
        );
        let waiting = json!({"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]});
        check(
            &pod("Pending", waiting),
            "failed",
            "the aggregator's pod is Pending: container c: ErrImagePull: no; check the image's name and tag, the registry and the \
             pull secret; `sonobuoy images` lists what a run needs",
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
        check(&pod("Unknown", json!({})), "failed", "the aggregator's pod is Unknown", true);
        let words = "the aggregator has ended without reporting its status";
        check(&pod("Succeeded", json!({})), "failed", words, true);
    }

    #[test]
    fn an_annotation_counts_while_the_pod_runs() {
        let annotated = |phase: &str, text: &str| json!({"metadata": {"annotations": {(ANNOTATION_STATUS): text}}, "status": {"phase": phase}});
        let text = serde_json::to_string(&status::Run::default()).unwrap();
        assert_eq!(State::of(&annotated("Running", &text)), State::Told(status::Run::default()));
        assert!(matches!(State::of(&annotated("Failed", &text)), State::Silent { lost: true, .. }));
        // The next status may be readable.
        assert!(matches!(
            State::of(&annotated("Running", "{")),
            State::Silent { stuck: None, lost: false, no_image: None, .. }
        ));
    }
}
