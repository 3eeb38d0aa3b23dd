//! Facts of nodes: rare values in sentences, then a row per node, then all differing facts.

use serde_json::Value;

use super::super::facts::{Table, title_case};
use super::super::template::anchor;
use super::super::terminal::{Look, Terminal};
use super::super::words::{count, number};
use base::Joined as _;
use base::json::json;

/// Maximum number of nodes in a table; beyond it only odd nodes are in the table, and the others are text, which
/// browsers render at once.
const ROWS: usize = 400;
/// Maximum odd nodes in a table.
const ODD: usize = 200;
/// Maximum number of rows that start unfolded.
const MAX_OPEN_ROWS: usize = 12;

/// The section of a kind of facts.
pub(super) fn section(table: &Table) -> Value {
    let nodes = count(table.rows.len(), "node");
    let (several, is_large) = (table.rows.len() > 1, table.rows.len() > ROWS);
    let odd = table.odd.iter().map(|odd| json!({"what": odd.what(table), "nodes": odd.nodes}));
    let text = is_large.then(|| {
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = table.write(&mut Terminal { look: Look::default(), out: &mut out });
        String::from_utf8_lossy(&out).into_owned()
    });
    let differences = table.differences().into_iter().filter(|_| several);
    let differences = differences.map(|one| json!({"key": one.key, "values": one.sentence()}));
    json!({
        "id": anchor("facts", &[table.kind.plugin]), "title": table.kind.title, "plugin": table.kind.plugin,
        "unremarkable": table.odd.is_empty() && several, "odd": odd.collect::<Vec<_>>(),
        "spread": table.spread().joined(" · "), "table": rows(table, is_large, &nodes), "text": text,
        "differences": differences.collect::<Vec<_>>(), "volatile": table.volatile(), "nodes": nodes,
    })
}

fn rows(table: &Table, is_large: bool, nodes: &str) -> Option<Value> {
    let rows = table.rows.iter().filter(|(_, row)| !is_large || row.iter().any(|cell| cell.odd));
    let rows = rows.map(|(node, row)| json!({"node": node, "cells": row}));
    let mut rows: Vec<_> = rows.collect();
    let summary = match rows.len() {
        _ if !is_large => format!("All {nodes}"),
        0 => return None,
        odd if odd > ODD => format!("{ODD} of {} nodes that stand out", number(odd)),
        odd => format!("{} that stand out", count(odd, "node")),
    };
    rows.truncate(if is_large { ODD } else { usize::MAX });
    let titles: Vec<_> = table.kind.columns.iter().map(|column| title_case(column.title)).collect();
    Some(
        json!({"summary": summary, "open": table.rows.len() <= MAX_OPEN_ROWS, "titles": titles, "rows": rows}),
    )
}
