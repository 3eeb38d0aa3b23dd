//! The routes: what a request asks for, whether its sender may, and the response.
//!
//! A request becomes an [`Action`] or a refusal before its body is read. Connections, framing and deadlines are those of
//! `http`; files are the store's.

use std::io::Read as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::certify::{Certifier, Tries};
use super::digests;
use super::finished_tests;
use super::limits::{self, LimitExceeded, Refusal};
use super::progress;
use super::receipt::Sender;
use super::store::Store;
use super::upload::Upload;
use crate::backplane::{Authority, Caller};
use base::clock;
use base::http::{Request, Response};
use client::protocol::{DIGEST_HEADER, ERROR_HEADER, ResultId, Route};

/// Time for a body that is kept in memory.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes that a log line repeats of a path and of a refusal.
const LOGGED_BYTES: usize = 256;

/// A permitted request.
#[derive(Debug, PartialEq)]
enum Action {
    /// Store this result.
    Submit(ResultId),
    /// Note this progress.
    Update(ResultId),
    /// Note that the worker lives.
    Hear(ResultId),
    /// Sign a certificate for a worker that proves its identity.
    Certify,
}

/// Responds to requests.
pub(super) struct Endpoints<'a> {
    pub(super) store: &'a Store,
    pub(super) authority: &'a Authority,
    /// Issues certificates, if this run does.
    pub(super) certifier: Option<&'a Certifier>,
    /// How many refusals of an address were logged.
    pub(super) refused: Tries<IpAddr>,
}

impl Endpoints<'_> {
    /// Responds to one request.
    pub(super) fn answer(&self, request: &mut Request<'_>) -> Response {
        let response = self.respond(request);
        self.log(request, &response);
        response
    }

    /// Logs a refusal, at most a few of each address. Those that only invite a retry are not.
    fn log(&self, request: &Request<'_>, response: &Response) {
        let (status, address) = (response.status(), request.peer.address.ip());
        if !(400..600).contains(&status) || matches!(status, 429 | 503) || !self.refused.left(&address) {
            return;
        }
        self.refused.count(&address);
        let level = match status {
            // The answer to a worker whose result has arrived before.
            409 => log::Level::Info,
            500.. => log::Level::Error,
            _ => log::Level::Warn,
        };
        let path = limits::beginning(&request.path, LOGGED_BYTES);
        let message = limits::beginning(response.message(), LOGGED_BYTES);
        log::log!(level, "{} {path} from {address} was refused with {status} {message}", request.method);
    }

    fn respond(&self, request: &mut Request<'_>) -> Response {
        let store = self.store;
        let caller = request.peer.certificate.as_ref().and_then(Caller::of);
        let action = match action(&request.method, &request.path, caller.as_ref()) {
            Ok(Action::Certify) => {
                return match self.certifier {
                    Some(certifier) => certifier.answer(store, self.authority, request),
                    None => Response::text(404, "this run does not issue certificates"),
                };
            }
            // A client without a certificate learns nothing about routes and results.
            _ if request.peer.certificate.is_none() => {
                return Response::text(401, "a certificate of this run is required");
            }
            Ok(action) => action,
            Err(refusal) => return refusal,
        };
        match action {
            Action::Certify => Response::empty(500),
            Action::Submit(id) => {
                store.lock().hear(&id, Instant::now());
                submit(store, &id, caller.as_ref(), request)
            }
            Action::Update(id) => update(store, &id, request).unwrap_or_else(|refusal| refusal.response(&id)),
            Action::Hear(id) if store.lock().beat(&id, Instant::now()) => Response::empty(200),
            Action::Hear(id) => Refusal::Unexpected.response(&id),
        }
    }
}

/// The action of `method` and `path`, if `caller`, as its certificate names it, may take it.
fn action(method: &str, path: &str, caller: Option<&Caller>) -> Result<Action, Response> {
    let Some(route) = Route::parse(path) else {
        return Err(Response::text(404, "no such path"));
    };
    let (allowed, action) = match route {
        Route::Result(id) => ("PUT", Action::Submit(id)),
        Route::Progress(id) => ("POST", Action::Update(id)),
        Route::Health(id) => ("GET", Action::Hear(id)),
        Route::Certificate => ("POST", Action::Certify),
    };
    if method != allowed {
        return Err(Response::empty(405).header("allow", allowed));
    }
    if let Action::Submit(id) | Action::Update(id) | Action::Hear(id) = &action
        && !caller.is_some_and(|caller| caller.may(id))
    {
        let caller = caller.map_or("nobody".into(), Caller::to_string);
        return Err(Response::text(403, format_args!("the certificate of {caller} does not cover `{id}`")));
    }
    Ok(action)
}

fn submit(store: &Store, id: &ResultId, caller: Option<&Caller>, request: &mut Request) -> Response {
    let header = |name: &str| request.headers.get(name).map(str::to_owned);
    let Ok(digest) = digests::announced(request.headers.all(DIGEST_HEADER)) else {
        return Response::text(400, format_args!("`{DIGEST_HEADER}` must be one `sha-256=:<base64>:`"));
    };
    let (kind, disposition) = (header("Content-Type"), header("Content-Disposition"));
    let upload = Upload {
        length: request.declared_length(),
        kind: kind.as_deref(),
        disposition: disposition.as_deref(),
        digest,
        is_error: header(ERROR_HEADER).is_some(),
        sender: Sender::new(caller.map(Caller::kind), request.headers.get("user-agent")),
        meter: std::sync::Arc::clone(&request.peer.meter),
        body: request.body(),
    };
    if upload.is_error {
        upload.body.finish_within(BODY_TIMEOUT);
    }
    match store.accept(id, upload) {
        Ok(digest) => Response::empty(200).header("repr-digest", digests::text(&digest)),
        Err(refusal) => refusal.response(id),
    }
}

fn update(store: &Store, id: &ResultId, request: &mut Request) -> Result<Response, Refusal> {
    if !store.lock().hear(id, Instant::now()) {
        return Err(Refusal::Unexpected);
    }
    let limited = |limit: LimitExceeded| {
        store.lock().limited(id, &limit);
        Refusal::from(limit)
    };
    let max = store.limits().progress.bytes;
    let wanted = request.declared_length().unwrap_or(max);
    if wanted > max {
        return Err(limited(LimitExceeded::Update(max)));
    }
    // Held until the update is parsed: that takes more memory than the body.
    let _memory = store.memory(id, wanted).map_err(limited)?;
    let mut body = Vec::new();
    let input = request.body();
    input.finish_within(BODY_TIMEOUT);
    if input.take(max + 1).read_to_end(&mut body).is_err() {
        // The server responds to a body that cannot be read.
        return Ok(Response::empty(400));
    }
    if body.len() as u64 > max {
        return Err(limited(LimitExceeded::Update(max)));
    }
    let Some(progress) = progress::decode(&body) else { return Ok(Response::empty(400)) };
    finished_tests::note(store.run_dir(), id, &progress.msg);
    store.lock().progress(id, progress, clock::now());
    Ok(Response::empty(200))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, path: &str, caller: Option<&Caller>, expected: Result<Action, u16>) {
        let got = action(method, path, caller).map_err(|refusal| refusal.status());
        assert_eq!(got, expected, "{method} {path} from {caller:?}");
    }

    #[test]
    fn a_request_is_one_action_or_a_refusal() {
        let (global, node) = (ResultId::global("p"), ResultId::on_node("p", "n"));
        let p = Some(&Caller::Plugin("p".into()));
        let n = Some(&Caller::Result(node.clone()));
        check("PUT", "/api/v1/results/global/p", p, Ok(Action::Submit(global.clone())));
        check("PUT", "/api/v1/results/by-node/n/p", p, Ok(Action::Submit(node.clone())));
        check("PUT", "/api/v1/results/by_node/n/p", p, Ok(Action::Submit(node.clone())));
        check("POST", "/api/v1/progress/by-node/n/p", p, Ok(Action::Update(node.clone())));
        check("GET", "/api/v1/health/by-node/n/p", p, Ok(Action::Hear(node.clone())));
        check("GET", "/api/v1/health/by-node/n/p", n, Ok(Action::Hear(node)));
        check("GET", "/api/v1/health/by-node/m/p", n, Err(403));
        check("PUT", "/api/v1/results/by-node/n/q", n, Err(403));
        check("POST", "/api/v1/progress/global/p", n, Err(403));
        check("POST", "/api/v1/certificate", None, Ok(Action::Certify));
        check("GET", "/api/v1/certificate", p, Err(405));
        check("GET", "/api/v1/health/global/p", p, Ok(Action::Hear(global)));
        check("POST", "/api/v1/results/global/p", p, Err(405));
        check("PUT", "/api/v1/progress/global/p", p, Err(405));
        check("HEAD", "/api/v1/health/global/p", p, Err(405));
        check("put", "/api/v1/results/global/p", p, Err(405));
        check("PUT", "/api/v1/results/global/q", p, Err(403));
        check("PUT", "/api/v1/results/global/p", None, Err(403));
        check("PUT", "/api/v1/results/global/p/", p, Err(404));
        check("GET", "/", p, Err(404));
        check("GET", "/api/v1/results/global/..", p, Err(404));
    }
}
