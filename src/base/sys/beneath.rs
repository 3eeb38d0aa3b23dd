//! Files and folders that are opened once: concurrent renames cannot redirect them through links.
//!
//! Does not interpret files. Starts no thread.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// An open file or folder.
#[derive(Debug)]
pub enum Opened {
    /// A folder.
    Folder(Folder),
    /// Anything else.
    File(File),
}

/// An open folder, independent of later changes of its name.
#[derive(Debug)]
pub struct Folder(#[cfg(unix)] std::os::fd::OwnedFd, #[cfg(windows)] PathBuf);

/// An entry of a folder.
#[derive(Debug)]
pub enum Entry {
    /// A regular file.
    File(File, Metadata),
    /// A folder.
    Folder(Folder, Metadata),
    /// A symbolic link, with its target.
    Link(PathBuf),
    /// A device, a pipe or a socket.
    Special,
}

/// Properties that change with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Its bytes.
    pub length: u64,
    /// When it was modified, if the system knows.
    pub modified: Option<SystemTime>,
}

impl Version {
    /// The version with this metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            length: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

impl Opened {
    /// Opens `relative` below `folder`, or with an empty one `folder` itself, for reading; an error
    /// if any part of `relative` is a link. A pipe does not wait for its writer.
    #[cfg(unix)]
    pub fn beneath(folder: &Path, relative: &Path) -> io::Result<Self> {
        let mut place = rustix::fs::open(folder, flags() - OFlags::NOFOLLOW, Mode::empty())?;
        for part in relative.components() {
            let std::path::Component::Normal(name) = part else {
                return Err(climbs());
            };
            place = openat(&place, name, flags(), Mode::empty())?;
        }
        let file = File::from(place);
        Ok(if file.metadata()?.is_dir() {
            Self::Folder(Folder(file.into()))
        } else {
            Self::File(file)
        })
    }

    /// Like above, checking each part first: on Windows only administrators create links.
    #[cfg(windows)]
    pub fn beneath(folder: &Path, relative: &Path) -> io::Result<Self> {
        let mut path = folder.to_owned();
        for part in relative.components() {
            let std::path::Component::Normal(name) = part else {
                return Err(climbs());
            };
            path.push(name);
            if path.symlink_metadata()?.is_symlink() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the path leads through a link",
                ));
            }
        }
        Ok(if path.metadata()?.is_dir() {
            Self::Folder(Folder(path))
        } else {
            Self::File(File::open(path)?)
        })
    }
}

impl Folder {
    /// Opens the folder at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        match Opened::beneath(path, Path::new(""))? {
            Opened::Folder(folder) => Ok(folder),
            Opened::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// The names in it, in no order.
    #[cfg(unix)]
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        use std::os::unix::ffi::OsStrExt as _;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// The names in it, in no order.
    #[cfg(windows)]
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(&self.0)?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    }

    /// Its metadata.
    #[cfg(unix)]
    pub fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.0.try_clone()?).metadata()
    }

    /// Its metadata.
    #[cfg(windows)]
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Opens the entry `name`; `None` if it is gone.
    #[cfg(unix)]
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        use rustix::fs::{AtFlags, FileType, readlinkat, statat};
        use std::os::unix::ffi::OsStringExt as _;
        // Opening a device may have side effects.
        let kind = match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        match kind {
            FileType::Directory | FileType::RegularFile => {}
            FileType::Symlink => {
                return match readlinkat(&self.0, name, Vec::new()) {
                    Ok(target) => Ok(Some(Entry::Link(
                        OsString::from_vec(target.into_bytes()).into(),
                    ))),
                    // It was replaced or removed in the meantime.
                    Err(Errno::INVAL | Errno::NOENT) => Ok(None),
                    Err(errno) => Err(errno.into()),
                };
            }
            _ => return Ok(Some(Entry::Special)),
        }
        let file: File = match openat(&self.0, name, flags(), Mode::empty()) {
            Ok(file) => file.into(),
            // It was replaced by a link or removed in the meantime.
            Err(Errno::LOOP | Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let metadata = file.metadata()?;
        Ok(Some(if metadata.is_dir() {
            Entry::Folder(Self(file.into()), metadata)
        } else if metadata.is_file() {
            Entry::File(file, metadata)
        } else {
            Entry::Special
        }))
    }

    /// Opens the entry `name`; `None` if it is gone.
    #[cfg(windows)]
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        let path = self.0.join(name);
        let Some(metadata) = crate::if_exists(path.symlink_metadata())? else {
            return Ok(None);
        };
        Ok(Some(if metadata.is_symlink() {
            Entry::Link(std::fs::read_link(&path)?)
        } else if metadata.is_dir() {
            Entry::Folder(Self(path), metadata)
        } else if metadata.is_file() {
            Entry::File(File::open(path)?, metadata)
        } else {
            Entry::Special
        }))
    }
}

#[cfg(unix)]
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};

#[cfg(unix)]
fn flags() -> OFlags {
    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK
}

fn climbs() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the path leads upwards")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;

    use super::super::symlink;
    use super::*;

    #[test]
    fn links_and_parent_paths_are_refused_everywhere() {
        let root = crate::temp::Folder::new().unwrap();
        fs::create_dir_all(root.join("in/deep")).unwrap();
        fs::write(root.join("secret"), "secret").unwrap();
        fs::write(root.join("in/deep/file"), "text").unwrap();
        symlink(&root.join("secret"), &root.join("in/link")).unwrap();
        symlink(Path::new("deep"), &root.join("in/folder")).unwrap();
        for (path, expected) in [
            ("deep/file", Some("text")),
            ("deep", Some("a folder")),
            ("", Some("a folder")),
            ("link", None),
            ("folder", None),
            ("folder/file", None),
            ("../secret", None),
            ("/etc/passwd", None),
            ("none", None),
        ] {
            let read =
                Opened::beneath(&root.join("in"), Path::new(path)).and_then(
                    |opened| match opened {
                        Opened::Folder(_) => Ok("a folder".to_owned()),
                        Opened::File(mut file) => {
                            let mut text = String::new();
                            file.read_to_string(&mut text).map(|_| text)
                        }
                    },
                );
            assert_eq!(read.ok().as_deref(), expected, "{path}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn open_folder_is_unaffected_by_renames() {
        let root = crate::temp::Folder::new().unwrap();
        fs::create_dir_all(root.join("in/deep")).unwrap();
        fs::create_dir_all(root.join("secrets")).unwrap();
        fs::write(root.join("in/own"), "").unwrap();
        fs::write(root.join("secrets/key"), "").unwrap();
        let folder = Folder::open(&root.join("in")).unwrap();
        let deep = folder.entry(OsStr::new("deep")).unwrap();
        fs::rename(root.join("in"), root.join("moved")).unwrap();
        symlink(Path::new("secrets"), &root.join("in")).unwrap();
        let mut names = folder.names().unwrap();
        names.sort();
        assert_eq!(names, ["deep", "own"]);
        assert!(matches!(deep, Some(Entry::Folder(..))));
        symlink(&root.join("secrets/key"), &root.join("moved/link")).unwrap();
        let link = folder.entry(OsStr::new("link")).unwrap();
        assert!(matches!(link, Some(Entry::Link(target)) if target == root.join("secrets/key")));
        assert!(folder.entry(OsStr::new("gone")).unwrap().is_none());
        assert!(Folder::open(&root.join("moved/own")).is_err());
    }
}
