//! Writes one file per public command into a folder, for `man` and `gen cli`.

use std::path::Path;

use clap::Command;

use super::table;
use base::at::At as _;
use base::temp;

/// A kind of page.
pub(crate) struct Kind {
    /// The separator of a command's words in file names.
    pub joint: &'static str,
    /// The extension.
    pub ending: &'static str,
    /// Renders the page of a command with the given full name.
    pub page: fn(&Command, &str) -> String,
}

/// Writes the pages of all commands into the folder, and creates it if missing.
pub(crate) fn write(dir: &Path, kind: &Kind) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).at("cannot create", dir)?;
    let mut table = table::shown();
    table.build();
    each(&table, &mut Vec::new(), dir, kind)
}

fn each(command: &Command, path: &mut Vec<String>, dir: &Path, kind: &Kind) -> anyhow::Result<()> {
    let name = table::name(path);
    let file = dir.join(name.replace(' ', kind.joint) + kind.ending);
    temp::write(&file, 0o666, (kind.page)(command, &name)).at("cannot write", &file)?;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        path.push(inner.get_name().to_owned());
        each(inner, path, dir, kind)?;
        path.pop();
    }
    Ok(())
}
