//! Digests, bytes as hexadecimal digits, and percent-encoding.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::{self, Write};
use std::path::Path;

use ring::digest::{Context, Digest, SHA256};

/// Two lower-case digits for each byte.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Percent-encodes everything but ASCII letters, digits and `-._~`.
pub fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded = |byte| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encoded).collect()
}

/// Decodes percent-encoding; `None` if it is malformed or not UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// Digest of a value for maps within this process: fast, short, and not the same in every version.
pub fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// SHA-256 of some bytes.
pub fn sha256(bytes: impl AsRef<[u8]>) -> Digest {
    ring::digest::digest(&SHA256, bytes.as_ref())
}

/// SHA-256 of a file.
pub fn file_sha256(path: &Path) -> io::Result<Digest> {
    let mut digest = Hashing::new(io::sink());
    io::copy(&mut File::open(path)?, &mut digest)?;
    Ok(digest.finish().1)
}

/// Computes size and SHA-256 of what is written.
pub struct Hashing<W> {
    inner: W,
    digest: Context,
    pub(crate) size: u64,
}

impl<W> Hashing<W> {
    /// Passes everything on to `inner`.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            digest: Context::new(&SHA256),
            size: 0,
        }
    }

    /// The writer, and the hash.
    pub fn finish(self) -> (W, Digest) {
        (self.inner, self.digest.finish())
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
