//! `results --format html`: an archive as one self-contained page. It works from `file://`, on a phone, in print,
//! dark and light, and without its script, which only searches, copies links and unfolds. All text
//! from the archive is escaped.
//!
//! `page.html` is the page, and `row.html` a row of its tests, filled with values: those of one
//! run, from a pass over all tests that holds a bounded number of them, or those of several runs.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::time::SystemTime;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::diff::{ChangeKind, Diff, tests};
use super::facts::Table;
use super::many::Many;
use super::run::{Case, Counts, NodeReport, PluginReport, Report, column, summary_of};
use super::survey::{Arrival, Period};
use super::template::{anchor, escape, fill};
use super::terminal::as_file;
use super::words::{count, number, spoken};
use base::Joined as _;
use base::json::{json, list};
use base::visible::{cut, head, tail};
use model::item::{DURATION, FAILED, FLAKY, OTHER, PASSED, SKIPPED, UNKNOWN, plain};
use model::names;
use model::remedies::{Cause, Causes, Why};
use model::verdict::Outcome;
use yaml::natural;

/// Maximum number of nodes in a table; beyond it they are a picture.
const MAX_TABLE_NODES: usize = 60;
/// Size of the picture's squares, and squares per row.
const SIDE: usize = 9;
const ACROSS: usize = 100;
/// Maximum number of nodes of a plugin with a separate bar.
const NODES: usize = 12;
/// Maximum letters of a name next to its bar.
const SHORT: usize = 24;
const HEIGHT: usize = 18;
const LEFT: f64 = 200.0;
const WIDTH: f64 = 1000.0;
/// Maximum number of nodes in a table; beyond it they are text, which browsers render at
/// once.
const MAX_FACT_ROWS: usize = 400;
/// Maximum number of rows that start unfolded.
const MAX_OPEN_ROWS: usize = 12;
/// Maximum bytes of one detail, from both ends, of those of failures, and of those of other tests
/// of a plugin.
const DETAIL: usize = 12 << 10;
const DETAILS: usize = 500 << 10;
const OTHER_DETAILS: usize = 150 << 10;
/// Maximum failures with details, and maximum per cause.
const FAILURES: usize = 2_000;
const OF_ONE_CAUSE: usize = 100;
/// Number of slowest tests to show.
const SLOWEST: usize = 10;
/// Maximum tests to list per plugin, and overall; browsers on phones fail at about five times as
/// many.
const ROWS: u64 = 8_000;
const ALL_ROWS: u64 = 10_000;
/// From this number on, passed tests without further data do not unfold: foldable rows are the most
/// expensive.
const MANY_ROWS: u64 = 1_000;

/// Writes the page; `earlier` are the runs of its trend, this one included.
pub fn write(report: &Report<'_>, earlier: Option<&Many>, out: &mut dyn Write) -> Result<()> {
    let plugins = report.by_severity();
    let not_passed: Vec<&str> = plugins
        .iter()
        .filter(|plugin| plugin.outcome() != Outcome::Passed)
        .map(|plugin| plugin.name)
        .collect();
    let errors = report
        .health
        .as_ref()
        .and_then(|health| health.error_summary.get("Errors"));
    let digest = Digest::read(report, &plugins)?;
    let sections = plugins
        .iter()
        .zip(&digest.lists)
        .map(|(plugin, tests)| section(report, plugin, tests));
    let file = report
        .archive
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty());
    frame(
        &json!({
            "above": "Sonobuoy results", "headline": report.headline(), "class": report.status,
            "closing": "The archive holds every file in full.",
            "started": report.started, "duration": report.duration, "kubernetes": report.kubernetes_version,
            "version": report.version, "archive": file.unwrap_or(report.archive), "run": report.run_id,
            "resumes": report.resumes,
            "shares": list(report.counts.shares().map(share)),
            "why": list(report.why.iter().flat_map(Why::sentences)),
            "groups": digest.groups, "nodes": node_matrix(&plugins), "plugins": list(sections),
            "facts": list(report.opened.facts.tables.values().map(facts)),
            "time": time(report, &digest), "health": health(report), "leftOut": report.left_out,
            "trend": earlier.map(Many::trend),
            "logs": report.opened.survey.logs(errors, &not_passed)?,
        }),
        out,
    )
}

/// Writes the page of the changes between two runs.
pub fn write_diff(diff: &Diff, out: &mut dyn Write) -> Result<()> {
    let kinds: Vec<_> = diff.kinds().collect();
    let told = kinds
        .iter()
        .take(3)
        .map(|(kind, of)| format!("{} {}", number(tests(*of)), kind.words()[1].to_lowercase()));
    let headline = match told.joined(", ") {
        none if none.is_empty() => "No test changed".into(),
        told => told,
    };
    let failing = kinds
        .first()
        .is_some_and(|(kind, _)| *kind == ChangeKind::NewlyFailing);
    let objects = diff
        .objects
        .as_ref()
        .map(|objects| as_file(|terminal| objects.write_text(terminal)));
    let page = json!({
        "above": "Sonobuoy, two runs compared", "headline": headline,
        "class": if failing { "failed" } else { "passed" },
        "closing": "The two archives hold everything in full.", "runs": diff.runs, "two": diff.values(),
        "objects": objects.transpose()?,
    });
    frame(&page, out)
}

/// Writes the page of several archives: a row for each, and what differs.
pub fn write_many(many: &Many, out: &mut dyn Write) -> Result<()> {
    let words = [FAILED, UNKNOWN, PASSED];
    let mut rows = many.matrix().into_iter();
    let titles = rows.next().unwrap_or_default();
    let rows = rows.map(|row| {
        let class = |text: &str| words.into_iter().find(|word| text.ends_with(word));
        let cells = row[1..]
            .iter()
            .map(|text| json!({"class": class(text), "text": text}));
        json!({"label": row[0], "cells": list(cells)})
    });
    let page = json!({
        "above": "Sonobuoy, several runs compared", "headline": many.headline(), "class": many.columns.iter().map(|column| column.status).max(),
        "closing": "The archives hold everything in full.",
        "many": {"titles": titles, "rows": list(rows), "lists": many.lists()},
    });
    frame(&page, out)
}

/// Fills the template.
fn frame(page: &Value, out: &mut dyn Write) -> Result<()> {
    let (style, script) = (include_str!("page.css"), include_str!("page.js"));
    let around = json!({
        "style": style, "style_hash": content_hash(style), "script": script,
        "script_hash": content_hash(script), "program": names::VERSION,
    });
    fill(include_str!("page.html"), &[&around, page], escape, out)
}

/// What the page's policy calls an element with this text, which begins on its second line.
fn content_hash(text: &str) -> String {
    format!(
        "sha256-{}",
        BASE64_STANDARD.encode(base::sha256(format!("\n{text}")))
    )
}

fn share((status, count): (&str, u64)) -> Value {
    json!({"class": column(status), "status": status, "count": count})
}

fn section(report: &Report<'_>, plugin: &PluginReport<'_>, tests: &TestList) -> Value {
    let known = plugin
        .counts
        .shares()
        .filter(|(status, _)| *status != OTHER)
        .map(share);
    let custom = plugin
        .counts
        .0
        .iter()
        .filter(|(status, _)| column(status) == OTHER)
        .map(|(status, count)| share((status, *count)));
    let excluded = report.excluded.get(plugin.name).into_iter().flatten();
    let blocks = tests
        .blocks
        .iter()
        .map(|(above, rows)| json!({"above": above, "rows": String::from_utf8_lossy(rows)}));
    json!({
        "id": of_plugin(plugin), "name": plugin.name, "class": plugin_class(plugin), "status": plugin.status,
        "duration": plugin.duration, "error": plugin.error, "failed": plugin.counts.of("failed"),
        "shares": list(known.chain(custom)),
        "said": said(plugin), "total": plugin.total,
        "excluded": list(excluded.map(|(node, reason)| json!({"node": node, "reason": reason}))),
        "blocks": list(blocks), "unlisted": plugin.total - tests.rows,
    })
}

fn plugin_class(plugin: &PluginReport<'_>) -> &'static str {
    colour(plugin.outcome(), &plugin.counts)
}

fn of_plugin(plugin: &PluginReport<'_>) -> String {
    anchor("plugin", &[plugin.name])
}

/// A custom status is neither good nor bad.
fn colour(verdict: Outcome, counts: &Counts) -> &'static str {
    [OTHER, FLAKY]
        .into_iter()
        .find(|column| counts.of(column) > 0)
        .filter(|_| verdict == Outcome::Passed)
        .unwrap_or(verdict.word())
}

fn health(report: &Report<'_>) -> Option<Value> {
    let health = report.health.as_ref()?;
    let parts = [("Nodes", &health.node_health), ("Pods", &health.pod_health)];
    let kinds = health.error_summary.iter().map(|(kind, files)| {
        let mut files: Vec<_> = files
            .iter()
            .filter(|(file, lines)| **lines > 0 && !names::is_own_log(file))
            .collect();
        files.sort_by_key(|(_, lines)| std::cmp::Reverse(**lines));
        let files = files
            .into_iter()
            .map(|(file, lines)| json!({"file": file, "lines": lines}));
        json!({"kind": kind, "files": list(files)})
    });
    Some(json!({
        "parts": parts.map(|(name, part)| json!({"name": name, "part": summary_of(part)})),
        "kinds": list(kinds),
    }))
}

fn node_class(node: &NodeReport) -> &'static str {
    colour(node.outcome(), &node.counts)
}

/// Nodes against plugins, if any plugin ran on nodes: a table for few, a picture for many.
fn node_matrix(plugins: &[&PluginReport<'_>]) -> Option<Value> {
    let plugins: Vec<_> = plugins
        .iter()
        .filter(|plugin| !plugin.nodes.is_empty())
        .collect();
    // The nodes with their result per plugin; the index in the list is the index in the picture.
    let mut matrix = BTreeMap::<&str, Vec<Option<&NodeReport>>>::new();
    for (at, plugin) in plugins.iter().enumerate() {
        for node in &plugin.nodes {
            matrix
                .entry(&node.name)
                .or_insert_with(|| vec![None; plugins.len()])[at] = Some(node);
        }
    }
    let title = count(matrix.len(), "node");
    if matrix.len() > MAX_TABLE_NODES {
        let pictures = plugins.iter().enumerate().map(|(at, plugin)| {
            let squares = matrix
                .values()
                .map(|cells| cells[at].map_or("none", node_class));
            picture(plugin, squares)
        });
        // The names of the squares, for the script.
        let names = matrix.keys().copied().joined("\n");
        return Some(json!({"title": title, "pictures": list(pictures), "names": names}));
    }
    let columns = plugins
        .iter()
        .map(|plugin| json!({"id": of_plugin(plugin), "name": plugin.name}));
    let rows = matrix.iter().map(|(name, cells)| {
        let cells = cells
            .iter()
            .map(|node| json!({"class": node.map(node_class), "text": node.map(summary)}));
        json!({"id": anchor("node", &[name]), "name": name, "cells": list(cells)})
    });
    (!matrix.is_empty())
        .then(|| json!({"title": title, "matrix": {"columns": list(columns), "rows": list(rows)}}))
}

/// The outcome of a node in brief.
fn summary(node: &NodeReport) -> String {
    let worth = node
        .counts
        .0
        .iter()
        .filter(|(status, _)| ![PASSED, SKIPPED].contains(&status.as_str()))
        .map(|(status, count)| format!("{} {status}", number(*count)))
        .joined(", ");
    if worth.is_empty() {
        node.status.clone()
    } else {
        worth
    }
}

/// One square per node, at the same position for every plugin, and one path per colour.
fn picture(
    plugin: &PluginReport<'_>,
    squares: impl ExactSizeIterator<Item = &'static str>,
) -> Value {
    let all = squares.len();
    let across = all.min(ACROSS);
    let mut paths = BTreeMap::<&str, (String, u64)>::new();
    for (place, class) in squares.enumerate() {
        let (x, y, side) = (place % across * SIDE, place / across * SIDE, SIDE - 1);
        let (path, count) = paths.entry(class).or_default();
        path.push_str(&format!("M{x} {y}h{side}v{side}h-{side}z"));
        *count += 1;
    }
    let told = paths.iter().map(|(class, (_, count))| {
        format!(
            "{} {}",
            number(*count),
            if *class == "none" {
                "did not run"
            } else {
                class
            }
        )
    });
    json!({
        "class": plugin_class(plugin), "id": of_plugin(plugin), "name": plugin.name, "across": across,
        "told": told.joined(", "), "width": across * SIDE, "height": all.div_ceil(across) * SIDE,
        "paths": list(paths.iter().map(|(class, (path, _))| json!({"class": class, "d": path}))),
    })
}

/// Sentences about the nodes of a plugin that failed, are unknown, or passed with results unlike
/// most, with their names.
fn said(plugin: &PluginReport<'_>) -> Vec<Value> {
    let all = count(plugin.nodes.len(), "node");
    let groups = [
        (Outcome::Failed, ["failed"; 2]),
        (Outcome::Unknown, ["is unknown", "are unknown"]),
        (Outcome::Passed, ["passed, with other results than most"; 2]),
    ];
    let told = groups.into_iter().filter_map(|(verdict, [one, many])| {
        let is_odd = |node: &&NodeReport| {
            verdict != Outcome::Passed || plugin.odd_nodes.contains(&node.name)
        };
        let nodes = plugin
            .nodes
            .iter()
            .filter(|node| node.outcome() == verdict)
            .filter(is_odd);
        let names: Vec<_> = nodes.map(|node| &node.name).collect();
        let words = if names.len() == 1 { one } else { many };
        let text = format!("{} of {all} {words}", number(names.len()));
        (!names.is_empty()).then(|| json!({"text": text, "names": names}))
    });
    told.collect()
}

/// Durations, if any is known: a timeline of plugins and nodes, and the slowest tests.
fn time(report: &Report<'_>, digest: &Digest) -> Option<Value> {
    let seconds = |test: &Value| test["seconds"].as_f64().unwrap_or_default();
    let longest = digest
        .slowest
        .first()
        .map_or(1.0, |test| seconds(test).max(1e-9));
    let share = |test: &Value| (100.0 * seconds(test) / longest).round();
    let slowest = digest
        .slowest
        .iter()
        .map(|test| json!({"test": test, "share": share(test)}));
    let timeline = timeline(report);
    (timeline.is_some() || !digest.slowest.is_empty())
        .then(|| json!({"timeline": timeline, "slowest": list(slowest)}))
}

/// A bar for each plugin, and for its nodes if they are few.
fn timeline(report: &Report<'_>) -> Option<Value> {
    let mut bars = Vec::new();
    for plugin in &report.plugins {
        let Some(span) = plugin.duration else {
            continue;
        };
        bars.push(("", plugin.name, plugin_class(plugin), span));
        for node in plugin
            .nodes
            .iter()
            .filter(|_| (2..=NODES).contains(&plugin.nodes.len()))
        {
            let failed =
                |arrival: &Arrival| arrival.node == node.name && !arrival.failed.is_empty();
            let class = if plugin.arrivals.iter().any(failed) {
                "failed"
            } else {
                "node"
            };
            bars.extend(
                node.duration
                    .map(|span| ("\u{a0}\u{a0}", &*node.name, class, span)),
            );
        }
    }
    let run = report.duration.filter(|_| !bars.is_empty());
    let whole = Period::around(bars.iter().map(|(.., span)| *span).chain(run))?;
    let all = whole.seconds();
    let x = |time: SystemTime| {
        LEFT + (WIDTH - LEFT)
            * Period {
                from: whole.from,
                to: time,
            }
            .seconds()
            / all
    };
    let ticks = [0.0, 0.25, 0.5, 0.75]
        .map(|share: f64| json!({"at": LEFT + (WIDTH - LEFT) * share, "seconds": all * share}));
    let placed = bars.iter().enumerate().map(|(at, (indent, name, class, span))| {
        let (from, to) = (x(span.from), x(span.to));
        json!({
            "y": ((at + 1) * HEIGHT) as f64, "label": format!("{indent}{}", cut(name, SHORT)),
            "class": class, "from": tenth(from), "length": tenth((to - from).max(2.0)), "name": name, "duration": span,
        })
    });
    let height = ((bars.len() + 1) * HEIGHT + 6) as f64;
    (all > 0.0).then(
        || json!({"width": WIDTH, "height": height, "whole": all, "ticks": ticks, "bars": list(placed)}),
    )
}

/// A number with one digit after the point.
fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// Facts of nodes: rare values in sentences, then a row per node, then all differing facts.
fn facts(table: &Table) -> Value {
    let is_large = table.rows.len() > MAX_FACT_ROWS;
    // Writing to memory does not fail.
    let text = is_large.then(|| as_file(|terminal| table.write(terminal)).unwrap_or_default());
    let rows = table.rows.iter().filter(|_| !is_large);
    let rows = rows.map(|(node, row)| json!({"node": node, "cells": row}));
    let titles = table.kind.columns.iter().map(|column| column.title);
    json!({
        "id": anchor("facts", &[table.kind.plugin]), "title": table.kind.title, "told": table.values(),
        "several": table.rows.len() > 1, "nodes": count(table.rows.len(), "node"),
        "open": table.rows.len() <= MAX_OPEN_ROWS, "titles": list(titles), "rows": list(rows), "text": text,
    })
}

/// The tests of a plugin, rows below their headings.
#[derive(Default)]
struct TestList {
    /// Rows become text at once, since there are thousands.
    blocks: Vec<(String, Vec<u8>)>,
    rows: u64,
}

/// What a pass over all tests finds.
struct Digest {
    /// The sections of failures and of unknown results, each with its causes.
    groups: Vec<Value>,
    /// The slowest tests.
    slowest: Vec<Value>,
    /// By plugin, in the given order.
    lists: Vec<TestList>,
}

impl Digest {
    /// Reads every test of these plugins once.
    fn read(report: &Report<'_>, plugins: &[&PluginReport<'_>]) -> Result<Self> {
        let (mut slowest, mut lists) = (Vec::new(), Vec::new());
        let mut causes = [(); 2].map(|()| Causes::new(report.node_names()));
        // The cards of each cause.
        let mut groups = [(); 2].map(|()| HashMap::<usize, Vec<Value>>::new());
        // Of several tests with one name the later are numbered.
        let mut anchors = HashMap::<String, u32>::new();
        let mut next_anchor = |case: &Case<'_>| {
            let of = anchor(
                "t",
                &[case.plugin, case.node.unwrap_or_default(), case.name],
            );
            let nth = anchors
                .entry(of.clone())
                .and_modify(|nth| *nth += 1)
                .or_insert(1);
            if *nth == 1 { of } else { format!("{of}-{nth}") }
        };
        // The number of the card of each test and cause.
        let mut first = HashMap::new();
        let (mut room, mut cards, mut listed) = (DETAILS, 0, 0);
        for plugin in plugins {
            let (mut list, mut room_of_rows) = (TestList::default(), OTHER_DETAILS);
            plugin.cases.each(|case| {
                let (mut is_card, mut is_chip) = (false, false);
                let is_listed = list.rows < ROWS.min(ALL_ROWS - listed);
                let mut id = is_listed.then(|| next_anchor(case));
                if let Some(at) = [FAILED, UNKNOWN]
                    .iter()
                    .position(|class| *class == column(case.status))
                {
                    let cause = case.add_to(&mut causes[at]);
                    let of_cause = groups[at].entry(cause).or_default();
                    let test = (at, cause, base::digest(&(case.plugin, case.name)));
                    let known = first.get(&test).zip(case.node);
                    is_card = known.is_none() && cards < FAILURES && of_cause.len() < OF_ONE_CAUSE;
                    let chips = known.and_then(|(card, _)| {
                        of_cause.get_mut::<usize>(*card)?["nodes"].as_array_mut()
                    });
                    let chips = chips.filter(|chips| chips.len() < OF_ONE_CAUSE);
                    is_chip = chips.is_some();
                    if is_card || is_chip {
                        id.get_or_insert_with(|| next_anchor(case));
                    }
                    if let Some(chips) = chips {
                        chips.push(json!({"id": id, "node": case.node}));
                    } else if is_card {
                        first.insert(test, of_cause.len());
                        cards += 1;
                        of_cause.push(card(case, id.as_deref(), plugins.len() > 1, &mut room));
                    }
                }
                case.keep_if_slow(&mut slowest, SLOWEST, id.as_deref());
                if is_listed || is_chip {
                    let details = if is_card {
                        Vec::new()
                    } else {
                        details(case, &mut room_of_rows)
                    };
                    list.add(case, id, is_card, details, plugin.total > MANY_ROWS)?;
                }
                Ok(())
            })?;
            listed += list.rows.min(ALL_ROWS - listed);
            lists.push(list);
        }
        let titles = [
            ("failures", "Why it failed", FAILED),
            ("unknown", "Undetermined results", UNKNOWN),
        ];
        let groups = causes.into_iter().zip(groups).zip(titles).filter_map(
            |((causes, cards), (id, title, class))| {
                let causes = causes_of(causes.list(), cards, class);
                (!causes.is_empty()).then(|| json!({"id": id, "title": title, "causes": causes}))
            },
        );
        Ok(Self {
            groups: groups.collect(),
            slowest,
            lists,
        })
    }
}

/// The causes of failures or of unknown results, with their cards.
fn causes_of(causes: Vec<Cause>, mut cards: HashMap<usize, Vec<Value>>, class: &str) -> Vec<Value> {
    let few = causes.len() <= 3;
    let shown = causes.into_iter().enumerate().map(|(at, cause)| {
        let mut cards = cards.remove(&cause.index).unwrap_or_default();
        let mut listed = cards.len();
        for chips in cards.iter_mut().filter_map(|card| card["nodes"].as_array_mut()) {
            chips.sort_by_cached_key(|chip| natural(chip["node"].as_str().unwrap_or_default()));
            listed += chips.len();
        }
        // A link from a plugin is untrusted: shown, not followed.
        let is_web = |link: &&String| link.starts_with("https://") || link.starts_with("http://");
        json!({
            "class": class, "id": anchor("cause", &[class, &cause.cause]), "headline": headline(&cause),
            "rerun": rerun(&cause),
            // Few causes start unfolded; of many only the first does.
            "open": few || at == 0,
            "count": cause.count, "extent": cause.extent(), "plugins": cause.plugins,
            "remedy": cause.remedy, "link": cause.link.as_ref().filter(is_web),
            "cards": cards,
            "more": cause.count.saturating_sub(listed as u64),
        })
    });
    shown.collect()
}

impl TestList {
    /// Adds a row; tests with a card link to it.
    fn add(
        &mut self,
        case: &Case<'_>,
        id: Option<String>,
        is_card: bool,
        details: Vec<Value>,
        is_long: bool,
    ) -> Result<()> {
        self.rows += 1;
        let above = case.node.into_iter().chain(case.group()).joined(" › ");
        if self.blocks.last().is_none_or(|(last, _)| *last != above) {
            self.blocks.push((above, Vec::new()));
        }
        let class = column(case.status);
        // Rows without content are as short as possible, since they are most of a conformance run.
        let is_short = class == SKIPPED || class == PASSED && is_long;
        let kind = match is_short && details.is_empty() {
            _ if is_card => "link",
            true => "plain",
            false => "row",
        };
        let row = json!({
            kind: true, "class": class, "id": id, "name": case.name, "details": details,
            "duration": case.duration.filter(|_| kind != "plain" || class != SKIPPED),
            "passed": class == PASSED, "status": (class == "other").then_some(case.status),
        });
        let rows = self.blocks.last_mut().map(|(_, rows)| rows);
        rows.map_or(Ok(()), |rows| {
            fill(include_str!("row.html"), &[&row], escape, rows)
        })
    }
}

/// One failure with all its data; `many` tells whether there are several plugins.
fn card(case: &Case<'_>, id: Option<&str>, many: bool, room: &mut usize) -> Value {
    let class = column(case.status);
    let small = [
        many.then(|| case.plugin.to_owned()),
        case.node.map(|node| format!("on {node}")),
        case.duration.map(spoken),
        Some(case.status.to_owned()).filter(|status| status != class),
    ];
    json!({
        "class": class, "id": id, "node": case.node, "name": case.name, "small": small.into_iter().flatten().joined(" · "),
        "above": case.group().joined(" › "), "nodes": [], "details": details(case, room),
        "file": case.file,
    })
}

/// The example of a cause as markup, with what varies between failures dimmed.
fn headline(cause: &Cause) -> String {
    let (example, _) = cause.headline();
    if cause.count == 1 || example == cause.cause {
        return escape(&example);
    }
    let (mut out, mut rest) = (String::new(), &*example);
    let varying = |text: &str| {
        if text.is_empty() {
            String::new()
        } else {
            format!("<span class=\"vary\">{}</span>", escape(text))
        }
    };
    for part in cause
        .cause
        .split(['<', '…'])
        .map(|part| part.split_once('>').map_or(part, |(_, literal)| literal))
    {
        let Some((before, after)) = rest.split_once(part).filter(|_| !part.is_empty()) else {
            continue;
        };
        out.push_str(&varying(before));
        out.push_str(&escape(part));
        rest = after;
    }
    out + &varying(rest)
}

/// The command that runs the tests of a cause again; none if a name could mean something to a
/// shell.
fn rerun(cause: &Cause) -> Option<String> {
    let is_safe = |name: &String| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match &cause.plugins[..] {
        [plugin] if plugin == "e2e" => {
            let focus = cause
                .names
                .iter()
                .map(|place| regex::escape(plain(&place.test)))
                .joined("|")
                .replace(|c: char| c == '\'' || c.is_control(), ".");
            (!focus.is_empty()).then(|| format!("sonobuoy run --wait --e2e-focus '{focus}'"))
        }
        plugins => plugins
            .iter()
            .all(is_safe)
            .then(|| format!("sonobuoy run --wait -p {}", plugins.join(" -p "))),
    }
}

/// All details of a test.
fn details(case: &Case<'_>, room: &mut usize) -> Vec<Value> {
    let error = case.error.map(|error| ("error", error.to_owned()));
    let told = case
        .item
        .details
        .iter()
        .filter(|(key, _)| key.as_str() != DURATION);
    let told = told.map(|(key, value)| match value {
        Value::String(text) => (key.as_str(), text.clone()),
        other => (key.as_str(), format!("{other:#}")),
    });
    let shortened = error.into_iter().chain(told).map(|(key, text)| {
        let text = ends(text, DETAIL.min(*room));
        *room -= text.len().min(*room);
        json!({"key": key, "text": text})
    });
    shortened.collect()
}

/// The two ends of a long text.
fn ends(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let (first, last) = (head(&text, limit / 2), tail(&text, limit / 2));
    format!(
        "{first}\n[… {} bytes left out …]\n{last}",
        text.len() - first.len() - last.len()
    )
}
