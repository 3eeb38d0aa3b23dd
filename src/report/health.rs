//! The health of the cluster as an archive tells it, `meta/clusterhealth.json`, and how it is shown.

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

/// What it is called beside the plugins.
pub(crate) const NAME: &str = "sonobuoy";

/// What is known of nodes, pods and logs. Fields are in the order in which they are written.
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
    /// By kind (`Errors`, `Warnings`), then by log file: how many lines look like it.
    #[serde(deserialize_with = "nullable")]
    pub error_summary: BTreeMap<String, BTreeMap<String, u64>>,
}

/// How many there are and how many are well.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Part {
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
pub(crate) struct Detail {
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
    pub(crate) fn read(files: &Files) -> anyhow::Result<Option<Self>> {
        let Some(bytes) = files.small(HEALTH)? else { return Ok(None) };
        // What follows the document does not matter to the original.
        let document = Bounded(&mut { MAX_TREE_BYTES });
        let document = document.deserialize(&mut serde_json::Deserializer::from_slice(&bytes));
        let health = document.and_then(Option::deserialize);
        Ok(Some(health.map_err(|error| anyhow::anyhow!("`{HEALTH}`: {error}"))?.unwrap_or_default()))
    }

    /// Prints it for people.
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
            // Highest first; files with as many stay in the order of their names.
            lines.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let width = lines.first().map_or(0, |(_, count)| count.to_string().len());
            lines.iter().try_for_each(|(file, count)| writeln!(out, "{count:width$} {}", line(file)))?;
        }
        Ok(())
    }

    /// Prints it as YAML, in the form and order of the original.
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

    /// Those that are not well, sorted by namespace and name.
    pub(crate) fn unwell(&self) -> Vec<&Detail> {
        let mut unwell: Vec<&Detail> = self.details.iter().filter(|detail| !detail.healthy).collect();
        unwell.sort_by_key(|detail| (&detail.namespace, &detail.name));
        unwell
    }
}

impl Detail {
    /// `namespace/name` of a pod, the name of a node.
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
