//! `results diff --format html`: the changes between two runs, as a page like that of one run.

use std::io::Write;

use serde_json::Value;

use super::super::diff::{Change, Diff, Kind, tests};
use super::super::many::Many;
use super::super::template::anchor;
use super::super::terminal::{Look, Terminal};
use super::super::words::number;
use super::frame;
use crate::item::{FAILED, PASSED, UNKNOWN};
use base::Joined as _;
use base::json::json;

/// Maximum tests of a kind to list.
const MAX_LISTED: usize = 5_000;

/// Writes the page.
pub(crate) fn write_diff(diff: &Diff, out: &mut dyn Write) -> anyhow::Result<()> {
    let kinds: Vec<_> = diff.kinds().collect();
    let told = kinds.iter().take(3);
    let told = told.map(|(kind, of)| format!("{} {}", number(tests(*of)), kind.words()[1].to_lowercase()));
    let headline = match told.joined(", ") {
        none if none.is_empty() => "No test changed".into(),
        told => told,
    };
    let failing = kinds.first().is_some_and(|(kind, _)| *kind == Kind::NewlyFailing);
    let sections = kinds.iter().map(|(kind, changes)| {
        let [id, title, class] = kind.words();
        let listed = &changes[..changes.len().min(MAX_LISTED)];
        let plugins = listed.chunk_by(|a, b| a.plugin == b.plugin).map(|changes| {
            let rows = changes.iter().map(row).collect::<Vec<_>>();
            json!({"plugin": changes[0].plugin, "rows": rows})
        });
        json!({
            "id": id, "title": title, "class": class, "tests": tests(*changes),
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
            "closing": "The two archives hold everything in full.", "runs": diff.runs,
            "two": diff.json(), "kinds": sections.collect::<Vec<_>>(),
            "changes": diff.facts.iter().map(|fact| fact.replace(" -> ", " → ")).collect::<Vec<_>>(),
            "objects": objects.transpose()?,
        }),
        out,
    )
}

/// Writes the page of several archives: a row for each, and what differs.
pub(crate) fn write_many(many: &Many, out: &mut dyn Write) -> anyhow::Result<()> {
    let words = [FAILED, UNKNOWN, PASSED];
    let mut rows = many.matrix().into_iter();
    let titles = rows.next().unwrap_or_default();
    let rows = rows.map(|row| {
        let class = |text: &str| words.into_iter().find(|word| text.ends_with(word));
        let cells = row[1..].iter().map(|text| json!({"class": class(text), "text": text}));
        json!({"label": row[0], "cells": cells.collect::<Vec<_>>()})
    });
    let rows: Vec<_> = rows.collect();
    let page = json!({
        "above": "Sonobuoy, several runs compared", "headline": many.headline(), "class": many.worst(),
        "closing": "The archives hold everything in full.",
        "many": {"titles": titles, "rows": rows, "lists": many.lists()},
    });
    frame(&page, out)
}

fn row(change: &Change) -> Value {
    let node = change.node.as_deref();
    let statuses = [&change.before, &change.after].map(|status| status.as_deref().unwrap_or("absent"));
    let place = node.map(|node| format!("on {node}"));
    let statuses = (statuses[0] != statuses[1]).then(|| statuses.join(" → "));
    let id = anchor(change.kind.words()[0], &[&change.plugin, node.unwrap_or_default(), &change.test]);
    json!({
        "anchor": id, "name": change.test, "small": place.into_iter().chain(statuses).joined(" · "),
        "text": change.why.trim(),
    })
}
