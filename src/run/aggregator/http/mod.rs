//! The routes: who may send which request, and the response.
//!
//! A request is permitted or refused before its body is read. `certificate` issues certificates to
//! workers that prove their pod, in turns that `reviews` gives. `Content-Disposition` is read as by
//! the servers that existing workers were written against (RFC 2183 with the encoding of RFC 2231);
//! an invalid header means no name. Connections, framing and deadlines are those of `http`;
//! files are the store's.

mod certificate;
mod reviews;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;

use crate::aggregator::Aggregator;
use crate::aggregator::limits::Refusal;
use crate::aggregator::run::{Sender, progress};
use crate::aggregator::store::{Sha256, Store, Upload};
use crate::backplane::Caller;
use base::visible::tail;
use base::{clock, visible};
pub(super) use certificate::Certifier;
pub(super) use certificate::Tries;
pub use certificate::{Holder, ReviewError, Reviewer};
use client::protocol::{
    CONTAINERS_HEADER, DEFAULT_FILE_NAME, DIGEST_HEADER, ERROR_HEADER, FOLDER_LIMIT_HEADER, GZIP,
    ResultId, Route, TROUBLE_HEADER, is_own_agent,
};
use http::{Request, Response, network};

/// Time for a body that is kept in memory.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes that a log line repeats of a path and of a refusal.
const LOGGED_BYTES: usize = 256;
/// Maximum bytes that are kept of a worker's problem.
const MAX_TROUBLE_BYTES: usize = 1 << 10;

impl Aggregator {
    /// Responds to one request.
    pub(super) fn answer(&self, request: &mut Request<'_>) -> Response {
        let response = self.respond(request).unwrap_or_else(|refusal| refusal);
        self.log(request, &response);
        response
    }

    /// Logs a refusal, unless it only invites a retry: at most a few of each result whose worker
    /// sends it, and of each address that sends anything else.
    fn log(&self, request: &Request<'_>, response: &Response) {
        let (status, address) = (response.status(), request.peer.address.ip());
        let is_refusal = (400..600).contains(&status) && !matches!(status, 429 | 503);
        // Counted even if they are not logged, for the status.
        self.store.lock().refusals += u64::from(is_refusal);
        if !is_refusal {
            return;
        }
        let caller = request.peer.certificate.as_ref().and_then(Caller::of);
        // Other requests from the same address must not hide why a result was refused.
        let sender = match permitted(&request.method, &request.path, caller.as_ref()) {
            Ok(Route::Result(id)) => id.to_string(),
            _ => network(address).to_string(),
        };
        if !self.logged.count(&sender) {
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
        log::log!(
            level,
            "{} {path} from {address} was refused with {status} {message}",
            request.method
        );
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
                store.lock().note_contact(&id, Instant::now());
                submit(store, &id, caller.as_ref(), request)
            }
            Route::Progress(id) => update(store, &id, request),
            Route::Health(id) => answer_heartbeat(store, &id, request),
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
        let message = format_args!("this path takes {allowed}, not {}", visible::short(method));
        return Err(Response::text(405, message).header("allow", allowed));
    }
    let Some(id) = id else { return Ok(route) };
    if caller.is_some_and(|caller| caller.may(id)) {
        return Ok(route);
    }
    let caller = caller.map_or("an unknown client".into(), Caller::to_string);
    Err(Response::text(
        403,
        format_args!("the certificate of {caller} does not cover `{id}`"),
    ))
}

/// Notes a heartbeat, and tells the worker what it cannot see: that the other containers of its pod
/// have ended.
fn answer_heartbeat(store: &Store, id: &ResultId, request: &Request) -> Result<Response, Response> {
    let trouble = request
        .headers
        .get(TROUBLE_HEADER)
        .and_then(base::percent_decoded);
    // Reporting a problem is no promise of further heartbeats.
    let is_ours = trouble.is_none() && request.headers.get("user-agent").is_some_and(is_own_agent);
    let mut state = store.lock();
    if !state.beat(id, is_ours, Instant::now()) {
        return Err(Refusal::Unexpected.response(id));
    }
    if let Some(trouble) = trouble {
        let trouble = visible::cut_bytes(&visible::line(&trouble), MAX_TROUBLE_BYTES);
        state.trouble(id, Some(trouble));
    }
    let limit = store.limits.results.unpacked_bytes;
    let response = Response::empty(200).header(FOLDER_LIMIT_HEADER, limit.to_string());
    Ok(match state.containers_end(id) {
        Some(end) => response.header(CONTAINERS_HEADER, end.name()),
        None => response,
    })
}

/// Stores a result.
fn submit(
    store: &Store,
    id: &ResultId,
    caller: Option<&Caller>,
    request: &mut Request,
) -> Result<Response, Response> {
    let headers = &request.headers;
    let digest = announced_digest(headers.all(DIGEST_HEADER)).ok_or_else(|| {
        Response::text(
            400,
            format_args!("`{DIGEST_HEADER}` must be one `sha-256=:<base64>:`"),
        )
    })?;
    let upload = Upload {
        length: request.length,
        is_archive: headers.get("content-type") == Some(GZIP),
        is_error: headers.get(ERROR_HEADER).is_some(),
        name: headers.get("content-disposition").map(file_name),
        digest,
        sender: Sender::new(caller.map(Caller::kind), headers.get("user-agent")),
        meter: Arc::clone(&request.peer.meter),
        body: request.body(),
    };
    if upload.is_error {
        // A report is small: the time of a large result would only occupy a thread.
        upload.meter.finish_within(Some(BODY_TIMEOUT));
    }
    let digest = store
        .accept(id, upload)
        .map_err(|refusal| refusal.response(id))?;
    Ok(Response::empty(200).header("repr-digest", digest_text(&digest)))
}

/// Merges a progress update.
fn update(store: &Store, id: &ResultId, request: &mut Request) -> Result<Response, Response> {
    if !store.lock().note_contact(id, Instant::now()) {
        return Err(Refusal::Unexpected.response(id));
    }
    let limited = |limit: Refusal| {
        store.lock().limited(id, &limit);
        limit.response(id)
    };
    let max = store.limits.progress.bytes;
    // Held until the update is parsed, which takes more memory than the body.
    let _memory = store
        .memory(id, request.length.unwrap_or(max).min(max))
        .map_err(limited)?;
    request.peer.meter.finish_within(Some(BODY_TIMEOUT));
    let body = request
        .read(max)
        .map_err(|response| match response.status() {
            413 => limited(Refusal::TooLarge(format!(
                "progress is larger than {max} bytes (`Limits.Progress.Bytes`)"
            ))),
            _ => response,
        })?;
    let progress = progress::decode(&body).map_err(|error| {
        let reason = error.to_string();
        Response::text(
            400,
            format_args!("the progress is malformed: {}", visible::short(&reason)),
        )
    })?;
    store.note_finished(id, &progress.msg);
    store.lock().progress(id, progress, clock::now());
    Ok(Response::empty(200))
}

/// File systems refuse longer names.
const MAX_NAME_BYTES: usize = 255;

/// The name to store a body under; [`DEFAULT_FILE_NAME`] without a usable one.
fn file_name(header: &str) -> String {
    let parameters = parameters(header).unwrap_or_default();
    let encoded = parameters.get("filename*").and_then(|value| decoded(value));
    let name = encoded.as_ref().or_else(|| parameters.get("filename"));
    name.and_then(|name| harmless(name))
        .unwrap_or_else(|| DEFAULT_FILE_NAME.into())
}

/// The last component of `wish`, if it can be a file name. The end of an overlong name is kept,
/// because the suffix decides on its format.
fn harmless(wish: &str) -> Option<String> {
    let name = wish.rsplit(['/', '\\']).next()?;
    if matches!(name, "" | "." | "..") || name.chars().any(char::is_control) {
        return None;
    }
    Some(tail(name, MAX_NAME_BYTES).to_owned())
}

const TOKEN: &str = r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]+";

/// Patterns of a parameter with its semicolon, of a whole header (`attachment`, `form-data`, or
/// anything of the form `type` or `type/subtype`; a semicolon at the end is common), and of an
/// escape.
static PATTERNS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    let parameter = format!(r#";\s*({TOKEN})\s*=\s*(?:({TOKEN})|"((?:[^"\\\r\n]|\\[^\r\n])*)")"#);
    let header = format!(r"^\s*{TOKEN}(?:/{TOKEN})?\s*(?:{parameter}\s*)*;?\s*$");
    // Only specials are escaped, so that unescaped Windows paths survive.
    let escape = r#"\\([()<>@,;:\\"/\[\]?=])"#;
    [&parameter, &header, escape].map(|pattern| Regex::new(pattern).expect("a valid pattern"))
});

/// All parameters by lower-case name; `None` if anything is malformed.
fn parameters(text: &str) -> Option<BTreeMap<String, String>> {
    let [parameter, header, escape] = &*PATTERNS;
    let mut parameters = BTreeMap::new();
    if !header.is_match(text) {
        return None;
    }
    for captures in parameter.captures_iter(text) {
        let value = match captures.get(2) {
            Some(word) => word.as_str().to_owned(),
            None => escape.replace_all(&captures[3], "$1").into_owned(),
        };
        let name = captures[1].to_ascii_lowercase();
        let first = parameters.entry(name).or_insert_with(|| value.clone());
        // Clients that name a file twice would be understood differently by each reader.
        if *first != value {
            return None;
        }
    }
    Some(parameters)
}

/// `charset'language'percent-encoded`; only charsets that are a part of UTF-8.
fn decoded(text: &str) -> Option<String> {
    let (charset, rest) = text.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    let is_known = matches!(charset.to_ascii_lowercase().as_str(), "utf-8" | "us-ascii");
    if is_known {
        base::percent_decoded(encoded)
    } else {
        None
    }
}

/// The value of `Repr-Digest` in a response.
fn digest_text(digest: &Sha256) -> String {
    format!("sha-256=:{}:", STANDARD.encode(digest))
}

/// The SHA-256 in all lines of `Repr-Digest`, if any; other kinds are ignored. `None` for a
/// malformed line or two digests that differ.
fn announced_digest<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Option<Sha256>> {
    let mut announced = None;
    for member in lines.flat_map(|line| line.split(',')) {
        let (kind, value) = member.trim().split_once('=')?;
        let (value, parameters) = value
            .strip_prefix(':')
            .and_then(|value| value.split_once(':'))?;
        if !parameters.is_empty() && !parameters.starts_with(';') {
            return None;
        }
        if kind.eq_ignore_ascii_case("sha-256") {
            let digest: Sha256 = STANDARD
                .decode(value)
                .ok()
                .and_then(|d| d.try_into().ok())?;
            if *announced.get_or_insert(digest) != digest {
                return None;
            }
        }
    }
    Some(announced)
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
        check(
            "PUT",
            "/api/v1/results/global/p",
            p,
            Ok(Route::Result(global.clone())),
        );
        check(
            "PUT",
            "/api/v1/results/by-node/n/p",
            p,
            Ok(Route::Result(node.clone())),
        );
        check(
            "PUT",
            "/api/v1/results/by_node/n/p",
            p,
            Ok(Route::Result(node.clone())),
        );
        check(
            "POST",
            "/api/v1/progress/by-node/n/p",
            p,
            Ok(Route::Progress(node.clone())),
        );
        check(
            "GET",
            "/api/v1/health/by-node/n/p",
            p,
            Ok(Route::Health(node.clone())),
        );
        check(
            "GET",
            "/api/v1/health/by-node/n/p",
            n,
            Ok(Route::Health(node)),
        );
        check("GET", "/api/v1/health/by-node/m/p", n, Err(403));
        check("PUT", "/api/v1/results/by-node/n/q", n, Err(403));
        check("POST", "/api/v1/progress/global/p", n, Err(403));
        check("POST", "/api/v1/certificate", None, Ok(Route::Certificate));
        check("GET", "/api/v1/certificate", p, Err(405));
        check(
            "GET",
            "/api/v1/health/global/p",
            p,
            Ok(Route::Health(global)),
        );
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

    #[track_caller]
    fn check_name(header: &str, name: &str) {
        assert_eq!(file_name(header), name, "{header}");
    }

    #[test]
    fn tokens_and_quoted_strings() {
        check_name("attachment;filename=a.tar.gz", "a.tar.gz");
        check_name("attachment; filename=a.xml", "a.xml");
        check_name("ATTACHMENT ; FileName = a.xml", "a.xml");
        check_name("form-data; name=x; filename=\"a b.xml\"", "a b.xml");
        check_name("attachment; filename=\"a\\\"b.xml\"", "a\"b.xml");
        check_name("attachment; filename=\"ä.xml\"", "ä.xml");
        check_name("attachment; filename=a.xml;", "a.xml");
        check_name("attachment; filename=a.xml ; ", "a.xml");
        check_name("attachment; filename=a; filename=a", "a");
        check_name("attachment/x; filename=a", "a");
    }

    #[test]
    fn invalid_file_names_are_ignored() {
        for header in [
            "",
            ";filename=a",
            "attachment",
            "attachment;filename",
            "attachment;filename=",
            "attachment;filename=\"\"",
            "attachment;filename=a b",
            "attachment;filename=a(1).xml",
            "attachment;filename=ä.xml",
            "attachment;filename=a/b",
            "attachment;filename=a=b",
            "attachment;filename=\"a",
            "attachment;filename=a;filename=b",
            "attachment;;filename=a",
            "attachment,filename=a",
            "attach ment;filename=a",
            "attachment/;filename=a",
            "attachment; filename*=latin-1''a",
            "attachment; filename*=utf-8'a",
            "attachment; filename*=utf-8''%zz",
        ] {
            check_name(header, "result");
        }
    }

    #[test]
    fn rfc_2231_file_names_are_decoded() {
        check_name("attachment; filename*=utf-8''%e2%82%ac.xml", "€.xml");
        check_name("attachment; filename*=US-ASCII'en'a%20b", "a b");
        check_name(
            "attachment; filename=plain; filename*=utf-8''starred",
            "starred",
        );
        check_name("attachment; filename*0=a; filename*1=b.xml", "result");
        check_name(
            "attachment; filename*0*=utf-8''%e2; filename=plain",
            "plain",
        );
        check_name("attachment; filename*=utf-8''%ff", "result");
    }

    #[test]
    fn names_stay_in_their_folder() {
        check_name("attachment; filename=\"../../etc/passwd\"", "passwd");
        check_name("attachment; filename=\"..\"", "result");
        check_name("attachment; filename=\"a/\"", "result");
        check_name("attachment; filename=\"c:\\temp\\a.xml\"", "a.xml");
        check_name("attachment; filename*=utf-8''a%00b", "result");
        check_name("attachment; filename*=utf-8''..%2fb", "b");
        check_name("attachment; filename*=utf-8''a%0ab", "result");
        let long = format!("attachment; filename={}.xml", "a".repeat(300));
        let name = file_name(&long);
        assert!(name.len() == 255 && name.ends_with("aaa.xml"), "{name}");
        assert_eq!(
            file_name(&format!("attachment; filename=\"{}\"", "€".repeat(100))).len(),
            255
        );
    }

    #[test]
    fn header_never_panics_or_escapes_its_folder() {
        let alphabet = b"a*0'%2f\\\"/;= \t.x\xc3\xa4(\0";
        let random = ring::rand::SystemRandom::new();
        let mut bytes = [0_u8; 48];
        for _ in 0..20_000 {
            ring::rand::SecureRandom::fill(&random, &mut bytes).unwrap();
            let tail: Vec<u8> = bytes
                .iter()
                .map(|byte| alphabet[usize::from(*byte) % alphabet.len()])
                .collect();
            let header = format!("attachment; filename{}", String::from_utf8_lossy(&tail));
            let name = file_name(&header);
            assert!(
                harmless(&name).as_deref() == Some(&name),
                "{header:?} gave {name:?}"
            );
        }
    }

    #[test]
    fn digests_are_those_of_rfc_9530() {
        let (zeros, ones) = (digest_text(&[0; 32]), digest_text(&[1; 32]));
        let check = |lines: &[&str], expected| {
            assert_eq!(
                announced_digest(lines.iter().copied()),
                expected,
                "{lines:?}"
            );
        };
        check(&[], Some(None));
        for lines in [
            &[zeros.as_str()][..],
            &[&format!("sha-512=:AA==:, {}", zeros.replace("sha", "SHA"))],
            &[&format!("{zeros};q=1")],
            &["sha-512=:AA==:", &zeros],
            &[&zeros, &zeros],
            &[&zeros, "crc-32=:AQIDBA==:"],
        ] {
            check(lines, Some(Some([0; 32])));
        }
        check(&["sha-512=:AA==:"], Some(None));
        check(&[&zeros, &ones], None);
        for bad in [
            "",
            "sha-256",
            "sha-256=AA==",
            "sha-256=:AA==:",
            "sha-256=:%%:",
            "sha-256=::",
        ] {
            check(&[bad], None);
            check(&[&zeros, bad], None);
        }
        check(&[&format!("{zeros}x")], None);
    }
}
