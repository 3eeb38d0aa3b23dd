//! The commands about archives: `sonobuoy results` shows them, as text or for programs, and
//! compares them; `verify` checks the seal of one, using only files.

use std::fs;
use std::io::{BufWriter, IsTerminal as _, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::cluster::{ClusterFlags, CredentialsFlag, RunAccess};
use super::color::ColorChoice;
use super::comparison::{self, check_names, check_seal_beside};
use super::flag::{Filled as _, examples, usage_error, words};
use super::transfer::{fetch, interrupted_transfer, unpack};
use super::verdict::{VerdictFlags, annotate, ending};
use super::{containers, output};
use crate::remote::{Retrieval, seal};
use base::at::At as _;
use base::{near, sys, temp};
use clap::builder::TypedValueParser as _;
use model::layout;
use model::verdict::{Exit, FailOn, Limit};
use report::{
    self, Depth, Diff, FactTables, Look, Many, Objects, OpenedArchive, Report, TextOutput, View,
    ViewMode, write_json,
};

/// How long a browser may take to report that it cannot start, and how often it is asked.
const BROWSER_START: Duration = Duration::from_secs(2);
const BROWSER_TICK: Duration = Duration::from_millis(50);

/// Report on an archive
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = examples(&[
        ("Report on the newest archive in this folder", "sonobuoy results latest"),
        ("The same as a page in a browser", "sonobuoy results latest --open"),
        ("Report on the run in the cluster", "sonobuoy results --from-cluster"),
        ("Compare two runs", "sonobuoy results diff before.tar.gz after.tar.gz"),
    ])
)]
pub(crate) struct ResultsArgs {
    #[command(subcommand)]
    command: Option<ResultsCommand>,
    /// Archive, unpacked folder, folder of archives, `latest`, or - for stdin; several give a table
    #[arg(
        id = "archive",
        value_name = "ARCHIVE",
        required_unless_present_any = ["from_cluster", "live"]
    )]
    archives: Vec<String>,
    /// Fetch the archive of the run in the cluster, and report on it
    #[arg(long, conflicts_with = "archive")]
    from_cluster: bool,
    /// Report on the results that an unfinished run in the cluster has so far
    #[arg(long, conflicts_with_all = ["archive", "from_cluster"])]
    live: bool,
    /// With --from-cluster and --live: namespace of the run
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    credentials: CredentialsFlag,
    /// Only this plugin; `sonobuoy` is the health of the cluster
    #[arg(short, long, value_name = "NAME")]
    plugin: Option<String>,
    #[arg(
        short,
        long,
        value_name = "WORD",
        help = "How much to print; on a terminal, the default is summary [default: report]"
    )]
    mode: Option<ResultsMode>,
    /// Only this item of the tree, such as a node
    #[arg(short, long, value_name = "NAME")]
    node: Option<String>,
    /// With --mode=detailed: no file names before lines
    #[arg(short, long)]
    skip_prefix: bool,
    /// What nodes are made of, reach and log, a row for each; with `all`, every fact that differs
    #[arg(
        long,
        value_name = "WORD",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "nodes"
    )]
    facts: Option<FactChoice>,
    /// What to print: text, json, junit, an html page, or markdown; csv of facts; openmetrics for
    /// monitoring
    #[arg(
        short = 'o',
        long,
        value_name = "WORD",
        value_enum,
        default_value_t = ResultsFormat::Text
    )]
    format: ResultsFormat,
    /// Write the html page into a temporary file, print its name, and show it in a browser
    #[arg(long, conflicts_with_all = ["format", "facts", "mode"])]
    open: bool,
    #[command(flatten)]
    color: ColorFlag,
    #[command(flatten)]
    verdict: VerdictFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

impl ResultsArgs {
    fn format(&self) -> ResultsFormat {
        if self.open {
            ResultsFormat::Html
        } else {
            self.format
        }
    }
}

#[derive(clap::Subcommand)]
enum ResultsCommand {
    Diff(DiffArgs),
}

/// Colours of the text report
#[derive(Clone, Copy, clap::Args)]
struct ColorFlag {
    /// Whether the text report has colours
    #[arg(long, value_name = "WORD", value_enum, default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// How much of an archive to print.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ResultsMode {
    Summary,
    Report,
    Detailed,
    Dump,
    Readable,
}

/// Which facts to print.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FactChoice {
    Nodes,
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ResultsFormat {
    Text,
    Json,
    Yaml,
    Junit,
    Html,
    Markdown,
    Csv,
    #[value(name = "openmetrics")]
    OpenMetrics,
}

impl ResultsFormat {
    fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What changed between two archives
#[derive(clap::Args)]
struct DiffArgs {
    /// The earlier archive, as for `results`
    #[arg(value_name = "BEFORE")]
    before: String,
    /// The later archive
    #[arg(value_name = "AFTER")]
    after: String,
    /// Only this plugin
    #[arg(short, long, value_name = "NAME")]
    plugin: Option<String>,
    /// What to print: text, json, junit, or an html page
    #[arg(
        short = 'o',
        long,
        value_name = "WORD",
        value_enum,
        default_value_t = DiffFormat::Text
    )]
    format: DiffFormat,
    #[command(flatten)]
    color: ColorFlag,
    /// Exit with 3 (newly failed, flaky) or 4 (newly unknown, vanished) when something became this
    /// bad or worse
    #[arg(
        long,
        value_name = "WORD",
        default_value = "never",
        value_parser = words(&FAIL_ON_CHANGES).map(FailOn::parse)
    )]
    fail_on: FailOn,
}

/// The words of `--fail-on` of `results diff`.
const FAIL_ON_CHANGES: [&str; 6] = [
    "failed",
    "unknown",
    "incomplete",
    "vanished",
    "flaky",
    "never",
];

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DiffFormat {
    Text,
    Json,
    Junit,
    Html,
}

/// Check the seal of an archive; needs no cluster
#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    /// Archive with its seal beside it
    #[arg(value_name = "ARCHIVE")]
    archive: String,
    #[arg(
        long,
        value_name = "FILE",
        help = "Certificate of the run's authority (PEM) [default: the one that `run` has kept]"
    )]
    authority: Option<String>,
    /// Check only size and digest, without the signature
    #[arg(long)]
    digest_only: bool,
}

/// Runs `results`.
pub(crate) fn run(args: &ResultsArgs) -> Result<u8> {
    if let Some(ResultsCommand::Diff(args)) = &args.command {
        check_names([&args.before, &args.after])?;
        return diff(args);
    }
    check_names(&args.archives)?;
    if let Some(word) = args.archives.first()
        && !Path::new(word).exists()
        && !near::similar(word, ["diff"]).is_empty()
    {
        return Err(usage_error(format!(
            "archive `{word}` does not exist; did you mean `results diff`?"
        )));
    }
    let fetched = (args.from_cluster || args.live)
        .then(|| from_cluster(args))
        .transpose()?;
    let archives: Vec<&str> = args
        .archives
        .iter()
        .chain(fetched.iter().map(|(_, path)| path))
        .map(String::as_str)
        .collect();
    let is_sealed = are_seals_right(&archives);
    let ended = if args.open {
        let (path, file) = temp::remaining("sonobuoy-report-", ".html")?;
        let mut page = BufWriter::new(file);
        let written = show_all(args, &archives, &mut page);
        let ended = written.inspect_err(|_| drop(fs::remove_file(&path)))?;
        output::line(path.display());
        open_in_browser(&path)?;
        ended
    } else {
        show_all(args, &archives, &mut output::buffered(is_for_people(args)))?
    };
    Ok(end_report(ended, is_sealed))
}

/// Shows one archive, or several side by side; returns the exit code of `--fail-on` with its
/// reason.
fn show_all(
    args: &ResultsArgs,
    archives: &[&str],
    out: &mut BufWriter<impl Write>,
) -> Result<Option<Exit>> {
    match archives[..] {
        [archive] if args.format() != ResultsFormat::OpenMetrics || args.facts.is_some() => {
            let result = show(args, archive, out);
            // Flush the output before reporting an error.
            out.flush()?;
            result.with_context(|| format!("could not process archive: {archive}"))
        }
        _ => many(args, archives, out),
    }
}

/// Shows a page in the user's browser: the program in `BROWSER`, else that of the desktop. It is
/// not waited for beyond its start.
fn open_in_browser(page: &Path) -> Result<()> {
    let browser = sys::variable("BROWSER");
    let (program, first_args) = match &browser {
        Some(program) => (program.as_str(), &[][..]),
        None => (sys::OPENER[0], &sys::OPENER[1..]),
    };
    let failure = |reason: String| {
        anyhow!(
            "`{program}` cannot show the page: {reason}; open `{}` yourself",
            page.display()
        )
    };
    let mut command = Command::new(sys::program(Path::new(program)));
    command.args(first_args).arg(page);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|error| failure(error.to_string()))?;
    let begun = Instant::now();
    let stop = output::stop_on_signal()?;
    while begun.elapsed() < BROWSER_START && !stop.wait(BROWSER_TICK) {
        match child.try_wait()? {
            None => {}
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(failure(status.to_string())),
        }
    }
    Ok(())
}

/// Whether no archive differs from the seal beside it. Warns of each that does.
fn are_seals_right(archives: &[&str]) -> bool {
    let mut are_right = true;
    for archive in archives {
        if let Err(error) = check_seal_beside(archive) {
            log::warn!("{error:#}");
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
fn from_cluster(args: &ResultsArgs) -> Result<(temp::Folder, String)> {
    let stop = output::stop_on_signal()?;
    let access = RunAccess {
        cluster: &args.cluster,
        namespace: args.namespace.as_deref(),
        credentials: args.credentials.credentials.as_deref(),
    };
    let (namespace, client, service) = access.connect(&stop)?;
    if let (Some(word), None) = (args.node.filled(), args.namespace.filled()) {
        log::info!(
            "looking in namespace `{namespace}`: `-n {word}` of `results` names a node, \
             `--namespace` a namespace"
        );
    }
    let folder = temp::Folder::new()?;
    let retrieval = Retrieval {
        client: client.as_ref(),
        service: service.as_ref(),
        partial: args.live,
        keep_seal: false,
        ..Retrieval::new(&namespace, &folder)
    };
    let paths =
        fetch(None, &retrieval, &stop).map_err(|failure| match output::is_interrupted() {
            true => interrupted_transfer(failure),
            false => failure.into_error(),
        })?;
    // The rest needs no orderly end.
    output::exit_on_signal()?;
    // A persistent claim holds the archives of all runs.
    let newest = report::newest(&paths).context("the run has no archive yet")?;
    if !args.live {
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
fn is_for_people(args: &ResultsArgs) -> bool {
    let is_default = args.mode.is_none() && std::io::stdout().is_terminal();
    args.format() == ResultsFormat::Text
        && args.facts.is_none()
        && (is_default || args.mode == Some(ResultsMode::Summary))
}

/// Shows one archive; returns the exit code of `--fail-on` with its reason.
fn show(args: &ResultsArgs, name: &str, out: &mut impl Write) -> Result<Option<Exit>> {
    let (plugin, node) = (args.plugin.filled(), args.node.filled());
    let format = args.format();
    if let Some(choice) = args.facts {
        let depth = if choice == FactChoice::All {
            Depth::Page
        } else {
            Depth::Nodes
        };
        write_facts(
            &OpenedArchive::open(name, None, depth)?.facts.only(plugin),
            facts_format(format)?,
            args.color.color.resolve(),
            out,
        )?;
        return Ok(None);
    }
    let as_original = format == ResultsFormat::Text && !is_for_people(args);
    // An unfinished run has no list of its plugins yet.
    let unfinished = args.live && !Path::new(name).join(layout::INFO).exists();
    let depth = match format {
        ResultsFormat::Text if as_original && !unfinished => Depth::Trees,
        ResultsFormat::Html => Depth::Page,
        _ => Depth::Tests,
    };
    let archive = OpenedArchive::open(name, plugin, depth)?;
    if as_original {
        let mode = match args.mode {
            Some(ResultsMode::Detailed) => ViewMode::Detailed,
            Some(ResultsMode::Dump) => ViewMode::Dump,
            Some(ResultsMode::Readable) => ViewMode::Readable,
            Some(ResultsMode::Summary | ResultsMode::Report) | None => ViewMode::Report,
        };
        let view = View {
            mode,
            node,
            skip_prefix: args.skip_prefix,
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
    let annotations = args.verdict.annotations;
    if annotations.is_on() || !matches!(format, ResultsFormat::Html | ResultsFormat::Junit) {
        report.explain()?;
        annotate(annotations, &report);
    }
    let exit = report.exit(args.verdict.limit());
    match format {
        ResultsFormat::Html => report::write_html(&report, None, out)?,
        ResultsFormat::Junit => report::write_junit(&report, out)?,
        ResultsFormat::Text => {
            if args.from_cluster {
                // Its file is temporary.
                report.archive = "--from-cluster";
            }
            TextOutput {
                look: args.color.color.resolve(),
                out,
            }
            .report(&report)?;
        }
        ResultsFormat::Json => write_json(&report, out)?,
        ResultsFormat::Yaml => write!(out, "{}", yaml::write(&serde_json::to_value(&report)?))?,
        ResultsFormat::Markdown => report::write_markdown(&report, out)?,
        ResultsFormat::Csv | ResultsFormat::OpenMetrics => {
            let name = format.name();
            return Err(usage_error(format!("--format {name} needs --facts")));
        }
    }
    out.flush()?;
    Ok(exit)
}

/// The exit code of `--fail-on`, with its reason, of an archive that is shown as the original does;
/// annotates the archive.
fn judge_original(args: &ResultsArgs, name: &str, archive: &OpenedArchive) -> Result<Option<Exit>> {
    let annotated = args.verdict.annotations.is_on();
    if !args.verdict.limit().judges() && !annotated {
        return Ok(None);
    }
    // What the original shows does not depend on where it is shown.
    let deeper = (annotated && name != "-")
        .then(|| OpenedArchive::open(name, args.plugin.filled(), Depth::Tests))
        .transpose()?;
    let mut report = Report::read(deeper.as_ref().unwrap_or(archive), args.node.filled())?;
    if annotated {
        report.explain()?;
        annotate(args.verdict.annotations, &report);
    }
    Ok(report.exit(args.verdict.limit()))
}

/// The form of a table of facts.
#[derive(Clone, Copy)]
pub(super) enum FactsFormat {
    Text,
    Json,
    Csv,
}

fn facts_format(format: ResultsFormat) -> Result<FactsFormat> {
    match format {
        ResultsFormat::Text => Ok(FactsFormat::Text),
        ResultsFormat::Json => Ok(FactsFormat::Json),
        ResultsFormat::Csv => Ok(FactsFormat::Csv),
        _ => Err(usage_error(format!(
            "facts are shown as text, json or csv, not {}",
            format.name()
        ))),
    }
}

/// Prints facts as a table, CSV or JSON.
pub(super) fn write_facts(
    facts: &FactTables,
    format: FactsFormat,
    look: Look,
    out: &mut dyn Write,
) -> Result<()> {
    match format {
        FactsFormat::Json => Ok(writeln!(out, "{:#}", facts.json()?)?),
        FactsFormat::Csv => facts.write_csv(out),
        FactsFormat::Text => facts.write_text(&mut TextOutput { look, out }),
    }
}

/// The part of an archive to read among several.
#[derive(Clone, Copy, Default)]
pub(super) struct Part<'a> {
    plugin: Option<&'a str>,
    node: Option<&'a str>,
}

/// Adds an archive to others; returns the worst exit code with its reason.
pub(super) fn add(
    many: &mut Many,
    archive: &str,
    part: Part<'_>,
    cluster: Option<&str>,
    limit: Limit,
    worst: Option<Exit>,
) -> Result<Option<Exit>> {
    let mut add = || {
        let opened = OpenedArchive::open(archive, part.plugin, Depth::Nodes)?;
        let mut report = Report::read(&opened, part.node)?;
        many.add(&mut report, cluster)?;
        anyhow::Ok(report.exit(limit))
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
fn many(
    args: &ResultsArgs,
    archives: &[&str],
    out: &mut BufWriter<impl Write>,
) -> Result<Option<Exit>> {
    let part = Part {
        plugin: args.plugin.filled(),
        node: args.node.filled(),
    };
    let mut many = Many::default();
    let mut worst = None;
    for archive in archives {
        worst = add(&mut many, archive, part, None, args.verdict.limit(), worst)?;
    }
    match args.format() {
        ResultsFormat::Json => writeln!(out, "{:#}", many.json())?,
        ResultsFormat::Text => many.write_text(&mut TextOutput {
            look: args.color.color.resolve(),
            out,
        })?,
        ResultsFormat::OpenMetrics => out.write_all(many.metrics().as_bytes())?,
        ResultsFormat::Junit => report::write_many_junit(&many, out)?,
        ResultsFormat::Html => {
            let opened = OpenedArchive::open(many.newest(), part.plugin, Depth::Page)?;
            let report = Report::read(&opened, part.node)?;
            report::write_html(&report, Some(&many), out)?;
        }
        ResultsFormat::Yaml | ResultsFormat::Markdown | ResultsFormat::Csv => {
            return Err(usage_error(format!(
                "several archives are shown side by side: --format must be text, json, junit, \
                 html or openmetrics, not {}",
                args.format().name()
            )));
        }
    }
    out.flush()?;
    Ok(worst)
}

/// `sonobuoy results diff`.
fn diff(args: &DiffArgs) -> Result<u8> {
    let plugin = args.plugin.filled();
    let open = |archive: &str| {
        let mut opened = comparison::open(archive)?;
        // A plugin may be in only one of them.
        opened
            .plugins
            .retain(|name| plugin.is_none_or(|only| only == name));
        anyhow::Ok(opened)
    };
    let is_sealed = are_seals_right(&[&args.before, &args.after]);
    let (before, after) = (open(&args.before)?, open(&args.after)?);
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
    let mut out = output::buffered(args.format == DiffFormat::Text);
    match args.format {
        DiffFormat::Json => write_json(&diff.json(), &mut out)?,
        DiffFormat::Html => report::write_diff_html(&diff, &mut out)?,
        DiffFormat::Junit => report::write_diff_junit(&diff, &mut out)?,
        DiffFormat::Text => {
            let look = args.color.color.resolve();
            comparison::write_text(&diff, tests, look, &mut out)?;
        }
    }
    out.flush()?;
    Ok(end_report(diff.exit(args.fail_on), is_sealed))
}

/// Runs `verify`.
pub(crate) fn verify(args: &VerifyArgs) -> Result<()> {
    check_names([&args.archive])?;
    let archive = report::locate(&args.archive)?;
    let archive = Path::new(&archive);
    let about = archive.metadata().at("cannot read", archive)?;
    ensure!(
        !about.is_dir(),
        "`{}` is an unpacked archive; only the packed one is sealed",
        archive.display()
    );
    let digest_only = args.digest_only;
    let checked = seal::check_file(archive, args.authority.filled().map(Path::new), digest_only)?;
    let statement = &checked.statement;
    let file_name = archive.file_name().unwrap_or_default().to_string_lossy();
    let renamed = if file_name == statement.name {
        String::new()
    } else {
        format!(", sealed as `{}`", statement.name)
    };
    if let Some(authority) = &checked.authority {
        let (run, size, sha256) = (&statement.run, statement.size, &statement.sha256);
        let origin = authority.origin();
        output::line(format!(
            "{file_name}{renamed}: OK, sealed by run {run}: {size} bytes, SHA-256 {sha256}; \
             authority {origin}"
        ));
    } else {
        ensure!(
            digest_only,
            "`{file_name}` has the size and SHA-256 that its seal states, but who sealed it is unknown: \
             the certificate of the authority of run {} is not kept here; name the file that has \
             it with `--authority`, or accept the digest alone with `--digest-only`",
            statement.run
        );
        output::line(format!("{file_name}{renamed}: digest OK, seal not checked"));
    }
    Ok(())
}
