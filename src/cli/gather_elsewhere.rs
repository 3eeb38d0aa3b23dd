//! `sonobuoy gather` on systems other than Linux, which nodes never run.

use std::process::ExitCode;

use anyhow::bail;
use clap::ArgMatches;

/// Reports that the command needs Linux.
pub(crate) fn run(_matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    bail!(
        "`sonobuoy gather` reads `/proc`, `/sys` and the journal of a Linux node; this machine runs {}",
        std::env::consts::OS
    )
}
