//! `sonobuoy delete`: removes a run from the cluster.

use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;

use super::{cluster, output, request};
use crate::deploy::Removal;
use base::stop::Stop;

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let client = cluster::client(matches, &Stop::new())?;
    let removal = Removal {
        namespace: matches.get_one("namespace").cloned().unwrap_or_default(),
        rbac: request::rbac(matches)?,
        all: matches.get_flag("all"),
        dry_run: matches.get_flag("dry-run"),
    };
    let left = removal.issue(&client)?;
    let minutes = matches.get_one::<i64>("wait").copied().and_then(|minutes| u64::try_from(minutes).ok());
    if let Some(minutes) = minutes.filter(|minutes| *minutes > 0 && !removal.dry_run) {
        let shown = matches.get_one::<String>("wait-output").is_some_and(|output| output == "Progress");
        left.wait(&client, Duration::from_secs(minutes.saturating_mul(60)), &mut |state| {
            // The original prints it to standard output. A closed output does not stop the deletion.
            if shown {
                let _ = output::print(&format!("\n{state}\n"));
            }
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
