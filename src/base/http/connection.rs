//! One connection: requests one after the other, each answered, until one side has enough.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::body::{Body, describe};
use super::guest::{Session, Stage};
use super::head::{self, Framing, Head, Refusal};
use super::slots::{Job, READY_BODY_BYTES, Turn};
use super::{Limits, Request, Response};

/// Whatever answers requests.
pub(super) type Handler<'a> = dyn Fn(&mut Request<'_>) -> Response + Sync + 'a;

/// What a connection says next.
pub(super) enum Next {
    /// A whole head, and the whole body if that is short.
    Request(Box<Head>),
    Refuse(Refusal),
    /// There is nothing more here yet.
    Wait,
    End,
}

/// Answers a request whose turn it is, and gives the connection back if it can go on, or has yet to hear that.
pub(super) fn serve(job: Job, limits: &Limits, turn: &mut Turn<'_>, handler: &Handler<'_>) -> Option<Stage> {
    let Job { mut session, head } = job;
    let patient = session.input.wire.set_patient(Some(Arc::clone(&turn.meter)));
    let answered = patient.and_then(|()| {
        let after = answer(&mut session, *head, limits, turn, handler)?;
        session.input.wire.set_patient(None)?;
        Ok(after)
    });
    if !matches!(answered, Ok(After::GoesOn)) {
        session.input.wire.close();
    }
    match answered {
        Ok(After::GoesOn) => {
            session.greeted = true;
            Some(Stage::Session(Box::new(session)))
        }
        Ok(After::Sends) => Some(Stage::Farewell(session.socket)),
        Ok(After::Ends) => None,
        Err(error) => {
            log::debug!("lost the connection from {} during an answer: {error}", session.peer.address);
            None
        }
    }
}

/// What becomes of a connection whose request was answered.
enum After {
    GoesOn,
    /// It is told good-bye, and may not have sent all of its body.
    Sends,
    Ends,
}

/// Reads on, as far as there is something: for a head, and behind it for a body that is short.
pub(super) fn next(session: &mut Session, head_bytes: usize) -> Next {
    loop {
        let found = match session.head.take() {
            None => find(session, head_bytes),
            Some(head) => Ok(Some(head)),
        };
        match found {
            Err(refusal) => return Next::Refuse(refusal),
            Ok(Some(head)) if is_at_hand(&head, session.input.pending().len()) => return Next::Request(head),
            Ok(head) => session.head = head,
        }
        match session.input.fill() {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Wait,
            // A body that was cut is a request all the same.
            _ => return session.head.take().map_or(Next::End, Next::Request),
        }
    }
}

/// Whether whoever answers a request would wait for nothing that is worth waiting for here.
fn is_at_hand(head: &Head, pending: usize) -> bool {
    match head.framing {
        Framing::Length(length @ ..=READY_BODY_BYTES) if !head.expects_continue => pending as u64 >= length,
        _ => true,
    }
}

/// The head, if all of it is here.
fn find(session: &mut Session, head_bytes: usize) -> Result<Option<Box<Head>>, Refusal> {
    let Session { input, seen, blank, .. } = session;
    // An empty line or two before a request are left over from old clients.
    while *blank < 2 && *seen == 0 && input.pending().starts_with(b"\r\n") {
        input.consume(2);
        *blank += 1;
    }
    if *blank < 2 && input.pending() == b"\r" {
        return Ok(None);
    }
    // Not a byte beyond the limit is looked at, so that the verdict does not hang on how the bytes arrive.
    let within = &input.pending()[..input.pending().len().min(head_bytes)];
    match head::end(within, *seen)? {
        Some(end) => {
            let parsed = head::parse(&input.pending()[..end]);
            input.consume(end);
            (*seen, *blank) = (0, 0);
            parsed.map(|head| Some(Box::new(head)))
        }
        None if within.len() < head_bytes => {
            *seen = within.len();
            Ok(None)
        }
        None => Err(Refusal { status: 431, reason: "the head is too long" }),
    }
}

/// Answers one request.
fn answer(
    session: &mut Session,
    head: Head,
    limits: &Limits,
    turn: &mut Turn<'_>,
    handler: &Handler<'_>,
) -> io::Result<After> {
    let Session { input, peer, .. } = session;
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
    if body.failure().is_some() && turn.meter.dismissed() {
        turn.refused(peer, &request.path);
        response = Response::text(503, "others were waiting and this one sent next to nothing; try again")
            .header("retry-after", "5");
    }
    if response.is_file() && !turn.becomes_large() {
        response = Response::text(503, "too many downloads at once; try again").header("retry-after", "5");
    }
    // A worker uploads once; its connection makes room for the next worker's.
    let go_on = keep_alive && sound && !is_upload && body.skip() && !turn.closing();
    response.write(body.wire(), !is_head, !go_on)?;
    Ok(match (go_on, body.is_done()) {
        (true, _) => After::GoesOn,
        (false, true) => After::Ends,
        // What it sends is to be thrown away for a while, or the answer could be lost to a reset.
        (false, false) => After::Sends,
    })
}
