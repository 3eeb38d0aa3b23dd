//! Computes the health of the cluster from its objects and logs: `meta/clusterhealth.json`.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::health::{Detail, Health};
use base::kube::Object as _;
use base::kube::Resource;

static ERROR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[fF]ailed|[eE]rror|^E[0-9]+|level=error").ok());
static WARNING: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[wW]arn|^W[0-9]+|level=warn").ok());

impl Health {
    /// Counts an object before it is written.
    pub(super) fn see<'o>(&mut self, resource: &Resource, object: &'o Value) {
        let status = &object["status"];
        let detail = |healthy, [ready, reason, message]: [&str; 3]| {
            let (name, namespace) = (object.name().into(), object.namespace().into());
            let [ready, reason, message] = [ready, reason, message].map(str::to_owned);
            vec![Detail { name, healthy, ready, reason, message, namespace }]
        };
        let of = |condition: &'o Value| ["status", "reason", "message"].map(|key| condition[key].text());
        let ready = ["Ready", "", ""];
        match (&*resource.group, &*resource.plural) {
            ("", "nodes") => {
                let found = object.condition("Ready").map_or(ready, of);
                self.node_health.add(detail(found[0] == "True", found));
            }
            ("", "pods") => {
                let healthy = status["phase"] == "Running" || status["phase"] == "Succeeded";
                let mut conditions = status["conditions"].items();
                let found = match conditions.find(|condition| condition["status"] != "True") {
                    _ if healthy => ready,
                    Some(first) => of(first),
                    None => {
                        let reason = if status["reason"].is_null() { "phase" } else { "reason" };
                        ["False", status[reason].text(), status["message"].text()]
                    }
                };
                self.pod_health.add(detail(healthy, found));
            }
            _ => {}
        }
    }

    /// Examines a line of the log stored in `file`.
    pub(super) fn see_line(&mut self, file: &str, line: &str) {
        for (pattern, kind) in [(&*ERROR, "Errors"), (&*WARNING, "Warnings")] {
            if pattern.as_ref().is_some_and(|pattern| pattern.is_match(line)) {
                let files = self.error_summary.entry(kind.into()).or_default();
                *files.entry(file.to_owned()).or_default() += 1;
            }
        }
    }

    /// Adds another's counts.
    pub(super) fn add(&mut self, other: Self) {
        self.node_health.add(other.node_health.details);
        self.pod_health.add(other.pod_health.details);
        for (kind, files) in other.error_summary {
            self.error_summary.entry(kind).or_default().extend(files);
        }
        if !other.api_version.is_empty() {
            self.api_version = other.api_version;
        }
    }
}
