//! Packs a folder into an archive file that is either complete or absent.

use std::io::{self, BufWriter};
use std::path::Path;

use super::at;
use super::pack::pack;
use crate::Hashing;
use crate::temp::NewFile;

/// A finished archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Its length in bytes.
    pub size: u64,
    /// Its SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

/// Packs `dir` as `pack` does into a file that will be `path`, readable only by its owner.
pub fn pack_file(dir: &Path, path: &Path) -> io::Result<(NewFile, Packed)> {
    let pack = || {
        let file = NewFile::create(path, 0o600)?;
        let partial = file.partial().to_owned();
        let out = BufWriter::with_capacity(64 << 10, Hashing::new(file));
        let out = pack(dir, Some(&partial), out)?.into_inner().map_err(io::IntoInnerError::into_error)?;
        let size = out.size;
        let (file, sha256) = out.finish();
        Ok((file, Packed { size, sha256: crate::hex(sha256) }))
    };
    pack().map_err(|error| at(path, &error))
}
