//! The response of a handler, and how it is written.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::time::SystemTime;

use serde::Serialize;
use ureq::http::StatusCode;

/// Bytes of a file in memory while it is sent.
const PIECE_BYTES: usize = 32 * 1024;

/// A response to one request.
pub struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    payload: Payload,
}

enum Payload {
    Bytes(Vec<u8>),
    File { file: File, range: Range<u64> },
}

impl Response {
    fn new(status: u16, payload: Payload) -> Self {
        Self {
            status,
            headers: Vec::new(),
            payload,
        }
    }

    /// A response without a body.
    pub fn empty(status: u16) -> Self {
        Self::new(status, Payload::Bytes(Vec::new()))
    }

    /// One line of text.
    pub fn text(status: u16, message: impl std::fmt::Display) -> Self {
        Self::bytes(status, "text/plain; charset=utf-8", format!("{message}\n"))
            .header("x-content-type-options", "nosniff")
    }

    /// A JSON document.
    pub fn json(status: u16, document: &impl Serialize) -> Self {
        match serde_json::to_vec(document) {
            Ok(bytes) => Self::bytes(status, "application/json", bytes),
            Err(error) => Self::text(
                500,
                format_args!("the response cannot be written as JSON: {error}"),
            ),
        }
    }

    /// A body of any type.
    pub fn bytes(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(status, Payload::Bytes(body.into())).header("content-type", content_type)
    }

    /// A file, or the one range of it that a `Range` header asks for; it is read while it is sent.
    /// Ranges that are malformed or several are ignored, as RFC 9110 allows; one beyond the end
    /// is refused with 416.
    pub fn file(file: File, content_type: &str, range: Option<&str>) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let (status, range) = match range.and_then(|text| parse_range(text, length)) {
            None => (200, 0..length),
            Some(Some(range)) => (206, range),
            Some(None) => {
                return Ok(Self::text(416, format_args!("the file has {length} bytes"))
                    .header("content-range", format!("bytes */{length}")));
            }
        };
        let mut response = Self::new(
            status,
            Payload::File {
                file,
                range: range.clone(),
            },
        )
        .header("content-type", content_type)
        .header("accept-ranges", "bytes");
        if status == 206 {
            let text = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            response = response.header("content-range", text);
        }
        Ok(response)
    }

    /// Adds a header, its name in lower case. Control characters in the value become spaces.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        let value = value
            .into()
            .replace(|c: char| c.is_control() && c != '\t', " ");
        self.headers.push((name, value));
        self
    }

    /// The status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The text of the body, if it is in memory.
    pub fn message(&self) -> &str {
        match &self.payload {
            Payload::Bytes(bytes) => std::str::from_utf8(bytes).unwrap_or_default().trim_end(),
            Payload::File { .. } => "",
        }
    }

    /// Writes everything; `body` is false in the response to a HEAD.
    pub(super) fn write(&self, out: &mut dyn Write, body: bool, close: bool) -> io::Result<()> {
        let length = match &self.payload {
            Payload::Bytes(bytes) => bytes.len() as u64,
            Payload::File { range, .. } => range.end - range.start,
        };
        let reason = StatusCode::from_u16(self.status)
            .ok()
            .and_then(|status| status.canonical_reason());
        let (reason, date) = (
            reason.unwrap_or_default(),
            httpdate::fmt_http_date(SystemTime::now()),
        );
        let mut text = format!("HTTP/1.1 {} {reason}\r\ndate: {date}\r\n", self.status);
        for (name, value) in &self.headers {
            text.extend([name, ": ", value, "\r\n"]);
        }
        // These two have neither a body nor a length.
        if self.status != 204 && self.status != 304 {
            text.push_str(&format!("content-length: {length}\r\n"));
        }
        text.push_str(if close {
            "connection: close\r\n\r\n"
        } else {
            "\r\n"
        });
        match &self.payload {
            Payload::Bytes(bytes) if body => {
                // One write makes one TLS record and one packet of a small response.
                out.write_all(&[text.as_bytes(), bytes].concat())?;
            }
            Payload::File { file, range } if body => {
                let mut file: &File = file;
                out.write_all(text.as_bytes())?;
                file.seek(SeekFrom::Start(range.start))?;
                let mut file = BufReader::with_capacity(PIECE_BYTES, file.take(length));
                if io::copy(&mut file, out)? < length {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the file became shorter",
                    ));
                }
            }
            _ => out.write_all(text.as_bytes())?,
        }
        out.flush()
    }
}

/// The range that a header asks for: `None` if it is to be ignored, `Some(None)` if it cannot be
/// satisfied.
fn parse_range(text: &str, length: u64) -> Option<Option<Range<u64>>> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let range = match (first, last) {
        ("", last) => length.saturating_sub(number(last)?)..length,
        (first, "") => number(first)?..length,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(length)
        }
    };
    Some((range.start < range.end).then_some(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_rfc_9110() {
        for (text, expected) in [
            ("bytes=0-0", Some(Some(0..1))),
            ("bytes=2-", Some(Some(2..10))),
            ("bytes=2-99", Some(Some(2..10))),
            ("bytes=-3", Some(Some(7..10))),
            ("bytes=-99", Some(Some(0..10))),
            ("bytes=10-", Some(None)),
            ("bytes=-0", Some(None)),
            ("bytes=99999999999999999999-", Some(None)),
            ("bytes=3-2", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("lines=0-1", None),
            ("", None),
        ] {
            assert_eq!(parse_range(text, 10), expected, "{text}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Some(None));
    }

    #[test]
    fn response_has_its_length_and_nothing_injected() {
        let write = |response: Response, body| {
            let mut out = Vec::new();
            response.write(&mut out, body, true).unwrap();
            let text = String::from_utf8(out).unwrap();
            let (head, rest) = text.split_once("\r\n\r\n").unwrap();
            let lines: Vec<&str> = head
                .split("\r\n")
                .filter(|line| !line.starts_with("date: "))
                .collect();
            (lines.join("|"), rest.to_owned())
        };
        let response = Response::empty(403).header("x-name", "a\r\nb: c");
        let head = "HTTP/1.1 403 Forbidden|x-name: a  b: c|content-length: 0|connection: close";
        assert_eq!(write(response, true), (head.into(), String::new()));
        let head =
            "HTTP/1.1 200 OK|content-type: application/json|content-length: 3|connection: close";
        assert_eq!(
            write(Response::json(200, &[1]), true),
            (head.into(), "[1]".into())
        );
        assert_eq!(
            write(Response::json(200, &[1]), false),
            (head.into(), String::new()),
            "HEAD"
        );
    }
}
