//! `sonobuoy completion`: a script that completes command lines in a shell.
//!
//! The scripts ask `sonobuoy __complete`, so they are the same for every version.

use std::process::ExitCode;

use clap::ArgMatches;

use super::output;

/// Prints the script for the requested shell.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let script = match matches.get_one::<String>("shell").map(String::as_str) {
        Some("bash") => include_str!("complete.bash"),
        Some("zsh") => include_str!("complete.zsh"),
        Some("fish") => include_str!("complete.fish"),
        _ => include_str!("complete.ps1"),
    };
    if matches.get_flag("no-descriptions") {
        output::data(&script.replace(" __complete ", " __completeNoDesc "))?;
    } else {
        output::data(script)?;
    }
    Ok(ExitCode::SUCCESS)
}
