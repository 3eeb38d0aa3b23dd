//! The few operations on files and folders that must survive a crash, each with its path in the error.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;

/// Makes a folder and those above it, unless they are there.
pub(super) fn make_dir(path: &Path, mode: u32) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    made.with_context(|| format!("folder `{}`", path.display()))
}

/// Removes a folder with all that is in it, if it is there.
pub(super) fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing `{}`", path.display()))
        }
        _ => Ok(()),
    }
}

/// Renames a folder to a place where nothing is, for good.
pub(super) fn put_in_place(from: &Path, to: &Path) -> anyhow::Result<()> {
    let parent = to.parent().unwrap_or(to);
    make_dir(parent, 0o755)?;
    fs::rename(from, to)
        .and_then(|()| sync_dir(parent))
        .with_context(|| format!("`{}` to `{}`", from.display(), to.display()))
}

/// Writes a new file for good, in a folder where nobody else writes.
pub(super) fn write_new(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> anyhow::Result<()> {
    let open = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
        write(&mut file)?;
        file.sync_data()?;
        sync_dir(path.parent().unwrap_or(path))
    };
    open().with_context(|| format!("`{}`", path.display()))
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
        sync_dir(path.parent().unwrap_or(path))
    };
    write().with_context(|| format!("`{}`", path.display()))
}

/// Syncs a whole tree. It can have a million files; one call for its file system is cheaper than one for each.
pub(super) fn sync_tree(path: &Path) -> anyhow::Result<()> {
    let sync = || rustix::fs::syncfs(File::open(path)?).map_err(io::Error::from);
    sync().with_context(|| format!("syncing `{}`", path.display()))
}

/// Bytes that may still be written to the disk of `dir`; endless if the system does not say.
pub(super) fn free_bytes(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
