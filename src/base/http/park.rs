//! The listening socket, and accepted connections that have sent nothing yet: a descriptor each, and no thread.
//!
//! A wildcard means all addresses of IPv4 and IPv6: pods in a network with IPv6 alone could not reach a server at `0.0.0.0`,
//! and a machine with IPv4 alone must not fail for lack of the other family.
//!
//! A parked connection is never closed to make way for another: when all descriptors are in use, new connections wait
//! in the system's backlog. One that stays silent is closed after [`Limits::silent`].

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::Limits;
use crate::sys::{self, Poller};

/// The listening socket's number for the poller; connections are counted from 1.
const LISTENER: u64 = 0;

/// The listening socket and all parked connections.
pub(super) struct Parking<'a> {
    listener: &'a TcpListener,
    poller: Poller,
    /// In order of arrival.
    parked: BTreeMap<u64, (TcpStream, SocketAddr, Instant)>,
    next: u64,
    max: usize,
    silent: Duration,
}

impl<'a> Parking<'a> {
    pub(super) fn new(listener: &'a TcpListener, limits: &Limits) -> io::Result<Self> {
        let poller = Poller::new()?;
        listener.set_nonblocking(true)?;
        poller.add(listener, LISTENER)?;
        Ok(Self {
            listener,
            poller,
            parked: BTreeMap::new(),
            next: LISTENER,
            max: limits.parked,
            silent: limits.silent,
        })
    }

    /// Waits up to `limit`, accepts connections, and returns the newly readable ones.
    pub(super) fn readable(&mut self, limit: Duration) -> Vec<(TcpStream, SocketAddr)> {
        let found = self.poller.wait(limit).unwrap_or_else(|error| {
            log::warn!("cannot wait for connections: {error}");
            std::thread::park_timeout(limit);
            None
        });
        // Each time, since the poller does not report a connection again that could not be accepted.
        self.accept();
        let ids = found.unwrap_or_else(|| {
            let readable = self.parked.iter().filter(|(_, (socket, ..))| is_readable(socket));
            readable.map(|(id, _)| *id).collect()
        });
        let leave = |id: u64| {
            let (socket, address, _) = self.parked.remove(&id)?;
            self.poller.remove(&socket);
            Some((socket, address))
        };
        ids.into_iter().filter_map(leave).collect()
    }

    /// Closes connections that have been silent for too long.
    pub(super) fn expire(&mut self) {
        while let Some(first) =
            self.parked.first_entry().filter(|first| first.get().2.elapsed() >= self.silent)
        {
            first.remove();
        }
    }

    fn accept(&mut self) {
        while self.parked.len() < self.max {
            match self.listener.accept() {
                Ok((socket, address)) => {
                    self.next += 1;
                    // Some systems let it inherit the listening socket's mode.
                    let added =
                        socket.set_nonblocking(false).and_then(|()| self.poller.add(&socket, self.next));
                    if let Err(error) = added {
                        log::debug!("cannot wait for {address}: {error}");
                        continue;
                    }
                    self.parked.insert(self.next, (socket, canonical(address), Instant::now()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Usually for lack of descriptors, which other connections will release.
                    return log::warn!("cannot accept a connection: {error}");
                }
            }
        }
    }
}

/// Whether a read would return at once, on a system without a poller.
fn is_readable(socket: &TcpStream) -> bool {
    let peeked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
    socket.set_nonblocking(false).is_err()
        || !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Listens at `address`, a host and a port.
pub(super) fn listen(address: &str) -> io::Result<TcpListener> {
    let Some(port) = wildcard(address) else { return TcpListener::bind(address) };
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
        let families: [std::net::IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        for host in families {
            if TcpListener::bind((host, 0)).is_err() {
                crate::testing::skipped("ipv6", &format!("this machine has no {host}"));
                continue;
            }
            for address in ["0.0.0.0:0", "[::]:0"] {
                let listener = listen(address).unwrap();
                let port = listener.local_addr().unwrap().port();
                let client = TcpStream::connect((host, port)).unwrap();
                let (_, from) = listener.accept().unwrap();
                assert_eq!(canonical(from), client.local_addr().unwrap(), "{address} {host}");
            }
        }
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
