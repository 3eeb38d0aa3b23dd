//! Files extracted from a stream for later: small ones in memory, many or large ones on disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Context as _;

use base::sys;
use base::temp;

/// Maximum bytes in memory; the results of 20,000 tests are 5 MiB.
const MEMORY: u64 = 512 << 10;
/// Maximum bytes in memory if no file can be created.
const MEMORY_ALONE: u64 = 8 << 20;

/// Free space to keep on the disk of temporary files, and bytes between checks.
const RESERVE: u64 = 64 << 20;
const CHECKED_BYTES: u64 = 16 << 20;

/// Named contents, stored consecutively.
#[derive(Default)]
pub(crate) struct Spool {
    memory: Vec<u8>,
    /// The contents once they exceed memory; an unlinked file.
    file: Option<Temporary>,
    end: u64,
    places: BTreeMap<String, (u64, u64)>,
}

impl Spool {
    /// Adds a content under `name`; the first of a name is kept.
    pub(crate) fn add(&mut self, name: &str, mut content: impl Read) -> anyhow::Result<()> {
        if self.has(name) {
            return Ok(());
        }
        let start = self.end;
        let mut buffer = vec![0; 64 << 10];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.write(&buffer[..count]).context("cannot write a temporary file")?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.places.insert(name.to_owned(), (start, self.end - start));
        Ok(())
    }

    /// Whether a content of that name exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// Opens a content at its start.
    pub(crate) fn open(&self, name: &str) -> Option<Content<'_>> {
        let (at, left) = *self.places.get(name)?;
        Some(Content { spool: self, at, left, start: at })
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let end = self.end + data.len() as u64;
        if self.file.is_none() && end > MEMORY {
            match temporary() {
                Ok(mut file) => {
                    file.write_all(&self.memory)?;
                    self.memory = Vec::new();
                    self.file = Some(file);
                }
                Err(error) if end > MEMORY_ALONE => return Err(error),
                Err(_) => {}
            }
        }
        match &mut self.file {
            Some(file) => file.write_all(data)?,
            None => self.memory.extend_from_slice(data),
        }
        self.end += data.len() as u64;
        Ok(())
    }
}

/// A reader of one content.
pub(crate) struct Content<'s> {
    spool: &'s Spool,
    at: u64,
    left: u64,
    start: u64,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = match &self.spool.file {
            Some(file) => sys::read_at(&file.file, &mut buffer[..room], self.at)?,
            None => {
                let start = usize::try_from(self.at).unwrap_or(usize::MAX);
                (&self.spool.memory[start..]).read(&mut buffer[..room])?
            }
        };
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Only rewinds to the start, which is sufficient.
impl Seek for Content<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if to != SeekFrom::Start(0) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.left += self.at - self.start;
        self.at = self.start;
        Ok(0)
    }
}

/// A private temporary file that is deleted when closed and never fills its disk.
pub(crate) struct Temporary {
    file: File,
    /// Bytes until the next check of free space; a small amount is always allowed.
    left: u64,
    free: fn(&Path) -> u64,
}

/// Creates a file in the folder for temporary files.
pub(crate) fn temporary() -> io::Result<Temporary> {
    Ok(Temporary { file: temp::file(temp::dir())?, left: CHECKED_BYTES, free: sys::free_bytes })
}

impl Temporary {
    /// The file, for reading.
    pub(crate) fn into_file(self) -> File {
        self.file
    }
}

impl Write for Temporary {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            let folder = temp::dir();
            if (self.free)(folder) < RESERVE + CHECKED_BYTES {
                let why = format!(
                    "it would fill the disk of `{}`; name a folder with more room by TMPDIR",
                    folder.display()
                );
                return Err(io::Error::new(io::ErrorKind::StorageFull, why));
            }
            self.left = CHECKED_BYTES;
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
        let count = self.file.write(&data[..room])?;
        self.left -= count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_temporary_file_ends_before_the_disk_is_full() {
        // A disk with space for one more check.
        static FREE: AtomicU64 = AtomicU64::new(RESERVE + CHECKED_BYTES);
        let free = |_: &Path| FREE.fetch_sub(CHECKED_BYTES, Ordering::Relaxed);
        let mut file = Temporary { free, ..temporary().unwrap() };
        let error = io::copy(&mut io::repeat(0), &mut file).unwrap_err();
        assert!(error.to_string().contains("it would fill the disk of"), "{error}");
        assert_eq!(file.into_file().metadata().unwrap().len(), 2 * CHECKED_BYTES);
    }
}
