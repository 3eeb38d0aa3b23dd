//! `results diff --format html`: the changes between two runs, as a page like that of one run.

use std::io::Write;

use serde_json::Value;

use super::super::diff::{Change, Diff, KINDS, Kind};
use super::super::many;
use super::super::terminal::{Look, Terminal};
use super::super::times::spoken;
use super::super::words::{count, number};
use super::template::anchor;
use super::{frame, minute};
use crate::item::plain;
use base::Joined as _;
use base::json::json;

/// Maximum tests of a kind to list.
const MAX_LISTED: usize = 5_000;
const FACTS: usize = 2_000;

/// Writes the page.
pub(crate) fn write_diff(diff: &Diff, out: &mut dyn Write) -> anyhow::Result<()> {
    let kinds: Vec<_> = KINDS.into_iter().filter(|(kind, ..)| diff.of(*kind).next().is_some()).collect();
    let failing = kinds.first().is_some_and(|(kind, ..)| *kind == Kind::NewlyFailing);
    let told = kinds
        .iter()
        .map(|(kind, _, title)| format!("{} {}", number(diff.tests(*kind)), title.to_lowercase()));
    let headline = match told.take(3).joined(", ") {
        none if none.is_empty() => "No test changed".into(),
        told => told,
    };
    let runs = json!({"class": null, "id": "runs", "title": "The two runs", "count": 0});
    let nav = kinds.iter().map(|(kind, id, title)| {
        json!({"class": class(*kind), "id": id, "title": title, "count": diff.tests(*kind)})
    });
    let boxes = ["failed", "unknown", "passed", "other"].into_iter().filter_map(|wanted| {
        let of = kinds.iter().filter(|(kind, ..)| class(*kind) == wanted).map(|(_, _, title)| *title);
        let titles = of.joined(", ").to_lowercase();
        (!titles.is_empty()).then(|| json!({"class": wanted, "word": titles}))
    });
    let objects = diff.objects.as_ref().map(|objects| {
        let mut text = Vec::new();
        objects.write_text(&mut Terminal { look: Look::default(), out: &mut text })?;
        anyhow::Ok(String::from_utf8_lossy(&text).into_owned())
    });
    let sections = kinds.iter().map(|(kind, id, title)| tests(diff, *kind, id, title));
    let changes: Vec<_> = diff.facts.iter().take(FACTS).map(|fact| fact.replace(" -> ", " → ")).collect();
    let facts = json!({
        "total": diff.facts.len(), "changes": changes, "more": diff.facts.len().saturating_sub(FACTS),
    });
    let page = json!({
        "above": "Sonobuoy, two runs compared", "headline": headline,
        "class": if failing { "failed" } else { "passed" }, "closing": "The two archives hold everything in full.",
        "nav": std::iter::once(runs).chain(nav).collect::<Vec<_>>(), "boxes": boxes.collect::<Vec<_>>(),
        "diff": {
            "runs": runs_of(diff), "unchanged": count(diff.unchanged, "test"),
            "kinds": sections.collect::<Vec<_>>(), "facts": Some(facts).filter(|_| !diff.facts.is_empty()),
            "objects": objects.transpose()?,
        },
    });
    frame(&page, out)
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::NewlyFailing | Kind::StillFailing => "failed",
        Kind::Fixed => "passed",
        Kind::Slower => "unknown",
        Kind::Vanished | Kind::Appeared | Kind::Changed => "other",
    }
}

/// The two runs side by side, with differences marked.
fn runs_of(diff: &Diff) -> Vec<Value> {
    let [before, after] = &diff.runs;
    let row = |name: &str, was: &str, is: &str, changed: bool| json!({"name": name, "before": was, "after": is, "changed": changed});
    let started = |started: &Option<String>| started.as_deref().map(minute).unwrap_or_default();
    let mut rows = vec![
        row("Archive", &before.archive, &after.archive, false),
        row("Result", before.status.word(), after.status.word(), before.status != after.status),
        row("Started", &started(&before.started), &started(&after.started), false),
    ];
    for (plugin, (was, is)) in many::durations(before, after) {
        let name = plugin.map_or_else(|| "Took".to_owned(), |plugin| format!("{plugin} took"));
        rows.push(row(&name, &spoken(was), &spoken(is), many::differ((was, is))));
    }
    let equal = before.versions.iter().filter(|(name, version)| after.versions.get(*name) == Some(version));
    rows.extend(equal.map(|(name, version)| row(name, version, version, false)));
    rows.extend(many::versions(before, after).into_iter().map(|(name, (was, is))| row(name, was, is, true)));
    rows
}

fn tests(diff: &Diff, kind: Kind, id: &str, title: &str) -> Value {
    let mut plugins = Vec::<(&str, Vec<Value>)>::new();
    for change in diff.of(kind).take(MAX_LISTED) {
        if plugins.last().is_none_or(|(plugin, _)| *plugin != change.plugin) {
            plugins.push((&change.plugin, Vec::new()));
        }
        if let Some((_, rows)) = plugins.last_mut() {
            rows.push(row(change, class(kind), id));
        }
    }
    let plugins = plugins.into_iter().map(|(plugin, rows)| json!({"plugin": plugin, "rows": rows}));
    let more = diff.of(kind).count().saturating_sub(MAX_LISTED);
    json!({
        "id": id, "title": title, "tests": diff.tests(kind), "plugins": plugins.collect::<Vec<_>>(), "more": more,
    })
}

fn row(change: &Change, class: &str, kind: &str) -> Value {
    let node = change.node.as_deref().unwrap_or_default();
    let statuses = [&change.before, &change.after].map(|status| status.as_deref().unwrap_or("absent"));
    let place = (!node.is_empty()).then(|| format!("on {node}"));
    let statuses = (statuses[0] != statuses[1]).then(|| statuses.join(" → "));
    json!({
        "class": class, "anchor": anchor(kind, &[&change.plugin, node, &change.test]), "name": plain(&change.test),
        "small": place.into_iter().chain(statuses).joined(" · "), "text": change.why.trim(),
    })
}
