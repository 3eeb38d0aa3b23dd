//! The commands about archives: `sonobuoy results` shows them, as text or for programs, and
//! compares them; `verify` checks the seal of one, using only files.

use std::io::{IsTerminal as _, Write};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::afterwards::{annotate, ending, is_annotated, limit, look};
use super::flag::{Args, usage_error};
use super::retrieve::{fetch, interrupted_transfer, unpack};
use super::{cluster, containers, output};
use crate::remote::{Retrieval, seal};
use base::{near, temp};
use model::layout;
use model::verdict::{Exit, FailOn};
use report::{
    self, Depth, Diff, FactTables, Look, Many, Objects, OpenedArchive, Report, TextOutput, View,
    ViewMode, write_json,
};

/// The value of `--facts` for all facts, not only those in tables.
const ALL: &str = "all";

/// Runs `results`.
pub(crate) fn run(args: Args) -> Result<u8> {
    if let ("diff", args) = args.subcommand() {
        check_names(args)?;
        return diff(args);
    }
    check_names(args)?;
    if let Some(word) = args.all("archive").next()
        && !Path::new(word).exists()
        && !near::near(word, ["diff"]).is_empty()
    {
        return Err(usage_error(format!(
            "archive `{word}` does not exist; did you mean `results diff`?"
        )));
    }
    let fetched = (args.on("from-cluster") || args.on("live"))
        .then(|| from_cluster(args))
        .transpose()?;
    let archives: Vec<&str> = args
        .all("archive")
        .chain(fetched.iter().map(|(_, path)| path.as_str()))
        .collect();
    let is_sealed = are_seals_right(&archives);
    let ended = match archives[..] {
        [archive] if args.word("format") != "openmetrics" || args.text("facts").is_some() => {
            let mut out = output::buffered(is_for_people(args));
            let result = show(args, archive, &mut out);
            // Flush the output before reporting an error.
            out.flush()?;
            result.with_context(|| format!("could not process archive: {archive}"))?
        }
        _ => many(args, &archives)?,
    };
    Ok(end_report(ended, is_sealed))
}

/// Rejects empty names of archives, which would mean the current folder.
pub(super) fn check_names(args: Args) -> Result<()> {
    if ["archive", "before", "after"]
        .into_iter()
        .any(|id| args.all(id).any(str::is_empty))
    {
        return Err(usage_error(
            "the name of an archive is empty: is a variable unset?",
        ));
    }
    Ok(())
}

/// Whether no archive differs from the seal beside it. Warns of each that does.
fn are_seals_right(archives: &[&str]) -> bool {
    let mut are_right = true;
    for archive in archives.iter().filter_map(|name| report::locate(name).ok()) {
        let path = Path::new(&archive);
        // A checksum alone may be anybody's.
        if !path.is_file() || !layout::seal(path).iter().all(|part| part.exists()) {
            continue;
        }
        if let Err(error) = seal::check_file(path, None, false) {
            log::warn!("`{archive}` is not as it was sealed: {error:#}");
            are_right = false;
        }
    }
    are_right
}

/// The exit code of a report on archives with right seals or not: what an altered archive says
/// proves nothing.
fn end_report(exit: Option<Exit>, is_sealed: bool) -> u8 {
    if is_sealed { ending(exit) } else { 1 }
}

/// The archive of the run in the cluster, or its results so far, in a temporary folder.
fn from_cluster(args: Args) -> Result<(temp::Folder, String)> {
    let stop = output::stop_on_signal()?;
    let (namespace, client, service) = cluster::to_run(args, &stop)?;
    if let (Some(word), None) = (args.text("node"), args.text("namespace")) {
        log::info!(
            "looking in namespace `{namespace}`: `-n {word}` of `results` names a node, \
             `--namespace` a namespace"
        );
    }
    let folder = temp::Folder::new()?;
    let retrieval = Retrieval {
        client: client.as_ref(),
        service: service.as_ref(),
        partial: args.on("live"),
        keep_seal: false,
        ..Retrieval::new(&namespace, &folder)
    };
    let paths =
        fetch(args, &retrieval, &stop).map_err(|failure| match output::is_interrupted() {
            true => interrupted_transfer(failure),
            false => failure.into_error(),
        })?;
    // The rest needs no orderly end.
    output::exit_on_signal()?;
    // A persistent claim holds the archives of all runs.
    let newest = report::newest(&paths).context("the run has no archive yet")?;
    if !args.on("live") {
        return Ok((folder, newest.display().to_string()));
    }
    let unpacked = folder.join("live");
    unpack(newest, &unpacked)?;
    if !unpacked.join(layout::INFO).exists() {
        containers::process(&unpacked)?;
        log::warn!("the run has not ended; the report covers the results so far");
    }
    Ok((folder, unpacked.display().to_string()))
}

/// Whether to print the text report: requested, or by default on a terminal.
fn is_for_people(args: Args) -> bool {
    let is_default = !args.given("mode") && std::io::stdout().is_terminal();
    args.word("format") == "text"
        && args.text("facts").is_none()
        && (is_default || args.word("mode") == "summary")
}

/// Shows one archive; returns the exit code of `--fail-on` with its reason.
fn show(args: Args, name: &str, out: &mut impl Write) -> Result<Option<Exit>> {
    let (plugin, node) = (args.text("plugin"), args.text("node"));
    let format = args.word("format");
    if let Some(word) = args.text("facts") {
        let depth = if word == ALL {
            Depth::Page
        } else {
            Depth::Nodes
        };
        write_facts(
            &OpenedArchive::open(name, None, depth)?.facts.only(plugin),
            format,
            look(args),
            out,
        )?;
        return Ok(None);
    }
    let as_original = format == "text" && !is_for_people(args);
    // An unfinished run has no list of its plugins yet.
    let unfinished = args.on("live") && !Path::new(name).join(layout::INFO).exists();
    let depth = match format {
        "text" if as_original && !unfinished => Depth::Trees,
        "html" => Depth::Page,
        _ => Depth::Tests,
    };
    let archive = OpenedArchive::open(name, plugin, depth)?;
    if as_original {
        let mode = match args.word("mode") {
            "detailed" => ViewMode::Detailed,
            "dump" => ViewMode::Dump,
            "readable" => ViewMode::Readable,
            _ => ViewMode::Report,
        };
        let view = View {
            mode,
            node,
            skip_prefix: args.on("skip-prefix"),
        };
        let exit = judge_original(args, name, &archive);
        view.show(&archive, &archive.plugins, out)?;
        return exit;
    }
    let mut report = Report::read(&archive, node)?;
    if let (Some(_), Some(error)) = (
        node,
        report
            .plugins
            .iter()
            .find_map(|plugin| plugin.error.as_ref()),
    ) && report.plugins.iter().all(|plugin| plugin.error.is_some())
    {
        bail!("{}: {error}", report::known_nodes(&archive)?);
    }
    if is_annotated(args) || !["html", "junit"].contains(&format) {
        report.explain()?;
        annotate(args, &report);
    }
    let exit = report.exit(limit(args));
    match format {
        "html" => report::write_html(&report, None, out)?,
        "junit" => report::write_junit(&report, out)?,
        "text" => {
            if args.on("from-cluster") {
                // Its file is temporary.
                report.archive = "--from-cluster";
            }
            TextOutput {
                look: look(args),
                out,
            }
            .report(&report)?;
        }
        "json" => write_json(&report, out)?,
        "yaml" => write!(out, "{}", yaml::write(&serde_json::to_value(&report)?))?,
        "markdown" => report::write_markdown(&report, out)?,
        format => return Err(usage_error(format!("--format {format} needs --facts"))),
    }
    out.flush()?;
    Ok(exit)
}

/// The exit code of `--fail-on`, with its reason, of an archive that is shown as the original does;
/// annotates the archive.
fn judge_original(args: Args, name: &str, archive: &OpenedArchive) -> Result<Option<Exit>> {
    let annotated = is_annotated(args);
    if !limit(args).judges() && !annotated {
        return Ok(None);
    }
    // What the original shows does not depend on where it is shown.
    let deeper = (annotated && name != "-")
        .then(|| OpenedArchive::open(name, args.text("plugin"), Depth::Tests))
        .transpose()?;
    let mut report = Report::read(deeper.as_ref().unwrap_or(archive), args.text("node"))?;
    if annotated {
        report.explain()?;
        annotate(args, &report);
    }
    Ok(report.exit(limit(args)))
}

/// Prints facts as a table, CSV or JSON.
pub(super) fn write_facts(
    facts: &FactTables,
    format: &str,
    look: Look,
    out: &mut dyn Write,
) -> Result<()> {
    match format {
        "json" => Ok(writeln!(out, "{:#}", facts.json()?)?),
        "csv" => facts.write_csv(out),
        "text" | "table" => facts.write_text(&mut TextOutput { look, out }),
        other => Err(usage_error(format!(
            "facts are shown as text, json or csv, not {other}"
        ))),
    }
}

/// Adds an archive to others; returns the worst exit code with its reason.
pub(super) fn add(
    args: Args,
    many: &mut Many,
    archive: &str,
    cluster: Option<&str>,
    worst: Option<Exit>,
) -> Result<Option<Exit>> {
    let mut add = || {
        // Other commands have a flag of that name, too.
        let only = |id| args.text(id).filter(|_| cluster.is_none());
        let opened = OpenedArchive::open(archive, only("plugin"), Depth::Nodes)?;
        let mut report = Report::read(&opened, only("node"))?;
        many.add(&mut report, cluster)?;
        anyhow::Ok(report.exit(limit(args)))
    };
    let ended = add().with_context(|| format!("could not process archive: {archive}"))?;
    let name = cluster.unwrap_or(archive);
    let ended = ended.map(|exit| Exit {
        reason: format!("{name}: {}", exit.reason),
        ..exit
    });
    Ok(Exit::worse(worst, ended))
}

/// Shows several archives side by side; returns the worst exit code with its reason.
fn many(args: Args, archives: &[&str]) -> Result<Option<Exit>> {
    let mut many = Many::default();
    let mut worst = None;
    for archive in archives {
        worst = add(args, &mut many, archive, None, worst)?;
    }
    let mut out = output::buffered(false);
    match args.word("format") {
        "json" => writeln!(out, "{:#}", many.json())?,
        "text" => many.write_text(&mut TextOutput {
            look: look(args),
            out: &mut out,
        })?,
        "openmetrics" => out.write_all(many.metrics().as_bytes())?,
        "junit" => report::write_many_junit(&many, &mut out)?,
        "html" => {
            let opened = OpenedArchive::open(many.newest(), args.text("plugin"), Depth::Page)?;
            report::write_html(
                &Report::read(&opened, args.text("node"))?,
                Some(&many),
                &mut out,
            )?;
        }
        format => {
            return Err(usage_error(format!(
                "several archives are shown side by side: --format must be text, json, junit, \
                 html or openmetrics, not {format}"
            )));
        }
    }
    out.flush()?;
    Ok(worst)
}

/// `sonobuoy results diff`.
fn diff(args: Args) -> Result<u8> {
    let plugin = args.text("plugin");
    let open = |name: &str| {
        let archive = args.text(name).context("two archives are needed")?;
        let opened = OpenedArchive::open(archive, None, Depth::Nodes);
        let mut opened = opened.with_context(|| format!("could not process archive: {archive}"))?;
        // A plugin may be in only one of them.
        opened
            .plugins
            .retain(|name| plugin.is_none_or(|only| only == name));
        anyhow::Ok(opened)
    };
    let is_sealed = are_seals_right(&[args.word("before"), args.word("after")]);
    let (before, after) = (open("before")?, open("after")?);
    let tests = !before.plugins.is_empty() || !after.plugins.is_empty();
    if let Some(plugin) = plugin {
        ensure!(
            tests,
            "neither archive has results of the plugin `{plugin}`"
        );
    }
    let mut diff = Diff::between(&before, &after)?;
    // Cluster objects do not belong to a single plugin.
    if plugin.is_none() {
        diff.objects = Objects::between(&before.source, &after.source)?;
    }
    let format = args.word("format");
    let mut out = output::buffered(format == "text");
    match format {
        "json" => write_json(&diff.json(), &mut out)?,
        "html" => report::write_diff_html(&diff, &mut out)?,
        "junit" => report::write_diff_junit(&diff, &mut out)?,
        _ => {
            if tests || diff.objects.is_none() {
                diff.write_text(&mut TextOutput {
                    look: look(args),
                    out: &mut out,
                })?;
            }
            if let Some(objects) = &diff.objects {
                out.write_all(if tests { b"\n" } else { b"" })?;
                objects.write_text(&mut TextOutput {
                    look: Look::default(),
                    out: &mut out,
                })?;
            }
        }
    }
    out.flush()?;
    Ok(end_report(
        diff.exit(FailOn::parse(args.word("fail-on"))),
        is_sealed,
    ))
}

/// Runs `verify`.
pub(crate) fn verify(args: Args) -> Result<()> {
    check_names(args)?;
    let archive = report::locate(args.word("archive"))?;
    let archive = Path::new(&archive);
    ensure!(
        !archive.is_dir(),
        "`{}` is an unpacked archive; only the packed one is sealed",
        archive.display()
    );
    let digest_only = args.on("digest-only");
    let checked = seal::check_file(archive, args.text("authority").map(Path::new), digest_only)?;
    let statement = &checked.statement;
    let own = archive.file_name().unwrap_or_default().to_string_lossy();
    let renamed = if own == statement.name {
        String::new()
    } else {
        format!(", sealed as `{}`", statement.name)
    };
    if let Some(authority) = &checked.authority {
        let (run, size, sha256) = (&statement.run, statement.size, &statement.sha256);
        let origin = authority.origin();
        output::line(format!(
            "{own}{renamed}: OK, sealed by run {run}: {size} bytes, SHA-256 {sha256}; authority \
             {origin}"
        ));
    } else {
        ensure!(
            digest_only,
            "`{own}` has the size and SHA-256 that its seal states, but who sealed it is unknown: \
             the certificate of the authority of run {} is not kept here; name the file that has \
             it with `--authority`, or accept the digest alone with `--digest-only`",
            statement.run
        );
        output::line(format!("{own}{renamed}: digest OK, seal not checked"));
    }
    Ok(())
}
