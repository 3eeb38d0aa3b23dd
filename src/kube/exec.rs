//! Commands in containers, over WebSocket (RFC 6455).
//!
//! Owns the upgrade, the channels of `v5.channel.k8s.io` and `v4.channel.k8s.io`, and the final
//! status. Frame parsing is a pure value ([`Frames`]), so that it can be tested with any bytes in
//! any pieces. Starts no thread.

use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::Value;

use super::client::Client;
use super::error::Error;
use super::request::{Object as _, Request, Resource};
use base::dial::{Stream, read_head};

/// Newer first; without standard input they are the same.
const CHANNELS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const OUTPUT: u8 = 1;
const ERRORS: u8 = 2;
const STATUS: u8 = 3;
/// Maximum bytes kept of a command's stderr, from its end.
const MAX_STDERR_BYTES: usize = 64 << 10;
/// Maximum bytes of a message; servers send 32 KiB at a time.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Interval of pings on a quiet connection, which keep intermediaries from dropping it.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Maximum bytes read of an error response.
const MAX_REFUSAL_BYTES: u64 = 64 << 10;
const MAX_READ_BYTES: usize = 64 << 10;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xA;

/// Result of a command.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exit {
    /// Its exit status; -1 if it could not be started.
    pub code: i32,
    /// The server's description of the failure; empty after a success.
    pub message: String,
    /// The command's standard error.
    pub stderr: String,
}

/// An open connection.
struct Socket<'c> {
    stream: Stream,
    frames: Frames,
    buffer: Vec<u8>,
    what: String,
    client: &'c Client,
}

impl Client {
    /// Runs a command and passes its standard output to `sink` as it arrives. A stream that breaks
    /// off before the status is an error; a command that fails is not. `silence` limits the
    /// time without standard output; nothing else counts: a server may send pings forever.
    pub fn exec(
        &self,
        (namespace, pod, container): (&str, &str, &str),
        command: &[&str],
        silence: Duration,
        sink: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> Result<Exit, Error> {
        let mut request = Request::get(&Resource::PODS, namespace, pod)
            .subresource("exec")
            .query("container", container)
            .query("stdout", "true")
            .query("stderr", "true")
            // Some servers do not negotiate in an upgrade, and refuse a request for JSON.
            .header("accept", "*/*");
        for word in command {
            request = request.query("command", *word);
        }
        let mut socket = match self.upgrade(&request) {
            Err(error) if error.code() == Some(401) && self.config().credential.renew() => {
                self.upgrade(&request)?
            }
            other => other?,
        };
        let mut stderr = Vec::new();
        let mut last_output = Instant::now();
        loop {
            match socket.frame()? {
                Some(Frame::Message(message)) => match message.split_first() {
                    Some((&OUTPUT, bytes)) if !bytes.is_empty() => {
                        sink(bytes).map_err(Error::Sink)?;
                        last_output = Instant::now();
                    }
                    Some((&ERRORS, bytes)) => {
                        stderr.extend_from_slice(bytes);
                        let excess = stderr.len().saturating_sub(MAX_STDERR_BYTES);
                        stderr.drain(..excess);
                    }
                    Some((&STATUS, bytes)) => {
                        let stderr = String::from_utf8_lossy(&stderr).into_owned();
                        return Ok(Exit {
                            stderr,
                            ..exit(bytes)
                        });
                    }
                    _ => {}
                },
                Some(Frame::Ping(bytes)) => socket.send(PONG, &bytes)?,
                Some(Frame::Close) => {
                    // 1000 is a normal closure. The server may have disconnected.
                    let _ = socket.send(CLOSE, &1000_u16.to_be_bytes());
                    return Err(
                        socket.failed(io::Error::other("the stream ended before the command did"))
                    );
                }
                None => {}
            }
            if last_output.elapsed() > silence {
                return Err(socket.failed(io::Error::other("nothing more was received")));
            }
        }
    }

    fn upgrade(&self, request: &Request) -> Result<Socket<'_>, Error> {
        let (stream, headers) = self.connect(request)?;
        let mut socket = Socket {
            stream,
            frames: Frames::default(),
            buffer: vec![0; MAX_READ_BYTES],
            what: self.address(request),
            client: self,
        };
        let key = BASE64_STANDARD.encode(random::<16>()?);
        let mut head = format!(
            "GET {}{} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: \
             websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
             {key}\r\nSec-WebSocket-Protocol: {}\r\n",
            self.uri().path().trim_end_matches('/'),
            request.target(),
            self.uri()
                .authority()
                .map_or("", |authority| authority.as_str()),
            CHANNELS.join(", ")
        );
        for (name, value) in headers {
            // Written by hand here: a line break would begin another header.
            if value.contains(['\r', '\n']) {
                return Err(anyhow!("header `{name}` contains a line break").into());
            }
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        socket.write(head.as_bytes())?;
        let answer = read_head(&mut socket.stream).map_err(|why| socket.failed(why))?;
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        response
            .parse(&answer)
            .map_err(|why| socket.failed(io::Error::other(why)))?;
        let header = |name: &str| {
            let header = response
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case(name));
            header
                .and_then(|header| std::str::from_utf8(header.value).ok())
                .unwrap_or_default()
                .trim()
        };
        if response.code != Some(101) {
            let length = header("content-length")
                .parse()
                .unwrap_or(MAX_REFUSAL_BYTES)
                .min(MAX_REFUSAL_BYTES);
            let mut body = Vec::new();
            // A truncated explanation is better than none.
            let _ = (&mut socket.stream).take(length).read_to_end(&mut body);
            return Err(Error::from_answer(
                response.code.unwrap_or(0),
                None,
                &body,
                &socket.what,
            ));
        }
        if header("sec-websocket-accept") != accepted(&key)
            || !CHANNELS.contains(&header("sec-websocket-protocol"))
        {
            return Err(anyhow!(
                "`{}`: the server supports none of the protocols {} over WebSocket (Kubernetes \
                 1.30 and later do)",
                socket.what,
                CHANNELS.join(", ")
            )
            .into());
        }
        let limited = socket.stream.limit(PING_INTERVAL, PING_INTERVAL * 3);
        limited.map_err(|why| socket.failed(why))?;
        Ok(socket)
    }
}

impl Socket<'_> {
    /// The next frame; `None` if none is complete after one read, or after a silence, which sends a
    /// ping.
    fn frame(&mut self) -> Result<Option<Frame>, Error> {
        let frame = self.frames.next();
        if let Some(frame) =
            frame.map_err(|why| Error::sent(&self.what, format!("WebSocket: {why}")))?
        {
            return Ok(Some(frame));
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => return Err(self.failed(io::Error::other("the stream was cut off"))),
            Ok(length) => self.frames.feed(&self.buffer[..length]),
            Err(why) if why.kind() == io::ErrorKind::TimedOut => self.send(PING, b"")?,
            Err(why)
                if why.kind() == io::ErrorKind::Interrupted && !self.client.stop().stopped() => {}
            Err(why) => return Err(self.failed(why)),
        }
        Ok(None)
    }

    /// Sends a control frame, whose payload has at most 125 bytes.
    fn send(&mut self, opcode: u8, payload: &[u8]) -> Result<(), Error> {
        // Clients have to mask what they send (RFC 6455, section 5.3), and servers must not.
        let mask = random::<4>()?;
        let mut bytes = vec![0x80 | opcode, 0x80 | payload.len() as u8];
        bytes.extend(mask);
        bytes.extend(
            payload
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream
            .write_all(bytes)
            .and_then(|()| self.stream.flush())
            .map_err(|why| self.failed(why))
    }

    fn failed(&self, why: io::Error) -> Error {
        self.client.failed(&self.what, why)
    }
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| anyhow!("no random numbers available"))?;
    Ok(bytes)
}

/// The server's expected response to our key.
fn accepted(key: &str) -> String {
    // The suffix and SHA-1 are prescribed by RFC 6455, section 1.3. They protect nothing: they show
    // that the server speaks WebSocket, and is no cache with an old response.
    let salted = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(ring::digest::digest(
        &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
        salted.as_bytes(),
    ))
}

/// Parses the `Status` at the end of a command.
fn exit(status: &[u8]) -> Exit {
    let status: Value = base::json::from_slice(status).unwrap_or_default();
    if status["status"] == "Success" {
        return Exit::default();
    }
    let causes = status["details"]["causes"].items();
    let code = causes
        .filter(|cause| cause["reason"] == "ExitCode")
        .find_map(|cause| cause["message"].as_str()?.parse().ok())
        .filter(|code| *code != 0)
        .unwrap_or(-1);
    let message = status["message"]
        .as_str()
        .unwrap_or("the server did not say why")
        .to_owned();
    Exit {
        code,
        message,
        stderr: String::new(),
    }
}

/// A message or control frame of the server.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    Message(Vec<u8>),
    Ping(Vec<u8>),
    Close,
}

/// Parses frames from pieces of any size.
#[derive(Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Start of the next frame in `bytes`.
    start: usize,
    /// The fragments so far of an incomplete message.
    partial: Option<Vec<u8>>,
}

impl Frames {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        // Once for each read, not for each frame: draining moves what remains.
        self.bytes.drain(..std::mem::take(&mut self.start));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame; `None` if more bytes are needed; an error is final.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, &'static str> {
        while let Some((first, place)) = read_frame(&self.bytes[self.start..])? {
            let payload = &self.bytes[self.start..][place.clone()];
            self.start += place.end;
            match (first & 0x0F, &mut self.partial) {
                // Text or binary begins a message, 0 continues it; control frames may come between.
                (0x1 | 0x2, none @ None) => *none = Some(payload.to_vec()),
                (0x0, Some(partial)) if partial.len() + payload.len() <= MAX_MESSAGE_BYTES => {
                    partial.extend_from_slice(payload);
                }
                (0x0, Some(_)) => return Err("a message is too large"),
                (0x1 | 0x2, Some(_)) => return Err("a message starts inside another"),
                (0x0, None) => return Err("a message continues that never started"),
                (CLOSE, _) => return Ok(Some(Frame::Close)),
                (PING, _) => return Ok(Some(Frame::Ping(payload.to_vec()))),
                (PONG, _) => continue,
                _ => return Err("unknown kind of frame"),
            }
            if first & 0x80 != 0 {
                return Ok(self.partial.take().map(Frame::Message));
            }
        }
        Ok(None)
    }
}

/// The first byte of a frame, and the range of its payload.
fn read_frame(bytes: &[u8]) -> Result<Option<(u8, Range<usize>)>, &'static str> {
    let [first, second, ..] = *bytes else {
        return Ok(None);
    };
    // Bits: the end of the message, three reserved ones, four of the kind.
    if first & 0x70 != 0 {
        return Err("a frame uses an extension that was not negotiated");
    }
    if second & 0x80 != 0 {
        return Err("a frame from the server is masked");
    }
    if first & 0x08 != 0 && (second > 125 || first & 0x80 == 0) {
        return Err("a control frame is too large or fragmented");
    }
    let head = 2 + match second {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let Some(digits) = bytes.get(2..head) else {
        return Ok(None);
    };
    let length = match digits {
        [] => second.into(),
        digits => digits
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= MAX_MESSAGE_BYTES);
    let end = head + length.ok_or("a message is too large")?;
    Ok((end <= bytes.len()).then_some((first, head..end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let length = payload.len();
        let head = match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short @ 0..126), _) => vec![first, short],
            (_, Ok(long)) => [&[first, 126], &long.to_be_bytes()[..]].concat(),
            _ => [&[first, 127], &(length as u64).to_be_bytes()[..]].concat(),
        };
        [&head, payload].concat()
    }

    fn read(bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<&'static str>) {
        let (mut frames, mut found) = (Frames::default(), Vec::new());
        for piece in bytes.chunks(piece.max(1)) {
            frames.feed(piece);
            loop {
                match frames.next() {
                    Ok(Some(frame)) => found.push(frame),
                    Ok(None) => break,
                    Err(why) => return (found, Some(why)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn split_frames_are_joined() {
        let large = vec![7; 70_000];
        let bytes = [
            frame(0x82, b"one"),
            frame(0x02, b"t"),
            frame(0x89, b"ping"),
            frame(0x00, b"w"),
            frame(0x8A, b""),
            frame(0x80, b"o"),
            frame(0x82, &[1; 300]),
            frame(0x82, &large),
            frame(0x88, b"\x03\xe8"),
        ]
        .concat();
        let wanted = [
            Frame::Message(b"one".to_vec()),
            Frame::Ping(b"ping".to_vec()),
            Frame::Message(b"two".to_vec()),
            Frame::Message(vec![1; 300]),
            Frame::Message(large),
            Frame::Close,
        ];
        for piece in [1, 2, 3, 7, 1000, bytes.len()] {
            let (found, error) = read(&bytes, piece);
            assert!(
                found == wanted && error.is_none(),
                "in pieces of {piece}: {error:?}"
            );
        }
    }

    #[test]
    fn invalid_frames_are_refused() {
        for (bytes, says) in [
            (vec![0xC2, 0], "extension"),
            (vec![0x82, 0x80, 0, 0, 0, 0], "masked"),
            (vec![0x83, 0], "unknown kind"),
            (vec![0x09, 0], "control frame"),
            (vec![0x89, 126, 0, 200], "control frame"),
            (vec![0x80, 0], "never started"),
            (
                [frame(0x02, b"a"), frame(0x82, b"b")].concat(),
                "starts inside another",
            ),
            (vec![0x82, 127, 0xFF, 0, 0, 0, 0, 0, 0, 0], "too large"),
            (
                [frame(0x02, &vec![0; MAX_MESSAGE_BYTES]), frame(0x80, b"x")].concat(),
                "too large",
            ),
        ] {
            let (_, error) = read(&bytes, usize::MAX);
            assert!(
                error.is_some_and(|why| why.contains(says)),
                "{says}: {error:?}"
            );
        }
    }

    /// Random bytes, and real streams with random damage, in random pieces: never a panic, never
    /// more memory than was received, and the same outcome whatever the pieces.
    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        for round in 0..20_000 {
            let mut bytes: Vec<u8> = if round % 2 == 0 {
                let length = random(64);
                (0..length)
                    .map(|_| u8::try_from(random(256)).unwrap())
                    .collect()
            } else {
                let kinds = [0x82, 0x02, 0x00, 0x80, 0x89, 0x8A, 0x88, 0x81];
                (0..random(6) + 1)
                    .flat_map(|_| frame(kinds[random(8)], &vec![3; [0, 5, 130][random(3)]]))
                    .collect()
            };
            for _ in 0..random(3) {
                if !bytes.is_empty() {
                    let at = random(bytes.len());
                    bytes[at] = u8::try_from(random(256)).unwrap();
                }
            }
            let whole = read(&bytes, usize::MAX);
            let held: usize = whole
                .0
                .iter()
                .map(|frame| {
                    if let Frame::Message(m) = frame {
                        m.len()
                    } else {
                        0
                    }
                })
                .sum();
            assert!(held <= bytes.len());
            assert_eq!(read(&bytes, random(9) + 1), whole, "{bytes:?}");
        }
    }

    /// Upgrades one connection, then sends `round` again and again; each time it waits for the
    /// answer to its ping.
    fn server(round: Vec<u8>) -> (String, std::thread::JoinHandle<usize>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut socket, mut head) = (listener.accept().unwrap().0, Vec::new());
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let key = head
                .lines()
                .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))
                .unwrap();
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: \
                 {}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
                accepted(key)
            );
            socket.write_all(answer.as_bytes()).unwrap();
            let mut pong = [0; 6 + 4];
            (0..)
                .take_while(|_| {
                    let sent = socket
                        .write_all(&round)
                        .and_then(|()| socket.write_all(&frame(0x89, b"ping")));
                    sent.and_then(|()| socket.read_exact(&mut pong)).is_ok() && pong[0] == 0x8A
                })
                .count()
        });
        (address, thread)
    }

    #[test]
    fn server_without_output_is_silent() {
        let silence = Duration::from_millis(200);
        for (round, lasts) in [
            (Vec::new(), false),
            (frame(0x82, &[1]), false),
            (frame(0x82, b"\x02words"), false),
            (frame(0x82, b"\x01output"), true),
        ] {
            let (address, server) = server(round.clone());
            let client = Client::new(
                "test/1",
                super::super::Config::plain(address),
                &base::stop::Stop::new(),
            )
            .unwrap();
            let (started, mut came) = (Instant::now(), 0);
            let outcome = client.exec(("default", "p", "c"), &["x"], silence, &mut |bytes| {
                came += bytes.len();
                // Long after the time of silence it is still heard.
                if started.elapsed() > silence * 3 {
                    Err(anyhow!("enough"))
                } else {
                    Ok(())
                }
            });
            let error = outcome.unwrap_err().to_string();
            let says = if lasts {
                "enough"
            } else {
                "nothing more was received"
            };
            assert!(
                error.contains(says) && (came > 0) == lasts,
                "{round:?}: {error}"
            );
            assert!(started.elapsed() > silence, "{round:?}: {error}");
            assert!(server.join().unwrap() > 2, "its pings were answered");
        }
    }

    #[test]
    fn accept_key_follows_the_standard() {
        assert_eq!(
            accepted("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn final_status_is_parsed() {
        let check = |status: &str, code: i32, message: &str| {
            assert_eq!(
                exit(status.as_bytes()),
                Exit {
                    code,
                    message: message.into(),
                    stderr: String::new()
                }
            );
        };
        check(r#"{"status":"Success"}"#, 0, "");
        let causes = r#""details":{"causes":[{"reason":"ExitCode","message":"3"}]}"#;
        check(
            &format!(r#"{{"status":"Failure","message":"m",{causes}}}"#),
            3,
            "m",
        );
        check(
            r#"{"status":"Failure","message":"no such file","reason":"InternalError"}"#,
            -1,
            "no such file",
        );
        check("garbage", -1, "the server did not say why");
    }
}
