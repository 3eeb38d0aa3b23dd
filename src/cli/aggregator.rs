//! `sonobuoy aggregator`: the container that runs plugins and packs their results.
//!
//! SIGTERM leaves the run resumable by the next container.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::ArgMatches;

use super::cluster;
use crate::{doctor, pipeline};
use base::stop::Stop;
use base::sys::{self, Signal};

/// Maximum outage of the API server.
const API_OUTAGE_LIMIT: std::time::Duration = std::time::Duration::from_secs(3_600);

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let stop = Stop::new();
    let asked = stop.clone();
    sys::on_signal(&[Signal::Terminate, Signal::Interrupt], move || {
        asked.stop_because("the container was told to stop");
    })?;
    if matches.get_flag("echo") {
        return doctor::serve(&stop).map(|()| ExitCode::SUCCESS);
    }
    let connect = || {
        let client = cluster::client(matches, &stop).context("the way to the API server")?;
        Ok(client.patience(API_OUTAGE_LIMIT))
    };
    let clean = pipeline::aggregate(connect, matches.get_flag("no-exit"), &stop)?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
