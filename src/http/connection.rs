//! One connection on one thread: requests in order, each with its response, until one side ends it.
//!
//! The body of a request is a reader: by length or by chunks, within limits, never past its end.
//! `Ok(0)` is returned only at the true end. A body that is truncated, malformed or too slow fails
//! for good, and the connection responds accordingly.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::head::{self, Framing, Head, Refusal};
use super::wire::{Phase, Wire};
use super::{Handler, LONG_BODY, Limits, Party, Peer, Request, Response};

/// A connection between handshake and end.
pub(super) struct Connection {
    input: BufReader<Box<dyn Wire>>,
    pub(super) peer: Peer,
    pub(super) party: Party,
    /// A request that waits for its turn.
    head: Option<Head>,
    is_new: bool,
}

/// How serving a connection ended.
#[derive(Debug, PartialEq)]
pub(super) enum Served {
    /// The request in `head` is a long upload, which needs a permit.
    Long,
    /// The peer may still be sending bytes that nothing reads.
    Unread,
    Ended,
}

impl Connection {
    pub(super) fn new(wire: Box<dyn Wire>, peer: Peer, party: Party) -> Self {
        Self {
            input: BufReader::with_capacity(4 << 10, wire),
            peer,
            party,
            head: None,
            is_new: true,
        }
    }

    /// Serves requests until the end, or until one is a long upload that `may_be_long` does not
    /// permit. Where `is_last` says so, the connection ends after the response.
    pub(super) fn serve(
        &mut self,
        limits: &Limits,
        may_be_long: &mut dyn FnMut() -> bool,
        is_last: &dyn Fn() -> bool,
        handler: &Handler<'_>,
    ) -> Served {
        let served = loop {
            let head = match self
                .head
                .take()
                .map_or_else(|| self.head(limits), |head| Ok(Some(head)))
            {
                Ok(Some(head)) => head,
                Ok(None) => break Served::Ended,
                Err(refusal) => return self.refuse(refusal),
            };
            if !matches!(head.framing, Framing::Length(..=LONG_BODY)) && !may_be_long() {
                self.head = Some(head);
                return Served::Long;
            }
            if let Some(served) = self.respond(head, is_last, handler) {
                break served;
            }
        };
        self.input.get_mut().close();
        served
    }

    /// Sends a refusal; nothing more is read.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Served {
        log::debug!(
            "refused a request from {}: {}",
            self.peer.address,
            refusal.reason
        );
        let wire = self.input.get_mut();
        let written = refusal.response().write(wire, true, true);
        wire.close();
        if written.is_ok() {
            Served::Unread
        } else {
            Served::Ended
        }
    }

    /// The head of the next request; `None` at the end of the connection.
    fn head(&mut self, limits: &Limits) -> Result<Option<Head>, Refusal> {
        let (mut bytes, mut blank) = (Vec::new(), 0);
        // Only a connection that has had a response may be ended while idle; a new one is about to
        // send its request.
        let (phase, limit) = match std::mem::replace(&mut self.is_new, false) {
            true => (Phase::Handshake, limits.handshake),
            false => (Phase::Idle, limits.idle),
        };
        self.peer.meter.enter(phase, Some(limit));
        loop {
            let length = bytes.len();
            match self.input.fill_buf() {
                // Bytes beyond the limit are ignored, so that the result does not depend on how the
                // bytes arrive.
                Ok(piece @ [_, ..]) => bytes.extend(piece.iter().take(limits.head_bytes - length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::TimedOut && length > 0 => {
                    return Err(Refusal {
                        status: 408,
                        reason: "the head arrived too slowly",
                    });
                }
                // To an interrupted read, eviction looks like the end of the connection.
                _ if length > 0 && self.peer.meter.evicted() => {
                    return Err(Refusal {
                        status: 503,
                        reason: "other connections wait; try again",
                    });
                }
                _ => return Ok(None),
            }
            let end = head::end(&bytes, length)?;
            self.input.consume(end.unwrap_or(bytes.len()) - length);
            match end {
                // Old clients send an empty line or two between requests.
                Some(2) if blank < 2 => {
                    bytes.clear();
                    blank += 1;
                }
                Some(end) => return head::parse(&bytes[..end]).map(Some),
                None if bytes.len() == limits.head_bytes => {
                    return Err(Refusal {
                        status: 431,
                        reason: "the head is too long",
                    });
                }
                None if length == 0 => self.peer.meter.enter(Phase::Request, Some(limits.head)),
                None => {}
            }
        }
    }

    /// Responds to one request; `None` if another may follow.
    fn respond(
        &mut self,
        head: Head,
        is_last: &dyn Fn() -> bool,
        handler: &Handler<'_>,
    ) -> Option<Served> {
        let peer = &self.peer;
        peer.meter.enter(Phase::Request, None);
        let Head {
            method,
            path,
            headers,
            framing,
            expects_continue,
            keep_alive,
        } = head;
        let length = if let Framing::Length(length) = framing {
            Some(length)
        } else {
            None
        };
        let body = Body::new(&mut self.input, framing, expects_continue);
        let mut request = Request {
            method,
            path,
            headers,
            peer,
            length,
            body,
        };
        // All values that the handler shares are behind locks.
        let handled = catch_unwind(AssertUnwindSafe(|| handler(&mut request)));
        let Request {
            method,
            path,
            mut body,
            ..
        } = request;
        // A worker uploads once; its thread is free for the next connection.
        let keep_alive = keep_alive && method != "PUT" && handled.is_ok();
        let mut response = handled.unwrap_or_else(|_| {
            log::error!(
                "a request from {} to `{path}` ended in a panic",
                peer.address
            );
            Response::text(500, "internal error")
        });
        if let Some(refusal) = body.refusal() {
            response = refusal.response();
        }
        // Whether others wait is asked last: skipping may take a while.
        let go_on = keep_alive && body.skip() && !is_last();
        let is_done = body.is_done();
        // The handler may have set a deadline for the body, which the response does not have.
        peer.meter.finish_within(None);
        if let Err(error) = response.write(self.input.get_mut(), method != "HEAD", !go_on) {
            log::debug!("lost the connection of {}: {error}", peer.address);
            return Some(Served::Ended);
        }
        if go_on {
            return None;
        }
        Some(if is_done {
            Served::Ended
        } else {
            Served::Unread
        })
    }
}

impl Refusal {
    fn response(self) -> Response {
        let response = Response::text(self.status, self.reason);
        if self.status == 503 {
            response.header("retry-after", "5")
        } else {
            response
        }
    }
}

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

#[derive(Debug, PartialEq)]
enum State {
    /// The remaining bytes; 0 at the end of a body of either kind.
    Length(u64),
    /// Before the line with the length of a chunk.
    ChunkLine,
    /// The remaining bytes of a chunk; 0 before the line break that follows it.
    Chunk(u64),
    Trailers,
}

impl<'a> Body<'a> {
    pub(super) fn new(
        input: &'a mut BufReader<Box<dyn Wire>>,
        framing: Framing,
        waiting: bool,
    ) -> Self {
        let state = match framing {
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkLine,
        };
        Self {
            input,
            waiting: waiting && state != State::Length(0),
            state,
            extras: 0,
            failure: None,
        }
    }

    /// Whether everything was read.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Length(0)
    }

    /// The refusal of a body that could not be read to its end.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let (status, reason) = match self.failure? {
            io::ErrorKind::InvalidData => (400, "the body is malformed"),
            io::ErrorKind::TimedOut => (408, "the body arrived too slowly"),
            io::ErrorKind::ConnectionAborted => (
                503,
                "the body arrived too slowly while other connections waited; try again",
            ),
            _ => (408, "the connection ended inside the body"),
        };
        Some(Refusal { status, reason })
    }

    /// Skips the rest if it is short; true when the end was reached.
    pub(super) fn skip(&mut self) -> bool {
        if let State::Length(1..=MAX_SKIPPED_BYTES) = self.state
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
            // The arms for 0 come before those for other numbers.
            match &mut self.state {
                State::Length(0) => return Ok(0),
                State::Chunk(0) => {
                    if !self.line()?.is_empty() {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    self.state = State::ChunkLine;
                }
                State::Length(left) | State::Chunk(left) => {
                    let got = self.input.by_ref().take(*left).read(buffer)?;
                    if got == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    *left -= got as u64;
                    return Ok(got);
                }
                State::ChunkLine => {
                    let line = self.line()?;
                    let (size, extension) = chunk_line(&line).ok_or(io::ErrorKind::InvalidData)?;
                    self.spend(extension)?;
                    self.state = if size == 0 {
                        State::Trailers
                    } else {
                        State::Chunk(size)
                    };
                }
                State::Trailers => {
                    let line = self.line()?;
                    if line.is_empty() {
                        self.state = State::Length(0);
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
        self.input
            .by_ref()
            .take(max as u64)
            .read_until(b'\n', &mut line)?;
        let is_whole = line.ends_with(b"\r\n");
        if !is_whole && line.len() < max && line.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.len().saturating_sub(2));
        if is_whole
            && !line
                .iter()
                .any(|&byte| byte.is_ascii_control() && byte != b'\t')
        {
            Ok(line)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    fn spend(&mut self, extra: usize) -> io::Result<()> {
        self.extras += extra;
        if self.extras > MAX_EXTRA_BYTES {
            Err(io::ErrorKind::InvalidData.into())
        } else {
            Ok(())
        }
    }
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.failure.is_none() && !buffer.is_empty() {
            match self.step(buffer) {
                Ok(got) => return Ok(got),
                // Not a failure of the body. As one it would be returned by every later read, which
                // readers above repeat for ever.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
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
    let digits = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
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
