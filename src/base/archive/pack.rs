//! Packs a folder into a gzip tar, as a stream or as a file that is either complete or absent;
//! joins finished archives in one stream, the same bytes each time, so that a reader can resume
//! after losing the connection.

use std::cell::Cell;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::{Compression, GzBuilder, write::GzEncoder};
use tar::{Builder, EntryType, Header};

use super::{MAX_OPEN_LEVELS, Survey};
use crate::Hashing;
use crate::retry::patiently;
use crate::small::at;
use crate::stop::Stop;
use crate::sys::{self, Entry, Folder, Version};
use crate::temp::NewFile;

/// Why a folder could not be packed.
#[derive(Debug)]
pub enum PackError {
    /// This file or folder changed in the meantime, so that the archive would mix two versions.
    Changed(PathBuf),
    /// This file or folder cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The archive cannot be written.
    Output(io::Error),
}

impl PackError {
    fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |error| Self::Unreadable(path.to_owned(), error)
    }
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(path) => write!(f, "`{}` changed while it was packed", path.display()),
            Self::Unreadable(path, error) => write!(f, "cannot read `{}`: {error}", path.display()),
            Self::Output(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PackError {}

/// Packs the content of `dir` and returns `out` after the last byte of gzip. An error if anything
/// in it changes meanwhile.
///
/// Names are relative to `dir` without `./`, in the order of a walk sorted by name; `dir` itself is
/// not an entry. Symbolic links are packed as such. A special file becomes an empty pipe: the
/// reader refuses it, and thereby learns of it.
pub fn pack<W: Write>(dir: &Path, out: W) -> Result<W, PackError> {
    let folder = Folder::open(dir).map_err(PackError::unreadable(dir))?;
    let survey = Survey::take(&folder, dir)?;
    pack_open(&folder, dir, &survey, out)
}

/// Like [`pack`], for a folder that was opened as `dir` and may have been renamed since, and that
/// must still be as in `survey`.
pub fn pack_open<W: Write>(
    folder: &Folder,
    dir: &Path,
    survey: &Survey,
    out: W,
) -> Result<W, PackError> {
    let packer = Packer {
        rest: Duration::ZERO,
        is_live: false,
    };
    let mut tar = Builder::new(GzEncoder::new(out, Compression::default()));
    packer.pack_folder(&mut tar, folder, dir, Path::new(""), 1)?;
    let out = tar
        .into_inner()
        .and_then(GzEncoder::finish)
        .map_err(PackError::Output)?;
    match survey.difference(folder, dir)? {
        Some(path) => Err(PackError::Changed(path)),
        None => Ok(out),
    }
}

/// Like [`pack`], for a folder that is in use and an archive that is read once. A file that grows
/// in the meantime is cut off at its previous size, one that shrinks is padded with zeros, one that
/// vanishes is left out. With less compression, and with a rest before each 64 KiB, since even a
/// thread of the lowest priority keeps its processor for milliseconds unless it sleeps.
/// The last entry is an empty file `marker`.
pub fn pack_live<W: Write>(dir: &Path, marker: &str, out: W) -> Result<W, PackError> {
    let folder = Folder::open(dir).map_err(PackError::unreadable(dir))?;
    let packer = Packer {
        rest: Duration::from_micros(50),
        is_live: true,
    };
    let mut tar = Builder::new(GzEncoder::new(out, Compression::fast()));
    packer.pack_folder(&mut tar, &folder, dir, Path::new(""), 1)?;
    let mut header = bare_header(EntryType::Regular, 0o644);
    tar.append_data(&mut header, marker, io::empty())
        .map_err(PackError::Output)?;
    tar.into_inner()
        .and_then(GzEncoder::finish)
        .map_err(PackError::Output)
}

/// Packs a folder.
struct Packer {
    /// Pause before each piece of a file.
    rest: Duration,
    /// Whether files may change.
    is_live: bool,
}

impl Packer {
    /// Packs a folder that was opened as `dir`; paths only appear in errors.
    fn pack_folder<W: Write>(
        &self,
        tar: &mut Builder<W>,
        folder: &Folder,
        dir: &Path,
        name: &Path,
        level: usize,
    ) -> Result<(), PackError> {
        let mut names = patiently(|| folder.names()).map_err(PackError::unreadable(dir))?;
        names.sort_unstable();
        for file_name in names {
            let (path, name) = (dir.join(&file_name), name.join(&file_name));
            let entry =
                patiently(|| folder.entry(&file_name)).map_err(PackError::unreadable(&path))?;
            match entry {
                Some(Entry::Folder(inner, metadata)) => {
                    let mut header = header(&metadata, EntryType::Directory);
                    tar.append_data(&mut header, &name, io::empty())
                        .map_err(PackError::Output)?;
                    if level < MAX_OPEN_LEVELS {
                        self.pack_folder(tar, &inner, &path, &name, level + 1)?;
                    }
                }
                Some(Entry::File(file, metadata)) => {
                    self.pack_file(tar, &file, &metadata, &path, &name)?;
                }
                Some(Entry::Link(target)) => {
                    let mut header = bare_header(EntryType::Symlink, 0o777);
                    tar.append_link(&mut header, &name, &target)
                        .map_err(PackError::Output)?;
                }
                Some(Entry::Special) => {
                    let mut header = bare_header(EntryType::Fifo, 0o600);
                    tar.append_data(&mut header, &name, io::empty())
                        .map_err(PackError::Output)?;
                }
                None if self.is_live => {}
                None => return Err(PackError::Changed(path)),
            }
        }
        Ok(())
    }

    fn pack_file<W: Write>(
        &self,
        tar: &mut Builder<W>,
        file: &File,
        metadata: &fs::Metadata,
        path: &Path,
        name: &Path,
    ) -> Result<(), PackError> {
        let mut header = header(metadata, EntryType::Regular);
        header.set_size(metadata.len());
        let end = Cell::new(None);
        let content = Content {
            file,
            rest: self.rest,
            is_live: self.is_live,
            end: &end,
        };
        let content = BufReader::with_capacity(64 << 10, content).take(metadata.len());
        let written = tar.append_data(&mut header, name, content);
        match end.take() {
            Some(End::Short) => return Err(PackError::Changed(path.to_owned())),
            Some(End::Unreadable(error)) => {
                return Err(PackError::Unreadable(path.to_owned(), error));
            }
            None => written.map_err(PackError::Output)?,
        }
        let now = file.metadata().map_err(PackError::unreadable(path))?;
        if self.is_live || Version::of(&now) == Version::of(metadata) {
            return Ok(());
        }
        Err(PackError::Changed(path.to_owned()))
    }
}

/// Why the content of a file ended early.
enum End {
    Short,
    Unreadable(io::Error),
}

/// The content of a file, followed by zeros if it is live.
struct Content<'a> {
    file: &'a File,
    rest: Duration,
    is_live: bool,
    /// Kept here because the writer of the tar reports its own errors in the same way.
    end: &'a Cell<Option<End>>,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Stop::new().wait(self.rest);
        let mut file = self.file;
        match patiently(|| file.read(buffer)) {
            Ok(0) if self.is_live => {
                buffer.fill(0);
                Ok(buffer.len())
            }
            Ok(0) if !buffer.is_empty() => {
                self.end.set(Some(End::Short));
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(count) => Ok(count),
            Err(error) => {
                let kind = error.kind();
                self.end.set(Some(End::Unreadable(error)));
                Err(kind.into())
            }
        }
    }
}

fn header(meta: &fs::Metadata, kind: EntryType) -> Header {
    let mut header = bare_header(kind, sys::mode(meta));
    let (user, group) = sys::owner(meta);
    let since = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    };
    header.set_uid(user);
    header.set_gid(group);
    header.set_mtime(meta.modified().map_or(0, since));
    header
}

fn bare_header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
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

/// Packs `dir` into a file that will be `path`, readable only by its owner. Errors of the file name
/// it.
pub fn pack_file(dir: &Path, path: &Path) -> Result<(NewFile, Packed), PackError> {
    let output = |error| PackError::Output(at(path)(error));
    let file = NewFile::create(path, 0o600).map_err(output)?;
    let out = BufWriter::with_capacity(64 << 10, Hashing::new(file));
    let out = pack(dir, out).map_err(|error| match error {
        PackError::Output(error) => output(error),
        other => other,
    })?;
    let out = out
        .into_inner()
        .map_err(|error| output(error.into_error()))?;
    let size = out.size;
    let (file, sha256) = out.finish();
    Ok((
        file,
        Packed {
            size,
            sha256: crate::hex(sha256),
        },
    ))
}

/// Suffix of finished archives; unfinished ones have another one.
const ENDING: &str = ".tar.gz";

/// The finished archives in a folder, by name.
pub fn finished(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    let mut archives: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(ENDING))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    archives.sort();
    Ok(archives)
}

/// Writes `files` to `out` as one uncompressed gzip tar under their base names, without the first
/// `skip` bytes.
pub fn bundle(files: &[PathBuf], skip: u64, out: impl Write) -> io::Result<()> {
    let gzip = GzBuilder::new()
        .mtime(0)
        .write(Skipping { left: skip, out }, Compression::none());
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
        add().map_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                error
            } else {
                at(path)(error)
            }
        })?;
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
        let skipped = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(data.len());
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
        let content: Vec<u8> = (0..200_000_u32)
            .map(|number| (number.wrapping_mul(number) >> 7) as u8)
            .collect();
        fs::write(folder.join("b.tar.gz"), &content).unwrap();
        fs::write(folder.join("a.tar.gz"), b"first").unwrap();
        fs::write(folder.join("c.tar.gz.partial"), b"unfinished").unwrap();
        let files = finished(&folder).unwrap();
        assert_eq!(files, [folder.join("a.tar.gz"), folder.join("b.tar.gz")]);
        let mut whole = Vec::new();
        bundle(&files, 0, &mut whole).unwrap();
        for offset in [
            0,
            1,
            9,
            10,
            511,
            70_000,
            whole.len() - 1,
            whole.len(),
            whole.len() + 5,
        ] {
            let mut rest = Vec::new();
            bundle(&files, offset as u64, &mut rest).unwrap();
            assert!(rest == whole[offset.min(whole.len())..], "{offset}");
        }
        let mut reader = super::super::Reader::new(
            super::super::Gunzip::new(&whole[..]),
            super::super::Limits::default(),
        );
        let first = reader.next_entry().unwrap().unwrap();
        assert_eq!((first.name.as_slice(), first.size), (&b"a.tar.gz"[..], 5));
    }
}
