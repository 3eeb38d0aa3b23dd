//! `sonobuoy gen cli`: one Markdown page per command, from the same table as the help.

use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::pages;

/// Writes the pages into the given folder.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let dir = matches.get_one::<String>("dir").map_or(Path::new("."), Path::new);
    pages::write(dir, &pages::Kind { joint: "_", ending: ".md", page })?;
    Ok(ExitCode::SUCCESS)
}

fn page(command: &Command, name: &str) -> String {
    let help = command.clone().bin_name(name).render_help();
    format!("# {name}\n\n```\n{help}```\n")
}
