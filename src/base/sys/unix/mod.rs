//! Code shared by Linux and macOS. Files: modes, owners, links, locks.

#[cfg(feature = "program")]
pub(super) mod program;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, OFlags, access, flock};
use rustix::io::Errno;

use super::{Exposed, Open};

impl Open for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::mode(self, mode)
    }

    fn no_follow(&mut self) -> &mut Self {
        self.custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
    }
}

/// Makes folders with these permissions.
pub fn dir_builder(mode: u32) -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(mode);
    builder
}

/// Sets the permissions of the file at `path`.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The permissions of a file.
pub fn mode(about: &Metadata) -> u32 {
    about.mode() & 0o7777
}

/// User and group of a file.
pub fn owner(about: &Metadata) -> (u64, u64) {
    (about.uid().into(), about.gid().into())
}

/// The reason why other users may access a file, if any.
pub fn exposed(about: &Metadata) -> Option<Exposed> {
    if about.uid() != rustix::process::geteuid().as_raw() {
        return Some(Exposed::Owner);
    }
    (about.mode() & 0o077 != 0).then_some(Exposed::Mode)
}

/// Creates a symbolic link at `path`.
pub fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

/// Reads from a place in the file.
pub fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    file.read_at(buffer, at)
}

/// Makes the names in a folder survive a crash.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Free bytes on the disk of `folder`; unlimited if the system does not report them.
pub fn free_bytes(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Files and folders that can still be created on the disk of `folder`; unlimited if the system
/// does not report them.
pub fn free_inodes(folder: &Path) -> u64 {
    // File systems that allocate inodes on demand report 0.
    let some = |disk: &rustix::fs::StatVfs| disk.f_files > 0;
    rustix::fs::statvfs(folder)
        .ok()
        .filter(some)
        .map_or(u64::MAX, |disk| disk.f_favail)
}

/// Locks a file for this process while it is open; `false` if another process holds the lock.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// A name or path as bytes.
pub fn bytes_of(name: &OsStr) -> Cow<'_, [u8]> {
    name.as_bytes().into()
}

/// One part of a foreign path as a valid name on this system.
pub fn file_name(part: &[u8]) -> OsString {
    OsString::from_vec(part.to_vec())
}

/// A foreign path with `/` as separator.
pub fn path(bytes: &[u8]) -> PathBuf {
    file_name(bytes).into()
}

/// Standard input as a file.
pub fn stdin_file() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

/// A new, exclusive file without a name that is deleted when closed.
pub fn unnamed(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = Open::mode(&mut options, 0o600)
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Whether a file is executable.
pub fn is_runnable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

/// The files that a program's name may refer to.
pub(super) fn program_names(path: &Path) -> Vec<PathBuf> {
    vec![path.to_owned()]
}
