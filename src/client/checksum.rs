//! The quick digest of a body: its CRC-32, that of gzip, as the member `crc-32` of `Repr-Digest`.
//!
//! TLS vouches for each byte on its way, and a receipt holds the SHA-256 of what was stored. What is left to notice is what
//! goes wrong within either program, for which this is enough: SHA-256 on both ends would cost more than all the rest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How it begins there.
pub(super) const KIND: &str = "crc-32=";

/// Asks for it.
pub(super) const WANTED: &str = "crc-32=10";

/// Takes in a body, piece by piece.
#[derive(Default)]
pub struct Checksum(flate2::Crc);

impl Checksum {
    /// Takes in the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of all pieces, most significant byte first.
    pub fn finish(&self) -> [u8; 4] {
        self.0.sum().to_be_bytes()
    }

    /// As `Repr-Digest` has it.
    pub(super) fn text(&self) -> String {
        format!("{KIND}:{}:", STANDARD.encode(self.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_gzip() {
        let mut sum = Checksum::default();
        sum.update(b"12345");
        sum.update(b"6789");
        assert_eq!(sum.finish(), 0xcbf4_3926_u32.to_be_bytes());
        assert_eq!(sum.text(), "crc-32=:y/Q5Jg==:");
    }
}
