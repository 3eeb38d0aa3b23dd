//! `sonobuoy gen cli`: one Markdown page for each command, from the same table as the help.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};

use super::{table, usage};

/// Writes the pages into the folder that was given.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let dir = matches.get_one::<String>("dir").map_or(Path::new("."), Path::new);
    std::fs::create_dir_all(dir).with_context(|| format!("making `{}`", dir.display()))?;
    let mut table = table::shown();
    table.build();
    pages(&table, &mut Vec::new(), dir)?;
    Ok(ExitCode::SUCCESS)
}

fn pages(command: &Command, path: &mut Vec<String>, dir: &Path) -> anyhow::Result<()> {
    let name = usage::name(path);
    let help = command.clone().bin_name(&name).render_help();
    let file = dir.join(format!("{}.md", name.replace(' ', "_")));
    std::fs::write(&file, format!("# {name}\n\n```\n{help}```\n"))
        .with_context(|| format!("writing `{}`", file.display()))?;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        path.push(inner.get_name().to_owned());
        pages(inner, path, dir)?;
        path.pop();
    }
    Ok(())
}
