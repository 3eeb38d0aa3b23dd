//! Computes the health of the cluster from its objects and logs: `meta/clusterhealth.json`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize;
use serde_json::Value;

use base::kube::Resource;

/// The document.
#[derive(Debug, Default, Serialize)]
pub(super) struct Health {
    node_health: Part,
    pod_health: Part,
    pub(super) api_version: String,
    error_summary: Lines,
}

/// The keys say "nodes" for pods too, as readers expect.
#[derive(Debug, Default, Serialize)]
struct Part {
    total_nodes: usize,
    healthy_nodes: usize,
    details: Vec<Detail>,
}

/// Numbers of lines by file.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Lines {
    // The original's `results` panics on a kind without lines.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    errors: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    warnings: BTreeMap<String, u64>,
}

impl Part {
    fn add(&mut self, details: Vec<Detail>) {
        self.total_nodes += details.len();
        self.healthy_nodes += details.iter().filter(|detail| detail.healthy).count();
        self.details.extend(details);
    }
}

/// One node or pod.
#[derive(Debug, Serialize)]
struct Detail {
    name: Box<str>,
    healthy: bool,
    ready: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: Box<str>,
}

static ERROR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[fF]ailed|[eE]rror|^E[0-9]+|level=error").ok());
static WARNING: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[wW]arn|^W[0-9]+|level=warn").ok());

impl Health {
    /// Counts an object before it is written.
    pub(super) fn see(&mut self, resource: &Resource, object: &Value) {
        let (status, metadata) = (&object["status"], &object["metadata"]);
        let text = |value: &Value| Box::from(value.as_str().unwrap_or_default());
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let detail = |healthy, [ready, reason, message]: [Box<str>; 3]| {
            let (name, namespace) = (text(&metadata["name"]), text(&metadata["namespace"]));
            vec![Detail { name, healthy, ready, reason, message, namespace }]
        };
        let of = |condition: &Value| ["status", "reason", "message"].map(|key| text(&condition[key]));
        let ready = ["Ready".into(), Box::default(), Box::default()];
        match (&*resource.group, &*resource.plural) {
            ("", "nodes") => {
                let found = conditions.find(|condition| condition["type"] == "Ready").map_or(ready, of);
                self.node_health.add(detail(&*found[0] == "True", found));
            }
            ("", "pods") => {
                let healthy = status["phase"] == "Running" || status["phase"] == "Succeeded";
                let found = match conditions.find(|condition| condition["status"] != "True") {
                    _ if healthy => ready,
                    Some(first) => of(first),
                    None => {
                        let reason = if status["reason"].is_null() { "phase" } else { "reason" };
                        ["False".into(), text(&status[reason]), text(&status["message"])]
                    }
                };
                self.pod_health.add(detail(healthy, found));
            }
            _ => {}
        }
    }

    /// Examines a line of the log stored in `file`.
    pub(super) fn see_line(&mut self, file: &str, line: &str) {
        let Lines { errors, warnings } = &mut self.error_summary;
        for (pattern, counts) in [(&*ERROR, errors), (&*WARNING, warnings)] {
            if pattern.as_ref().is_some_and(|pattern| pattern.is_match(line)) {
                *counts.entry(file.to_owned()).or_default() += 1;
            }
        }
    }

    /// Adds another's counts.
    pub(super) fn add(&mut self, other: Self) {
        self.node_health.add(other.node_health.details);
        self.pod_health.add(other.pod_health.details);
        self.error_summary.errors.extend(other.error_summary.errors);
        self.error_summary.warnings.extend(other.error_summary.warnings);
        if !other.api_version.is_empty() {
            self.api_version = other.api_version;
        }
    }
}
