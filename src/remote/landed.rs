//! A file that is there under its name only when it is whole: counted, digested, synced and renamed at the end.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use ring::digest;

use crate::status;

/// A file under a temporary name, which is removed unless it is settled.
pub(super) struct Landed {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    digest: digest::Context,
    size: u64,
    settled: bool,
}

impl Landed {
    /// Opens it in `folder`, to be called `name` when it is settled.
    pub(super) fn create(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let path = joined(folder, name);
        let own = path.file_name().with_context(|| format!("`{name}` names no file"))?.to_string_lossy();
        let partial = path.with_file_name(format!(".{own}.{}.partial", std::process::id()));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot make `{}`", parent.display()))?;
        }
        let file = File::create(&partial).with_context(|| format!("cannot write `{}`", partial.display()))?;
        Ok(Self {
            path,
            partial,
            file,
            digest: digest::Context::new(&digest::SHA256),
            size: 0,
            settled: false,
        })
    }

    /// How much is in it.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Appends to it.
    pub(super) fn write(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        self.digest.update(piece);
        self.size += piece.len() as u64;
        self.file.write_all(piece).with_context(|| format!("cannot write `{}`", self.partial.display()))
    }

    /// Whether it is what was promised, if anything was.
    pub(super) fn verify(&self, known: Option<&status::Archive>) -> anyhow::Result<()> {
        let Some(known) = known else { return Ok(()) };
        let sha256 = base::hex(self.digest.clone().finish());
        if self.size != known.size || sha256 != known.sha256 {
            bail!(
                "`{}` is not what the aggregator packed: {} bytes with SHA-256 {sha256} came, {} bytes with {} were promised",
                known.name,
                self.size,
                known.size,
                known.sha256
            );
        }
        Ok(())
    }

    /// Gives the file its name.
    pub(super) fn settle(mut self) -> anyhow::Result<PathBuf> {
        self.file.sync_all().with_context(|| format!("cannot write `{}`", self.partial.display()))?;
        fs::rename(&self.partial, &self.path)
            .with_context(|| format!("cannot write `{}`", self.path.display()))?;
        self.settled = true;
        Ok(self.path.clone())
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        if !self.settled {
            // Nothing more can be done about it, and its name tells what it is.
            let _ = fs::remove_file(&self.partial);
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
}
