//! Cluster health from an archive's `meta/clusterhealth.json`, and its display.

use std::collections::BTreeMap;
use std::io::Write;

use serde::de::DeserializeSeed as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::source::Files;
use crate::layout::HEALTH;
use base::json::{Bounded, MAX_TREE_BYTES};
use base::visible::line;
use base::yaml;

/// Its name in the list of plugins.
pub(crate) const NAME: &str = "sonobuoy";

/// Health of nodes and pods, and log counts. Fields are in output order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Health {
    /// Nodes.
    #[serde(deserialize_with = "nullable")]
    pub node_health: Part,
    /// Pods.
    #[serde(deserialize_with = "nullable")]
    pub pod_health: Part,
    /// The version of the API server.
    #[serde(deserialize_with = "nullable")]
    pub api_version: String,
    /// By kind (`Errors`, `Warnings`), then by log file: number of matching lines.
    #[serde(deserialize_with = "nullable")]
    pub error_summary: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Total and healthy counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Part {
    /// The total, also for pods in spite of the key's name.
    pub total_nodes: i64,
    /// The healthy ones.
    pub healthy_nodes: i64,
    /// All entries.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// One node or pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Detail {
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

fn nullable<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    input: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(input)?.unwrap_or_default())
}

impl Health {
    /// Reads the health; `None` if the archive has none.
    pub(crate) fn read(files: &Files) -> anyhow::Result<Option<Self>> {
        let Some(bytes) = files.small(HEALTH)? else { return Ok(None) };
        // The original ignores content after the document.
        let document = Bounded(&mut { MAX_TREE_BYTES });
        let document = document.deserialize(&mut serde_json::Deserializer::from_slice(&bytes));
        let health = document.and_then(Option::deserialize);
        Ok(Some(health.map_err(|error| anyhow::anyhow!("`{HEALTH}`: {error}"))?.unwrap_or_default()))
    }

    /// Prints the health as text.
    pub(crate) fn report(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "Run Details:")?;
        writeln!(out, "API Server version: {}", line(&self.api_version))?;
        writeln!(out, "Node health: {}", self.node_health.share())?;
        if !self.node_health.details.is_empty() && self.node_health.lacks() {
            writeln!(out, "Details for failed nodes:")?;
            self.node_health
                .unwell()
                .iter()
                .try_for_each(|node| writeln!(out, "{}", line(&(node.name.clone() + &node.state()))))?;
            writeln!(out)?;
        }
        if !self.pod_health.details.is_empty() {
            writeln!(out, "Pods health: {}", self.pod_health.share())?;
            if self.pod_health.lacks() {
                writeln!(out, "Details for failed pods:")?;
                let name = |pod: &Detail| format!("{}/{}", pod.namespace, pod.name);
                self.pod_health
                    .unwell()
                    .iter()
                    .try_for_each(|pod| writeln!(out, "{}", line(&(name(pod) + &pod.state()))))?;
            }
        }
        if self.error_summary.values().any(|files| !files.is_empty()) {
            writeln!(out, "Errors detected in files:")?;
        }
        for (kind, files) in self.error_summary.iter().filter(|(_, files)| !files.is_empty()) {
            writeln!(out, "{}:", line(kind))?;
            let mut lines: Vec<_> = files.iter().collect();
            // Highest first; files with equal counts stay sorted by name.
            lines.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let width = lines.first().map_or(0, |(_, count)| count.to_string().len());
            lines.iter().try_for_each(|(file, count)| writeln!(out, "{count:width$} {}", line(file)))?;
        }
        Ok(())
    }

    /// Prints the health as YAML, in the form and order of the original.
    pub(crate) fn write_yaml(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for (name, part) in [("node_health", &self.node_health), ("pod_health", &self.pod_health)] {
            writeln!(
                out,
                "{name}:\n  total_nodes: {}\n  healthy_nodes: {}",
                part.total_nodes, part.healthy_nodes
            )?;
            if !part.details.is_empty() {
                writeln!(out, "  details:")?;
            }
            for detail in &part.details {
                let text = |before, key, text: &str| yaml::entry(before, key, &Value::from(text), 4);
                write!(out, "{}", text("  - ", "name", &detail.name))?;
                write!(out, "    healthy: {}\n{}", detail.healthy, text("    ", "ready", &detail.ready))?;
                let rest = [
                    ("reason", &detail.reason),
                    ("message", &detail.message),
                    ("namespace", &detail.namespace),
                ];
                for (key, value) in rest.iter().filter(|(_, value)| !value.is_empty()) {
                    write!(out, "{}", text("    ", key, value))?;
                }
            }
        }
        write!(out, "{}", yaml::entry("", "api_version", &Value::from(self.api_version.as_str()), 0))?;
        if self.error_summary.is_empty() {
            writeln!(out, "error_summary: {{}}")?;
        } else {
            writeln!(out, "error_summary:")?;
        }
        for (kind, files) in yaml::sorted(&self.error_summary) {
            if files.is_empty() {
                write!(out, "{}", yaml::entry("  ", kind, &Value::Object(serde_json::Map::new()), 2))?;
            } else {
                writeln!(out, "  {}:", yaml::key_text(kind))?;
            }
            for (file, count) in yaml::sorted(files) {
                write!(out, "{}", yaml::entry("    ", file, &Value::from(*count), 4))?;
            }
        }
        // The original ends this text with an empty line.
        Ok(writeln!(out)?)
    }
}

impl Part {
    fn share(&self) -> String {
        match self.total_nodes {
            0 => format!("{}/0", self.healthy_nodes),
            total => {
                format!(
                    "{}/{total} ({}%)",
                    self.healthy_nodes,
                    self.healthy_nodes.saturating_mul(100).saturating_div(total)
                )
            }
        }
    }

    fn lacks(&self) -> bool {
        self.healthy_nodes < self.total_nodes
    }

    /// The unhealthy ones, sorted by namespace and name.
    pub(crate) fn unwell(&self) -> Vec<&Detail> {
        let mut unwell: Vec<&Detail> = self.details.iter().filter(|detail| !detail.healthy).collect();
        unwell.sort_by_key(|detail| (&detail.namespace, &detail.name));
        unwell
    }
}

impl Detail {
    /// `namespace/name` for a pod, the name for a node.
    pub(crate) fn full_name(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    fn state(&self) -> String {
        format!(" Ready:{}: {}: {}", self.ready, self.reason, self.message)
    }
}
