//! The run in an aggregator's pod, assembled from its settings, its definitions and its environment.
//!
//! Starts the thread `status_service` for the status service, and joins it.

use std::path::Path;

use anyhow::Context as _;

use super::{ClusterRun, StatusService};
use crate::{config, names, plugin};
use base::kube::Client;
use base::stop::Stop;

/// Runs everything; returns whether all went well. `connect` creates the client once the settings are read.
pub(crate) fn aggregate(
    connect: impl FnOnce() -> anyhow::Result<Client>,
    no_exit: bool,
    stop: &Stop,
) -> anyhow::Result<bool> {
    let variable = |name: &str| std::env::var(name).ok();
    let host_name = Some(base::sys::host_name());
    let config = config::load(&config::Environment { variable: &variable, host_name: host_name.clone() })?;
    let folders = config.plugin_search_path.clone().unwrap_or_default();
    let selected: Option<Vec<String>> =
        config.plugins.as_ref().map(|plugins| plugins.iter().map(|plugin| plugin.name.clone()).collect());
    let mut definitions = plugin::search(&folders, selected.as_deref())?;
    if variable("SONOBUOY_DISABLE_RECONCILIATION").as_deref() != Some("true") {
        for definition in &mut definitions {
            definition.reconcile(&config.results_dir);
        }
    }
    let client = connect()?;
    let folder = std::env::var_os("SONOBUOY_AGGREGATOR_DIR")
        .map_or_else(|| names::RUNS_DIR.into(), std::path::PathBuf::from);
    let status_service = status_service(&config, Path::new(&folder), &variable);
    let run = ClusterRun {
        config,
        definitions,
        client,
        folder: Path::new(&folder),
        own_name: host_name,
        status_service: status_service.as_ref(),
        upload: variable(names::env::UPLOAD_URL).filter(|url| !url.is_empty()),
    };
    let Some(status_service) = &status_service else { return Ok(see_through(run, no_exit, stop)) };
    let over = stop.child();
    std::thread::scope(|scope| {
        let serve = || {
            if let Err(error) = status_service.serve(&over) {
                log::error!("the status service ended: {error:#}");
            }
        };
        base::thread("status_service").spawn_scoped(scope, serve).context("cannot start a thread")?;
        let clean = see_through(run, no_exit, stop);
        over.stop();
        Ok(clean)
    })
}

/// Runs everything, and stays afterwards if requested; returns whether all went well.
fn see_through(run: ClusterRun<'_>, no_exit: bool, stop: &Stop) -> bool {
    let clean = run.run(stop).unwrap_or_else(|error| {
        log::error!("{error:#}");
        false
    });
    if stop.stopped() {
        return false;
    }
    if no_exit {
        log::info!("no-exit was specified, sonobuoy is now blocking");
        stop.wait_forever();
        return true;
    }
    clean
}

/// The second server, if the run has one. If it fails, the run continues: its status is available in other ways, too.
fn status_service(
    config: &config::Run,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<StatusService> {
    let port = config.server.status_port;
    if port == 0 {
        return None;
    }
    let certificates = variable("SONOBUOY_STATUS_DIR").unwrap_or_else(|| names::STATUS_DIR.into());
    let opened = StatusService::open(Path::new(&certificates), port, folder);
    opened.map_err(|error| log::error!("there will be no status service: {error:#}")).ok()
}
