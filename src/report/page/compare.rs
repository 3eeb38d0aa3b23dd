//! `results diff --format html`: the changes between two runs, as a page like that of one run.

use std::io::Write;

use serde_json::Value;

use super::super::diff::{Change, Diff, Kind, tests};
use super::super::many::{self, Many, Took, Version};
use super::super::template::anchor;
use super::super::terminal::{Look, Terminal};
use super::super::times::{minute, spoken};
use super::super::words::{count, number};
use super::frame;
use base::Joined as _;
use base::json::json;

/// Maximum tests of a kind to list.
const MAX_LISTED: usize = 5_000;

/// Writes the page.
pub(crate) fn write_diff(diff: &Diff, out: &mut dyn Write) -> anyhow::Result<()> {
    let kinds: Vec<_> = diff.kinds().collect();
    let told = kinds.iter().take(3);
    let told = told.map(|(kind, of)| format!("{} {}", number(tests(*of)), kind.title().to_lowercase()));
    let headline = match told.joined(", ") {
        none if none.is_empty() => "No test changed".into(),
        told => told,
    };
    let failing = kinds.first().is_some_and(|(kind, _)| *kind == Kind::NewlyFailing);
    let boxes = ["failed", "unknown", "passed", "other"].map(|wanted| {
        let titles =
            kinds.iter().map(|(kind, _)| *kind).filter(|kind| class(*kind) == wanted).map(Kind::title);
        json!({"class": wanted, "word": titles.joined(", ").to_lowercase()})
    });
    let sections = kinds.iter().map(|(kind, changes)| {
        let listed = &changes[..changes.len().min(MAX_LISTED)];
        let plugins = listed.chunk_by(|a, b| a.plugin == b.plugin).map(|changes| {
            let rows = changes.iter().map(row).collect::<Vec<_>>();
            json!({"plugin": changes[0].plugin, "rows": rows})
        });
        json!({
            "id": kind.key(), "title": kind.title(), "class": class(*kind), "tests": tests(*changes),
            "plugins": plugins.collect::<Vec<_>>(), "more": changes.len() - listed.len(),
        })
    });
    let objects = diff.objects.as_ref().map(|objects| {
        let mut text = Vec::new();
        objects.write_text(&mut Terminal { look: Look::default(), out: &mut text })?;
        anyhow::Ok(String::from_utf8_lossy(&text).into_owned())
    });
    frame(
        &json!({
            "above": "Sonobuoy, two runs compared", "headline": headline,
            "class": if failing { "failed" } else { "passed" },
            "closing": "The two archives hold everything in full.", "boxes": boxes, "runs": runs_of(diff),
            "unchanged": count(diff.unchanged, "test"), "kinds": sections.collect::<Vec<_>>(),
            "changes": diff.facts.iter().map(|fact| fact.replace(" -> ", " → ")).collect::<Vec<_>>(),
            "objects": objects.transpose()?,
        }),
        out,
    )
}

/// Writes the page of several archives: a row for each, and what differs.
pub(crate) fn write_many(many: &Many, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut rows = many.matrix().into_iter();
    let titles = rows.next().unwrap_or_default();
    let rows: Vec<_> = rows
        .zip(&many.columns)
        .map(|(row, column)| {
            let status = if column.error.is_some() { "other" } else { column.status.word() };
            // Versions and facts follow the plugins, and have no status.
            let mut classes = vec![status];
            classes.extend(titles[2..].iter().map_while(|title| {
                let cell = column.plugins.get(title);
                many.has_plugin(title).then(|| cell.map_or("", |cell| cell.status.as_str()))
            }));
            let cells = row[1..].iter().enumerate().map(|(at, text)| {
                json!({"class": classes.get(at).copied().filter(|class| !class.is_empty()), "text": text})
            });
            json!({"label": row[0], "cells": cells.collect::<Vec<_>>()})
        })
        .collect();
    let lists = many.lists().into_iter().filter(|(_, lines)| !lines.is_empty()).map(|(title, lines)| {
        let more = lines.len().saturating_sub(MAX_LISTED);
        json!({"title": title, "lines": lines.into_iter().take(MAX_LISTED).collect::<Vec<_>>(), "more": more})
    });
    let page = json!({
        "above": "Sonobuoy, several runs compared", "headline": many.headline(), "class": many.worst(),
        "closing": "The archives hold everything in full.",
        "many": {"titles": titles, "rows": rows, "lists": lists.collect::<Vec<_>>()},
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
    for took in many::durations(before, after) {
        let Took { plugin, before, after } = took;
        let name = plugin.map_or_else(|| "Took".to_owned(), |plugin| format!("{plugin} took"));
        rows.push(row(&name, &spoken(before), &spoken(after), took.differs()));
    }
    let equal = before.versions.iter().filter(|(name, version)| after.versions.get(*name) == Some(version));
    rows.extend(equal.map(|(name, version)| row(name, version, version, false)));
    let changed = many::versions(before, after).into_iter();
    rows.extend(changed.map(|Version { name, before, after }| row(name, before, after, true)));
    rows
}

fn row(change: &Change) -> Value {
    let node = change.node.as_deref();
    let statuses = [&change.before, &change.after].map(|status| status.as_deref().unwrap_or("absent"));
    let place = node.map(|node| format!("on {node}"));
    let statuses = (statuses[0] != statuses[1]).then(|| statuses.join(" → "));
    let id = anchor(change.kind.key(), &[&change.plugin, node.unwrap_or_default(), &change.test]);
    json!({
        "anchor": id, "name": change.test, "small": place.into_iter().chain(statuses).joined(" · "),
        "text": change.why.trim(),
    })
}
