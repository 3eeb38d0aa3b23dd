//! A file that exists under its name only when it is whole: counted, digested, synced and renamed at the end.
//!
//! Never takes the place of another file unless it is told to: who sent it may have chosen its name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use ring::digest;

use crate::status;
use base::at::At as _;
use base::sys::Open as _;

/// So many leftovers of killed programs may lie where a partial file is made.
const ATTEMPTS: u32 = 100;

/// A file under a temporary name, which is removed unless it is committed.
pub(super) struct PartialFile {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    digest: digest::Context,
    size: u64,
    force: bool,
}

impl PartialFile {
    /// Opens it in `folder`, to be called `name` when it is committed; with `force` even if something is called so.
    pub(super) fn create(folder: &Path, name: &str, force: bool) -> anyhow::Result<Self> {
        let path = joined(folder, name);
        let own =
            path.file_name().with_context(|| format!("`{name}` does not name a file"))?.to_string_lossy();
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at("cannot create", parent)?;
        }
        let partial = |number| {
            let name = format!(".{own}.{}-{number}.partial", std::process::id());
            path.with_file_name(name)
        };
        let mut number = 0;
        let (partial, file) = loop {
            let partial = partial(number);
            number += 1;
            match private(&partial) {
                Ok(file) => break (partial, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < ATTEMPTS => {}
                Err(error) => {
                    return Err(error).at("cannot write", &partial);
                }
            }
        };
        Ok(Self { path, partial, file, digest: digest::Context::new(&digest::SHA256), size: 0, force })
    }

    /// One with this content beside this one, under its name and an ending.
    pub(super) fn beside(&self, path: &Path, content: &[u8]) -> anyhow::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut file = Self::create(path.parent().unwrap_or(Path::new("")), &name, self.force)?;
        file.write(content)?;
        Ok(file)
    }

    /// What it will be called.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How much is in it.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// SHA-256 of what is in it, in hexadecimal.
    pub(super) fn sha256(&self) -> String {
        base::hex(self.digest.clone().finish())
    }

    /// Appends to it.
    pub(super) fn write(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        self.digest.update(piece);
        self.size += piece.len() as u64;
        self.file.write_all(piece).at("cannot write", &self.partial)
    }

    /// Whether it is what was promised.
    pub(super) fn verify(&self, known: &status::Archive) -> anyhow::Result<()> {
        let sha256 = self.sha256();
        if self.size != known.size || sha256 != known.sha256 {
            bail!(
                "`{}` is not what the aggregator packed: received {} bytes with SHA-256 {sha256}, expected {} bytes with {}",
                known.name,
                self.size,
                known.size,
                known.sha256
            );
        }
        Ok(())
    }

    /// Whether it can have its name: nothing is called so, or something that holds the same.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.force || self.path.symlink_metadata().is_err() || self.exists()? {
            return Ok(());
        }
        bail!(
            "`{}` exists and contains something else; move it away, choose another name with `-f`, or replace it with `--force`",
            self.path.display()
        )
    }

    /// Gives the file its name.
    pub(super) fn commit(self) -> anyhow::Result<PathBuf> {
        let describe = || format!("cannot write `{}`", self.path.display());
        self.file.sync_all().with_context(describe)?;
        if self.force {
            fs::rename(&self.partial, &self.path).with_context(describe)?;
            return Ok(self.path.clone());
        }
        match fs::hard_link(&self.partial, &self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.check()?,
            // A file system without links; what takes the name just now is lost.
            Err(_) => {
                self.check()?;
                fs::rename(&self.partial, &self.path).with_context(describe)?;
            }
        }
        Ok(self.path.clone())
    }

    /// Whether the same content stands under the name already, in a plain file.
    fn exists(&self) -> anyhow::Result<bool> {
        let describe = || format!("cannot read `{}`", self.path.display());
        let about = self.path.symlink_metadata().with_context(describe)?;
        if !about.is_file() || about.len() != self.size {
            return Ok(false);
        }
        Ok(sha256(&self.path).with_context(describe)? == self.sha256())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // Committed, it has another name by now. Else nothing more can be done about it, and its name tells what it is.
        let _ = fs::remove_file(&self.partial);
    }
}

/// A new file for its owner alone. Nothing that exists is opened, nor what a link leads to.
fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).no_follow().open(path)
}

/// SHA-256 of a file, in hexadecimal.
pub(super) fn sha256(path: &Path) -> io::Result<String> {
    let (mut file, mut digest) = (File::open(path)?, digest::Context::new(&digest::SHA256));
    let mut piece = vec![0; 64 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(base::hex(digest.finish())),
            count => digest.update(&piece[..count]),
        }
    }
}

/// `name` below `folder`, as Go joins them: an absolute name is below it, too, and `..` takes back what is before it.
fn joined(folder: &Path, name: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." if path.file_name().is_some() => {
                path.pop();
            }
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_as_the_original_joins_them() {
        for (folder, name, expected) in [
            (".", "a.tar.gz", "./a.tar.gz"),
            (".", "./a//b.tar.gz", "./a/b.tar.gz"),
            (".", "../a", "./../a"),
            ("out", "/tmp/a", "out/tmp/a"),
            ("out", "../a", "a"),
            ("/out", "x/../../a", "/a"),
        ] {
            assert_eq!(joined(Path::new(folder), name), Path::new(expected), "{folder} {name}");
        }
    }

    #[cfg(unix)] // its links and modes
    #[test]
    fn nothing_that_exists_is_written_to() {
        use base::sys;
        let folder = base::temp::Folder::new().unwrap();
        let mode = |name: &Path| sys::mode(&folder.join(name).metadata().unwrap()) & 0o777;
        let of = |content: &str, force| {
            let mut file = PartialFile::create(&folder, "a", force).unwrap();
            file.write(content.as_bytes()).unwrap();
            file
        };
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        // The first two names are taken, one of them by a link to a file of somebody.
        fs::write(folder.join("precious"), "precious").unwrap();
        let taken = |number| folder.join(format!(".a.{}-{number}.partial", std::process::id()));
        sys::symlink(&folder.join("precious"), &taken(0)).unwrap();
        fs::write(taken(1), "other").unwrap();
        let file = of("one", false);
        assert_eq!(mode(&taken(2)), 0o600);
        assert_eq!(file.commit().unwrap(), folder.join("a"));
        assert_eq!(mode(Path::new("a")), 0o600);
        // The same again is no harm, anything else is.
        of("one", false).commit().unwrap();
        for content in ["two", "more than one"] {
            let error = of(content, false).commit().unwrap_err().to_string();
            assert!(error.contains("/a` exists and contains something else"), "{error}");
            assert!(of(content, false).check().is_err());
        }
        assert_eq!(read("a"), "one");
        of("two", true).commit().unwrap();
        assert_eq!(read("a"), "two");
        // A link is replaced, never followed.
        fs::remove_file(folder.join("a")).unwrap();
        for target in ["precious", "nowhere"] {
            sys::symlink(&folder.join(target), &folder.join("a")).unwrap();
            assert!(of("precious", false).commit().is_err(), "{target}");
            of("three", true).commit().unwrap();
            assert!(folder.join("a").symlink_metadata().unwrap().is_file());
            fs::remove_file(folder.join("a")).unwrap();
        }
        assert_eq!((read("precious"), fs::read_dir(&folder).unwrap().count()), ("precious".into(), 3));
    }
}
