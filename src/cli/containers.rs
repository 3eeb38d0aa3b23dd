//! The commands that run in the containers of a run, and therefore have no help: `aggregator`,
//! which runs plugins and packs their results; `worker`, beside a plugin; `splat`, which sends
//! archives to the retrieving client; and `post-process`, which recreates the items of every plugin
//! in an unpacked archive.
//!
//! SIGTERM leaves a run resumable by the next container.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::cluster::ClusterFlags;
use super::flag::{parse_seconds, within};
use super::output;
use crate::{doctor, pipeline};
use base::at::{At as _, entries};
use base::stop::Stop;
use base::sys::{self, Signal, variable};
use base::{archive, logger, visible};
use model::layout;
use model::names::{self, env};
use model::plugin::DriverKind;
use run::driver::process::hold_lifeline;
use run::process::{self, Expected, ReadingRules};
use run::worker::{self, Scope, WorkerSettings};

/// Bytes of an unfinished run that are sent together.
const STREAM_BUFFER_BYTES: usize = 64 << 10;
/// Maximum outage of the API server.
const API_OUTAGE_LIMIT: Duration = Duration::from_secs(3_600);

/// Receive the results of a run (inside the cluster)
#[derive(clap::Args)]
pub(crate) struct AggregatorArgs {
    /// Keep running when the run is over, so that results can be fetched
    #[arg(long)]
    no_exit: bool,
    /// Only answer checks of the connection
    #[arg(long)]
    echo: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Send a plugin's results to the aggregator (beside a plugin)
#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    scope: WorkerScope,
}

#[derive(clap::Subcommand)]
enum WorkerScope {
    #[command(alias = "job")]
    Global(GlobalWorkerArgs),
    #[command(alias = "daemonset")]
    SingleNode(SingleNodeWorkerArgs),
}

/// For a plugin that runs once
#[derive(clap::Args)]
struct GlobalWorkerArgs {}

/// For a plugin that runs on every node
#[derive(clap::Args)]
struct SingleNodeWorkerArgs {
    /// Keep running this long after sending; negative means forever
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    sleep: i64,
}

/// Write the finished archives in a folder to stdout
#[derive(clap::Args)]
pub(crate) struct SplatArgs {
    /// Folder with archives
    #[arg(value_name = "DIR")]
    dir: String,
    /// Skip this many bytes
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "0",
        value_parser = within::<u64>(0..=i64::MAX)
    )]
    offset: u64,
    /// Pack what has arrived so far of an unfinished run
    #[arg(long)]
    partial: bool,
    /// Write the seals of the archives instead
    #[arg(long)]
    seals: bool,
    /// Write the latest status that was too large for the pod's annotation
    #[arg(long)]
    status: bool,
}

/// Write sonobuoy_results.yaml in an unpacked archive
#[derive(clap::Args)]
pub(crate) struct PostProcessArgs {
    /// Unpacked archive
    #[arg(value_name = "DIR")]
    dir: String,
}

/// Runs `aggregator`.
pub(crate) fn aggregator(args: &AggregatorArgs) -> Result<u8> {
    let stop = Stop::new();
    let handler_stop = stop.clone();
    sys::on_signal(&[Signal::Terminate, Signal::Interrupt], move || {
        handler_stop.stop_because("the container was stopped");
    })?;
    if args.echo {
        return doctor::serve(&stop).map(|()| 0);
    }
    let connect = || {
        let client = args
            .cluster
            .client()
            .context("connecting to the API server")?;
        Ok(client.under(&stop).retry_timeout(API_OUTAGE_LIMIT))
    };
    let clean = pipeline::aggregate(connect, args.no_exit, &stop);
    if let (Err(error), Some(_)) = (&clean, variable(env::ADVERTISE_IP)) {
        // The only trace of an aggregator that could not publish its status.
        leave(names::TERMINATION_LOG.as_ref(), error);
    }
    Ok(u8::from(!clean?))
}

/// Runs `worker global` or `worker single-node`.
pub(crate) fn worker(args: &WorkerArgs) -> Result<()> {
    // Manifests of every version start workers with `--level=trace`, and their logs go into the
    // archive.
    logger::ours_alone();
    let (scope, sleep) = match &args.scope {
        WorkerScope::SingleNode(args) => (Scope::Node, args.sleep),
        WorkerScope::Global(_) => (Scope::Global, 0),
    };
    if let Some((how, results)) = variable(env::LIFELINE).zip(variable(env::RESULTS_DIR)) {
        hold_lifeline(&how, results)?;
    }
    let term = Stop::new();
    let handler_stop = term.clone();
    sys::on_signal(&[Signal::Terminate], move || handler_stop.stop())?;
    let outcome = work(scope, &term);
    if let (Err(error), Some(_)) = (&outcome, variable(env::PLUGIN_POD)) {
        // The termination log reports the error even if the network blocks all traffic.
        leave(names::TERMINATION_LOG.as_ref(), error);
    }
    outcome?;
    worker::linger(sleep, &term);
    Ok(())
}

/// Writes the error to the container's termination log, if Kubernetes reads it.
fn leave(place: &Path, error: &anyhow::Error) {
    let file = std::fs::OpenOptions::new().write(true).open(place);
    let written = file.and_then(|mut file| write!(file, "{error:#}"));
    if let Err(error) = written {
        log::debug!("cannot write `{}`: {error}", place.display());
    }
}

fn work(scope: Scope, term: &Stop) -> Result<()> {
    let settings = WorkerSettings::read(scope, |name| std::env::var(name).ok())?;
    let submitted = worker::run(&settings, term)?;
    // On one machine the other processes wait for the result; Kubernetes detects its absence
    // without them.
    ensure!(
        submitted || settings.others_ended_file.is_none(),
        "asked to stop before there was a result"
    );
    Ok(())
}

/// Runs `splat`.
pub(crate) fn splat(args: &SplatArgs) -> Result<()> {
    let folder = Path::new(&args.dir);
    if args.partial {
        return output::stream_bytes(|out| {
            let out = BufWriter::with_capacity(STREAM_BUFFER_BYTES, out);
            Ok(pipeline::pack_partial(folder, out)?.flush()?)
        });
    }
    if args.status {
        let path = folder.join(layout::LAST_STATUS);
        let mut file = fs::File::open(&path).at("cannot read", &path)?;
        return output::stream_bytes(|mut out| {
            std::io::copy(&mut file, &mut out)
                .context("sending the status")
                .map(drop)
        });
    }
    // Clients treat an archive without entries as an unfinished run.
    let files = archive::finished(folder).unwrap_or_else(|error| {
        log::warn!("{error:#}");
        Vec::new()
    });
    if files.is_empty() {
        log::warn!("no finished archive in `{}`", folder.display());
    }
    if args.seals {
        let seals: Vec<_> = files
            .iter()
            .flat_map(|file| layout::seal(file))
            .filter(|path| path.is_file())
            .collect();
        return output::stream_bytes(|out| {
            archive::bundle(&seals, 0, out).context("sending the seals")
        });
    }
    output::stream_bytes(|out| {
        archive::bundle(&files, args.offset, out).context("sending the archives")
    })
}

/// Runs `post-process`.
pub(crate) fn post_process(args: &PostProcessArgs) -> Result<()> {
    ensure!(!args.dir.is_empty(), "no folder given");
    for (name, status) in process(Path::new(&args.dir))? {
        output::line(visible::line(&format!("{name}: {status}")));
    }
    Ok(())
}

/// Writes the items of every plugin; returns the plugins and their statuses.
pub(super) fn process(archive: &Path) -> Result<Vec<(String, String)>> {
    let expected: Vec<Expected> = fs::read(archive.join(layout::RECEIVED))
        .ok()
        .and_then(|list| serde_json::from_slice(&list).ok())
        .unwrap_or_default();
    let dir = archive.join(layout::PLUGINS);
    let about = dir.symlink_metadata().at("cannot read", &dir)?;
    ensure!(
        about.is_dir(),
        "`{}` is a link or a file, and not the folder of an archive",
        dir.display()
    );
    let mut plugins = Vec::new();
    for entry in entries(&dir)? {
        if entry.file_type()?.is_dir() {
            plugins.push((entry.file_name(), definition(&entry.path())));
        }
    }
    let mut outcomes = Vec::new();
    for (folder, definition) in plugins
        .iter()
        .filter(|(_, definition)| definition.part_of.is_none())
    {
        let (path, shown) = (dir.join(folder), folder.to_string_lossy().into_owned());
        let explicit_name = Some(&definition.plugin_name).filter(|name| !name.is_empty());
        let name = explicit_name.unwrap_or(&shown).clone();
        let (mut attempts, mut parts) = (Vec::new(), Vec::new());
        for (part, other) in &plugins {
            if other.part_of.as_ref() != Some(&name) {
                continue;
            }
            let part = part.to_string_lossy().into_owned();
            if layout::is_attempt(&part, &name) {
                attempts.push(part);
            } else {
                parts.push(part);
            }
        }
        let rules = ReadingRules {
            per_node: match definition.driver.as_str() {
                "" => looks_per_node(&path),
                driver => DriverKind::parse(driver).is_some_and(DriverKind::is_per_node),
            },
            format: definition.result_format.clone(),
            files: definition.result_files.clone().unwrap_or_default(),
            expected: expected.clone(),
            name,
            attempts,
            parts,
            ..ReadingRules::default()
        };
        outcomes.push((shown, process::process(&path, &rules)?.status));
    }
    Ok(outcomes)
}

/// What a stored definition says about results.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct StoredDefinition {
    plugin_name: String,
    driver: String,
    result_format: String,
    result_files: Option<Vec<String>>,
    part_of: Option<String>,
}

/// The stored definition of a plugin; the default if it is unreadable, since the results are still
/// usable.
fn definition(dir: &Path) -> StoredDefinition {
    let mut paths = layout::DEFINITIONS.iter().map(|file| dir.join(file));
    let Some(path) = paths.find(|path| path.symlink_metadata().is_ok()) else {
        return StoredDefinition::default();
    };
    let read = || {
        let document: Value = serde_json::from_slice(&fs::read(&path)?)?;
        // The definition may also be unwrapped.
        let config = document
            .pointer("/Definition/sonobuoy-config")
            .or(document.get("sonobuoy-config"));
        anyhow::Ok(
            config
                .map(StoredDefinition::deserialize)
                .transpose()?
                .unwrap_or_default(),
        )
    };
    read()
        .at("cannot read", &path)
        .inspect_err(|error| log::warn!("{error:#}"))
        .unwrap_or_default()
}

/// Guesses the driver from the folders: results of the whole cluster are in a folder of that name
/// or in no folder.
fn looks_per_node(dir: &Path) -> bool {
    let folders = |name: &str| {
        let entries = fs::read_dir(dir.join(name)).into_iter().flatten().flatten();
        entries
            .map(|entry| (entry.path().is_dir(), entry.file_name()))
            .collect::<Vec<_>>()
    };
    let entries = [folders(layout::RESULTS), folders(layout::ERRORS)].concat();
    !entries.is_empty()
        && entries
            .iter()
            .all(|(is_dir, name)| *is_dir && name != client::protocol::GLOBAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn termination_message_is_written_if_its_file_exists() {
        let folder = base::temp::Folder::new().unwrap();
        let place = folder.join("log");
        let error = anyhow::anyhow!("connection refused").context("cannot submit the result");
        leave(&place, &error);
        assert!(!place.exists(), "it is Kubernetes that makes the place");
        std::fs::write(&place, "").unwrap();
        leave(&place, &error);
        assert_eq!(
            std::fs::read_to_string(&place).unwrap(),
            "cannot submit the result: connection refused"
        );
    }
}
