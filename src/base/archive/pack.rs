//! Packs a folder into a gzip tar, as a stream or as a file that is either complete or absent; joins finished archives in one
//! stream, the same bytes each time, so that a reader can resume after losing the connection.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::{Compression, GzBuilder, write::GzEncoder};
use tar::{Builder, EntryType, Header};

use crate::Hashing;
use crate::small::at;
use crate::stop::Stop;
use crate::sys::{self, Folder, Opened};
use crate::temp::NewFile;

/// Packs the content of `dir` and returns `out` after the last byte of gzip.
///
/// Names are relative to `dir` without `./`, in the order of a walk sorted by name; `dir` itself is not an entry.
/// Symbolic links and special files are left out. A file that grows in the meantime is cut off at its previous size, one
/// that shrinks is padded with zeros, one that vanishes is left out: a folder of live logs still yields a valid archive.
pub fn pack<W: Write>(dir: &Path, out: W) -> io::Result<W> {
    let folder = Folder::open(dir).map_err(at(dir))?;
    pack_open(&folder, dir, out)
}

/// Like [`pack`], for an archive that is read once: with less compression, and with a rest before each 64 KiB, since even a thread
/// of the lowest priority keeps its processor for milliseconds unless it sleeps.
pub fn pack_quickly<W: Write>(dir: &Path, out: W) -> io::Result<W> {
    let folder = Folder::open(dir).map_err(at(dir))?;
    pack_as(Compression::fast(), Duration::from_micros(50), &folder, dir, out)
}

/// Like [`pack`], for a folder that was opened as `dir` and may have been renamed since.
pub fn pack_open<W: Write>(folder: &Folder, dir: &Path, out: W) -> io::Result<W> {
    pack_as(Compression::default(), Duration::ZERO, folder, dir, out)
}

fn pack_as<W: Write>(
    level: Compression,
    rest: Duration,
    folder: &Folder,
    dir: &Path,
    out: W,
) -> io::Result<W> {
    let mut tar = Builder::new(GzEncoder::new(out, level));
    pack_folder(&mut tar, rest, folder, dir, Path::new(""))?;
    tar.into_inner()?.finish()
}

/// Packs a folder that was opened as `dir`; paths only appear in errors.
fn pack_folder<W: Write>(
    tar: &mut Builder<W>,
    rest: Duration,
    folder: &Folder,
    dir: &Path,
    name: &Path,
) -> io::Result<()> {
    let mut names = folder.names().map_err(at(dir))?;
    names.sort_unstable();
    for file_name in names {
        let (path, name) = (dir.join(&file_name), name.join(&file_name));
        match folder.entry(&file_name).map_err(at(&path))? {
            Some((Opened::Folder(inner), meta)) => {
                let mut header = header(&meta, EntryType::Directory);
                tar.append_data(&mut header, &name, io::empty())?;
                pack_folder(tar, rest, &inner, &path, &name)?;
            }
            Some((Opened::File(file), meta)) => {
                let mut header = header(&meta, EntryType::Regular);
                header.set_size(meta.len());
                let content = BufReader::with_capacity(64 << 10, Resting { file, rest })
                    .chain(io::repeat(0))
                    .take(meta.len());
                tar.append_data(&mut header, &name, content).map_err(at(&path))?;
            }
            None => {}
        }
    }
    Ok(())
}

/// A file that is read with a rest before each piece.
struct Resting {
    file: File,
    rest: Duration,
}

impl Read for Resting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Stop::new().wait(self.rest);
        self.file.read(buffer)
    }
}

fn header(meta: &fs::Metadata, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    let (user, group) = sys::owner(meta);
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    header.set_mode(sys::mode(meta));
    header.set_uid(user);
    header.set_gid(group);
    header.set_mtime(meta.modified().map_or(0, since));
    header.set_size(0);
    header
}

/// A finished archive.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// Bytes.
    pub size: u64,
    /// Its SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

/// Packs `dir` into a file that will be `path`, readable only by its owner.
pub fn pack_file(dir: &Path, path: &Path) -> io::Result<(NewFile, Packed)> {
    let pack = || {
        let file = NewFile::create(path, 0o600)?;
        let out = BufWriter::with_capacity(64 << 10, Hashing::new(file));
        let out = pack(dir, out)?.into_inner().map_err(io::IntoInnerError::into_error)?;
        let size = out.size;
        let (file, sha256) = out.finish();
        Ok((file, Packed { size, sha256: crate::hex(sha256) }))
    };
    pack().map_err(at(path))
}

/// Suffix of finished archives; unfinished ones have another one.
const ENDING: &str = ".tar.gz";

/// The finished archives in a folder, by name.
pub fn finished(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(ENDING))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    Ok(found)
}

/// Writes `files` to `out` as one uncompressed gzip tar under their base names, without the first `skip` bytes.
pub fn bundle(files: &[PathBuf], skip: u64, out: impl Write) -> io::Result<()> {
    let gzip = GzBuilder::new().mtime(0).write(Skipping { left: skip, out }, Compression::none());
    let mut tar = Builder::new(gzip);
    for path in files {
        let mut add = || {
            let file = File::open(path)?;
            let size = file.metadata()?.len();
            let mut header = Header::new_gnu();
            header.set_size(size);
            header.set_mode(0o644);
            // Bytes appended in the meantime exceed the size in the header.
            tar.append_data(
                &mut header,
                path.file_name().unwrap_or_default(),
                BufReader::new(file).take(size),
            )
        };
        add().map_err(
            |error| if error.kind() == io::ErrorKind::BrokenPipe { error } else { at(path)(error) },
        )?;
    }
    tar.into_inner()?.finish()?.out.flush()
}

/// Drops the first bytes.
struct Skipping<W> {
    left: u64,
    out: W,
}

impl<W: Write> Write for Skipping<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
        if skipped > 0 {
            self.left -= skipped as u64;
            return Ok(skipped);
        }
        self.out.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_continues_the_same_stream() {
        let folder = crate::temp::Folder::new().unwrap();
        let content: Vec<u8> =
            (0..200_000_u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
        fs::write(folder.join("b.tar.gz"), &content).unwrap();
        fs::write(folder.join("a.tar.gz"), b"first").unwrap();
        fs::write(folder.join("c.tar.gz.partial"), b"unfinished").unwrap();
        let files = finished(&folder).unwrap();
        assert_eq!(files, [folder.join("a.tar.gz"), folder.join("b.tar.gz")]);
        let mut whole = Vec::new();
        bundle(&files, 0, &mut whole).unwrap();
        for offset in [0, 1, 9, 10, 511, 70_000, whole.len() - 1, whole.len(), whole.len() + 5] {
            let mut rest = Vec::new();
            bundle(&files, offset as u64, &mut rest).unwrap();
            assert!(rest == whole[offset.min(whole.len())..], "{offset}");
        }
        let mut reader =
            super::super::Reader::new(super::super::Gunzip::new(&whole[..]), super::super::Limits::default());
        let first = reader.next_entry().unwrap().unwrap();
        assert_eq!((first.name.as_slice(), first.size), (&b"a.tar.gz"[..], 5));
    }
}
