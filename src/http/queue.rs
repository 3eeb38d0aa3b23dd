//! What waits for a thread, and which of it gets the next one.
//!
//! An accepted connection waits until it has been readable and a thread has time for it: one bound
//! and one deadline cover this whole time. Beyond the bound, the oldest connection of the address
//! with most waiting connections is closed, so that one address cannot displace another.
//!
//! The next thread serves the party that occupies the fewest threads, among equals the party that
//! has waited longest; a quarter of the threads serves only parties that occupy none. A party is a
//! source address (of IPv6 its /64), or for a connection with a long upload the principal of its
//! certificate. Connections of one address that have shown no certificate occupy at most a quarter
//! of the threads, long uploads three quarters, those of one principal half. While a connection
//! waits and the other three quarters are occupied, the slowest requests of the party with
//! most threads are ended.
//!
//! Long uploads wait without a deadline: their clients are known, and few may wait.
//!
//! Starts no thread, and performs no I/O but closing sockets.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::wire::Meter;
use super::{Limits, Party};
use base::fair::FairQueue;
use base::quota::{Permit, Quota};
use base::sys::Poller;

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
    /// Maximum connections that wait, without long uploads.
    max_waiting: usize,
    /// Timeout for a connection to get a thread.
    waiting_timeout: Duration,
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
    /// Accepted connections; those that have sent nothing yet are asleep.
    arrivals: FairQueue<Party, Arrival>,
    uploads: FairQueue<Party, (Box<Connection>, Permit<Party>)>,
    /// The number of the next connection or upload.
    next: u64,
    threads: u64,
    idle: usize,
    active: Vec<(Party, Arc<Meter>)>,
    closing: bool,
}

/// An accepted connection.
struct Arrival {
    socket: TcpStream,
    address: SocketAddr,
    since: Instant,
}

/// A party whose turn it could be.
struct Candidate<'a> {
    /// The threads that it occupies.
    busy: u64,
    /// Its first connection or upload.
    number: u64,
    party: Party,
    quota: &'a Quota<Party>,
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
            max_waiting: limits.waiting,
            waiting_timeout: limits.waiting_timeout,
            busy: Quota::new(threads, threads),
            unknown: Quota::new(threads, quarters(1)),
            uploads: Quota::new(quarters(3), quarters(2)),
            waiting_uploads: Quota::new(limits.waiting_uploads, limits.waiting_uploads * 3 / 4),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Lets an accepted connection wait until the poller reports it and a thread has time.
    pub(super) fn arrive(&self, socket: TcpStream, address: SocketAddr, poller: &Poller) {
        let mut evicted = Vec::new();
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        if let Err(error) = poller.add(&socket, number) {
            return log::debug!("cannot wait for {address}: {error}");
        }
        if !state.closing {
            let arrival = Arrival {
                socket,
                address,
                since: Instant::now(),
            };
            state
                .arrivals
                .push_asleep(number, Party::of(address.ip()), arrival);
            evicted = state.evict_beyond(self.max_waiting);
        }
        // Sockets are closed without the lock.
        drop(state);
        drop(evicted);
    }

    /// Closes an eighth of the connections that wait; false if none does.
    pub(super) fn release_descriptors(&self) -> bool {
        let mut state = self.lock();
        let waiting = state.arrivals.len();
        let evicted = state.evict_beyond(waiting - waiting.div_ceil(8));
        drop(state);
        !evicted.is_empty()
    }

    /// Makes connections ready that the poller has reported; it watches them no longer.
    pub(super) fn wake(&self, numbers: &[u64], poller: &Poller) {
        let mut state = self.lock();
        for number in numbers {
            if let Some(arrival) = state.arrivals.wake(*number) {
                poller.remove(&arrival.socket);
                // Behind another of its party it has no turn before that one, whose thread wakes
                // the next.
                if state.arrivals.is_front(*number) {
                    self.changed.notify_one();
                }
            }
        }
    }

    /// The connections that have sent nothing yet and satisfy `is_readable`.
    pub(super) fn readable(&self, is_readable: impl Fn(&TcpStream) -> bool) -> Vec<u64> {
        let state = self.lock();
        let asleep = state.arrivals.asleep();
        asleep
            .filter(|(_, arrival)| is_readable(&arrival.socket))
            .map(|(number, _)| number)
            .collect()
    }

    /// Closes connections that have waited for too long.
    pub(super) fn expire(&self) {
        let mut expired = Vec::new();
        let mut state = self.lock();
        while let Some((number, arrival)) = state.arrivals.oldest()
            && arrival.since.elapsed() >= self.waiting_timeout
        {
            expired.extend(state.arrivals.remove(number));
        }
        drop(state);
        drop(expired);
    }

    /// Permits a long upload of `principal`, unless others of it wait already or too many run.
    pub(super) fn begin_upload(&self, principal: &Party) -> Option<Permit<Party>> {
        let state = self.lock();
        if state.uploads.len_of(principal) > 0 {
            // Not before those of the same principal that already wait.
            None
        } else {
            self.uploads.take(principal, 1)
        }
    }

    /// Lets a long upload wait without a thread; returns it if too many wait already.
    pub(super) fn postpone(&self, upload: Box<Connection>) -> Option<Box<Connection>> {
        let mut state = self.lock();
        let permit = if state.closing {
            None
        } else {
            self.waiting_uploads.take(&upload.party, 1)
        };
        let Some(permit) = permit else {
            return Some(upload);
        };
        state.next += 1;
        let number = state.next;
        state
            .uploads
            .push(number, upload.party.clone(), (upload, permit));
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
        let wants = state.waiting() > state.idle && state.threads < self.threads;
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
            if waited.timed_out() && state.waiting() == 0 {
                break None;
            }
        };
        if turn.is_none() {
            state.threads -= 1;
            // Also for `is_empty_within`, which waits for the last thread.
            self.changed.notify_all();
        } else if state.waiting() > 0 {
            self.changed.notify_one();
        }
        turn
    }

    fn pick(&self, state: &mut State) -> Option<Turn> {
        let arrival = self.candidate(state.arrivals.fronts(), &self.unknown);
        let upload = self.candidate(state.uploads.fronts(), &self.uploads);
        let candidates = arrival.into_iter().chain(upload);
        let chosen = candidates.min_by_key(|candidate| (candidate.busy, candidate.number))?;
        let busy = self.busy.take(&chosen.party, 1)?;
        let permit = chosen.quota.take(&chosen.party, 1)?;
        Some(Turn {
            work: state.take(chosen.number)?,
            permit,
            _busy: busy,
        })
    }

    /// The party that occupies the fewest threads, among equals the first, of those that may have
    /// one more.
    fn candidate<'a, 'q>(
        &self,
        fronts: impl Iterator<Item = (u64, &'a Party)>,
        quota: &'q Quota<Party>,
    ) -> Option<Candidate<'q>> {
        let is_full = self.is_full();
        let mut best: Option<(u64, u64, &Party)> = None;
        for (number, party) in fronts {
            let busy = self.busy.held(party);
            let may = (busy == 0 || !is_full) && quota.has(party, 1);
            if may && best.is_none_or(|(least, ..)| busy < least) {
                best = Some((busy, number, party));
                if busy == 0 {
                    break;
                }
            }
        }
        let (busy, number, party) = best?;
        Some(Candidate {
            busy,
            number,
            party: party.clone(),
            quota,
        })
    }

    /// Whether connections must end after their response: others wait and no thread is free, or
    /// [`Queue::close`] was called.
    pub(super) fn ends_connections(&self) -> bool {
        let state = self.lock();
        state.closing || state.waiting() > 0 && self.is_full()
    }

    /// Whether all threads are occupied but those for parties without one.
    fn is_full(&self) -> bool {
        self.busy.sum() >= (self.threads * 3 / 4).max(1)
    }

    /// Ends the slowest requests of the party with most threads, one for each connection that
    /// waits.
    pub(super) fn press(&self) {
        let state = self.lock();
        if !self.is_full() {
            return;
        }
        let mut held: HashMap<&Party, usize> = HashMap::new();
        state
            .active
            .iter()
            .for_each(|(party, _)| *held.entry(party).or_default() += 1);
        let slow = state
            .active
            .iter()
            .filter_map(|(party, meter)| Some((meter.slowness()?, party, meter)));
        let mut slow: Vec<_> = slow.collect();
        slow.sort_by_key(|(rate, party, _)| (Reverse(held[party]), *rate));
        for (rate, party, meter) in slow.into_iter().take(state.waiting()) {
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
        // Dropped after the lock is released, with their permits and sockets.
        let dropped = (
            std::mem::take(&mut state.arrivals),
            std::mem::take(&mut state.uploads),
        );
        state
            .active
            .iter()
            .filter(|(_, meter)| meter.slowness() == Some(0))
            .for_each(|(_, m)| m.evict());
        drop(state);
        drop(dropped);
        self.changed.notify_all();
    }

    /// Ends every connection.
    pub(super) fn abort(&self) {
        self.lock()
            .active
            .iter()
            .for_each(|(_, meter)| meter.abort());
    }

    /// Waits up to `limit` until every thread has ended.
    pub(super) fn is_empty_within(&self, limit: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), limit, |state| state.threads > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.threads == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything that could panic.
        base::lock(&self.state)
    }
}

impl State {
    /// The number of connections and uploads that a thread could serve.
    fn waiting(&self) -> usize {
        self.arrivals.ready() + self.uploads.ready()
    }

    /// Takes a connection or an upload.
    fn take(&mut self, number: u64) -> Option<Work> {
        if let Some(arrival) = self.arrivals.remove(number) {
            return Some(Work::Arrival(arrival.socket, arrival.address));
        }
        self.uploads
            .remove(number)
            .map(|(connection, permit)| Work::Upload(connection, permit))
    }

    /// Removes connections until at most `max` wait: each time the oldest of the address with most
    /// of them.
    fn evict_beyond(&mut self, max: usize) -> Vec<Arrival> {
        let mut evicted = Vec::new();
        while self.arrivals.len() > max {
            let Some((number, _)) = self.arrivals.longest().next() else {
                break;
            };
            evicted.extend(self.arrivals.remove(number));
        }
        evicted
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.queue
            .lock()
            .active
            .retain(|(_, meter)| !Arc::ptr_eq(meter, &self.meter));
    }
}
