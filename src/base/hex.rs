//! Bytes and digests as hexadecimal digits.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use ring::digest::{Context, SHA256};

/// Two lower-case digits for each byte.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of a file.
pub fn sha256(path: &Path) -> io::Result<String> {
    let (mut file, mut digest) = (File::open(path)?, Context::new(&SHA256));
    let mut piece = vec![0; 256 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex(digest.finish())),
            count => digest.update(&piece[..count]),
        }
    }
}
