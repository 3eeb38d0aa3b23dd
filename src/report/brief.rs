//! A report in brief: as Markdown for CI systems and issues, and as text for a terminal.
//!
//! Verdict, plugins and causes are the same in both; Markdown has the slowest tests, text the names
//! of flaky tests and the next command. Archives are untrusted, so their text is escaped and never
//! becomes markup.

use std::io::Write;
use std::iter;

use anyhow::Result;

use super::run::{PluginReport, Report, SlowTests};
use super::terminal::{BOLD, DIM, TextOutput, colour};
use super::words::{count, named, number, spoken};
use base::{visible, xml};
use model::health::Detail;
use model::item::{FAILED, FLAKY, PASSED, SKIPPED, plain};
use model::remedies::{Cause, Why};
use model::verdict::Outcome;

/// Maximum causes, slowest tests, flaky tests, and lines of an example.
const MAX_CAUSES: usize = 20;
const MAX_SLOWEST: usize = 5;
const MAX_FLAKY: usize = 20;
const MAX_EXAMPLE_LINES: usize = 3;

/// The causes of a report, with their title in every view.
fn groups<'r>(report: &'r Report<'_>) -> impl Iterator<Item = (&'static str, &'r [Cause])> {
    [
        ("Why it failed", &report.causes[..]),
        ("Could not be read", &report.unknown_causes[..]),
    ]
    .into_iter()
    .filter(|(_, causes)| !causes.is_empty())
}

/// Causes beyond the first ones.
fn further_causes(causes: &[Cause]) -> Option<String> {
    let further = causes.len().saturating_sub(MAX_CAUSES);
    (further > 0).then(|| count(further, "further cause"))
}

/// Tests of a cause beyond those with a name.
fn further_tests(cause: &Cause) -> Option<usize> {
    let named = cause.names.len();
    Some(cause.tests.saturating_sub(named)).filter(|more| named > 0 && *more > 0)
}

/// The numbers in the row of a plugin: passed, failed, skipped, nodes, duration.
fn numbers(plugin: &PluginReport<'_>) -> [String; 5] {
    let [passed, failed, skipped] =
        [PASSED, FAILED, SKIPPED].map(|column| number(plugin.counts.of(column)));
    let nodes = match plugin.nodes.len() {
        0 => "-".into(),
        nodes => number(nodes),
    };
    let duration = plugin
        .duration
        .map_or_else(|| "-".into(), |span| spoken(span.seconds()));
    [passed, failed, skipped, nodes, duration]
}

/// Writes a report whose causes are known as Markdown.
pub fn write_markdown(report: &Report<'_>, out: &mut dyn Write) -> Result<()> {
    let sign = match report.status {
        Outcome::Passed => "✅",
        Outcome::Unknown => "⚠️",
        Outcome::Failed => "❌",
    };
    writeln!(out, "## {sign} Sonobuoy: {}\n", safe(&report.headline()))?;
    let duration = report.duration.map(|span| spoken(span.seconds()));
    let kubernetes = Some(&report.kubernetes_version).filter(|version| !version.is_empty());
    let kubernetes = kubernetes.map(|version| format!("Kubernetes {}", safe(version)));
    let archive = report.archive.rsplit('/').next().map(safe);
    let about: Vec<_> = [duration, kubernetes, archive]
        .into_iter()
        .flatten()
        .collect();
    writeln!(out, "{}\n", about.join(" · "))?;
    for sentence in report.why.iter().flat_map(Why::sentences) {
        writeln!(out, "{}\n", safe(&sentence))?;
    }
    markdown_plugins(report, out)?;
    for (title, causes) in groups(report) {
        writeln!(out, "\n### {title}\n")?;
        for cause in causes.iter().take(MAX_CAUSES) {
            markdown_cause(cause, out)?;
        }
        if let Some(further) = further_causes(causes) {
            writeln!(out, "* and {further}")?;
        }
    }
    markdown_slowest(report, out)
}

fn markdown_plugins(report: &Report<'_>, out: &mut dyn Write) -> Result<()> {
    if report.plugins.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "| plugin | status | passed | failed | skipped | nodes | duration |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for plugin in &report.plugins {
        let (name, status) = (safe(plugin.name), safe(&plugin.status));
        writeln!(
            out,
            "| {name} | {status} | {} |",
            numbers(plugin).join(" | ")
        )?;
    }
    Ok(())
}

fn markdown_cause(cause: &Cause, out: &mut dyn Write) -> Result<()> {
    let (headline, _) = cause.headline();
    writeln!(
        out,
        "* **{} × {}** ({}; {})",
        number(cause.count),
        safe(&headline),
        cause.extent(),
        safe(&cause.plugins.join(", "))
    )?;
    for place in &cause.names {
        writeln!(out, "  * {}", safe(plain(&place.text())))?;
    }
    if let Some(more) = further_tests(cause) {
        writeln!(out, "  * and {} more", number(more))?;
    }
    if let Some(remedy) = &cause.remedy {
        writeln!(out, "  * **Suggested fix:** {}", safe(remedy))?;
    }
    Ok(())
}

fn markdown_slowest(report: &Report<'_>, out: &mut dyn Write) -> Result<()> {
    let mut slowest = SlowTests::default();
    for plugin in &report.plugins {
        plugin.cases.each(|case| {
            slowest.add(case, None);
            Ok(())
        })?;
    }
    let slowest = slowest.into_slowest(MAX_SLOWEST);
    if slowest.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n### The slowest\n\n| took | test |\n| ---: | --- |")?;
    for (place, slow) in slowest {
        let (took, plugin) = (spoken(slow.seconds), safe(&place.plugin));
        writeln!(out, "| {took} | {plugin}: {} |", safe(plain(&place.text())))?;
    }
    Ok(())
}

impl TextOutput<'_> {
    /// Writes a report whose causes are known as text.
    pub fn report(&mut self, report: &Report<'_>) -> Result<()> {
        self.verdict(report)?;
        self.plugins(report)?;
        for (title, causes) in groups(report) {
            self.painted(BOLD, title)?;
            for cause in causes.iter().take(MAX_CAUSES) {
                self.cause(cause)?;
            }
            if let Some(further) = further_causes(causes) {
                self.line(&format!("       and {further}"))?;
            }
            self.blank()?;
        }
        self.flaky(report)?;
        for plugin in &report.plugins {
            if let Some(error) = &plugin.error {
                let name = plugin.name;
                self.wrapped(&format!("The results of {name} cannot be read: {error}"))?;
                self.blank()?;
            }
        }
        self.nodes(report)?;
        self.next_step(report)
    }

    /// Writes the headline, and why a run failed as a whole.
    fn verdict(&mut self, report: &Report<'_>) -> Result<()> {
        let word = report.status.word();
        let style = format!("{BOLD};{}", colour(word).unwrap_or_default());
        let word = self.paint(&style, &word.to_uppercase());
        let mut parts = vec![report.headline()];
        parts.extend(report.duration.map(|span| spoken(span.seconds())));
        if !report.kubernetes_version.is_empty() {
            parts.push(format!("Kubernetes {}", report.kubernetes_version));
        }
        if !report.resumes.is_empty() {
            parts.push(format!("continues run {}", report.resumes));
        }
        write!(self.out, "{word}  ")?;
        self.line(&parts.join(" · "))?;
        self.blank()?;
        if let Some(why) = &report.why {
            for sentence in why.sentences() {
                self.wrapped(&sentence)?;
            }
            self.blank()?;
        }
        Ok(())
    }

    fn plugins(&mut self, report: &Report<'_>) -> Result<()> {
        if report.plugins.is_empty() {
            return Ok(());
        }
        let head = [
            "  PLUGIN", " STATUS", "PASSED", "FAILED", "SKIPPED", "NODES", "DURATION",
        ];
        let rows = report.plugins.iter().map(|plugin| {
            let flaky = match plugin.counts.of(FLAKY) {
                0 => String::new(),
                flaky => format!(", {} flaky", number(flaky)),
            };
            let mut row = vec![
                format!("  {}", plugin.name),
                format!(" {}{flaky}", plugin.status),
            ];
            row.extend(numbers(plugin));
            row
        });
        let colours = report.plugins.iter().map(|plugin| match plugin.outcome() {
            Outcome::Passed => "",
            verdict => colour(verdict.word()).unwrap_or_default(),
        });
        let colours: Vec<_> = iter::once(DIM).chain(colours).collect();
        let head = head.map(str::to_owned).to_vec();
        self.table(iter::once(head).chain(rows), 2, &colours)?;
        self.blank()
    }

    fn cause(&mut self, cause: &Cause) -> Result<()> {
        let (headline, lines) = cause.headline();
        let (number_of, extent) = (number(cause.count), cause.extent());
        self.wrapped(&format!("  {number_of} x {headline}  ({extent})"))?;
        let mut place = cause.plugins.join(", ");
        if cause.names.is_empty() {
            place.push_str(&cause.nodes.phrase());
        }
        self.painted(DIM, &format!("       {place}"))?;
        for test in &cause.names {
            self.line(&format!("       x {}", plain(&test.text())))?;
        }
        if let Some(more) = further_tests(cause) {
            self.line(&format!("       and {} more", number(more)))?;
        }
        for line in lines.iter().take(MAX_EXAMPLE_LINES) {
            self.painted(DIM, &format!("         {}", plain(line)))?;
        }
        for advice in cause.remedy.iter().chain(&cause.link) {
            self.wrapped(&format!("       -> {advice}"))?;
        }
        Ok(())
    }

    fn flaky(&mut self, report: &Report<'_>) -> Result<()> {
        let mut flaky = Vec::new();
        for plugin in &report.plugins {
            if plugin.counts.of(FLAKY) == 0 {
                continue;
            }
            plugin.cases.each(|case| {
                if case.status == FLAKY {
                    flaky.push(format!("     {}: {}", plugin.name, plain(case.name)));
                }
                Ok(())
            })?;
        }
        if flaky.is_empty() {
            return Ok(());
        }
        self.painted(BOLD, "Failed, and passed when started again")?;
        self.list(&flaky, MAX_FLAKY)?;
        self.blank()
    }

    /// Writes which nodes and pods are not healthy, and where plugins did not run.
    fn nodes(&mut self, report: &Report<'_>) -> Result<()> {
        let parts = report
            .health
            .iter()
            .flat_map(|health| [("Nodes", &health.node_health), ("Pods", &health.pod_health)]);
        for (title, part) in parts {
            let unhealthy = part.total_nodes.saturating_sub(part.healthy_nodes);
            if unhealthy == 0 {
                continue;
            }
            let names: Vec<_> = part.unwell().into_iter().map(Detail::full_name).collect();
            let names = named(&names, names.len() as u64);
            let (unhealthy, total) = (number(unhealthy), number(part.total_nodes));
            self.wrapped(&format!(
                "{title}: {unhealthy} of {total} not healthy: {names}"
            ))?;
        }
        for (plugin, nodes) in &report.excluded {
            let names: Vec<_> = nodes
                .iter()
                .map(|(node, reason)| format!("{node} ({reason})"))
                .collect();
            let (all, names) = (number(nodes.len()), named(&names, nodes.len() as u64));
            self.wrapped(&format!(
                "{plugin} did not run on {all} of its nodes: {names}"
            ))?;
        }
        Ok(())
    }

    /// Writes the command to go on with, which is never cut.
    fn next_step(&mut self, report: &Report<'_>) -> Result<()> {
        if report.plugins.is_empty() {
            return self.line(
                "Next: check that it is the archive of a run; `sonobuoy retrieve` fetches one",
            );
        }
        let has_failed_e2e = report
            .plugins
            .iter()
            .any(|plugin| plugin.name == "e2e" && plugin.outcome() == Outcome::Failed);
        let archive = shell(report.archive);
        let command = if has_failed_e2e && !report.archive.starts_with("--") {
            format!("sonobuoy run --rerun-failed {archive}")
        } else {
            format!("sonobuoy results {archive} --format html > report.html")
        };
        self.line("Next:")?;
        Ok(writeln!(self.out, "  {}", visible::line(&command))?)
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
