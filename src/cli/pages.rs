//! A file for each command that people see, in a folder: what `man` and `gen cli` have in common.

use std::path::Path;

use clap::Command;

use super::table;
use base::at::At as _;
use base::temp;

/// How one kind of page is made.
pub(crate) struct Kind {
    /// Between the words of a command in a file's name.
    pub joint: &'static str,
    /// The end of a file's name.
    pub ending: &'static str,
    /// The page of a command, whose whole name is given.
    pub page: fn(&Command, &str) -> String,
}

/// Writes the pages of all commands into the folder, which is made if it is not there.
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
