//! Definitions out of files and other bytes: of bounded size, in UTF-8, every error and note naming where they come from.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use super::{Loaded, read_all};

/// No definition is larger: it must fit a ConfigMap, which holds 1 MiB.
pub(super) const MAX_FILE_BYTES: u64 = 4 << 20;

/// The definitions of a file.
pub(super) fn load(path: &Path) -> Result<Vec<Loaded>> {
    let describe = || format!("cannot read `{}`", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(describe)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).with_context(describe)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!(
            "`{}` has more than {} MiB, which no plugin definition has",
            path.display(),
            MAX_FILE_BYTES >> 20
        );
    }
    parse(&bytes, &path.display().to_string())
}

/// The definitions of a text.
pub(super) fn parse(bytes: &[u8], origin: &str) -> Result<Vec<Loaded>> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| anyhow!("`{origin}` is not text: byte {} is not UTF-8", error.valid_up_to()))?;
    let mut all = read_all(text).map_err(|error| anyhow!("plugin definition `{origin}`, {error}"))?;
    for loaded in &mut all {
        for note in &mut loaded.notes {
            *note = format!("`{origin}`: {note}");
        }
    }
    Ok(all)
}

/// The one definition that there is.
pub(super) fn only(mut all: Vec<Loaded>, origin: &str) -> Result<Loaded> {
    match (all.pop(), all.len()) {
        (Some(loaded), 0) => Ok(loaded),
        (_, more) => bail!("`{origin}` holds {} definitions, one is needed", more + 1),
    }
}
