//! Bytes in and out of one connection, within deadlines: plain TCP, or TLS over it.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::{ServerConnection, StreamOwned};

use super::meter::Meter;

/// Bytes read at a time while a head or the length of a chunk is looked for.
const FILL: usize = 4 * 1024;
/// Bytes of TLS read in one system call; rustls alone asks for 4 KiB.
const READ_BYTES: usize = 32 * 1024;

/// One connection, plain or encrypted.
pub(super) trait Wire: Read + Write + Send {
    /// Fails reads after `deadline`; without one, after the stall timeout of each.
    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()>;
    /// Announces the end and sends nothing more.
    fn close(&mut self);
}

/// A TCP connection with timeouts.
pub(super) struct Socket {
    tcp: Arc<TcpStream>,
    meter: Arc<Meter>,
    deadline: Option<Instant>,
    stall: Duration,
}

impl Socket {
    pub(super) fn new(meter: Arc<Meter>, stall: Duration) -> io::Result<Self> {
        let tcp = Arc::clone(meter.socket().ok_or(io::ErrorKind::NotConnected)?);
        // Zero would mean no timeout.
        let stall = stall.max(Duration::from_millis(1));
        tcp.set_nodelay(true)?;
        tcp.set_write_timeout(Some(stall))?;
        tcp.set_read_timeout(Some(stall))?;
        Ok(Self { tcp, meter, deadline: None, stall })
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        if deadline.is_none() { self.tcp.set_read_timeout(Some(self.stall)) } else { Ok(()) }
    }
}

/// Reports the system's word for an expired timeout as what it is.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(deadline) = self.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                self.tcp.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            }
            match self.meter.time(false, || (&*self.tcp).read(buffer)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(timed_out),
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.meter.time(true, || (&*self.tcp).write(buffer)).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Socket {
    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.set_deadline(deadline)
    }

    fn close(&mut self) {
        // The peer may have gone by itself.
        let _ = self.tcp.shutdown(Shutdown::Write);
    }
}

/// A socket with a buffer for reading.
pub(super) struct Buffered(BufReader<Socket>);

impl Read for Buffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.0.fill_buf()?.read(buffer)?;
        self.0.consume(got);
        Ok(got)
    }
}

impl Write for Buffered {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// TLS over a socket.
pub(super) struct Tls(StreamOwned<ServerConnection, Buffered>);

/// Performs the handshake until `deadline`. A refusal is sent to the peer before it is returned.
pub(super) fn handshake(
    config: Arc<rustls::ServerConfig>,
    mut socket: Socket,
    deadline: Instant,
) -> io::Result<Tls> {
    socket.set_deadline(Some(deadline))?;
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    // Responses are written in pieces, each of which waits for the peer.
    connection.set_buffer_limit(Some(READ_BYTES));
    let buffered = Buffered(BufReader::with_capacity(READ_BYTES, socket));
    let mut tls = Tls(StreamOwned::new(connection, buffered));
    while tls.0.conn.is_handshaking() {
        // On an error this has sent the alert already.
        if tls.0.conn.complete_io(&mut tls.0.sock)? == (0, 0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(tls)
}

impl Tls {
    /// The certificate that the peer has shown.
    pub(super) fn certificate(&self) -> Option<CertificateDer<'static>> {
        Some(self.0.conn.peer_certificates()?.first()?.clone().into_owned())
    }
}

impl Read for Tls {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Tls {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Wire for Tls {
    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.0.sock.0.get_mut().set_deadline(deadline)
    }

    fn close(&mut self) {
        self.0.conn.send_close_notify();
        // The peer may have gone by itself.
        let _ = self.0.flush();
        self.0.sock.0.get_mut().close();
    }
}

/// A wire, and bytes that were read from it and not used yet.
pub(super) struct Input {
    pub(super) wire: Box<dyn Wire>,
    buffer: Vec<u8>,
    start: usize,
}

impl Input {
    pub(super) fn new(wire: Box<dyn Wire>) -> Self {
        Self { wire, buffer: Vec::new(), start: 0 }
    }

    /// The bytes that were read and not used yet.
    pub(super) fn pending(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Marks the first pending bytes as used.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.buffer.len());
    }

    /// Reads more behind the pending bytes; 0 at the end.
    pub(super) fn fill(&mut self) -> io::Result<usize> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.is_empty() {
            // One large head must not cost memory for the rest of the connection.
            self.buffer.shrink_to(FILL);
        }
        let old = self.buffer.len();
        self.buffer.resize(old + FILL, 0);
        let result = self.wire.read(&mut self.buffer[old..]);
        self.buffer.truncate(old + result.as_ref().map_or(0, |&got| got));
        result
    }
}
