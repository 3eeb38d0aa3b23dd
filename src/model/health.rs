//! What a snapshot says about itself: the health of the cluster, and its failed queries.
//!
//! Owns the two documents: `query` fills them, `report` shows them.

use std::collections::BTreeMap;

use serde::de::{DeserializeSeed as _, Deserializer, Error as _};
use serde::{Deserialize, Serialize};

use base::json::{Bounded, entries, nullable};

/// Maximum size of the counts of log files in memory.
const MAX_SUMMARY_BYTES: usize = 8 << 20;

/// By kind (`Errors`, `Warnings`), then by log file: number of matching lines.
pub type LogCounts = BTreeMap<String, BTreeMap<String, u64>>;

/// Health of nodes and pods, and log counts. Fields are in output order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// Nodes.
    #[serde(deserialize_with = "nullable")]
    pub node_health: Part,
    /// Pods.
    #[serde(deserialize_with = "nullable")]
    pub pod_health: Part,
    /// The version of the API server.
    #[serde(deserialize_with = "nullable")]
    pub api_version: String,
    /// Lines that look like errors. The original's `results` panics on a kind without lines.
    #[serde(deserialize_with = "summary_of_logs")]
    pub error_summary: LogCounts,
}

/// Total and healthy counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// The total, also for pods in spite of the key's name.
    pub total_nodes: i64,
    /// The healthy ones.
    pub healthy_nodes: i64,
    /// All entries.
    #[serde(deserialize_with = "entries")]
    pub details: Vec<Detail>,
}

/// One node or pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// Its name.
    pub name: String,
    /// Whether the node or pod is healthy.
    pub healthy: bool,
    /// The status of the condition.
    pub ready: String,
    /// The reason in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// A pod's namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

fn summary_of_logs<'de, D: Deserializer<'de>>(input: D) -> Result<LogCounts, D::Error> {
    let value = Bounded(&mut { MAX_SUMMARY_BYTES }).deserialize(input)?;
    Ok(Option::deserialize(value)
        .map_err(D::Error::custom)?
        .unwrap_or_default())
}

impl Health {
    /// Adds the counts of another part of the cluster.
    pub fn add(&mut self, other: Self) {
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

impl Part {
    /// Adds nodes or pods.
    pub fn add(&mut self, details: Vec<Detail>) {
        let healthy = details.iter().filter(|detail| detail.healthy).count();
        self.total_nodes += i64::try_from(details.len()).unwrap_or(i64::MAX);
        self.healthy_nodes += i64::try_from(healthy).unwrap_or(i64::MAX);
        self.details.extend(details);
    }

    /// How many are healthy, as text: `2/3 (66%)`.
    pub fn share(&self) -> String {
        let (healthy, total) = (self.healthy_nodes, self.total_nodes);
        match total {
            0 => format!("{healthy}/0"),
            _ => format!(
                "{healthy}/{total} ({}%)",
                healthy.saturating_mul(100).saturating_div(total)
            ),
        }
    }

    /// The unhealthy ones, sorted by namespace and name.
    pub fn unwell(&self) -> Vec<&Detail> {
        let mut unwell: Vec<&Detail> = self
            .details
            .iter()
            .filter(|detail| !detail.healthy)
            .collect();
        unwell.sort_by_key(|detail| (&detail.namespace, &detail.name));
        unwell
    }
}

impl Detail {
    /// `namespace/name` for a pod, the name for a node.
    pub fn full_name(&self) -> String {
        let gap = if self.namespace.is_empty() { "" } else { "/" };
        format!("{}{gap}{}", self.namespace, self.name)
    }
}

/// A failed query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedQuery {
    /// What was queried: a plural, `Nodes`, `PodLogs`, ….
    pub queryobj: String,
    /// The namespace, if any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The node, or pod and container.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Why it failed.
    pub error: String,
}

impl FailedQuery {
    /// A record of these.
    pub fn new(queryobj: &str, namespace: &str, name: &str, error: impl Into<String>) -> Self {
        let [queryobj, namespace, name] = [queryobj, namespace, name].map(str::to_owned);
        Self {
            queryobj,
            namespace,
            name,
            error: error.into(),
        }
    }
}
