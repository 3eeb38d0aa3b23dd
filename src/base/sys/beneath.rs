//! Files and folders that are opened once: concurrent renames cannot redirect them through links.
//!
//! Does not interpret files. Starts no thread.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

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
pub struct Folder(#[cfg(unix)] std::os::fd::OwnedFd, #[cfg(windows)] std::path::PathBuf);

impl Opened {
    /// Opens `relative` below `folder`, or with an empty one `folder` itself, for reading; an error if any part of
    /// `relative` is a link. A pipe does not wait for its writer.
    #[cfg(unix)]
    pub fn beneath(folder: &Path, relative: &Path) -> io::Result<Self> {
        let mut place = rustix::fs::open(folder, flags() - OFlags::NOFOLLOW, Mode::empty())?;
        for part in relative.components() {
            let std::path::Component::Normal(name) = part else { return Err(climbs()) };
            place = openat(&place, name, flags(), Mode::empty())?;
        }
        let file = File::from(place);
        Ok(if file.metadata()?.is_dir() { Self::Folder(Folder(file.into())) } else { Self::File(file) })
    }

    /// Like above, checking each part first: on Windows only administrators create links.
    #[cfg(windows)]
    pub fn beneath(folder: &Path, relative: &Path) -> io::Result<Self> {
        let mut path = folder.to_owned();
        for part in relative.components() {
            let std::path::Component::Normal(name) = part else { return Err(climbs()) };
            path.push(name);
            if path.symlink_metadata()?.is_symlink() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads through a link"));
            }
        }
        Ok(if path.metadata()?.is_dir() { Self::Folder(Folder(path)) } else { Self::File(File::open(path)?) })
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
        std::fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Opens the entry `name` and returns its metadata, too; `None` if it is gone, a link, or neither file nor folder.
    #[cfg(unix)]
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<(Opened, Metadata)>> {
        use rustix::fs::{AtFlags, FileType, statat};
        // Opening a device may have side effects.
        let known = match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(known) => FileType::from_raw_mode(known.st_mode),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if !matches!(known, FileType::Directory | FileType::RegularFile) {
            return Ok(None);
        }
        let file: File = match openat(&self.0, name, flags(), Mode::empty()) {
            Ok(file) => file.into(),
            // It was replaced by a link or removed in the meantime.
            Err(Errno::LOOP | Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let about = file.metadata()?;
        Ok(if about.is_dir() {
            Some((Opened::Folder(Self(file.into())), about))
        } else {
            about.is_file().then_some((Opened::File(file), about))
        })
    }

    /// Opens the entry `name` and returns its metadata, too; `None` if it is gone, a link, or neither file nor folder.
    #[cfg(windows)]
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<(Opened, Metadata)>> {
        let path = self.0.join(name);
        let Some(about) = crate::found(path.symlink_metadata())? else { return Ok(None) };
        Ok(if about.is_dir() {
            Some((Opened::Folder(Self(path)), about))
        } else if about.is_file() {
            Some((Opened::File(File::open(path)?), about))
        } else {
            None
        })
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
            let read = Opened::beneath(&root.join("in"), Path::new(path)).and_then(|opened| match opened {
                Opened::Folder(_) => Ok("a folder".to_owned()),
                Opened::File(mut file) => {
                    let mut text = String::new();
                    file.read_to_string(&mut text).map(|_| text)
                }
            });
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
        assert!(matches!(deep, Some((Opened::Folder(_), _))));
        symlink(&root.join("secrets/key"), &root.join("moved/link")).unwrap();
        assert!(folder.entry(OsStr::new("link")).unwrap().is_none());
        assert!(folder.entry(OsStr::new("gone")).unwrap().is_none());
        assert!(Folder::open(&root.join("moved/own")).is_err());
    }
}
