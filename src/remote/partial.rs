//! An archive or a part of its seal during the download: counted, digested, and renamed only when it is complete.
//!
//! Never replaces a different file without `force`: the sender may have chosen the name.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use ring::digest;

use crate::status;
use base::at::At as _;
use base::temp::NewFile;

/// A temporary file, which is removed unless it is committed.
pub(super) struct PartialFile {
    file: NewFile,
    digest: digest::Context,
    size: u64,
    force: bool,
}

impl PartialFile {
    /// Creates it next to `path`, its later name; only `force` replaces an existing file.
    pub(super) fn create(path: &Path, force: bool) -> anyhow::Result<Self> {
        path.file_name().with_context(|| format!("`{}` does not name a file", path.display()))?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at("cannot create", parent)?;
        }
        let file = NewFile::create(path, 0o600).at("cannot write", path)?;
        Ok(Self { file, digest: digest::Context::new(&digest::SHA256), size: 0, force })
    }

    /// Path after the commit.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Bytes written so far.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// SHA-256 of the bytes so far, in hexadecimal.
    pub(super) fn sha256(&self) -> String {
        base::hex(self.digest.clone().finish())
    }

    pub(super) fn write(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        self.digest.update(piece);
        self.size += piece.len() as u64;
        self.file.write_all(piece).at("cannot write", self.path())
    }

    /// Compares size and digest with the announced ones.
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

    /// Checks that its name is free, or that the file there has the same content.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.force || self.path().symlink_metadata().is_err() || self.exists()? {
            return Ok(());
        }
        bail!(
            "`{}` exists and contains something else; move it away, choose another name with `-f`, or replace it with `--force`",
            self.path().display()
        )
    }

    /// Renames the file, unless the same content has that name already.
    pub(super) fn commit(self) -> anyhow::Result<PathBuf> {
        self.check()?;
        let path = self.path().to_owned();
        if self.force || path.symlink_metadata().is_err() {
            self.file.commit(self.force).at("cannot write", &path)?;
        }
        Ok(path)
    }

    /// Whether a regular file of that name has the same content.
    fn exists(&self) -> anyhow::Result<bool> {
        let describe = || format!("cannot read `{}`", self.path().display());
        let about = self.path().symlink_metadata().with_context(describe)?;
        if !about.is_file() || about.len() != self.size {
            return Ok(false);
        }
        Ok(base::hex(base::file_sha256(self.path()).with_context(describe)?) == self.sha256())
    }
}

/// Joins `name` to `folder` as Go does: an absolute name is below it, too, and `..` removes the component before it.
pub(super) fn joined(folder: &Path, name: &str) -> PathBuf {
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
    fn names_are_joined_like_the_original() {
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
    fn existing_files_are_never_overwritten() {
        use base::sys;
        let folder = base::temp::Folder::new().unwrap();
        let mode = |name: &Path| sys::mode(&folder.join(name).metadata().unwrap()) & 0o777;
        let of = |content: &str, force| {
            let mut file = PartialFile::create(&folder.join("a"), force).unwrap();
            file.write(content.as_bytes()).unwrap();
            file
        };
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        fs::write(folder.join("precious"), "precious").unwrap();
        let file = of("one", false);
        let names = fs::read_dir(&*folder).unwrap().map(|entry| entry.unwrap().file_name());
        let partial =
            names.into_iter().find(|name| name.to_string_lossy().starts_with(".sonobuoy-")).unwrap();
        assert_eq!(mode(partial.as_ref()), 0o600);
        assert_eq!(file.commit().unwrap(), folder.join("a"));
        assert_eq!(mode(Path::new("a")), 0o600);
        // Equal content is accepted, any other rejected.
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
        assert_eq!((read("precious"), fs::read_dir(&folder).unwrap().count()), ("precious".into(), 1));
    }
}
