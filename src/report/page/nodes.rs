//! Nodes against plugins: a table for few, a picture for many, and the odd nodes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::run::{Node, Plugin, Verdict};
use super::super::template::anchor;
use super::super::words::{count, number};
use super::{colour, of_plugin, plugin_class};
use crate::item::{PASSED, SKIPPED};
use base::Joined as _;
use base::json::json;

/// Maximum number of nodes in a table; beyond it they are a picture.
const ROWS: usize = 60;
/// Size of the picture's squares, and squares per row, for few and for many nodes.
const SIDE: usize = 9;
const ACROSS: [usize; 2] = [50, 100];

fn class(node: &Node) -> &'static str {
    colour(node.verdict(), &node.counts)
}

/// The section, if any plugin ran on nodes.
pub(super) fn matrix(plugins: &[&Plugin<'_>]) -> Option<Value> {
    let plugins: Vec<_> = plugins.iter().filter(|plugin| !plugin.nodes.is_empty()).collect();
    // The nodes with their result per plugin; the index in the list is the index in the picture.
    let mut matrix = BTreeMap::<&str, Vec<Option<&Node>>>::new();
    for (at, plugin) in plugins.iter().enumerate() {
        for node in &plugin.nodes {
            matrix.entry(&node.name).or_insert_with(|| vec![None; plugins.len()])[at] = Some(node);
        }
    }
    let title = count(matrix.len(), "node");
    if matrix.len() > ROWS {
        let pictures = plugins.iter().enumerate().map(|(at, plugin)| {
            let squares = matrix.values().map(|cells| cells[at].map_or("none", class));
            picture(plugin, &squares.collect::<Vec<_>>())
        });
        // The names of the squares, for the script.
        let names = matrix.keys().copied().joined("\n");
        return Some(json!({"title": title, "pictures": pictures.collect::<Vec<_>>(), "names": names}));
    }
    let columns = plugins.iter().map(|plugin| json!({"id": of_plugin(plugin), "name": plugin.name}));
    let rows = matrix.iter().map(|(name, cells)| {
        let cells = cells.iter().map(|node| json!({"class": node.map(class), "text": node.map(summary)}));
        json!({"id": anchor("node", &[name]), "name": name, "cells": cells.collect::<Vec<_>>()})
    });
    let table = json!({"columns": columns.collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>()});
    (!matrix.is_empty()).then(|| json!({"title": title, "matrix": table}))
}

/// The outcome of a node in brief.
fn summary(node: &Node) -> String {
    let worth = node.counts.0.iter().filter(|(status, _)| ![PASSED, SKIPPED].contains(&status.as_str()));
    let worth = worth.map(|(status, count)| format!("{} {status}", number(*count))).joined(", ");
    if worth.is_empty() { node.status.clone() } else { worth }
}

/// One square per node, at the same position for every plugin, and one path per colour.
fn picture(plugin: &Plugin<'_>, squares: &[&'static str]) -> Value {
    let across = (squares.len() / 6).clamp(ACROSS[0], ACROSS[1]).min(squares.len());
    let mut paths = BTreeMap::<&str, (String, u64)>::new();
    for (place, class) in squares.iter().enumerate() {
        let (x, y, side) = (place % across * SIDE, place / across * SIDE, SIDE - 1);
        let (path, count) = paths.entry(class).or_default();
        path.push_str(&format!("M{x} {y}h{side}v{side}h-{side}z"));
        *count += 1;
    }
    let told = paths.iter().map(|(class, (_, count))| {
        format!("{} {}", number(*count), if *class == "none" { "did not run" } else { class })
    });
    json!({
        "class": plugin_class(plugin), "id": of_plugin(plugin), "name": plugin.name, "across": across,
        "told": told.joined(", "), "width": across * SIDE, "height": squares.len().div_ceil(across) * SIDE,
        "paths": paths.iter().map(|(class, (path, _))| json!({"class": class, "d": path})).collect::<Vec<_>>(),
    })
}

/// The nodes that failed, are unknown, or passed with results unlike most.
fn groups<'p>(plugin: &'p Plugin<'_>) -> [Vec<&'p Node>; 3] {
    [Verdict::Failed, Verdict::Unknown, Verdict::Passed].map(|verdict| {
        let odd = |node: &Node| verdict != Verdict::Passed || plugin.odd_nodes.contains(&node.name);
        plugin.nodes.iter().filter(|node| node.verdict() == verdict && odd(node)).collect()
    })
}

/// Sentences about the nodes of a plugin: each with the nodes it is about, or a single one about all.
pub(super) fn said(plugin: &Plugin<'_>) -> Vec<Value> {
    let all = count(plugin.nodes.len(), "node");
    let Some(first) = plugin.nodes.first() else { return Vec::new() };
    const UNLIKE: &str = "passed, but with different results than most";
    let words = [["failed"; 2], ["is unknown", "are unknown"], [UNLIKE; 2]];
    let told = groups(plugin).into_iter().zip(words).filter(|(nodes, _)| !nodes.is_empty());
    let told = told.map(|(nodes, [one, many])| {
        let words = if nodes.len() == 1 { one } else { many };
        let names: Vec<_> = nodes.iter().map(|node| &node.name).collect();
        json!({"text": format!("{} of {all} {words}", number(nodes.len())), "names": names})
    });
    let told: Vec<_> = told.collect();
    let alike = || match plugin.nodes.iter().all(|node| node.likeness == first.likeness) {
        _ if plugin.nodes.len() == 1 => json!({"text": "It ran on one node", "names": [first.name]}),
        true => json!({"text": format!("All {all} gave the same results"), "names": []}),
        false => json!({"text": format!("All {all} passed, with results that differ"), "names": []}),
    };
    if told.is_empty() { vec![alike()] } else { told }
}

/// The odd nodes of a plugin, from bad to good.
pub(super) fn odd(plugin: &Plugin<'_>) -> Vec<Value> {
    let listed = groups(plugin).into_iter().flatten().filter(|_| plugin.nodes.len() > 1);
    let reports = listed.map(|node| {
        let shares = node.counts.0.iter().map(|(status, count)| format!("{} {status}", number(*count)));
        json!({"name": node.name, "class": class(node), "status": node.status, "results": shares.joined(", ")})
    });
    reports.collect()
}
