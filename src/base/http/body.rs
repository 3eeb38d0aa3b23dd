//! The body of a request as a reader: by length or by chunks, within limits, never past its end.
//!
//! `Ok(0)` is returned only at the true end. A body that is truncated, malformed or too slow fails for good, and the
//! connection responds accordingly.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use super::Limits;
use super::head::Framing;
use super::wire::Input;

/// Maximum bytes of the line before a chunk, and of a trailer.
const MAX_LINE_BYTES: usize = 1024;
/// Maximum bytes of all chunk extensions and trailers of one body.
const MAX_EXTRA_BYTES: usize = 64 * 1024;
/// The connection goes on after a body of which no more than this was left unread.
const MAX_SKIPPED_BYTES: u64 = 8 * 1024;

/// Why a body could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Malformed,
    Slow,
    Truncated,
    /// Ended because other connections waited.
    Evicted,
}

impl From<io::ErrorKind> for Failure {
    fn from(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::InvalidData => Self::Malformed,
            io::ErrorKind::TimedOut => Self::Slow,
            io::ErrorKind::ConnectionAborted => Self::Evicted,
            _ => Self::Truncated,
        }
    }
}

impl Failure {
    /// What went wrong, for the peer and the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "the body is malformed",
            Self::Slow => "the body arrived too slowly",
            Self::Truncated => "the connection ended inside the body",
            Self::Evicted => "the body arrived too slowly while other connections waited; try again",
        }
    }
}

/// Reads the body of a request.
pub struct Body<'a> {
    input: &'a mut Input,
    state: State,
    limits: &'a Limits,
    /// The client waits for `100 Continue`, which the first read sends.
    waiting: bool,
    /// Time for which the peer was waited for, and the bytes that came.
    waited: Duration,
    received: u64,
    extras: usize,
    failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The remaining bytes.
    Length(u64),
    /// Before the line with the length of a chunk.
    ChunkLine,
    /// The remaining bytes of a chunk.
    Chunk(u64),
    /// Before the line break that follows a chunk.
    ChunkEnd,
    Trailers,
    Done,
}

impl<'a> Body<'a> {
    pub(super) fn new(input: &'a mut Input, framing: Framing, waiting: bool, limits: &'a Limits) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkLine,
        };
        let waiting = waiting && state != State::Done;
        Self { input, state, limits, waiting, waited: Duration::ZERO, received: 0, extras: 0, failure: None }
    }

    /// Makes reads fail when the body is not complete after `limit`.
    pub fn finish_within(&mut self, limit: Duration) {
        // A socket that refuses a timeout fails at its next read, too.
        let _ = self.input.wire.set_deadline(Instant::now().checked_add(limit));
    }

    /// Whether everything was read.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Why reading failed, if it did.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Skips the rest if it is short; true when the end was reached.
    pub(super) fn skip(&mut self) -> bool {
        if let State::Length(..=MAX_SKIPPED_BYTES) = self.state
            && !self.waiting
        {
            // A failure leaves the body unfinished.
            let _ = io::copy(self, &mut io::sink());
        }
        self.is_done()
    }

    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.waiting {
            self.waiting = false;
            self.input.wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            self.input.wire.flush()?;
        }
        loop {
            match self.state {
                State::Done => return Ok(0),
                State::Length(left) => {
                    let got = self.take(buffer, left)?;
                    let left = left - got as u64;
                    self.state = if left == 0 { State::Done } else { State::Length(left) };
                    return Ok(got);
                }
                State::Chunk(left) => {
                    let got = self.take(buffer, left)?;
                    let left = left - got as u64;
                    self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                    return Ok(got);
                }
                State::ChunkLine => {
                    let line = self.line()?;
                    let (size, extension) = chunk_line(&line).ok_or_else(malformed)?;
                    self.spend(extension)?;
                    self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                }
                State::ChunkEnd => {
                    if !self.line()?.is_empty() {
                        return Err(malformed());
                    }
                    self.state = State::ChunkLine;
                }
                State::Trailers => {
                    let line = self.line()?;
                    if line.is_empty() {
                        self.state = State::Done;
                    } else if !is_field(&line) {
                        return Err(malformed());
                    }
                    self.spend(line.len())?;
                }
            }
        }
    }

    /// Some of the next `left` bytes.
    fn take(&mut self, buffer: &mut [u8], left: u64) -> io::Result<usize> {
        let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let buffer = &mut buffer[..room];
        let pending = self.input.pending();
        if !pending.is_empty() {
            let got = room.min(pending.len());
            buffer[..got].copy_from_slice(&pending[..got]);
            self.input.consume(got);
            self.received = self.received.saturating_add(got as u64);
            return Ok(got);
        }
        // No copy through the input's buffer.
        self.timed(|input| input.wire.read(buffer))
    }

    /// The next line without its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut seen = 0;
        loop {
            let pending = self.input.pending();
            if let Some(at) = pending[seen..].iter().position(|&byte| byte == b'\n').map(|at| seen + at) {
                let line = pending[..at].strip_suffix(b"\r").ok_or_else(malformed)?;
                let clean =
                    line.len() <= MAX_LINE_BYTES && !line.iter().any(|&b| b.is_ascii_control() && b != b'\t');
                let line = if clean { Ok(line.to_vec()) } else { Err(malformed()) };
                self.input.consume(at + 1);
                return line;
            }
            seen = pending.len();
            if seen > MAX_LINE_BYTES + 1 {
                return Err(malformed());
            }
            self.timed(Input::fill)?;
        }
    }

    /// One read from the wire, which must keep the minimum rate.
    fn timed(&mut self, read: impl FnOnce(&mut Input) -> io::Result<usize>) -> io::Result<usize> {
        let before = Instant::now();
        let got = read(self.input)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.waited += before.elapsed();
        self.received = self.received.saturating_add(got as u64);
        let earned = match self.limits.rate {
            0 => Duration::MAX,
            rate => Duration::from_secs(self.received / rate),
        };
        if self.waited > self.limits.stall.saturating_add(earned) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(got)
    }

    fn spend(&mut self, extra: usize) -> io::Result<()> {
        self.extras += extra;
        if self.extras > MAX_EXTRA_BYTES { Err(malformed()) } else { Ok(()) }
    }
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        let result = self.step(buffer);
        result.map_err(|error| self.failure.insert(error.kind().into()).to_owned().into())
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        let kind = match failure {
            Failure::Malformed => io::ErrorKind::InvalidData,
            Failure::Slow => io::ErrorKind::TimedOut,
            Failure::Truncated => io::ErrorKind::UnexpectedEof,
            Failure::Evicted => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, failure.reason())
    }
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The size of a chunk, and the length of the extension, from the line before it.
fn chunk_line(line: &[u8]) -> Option<(u64, usize)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, rest) = line.split_at(digits);
    let extension = rest.trim_ascii_start();
    if !(1..=16).contains(&digits) || !rest.is_empty() && extension.first() != Some(&b';') {
        return None;
    }
    let size = u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
    Some((size, rest.len()))
}

/// Whether a line of a trailer has a name.
fn is_field(line: &[u8]) -> bool {
    let name =
        line.iter().take_while(|&&byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    let name = name.count();
    name > 0 && line.get(name) == Some(&b':')
}
