//! A report in brief: as Markdown for CI systems and issues, and as text for a terminal.
//!
//! Verdict, plugins and causes are the same in both; Markdown has the slowest tests, text the names
//! of flaky tests and the next command. Archives are untrusted, so their text is escaped and never
//! becomes markup.

use std::io::Write;

use anyhow::Result;
use serde_json::Value;

use super::run::Report;
use super::template::fill;
use super::terminal::{DIM, TextOutput, colour};
use super::words::{count, number, spoken};
use base::json::{json, list};
use base::{visible, xml};
use model::health::Detail;
use model::item::{FAILED, FLAKY, PASSED, SKIPPED, plain};
use model::remedies::{Cause, TestPlace, Why};
use model::verdict::Outcome;

/// Maximum causes, and slowest tests.
const CAUSES: usize = 20;
const SLOWEST: usize = 5;

/// What both have in common.
fn values(report: &Report<'_>) -> Value {
    let plugins = report.by_severity().into_iter().map(|plugin| {
        let [passed, failed, skipped] = [PASSED, FAILED, SKIPPED].map(|column| plugin.counts.of(column));
        json!({
            "name": plugin.name, "status": plugin.status, "passed": passed, "failed": failed,
            "skipped": skipped, "nodes": plugin.nodes.len(), "duration": plugin.duration, "error": plugin.error,
        })
    });
    let groups = [
        ("Why it failed", &report.causes),
        ("Undetermined results", &report.unknown_causes),
    ];
    let groups = groups
        .iter()
        .filter(|(_, causes)| !causes.is_empty())
        .map(|(title, causes)| {
            let further = causes
                .len()
                .checked_sub(CAUSES + 1)
                .map(|more| count(more + 1, "further cause"));
            let causes = causes.iter().take(CAUSES).map(cause);
            json!({"title": title, "causes": list(causes), "further": further})
        });
    json!({
        "headline": report.headline(), "duration": report.duration, "kubernetes": report.kubernetes_version,
        "why": list(report.why.iter().flat_map(Why::sentences)),
        "plugins": list(plugins), "groups": list(groups),
    })
}

fn cause(cause: &Cause) -> Value {
    let (headline, lines) = cause.headline();
    let named = cause.names.len();
    json!({
        "count": cause.count, "headline": headline, "extent": cause.extent(), "plugins": cause.plugins,
        "names": list(cause.names.iter().map(TestPlace::text)), "more": if named > 0 { cause.tests - named } else { 0 },
        "remedy": cause.remedy, "link": cause.link, "example": cause.example, "lines": lines,
    })
}

/// Writes a report whose causes are known as Markdown.
pub fn write_markdown(report: &Report<'_>, out: &mut dyn Write) -> Result<()> {
    let sign = match report.status {
        Outcome::Passed => "✅",
        Outcome::Unknown => "⚠️",
        Outcome::Failed => "❌",
    };
    let mut slowest = Vec::new();
    for plugin in &report.plugins {
        plugin.cases.each(|case| {
            case.keep_if_slow(&mut slowest, SLOWEST, None);
            Ok(())
        })?;
    }
    let own = json!({
        "sign": sign, "archive": report.archive.rsplit('/').next(), "slowest": slowest,
    });
    fill(
        include_str!("brief.md"),
        &[&values(report), &own],
        safe,
        out,
    )
}

impl TextOutput<'_> {
    /// Writes a report whose causes are known as text.
    pub fn report(&mut self, report: &Report<'_>) -> Result<()> {
        let mut flaky = Vec::new();
        for plugin in report
            .plugins
            .iter()
            .filter(|plugin| plugin.counts.of(FLAKY) > 0)
        {
            plugin.cases.each(|case| {
                if case.status == FLAKY {
                    flaky.push(format!("{}: {}", plugin.name, plain(case.name)));
                }
                Ok(())
            })?;
        }
        let parts = report
            .health
            .iter()
            .flat_map(|health| [("Nodes", &health.node_health), ("Pods", &health.pod_health)]);
        let parts = parts.map(|(title, part)| {
            let names = part.unwell().into_iter().map(Detail::full_name);
            json!({"title": title, "total": part.total_nodes, "names": list(names), "unhealthy": part.total_nodes.saturating_sub(part.healthy_nodes)})
        });
        let excluded = report.excluded.iter().map(|(plugin, nodes)| {
            let nodes = nodes.iter().map(|(node, why)| format!("{node} ({why})"));
            json!({"plugin": plugin, "nodes": list(nodes)})
        });
        let failed_e2e = report
            .plugins
            .iter()
            .any(|plugin| plugin.name == "e2e" && plugin.outcome() == Outcome::Failed);
        let own = json!({
            "resumes": report.resumes, "flaky": flaky, "health": list(parts),
            "excluded": list(excluded), "archive": shell(report.archive),
            "rerun": failed_e2e && !report.archive.starts_with("--"),
        });
        let values = [&values(report), &own];
        let word = report.status.word().to_uppercase();
        write!(
            self.out,
            "{}  ",
            self.paint(
                &format!("1;{}", colour(report.status.word()).unwrap_or_default()),
                &word
            )
        )?;
        self.fill(include_str!("brief_head.txt"), &values)?;
        if !report.plugins.is_empty() {
            self.plugins(report)?;
        }
        self.fill(include_str!("brief.txt"), &values)
    }

    fn plugins(&mut self, report: &Report<'_>) -> Result<()> {
        let plugins = report.by_severity();
        let head = [
            "  PLUGIN", " STATUS", "PASSED", "FAILED", "SKIPPED", "NODES", "DURATION",
        ];
        let rows = plugins.iter().map(|plugin| {
            let of = |column| number(plugin.counts.of(column));
            let flaky = match of(FLAKY) {
                none if none == "0" => String::new(),
                flaky => format!(", {flaky} flaky"),
            };
            vec![
                format!("  {}", plugin.name),
                format!(" {}{flaky}", plugin.status),
                of(PASSED),
                of(FAILED),
                of(SKIPPED),
                if plugin.nodes.is_empty() {
                    "-".into()
                } else {
                    number(plugin.nodes.len())
                },
                plugin
                    .duration
                    .map_or_else(|| "-".into(), |span| spoken(span.seconds())),
            ]
        });
        let colours = plugins.iter().map(|plugin| match plugin.outcome() {
            Outcome::Passed => "",
            verdict => colour(verdict.word()).unwrap_or_default(),
        });
        let colours: Vec<_> = std::iter::once(DIM).chain(colours).collect();
        let head = head.map(str::to_owned).to_vec();
        self.table(std::iter::once(head).chain(rows), 2, &colours)?;
        Ok(writeln!(self.out)?)
    }
}

/// A word quoted for a shell.
fn shell(word: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=".contains(c);
    if !word.is_empty() && word.chars().all(harmless) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Text on one line, without markup.
pub fn safe(text: &str) -> String {
    let mut safe = String::new();
    for c in xml::escape(&visible::line(text), false).chars() {
        if "\\`*_[]|#~@".contains(c) {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_text_never_becomes_markup() {
        assert_eq!(
            safe("<b>a|b</b>\n[x](y) `c` *d*"),
            "&lt;b&gt;a\\|b&lt;/b&gt;\\\\n\\[x\\](y) \\`c\\` \\*d\\*"
        );
    }
}
