//! The bytes of one connection: a measured socket with deadlines, and TLS over it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Limits;

/// A request is slow when its peer has been waited for this long; a busy client may need a second
/// to begin ...
const SLOW_AFTER: Duration = Duration::from_secs(3);
/// ... and brings fewer bytes per second.
const SLOW_RATE: u64 = 32 << 10;
/// Silence after which another upload of the same result replaces an upload.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// Time for which bytes of a peer are discarded after its last response.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of TLS read in one system call at first; rustls alone asks for 4 KiB ...
const READ_BYTES: usize = 32 << 10;
/// ... and after reads that filled the buffer, which only a large body does.
const BULK_READ_BYTES: usize = 256 << 10;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Phase {
    /// The handshake, which has its own deadline.
    #[default]
    Handshake,
    /// Waiting for a request, or for the peer to read a last response.
    Idle,
    /// Reading a request or writing a response.
    Request,
}

/// Measures one connection, and ends it in favour of others.
#[derive(Default)]
pub struct Meter {
    socket: Option<TcpStream>,
    stall: Duration,
    rate: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    deadline: Option<Instant>,
    since: Option<Instant>,
    writing: bool,
    waited: Duration,
    bytes: u64,
    evicted: bool,
}

impl Meter {
    pub(super) fn new(socket: TcpStream, limits: &Limits) -> io::Result<Self> {
        // Zero would mean no timeout.
        let stall = limits.stall.max(Duration::from_millis(1));
        // Nagle's algorithm would hold a short response back until the peer acknowledges the
        // previous one.
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(stall))?;
        socket.set_read_timeout(Some(stall))?;
        Ok(Self {
            socket: Some(socket),
            stall,
            rate: limits.rate,
            state: Mutex::default(),
        })
    }

    /// The connection; an error for a meter without one.
    pub(super) fn socket(&self) -> io::Result<&TcpStream> {
        self.socket
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Makes reads fail after `limit` from now; `None` restores the stall timeout of each read.
    pub fn finish_within(&self, limit: Option<Duration>) {
        self.lock().deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        if limit.is_none() {
            // A socket that refuses a timeout fails at its next read, too.
            let _ = self
                .socket()
                .and_then(|socket| socket.set_read_timeout(Some(self.stall)));
        }
    }

    /// Discards what the peer still sends: closing the connection before would make its system
    /// discard the response.
    pub(super) fn linger(self: &Arc<Self>) {
        // The peer may have left.
        let _ = self
            .socket()
            .and_then(|socket| socket.shutdown(Shutdown::Write));
        self.enter(Phase::Idle, Some(LINGER_TIMEOUT));
        let _ = io::copy(&mut Socket(Arc::clone(self)), &mut io::sink());
    }

    /// Begins a phase, whose reads fail as [`Self::finish_within`] says.
    pub(super) fn enter(&self, phase: Phase, limit: Option<Duration>) {
        let mut state = self.lock();
        *state = State {
            phase,
            // Whoever evicted the connection relies on its end, also during a later phase.
            evicted: state.evicted,
            ..State::default()
        };
        drop(state);
        self.finish_within(limit);
    }

    /// Performs one read or write, and counts its time and bytes.
    pub fn time(
        &self,
        writing: bool,
        step: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let begun = Instant::now();
        {
            let mut state = self.lock();
            (state.since, state.writing) = (Some(begun), writing);
        }
        let moved = step();
        let mut state = self.lock();
        state.since = None;
        state.waited += begun.elapsed();
        state.bytes += moved.as_ref().map_or(0, |&moved| moved as u64);
        if writing {
            // An evicted connection may still get its response.
            return moved;
        }
        // Each byte buys time, so that a peer at the minimum rate is never too slow. A rate of zero
        // is no minimum.
        let earned = state
            .bytes
            .checked_div(self.rate)
            .map_or(Duration::MAX, Duration::from_secs);
        if state.evicted {
            Err(io::ErrorKind::ConnectionAborted.into())
        } else if state.phase == Phase::Request && state.waited > self.stall.saturating_add(earned)
        {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            moved
        }
    }

    /// Bytes per second of a slow request; 0 for an idle connection; `None` for all others.
    pub fn slowness(&self) -> Option<u64> {
        let state = self.lock();
        let waiting = state.since.map_or(Duration::ZERO, |since| since.elapsed());
        let milliseconds = u64::try_from((state.waited + waiting).as_millis()).unwrap_or(u64::MAX);
        match state.phase {
            _ if state.evicted => None,
            Phase::Handshake => None,
            Phase::Idle => Some(0),
            Phase::Request => {
                let rate = state.bytes.saturating_mul(1000) / milliseconds.max(1);
                (u128::from(milliseconds) >= SLOW_AFTER.as_millis() && rate < SLOW_RATE)
                    .then_some(rate)
            }
        }
    }

    /// The bytes of the request under way.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Whether another upload of the same result may replace it: it was ended, is slow, or has been
    /// silent for a second.
    pub fn is_stalled(&self) -> bool {
        // Copied: `slowness` takes the same lock.
        let State { since, evicted, .. } = *self.lock();
        evicted
            || self.slowness().is_some()
            || since.is_some_and(|since| since.elapsed() >= STALLED_AFTER)
    }

    /// Interrupts reads and writes of the connection. A thread that was reading can still respond.
    pub fn evict(&self) {
        let mut state = self.lock();
        state.evicted = true;
        if let Ok(socket) = self.socket() {
            // The peer may have left.
            let _ = socket.shutdown(if state.writing {
                Shutdown::Both
            } else {
                Shutdown::Read
            });
        }
    }

    /// Ends the connection in both directions.
    pub(super) fn abort(&self) {
        self.lock().writing = true;
        self.evict();
    }

    /// Whether the connection was ended in favour of others.
    pub fn evicted(&self) -> bool {
        self.lock().evicted
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves numbers, which stay valid.
        base::lock(&self.state)
    }
}

/// A measured socket as a stream.
pub(super) struct Socket(pub(super) Arc<Meter>);

/// Reports an expired socket timeout, which the system calls `WouldBlock`, as `TimedOut`.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        io::ErrorKind::TimedOut.into()
    } else {
        error
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut socket = self.0.socket()?;
        loop {
            let deadline = self.0.lock().deadline;
            if let Some(deadline) = deadline {
                let time_left = deadline.saturating_duration_since(Instant::now());
                if time_left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                socket.set_read_timeout(Some(time_left.max(Duration::from_millis(1))))?;
            }
            match self.0.time(false, || socket.read(buffer)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(timed_out),
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let mut socket = self.0.socket()?;
        loop {
            match self.0.time(true, || socket.write(buffer)) {
                // A socket with a timeout is not restarted by the system after a signal, nor after
                // the process was stopped and continued.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written.map_err(timed_out),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One connection, plain or encrypted.
pub(super) trait Wire: Read + Write + Send {
    /// Announces the end.
    fn close(&mut self) {}
}

impl Wire for Socket {}

impl Wire for Tls {
    fn close(&mut self) {
        self.conn.send_close_notify();
        // The peer may have left.
        let _ = self.flush();
    }
}

/// TLS over a buffered socket.
pub(super) type Tls = StreamOwned<ServerConnection, Buffered>;

/// A socket with a buffer for reading, which grows as long as the peer fills it.
pub(super) struct Buffered {
    socket: Socket,
    buffer: Vec<u8>,
    /// The bytes in `buffer` that are still to be read.
    unread: Range<usize>,
}

impl Buffered {
    fn new(socket: Socket) -> Self {
        Self {
            socket,
            buffer: vec![0; READ_BYTES],
            unread: 0..0,
        }
    }

    /// Reads from the socket into the empty buffer.
    fn refill(&mut self) -> io::Result<()> {
        let length = self.buffer.len();
        if self.unread.end == length && length < BULK_READ_BYTES {
            self.buffer = vec![0; length * 2];
        }
        self.unread = 0..0;
        self.unread.end = self.socket.read(&mut self.buffer)?;
        Ok(())
    }
}

impl Read for Buffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_empty() {
            self.refill()?;
        }
        let count = buffer.len().min(self.unread.len());
        let end = self.unread.start + count;
        buffer[..count].copy_from_slice(&self.buffer[self.unread.start..end]);
        self.unread.start = end;
        Ok(count)
    }
}

impl Write for Buffered {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.socket.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Performs the handshake within `limit`. A refusal is sent to the peer before it is returned.
pub(super) fn handshake(
    config: Arc<ServerConfig>,
    meter: Arc<Meter>,
    limit: Duration,
) -> io::Result<Tls> {
    meter.finish_within(Some(limit));
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    // Responses are written in pieces, each of which waits for the peer.
    connection.set_buffer_limit(Some(READ_BYTES));
    let mut tls = StreamOwned::new(connection, Buffered::new(Socket(meter)));
    while tls.conn.is_handshaking() {
        // On an error this has sent the alert already.
        if tls.conn.complete_io(&mut tls.sock)? == (0, 0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(tls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn buffer_grows_only_for_peers_that_fill_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let meter = Meter::new(listener.accept().unwrap().0, &Limits::default()).unwrap();
        let mut buffered = Buffered::new(Socket(Arc::new(meter)));
        let content: Vec<u8> = (0..3_000_000_u32)
            .map(|number| (number % 251).to_le_bytes()[0])
            .collect();
        let mut read = vec![0; READ_BYTES];
        let short = READ_BYTES - 1;
        peer.write_all(&content[..short]).unwrap();
        buffered.read_exact(&mut read[..short]).unwrap();
        peer.write_all(&content[..1]).unwrap();
        buffered.read_exact(&mut read[..1]).unwrap();
        assert_eq!(buffered.buffer.len(), READ_BYTES);
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            let content = &content;
            scope.spawn(move || peer.write_all(content).unwrap());
            buffered.read_to_end(&mut all).unwrap();
        });
        assert!(all == content);
        assert!((READ_BYTES * 2..=BULK_READ_BYTES).contains(&buffered.buffer.len()));
    }

    #[test]
    fn only_requests_below_the_rate_are_slow() {
        for (phase, waited, bytes, slow) in [
            (Phase::Handshake, 60, 0, None),
            (Phase::Idle, 0, 0, Some(0)),
            (Phase::Request, 0, 0, None),
            (Phase::Request, 2, 0, None),
            (Phase::Request, 4, 4 * SLOW_RATE, None),
            (Phase::Request, 4, 4 * SLOW_RATE - 4, Some(SLOW_RATE - 1)),
        ] {
            let meter = Meter::default();
            meter.enter(phase, None);
            meter.lock().waited = Duration::from_secs(waited);
            meter.lock().bytes = bytes;
            assert_eq!(meter.slowness(), slow, "{phase:?} {waited} {bytes}");
            meter.evict();
            assert_eq!((meter.slowness(), meter.evicted()), (None, true), "once");
        }
    }
}
