//! Minimal DER parser for keys, signing requests, and the expiry of certificates.

/// Removes one element from the front of `input`: tag and content. `None` if it is truncated or
/// longer than 64 KiB.
pub(super) fn next<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81 | 0x82 => {
            let (bytes, after) = rest.split_at_checked(usize::from(first - 0x80))?;
            rest = after;
            bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte))
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    *input = after;
    Some((tag, content))
}

/// The content of the next element, which must have this tag.
pub(super) fn expect<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    next(input).and_then(|(found, content)| (found == tag).then_some(content))
}

/// The first element of `input` with its tag and length, as it was signed.
pub(super) fn signed_element<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let all = *input;
    next(input)?;
    all.get(..all.len() - input.len())
}

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const SEQUENCE: u8 = 0x30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_split_off_and_truncated_ones_rejected() {
        let mut long = vec![0x04, 0x82, 0x01, 0x00];
        long.extend([7; 256]);
        long.extend([0x02, 0x01, 0x05]);
        let mut input = long.as_slice();
        assert_eq!(expect(&mut input, OCTET_STRING).map(<[u8]>::len), Some(256));
        assert_eq!(next(&mut input), Some((INTEGER, &[5][..])));
        assert_eq!(next(&mut input), None);
        for cut in [
            &[][..],
            &[0x30],
            &[0x30, 0x02, 1],
            &[0x30, 0x80],
            &[0x30, 0x83, 0, 0, 1, 1],
            &[0x30, 0x81],
        ] {
            assert_eq!(next(&mut &*cut), None, "{cut:x?}");
        }
    }
}
