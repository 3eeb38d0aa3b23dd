//! A byte stream to a server: TCP, an optional proxy, TLS. ureq speaks HTTP over it.
//!
//! Owns connecting and the end of blocked reads: a stop shuts the socket down, and keep-alive
//! detects dead peers. ureq's own connector supports neither a custom server name, nor proxies by
//! Go's rules, nor a stop. Knows nothing about HTTP except a proxy's `CONNECT`. Starts no thread.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::http::Uri;
use ureq::typestate::AgentScope;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use crate::proxy::{Proxy, Scheme, authority, place};
use crate::stop::{Hook, Stop};
use crate::sys;
use crate::tls::{self, Identity, Trust};

/// Timeout per address, so that an unreachable address does not delay the next one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of proxy and TLS handshakes: longer than any successful one, short enough for
/// interactive use.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// A silent peer is probed after this long, three times.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Settings of connections.
#[derive(Clone)]
pub struct Dialer {
    /// For addresses with `https`, which it needs.
    pub tls: Option<Arc<ClientConfig>>,
    /// The name that certificates must have, if not the one in the address.
    pub server_name: Option<ServerName<'static>>,
    /// The proxy to use instead of those of the environment.
    pub proxy: Option<Proxy>,
    /// Ends the connections opened with it.
    pub stop: Stop,
}

/// An open connection.
pub struct Stream {
    io: Box<dyn Io>,
    tcp: Arc<TcpStream>,
    /// The server's certificate, with TLS.
    pub certificate: Option<CertificateDer<'static>>,
    _hook: Hook,
}

trait Io: Read + Write + Send + Sync {}
impl<T: Read + Write + Send + Sync> Io for T {}

impl Dialer {
    /// Connections to any server that this machine trusts.
    pub fn new(stop: &Stop) -> anyhow::Result<Self> {
        let tls = tls::client_config(&Trust::System, &Identity::default())?;
        Ok(Self {
            tls: Some(tls),
            server_name: None,
            proxy: None,
            stop: stop.clone(),
        })
    }

    /// ureq over these connections.
    pub fn agent(&self, config: ConfigBuilder<AgentScope>) -> Agent {
        // The dialer handles proxies.
        Agent::with_parts(config.proxy(None).build(), self.clone(), self.clone())
    }

    /// Connects to the server of `uri` within `left`; an error names a proxy or handshake that
    /// failed.
    pub fn dial(&self, uri: &Uri, left: Duration) -> Result<Stream, ureq::Error> {
        // `Io` would mean that the request may have been sent.
        self.connected(uri, left)
            .map_err(|error| ureq::Error::Other(Box::new(error)))
    }

    fn connected(&self, uri: &Uri, left: Duration) -> io::Result<Stream> {
        let end = Instant::now().checked_add(left);
        let time_left = || {
            end.map_or(Duration::MAX, |end| {
                end.saturating_duration_since(Instant::now())
            })
        };
        let server = place(uri);
        let proxy = match &self.proxy {
            Some(proxy) => Some(proxy.clone()),
            None => Proxy::before(uri).map_err(|error| invalid(format!("{error:#}")))?,
        };
        let (host, port) = proxy
            .as_ref()
            .map_or(server, |proxy| (&*proxy.host, proxy.port));
        let by_proxy = |error| within(error, &format!("proxy `{host}:{port}`"));
        let opened = self.open(host, port, &time_left);
        let (tcp, hook) = opened.map_err(|error| {
            if proxy.is_some() {
                by_proxy(error)
            } else {
                error
            }
        })?;
        let limit = || {
            let limit = Some(
                time_left()
                    .min(HANDSHAKE_TIMEOUT)
                    .max(Duration::from_millis(1)),
            );
            tcp.set_read_timeout(limit)
                .and_then(|()| tcp.set_write_timeout(limit))
        };
        let mut io: Box<dyn Io> = Box::new(tcp.try_clone()?);
        if let Some(proxy) = &proxy {
            limit()?;
            io = pass(io, proxy, server).map_err(by_proxy)?;
        }
        let mut certificate = None;
        if uri.scheme_str() == Some("https") {
            limit()?;
            let config = self
                .tls
                .as_ref()
                .ok_or_else(|| invalid("TLS is not set up"))?;
            let name = match &self.server_name {
                Some(name) => name.clone(),
                None => tls::server_name(server.0).map_err(invalid)?,
            };
            (io, certificate) = handshake(io, config, name)
                .map_err(|e| within(e, &format!("TLS with `{}:{}`", server.0, server.1)))?;
        }
        Ok(Stream {
            io,
            tcp,
            certificate,
            _hook: hook,
        })
    }

    fn open(
        &self,
        host: &str,
        port: u16,
        left: &dyn Fn() -> Duration,
    ) -> io::Result<(Arc<TcpStream>, Hook)> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
        for (rest, address) in (1..=addresses.len() as u32).rev().zip(addresses) {
            // The remaining time is divided equally among the remaining addresses.
            let limit = (left() / rest).min(CONNECT_TIMEOUT);
            match self.open_one(address, limit) {
                Err(error) if !self.stop.stopped() => failure = error,
                done => return done,
            }
        }
        Err(failure)
    }

    /// `TcpStream::connect_timeout` would create a socket that cannot be shut down while
    /// connecting.
    fn open_one(&self, address: SocketAddr, limit: Duration) -> io::Result<(Arc<TcpStream>, Hook)> {
        let tcp = Arc::new(sys::socket(address)?);
        let shared = Arc::downgrade(&tcp);
        let hook = self.stop.on_stop(move || {
            if let Some(tcp) = shared.upgrade() {
                // An error means that it is already closed.
                let _ = tcp.shutdown(Shutdown::Both);
            }
        });
        sys::finish_connecting(&tcp, address, limit, || self.stop.stopped()).map_err(timed_out)?;
        tcp.set_nodelay(true)?;
        sys::keep_alive(&tcp, KEEP_ALIVE_INTERVAL, 3)?;
        Ok((tcp, hook))
    }
}

/// Passes a proxy.
fn pass(mut io: Box<dyn Io>, proxy: &Proxy, (host, port): (&str, u16)) -> io::Result<Box<dyn Io>> {
    if proxy.scheme == Scheme::Https {
        let config = tls::client_config(&Trust::System, &Identity::default());
        let config = config.map_err(|error| invalid(format!("{error:#}")))?;
        io = handshake(io, &config, tls::server_name(&proxy.host).map_err(invalid)?)?.0;
    }
    let connect = if proxy.scheme == Scheme::Socks5 {
        socks5
    } else {
        tunnel
    };
    connect(&mut *io, proxy, host, port).map(|()| io)
}

impl Stream {
    /// Limits the duration of each read and write.
    pub fn limit(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.tcp
            .set_read_timeout(Some(read))
            .and_then(|()| self.tcp.set_write_timeout(Some(write)))
    }

    /// Whether an idle connection can be reused: no pending data, and not closed.
    fn is_quiet(&self) -> bool {
        if self.tcp.set_nonblocking(true).is_err() {
            return false;
        }
        let quiet =
            matches!(self.tcp.peek(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        self.tcp.set_nonblocking(false).is_ok() && quiet
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.io.read(buffer) {
            // Some servers close without `close_notify`; framing detects missing data.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other.map_err(timed_out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.io.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.io.flush()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.tcp.peer_addr().ok())
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

impl Connector<()> for Dialer {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        let stream = self.dial(
            details.uri,
            details
                .timeout
                .not_zero()
                .map_or(Duration::MAX, |left| *left),
        )?;
        let (input, output) = (
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        Ok(Some(Connection {
            stream,
            buffers: LazyBuffers::new(input, output),
            broken: false,
        }))
    }
}

/// ureq resolves before it connects; here resolving is part of connecting, or is left to the proxy.
impl Resolver for Dialer {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Ok(addresses)
    }
}

/// A connection as ureq sees it.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    buffers: LazyBuffers,
    broken: bool,
}

impl Connection {
    fn failed(&mut self, error: io::Error, timeout: NextTimeout) -> ureq::Error {
        self.broken = true;
        match error.kind() {
            io::ErrorKind::TimedOut => ureq::Error::Timeout(timeout.reason),
            _ => error.into(),
        }
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let timeout = timeout.for_write();
        self.stream
            .tcp
            .set_write_timeout(timeout.not_zero().map(|limit| *limit))?;
        let sent = self
            .stream
            .write_all(&self.buffers.output()[..amount])
            .and_then(|()| self.stream.flush());
        sent.map_err(|error| self.failed(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeout = timeout.for_read();
        self.stream
            .tcp
            .set_read_timeout(timeout.not_zero().map(|limit| *limit))?;
        let amount = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error, timeout)),
                Ok(amount) => break amount,
            }
        };
        self.buffers.input_appended(amount);
        self.broken |= amount == 0;
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        !self.broken && self.stream.is_quiet()
    }

    fn is_tls(&self) -> bool {
        // Regardless of the scheme, ureq must not add TLS.
        true
    }
}

fn handshake(
    mut io: Box<dyn Io>,
    config: &Arc<ClientConfig>,
    name: ServerName<'static>,
) -> io::Result<(Box<dyn Io>, Option<CertificateDer<'static>>)> {
    let mut connection = ClientConnection::new(config.clone(), name).map_err(invalid)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut io)?;
    }
    let certificate = connection
        .peer_certificates()
        .and_then(|chain| chain.first())
        .cloned();
    Ok((Box::new(StreamOwned::new(connection, io)), certificate))
}

fn tunnel(io: &mut dyn Io, proxy: &Proxy, host: &str, port: u16) -> io::Result<()> {
    let target = authority(host, port);
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some((user, password)) = &proxy.login {
        let login = BASE64_STANDARD.encode(format!("{user}:{password}"));
        head.push_str(&format!("Proxy-Authorization: Basic {login}\r\n"));
    }
    head.push_str("\r\n");
    io.write_all(head.as_bytes())?;
    let answer = read_head(io)?;
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    response.parse(&answer).map_err(invalid)?;
    match response.code {
        Some(200..=299) => Ok(()),
        code => {
            let reason = response.reason.unwrap_or_default();
            Err(invalid(format!(
                "it refused to connect to `{target}`: {} {reason}",
                code.unwrap_or(0)
            )))
        }
    }
}

/// Reads exactly to the end of a head: the following bytes belong to the tunnelled protocol.
pub fn read_head(io: &mut (impl Read + ?Sized)) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(512);
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= 64 << 10 {
            return Err(invalid("the response head is larger than 64 KiB"));
        }
        io.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(head)
}

/// Connects through a SOCKS5 proxy (RFC 1928 and 1929).
fn socks5(io: &mut dyn Io, proxy: &Proxy, host: &str, port: u16) -> io::Result<()> {
    let short = |text: &str| {
        u8::try_from(text.len()).map_err(|_| invalid("a name is longer than 255 bytes"))
    };
    io.write_all(if proxy.login.is_some() {
        &[5, 2, 0, 2]
    } else {
        &[5, 1, 0]
    })?;
    let mut answer = [0; 2];
    io.read_exact(&mut answer)?;
    match (answer, &proxy.login) {
        ([5, 0], _) => {}
        ([5, 2], Some((user, password))) => {
            let mut login = vec![1, short(user)?];
            login.extend(user.bytes());
            login.push(short(password)?);
            login.extend(password.bytes());
            io.write_all(&login)?;
            io.read_exact(&mut answer)?;
            if answer[1] != 0 {
                return Err(invalid("it rejected the user or password"));
            }
        }
        _ => return Err(invalid("it offers no supported login method")),
    }
    let mut wish = vec![5, 1, 0];
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            wish.push(1);
            wish.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            wish.push(4);
            wish.extend(address.octets());
        }
        Err(_) => {
            wish.extend([3, short(host)?]);
            wish.extend(host.bytes());
        }
    }
    wish.extend(port.to_be_bytes());
    io.write_all(&wish)?;
    let mut reply = [0; 4];
    io.read_exact(&mut reply)?;
    if reply[0] != 5 || reply[1] != 0 {
        let target = authority(host, port);
        return Err(invalid(format!(
            "it refused to connect to `{target}`: code {}",
            reply[1]
        )));
    }
    let length = match reply[3] {
        1 => 4,
        4 => 16,
        3 => {
            let mut length = [0];
            io.read_exact(&mut length)?;
            length[0].into()
        }
        _ => return Err(invalid("its response is malformed")),
    };
    // The address and port of the proxy's own end.
    io.read_exact(&mut vec![0; length + 2])
}

/// Adds the place, and keeps a TLS error inside, so that callers can distinguish it from a
/// temporary failure.
fn within(error: io::Error, place: &str) -> io::Error {
    if matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>()) {
        return error;
    }
    let why = timed_out(error);
    io::Error::new(why.kind(), format!("{place}: {why}"))
}

/// Names an expired timeout of a socket, which the system calls by several names.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, "timed out")
        }
        _ => error,
    }
}

fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}
