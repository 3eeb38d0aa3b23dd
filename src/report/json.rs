//! `results --format json`: the content of an archive for programs. `docs/results.md` describes the schema, which
//! changes only together with [`SCHEMA_VERSION`].

use std::io::Write;

use serde::Serialize;
use serde_json::Value;

use super::leaf::Leaf;
use super::missing::Missing;
use super::overview::{Counts, Overview, Plugin};
use super::times::Span;
use crate::item::Item;
use base::json::json;

/// Raised when a key is renamed or removed or changes its meaning; new keys do not raise it.
pub(crate) const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Test<'a> {
    name: &'a str,
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    path: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    details: &'a std::collections::BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// Duration in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<f64>,
}

/// Writes one document, one test per line.
pub(crate) fn write(overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{{\n\"schemaVersion\": {SCHEMA_VERSION},")?;
    field(out, "archive", &json!(overview.opened.source.label()))?;
    field(out, "version", &json!(overview.version))?;
    field(out, "runId", &json!(overview.run))?;
    if !overview.resumes.is_empty() {
        field(out, "resumes", &json!(overview.resumes))?;
    }
    field(out, "kubernetesVersion", &json!(overview.kubernetes))?;
    field(out, "started", &json!(overview.times.run.as_ref().map(|(first, _)| first)))?;
    field(out, "ended", &json!(overview.times.run.as_ref().map(|(_, last)| last)))?;
    field(out, "duration", &seconds(overview.times.whole()))?;
    field(out, "status", &json!(overview.verdict().word()))?;
    field(out, "counts", &counts(&overview.counts()))?;
    field(out, "health", &health(overview))?;
    if let Some(why) = &overview.why {
        field(out, "why", &json!(why))?;
    }
    let (failed, unknown) = overview.causes()?;
    field(out, "causes", &json!(failed))?;
    field(out, "unknownCauses", &json!(unknown))?;
    let missing = Missing::read(&overview.opened.files);
    if !missing.is_empty() {
        let missing = missing.iter().map(|node| json!({"node": node.name, "error": node.error}));
        field(out, "leftOut", &missing.collect())?;
    }
    writeln!(out, "\"plugins\": [")?;
    for (at, plugin) in overview.plugins.iter().enumerate() {
        write_plugin(overview, plugin, out)?;
        writeln!(out, "{}", if at + 1 < overview.plugins.len() { "," } else { "" })?;
    }
    Ok(writeln!(out, "]\n}}")?)
}

fn seconds(span: Option<Span>) -> Value {
    json!(span.map(|span| span.length().as_secs_f64()))
}

fn field(out: &mut dyn Write, name: &str, value: &Value) -> anyhow::Result<()> {
    Ok(writeln!(out, "\"{name}\": {value},")?)
}

fn counts(counts: &Counts) -> Value {
    let mut counts = json!(counts);
    // These five are always present.
    for status in ["passed", "failed", "skipped", "timeout", "unknown"] {
        if counts[status].is_null() {
            counts[status] = 0.into();
        }
    }
    counts
}

fn health(overview: &Overview<'_>) -> Value {
    let Some(health) = &overview.health else { return Value::Null };
    let part = |part: &super::health::Part| json!({"total": part.total_nodes, "healthy": part.healthy_nodes, "unhealthy": part.unwell()});
    json!({
        "nodes": part(&health.node_health),
        "pods": part(&health.pod_health),
        "suspiciousLogLines": health.error_summary,
    })
}

fn write_plugin(overview: &Overview<'_>, plugin: &Plugin, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{{")?;
    field(out, "name", &json!(plugin.name))?;
    field(out, "status", &json!(plugin.status))?;
    field(out, "total", &json!(plugin.total()))?;
    field(out, "counts", &counts(&plugin.counts))?;
    field(out, "duration", &seconds(overview.times.of(&plugin.name, None)))?;
    let nodes = plugin.nodes.iter().map(|node| {
        let duration = seconds(overview.times.of(&plugin.name, Some(&node.name)));
        json!({"name": node.name, "status": node.status, "counts": counts(&node.counts), "duration": duration})
    });
    let nodes: Vec<Value> = nodes.collect();
    let arrivals: Vec<_> =
        overview.times.arrivals.iter().filter(|arrival| arrival.plugin == plugin.name).collect();
    field(out, "arrivals", &json!(arrivals))?;
    let (_, odd) = plugin.odd_nodes();
    field(out, "nodes", &Value::Array(nodes))?;
    field(out, "oddNodes", &odd.iter().map(|node| json!(node.name)).collect())?;
    field(out, "error", &json!(plugin.error))?;
    write!(out, "\"tests\": [")?;
    if plugin.error.is_none() {
        let mut first = true;
        overview.leaves(plugin, |leaf| {
            write!(out, "{}", if std::mem::take(&mut first) { "\n" } else { ",\n" })?;
            Ok(serde_json::to_writer(&mut *out, &test(leaf))?)
        })?;
    }
    Ok(write!(out, "]\n}}")?)
}

fn test<'a>(leaf: &Leaf<'a>) -> Test<'a> {
    let Item { name, details, meta, .. } = leaf.item;
    let error = meta.get("error").map(String::as_str);
    Test {
        name,
        status: leaf.status(),
        node: leaf.node,
        path: leaf.path,
        file: leaf.file,
        details,
        error,
        duration: leaf.duration,
    }
}
