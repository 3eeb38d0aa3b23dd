//! Writes the folder to submit: the run's log and JUnit file, the product, and how to reproduce the run.
//!
//! Atomic: created under a temporary name and renamed. Overwrites nothing.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::{Candidate, Product};
use base::at::At as _;

/// File names of a submission.
const FILES: [&str; 4] = ["README.md", "e2e.log", "junit_01.xml", "PRODUCT.yaml"];

/// Writes the submission into the folder `into`, which must not exist or be empty; returns the paths of its files.
pub(crate) fn write(candidate: &Candidate, product: &Product, into: &Path) -> anyhow::Result<Vec<PathBuf>> {
    check(into)?;
    let shown = || format!("cannot write `{}`", into.display());
    let above = into.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(above).with_context(shown)?;
    let beside = base::temp::Folder::inside(above).with_context(shown)?;
    let making = beside.join("submission");
    fs::create_dir(&making).with_context(shown)?;
    let [readme, log, junit, description] = FILES.map(|name| making.join(name));
    for (path, of) in [(log, &candidate.log), (junit, &candidate.junit)] {
        let mut content = candidate.files.open(of).with_context(|| format!("`{of}` is missing"))?;
        let mut file = File::create_new(path).with_context(shown)?;
        io::copy(&mut content, &mut file).with_context(shown)?;
    }
    fs::write(description, &product.text).with_context(shown)?;
    let text = include_str!("submission.md")
        .replace("@PRODUCT@", &product.name)
        .replace("@VERSION@", &candidate.version)
        .replace("@REQUIRED@", &candidate.required.0.to_string());
    fs::write(readme, text).with_context(shown)?;
    if into.exists() {
        fs::remove_dir(into).with_context(shown)?;
    }
    fs::rename(&making, into).with_context(shown)?;
    Ok(FILES.map(|name| into.join(name)).to_vec())
}

/// Fails if `into` has content that would be overwritten.
pub(crate) fn check(into: &Path) -> anyhow::Result<()> {
    let first =
        base::found(fs::read_dir(into)).at("cannot use", into)?.and_then(|mut entries| entries.next());
    ensure!(first.is_none(), "`{}` is not empty; name a new folder", into.display());
    Ok(())
}
