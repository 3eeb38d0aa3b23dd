//! What a request asks for, whether its sender may, and what it is answered.
//!
//! A request becomes one [`Action`] or a refusal before its body is looked at. Connections, framing and time limits
//! are those of `http`; files are the store's.

use std::io;
use std::net::IpAddr;
use std::time::Instant;

use super::budget::{self, Hit};
use super::certify::{Certifier, Tries};
use super::digests::{QUICK, Wanted};
use super::progress::{self, Unread};
use super::ran;
use super::receipt::Sender;
use super::refusal::Refusal;
use super::store::Store;
use super::upload::Upload;
use crate::backplane::{Authority, Caller};
use base::clock;
use base::http::{Request, Response, TurnedAway};
use client::protocol::{DIGEST_HEADER, ERROR_HEADER, FINAL_HEADER, ResultId, Route, WANT_DIGEST_HEADER};

/// The limit of what a line of the log repeats of a path and of a refusal.
const LOGGED_BYTES: usize = 256;

/// All that can be asked for.
#[derive(Debug, PartialEq)]
enum Action {
    /// Take this result.
    Submit(ResultId),
    /// Take this progress.
    Update(ResultId),
    /// Note that the worker lives.
    Hear(ResultId),
    /// Sign a certificate for whoever proves who it is.
    Certify,
}

/// What answers requests.
pub(super) struct Endpoints<'a> {
    pub(super) store: &'a Store,
    pub(super) authority: &'a Authority,
    /// Who makes certificates for workers, if they may ask for any.
    pub(super) certifier: Option<&'a Certifier>,
    /// How many refusals of an address were logged.
    pub(super) refused: Tries<IpAddr>,
}

impl Endpoints<'_> {
    /// Answers one request.
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
        let path = budget::beginning(&request.path, LOGGED_BYTES);
        let message = budget::beginning(response.message(), LOGGED_BYTES);
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
            // Guests, whom only a run with a certifier lets in, hear nothing of what there is.
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
            Action::Update(id) => update(store, &id, request),
            Action::Hear(id) => {
                if store.lock().beat(&id, Instant::now()) {
                    Response::empty(200)
                } else {
                    unexpected(&id)
                }
            }
        }
    }
}

/// Notes for the status that a request was told to come again before it was looked at.
pub(super) fn note(store: &Store, refused: &TurnedAway) {
    let caller = refused.peer.certificate.as_ref().and_then(Caller::of);
    if let Some(Route::Result(id) | Route::Progress(id) | Route::Health(id)) = Route::parse(&refused.path)
        && caller.is_some_and(|caller| caller.may(&id))
    {
        let mut state = store.lock();
        state.hear(&id, Instant::now());
        state.limited(&id, &if refused.dawdled { Hit::Dawdled } else { Hit::Waiting });
    }
}

/// What `method` and `path` ask for, if `caller`, as its certificate names it, may ask so.
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
    let Some(digest) = Wanted::read(request.headers.all(DIGEST_HEADER)) else {
        return Response::text(400, format_args!("`{DIGEST_HEADER}` must be one `sha-256=:<base64>:`"));
    };
    let is_quick_wanted = header(WANT_DIGEST_HEADER).is_some_and(|wanted| wanted.contains(QUICK));
    let (kind, disposition) = (header("Content-Type"), header("Content-Disposition"));
    let is_error = header(ERROR_HEADER).is_some();
    let length = request.declared_length();
    let sender = Sender::new(caller.map(Caller::kind), request.headers.get("user-agent"));
    let (kind, disposition) = (kind.as_deref(), disposition.as_deref());
    let body = request.body();
    let upload = Upload { body, length, kind, disposition, digest, is_quick_wanted, is_error, sender };
    match store.accept(id, upload) {
        Ok(digests) => Response::empty(200).header("repr-digest", digests.text(is_quick_wanted)),
        Err(refusal) => {
            let response = Response::text(code(&refusal), format_args!("`{id}`: {refusal}"));
            match refusal {
                Refusal::Malformed(_) => response.header(FINAL_HEADER, "true"),
                Refusal::Limit(hit) if !hit.is_final() => response.header("retry-after", "1"),
                _ => response,
            }
        }
    }
}

/// The code that stands for `refusal`.
pub(super) fn code(refusal: &Refusal) -> u16 {
    match refusal {
        Refusal::Digest | Refusal::Cut(_) => 400,
        Refusal::Unexpected => 403,
        Refusal::Stalled => 408,
        Refusal::Duplicate => 409,
        Refusal::Limit(hit) => hit.code(),
        Refusal::Malformed(_) | Refusal::Broken(_) => 500,
        Refusal::DiskFull(_) => 507,
    }
}

fn update(store: &Store, id: &ResultId, request: &mut Request) -> Response {
    if !store.lock().hear(id, Instant::now()) {
        return unexpected(id);
    }
    let limited = |hit: Hit| {
        store.lock().limited(id, &hit);
        let response = Response::text(hit.code(), format_args!("`{id}`: {hit}"));
        if hit.is_final() { response } else { response.header("retry-after", "1") }
    };
    let most = store.limits().progress.bytes;
    let wanted = request.declared_length().unwrap_or(most);
    if wanted > most {
        return limited(Hit::Update(most));
    }
    let _share = match store.reading(id, wanted) {
        Ok(share) => share,
        Err(hit) => return limited(hit),
    };
    let progress = match progress::decode(request.body(), most) {
        Ok(progress) => progress,
        Err(Unread::Limit(hit)) => return limited(hit),
        Err(Unread::Body(io::ErrorKind::TimedOut)) => return Response::empty(408),
        Err(Unread::Body(_)) => return Response::empty(400),
    };
    ran::note(store.run_dir(), id, &progress.msg);
    store.lock().progress(id, progress, clock::now());
    Response::empty(200)
}

fn unexpected(id: &ResultId) -> Response {
    Response::text(403, format_args!("`{id}`: {}", Refusal::Unexpected))
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
