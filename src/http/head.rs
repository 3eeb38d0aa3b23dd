//! The head of a request: its end, its meaning, and the reasons to refuse it. Pure, no I/O.
//!
//! `httparse` splits it into lines. Everything that determines the length of the body is decided
//! here, strictly: two readers of one stream must never disagree.

/// Maximum header lines of a head.
const MAX_HEADERS: usize = 100;

/// Why a request is refused before any handler sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Refusal {
    /// Status of the response.
    pub status: u16,
    /// Explanation for the client's user.
    pub reason: &'static str,
}

const fn bad(reason: &'static str) -> Refusal {
    Refusal {
        status: 400,
        reason,
    }
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Framing {
    /// By its length, by default 0.
    Length(u64),
    /// By chunks.
    Chunked,
}

/// The checked head of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Head {
    pub method: String,
    /// Percent-encoded, beginning with `/`, without the query.
    pub path: String,
    pub headers: Headers,
    pub framing: Framing,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether the client may send another request.
    pub keep_alive: bool,
}

/// The header lines of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value under this name; case does not matter.
    pub fn get<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }

    /// Every value under this name, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// The end of the head in `bytes`, or of the empty line at their start. The first `seen` bytes were
/// checked before. Refuses a NUL, and a line that does not end in CR LF, as soon as it arrives.
pub(super) fn end(bytes: &[u8], seen: usize) -> Result<Option<usize>, Refusal> {
    for (index, &byte) in bytes.iter().enumerate().skip(seen) {
        let before = index.checked_sub(1).map(|before| bytes[before]);
        match byte {
            0 => return Err(bad("a NUL byte in the head")),
            b'\n' if before != Some(b'\r') => {
                return Err(bad("a line that ends without a carriage return"));
            }
            b'\n' if index == 1 || bytes[..index].ends_with(b"\r\n\r") => {
                return Ok(Some(index + 1));
            }
            _ if byte != b'\n' && before == Some(b'\r') => {
                return Err(bad("a stray carriage return"));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Reads a whole head, up to and with its empty line.
pub(super) fn parse(bytes: &[u8]) -> Result<Head, Refusal> {
    let mut lines = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut lines);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal {
                status: 431,
                reason: "too many header lines",
            });
        }
        Err(httparse::Error::Version) => {
            return Err(Refusal {
                status: 505,
                reason: "only HTTP/1.1 and HTTP/1.0 are supported",
            });
        }
        _ => return Err(bad("a malformed head")),
    }
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(bad("a malformed request line"));
    };
    let headers = Headers(
        request
            .headers
            .iter()
            .map(|line| {
                (
                    line.name.to_owned(),
                    String::from_utf8_lossy(line.value).into_owned(),
                )
            })
            .collect(),
    );
    let path = path_of(target)?.to_owned();
    let framing = framing(&headers, version)?;
    let expects_continue = expects_continue(&headers, version)?;
    match headers.all("host").count() {
        1 => {}
        0 if version == 0 => {}
        _ => return Err(bad("exactly one host header is needed")),
    }
    let closes = |value: &str| {
        value
            .split(',')
            .any(|option| option.trim().eq_ignore_ascii_case("close"))
    };
    let keep_alive = version == 1 && !headers.all("connection").any(closes);
    Ok(Head {
        method: method.into(),
        path,
        headers,
        framing,
        expects_continue,
        keep_alive,
    })
}

/// The path of a request target, of which `https://host` may be the front.
fn path_of(target: &str) -> Result<&str, Refusal> {
    let origin = match target
        .strip_prefix("https://")
        .or_else(|| target.strip_prefix("http://"))
    {
        Some(rest) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        None => target,
    };
    if !origin
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'#')
    {
        return Err(bad(
            "a character in the request target that must be percent-encoded",
        ));
    }
    match origin.split('?').next().unwrap_or_default() {
        "" if origin.len() < target.len() => Ok("/"),
        path if path.starts_with('/') => Ok(path),
        _ => Err(bad("the request target is not a path")),
    }
}

fn framing(headers: &Headers, version: u8) -> Result<Framing, Refusal> {
    let mut codings = headers.all("transfer-encoding");
    let mut lengths = headers.all("content-length");
    if let Some(coding) = codings.next() {
        if lengths.next().is_some() {
            return Err(bad("both transfer-encoding and content-length"));
        }
        // Other readers take only blanks and tabs as the margin of a value, no other white space of
        // Unicode.
        let coding = coding.trim_matches([' ', '\t']);
        if version == 0 || codings.next().is_some() || !coding.eq_ignore_ascii_case("chunked") {
            return Err(bad("a transfer-encoding other than chunked"));
        }
        return Ok(Framing::Chunked);
    }
    let Some(first) = lengths.next() else {
        return Ok(Framing::Length(0));
    };
    if lengths.any(|other| other != first) {
        return Err(bad("two lengths that differ"));
    }
    if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad("a content-length that is not a number"));
    }
    first
        .parse()
        .map(Framing::Length)
        .map_err(|_| bad("a content-length that is too large"))
}

fn expects_continue(headers: &Headers, version: u8) -> Result<bool, Refusal> {
    let mut expectations = headers.all("expect");
    match expectations.next() {
        None => Ok(false),
        // Clients of HTTP/1.0 do not understand interim responses.
        Some(_) if version == 0 => Ok(false),
        Some(word)
            if word.eq_ignore_ascii_case("100-continue") && expectations.next().is_none() =>
        {
            Ok(true)
        }
        Some(_) => Err(Refusal {
            status: 417,
            reason: "an expectation other than 100-continue",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str) -> Result<Head, Refusal> {
        let bytes = head.as_bytes();
        match end(bytes, 0)? {
            Some(length) => parse(&bytes[..length]),
            None => panic!("no end of the head: {head:?}"),
        }
    }

    #[test]
    fn plain_head_is_parsed() {
        let head = check(
            "PUT /a%20b?x=1?2 HTTP/1.1\r\nHost: h\r\nX-Name:  some value \r\nContent-Length: \
             12\r\n\r\n",
        )
        .unwrap();
        assert_eq!(
            (head.method.as_str(), head.path.as_str()),
            ("PUT", "/a%20b")
        );
        assert_eq!(head.headers.get("x-name"), Some("some value"));
        assert_eq!(head.headers.get("X-NAME"), Some("some value"));
        assert_eq!(head.framing, Framing::Length(12));
        assert!(head.keep_alive && !head.expects_continue);
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for (lines, expected) in [
            ("", Some(Framing::Length(0))),
            ("Content-Length: 0", Some(Framing::Length(0))),
            ("Content-Length: 007", Some(Framing::Length(7))),
            (
                "Content-Length: 5\r\nContent-Length: 5",
                Some(Framing::Length(5)),
            ),
            ("Transfer-Encoding: chunked", Some(Framing::Chunked)),
            ("transfer-encoding: CHUNKED ", Some(Framing::Chunked)),
            ("transfer-encoding:\tchunked\t ", Some(Framing::Chunked)),
            ("Content-Length: +5", None),
            ("Content-Length: -1", None),
            ("Content-Length: 5 5", None),
            ("Content-Length: 5, 5", None),
            ("Content-Length: 0x5", None),
            ("Content-Length: 5.0", None),
            ("Content-Length:", None),
            ("Content-Length: ٣", None),
            ("Content-Length: 18446744073709551616", None),
            ("Content-Length: 5\r\nContent-Length: 6", None),
            ("Content-Length: 5\r\nContent-Length: 05", None),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", None),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5", None),
            ("Transfer-Encoding: gzip", None),
            ("Transfer-Encoding: gzip, chunked", None),
            ("Transfer-Encoding: chunked, gzip", None),
            ("Transfer-Encoding: chunked, chunked", None),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                None,
            ),
            ("Transfer-Encoding: identity", None),
            ("Transfer-Encoding: xchunked", None),
            ("Transfer-Encoding:", None),
            ("Transfer-Encoding: \u{a0}chunked", None),
            ("Transfer-Encoding: chunked\u{85}", None),
            ("Transfer-Encoding: \u{2003}chunked", None),
            ("Transfer-Encoding : chunked", None),
            ("Content-Length : 5", None),
            (" Content-Length: 5", None),
            ("X: a\r\n folded", None),
            ("X: a\r\n\tfolded", None),
            ("X: a\rContent-Length: 5", None),
            ("X: a\nContent-Length: 5", None),
            ("X: a\0b", None),
            (": nameless", None),
            ("no colon", None),
            ("Höst: h", None),
            ("Host: second", None),
        ] {
            let lines = if lines.is_empty() {
                String::new()
            } else {
                format!("{lines}\r\n")
            };
            let found = check(&format!("PUT / HTTP/1.1\r\nHost: h\r\n{lines}\r\n"));
            match (found, expected) {
                (Ok(head), Some(framing)) => assert_eq!(head.framing, framing, "{lines:?}"),
                (Err(refusal), None) => assert_eq!(refusal.status, 400, "{lines:?}"),
                (found, _) => panic!("{lines:?} gave {found:?}"),
            }
        }
    }

    #[test]
    fn request_lines_are_parsed_or_refused() {
        for (line, expected) in [
            ("GET / HTTP/1.1", Ok("/")),
            ("GET https://other/a/b HTTP/1.1", Ok("/a/b")),
            ("GET http://other HTTP/1.1", Ok("/")),
            ("GET http://other?q HTTP/1.1", Ok("/")),
            ("OPTIONS * HTTP/1.1", Err(400)),
            ("GET / HTTP/2.0", Err(505)),
            ("GET / HTTP/1.2", Err(505)),
            ("GET / http/1.1", Err(505)),
            ("GET /", Err(400)),
            ("GET", Err(400)),
            ("GET  / HTTP/1.1", Err(400)),
            ("GET / x HTTP/1.1", Err(505)),
            ("G(T / HTTP/1.1", Err(400)),
            (" GET / HTTP/1.1", Err(400)),
            ("CONNECT host:80 HTTP/1.1", Err(400)),
            ("GET a/b HTTP/1.1", Err(400)),
            ("GET /a#b HTTP/1.1", Err(400)),
            ("GET /ä HTTP/1.1", Err(400)),
        ] {
            let found = check(&format!("{line}\r\nHost: h\r\n\r\n"));
            assert_eq!(
                found.map(|head| head.path).map_err(|e| e.status),
                expected.map(str::to_owned),
                "{line}"
            );
        }
    }

    #[test]
    fn connections_stay_open_for_clients_that_support_it() {
        for (head, keep_alive) in [
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", true),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Close\r\n\r\n",
                false,
            ),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false),
        ] {
            assert_eq!(check(head).unwrap().keep_alive, keep_alive, "{head:?}");
        }
    }

    #[test]
    fn too_many_headers_are_431_and_unknown_expectations_417() {
        let many = "X: y\r\n".repeat(MAX_HEADERS + 1);
        assert_eq!(
            check(&format!("GET / HTTP/1.1\r\n{many}\r\n"))
                .unwrap_err()
                .status,
            431
        );
        let odd = "GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n";
        assert_eq!(check(odd).unwrap_err().status, 417);
    }
}
