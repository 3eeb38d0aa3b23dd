//! `sonobuoy gather` where there is nothing that it could read: nodes run Linux.

use std::process::ExitCode;

use anyhow::bail;
use clap::ArgMatches;

/// Says so.
pub(crate) fn run(_matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    bail!(
        "`sonobuoy gather` reads `/proc`, `/sys` and the journal of a Linux node; this machine runs {}",
        std::env::consts::OS
    )
}
