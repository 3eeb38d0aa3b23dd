//! `Repr-Digest` (RFC 9530): the SHA-256 that a sender announces, and the one in the response. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::aggregator::store::Sha256;

/// The value of `Repr-Digest` in a response.
pub(super) fn text(digest: &Sha256) -> String {
    format!("sha-256=:{}:", STANDARD.encode(digest))
}

/// The SHA-256 in all lines of `Repr-Digest`, if any; other kinds are ignored. `None` for a malformed line or two
/// digests that differ.
pub(super) fn announced<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Option<Sha256>> {
    let mut found = None;
    for member in lines.flat_map(|line| line.split(',')) {
        let (kind, value) = member.trim().split_once('=')?;
        let (value, parameters) = value.strip_prefix(':').and_then(|value| value.split_once(':'))?;
        if !parameters.is_empty() && !parameters.starts_with(';') {
            return None;
        }
        if kind.eq_ignore_ascii_case("sha-256") {
            let digest: Sha256 = STANDARD.decode(value).ok().and_then(|d| d.try_into().ok())?;
            if *found.get_or_insert(digest) != digest {
                return None;
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_rfc_9530() {
        let (zeros, ones) = (text(&[0; 32]), text(&[1; 32]));
        let check = |lines: &[&str], expected| {
            assert_eq!(announced(lines.iter().copied()), expected, "{lines:?}");
        };
        check(&[], Some(None));
        for lines in [
            &[zeros.as_str()][..],
            &[&format!("sha-512=:AA==:, {}", zeros.replace("sha", "SHA"))],
            &[&format!("{zeros};q=1")],
            &["sha-512=:AA==:", &zeros],
            &[&zeros, &zeros],
            &[&zeros, "crc-32=:AQIDBA==:"],
        ] {
            check(lines, Some(Some([0; 32])));
        }
        check(&["sha-512=:AA==:"], Some(None));
        check(&[&zeros, &ones], None);
        for bad in ["", "sha-256", "sha-256=AA==", "sha-256=:AA==:", "sha-256=:%%:", "sha-256=::"] {
            check(&[bad], None);
            check(&[&zeros, bad], None);
        }
        check(&[&format!("{zeros}x")], None);
    }
}
