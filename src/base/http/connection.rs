//! One connection: requests one after the other, each answered, until one side has enough.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::body::{Body, describe};
use super::connections::Ticket;
use super::head::{self, Framing, Head, Refusal};
use super::wire::Input;
use super::{Limits, Peer, Request, Response};

/// So much of a body that nobody wanted is read, so that the connection can go on, or the answer survive.
const DRAIN: u64 = 256 * 1024;
/// And for so long.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Whatever answers requests.
pub(super) type Handler<'a> = dyn Fn(&mut Request<'_>) -> Response + Sync + 'a;

enum Next {
    Request(Box<Head>),
    Refuse(Refusal),
    End,
}

/// Serves until the connection ends.
pub(super) fn serve(
    input: &mut Input,
    peer: &Peer,
    limits: &Limits,
    ticket: &Ticket<'_>,
    handler: &Handler<'_>,
) {
    let mut first = true;
    loop {
        match next(input, limits, ticket, first) {
            Next::End => return input.wire.close(false),
            Next::Refuse(refusal) => {
                log::debug!("refused a request from {}: {}", peer.address, refusal.reason);
                let answer = Response::text(refusal.status, refusal.reason);
                let told = answer.write(&mut input.wire, true, true);
                return input.wire.close(told.is_ok());
            }
            Next::Request(head) => match answer(input, *head, peer, limits, ticket, handler) {
                Ok(true) => first = false,
                Ok(false) => return,
                Err(error) => {
                    log::debug!("lost the connection of {} within an answer: {error}", peer.address);
                    return input.wire.close(false);
                }
            },
        }
    }
}

/// Waits for a head and reads it.
fn next(input: &mut Input, limits: &Limits, ticket: &Ticket<'_>, first: bool) -> Next {
    if input.pending().is_empty() {
        if !first && !ticket.idle() {
            return Next::End;
        }
        let limit = if first { limits.head } else { limits.idle };
        input.wire.set_deadline(Instant::now().checked_add(limit));
        if !matches!(input.fill(), Ok(1..)) {
            return Next::End;
        }
    }
    ticket.busy();
    input.wire.set_deadline(Instant::now().checked_add(limits.head));
    let (mut seen, mut blank) = (0, 0);
    loop {
        // An empty line or two before a request are left over from old clients.
        while blank < 2 && seen == 0 && input.pending().starts_with(b"\r\n") {
            input.consume(2);
            blank += 1;
        }
        let undecided = blank < 2 && input.pending() == b"\r";
        // Not a byte beyond the limit is looked at, so that the verdict does not hang on how the bytes arrive.
        let within = &input.pending()[..input.pending().len().min(limits.head_bytes)];
        match if undecided { Ok(None) } else { head::end(within, seen) } {
            Err(refusal) => return Next::Refuse(refusal),
            Ok(Some(end)) => {
                let parsed = head::parse(&input.pending()[..end]);
                input.consume(end);
                return parsed.map_or_else(Next::Refuse, |head| Next::Request(Box::new(head)));
            }
            Ok(None) if within.len() < limits.head_bytes => {}
            Ok(None) => return Next::Refuse(Refusal { status: 431, reason: "the head is too long" }),
        }
        if !undecided {
            seen = within.len();
        }
        match input.fill() {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut && seen > 0 => {
                return Next::Refuse(Refusal { status: 408, reason: "the head came too slowly" });
            }
            _ => return Next::End,
        }
    }
}

/// Answers one request; true if another may follow.
fn answer(
    input: &mut Input,
    head: Head,
    peer: &Peer,
    limits: &Limits,
    ticket: &Ticket<'_>,
    handler: &Handler<'_>,
) -> io::Result<bool> {
    input.wire.set_deadline(None);
    let is_head = head.method == "HEAD";
    let is_upload = head.method == "PUT";
    let keep_alive = head.keep_alive;
    let body = Body::new(input, head.framing, head.expects_continue, limits);
    let mut request = Request {
        length: match head.framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        },
        method: head.method,
        path: head.path,
        query: head.query,
        headers: head.headers,
        peer,
        body,
    };
    let (mut response, sound) = match head::canonical(&request.path) {
        Some(path) => {
            let query = request.query.as_ref().map_or(String::new(), |query| format!("?{query}"));
            (Response::empty(301).header("location", path + &query), true)
        }
        // Nothing of the handler's outlives its panic but what it shares, and that is behind its own locks.
        None => match catch_unwind(AssertUnwindSafe(|| handler(&mut request))) {
            Ok(response) => (response, true),
            Err(_) => {
                log::error!("a request from {} to `{}` ended in a panic", peer.address, request.path);
                (Response::text(500, "internal error"), false)
            }
        },
    };
    let mut body = request.body;
    if let Some(kind) = body.failure().filter(|_| response.status() >= 500) {
        // The handler could not know that it was the peer's fault.
        let status = if kind == io::ErrorKind::TimedOut { 408 } else { 400 };
        response = Response::text(status, describe(kind));
    }
    // A worker uploads once; its connection makes room for the next worker's.
    let go_on = keep_alive && sound && !is_upload && body.can_drain(DRAIN) && !ticket.closing();
    response.write(body.wire(), !is_head, !go_on)?;
    if body.is_done() && go_on {
        return Ok(true);
    }
    let complete = body.is_done();
    if !complete {
        body.set_deadline(Instant::now() + DRAIN_TIME);
        if body.drain(DRAIN) && go_on {
            return Ok(true);
        }
    }
    body.wire().close(!complete);
    Ok(false)
}
