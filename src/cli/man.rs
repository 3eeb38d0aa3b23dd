//! `sonobuoy man`: one man page for each command, from the same table as the help.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::ArgMatches;

use super::table;

/// Writes the pages into the folder that was given.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let dir = matches.get_one::<String>("dir").map_or(Path::new("."), Path::new);
    std::fs::create_dir_all(dir).with_context(|| format!("making `{}`", dir.display()))?;
    clap_mangen::generate_to(table::shown(), dir)
        .with_context(|| format!("writing man pages into `{}`", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
