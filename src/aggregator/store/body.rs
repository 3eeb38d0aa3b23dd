//! A body on its way to the disk: counted, hashed once, and refused when it is too large or the disk too full.
//!
//! Does not know what the body means. Remembers the refusal, because readers on top of it (a decompressor, an unpacker)
//! wrap errors until their kind is lost. Starts no thread.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::sync::Arc;

use ring::digest::{Context, SHA256};

use super::disk_share::{Claim, Space};
use crate::aggregator::limits::{LimitExceeded, Refusal};
use crate::aggregator::run::Sender;
use base::http::Meter;

/// Bytes between two checks of the free space. A full gzip window of zeros of this length unpacks to 64 MiB, so that
/// the default reserve outlives the time between two checks.
const CHECK_EVERY: u64 = 64 << 10;
/// Bytes written at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// SHA-256 of a body as it was sent.
pub(crate) type Sha256 = [u8; 32];

/// A body with its headers.
pub(crate) struct Upload<R> {
    pub(crate) body: R,
    /// The declared length.
    pub(crate) length: Option<u64>,
    /// Whether it is a gzip tar to unpack.
    pub(crate) is_archive: bool,
    /// Whether it is an error report in place of a result.
    pub(crate) is_error: bool,
    /// The file name; `None` without a disposition.
    pub(crate) name: Option<String>,
    /// The announced SHA-256.
    pub(crate) digest: Option<Sha256>,
    pub(crate) sender: Sender,
    /// Measures its connection.
    pub(crate) meter: Arc<Meter>,
}

/// Reads a body.
pub(super) struct BodyReader<'a, R> {
    body: R,
    claim: &'a Claim<'a>,
    max: u64,
    /// Whether the body itself is written to the disk.
    is_written: bool,
    digest: Context,
    bytes: u64,
    check_at: u64,
    refusal: Option<Refusal>,
}

impl<'a, R: Read> BodyReader<'a, R> {
    /// Reads at most `max` bytes of `body` while `claim` permits.
    pub(super) fn new(body: R, max: u64, claim: &'a Claim<'a>) -> Self {
        let digest = Context::new(&SHA256);
        Self { body, claim, max, is_written: false, digest, bytes: 0, check_at: 0, refusal: None }
    }

    /// The reason why reading failed.
    pub(super) fn refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    /// The bytes read so far.
    pub(super) fn size(&self) -> u64 {
        self.bytes
    }

    /// Appends the rest to `file`, which has the first `written` bytes.
    pub(super) fn copy_to(&mut self, file: &mut File, written: u64) -> io::Result<()> {
        self.claim.take(Space::file(written)).map_err(|limit| self.fail(limit))?;
        self.is_written = true;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(()),
                count => file.write_all(&buffer[..count])?,
            }
        }
    }

    /// The SHA-256 of what was read.
    pub(super) fn digest(self) -> Sha256 {
        let mut digest = Sha256::default();
        digest.copy_from_slice(self.digest.finish().as_ref());
        digest
    }

    fn fail(&mut self, refusal: impl Into<Refusal>) -> io::Error {
        self.refusal = Some(refusal.into());
        io::Error::other("the body was not read to its end")
    }
}

impl<R: Read> Read for BodyReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(refusal) = self.refusal.take() {
            return Err(self.fail(refusal));
        }
        if !self.is_written && self.bytes >= self.check_at {
            self.check_at = self.bytes + CHECK_EVERY;
            self.claim.check(Space::default()).map_err(|limit| self.fail(limit))?;
        }
        let count = loop {
            match self.body.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail(Refusal::of_body(error))),
                Ok(count) => break count,
            }
        };
        self.bytes += count as u64;
        if self.bytes > self.max {
            return Err(self.fail(LimitExceeded::Sent(self.max)));
        }
        if self.is_written {
            let more = Space { bytes: count as u64, inodes: 0 };
            self.claim.take(more).map_err(|limit| self.fail(limit))?;
        }
        self.digest.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk_share::Disk;
    use super::*;
    use crate::aggregator::tests::fixture::Scratch;
    use client::protocol::ResultId;
    use std::path::Path;

    const LARGE: u64 = 2 << 20;

    fn disk() -> Disk {
        Disk::open(Path::new("/tmp"), &[], &crate::config::Limits::default())
    }

    #[test]
    fn body_is_written_and_digested_whole() {
        let disk = disk();
        let id = ResultId::global("p");
        let claim = disk.claim(&id);
        let scratch = Scratch::new();
        let path = scratch.run();
        for size in [0, 1, 7, BUFFER_BYTES, BUFFER_BYTES + 1, 9 * BUFFER_BYTES + 77] {
            let body: Vec<u8> = (0..size).map(|n| (n % 251).to_le_bytes()[0]).collect();
            // Pieces that do not fit the buffer.
            let (first, second) = body.split_at(size / 3);
            let mut reader = BodyReader::new(first.chain(second), u64::MAX, &claim);
            let mut start = [0; 7];
            let read = reader.read(&mut start).unwrap();
            let mut file = File::create(&path).unwrap();
            file.write_all(&start[..read]).unwrap();
            reader.copy_to(&mut file, read as u64).unwrap();
            assert!(std::fs::read(&path).unwrap() == body, "{size}");
            assert_eq!(reader.size(), size as u64);
            assert_eq!(reader.digest(), ring::digest::digest(&SHA256, &body).as_ref(), "{size}");
        }
    }

    #[test]
    fn large_body_that_breaks_is_an_error_with_its_reason() {
        let disk = disk();
        let id = ResultId::global("p");
        let claim = disk.claim(&id);
        struct Cut(u64);
        impl Read for Cut {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(buffer.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok(buffer.len())
            }
        }
        let scratch = Scratch::new();
        let mut file = File::create(scratch.run()).unwrap();
        let mut reader = BodyReader::new(Cut(LARGE * 2), u64::MAX, &claim);
        reader.copy_to(&mut file, 0).unwrap_err();
        assert!(matches!(reader.refusal(), Some(Refusal::Cut(_))));
        let mut reader = BodyReader::new(Cut(LARGE * 9), LARGE * 2, &claim);
        reader.copy_to(&mut file, 0).unwrap_err();
        assert!(matches!(reader.refusal(), Some(Refusal::Limit(LimitExceeded::Sent(_)))));
    }

    #[test]
    fn full_file_is_an_error_of_the_file() {
        let disk = disk();
        let id = ResultId::global("p");
        let claim = disk.claim(&id);
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        for size in [LARGE / 2, LARGE * 9] {
            let mut reader = BodyReader::new(io::repeat(7).take(size), u64::MAX, &claim);
            let error = reader.copy_to(&mut full, 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
            assert!(reader.refusal().is_none());
        }
    }
}
