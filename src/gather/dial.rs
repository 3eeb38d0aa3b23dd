//! A single connection, step by step: reports which step fails and the duration of each.
//!
//! Owns TCP, TLS and one plain HTTP/1.0 request with limits on time and size. Starts no thread.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use base::clock;
use base::kube::{Identity, Trust, client_config};

/// Maximum bytes of a response.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// An established connection.
pub(crate) struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    host: String,
    pub timings: Timings,
}

/// Durations of the TCP connect and the TLS handshake.
#[derive(Clone, Copy, Default)]
pub(crate) struct Timings {
    pub connect: Duration,
    pub handshake: Duration,
}

/// An HTTP response.
pub(crate) struct Response {
    /// The status code, such as 200.
    pub status: u16,
    /// The server's time, to the second.
    pub date: Option<SystemTime>,
    /// Times at which the request was sent and the head of the response was received.
    pub between: (SystemTime, SystemTime),
    /// The body.
    pub body: Vec<u8>,
    /// Those of its connection.
    pub timings: Timings,
}

/// Connects to `host:port` and does a TLS handshake, each within `limit`; presents a certificate if the server requests
/// one.
pub(crate) fn dial(
    (trust, identity): &(Trust, Identity),
    host: &str,
    port: u16,
    limit: Duration,
) -> Result<Connection> {
    let mut addresses = (host, port).to_socket_addrs().with_context(|| format!("cannot look up `{host}`"))?;
    let address = addresses.next().with_context(|| format!("`{host}` has no address"))?;
    let started = Instant::now();
    let mut stream = connect(address, limit)?;
    let connect = started.elapsed();
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(host.to_owned())
        .with_context(|| format!("`{host}` is not the name of a server"))?;
    let mut tls = ClientConnection::new(client_config(trust, identity)?, name)?;
    let started = Instant::now();
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let seconds = limit.as_secs();
                anyhow!("{address} accepts connections but does not answer within {seconds} s: it is overloaded, or something between drops packets")
            }
            _ => anyhow!(error).context(format!("{address} accepts connections but does not agree on TLS")),
        })?;
    }
    let timings = Timings { connect, handshake: started.elapsed() };
    Ok(Connection { stream: StreamOwned::new(tls, stream), host: host.to_owned(), timings })
}

fn connect(address: SocketAddr, limit: Duration) -> Result<TcpStream> {
    let stream =
        TcpStream::connect_timeout(&address, limit).with_context(|| format!("no connection to {address}"))?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    Ok(stream)
}

impl Connection {
    /// Requests `path`, with an optional token.
    pub(crate) fn get(mut self, path: &str, token: Option<&str>) -> Result<Response> {
        let authority = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        // HTTP/1.0: the response arrives unchunked and ends the connection.
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\n{authority}\r\n",
            self.host
        );
        self.exchange(request.as_bytes())
    }

    /// Sends `bytes` bytes to a server that echoes them; returns the path MTU that the kernel has learned.
    pub(crate) fn echo(mut self, bytes: usize) -> Result<Option<u32>> {
        let mut request =
            format!("PUT / HTTP/1.0\r\nHost: {}\r\nContent-Length: {bytes}\r\n\r\n", self.host).into_bytes();
        request.resize(request.len() + bytes, 0);
        let answer = self.exchange(&request)?;
        ensure!(answer.status == 200, "the answer is {}", answer.status);
        ensure!(answer.body.len() == bytes, "{} of {bytes} bytes came back", answer.body.len());
        let mtu = if self.stream.sock.peer_addr()?.is_ipv4() { sockopt::ip_mtu } else { sockopt::ipv6_mtu };
        Ok(mtu(&self.stream.sock).inspect_err(|error| log::debug!("no path MTU: {error}")).ok())
    }

    fn exchange(&mut self, request: &[u8]) -> Result<Response> {
        let answer = exchange(&mut self.stream, request)?;
        Ok(Response { timings: self.timings, ..answer })
    }
}

/// Requests `path` from `address` without TLS, for servers on this machine.
pub(crate) fn get_plain(address: SocketAddr, path: &str, limit: Duration) -> Result<Response> {
    exchange(
        &mut connect(address, limit)?,
        format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes(),
    )
}

fn exchange(stream: &mut (impl Read + Write), request: &[u8]) -> Result<Response> {
    let sent = SystemTime::now();
    stream.write_all(request).context("the request was not accepted")?;
    let mut bytes = vec![0; 4_096];
    let length = stream.read(&mut bytes).context("no answer came")?;
    let came = SystemTime::now();
    ensure!(length > 0, "the server ended the connection without an answer");
    bytes.truncate(length);
    match stream.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes) {
        // Many servers close the connection without `close_notify`.
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error).context("no answer came"),
        _ => parse(&bytes, (sent, came)),
    }
}

fn parse(bytes: &[u8], between: (SystemTime, SystemTime)) -> Result<Response> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(end) = head.parse(bytes).context("the answer is not HTTP")? else {
        bail!("the answer was cut");
    };
    let date = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("date"));
    let date = date.and_then(|header| clock::parse_http_date(std::str::from_utf8(header.value).ok()?));
    let (status, body) = (head.code.unwrap_or(0), bytes[end..].to_vec());
    Ok(Response { status, date, between, body, timings: Timings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_has_code_date_and_body() {
        let now = SystemTime::now();
        let answer =
            parse(b"HTTP/1.0 403 Forbidden\r\nDate: Sat, 21 Nov 2026 02:40:49 GMT\r\n\r\n{}", (now, now))
                .unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (403, &b"{}"[..]));
        assert_eq!(clock::rfc3339(answer.date.unwrap()), "2026-11-21T02:40:49.000Z");
        for broken in ["", "HTTP/1.0 200", "\0\0\0", "SSH-2.0-x\r\n\r\n"] {
            assert!(parse(broken.as_bytes(), (now, now)).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn absent_listener_is_reported() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = dial(&(Trust::Anybody, Identity::default()), "127.0.0.1", free, Duration::from_secs(1))
            .err()
            .unwrap();
        assert!(format!("{error:#}").contains("no connection to 127.0.0.1"), "{error:#}");
    }
}
