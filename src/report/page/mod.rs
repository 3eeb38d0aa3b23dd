//! `results --format html`: an archive as one self-contained page. It works from `file://`, on a phone, in print,
//! dark and light, and without its script, which only searches, copies links and unfolds. All text from the archive
//! is escaped.
//!
//! `digest` is the pass that computes the summary: causes, slowest tests, durations. `failures`, `nodes`, `facts`,
//! `charts` and `rows` each write a section, `frame` the rest; `compare` is the page of two runs.

mod charts;
mod compare;
mod digest;
mod escape;
mod facts;
mod failures;
mod frame;
mod nodes;
mod rows;

use std::io::Write;

use super::facts::Table;
use super::headline::headline;
use super::health;
use super::logs::{Log, Logs};
use super::overview::{Counts, Overview, Plugin, Verdict, columns};
use super::times::spoken;
use super::words::{number, size};
use crate::item::FLAKY;
use crate::{layout, names};
pub(crate) use compare::write_diff;
use digest::Digest;
use escape::{anchor, escape};

/// Maximum rows of a table that grows with the cluster.
const TABLE: usize = 200;

/// Writes the page.
pub(crate) fn write(overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let logs = Logs::read(overview)?;
    let digest = Digest::read(overview, &logs)?;
    frame::begin("Sonobuoy results", &headline(overview), overview.verdict().word(), out)?;
    about(overview, out)?;
    contents(overview, &logs, out)?;
    writeln!(out, "</div></header>\n<main>")?;
    if let Some(why) = &overview.why {
        let sentences: Vec<String> = why.sentences().iter().map(|text| escape(text).to_string()).collect();
        writeln!(out, "<p class=\"why\">{}</p>", sentences.join("<br>\n"))?;
    }
    let counts = columns(&overview.counts());
    frame::tools(
        counts.into_iter().filter(|(_, count)| *count > 0).map(|(status, _)| (status, status)),
        out,
    )?;
    failures::write(&digest, out)?;
    nodes::matrix(overview, out)?;
    let mut rows = 0;
    for plugin in overview.by_severity() {
        section(overview, plugin, &digest, &mut rows, out)?;
    }
    facts::write(overview, out)?;
    charts::write(overview, &digest, out)?;
    health(overview, &logs, out)?;
    nodes::left_out(overview, out)?;
    pod_logs(&logs, out)?;
    frame::end("The archive holds every file in full.", out)
}

/// A timestamp to the minute, in UTC.
fn minute(moment: &str) -> String {
    let utc = base::clock::parse_rfc3339(moment).map(base::clock::rfc3339).unwrap_or_default();
    utc.get(..16).map(|minute| format!("{} UTC", minute.replace('T', " "))).unwrap_or_default()
}

fn about(overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let label = overview.opened.source.label();
    let file = label.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(label);
    let (from, _) = overview.times.run.clone().unwrap_or_default();
    let took = overview.times.whole().map(|span| spoken(span.length().as_secs_f64())).unwrap_or_default();
    let began = minute(&from);
    write!(out, "<dl>")?;
    for (term, text) in [
        ("Archive", file),
        ("Started", &began),
        ("Took", &took),
        ("Kubernetes", &overview.kubernetes),
        ("Sonobuoy", &overview.version),
        ("Run", &overview.run),
        ("Continues run", &overview.resumes),
    ] {
        if !text.is_empty() {
            write!(out, "<div><dt>{term}</dt><dd>{}</dd></div>", escape(text))?;
        }
    }
    Ok(writeln!(out, "</dl>")?)
}

fn contents(overview: &Overview<'_>, logs: &Logs, out: &mut dyn Write) -> anyhow::Result<()> {
    write!(out, "<nav aria-label=\"Contents\">")?;
    for plugin in overview.by_severity() {
        let [(_, failed), ..] = columns(&plugin.counts);
        let failed = if failed > 0 { format!(" <b>{}</b>", number(failed)) } else { String::new() };
        write!(
            out,
            "<a class=\"{}\" href=\"#{}\"><span class=\"dot\"></span>{}{failed}</a>",
            plugin_class(plugin),
            of_plugin(plugin),
            escape(&plugin.name)
        )?;
    }
    for table in overview.opened.facts.tables() {
        write!(out, "<a href=\"#{}\">{}</a>", of_facts(table), table.title())?;
    }
    if overview.health.is_some() {
        write!(out, "<a href=\"#health\">Cluster health</a>")?;
    }
    if !logs.logs.is_empty() {
        write!(out, "<a href=\"#logs\">Pod logs</a>")?;
    }
    Ok(writeln!(out, "</nav>")?)
}

fn section(
    overview: &Overview<'_>,
    plugin: &Plugin,
    digest: &Digest,
    rows: &mut u64,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let verdict = plugin_class(plugin);
    let span = overview.times.of(&plugin.name, None);
    let took =
        span.map(|span| format!("<span class=\"soft\">{}</span>", spoken(span.length().as_secs_f64())));
    writeln!(
        out,
        "<section id=\"{}\" class=\"plugin\">\n<div class=\"head\"><h2>{}</h2>{}<span class=\"badge {verdict}\">{}</span></div>",
        of_plugin(plugin),
        escape(&plugin.name),
        took.unwrap_or_default(),
        escape(&plugin.status)
    )?;
    if let Some(error) = &plugin.error {
        return Ok(writeln!(
            out,
            "<p>Its results cannot be read:</p><pre tabindex=\"0\">{}</pre>\n</section>",
            escape(error)
        )?);
    }
    bar(&plugin.counts, out)?;
    nodes::odd(plugin, out)?;
    rows::write(overview, plugin, digest, rows, out)?;
    Ok(writeln!(out, "</section>")?)
}

fn bar(counts: &Counts, out: &mut dyn Write) -> anyhow::Result<()> {
    let shares = columns(counts).into_iter().filter(|(_, count)| *count > 0);
    write!(out, "<div class=\"bar\" aria-hidden=\"true\">")?;
    for (status, count) in shares.clone() {
        write!(out, "<i class=\"s-{status}\" style=\"flex:{count}\"></i>")?;
    }
    write!(out, "</div>\n<ul class=\"legend\">")?;
    for (status, count) in shares.filter(|(status, _)| *status != "other") {
        write!(out, "<li><span class=\"dot s-{status}\"></span> <b>{}</b> {status}</li>", number(count))?;
    }
    let known = ["passed", "failed", "timeout", "skipped", "unknown", FLAKY, ""];
    for (status, count) in counts.iter().filter(|(status, _)| !known.contains(&status.as_str())).take(TABLE) {
        write!(out, "<li><span class=\"dot\"></span> <b>{}</b> {}</li>", number(*count), escape(status))?;
    }
    Ok(writeln!(out, "</ul>")?)
}

fn plugin_class(plugin: &Plugin) -> &'static str {
    colour(plugin.verdict(), &plugin.counts)
}

fn of_facts(table: &Table) -> String {
    anchor("facts", &[table.plugin()])
}

fn of_plugin(plugin: &Plugin) -> String {
    anchor("plugin", &[&plugin.name])
}

/// A custom status is neither good nor bad.
fn colour(verdict: Verdict, counts: &Counts) -> &'static str {
    let [_, _, (_, flaky), _, (_, other), _] = columns(counts);
    match verdict {
        Verdict::Passed if other > 0 => "other",
        Verdict::Passed if flaky > 0 => FLAKY,
        verdict => verdict.word(),
    }
}

fn health(overview: &Overview<'_>, logs: &Logs, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(health) = &overview.health else { return Ok(()) };
    writeln!(out, "<section id=\"health\">\n<h2>Cluster health</h2>")?;
    for (name, part) in [("Nodes", &health.node_health), ("Pods", &health.pod_health)] {
        writeln!(out, "<h3>{name}: {} of {} healthy</h3>", part.healthy_nodes, part.total_nodes)?;
        unwell(part, out)?;
    }
    for (kind, files) in &health.error_summary {
        let mut files: Vec<_> =
            files.iter().filter(|(file, count)| **count > 0 && !names::is_own_log(file)).collect();
        if files.is_empty() {
            continue;
        }
        files.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        writeln!(
            out,
            "<h3>{} in logs</h3>\n<div class=\"scroll\" tabindex=\"0\"><table><tr><th class=\"n\">Lines</th><th>Log</th></tr>",
            escape(kind)
        )?;
        for (file, count) in files.iter().take(50) {
            let name = match logs.shown(file) {
                Some(log) => format!("<a href=\"#{}\">{}</a>", of_log(log), escape(file)),
                None => escape(file),
            };
            writeln!(out, "<tr><td class=\"n\">{}</td><td>{name}</td></tr>", number(**count))?;
        }
        writeln!(out, "</table></div>")?;
    }
    Ok(writeln!(out, "</section>")?)
}

fn unwell(part: &health::Part, out: &mut dyn Write) -> anyhow::Result<()> {
    let unwell = part.unwell();
    if unwell.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"wide\"><tr><th>Name</th><th>Ready</th><th>Reason</th><th>Message</th></tr>"
    )?;
    for detail in unwell.iter().take(TABLE) {
        let texts = [&detail.full_name(), &detail.ready, &detail.reason, &detail.message];
        let cells: String = texts.iter().map(|text| format!("<td>{}</td>", escape(text))).collect();
        writeln!(out, "<tr>{cells}</tr>")?;
    }
    Ok(writeln!(out, "</table></div>")?)
}

fn of_log(log: &Log) -> String {
    anchor("log", &[&log.name])
}

fn pod_logs(logs: &Logs, out: &mut dyn Write) -> anyhow::Result<()> {
    if logs.logs.is_empty() {
        return Ok(());
    }
    writeln!(out, "<section id=\"logs\">\n<h2>Pod logs</h2>\n<p class=\"soft\">The last lines of each.</p>")?;
    for log in &logs.logs {
        let Some(tail) = &log.tail else { break };
        writeln!(
            out,
            "<details class=\"log\" id=\"{}\"><summary>{} <small>{}{}</small></summary><div><pre tabindex=\"0\">{}</pre></div></details>",
            of_log(log),
            escape(short(&log.name)),
            size(log.size),
            if log.errors > 0 { format!(" · {} errors", number(log.errors)) } else { String::new() },
            escape(tail)
        )?;
    }
    let rest: Vec<&Log> = logs.logs.iter().filter(|log| log.tail.is_none()).collect();
    if !rest.is_empty() {
        writeln!(
            out,
            "<details class=\"all\"><summary>More logs in the archive</summary><table><tr><th>Log</th><th class=\"n\">Size</th></tr>"
        )?;
        for log in &rest {
            writeln!(out, "<tr><td>{}</td><td class=\"n\">{}</td></tr>", escape(&log.name), size(log.size))?;
        }
        writeln!(out, "</table></details>")?;
    }
    if logs.more > 0 {
        writeln!(out, "<p class=\"soft\">and {} more</p>", number(logs.more as u64))?;
    }
    Ok(writeln!(out, "</section>")?)
}

/// A log's path without the prefix common to all.
fn short(name: &str) -> &str {
    layout::below_pod_logs(name).unwrap_or(name)
}
