//! `sonobuoy aggregator`: the container that runs plugins and packs their results.
//!
//! SIGTERM leaves the run as it is, for the next container to take up.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ArgMatches;

use super::cluster;
use crate::pipeline::{Cluster, Outcome, Outlook};
use crate::plugin;
use crate::{config, names};
use base::stop::Stop;
use base::sys::{self, Signal};

/// How long the API server may be away.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3_600);

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let stop = Stop::new();
    let asked = stop.clone();
    sys::on_signal(&[Signal::Terminate, Signal::Interrupt], move || {
        asked.stop_because("the container was told to end");
    })?;

    let variable = |name: &str| std::env::var(name).ok();
    let host_name = Some(sys::host_name());
    let config = config::load(&config::Environment { variable: &variable, host_name: host_name.clone() })?;
    let folders = config.plugin_search_path.clone().unwrap_or_default();
    let selected: Option<Vec<String>> =
        config.plugins.as_ref().map(|plugins| plugins.iter().map(|plugin| plugin.name.clone()).collect());
    let found = plugin::search(&folders, selected.as_deref())?;
    let mut definitions = found.definitions;
    if variable("SONOBUOY_DISABLE_RECONCILIATION").as_deref() != Some("true") {
        for definition in &mut definitions {
            definition.reconcile(&config.results_dir);
        }
    }
    let client = cluster::client(matches, &stop).context("the way to the API server")?.patience(PATIENCE);
    let folder = std::env::var_os("SONOBUOY_AGGREGATOR_DIR")
        .map_or_else(|| names::RUNS_DIR.into(), std::path::PathBuf::from);
    let outlook = outlook(&config, Path::new(&folder), &variable);
    let run = Cluster {
        config,
        definitions,
        client,
        folder: Path::new(&folder),
        own_name: host_name,
        outlook: outlook.as_ref(),
    };
    let no_exit = matches.get_flag("no-exit");
    let Some(outlook) = &outlook else { return Ok(see_through(run, no_exit, &stop)) };
    let over = stop.child();
    std::thread::scope(|scope| {
        let serve = || {
            if let Err(error) = outlook.serve(&over) {
                log::error!("the status service ended: {error:#}");
            }
        };
        std::thread::Builder::new()
            .name("outlook".into())
            .spawn_scoped(scope, serve)
            .context("start a thread")?;
        let code = see_through(run, no_exit, &stop);
        over.stop();
        Ok(code)
    })
}

/// Runs everything, and stays afterwards if it shall.
fn see_through(run: Cluster<'_>, no_exit: bool, stop: &Stop) -> ExitCode {
    let outcome = run.run(stop);
    let clean = matches!(outcome, Ok(Outcome::Ended(0) | Outcome::Before));
    if let Err(error) = &outcome {
        log::error!("{error:#}");
    }
    if stop.stopped() {
        return ExitCode::FAILURE;
    }
    if no_exit {
        log::info!("no-exit was specified, sonobuoy is now blocking");
        stop.wait_forever();
        return ExitCode::SUCCESS;
    }
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The second server, if the run has one. Without it the run goes on: its status is told by other ways, too.
fn outlook(
    config: &config::Run,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<Outlook> {
    let port = config.server.status_port;
    if port == 0 {
        return None;
    }
    let certificates = variable("SONOBUOY_STATUS_DIR").unwrap_or_else(|| names::STATUS_DIR.into());
    let opened = Outlook::open(Path::new(&certificates), port, folder);
    opened.map_err(|error| log::error!("there will be no status service: {error:#}")).ok()
}
