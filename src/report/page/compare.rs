//! The sections about several runs: their trend, their matrix, and the changes between two.

use anyhow::Result;

use super::html::{Html, anchor, each, html, text};
use crate::diff::{ChangeGroup, ChangeKind, Diff, tests};
use crate::many::Many;
use crate::terminal::as_file;
use crate::words::{minute, number, spoken};
use base::Joined as _;
use model::item::{FAILED, PASSED, UNKNOWN, plain};
use model::remedies::{Causes, MAX_NAMED, ReportedFailure};

/// Maximum entries of lists.
const MAX_TREND_TESTS: usize = 100;
const MAX_LINES: usize = 5_000;
const MAX_CHANGES: usize = 5_000;
const MAX_FACTS: usize = 2_000;
/// Maximum distinct failures of one changed test, and nodes named beside it.
const MAX_REASONS: usize = 5;
const MAX_NODES: usize = 100;

/// `and 5 more`, after the first of a list.
fn further(page: &mut Html, all: usize, listed: usize) {
    if all > listed {
        html!(
            page,
            "\n<p class=\"soft\">and ",
            text(number(all - listed)),
            " more</p>"
        );
    }
}

/// The runs from the last to the first, and each test that failed in any.
pub(super) fn trend(page: &mut Html, many: &Many) {
    let order = many.by_start();
    html!(
        page,
        "\n<section id=\"trend\">\n<h2>Trend: ",
        text(number(order.len())),
        " runs</h2>\n<div class=\"scroll\" tabindex=\"0\"><table class=\"wide\">\
         <tr><th>Started</th><th>Result</th><th class=\"n\">Failed</th><th class=\"n\">Passed</th>\
         <th class=\"n\">Took</th><th>Archive</th></tr>",
    );
    for at in order.iter().rev() {
        let column = &many.columns[*at];
        let cells = column.plugins.values();
        let failed: u64 = cells.clone().map(|cell| cell.failed).sum();
        let passed: u64 = cells.map(|cell| cell.passed).sum();
        let status = column.status.word();
        let started = column.started.as_deref().map(minute).unwrap_or_default();
        html!(
            page,
            "\n<tr><th scope=\"row\">",
            text(started),
            "</th><td><span class=\"badge ",
            status,
            "\">",
            status,
            "</span></td><td class=\"n\">",
            text(number(failed)),
            "</td><td class=\"n\">",
            text(number(passed)),
            "</td><td class=\"n\">",
            text(column.duration.map(spoken).unwrap_or_default()),
            "</td><td>",
            text(column.archive.rsplit('/').next().unwrap_or_default()),
            "</td></tr>",
        );
    }
    html!(page, "\n</table></div>");
    let tests = many.failed_tests();
    if !tests.is_empty() {
        html!(
            page,
            "\n<h3>Failed in any of them, the oldest run on the left</h3>\n\
             <div class=\"scroll\" tabindex=\"0\"><table>",
        );
        for (place, failed_in) in tests.iter().take(MAX_TREND_TESTS) {
            html!(page, "\n<tr><td class=\"marks\">");
            for at in &order {
                let class = if failed_in.contains(at) {
                    FAILED
                } else {
                    "none"
                };
                html!(
                    page,
                    "<span class=\"dot s-",
                    class,
                    "\" role=\"img\" aria-label=\"",
                    class,
                    "\"></span>",
                );
            }
            html!(
                page,
                "</td><td>",
                text(plain(&place.test)),
                " <small>",
                text(&place.plugin),
                text(place.nodes.phrase()),
                "</small></td></tr>",
            );
        }
        html!(page, "\n</table></div>");
        further(page, tests.len(), MAX_TREND_TESTS);
    }
    html!(page, "\n</section>");
}

/// A row for each archive, and lists of what differs.
pub(super) fn matrix(page: &mut Html, many: &Many) {
    let mut rows = many.matrix().into_iter();
    let titles = rows.next().unwrap_or_default();
    html!(
        page,
        "\n<section id=\"runs\">\n<h2>Side by side</h2>\n\
         <div class=\"scroll\" tabindex=\"0\"><table class=\"wide\"><tr>",
        each(titles, |page, title| {
            html!(page, "<th>", text(title), "</th>");
        }),
        "</tr>",
    );
    for row in rows {
        let mut cells = row.into_iter();
        let label = cells.next().unwrap_or_default();
        html!(page, "\n<tr><th scope=\"row\">", text(label), "</th>");
        for cell in cells {
            html!(page, "<td>");
            let class = [FAILED, UNKNOWN, PASSED]
                .into_iter()
                .find(|word| cell.ends_with(word));
            if let Some(class) = class {
                html!(page, "<span class=\"dot s-", class, "\"></span> ");
            }
            html!(page, text(cell), "</td>");
        }
        html!(page, "</tr>");
    }
    html!(page, "\n</table></div>\n</section>");
    for list in many.lists() {
        if !list.lines.is_empty() {
            lines(page, None, &list.title, &list.lines, MAX_LINES);
        }
    }
}

fn lines(page: &mut Html, id: Option<&'static str>, title: &str, lines: &[String], max: usize) {
    html!(page, "\n<section");
    if let Some(id) = id {
        html!(page, " id=\"", id, "\"");
    }
    html!(
        page,
        " class=\"facts\">\n<h2>",
        text(title),
        "</h2>\n<ul>",
        each(lines.iter().take(max), |page, line| {
            html!(page, "<li>", text(line), "</li>");
        }),
        "</ul>",
    );
    further(page, lines.len(), max);
    html!(page, "\n</section>");
}

/// The two runs of a comparison.
pub(super) fn two_runs(page: &mut Html, diff: &Diff) {
    html!(
        page,
        "\n<section id=\"runs\">\n<h2>The two runs</h2>\n<table><tr>\
         <th><span class=\"soft\">What</span></th><th>Before</th><th>After</th></tr>",
    );
    let runs = &diff.runs;
    row(
        page,
        "Archive",
        runs.each_ref().map(|run| run.archive.clone()),
    );
    row(
        page,
        "Result",
        runs.each_ref().map(|run| run.status.word().to_owned()),
    );
    let started = runs
        .each_ref()
        .map(|run| run.started.as_deref().map(minute).unwrap_or_default());
    row(page, "Started", started);
    for change in diff.longer_durations() {
        let what = change.plugin.as_deref().unwrap_or("The run");
        row(
            page,
            &format!("{what} took"),
            [change.before, change.after].map(spoken),
        );
    }
    for version in diff.versions() {
        let [before, after] = [&version.before, &version.after].map(|text| {
            if text.is_empty() {
                "none"
            } else {
                text.as_str()
            }
        });
        html!(
            page,
            "\n<tr><th scope=\"row\">",
            text(&version.name),
            "</th><td>",
            text(before),
            "</td><td><mark>",
            text(after),
            "</mark></td></tr>",
        );
    }
    html!(
        page,
        "\n</table>\n<p class=\"soft\">Tests that did not change: ",
        text(number(diff.unchanged)),
        ".</p>\n</section>",
    );
}

fn row(page: &mut Html, title: &str, cells: [String; 2]) {
    html!(
        page,
        "\n<tr><th scope=\"row\">",
        text(title),
        "</th>",
        each(cells, |page, cell| {
            html!(page, "<td>", text(cell), "</td>");
        }),
        "</tr>",
    );
}

/// The changed tests by kind, facts of nodes, and objects.
pub(super) fn changes(page: &mut Html, diff: &Diff) -> Result<()> {
    for (kind, of_kind) in diff.kinds() {
        html!(
            page,
            "\n<section id=\"",
            kind.id(),
            "\" class=\"changes\">\n<h2>",
            kind.title(),
            ": ",
            text(number(tests(of_kind))),
            "</h2>\n<div class=\"rows\">",
        );
        for of_plugin in of_kind.chunk_by(|a, b| a.plugin == b.plugin) {
            html!(
                page,
                "\n<div class=\"group\"><p class=\"key\">",
                text(&of_plugin[0].plugin),
                "</p>",
            );
            let groups = ChangeGroup::all(of_plugin);
            for group in groups.iter().take(MAX_CHANGES) {
                change(page, kind, group);
            }
            further(page, groups.len(), MAX_CHANGES);
            html!(page, "\n</div>");
        }
        html!(page, "\n</div>\n</section>");
    }
    if !diff.facts.is_empty() {
        let title = format!("Facts of nodes that changed: {}", number(diff.facts.len()));
        lines(page, Some("facts"), &title, &diff.facts, MAX_FACTS);
    }
    if let Some(objects) = &diff.objects {
        let listing = as_file(|terminal| objects.write_text(terminal))?;
        html!(
            page,
            "\n<section id=\"objects\">\n<h2>Objects of the cluster</h2>\n\
             <pre tabindex=\"0\">",
            text(listing),
            "</pre>\n</section>",
        );
    }
    Ok(())
}

fn change(page: &mut Html, kind: ChangeKind, group: &ChangeGroup<'_>) {
    let first = group.changes[0];
    let names = [
        &*first.plugin,
        first.node.as_deref().unwrap_or_default(),
        &first.test,
    ];
    let moved = group.moved().map(|sides| {
        let [before, after] = sides.map(|side| side.unwrap_or("absent"));
        format!("{before} → {after}")
    });
    let nodes = Some(group.place.nodes.phrase()).filter(|phrase| !phrase.is_empty());
    let nodes = nodes.map(|phrase| phrase.trim_start().to_owned());
    let about = nodes.into_iter().chain(moved).joined(" · ");
    html!(
        page,
        "\n<details class=\"r ",
        kind.class(),
        " plain\" id=\"",
        text(anchor(kind.id(), &names)),
        "\"><summary>",
        text(plain(&first.test)),
        " <i>",
        text(about),
        "</i></summary>",
    );
    let reasons = reasons(group);
    let has_hidden_nodes = group.changes.len() > MAX_NAMED;
    if !reasons.is_empty() || has_hidden_nodes {
        html!(page, "<div>");
        if has_hidden_nodes {
            let nodes = group
                .changes
                .iter()
                .filter_map(|change| change.node.as_deref());
            html!(
                page,
                "<p class=\"key\">on ",
                text(nodes.take(MAX_NODES).joined(", ")),
                "</p>"
            );
        }
        for (reason, on) in &reasons {
            if reasons.len() > 1 {
                html!(page, "<p class=\"key\">", text(on), "</p>");
            }
            html!(page, "<pre tabindex=\"0\">", text(reason), "</pre>");
        }
        html!(page, "</div>");
    }
    html!(page, "</details>");
}

/// The reasons of failures that differ in more than numbers and names, each with its first node.
fn reasons<'d>(group: &ChangeGroup<'d>) -> Vec<(&'d str, &'d str)> {
    let nodes = || {
        group
            .changes
            .iter()
            .filter_map(|change| change.node.as_deref())
    };
    let mut causes = Causes::new(nodes());
    let mut reasons = Vec::new();
    for change in &group.changes {
        let text = change.why.trim();
        if text.is_empty() || reasons.len() >= MAX_REASONS {
            continue;
        }
        let index = causes.add(&ReportedFailure {
            text,
            ..ReportedFailure::default()
        });
        if index == reasons.len() {
            reasons.push((text, change.node.as_deref().unwrap_or_default()));
        }
    }
    reasons
}
