//! `sonobuoy wait`: attaches to a run that is going on, and waits for its end.

use std::process::ExitCode;

use clap::ArgMatches;

use super::afterwards::Afterwards;
use super::waiting::{DAY, Wait, verdict};
use super::{cluster, request};
use base::stop::Stop;

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let afterwards = Afterwards::asked(matches)?;
    let client = cluster::client(matches, &Stop::new())?;
    let namespace = request::settings(matches)?.namespace;
    // The original's limit is 0 here, which ends every wait at once.
    let run = Wait::asked(matches, DAY)?.map(|wait| wait.wait(&client, &namespace)).transpose()?;
    let code = afterwards.run(&client, &namespace, run.as_ref())?;
    Ok(run.map_or(code, |run| verdict(&run, code)))
}
