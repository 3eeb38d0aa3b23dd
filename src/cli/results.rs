//! `sonobuoy results`: shows an archive, as text or for programs.

use std::io::{BufWriter, IsTerminal as _, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ArgMatches;
use clap::parser::ValueSource;

use super::annotate::{self, annotate};
use super::flag::{Args, value};
use super::report::{ending, look};
use super::retrieve::fetch;
use super::{cluster, output, shown, usage};
use crate::names::RUNS_DIR;
use crate::remote::{Failure, Retrieval, seal};
use crate::report::{
    self, Archive, Depth, Diff, Facts, Look, Many, Mode, Objects, Report, Terminal, View, write_json,
};
use base::temp;

/// The value of `--facts` for all facts, not only those in tables.
const ALL: &str = "all";

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(("diff", matches)) = matches.subcommand() {
        return diff(matches);
    }
    let mode = value(matches, "mode").map_or(Ok(Mode::Report), mode)?;
    let fetched = Args(matches).on("from-cluster").then(|| from_cluster(Args(matches))).transpose()?;
    let fetched = fetched.as_ref().map(|(_, path)| path);
    let names = matches.get_many::<String>("archive").into_iter().flatten();
    let archives: Vec<&String> = names.chain(fetched).collect();
    for archive in archives.iter().filter_map(|name| report::locate(name).ok()) {
        if seal::is_beside(archive.as_ref()) {
            log::info!("the seal of `{archive}` was not checked; `sonobuoy verify` checks it");
        }
    }
    let [archive] = archives[..] else { return many(matches, &archives) };
    if value(matches, "format") == Some("openmetrics") && !matches.contains_id("facts") {
        return many(matches, &archives);
    }
    let people = is_for_people(matches);
    let mut out = BufWriter::with_capacity(64 << 10, if people { output::raw() } else { output::stdout() });
    let result = show(matches, archive, mode, &mut out);
    // Flush the output before reporting an error.
    out.flush()?;
    let ended = result.with_context(|| format!("could not process archive: {archive}"))?;
    Ok(ExitCode::from(ending(ended)))
}

/// The archive of the run in the cluster, in a temporary folder.
fn from_cluster(args: Args) -> anyhow::Result<(temp::Folder, String)> {
    let stop = shown::stop_on_signal()?;
    let client = cluster::client(args, &stop)?;
    let namespace = cluster::namespace_of_run(args)?;
    let folder = temp::Folder::new().context("cannot create a temporary folder")?;
    let retrieval = Retrieval {
        client: Some(&client),
        namespace: &namespace,
        from: RUNS_DIR,
        into: &folder,
        name: None,
        partial: false,
        service: None,
        force: false,
        keep_seal: false,
        watch: &|_, _| (),
    };
    let paths = fetch(args, &retrieval, &stop).map_err(|failure| match failure {
        Failure::Unasked(error) | Failure::NotReady(error) | Failure::Transfer(error) => error,
    })?;
    // A persistent claim holds the archives of all runs; names begin with the time.
    let newest = paths.iter().max().context("the run has no archive yet")?.display().to_string();
    Ok((folder, newest))
}

/// Whether to print the text report: requested, or by default on a terminal.
fn is_for_people(matches: &ArgMatches) -> bool {
    let given = matches.value_source("mode") == Some(ValueSource::CommandLine);
    let mode = value(matches, "mode").unwrap_or_default();
    let is_text = value(matches, "format").is_none_or(|format| format == "text");
    let summary = mode == "summary" || !given && std::io::stdout().is_terminal();
    is_text && summary && !matches.contains_id("facts")
}

/// Shows one archive; returns the exit code of `--fail-on` with its reason.
fn show(
    matches: &ArgMatches,
    name: &str,
    mode: Mode,
    out: &mut impl Write,
) -> anyhow::Result<Option<(u8, String)>> {
    let (plugin, node) = (value(matches, "plugin"), value(matches, "node"));
    let format = value(matches, "format").unwrap_or("text");
    if let Some(word) = value(matches, "facts") {
        write_facts(&Facts::read(name, plugin, word == ALL)?, format, look(matches), out)?;
        return Ok(None);
    }
    let as_original = format == "text" && !is_for_people(matches);
    let depth = match format {
        "text" if as_original => Depth::Trees,
        "text" => Depth::Run,
        "html" => Depth::Page,
        _ => Depth::Tests,
    };
    let limit = value(matches, "fail-on").unwrap_or("never");
    let archive = Archive::open(name, plugin, depth)?;
    if as_original {
        let view = View { mode, node, skip_prefix: matches.get_flag("skip-prefix") };
        view.show(&archive, &archive.plugins, out)?;
        out.flush()?;
        let annotated = annotate::is_on(matches);
        if limit == "never" && !annotated {
            return Ok(None);
        }
        // What the original shows does not depend on where it is shown.
        let again = annotated && name != "-";
        let again = again.then(|| Archive::open(name, plugin, Depth::Tests));
        let archive = again.transpose()?.unwrap_or(archive);
        let mut report = Report::read(&archive, node)?;
        if annotated {
            report.explain()?;
            annotate(matches, &report);
        }
        return Ok(report.ending(limit));
    }
    let mut report = Report::read(&archive, node)?;
    if let (Some(_), Some(error)) = (node, report.plugins.iter().find_map(|plugin| plugin.error.as_ref()))
        && report.plugins.iter().all(|plugin| plugin.error.is_some())
    {
        anyhow::bail!("{}: {error}", report::known_nodes(&archive)?);
    }
    if !["html", "junit"].contains(&format) || annotate::is_on(matches) {
        report.explain()?;
        annotate(matches, &report);
    }
    match format {
        "html" => report::write_html(&report, out)?,
        "junit" => report::write_junit(&report, out)?,
        "text" => Terminal { look: look(matches), out }.report(&report)?,
        "json" => write_json(&report, out)?,
        "markdown" => report::write_markdown(&report, out)?,
        format => return Err(usage::error(format!("--format {format} needs --facts"))),
    }
    out.flush()?;
    Ok(report.ending(limit))
}

/// Prints facts as a table, CSV or JSON.
pub(super) fn write_facts(
    facts: &Facts,
    format: &str,
    look: Look,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match format {
        "json" => Ok(writeln!(out, "{:#}", facts.json()?)?),
        "csv" => facts.write_csv(out),
        "text" | "table" => facts.write_text(&mut Terminal { look, out }),
        other => Err(usage::error(format!("facts are shown as text, json or csv, not {other}"))),
    }
}

/// Shows several archives side by side.
fn many(matches: &ArgMatches, archives: &[&String]) -> anyhow::Result<ExitCode> {
    let mut many = Many::default();
    let mut worst = None::<(u8, String)>;
    for archive in archives {
        let mut add = || {
            let opened = Archive::open(archive, value(matches, "plugin"), Depth::Run)?;
            let report = Report::read(&opened, value(matches, "node"))?;
            many.add(&report)?;
            anyhow::Ok(report.ending(value(matches, "fail-on").unwrap_or("never")))
        };
        let ended = add().with_context(|| format!("could not process archive: {archive}"))?;
        // 3 (something failed) is worse than 4.
        let ended = ended.map(|(code, reason)| (code, format!("{archive}: {reason}")));
        worst = worst.into_iter().chain(ended).min_by_key(|(code, _)| *code);
    }
    let mut out = BufWriter::with_capacity(64 << 10, output::stdout());
    match value(matches, "format").unwrap_or("text") {
        "json" => writeln!(out, "{:#}", many.json())?,
        "text" => many.write_text(&mut Terminal { look: look(matches), out: &mut out })?,
        "openmetrics" => out.write_all(many.metrics().as_bytes())?,
        format => {
            return Err(usage::error(format!(
                "several archives are shown as a table: --format must be text, json or openmetrics, not {format}"
            )));
        }
    }
    out.flush()?;
    Ok(ExitCode::from(ending(worst)))
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

/// `sonobuoy results diff`.
fn diff(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let plugin = value(matches, "plugin");
    let open = |name: &str| {
        let archive = value(matches, name).context("two archives are needed")?;
        let opened = Archive::open(archive, None, Depth::Nodes);
        let mut opened = opened.with_context(|| format!("could not process archive: {archive}"))?;
        // A plugin may be in only one of them.
        opened.plugins.retain(|name| plugin.is_none_or(|only| only == name));
        anyhow::Ok(opened)
    };
    let (before, after) = (open("before")?, open("after")?);
    let tests = !before.plugins.is_empty() || !after.plugins.is_empty();
    if let Some(plugin) = plugin {
        anyhow::ensure!(tests, "neither archive has results of the plugin `{plugin}`");
    }
    let mut diff = Diff::between(&before, &after)?;
    // Cluster objects do not belong to a single plugin.
    if plugin.is_none() {
        diff.objects = Objects::between(&before.source, &after.source)?;
    }
    // Colours are written here; control characters in untrusted text are made visible.
    let format = value(matches, "format").unwrap_or("text");
    let out = if format == "text" { output::raw() } else { output::stdout() };
    let mut out = BufWriter::with_capacity(64 << 10, out);
    match format {
        "json" => write_json(&diff, &mut out)?,
        "html" => report::write_diff_html(&diff, &mut out)?,
        "junit" => report::write_diff_junit(&diff, &mut out)?,
        _ => {
            if tests || diff.objects.is_none() {
                diff.write_text(&mut Terminal { look: look(matches), out: &mut out })?;
            }
            if let Some(objects) = &diff.objects {
                out.write_all(if tests { b"\n" } else { b"" })?;
                objects.write_text(&mut Terminal { look: Look::default(), out: &mut out })?;
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::from(ending(diff.ending(value(matches, "fail-on").unwrap_or("never")))))
}
