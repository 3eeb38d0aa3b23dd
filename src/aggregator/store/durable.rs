//! The few operations on files and folders that must survive a crash, each with its path in the error.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use anyhow::Context;

use base::at::At as _;
use base::sys;

/// Makes a folder and those above it, unless they are there.
pub(super) fn make_dir(path: &Path, mode: u32) -> anyhow::Result<()> {
    let made = sys::dir_builder(mode).recursive(true).create(path);
    made.at("cannot create", path)
}

/// Removes a folder and its contents, if it exists.
pub(super) fn remove(path: &Path) -> anyhow::Result<()> {
    base::found(fs::remove_dir_all(path)).at("cannot remove", path).map(drop)
}

/// Renames a folder to a place where nothing is, for good.
pub(super) fn put_in_place(from: &Path, to: &Path) -> anyhow::Result<()> {
    let parent = to.parent().unwrap_or(to);
    make_dir(parent, 0o755)?;
    fs::rename(from, to)
        .and_then(|()| sys::sync_folder(parent))
        .with_context(|| format!("cannot rename `{}` to `{}`", from.display(), to.display()))
}

/// Writes a new file for good, in a folder that no other thread writes to.
pub(super) fn write_new(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> anyhow::Result<()> {
    let open = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
        write(&mut file)?;
        file.sync_data()?;
        sys::sync_folder(path.parent().unwrap_or(path))
    };
    open().at("cannot write", path)
}
