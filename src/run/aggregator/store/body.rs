//! A body on its way to the disk: counted, hashed once, and refused when it is too large; and error
//! reports among bodies.
//!
//! Remembers the refusal, because readers on top of it (a decompressor, an unpacker) wrap errors
//! until their kind is lost. A large body is read on a second thread, see [`ahead`].

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use serde::Deserialize;

use super::disk::{Claim, Space};
use crate::aggregator::limits::Refusal;
use crate::aggregator::run::Sender;
use base::ahead;
use base::json::json;
use base::sys;
use http::Meter;

/// Bytes after which the system begins to write them to the disk, so that the final sync finds
/// little to do.
const FLUSHED_BYTES: u64 = 8 << 20;

/// SHA-256 of a body as it was sent.
pub(crate) type Sha256 = [u8; 32];

/// A body with its headers.
pub struct Upload<R> {
    pub body: R,
    /// The declared length.
    pub length: Option<u64>,
    /// Whether it is a gzip tar to unpack.
    pub is_archive: bool,
    /// Whether it is an error report in place of a result.
    pub is_error: bool,
    /// The file name; `None` without a disposition.
    pub name: Option<String>,
    /// The announced SHA-256.
    pub digest: Option<Sha256>,
    pub sender: Sender,
    /// Measures its connection.
    pub meter: Arc<Meter>,
}

/// Reads a body.
pub(super) struct BodyReader<R> {
    body: R,
    passed: Passed,
}

/// What was read of a body.
struct Passed {
    max: u64,
    digest: Context,
    bytes: u64,
    refusal: Option<Refusal>,
}

impl<R: Read + Send> BodyReader<R> {
    /// Reads at most `max` bytes of `body`.
    pub(super) fn new(body: R, max: u64) -> Self {
        Self {
            body,
            passed: Passed {
                max,
                digest: Context::new(&SHA256),
                bytes: 0,
                refusal: None,
            },
        }
    }

    /// The reason why reading failed.
    pub(super) fn refusal(&mut self) -> Option<Refusal> {
        self.passed.refusal.take()
    }

    /// Writes `start` and the rest to `file` while `claim` permits.
    pub(super) fn copy_to(
        &mut self,
        start: &[u8],
        file: &mut File,
        claim: &Claim<'_>,
    ) -> io::Result<()> {
        let Self { body, passed } = self;
        claim
            .take(Space::file(start.len() as u64))
            .map_err(|refusal| passed.fail(refusal))?;
        file.write_all(start)?;
        let (mut written, mut flushed) = (start.len() as u64, 0);
        ahead::pieces(body, |piece| {
            let piece = piece.map_err(|error| passed.fail(Refusal::of_body(&error)))?;
            passed.add(piece)?;
            claim
                .take(Space::bytes(piece.len() as u64))
                .map_err(|refusal| passed.fail(refusal))?;
            file.write_all(piece)?;
            written += piece.len() as u64;
            if written - flushed >= FLUSHED_BYTES {
                sys::start_write_back(file, flushed, written - flushed);
                flushed = written;
            }
            Ok(())
        })
    }

    /// The number of bytes that were read, and their SHA-256.
    pub(super) fn finish(self) -> (u64, Sha256) {
        let mut digest = Sha256::default();
        digest.copy_from_slice(self.passed.digest.finish().as_ref());
        (self.passed.bytes, digest)
    }
}

impl Passed {
    fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        self.bytes += piece.len() as u64;
        self.digest.update(piece);
        if self.bytes > self.max {
            Err(self.fail(Refusal::sent(self.max)))
        } else {
            Ok(())
        }
    }

    fn fail(&mut self, refusal: Refusal) -> io::Error {
        self.refusal = Some(refusal);
        io::Error::other("the body was not read to its end")
    }
}

impl<R: Read + Send> Read for BodyReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(refusal) = self.passed.refusal.take() {
            return Err(self.passed.fail(refusal));
        }
        let count = loop {
            match self.body.read(buffer) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.passed.fail(Refusal::of_body(&error))),
            }
        };
        self.passed.add(&buffer[..count])?;
        Ok(count)
    }
}

/// Whether a nameless body is the error report of an older worker: an object with `error` and
/// nothing else.
pub(super) fn is_bare_report(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Bare {
        #[allow(dead_code, reason = "only its type counts")]
        error: String,
    }
    serde_json::from_slice::<Bare>(body).is_ok()
}

/// The bytes to keep of an error report, and its sentence. A body that is not a report becomes the
/// sentence of one.
pub(super) fn report(body: Vec<u8>) -> (Vec<u8>, String) {
    #[derive(Deserialize)]
    struct Report {
        error: String,
    }
    if let Ok(Report { error }) = serde_json::from_slice(&body) {
        return (body, error);
    }
    let text = String::from_utf8_lossy(&body);
    let text = if text.trim().is_empty() {
        "the worker gave no reason"
    } else {
        text.trim()
    };
    (
        json!({ "error": text }).to_string().into_bytes(),
        text.to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::tests::fixture::Scratch;
    use client::protocol::ResultId;

    const LARGE: u64 = 2 << 20;

    fn copy<R: Read + Send>(
        reader: &mut BodyReader<R>,
        start: &[u8],
        file: &mut File,
    ) -> io::Result<()> {
        reader.copy_to(start, file, &Claim::new(None, &ResultId::global("p")))
    }

    #[test]
    fn body_is_written_and_hashed_completely() {
        let scratch = Scratch::new();
        let path = scratch.run();
        let flushed = usize::try_from(FLUSHED_BYTES).unwrap();
        for size in [
            0,
            1,
            7,
            ahead::FIRST_BYTES,
            ahead::FIRST_BYTES + 8,
            2 * flushed + 77,
        ] {
            let body: Vec<u8> = (0..size).map(|n| (n % 251).to_le_bytes()[0]).collect();
            // Pieces that do not fit the buffer.
            let (first, second) = body.split_at(size / 3);
            let mut reader = BodyReader::new(first.chain(second), u64::MAX);
            let mut start = [0; 7];
            let read = reader.read(&mut start).unwrap();
            let mut file = File::create(&path).unwrap();
            copy(&mut reader, &start[..read], &mut file).unwrap();
            assert!(std::fs::read(&path).unwrap() == body, "{size}");
            let (bytes, digest) = reader.finish();
            assert_eq!(bytes, size as u64);
            assert_eq!(
                digest,
                ring::digest::digest(&SHA256, &body).as_ref(),
                "{size}"
            );
        }
    }

    #[test]
    fn broken_large_body_is_an_error_with_its_reason() {
        struct Cut(u64);
        impl Read for Cut {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 = self
                    .0
                    .checked_sub(buffer.len() as u64)
                    .ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok(buffer.len())
            }
        }
        let scratch = Scratch::new();
        let mut file = File::create(scratch.run()).unwrap();
        let mut reader = BodyReader::new(Cut(LARGE * 2), u64::MAX);
        copy(&mut reader, b"", &mut file).unwrap_err();
        assert!(matches!(reader.refusal(), Some(Refusal::Cut(_))));
        let mut reader = BodyReader::new(Cut(LARGE * 9), LARGE * 2);
        copy(&mut reader, b"", &mut file).unwrap_err();
        assert_eq!(reader.refusal(), Some(Refusal::sent(LARGE * 2)));
    }

    #[test]
    fn full_file_is_an_error_of_the_file() {
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        for size in [LARGE / 2, LARGE * 9] {
            let mut reader = BodyReader::new(io::repeat(7).take(size), u64::MAX);
            let error = copy(&mut reader, b"", &mut full).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
            assert!(reader.refusal().is_none());
        }
    }

    #[test]
    fn error_reports_are_recognized_and_other_bodies_wrapped() {
        for (body, bare, error) in [
            (r#"{"error":"no file"}"#, true, "no file"),
            ("{\n\"error\" : \"no file\"}", true, "no file"),
            (r#"{"error":"no file","pod":{}}"#, false, "no file"),
            (r#"{"error":1}"#, false, r#"{"error":1}"#),
            ("disk on fire\n", false, "disk on fire"),
            ("", false, "the worker gave no reason"),
            ("[", false, "["),
        ] {
            assert_eq!(is_bare_report(body.as_bytes()), bare, "{body}");
            assert_eq!(report(body.into()).1, error, "{body}");
        }
    }
}
