//! `results --format html`: an archive as one page that needs nothing but itself. It works from `file://`, on a
//! phone, in print, dark and light, and without its script, which only searches and unfolds. Whatever comes from the
//! archive is escaped.

use std::io::Write;

use serde_json::Value;

use super::leaf::Leaf;
use super::logs::{Log, Logs};
use super::overview::{Counts, Node, Overview, Plugin, Verdict, columns};
use super::times::spoken;
use crate::layout;
use base::visible;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// How much of one detail is shown, from its two ends.
const DETAIL: usize = 48 << 10;
/// How much of all details of a plugin is shown.
const DETAILS: usize = 12 << 20;
/// How many failures of a plugin are shown with details.
const FAILURES: usize = 2_000;
/// How many tests of a plugin are listed; browsers on phones give up at about ten times as many.
const ROWS: u64 = 20_000;
/// How many odd nodes are listed.
const ODD: usize = 200;

/// Writes the page.
pub(crate) fn write(overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let logs = Logs::read(overview)?;
    let verdict = overview.verdict().word();
    let headline = headline(overview);
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{headline} · Sonobuoy</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header class=\"{verdict}\"><div>\n<p class=\"soft\">Sonobuoy results</p>\n<h1>{headline}</h1>"
    )?;
    about(overview, out)?;
    contents(overview, &logs, out)?;
    writeln!(out, "</div></header>\n<main>")?;
    tools(&overview.counts(), out)?;
    for (at, plugin) in overview.plugins.iter().enumerate() {
        section(overview, at, plugin, &logs, out)?;
    }
    health(overview, &logs, out)?;
    pod_logs(&logs, out)?;
    writeln!(
        out,
        "</main>\n<footer>Made by sonobuoy {}. The archive holds every file in full.</footer>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>",
        crate::VERSION
    )?;
    Ok(())
}

/// The run in one sentence.
fn headline(overview: &Overview<'_>) -> String {
    let [(_, failed), (_, unknown), (_, passed), (_, other), (_, skipped)] = columns(&overview.counts());
    let total = failed + unknown + passed + other + skipped;
    let unread = overview.plugins.iter().filter(|plugin| plugin.error.is_some()).count() as u64;
    let tests = |count: u64| format!("{} {}", number(count), if count == 1 { "test" } else { "tests" });
    match overview.verdict() {
        Verdict::Failed if failed == 0 => "Failed".into(),
        Verdict::Failed => format!("{} of {} failed", number(failed), tests(total)),
        Verdict::Unknown if unread > 0 => "Not all results could be read".into(),
        Verdict::Unknown if total == 0 => "No results".into(),
        Verdict::Unknown => format!("{} of {} unknown", number(unknown), tests(total)),
        Verdict::Passed if other > 0 => format!("Nothing failed in {}", tests(total)),
        Verdict::Passed if skipped > 0 => format!("{} passed, {} skipped", tests(passed), number(skipped)),
        Verdict::Passed => format!("{} passed", tests(passed)),
    }
}

fn about(overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let label = overview.opened.source.label();
    let file = label.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(label);
    let (from, _) = overview.times.run.clone().unwrap_or_default();
    let took = overview.times.whole().map(|span| spoken(span.length().as_secs_f64())).unwrap_or_default();
    let utc = base::clock::parse_rfc3339(&from).map(base::clock::rfc3339).unwrap_or_default();
    let began = utc.get(..16).map(|minute| format!("{} UTC", minute.replace('T', " "))).unwrap_or_default();
    write!(out, "<dl>")?;
    for (term, text) in [
        ("Archive", file),
        ("Started", &began),
        ("Took", &took),
        ("Kubernetes", &overview.kubernetes),
        ("Sonobuoy", &overview.version),
        ("Run", &overview.run),
    ] {
        if !text.is_empty() {
            write!(out, "<div><dt>{term}</dt><dd>{}</dd></div>", escape(text))?;
        }
    }
    Ok(writeln!(out, "</dl>")?)
}

fn contents(overview: &Overview<'_>, logs: &Logs, out: &mut dyn Write) -> anyhow::Result<()> {
    write!(out, "<nav>")?;
    for (at, plugin) in overview.plugins.iter().enumerate() {
        let verdict = plugin_class(plugin);
        write!(
            out,
            "<a class=\"{verdict}\" href=\"#p{at}\"><span class=\"dot\"></span>{}</a>",
            escape(&plugin.name)
        )?;
    }
    if overview.health.is_some() {
        write!(out, "<a href=\"#health\">Cluster health</a>")?;
    }
    if !logs.logs.is_empty() {
        write!(out, "<a href=\"#logs\">Pod logs</a>")?;
    }
    Ok(writeln!(out, "</nav>")?)
}

/// The search bar; hidden where no script runs.
fn tools(counts: &Counts, out: &mut dyn Write) -> anyhow::Result<()> {
    write!(
        out,
        "<div class=\"tools\" hidden><input type=\"search\" id=\"q\" placeholder=\"Search tests, nodes, failures  ( / )\" \
         aria-label=\"Search tests\" autocomplete=\"off\">"
    )?;
    for (status, _) in columns(counts).into_iter().filter(|(_, count)| *count > 0) {
        write!(
            out,
            "<label><input type=\"checkbox\" value=\"{status}\" checked><span class=\"dot s-{status}\"></span>{status}</label>"
        )?;
    }
    Ok(writeln!(out, "<span id=\"count\" class=\"soft\" role=\"status\"></span></div>")?)
}

fn section(
    overview: &Overview<'_>,
    at: usize,
    plugin: &Plugin,
    logs: &Logs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let verdict = plugin_class(plugin);
    writeln!(
        out,
        "<section id=\"p{at}\">\n<div class=\"head\"><h2>{}</h2><span class=\"badge {verdict}\">{}</span></div>",
        escape(&plugin.name),
        escape(&plugin.status)
    )?;
    if let Some(error) = &plugin.error {
        return Ok(writeln!(out, "<pre>{}</pre>\n</section>", escape(error))?);
    }
    bar(&plugin.counts, out)?;
    nodes(at, plugin, out)?;
    failures(overview, at, plugin, logs, out)?;
    rows(overview, at, plugin, out)?;
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
    let known = ["passed", "failed", "timeout", "skipped", "unknown", ""];
    for (status, count) in counts.iter().filter(|(status, _)| !known.contains(&status.as_str())) {
        write!(out, "<li><span class=\"dot\"></span> <b>{}</b> {}</li>", number(*count), escape(status))?;
    }
    Ok(writeln!(out, "</ul>")?)
}

/// One square a node, and those that are not like most.
fn nodes(at: usize, plugin: &Plugin, out: &mut dyn Write) -> anyhow::Result<()> {
    let total = plugin.nodes.len();
    if total == 0 {
        return Ok(());
    }
    let (alike, odd) = plugin.odd_nodes();
    let is_odd = |node: &Node| odd.iter().any(|odd| odd.name == node.name);
    writeln!(
        out,
        "<h3>{} {}</h3>\n<div class=\"grid\">",
        number(total as u64),
        if total == 1 { "node" } else { "nodes" }
    )?;
    for (place, node) in plugin.nodes.iter().enumerate() {
        let mark = if is_odd(node) { " odd" } else { "" };
        let name = escape(&node.name);
        let status = escape(&node.status);
        let verdict = node_class(node);
        write!(
            out,
            "<a class=\"s-{verdict}{mark}\" href=\"#p{at}n{place}\" title=\"{name}: {status}\" aria-label=\"{name}: {status}\"></a>"
        )?;
    }
    writeln!(out, "</div>")?;
    if odd.is_empty() {
        let text = if total == 1 { escape(&plugin.nodes[0].name) } else { "All alike.".to_owned() };
        return Ok(writeln!(
            out,
            "<p class=\"soft\">{}</p>",
            if alike < total { "No two kinds agree on a majority." } else { &text }
        )?);
    }
    writeln!(
        out,
        "<p>{} of {} nodes are alike; {} {} odd:</p>\n<div class=\"scroll\"><table>\
         <tr><th>Node</th><th>Status</th><th>Results</th></tr>",
        number(alike as u64),
        number(total as u64),
        number(odd.len() as u64),
        if odd.len() == 1 { "is" } else { "are" }
    )?;
    for node in odd.iter().take(ODD) {
        let place = plugin.nodes.iter().position(|other| other.name == node.name).unwrap_or_default();
        let shares: Vec<String> = node
            .counts
            .iter()
            .map(|(status, count)| format!("{} {}", number(*count), escape(status)))
            .collect();
        writeln!(
            out,
            "<tr><td><a href=\"#p{at}n{place}\">{}</a></td><td><span class=\"badge {}\">{}</span></td><td>{}</td></tr>",
            escape(&node.name),
            node_class(node),
            escape(&node.status),
            shares.join(", ")
        )?;
    }
    writeln!(out, "</table></div>")?;
    if odd.len() > ODD {
        writeln!(out, "<p class=\"soft\">and {} more</p>", number((odd.len() - ODD) as u64))?;
    }
    Ok(())
}

fn node_class(node: &Node) -> &'static str {
    colour(node.verdict(), &node.counts)
}

fn plugin_class(plugin: &Plugin) -> &'static str {
    colour(plugin.verdict(), &plugin.counts)
}

/// A status of one's own is neither good nor bad.
fn colour(verdict: Verdict, counts: &Counts) -> &'static str {
    let [.., (_, other), (_, _)] = columns(counts);
    match verdict {
        Verdict::Passed if other > 0 => "other",
        verdict => verdict.word(),
    }
}

/// Which of the five columns a leaf belongs to.
fn class(leaf: &Leaf<'_>) -> &'static str {
    let one = Counts::from([(leaf.status().to_owned(), 1)]);
    columns(&one).into_iter().find(|(_, count)| *count > 0).map_or("other", |(class, _)| class)
}

/// What failed or is unknown, with everything known about it.
fn failures(
    overview: &Overview<'_>,
    at: usize,
    plugin: &Plugin,
    logs: &Logs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let [(_, failed), (_, unknown), ..] = columns(&plugin.counts);
    if failed + unknown == 0 {
        return Ok(());
    }
    let title = match (failed, unknown) {
        (_, 0) => "What failed",
        (0, _) => "What is unknown",
        _ => "What failed or is unknown",
    };
    writeln!(out, "<h3>{title}</h3>")?;
    let mut links = logs.of_plugin(&plugin.name).take(12).peekable();
    if links.peek().is_some() {
        write!(out, "<p class=\"soft\">Logs of its pods:")?;
        for (place, log) in links {
            write!(out, " <a href=\"#log{place}\">{}</a>", escape(short(&log.name)))?;
        }
        writeln!(out, "</p>")?;
    }
    let (mut shown, mut room) = (0, DETAILS);
    // Failures before unknown ones.
    for wanted in ["failed", "unknown"] {
        let mut place = 0;
        overview.leaves(plugin, |leaf| {
            let class = class(leaf);
            if class == "failed" || class == "unknown" {
                if class == wanted && shown < FAILURES {
                    failure(at, place, leaf, class, &mut room, out)?;
                    shown += 1;
                }
                place += 1;
            }
            Ok(())
        })?;
    }
    let more = failed + unknown - shown as u64;
    if more > 0 {
        writeln!(out, "<p class=\"soft\">and {} more</p>", number(more))?;
    }
    Ok(())
}

fn failure(
    at: usize,
    place: u64,
    leaf: &Leaf<'_>,
    class: &str,
    room: &mut usize,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let item = leaf.item;
    write!(
        out,
        "<details class=\"t {class}\" id=\"p{at}f{place}\" data-s=\"{class}\"><summary>{}",
        escape(&item.name)
    )?;
    if let Some(node) = leaf.node {
        write!(out, " <small>on {}</small>", escape(node))?;
    }
    if leaf.status() != class {
        write!(out, " <span class=\"badge {class}\">{}</span>", escape(leaf.status()))?;
    }
    write!(out, "</summary><div>")?;
    if !leaf.group().is_empty() {
        write!(out, "<p class=\"key\">{}</p>", escape(&leaf.group().join(" › ")))?;
    }
    let error = item.meta.get("error").map(|error| ("error".to_owned(), error.clone()));
    let details = item.details.iter().map(|(key, value)| match value {
        Value::String(text) => (key.clone(), text.clone()),
        other => (key.clone(), serde_json::to_string_pretty(other).unwrap_or_default()),
    });
    let mut any = false;
    for (key, text) in error.into_iter().chain(details) {
        let text = ends(&text, DETAIL.min(*room));
        *room -= text.len().min(*room);
        write!(out, "<p class=\"key\">{}</p><pre>{}</pre>", escape(&key), escape(&text))?;
        any = true;
    }
    if !any {
        write!(out, "<p class=\"soft\">The plugin says no more about it.</p>")?;
    }
    if let Some(file) = leaf.file {
        write!(out, "<p class=\"key\">from {}</p>", escape(file))?;
    }
    Ok(writeln!(out, "</div></details>")?)
}

/// Every test on one line.
fn rows(overview: &Overview<'_>, at: usize, plugin: &Plugin, out: &mut dyn Write) -> anyhow::Result<()> {
    let total = plugin.total();
    let title =
        if total == 1 { "The one result".to_owned() } else { format!("All {} results", number(total)) };
    writeln!(out, "<details class=\"all\"><summary>{title}</summary>\n<ol class=\"rows\">")?;
    let (mut place, mut failures, mut last) = (0_u64, 0_u64, None::<String>);
    overview.leaves(plugin, |leaf| {
        place += 1;
        let class = class(leaf);
        let failed = class == "failed" || class == "unknown";
        failures += u64::from(failed);
        // The first row of a node is where its square leads, listed or not.
        let begins = leaf.node.filter(|node| last.as_deref() != Some(node));
        let id = begins.and_then(|node| plugin.nodes.iter().position(|other| other.name == node));
        if let Some(node) = begins {
            last = Some(node.to_owned());
        }
        if place > ROWS && id.is_none() {
            return Ok(());
        }
        let id = id.map(|id| format!(" id=\"p{at}n{id}\"")).unwrap_or_default();
        let name = escape(&leaf.item.name);
        write!(out, "<li data-s=\"{class}\"{id}><span class=\"dot s-{class}\"></span><span>")?;
        if failed && failures <= FAILURES as u64 {
            write!(out, "<a href=\"#p{at}f{}\">{name}</a>", failures - 1)?;
        } else {
            write!(out, "{name}")?;
        }
        let label = if class == "other" { leaf.status() } else { class };
        let node = leaf.node.map(|node| format!("{} · ", escape(node))).unwrap_or_default();
        Ok(writeln!(out, "</span><small>{node}{}</small></li>", escape(label))?)
    })?;
    writeln!(out, "</ol>")?;
    if total > ROWS {
        writeln!(out, "<p class=\"soft\">and {} more in the archive</p>", number(total - ROWS))?;
    }
    Ok(writeln!(out, "</details>")?)
}

fn health(overview: &Overview<'_>, logs: &Logs, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(health) = &overview.health else { return Ok(()) };
    writeln!(out, "<section id=\"health\">\n<h2>Cluster health</h2>")?;
    for (name, part) in [("Nodes", &health.node_health), ("Pods", &health.pod_health)] {
        writeln!(out, "<h3>{name}: {} of {} are well</h3>", part.healthy_nodes, part.total_nodes)?;
        let unwell = part.unwell();
        if unwell.is_empty() {
            continue;
        }
        writeln!(
            out,
            "<div class=\"scroll\"><table class=\"wide\"><tr><th>Name</th><th>Ready</th><th>Reason</th><th>Message</th></tr>"
        )?;
        for detail in unwell.iter().take(ODD) {
            let texts = [&detail.full_name(), &detail.ready, &detail.reason, &detail.message];
            let cells: String = texts.iter().map(|text| format!("<td>{}</td>", escape(text))).collect();
            writeln!(out, "<tr>{cells}</tr>")?;
        }
        writeln!(out, "</table></div>")?;
    }
    for (kind, files) in health.error_summary.iter().filter(|(_, files)| !files.is_empty()) {
        let mut files: Vec<_> = files.iter().collect();
        files.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        writeln!(out, "<h3>{} in logs</h3>\n<div class=\"scroll\"><table>", escape(kind))?;
        for (file, count) in files.iter().take(50) {
            let name = match logs.shown(file) {
                Some(place) => format!("<a href=\"#log{place}\">{}</a>", escape(file)),
                None => escape(file),
            };
            writeln!(out, "<tr><td class=\"n\">{}</td><td>{name}</td></tr>", number(**count))?;
        }
        writeln!(out, "</table></div>")?;
    }
    Ok(writeln!(out, "</section>")?)
}

fn pod_logs(logs: &Logs, out: &mut dyn Write) -> anyhow::Result<()> {
    if logs.logs.is_empty() {
        return Ok(());
    }
    writeln!(out, "<section id=\"logs\">\n<h2>Pod logs</h2>\n<p class=\"soft\">The last lines of each.</p>")?;
    for (place, log) in logs.logs.iter().enumerate() {
        let Some(tail) = &log.tail else { break };
        writeln!(
            out,
            "<details class=\"log\" id=\"log{place}\"><summary>{} <small>{}{}</small></summary><div><pre>{}</pre></div></details>",
            escape(short(&log.name)),
            size(log.size),
            if log.errors > 0 { format!(" · {} errors", number(log.errors)) } else { String::new() },
            escape(tail)
        )?;
    }
    let rest: Vec<&Log> = logs.logs.iter().filter(|log| log.tail.is_none()).collect();
    if !rest.is_empty() {
        writeln!(out, "<details class=\"all\"><summary>More logs in the archive</summary><table>")?;
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

/// A log's path without what all of them share.
fn short(name: &str) -> &str {
    layout::below_pod_logs(name).unwrap_or(name)
}

/// The two ends of a long text.
fn ends(text: &str, limit: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= limit {
        return text.into();
    }
    let (mut first, mut last) = (limit / 2, text.len() - limit / 2);
    while !text.is_char_boundary(first) {
        first -= 1;
    }
    while !text.is_char_boundary(last) {
        last += 1;
    }
    format!("{}\n[… {} bytes left out …]\n{}", &text[..first], last - first, &text[last..]).into()
}

/// 12,345.
fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// Text for anywhere in the page, attributes included; control characters, which HTML refuses, and those that turn the
/// order of letters round are shown as escapes.
fn escape(text: &str) -> String {
    let text = visible::text(text);
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
