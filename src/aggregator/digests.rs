//! The digests of a body: what its sender says they must be, what they are, and what it is told.
//!
//! Two kinds: SHA-256, which the receipt keeps, and the quick one that our worker compares. Of a large file whose sender is
//! content with the quick one, the other is taken [`late`](super::late). Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::checksum::Checksum;
use ring::digest::{Context, SHA256};

/// The name of the quick one.
pub(super) const QUICK: &str = "crc-32";

/// The digests of a body that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digests {
    /// If it was asked for.
    pub(super) sha256: Option<[u8; 32]>,
    pub(super) crc32: [u8; 4],
}

impl Digests {
    /// The value of `Repr-Digest`.
    pub(super) fn text(&self, with_quick: bool) -> String {
        let member = |kind: &str, bytes: &[u8]| format!("{kind}=:{}:", STANDARD.encode(bytes));
        let sha256 = self.sha256.map(|sum| member("sha-256", &sum));
        let quick = with_quick.then(|| member(QUICK, &self.crc32));
        sha256.into_iter().chain(quick).collect::<Vec<_>>().join(", ")
    }
}

/// A body while it is read.
pub(super) struct Digest {
    sha256: Option<Context>,
    crc32: Checksum,
}

impl Digest {
    /// Both, or the quick one alone.
    pub(super) fn new(with_sha256: bool) -> Self {
        Self { sha256: with_sha256.then(|| Context::new(&SHA256)), crc32: Checksum::default() }
    }

    /// Whether it is the quick one alone.
    pub(super) fn is_quick(&self) -> bool {
        self.sha256.is_none()
    }

    /// Takes in the next piece.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
        self.crc32.update(bytes);
    }

    /// All of it was read.
    pub(super) fn finish(self) -> Digests {
        let sha256 = self.sha256.map(|context| {
            let mut sum = [0; 32];
            sum.copy_from_slice(context.finish().as_ref());
            sum
        });
        Digests { sha256, crc32: self.crc32.finish() }
    }
}

/// What a sender says of its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) sha256: Option<[u8; 32]>,
    pub(super) crc32: Option<[u8; 4]>,
}

impl Wanted {
    /// What all lines of `Repr-Digest` (RFC 9530) say; other kinds say nothing. Two of one kind that differ are refused,
    /// as it cannot be told which one is meant.
    pub(super) fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut wanted = Self::default();
        for member in lines.flat_map(|line| line.split(',')) {
            let (kind, value) = member.trim().split_once('=')?;
            let (value, parameters) = value.strip_prefix(':')?.split_once(':')?;
            if !parameters.is_empty() && !parameters.starts_with(';') {
                return None;
            }
            if kind.eq_ignore_ascii_case("sha-256") {
                keep(&mut wanted.sha256, value)?;
            } else if kind.eq_ignore_ascii_case(QUICK) {
                keep(&mut wanted.crc32, value)?;
            }
        }
        Some(wanted)
    }

    /// Whether it says nothing else.
    pub(super) fn is_met_by(&self, digests: &Digests) -> bool {
        self.sha256.is_none_or(|wanted| Some(wanted) == digests.sha256)
            && self.crc32.is_none_or(|wanted| wanted == digests.crc32)
    }
}

/// Keeps a digest in base64; `None` if it is none, or another one was kept.
fn keep<const LENGTH: usize>(kept: &mut Option<[u8; LENGTH]>, text: &str) -> Option<()> {
    let digest = STANDARD.decode(text).ok()?.try_into().ok()?;
    (*kept.get_or_insert(digest) == digest).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_rfc_9530() {
        let (zeros, ones) = (STANDARD.encode([0; 32]), STANDARD.encode([1; 32]));
        let zeros = format!("sha-256=:{zeros}:");
        let check = |lines: &[&str], expected| {
            assert_eq!(Wanted::read(lines.iter().copied()), expected, "{lines:?}");
        };
        let sha256 = Some(Wanted { sha256: Some([0; 32]), crc32: None });
        check(&[], Some(Wanted::default()));
        check(&[&zeros], sha256);
        check(&[&format!("sha-512=:AA==:, {}", zeros.replace("sha", "SHA"))], sha256);
        check(&[&format!("{zeros};q=1")], sha256);
        check(&["sha-512=:AA==:"], Some(Wanted::default()));
        check(&["sha-512=:AA==:", &zeros], sha256);
        check(&[&zeros, &zeros], sha256);
        check(
            &[&zeros, "crc-32=:AQIDBA==:"],
            Some(Wanted { sha256: Some([0; 32]), crc32: Some([1, 2, 3, 4]) }),
        );
        check(&[&zeros, &format!("sha-256=:{ones}:")], None);
        check(&["crc-32=:AQIDBA==:, crc-32=:AQIDBQ==:"], None);
        for bad in
            ["", "sha-256", "sha-256=AA==", "sha-256=:AA==:", "sha-256=:%%:", "sha-256=::", "crc-32=:AA==:"]
        {
            check(&[bad], None);
            check(&[&zeros, bad], None);
        }
        check(&[&format!("{zeros}x")], None);
    }

    #[test]
    fn each_kind_that_is_said_counts() {
        let [digests, quick] = [true, false].map(|with_sha256| {
            let mut digest = Digest::new(with_sha256);
            digest.update(b"abc");
            digest.finish()
        });
        let Digests { sha256, crc32 } = digests;
        let text = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";
        assert_eq!(digests.text(false), text);
        assert_eq!(digests.text(true), format!("{text}, crc-32=:NSRBwg==:"));
        assert_eq!([quick.text(false), quick.text(true)], ["", "crc-32=:NSRBwg==:"]);
        for (wanted, met) in [
            (Wanted::default(), true),
            (Wanted { sha256, crc32: Some(crc32) }, true),
            (Wanted { sha256: Some([0; 32]), crc32: Some(crc32) }, false),
            (Wanted { sha256, crc32: Some([0; 4]) }, false),
        ] {
            assert_eq!(wanted.is_met_by(&digests), met, "{wanted:?}");
        }
    }
}
