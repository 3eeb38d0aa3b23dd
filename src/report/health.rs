//! Cluster health from an archive's `meta/clusterhealth.json`, and its display.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Result, anyhow};
use serde::{Deserialize as _, Serialize, Serializer};
use serde_json::Value;

use super::files::ExtractedFiles;
use crate::health::{Detail, FailedQuery, Health, Part};
use crate::layout::{HEALTH, QUERY_ERRORS};
use base::json::json;
use base::visible::line;
use base::yaml;

/// Its name in the list of plugins.
pub(crate) const NAME: &str = "sonobuoy";

impl Health {
    /// Reads the health; `None` if the run had no cluster.
    pub(crate) fn read(files: &ExtractedFiles) -> Result<Option<Self>> {
        let Some(bytes) = files.small(HEALTH)? else { return Ok(None) };
        // The original ignores content after the document.
        let health = Option::deserialize(&mut serde_json::Deserializer::from_slice(&bytes));
        health.map_err(|error| anyhow!("`{HEALTH}`: {error}"))
    }

    /// Prints the health as text.
    pub(crate) fn report(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "Run Details:\nAPI Server version: {}", line(&self.api_version))?;
        for (title, what, part) in [("Node", "nodes", &self.node_health), ("Pods", "pods", &self.pod_health)]
        {
            let is_node = what == "nodes";
            if is_node || !part.details.is_empty() {
                writeln!(out, "{title} health: {}", part.share())?;
            }
            if part.details.is_empty() || part.healthy_nodes >= part.total_nodes {
                continue;
            }
            writeln!(out, "Details for failed {what}:")?;
            for detail in part.unwell() {
                let Detail { ready, reason, message, .. } = detail;
                let text = format!("{} Ready:{ready}: {reason}: {message}", detail.full_name());
                writeln!(out, "{}", line(&text))?;
            }
            out.write_all(if is_node { b"\n" } else { b"" })?;
        }
        let mut title = "Errors detected in files:\n";
        for (kind, files) in self.error_summary.iter().filter(|(_, files)| !files.is_empty()) {
            writeln!(out, "{}{}:", std::mem::take(&mut title), line(kind))?;
            let mut lines: Vec<_> = files.iter().collect();
            // Highest first; files with equal counts stay sorted by name.
            lines.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let width = lines.first().map_or(0, |(_, count)| count.to_string().len());
            lines.iter().try_for_each(|(file, count)| writeln!(out, "{count:width$} {}", line(file)))?;
        }
        Ok(())
    }

    /// Prints the health as YAML, in the form and order of the original.
    pub(crate) fn write_yaml(&self, out: &mut dyn Write) -> Result<()> {
        for (name, part) in [("node_health", &self.node_health), ("pod_health", &self.pod_health)] {
            writeln!(
                out,
                "{name}:\n  total_nodes: {}\n  healthy_nodes: {}",
                part.total_nodes, part.healthy_nodes
            )?;
            if !part.details.is_empty() {
                writeln!(out, "  details:")?;
            }
            for Detail { name, healthy, ready, reason, message, namespace } in &part.details {
                let entries = [
                    ("  - ", "name", json!(name)),
                    ("    ", "healthy", json!(healthy)),
                    ("    ", "ready", json!(ready)),
                    ("    ", "reason", json!(reason)),
                    ("    ", "message", json!(message)),
                    ("    ", "namespace", json!(namespace)),
                ];
                // Only the first three are written without a value.
                for (_, (before, key, value)) in
                    entries.iter().enumerate().filter(|(at, (.., value))| *at < 3 || *value != "")
                {
                    write!(out, "{}", yaml::entry(before, key, value, 4))?;
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
        let (healthy, total) = (self.healthy_nodes, self.total_nodes);
        match total {
            0 => format!("{healthy}/0"),
            _ => format!("{healthy}/{total} ({}%)", healthy.saturating_mul(100).saturating_div(total)),
        }
    }

    /// The part in the JSON document.
    pub(super) fn summary(&self) -> Value {
        json!({"total": self.total_nodes, "healthy": self.healthy_nodes, "unhealthy": self.unwell()})
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
        let gap = if self.namespace.is_empty() { "" } else { "/" };
        format!("{}{gap}{}", self.namespace, self.name)
    }
}

/// The health in the JSON document.
pub(super) fn summary<S: Serializer>(health: &Option<Health>, out: S) -> Result<S::Ok, S::Error> {
    let summary = health.as_ref().map(|health| {
        json!({
            "nodes": health.node_health.summary(),
            "pods": health.pod_health.summary(),
            "suspiciousLogLines": health.error_summary,
        })
    });
    summary.serialize(out)
}

/// The nodes in an archive's list of failed queries, each once with its errors; empty if the list is missing or too large.
pub(super) fn left_out(files: &ExtractedFiles) -> Vec<Value> {
    let failed: Vec<FailedQuery> = files.list(QUERY_ERRORS);
    let mut nodes = BTreeMap::<String, Vec<String>>::new();
    for FailedQuery { name, error, .. } in failed.into_iter().filter(|failed| failed.queryobj == "Nodes") {
        let (node, error) = match name.split_once('/') {
            Some((node, what)) => (node.to_owned(), format!("{what}: {error}")),
            None => (name, error),
        };
        nodes.entry(node).or_default().push(error);
    }
    nodes.into_iter().map(|(node, errors)| json!({"node": node, "error": errors.join("; ")})).collect()
}
