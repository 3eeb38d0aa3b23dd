//! Packs a folder into an archive file that is either complete or absent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::at;
use super::pack::pack_parallel;
use crate::sys::{self, Open as _};

/// A finished archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Its length in bytes.
    pub size: u64,
    /// Its SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

/// Packs `dir` as `pack` does into the file `path`. It is written under a temporary name in the same folder,
/// flushed to disk, and renamed when it is complete; after an error neither name exists.
pub fn pack_file(dir: &Path, path: &Path) -> io::Result<Packed> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let result = write(dir, &partial).and_then(|packed| {
        fs::rename(&partial, path)?;
        // The name must survive a crash as well as the content.
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sys::sync_folder(parent)?;
        }
        Ok(packed)
    });
    result.map_err(|error| {
        let _ = fs::remove_file(&partial);
        at(path, &error)
    })
}

fn write(dir: &Path, partial: &Path) -> io::Result<Packed> {
    // The contents are only for its owner.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(partial)?;
    let out = Digesting { file, digest: ring::digest::Context::new(&ring::digest::SHA256), size: 0 };
    let out = pack_parallel(dir, Some(partial), BufWriter::with_capacity(64 << 10, out))?;
    let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    out.file.sync_all()?;
    let digest = out.digest.finish();
    let sha256 = crate::hex(digest);
    Ok(Packed { size: out.size, sha256 })
}

/// Digests what passes through.
struct Digesting {
    file: File,
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
