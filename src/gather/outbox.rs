//! Writes a gatherer's result: a folder that a worker watches, and the `done` file in it.
//!
//! Guarantees that a result is complete before `done` names it, and that `done` appears atomically and without a newline, so
//! that workers of every version can read it. Does not interpret results. Starts no thread.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::at::At as _;
use base::temp;

/// A folder for results.
pub(crate) struct Outbox {
    folder: PathBuf,
}

impl Outbox {
    /// Opens an existing folder: in a pod it is a volume, and a missing one was not mounted.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let meta = fs::metadata(folder).with_context(|| {
            format!(
                "cannot write results to `{}`: create it, or name another folder with --output",
                folder.display()
            )
        })?;
        if !meta.is_dir() {
            bail!("cannot write results to `{}`: it is not a directory", folder.display());
        }
        // Resolves links once, so that the path in `done` stays valid.
        let folder = folder.canonicalize().at("cannot resolve", folder)?;
        // A previous container may have been killed.
        temp::clean(&folder, "").at("cannot read", &folder)?;
        Ok(Self { folder })
    }

    /// Path of an entry of the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file completely or not at all.
    pub(crate) fn put(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.path(name);
        temp::write(&path, 0o666, content).at("cannot write", &path)?;
        Ok(path)
    }

    /// Reports the resulting file or folder to the worker.
    pub(crate) fn done(&self, result: &Path) -> Result<()> {
        self.put("done", result.as_os_str().as_encoded_bytes()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn done_names_the_result_without_a_newline() {
        let scratch = Scratch::new();
        let outbox = Outbox::open(&scratch.0).unwrap();
        let path = outbox.put("facts.json", b"{}").unwrap();
        outbox.done(&path).unwrap();
        let done = fs::read_to_string(outbox.path("done")).unwrap();
        assert_eq!(Path::new(&done), path);
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 2, "nothing partial stays");
    }

    #[test]
    fn missing_folder_is_named() {
        let scratch = Scratch::new();
        let error = Outbox::open(&scratch.0.join("absent")).err().unwrap();
        assert!(format!("{error:#}").contains("absent`"), "{error:#}");
        fs::create_dir_all(scratch.0.join("facts.json")).unwrap();
        let outbox = Outbox::open(&scratch.0).unwrap();
        assert!(outbox.put("facts.json", b"{}").is_err(), "a folder in the way");
    }
}
