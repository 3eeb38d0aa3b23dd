//! The client side of WebSocket (RFC 6455), limited to the needs of streams through an API server.
//!
//! Owns the upgrade, frames and their limits, pings. Frame parsing is a pure value ([`Frames`]), so that it can be tested
//! with any bytes in any pieces. Does not interpret messages. Starts no thread.

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::client::{Client, transport};
use super::dial::{Stream, read_head};
use super::error::{Error, Stage};
use super::request::Request;

/// Maximum bytes of a message; servers send 32 KiB at a time.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Interval of pings on a quiet connection, which keep intermediaries from dropping it.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Maximum bytes read of an error response.
const MAX_REFUSAL_BYTES: u64 = 64 << 10;
const MAX_READ_BYTES: usize = 64 << 10;

/// An open connection.
pub(super) struct Socket {
    stream: Stream,
    frames: Frames,
    random: SystemRandom,
    buffer: Vec<u8>,
    what: String,
    client: Client,
}

impl Client {
    /// Upgrades a request; the server must choose one of `protocols`, the best first.
    pub(super) fn upgrade(&self, request: &Request, protocols: &[&str]) -> Result<Socket, Error> {
        match self.upgrade_once(request, protocols) {
            Err(error) if error.code() == Some(401) && self.config().credential.renew() => {
                self.upgrade_once(request, protocols)
            }
            other => other,
        }
    }

    fn upgrade_once(&self, request: &Request, protocols: &[&str]) -> Result<Socket, Error> {
        let what = self.address(request);
        let failed =
            |why: &io::Error| if self.stop().stopped() { Error::Stopped } else { transport(&what, why) };
        // Some servers do not negotiate in an upgrade, and refuse a request for JSON.
        let (mut stream, headers) = self.connect(&request.clone().header("accept", "*/*"))?;
        let random = SystemRandom::new();
        let mut nonce = [0; 16];
        random.fill(&mut nonce).map_err(|_| Error::Config("no random numbers available".into()))?;
        let key = BASE64_STANDARD.encode(nonce);
        let (host, base) = self.host_and_base();
        let mut head = format!(
            "GET {base}{} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: {}\r\n",
            request.target(),
            protocols.join(", ")
        );
        for (name, value) in headers {
            if value.contains(['\r', '\n']) {
                return Err(Error::Config(format!("header `{name}` contains a line break")));
            }
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).and_then(|()| stream.flush()).map_err(|why| failed(&why))?;
        let answer = read_head(&mut stream).map_err(|why| failed(&why))?;
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        response.parse(&answer).map_err(|why| failed(&io::Error::other(why)))?;
        let header = |name: &str| {
            let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.and_then(|header| std::str::from_utf8(header.value).ok()).unwrap_or_default().trim()
        };
        match response.code {
            Some(101) => {}
            code => {
                let length =
                    header("content-length").parse().unwrap_or(MAX_REFUSAL_BYTES).min(MAX_REFUSAL_BYTES);
                let mut body = Vec::new();
                // A truncated explanation is better than none.
                let _ = (&mut stream).take(length).read_to_end(&mut body);
                return Err(Error::from_answer(code.unwrap_or(0), None, &body, &what));
            }
        }
        let chosen = header("sec-websocket-protocol");
        if header("sec-websocket-accept") != accepted(&key) || !protocols.contains(&chosen) {
            return Err(Error::Decode(format!(
                "`{what}`: the server supports none of the protocols {} over WebSocket (Kubernetes 1.30 and later do)",
                protocols.join(", ")
            )));
        }
        stream
            .read_limit(Some(PING_INTERVAL))
            .and_then(|()| stream.write_limit(Some(PING_INTERVAL * 3)))
            .map_err(|why| failed(&why))?;
        Ok(Socket {
            stream,
            frames: Frames::default(),
            random,
            buffer: vec![0; MAX_READ_BYTES],
            what,
            client: self.clone(),
        })
    }
}

impl Socket {
    /// The next message; `None` when the server has closed the connection. Exceeding `deadline` without a message is an
    /// error even if other frames arrive: a server may send pings forever.
    pub(super) fn message(&mut self, deadline: Option<Instant>) -> Result<Option<Vec<u8>>, Error> {
        let mut late = false;
        loop {
            match self.frames.next().map_err(|why| self.decode(why))? {
                Some(Frame::Message(bytes)) => return Ok(Some(bytes)),
                Some(Frame::Ping(bytes)) => self.frame(0xA, &bytes)?,
                Some(Frame::Close) => {
                    // Replies to a close frame; the server may have disconnected.
                    let _ = self.frame(8, &1000_u16.to_be_bytes());
                    return Ok(None);
                }
                None if late => return Err(self.overdue()),
                None => {
                    self.fill()?;
                    // The bytes just read may complete a message.
                    late = deadline.is_some_and(|deadline| Instant::now() > deadline);
                }
            }
        }
    }

    /// The error for a message past its deadline.
    pub(super) fn overdue(&self) -> Error {
        self.failed(&io::Error::new(io::ErrorKind::TimedOut, "nothing more was received"))
    }

    /// Reads available bytes, or sends a ping after a silence.
    fn fill(&mut self) -> Result<(), Error> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => {
                let why = io::Error::new(io::ErrorKind::UnexpectedEof, "the stream was cut off");
                Err(self.failed(&why))
            }
            Ok(length) => {
                self.frames.feed(&self.buffer[..length]);
                Ok(())
            }
            Err(why) if why.kind() == io::ErrorKind::TimedOut => self.frame(9, b""),
            Err(why) if why.kind() == io::ErrorKind::Interrupted && !self.client.stop().stopped() => Ok(()),
            Err(why) => Err(self.failed(&why)),
        }
    }

    /// `GET https://host/path`, for messages.
    pub(super) fn what(&self) -> &str {
        &self.what
    }

    fn frame(&mut self, opcode: u8, payload: &[u8]) -> Result<(), Error> {
        let mut mask = [0; 4];
        self.random.fill(&mut mask).map_err(|_| Error::Config("no random numbers available".into()))?;
        let bytes = encode(opcode, payload, mask);
        self.stream.write_all(&bytes).and_then(|()| self.stream.flush()).map_err(|why| self.failed(&why))
    }

    fn failed(&self, why: &io::Error) -> Error {
        if self.client.stop().stopped() { Error::Stopped } else { transport(&self.what, why) }
    }

    fn decode(&self, why: &str) -> Error {
        Error::Transport { what: self.what.clone(), why: format!("WebSocket: {why}"), stage: Stage::Sent }
    }
}

/// The server's expected response to our key.
fn accepted(key: &str) -> String {
    let salted = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, salted.as_bytes()))
}

fn encode(opcode: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 14);
    out.push(0x80 | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short @ 0..126), _) => out.push(0x80 | short),
        (_, Ok(long)) => {
            out.push(0x80 | 126);
            out.extend(long.to_be_bytes());
        }
        _ => {
            out.push(0x80 | 127);
            out.extend((payload.len() as u64).to_be_bytes());
        }
    }
    out.extend(mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// What a server sends, assembled from its frames.
#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Message(Vec<u8>),
    Ping(Vec<u8>),
    Close,
}

/// Turns bytes into frames, however they are split.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    /// Where the next frame starts in `bytes`.
    start: usize,
    /// The fragments so far of an incomplete message.
    partial: Option<Vec<u8>>,
}

impl Frames {
    fn feed(&mut self, bytes: &[u8]) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > MAX_READ_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame; `None` if more bytes are needed; an error is final.
    fn next(&mut self) -> Result<Option<Frame>, &'static str> {
        loop {
            let Some((head, payload)) = read_frame(&self.bytes[self.start..])? else { return Ok(None) };
            let payload = &self.bytes[self.start + payload.start..self.start + payload.end];
            let length = payload.len();
            let frame = match (head.opcode, self.partial.as_mut()) {
                (0x1 | 0x2, None) if head.last => Some(Frame::Message(payload.to_vec())),
                (0x1 | 0x2, None) => {
                    self.partial = Some(payload.to_vec());
                    None
                }
                (0x0, Some(partial)) => {
                    if partial.len() + length > MAX_MESSAGE_BYTES {
                        return Err("a message is too large");
                    }
                    partial.extend_from_slice(payload);
                    if head.last { self.partial.take().map(Frame::Message) } else { None }
                }
                (0x1 | 0x2, Some(_)) => return Err("a message starts inside another"),
                (0x0, None) => return Err("a message continues that never started"),
                (0x8, _) => Some(Frame::Close),
                (0x9, _) => Some(Frame::Ping(payload.to_vec())),
                (0xA, _) => None,
                _ => return Err("unknown kind of frame"),
            };
            self.start += head.length + length;
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }
}

struct Head {
    last: bool,
    opcode: u8,
    /// The length of the head itself.
    length: usize,
}

/// Parses one frame; the range is its payload.
fn read_frame(bytes: &[u8]) -> Result<Option<(Head, std::ops::Range<usize>)>, &'static str> {
    let [first, second, ..] = *bytes else { return Ok(None) };
    let (last, opcode) = (first & 0x80 != 0, first & 0x0F);
    if first & 0x70 != 0 {
        return Err("a frame uses an extension that was not negotiated");
    }
    if second & 0x80 != 0 {
        return Err("a frame from the server is masked");
    }
    let long = |width: usize| {
        let digits = bytes.get(2..2 + width)?;
        Some(digits.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let (head, length) = match second {
        126 => (4, long(2)),
        127 => (10, long(8)),
        short => (2, Some(u64::from(short))),
    };
    if opcode >= 8 && (second > 125 || !last) {
        return Err("a control frame is too large or fragmented");
    }
    let Some(length) = length else { return Ok(None) };
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= MAX_MESSAGE_BYTES)
        .ok_or("a message is too large")?;
    if bytes.len() - head < length {
        return Ok(None);
    }
    Ok(Some((Head { last, opcode, length: head }, head..head + length)))
}

/// The messages of a stream that arrives in these pieces, and the error that ended it.
#[cfg(any(fuzzing, test))]
pub(super) fn frames(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<&'static str>) {
    let (mut frames, mut found) = (Frames::default(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        frames.feed(piece);
        loop {
            match frames.next() {
                Ok(Some(Frame::Message(message))) => found.push(message),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(why) => return (found, Some(why)),
            }
        }
    }
    (found, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut masked = encode(first & 0x0F, payload, [0; 4]);
        let mask = masked.len() - payload.len() - 4;
        masked.drain(mask..mask + 4);
        masked[0] = first;
        masked[1] &= 0x7F;
        masked
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
    fn frames_are_put_together_however_they_are_cut() {
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
            assert!(found == wanted && error.is_none(), "in pieces of {piece}: {error:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (bytes, says) in [
            (vec![0xC2, 0], "extension"),
            (vec![0x82, 0x80, 0, 0, 0, 0], "masked"),
            (vec![0x83, 0], "unknown kind"),
            (vec![0x09, 0], "control frame"),
            (vec![0x89, 126, 0, 200], "control frame"),
            (vec![0x80, 0], "never started"),
            ([frame(0x02, b"a"), frame(0x82, b"b")].concat(), "starts inside another"),
            (vec![0x82, 127, 0xFF, 0, 0, 0, 0, 0, 0, 0], "too large"),
            ([frame(0x02, &vec![0; MAX_MESSAGE_BYTES]), frame(0x80, b"x")].concat(), "too large"),
        ] {
            let (_, error) = read(&bytes, usize::MAX);
            assert!(error.is_some_and(|why| why.contains(says)), "{says}: {error:?}");
        }
    }

    /// Random bytes, and real streams with random damage, in random pieces: never a panic, never more memory than was
    /// received, and the same outcome whatever the pieces.
    #[test]
    fn any_bytes_do_no_harm() {
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
                (0..length).map(|_| u8::try_from(random(256)).unwrap()).collect()
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
            let held: usize =
                whole.0.iter().map(|frame| if let Frame::Message(m) = frame { m.len() } else { 0 }).sum();
            assert!(held <= bytes.len());
            assert_eq!(read(&bytes, random(9) + 1), whole, "{bytes:?}");
        }
    }

    /// Upgrades one connection, then sends `round` again and again; each time it waits for the answer to its ping.
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
            let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: {}\r\n\
                 Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
                accepted(key)
            );
            socket.write_all(answer.as_bytes()).unwrap();
            let mut pong = [0; 6 + 4];
            (0..)
                .take_while(|_| {
                    let sent =
                        socket.write_all(&round).and_then(|()| socket.write_all(&frame(0x89, b"ping")));
                    sent.and_then(|()| socket.read_exact(&mut pong)).is_ok() && pong[0] == 0x8A
                })
                .count()
        });
        (address, thread)
    }

    #[test]
    fn a_server_that_sends_everything_but_output_is_silent() {
        let silence = Duration::from_millis(200);
        for (round, lasts) in [
            (Vec::new(), false),
            (frame(0x82, &[1]), false),
            (frame(0x82, b"\x02words"), false),
            (frame(0x82, b"\x01output"), true),
        ] {
            let (address, server) = server(round.clone());
            let client =
                Client::new(super::super::Config::plain(address), &crate::stop::Stop::new()).unwrap();
            let (started, mut came) = (Instant::now(), 0);
            let outcome = client.exec(("default", "p", "c"), &["x"], Some(silence), &mut |bytes| {
                came += bytes.len();
                // Long after the time of silence it is still heard.
                if started.elapsed() > silence * 3 { Err("enough".into()) } else { Ok(()) }
            });
            let error = outcome.unwrap_err().to_string();
            let says = if lasts { "enough" } else { "nothing more was received" };
            assert!(error.contains(says) && (came > 0) == lasts, "{round:?}: {error}");
            assert!(started.elapsed() > silence, "{round:?}: {error}");
            assert!(server.join().unwrap() > 2, "its pings were answered");
        }
    }

    #[test]
    fn the_key_is_answered_as_the_standard_says() {
        assert_eq!(accepted("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
