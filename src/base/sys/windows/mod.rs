//! Windows: no modes, only the console's signals, jobs instead of process groups. Files: inherited
//! permissions, valid names.

#[cfg(feature = "program")]
pub(super) mod program;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::windows::io::AsHandle as _;
use std::path::{Path, PathBuf};

use super::{Exposed, Open, name};

/// `FILE_FLAG_OPEN_REPARSE_POINT`: opens a link itself, which then is not a file.
const OPEN_LINK: u32 = 0x0020_0000;
/// `FILE_FLAG_DELETE_ON_CLOSE`.
const DELETE_ON_CLOSE: u32 = 0x0400_0000;
/// Default extensions of programs.
const ENDINGS: &str = ".COM;.EXE;.BAT;.CMD";

impl Open for OpenOptions {
    fn mode(&mut self, _mode: u32) -> &mut Self {
        self
    }

    fn no_follow(&mut self) -> &mut Self {
        self.custom_flags(OPEN_LINK)
    }
}

/// A builder of folders that inherit permissions.
pub fn dir_builder(_mode: u32) -> DirBuilder {
    DirBuilder::new()
}

/// Does nothing: Windows has no modes.
pub fn set_mode(_path: &Path, _mode: u32) -> io::Result<()> {
    Ok(())
}

/// A mode that describes the file to other systems: readable by all, writable by its owner unless
/// read-only.
pub fn mode(about: &Metadata) -> u32 {
    let write = if about.permissions().readonly() {
        0
    } else {
        0o200
    };
    (if about.is_dir() { 0o555 } else { 0o444 }) | write
}

/// Always 0: Windows has no numbers for user and group.
pub fn owner(_about: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// Always `None`: access is determined by the permissions of the folder.
pub fn exposed(_about: &Metadata) -> Option<Exposed> {
    None
}

/// Creates a symbolic link at `path`, which requires a privilege.
pub fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    let leads_to_folder = path
        .parent()
        .is_some_and(|parent| parent.join(target).is_dir());
    if leads_to_folder {
        std::os::windows::fs::symlink_dir(target, path)
    } else {
        std::os::windows::fs::symlink_file(target, path)
    }
}

/// Reads from a place in the file.
pub fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    file.seek_read(buffer, at)
}

/// Does nothing: the file system persists names by itself.
pub fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Free bytes on the disk of `folder`; unlimited if the system does not report them.
pub fn free_bytes(folder: &Path) -> u64 {
    fs4::available_space(folder).unwrap_or(u64::MAX)
}

/// Files and folders that can still be created on the disk of `folder`: limited only by bytes.
pub fn free_inodes(_folder: &Path) -> u64 {
    u64::MAX
}

/// Locks a file for this process while it is open; `false` if another process holds the lock.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match fs4::FileExt::try_lock(file) {
        Ok(()) => Ok(true),
        Err(fs4::TryLockError::WouldBlock) => Ok(false),
        Err(fs4::TryLockError::Error(error)) => Err(error),
    }
}

/// A name or path as bytes; invalid text is replaced.
pub fn bytes_of(name: &OsStr) -> Cow<'_, [u8]> {
    match name.to_string_lossy() {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// One part of a foreign path as a valid name on this system.
pub fn file_name(part: &[u8]) -> OsString {
    name::for_windows(part).into()
}

/// A foreign path with `/` as separator.
pub fn path(bytes: &[u8]) -> PathBuf {
    let mut path = PathBuf::from(if bytes.starts_with(b"/") { "\\" } else { "" });
    for part in bytes
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
    {
        path.push(if matches!(part, b"." | b"..") {
            OsString::from(String::from_utf8_lossy(part).as_ref())
        } else {
            file_name(part)
        });
    }
    path
}

/// Standard input as a file.
pub fn stdin_file() -> io::Result<File> {
    io::stdin().as_handle().try_clone_to_owned().map(File::from)
}

/// A new, exclusive file that is deleted when closed.
pub fn unnamed(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(DELETE_ON_CLOSE)
        .open(path)
}

/// Whether a file is executable.
pub fn is_runnable(file: &Path) -> bool {
    let ending = file
        .extension()
        .map(|ending| format!(".{}", ending.to_string_lossy()));
    let is_executable = ending
        .is_some_and(|ending| endings().any(|executable| executable.eq_ignore_ascii_case(&ending)));
    file.is_file() && is_executable
}

/// The files that a program's name may refer to: itself, and with each program extension.
pub(super) fn program_names(path: &Path) -> Vec<PathBuf> {
    let with = |ending: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    std::iter::once(path.to_owned())
        .chain(endings().map(with))
        .collect()
}

fn endings() -> impl Iterator<Item = String> {
    let listed = std::env::var("PATHEXT").unwrap_or_else(|_| ENDINGS.into());
    listed
        .split(';')
        .map(str::to_ascii_lowercase)
        .filter(|ending| !ending.is_empty())
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn programs_are_found_by_their_extensions() {
        let folder = std::env::temp_dir().join(format!("sonobuoy-sys-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("tool.cmd"), "").unwrap();
        fs::write(folder.join("tool.txt"), "").unwrap();
        let found = program_names(&folder.join("tool"))
            .into_iter()
            .find(|name| is_runnable(name));
        assert_eq!(found, Some(folder.join("tool.cmd")));
        assert!(!is_runnable(&folder.join("tool.txt")));
        fs::remove_dir_all(folder).unwrap();
    }
}
