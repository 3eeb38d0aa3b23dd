//! Temporary files and folders, and files that get their names once they are complete: accessible
//! only to their owner, with unguessable names, removed on drop.
//!
//! Starts no thread.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind::{AlreadyExists, InvalidInput, PermissionDenied, Unsupported};
use std::io::{self, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use crate::sys::{self, Open as _};
use crate::{lock, small};

/// Prefix of every temporary name.
const PREFIX: &str = ".sonobuoy-";
/// Maximum bytes of the final name in a temporary one.
const MAX_NAME_BYTES: usize = 100;

/// Existing temporary files and folders.
static EXISTING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The system's folder for temporary files, as an absolute path. An empty `TMPDIR` counts as unset.
pub fn dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let folder = std::env::temp_dir();
        let folder = if folder.as_os_str().is_empty() {
            "/tmp".into()
        } else {
            folder
        };
        std::path::absolute(&folder).unwrap_or(folder)
    })
}

/// Removes the files that a killed process left in `folder`, of those whose final names contain
/// `of`.
pub fn clean(folder: &Path, of: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) && name.contains(of) {
            remove(&entry.path());
        }
    }
    Ok(())
}

/// Ends the process and removes all temporary files and folders.
pub fn exit(code: i32) -> ! {
    // While this is locked, no other thread can create one.
    let existing = lock(&EXISTING);
    // The second pass removes files that were created in a folder during the first.
    existing
        .iter()
        .chain(&*existing)
        .for_each(|path| remove(path));
    std::process::exit(code)
}

fn remove(path: &Path) {
    // Failures are ignored: the process is ending.
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
}

/// A temporary name, removed on drop.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        remove(&self.0);
        lock(&EXISTING).remove(&self.0);
    }
}

/// A folder that is removed with its content on drop.
pub struct Folder(Temporary);

impl Folder {
    /// A new folder in the system's folder for temporary files.
    pub fn new() -> io::Result<Self> {
        Self::inside(dir()).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot create a temporary folder: {error}"),
            )
        })
    }

    /// A new folder inside `parent`.
    pub fn inside(parent: &Path) -> io::Result<Self> {
        // The folder for temporary files may itself be a link.
        let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
        let (name, ()) = fresh(&parent, "", |path| sys::dir_builder(0o700).create(path))?;
        Ok(Self(name))
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0.0
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        self
    }
}

/// A file that gets its name once complete. It is written under a temporary name in the same
/// folder.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    file: File,
    partial: Temporary,
}

impl NewFile {
    /// Creates the file that will be `path`, with these permissions.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        let open = |path: &Path| {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .no_follow()
                .open(path)
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (partial, file) = fresh(folder_of(path), &name, open)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            partial,
        })
    }

    /// The final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file until it is complete.
    pub fn partial_path(&self) -> &Path {
        &self.partial.0
    }

    /// Syncs the file and gives it its name. `AlreadyExists` if the name is taken and `replace` is
    /// false.
    pub fn commit(self, replace: bool) -> io::Result<()> {
        self.file.sync_all()?;
        let (from, to) = (&self.partial.0, &self.path);
        let linked = if replace {
            Err(Unsupported.into())
        } else {
            fs::hard_link(from, to)
        };
        match linked {
            Err(error) if error.kind() == AlreadyExists => return Err(error),
            // A file system without hard links: a file that takes the name concurrently is
            // overwritten.
            Err(_) if !replace && to.symlink_metadata().is_ok() => {
                return Err(AlreadyExists.into());
            }
            Err(_) => fs::rename(from, to)?,
            Ok(()) => {}
        }
        match sys::sync_folder(folder_of(to)) {
            // Not every file system syncs folders, and not every folder that takes files can be
            // opened.
            Err(error)
                if ![InvalidInput, PermissionDenied, Unsupported].contains(&error.kind()) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes `content` to the file `path` atomically: after a failure it has its previous content.
pub fn write(path: &Path, mode: u32, content: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = NewFile::create(path, mode)?;
    file.write_all(content.as_ref())?;
    file.commit(true)
}

/// A new file in the system's folder for temporary files, which remains when this process has
/// ended: the system removes it some day. Its name begins and ends like this.
pub fn remaining(start: &str, ending: &str) -> io::Result<(PathBuf, File)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).no_follow();
    loop {
        let number = RandomState::new().hash_one(0);
        let path = dir().join(format!("{start}{number:016x}{ending}"));
        match options.open(&path) {
            Err(error) if error.kind() == AlreadyExists => {}
            Err(error) => return Err(small::at(&path)(error)),
            Ok(file) => return Ok((path, file)),
        }
    }
}

/// An empty file in `parent` for this process only, open for reading and writing, which vanishes
/// with it.
pub fn file(parent: &Path) -> io::Result<File> {
    fresh(parent, "", sys::unnamed).map(|(_, file)| file)
}

fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Creates a file or folder in `parent` under an unused name that contains `name`.
fn fresh<T>(
    parent: &Path,
    name: &str,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(Temporary, T)> {
    let name: String = name
        .chars()
        .filter(char::is_ascii)
        .take(MAX_NAME_BYTES)
        .collect();
    loop {
        let path = parent.join(format!(
            "{PREFIX}{:016x}{name}",
            RandomState::new().hash_one(0)
        ));
        match make(&path) {
            Err(error) if error.kind() == AlreadyExists => {}
            Err(error) => return Err(small::at(parent)(error)),
            Ok(made) => {
                lock(&EXISTING).insert(path.clone());
                return Ok((Temporary(path), made));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_files_are_removed_on_drop() {
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
