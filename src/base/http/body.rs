//! The body of a request as a reader: by length or by chunks, within limits, never past its end.
//!
//! `Ok(0)` comes only at the true end. A body that is cut, malformed or too slow is an error for good, of which the
//! connection makes the right answer.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use super::Limits;
use super::head::Framing;
use super::wire::{Input, Wire};

/// The longest line that tells a chunk's length, and the longest line of a trailer.
const LINE: usize = 1024;
/// What all chunk extensions and trailers of one body may have together.
const EXTRAS: usize = 64 * 1024;

/// Reads the body of a request.
pub struct Body<'a> {
    input: &'a mut Input,
    state: State,
    limits: &'a Limits,
    /// The client waits for a go-ahead, which the first read gives.
    waiting: bool,
    /// How long the peer was waited for, and what came in that time.
    waited: Duration,
    received: u64,
    extras: usize,
    failure: Option<io::ErrorKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So much is left.
    Length(u64),
    /// The line with a chunk's length comes next.
    ChunkLine,
    /// So much of a chunk is left.
    Chunk(u64),
    /// The end of line behind a chunk comes next.
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

    /// Whether everything was read.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Why reading failed, if it did.
    pub(super) fn failure(&self) -> Option<io::ErrorKind> {
        self.failure
    }

    /// Skips the rest, if all of it is here; true when the end was reached.
    pub(super) fn skip(&mut self) -> bool {
        if let State::Length(left) = self.state
            && !self.waiting
            && self.failure.is_none()
            && let Some(left) = usize::try_from(left).ok().filter(|left| *left <= self.input.pending().len())
        {
            self.input.consume(left);
            self.state = State::Done;
        }
        self.is_done()
    }

    /// The wire below, to answer on.
    pub(super) fn wire(&mut self) -> &mut dyn Wire {
        &mut *self.input.wire
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
        // Straight from the wire into the caller's memory.
        self.timed(|input| input.wire.read(buffer))
    }

    /// The next line without its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut seen = 0;
        loop {
            let pending = self.input.pending();
            if let Some(at) = pending[seen..].iter().position(|&byte| byte == b'\n').map(|at| seen + at) {
                let line = pending[..at].strip_suffix(b"\r").ok_or_else(malformed)?;
                let clean = line.len() <= LINE && !line.iter().any(|&b| b.is_ascii_control() && b != b'\t');
                let line = if clean { Ok(line.to_vec()) } else { Err(malformed()) };
                self.input.consume(at + 1);
                return line;
            }
            seen = pending.len();
            if seen > LINE + 1 {
                return Err(malformed());
            }
            self.timed(Input::fill)?;
        }
    }

    /// One read from the wire, with the time it takes on the peer's account.
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
        if self.extras > EXTRAS { Err(malformed()) } else { Ok(()) }
    }
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(kind) = self.failure {
            return Err(io::Error::new(kind, describe(kind)));
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        let result = self.step(buffer);
        result.map_err(|error| {
            self.failure = Some(error.kind());
            io::Error::new(error.kind(), describe(error.kind()))
        })
    }
}

/// What went wrong with a body, for the peer and for the log.
pub(super) fn describe(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::InvalidData => "the body is malformed",
        io::ErrorKind::TimedOut => "the body arrived too slowly",
        _ => "the connection ended inside the body",
    }
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The size that a chunk's line tells, and how long its extension is.
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
