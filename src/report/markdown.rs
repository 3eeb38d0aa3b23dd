//! `results --format markdown`: verdict, plugins, causes and the slowest tests, as CI systems and issues show them.
//!
//! Archives are untrusted, so their text is escaped and never becomes markup.

use std::io::Write;

use serde_json::Value;

use super::run::{Report, Verdict};
use super::template::fill;
use super::times::keep_slowest;
use super::words::count;
use crate::item::{FAILED, PASSED, SKIPPED};
use crate::remedies::{Cause, Why};
use base::json::json;
use base::visible;

/// Maximum causes, and slowest tests.
const CAUSES: usize = 20;
const SLOWEST: usize = 5;

/// Writes a report whose causes are known.
pub(crate) fn write(report: &Report<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let sign = match report.status {
        Verdict::Passed => "✅",
        Verdict::Unknown => "⚠️",
        Verdict::Failed => "❌",
    };
    let plugins = report.by_severity().into_iter().map(|plugin| {
        let [passed, failed, skipped] = [PASSED, FAILED, SKIPPED].map(|column| plugin.counts.of(column));
        json!({
            "name": plugin.name, "status": plugin.status, "passed": passed, "failed": failed,
            "skipped": skipped, "nodes": plugin.nodes.len(), "duration": plugin.duration,
        })
    });
    let groups = report.causes_by_title().map(|(title, causes)| {
        let further = causes.len().checked_sub(CAUSES + 1).map(|more| count(more + 1, "further cause"));
        let causes = causes.iter().take(CAUSES).map(cause);
        json!({"title": title, "causes": causes.collect::<Vec<_>>(), "further": further})
    });
    let mut slowest = Vec::new();
    for plugin in &report.plugins {
        plugin.cases.each(|case| {
            keep_slowest(
                &mut slowest,
                SLOWEST,
                case.duration,
                || json!({"plugin": case.plugin, "name": case.name, "node": case.node}),
            );
            Ok(())
        })?;
    }
    let slowest = slowest.iter().map(|(seconds, test)| json!({"seconds": seconds, "test": test}));
    let values = json!({
        "sign": sign, "headline": report.headline(), "duration": report.duration,
        "kubernetes": report.kubernetes_version, "archive": report.archive.rsplit('/').next(),
        "why": report.why.iter().flat_map(Why::sentences).collect::<Vec<_>>(),
        "plugins": plugins.collect::<Vec<_>>(), "groups": groups.collect::<Vec<_>>(),
        "slowest": slowest.collect::<Vec<_>>(),
    });
    fill(include_str!("markdown.md"), &[&values], safe, out)
}

fn cause(cause: &Cause) -> Value {
    let named = cause.names.len();
    json!({
        "count": cause.count, "headline": cause.headline().0, "extent": cause.extent(), "plugins": cause.plugins,
        "names": cause.names, "more": if named > 0 { cause.tests() - named } else { 0 }, "remedy": cause.remedy,
    })
}

/// Text on one line, without markup.
pub(crate) fn safe(text: &str) -> String {
    let mut safe = String::new();
    for c in visible::line(text).chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '@' => safe.extend(['\\', c]),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_an_archive_never_becomes_markup() {
        assert_eq!(
            safe("<b>a|b</b>\n[x](y) `c` *d*"),
            "&lt;b&gt;a\\|b&lt;/b&gt;\\\\n\\[x\\](y) \\`c\\` \\*d\\*"
        );
    }
}
