//! `sonobuoy query`: takes a snapshot of the cluster from this machine.
//!
//! Prints only the folder on stdout. Missing data is summarised on stderr and recorded in the
//! folder; the only errors are an unwritable folder and an unreachable cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::cluster::ClusterFlags;
use super::flag::Filled as _;
use super::output;
use super::run_flags::{RedactionFlags, read_configuration};
use base::Joined as _;
use base::at::At as _;
use base::json::json;
use base::sys;
use model::{config, layout};
use run::query::{self, FailedQuery, Query, Redactor};

/// Take a snapshot of the cluster
#[derive(clap::Args)]
pub(crate) struct QueryArgs {
    /// Run configuration (JSON) that selects what to record
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    #[arg(
        short,
        long,
        value_name = "DIR",
        help = "Folder to write into [default: a new one here]"
    )]
    output: Option<String>,
    #[command(flatten)]
    redaction: RedactionFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Runs the command.
pub(crate) fn run(args: &QueryArgs) -> Result<()> {
    let mut config = read_configuration(args.config.filled())?;
    if config.uuid.is_empty() {
        config.uuid = config::new_uuid();
    }
    args.redaction.apply(&mut config.redaction)?;
    let redactor = Redactor::new(&config.redaction)?;
    sys::create_private_files();
    let stop = output::stop_on_signal()?;
    let burst = u32::try_from(config.burst).unwrap_or(u32::MAX);
    let client = args.cluster.client()?.under(&stop).rate(config.qps, burst);

    let output = args.output.filled().unwrap_or_default();
    let named = [output, &config.query_dir, &config.uuid];
    let folder = PathBuf::from(named.into_iter().find(|dir| !dir.is_empty()).unwrap_or("."));
    forget(&folder)?;
    let query = Query {
        client: &client,
        config: &config,
        redactor: redactor.as_ref(),
        folder: &folder,
        workers: workers(),
    };
    let summary = query.run(&stop)?;
    for (name, content) in [
        (layout::CONFIG, config.to_json()),
        (layout::INFO, json!({}).to_string()),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, content).at("cannot write", &path)?;
    }
    tell(&summary.errors);
    log::info!(
        "{} requests were answered, {} failed",
        summary.answered,
        summary.errors.len()
    );
    output::line(folder.display());
    Ok(())
}

/// Removes an earlier snapshot from the folder, so that old objects do not appear current.
fn forget(folder: &Path) -> Result<()> {
    if !folder.join(layout::QUERY_TIMES).is_file() {
        return Ok(());
    }
    for part in [layout::RESOURCES, layout::HOSTS, layout::POD_LOGS].map(|part| folder.join(part)) {
        if part.is_dir() && !part.is_symlink() {
            std::fs::remove_dir_all(&part).at("cannot remove", &part)?;
        }
    }
    Ok(())
}

/// Number of parallel queries; benchmarks compare with one.
fn workers() -> usize {
    let number = std::env::var("SONOBUOY_QUERY_WORKERS")
        .ok()
        .and_then(|number| number.parse().ok());
    number
        .filter(|number| (1..=64).contains(number))
        .unwrap_or(query::WORKERS)
}

/// Prints one line per reason for any number of queries; one line for all missing permissions.
fn tell(errors: &[FailedQuery]) {
    let (forbidden, others): (Vec<_>, Vec<_>) = errors
        .iter()
        .partition(|trouble| trouble.error.contains(": 403)"));
    let kinds: BTreeSet<&str> = forbidden
        .iter()
        .map(|trouble| trouble.queryobj.as_str())
        .collect();
    if !kinds.is_empty() {
        log::warn!(
            "not collected, for lack of rights: {}",
            kinds.into_iter().joined(", ")
        );
    }
    let mut reasons: BTreeMap<(&str, &str), Vec<&FailedQuery>> = BTreeMap::new();
    for trouble in others {
        // API errors that differ only in the object have the same first line.
        let reason = trouble.error.lines().next().unwrap_or_default();
        reasons
            .entry((&trouble.queryobj, reason))
            .or_default()
            .push(trouble);
    }
    for ((queryobj, reason), troubles) in reasons {
        let more = match troubles.len() {
            1 => String::new(),
            number => format!(" ({number} times)"),
        };
        log::warn!("not collected: {queryobj}{more}: {reason}");
    }
}
