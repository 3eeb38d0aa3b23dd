//! Facts of nodes: rare values in sentences, then a row per node, then all differing facts.

use serde_json::Value;

use super::super::facts::{Table, named, title_case};
use super::super::words::{count, number};
use super::TABLE;
use super::template::anchor;
use base::Joined as _;
use base::json::json;

/// Maximum number of nodes in a table; beyond it only odd nodes are in the table, and the others are text, which
/// browsers render at once.
const ROWS: usize = 400;
/// Maximum number of rows that start unfolded.
const MAX_OPEN_ROWS: usize = 12;
/// Maximum number of differing keys to list.
const KEYS: usize = 300;

/// The anchor of a table.
pub(super) fn id(table: &Table) -> String {
    anchor("facts", &[table.plugin()])
}

/// The section of a kind of facts.
pub(super) fn section(table: &Table) -> Value {
    let nodes = count(table.len(), "node");
    let several = table.len() > 1;
    let odd = table.odd();
    let sentences: Vec<_> = odd
        .iter()
        .take(TABLE)
        .map(|odd| json!({"what": odd.what(table), "who": named(&odd.nodes, odd.nodes.len() as u64)}))
        .collect();
    let spread: Vec<_> =
        table.spread().into_iter().filter(|_| several).map(|spread| spread.sentence()).collect();
    let is_large = table.len() > ROWS;
    let text = is_large.then(|| table.text());
    json!({
        "id": id(table), "title": table.title(), "plugin": table.plugin(), "nodes": nodes,
        "unremarkable": odd.is_empty() && several,
        "odd": (!odd.is_empty()).then(|| json!({"list": sentences})), "spread": spread.join(" · "),
        "table": rows(table, is_large, &nodes), "text": text, "differences": differences(table),
    })
}

fn rows(table: &Table, is_large: bool, nodes: &str) -> Option<Value> {
    let rows = table.rows().filter(|(_, cells)| !is_large || cells.iter().any(|(_, odd)| *odd));
    let rows = rows.map(|(node, cells)| {
        let cells = cells.into_iter().map(|(text, odd)| match text {
            "" => json!({"text": "–", "odd": false}),
            text => json!({"text": text, "odd": odd}),
        });
        json!({"node": node, "cells": cells.collect::<Vec<_>>()})
    });
    let mut rows: Vec<_> = rows.collect();
    let summary = match rows.len() {
        _ if !is_large => format!("All {nodes}"),
        0 => return None,
        odd if odd > TABLE => format!("{TABLE} of {} nodes that stand out", number(odd)),
        odd => format!("{} that stand out", count(odd, "node")),
    };
    rows.truncate(if is_large { TABLE } else { usize::MAX });
    let titles: Vec<_> = table.titles().map(title_case).collect();
    Some(json!({"summary": summary, "open": table.len() <= MAX_OPEN_ROWS, "titles": titles, "rows": rows}))
}

fn differences(table: &Table) -> Option<Value> {
    let all = table.differences();
    let keys = all.iter().take(KEYS).map(|one| json!({"key": one.key, "values": one.sentence()}));
    let volatile = table.volatile().joined(", ");
    (!all.is_empty() && table.len() > 1).then(|| {
        json!({
            "total": all.len(), "keys": keys.collect::<Vec<_>>(), "more": all.len().saturating_sub(KEYS),
            "volatile": volatile,
        })
    })
}
