//! The state of a run, without I/O: of each expected result its [`Receipt`], and the status document.
//!
//! `state` has one slot for each expected result, and merges the `progress` of its plugin.

pub(crate) mod progress;
mod state;

use serde::{Deserialize, Serialize};

use client::protocol::Lost;
pub(crate) use state::{ResultState, State};

/// Maximum bytes of the name and version of a worker.
const MAX_WORKER_BYTES: usize = 64;

/// The sender of a body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sender {
    /// The precision of its identification, as of [`Caller::kind`](crate::backplane::Caller::kind); empty if unknown.
    pub(crate) identity: String,
    /// Its name for itself: program and version.
    pub(crate) worker: String,
}

impl Sender {
    pub(crate) fn new(identity: Option<&str>, worker: Option<&str>) -> Self {
        let shown = worker.unwrap_or_default().chars().filter(|c| c.is_ascii_graphic() || *c == ' ');
        Self { identity: identity.unwrap_or_default().into(), worker: shown.take(MAX_WORKER_BYTES).collect() }
    }
}

/// The arrival of one result; times are RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Receipt {
    /// When its plugin was started.
    pub(crate) started: Option<String>,
    /// When its worker was first heard of.
    pub(crate) first_heartbeat: Option<String>,
    /// When the result was in place.
    pub(crate) arrived: Option<String>,
    /// When it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    /// Bytes of the body.
    pub(crate) size: u64,
    /// SHA-256 of the body as it was sent.
    pub(crate) sha256: String,
    /// Whether the body was an archive, of which the files are kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unpacked: bool,
    #[serde(flatten)]
    pub(crate) sender: Sender,
    /// Bodies sent for it, this one included.
    pub(crate) attempts: u64,
    /// The nodes and pods that were lost before it arrived.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lost: Vec<Lost>,
}

/// One entry of `meta/results.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Received {
    pub(crate) plugin: String,
    pub(crate) node: String,
    #[serde(flatten)]
    receipt: Receipt,
    /// The reason why the result is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_name_is_bounded_and_printable() {
        for (worker, kept) in [
            (None, String::new()),
            (Some("sonobuoy/0.60.0"), "sonobuoy/0.60.0".into()),
            (Some("a\u{1b}[31m\r\nb é"), "a[31mb ".into()),
            (Some(&*"x".repeat(1_000)), "x".repeat(MAX_WORKER_BYTES)),
        ] {
            assert_eq!(Sender::new(Some("plugin"), worker).worker, kept);
        }
    }
}
