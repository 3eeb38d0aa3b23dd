//! `results --format html`: an archive as one self-contained page. It works from `file://`, on a phone, in print,
//! dark and light, and without its script, which only searches, copies links and unfolds. All text from the archive
//! is escaped.
//!
//! `page.html` is the page, and `row.html` a row of its tests, which `template` fills with values: those of one run from this file, `nodes`, `facts`,
//! `charts` and `cards`' pass over all tests, or those of two runs from `compare`.

mod cards;
mod charts;
mod compare;
mod facts;
mod nodes;
mod template;

use std::io::Write;

use anyhow::Result;
use serde_json::Value;

use super::logs::{Log, Logs};
use super::run::{Columns, Counts, Plugin, Report, Verdict};
use super::times::spoken;
use super::words::{number, size};
use crate::item::FLAKY;
use crate::{layout, names};
use base::clock::{parse_rfc3339, rfc3339};
use base::json::json;
use cards::Digest;
pub(crate) use compare::write_diff;
use template::{anchor, escape, fill};

/// Maximum rows of a table that grows with the cluster.
const TABLE: usize = 200;
/// Maximum logs in the list of suspicious ones.
const MAX_LOGS: usize = 50;

/// Writes the page.
pub(crate) fn write(report: &Report<'_>, out: &mut dyn Write) -> Result<()> {
    let logs = Logs::read(report)?;
    let digest = Digest::read(report, &logs)?;
    let plugins = report.by_severity();
    let tables: Vec<_> = report.opened.facts.tables().collect();
    let mut nav: Vec<_> = plugins
        .iter()
        .map(|plugin| {
            let failed = plugin.counts.columns().failed;
            json!({"class": plugin_class(plugin), "id": of_plugin(plugin), "title": plugin.name, "count": failed})
        })
        .collect();
    let link = |id: &str, title: &str| json!({"class": null, "id": id, "title": title});
    nav.extend(tables.iter().map(|table| link(&facts::id(table), table.title())));
    nav.extend(report.health.iter().map(|_| link("health", "Cluster health")));
    nav.extend((!logs.logs.is_empty()).then(|| link("logs", "Pod logs")));
    let why =
        report.why.as_ref().map(|why| why.sentences().iter().map(|text| escape(text)).collect::<Vec<_>>());
    let mut listed = 0;
    let sections = plugins.iter().map(|plugin| section(plugin, &digest, &mut listed));
    let sections = sections.collect::<Result<Vec<_>>>()?;
    let left = report.left_out.len();
    let page = json!({
        "above": "Sonobuoy results", "headline": report.headline(), "class": report.status,
        "closing": "The archive holds every file in full.",
        "total": {"bar": bar(&report.counts)}, "nav": nav, "why": why.map(|sentences| sentences.join("<br>\n")),
        "boxes": report.counts.shares().map(|(status, _)| json!({"class": status, "word": status})).collect::<Vec<_>>(),
        "results": {
            "about": about(report), "groups": digest.groups(), "nodes": nodes::matrix(&plugins),
            "plugins": sections, "facts": tables.iter().map(|table| facts::section(table)).collect::<Vec<_>>(),
            "time": charts::section(report, &digest), "health": health(report, &logs),
            "leftOut": (left > 0).then(|| json!({
                "left": report.left_out.iter().take(TABLE).collect::<Vec<_>>(), "more": left.saturating_sub(TABLE),
            })),
            "logs": pod_logs(&logs),
        },
    });
    frame(&page, out)
}

/// Fills the template.
fn frame(page: &Value, out: &mut dyn Write) -> Result<()> {
    let (style, script) = (include_str!("page.css"), include_str!("page.js"));
    let around = json!({"style": style, "script": script, "program": names::VERSION});
    fill(include_str!("page.html"), &[&around, page], out)
}

/// A timestamp to the minute, in UTC.
fn minute(moment: &str) -> String {
    let utc = parse_rfc3339(moment).map(rfc3339).unwrap_or_default();
    utc.get(..16).map(|minute| format!("{} UTC", minute.replace('T', " "))).unwrap_or_default()
}

fn about(report: &Report<'_>) -> Vec<Value> {
    let file = report.archive.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(report.archive);
    let began = minute(report.started.as_deref().unwrap_or_default());
    let took = report.duration.map(|span| spoken(span.seconds())).unwrap_or_default();
    let known = [
        ("Started", &*began),
        ("Took", &took),
        ("Kubernetes", &report.kubernetes_version),
        ("Sonobuoy", &report.version),
        ("Archive", file),
        ("Run", &report.run_id),
        ("Continues run", &report.resumes),
    ];
    let known = known.into_iter().filter(|(_, text)| !text.is_empty());
    known.map(|(term, text)| json!({"term": term, "text": text})).collect()
}

/// The parts of a bar; tests that did not run would only hide the others.
fn bar(counts: &Counts) -> Vec<Value> {
    let ran = counts.shares().filter(|(status, _)| *status != "skipped");
    ran.map(|(status, count)| json!({"class": status, "share": count.to_string(), "count": number(count)}))
        .collect()
}

fn section(plugin: &Plugin<'_>, digest: &Digest, listed: &mut u64) -> Result<Value> {
    let shares = plugin.counts.shares();
    let bar = bar(&plugin.counts);
    let known = ["passed", "failed", "timeout", "skipped", "unknown", FLAKY];
    let custom = plugin.counts.0.iter().filter(|(status, _)| !known.contains(&status.as_str())).take(TABLE);
    let legend =
        shares.filter(|(status, _)| *status != "other").map(|(status, count)| (Some(status), count, status));
    let legend = legend.chain(custom.map(|(status, count)| (None, *count, status.as_str())));
    let (blocks, rows) = digest.blocks(plugin, *listed)?;
    *listed += rows;
    Ok(json!({
        "id": of_plugin(plugin), "name": plugin.name, "class": plugin_class(plugin), "status": plugin.status,
        "took": plugin.duration.map(|span| spoken(span.seconds())), "error": plugin.error,
        "bar": bar,
        "legend": legend.map(|(class, count, word)| json!({"class": class, "count": count, "word": word})).collect::<Vec<_>>(),
        "said": nodes::said(plugin), "odd": nodes::odd(plugin),
        "all": if plugin.total == 1 { "The one result".to_owned() } else { format!("All {} results", number(plugin.total)) },
        "blocks": blocks, "unlisted": plugin.total - rows,
    }))
}

fn plugin_class(plugin: &Plugin<'_>) -> &'static str {
    colour(plugin.verdict(), &plugin.counts)
}

fn of_plugin(plugin: &Plugin<'_>) -> String {
    anchor("plugin", &[plugin.name])
}

/// A custom status is neither good nor bad.
fn colour(verdict: Verdict, counts: &Counts) -> &'static str {
    let Columns { flaky, other, .. } = counts.columns();
    match verdict {
        Verdict::Passed if other > 0 => "other",
        Verdict::Passed if flaky > 0 => FLAKY,
        verdict => verdict.word(),
    }
}

fn health(report: &Report<'_>, logs: &Logs<'_>) -> Option<Value> {
    let health = report.health.as_ref()?;
    let parts = [("Nodes", &health.node_health), ("Pods", &health.pod_health)].map(|(name, part)| {
        let details = part.unwell().into_iter().take(TABLE).map(|detail| {
            json!({
                "full_name": detail.full_name(), "ready": detail.ready, "reason": detail.reason,
                "message": detail.message,
            })
        });
        let details: Vec<_> = details.collect();
        let unwell = (!details.is_empty()).then(|| json!({"details": details}));
        let (healthy, total) = (part.healthy_nodes.to_string(), part.total_nodes.to_string());
        json!({"name": name, "healthy": healthy, "total": total, "unwell": unwell})
    });
    let kinds = health.error_summary.iter().filter_map(|(kind, files)| {
        let own = |file: &str| names::is_own_log(file);
        let mut files: Vec<_> = files.iter().filter(|(file, lines)| **lines > 0 && !own(file)).collect();
        files.sort_by_key(|(_, lines)| std::cmp::Reverse(**lines));
        let shown = |file: &str| logs.shown().find(|log| log.name == file).map(of_log);
        let files = files.into_iter().take(MAX_LOGS);
        let files: Vec<_> =
            files.map(|(file, lines)| json!({"id": shown(file), "file": file, "lines": lines})).collect();
        (!files.is_empty()).then(|| json!({"kind": kind, "files": files}))
    });
    Some(json!({"parts": parts, "kinds": kinds.collect::<Vec<_>>()}))
}

fn of_log(log: &Log<'_>) -> String {
    anchor("log", &[log.name])
}

fn pod_logs(logs: &Logs<'_>) -> Option<Value> {
    let mut shown: Vec<_> = logs.shown().collect();
    shown.sort_by_key(|log| std::cmp::Reverse(log.errors));
    let shown = shown.into_iter().map(|log| {
        // Without the prefix common to all.
        let name = layout::below_pod_logs(log.name).unwrap_or(log.name);
        json!({"id": of_log(log), "name": name, "size": size(log.size), "errors": log.errors, "tail": log.tail})
    });
    let others = logs.logs.iter().filter(|log| log.tail.is_none());
    let others: Vec<_> = others.map(|log| json!({"name": log.name, "size": size(log.size)})).collect();
    let rest = (!others.is_empty()).then(|| json!({"others": others}));
    (!logs.logs.is_empty())
        .then(|| json!({"shown": shown.collect::<Vec<_>>(), "rest": rest, "more": logs.more}))
}
