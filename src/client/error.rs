//! What can go wrong between a plugin and its aggregator, told apart where a caller may act on it.

use std::path::PathBuf;
use std::time::Duration;

/// Why a call of the client failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Address, certificate or key cannot be used; trying again is of no use.
    Settings(String),
    /// What is to be sent cannot be read.
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The two sides do not trust each other; trying again is of no use.
    Certificate {
        /// Whom we spoke to.
        url: String,
        /// What is wrong with whose certificate.
        why: String,
    },
    /// The aggregator has answered and does not want it.
    Refused {
        /// What was sent.
        what: String,
        /// The HTTP status.
        status: u16,
        /// What the aggregator said.
        text: String,
    },
    /// The aggregator could not be reached, or the connection broke.
    Transport {
        /// Whom we spoke to.
        url: String,
        /// What went wrong.
        why: String,
    },
    /// The aggregator says that it has stored other bytes than were sent.
    Damaged {
        /// Whom we spoke to.
        url: String,
    },
    /// All attempts until the time limit failed.
    GaveUp {
        /// Whom we spoke to.
        url: String,
        /// How many times.
        attempts: u32,
        /// For how long.
        limit: Duration,
        /// The last failure.
        why: String,
    },
    /// The caller wanted to stop before an attempt succeeded.
    Stopped {
        /// The last failure.
        why: String,
    },
}

impl Error {
    pub(super) fn file(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
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
            Self::Certificate { url, why } => write!(f, "no trust between here and `{url}`: {why}"),
            Self::Refused { what, status, text } if text.is_empty() => {
                write!(f, "the aggregator refused the {what} with status {status}")
            }
            Self::Refused { what, status, text } => {
                write!(f, "the aggregator refused the {what} with status {status}: {text}")
            }
            Self::Transport { url, why } => write!(f, "`{url}` cannot be reached: {why}"),
            Self::Damaged { url } => {
                write!(f, "`{url}` stored other bytes than were sent: its memory or disk may be damaged")
            }
            Self::GaveUp { url, attempts, limit, why } => {
                let limit = base::clock::duration(*limit);
                write!(f, "gave up on `{url}` after {attempts} attempts in {limit}; the last one: {why}")
            }
            Self::Stopped { why } => write!(f, "stopped before it could be sent; the last attempt: {why}"),
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
