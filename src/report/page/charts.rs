//! Durations: a timeline of plugins and nodes, the slowest tests, a histogram.

use std::io::Write;
use std::time::SystemTime;

use super::super::overview::{Overview, Plugin};
use super::super::times::{Span, spoken};
use super::super::words::{count, number, shown};
use super::digest::{BOUNDS, Digest, Slow};
use super::escape::escape;
use super::plugin_class;

/// Maximum number of nodes of a plugin with a separate bar.
const NODES: usize = 12;
/// Maximum letters of a name next to its bar.
const SHORT: usize = 24;
const HEIGHT: usize = 18;
const LEFT: f64 = 200.0;
const WIDTH: f64 = 1000.0;

/// Writes the section, if any time is known.
pub(super) fn write(overview: &Overview<'_>, digest: &Digest, out: &mut dyn Write) -> anyhow::Result<()> {
    let bars = bars(overview);
    let times = digest.histogram.iter().any(|count| *count > 0);
    if bars.is_empty() && !times {
        return Ok(());
    }
    writeln!(out, "<section id=\"time\">\n<h2>Where the time went</h2>")?;
    timeline(overview, &bars, out)?;
    if times {
        slowest(&digest.slowest, out)?;
        histogram(digest, out)?;
    }
    Ok(writeln!(out, "</section>")?)
}

struct Bar<'o> {
    plugin: &'o Plugin,
    /// The node, unless the bar is the whole plugin's.
    node: Option<&'o str>,
    span: Span,
    /// Whether its results arrived.
    arrived: bool,
}

fn bars<'o>(overview: &'o Overview<'_>) -> Vec<Bar<'o>> {
    let mut bars = Vec::new();
    for plugin in &overview.plugins {
        let Some(span) = overview.times.of(&plugin.name, None) else { continue };
        bars.push(Bar { plugin, node: None, span, arrived: true });
        if (2..=NODES).contains(&plugin.nodes.len()) {
            let of_nodes = plugin.nodes.iter().filter_map(|node| {
                let span = overview.times.of(&plugin.name, Some(&node.name))?;
                let arrived = overview.times.arrived(&plugin.name, &node.name);
                Some(Bar { plugin, node: Some(&node.name), span, arrived })
            });
            bars.extend(of_nodes);
        }
    }
    bars
}

fn timeline(overview: &Overview<'_>, bars: &[Bar<'_>], out: &mut dyn Write) -> anyhow::Result<()> {
    let first = bars.iter().map(|bar| bar.span.from).min();
    let last = bars.iter().map(|bar| bar.span.to).max();
    let (Some(first), Some(last)) = (first, last) else { return Ok(()) };
    let whole = overview.times.whole();
    let first = whole.map_or(first, |span| span.from.min(first));
    let last = whole.map_or(last, |span| span.to.max(last));
    let all = last.duration_since(first).unwrap_or_default().as_secs_f64();
    if all <= 0.0 {
        return Ok(());
    }
    let x = |time: SystemTime| {
        LEFT + (WIDTH - LEFT) * time.duration_since(first).unwrap_or_default().as_secs_f64() / all
    };
    let height = (bars.len() + 1) * HEIGHT + 6;
    writeln!(
        out,
        "<h3>Timeline</h3>\n<div class=\"scroll\" tabindex=\"0\"><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"When each plugin ran, of {}\">",
        spoken(all)
    )?;
    for tick in 0..=4 {
        let share = f64::from(tick) / 4.0;
        let at = LEFT + (WIDTH - LEFT) * share;
        let anchor = if tick == 4 { "end" } else { "start" };
        writeln!(
            out,
            "<path class=\"grid\" d=\"M{at:.0} 0V{height}\"/><text x=\"{:.0}\" y=\"12\" text-anchor=\"{anchor}\">{}</text>",
            if tick == 4 { at - 3.0 } else { at + 3.0 },
            spoken(all * share)
        )?;
    }
    for (at, bar) in bars.iter().enumerate() {
        let y = (at + 1) * HEIGHT;
        let (from, to) = (x(bar.span.from), x(bar.span.to));
        let took = spoken(bar.span.length().as_secs_f64());
        let name = bar.node.unwrap_or(&bar.plugin.name);
        let short = match name.char_indices().nth(SHORT) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name.to_owned(),
        };
        let (class, label) = match bar.node {
            Some(_) => {
                let class = if bar.arrived { "f-node" } else { "f-failed" };
                (class.to_owned(), format!("\u{a0}\u{a0}{}", escape(&short)))
            }
            None => (plugin_fill(bar.plugin), escape(&short)),
        };
        writeln!(
            out,
            "<text x=\"0\" y=\"{:.0}\">{label}</text><rect class=\"{class}\" x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" \
             rx=\"3\"><title>{}: {took}</title></rect>",
            y as f64 + 13.0,
            y + 3,
            (to - from).max(2.0),
            HEIGHT - 5,
            escape(name)
        )?;
    }
    Ok(writeln!(out, "</svg></div>")?)
}

fn plugin_fill(plugin: &Plugin) -> String {
    format!("f-{}", plugin_class(plugin))
}

fn slowest(slowest: &[Slow], out: &mut dyn Write) -> anyhow::Result<()> {
    let longest = slowest.first().map_or(1.0, |slow| slow.seconds).max(1e-9);
    writeln!(
        out,
        "<h3>The slowest</h3>\n<table class=\"slow\"><tr><th class=\"n\">Took</th><th>Test</th></tr>"
    )?;
    for slow in slowest {
        let node = slow.node.as_ref().map(|node| format!(" on {}", escape(node))).unwrap_or_default();
        writeln!(
            out,
            "<tr><td class=\"n\">{}</td><td><a href=\"#{}\">{}</a> <small>{}{node}</small><i style=\"width:{:.0}%\"></i></td></tr>",
            spoken(slow.seconds),
            slow.anchor,
            escape(shown(&slow.name)),
            escape(&slow.plugin),
            100.0 * slow.seconds / longest
        )?;
    }
    Ok(writeln!(out, "</table>")?)
}

fn histogram(digest: &Digest, out: &mut dyn Write) -> anyhow::Result<()> {
    let most = digest.histogram.iter().copied().max().unwrap_or(1).max(1);
    let told = digest.histogram.iter().sum::<u64>();
    let height = BOUNDS.len() * HEIGHT;
    writeln!(
        out,
        "<h3>How long tests took</h3>\n<svg class=\"chart narrow\" viewBox=\"0 0 520 {height}\" role=\"img\" \
         aria-label=\"How long {} took\">",
        count(told, "test")
    )?;
    for (at, ((_, name), tests)) in BOUNDS.iter().zip(digest.histogram).enumerate() {
        let y = at * HEIGHT;
        let width = 330.0 * tests as f64 / most as f64;
        let width = if tests > 0 { width.max(2.0) } else { 0.0 };
        writeln!(
            out,
            "<text x=\"0\" y=\"{}\">{name}</text><rect class=\"f-node\" x=\"110\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" rx=\"3\"/>\
             <text x=\"{:.0}\" y=\"{}\">{}</text>",
            y + 13,
            y + 3,
            HEIGHT - 5,
            116.0 + width,
            y + 13,
            number(tests)
        )?;
    }
    Ok(writeln!(out, "</svg>")?)
}
