//! Converts UTF-16, the default of Windows scripts, to UTF-8 while reading.

use std::io::{self, Read};

/// Bytes decoded at a time.
const PIECE: usize = 8 << 10;

/// Text after its byte order mark.
pub(crate) struct Utf16<R> {
    input: R,
    big_endian: bool,
    /// Bytes of an incomplete character.
    rest: Vec<u8>,
    ready: Vec<u8>,
    taken: usize,
}

impl<R: Read> Utf16<R> {
    /// Reads `input` in the byte order of its mark.
    pub(crate) fn new(input: R, big_endian: bool) -> Self {
        Self { input, big_endian, rest: Vec::new(), ready: Vec::new(), taken: 0 }
    }

    /// Decodes another piece; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = std::mem::take(&mut self.rest);
        let before = bytes.len();
        bytes.resize(before + PIECE, 0);
        let count = self.input.read(&mut bytes[before..])?;
        bytes.truncate(before + count);
        let unit = |pair: &[u8]| {
            let pair = [pair[0], pair[1]];
            if self.big_endian { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
        };
        let mut end = bytes.len() & !1;
        // The second half of the last character may be in the next piece.
        if end > 0 && (0xd800..0xdc00).contains(&unit(&bytes[end - 2..end])) {
            end -= 2;
        }
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-16");
        if count == 0 && end < bytes.len() {
            return Err(bad());
        }
        let text: Result<String, _> = char::decode_utf16(bytes[..end].chunks_exact(2).map(unit)).collect();
        self.ready = text.map_err(|_| bad())?.into_bytes();
        self.taken = 0;
        self.rest = bytes.split_off(end);
        Ok(count > 0)
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.ready.len() && self.fill()? {}
        let count = buffer.len().min(self.ready.len() - self.taken);
        buffer[..count].copy_from_slice(&self.ready[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn characters_may_be_cut_anywhere() {
        let text = "aä名😀\n".repeat(3000);
        let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for at_once in [1, 3, 4096, 1 << 20] {
            let mut decoded = String::new();
            Utf16::new(Slow(&bytes, at_once), true).read_to_string(&mut decoded).unwrap();
            assert!(decoded == text, "{at_once} bytes at a time");
        }
        for broken in [&b"a"[..], b"\xd8\x00", b"\xd8\x00\x00a", b"\xdc\x00"] {
            let error = Utf16::new(broken, true).read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
