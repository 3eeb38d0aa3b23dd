//! `POST /api/v1/certificate`: a worker proves its pod with a token and gets a certificate for the result of that pod.
//!
//! Owns the order of the checks, the responses, and the rates: reviews are bounded in total and for each address,
//! certificates for each pod. No failure bars an address: a hostile pod in the host's network has that of its node. A
//! [`Reviewer`] identifies the holder of a token; `backplane` signs. Reviews run on the threads of their connections.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::aggregator::store::Store;
use crate::backplane::{Authority, SigningRequest};
use base::http::{Request, Response};
use base::lock;
use base::quota::{Permit, Quota};
use client::protocol::{RENEW_HEADER, ResultId};

/// A request has a key and a signature: some 500 bytes.
const MAX_REQUEST_BYTES: u64 = 16 << 10;
/// Tokens of service accounts have one or two KiB.
const MAX_TOKEN_BYTES: usize = 8 << 10;
/// Validity of a certificate, and so of the access of a pod that was removed.
const VALID: Duration = Duration::from_secs(3600);
/// Interval of renewals. An aggregator may be unreachable for the remaining twenty minutes.
const RENEW_AFTER: Duration = Duration::from_secs(2400);
/// Maximum reviews that begin within a second, in total and for one address.
const REVIEWS_PER_SECOND: u64 = 50;
const REVIEWS_PER_SECOND_OF_ONE: u64 = 25;
/// Maximum reviews at a time, in total and for one address; each occupies a thread while the API server is slow.
const MAX_REVIEWS: u64 = 64;
const MAX_REVIEWS_OF_ONE: u64 = 8;
/// Maximum certificates of a pod within [`WINDOW`]. A restarted worker requests another.
const MAX_TRIES: u64 = 8;
const WINDOW: Duration = Duration::from_secs(300);
/// Maximum tries that are remembered, of all addresses or pods.
const MAX_REMEMBERED: u64 = 32_768;

/// The holder of a token.
#[derive(Debug)]
pub(crate) struct Holder {
    /// The result that its pod sends.
    pub id: ResultId,
    /// The UID of its pod.
    pub pod: String,
}

/// Why the holder of a token is unknown.
#[derive(Debug, PartialEq)]
pub(crate) enum ReviewError {
    /// The token is invalid; another one may be valid.
    Unknown(String),
    /// The token is valid, and its holder is not of this run.
    Stranger(String),
    /// The review failed.
    Unavailable(String),
}

/// Identifies the holders of tokens.
pub(crate) trait Reviewer: Send + Sync {
    /// Whether `token` claims to be one of this run; needs no request.
    fn may_know(&self, _token: &str) -> bool {
        true
    }

    /// The holder of `token`, which came from `address`.
    fn review(&self, token: &str, address: IpAddr) -> Result<Holder, ReviewError>;
}

/// Issues worker certificates.
pub(crate) struct Certifier {
    reviewer: Box<dyn Reviewer>,
    pace: Tries,
    reviews: Quota<IpAddr>,
    grants: Tries,
}

impl Certifier {
    pub(crate) fn new(reviewer: Box<dyn Reviewer>) -> Self {
        Self {
            reviewer,
            pace: Tries::new(REVIEWS_PER_SECOND, REVIEWS_PER_SECOND_OF_ONE, Duration::from_secs(1)),
            reviews: Quota::new(MAX_REVIEWS, MAX_REVIEWS_OF_ONE),
            grants: Tries::default(),
        }
    }

    /// Responds to a request for a certificate.
    pub(super) fn answer(
        &self,
        store: &Store,
        authority: &Authority,
        request: &mut Request<'_>,
    ) -> Result<Response, Response> {
        let token = bearer(request.headers.get("authorization")).ok_or_else(|| {
            Response::text(401, "certificates are issued only for `Authorization: Bearer TOKEN`")
        })?;
        let key = SigningRequest::from_pem(&request.read(MAX_REQUEST_BYTES)?)
            .map_err(|error| Response::text(400, format_args!("{error:#}")))?;
        let holder = self.review(store, &token, request.peer.address.ip())?;
        if store.lock().result(&holder.id).is_none() {
            let why = format_args!("this run expects nothing from `{}`", holder.id);
            return Err(Response::text(403, why));
        }
        if !self.grants.count(&holder.pod) {
            return Err(busy("this pod has received too many certificates", WINDOW / 5));
        }
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

    fn review(&self, store: &Store, token: &str, address: IpAddr) -> Result<Holder, Response> {
        if !self.reviewer.may_know(token) {
            return Err(Response::text(401, "the token is not for this run"));
        }
        if !self.pace.count(&address.to_string()) {
            return Err(busy("too many requests for certificates in this second", Duration::from_secs(1)));
        }
        let Some(_permit) = self.reviews.take(&address, 1) else {
            return Err(busy("too many tokens are being reviewed", Duration::from_secs(2)));
        };
        let reviewed = self.reviewer.review(token, address);
        let unavailable = match &reviewed {
            Err(ReviewError::Unavailable(why)) => Some(why.clone()),
            _ => None,
        };
        store.lock().certificates_held_up(unavailable);
        reviewed.map_err(|doubt| match doubt {
            ReviewError::Unknown(why) => Response::text(401, why),
            ReviewError::Stranger(why) => Response::text(403, why),
            ReviewError::Unavailable(why) => {
                log::warn!("a token could not be reviewed: {why}");
                Response::text(503, why).header("retry-after", "2")
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

/// Counts tries of each address or pod within a time.
pub(crate) struct Tries {
    quota: Quota<String>,
    within: Duration,
    /// One permit for each try, oldest first.
    held: Mutex<VecDeque<(Instant, Permit<String>)>>,
}

impl Default for Tries {
    fn default() -> Self {
        Self::new(MAX_REMEMBERED, MAX_TRIES, WINDOW)
    }
}

impl Tries {
    fn new(total: u64, per_key: u64, within: Duration) -> Self {
        Self { quota: Quota::new(total, per_key), within, held: Mutex::default() }
    }

    /// Counts a try of `key`; false if it had none left.
    pub(super) fn count(&self, key: &str) -> bool {
        self.count_at(key, Instant::now())
    }

    fn count_at(&self, key: &str, now: Instant) -> bool {
        let mut held = lock(&self.held);
        while held.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= self.within) {
            held.pop_front();
        }
        let permit = self.quota.take(&key.to_owned(), 1);
        permit.map(|permit| held.push_back((now, permit))).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_limited_per_second() {
        let start = Instant::now();
        let pace = Tries::new(50, 50, Duration::from_secs(1));
        let begun: Vec<u64> =
            (0..5_000).filter(|ms| pace.count_at("one", start + Duration::from_millis(*ms))).collect();
        assert!(begun.windows(51).all(|some| some[50] - some[0] >= 1_000), "{begun:?}");
        assert_eq!(begun.len(), 250);
        let later = start + Duration::from_secs(9_000);
        assert_eq!(
            (0..200).filter(|_| pace.count_at("one", later)).count(),
            50,
            "unused ones are not saved up"
        );
    }

    #[test]
    fn attempts_are_limited_per_key_in_bounded_memory() {
        let tries = Tries::default();
        for _ in 0..MAX_TRIES {
            assert!(tries.count("0"));
        }
        assert_eq!([tries.count("0"), tries.count("1")], [false, true]);
        for key in 0..2 * MAX_REMEMBERED {
            tries.count(&key.to_string());
        }
        assert!(tries.held.lock().unwrap().len() as u64 <= MAX_REMEMBERED);
    }

    #[test]
    fn authorization_must_be_a_bearer_token() {
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
