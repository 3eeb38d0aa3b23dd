//! `results diff --format html`: the changes between two runs, as a page like that of one run.

use std::io::Write;

use super::super::diff::{ChangeKind, Diff, tests};
use super::super::many::Many;
use super::super::terminal::plain;
use super::super::words::number;
use super::frame;
use crate::item::{FAILED, PASSED, UNKNOWN};
use base::Joined as _;
use base::json::{json, list};

/// Writes the page.
pub(crate) fn write_diff(diff: &Diff, out: &mut dyn Write) -> anyhow::Result<()> {
    let kinds: Vec<_> = diff.kinds().collect();
    let told = kinds.iter().take(3);
    let told = told.map(|(kind, of)| format!("{} {}", number(tests(*of)), kind.words()[1].to_lowercase()));
    let headline = match told.joined(", ") {
        none if none.is_empty() => "No test changed".into(),
        told => told,
    };
    let failing = kinds.first().is_some_and(|(kind, _)| *kind == ChangeKind::NewlyFailing);
    let objects = diff.objects.as_ref().map(|objects| plain(|terminal| objects.write_text(terminal)));
    let page = json!({
        "above": "Sonobuoy, two runs compared", "headline": headline,
        "class": if failing { "failed" } else { "passed" },
        "closing": "The two archives hold everything in full.", "runs": diff.runs, "two": diff.values(),
        "objects": objects.transpose()?,
    });
    frame(&page, out)
}

/// Writes the page of several archives: a row for each, and what differs.
pub(crate) fn write_many(many: &Many, out: &mut dyn Write) -> anyhow::Result<()> {
    let words = [FAILED, UNKNOWN, PASSED];
    let mut rows = many.matrix().into_iter();
    let titles = rows.next().unwrap_or_default();
    let rows = rows.map(|row| {
        let class = |text: &str| words.into_iter().find(|word| text.ends_with(word));
        let cells = row[1..].iter().map(|text| json!({"class": class(text), "text": text}));
        json!({"label": row[0], "cells": list(cells)})
    });
    let rows: Vec<_> = rows.collect();
    let page = json!({
        "above": "Sonobuoy, several runs compared", "headline": many.headline(), "class": many.columns.iter().map(|column| column.status).max(),
        "closing": "The archives hold everything in full.",
        "many": {"titles": titles, "rows": rows, "lists": many.lists()},
    });
    frame(&page, out)
}
