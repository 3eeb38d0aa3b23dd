//! The few operations on files and folders that must survive a crash, each with its path in the error.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

use base::at::At as _;
use base::sys::{self, Open as _};

/// Makes a folder and those above it, unless they are there.
pub(super) fn make_dir(path: &Path, mode: u32) -> anyhow::Result<()> {
    let made = sys::dir_builder(mode).recursive(true).create(path);
    made.at("cannot create", path)
}

/// Removes a folder with all that is in it, if it is there.
pub(super) fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("cannot remove", path),
        _ => Ok(()),
    }
}

/// Renames a folder to a place where nothing is, for good.
pub(super) fn put_in_place(from: &Path, to: &Path) -> anyhow::Result<()> {
    let parent = to.parent().unwrap_or(to);
    make_dir(parent, 0o755)?;
    fs::rename(from, to)
        .and_then(|()| sys::sync_folder(parent))
        .with_context(|| format!("cannot rename `{}` to `{}`", from.display(), to.display()))
}

/// Writes a new file for good, in a folder where nobody else writes.
pub(super) fn write_new(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> anyhow::Result<()> {
    let open = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
        write(&mut file)?;
        file.sync_data()?;
        sys::sync_folder(path.parent().unwrap_or(path))
    };
    open().at("cannot write", path)
}

/// Writes a file that only its owner may read; it is there whole or not at all.
pub(super) fn keep_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let temporary = path.with_extension("new");
    let write = || -> io::Result<()> {
        // What a crash may have left has the right mode, too, since nobody else writes here.
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(&temporary, path)?;
        sys::sync_folder(path.parent().unwrap_or(path))
    };
    write().at("cannot write", path)
}

/// Syncs a whole tree.
pub(super) fn sync_tree(path: &Path) -> anyhow::Result<()> {
    sys::sync_tree(path).at("cannot sync", path)
}
