//! `sonobuoy results`: shows an archive, as text or for programs.

use std::io::{BufWriter, IsTerminal as _, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ArgMatches;
use clap::parser::ValueSource;

use super::flag::value;
use super::report::look as report_look;
use super::{output, usage};
use crate::remote::seal;
use crate::report::{self, Depth, Diff, Facts, Look, Many, Mode, Objects, Overview, View};

/// The value of `--facts` for all facts, not only those in tables.
const ALL: &str = "all";

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(("diff", matches)) = matches.subcommand() {
        return diff(matches);
    }
    value(matches, "mode").map(mode).transpose()?;
    let names = matches.get_many::<String>("archive").context("no archive given")?;
    let archives: Vec<&String> = names.collect();
    for archive in archives.iter().filter_map(|name| report::locate(name).ok()) {
        if seal::is_beside(archive.as_ref()) {
            log::info!("the seal of `{archive}` was not checked; `sonobuoy verify` checks it");
        }
    }
    let [archive] = archives[..] else { return many(matches, &archives) };
    if matches.contains_id("facts") {
        return facts(matches, archive).with_context(|| format!("could not process archive: {archive}"));
    }
    let people = is_for_people(matches);
    let mut out = BufWriter::with_capacity(64 << 10, if people { output::raw() } else { output::stdout() });
    let fail_on = value(matches, "fail-on").unwrap_or("never");
    let result = match value(matches, "format") {
        None | Some("text") if !people => show(matches, archive, fail_on, &mut out),
        format => {
            let format = format.filter(|format| *format != "text");
            let look = report_look(matches);
            export(archive, value(matches, "plugin"), value(matches, "node"), format, look, fail_on, &mut out)
        }
    };
    // Flush the output before reporting an error.
    out.flush()?;
    result.map(ExitCode::from).with_context(|| format!("could not process archive: {archive}"))
}

/// Whether to print the text report: requested, or by default on a terminal.
fn is_for_people(matches: &ArgMatches) -> bool {
    let given = matches.value_source("mode") == Some(ValueSource::CommandLine);
    let mode = matches.get_one::<String>("mode").map_or("", String::as_str);
    let is_text = matches.get_one::<String>("format").is_none_or(|format| format == "text");
    is_text && (mode == "summary" || !given && std::io::stdout().is_terminal())
}

fn facts(matches: &ArgMatches, archive: &str) -> anyhow::Result<ExitCode> {
    let whole = matches.get_one::<String>("facts").is_some_and(|word| word == ALL);
    let plugin = value(matches, "plugin");
    let facts = Facts::read(archive, plugin, whole)?;
    let format = matches.get_one::<String>("format").map_or("text", String::as_str);
    write_facts(&facts, format, report_look(matches))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints facts as a table, CSV or JSON.
pub(super) fn write_facts(facts: &Facts, format: &str, look: Look) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, output::stdout());
    match format {
        "json" => facts.write_json(&mut out)?,
        "csv" => facts.write_csv(&mut out)?,
        "text" | "table" => facts.write_text(look, &mut out)?,
        other => return Err(usage::error(format!("facts are shown as text, json or csv, not {other}"))),
    }
    Ok(out.flush()?)
}

/// Shows several archives side by side.
fn many(matches: &ArgMatches, archives: &[&String]) -> anyhow::Result<ExitCode> {
    let mut many = Many::default();
    let mut worst = None::<(u8, String)>;
    for archive in archives {
        let describe = || format!("could not process archive: {archive}");
        let opened = report::open(archive, value(matches, "plugin"), Depth::Run).with_context(describe)?;
        let overview = Overview::read(&opened, value(matches, "node")).with_context(describe)?;
        many.add(&overview).with_context(describe)?;
        let ending = overview.ending(value(matches, "fail-on").unwrap_or("never"));
        // 3 (something failed) is worse than 4.
        worst = match (worst, ending) {
            (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
            (a, b) => a.or(b.map(|(code, reason)| (code, format!("{archive}: {reason}")))),
        };
    }
    let mut out = BufWriter::with_capacity(64 << 10, output::stdout());
    match value(matches, "format") {
        Some("json") => many.write_json(&mut out)?,
        None | Some("text") => many.write_text(report_look(matches), &mut out)?,
        Some(format) => {
            return Err(usage::error(format!(
                "several archives are shown as a table: --format must be text or json, not {format}"
            )));
        }
    }
    out.flush()?;
    Ok(ExitCode::from(super::report::ending(worst)))
}

/// Values of `--mode` with the mode shown; the first means another report.
const MODES: [(&str, Mode); 5] = [
    ("summary", Mode::Report),
    ("report", Mode::Report),
    ("detailed", Mode::Detailed),
    ("dump", Mode::Dump),
    ("readable", Mode::Readable),
];

/// The mode of a word.
fn mode(word: &str) -> anyhow::Result<Mode> {
    let known = MODES.iter().find(|(name, _)| *name == word).map(|(_, mode)| *mode);
    known.ok_or_else(|| {
        let names = MODES.map(|(name, _)| name).join(", ");
        let hint = base::near::hint(word, MODES.map(|(name, _)| name));
        usage::error(format!("invalid argument {word:?} for \"--mode\": it must be one of {names}{hint}"))
    })
}

/// Shows an archive in a mode of the original.
fn show(matches: &ArgMatches, archive: &str, fail_on: &str, out: &mut impl Write) -> anyhow::Result<u8> {
    let mode = value(matches, "mode").map_or(Ok(Mode::Report), mode)?;
    let view = View { mode, node: value(matches, "node"), skip_prefix: matches.get_flag("skip-prefix") };
    let opened = report::open(archive, value(matches, "plugin"), Depth::Trees)?;
    report::show(&opened.source, &opened.files, &opened.plugins, view, out)?;
    if fail_on == "never" {
        return Ok(0);
    }
    out.flush()?;
    Ok(super::report::ending(Overview::read(&opened, view.node)?.ending(fail_on)))
}

/// Shows the text report, or writes another format.
fn export(
    archive: &str,
    plugin: Option<&str>,
    node: Option<&str>,
    format: Option<&str>,
    look: Look,
    fail_on: &str,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let depth = match format {
        None => Depth::Run,
        Some("html") => Depth::Page,
        Some(_) => Depth::Tests,
    };
    let opened = report::open(archive, plugin, depth)?;
    let overview = Overview::read(&opened, node)?;
    if let (Some(_), Some(error)) = (node, overview.plugins.iter().find_map(|plugin| plugin.error.as_ref()))
        && overview.plugins.iter().all(|plugin| plugin.error.is_some())
    {
        anyhow::bail!("{}: {error}", report::known_nodes(&opened.files, &opened.plugins));
    }
    match format {
        None => report::write_people(&overview, look, out)?,
        Some("json") => report::write_json(&overview, out)?,
        Some("html") => report::write_html(&overview, out)?,
        Some("junit") => report::write_junit(&overview, out)?,
        Some(format) => return Err(usage::error(format!("--format {format} needs --facts"))),
    }
    out.flush()?;
    Ok(super::report::ending(overview.ending(fail_on)))
}

/// `sonobuoy results diff`.
fn diff(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let open = |name: &str| {
        let archive = value(matches, name).context("two archives are needed")?;
        let opened = report::open(archive, None, Depth::Nodes);
        let mut opened = opened.with_context(|| format!("could not process archive: {archive}"))?;
        // A plugin may be in only one of them.
        opened.plugins.retain(|plugin| value(matches, "plugin").is_none_or(|only| only == plugin));
        anyhow::Ok(opened)
    };
    let (before, after) = (open("before")?, open("after")?);
    if let Some(plugin) = value(matches, "plugin") {
        let known = !before.plugins.is_empty() || !after.plugins.is_empty();
        anyhow::ensure!(known, "neither archive has results of the plugin `{plugin}`");
    }
    let diff = Diff::between(&before, &after)?;
    // Cluster objects do not belong to a single plugin.
    let objects = match value(matches, "plugin") {
        None => Objects::between(&before.source, &after.source)?,
        Some(_) => None,
    };
    let tests = objects.is_none() || !before.plugins.is_empty() || !after.plugins.is_empty();
    // Colours are written here; control characters in untrusted text are made visible.
    let colours = value(matches, "format").is_none_or(|format| format == "text");
    let mut out = BufWriter::with_capacity(64 << 10, if colours { output::raw() } else { output::stdout() });
    match value(matches, "format") {
        Some("json") => diff.write_json(&before, &after, objects.as_ref(), &mut out)?,
        Some("html") => report::write_diff_html(&diff, objects.as_ref(), &mut out)?,
        Some("junit") => report::write_diff_junit(&diff, &mut out)?,
        _ => {
            if tests {
                diff.write_text(report_look(matches), &mut out)?;
            }
            if tests && objects.is_some() {
                writeln!(out)?;
            }
            objects.iter().try_for_each(|objects| objects.write_text(&mut out))?;
        }
    }
    out.flush()?;
    Ok(ExitCode::from(super::report::ending(diff.ending(value(matches, "fail-on").unwrap_or("never")))))
}
