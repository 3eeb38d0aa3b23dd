//! Durations: a timeline of plugins and nodes, the slowest tests, a histogram.

use std::time::SystemTime;

use serde_json::Value;

use super::super::run::{Plugin, Report};
use super::super::times::Span;
use super::super::words::count;
use super::cards::{BOUNDS, Digest};
use super::plugin_class;
use base::json::json;
use base::visible;

/// Maximum number of nodes of a plugin with a separate bar.
const NODES: usize = 12;
/// Maximum letters of a name next to its bar.
const SHORT: usize = 24;
const HEIGHT: usize = 18;
const LEFT: f64 = 200.0;
const WIDTH: f64 = 1000.0;

/// The section, if any time is known.
pub(super) fn section(report: &Report<'_>, digest: &Digest) -> Option<Value> {
    let bars: Vec<_> = report.plugins.iter().flat_map(bars).collect();
    let tests = tests(digest);
    (!bars.is_empty() || tests.is_some())
        .then(|| json!({"timeline": timeline(report, &bars), "tests": tests}))
}

struct Bar<'o> {
    name: &'o str,
    label: String,
    class: &'static str,
    span: Span,
}

/// The bar of a plugin, and those of its nodes.
fn bars<'p>(plugin: &'p Plugin<'_>) -> Vec<Bar<'p>> {
    let Some(span) = plugin.duration else { return Vec::new() };
    let label = visible::cut(plugin.name, SHORT).into_owned();
    let mut bars = vec![Bar { name: plugin.name, label, class: plugin_class(plugin), span }];
    if (2..=NODES).contains(&plugin.nodes.len()) {
        bars.extend(plugin.nodes.iter().filter_map(|node| {
            let mut arrivals = plugin.arrivals.iter().filter(|arrival| arrival.node == node.name);
            let class = if arrivals.all(|arrival| arrival.failed.is_empty()) { "node" } else { "failed" };
            let label = format!("\u{a0}\u{a0}{}", visible::cut(&node.name, SHORT));
            Some(Bar { name: &node.name, label, class, span: node.duration? })
        }));
    }
    bars
}

fn timeline(report: &Report<'_>, bars: &[Bar<'_>]) -> Option<Value> {
    let run = report.duration.filter(|_| !bars.is_empty());
    let whole = Span::around(bars.iter().map(|bar| bar.span).chain(run))?;
    let all = whole.seconds();
    let x = |time: SystemTime| LEFT + (WIDTH - LEFT) * Span { from: whole.from, to: time }.seconds() / all;
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share: f64| {
        let (anchor, gap) = if share < 1.0 { ("start", 3.0) } else { ("end", -3.0) };
        json!({"at": LEFT + (WIDTH - LEFT) * share, "gap": gap, "anchor": anchor, "seconds": all * share})
    });
    let placed = bars.iter().enumerate().map(|(at, bar)| {
        let (from, to) = (x(bar.span.from), x(bar.span.to));
        json!({
            "y": ((at + 1) * HEIGHT) as f64, "label": bar.label, "class": bar.class, "from": tenth(from),
            "length": tenth((to - from).max(2.0)), "name": bar.name, "duration": bar.span,
        })
    });
    let height = ((bars.len() + 1) * HEIGHT + 6) as f64;
    (all > 0.0).then(|| {
        let bars: Vec<_> = placed.collect();
        json!({"width": WIDTH, "height": height, "whole": all, "ticks": ticks, "bars": bars})
    })
}

/// A number with one digit after the point.
fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// The slowest tests and the histogram, if the duration of any test is known.
fn tests(digest: &Digest) -> Option<Value> {
    let (longest, _) = digest.slowest.first()?;
    let slowest = digest.slowest.iter().map(|(seconds, test)| {
        json!({"seconds": seconds, "test": test, "share": (100.0 * seconds / longest.max(1e-9)).round()})
    });
    let most = digest.histogram.iter().copied().max().unwrap_or_default() as f64;
    let rows = BOUNDS.iter().zip(digest.histogram).enumerate().map(|(at, ((_, name), tests))| {
        let length = if tests > 0 { (330.0 * tests as f64 / most).max(2.0) } else { 0.0 };
        json!({"y": (at * HEIGHT) as f64, "name": name, "length": tenth(length), "tests": tests})
    });
    Some(json!({
        "slowest": slowest.collect::<Vec<_>>(), "histogram": rows.collect::<Vec<_>>(),
        "height": (BOUNDS.len() * HEIGHT) as f64, "timed": count(digest.histogram.iter().sum::<u64>(), "test"),
    }))
}
