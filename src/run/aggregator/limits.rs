//! The limits on peers in one table, and every refusal with its status code.
//!
//! | resource | total | part of one | beyond that |
//! | --- | --- | --- | --- |
//! | connections that have said nothing | descriptors, at most 65,536 | | wait in the system's backlog |
//! | threads, one per connection | `Connections.Threads` | a quarter for an address without certificate | wait, see `http` |
//! | uploads over 1 MiB at a time | three quarters of the threads | half of them for a plugin | wait without a thread |
//! | uploads that wait so | 2,048 | three quarters for a plugin | 503 |
//! | uploads of one result | | one | a slow one is ended for the next; else [`Refusal::Uploading`] |
//! | bytes of bodies over 64 KiB in memory | `Progress.ReadingBytes` | a quarter for a plugin | [`Refusal::Memory`] |
//! | bytes of a progress update | | `Progress.Bytes` | [`Refusal::TooLarge`] |
//! | bytes of progress kept | `Progress.KeptBytes` | an equal part for a result | the list ends with a mark |
//! | bytes of an error report | | [`MAX_REPORT_BYTES`] | cut |
//! | token reviews: at a time, in a second | see `http::certificate` | an address | 429 |
//! | certificates in five minutes | | a pod, see `http::certificate` | 429 |
//! | bytes and entries of a result, sent and unpacked | | `Results` | [`Refusal::TooLarge`]: the result fails |
//! | bytes and inodes of results on disk | half of `Run.Bytes` | `Plugin`, see `store::disk` | [`Refusal::Full`]; of a plugin [`Refusal::TooLarge`] |
//! | bytes and inodes kept free | `Results.FreeBytes`, `Results.FreeInodes` | | [`Refusal::Full`] |
//!
//! Names in code without a path are those of `Limits` in the configuration.

use std::fmt;
use std::io;

use base::archive;
use base::quota::Quota;
use client::protocol::FINAL_HEADER;
use http::{self, Response};
use model::config;

/// Maximum bytes of one text of a progress update.
pub(super) const MAX_TEXT_BYTES: usize = 2 << 10;
/// Maximum bytes that are kept of the progress of one result.
pub(super) const MAX_PROGRESS_BYTES: usize = 1 << 20;
/// Minimum bytes that are kept of the progress of one result, however many results there are.
const MIN_PROGRESS_BYTES: usize = 1 << 10;
/// Maximum bytes of an error report; a pod description has some tens of KiB.
pub(super) const MAX_REPORT_BYTES: u64 = 1 << 20;
/// Maximum bytes of the sentence in a report that are kept in memory.
pub(super) const MAX_SENTENCE_BYTES: usize = 4 << 10;
/// Bodies up to this size need no permit: the number of threads bounds them.
pub(super) const SMALL_BODY_BYTES: u64 = 64 << 10;

/// Memory for bodies, by plugin.
pub(super) fn body_memory(limits: &config::Limits) -> Quota<String> {
    let total = limits.progress.reading_bytes;
    Quota::new(
        total,
        (total / 4)
            .max(limits.progress.bytes)
            .max(MAX_REPORT_BYTES)
            .min(total),
    )
}

/// The limits of the server of a run.
pub fn connections(limits: &config::Connections) -> http::Limits {
    let threads = usize::try_from(limits.threads).unwrap_or(usize::MAX).max(4);
    http::Limits {
        threads,
        ..http::Limits::default()
    }
}

/// Why a request was refused.
#[derive(Debug, PartialEq)]
pub enum Refusal {
    /// No such result is expected.
    Unexpected,
    /// The result is there already.
    Duplicate,
    /// The run no longer accepts results.
    Ended,
    /// Another upload of the same result is under way.
    Uploading,
    /// Too many bytes are in memory.
    Memory,
    /// The request, or what it contains, exceeds the configured limit.
    TooLarge(String),
    /// The disk is full, or the part of it that this result may use.
    Full(String),
    /// The body does not match its digest.
    Digest,
    /// The connection ended inside the body, or the framing was broken.
    Cut(String),
    /// The body stopped arriving.
    Stalled,
    /// Declared as gzip tar, but invalid.
    Malformed(String),
    /// The result could not be stored.
    Broken(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unexpected => "no such result is expected",
            Self::Duplicate => "the result is already there",
            Self::Ended => "the run has ended",
            Self::Uploading => "another upload of this result is under way; try again",
            Self::Memory => {
                "too many large reports at once (`Limits.Progress.ReadingBytes`); try again"
            }
            Self::TooLarge(what) => what,
            Self::Full(reason) => return write!(f, "the results disk is full: {reason}"),
            Self::Digest => "the body does not match its digest",
            Self::Cut(error) => return write!(f, "the body was truncated: {error}"),
            Self::Stalled => "the body stopped arriving",
            Self::Malformed(reason) => return write!(f, "the gzip tar is damaged: {reason}"),
            Self::Broken(reason) => return write!(f, "the result could not be stored: {reason}"),
        })
    }
}

impl Refusal {
    /// The refusal of a result that exceeds `limit`, in words.
    pub(super) fn too_large(limit: &str) -> Self {
        Self::TooLarge(format!("the result is too large: {limit}"))
    }

    /// The refusal of a body of more than `max` bytes.
    pub(super) fn sent(max: u64) -> Self {
        Self::too_large(&format!("more than {max} bytes (`Limits.Results.Bytes`)"))
    }

    /// The refusal of a body that could not be read.
    pub(super) fn of_body(error: &io::Error) -> Self {
        match error.kind() {
            // Another upload of the result has taken over.
            io::ErrorKind::ConnectionAborted => Self::Uploading,
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Stalled,
            _ => Self::Cut(error.to_string()),
        }
    }

    /// The status code of the response.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Digest => 400,
            Self::Unexpected => 403,
            Self::Cut(_) | Self::Stalled => 408,
            Self::Duplicate => 409,
            Self::TooLarge(_) => 413,
            Self::Malformed(_) | Self::Broken(_) => 500,
            Self::Ended | Self::Uploading | Self::Memory => 503,
            Self::Full(_) => 507,
        }
    }

    /// The response to the sender of `what`.
    pub(super) fn response(&self, what: &impl fmt::Display) -> Response {
        let code = self.code();
        let response = Response::text(code, format_args!("`{what}`: {self}"));
        match self {
            Self::Malformed(_) => response.header(FINAL_HEADER, "true"),
            _ if code == 503 || code == 507 => response.header("retry-after", "1"),
            _ => response,
        }
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        let full = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<io::Error>().is_some_and(|error| {
                matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                )
            })
        };
        let reason = format!("{error:#}");
        if error.chain().any(full) {
            Self::Full(reason)
        } else {
            Self::Broken(reason)
        }
    }
}

impl From<archive::Error> for Refusal {
    fn from(error: archive::Error) -> Self {
        match error {
            archive::Error::Malformed(reason) => Self::Malformed(reason),
            archive::Error::TooLarge(reason) => {
                Self::too_large(&format!("{reason} (`Limits.Results`)"))
            }
            archive::Error::Input(error) | archive::Error::Output(error) => {
                anyhow::Error::from(error).into()
            }
        }
    }
}

/// The bytes of `total` for the progress of one of `results` of a plugin, where `plugins` have equal
/// parts.
pub(super) fn progress_share(total: u64, plugins: usize, results: usize) -> usize {
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    (total / plugins.max(1) / results.max(1)).clamp(MIN_PROGRESS_BYTES, MAX_PROGRESS_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_total() {
        const KEPT: u64 = 24 << 20;
        for (plugins, results) in [(1, 1), (2, 1), (2, 5_000), (40, 100), (1, 20_000)] {
            let share = progress_share(KEPT, plugins, results);
            assert!(
                (share * plugins * results) as u64 <= KEPT,
                "{plugins} {results}: {share}"
            );
        }
        assert_eq!(
            progress_share(KEPT, 2, 1),
            MAX_PROGRESS_BYTES,
            "a suite beside a plugin of many nodes is kept whole"
        );
    }
}
