//! Why a body was not taken: by whose fault, and in which words. What it is answered, `server` knows.

use std::io;

use super::budget::Hit;
use super::intake::Trouble;
use super::state::Taken;
use base::archive;

/// Why a body was not taken.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nobody expects this result.
    Unexpected,
    /// It is already there.
    Duplicate,
    /// It is beyond a limit.
    Limit(Hit),
    /// It is not what its digest says.
    Digest,
    /// Its sender went away or broke the framing.
    Cut(io::Error),
    /// Its sender fell silent.
    Stalled,
    /// It claims to be a gzip tar and is none, or a damaged one.
    Malformed(String),
    /// The disk is full, or nearly so.
    DiskFull(String),
    /// Storing it failed.
    Broken(anyhow::Error),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unexpected => f.write_str("no such result is expected"),
            Self::Duplicate => f.write_str("the result is already there"),
            Self::Limit(hit) => hit.fmt(f),
            Self::Digest => f.write_str("the body does not match its digest"),
            Self::Cut(error) => write!(f, "the body was truncated: {error}"),
            Self::Stalled => f.write_str("the body stopped arriving"),
            Self::Malformed(reason) => write!(f, "the gzip tar is damaged: {reason}"),
            Self::DiskFull(reason) => write!(f, "the results disk is full: {reason}"),
            Self::Broken(error) => write!(f, "the result could not be stored: {error:#}"),
        }
    }
}

impl From<Taken> for Refusal {
    fn from(taken: Taken) -> Self {
        match taken {
            Taken::Unexpected => Self::Unexpected,
            Taken::Duplicate | Taken::Busy => Self::Duplicate,
            Taken::Uploading => Self::Limit(Hit::Uploading),
        }
    }
}

impl From<Hit> for Refusal {
    fn from(hit: Hit) -> Self {
        Self::Limit(hit)
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        let full = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<io::Error>().is_some_and(|error| {
                matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            })
        };
        if error.chain().any(full) { Self::DiskFull(format!("{error:#}")) } else { Self::Broken(error) }
    }
}

impl From<archive::Error> for Refusal {
    fn from(error: archive::Error) -> Self {
        match error {
            archive::Error::Malformed(reason) => Self::Malformed(reason),
            archive::Error::TooLarge(reason) => Self::Limit(Hit::Unpacked(reason)),
            archive::Error::Input(error) | archive::Error::Output(error) => anyhow::Error::from(error).into(),
        }
    }
}

/// Why a body was not taken that stopped so, of which there may be `most` bytes.
pub(super) fn refusal(trouble: Trouble, most: u64) -> Refusal {
    match trouble {
        Trouble::TooLarge => Hit::Sent(most).into(),
        Trouble::NoRoom => Hit::Reading.into(),
        Trouble::Superseded => Hit::Uploading.into(),
        Trouble::Sender(error)
            if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) =>
        {
            Refusal::Stalled
        }
        Trouble::Sender(error) => Refusal::Cut(error),
    }
}
