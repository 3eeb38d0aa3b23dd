//! Definitions from files and other bytes: of bounded size, in UTF-8; every error and note names their origin.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use super::{Loaded, read_all};
use base::at::At as _;
use base::small;

/// Maximum size of a definition; a ConfigMap holds only 1 MiB.
pub(super) const MAX_FILE_BYTES: u64 = 4 << 20;

/// Loads the definitions of a file given by the user, which may be a pipe.
pub(super) fn load(path: &Path) -> Result<Vec<Loaded>> {
    load_with(small::read, path)
}

/// The files directly in a folder with one of these extensions, sorted.
pub(super) fn in_folder(folder: &Path, endings: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if endings.iter().any(|ending| path.extension().is_some_and(|end| end == *ending)) && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Loads the definitions of a file found in a folder; rejects pipes, which may never have a writer.
pub(super) fn load_found(path: &Path) -> Result<Vec<Loaded>> {
    load_with(small::read_regular, path)
}

fn load_with(read: impl Fn(&Path, u64) -> io::Result<Vec<u8>>, path: &Path) -> Result<Vec<Loaded>> {
    let bytes = match read(path, MAX_FILE_BYTES) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            bail!(
                "`{}` has more than {} MiB, which is too large for a plugin definition",
                path.display(),
                MAX_FILE_BYTES >> 20
            );
        }
        read => read.at("cannot read", path)?,
    };
    parse(&bytes, &path.display().to_string())
}

/// Parses the definitions of a text.
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

/// Returns the only definition; rejects several.
pub(super) fn only(mut all: Vec<Loaded>, origin: &str) -> Result<Loaded> {
    match (all.pop(), all.len()) {
        (Some(loaded), 0) => Ok(loaded),
        (_, more) => bail!("`{origin}` must contain one definition, not {}", more + 1),
    }
}
