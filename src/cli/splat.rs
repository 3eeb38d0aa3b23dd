//! `sonobuoy splat`: sends the archives from the aggregator's container to the retrieving client.

use std::path::Path;

use anyhow::Context as _;

use super::flag::Args;
use super::output;
use crate::{layout, pipeline};
use base::archive;
use base::at::At as _;

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let folder = Path::new(args.text("dir").unwrap_or_default());
    if args.on("partial") {
        pipeline::pack_partial(folder, output::stdout())?;
        return Ok(0);
    }
    if args.on("status") {
        let path = folder.join(layout::LAST_STATUS);
        let mut file = std::fs::File::open(&path).at("cannot read", &path)?;
        std::io::copy(&mut file, &mut output::stdout()).context("sending the status")?;
        return Ok(0);
    }
    // Clients treat an archive without entries as an unfinished run.
    let files = archive::finished(folder).unwrap_or_else(|error| {
        log::warn!("{error:#}");
        Vec::new()
    });
    if files.is_empty() {
        log::warn!("no finished archive in `{}`", folder.display());
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
