//! Nodes against plugins: a table for few, a picture for many, and the odd nodes.

use std::collections::BTreeMap;
use std::io::Write;

use super::super::missing::Missing;
use super::super::overview::{Node, Overview, Plugin, Verdict};
use super::super::words::{count, number};
use super::escape::{anchor, escape};
use super::{TABLE, colour, of_plugin, plugin_class};

/// Maximum number of nodes in a table; beyond it they are a picture.
const ROWS: usize = 60;
/// Size of the picture's squares, and squares per row, for few and for many nodes.
const SIDE: usize = 9;
const ACROSS: [usize; 2] = [50, 100];
/// Maximum number of nodes to name in a sentence.
const NAMED: usize = 5;

fn class(node: &Node) -> &'static str {
    colour(node.verdict(), &node.counts)
}

/// The nodes with their result per plugin, from bad to good; the index in the list is the index in the picture.
type Matrix<'o> = BTreeMap<&'o str, Vec<Option<&'o Node>>>;

/// Writes the section, if any plugin ran on nodes.
pub(super) fn matrix(overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let plugins: Vec<&Plugin> =
        overview.by_severity().into_iter().filter(|plugin| !plugin.nodes.is_empty()).collect();
    let mut matrix = Matrix::new();
    for (at, plugin) in plugins.iter().enumerate() {
        for node in &plugin.nodes {
            matrix.entry(&node.name).or_insert_with(|| vec![None; plugins.len()])[at] = Some(node);
        }
    }
    if matrix.is_empty() {
        return Ok(());
    }
    writeln!(out, "<section id=\"nodes\">\n<h2>{}</h2>", count(matrix.len() as u64, "node"))?;
    if matrix.len() <= ROWS {
        table(&plugins, &matrix, out)?;
    } else {
        picture(&plugins, &matrix, out)?;
    }
    Ok(writeln!(out, "</section>")?)
}

fn table(plugins: &[&Plugin], matrix: &Matrix<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    write!(out, "<div class=\"scroll\" tabindex=\"0\"><table class=\"matrix\"><tr><th>Node</th>")?;
    for plugin in plugins {
        write!(out, "<th><a href=\"#{}\">{}</a></th>", of_plugin(plugin), escape(&plugin.name))?;
    }
    writeln!(out, "</tr>")?;
    for (name, cells) in matrix {
        write!(out, "<tr id=\"{}\"><th scope=\"row\">{}</th>", anchor("node", &[name]), escape(name))?;
        for node in cells {
            match node {
                Some(node) => {
                    let class = class(node);
                    write!(out, "<td><span class=\"dot s-{class}\"></span> {}</td>", escape(&summary(node)))?;
                }
                None => write!(out, "<td class=\"soft\">did not run</td>")?,
            }
        }
        writeln!(out, "</tr>")?;
    }
    Ok(writeln!(out, "</table></div>")?)
}

/// The outcome of a node in brief.
fn summary(node: &Node) -> String {
    let worth: Vec<String> = node
        .counts
        .iter()
        .filter(|(status, _)| !["passed", "skipped"].contains(&status.as_str()))
        .map(|(status, count)| format!("{} {status}", number(*count)))
        .collect();
    if worth.is_empty() { node.status.clone() } else { worth.join(", ") }
}

/// Draws one square per node, at the same position for every plugin, and one path per colour.
fn picture(plugins: &[&Plugin], matrix: &Matrix<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let across = (matrix.len() / 6).clamp(ACROSS[0], ACROSS[1]).min(matrix.len());
    let (width, height) = (across * SIDE, matrix.len().div_ceil(across) * SIDE);
    for (at, plugin) in plugins.iter().enumerate() {
        let mut paths = BTreeMap::<&str, String>::new();
        let mut counts = BTreeMap::<&str, u64>::new();
        for (place, cells) in matrix.values().enumerate() {
            let class = cells[at].map_or("none", class);
            let (x, y) = (place % across * SIDE, place / across * SIDE);
            let side = SIDE - 1;
            paths.entry(class).or_default().push_str(&format!("M{x} {y}h{side}v{side}h-{side}z"));
            *counts.entry(class).or_default() += 1;
        }
        let told: Vec<String> = counts
            .iter()
            .map(|(class, count)| {
                format!("{} {}", number(*count), if *class == "none" { "did not run" } else { class })
            })
            .collect();
        writeln!(
            out,
            "<h3 class=\"{}\"><span class=\"dot\"></span> <a href=\"#{}\">{}</a> <small>{}</small></h3>\n\
             <svg class=\"nodes\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}: {}\" data-across=\"{across}\">",
            plugin_class(plugin),
            of_plugin(plugin),
            escape(&plugin.name),
            told.join(", "),
            escape(&plugin.name),
            told.join(", ")
        )?;
        for (class, path) in &paths {
            writeln!(out, "<path class=\"f-{class}\" d=\"{path}\"/>")?;
        }
        writeln!(out, "</svg>")?;
    }
    let names: Vec<String> = matrix.keys().map(|name| escape(name)).collect();
    // The names of the squares, for the script.
    Ok(writeln!(
        out,
        "<p class=\"soft\" id=\"under\" role=\"status\">One square is one node, in the same place for every plugin.</p>\n\
         <template id=\"names\">{}</template>",
        names.join("\n")
    )?)
}

/// Writes the odd nodes of a plugin, in sentences and a table.
pub(super) fn odd(plugin: &Plugin, out: &mut dyn Write) -> anyhow::Result<()> {
    let total = plugin.nodes.len() as u64;
    if total == 0 {
        return Ok(());
    }
    let of =
        |verdict| -> Vec<&Node> { plugin.nodes.iter().filter(|node| node.verdict() == verdict).collect() };
    let (failed, unknown) = (of(Verdict::Failed), of(Verdict::Unknown));
    let (_, odd) = plugin.odd_nodes();
    let others: Vec<&Node> = odd.iter().filter(|node| node.verdict() == Verdict::Passed).copied().collect();
    let mut told = Vec::new();
    for (nodes, one, many) in [
        (&failed, "failed", "failed"),
        (&unknown, "is unknown", "are unknown"),
        (
            &others,
            "passed, but with different results than most",
            "passed, but with different results than most",
        ),
    ] {
        if !nodes.is_empty() {
            let words = if nodes.len() == 1 { one } else { many };
            let all = count(total, "node");
            told.push(format!("{} of {all} {words}: {}.", number(nodes.len() as u64), names(nodes)));
        }
    }
    if told.is_empty() {
        let (alike, _) = plugin.odd_nodes();
        told.push(match (total, alike as u64 == total) {
            (1, _) => format!("It ran on one node, {}.", escape(&plugin.nodes[0].name)),
            (_, true) => format!("All {} nodes gave the same results.", number(total)),
            (_, false) => format!("All {} nodes passed, with results that differ.", number(total)),
        });
    }
    writeln!(out, "<p>{}</p>", told.join(" "))?;
    // From bad to good.
    let mut listed: Vec<&Node> = failed.into_iter().chain(unknown).chain(others).collect();
    if listed.is_empty() || total == 1 {
        return Ok(());
    }
    let rest = listed.len().saturating_sub(TABLE);
    listed.truncate(TABLE);
    writeln!(
        out,
        "<details class=\"all\"><summary>What they reported</summary><div class=\"scroll\" tabindex=\"0\"><table>\
         <tr><th>Node</th><th>Status</th><th>Results</th></tr>"
    )?;
    for node in listed {
        let shares: Vec<String> = node
            .counts
            .iter()
            .map(|(status, count)| format!("{} {}", number(*count), escape(status)))
            .collect();
        writeln!(
            out,
            "<tr><td>{}</td><td><span class=\"badge {}\">{}</span></td><td>{}</td></tr>",
            escape(&node.name),
            class(node),
            escape(&node.status),
            shares.join(", ")
        )?;
    }
    writeln!(out, "</table></div>")?;
    if rest > 0 {
        writeln!(out, "<p class=\"soft\">and {} more</p>", number(rest as u64))?;
    }
    Ok(writeln!(out, "</details>")?)
}

/// Some names, and the number of others.
fn names(nodes: &[&Node]) -> String {
    let named: Vec<String> =
        nodes.iter().take(NAMED).map(|node| format!("<b>{}</b>", escape(&node.name))).collect();
    match nodes.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {} more", named.join(", "), number(more as u64)),
    }
}

/// Writes the data missing from the snapshot, each node once.
pub(super) fn left_out(overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let missing = Missing::read(&overview.opened.files);
    if missing.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<section id=\"left-out\">\n<h2>Left out of the snapshot</h2>\n<div class=\"scroll\"><table class=\"wide\">\
         <tr><th>Node</th><th>Reason</th></tr>"
    )?;
    for node in missing.iter().take(TABLE) {
        writeln!(out, "<tr><td>{}</td><td>{}</td></tr>", escape(&node.name), escape(&node.error))?;
    }
    writeln!(out, "</table></div>")?;
    if missing.len() > TABLE {
        writeln!(out, "<p class=\"soft\">and {} more</p>", number((missing.len() - TABLE) as u64))?;
    }
    Ok(writeln!(out, "</section>")?)
}
