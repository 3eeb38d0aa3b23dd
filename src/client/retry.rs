//! When to try again, and how long to wait before.
//!
//! Owns the verdict over answers and errors, and the back-off: exponential with full jitter, so that thousands of
//! workers that lost the same aggregator do not come back at the same moment.

use std::time::Duration;

use rustls::{AlertDescription, CertificateError};
use ureq::http::HeaderMap;

use super::{Answer, Error, Submitted};
use crate::protocol::FINAL_HEADER;
use base::tls::tls_error;

/// How long and how often a submission is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// No new attempt begins after this. The default, an hour, outlives an aggregator that moves to another node.
    pub limit: Duration,
    /// The upper bound of the first pause; it doubles with each attempt.
    pub first: Duration,
    /// The upper bound of every pause.
    pub most: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            limit: Duration::from_secs(3600),
            first: Duration::from_millis(200),
            most: Duration::from_secs(20),
        }
    }
}

impl Retry {
    /// The pause after the `attempt`-th failure: anything between nothing and the bound of that attempt.
    pub(super) fn pause(&self, attempt: u32) -> Duration {
        let bound = self.first.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(self.most);
        bound.mul_f64(fraction())
    }
}

/// Between 0 and 1. Without random bytes everybody waits the middle, which is only less polite.
fn fraction() -> f64 {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0_u8; 4];
    match ring::rand::SystemRandom::new().fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    }
}

/// What one attempt came to.
pub(super) enum Outcome {
    /// The result is there.
    Done(Submitted),
    /// It may work later.
    Again {
        /// What went wrong.
        why: String,
        /// When the server wants to be asked again.
        after: Option<Duration>,
    },
    /// It will never work.
    Final(Error),
}

impl Outcome {
    /// What went wrong, for people.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Done(_) => String::new(),
            Self::Again { why, .. } => why.clone(),
            Self::Final(error) => error.to_string(),
        }
    }
}

/// A server that asks for more patience than this does not get it.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// What the headers of an answer say about trying again.
#[derive(Clone, Copy, Default)]
pub(super) struct Wish {
    /// Not before so long.
    after: Option<Duration>,
    /// Never with the same bytes.
    never: bool,
}

impl Wish {
    /// Reads it. `Retry-After` counts in seconds; its other form, a date, is left to the back-off.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let seconds = headers.get("retry-after").and_then(|text| text.to_str().ok()?.trim().parse().ok());
        Self {
            after: seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER)),
            never: headers.contains_key(FINAL_HEADER),
        }
    }
}

/// Judges an answer. `changed` tells whether what was sent has changed since its digest was taken: then a
/// complaint about the body is worth another attempt.
pub(super) fn judge_answer(url: &str, answer: Answer, wish: Wish, changed: impl Fn() -> bool) -> Outcome {
    match answer.status {
        200..=299 => Outcome::Done(Submitted::Accepted),
        409 => Outcome::Done(Submitted::AlreadyThere),
        status @ (408 | 425 | 429 | 500..=599) if !wish.never => {
            Outcome::Again { why: format!("`{url}` answered {status} {}", answer.text), after: wish.after }
        }
        400 | 500..=599 if changed() => {
            Outcome::Again { why: "what was to be sent changed meanwhile".into(), after: wish.after }
        }
        status => Outcome::Final(Error::Refused { what: "result".into(), status, text: answer.text }),
    }
}

/// Judges an answer that is not a certificate. A token that is not believed may be followed by another one.
pub(super) fn judge_certificate(url: &str, answer: Answer, wish: Wish) -> Outcome {
    match answer.status {
        401 | 408 | 425 | 429 | 500..=599 => Outcome::Again {
            why: format!("`{url}` answered {} {}", answer.status, answer.text),
            after: wish.after,
        },
        status => Outcome::Final(Error::Refused {
            what: "request for a certificate".into(),
            status,
            text: answer.text,
        }),
    }
}

/// Whether the aggregator did not take our certificate, be it in the handshake or afterwards.
pub(super) fn distrusted<T>(sent: &Result<ureq::http::Response<T>, ureq::Error>) -> bool {
    match sent {
        Ok(response) => response.status() == 401,
        Err(error) => matches!(tls_error(error), Some(rustls::Error::AlertReceived(_))),
    }
}

/// Judges a request that got no answer.
pub(super) fn judge_error(url: &str, error: ureq::Error) -> Outcome {
    if let Some(tls) = tls_error(&error)
        && lasting(tls)
    {
        return Outcome::Final(Error::Certificate { url: url.into(), why: tls.to_string() });
    }
    match error {
        ureq::Error::Http(_) | ureq::Error::BadUri(_) | ureq::Error::RequireHttpsOnly(_) => {
            Outcome::Final(Error::Settings(format!("`{url}` cannot be asked: {error}")))
        }
        _ => Outcome::Again { why: format!("`{url}`: {error}"), after: None },
    }
}

/// Whether a TLS error stays as long as both sides keep their certificates. A certificate outside its time is
/// none of these: clocks get set. The server's alert does not tell "expired" from "not yet valid".
fn lasting(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(error) => !matches!(
            error,
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        ),
        rustls::Error::AlertReceived(alert) => matches!(
            alert,
            AlertDescription::AccessDenied
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateRequired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::DecryptError
                | AlertDescription::UnknownCA
                | AlertDescription::UnsupportedCertificate
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_never_beyond() {
        let retry = Retry::default();
        for (attempt, bound) in [(1, 200), (2, 400), (7, 12_800), (8, 20_000), (4_000_000_000, 20_000)] {
            for _ in 0..50 {
                assert!(retry.pause(attempt) <= Duration::from_millis(bound), "{attempt}");
            }
        }
        let most = (0..200).map(|_| retry.pause(20)).max().unwrap();
        assert!(most > Duration::from_secs(10), "full jitter reaches the upper half: {most:?}");
    }

    #[test]
    fn answers_are_done_worth_another_attempt_or_final() {
        let check = |status, never, changed, expected: &str| {
            let wish = Wish { after: None, never };
            let answer = Answer { status, text: String::new() };
            let seen = match judge_answer("https://a", answer, wish, || changed) {
                Outcome::Done(Submitted::Accepted) => "accepted",
                Outcome::Done(Submitted::AlreadyThere) => "there",
                Outcome::Again { .. } => "again",
                Outcome::Final(_) => "final",
            };
            assert_eq!(seen, expected, "{status}");
        };
        for (status, expected) in [
            (200, "accepted"),
            (201, "accepted"),
            (301, "final"),
            (400, "final"),
            (403, "final"),
            (404, "final"),
            (408, "again"),
            (409, "there"),
            (413, "final"),
            (425, "again"),
            (429, "again"),
            (500, "again"),
            (503, "again"),
            (507, "again"),
        ] {
            check(status, false, false, expected);
        }
        check(400, false, true, "again");
        check(403, false, true, "final");
        check(500, true, false, "final");
        check(500, true, true, "again");
    }

    #[test]
    fn only_trust_that_can_never_come_is_final() {
        let check = |error: rustls::Error, is_final| {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
            let outcome = judge_error("https://a", ureq::Error::Io(error));
            assert_eq!(matches!(outcome, Outcome::Final(Error::Certificate { .. })), is_final);
        };
        check(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer), true);
        check(rustls::Error::InvalidCertificate(CertificateError::NotValidForName), true);
        check(rustls::Error::InvalidCertificate(CertificateError::NotValidYet), false);
        check(rustls::Error::InvalidCertificate(CertificateError::Expired), false);
        check(rustls::Error::AlertReceived(AlertDescription::UnknownCA), true);
        check(rustls::Error::AlertReceived(AlertDescription::CertificateExpired), false);
        check(rustls::Error::AlertReceived(AlertDescription::InternalError), false);
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(matches!(judge_error("https://a", ureq::Error::Io(refused)), Outcome::Again { .. }));
    }

    #[test]
    fn the_servers_wish_counts_within_reason() {
        let check = |text: &str, seconds: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", text.parse().unwrap());
            assert_eq!(Wish::of(&headers).after, seconds.map(Duration::from_secs), "{text}");
        };
        check("7", Some(7));
        check("999999999", Some(600));
        check("Wed, 21 Oct 2026 07:28:00 GMT", None);
        check("-1", None);
    }
}
