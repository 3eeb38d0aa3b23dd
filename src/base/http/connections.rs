//! Which connections are open, how many there may be, and how they all end.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connection that has been without a request for so long makes room when there is none.
const YIELDS_AFTER: Duration = Duration::from_secs(1);
/// How often is looked for such a connection.
const LOOK: Duration = Duration::from_millis(100);

/// All open connections of a server.
pub(super) struct Connections {
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closing: bool,
    next: u64,
    open: HashMap<u64, Entry>,
}

struct Entry {
    socket: Arc<TcpStream>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was heard of it since then, or since its last request.
    Idle(Instant),
    /// Hands are being shaken.
    Greeted,
    /// A request has begun.
    Busy,
}

/// The place of one connection; it is given back when this is dropped.
pub(super) struct Ticket<'a> {
    connections: &'a Connections,
    id: u64,
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until there is room for one more; false once all shall end.
    pub(super) fn wait_for_room(&self) -> bool {
        let mut state = self.lock();
        while !state.closing && state.open.len() >= self.most {
            state.evict();
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.closing
    }

    /// Lets a connection in.
    pub(super) fn enter(&self, socket: Arc<TcpStream>) -> Ticket<'_> {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.open.insert(id, Entry { socket, phase: Phase::Idle(Instant::now()) });
        Ticket { connections: self, id }
    }

    /// Ends the connections that have no request, and lets no more begin.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        for entry in state.open.values().filter(|entry| entry.phase != Phase::Busy) {
            end(&entry.socket);
        }
        self.changed.notify_all();
    }

    /// Ends the others, too.
    pub(super) fn abort(&self) {
        for entry in self.lock().open.values() {
            end(&entry.socket);
        }
    }

    /// Waits until the last one is gone.
    pub(super) fn wait_until_empty(&self) {
        let mut state = self.lock();
        while !state.open.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held leaves nothing half-done here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ends the connection that has been idle longest, if it has been for a while.
    fn evict(&mut self) {
        let idle = self.open.values_mut().filter_map(|entry| match entry.phase {
            Phase::Idle(since) if since.elapsed() >= YIELDS_AFTER => Some((since, entry)),
            _ => None,
        });
        if let Some((_, entry)) = idle.min_by_key(|(since, _)| *since) {
            end(&entry.socket);
            // Not twice the same.
            entry.phase = Phase::Busy;
        }
    }
}

/// Wakes whoever reads or writes.
fn end(socket: &TcpStream) {
    // It may have ended by itself.
    let _ = socket.shutdown(Shutdown::Both);
}

impl Ticket<'_> {
    /// The connection waits for another request; false if it shall not.
    pub(super) fn idle(&self) -> bool {
        self.set(Phase::Idle(Instant::now()))
    }

    /// The first byte has come, but no request yet.
    pub(super) fn greeted(&self) {
        self.set(Phase::Greeted);
    }

    /// A request has begun.
    pub(super) fn busy(&self) {
        self.set(Phase::Busy);
    }

    /// Whether all shall end.
    pub(super) fn closing(&self) -> bool {
        self.connections.lock().closing
    }

    fn set(&self, phase: Phase) -> bool {
        let mut state = self.connections.lock();
        if let Some(entry) = state.open.get_mut(&self.id) {
            entry.phase = phase;
        }
        !state.closing
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.id);
        self.connections.changed.notify_all();
    }
}
