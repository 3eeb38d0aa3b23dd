//! Failures between a plugin and its aggregator, distinguished where a caller may act on them.

use std::path::PathBuf;
use std::time::Duration;

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
        |source| Self::File { path: path.to_owned(), source }
    }

    pub(super) fn transport(url: &str, source: ureq::Error) -> Self {
        Self::Transport { url: url.into(), why: source.to_string() }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Settings(why) => f.write_str(why),
            Self::File { path, source } => write!(f, "cannot read `{}`: {source}", path.display()),
            Self::Certificate { url, why } => write!(f, "cannot establish trust with `{url}`: {why}"),
            Self::Refused { what, status, text } if text.is_empty() => {
                write!(f, "the aggregator refused the {what} with status {status}")
            }
            Self::Refused { what, status, text } => {
                write!(f, "the aggregator refused the {what} with status {status}: {text}")
            }
            Self::Transport { url, why } => write!(f, "cannot reach `{url}`: {why}"),
            Self::Damaged { url } => {
                write!(f, "`{url}` stored different bytes than were sent: its memory or disk may be faulty")
            }
            Self::GaveUp { url, attempts, limit, why } => {
                let limit = base::clock::duration(*limit);
                write!(f, "gave up on `{url}` after {attempts} attempts in {limit}; last error: {why}")
            }
            Self::Stopped { why } => write!(f, "stopped before it could be sent; last error: {why}"),
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
