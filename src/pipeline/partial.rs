//! The results of an unfinished run so far, packed as they are: results that are still being
//! received are elsewhere.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::bail;

use base::at::At as _;
use base::{archive, sys};
use model::layout;

/// Packs the run under way in `folder`, and lowers the priority of the calling thread for good.
pub(crate) fn pack_partial<W: Write>(folder: &Path, out: W) -> anyhow::Result<W> {
    let entries = fs::read_dir(folder).at("cannot read", folder)?;
    let runs = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join(layout::META).is_dir());
    let Some(run) = runs.max() else {
        bail!(
            "no unfinished run in `{}`; fetch a finished one without --partial",
            folder.display()
        );
    };
    // Uploads go first: what is fetched here is read once, and often soon out of date.
    sys::yield_to_others();
    archive::pack_live(&run, layout::PARTIAL, out).at("cannot pack", &run)
}
