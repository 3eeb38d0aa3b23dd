//! Accepted connections that have said nothing yet: a descriptor each, and no thread.
//!
//! A parked connection is never closed to make way for another: when all descriptors are in use, new connections wait
//! in the system's backlog. One that stays silent is closed after [`Limits::silent`].

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{Limits, listen};
use crate::sys::{Found, Poller};

/// The listening socket's number for the poller; connections are counted from 1.
const LISTENER: u64 = 0;

/// The listening socket and all parked connections.
pub(super) struct Parking<'a> {
    listener: &'a TcpListener,
    poller: Poller,
    parked: HashMap<u64, (TcpStream, SocketAddr)>,
    /// In the order in which they came.
    since: VecDeque<(u64, Instant)>,
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
            parked: HashMap::new(),
            since: VecDeque::new(),
            next: LISTENER,
            max: limits.parked,
            silent: limits.silent,
        })
    }

    /// Waits up to `limit`, accepts connections, and returns those that have become readable.
    pub(super) fn readable(&mut self, limit: Duration) -> Vec<(TcpStream, SocketAddr)> {
        let found = self.poller.wait(limit).unwrap_or_else(|error| {
            log::warn!("cannot wait for connections: {error}");
            std::thread::park_timeout(limit);
            Found::Anybody
        });
        // Each time, since a connection that could not be accepted is not announced again.
        self.accept();
        let ids = match found {
            Found::These(ids) => ids,
            Found::Anybody => {
                self.parked.iter().filter(|(_, (socket, _))| is_readable(socket)).map(|(id, _)| *id).collect()
            }
        };
        let leave = |id: u64| {
            let left = self.parked.remove(&id)?;
            self.poller.remove(&left.0);
            Some(left)
        };
        ids.into_iter().filter_map(leave).collect()
    }

    /// Closes connections that have been silent for too long.
    pub(super) fn expire(&mut self) {
        while let Some((id, _)) = self.since.front().filter(|(_, since)| since.elapsed() >= self.silent) {
            self.parked.remove(id);
            self.since.pop_front();
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
                    self.since.push_back((self.next, Instant::now()));
                    self.parked.insert(self.next, (socket, listen::canonical(address)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The peer went away before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Mostly for lack of descriptors, which other connections will release.
                    return log::warn!("cannot accept a connection: {error}");
                }
            }
        }
    }
}

/// Whether a read would not wait, on a system without a poller.
fn is_readable(socket: &TcpStream) -> bool {
    let peeked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
    socket.set_nonblocking(false).is_err()
        || !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
