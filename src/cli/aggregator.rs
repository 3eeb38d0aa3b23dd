//! `sonobuoy aggregator`: the container that runs plugins and packs their results.
//!
//! SIGTERM leaves the run resumable by the next container.

use anyhow::Context as _;

use super::cluster;
use super::flag::Args;
use crate::{doctor, pipeline};
use base::stop::Stop;
use base::sys::{self, Signal};

/// Maximum outage of the API server.
const API_OUTAGE_LIMIT: std::time::Duration = std::time::Duration::from_secs(3_600);

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let stop = Stop::new();
    let asked = stop.clone();
    sys::on_signal(&[Signal::Terminate, Signal::Interrupt], move || {
        asked.stop_because("the container was stopped");
    })?;
    if args.on("echo") {
        return doctor::serve(&stop).map(|()| 0);
    }
    let connect = || {
        let client = cluster::client(args).context("connecting to the API server")?;
        Ok(client.under(&stop).patience(API_OUTAGE_LIMIT))
    };
    let clean = pipeline::aggregate(connect, args.on("no-exit"), &stop)?;
    Ok(u8::from(!clean))
}
