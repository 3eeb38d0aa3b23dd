//! The routes: who may send which request, and the response.
//!
//! A request is permitted or refused before its body is read. `certificate` issues certificates to workers that prove their
//! pod; `upload_headers` reads the headers of uploads. Connections, framing and deadlines are those of
//! `base::http`; files are the store's.

mod certificate;
mod upload_headers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::aggregator::Aggregator;
use crate::aggregator::limits::Refusal;
use crate::aggregator::run::{Sender, progress};
use crate::aggregator::store::{Store, Upload};
use crate::backplane::Caller;
use base::http::{Request, Response};
use base::{clock, visible};
pub(super) use certificate::Tries;
pub(crate) use certificate::{Certifier, Holder, ReviewError, Reviewer};
use client::protocol::{DIGEST_HEADER, ERROR_HEADER, GZIP, ResultId, Route};

/// Time for a body that is kept in memory.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes that a log line repeats of a path and of a refusal.
const LOGGED_BYTES: usize = 256;

impl Aggregator {
    /// Responds to one request.
    pub(super) fn answer(&self, request: &mut Request<'_>) -> Response {
        let response = self.respond(request).unwrap_or_else(|refusal| refusal);
        self.log(request, &response);
        response
    }

    /// Logs a refusal, at most a few of each address. Those that only invite a retry are not.
    fn log(&self, request: &Request<'_>, response: &Response) {
        let (status, address) = (response.status(), request.peer.address.ip());
        let is_refusal = (400..600).contains(&status) && !matches!(status, 429 | 503);
        self.store.lock().refusals += u64::from(is_refusal);
        if !is_refusal || !self.logged.count(&address) {
            return;
        }
        let level = match status {
            // The response to a worker whose result has arrived before.
            409 => log::Level::Info,
            500.. => log::Level::Error,
            _ => log::Level::Warn,
        };
        let path = visible::cut_bytes(&request.path, LOGGED_BYTES);
        let message = visible::cut_bytes(response.message(), LOGGED_BYTES);
        log::log!(level, "{} {path} from {address} was refused with {status} {message}", request.method);
    }

    fn respond(&self, request: &mut Request<'_>) -> Result<Response, Response> {
        let store = &self.store;
        let caller = request.peer.certificate.as_ref().and_then(Caller::of);
        let route = permitted(&request.method, &request.path, caller.as_ref());
        // A client without a certificate learns nothing about routes and results.
        if request.peer.certificate.is_none() && !matches!(route, Ok(Route::Certificate)) {
            return Err(Response::text(401, "a certificate of this run is required"));
        }
        match route? {
            Route::Result(id) => {
                store.lock().hear(&id, Instant::now());
                submit(store, &id, caller.as_ref(), request)
            }
            Route::Progress(id) => update(store, &id, request),
            Route::Health(id) if store.lock().beat(&id, Instant::now()) => Ok(Response::empty(200)),
            Route::Health(id) => Err(Refusal::Unexpected.response(&id)),
            Route::Certificate => match &self.certifier {
                Some(certifier) => certifier.answer(store, &self.authority, request),
                None => Err(Response::text(404, "this run does not issue certificates")),
            },
        }
    }
}

/// The route of `method` and `path`, if `caller`, as its certificate names it, may use it.
fn permitted(method: &str, path: &str, caller: Option<&Caller>) -> Result<Route, Response> {
    let route = Route::parse(path).ok_or_else(|| Response::text(404, "no such path"))?;
    let (allowed, id) = match &route {
        Route::Result(id) => ("PUT", Some(id)),
        Route::Progress(id) => ("POST", Some(id)),
        Route::Health(id) => ("GET", Some(id)),
        Route::Certificate => ("POST", None),
    };
    if method != allowed {
        return Err(Response::empty(405).header("allow", allowed));
    }
    let Some(id) = id else { return Ok(route) };
    if caller.is_some_and(|caller| caller.may(id)) {
        return Ok(route);
    }
    let caller = caller.map_or("an unknown client".into(), Caller::to_string);
    Err(Response::text(403, format_args!("the certificate of {caller} does not cover `{id}`")))
}

/// Stores a result.
fn submit(
    store: &Store,
    id: &ResultId,
    caller: Option<&Caller>,
    request: &mut Request,
) -> Result<Response, Response> {
    let headers = &request.headers;
    let digest = upload_headers::announced_digest(headers.all(DIGEST_HEADER)).ok_or_else(|| {
        Response::text(400, format_args!("`{DIGEST_HEADER}` must be one `sha-256=:<base64>:`"))
    })?;
    let upload = Upload {
        length: request.length,
        is_archive: headers.get("content-type") == Some(GZIP),
        is_error: headers.get(ERROR_HEADER).is_some(),
        name: headers.get("content-disposition").map(upload_headers::file_name),
        digest,
        sender: Sender::new(caller.map(Caller::kind), headers.get("user-agent")),
        meter: Arc::clone(&request.peer.meter),
        body: request.body(),
    };
    if upload.is_error {
        upload.meter.finish_within(Some(BODY_TIMEOUT));
    }
    let digest = store.accept(id, upload).map_err(|refusal| refusal.response(id))?;
    Ok(Response::empty(200).header("repr-digest", upload_headers::digest_text(&digest)))
}

/// Merges a progress update.
fn update(store: &Store, id: &ResultId, request: &mut Request) -> Result<Response, Response> {
    if !store.lock().hear(id, Instant::now()) {
        return Err(Refusal::Unexpected.response(id));
    }
    let limited = |limit: Refusal| {
        store.lock().limited(id, &limit);
        limit.response(id)
    };
    let max = store.limits.progress.bytes;
    // Held until the update is parsed, which takes more memory than the body.
    let _memory = store.memory(id, request.length.unwrap_or(max).min(max)).map_err(limited)?;
    request.peer.meter.finish_within(Some(BODY_TIMEOUT));
    let body = request.read(max).map_err(|response| match response.status() {
        413 => limited(Refusal::TooLarge(format!(
            "progress is larger than {max} bytes (`Limits.Progress.Bytes`)"
        ))),
        _ => response,
    })?;
    let progress = progress::decode(&body).ok_or_else(|| Response::empty(400))?;
    store.note_finished(id, &progress.msg);
    store.lock().progress(id, progress, clock::now());
    Ok(Response::empty(200))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, path: &str, caller: Option<&Caller>, expected: Result<Route, u16>) {
        let got = permitted(method, path, caller).map_err(|refusal| refusal.status());
        assert_eq!(got, expected, "{method} {path} from {caller:?}");
    }

    #[test]
    fn every_request_has_one_route_or_refusal() {
        let (global, node) = (ResultId::global("p"), ResultId::on_node("p", "n"));
        let p = Some(&Caller::Plugin("p".into()));
        let n = Some(&Caller::Result(node.clone()));
        check("PUT", "/api/v1/results/global/p", p, Ok(Route::Result(global.clone())));
        check("PUT", "/api/v1/results/by-node/n/p", p, Ok(Route::Result(node.clone())));
        check("PUT", "/api/v1/results/by_node/n/p", p, Ok(Route::Result(node.clone())));
        check("POST", "/api/v1/progress/by-node/n/p", p, Ok(Route::Progress(node.clone())));
        check("GET", "/api/v1/health/by-node/n/p", p, Ok(Route::Health(node.clone())));
        check("GET", "/api/v1/health/by-node/n/p", n, Ok(Route::Health(node)));
        check("GET", "/api/v1/health/by-node/m/p", n, Err(403));
        check("PUT", "/api/v1/results/by-node/n/q", n, Err(403));
        check("POST", "/api/v1/progress/global/p", n, Err(403));
        check("POST", "/api/v1/certificate", None, Ok(Route::Certificate));
        check("GET", "/api/v1/certificate", p, Err(405));
        check("GET", "/api/v1/health/global/p", p, Ok(Route::Health(global)));
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
