//! `sonobuoy completion`: a script that completes the command line, for a shell.

use std::process::ExitCode;

use clap::ArgMatches;
use clap_complete::Shell;

use super::{output, table};

/// Prints the script for the shell that was asked for.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let shell = match matches.get_one::<String>("shell").map(String::as_str) {
        Some("bash") => Shell::Bash,
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::PowerShell,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut table::shown(), "sonobuoy", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
