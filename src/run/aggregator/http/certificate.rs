//! `POST /api/v1/certificate`: a worker proves its pod with a token and gets a certificate for the
//! result of that pod.
//!
//! Owns the order of the checks, the responses, and what is remembered: certificates of each pod,
//! and for a short time tokens that were refused, which cost no further review. No failure bars an
//! address: a hostile pod in the host's network has that of its node. `reviews` says whose token is
//! reviewed next; a [`Reviewer`] identifies the holder; `backplane` signs. Reviews run on the
//! threads of their connections.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::reviews::Reviews;
use crate::aggregator::store::Store;
use crate::backplane::{Authority, SigningRequest};
use base::lock;
use base::quota::{Permit, Quota};
use base::{sha256, visible};
use client::protocol::{RENEW_HEADER, ResultId};
use http::{Request, Response, network};

/// A request has a key and a signature: some 500 bytes.
const MAX_REQUEST_BYTES: u64 = 16 << 10;
/// Tokens of service accounts have one or two KiB.
const MAX_TOKEN_BYTES: usize = 8 << 10;
/// Validity of a certificate, and so of the access of a pod that was removed.
const VALID: Duration = Duration::from_secs(3600);
/// Interval of renewals. An aggregator may be unreachable for the remaining twenty minutes.
const RENEW_AFTER: Duration = Duration::from_secs(2400);
/// Maximum certificates of a pod within [`WINDOW`]. A restarted worker requests another.
const MAX_TRIES: u64 = 8;
const WINDOW: Duration = Duration::from_secs(300);
/// Maximum tries that are remembered, of all addresses or pods.
const MAX_REMEMBERED: u64 = 32_768;
/// Time for which a refused token is not reviewed again. Short: a token may be reviewed before the
/// API server knows its pod.
const REFUSAL_MEMORY: Duration = Duration::from_secs(10);
/// Maximum refusals that are remembered: more than reviews can bring within [`REFUSAL_MEMORY`].
const MAX_REFUSALS: usize = 1_024;
/// Maximum bytes of the reason of a refusal that is remembered.
const MAX_REASON_BYTES: usize = 512;

/// The holder of a token.
#[derive(Debug)]
pub struct Holder {
    /// The result that its pod sends.
    pub id: ResultId,
    /// The UID of its pod.
    pub pod: String,
}

/// Why the holder of a token is unknown.
#[derive(Debug, PartialEq)]
pub enum ReviewError {
    /// The token is invalid; another one may be valid.
    Unknown(String),
    /// The token is valid, and its holder is not of this run.
    Stranger(String),
    /// The review failed.
    Unavailable(String),
}

/// Identifies the holders of tokens.
pub trait Reviewer: Send + Sync {
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
    reviews: Reviews,
    refusals: Mutex<Refusals>,
    grants: Tries,
}

impl Certifier {
    pub(crate) fn new(reviewer: Box<dyn Reviewer>) -> Self {
        Self {
            reviewer,
            reviews: Reviews::default(),
            refusals: Mutex::default(),
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
        let token = bearer(request.headers.all("authorization"))?;
        let key = SigningRequest::from_pem(&request.read(MAX_REQUEST_BYTES)?)
            .map_err(|error| Response::text(400, format_args!("{error:#}")))?;
        let holder = self.identify(store, &token, request.peer.address.ip())?;
        match authority.certify(&holder.id, &key, VALID) {
            Ok(certificate) => {
                store.lock().note_contact(&holder.id, Instant::now());
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

    /// The holder of a token that may have one more certificate. A token that was refused lately is
    /// refused again without a review.
    fn identify(&self, store: &Store, token: &str, address: IpAddr) -> Result<Holder, Response> {
        // Both before a review, which costs the API server a request.
        if !self.reviewer.may_know(token) {
            return Err(Response::text(401, "the token is not for this run"));
        }
        let sender = Sender::new(token, network(address));
        if let Some(refusal) = lock(&self.refusals).find(&sender, Instant::now()) {
            return Err(refusal.response());
        }
        self.review(store, token, address).map_err(|refusal| {
            let response = refusal.response();
            if refusal.is_lasting {
                lock(&self.refusals).remember(sender, refusal, Instant::now());
            }
            response
        })
    }

    fn review(&self, store: &Store, token: &str, address: IpAddr) -> Result<Holder, Refusal> {
        let Some(_turn) = self.reviews.wait_for_turn(network(address)) else {
            return Err(Refusal::retry(
                429,
                "too many certificates are requested",
                2,
            ));
        };
        let reviewed = self.reviewer.review(token, address);
        let unavailable = match &reviewed {
            Err(ReviewError::Unavailable(why)) => Some(why.clone()),
            _ => None,
        };
        store.lock().certificates_held_up(unavailable);
        let holder = reviewed.map_err(|error| match error {
            ReviewError::Unknown(why) => Refusal::lasting(401, &why),
            ReviewError::Stranger(why) => Refusal::lasting(403, &why),
            ReviewError::Unavailable(why) => {
                log::warn!("a token could not be reviewed: {why}");
                Refusal::retry(503, &why, 2)
            }
        })?;
        if store.lock().result(&holder.id).is_none() {
            let why = format!("this run expects nothing from `{}`", holder.id);
            return Err(Refusal::lasting(403, &why));
        }
        // Last, so that a refusal above costs the pod no try; by pod, since its tokens change.
        if !self.grants.count(&holder.pod) {
            let why = "this pod has received too many certificates";
            let refusal = Refusal::retry(429, why, WINDOW.as_secs() / 5);
            return Err(Refusal {
                is_lasting: true,
                ..refusal
            });
        }
        Ok(holder)
    }
}

/// A token, and the network that it came from: elsewhere the same token may be valid.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Sender {
    token_digest: Vec<u8>,
    network: IpAddr,
}

impl Sender {
    fn new(token: &str, network: IpAddr) -> Self {
        Self {
            // Not the token itself: what is remembered must not be usable.
            token_digest: sha256(token).as_ref().to_vec(),
            network,
        }
    }
}

/// Why a token's holder gets no certificate.
#[derive(Clone)]
struct Refusal {
    status: u16,
    reason: String,
    retry_after: Option<u64>,
    /// Whether the next review of the token would most likely come to the same result.
    is_lasting: bool,
}

impl Refusal {
    fn lasting(status: u16, reason: &str) -> Self {
        let reason = visible::cut_bytes(reason, MAX_REASON_BYTES);
        Self {
            status,
            reason,
            retry_after: None,
            is_lasting: true,
        }
    }

    fn retry(status: u16, reason: &str, seconds: u64) -> Self {
        let reason = visible::cut_bytes(reason, MAX_REASON_BYTES);
        Self {
            status,
            reason,
            retry_after: Some(seconds),
            is_lasting: false,
        }
    }

    fn response(&self) -> Response {
        let response = Response::text(self.status, &self.reason);
        match self.retry_after {
            Some(seconds) => response.header("retry-after", seconds.to_string()),
            None => response,
        }
    }
}

/// Refused tokens of the last seconds.
#[derive(Default)]
struct Refusals {
    by_sender: HashMap<Sender, Refusal>,
    /// Oldest first.
    since: VecDeque<(Instant, Sender)>,
}

impl Refusals {
    fn find(&mut self, sender: &Sender, now: Instant) -> Option<Refusal> {
        while let Some((since, oldest)) = self.since.front()
            && now.saturating_duration_since(*since) >= REFUSAL_MEMORY
        {
            self.by_sender.remove(oldest);
            self.since.pop_front();
        }
        self.by_sender.get(sender).cloned()
    }

    fn remember(&mut self, sender: Sender, refusal: Refusal, now: Instant) {
        // Two requests with one token may have been reviewed at a time.
        if self.by_sender.insert(sender.clone(), refusal).is_none() {
            self.since.push_back((now, sender));
        }
        if self.since.len() > MAX_REFUSALS
            && let Some((_, oldest)) = self.since.pop_front()
        {
            self.by_sender.remove(&oldest);
        }
    }
}

/// The token of the only `Authorization` header.
fn bearer<'a>(mut headers: impl Iterator<Item = &'a str>) -> Result<String, Response> {
    let (first, others) = (headers.next(), headers.count());
    if others > 0 {
        return Err(Response::text(400, "more than one `Authorization` header"));
    }
    first.and_then(bearer_token).ok_or_else(|| {
        Response::text(
            401,
            "certificates are issued only for `Authorization: Bearer TOKEN`",
        )
    })
}

/// The token of an `Authorization` header, if it can be one.
fn bearer_token(header: &str) -> Option<String> {
    let (scheme, token) = header.split_once(' ')?;
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
        Self {
            quota: Quota::new(total, per_key),
            within,
            held: Mutex::default(),
        }
    }

    /// Counts a try of `key`; false if it had none left.
    pub(super) fn count(&self, key: &str) -> bool {
        self.count_at(key, Instant::now())
    }

    fn count_at(&self, key: &str, now: Instant) -> bool {
        let mut held = lock(&self.held);
        while held
            .front()
            .is_some_and(|(since, _)| now.saturating_duration_since(*since) >= self.within)
        {
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
    fn authorization_must_be_one_bearer_token() {
        let long = format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1));
        for (headers, expected) in [
            (&["Bearer abc.def-_"][..], Ok("abc.def-_")),
            (&["bearer  abc"], Ok("abc")),
            (&["Basic abc"], Err(401)),
            (&["Bearer "], Err(401)),
            (&["Bearer"], Err(401)),
            (&["Bearer a b"], Err(401)),
            (&["Bearer \u{e4}"], Err(401)),
            (&[&long], Err(401)),
            (&[], Err(401)),
            (&["Bearer abc", "Bearer abc"], Err(400)),
            (&["Basic abc", "Bearer abc"], Err(400)),
        ] {
            let found = bearer(headers.iter().copied()).map_err(|response| response.status());
            assert_eq!(found.as_deref(), expected.as_ref().copied(), "{headers:?}");
        }
    }

    #[test]
    fn refusals_are_remembered_for_one_sender_briefly_and_in_bounded_memory() {
        let now = Instant::now();
        let sender =
            |token: usize, last: u8| Sender::new(&token.to_string(), [10, 0, 0, last].into());
        let mut refusals = Refusals::default();
        refusals.remember(sender(0, 1), Refusal::lasting(403, "no"), now);
        let mut status = |sender: &Sender, later: Duration| {
            refusals
                .find(sender, now + later)
                .map(|refusal| refusal.status)
        };
        assert_eq!(status(&sender(0, 1), Duration::from_secs(9)), Some(403));
        assert_eq!(
            status(&sender(0, 2), Duration::from_secs(9)),
            None,
            "it came from elsewhere"
        );
        assert_eq!(
            status(&sender(1, 1), Duration::from_secs(9)),
            None,
            "it is another token"
        );
        assert_eq!(
            status(&sender(0, 1), REFUSAL_MEMORY),
            None,
            "it is forgotten"
        );
        for token in 0..2 * MAX_REFUSALS {
            refusals.remember(
                sender(token, 1),
                Refusal::lasting(401, &"x".repeat(9_999)),
                now,
            );
        }
        assert_eq!(
            (refusals.by_sender.len(), refusals.since.len()),
            (MAX_REFUSALS, MAX_REFUSALS)
        );
        assert!(
            refusals
                .by_sender
                .values()
                .all(|refusal| refusal.reason.len() < 600)
        );
    }
}
