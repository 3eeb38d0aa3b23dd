//! `POST /api/v1/certificate`: a worker proves by a token which pod it is, and gets a certificate for what that pod brings.
//!
//! Owns the order of the checks, what is answered, and how often may be asked: what costs the API server something is
//! bounded in sum and for each address that fails, what was granted for each pod. Whose a token is, a [`Reviewer`]
//! tells; how certificates are made, `backplane`. Reviews run in the threads of their connections.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::io::Read as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::store::Store;
use crate::backplane::{Authority, SigningRequest};
use base::http::{Request, Response};
use client::protocol::{RENEW_HEADER, ResultId};

/// A request is a key and a signature: some 500 bytes.
const MAX_REQUEST_BYTES: u64 = 16 << 10;
/// Tokens of service accounts have one or two KiB.
const MAX_TOKEN_BYTES: usize = 8 << 10;
/// How long a certificate counts; who was thrown out of the cluster has it no longer.
const VALID: Duration = Duration::from_secs(3600);
/// When its holder asks for the next: an aggregator that is away for twenty minutes costs nobody anything.
const RENEW_AFTER: Duration = Duration::from_secs(2400);
/// So many reviews begin in any second.
const REVIEWS_PER_SECOND: usize = 50;
/// So many are under way while the API server is slow; each holds a connection.
const MAX_REVIEWS_AT_ONCE: usize = 64;
/// What an address may fail, and a pod be granted, within [`WINDOW`]. A worker that is started again asks again.
const MAX_TRIES: u32 = 8;
const WINDOW: Duration = Duration::from_secs(300);
/// So many addresses or pods are remembered.
const MAX_REMEMBERED: usize = 32_768;

/// Who holds a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Holder {
    /// The result that it brings.
    pub id: ResultId,
    /// What tells its pod from all others.
    pub pod: String,
}

/// Why nobody is known to hold a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReviewError {
    /// It is not believed; another one might be.
    Unknown(String),
    /// It is believed, and its holder has no business here.
    Stranger(String),
    /// It could not be reviewed just now.
    Unavailable(String),
}

/// Tells whose tokens are.
pub(crate) trait Reviewer: Send + Sync {
    /// Whether `token` may be one of this run's, as far as it says itself: costs nobody else anything.
    fn may_know(&self, _token: &str) -> bool {
        true
    }

    /// Who holds `token`, which came from `address`.
    fn review(&self, token: &str, address: IpAddr) -> Result<Holder, ReviewError>;
}

/// The office that certifies workers.
pub(super) struct Certifier {
    reviewer: Box<dyn Reviewer>,
    pace: Mutex<ReviewRate>,
    failures: Tries<IpAddr>,
    grants: Tries<String>,
    under_way: AtomicUsize,
}

impl Certifier {
    pub(super) fn new(reviewer: Box<dyn Reviewer>) -> Self {
        Self {
            reviewer,
            pace: Mutex::default(),
            failures: Tries::default(),
            grants: Tries::default(),
            under_way: AtomicUsize::new(0),
        }
    }

    /// Answers a request for a certificate.
    pub(super) fn answer(&self, store: &Store, authority: &Authority, request: &mut Request<'_>) -> Response {
        self.certify(store, authority, request).unwrap_or_else(|refusal| refusal)
    }

    fn certify(
        &self,
        store: &Store,
        authority: &Authority,
        request: &mut Request<'_>,
    ) -> Result<Response, Response> {
        let address = request.peer.address.ip();
        if !self.failures.left(&address) {
            return Err(busy("too many requests for certificates from this address have failed", WINDOW / 5));
        }
        // What is wrong with it costs nobody else anything, and is counted all the same.
        let failed = |response| {
            self.failures.count(&address);
            response
        };
        let token = bearer(request.headers.get("authorization")).ok_or_else(|| {
            failed(Response::text(401, "certificates are issued only for `Authorization: Bearer TOKEN`"))
        })?;
        let key = read_request(request).map_err(failed)?;
        let holder = self
            .review(store, &token, address)
            .map_err(|(response, counts)| if counts { failed(response) } else { response })?;
        if store.lock().standing(&holder.id).is_none() {
            return Err(failed(Response::text(
                403,
                format_args!("this run expects nothing from `{}`", holder.id),
            )));
        }
        if !self.grants.left(&holder.pod) {
            return Err(busy("this pod has received too many certificates", WINDOW / 5));
        }
        self.grants.count(&holder.pod);
        match authority.certify(&holder.id, &key, VALID) {
            Ok(certificate) => {
                store.lock().hear(&holder.id, Instant::now());
                log::debug!("`{}` received a certificate", holder.id);
                Ok(Response::text(200, certificate.trim_end())
                    .header(RENEW_HEADER, RENEW_AFTER.as_secs().to_string()))
            }
            Err(error) => {
                log::error!("no certificate for `{}`: {error:#}", holder.id);
                Err(Response::text(500, "the certificate could not be signed"))
            }
        }
    }

    /// Who holds the token; else the refusal, and whether it counts against whoever asked.
    fn review(&self, store: &Store, token: &str, address: IpAddr) -> Result<Holder, (Response, bool)> {
        if !self.reviewer.may_know(token) {
            return Err((Response::text(401, "the token is not for this run"), true));
        }
        if !locked(&self.pace).take(Instant::now()) {
            return Err((busy("too many requests for certificates at once", Duration::from_secs(1)), false));
        }
        let Some(_seat) = ReviewSlot::take(&self.under_way) else {
            return Err((busy("too many tokens are being reviewed", Duration::from_secs(2)), false));
        };
        let reviewed = self.reviewer.review(token, address);
        let unavailable = match &reviewed {
            Err(ReviewError::Unavailable(why)) => Some(why.clone()),
            _ => None,
        };
        store.lock().certificates_held_up(unavailable);
        reviewed.map_err(|doubt| match doubt {
            ReviewError::Unknown(why) => (Response::text(401, why), true),
            ReviewError::Stranger(why) => (Response::text(403, why), true),
            ReviewError::Unavailable(why) => {
                log::warn!("a token could not be reviewed: {why}");
                (Response::text(503, why).header("retry-after", "2"), false)
            }
        })
    }
}

fn busy(why: &str, after: Duration) -> Response {
    Response::text(429, why).header("retry-after", after.as_secs().max(1).to_string())
}

/// The token of an `Authorization` header, if it can be one.
fn bearer(header: Option<&str>) -> Option<String> {
    let (scheme, token) = header?.split_once(' ')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    let token = token.trim();
    let fits = !token.is_empty() && token.len() <= MAX_TOKEN_BYTES && token.bytes().all(plain);
    (scheme.eq_ignore_ascii_case("bearer") && fits).then(|| token.to_owned())
}

fn read_request(request: &mut Request<'_>) -> Result<SigningRequest, Response> {
    let too_large = || Response::text(413, format_args!("more than {MAX_REQUEST_BYTES} bytes"));
    if request.declared_length().is_some_and(|length| length > MAX_REQUEST_BYTES) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    if let Err(error) = request.body().take(MAX_REQUEST_BYTES + 1).read_to_end(&mut body) {
        return Err(Response::text(400, error));
    }
    if body.len() as u64 > MAX_REQUEST_BYTES {
        return Err(too_large());
    }
    SigningRequest::from_pem(&body).map_err(|error| Response::text(400, format_args!("{error:#}")))
}

/// A place among the reviews that are under way.
struct ReviewSlot<'a>(&'a AtomicUsize);

impl<'a> ReviewSlot<'a> {
    fn take(under_way: &'a AtomicUsize) -> Option<Self> {
        let more = |taken| (taken < MAX_REVIEWS_AT_ONCE).then_some(taken + 1);
        under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(under_way))
    }
}

impl Drop for ReviewSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When the last reviews began, no more of which begin within a second.
#[derive(Default)]
struct ReviewRate(VecDeque<Instant>);

impl ReviewRate {
    fn take(&mut self, now: Instant) -> bool {
        let over = |begun: &Instant| now.saturating_duration_since(*begun) >= Duration::from_secs(1);
        while self.0.front().is_some_and(over) {
            self.0.pop_front();
        }
        let may = self.0.len() < REVIEWS_PER_SECOND;
        if may {
            self.0.push_back(now);
        }
        may
    }
}

/// How often each has tried within the window that its first try began.
pub(super) struct Tries<K>(Mutex<HashMap<K, (u32, Instant)>>);

impl<K> Default for Tries<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> Tries<K> {
    pub(super) fn left(&self, key: &K) -> bool {
        let tries = locked(&self.0);
        tries.get(key).is_none_or(|(count, since)| *count < MAX_TRIES || since.elapsed() >= WINDOW)
    }

    pub(super) fn count(&self, key: &K) {
        let mut tries = locked(&self.0);
        if tries.len() >= MAX_REMEMBERED && !tries.contains_key(key) {
            tries.retain(|_, (_, since)| since.elapsed() < WINDOW);
            if tries.len() >= MAX_REMEMBERED {
                // Whoever has so many addresses is held by the pace alone.
                tries.clear();
            }
        }
        let (count, since) = tries.entry(key.clone()).or_insert((0, Instant::now()));
        if since.elapsed() >= WINDOW {
            (*count, *since) = (0, Instant::now());
        }
        *count = count.saturating_add(1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Numbers alone: whatever a panic left is a number, too.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_keep_their_pace() {
        let start = Instant::now();
        let mut pace = ReviewRate::default();
        let mut begun = |ms: u64| (0..200).filter(|_| pace.take(start + Duration::from_millis(ms))).count();
        assert_eq!([begun(0), begun(999)], [50, 0]);
        assert_eq!([begun(1_000), begun(1_999)], [50, 0]);
        assert_eq!(begun(9_000_000), 50, "what was not used is not saved up");
        assert!(pace.0.len() <= REVIEWS_PER_SECOND);
    }

    #[test]
    fn any_second_sees_no_more_than_its_reviews() {
        let start = Instant::now();
        let mut pace = ReviewRate::default();
        let begun: Vec<u64> = (0..5_000).filter(|ms| pace.take(start + Duration::from_millis(*ms))).collect();
        assert!(begun.windows(51).all(|some| some[50] - some[0] >= 1_000), "{begun:?}");
        assert_eq!(begun.len(), 250);
    }

    #[test]
    fn each_has_its_own_tries_and_memory_is_bounded() {
        let tries = Tries::default();
        for _ in 0..MAX_TRIES {
            assert!(tries.left(&0));
            tries.count(&0);
        }
        assert_eq!([tries.left(&0), tries.left(&1)], [false, true]);
        for key in 0..2 * MAX_REMEMBERED {
            tries.count(&key);
        }
        assert!(locked(&tries.0).len() <= MAX_REMEMBERED);
    }

    #[test]
    fn only_a_bearer_with_a_token_counts() {
        for (header, expected) in [
            (Some("Bearer abc.def-_"), Some("abc.def-_")),
            (Some("bearer  abc"), Some("abc")),
            (Some("Basic abc"), None),
            (Some("Bearer "), None),
            (Some("Bearer"), None),
            (Some("Bearer a b"), None),
            (Some("Bearer \u{e4}"), None),
            (None, None),
        ] {
            assert_eq!(bearer(header).as_deref(), expected, "{header:?}");
        }
        assert_eq!(bearer(Some(&format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1)))), None);
    }
}
