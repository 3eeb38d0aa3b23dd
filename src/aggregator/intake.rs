//! A body on its way to the disk: counted, digested, and stopped when it is too large or the disk too full.
//!
//! Knows nothing of what the body means. Remembers by itself why it stopped, because whoever reads through it
//! (a decompressor, an unpacker) wraps errors until nothing can be told from them. Starts threads beside a large
//! body and joins them.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{TrySendError, sync_channel};

use super::attempt::Attempt;
use super::digests::{Digest, Digests};
use super::share::{Claim, Room};
use base::sys::write_all_at;

/// How much is read between two looks at the free space. A full gzip window of zeros this long unpacks to 64 MiB,
/// so that the default reserve is not passed between two looks.
const LOOK_EVERY: u64 = 64 << 10;

/// A body of which so much was taken is large: digesting it beside is worth a thread.
const LARGE: u64 = 2 << 20;
/// How much goes to that thread at a time, and how many such pieces there are.
const BLOCK: usize = 512 << 10;
const BLOCKS: usize = 4;
/// How much is written before the disk is told to begin; the end has less to wait for.
const FLUSH_EVERY: u64 = 32 << 20;
/// So many threads help at most; beyond, the processors are busy anyway.
const MAX_HELPERS: usize = 4;

/// Some of a body on its way to the thread beside.
struct Block {
    room: Vec<u8>,
    length: usize,
    /// Where in the file it belongs, unless it is there already.
    write_at: Option<u64>,
}

/// Why a body was not taken to its end.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is longer than allowed.
    TooLarge,
    /// There is no room for it; its claim knows why.
    NoRoom,
    /// Another upload of the same result took its place.
    Superseded,
    /// The sender: gone, silent, or not framing as it should.
    Sender(io::Error),
}

/// A body being read.
pub(super) struct Intake<'a, R> {
    body: R,
    claim: &'a Claim<'a>,
    attempt: &'a Attempt,
    most: u64,
    /// Whether what is read lies on the disk as it is.
    kept: bool,
    digest: Digest,
    taken: u64,
    look_at: u64,
    trouble: Option<Trouble>,
}

impl<'a, R: Read> Intake<'a, R> {
    /// Reads `body` up to `most` bytes while `claim` has room.
    pub(super) fn new(body: R, most: u64, claim: &'a Claim<'a>, attempt: &'a Attempt) -> Self {
        let digest = Digest::new(true);
        Self { body, claim, attempt, most, kept: false, digest, taken: 0, look_at: 0, trouble: None }
    }

    /// Takes the quick digest alone.
    pub(super) fn quick(self) -> Self {
        Self { digest: Digest::new(false), ..self }
    }

    /// Why it stopped, if it did so early.
    pub(super) fn trouble(&mut self) -> Option<Trouble> {
        self.trouble.take()
    }

    /// How much was read so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Copies what is left into `file`, from `at` on. Threads beside help with a large body.
    pub(super) fn copy_to(&mut self, file: &File, mut at: u64) -> io::Result<()> {
        if !self.claim.take(Room::file(at)) {
            return Err(self.stop(Trouble::NoRoom));
        }
        self.kept = true;
        // No read brings more than one record of TLS; more room would only cost memory, in each of 512 threads.
        let mut buffer = vec![0; 16 << 10];
        let large = self.taken.saturating_add(LARGE);
        let mut asked = false;
        loop {
            let count = self.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            write_all_at(file, &buffer[..count], at)?;
            at += count as u64;
            if self.taken >= large && !asked {
                asked = true;
                if let Some(_right) = Helper::hire() {
                    return self.copy_beside(file, at);
                }
            }
        }
    }

    /// As above, with a thread that waits for the disk.
    fn copy_beside(&mut self, file: &File, at: u64) -> io::Result<()> {
        std::thread::scope(|scope| {
            let (flush, flushes) = sync_channel::<()>(1);
            let flusher = std::thread::Builder::new().name("flush".into()).stack_size(64 << 10);
            // Its errors count: the system tells each of them once.
            let flusher = flusher
                .spawn_scoped(scope, move || flushes.into_iter().try_for_each(|()| file.sync_data()))?;
            let mut flush_at = at + FLUSH_EVERY;
            // False if the flusher is gone: it has an error to tell.
            let written = |at: u64| {
                if at < flush_at {
                    return true;
                }
                flush_at = at + FLUSH_EVERY;
                // One that is still at it will be asked again.
                !matches!(flush.try_send(()), Err(TrySendError::Disconnected(())))
            };
            let received = if self.digest.is_quick() {
                self.copy_alone(file, at, written)
            } else {
                self.copy_digesting(file, at, written)
            };
            drop(flush);
            let flushed =
                flusher.join().unwrap_or_else(|_| Err(io::Error::other("the flushing thread has ended")));
            received.and(flushed)
        })
    }

    /// With the quick digest, which is not worth handing anything over.
    fn copy_alone(
        &mut self,
        file: &File,
        mut at: u64,
        mut written: impl FnMut(u64) -> bool,
    ) -> io::Result<()> {
        let mut room = vec![0; BLOCK / 4];
        loop {
            let length = self.fill(&mut room)?;
            write_all_at(file, &room[..length], at)?;
            self.digest.update(&room[..length]);
            at += length as u64;
            if !written(at) || length < room.len() {
                return Ok(());
            }
        }
    }

    /// With a thread that digests. It writes, too, as long as it keeps up: receiving is more work.
    fn copy_digesting(
        &mut self,
        file: &File,
        mut at: u64,
        mut written: impl FnMut(u64) -> bool,
    ) -> io::Result<()> {
        let mut digest = std::mem::replace(&mut self.digest, Digest::new(false));
        let result = std::thread::scope(|scope| {
            let (full, blocks) = sync_channel::<Block>(BLOCKS);
            let (spent, empty) = sync_channel(BLOCKS);
            for _ in 0..BLOCKS {
                let _ = spent.send(vec![0; BLOCK]);
            }
            let digest = &mut digest;
            let helper = std::thread::Builder::new().name("digest".into()).stack_size(64 << 10);
            let helper = helper.spawn_scoped(scope, move || {
                for block in blocks {
                    let content = &block.room[..block.length];
                    if let Some(at) = block.write_at {
                        write_all_at(file, content, at)?;
                    }
                    digest.update(content);
                    // At the end nobody wants it back.
                    let _ = spent.send(block.room);
                }
                Ok(())
            })?;
            let mut receive = || -> io::Result<()> {
                let mut next = None;
                // A helper that is gone has an error to tell.
                while let Some(mut room) = next.or_else(|| empty.recv().ok()) {
                    let length = self.fill(&mut room)?;
                    let last = length < room.len();
                    next = empty.try_recv().ok();
                    let write_at = if next.is_some() {
                        Some(at)
                    } else {
                        write_all_at(file, &room[..length], at)?;
                        None
                    };
                    at += length as u64;
                    if !written(at) || full.send(Block { room, length, write_at }).is_err() || last {
                        break;
                    }
                }
                Ok(())
            };
            let received = receive();
            drop(full);
            let helped =
                helper.join().unwrap_or_else(|_| Err(io::Error::other("the digesting thread has ended")));
            received.and(helped)
        });
        self.digest = digest;
        result
    }

    /// Reads until `room` is full, or the body at its end.
    fn fill(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut length = 0;
        while length < room.len() {
            match self.take(&mut room[length..])? {
                0 => break,
                count => length += count,
            }
        }
        Ok(length)
    }

    /// The digests of what was read.
    pub(super) fn digests(self) -> Digests {
        self.digest.finish()
    }

    fn stop(&mut self, trouble: Trouble) -> io::Error {
        self.trouble = Some(trouble);
        io::Error::other("the body was not taken to its end")
    }
}

impl<R: Read> Intake<'_, R> {
    /// Reads without digesting.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.trouble.is_some() {
            return Err(io::Error::other("the body was not taken to its end"));
        }
        if !self.kept && self.taken >= self.look_at {
            self.look_at = self.taken + LOOK_EVERY;
            if !self.claim.would_take(Room::default()) {
                return Err(self.stop(Trouble::NoRoom));
            }
        }
        let count = loop {
            match self.attempt.reading(|| self.body.read(buffer)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.stop(Trouble::Sender(error))),
                Ok(count) => break count,
            }
        };
        self.taken += count as u64;
        if self.taken > self.most {
            return Err(self.stop(Trouble::TooLarge));
        }
        if self.attempt.is_superseded() {
            return Err(self.stop(Trouble::Superseded));
        }
        if self.kept && !self.claim.take(Room { bytes: count as u64, inodes: 0 }) {
            return Err(self.stop(Trouble::NoRoom));
        }
        Ok(count)
    }
}

impl<R: Read> Read for Intake<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.take(buffer)?;
        self.digest.update(&buffer[..count]);
        Ok(count)
    }
}

/// The right to one thread beside an upload.
struct Helper;

static HELPERS: AtomicUsize = AtomicUsize::new(0);

impl Helper {
    fn hire() -> Option<Self> {
        let more = |hired| (hired < MAX_HELPERS).then_some(hired + 1);
        HELPERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        HELPERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Scratch;
    use super::super::share::Disk;
    use super::*;
    use std::path::Path;

    fn disk() -> Disk {
        Disk::open(Path::new("/tmp"), ["p"].into_iter(), &crate::config::Limits::default())
    }

    #[test]
    fn what_arrives_is_written_and_digested_whoever_does_it() {
        let disk = disk();
        let (claim, attempt) = (disk.claim("p"), Attempt::default());
        let scratch = Scratch::new();
        let path = scratch.run();
        let helped = usize::try_from(LARGE).unwrap();
        for size in [0, 1, helped - 1, helped, helped + 1, helped + BLOCK, helped + 9 * BLOCK + 77] {
            let body: Vec<u8> = (0..size).map(|n| (n % 251).to_le_bytes()[0]).collect();
            // Pieces that fit into no block.
            let (first, second) = body.split_at(size / 3);
            for with_sha256 in [true, false] {
                let intake = Intake::new(first.chain(second), u64::MAX, &claim, &attempt);
                let mut intake = if with_sha256 { intake } else { intake.quick() };
                let mut start = [0; 7];
                let read = intake.read(&mut start).unwrap();
                let file = File::create(&path).unwrap();
                write_all_at(&file, &start[..read], 0).unwrap();
                intake.copy_to(&file, read as u64).unwrap();
                assert!(std::fs::read(&path).unwrap() == body, "{size}");
                assert_eq!(intake.taken(), size as u64);
                let mut whole = Digest::new(with_sha256);
                whole.update(&body);
                assert_eq!(intake.digests(), whole.finish(), "{size}");
            }
        }
    }

    #[test]
    fn a_large_body_that_breaks_is_an_error_with_its_reason() {
        let disk = disk();
        let (claim, attempt) = (disk.claim("p"), Attempt::default());
        struct Cut(u64);
        impl Read for Cut {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(buffer.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok(buffer.len())
            }
        }
        let scratch = Scratch::new();
        let file = File::create(scratch.run()).unwrap();
        let mut intake = Intake::new(Cut(LARGE * 2), u64::MAX, &claim, &attempt);
        intake.copy_to(&file, 0).unwrap_err();
        assert!(matches!(intake.trouble(), Some(Trouble::Sender(_))));
        let mut intake = Intake::new(Cut(LARGE * 9), LARGE * 2, &claim, &attempt);
        intake.copy_to(&file, 0).unwrap_err();
        assert!(matches!(intake.trouble(), Some(Trouble::TooLarge)));
    }

    #[test]
    fn what_the_disk_says_long_after_the_writing_is_an_error() {
        let disk = disk();
        let (claim, attempt) = (disk.claim("p"), Attempt::default());
        // It takes everything, and nothing can be flushed to it.
        let file = File::options().write(true).open("/dev/null").unwrap();
        file.sync_data().unwrap_err();
        let mut intake = Intake::new(io::repeat(7).take(LARGE), u64::MAX, &claim, &attempt);
        intake.copy_to(&file, 0).unwrap();
        let mut intake = Intake::new(io::repeat(7).take(LARGE + 2 * FLUSH_EVERY), u64::MAX, &claim, &attempt);
        let error = intake.copy_to(&file, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        assert!(intake.trouble().is_none());
    }

    #[test]
    fn a_file_that_takes_nothing_is_an_error_of_the_file() {
        let disk = disk();
        let (claim, attempt) = (disk.claim("p"), Attempt::default());
        let full = File::options().write(true).open("/dev/full").unwrap();
        for size in [LARGE / 2, LARGE * 9] {
            let mut intake = Intake::new(io::repeat(7).take(size), u64::MAX, &claim, &attempt);
            let error = intake.copy_to(&full, 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
            assert!(intake.trouble().is_none());
        }
    }
}
