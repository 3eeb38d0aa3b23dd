//! A body that is being sent, and what its sender says about it. Pure.

use super::digests::Wanted;
use super::receipt::Sender;
use client::protocol::GZIP;

/// From this size on SHA-256 may wait.
const LARGE: u64 = 2 << 20;

/// A body and what its sender says about it.
pub(super) struct Upload<'a, R> {
    /// The body.
    pub(super) body: R,
    /// Its length, if the sender said so.
    pub(super) length: Option<u64>,
    /// `Content-Type`.
    pub(super) kind: Option<&'a str>,
    /// `Content-Disposition`.
    pub(super) disposition: Option<&'a str>,
    /// What it must be.
    pub(super) digest: Wanted,
    /// Whether the quick digest is what its sender compares.
    pub(super) is_quick_wanted: bool,
    /// Whether it is a worker's report that there is no result.
    pub(super) is_error: bool,
    /// Who sends it.
    pub(super) sender: Sender,
}

impl<R> Upload<'_, R> {
    /// Whether its SHA-256 may be taken [`late`](super::late): it is stored as it is, and its sender does not ask.
    pub(super) fn may_wait(&self) -> bool {
        let is_stored = !self.is_error && self.kind != Some(GZIP);
        let is_asked = self.digest.sha256.is_some() || !self.is_quick_wanted;
        is_stored && !is_asked && self.length.is_some_and(|length| length >= LARGE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::plain;
    use super::*;

    #[test]
    fn only_what_is_stored_as_it_is_and_compared_quickly_may_wait() {
        let large = || Upload { length: Some(LARGE), is_quick_wanted: true, ..plain(b"") };
        let digest = Wanted { sha256: Some([0; 32]), crc32: None };
        assert!(large().may_wait());
        for upload in [
            Upload { length: Some(LARGE - 1), ..large() },
            Upload { length: None, ..large() },
            Upload { is_quick_wanted: false, ..large() },
            Upload { is_error: true, ..large() },
            Upload { kind: Some(GZIP), ..large() },
            Upload { digest, ..large() },
        ] {
            assert!(!upload.may_wait(), "{:?} {:?}", upload.length, upload.kind);
        }
    }
}
