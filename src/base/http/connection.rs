//! One connection on one thread: requests in order, each with its response, until one side ends it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::body::{Body, Failure};
use super::head::{self, Framing, Head, Refusal};
use super::meter::Phase;
use super::wire::Input;
use super::{Handler, LONG_BODY, Limits, Peer, Request, Response};

/// A connection between handshake and end.
pub(super) struct Connection {
    pub(super) input: Input,
    pub(super) peer: Peer,
    /// A request that waits for its turn.
    pub(super) head: Option<Box<Head>>,
    /// Whether no request has come yet.
    is_new: bool,
}

/// How serving a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The request in `head` is a long upload, which needs a permit.
    Long,
    /// The peer may still send what nothing reads.
    Unread,
    Ended,
}

impl Connection {
    pub(super) fn new(input: Input, peer: Peer) -> Self {
        Self { input, peer, head: None, is_new: true }
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
        loop {
            let served = match self.head(limits) {
                Ok(Some(head)) if is_long(&head) && !may_be_long() => {
                    self.head = Some(head);
                    return Served::Long;
                }
                Ok(Some(head)) => self.respond(*head, limits, is_last, handler),
                Ok(None) => Ok(Some(Served::Ended)),
                Err(refusal) => return self.refuse(refusal),
            };
            match served {
                Ok(None) => {}
                Ok(Some(served)) => {
                    self.input.wire.close();
                    return served;
                }
                Err(error) => {
                    log::debug!("lost the connection of {}: {error}", self.peer.address);
                    self.input.wire.close();
                    return Served::Ended;
                }
            }
        }
    }

    /// Sends a refusal, after which nothing more is read.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Served {
        log::debug!("refused a request from {}: {}", self.peer.address, refusal.reason);
        let written = refusal.response().write(&mut *self.input.wire, true, true);
        self.input.wire.close();
        if written.is_ok() { Served::Unread } else { Served::Ended }
    }

    /// The head of the next request; `None` at the end of the connection.
    fn head(&mut self, limits: &Limits) -> Result<Option<Box<Head>>, Refusal> {
        if let Some(head) = self.head.take() {
            return Ok(Some(head));
        }
        let (mut seen, mut blank) = (0, 0);
        // A new connection is about to send its request; only one that had a response may be ended while it idles.
        match std::mem::replace(&mut self.is_new, false) {
            true => self.enter(Phase::Handshake, limits.handshake),
            false => self.enter(Phase::Idle, limits.idle),
        }
        loop {
            // Old clients send an empty line or two between requests.
            while blank < 2 && seen == 0 && self.input.pending().starts_with(b"\r\n") {
                self.input.consume(2);
                blank += 1;
            }
            let pending = self.input.pending();
            if !(pending.is_empty() || blank < 2 && pending == b"\r") {
                // Not a byte beyond the limit counts, so that the verdict is the same however the bytes arrive.
                let within = &pending[..pending.len().min(limits.head_bytes)];
                if let Some(end) = head::end(within, seen)? {
                    let head = head::parse(&pending[..end]);
                    self.input.consume(end);
                    return head.map(|head| Some(Box::new(head)));
                }
                if within.len() == limits.head_bytes {
                    return Err(Refusal { status: 431, reason: "the head is too long" });
                }
                if seen == 0 {
                    self.enter(Phase::Request, limits.head);
                }
                seen = self.input.pending().len();
            }
            match self.input.fill() {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut && seen > 0 => {
                    return Err(Refusal { status: 408, reason: "the head arrived too slowly" });
                }
                // The end of the connection looks the same to a read that was ended for others.
                _ if seen > 0 && self.peer.meter.evicted() => {
                    return Err(Refusal { status: 503, reason: "other connections wait; try again" });
                }
                _ => return Ok(None),
            }
        }
    }

    fn enter(&mut self, phase: Phase, limit: Duration) {
        self.peer.meter.enter(phase);
        // A socket that refuses a timeout fails at its next read, too.
        let _ = self.input.wire.set_deadline(Instant::now().checked_add(limit));
    }

    /// Responds to one request; `None` if another may follow.
    fn respond(
        &mut self,
        head: Head,
        limits: &Limits,
        is_last: &dyn Fn() -> bool,
        handler: &Handler<'_>,
    ) -> io::Result<Option<Served>> {
        self.input.wire.set_deadline(None)?;
        let (input, peer) = (&mut self.input, &self.peer);
        peer.meter.enter(Phase::Request);
        let is_head = head.method == "HEAD";
        // A worker uploads once; its connection leaves the thread to the next.
        let keep_alive = head.keep_alive && head.method != "PUT";
        let length = match head.framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        };
        let body = Body::new(input, head.framing, head.expects_continue, limits);
        let Head { method, path, query, headers, .. } = head;
        let mut request = Request { method, path, query, headers, peer, length, body };
        let (mut response, sound) = match head::canonical(&request.path) {
            Some(path) => {
                let query = request.query.as_ref().map_or(String::new(), |query| format!("?{query}"));
                (Response::empty(301).header("location", path + &query), true)
            }
            // The handler shares only values that are behind locks.
            None => match catch_unwind(AssertUnwindSafe(|| handler(&mut request))) {
                Ok(response) => (response, true),
                Err(_) => {
                    log::error!("a request from {} to `{}` ended in a panic", peer.address, request.path);
                    (Response::text(500, "internal error"), false)
                }
            },
        };
        let mut body = request.body;
        if let Some(failure) = body.failure() {
            let status = match failure {
                Failure::Malformed => 400,
                Failure::Slow | Failure::Truncated => 408,
                Failure::Evicted => 503,
            };
            response = Refusal { status, reason: failure.reason() }.response();
        }
        let go_on = keep_alive && sound && body.skip() && !is_last();
        let is_done = body.is_done();
        self.input.wire.set_deadline(None)?;
        response.write(&mut *self.input.wire, !is_head, !go_on)?;
        Ok(match (go_on, is_done) {
            (true, _) => None,
            (false, true) => Some(Served::Ended),
            (false, false) => Some(Served::Unread),
        })
    }
}

impl Refusal {
    fn response(self) -> Response {
        let response = Response::text(self.status, self.reason);
        if self.status == 503 { response.header("retry-after", "5") } else { response }
    }
}

fn is_long(head: &Head) -> bool {
    !matches!(head.framing, Framing::Length(..=LONG_BODY))
}
