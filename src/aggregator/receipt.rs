//! What is kept about the arrival of one result: when its plugin was started and first heard of, what came when, from
//! whom.

use serde::{Deserialize, Serialize};

/// No worker's name for itself is kept any longer.
const MAX_WORKER_BYTES: usize = 64;

/// Who sent a body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Sender {
    /// How closely it is known, as [`Caller::kind`](crate::backplane::Caller::kind) says; empty if that is not known.
    pub(super) identity: String,
    /// What it calls itself, program and version.
    pub(super) worker: String,
}

impl Sender {
    /// One with this certificate, which calls itself so.
    pub(super) fn new(identity: Option<&str>, worker: Option<&str>) -> Self {
        let shown = worker.unwrap_or_default().chars().filter(|c| c.is_ascii_graphic() || *c == ' ');
        Self { identity: identity.unwrap_or_default().into(), worker: shown.take(MAX_WORKER_BYTES).collect() }
    }
}

/// What is known of one result so far; times are RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Receipt {
    /// When its plugin was started.
    pub(super) started: Option<String>,
    /// When its worker was first heard of.
    pub(super) first_heartbeat: Option<String>,
    /// When the result was in place.
    pub(super) arrived: Option<String>,
    /// When an error took its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
    /// Bytes of the body.
    pub(super) size: u64,
    /// SHA-256 of the body as it was sent.
    pub(super) sha256: String,
    /// Whether the body was an archive, of which the files are kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) unpacked: bool,
    /// Who sent it.
    #[serde(flatten)]
    pub(super) sender: Sender,
    /// How many bodies were sent for it, this one included.
    pub(super) attempts: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_calls_itself_is_bounded_and_printable() {
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
