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
        let path = folder.join(name);
        let partial = folder.join(format!(".{name}.{}.partial", std::process::id()));
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
        let sha256: String =
            self.digest.clone().finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
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
