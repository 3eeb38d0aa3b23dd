//! A body on its way to the disk: counted, digested, and stopped when it is too large or the disk too full.
//!
//! Knows nothing of what the body means. Remembers why it stopped, because readers on top of it (a decompressor, an
//! unpacker) wrap errors until their kind is lost. Starts no thread.

use std::fs::File;
use std::io::{self, Read, Write as _};

use ring::digest::{Context, SHA256};

use super::digests::Sha256;
use super::share::{Claim, Room};

/// Bytes between two checks of the free space. A full gzip window of zeros of this length unpacks to 64 MiB, so that
/// the default reserve outlives the time between two checks.
const CHECK_EVERY: u64 = 64 << 10;
/// Bytes written at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Why a body was not read to its end.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is longer than allowed.
    TooLarge,
    /// The disk is full; the claim knows the limit.
    NoRoom,
    /// The sender went away, stalled, or broke the framing.
    Sender(io::Error),
}

/// A body being read.
pub(super) struct Intake<'a, R> {
    body: R,
    claim: &'a Claim<'a>,
    max: u64,
    /// Whether the body itself is written to the disk.
    kept: bool,
    digest: Context,
    taken: u64,
    check_at: u64,
    trouble: Option<Trouble>,
}

impl<'a, R: Read> Intake<'a, R> {
    /// Reads `body` up to `max` bytes while `claim` has room.
    pub(super) fn new(body: R, max: u64, claim: &'a Claim<'a>) -> Self {
        let digest = Context::new(&SHA256);
        Self { body, claim, max, kept: false, digest, taken: 0, check_at: 0, trouble: None }
    }

    /// Why it stopped early, if it did.
    pub(super) fn trouble(&mut self) -> Option<Trouble> {
        self.trouble.take()
    }

    /// The bytes read so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Appends the rest to `file`, which has the first `written` bytes.
    pub(super) fn copy_to(&mut self, file: &mut File, written: u64) -> io::Result<()> {
        if !self.claim.take(Room::file(written)) {
            return Err(self.stop(Trouble::NoRoom));
        }
        self.kept = true;
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

    fn stop(&mut self, trouble: Trouble) -> io::Error {
        self.trouble = Some(trouble);
        io::Error::other("the body was not read to its end")
    }
}

impl<R: Read> Read for Intake<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.trouble.is_some() {
            return Err(io::Error::other("the body was not read to its end"));
        }
        if !self.kept && self.taken >= self.check_at {
            self.check_at = self.taken + CHECK_EVERY;
            if !self.claim.would_take(Room::default()) {
                return Err(self.stop(Trouble::NoRoom));
            }
        }
        let count = loop {
            match self.body.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.stop(Trouble::Sender(error))),
                Ok(count) => break count,
            }
        };
        self.taken += count as u64;
        if self.taken > self.max {
            return Err(self.stop(Trouble::TooLarge));
        }
        if self.kept && !self.claim.take(Room { bytes: count as u64, inodes: 0 }) {
            return Err(self.stop(Trouble::NoRoom));
        }
        self.digest.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Scratch;
    use super::super::share::Disk;
    use super::*;
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
            let mut intake = Intake::new(first.chain(second), u64::MAX, &claim);
            let mut start = [0; 7];
            let read = intake.read(&mut start).unwrap();
            let mut file = File::create(&path).unwrap();
            file.write_all(&start[..read]).unwrap();
            intake.copy_to(&mut file, read as u64).unwrap();
            assert!(std::fs::read(&path).unwrap() == body, "{size}");
            assert_eq!(intake.taken(), size as u64);
            assert_eq!(intake.digest(), ring::digest::digest(&SHA256, &body).as_ref(), "{size}");
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
        let mut intake = Intake::new(Cut(LARGE * 2), u64::MAX, &claim);
        intake.copy_to(&mut file, 0).unwrap_err();
        assert!(matches!(intake.trouble(), Some(Trouble::Sender(_))));
        let mut intake = Intake::new(Cut(LARGE * 9), LARGE * 2, &claim);
        intake.copy_to(&mut file, 0).unwrap_err();
        assert!(matches!(intake.trouble(), Some(Trouble::TooLarge)));
    }

    #[test]
    fn full_file_is_an_error_of_the_file() {
        let disk = disk();
        let id = ResultId::global("p");
        let claim = disk.claim(&id);
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        for size in [LARGE / 2, LARGE * 9] {
            let mut intake = Intake::new(io::repeat(7).take(size), u64::MAX, &claim);
            let error = intake.copy_to(&mut full, 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
            assert!(intake.trouble().is_none());
        }
    }
}
