//! Converts UTF-16, the default of Windows scripts, to UTF-8 while reading.

use std::io::{self, Cursor, Read};

/// Bytes decoded at a time; an even number.
const PIECE: u64 = 8 << 10;

/// Text after its byte order mark.
pub(super) struct Utf16<R> {
    input: R,
    unit: fn([u8; 2]) -> u16,
    ready: Cursor<Vec<u8>>,
}

impl<R: Read> Utf16<R> {
    /// Reads `input` in the byte order of its mark.
    pub(super) fn new(input: R, big_endian: bool) -> Self {
        let unit = if big_endian {
            u16::from_be_bytes
        } else {
            u16::from_le_bytes
        };
        Self {
            input,
            unit,
            ready: Cursor::default(),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let (input, unit) = (&mut self.input, self.unit);
        let mut bytes = Vec::new();
        input.take(PIECE).read_to_end(&mut bytes)?;
        // The last character may have a second half.
        if bytes
            .last_chunk()
            .is_some_and(|last| (0xd800..0xdc00).contains(&unit(*last)))
        {
            input.take(2).read_to_end(&mut bytes)?;
        }
        let (pairs, rest) = bytes.as_chunks();
        let text = char::decode_utf16(pairs.iter().map(|pair| unit(*pair)))
            .collect::<Result<String, _>>()
            .ok()
            .filter(|_| rest.is_empty());
        let text =
            text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-16"))?;
        self.ready = Cursor::new(text.into_bytes());
        Ok(())
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ready.position() == self.ready.get_ref().len() as u64 {
            self.fill()?;
        }
        self.ready.read(buffer)
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
    fn characters_may_be_split_anywhere() {
        let text = "aä名😀\n".repeat(3000);
        let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for at_once in [1, 3, 4096, 1 << 20] {
            let mut decoded = String::new();
            Utf16::new(Slow(&bytes, at_once), true)
                .read_to_string(&mut decoded)
                .unwrap();
            assert!(decoded == text, "{at_once} bytes at a time");
        }
        for broken in [&b"a"[..], b"\xd8\x00", b"\xd8\x00\x00a", b"\xdc\x00"] {
            let error = Utf16::new(broken, true)
                .read_to_end(&mut Vec::new())
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
