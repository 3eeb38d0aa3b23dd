//! The time for which the peer of a connection is waited for, and the bytes that come meanwhile.

use std::io::{self, Read as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request is slow when its peer has been waited for this long ...
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// ... and brings fewer bytes per second.
const SLOW_RATE: u64 = 32 << 10;

/// Time and bytes for which a peer may go on sending after its last response.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 64 << 20;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// The handshake, which has its own deadline.
    #[default]
    Handshake,
    /// Waiting for a request, or for the peer to read a last response.
    Idle,
    /// Reading a request or writing a response.
    Request,
}

/// Measures one connection, and ends it on behalf of others.
#[derive(Default)]
pub struct Meter {
    socket: Option<Arc<TcpStream>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    since: Option<Instant>,
    writing: bool,
    waited: Duration,
    bytes: u64,
    evicted: bool,
}

impl Meter {
    pub(super) fn new(socket: Arc<TcpStream>) -> Self {
        Self { socket: Some(socket), state: Mutex::default() }
    }

    /// The connection.
    pub(super) fn socket(&self) -> Option<&Arc<TcpStream>> {
        self.socket.as_ref()
    }

    /// Discards what the peer still sends: closing the connection before would make its system discard the response.
    pub(super) fn linger(&self) {
        let Some(socket) = &self.socket else { return };
        // The peer may have gone by itself.
        let _ = socket.shutdown(Shutdown::Write);
        self.enter(Phase::Idle);
        let (end, mut scrap, mut left) =
            (Instant::now() + LINGER_TIMEOUT, vec![0; 64 * 1024], MAX_LINGER_BYTES);
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() || left == 0 || socket.set_read_timeout(Some(rest)).is_err() {
                return;
            }
            match self.time(false, || (&**socket).read(&mut scrap)) {
                Ok(got @ 1..) => left = left.saturating_sub(got),
                _ => return,
            }
        }
    }

    /// Begins a phase.
    pub(super) fn enter(&self, phase: Phase) {
        let evicted = self.evicted();
        *self.lock() = State { phase, evicted, ..State::default() };
    }

    /// Runs one read or write, and counts its time and bytes.
    pub fn time(&self, writing: bool, step: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
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
        // A response can still be written.
        if state.evicted && !writing { Err(io::ErrorKind::ConnectionAborted.into()) } else { moved }
    }

    /// The bytes per second of a slow request; 0 for a connection without one; `None` for all others.
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
                (u128::from(milliseconds) >= SLOW_AFTER.as_millis() && rate < SLOW_RATE).then_some(rate)
            }
        }
    }

    /// The bytes of the request under way.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Whether another upload of the same result may take over: the connection is slow, or silent for a second.
    pub fn is_stalled(&self) -> bool {
        let since = self.lock().since;
        self.slowness().is_some() || since.is_some_and(|since| since.elapsed() >= SLOW_AFTER)
    }

    /// Ends what the connection waits for. A thread that reads can still respond.
    pub fn evict(&self) {
        let mut state = self.lock();
        state.evicted = true;
        if let Some(socket) = &self.socket {
            // The peer may have gone by itself.
            let _ = socket.shutdown(if state.writing { Shutdown::Both } else { Shutdown::Read });
        }
    }

    /// Ends the connection in both directions.
    pub(super) fn abort(&self) {
        self.lock().writing = true;
        self.evict();
    }

    /// Whether the connection was ended on behalf of others.
    pub fn evicted(&self) -> bool {
        self.lock().evicted
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves numbers, which stay valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_below_the_rate_are_slow() {
        for (phase, waited, bytes, slow) in [
            (Phase::Handshake, 60, 0, None),
            (Phase::Idle, 0, 0, Some(0)),
            (Phase::Request, 0, 0, None),
            (Phase::Request, 2, 2 * SLOW_RATE, None),
            (Phase::Request, 2, 2 * SLOW_RATE - 2, Some(SLOW_RATE - 1)),
        ] {
            let meter = Meter::default();
            meter.enter(phase);
            meter.lock().waited = Duration::from_secs(waited);
            meter.lock().bytes = bytes;
            assert_eq!(meter.slowness(), slow, "{phase:?} {waited} {bytes}");
            meter.evict();
            assert_eq!((meter.slowness(), meter.evicted()), (None, true), "once");
        }
    }
}
