//! A body that is being sent, and what its sender says about it.

use std::sync::Arc;

use super::digests::Sha256;
use super::receipt::Sender;
use base::http::Meter;

/// A body and what its sender says about it.
pub(super) struct Upload<'a, R> {
    pub(super) body: R,
    /// The declared length.
    pub(super) length: Option<u64>,
    /// `Content-Type`.
    pub(super) kind: Option<&'a str>,
    /// `Content-Disposition`.
    pub(super) disposition: Option<&'a str>,
    /// The announced SHA-256.
    pub(super) digest: Option<Sha256>,
    /// Whether it is a worker's report that there is no result.
    pub(super) is_error: bool,
    pub(super) sender: Sender,
    /// Measures its connection.
    pub(super) meter: Arc<Meter>,
}
