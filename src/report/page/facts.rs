//! Facts of nodes: rare values in sentences, then a row per node, then all differing facts.

use std::fmt::Write as _;
use std::io::Write;

use super::super::facts::{Table, named};
use super::super::overview::Overview;
use super::super::words::{count, number};
use super::escape::escape;
use super::{TABLE, of_facts};
use base::visible;

/// Maximum number of nodes in a table; beyond it only odd nodes are in the table, and the others are text, which
/// browsers render at once.
const ROWS: u64 = 400;
/// Maximum number of rows that start unfolded.
const MAX_OPEN_ROWS: u64 = 12;
/// Maximum number of differing keys to list.
const KEYS: usize = 300;

/// Writes a section for each kind of facts.
pub(super) fn write(overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    for table in overview.opened.facts.tables() {
        let nodes = count(table.len(), "node");
        writeln!(
            out,
            "<section id=\"{}\" class=\"facts\">\n<div class=\"head\"><h2>{}</h2><span class=\"soft\">{nodes}, {}</span></div>",
            of_facts(table),
            table.title(),
            table.plugin()
        )?;
        sentences(table, out)?;
        nodes_of(table, out)?;
        differences(table, out)?;
        writeln!(out, "</section>")?;
    }
    Ok(())
}

fn sentences(table: &Table, out: &mut dyn Write) -> anyhow::Result<()> {
    let odd = table.odd();
    if odd.is_empty() && table.len() > 1 {
        writeln!(out, "<p>No node stands out.</p>")?;
    }
    if !odd.is_empty() {
        writeln!(out, "<ul>")?;
        for odd in odd.iter().take(TABLE) {
            let nodes = named(&odd.nodes, odd.nodes.len() as u64);
            writeln!(out, "<li><b>{}</b>: {}</li>", escape(&odd.what(table)), escape(&nodes))?;
        }
        writeln!(out, "</ul>")?;
    }
    let spread: Vec<String> = table.spread().iter().map(|spread| escape(&spread.sentence())).collect();
    if !spread.is_empty() && table.len() > 1 {
        writeln!(out, "<p class=\"soft\">{}</p>", spread.join(" · "))?;
    }
    Ok(())
}

fn nodes_of(table: &Table, out: &mut dyn Write) -> anyhow::Result<()> {
    let many = table.len() > ROWS;
    let is_odd = |cells: &[(&str, bool)]| cells.iter().any(|(_, odd)| *odd);
    let odd = table.rows().filter(|(_, cells)| is_odd(cells)).count();
    if !many || odd > 0 {
        let title = match many {
            true if odd > TABLE => format!("{TABLE} of {} nodes that stand out", number(odd as u64)),
            true => format!("{} that stand out", count(odd as u64, "node")),
            false => format!("All {}", count(table.len(), "node")),
        };
        let open = if table.len() <= MAX_OPEN_ROWS { " open" } else { "" };
        write!(
            out,
            "<details class=\"all\"{open}><summary>{title}</summary><div class=\"scroll\" tabindex=\"0\"><table class=\"wide\"><tr><th>Node"
        )?;
        table.titles().try_for_each(|title| write!(out, "<th>{}", spoken(title)))?;
        writeln!(out)?;
        let rows = table.rows().filter(|(_, cells)| !many || is_odd(cells));
        for (node, cells) in rows.take(if many { TABLE } else { usize::MAX }) {
            let mut line = format!("<tr><th scope=\"row\">{}", escape(node));
            for (text, odd) in cells {
                match (text, odd) {
                    ("", _) => line.push_str("<td>–"),
                    (text, true) => drop(write!(line, "<td><mark>{}</mark>", escape(text))),
                    (text, false) => drop(write!(line, "<td>{}", escape(text))),
                }
            }
            writeln!(out, "{line}")?;
        }
        writeln!(out, "</table></div></details>")?;
    }
    if many {
        writeln!(out, "<details class=\"all\"><summary>All {}</summary>", count(table.len(), "node"))?;
        as_text(table, out)?;
        writeln!(out, "</details>")?;
    }
    Ok(())
}

/// A column title such as `MOST ERRORS` in the page's spelling.
fn spoken(title: &str) -> String {
    match title {
        short @ ("OS" | "CPUS" | "DNS" | "API") => {
            short.replace('S', if short == "CPUS" { "s" } else { "S" })
        }
        word => format!("{}{}", &word[..1], word[1..].to_lowercase()),
    }
}

/// A table as text: thousands of rows are one element.
fn as_text(table: &Table, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut widths: Vec<usize> = std::iter::once("NODE").chain(table.titles()).map(str::len).collect();
    for (node, cells) in table.rows() {
        let texts = std::iter::once(node).chain(cells.iter().map(|(text, _)| *text));
        for (width, text) in widths.iter_mut().zip(texts) {
            *width = (*width).max(visible::width([text]) + 2);
        }
    }
    let line = |texts: &mut dyn Iterator<Item = String>| {
        let cells = texts.zip(&widths).map(|(text, width)| format!("{text:width$}"));
        escape(cells.collect::<Vec<_>>().join(" ").trim_end())
    };
    write!(out, "<pre class=\"wide\" tabindex=\"0\">")?;
    writeln!(out, "{}", line(&mut std::iter::once("NODE").chain(table.titles()).map(str::to_owned)))?;
    for (node, cells) in table.rows() {
        let cells = cells.iter().map(|(text, odd)| match (*text, odd) {
            ("", _) => "–".to_owned(),
            (text, true) => format!("{text} *"),
            (text, false) => text.to_owned(),
        });
        writeln!(out, "{}", line(&mut std::iter::once(node.to_owned()).chain(cells)))?;
    }
    Ok(writeln!(out, "</pre>")?)
}

fn differences(table: &Table, out: &mut dyn Write) -> anyhow::Result<()> {
    let differences = table.differences();
    if !differences.is_empty() && table.len() > 1 {
        writeln!(
            out,
            "<details class=\"all\"><summary>Every fact that differs: {}</summary><div class=\"scroll\" tabindex=\"0\"><table class=\"wide\">\
             <tr><th>Fact<th>Values",
            number(differences.len() as u64)
        )?;
        for difference in differences.iter().take(KEYS) {
            writeln!(out, "<tr><td>{}<td>{}", escape(difference.key), escape(&difference.sentence()))?;
        }
        writeln!(out, "</table></div>")?;
        if differences.len() > KEYS {
            writeln!(
                out,
                "<p class=\"soft\">and {} more; <code>sonobuoy results ARCHIVE --facts=all</code> lists them</p>",
                number((differences.len() - KEYS) as u64)
            )?;
        }
        let volatile: Vec<String> = table.volatile().map(escape).collect();
        if !volatile.is_empty() {
            writeln!(
                out,
                "<p class=\"soft\">Not compared, since they always differ (times, counters, addresses): {}</p>",
                volatile.join(", ")
            )?;
        }
        writeln!(out, "</details>")?;
    }
    Ok(())
}
