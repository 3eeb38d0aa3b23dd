//! Failures between this program and an API server, as far as callers branch on them.
//!
//! Owns parsing a `Status` document. Classifies failures; knows nothing about retries.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::request::Object as _;
use base::Joined as _;

/// Why a call to the API failed.
#[derive(Debug)]
pub enum Error {
    /// The server rejected the request.
    Api(Box<Refusal>),
    /// No response, or only part of one: what was tried, and why it failed.
    Transport {
        /// `GET https://host/path`.
        what: String,
        /// The cause in words.
        why: String,
        /// Progress of the request.
        stage: Stage,
    },
    /// A stop was requested.
    Stopped,
    /// The caller's own receiver of the data failed, for instance because the disk is full.
    Sink(anyhow::Error),
    /// Something else that no retry changes: unusable settings, missing credentials, an unexpected
    /// response.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// No cluster is configured: the kubeconfigs that name none, if there are any.
#[derive(Debug)]
pub(super) struct NoCluster(pub String);

impl fmt::Display for NoCluster {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &*self.0 {
            "" => f.write_str(
                "no cluster configured: there is no `~/.kube/config`, and this is not a pod; set \
                 KUBECONFIG or pass `--kubeconfig`",
            ),
            sources => write!(
                f,
                "no cluster configured: the kubeconfig `{sources}` has no clusters, contexts and \
                 users"
            ),
        }
    }
}

impl std::error::Error for NoCluster {}

/// How far a request got before the transport failed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    /// The server definitely did not see it.
    Unsent,
    /// It may have been carried out.
    Sent,
    /// The two sides do not trust each other; retrying is useless.
    Distrusted,
}

/// A refusal of the API server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// One word for machines, such as `NotFound`; empty if the server gave none.
    pub reason: String,
    /// The server's message.
    pub message: String,
    /// Token with which a list continues after `410 Gone`; empty without one.
    pub resume: String,
    /// Pause before a retry that the server requests.
    pub retry_after: Option<Duration>,
    /// The request that was refused.
    pub what: String,
}

/// The reason for rejecting an object, from the server's message, since codes do not distinguish
/// them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Obstacle {
    /// The Pod Security level of the namespace.
    PodSecurity,
    /// A quota of the namespace.
    Quota,
    /// A limit range of the namespace.
    LimitRange,
    /// A webhook does not respond.
    WebhookAway,
    /// A webhook or policy rejects the object.
    Policy,
    /// The namespace is being deleted.
    NamespaceEnds,
    /// The account would grant rights that it does not have.
    Escalation,
}

impl Obstacle {
    /// Classifies the message of a refusal or an event.
    pub fn of(message: &str) -> Option<Self> {
        let words = [
            ("violates PodSecurity", Self::PodSecurity),
            ("exceeded quota", Self::Quota),
            ("failed quota", Self::Quota),
            (" per Container is ", Self::LimitRange),
            (" per Pod is ", Self::LimitRange),
            ("failed calling webhook", Self::WebhookAway),
            ("admission webhook", Self::Policy),
            ("ValidatingAdmissionPolicy", Self::Policy),
            ("being terminated", Self::NamespaceEnds),
            ("attempting to grant RBAC permissions", Self::Escalation),
        ];
        words
            .into_iter()
            .find_map(|(words, obstacle)| message.contains(words).then_some(obstacle))
    }
}

impl Error {
    /// A failure after the request may have been carried out.
    pub(super) fn sent(what: &str, why: impl Into<String>) -> Self {
        Self::Transport {
            what: what.into(),
            why: why.into(),
            stage: Stage::Sent,
        }
    }

    /// The obstacle, if the server rejected the object with a known message.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let Self::Api(refusal) = self else {
            return None;
        };
        Obstacle::of(&refusal.message)
    }

    /// Parses the body of an unsuccessful response.
    pub fn from_answer(code: u16, retry_after: Option<Duration>, body: &[u8], what: &str) -> Self {
        let mut refusal = Refusal {
            code,
            retry_after,
            what: what.into(),
            ..Refusal::default()
        };
        match base::json::from_slice(body) {
            Ok(status) if status["kind"] == "Status" => refusal.read_status(&status),
            _ => refusal.message = plain(body),
        }
        Self::Api(Box::new(refusal))
    }

    /// Parses a `Status` inside a successful response, as in a watch.
    pub fn from_status(status: &Value, what: &str) -> Self {
        let code = status["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(500);
        let mut refusal = Refusal {
            code,
            what: what.into(),
            ..Refusal::default()
        };
        refusal.read_status(status);
        Self::Api(Box::new(refusal))
    }

    /// The HTTP status of a refusal.
    pub fn code(&self) -> Option<u16> {
        let Self::Api(refusal) = self else {
            return None;
        };
        Some(refusal.code)
    }

    /// Whether the object, or the whole kind, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether an object of this name already exists.
    pub fn already_exists(&self) -> bool {
        matches!(self, Self::Api(refusal) if refusal.code == 409 && refusal.reason != "Conflict")
    }

    /// Whether the object changed in the meantime, or is being deleted.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(refusal) if refusal.code == 409 && refusal.reason == "Conflict")
    }

    /// Whether the server refuses the request: rights are missing, or admission rejects the object.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Whether the account lacks the right to the request. Admission rejects objects with the same
    /// code; only an authorizer's message says what the user cannot do.
    pub fn lacks_right(&self) -> bool {
        let Self::Api(refusal) = self else {
            return false;
        };
        refusal.code == 403 && refusal.message.contains("\" cannot ")
    }

    /// Whether a resource version or a `continue` token is too old.
    pub fn is_gone(&self) -> bool {
        self.code() == Some(410)
    }

    /// Whether the server definitely did not process the request.
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Api(refusal) => refusal.code == 429 || refusal.retry_after.is_some(),
            Self::Transport { stage, .. } => *stage == Stage::Unsent,
            _ => false,
        }
    }

    /// Whether no cluster is configured.
    pub fn is_unconfigured(&self) -> bool {
        matches!(self, Self::Other(error) if error.is::<NoCluster>())
    }

    /// Whether no connection to the server was established.
    pub fn is_unreached(&self) -> bool {
        matches!(
            self,
            Self::Transport {
                stage: Stage::Unsent,
                ..
            }
        )
    }

    /// Whether the same call may succeed a little later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Api(refusal) => {
                refusal.retry_after.is_some()
                    || matches!(refusal.code, 408 | 429 | 500 | 502 | 503 | 504)
            }
            Self::Transport { stage, .. } => *stage != Stage::Distrusted,
            _ => false,
        }
    }
}

impl Refusal {
    fn read_status(&mut self, status: &Value) {
        self.reason = status["reason"].text().into();
        self.message = status["message"].text().into();
        self.resume = status["metadata"]["continue"].text().into();
        let seconds = status["details"]["retryAfterSeconds"]
            .as_u64()
            .filter(|seconds| *seconds > 0);
        self.retry_after = self.retry_after.or(seconds.map(Duration::from_secs));
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match (&*self.message, &*self.reason) {
            ("", "") => "no reason given",
            ("", reason) => reason,
            (message, _) => message,
        };
        // Servers give no reason, so as not to help attackers.
        let hint = if self.code == 401 {
            ": the credentials were rejected; they may have expired"
        } else {
            ""
        };
        write!(f, "{message}{hint} (`{}`: {})", self.what, self.code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(refusal) => refusal.fmt(f),
            Self::Transport {
                what,
                why,
                stage: Stage::Unsent,
            } => {
                write!(f, "cannot reach `{}`: {why}", server_of(what))
            }
            Self::Transport { what, why, .. } => write!(f, "`{what}`: {why}"),
            Self::Sink(error) | Self::Other(error) => write!(f, "{error:#}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for Error {}

/// The server's address in `GET https://host/path`.
fn server_of(what: &str) -> &str {
    let address = what.split_once(' ').map_or(what, |(_, address)| address);
    let host = address.find("://").map_or(0, |at| at + 3);
    address[host..]
        .find('/')
        .map_or(address, |end| &address[..host + end])
}

/// The start of a body that is not a `Status`, on one line: proxies answer with pages.
fn plain(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(400)]);
    text.split_whitespace().joined(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_errors_are_classified() {
        let check = |code, body: &str, says: &str| {
            let error = Error::from_answer(code, None, body.as_bytes(), "GET /x");
            assert_eq!(error.to_string(), says);
            error
        };
        let status = |reason: &str, more: &str| {
            format!(r#"{{"kind":"Status","reason":"{reason}","message":"no"{more}}}"#)
        };
        assert!(check(404, &status("NotFound", ""), "no (`GET /x`: 404)").is_not_found());
        let taken = check(409, &status("AlreadyExists", ""), "no (`GET /x`: 409)");
        assert!(taken.already_exists() && !taken.is_conflict());
        assert!(check(409, &status("Conflict", ""), "no (`GET /x`: 409)").is_conflict());
        assert!(
            check(
                503,
                "<html>\n away </html>",
                "<html> away </html> (`GET /x`: 503)"
            )
            .is_passing()
        );
        check(
            401,
            &status("Unauthorized", ""),
            "no: the credentials were rejected; they may have expired (`GET /x`: 401)",
        );
        assert!(!check(403, "", "no reason given (`GET /x`: 403)").is_passing());
        let Error::Api(gone) = check(
            410,
            &status("Expired", r#","metadata":{"continue":"t"}"#),
            "no (`GET /x`: 410)",
        ) else {
            panic!("not a refusal")
        };
        assert_eq!(gone.resume, "t");
        let webhook = check(
            500,
            &status("InternalError", r#","details":{"retryAfterSeconds":2}"#),
            "no (`GET /x`: 500)",
        );
        assert!(
            matches!(webhook, Error::Api(refusal) if refusal.retry_after == Some(Duration::from_secs(2)))
        );
    }
}
