//! Bytes in and out of one connection, within time limits: plain TCP, or TLS over it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConnection;

use super::meter::Meter;

/// How much is asked of the wire when a head or a chunk's length is looked for.
const FILL: usize = 4 * 1024;
/// How much is read at most from the wire of TLS at once.
const MAX_AHEAD: usize = 64 * 1024;
/// What the system keeps of a peer on the same machine: there is no distance to bridge, and what lies in a long queue
/// has left the processor's cache when it is read.
const NEAR: usize = 256 * 1024;
/// One connection, whatever it stands on.
pub(super) trait Wire: Read + Write + Send {
    /// From now on reads and writes wait for the peer, which is timed; without a meter they wait for nobody.
    fn set_patient(&mut self, meter: Option<Arc<Meter>>) -> io::Result<()>;
    /// Says good-bye, and nothing more.
    fn close(&mut self);
}

/// A TCP connection of which every read and write is limited.
pub(super) struct Socket {
    tcp: Arc<TcpStream>,
    /// Who counts the time; without one nobody is waited for.
    meter: Option<Arc<Meter>>,
    /// How much may be read of a handshake.
    greeting: Option<usize>,
}

impl Socket {
    pub(super) fn new(tcp: Arc<TcpStream>, stall: Duration) -> io::Result<Self> {
        // The system takes zero for no limit at all.
        let stall = stall.max(Duration::from_millis(1));
        tcp.set_nodelay(true)?;
        tcp.set_write_timeout(Some(stall))?;
        tcp.set_read_timeout(Some(stall))?;
        if tcp.local_addr()?.ip() == tcp.peer_addr()?.ip() {
            // Only speed is lost if it cannot be.
            let _ = crate::sys::receive_buffer(&tcp, NEAR);
        }
        Ok(Self { tcp, meter: None, greeting: None })
    }

    /// Bounds what is read until hands are shaken: whoever has no certificate decides how much of it there is.
    pub(super) fn bound_greeting(&mut self, bytes: Option<usize>) {
        self.greeting = bytes;
    }

    /// The connection itself.
    pub(super) fn shared(&self) -> Arc<TcpStream> {
        Arc::clone(&self.tcp)
    }
}

fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &self.meter {
                None => {
                    let read = (&*self.tcp).read(buffer);
                    if let (Some(left), Ok(got)) = (&mut self.greeting, &read) {
                        *left = left.checked_sub(*got).ok_or(io::ErrorKind::InvalidData)?;
                    }
                    read
                }
                Some(meter) => meter.time(false, || (&*self.tcp).read(buffer)).map_err(timed_out),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &self.meter {
            None => (&*self.tcp).write(buffer),
            Some(meter) => meter.time(true, || (&*self.tcp).write(buffer)).map_err(timed_out),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Socket {
    fn set_patient(&mut self, meter: Option<Arc<Meter>>) -> io::Result<()> {
        self.tcp.set_nonblocking(meter.is_none())?;
        self.meter = meter;
        Ok(())
    }

    fn close(&mut self) {
        // The peer may be gone already; there is nobody to tell.
        let _ = self.tcp.shutdown(Shutdown::Write);
    }
}

/// A socket of which more is read at once than is asked for: TLS asks for 4 KiB each time, and every call of the system costs
/// about as much as deciphering that.
struct Ahead {
    socket: Socket,
    /// What was read, of which the first `used` bytes were given away.
    buffer: Vec<u8>,
    used: usize,
    /// How much the next read asks for: ever more, while as much is there.
    size: usize,
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.used == self.buffer.len() {
            self.used = 0;
            self.buffer.truncate(self.size);
            self.buffer.shrink_to(self.size);
            self.buffer.resize(self.size, 0);
            let read = self.socket.read(&mut self.buffer);
            match read.as_ref().map_or(0, |&got| got) {
                // One who is silent keeps no memory.
                0 => self.buffer = Vec::new(),
                got => self.buffer.truncate(got),
            }
            if read? == self.size {
                self.size = (self.size * 2).min(MAX_AHEAD);
            }
        }
        let got = (&self.buffer[self.used..]).read(buffer)?;
        self.used += got;
        Ok(got)
    }
}

impl Write for Ahead {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.socket.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// TLS over a socket.
pub(super) struct Tls {
    connection: ServerConnection,
    socket: Ahead,
}

impl Tls {
    /// A connection whose hands are to be shaken.
    pub(super) fn begin(config: Arc<rustls::ServerConfig>) -> io::Result<ServerConnection> {
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        // What waits to be sent is bounded: answers are written in pieces, and each waits for the wire.
        connection.set_buffer_limit(Some(64 * 1024));
        Ok(connection)
    }

    /// A connection whose hands were shaken.
    pub(super) fn new(connection: ServerConnection, mut socket: Socket) -> Self {
        socket.bound_greeting(None);
        Self { connection, socket: Ahead { socket, buffer: Vec::new(), used: 0, size: FILL } }
    }

    /// The certificate that the peer has shown.
    pub(super) fn certificate(&self) -> Option<rustls::pki_types::CertificateDer<'static>> {
        Some(self.connection.peer_certificates()?.first()?.clone().into_owned())
    }
}

impl Read for Tls {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.len() <= FILL {
            // A head, of which there is no more.
            self.socket.size = FILL;
        }
        rustls::Stream::new(&mut self.connection, &mut self.socket).read(buffer)
    }
}

impl Write for Tls {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        rustls::Stream::new(&mut self.connection, &mut self.socket).write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        rustls::Stream::new(&mut self.connection, &mut self.socket).flush()
    }
}

impl Wire for Tls {
    fn set_patient(&mut self, meter: Option<Arc<Meter>>) -> io::Result<()> {
        self.socket.socket.set_patient(meter)
    }

    fn close(&mut self) {
        self.connection.send_close_notify();
        // As above: a peer that is gone needs no farewell.
        let _ = self.flush();
        self.socket.socket.close();
    }
}

/// A wire with what was read from it too early.
pub(super) struct Input {
    pub(super) wire: Box<dyn Wire>,
    buffer: Vec<u8>,
    start: usize,
}

impl Input {
    pub(super) fn new(wire: Box<dyn Wire>) -> Self {
        Self { wire, buffer: Vec::new(), start: 0 }
    }

    /// What was read and not used yet.
    pub(super) fn pending(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Marks the first bytes of what is pending as used.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.buffer.len());
    }

    /// Reads some more behind what is pending; 0 at the end.
    pub(super) fn fill(&mut self) -> io::Result<usize> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.is_empty() {
            // The room that one large head took is not kept for the life of the connection.
            self.buffer.shrink_to(FILL);
        }
        let old = self.buffer.len();
        self.buffer.resize(old + FILL, 0);
        let result = self.wire.read(&mut self.buffer[old..]);
        self.buffer.truncate(old + result.as_ref().map_or(0, |&got| got));
        result
    }
}
