//! `results --format html`: an archive as one self-contained page. It works from `file://`, on a phone, in print,
//! dark and light, and without its script, which only searches, copies links and unfolds. All text from the archive
//! is escaped.
//!
//! `page.html` is the page, and `row.html` a row of its tests, filled with values: those of one run from this file,
//! `nodes`, `facts`, `charts` and `cards`' pass over all tests, or those of two runs from `compare`.

mod cards;
mod charts;
mod compare;
mod facts;
mod nodes;

use std::io::Write;

use anyhow::Result;
use serde_json::Value;

use super::logs::Logs;
use super::many::Many;
use super::run::{Counts, Plugin, Report, Verdict, column};
use super::template::{anchor, escape, fill};
use crate::item::{FLAKY, OTHER};
use crate::names;
use crate::remedies::Why;
use base::json::json;
use cards::Digest;
pub(crate) use compare::{write_diff, write_many};

/// Maximum custom statuses of a plugin.
const STATUSES: usize = 200;
/// Maximum logs in the list of suspicious ones.
const MAX_LOGS: usize = 50;

/// Writes the page; `earlier` are the runs of its trend, this one included.
pub(crate) fn write(report: &Report<'_>, earlier: Option<&Many>, out: &mut dyn Write) -> Result<()> {
    let logs = Logs::read(report)?;
    let plugins = report.by_severity();
    let digest = Digest::read(report, &plugins, &logs)?;
    let sections = plugins.iter().enumerate().map(|(at, plugin)| section(plugin, digest.list(at)));
    let file = report.archive.rsplit('/').next().filter(|name| !name.is_empty());
    frame(
        &json!({
            "above": "Sonobuoy results", "headline": report.headline(), "class": report.status,
            "closing": "The archive holds every file in full.",
            "started": report.started, "duration": report.duration, "kubernetes": report.kubernetes_version,
            "version": report.version, "archive": file.unwrap_or(report.archive), "run": report.run_id,
            "resumes": report.resumes,
            "shares": report.counts.shares().map(share).collect::<Vec<_>>(),
            "why": report.why.iter().flat_map(Why::sentences).collect::<Vec<_>>(),
            "groups": digest.groups(), "nodes": nodes::matrix(&plugins), "plugins": sections.collect::<Vec<_>>(),
            "facts": report.opened.facts.tables.values().map(facts::section).collect::<Vec<_>>(),
            "time": charts::section(report, &digest), "health": health(report, &logs), "leftOut": report.left_out,
            "trend": earlier.map(Many::trend),
            "logs": (!logs.shown.is_empty() || !logs.others.is_empty()).then_some(&logs),
        }),
        out,
    )
}

/// Fills the template.
fn frame(page: &Value, out: &mut dyn Write) -> Result<()> {
    let (style, script) = (include_str!("page.css"), include_str!("page.js"));
    let around = json!({"style": style, "script": script, "program": names::VERSION});
    fill(include_str!("page.html"), &[&around, page], escape, out)
}

fn share((status, count): (&str, u64)) -> Value {
    json!({"class": column(status), "status": status, "count": count})
}

fn section(plugin: &Plugin<'_>, (blocks, rows): (Vec<Value>, u64)) -> Value {
    let known = plugin.counts.shares().filter(|(status, _)| *status != OTHER).map(share);
    let custom = plugin.counts.0.iter().filter(|(status, _)| column(status) == OTHER);
    let custom = custom.take(STATUSES).map(|(status, count)| share((status, *count)));
    json!({
        "id": of_plugin(plugin), "name": plugin.name, "class": plugin_class(plugin), "status": plugin.status,
        "duration": plugin.duration, "error": plugin.error, "failed": plugin.counts.of("failed"),
        "shares": known.chain(custom).collect::<Vec<_>>(),
        "said": nodes::said(plugin), "odd": nodes::odd(plugin), "total": plugin.total, "several": plugin.total != 1,
        "blocks": blocks, "unlisted": plugin.total - rows,
    })
}

fn plugin_class(plugin: &Plugin<'_>) -> &'static str {
    colour(plugin.verdict(), &plugin.counts)
}

fn of_plugin(plugin: &Plugin<'_>) -> String {
    anchor("plugin", &[plugin.name])
}

/// A custom status is neither good nor bad.
fn colour(verdict: Verdict, counts: &Counts) -> &'static str {
    let passed = [OTHER, FLAKY].into_iter().find(|column| counts.of(column) > 0);
    passed.filter(|_| verdict == Verdict::Passed).unwrap_or(verdict.word())
}

fn health(report: &Report<'_>, logs: &Logs<'_>) -> Option<Value> {
    let health = report.health.as_ref()?;
    let parts = [("Nodes", &health.node_health), ("Pods", &health.pod_health)];
    let kinds = health.error_summary.iter().map(|(kind, files)| {
        let files = files.iter().filter(|(file, lines)| **lines > 0 && !names::is_own_log(file));
        let mut files: Vec<_> = files.collect();
        files.sort_by_key(|(_, lines)| std::cmp::Reverse(**lines));
        let files = files.into_iter().take(MAX_LOGS).map(|(file, lines)| {
            json!({"file": file, "lines": lines, "shown": logs.shown.iter().any(|log| log.name == file)})
        });
        json!({"kind": kind, "files": files.collect::<Vec<_>>()})
    });
    Some(json!({
        "parts": parts.map(|(name, part)| json!({"name": name, "part": part.summary()})),
        "kinds": kinds.collect::<Vec<_>>(),
    }))
}
