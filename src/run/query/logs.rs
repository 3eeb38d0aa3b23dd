//! Pod logs: selects them, and streams each into its file.
//!
//! Owns `podlogs/<namespace>/<pod>/logs/<container>.txt` and all settings in `Limits.PodLogs`. Init
//! and ephemeral containers are included. Lines that look like errors are counted on the way.

use std::collections::BTreeSet;
use std::io::Read;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;

use super::kubelets::{ANSWER_TIMEOUT, Kubelets, UNREACHABLE};
use super::log_file::{LOG_TIMEOUT, SILENCE_TIMEOUT, keep_log};
use super::{
    FailedQuery, Fault, Query, QueryTask, Records, What, component, count_log_line, objects,
};
use base::pattern;
use kube::{self, Client, Object as _, Request, Resource, Selector};
use model::{config, layout, names};

/// The kubelet's response for a container that has not started yet as far as it knows, and how
/// often to try again.
const NOT_STARTED: u16 = 400;
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const LOOKS: usize = 3;

/// Selects the pods whose logs to read: all in these namespaces, and those that a selector of
/// fields matches.
pub(super) struct PodSelection(Vec<(Regex, Selector)>);

/// A log to fetch.
pub(super) struct LogRequest {
    /// Its file in the snapshot.
    place: String,
    request: Request,
    /// The container is still being created, according to the cluster.
    starting: bool,
}

impl PodSelection {
    /// Reads the settings.
    pub(super) fn new(config: &config::Run) -> anyhow::Result<Self> {
        let limits = &config.limits.pod_logs;
        let own_namespace =
            (limits.sonobuoy_namespace == Some(true)).then(|| pattern::quote(&config.namespace));
        let text: Vec<String> = Some(&limits.namespaces)
            .filter(|given| !given.is_empty())
            .cloned()
            .into_iter()
            .chain(own_namespace)
            .collect();
        let labels = objects::checked("Limits.PodLogs.LabelSelector", &limits.label_selector);
        let mut choice = Vec::new();
        if !text.is_empty() {
            let namespaces = pattern::compile(&text.join("|")).map_err(anyhow::Error::msg)?;
            choice.push((namespaces, Selector::labels(labels.clone())));
        }
        let all = Regex::new("")?;
        for fields in limits.field_selectors.iter().flatten() {
            choice.push((
                all.clone(),
                Selector {
                    labels: labels.clone(),
                    fields: fields.clone(),
                },
            ));
        }
        Ok(Self(choice))
    }

    /// The logs of one pod; a selector other than by namespace selects only among all pods.
    pub(super) fn of_pod(&self, pod: &Value, config: &config::Run) -> Vec<QueryTask> {
        if !objects::includes_logs(config) {
            return Vec::new();
        }
        let is_chosen = |(wanted, selector): &(Regex, Selector)| {
            *selector == Selector::all() && wanted.is_match(pod.namespace())
        };
        if self.0.iter().any(is_chosen) {
            logs_of(pod, config)
        } else {
            Vec::new()
        }
    }

    /// Finds the pods, and creates a query for each container. Pods of a few namespaces are listed
    /// individually, of more at once; without permission to list all, the known ones are
    /// listed.
    pub(super) fn tasks(
        &self,
        query: &Query<'_>,
        known: &BTreeSet<String>,
        troubles: &mut Vec<FailedQuery>,
    ) -> Vec<QueryTask> {
        let mut tasks = Vec::new();
        for (wanted, selector) in &self.0 {
            let chosen: Vec<_> = known.iter().filter(|name| wanted.is_match(name)).collect();
            let mut list = |namespace: &str| {
                let mut take = |pod: Value| {
                    if wanted.is_match(pod.namespace()) {
                        tasks.extend(logs_of(&pod, query.config));
                    }
                    Ok(())
                };
                let failed = query
                    .client
                    .each(&Resource::PODS, namespace, selector, &mut take)
                    .err()?;
                let trouble = FailedQuery::new("PodLogs", namespace, "", failed.to_string());
                Some((failed.is_forbidden(), trouble))
            };
            let all =
                chosen.len() > objects::MAX_SEPARATE_NAMESPACES || chosen.len() == known.len();
            match all.then(|| list("")) {
                Some(None) => {}
                Some(Some((false, trouble))) => troubles.push(trouble),
                _ => troubles.extend(chosen.into_iter().filter_map(|name| Some(list(name)?.1))),
            }
        }
        tasks.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        // Several selectors may match a pod.
        tasks.dedup_by(|a, b| (&a.namespace, &a.name) == (&b.namespace, &b.name));
        tasks
    }
}

/// A query for the log of each container of a pod.
fn logs_of(pod: &Value, config: &config::Run) -> Vec<QueryTask> {
    let limits = &config.limits.pod_logs;
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let (namespace, name) = (pod.namespace(), pod.name());
    // The kubelet has removed everything belonging to an evicted pod.
    if status["phase"] == "Failed" && status["reason"] == "Evicted" {
        return Vec::new();
    }
    let is_ours = namespace == config.namespace
        && pod["metadata"]["labels"][names::LABEL_ALL] == names::SONOBUOY;
    let states = [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ];
    let kinds = ["initContainers", "containers", "ephemeralContainers"];
    let mut tasks = Vec::new();
    for container in kinds.iter().flat_map(|kind| spec[kind].items()) {
        let container = &container["name"];
        let mut statuses = states.iter().flat_map(|key| status[key].items());
        let state = statuses
            .find(|state| state["name"] == *container)
            .unwrap_or(&Value::Null);
        // A container that was never restarted has no earlier log; one that never ran has none at
        // all.
        let restarted = state["restartCount"].as_u64().unwrap_or_default() > 0;
        let waiting = &state["state"]["waiting"];
        // The cluster's view is seconds old: a quick plugin may have finished in the meantime.
        let starting = is_ours
            && (waiting["reason"] == "ContainerCreating" || waiting["reason"] == "PodInitializing");
        let ran = match state {
            Value::Null => status["phase"] != "Pending",
            _ => waiting.is_null() || restarted || starting,
        };
        if !ran || (limits.previous && !restarted) {
            continue;
        }
        let container = container.text();
        let request = request(namespace, name, container, limits);
        let place = layout::pod_log(
            &component(namespace),
            &component(name),
            &component(container),
        );
        let what = What::Log(LogRequest {
            place,
            request,
            starting,
        });
        tasks.push(QueryTask {
            name: format!("{name}/{container}"),
            node: spec["nodeName"].text().to_owned(),
            ..QueryTask::new("PodLogs", namespace, what)
        });
    }
    tasks
}

fn request(namespace: &str, pod: &str, container: &str, limits: &config::PodLogs) -> Request {
    let flag = |set: bool| set.then(|| "true".to_owned());
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    let options = [
        ("container", Some(container.to_owned())),
        ("previous", flag(limits.previous)),
        ("timestamps", flag(limits.timestamps)),
        ("sinceSeconds", number(limits.since_seconds)),
        ("tailLines", number(limits.tail_lines)),
        ("limitBytes", number(limits.limit_bytes)),
        ("sinceTime", limits.since_time.clone()),
    ];
    let request = Request::get(&Resource::PODS, namespace, pod).subresource("log");
    options
        .into_iter()
        .fold(request, |request, (name, value)| match value {
            Some(value) => request.query(name, value),
            None => request,
        })
}

impl LogRequest {
    /// The log as a stream; `None` if the container is still being created.
    fn open(&self, client: &Client, silence: Duration) -> Result<Option<impl Read>, kube::Error> {
        for _ in 0..LOOKS {
            match client.stream(&self.request, Some(silence)) {
                Err(kube::Error::Api(refusal)) if self.starting && refusal.code == NOT_STARTED => {}
                other => return other.map(Some),
            }
            client.stop().wait(POLL_INTERVAL);
        }
        Ok(None)
    }

    pub(super) fn fetch(
        &self,
        query: &Query<'_>,
        kubelets: &Kubelets,
        task: &QueryTask,
    ) -> Result<Records, Fault> {
        let request_timeout = query.client.config().request_timeout.unwrap_or(LOG_TIMEOUT);
        let timeout = request_timeout.min(LOG_TIMEOUT);
        let client = query
            .client
            .clone()
            .within(request_timeout.min(ANSWER_TIMEOUT))
            .no_retry_codes(UNREACHABLE);
        let stream = match self.open(&client, SILENCE_TIMEOUT.min(request_timeout)) {
            Ok(None) => return Ok(Records::default()),
            Ok(Some(stream)) => stream,
            Err(error) if kubelets.failed(&task.node, &error) => return Err(Fault::LeftOut),
            Err(error) => return Err(error.into()),
        };
        kubelets.answered(&task.node);
        let mut answer = Records::default();
        let health = &mut answer.health;
        let broken = keep_log(query, stream, &self.place, timeout, |line| {
            count_log_line(health, &self.place, line);
        })?;
        // The first part is worth keeping.
        let trouble =
            |error: String| FailedQuery::new("PodLogs", &task.namespace, &task.name, error);
        answer.troubles.extend(broken.map(trouble));
        Ok(answer)
    }
}
