//! The listening socket: accepts connections into the queue, and tells it which of them have become
//! readable.
//!
//! A wildcard means all addresses of IPv4 and IPv6: pods in a network with IPv6 alone could not
//! reach a server at `0.0.0.0`, and a machine with IPv4 alone must not fail for lack of the other
//! family.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::Queue;
use base::sys::{self, Poller};

/// The listening socket's number for the poller; the queue counts connections from 1.
const LISTENER: u64 = 0;
/// Maximum connections that are accepted before the poller is asked again. It reports more at a
/// time, so that its reports cannot fall behind a flood of connections.
const MAX_ACCEPTED: usize = 128;
/// Minimum interval of messages about connections that could not be accepted.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts connections into the queue.
pub(super) struct Acceptor<'a> {
    listener: &'a TcpListener,
    queue: &'a Queue,
    poller: Poller,
    /// Whether the system may still hold connections: the poller does not report them again.
    has_more: bool,
    failures: Failures,
}

/// Failures to accept a connection, which a flood of connections repeats.
#[derive(Default)]
struct Failures {
    /// Failures that no message has counted yet.
    count: u64,
    reported: Option<Instant>,
}

impl<'a> Acceptor<'a> {
    pub(super) fn new(listener: &'a TcpListener, queue: &'a Queue) -> io::Result<Self> {
        let poller = Poller::new()?;
        listener.set_nonblocking(true)?;
        poller.add(listener, LISTENER)?;
        Ok(Self {
            listener,
            queue,
            poller,
            has_more: false,
            failures: Failures::default(),
        })
    }

    /// Waits up to `limit`, accepts connections, and wakes those in the queue that have become
    /// readable.
    pub(super) fn poll(&mut self, limit: Duration) {
        let limit = if self.has_more { Duration::ZERO } else { limit };
        let reported = self.poller.wait(limit).unwrap_or_else(|error| {
            log::warn!("cannot wait for connections: {error}");
            std::thread::park_timeout(limit);
            None
        });
        self.accept();
        let readable = reported.unwrap_or_else(|| self.queue.readable(is_readable));
        self.queue.wake(&readable, &self.poller);
    }

    fn accept(&mut self) {
        self.has_more = false;
        for _ in 0..MAX_ACCEPTED {
            // Some systems let an accepted socket inherit the listening socket's mode.
            let accepted = self.listener.accept();
            match accepted
                .and_then(|(socket, from)| Ok((socket.set_nonblocking(false)?, socket, from)))
            {
                Ok(((), socket, from)) => self.queue.arrive(socket, canonical(from), &self.poller),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if let Some(count) = self.failures.count(Instant::now()) {
                        log::warn!(
                            "cannot accept connections: {error} ({count} since the last message)"
                        );
                    }
                    // Usually for lack of descriptors, and most connections that wait are worth
                    // less than the files of those that are served.
                    if !self.queue.release_descriptors() {
                        return;
                    }
                }
            }
        }
        self.has_more = true;
    }
}

impl Failures {
    /// Counts a failure; returns the count if it is to be reported now.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self
            .reported
            .is_some_and(|reported| now.saturating_duration_since(reported) < REPORT_INTERVAL)
        {
            return None;
        }
        self.reported = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// Whether a read would return at once, on a system without a poller.
fn is_readable(socket: &TcpStream) -> bool {
    let peeked = socket
        .set_nonblocking(true)
        .and_then(|()| socket.peek(&mut [0]));
    socket.set_nonblocking(false).is_err()
        || !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Listens at `address`, a host and a port.
pub(super) fn listen(address: &str) -> io::Result<TcpListener> {
    let Some(port) = wildcard(address) else {
        return TcpListener::bind(address);
    };
    match sys::listen_at_all(port) {
        Ok(listener) => Ok(listener),
        // The kernel lacks IPv6, or another program has the port there.
        Err(error) => {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
            log::info!("port {port} is open over IPv4 only: {error}");
            Ok(listener)
        }
    }
}

/// The address of a peer; a socket of both families maps IPv4 into IPv6.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The port of a wildcard.
fn wildcard(address: &str) -> Option<u16> {
    let address: SocketAddr = address.parse().ok()?;
    address.ip().is_unspecified().then_some(address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpStream};

    use super::*;

    #[test]
    fn wildcard_of_either_family_accepts_both() {
        let families: [std::net::IpAddr; 2] =
            [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        for host in families {
            if TcpListener::bind((host, 0)).is_err() {
                base::testing::skipped("ipv6", &format!("this machine has no {host}"));
                continue;
            }
            for address in ["0.0.0.0:0", "[::]:0"] {
                let listener = listen(address).unwrap();
                let port = listener.local_addr().unwrap().port();
                let client = TcpStream::connect((host, port)).unwrap();
                let (_, from) = listener.accept().unwrap();
                assert_eq!(
                    canonical(from),
                    client.local_addr().unwrap(),
                    "{address} {host}"
                );
            }
        }
    }

    #[test]
    fn failures_to_accept_are_reported_rarely_with_their_number() {
        let start = Instant::now();
        let mut failures = Failures::default();
        let reports: Vec<_> = (0..200)
            .filter_map(|tenth| failures.count(start + Duration::from_millis(100 * tenth)))
            .collect();
        assert_eq!(reports, [1, 100]);
    }

    #[test]
    fn other_addresses_are_taken_literally() {
        for address in ["127.0.0.1:0", "localhost:8080", "[::1]:1", "0.0.0.0", "::"] {
            assert_eq!(wildcard(address), None, "{address}");
        }
        let taken = listen("0.0.0.0:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let again = listen(&format!("0.0.0.0:{port}")).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    }
}
