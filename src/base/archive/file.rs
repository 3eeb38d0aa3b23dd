//! Packs a folder into an archive file that is either complete or absent.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::at;
use super::pack::pack;
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
        let out = Digesting { file, digest: ring::digest::Context::new(&ring::digest::SHA256), size: 0 };
        let out = pack(dir, Some(&partial), BufWriter::with_capacity(64 << 10, out))?;
        let Digesting { file, digest, size } = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((file, Packed { size, sha256: crate::hex(digest.finish()) }))
    };
    pack().map_err(|error| at(path, &error))
}

/// Digests what passes through.
struct Digesting {
    file: NewFile,
    digest: ring::digest::Context,
    size: u64,
}

impl Write for Digesting {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = self.file.write(data)?;
        self.digest.update(&data[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
