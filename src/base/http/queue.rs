//! Which connection gets the next thread.
//!
//! The next thread serves the party that occupies the fewest threads, among equals the party that has waited longest; a
//! quarter of the threads serves only parties that occupy none. A party is a source address (of IPv6 its
//! /64), or for a connection with a long upload the principal of its certificate. Connections of one address that have
//! shown no certificate occupy at most a quarter of the threads, long uploads three quarters, those of one principal
//! half. While a connection waits and the other three quarters are occupied, the slowest requests of the party with
//! most threads are ended.
//!
//! Starts no thread, and performs no I/O.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::Connection;
use super::wire::Meter;
use super::{Limits, Party};
use crate::quota::{Permit, Quota};

/// A thread that finds no work for this long ends.
const IDLE_THREAD: Duration = Duration::from_secs(5);

/// Work that waits for a thread.
pub(super) enum Work {
    /// A connection that became readable.
    Arrival(TcpStream, SocketAddr),
    /// A connection with a long upload, and its permit to wait.
    Upload(Box<Connection>, Permit<Party>),
}

/// Work for a thread, with the permits that it holds meanwhile.
pub(super) struct Turn {
    pub(super) work: Work,
    /// For a connection without a certificate, or for a long upload.
    pub(super) permit: Permit<Party>,
    pub(super) _busy: Permit<Party>,
}

/// Connections that wait for a thread, and connections with one.
pub(super) struct Queue {
    threads: u64,
    /// Threads in use, by party.
    busy: Quota<Party>,
    /// Connections with a thread that have shown no certificate, by source address.
    unknown: Quota<Party>,
    /// Long uploads with a thread, by principal.
    uploads: Quota<Party>,
    waiting_uploads: Quota<Party>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Each party's connections in order of arrival, with their numbers.
    lines: HashMap<Party, VecDeque<(u64, Work)>>,
    /// The number of the first in each line.
    fronts: BTreeMap<u64, Party>,
    waiting: usize,
    next: u64,
    threads: u64,
    idle: usize,
    active: Vec<(Party, Arc<Meter>)>,
    closing: bool,
}

/// Registers a connection that may be ended in favour of others, until it is dropped.
pub(super) struct Active<'a> {
    queue: &'a Queue,
    meter: Arc<Meter>,
}

impl Queue {
    pub(super) fn new(limits: &Limits) -> Self {
        let threads = limits.threads as u64;
        let quarters = |count: u64| (threads * count / 4).max(1);
        Self {
            threads,
            busy: Quota::new(threads, threads),
            unknown: Quota::new(threads, quarters(1)),
            uploads: Quota::new(quarters(3), quarters(2)),
            waiting_uploads: Quota::new(limits.waiting_uploads, limits.waiting_uploads * 3 / 4),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Lets a connection wait for a thread.
    pub(super) fn arrive(&self, socket: TcpStream, address: SocketAddr) {
        let mut state = self.lock();
        if !state.closing {
            state.push(Party::of(address.ip()), Work::Arrival(socket, address));
            self.changed.notify_one();
        }
    }

    /// Permits a long upload of `principal`, unless others of it wait already or too many run.
    pub(super) fn begin_upload(&self, principal: &Party) -> Option<Permit<Party>> {
        let state = self.lock();
        if state.lines.contains_key(principal) { None } else { self.uploads.take(principal, 1) }
    }

    /// Lets a long upload wait without a thread; returns it if too many wait already.
    pub(super) fn postpone(&self, upload: Box<Connection>) -> Option<Box<Connection>> {
        let mut state = self.lock();
        let permit = if state.closing { None } else { self.waiting_uploads.take(&upload.party, 1) };
        let Some(permit) = permit else { return Some(upload) };
        state.push(upload.party.clone(), Work::Upload(upload, permit));
        None
    }

    /// Notes that a connection has shown its certificate, so that another of its address may begin.
    pub(super) fn identified(&self, unknown: Permit<Party>) {
        drop(unknown);
        self.changed.notify_one();
    }

    /// Counts one more thread, if work waits for one and it may be started.
    pub(super) fn wants_thread(&self) -> bool {
        let mut state = self.lock();
        let wants = state.waiting > state.idle && state.threads < self.threads;
        state.threads += u64::from(wants);
        wants
    }

    /// Counts a thread as ended that could not be started.
    pub(super) fn without_thread(&self) {
        self.lock().threads -= 1;
    }

    /// The next work for a thread; `None` ends the thread.
    pub(super) fn next(&self) -> Option<Turn> {
        let mut state = self.lock();
        let turn = loop {
            let turn = self.pick(&mut state);
            if turn.is_some() || state.closing {
                break turn;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE_THREAD);
            let (after, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = after;
            state.idle -= 1;
            if waited.timed_out() && state.waiting == 0 {
                break None;
            }
        };
        if turn.is_none() {
            state.threads -= 1;
            self.changed.notify_all();
        }
        turn
    }

    fn pick(&self, state: &mut State) -> Option<Turn> {
        let quota = |party: &Party| match party {
            Party::Address(_) => &self.unknown,
            Party::Principal(_) => &self.uploads,
        };
        let is_full = self.is_full();
        let mut best: Option<(u64, &Party)> = None;
        for party in state.fronts.values() {
            let busy = self.busy.held(party);
            let may = (busy == 0 || !is_full) && quota(party).has(party, 1);
            if may && best.is_none_or(|(least, _)| busy < least) {
                best = Some((busy, party));
                if busy == 0 {
                    break;
                }
            }
        }
        let party = best?.1.clone();
        let (busy, permit) = (self.busy.take(&party, 1)?, quota(&party).take(&party, 1)?);
        Some(Turn { work: state.pop(&party)?, permit, _busy: busy })
    }

    /// Whether connections must end after their response: others wait and no thread is free, or [`Queue::close`] was called.
    pub(super) fn ends_connections(&self) -> bool {
        let state = self.lock();
        state.closing || state.waiting > 0 && self.is_full()
    }

    /// Whether all threads are occupied but those for parties without one.
    fn is_full(&self) -> bool {
        self.busy.sum() >= (self.threads * 3 / 4).max(1)
    }

    /// Ends the slowest requests of the party with most threads, one for each connection that waits.
    pub(super) fn press(&self) {
        let state = self.lock();
        if !self.is_full() {
            return;
        }
        let mut held: HashMap<&Party, usize> = HashMap::new();
        state.active.iter().for_each(|(party, _)| *held.entry(party).or_default() += 1);
        let slow = state.active.iter().filter_map(|(party, meter)| Some((meter.slowness()?, party, meter)));
        let mut slow: Vec<_> = slow.collect();
        slow.sort_by_key(|(rate, party, _)| (Reverse(held[party]), *rate));
        for (rate, party, meter) in slow.into_iter().take(state.waiting) {
            log::debug!("ended a request of {party:?}: {rate} bytes a second while others waited");
            meter.evict();
        }
    }

    /// Makes the connection of `party` one that [`Queue::press`] may end.
    pub(super) fn activate(&self, party: Party, meter: Arc<Meter>) -> Active<'_> {
        self.lock().active.push((party, Arc::clone(&meter)));
        Active { queue: self, meter }
    }

    /// Drops waiting connections, ends idle ones, and lets threads end after their request.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        state.waiting = 0;
        // Dropped after the lock is released, with their permits and sockets.
        let dropped = std::mem::take(&mut state.lines);
        state.fronts.clear();
        state.active.iter().filter(|(_, meter)| meter.slowness() == Some(0)).for_each(|(_, m)| m.evict());
        drop(state);
        drop(dropped);
        self.changed.notify_all();
    }

    /// Ends every connection.
    pub(super) fn abort(&self) {
        self.lock().active.iter().for_each(|(_, meter)| meter.abort());
    }

    /// Waits up to `limit` until every thread has ended.
    pub(super) fn is_empty_within(&self, limit: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |state| state.threads > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.threads == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything that could panic.
        crate::lock(&self.state)
    }
}

impl State {
    fn push(&mut self, party: Party, work: Work) {
        self.next += 1;
        let line = self.lines.entry(party.clone()).or_default();
        if line.is_empty() {
            self.fronts.insert(self.next, party);
        }
        line.push_back((self.next, work));
        self.waiting += 1;
    }

    /// Takes the first of a party's line.
    fn pop(&mut self, party: &Party) -> Option<Work> {
        let line = self.lines.get_mut(party)?;
        let (number, first) = line.pop_front()?;
        self.fronts.remove(&number);
        match line.front() {
            Some((number, _)) => drop(self.fronts.insert(*number, party.clone())),
            None => drop(self.lines.remove(party)),
        }
        self.waiting -= 1;
        Some(first)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.queue.lock().active.retain(|(_, meter)| !Arc::ptr_eq(meter, &self.meter));
    }
}
