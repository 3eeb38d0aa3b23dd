//! Opens a file below a folder so that no link can lead elsewhere, whoever changes the folder meanwhile.
//!
//! Knows nothing of what the file is for. Starts no thread.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens `relative` below `folder` for reading; an error if any part of it is a link. A pipe does not wait for its
/// writer.
#[cfg(unix)]
pub fn open_beneath(folder: &Path, relative: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, openat};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut place = rustix::fs::open(folder, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    for part in relative.components() {
        let std::path::Component::Normal(name) = part else { return Err(climbs()) };
        place = openat(&place, name, flags, Mode::empty())?;
    }
    Ok(place.into())
}

/// The same, looking at each part before: here only an administrator makes links.
#[cfg(windows)]
pub fn open_beneath(folder: &Path, relative: &Path) -> io::Result<File> {
    let mut path = folder.to_owned();
    for part in relative.components() {
        let std::path::Component::Normal(name) = part else { return Err(climbs()) };
        path.push(name);
        if path.symlink_metadata()?.is_symlink() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads over a link"));
        }
    }
    File::open(path)
}

fn climbs() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the path climbs")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;

    use super::super::symlink;
    use super::*;

    #[test]
    fn links_and_climbing_are_refused_at_every_part() {
        let root = std::env::temp_dir().join(format!("sonobuoy-beneath-{}", std::process::id()));
        fs::create_dir_all(root.join("in/deep")).unwrap();
        fs::write(root.join("secret"), "secret").unwrap();
        fs::write(root.join("in/deep/file"), "text").unwrap();
        symlink(&root.join("secret"), &root.join("in/link")).unwrap();
        symlink(Path::new("deep"), &root.join("in/folder")).unwrap();
        for (path, expected) in [
            ("deep/file", Some("text")),
            ("link", None),
            ("folder/file", None),
            ("../secret", None),
            ("/etc/passwd", None),
            ("none", None),
        ] {
            let read = open_beneath(&root.join("in"), Path::new(path)).and_then(|mut file| {
                let mut text = String::new();
                file.read_to_string(&mut text).map(|_| text)
            });
            assert_eq!(read.ok().as_deref(), expected, "{path}");
        }
        fs::remove_dir_all(root).unwrap();
    }
}
