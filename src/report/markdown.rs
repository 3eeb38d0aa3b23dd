//! `results --format markdown`: verdict, plugins, causes and the slowest tests, as CI systems and issues show them.
//!
//! Archives are untrusted, so their text is escaped and never becomes markup.

use std::io::Write;

use super::run::{Columns, Report, Verdict};
use super::times::spoken;
use super::words::{count, number};
use crate::item::plain;
use crate::remedies::{Cause, Why};
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
    let took = report.duration.map(|span| spoken(span.seconds())).unwrap_or_default();
    let kubernetes = Some(&report.kubernetes_version).filter(|version| !version.is_empty());
    let kubernetes = kubernetes.map(|version| format!("Kubernetes {version}")).unwrap_or_default();
    let about = [took, kubernetes, report.archive.rsplit('/').next().unwrap_or_default().to_owned()];
    let about: Vec<_> = about.iter().filter(|part| !part.is_empty()).map(|part| safe(part)).collect();
    writeln!(out, "## {sign} Sonobuoy: {}\n\n{}\n", safe(&report.headline()), about.join(" · "))?;
    for sentence in report.why.iter().flat_map(Why::sentences) {
        writeln!(out, "{}\n", safe(&sentence))?;
    }
    if !report.plugins.is_empty() {
        writeln!(out, "| plugin | status | passed | failed | skipped | nodes | duration |")?;
        writeln!(out, "| --- | --- | ---: | ---: | ---: | ---: | ---: |")?;
    }
    for plugin in report.by_severity() {
        let Columns { failed, passed, skipped, .. } = plugin.counts.columns();
        let [passed, failed, skipped] = [passed, failed, skipped].map(number);
        let nodes = if plugin.nodes.is_empty() { "-".into() } else { number(plugin.nodes.len()) };
        let took = plugin.duration.map_or_else(|| "-".into(), |span| spoken(span.seconds()));
        let (name, status) = (safe(plugin.name), safe(&plugin.status));
        writeln!(out, "| {name} | {status} | {passed} | {failed} | {skipped} | {nodes} | {took} |")?;
    }
    causes("Why it failed", &report.causes, out)?;
    causes("What is unknown, and why", &report.unknown_causes, out)?;
    slowest(report, out)
}

fn causes(title: &str, causes: &[Cause], out: &mut dyn Write) -> anyhow::Result<()> {
    if causes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n### {title}\n")?;
    for cause in causes.iter().take(CAUSES) {
        let (headline, _) = cause.headline();
        let (extent, plugins) = (cause.extent(), safe(&cause.plugins.join(", ")));
        writeln!(out, "* **{} × {}** ({extent}; {plugins})", number(cause.count), safe(&headline))?;
        for name in &cause.names {
            writeln!(out, "  * {}", safe(plain(name)))?;
        }
        let more = cause.tests().saturating_sub(cause.names.len());
        if more > 0 && !cause.names.is_empty() {
            writeln!(out, "  * and {} more", number(more))?;
        }
        if let Some(remedy) = &cause.remedy {
            writeln!(out, "  * **What helps:** {}", safe(remedy))?;
        }
    }
    if causes.len() > CAUSES {
        writeln!(out, "* and {}", count(causes.len() - CAUSES, "further cause"))?;
    }
    Ok(())
}

fn slowest(report: &Report<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut slowest = Vec::<(f64, String)>::new();
    for plugin in &report.plugins {
        plugin.cases.each(|case| {
            let Some(seconds) = case.duration else { return Ok(()) };
            let at = slowest.partition_point(|(other, _)| *other >= seconds);
            if at < SLOWEST {
                let node = case.node.map(|node| format!(" on {node}")).unwrap_or_default();
                slowest.insert(at, (seconds, format!("{}: {}{node}", plugin.name, plain(case.name))));
                slowest.truncate(SLOWEST);
            }
            Ok(())
        })?;
    }
    if !slowest.is_empty() {
        writeln!(out, "\n### The slowest\n\n| took | test |\n| ---: | --- |")?;
    }
    slowest.iter().try_for_each(|(took, name)| Ok(writeln!(out, "| {} | {} |", spoken(*took), safe(name))?))
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
