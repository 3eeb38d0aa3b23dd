//! `sonobuoy results`: an archive for people and for programs.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ArgMatches;

use super::output;
use crate::report::{self, Depth, Diff, Look, Mode, Objects, Overview, View};
use base::sys;

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(("diff", matches)) = matches.subcommand() {
        return diff(matches);
    }
    let text =
        |name: &str| matches.get_one::<String>(name).map(String::as_str).filter(|text| !text.is_empty());
    let archive = text("archive").context("no archive given")?;
    let mut out = BufWriter::with_capacity(64 << 10, output::stdout());
    let fail_on = text("fail-on").unwrap_or("never");
    let result = match text("format") {
        None | Some("text") => show(matches, archive, fail_on, &mut out),
        Some(format) => export(archive, text("plugin"), text("node"), format, fail_on, &mut out),
    };
    // What was found out before an error is shown before it.
    out.flush()?;
    result.map(ExitCode::from).with_context(|| format!("could not process archive: {archive}"))
}

/// The modes of the original.
fn show(matches: &ArgMatches, archive: &str, fail_on: &str, out: &mut impl Write) -> anyhow::Result<u8> {
    let text =
        |name: &str| matches.get_one::<String>(name).map(String::as_str).filter(|text| !text.is_empty());
    let mode = match text("mode") {
        Some("detailed") => Mode::Detailed,
        Some("dump") => Mode::Dump,
        Some("readable") => Mode::Readable,
        _ => Mode::Report,
    };
    let view = View { mode, node: text("node"), skip_prefix: matches.get_flag("skip-prefix") };
    let opened = report::open(archive, text("plugin"), Depth::Trees)?;
    report::show(&opened.source, &opened.files, &opened.plugins, view, out)?;
    if fail_on == "never" {
        return Ok(0);
    }
    Ok(Overview::read(&opened, view.node)?.exit_code(fail_on))
}

/// The other formats.
fn export(
    archive: &str,
    plugin: Option<&str>,
    node: Option<&str>,
    format: &str,
    fail_on: &str,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let opened = report::open(archive, plugin, Depth::Whole)?;
    let overview = Overview::whole(&opened, node)?;
    if let (Some(node), Some(error)) =
        (node, overview.plugins.iter().find_map(|plugin| plugin.error.as_ref()))
        && overview.plugins.iter().all(|plugin| plugin.error.is_some())
    {
        anyhow::bail!("nothing is known of {node:?}: {error}");
    }
    match format {
        "json" => report::write_json(&overview, out)?,
        "html" => report::write_html(&overview, out)?,
        "junit" => report::write_junit(&overview, out)?,
        _ => anyhow::bail!("unknown format `{format}`"),
    }
    Ok(overview.exit_code(fail_on))
}

/// `sonobuoy results diff`.
fn diff(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let text =
        |name: &str| matches.get_one::<String>(name).map(String::as_str).filter(|text| !text.is_empty());
    let open = |name: &str| {
        let archive = text(name).context("two archives are needed")?;
        let opened = report::open(archive, None, Depth::Whole);
        let mut opened = opened.with_context(|| format!("could not process archive: {archive}"))?;
        // A plugin may be in one of them only.
        opened.plugins.retain(|plugin| text("plugin").is_none_or(|only| only == plugin));
        anyhow::Ok(opened)
    };
    let (before, after) = (open("before")?, open("after")?);
    if let Some(plugin) = text("plugin") {
        let known = !before.plugins.is_empty() || !after.plugins.is_empty();
        anyhow::ensure!(known, "neither archive has results of the plugin `{plugin}`");
    }
    let diff = Diff::between(&before, &after)?;
    // One plugin has no objects of the cluster.
    let objects = match text("plugin") {
        None => Objects::between(&before.source, &after.source)?,
        Some(_) => None,
    };
    let tests = objects.is_none() || !before.plugins.is_empty() || !after.plugins.is_empty();
    // Colours are ours; the names of others are shown in words.
    let colours = text("format") != Some("json");
    let mut out = BufWriter::with_capacity(64 << 10, if colours { output::raw() } else { output::stdout() });
    match text("format") {
        Some("json") => diff.write_json(&before, &after, objects.as_ref(), &mut out)?,
        _ => {
            if tests {
                diff.write_text(look(), &mut out)?;
            }
            if tests && objects.is_some() {
                writeln!(out)?;
            }
            objects.iter().try_for_each(|objects| objects.write_text(&mut out))?;
        }
    }
    out.flush()?;
    Ok(ExitCode::from(diff.exit_code(text("fail-on").unwrap_or("never"))))
}

/// Colours and a width only for a terminal; `NO_COLOR` leaves the colours out.
fn look() -> Look {
    let Some(width) = sys::stdout_width() else { return Look::default() };
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && sys::colours();
    Look { colour, width: Some(width).filter(|width| *width > 0) }
}
