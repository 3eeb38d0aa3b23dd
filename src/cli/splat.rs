//! `sonobuoy splat`: sends the archives from the aggregator's container to the retrieving client.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::flag::Args;
use super::output;
use crate::layout;
use base::archive;
use base::at::At as _;

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let folder = Path::new(args.text("dir").unwrap_or_default());
    if args.on("partial") {
        partial(folder)?;
        return Ok(0);
    }
    // Clients treat an archive without entries as an unfinished run.
    let files = archive::finished(folder).unwrap_or_else(|error| {
        log::warn!("{error:#}");
        Vec::new()
    });
    if files.is_empty() {
        log::warn!("there is no finished archive in `{}`", folder.display());
    }
    if args.on("seals") {
        let seals: Vec<_> =
            files.iter().flat_map(|file| layout::seal(file)).filter(|path| path.is_file()).collect();
        archive::bundle(&seals, 0, output::stdout()).context("sending the seals")?;
        return Ok(0);
    }
    let offset = u64::try_from(args.number("offset"))?;
    archive::bundle(&files, offset, output::stdout()).context("sending the archives")?;
    Ok(0)
}

/// Packs the folder of the run in its current state.
fn partial(folder: &Path) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).at("cannot read", folder)?;
    let mut runs: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.join(layout::META).is_dir()).collect();
    runs.sort();
    let Some(run) = runs.pop() else {
        bail!(
            "there is no run under way in `{}`; a finished one is fetched without --partial",
            folder.display()
        );
    };
    archive::pack(&run, None, output::stdout()).at("cannot pack", &run)?;
    Ok(())
}
