//! The body of a request as a reader: by length or by chunks, within limits, never past its end.
//!
//! `Ok(0)` is returned only at the true end. A body that is truncated, malformed or too slow fails for good, and the
//! connection responds accordingly.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};

use super::head::{Framing, Refusal};
use super::wire::Wire;

/// Maximum bytes of the line before a chunk, and of a trailer.
const MAX_LINE_BYTES: usize = 1024;
/// Maximum bytes of all chunk extensions and trailers of one body.
const MAX_EXTRA_BYTES: usize = 64 * 1024;
/// Maximum unread bytes of a body after which the connection is kept.
const MAX_SKIPPED_BYTES: u64 = 8 * 1024;

/// Reads the body of a request.
pub struct Body<'a> {
    input: &'a mut BufReader<Box<dyn Wire>>,
    state: State,
    /// Whether the client waits for `100 Continue`, which the first read sends.
    waiting: bool,
    extras: usize,
    failure: Option<io::ErrorKind>,
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
    pub(super) fn new(input: &'a mut BufReader<Box<dyn Wire>>, framing: Framing, waiting: bool) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkLine,
        };
        Self { input, state, waiting: waiting && state != State::Done, extras: 0, failure: None }
    }

    /// Whether everything was read.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The refusal of a body that could not be read to its end.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let (status, reason) = match self.failure? {
            io::ErrorKind::InvalidData => (400, "the body is malformed"),
            io::ErrorKind::TimedOut => (408, "the body arrived too slowly"),
            io::ErrorKind::ConnectionAborted => {
                (503, "the body arrived too slowly while other connections waited; try again")
            }
            _ => (408, "the connection ended inside the body"),
        };
        Some(Refusal { status, reason })
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
        if std::mem::take(&mut self.waiting) {
            let wire = self.input.get_mut();
            wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            wire.flush()?;
        }
        loop {
            match self.state {
                State::Done => return Ok(0),
                State::Length(left) | State::Chunk(left) => {
                    let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let got = self.input.read(&mut buffer[..room])?;
                    if got == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.state = match (self.state, left - got as u64) {
                        (State::Length(_), 0) => State::Done,
                        (State::Length(_), left) => State::Length(left),
                        (_, 0) => State::ChunkEnd,
                        (_, left) => State::Chunk(left),
                    };
                    return Ok(got);
                }
                State::ChunkLine => {
                    let line = self.line()?;
                    let (size, extension) = chunk_line(&line).ok_or(io::ErrorKind::InvalidData)?;
                    self.spend(extension)?;
                    self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                }
                State::ChunkEnd => {
                    if !self.line()?.is_empty() {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    self.state = State::ChunkLine;
                }
                State::Trailers => {
                    let line = self.line()?;
                    if line.is_empty() {
                        self.state = State::Done;
                    } else if !is_field(&line) {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    self.spend(line.len())?;
                }
            }
        }
    }

    /// The next line without its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let (max, mut line) = (MAX_LINE_BYTES + 2, Vec::new());
        self.input.by_ref().take(max as u64).read_until(b'\n', &mut line)?;
        let is_whole = line.ends_with(b"\r\n");
        if !is_whole && line.len() < max && line.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.len().saturating_sub(2));
        if is_whole && !line.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t') {
            Ok(line)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    fn spend(&mut self, extra: usize) -> io::Result<()> {
        self.extras += extra;
        if self.extras > MAX_EXTRA_BYTES { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.failure.is_none() && !buffer.is_empty() {
            match self.step(buffer) {
                Ok(got) => return Ok(got),
                Err(error) => self.failure = Some(error.kind()),
            }
        }
        match (self.failure, self.refusal()) {
            (Some(kind), Some(refusal)) => Err(io::Error::new(kind, refusal.reason)),
            _ => Ok(0),
        }
    }
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
    let is_token = |byte: &&u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let name = line.iter().take_while(is_token).count();
    name > 0 && line.get(name) == Some(&b':')
}
