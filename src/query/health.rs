//! Computes the health of the cluster from its objects and logs: `meta/clusterhealth.json`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize;
use serde_json::Value;

use base::kube::Resource;

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Health {
    nodes: Vec<Detail>,
    pods: Vec<Detail>,
    pub(super) api_version: String,
    errors: BTreeMap<String, u64>,
    warnings: BTreeMap<String, u64>,
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
        let text = |value: &Value| Box::from(value.as_str().unwrap_or_default());
        let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let mut detail = Detail {
            name: text(&object["metadata"]["name"]),
            namespace: text(&object["metadata"]["namespace"]),
            healthy: true,
            ready: "Ready".into(),
            reason: Box::default(),
            message: Box::default(),
        };
        let blame = |detail: &mut Detail, condition: &Value| {
            detail.ready = text(&condition["status"]);
            detail.reason = text(&condition["reason"]);
            detail.message = text(&condition["message"]);
        };
        match (&*resource.group, &*resource.plural) {
            ("", "nodes") => {
                if let Some(ready) = conditions.iter().find(|condition| condition["type"] == "Ready") {
                    blame(&mut detail, ready);
                }
                detail.healthy = &*detail.ready == "True";
                self.nodes.push(detail);
            }
            ("", "pods") => {
                detail.healthy = matches!(object["status"]["phase"].as_str(), Some("Running" | "Succeeded"));
                if !detail.healthy {
                    match conditions.iter().find(|condition| condition["status"] != "True") {
                        Some(first) => blame(&mut detail, first),
                        None => {
                            let status = &object["status"];
                            let reason =
                                if status["reason"].is_null() { &status["phase"] } else { &status["reason"] };
                            detail.ready = "False".into();
                            detail.reason = text(reason);
                            detail.message = text(&status["message"]);
                        }
                    }
                }
                self.pods.push(detail);
            }
            _ => {}
        }
    }

    /// Examines a line of the log stored in `file`.
    pub(super) fn see_line(&mut self, file: &str, line: &str) {
        for (pattern, counts) in [(&*ERROR, &mut self.errors), (&*WARNING, &mut self.warnings)] {
            if pattern.as_ref().is_some_and(|pattern| pattern.is_match(line)) {
                *counts.entry(file.to_owned()).or_default() += 1;
            }
        }
    }

    /// Adds another's counts.
    pub(super) fn add(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
        self.pods.extend(other.pods);
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
        if !other.api_version.is_empty() {
            self.api_version = other.api_version;
        }
    }

    /// The document.
    pub(super) fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Document {
            node_health: Part::of(&self.nodes),
            pod_health: Part::of(&self.pods),
            api_version: &self.api_version,
            error_summary: Lines { errors: &self.errors, warnings: &self.warnings },
        })
    }
}

#[derive(Serialize)]
struct Document<'a> {
    node_health: Part<'a>,
    pod_health: Part<'a>,
    api_version: &'a str,
    error_summary: Lines<'a>,
}

/// The keys say "nodes" for pods too, as readers expect.
#[derive(Serialize)]
struct Part<'a> {
    total_nodes: usize,
    healthy_nodes: usize,
    details: &'a [Detail],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Lines<'a> {
    // The original's `results` panics on a kind without lines.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    errors: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    warnings: &'a BTreeMap<String, u64>,
}

impl<'a> Part<'a> {
    fn of(details: &'a [Detail]) -> Self {
        let healthy_nodes = details.iter().filter(|detail| detail.healthy).count();
        Self { total_nodes: details.len(), healthy_nodes, details }
    }
}
