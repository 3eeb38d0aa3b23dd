//! Failures between a plugin and its aggregator, distinguished where a caller may act on them;
//! whether and when to retry.
//!
//! Classifies responses and errors; [`base::retry`] computes the pauses.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};
use ureq::Body;
use ureq::http::{HeaderMap, Response};

use super::{Answer, MAX_ANSWER_BYTES, Submitted, answer};
use crate::protocol::FINAL_HEADER;
use base::retry::Backoff;
use base::tls::tls_error;

/// The reason why a call of the client failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The address, certificate or key is unusable; retrying will not help.
    Settings(String),
    /// The file or folder to send cannot be read.
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The two sides do not trust each other; retrying will not help.
    Certificate {
        /// The aggregator's address.
        url: String,
        /// The problem, and the certificate concerned.
        why: String,
    },
    /// The aggregator refused a submission.
    Refused {
        /// Description of the submission.
        what: String,
        /// The HTTP status.
        status: u16,
        /// The aggregator's explanation.
        text: String,
    },
    /// The aggregator could not be reached, or the connection broke.
    Transport {
        /// The aggregator's address.
        url: String,
        /// The cause.
        why: String,
    },
    /// The aggregator stored different bytes than the client sent.
    Damaged {
        /// The aggregator's address.
        url: String,
    },
    /// Every attempt failed until the time limit.
    GaveUp {
        /// The aggregator's address.
        url: String,
        /// The number of attempts.
        attempts: u32,
        /// The time limit.
        limit: Duration,
        /// The last failure.
        why: String,
    },
    /// The caller stopped before an attempt succeeded.
    Stopped {
        /// The last failure.
        why: String,
    },
}

impl Error {
    /// Adds the path to an error of the system.
    pub(super) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(why) => f.write_str(why),
            Self::File { path, source } => write!(f, "cannot read `{}`: {source}", path.display()),
            Self::Certificate { url, why } => {
                write!(f, "cannot establish trust with `{url}`: {why}")
            }
            Self::Refused { what, status, text } if text.is_empty() => {
                write!(f, "the aggregator refused the {what} with status {status}")
            }
            Self::Refused { what, status, text } => {
                write!(
                    f,
                    "the aggregator refused the {what} with status {status}: {text}"
                )
            }
            Self::Transport { url, why } => write!(f, "cannot reach `{url}`: {why}"),
            Self::Damaged { url } => {
                write!(
                    f,
                    "`{url}` stored different bytes than were sent: its memory or disk may be \
                     faulty"
                )
            }
            Self::GaveUp {
                url,
                attempts,
                limit,
                why,
            } => {
                let limit = base::clock::duration(*limit);
                write!(
                    f,
                    "gave up on `{url}` after {attempts} attempts in {limit}; last error: {why}"
                )
            }
            Self::Stopped { why } => {
                write!(f, "stopped before it could be sent; last error: {why}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Time limit and pauses of a submission's retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// No attempt starts after this. The default, an hour, lets an aggregator move to another
    /// node.
    pub limit: Duration,
    /// The upper bound of the first pause; it doubles with each attempt.
    pub first: Duration,
    /// The upper bound of any pause.
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            limit: Duration::from_secs(3600),
            first: Duration::from_millis(200),
            max: Duration::from_secs(20),
        }
    }
}

impl Retry {
    /// A random pause after the `attempt`-th failure, up to the bound of that attempt.
    pub(super) fn pause(&self, attempt: u32) -> Duration {
        Backoff {
            first: self.first,
            max: self.max,
        }
        .pause(attempt)
    }
}

/// A failed attempt.
pub(super) enum Failed {
    /// Temporary: an interrupted exchange, or a response that says so.
    Again {
        /// The cause.
        why: String,
        /// The pause that the server requests.
        after: Option<Duration>,
        /// Whether the file changed during the attempt.
        is_changed: bool,
    },
    /// Permanent: an unusable request, or a refusal of a whole one.
    Final(Error),
}

impl Failed {
    pub(super) fn temporary(why: String) -> Self {
        Self::Again {
            why,
            after: None,
            is_changed: false,
        }
    }

    /// The cause, for display.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Again { why, .. } => why.clone(),
            Self::Final(error) => error.to_string(),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// Maximum pause that a server can request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// The pause that a response requests.
pub(super) fn after(headers: &HeaderMap) -> Option<Duration> {
    base::retry::after(headers).map(|pause| pause.min(MAX_RETRY_AFTER))
}

/// Classifies a response. `is_cut` tells whether only a part of the body was sent: the response
/// then says nothing about the whole. `changed` tells whether the body has changed since its digest
/// was taken: then a refusal of the body is worth another attempt.
pub(super) fn judge_answer(
    url: &str,
    response: Response<Body>,
    is_cut: bool,
    changed: impl Fn() -> bool,
) -> Result<Submitted, Failed> {
    let after = after(response.headers());
    let is_final = response.headers().contains_key(FINAL_HEADER);
    let answer = answer(response, MAX_ANSWER_BYTES);
    match answer.status {
        409 => Ok(Submitted::AlreadyThere),
        status if is_cut => Err(Failed::temporary(format!(
            "`{url}` answered {status} {} before all was sent",
            answer.text
        ))),
        200..=299 => Ok(Submitted::Accepted),
        400 | 500..=599 if changed() => Err(Failed::Again {
            why: "the file changed while it was sent".into(),
            after,
            is_changed: true,
        }),
        408 | 425 | 429 | 500..=599 if !is_final => Err(retry_later(url, &answer, after)),
        _ => Err(refused("result", answer)),
    }
}

/// Classifies a response without a certificate. A rejected token may have been replaced by a newer
/// one.
pub(super) fn judge_certificate(url: &str, answer: Answer, after: Option<Duration>) -> Failed {
    match answer.status {
        401 | 408 | 425 | 429 | 500..=599 => retry_later(url, &answer, after),
        _ => refused("request for a certificate", answer),
    }
}

fn retry_later(url: &str, Answer { status, text }: &Answer, after: Option<Duration>) -> Failed {
    Failed::Again {
        why: format!("`{url}` answered {status} {text}"),
        after,
        is_changed: false,
    }
}

fn refused(what: &str, Answer { status, text }: Answer) -> Failed {
    Error::Refused {
        what: what.into(),
        status,
        text,
    }
    .into()
}

/// Whether the aggregator rejected the client's certificate, in the handshake or afterwards.
pub(super) fn distrusted(sent: &Result<Response<Body>, ureq::Error>) -> bool {
    match sent {
        Ok(response) => response.status() == 401,
        Err(error) => matches!(tls_error(error), Some(rustls::Error::AlertReceived(_))),
    }
}

/// Classifies a request without a response.
pub(super) fn judge_error(url: &str, error: ureq::Error) -> Failed {
    if let Some(tls) = tls_error(&error)
        && lasting(tls)
    {
        return Error::Certificate {
            url: url.into(),
            why: tls.to_string(),
        }
        .into();
    }
    match error {
        ureq::Error::Http(_) | ureq::Error::BadUri(_) | ureq::Error::RequireHttpsOnly(_) => {
            Error::Settings(format!("cannot send a request to `{url}`: {error}")).into()
        }
        _ => Failed::temporary(format!("`{url}`: {error}")),
    }
}

/// Whether a TLS error persists while both sides keep their certificates. Expired and not yet valid
/// ones do not count, since clocks get adjusted. The server's alert does not distinguish the two.
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
    fn responses_are_classified() {
        let check = |status, never, changed, expected: &str| {
            let answer = || {
                let response = Response::builder().status(status);
                let response = if never {
                    response.header(FINAL_HEADER, "true")
                } else {
                    response
                };
                response.body(Body::builder().data("")).unwrap()
            };
            for (is_cut, expected) in [
                (false, expected),
                (true, if status == 409 { "there" } else { "again" }),
            ] {
                let seen = match judge_answer("https://a", answer(), is_cut, || changed) {
                    Ok(Submitted::Accepted) => "accepted",
                    Ok(Submitted::AlreadyThere) => "there",
                    Err(Failed::Again { .. }) => "again",
                    Err(Failed::Final(_)) => "final",
                };
                assert_eq!(seen, expected, "{status} {is_cut}");
            }
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
    fn only_lasting_tls_errors_are_final() {
        let check = |error: rustls::Error, is_final| {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
            let outcome = judge_error("https://a", ureq::Error::Io(error));
            assert_eq!(
                matches!(outcome, Failed::Final(Error::Certificate { .. })),
                is_final
            );
        };
        check(
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer),
            true,
        );
        check(
            rustls::Error::InvalidCertificate(CertificateError::NotValidForName),
            true,
        );
        check(
            rustls::Error::InvalidCertificate(CertificateError::NotValidYet),
            false,
        );
        check(
            rustls::Error::InvalidCertificate(CertificateError::Expired),
            false,
        );
        check(
            rustls::Error::AlertReceived(AlertDescription::UnknownCA),
            true,
        );
        check(
            rustls::Error::AlertReceived(AlertDescription::CertificateExpired),
            false,
        );
        check(
            rustls::Error::AlertReceived(AlertDescription::InternalError),
            false,
        );
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(matches!(
            judge_error("https://a", ureq::Error::Io(refused)),
            Failed::Again { .. }
        ));
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_bound() {
        let check = |text: &str, seconds: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", text.parse().unwrap());
            assert_eq!(after(&headers), seconds.map(Duration::from_secs), "{text}");
        };
        check("7", Some(7));
        check("999999999", Some(600));
        check("Wed, 21 Oct 2026 07:28:00 GMT", None);
        check("-1", None);
    }
}
