//! The results of an unfinished run so far, packed as they are: results that are still being received are elsewhere.

use std::io::Write;
use std::path::Path;

use anyhow::bail;

use crate::layout;
use base::archive;
use base::at::At as _;

/// Packs the run under way in `folder`.
pub(crate) fn pack_partial<W: Write>(folder: &Path, out: W) -> anyhow::Result<W> {
    let entries = std::fs::read_dir(folder).at("cannot read", folder)?;
    let runs = entries.flatten().map(|entry| entry.path()).filter(|path| path.join(layout::META).is_dir());
    let Some(run) = runs.max() else {
        bail!("no unfinished run in `{}`; fetch a finished one without --partial", folder.display());
    };
    archive::pack(&run, out).at("cannot pack", &run)
}
