//! Temporary files and folders: accessible only to their owner, with unguessable names, removed on drop.
//!
//! Starts no thread.

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys;

/// A folder that is removed with everything in it when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new folder where this system keeps temporary files.
    pub fn new() -> io::Result<Self> {
        Self::inside(&std::env::temp_dir())
    }

    /// A new folder in memory if this system can, for files that are created and removed very often.
    pub fn in_memory() -> io::Result<Self> {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() { Self::inside(shm) } else { Self::new() }
    }

    /// A new folder inside `parent`.
    pub fn inside(parent: &Path) -> io::Result<Self> {
        // The folder for temporary files may itself be a link.
        let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
        fresh(&parent, |path| {
            let mut folders = folders();
            sys::dir_builder(0o700).create(path)?;
            folders.insert(path.to_owned());
            Ok(Self(path.to_owned()))
        })
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing can be done about whatever is left.
        let _ = std::fs::remove_dir_all(&self.0);
        folders().remove(&self.0);
    }
}

/// The folders of this process.
fn folders() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process with its folders.
pub fn exit(code: i32) -> ! {
    // While this is locked, no thread creates another one.
    let folders = folders();
    for folder in &*folders {
        let _ = std::fs::remove_dir_all(folder);
        // A file may have been created meanwhile.
        let _ = std::fs::remove_dir_all(folder);
    }
    std::process::exit(code)
}

/// An empty file in `parent` for this process only, open for reading and writing, which vanishes with it.
pub fn file(parent: &Path) -> io::Result<File> {
    fresh(parent, sys::unnamed)
}

/// Creates something under an unused name.
fn fresh<T>(parent: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    loop {
        let path = parent.join(format!(".sonobuoy-{:016x}", RandomState::new().hash_one(0)));
        match make(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))),
            made => return made,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn folders_and_files_go_when_they_are_dropped() {
        let outer = Folder::new().unwrap();
        let inner = Folder::inside(&outer).unwrap();
        let path = inner.to_owned();
        std::fs::write(inner.join("a"), "b").unwrap();
        #[cfg(unix)]
        assert_eq!(sys::mode(&path.metadata().unwrap()) & 0o777, 0o700);
        drop(inner);
        assert!(!path.exists());
        file(&outer).unwrap().write_all(b"x").unwrap();
        assert_eq!(std::fs::read_dir(&outer).unwrap().count(), 0);
        assert!(Folder::inside(&outer.join("missing")).is_err());
    }
}
