//! One connection on one thread: requests in order, each with its response, until one side ends it.

use std::io::{self, BufRead as _, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::body::Body;
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
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The request in `head` is a long upload, which needs a permit.
    Long,
    /// The peer may still be sending bytes that nothing reads.
    Unread,
    Ended,
}

impl Connection {
    pub(super) fn new(wire: Box<dyn Wire>, peer: Peer, party: Party) -> Self {
        Self { input: BufReader::with_capacity(4 << 10, wire), peer, party, head: None, is_new: true }
    }

    /// Serves requests until the end, or until one is a long upload that `may_be_long` does not permit. Where `is_last`
    /// says so, the connection ends after the response.
    pub(super) fn serve(
        &mut self,
        limits: &Limits,
        may_be_long: &mut dyn FnMut() -> bool,
        is_last: &dyn Fn() -> bool,
        handler: &Handler<'_>,
    ) -> Served {
        let served = loop {
            let head = match self.head.take().map_or_else(|| self.head(limits), |head| Ok(Some(head))) {
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
        log::debug!("refused a request from {}: {}", self.peer.address, refusal.reason);
        let wire = self.input.get_mut();
        let written = refusal.response().write(wire, true, true);
        wire.close();
        if written.is_ok() { Served::Unread } else { Served::Ended }
    }

    /// The head of the next request; `None` at the end of the connection.
    fn head(&mut self, limits: &Limits) -> Result<Option<Head>, Refusal> {
        let (mut bytes, mut blank) = (Vec::new(), 0);
        // Only a connection that has had a response may be ended while idle; a new one is about to send its request.
        match std::mem::replace(&mut self.is_new, false) {
            true => self.enter(Phase::Handshake, limits.handshake),
            false => self.enter(Phase::Idle, limits.idle),
        }
        loop {
            let seen = bytes.len();
            match self.input.fill_buf() {
                // Bytes beyond the limit are ignored, so that the result does not depend on how the bytes arrive.
                Ok(piece @ [_, ..]) => bytes.extend(piece.iter().take(limits.head_bytes - seen)),
                Err(error) if error.kind() == io::ErrorKind::TimedOut && seen > 0 => {
                    return Err(Refusal { status: 408, reason: "the head arrived too slowly" });
                }
                // To an interrupted read, eviction looks like the end of the connection.
                _ if seen > 0 && self.peer.meter.evicted() => {
                    return Err(Refusal { status: 503, reason: "other connections wait; try again" });
                }
                _ => return Ok(None),
            }
            let end = head::end(&bytes, seen)?;
            self.input.consume(end.unwrap_or(bytes.len()) - seen);
            match end {
                // Old clients send an empty line or two between requests.
                Some(2) if blank < 2 => {
                    bytes.clear();
                    blank += 1;
                }
                Some(end) => return head::parse(&bytes[..end]).map(Some),
                None if bytes.len() == limits.head_bytes => {
                    return Err(Refusal { status: 431, reason: "the head is too long" });
                }
                None if seen == 0 => self.enter(Phase::Request, limits.head),
                None => {}
            }
        }
    }

    fn enter(&self, phase: Phase, limit: Duration) {
        self.peer.meter.enter(phase);
        self.peer.meter.finish_within(Some(limit));
    }

    /// Responds to one request; `None` if another may follow.
    fn respond(&mut self, head: Head, is_last: &dyn Fn() -> bool, handler: &Handler<'_>) -> Option<Served> {
        let peer = &self.peer;
        peer.meter.enter(Phase::Request);
        peer.meter.finish_within(None);
        let Head { method, path, headers, framing, expects_continue, keep_alive } = head;
        let length = if let Framing::Length(length) = framing { Some(length) } else { None };
        let body = Body::new(&mut self.input, framing, expects_continue);
        let mut request = Request { method, path, headers, peer, length, body };
        // All values that the handler shares are behind locks.
        let handled = catch_unwind(AssertUnwindSafe(|| handler(&mut request)));
        let Request { method, path, mut body, .. } = request;
        // A worker uploads once; its thread is free for the next connection.
        let keep_alive = keep_alive && method != "PUT" && handled.is_ok();
        let mut response = handled.unwrap_or_else(|_| {
            log::error!("a request from {} to `{path}` ended in a panic", peer.address);
            Response::text(500, "internal error")
        });
        if let Some(refusal) = body.refusal() {
            response = refusal.response();
        }
        let go_on = keep_alive && body.skip() && !is_last();
        let is_done = body.is_done();
        peer.meter.finish_within(None);
        if let Err(error) = response.write(self.input.get_mut(), method != "HEAD", !go_on) {
            log::debug!("lost the connection of {}: {error}", peer.address);
            return Some(Served::Ended);
        }
        if go_on {
            return None;
        }
        Some(if is_done { Served::Ended } else { Served::Unread })
    }
}

impl Refusal {
    fn response(self) -> Response {
        let response = Response::text(self.status, self.reason);
        if self.status == 503 { response.header("retry-after", "5") } else { response }
    }
}
