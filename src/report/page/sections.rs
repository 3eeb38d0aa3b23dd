//! The sections of the page of one run.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::SystemTime;

use anyhow::Result;

use super::digest::TestList;
use super::html::{Html, anchor, each, html, prose, tenth, text};
use super::{Share, bar, class_of, facts_anchor, is_custom, plugin_anchor, plugin_class};
use crate::facts::Table;
use crate::run::{NodeReport, PluginReport, Report, SlowTests};
use crate::survey::{Arrival, Period};
use crate::terminal::as_file;
use crate::words::{count, named, number, size, spoken};
use base::Joined as _;
use base::visible::cut;
use model::health::{Detail, Part};
use model::item::{OTHER, PASSED, SKIPPED, plain};
use model::names;
use model::verdict::Outcome;
use yaml::natural;

/// Maximum number of nodes in a table; beyond it they are a picture.
const MAX_TABLE_NODES: usize = 60;
/// Size of the picture's squares in pixels, and squares per row.
const SQUARE_PIXELS: usize = 9;
const SQUARES_PER_ROW: usize = 100;
/// Maximum number of results of a plugin that is a row of a table; others have a section.
const MAX_ROW_RESULTS: u64 = 3;
/// Maximum number of nodes of a plugin with a separate bar in the timeline.
const MAX_BAR_NODES: usize = 12;
/// Minimum number of bars that a timeline compares.
const MIN_BARS: usize = 2;
/// Maximum letters of a name next to its bar.
const MAX_BAR_LABEL_CHARS: usize = 24;
/// Height of a bar, width of the names beside them, and width of the timeline, in pixels.
const BAR_PIXELS: usize = 18;
const LABEL_PIXELS: f64 = 200.0;
const TIMELINE_PIXELS: f64 = 1000.0;
/// Maximum number of nodes in a table of facts; beyond it they are text, which browsers render at
/// once.
const MAX_FACT_ROWS: usize = 400;
/// Maximum number of rows that start unfolded.
const MAX_OPEN_ROWS: usize = 12;
/// Number of slowest tests to show.
const SLOWEST: usize = 10;
/// Maximum entries of lists.
const MAX_STATUSES: usize = 200;
const MAX_EXCLUDED: usize = 100;
const MAX_ODD_VALUES: usize = 200;
const MAX_DIFFERENCES: usize = 300;
const MAX_UNHEALTHY: usize = 200;
const MAX_LOG_FILES: usize = 50;
const MAX_LEFT_OUT: usize = 200;

/// Sentences above everything else.
pub(super) fn why(page: &mut Html, sentences: impl IntoIterator<Item = String>) {
    let sentences: Vec<_> = sentences.into_iter().collect();
    if !sentences.is_empty() {
        html!(
            page,
            "<p class=\"why\">",
            each(sentences, |page, sentence| {
                html!(page, text(sentence), "<br>");
            }),
            "</p>\n",
        );
    }
}

/// `and 5 more`, after the first of a list.
fn further(page: &mut Html, all: usize, listed: usize, place: &'static str) {
    if all > listed {
        html!(
            page,
            "\n<p class=\"soft\">and ",
            text(number(all - listed)),
            " more",
            place,
            "</p>",
        );
    }
}

/// The results of each node.
type Matrix<'a> = Vec<(&'a str, Vec<Option<&'a NodeReport>>)>;

/// Nodes against plugins, if any plugin ran on nodes: a table for few, a picture for many.
pub(super) fn nodes(page: &mut Html, report: &Report<'_>) {
    let plugins: Vec<_> = report
        .plugins
        .iter()
        .filter(|plugin| !plugin.nodes.is_empty())
        .collect();
    let matrix = matrix(&plugins);
    if matrix.is_empty() {
        return;
    }
    let title = count(matrix.len(), "node");
    html!(page, "\n<section id=\"nodes\">\n<h2>", text(title), "</h2>");
    if matrix.len() > MAX_TABLE_NODES {
        for (at, plugin) in plugins.iter().enumerate() {
            let classes = matrix
                .iter()
                .map(|(_, cells)| cells[at].map_or("none", node_class));
            picture(page, plugin, classes);
        }
        // The names of the squares, for the script.
        let names = matrix.iter().map(|(name, _)| *name).joined("\n");
        html!(
            page,
            "\n<p class=\"soft\" id=\"under\" role=\"status\">One square is one node, in the same \
             place for every plugin.</p>\n<template id=\"names\">",
            text(names),
            "</template>",
        );
    } else {
        matrix_table(page, &plugins, &matrix);
    }
    html!(page, "\n</section>");
}

/// The nodes in natural order, each with its result per plugin.
fn matrix<'a>(plugins: &[&'a PluginReport<'_>]) -> Matrix<'a> {
    let mut nodes = BTreeMap::<&str, Vec<Option<&NodeReport>>>::new();
    for (at, plugin) in plugins.iter().enumerate() {
        for node in &plugin.nodes {
            let cells = nodes
                .entry(&node.name)
                .or_insert_with(|| vec![None; plugins.len()]);
            cells[at] = Some(node);
        }
    }
    let mut matrix: Matrix<'_> = nodes.into_iter().collect();
    matrix.sort_by_cached_key(|(name, _)| natural(name));
    matrix
}

fn matrix_table(page: &mut Html, plugins: &[&PluginReport<'_>], matrix: &Matrix<'_>) {
    html!(
        page,
        "\n<div class=\"scroll\" tabindex=\"0\"><table class=\"matrix\"><tr><th>Node</th>",
        each(plugins, |page, plugin| {
            html!(
                page,
                "<th><a href=\"#",
                text(plugin_anchor(plugin)),
                "\">",
                text(plugin.name),
                "</a></th>",
            );
        }),
        "</tr>",
    );
    for (name, cells) in matrix {
        html!(
            page,
            "\n<tr id=\"",
            text(anchor("node", &[name])),
            "\"><th scope=\"row\">",
            text(name),
            "</th>",
        );
        for cell in cells {
            match cell {
                Some(node) => html!(
                    page,
                    "<td><span class=\"dot s-",
                    node_class(node),
                    "\"></span> ",
                    text(summary(node)),
                    "</td>",
                ),
                None => html!(page, "<td class=\"soft\">did not run</td>"),
            }
        }
        html!(page, "</tr>");
    }
    html!(page, "\n</table></div>");
}

fn node_class(node: &NodeReport) -> &'static str {
    class_of(node.outcome(), &node.counts)
}

/// The outcome of a node in brief.
fn summary(node: &NodeReport) -> String {
    let notable = node
        .counts
        .0
        .iter()
        .filter(|(status, _)| ![PASSED, SKIPPED].contains(&status.as_str()))
        .map(|(status, count)| format!("{} {status}", number(*count)))
        .joined(", ");
    if notable.is_empty() {
        node.status.clone()
    } else {
        notable
    }
}

/// One square per node, at the same position for every plugin, and one path per colour.
fn picture(
    page: &mut Html,
    plugin: &PluginReport<'_>,
    classes: impl ExactSizeIterator<Item = &'static str>,
) {
    let squares = classes.len();
    let per_row = squares.min(SQUARES_PER_ROW);
    let side = SQUARE_PIXELS - 1;
    let mut paths = BTreeMap::<&'static str, (String, u64)>::new();
    for (place, class) in classes.enumerate() {
        let x = place % per_row * SQUARE_PIXELS;
        let y = place / per_row * SQUARE_PIXELS;
        let (path, count) = paths.entry(class).or_default();
        path.push_str(&format!("M{x} {y}h{side}v{side}h-{side}z"));
        *count += 1;
    }
    let numbers = paths
        .iter()
        .map(|(class, (_, count))| {
            let word = if *class == "none" {
                "did not run"
            } else {
                class
            };
            format!("{} {word}", number(*count))
        })
        .joined(", ");
    let height = squares.div_ceil(per_row) * SQUARE_PIXELS;
    html!(
        page,
        "\n<h3 class=\"",
        plugin_class(plugin),
        "\"><span class=\"dot\"></span> <a href=\"#",
        text(plugin_anchor(plugin)),
        "\">",
        text(plugin.name),
        "</a> <small>",
        text(&numbers),
        "</small></h3>\n<svg class=\"nodes\" viewBox=\"0 0 ",
        text(per_row * SQUARE_PIXELS),
        " ",
        text(height),
        "\" role=\"img\" aria-label=\"",
        text(plugin.name),
        ": ",
        text(&numbers),
        "\" data-across=\"",
        text(per_row),
        "\">",
        each(&paths, |page, (class, (path, _))| {
            html!(
                page,
                "\n<path class=\"f-",
                *class,
                "\" d=\"",
                text(path),
                "\"/>"
            );
        }),
        "\n</svg>",
    );
}

/// A section for each plugin; those with few results are rows of one table.
pub(super) fn plugins(page: &mut Html, report: &Report<'_>, lists: &[TestList]) {
    let is_small = |plugin: &PluginReport<'_>| {
        plugin.total <= MAX_ROW_RESULTS
            && plugin.error.is_none()
            && !report.excluded.contains_key(plugin.name)
    };
    let (small, large): (Vec<_>, Vec<_>) = report
        .plugins
        .iter()
        .zip(lists)
        .partition(|(plugin, _)| is_small(plugin));
    for (plugin, list) in &large {
        plugin_section(page, report, plugin, list);
    }
    if small.is_empty() {
        return;
    }
    let title = if large.is_empty() {
        "Plugins"
    } else {
        "Plugins with few results"
    };
    html!(
        page,
        "\n<section id=\"plugins\">\n<h2>",
        title,
        "</h2>\n\
         <div class=\"scroll\" tabindex=\"0\"><table class=\"plugins\">\
         <tr><th>Plugin</th><th>Status</th><th>Results</th><th class=\"n\">Took</th></tr>",
    );
    for (plugin, list) in small {
        let class = plugin_class(plugin);
        html!(
            page,
            "\n<tr id=\"",
            text(plugin_anchor(plugin)),
            "\" class=\"p\"><th scope=\"row\">",
            text(plugin.name),
            "</th><td><span class=\"badge ",
            class,
            "\">",
            text(&plugin.status),
            "</span></td><td><div class=\"rows\">",
        );
        list.write(page);
        html!(page, "</div>");
        missing_rows(page, plugin, list);
        let duration = plugin.duration.map(|span| spoken(span.seconds()));
        html!(
            page,
            "</td><td class=\"n\">",
            text(duration.unwrap_or_default()),
            "</td></tr>",
        );
    }
    html!(page, "\n</table></div>\n</section>");
}

fn plugin_section(
    page: &mut Html,
    report: &Report<'_>,
    plugin: &PluginReport<'_>,
    list: &TestList,
) {
    html!(
        page,
        "\n<section id=\"",
        text(plugin_anchor(plugin)),
        "\" class=\"plugin\">\n<div class=\"head\"><h2>",
        text(plugin.name),
        "</h2>",
    );
    if let Some(span) = plugin.duration {
        html!(
            page,
            "<span class=\"soft\">",
            text(spoken(span.seconds())),
            "</span>"
        );
    }
    html!(
        page,
        "<span class=\"badge ",
        plugin_class(plugin),
        "\">",
        text(&plugin.status),
        "</span></div>",
    );
    if let Some(error) = &plugin.error {
        html!(
            page,
            "\n<p>Its results cannot be read:</p><pre tabindex=\"0\">",
            text(error),
            "</pre>\n</section>",
        );
        return;
    }
    html!(page, &bar(&shares(plugin)));
    node_sentences(page, plugin);
    excluded(page, report, plugin);
    html!(
        page,
        "\n<details class=\"all\"><summary>",
        text(count(plugin.total, "result")),
        "</summary>\n<div class=\"rows\">",
    );
    list.write(page);
    html!(page, "\n</div>");
    missing_rows(page, plugin, list);
    html!(page, "\n</details>\n</section>");
}

/// What the list of a plugin lacks.
fn missing_rows(page: &mut Html, plugin: &PluginReport<'_>, list: &TestList) {
    if let Some(missing) = list.missing(plugin) {
        html!(page, "\n<p class=\"soft\">and ", text(missing), "</p>");
    }
}

/// The numbers of each status; custom ones by their own names.
fn shares<'a>(plugin: &'a PluginReport<'_>) -> Vec<Share<'a>> {
    let standard = plugin
        .counts
        .shares()
        .filter(|(status, _)| *status != OTHER)
        .map(|(status, count)| -> Share<'a> { (status, count) });
    let custom = plugin
        .counts
        .0
        .iter()
        .map(|(status, count)| (status.as_str(), *count))
        .filter(|(status, _)| is_custom(status));
    standard.chain(custom).take(MAX_STATUSES).collect()
}

/// Sentences about the nodes of a plugin that failed, are unknown, or passed with results unlike
/// most, with their names.
fn node_sentences(page: &mut Html, plugin: &PluginReport<'_>) {
    let all = count(plugin.nodes.len(), "node");
    let groups = [
        (Outcome::Failed, ["failed"; 2]),
        (Outcome::Unknown, ["is unknown", "are unknown"]),
        (Outcome::Passed, ["passed, with other results than most"; 2]),
    ];
    let mut sentences = Html::default();
    for (outcome, [singular, plural]) in groups {
        let is_odd = |node: &&NodeReport| {
            outcome != Outcome::Passed || plugin.odd_nodes.contains(&node.name)
        };
        let names: Vec<&str> = plugin
            .nodes
            .iter()
            .filter(|node| node.outcome() == outcome)
            .filter(is_odd)
            .map(|node| node.name.as_str())
            .collect();
        if names.is_empty() {
            continue;
        }
        let verb = if names.len() == 1 { singular } else { plural };
        html!(
            sentences,
            text(number(names.len())),
            " of ",
            text(&all),
            " ",
            verb,
            ": <b>",
            text(named(&names, names.len() as u64)),
            "</b>. ",
        );
    }
    if !sentences.is_empty() {
        html!(page, "\n<p>", &sentences, "</p>");
    }
}

/// The nodes that a plugin did not run on.
fn excluded(page: &mut Html, report: &Report<'_>, plugin: &PluginReport<'_>) {
    let Some(nodes) = report
        .excluded
        .get(plugin.name)
        .filter(|nodes| !nodes.is_empty())
    else {
        return;
    };
    html!(
        page,
        "\n<details><summary>Did not run on ",
        text(number(nodes.len())),
        " of its nodes</summary>\n<ul>",
        each(nodes.iter().take(MAX_EXCLUDED), |page, (node, reason)| {
            html!(
                page,
                "<li><b>",
                text(node),
                "</b> ",
                &prose(reason),
                "</li>"
            );
        }),
        "</ul>",
    );
    further(
        page,
        nodes.len(),
        MAX_EXCLUDED,
        ", in meta/nodes.json of the archive",
    );
    html!(page, "\n</details>");
}

/// Facts of nodes: rare values in sentences, then a row per node, then all differing facts.
pub(super) fn facts(page: &mut Html, table: &Table) {
    let nodes = count(table.rows.len(), "node");
    let has_several = table.rows.len() > 1;
    html!(
        page,
        "\n<section id=\"",
        text(facts_anchor(table.kind.plugin)),
        "\" class=\"facts\">\n<div class=\"head\"><h2>",
        table.kind.title,
        "</h2><span class=\"soft\">",
        text(&nodes),
        ", ",
        table.kind.plugin,
        "</span></div>",
    );
    if has_several && table.odd.is_empty() {
        html!(page, "\n<p>No node stands out.</p>");
    }
    if !table.odd.is_empty() {
        html!(
            page,
            "\n<ul>",
            each(table.odd.iter().take(MAX_ODD_VALUES), |page, odd| {
                html!(
                    page,
                    "<li><b>",
                    text(&odd.what),
                    "</b>: ",
                    text(named(&odd.nodes, odd.nodes.len() as u64)),
                    "</li>",
                );
            }),
            "</ul>",
        );
    }
    let spread = table.spread_sentences();
    if !spread.is_empty() {
        html!(
            page,
            "\n<p class=\"soft\">",
            each(spread, |page, sentence| {
                html!(page, text(sentence), "<br>");
            }),
            "</p>",
        );
    }
    fact_rows(page, table, &nodes);
    if has_several {
        differing_facts(page, table);
    }
    html!(page, "\n</section>");
}

fn fact_rows(page: &mut Html, table: &Table, nodes: &str) {
    if table.rows.len() > MAX_FACT_ROWS {
        // Writing to memory does not fail.
        let rows = as_file(|terminal| table.write(terminal)).unwrap_or_default();
        html!(
            page,
            "\n<details class=\"all\"><summary>All ",
            text(nodes),
            "</summary><pre class=\"wide\" tabindex=\"0\">",
            text(rows),
            "</pre></details>",
        );
        return;
    }
    let open = if table.rows.len() <= MAX_OPEN_ROWS {
        " open"
    } else {
        ""
    };
    let all = if table.rows.len() == 1 { "" } else { "All " };
    html!(
        page,
        "\n<details class=\"all\"",
        open,
        "><summary>",
        all,
        text(nodes),
        "</summary><div class=\"scroll\" tabindex=\"0\"><table class=\"wide\"><tr><th>Node",
        each(table.kind.columns, |page, column| {
            html!(page, "<th>", column.title);
        }),
    );
    for (node, cells) in table.sorted_rows() {
        html!(page, "\n<tr><th scope=\"row\">", text(node));
        for cell in cells {
            let value = if cell.text.is_empty() {
                "–"
            } else {
                &cell.text
            };
            if cell.odd {
                html!(page, "<td><mark>", text(value), "</mark>");
            } else {
                html!(page, "<td>", text(value));
            }
        }
    }
    html!(page, "\n</table></div></details>");
}

fn differing_facts(page: &mut Html, table: &Table) {
    let differences = table.differences();
    if differences.is_empty() {
        return;
    }
    html!(
        page,
        "\n<details class=\"all\"><summary>Every fact that differs: ",
        text(number(differences.len())),
        "</summary><div class=\"scroll\" tabindex=\"0\"><table class=\"wide\">\
         <tr><th>Fact<th>Values",
        each(
            differences.iter().take(MAX_DIFFERENCES),
            |page, (key, values)| {
                html!(page, "\n<tr><td>", text(key), "<td>", text(values));
            }
        ),
        "\n</table></div>",
    );
    if differences.len() > MAX_DIFFERENCES {
        html!(
            page,
            "\n<p class=\"soft\">and ",
            text(number(differences.len() - MAX_DIFFERENCES)),
            " more; <code>sonobuoy results ARCHIVE --facts=all</code> lists them</p>",
        );
    }
    let volatile = table.volatile();
    if !volatile.is_empty() {
        html!(
            page,
            "\n<p class=\"soft\">Not compared, since they always differ (times, counters, \
             addresses): ",
            text(volatile),
            "</p>",
        );
    }
    html!(page, "\n</details>");
}

/// A bar of the timeline.
struct Bar<'a> {
    indent: &'static str,
    name: &'a str,
    class: &'static str,
    span: Period,
}

/// Durations, if any is known: a timeline of plugins and nodes, and the slowest tests.
pub(super) fn time(page: &mut Html, report: &Report<'_>, slowest: SlowTests) {
    let bars = bars(report);
    let slowest = slowest.into_slowest(SLOWEST);
    let run = report.duration.filter(|_| bars.len() >= MIN_BARS);
    let total = Period::around(bars.iter().map(|bar| bar.span).chain(run))
        .filter(|total| bars.len() >= MIN_BARS && total.seconds() > 0.0);
    if total.is_none() && slowest.is_empty() {
        return;
    }
    html!(
        page,
        "\n<section id=\"time\">\n<h2>Where the time went</h2>"
    );
    if let Some(total) = total {
        timeline(page, &bars, total);
    }
    if let Some((_, longest)) = slowest.first() {
        let longest = longest.seconds.max(1e-9);
        html!(
            page,
            "\n<h3>The slowest</h3>\n<table class=\"slow\">\
             <tr><th class=\"n\">Took</th><th>Test</th></tr>",
        );
        for (place, slow) in &slowest {
            html!(
                page,
                "\n<tr><td class=\"n\">",
                text(spoken(slow.seconds)),
                "</td><td>",
            );
            let name = plain(&place.test);
            match &slow.id {
                Some(id) => html!(page, "<a href=\"#", text(id), "\">", text(name), "</a>"),
                None => html!(page, text(name)),
            }
            let share = (100.0 * slow.seconds / longest).round();
            html!(
                page,
                " <small>",
                text(&place.plugin),
                text(place.nodes.phrase()),
                "</small><i style=\"width:",
                text(share),
                "%\"></i></td></tr>",
            );
        }
        html!(page, "\n</table>");
    }
    html!(page, "\n</section>");
}

/// A bar for each plugin, and for its nodes if they are few.
fn bars<'a>(report: &'a Report<'_>) -> Vec<Bar<'a>> {
    let mut bars = Vec::new();
    for plugin in &report.plugins {
        let Some(span) = plugin.duration else {
            continue;
        };
        bars.push(Bar {
            indent: "",
            name: plugin.name,
            class: plugin_class(plugin),
            span,
        });
        if !(2..=MAX_BAR_NODES).contains(&plugin.nodes.len()) {
            continue;
        }
        for node in &plugin.nodes {
            let has_failed =
                |arrival: &Arrival| arrival.node == node.name && !arrival.failed.is_empty();
            let class = if plugin.arrivals.iter().any(has_failed) {
                "failed"
            } else {
                "node"
            };
            bars.extend(node.duration.map(|span| Bar {
                indent: "\u{a0}\u{a0}",
                name: &node.name,
                class,
                span,
            }));
        }
    }
    bars
}

fn timeline(page: &mut Html, bars: &[Bar<'_>], whole: Period) {
    let room = TIMELINE_PIXELS - LABEL_PIXELS;
    let x = |time: SystemTime| {
        let until = Period {
            from: whole.from,
            to: time,
        };
        LABEL_PIXELS + room * until.seconds() / whole.seconds()
    };
    let height = (bars.len() + 1) * BAR_PIXELS + 6;
    html!(
        page,
        "\n<h3>Timeline</h3>\n<div class=\"scroll\" tabindex=\"0\">\
         <svg class=\"chart\" viewBox=\"0 0 ",
        text(TIMELINE_PIXELS),
        " ",
        text(height),
        "\" role=\"img\" aria-label=\"When each plugin ran, of ",
        text(spoken(whole.seconds())),
        "\">\n",
    );
    for share in [0.0, 0.25, 0.5, 0.75] {
        let at = LABEL_PIXELS + room * share;
        html!(
            page,
            "<path class=\"grid\" d=\"M",
            text(at),
            " 0V",
            text(height),
            "\"/><text x=\"",
            text(at),
            "\" dx=\"3\" y=\"12\">",
            text(spoken(whole.seconds() * share)),
            "</text>",
        );
    }
    for (at, bar) in bars.iter().enumerate() {
        let (from, to) = (x(bar.span.from), x(bar.span.to));
        html!(
            page,
            "\n<g transform=\"translate(0 ",
            text((at + 1) * BAR_PIXELS),
            ")\"><text y=\"13\">",
            bar.indent,
            text(cut(bar.name, MAX_BAR_LABEL_CHARS)),
            "</text><rect class=\"f-",
            bar.class,
            "\" x=\"",
            text(tenth(from)),
            "\" y=\"3\" width=\"",
            text(tenth((to - from).max(2.0))),
            "\" height=\"13\" rx=\"3\"><title>",
            text(bar.name),
            ": ",
            text(spoken(bar.span.seconds())),
            "</title></rect></g>",
        );
    }
    html!(page, "\n</svg></div>");
}

/// The health of the cluster, and suspicious lines of logs.
pub(super) fn health(page: &mut Html, report: &Report<'_>) {
    let Some(health) = &report.health else { return };
    html!(page, "\n<section id=\"health\">\n<h2>Cluster health</h2>");
    for (name, part) in [("Nodes", &health.node_health), ("Pods", &health.pod_health)] {
        html!(
            page,
            "\n<h3>",
            name,
            ": ",
            text(number(part.healthy_nodes)),
            " of ",
            text(number(part.total_nodes)),
            " healthy</h3>",
        );
        unhealthy(page, part);
    }
    for (kind, files) in &health.error_summary {
        let mut files: Vec<_> = files
            .iter()
            .filter(|(file, lines)| **lines > 0 && !names::is_own_log(file))
            .collect();
        files.sort_by_key(|(_, lines)| Reverse(**lines));
        if files.is_empty() {
            continue;
        }
        html!(
            page,
            "\n<h3>",
            text(kind),
            " in logs</h3>\n<div class=\"scroll\" tabindex=\"0\"><table>\
             <tr><th class=\"n\">Lines</th><th>Log</th></tr>",
            each(files.iter().take(MAX_LOG_FILES), |page, (file, lines)| {
                html!(
                    page,
                    "\n<tr><td class=\"n\">",
                    text(number(lines)),
                    "</td><td>",
                    text(file),
                    "</td></tr>",
                );
            }),
            "\n</table></div>",
        );
    }
    html!(page, "\n</section>");
}

/// The title of a column, and its value for a node or pod.
type Column = (&'static str, fn(&Detail) -> &str);

/// A table of what is not healthy, without columns that say nothing.
fn unhealthy(page: &mut Html, part: &Part) {
    let unwell = part.unwell();
    if unwell.is_empty() {
        return;
    }
    let columns: [Column; 3] = [
        ("Ready", |detail| &detail.ready),
        ("Reason", |detail| &detail.reason),
        ("Message", |detail| &detail.message),
    ];
    let columns: Vec<_> = columns
        .into_iter()
        .filter(|(_, value)| unwell.iter().any(|detail| !value(detail).is_empty()))
        .collect();
    html!(
        page,
        "\n<div class=\"scroll\" tabindex=\"0\"><table class=\"wide\"><tr><th>Name</th>",
        each(&columns, |page, (title, _)| {
            html!(page, "<th>", *title, "</th>");
        }),
        "</tr>",
    );
    for detail in unwell.iter().take(MAX_UNHEALTHY) {
        html!(page, "\n<tr><td>", text(detail.full_name()), "</td>");
        for (_, value) in &columns {
            html!(page, "<td>", text(value(detail)), "</td>");
        }
        html!(page, "</tr>");
    }
    html!(page, "\n</table></div>");
    further(page, unwell.len(), MAX_UNHEALTHY, "");
}

/// Nodes that the snapshot lacks data of.
pub(super) fn left_out(page: &mut Html, report: &Report<'_>) {
    if report.left_out.is_empty() {
        return;
    }
    html!(
        page,
        "\n<section id=\"left-out\">\n<h2>Left out of the snapshot</h2>\n\
         <div class=\"scroll\"><table class=\"wide\"><tr><th>Node</th><th>Reason</th></tr>",
        each(report.left_out.iter().take(MAX_LEFT_OUT), |page, left| {
            html!(
                page,
                "\n<tr><td>",
                text(&left.node),
                "</td><td>",
                text(&left.error),
                "</td></tr>",
            );
        }),
        "\n</table></div>",
    );
    further(page, report.left_out.len(), MAX_LEFT_OUT, "");
    html!(page, "\n</section>");
}

/// The ends of pod logs; empty without any.
pub(super) fn logs(report: &Report<'_>) -> Result<Html> {
    let errors = report
        .health
        .as_ref()
        .and_then(|health| health.error_summary.get("Errors"));
    let not_passed: Vec<&str> = report
        .plugins
        .iter()
        .filter(|plugin| plugin.outcome() != Outcome::Passed)
        .map(|plugin| plugin.name)
        .collect();
    let logs = report.opened.survey.logs(errors, &not_passed)?;
    let mut page = Html::default();
    if logs.shown.is_empty() {
        return Ok(page);
    }
    html!(
        page,
        "\n<section id=\"logs\">\n<h2>Pod logs</h2>\n<details class=\"all\">\
         <summary>The last lines of each, those with errors first</summary>",
    );
    for log in &logs.shown {
        html!(
            page,
            "\n<details class=\"log\" id=\"",
            text(anchor("log", &[&log.name])),
            "\"><summary>",
            text(&log.short),
            " <small>",
            text(size(log.size)),
        );
        if log.errors > 0 {
            html!(page, " · ", text(count(log.errors, "error")));
        }
        html!(
            page,
            "</small></summary><div><pre tabindex=\"0\">",
            text(&log.tail),
            "</pre></div></details>",
        );
    }
    html!(page, "\n</details>");
    further(
        &mut page,
        logs.shown.len() + logs.more,
        logs.shown.len(),
        " in the archive",
    );
    html!(page, "\n</section>");
    Ok(page)
}
