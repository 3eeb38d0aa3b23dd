//! Writes the folder to submit: the run's log and JUnit file, the product, and how to reproduce the run.
//!
//! Atomic: created under a temporary name and renamed. Overwrites nothing.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::{Candidate, Product};
use base::at::At as _;

/// File names of a submission.
const JUNIT: &str = "junit_01.xml";
const LOG: &str = "e2e.log";
const PRODUCT: &str = "PRODUCT.yaml";
const README: &str = "README.md";

/// Writes the submission into the folder `into`, which must not exist or be empty; returns the paths of its files.
pub(crate) fn write(candidate: &Candidate, product: &Product, into: &Path) -> anyhow::Result<Vec<PathBuf>> {
    check(into)?;
    let shown = || format!("cannot write `{}`", into.display());
    let above = into.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(above).with_context(shown)?;
    let beside = base::temp::Folder::inside(above).with_context(shown)?;
    let making = beside.join("submission");
    fs::create_dir(&making).with_context(shown)?;
    for (name, of) in [(LOG, &candidate.log), (JUNIT, &candidate.junit)] {
        let mut content = candidate.files.open(of)?.with_context(|| format!("`{of}` is missing"))?;
        let mut file = File::create_new(making.join(name)).with_context(shown)?;
        io::copy(&mut content, &mut file).with_context(shown)?;
    }
    fs::write(making.join(PRODUCT), &product.text).with_context(shown)?;
    fs::write(making.join(README), readme(candidate, product)).with_context(shown)?;
    if into.exists() {
        fs::remove_dir(into).with_context(shown)?;
    }
    fs::rename(&making, into).with_context(shown)?;
    Ok([README, LOG, JUNIT, PRODUCT].map(|name| into.join(name)).to_vec())
}

/// Fails if `into` has content that would be overwritten.
pub(crate) fn check(into: &Path) -> anyhow::Result<()> {
    match fs::read_dir(into) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).at("cannot use", into),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => bail!("`{}` is not empty; name a new folder", into.display()),
        },
    }
}

fn readme(candidate: &Candidate, product: &Product) -> String {
    let (name, version) = (&product.name, &candidate.version);
    let (required, _) = candidate.required;
    format!(
        "# Conformance results of {name}, Kubernetes {version}

All {required} conformance tests of {version} ran one after the other, in one run, and passed.

## How to reproduce

1. Create a cluster with {name}, and make sure that `kubectl get nodes` works.
2. Run the conformance tests, which takes about two hours:

   ```sh
   sonobuoy run --wait --mode certified-conformance
   archive=$(sonobuoy retrieve)
   ```

3. Get the two result files of this folder out of the archive:

   ```sh
   tar -xzf \"$archive\" plugins/e2e/results/global/e2e.log plugins/e2e/results/global/{JUNIT}
   sonobuoy delete --wait
   ```
"
    )
}
