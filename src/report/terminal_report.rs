//! The text report: the verdict first, a row per plugin, failures by cause, unreadable results, and next steps.

use super::run::{Plugin, Report, Verdict};
use super::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW};
use super::times::spoken;
use super::words::{count, named, number};
use crate::item::{FAILED, FLAKY, PASSED, SKIPPED, plain};
use crate::remedies::Cause;
use anyhow::Result;
use base::Joined as _;

/// Maximum number of causes to show.
const CAUSES: usize = 12;
/// Maximum failing tests of a cause.
const NAMES: usize = 5;
/// Maximum lines of an example.
const LINES: usize = 3;

impl Terminal<'_> {
    /// Writes the report.
    pub(crate) fn report(&mut self, report: &Report<'_>) -> Result<()> {
        let rest = [
            Some(report.headline()),
            report.duration.map(|span| spoken(span.seconds())),
            known(&report.kubernetes_version).map(|version| format!("Kubernetes {version}")),
            known(&report.resumes).map(|run| format!("continues run {run}")),
        ];
        let rest = rest.into_iter().flatten().joined(" · ");
        let word = report.status.word().to_uppercase();
        let word = self.paint(&format!("{BOLD};{}", colour(report.status)), &word);
        writeln!(self.out, "{word}  {}\n", base::visible::line(&rest))?;
        if report.plugins.is_empty() {
            let next = "Next: check that it is the archive of a run; `sonobuoy retrieve` fetches one";
            return Ok(writeln!(self.out, "{next}")?);
        }
        if let Some(why) = &report.why {
            why.sentences().iter().try_for_each(|sentence| self.wrapped(sentence, "", "  "))?;
            self.gap()?;
        }
        self.plugins(report)?;
        report.causes_by_title().try_for_each(|(title, causes)| self.causes(title, causes))?;
        self.flaky(report)?;
        for plugin in &report.plugins {
            if let Some(error) = &plugin.error {
                self.wrapped(&format!("The results of {} cannot be read: {error}", plugin.name), "", "  ")?;
                self.gap()?;
            }
        }
        if let Some(health) = &report.health {
            for (name, part) in [("node", &health.node_health), ("pod", &health.pod_health)] {
                let missing = part.total_nodes.saturating_sub(part.healthy_nodes);
                if missing > 0 {
                    let (of, verb) = (count(part.total_nodes, name), if missing == 1 { "is" } else { "are" });
                    let unwell: Vec<_> = part.unwell().iter().map(|detail| detail.full_name()).collect();
                    let colon = if unwell.is_empty() { "" } else { ": " };
                    let names = named(&unwell, unwell.len() as u64);
                    let text = format!("{} of {of} {verb} not healthy{colon}{names}", number(missing));
                    self.wrapped(&text, "", "  ")?;
                }
            }
        }
        for (plugin, excluded) in &report.excluded {
            let mut nodes: Vec<_> =
                excluded.iter().take(NAMES).map(|(node, why)| format!("{node} ({why})")).collect();
            if excluded.len() > NAMES {
                nodes.push(format!("and {} more", number(excluded.len() - NAMES)));
            }
            let of = count(excluded.len(), "node");
            self.wrapped(&format!("{plugin} did not run on {of}: {}", nodes.join(", ")), "", "  ")?;
        }
        let archive = shell(report.archive);
        let failed = |plugin: &Plugin<'_>| plugin.name == "e2e" && plugin.verdict() == Verdict::Failed;
        let next = match report.status {
            _ if report.plugins.iter().any(failed) && !report.archive.starts_with("--") => {
                format!("sonobuoy run --rerun-failed {archive}")
            }
            _ => format!("sonobuoy results {archive} --format html > report.html"),
        };
        Ok(writeln!(self.out, "Next:\n  {}", base::visible::line(&next))?)
    }

    fn plugins(&mut self, report: &Report<'_>) -> Result<()> {
        let plugins = report.by_severity();
        let head = ["  PLUGIN", " STATUS", "PASSED", "FAILED", "SKIPPED", "NODES", "DURATION"];
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
                if plugin.nodes.is_empty() { "-".into() } else { number(plugin.nodes.len()) },
                plugin.duration.map_or_else(|| "-".into(), |span| spoken(span.seconds())),
            ]
        });
        let rows: Vec<_> = std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
        self.table(&rows, 2, |row| match row.checked_sub(1).map(|row| plugins[row].verdict()) {
            None => DIM,
            Some(Verdict::Passed) => "",
            Some(verdict) => colour(verdict),
        })?;
        self.gap()
    }

    fn causes(&mut self, title: &str, causes: &[Cause]) -> Result<()> {
        self.painted(BOLD, title)?;
        for cause in causes.iter().take(CAUSES) {
            let times = format!("{:>6}", format!("{} x ", number(cause.count)));
            let (headline, lines) = cause.headline();
            self.wrapped(&format!("{headline}  ({})", cause.extent()), &times, "      ")?;
            let example = &cause.example;
            let node = example.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
            self.painted(DIM, &format!("       {}{node}", example.plugin))?;
            let mut names = cause.names.iter().map(|name| plain(name));
            names.by_ref().take(NAMES).try_for_each(|name| self.line(&format!("       x {name}")))?;
            if names.len() > 0 {
                writeln!(self.out, "       and {} more", number(cause.tests() - NAMES))?;
            }
            // The tests beside this example.
            lines
                .iter()
                .take(LINES)
                .try_for_each(|line| self.painted(DIM, &format!("         {}", line.trim())))?;
            for text in cause.remedy.iter().chain(&cause.link) {
                self.wrapped(&format!("-> {text}"), "       ", "         ")?;
            }
        }
        if causes.len() > CAUSES {
            writeln!(self.out, "       and {}", count(causes.len() - CAUSES, "further cause"))?;
        }
        self.gap()
    }

    /// Writes the tests that passed on retry.
    fn flaky(&mut self, report: &Report<'_>) -> Result<()> {
        let Some(all) = report.counts.0.get(FLAKY) else { return Ok(()) };
        self.painted(BOLD, "Failed, and passed when started again")?;
        let mut left = CAUSES;
        for plugin in report.plugins.iter().filter(|plugin| plugin.counts.any(&[FLAKY])) {
            plugin.cases.each(|case| {
                if case.status == FLAKY && left > 0 {
                    left -= 1;
                    self.line(&format!("       {}: {}", plugin.name, plain(case.name)))?;
                }
                Ok(())
            })?;
        }
        if *all > CAUSES as u64 {
            writeln!(self.out, "       and {} more", number(all - CAUSES as u64))?;
        }
        self.gap()
    }
}

fn known(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn colour(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => GREEN,
        Verdict::Unknown => YELLOW,
        Verdict::Failed => RED,
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
