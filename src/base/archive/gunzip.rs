//! Gzip decompression like the usual tools: members are joined, anything after the last one is ignored.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Reads the bytes inside a gzip stream of one or more members. Anything but a member after a complete member
/// (padding, a signature) ends the stream, as with `gzip -d`.
pub struct Gunzip<R: BufRead> {
    /// `None` only while one member gives way to the next.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gunzip<R> {
    /// Starts reading; the first read checks the header.
    pub fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(input)) }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(mut input) = self.member.take().map(GzDecoder::into_inner) else { return Ok(0) };
            if input.fill_buf()?.first() == Some(&0x1f) {
                self.member = Some(GzDecoder::new(input));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(data).unwrap();
        out.finish().unwrap()
    }

    fn check(input: &[u8], expected: Option<&[u8]>) {
        let mut out = Vec::new();
        let result = Gunzip::new(input).read_to_end(&mut out);
        match expected {
            Some(expected) => assert_eq!((result.ok(), &out[..]), (Some(expected.len()), expected)),
            None => assert!(result.is_err(), "{out:?}"),
        }
    }

    #[test]
    fn members_are_joined_and_padding_ignored() {
        let two = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
        check(&two, Some(b"one two"));
        check(&[&two[..], &[0; 700]].concat(), Some(b"one two"));
    }

    #[test]
    fn a_cut_or_damaged_stream_is_an_error() {
        let whole = gzip(&[7; 1000]);
        for end in 0..whole.len() {
            check(&whole[..end], None);
        }
        let mut damaged = whole.clone();
        let crc = damaged.len() - 8;
        damaged[crc] ^= 1;
        check(&damaged, None);
        check(b"no gzip at all", None);
    }
}
