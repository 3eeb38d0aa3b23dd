//! The text report: the verdict first, a row per plugin, failures by cause, unreadable results, and next steps.
//!
//! It writes escapes for colours, so it must not pass on control characters of the archive.

use std::io::Write;

use super::headline::headline;
use super::look::{Look, fit};
use super::overview::{Overview, Plugin, Verdict, columns};
use super::times::spoken;
use super::words::{count, number, shown};
use crate::causes::Cause;
use crate::item::FLAKY;

/// Maximum number of causes to show.
const CAUSES: usize = 12;
/// Maximum lines of an example.
const LINES: usize = 3;

const BOLD: &str = "1";
const DIM: &str = "2";

/// Writes the report.
pub(crate) fn write(overview: &Overview<'_>, look: Look, out: &mut dyn Write) -> anyhow::Result<()> {
    let page = Page { look };
    page.verdict(overview, out)?;
    if overview.plugins.is_empty() {
        let next = "Next: check that it is the archive of a run; `sonobuoy retrieve` fetches one";
        return Ok(writeln!(out, "{next}")?);
    }
    if let Some(why) = &overview.why {
        for sentence in why.sentences() {
            wrapped(&plain(&sentence), ("", "  "), look.width, out)?;
        }
        writeln!(out)?;
    }
    page.plugins(overview, out)?;
    let (failed, unknown) = overview.causes()?;
    page.causes("Why it failed", &failed, out)?;
    page.causes("What is unknown, and why", &unknown, out)?;
    page.flaky(overview, out)?;
    for plugin in overview.plugins.iter().filter(|plugin| plugin.error.is_some()) {
        let reason = plugin.error.as_deref().unwrap_or_default();
        let text = format!("The results of {} cannot be read: {reason}", plugin.name);
        wrapped(&plain(&text), ("", "  "), look.width, out)?;
        writeln!(out)?;
    }
    if let Some(health) = &overview.health {
        let unwell = [("node", &health.node_health), ("pod", &health.pod_health)];
        for (name, part) in unwell {
            let missing = part.total_nodes.saturating_sub(part.healthy_nodes);
            if let Ok(missing @ 1..) = u64::try_from(missing) {
                let total = u64::try_from(part.total_nodes).unwrap_or_default();
                page.line(
                    out,
                    &format!(
                        "{} of {} {} not healthy",
                        number(missing),
                        count(total, name),
                        if missing == 1 { "is" } else { "are" }
                    ),
                )?;
            }
        }
    }
    page.next(overview, out)
}

struct Page {
    look: Look,
}

impl Page {
    fn paint(&self, colour: &str, text: &str) -> String {
        if self.look.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Writes one line, cut to the width of the terminal.
    fn line(&self, out: &mut dyn Write, text: &str) -> anyhow::Result<()> {
        Ok(writeln!(out, "{}", self.fit(text))?)
    }

    fn fit(&self, text: &str) -> String {
        fit(&plain(text), self.look.width)
    }

    fn verdict(&self, overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
        let verdict = overview.verdict();
        let took = overview.times.whole().map(|span| spoken(span.length().as_secs_f64()));
        let rest = [
            Some(headline(overview)),
            took,
            Some(overview.kubernetes.clone())
                .filter(|version| !version.is_empty())
                .map(|v| format!("Kubernetes {v}")),
            Some(&overview.resumes).filter(|run| !run.is_empty()).map(|run| format!("continues run {run}")),
        ];
        let rest = rest.into_iter().flatten().collect::<Vec<_>>().join(" · ");
        let word = self.paint(&format!("{BOLD};{}", colour(verdict)), &verdict.word().to_uppercase());
        Ok(writeln!(out, "{word}  {}\n", plain(&rest))?)
    }

    fn plugins(&self, overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
        let head =
            ["PLUGIN", "STATUS", "PASSED", "FAILED", "SKIPPED", "NODES", "DURATION"].map(str::to_owned);
        let plugins = overview.by_severity();
        let rows: Vec<[String; 7]> = plugins.iter().map(|plugin| row(overview, plugin)).collect();
        let width =
            |at: usize| base::visible::width(rows.iter().chain([&head]).map(|row| row[at].as_str())).min(60);
        let widths = [0, 1, 2, 3, 4, 5, 6].map(width);
        writeln!(out, "{}", self.paint(DIM, &self.fit(&cells(&head, &widths))))?;
        for (plugin, row) in plugins.iter().zip(&rows) {
            let line = self.fit(&cells(row, &widths));
            let painted = match plugin.verdict() {
                Verdict::Passed => line,
                verdict => self.paint(colour(verdict), &line),
            };
            writeln!(out, "{painted}")?;
        }
        Ok(writeln!(out)?)
    }

    fn causes(&self, title: &str, causes: &[Cause], out: &mut dyn Write) -> anyhow::Result<()> {
        if causes.is_empty() {
            return Ok(());
        }
        writeln!(out, "{}", self.paint(BOLD, title))?;
        for cause in causes.iter().take(CAUSES) {
            let times = format!("{} x ", number(cause.count));
            let text = format!("{}  ({})", plain(&cause.cause), cause.extent());
            wrapped(&text, (&format!("{times:>6}"), "      "), self.look.width, out)?;
            let node = cause.example.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
            let example = &cause.example;
            // Errors are named after their message.
            let said = example.lines.first().is_some_and(|line| example.test.starts_with(line.trim()));
            let test = if said { String::new() } else { format!(": {}", shown(&example.test)) };
            let line = self.fit(&format!("       {}{node}{test}", example.plugin));
            writeln!(out, "{}", self.paint(DIM, &line))?;
            // Lines that only repeat the cause are omitted.
            let lines: Vec<&str> = example.lines.iter().map(|line| line.trim()).collect();
            let repeats = lines.join(" ") == cause.cause;
            for line in example.lines.iter().take(LINES).filter(|_| !repeats) {
                writeln!(out, "{}", self.paint(DIM, &self.fit(&format!("         {}", line.trim()))))?;
            }
            let help = [cause.remedy.as_deref(), cause.link.as_deref()];
            for text in help.into_iter().flatten() {
                wrapped(&format!("-> {}", plain(text)), ("       ", "         "), self.look.width, out)?;
            }
        }
        if causes.len() > CAUSES {
            writeln!(out, "       and {}", count((causes.len() - CAUSES) as u64, "further cause"))?;
        }
        Ok(writeln!(out)?)
    }

    /// Writes the tests that passed on retry.
    fn flaky(&self, overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut names = Vec::new();
        let mut all = 0;
        for plugin in overview.plugins.iter().filter(|plugin| plugin.counts.contains_key(FLAKY)) {
            overview.leaves(plugin, |leaf| {
                if leaf.status() == FLAKY {
                    all += 1;
                    if names.len() < CAUSES {
                        names.push(format!("       {}: {}", plugin.name, shown(&leaf.item.name)));
                    }
                }
                Ok(())
            })?;
        }
        if all == 0 {
            return Ok(());
        }
        writeln!(out, "{}", self.paint(BOLD, "Failed, and passed when started again"))?;
        names.iter().try_for_each(|name| self.line(out, name))?;
        if all > CAUSES {
            writeln!(out, "       and {} more", number((all - CAUSES) as u64))?;
        }
        Ok(writeln!(out)?)
    }

    fn next(&self, overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
        let archive = shell(overview.opened.source.label());
        let text = match overview.verdict() {
            Verdict::Passed => format!("sonobuoy results {archive} --format html > report.html"),
            _ if overview
                .plugins
                .iter()
                .any(|plugin| plugin.name == "e2e" && plugin.verdict() == Verdict::Failed) =>
            {
                format!("sonobuoy run --rerun-failed {archive}")
            }
            _ => format!("sonobuoy results {archive} --format html > report.html, and open it in a browser"),
        };
        Ok(writeln!(out, "Next: {}", plain(&text))?)
    }
}

/// Writes texts wrapped at the line width; the first line and the others start with the given prefixes.
fn wrapped(
    text: &str,
    (first, others): (&str, &str),
    width: Option<usize>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let width = width.unwrap_or(100).clamp(40, 120);
    let (mut line, mut empty) = (first.to_owned(), true);
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            writeln!(out, "{}", line.trim_end())?;
            (line, empty) = (others.to_owned(), true);
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    Ok(writeln!(out, "{line}")?)
}

fn row(overview: &Overview<'_>, plugin: &Plugin) -> [String; 7] {
    let [(_, failed), _, (_, flaky), (_, passed), _, (_, skipped)] = columns(&plugin.counts);
    let status =
        if flaky > 0 { format!("{}, {} flaky", plugin.status, number(flaky)) } else { plugin.status.clone() };
    let nodes = if plugin.nodes.is_empty() { "-".into() } else { number(plugin.nodes.len() as u64) };
    let span = overview.times.of(&plugin.name, None);
    let took = span.map_or_else(|| "-".into(), |span| spoken(span.length().as_secs_f64()));
    [
        plain(&plugin.name).into_owned(),
        plain(&status).into_owned(),
        number(passed),
        number(failed),
        number(skipped),
        nodes,
        took,
    ]
}

/// A row with names left-aligned and numbers right-aligned.
fn cells(row: &[String; 7], widths: &[usize; 7]) -> String {
    let mut line = String::from(" ");
    for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
        match at {
            0 | 1 => line.push_str(&format!(" {cell:<width$}  ")),
            _ => line.push_str(&format!("{cell:>width$}  ")),
        }
    }
    line.truncate(line.trim_end().len());
    line
}

fn colour(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "32",
        Verdict::Unknown => "33",
        Verdict::Failed => "31",
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

/// Text without characters that a terminal interprets.
fn plain(text: &str) -> std::borrow::Cow<'_, str> {
    base::visible::line(text)
}
