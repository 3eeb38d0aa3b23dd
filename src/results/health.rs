//! The health of the cluster as an archive tells it, `meta/clusterhealth.json`, and how it is shown.

use std::collections::BTreeMap;
use std::io::Write;

use serde::{Deserialize, Serialize};

use super::source::Files;
use crate::yaml;

/// What it is called beside the plugins.
pub const NAME: &str = "sonobuoy";
/// Where it lies in an archive.
pub const FILE: &str = "meta/clusterhealth.json";

/// What is known of nodes, pods and logs. Fields are in the order in which they are written.
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
    /// By kind (`Errors`, `Warnings`), then by log file: how many lines look like it.
    #[serde(deserialize_with = "nullable")]
    pub error_summary: BTreeMap<String, BTreeMap<String, u64>>,
}

/// How many there are and how many are well.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// All, also where the key says nodes and means pods.
    pub total_nodes: i64,
    /// Those that are well.
    pub healthy_nodes: i64,
    /// Each of them.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// One node or pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// Its name.
    pub name: String,
    /// Whether it is well.
    pub healthy: bool,
    /// The state of its condition.
    pub ready: String,
    /// One word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence.
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
    /// Reads it; `None` where an archive has none.
    pub fn read(files: &Files) -> anyhow::Result<Option<Self>> {
        let Some(bytes) = files.small(FILE)? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&bytes).map_err(|error| anyhow::anyhow!("`{FILE}`: {error}"))?))
    }

    /// Prints it for people.
    pub fn report(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "Run Details:")?;
        writeln!(out, "API Server version: {}", self.api_version)?;
        writeln!(out, "Node health: {}", self.node_health.share())?;
        let unwell = self.node_health.unwell();
        if !unwell.is_empty() {
            writeln!(out, "Details for failed nodes:")?;
            unwell.iter().try_for_each(|node| writeln!(out, "{}", node.line()))?;
            writeln!(out)?;
        }
        if self.pod_health.total_nodes > 0 {
            writeln!(out, "Pods health: {}", self.pod_health.share())?;
            let unwell = self.pod_health.unwell();
            if !unwell.is_empty() {
                writeln!(out, "Details for failed pods:")?;
                unwell.iter().try_for_each(|pod| writeln!(out, "{}", pod.line()))?;
            }
        }
        if self.error_summary.values().any(|files| !files.is_empty()) {
            writeln!(out, "Errors detected in files:")?;
        }
        for (kind, files) in self.error_summary.iter().filter(|(_, files)| !files.is_empty()) {
            writeln!(out, "{kind}:")?;
            let mut lines: Vec<_> = files.iter().collect();
            // Highest first; files with as many stay in the order of their names.
            lines.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let width = lines.first().map_or(0, |(_, count)| count.to_string().len());
            lines.iter().try_for_each(|(file, count)| writeln!(out, "{count:width$} {file}"))?;
        }
        Ok(())
    }

    /// Prints it as YAML, keys in the order of the original.
    pub fn write_yaml(&self, out: &mut dyn Write) -> anyhow::Result<()> {
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
                writeln!(out, "  - name: {}\n    healthy: {}", yaml::key_text(&detail.name), detail.healthy)?;
                writeln!(out, "    ready: {}", yaml::key_text(&detail.ready))?;
                let rest = [
                    ("reason", &detail.reason),
                    ("message", &detail.message),
                    ("namespace", &detail.namespace),
                ];
                for (key, text) in rest.iter().filter(|(_, text)| !text.is_empty()) {
                    writeln!(out, "    {key}: {}", yaml::key_text(text))?;
                }
            }
        }
        writeln!(out, "api_version: {}", yaml::key_text(&self.api_version))?;
        let summary = crate::json::json!({"error_summary": self.error_summary});
        // The original ends this text with an empty line.
        writeln!(out, "{}", yaml::write(&summary))?;
        Ok(())
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
                    self.healthy_nodes.saturating_mul(100) / total
                )
            }
        }
    }

    /// Those that are not well, sorted by the name they are shown under.
    pub fn unwell(&self) -> Vec<&Detail> {
        let mut unwell: Vec<&Detail> = self.details.iter().filter(|detail| !detail.healthy).collect();
        unwell.sort_by_key(|detail| detail.full_name());
        unwell
    }
}

impl Detail {
    /// `namespace/name` of a pod, the name of a node.
    pub fn full_name(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    fn line(&self) -> String {
        format!("{} Ready:{}: {}: {}", self.full_name(), self.ready, self.reason, self.message)
    }
}
