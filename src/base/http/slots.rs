//! Whose turn it is: requests whose heads are here, in queues by what they ask of us, each principal in its turn.
//!
//! A request without a body, or with all of it at hand, waits for nobody once it has begun; a small body comes soon; a
//! large one may take hours. Each sort has threads of its own, so that the slow never stand in the way of the quick. Of
//! each sort a principal gets its equal part, where it is known how many there are, and three quarters at most. Where
//! others wait, who keeps us waiting and brings next to nothing is asked to come again.
//!
//! While many quick requests wait, those who have not shaken hands wait as well; but nobody waits for the requests of
//! guests, or of addresses that have many times as many as its own.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::guest::Session;
use super::head::{Framing, Head};
use super::meter::Meter;
use super::waiting::{STARVED_FACTOR, network};
use super::{Limits, Peer, Refused};

/// A body up to this is waited for before the request gets a thread.
pub(super) const READY_BODY_BYTES: u64 = 8 * 1024;
/// A body up to this is small.
const SMALL: u64 = 64 * 1024;

/// What a request asks of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing but an answer.
    Ready = 0,
    /// To wait for a few bytes.
    Small = 1,
    /// To wait for long.
    Large = 2,
}

impl Class {
    const ALL: [Self; 3] = [Self::Ready, Self::Small, Self::Large];

    pub(super) fn of(head: &Head) -> Self {
        match head.framing {
            Framing::Length(0) => Self::Ready,
            Framing::Length(..=READY_BODY_BYTES) if !head.expects_continue => Self::Ready,
            Framing::Length(..=SMALL) => Self::Small,
            _ => Self::Large,
        }
    }
}

/// A request that waits for its turn, with its connection.
pub(super) struct Job {
    pub(super) session: Session,
    pub(super) head: Box<Head>,
}

impl Job {
    /// The address for which it counts while it waits, if others with a name may have to wait for it.
    fn counts_as_quick(&self) -> Option<IpAddr> {
        let counts = !self.session.nameless && Class::of(&self.head) != Class::Large;
        counts.then(|| network(self.session.peer.address.ip()))
    }
}

/// Those among whom all is shared: everybody with a name, all guests, and all where there is no TLS.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Sharer {
    nameless: bool,
    principal: Option<Arc<str>>,
}

impl Sharer {
    fn of(session: &Session) -> Self {
        Self { nameless: session.nameless, principal: session.principal.clone() }
    }
}

struct Running {
    socket: Arc<TcpStream>,
    class: Class,
    sharer: Sharer,
    meter: Arc<Meter>,
}

#[derive(Default)]
struct State {
    closing: bool,
    aborted: bool,
    next: u64,
    /// Each with its number.
    queues: [HashMap<Sharer, VecDeque<(u64, Job)>>; 3],
    threads: [usize; 3],
    running: HashMap<u64, Running>,
    /// How many quick requests of those with a name wait, by address.
    quick: HashMap<IpAddr, usize>,
    held: HashMap<(usize, Sharer), usize>,
}

/// All requests whose heads are here.
pub(super) struct Slots<'a> {
    capacity: [usize; 3],
    parked: usize,
    /// How many principals share all that, or 0.
    principals: usize,
    refused: &'a Refused,
    yields: Duration,
    pressed_rate: u64,
    state: Mutex<State>,
    changed: Condvar,
}

/// One request that has its turn; over when this is dropped.
pub(super) struct Turn<'a> {
    slots: &'a Slots<'a>,
    id: u64,
    pub(super) meter: Arc<Meter>,
    pub(super) class: Class,
}

impl<'a> Slots<'a> {
    pub(super) fn new(limits: &Limits, refused: &'a Refused) -> Self {
        // However many they are, each has one.
        let least = 1 + limits.principals * 8 / 7;
        Self {
            capacity: [limits.ready, limits.small, limits.large].map(|capacity| capacity.max(least)),
            parked: limits.parked,
            principals: limits.principals,
            refused,
            yields: limits.yields,
            pressed_rate: limits.pressed_rate,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Lets a request wait for its turn; gives it back if too many do already.
    #[allow(clippy::result_large_err, reason = "it is moved, not copied")]
    pub(super) fn submit(&self, job: Job) -> Result<(), Job> {
        let (class, sharer) = (Class::of(&job.head) as usize, Sharer::of(&job.session));
        let mut state = self.lock();
        if state.aborted {
            return Ok(());
        }
        let waiting = state.queues[class].get(&sharer).map_or(0, VecDeque::len);
        if (class == Class::Large as usize || sharer.nameless) && waiting >= self.part(self.parked, &sharer) {
            self.refused.note(&job.session.peer, &job.head.path, false);
            return Err(job);
        }
        if let Some(address) = job.counts_as_quick() {
            *state.quick.entry(address).or_default() += 1;
        }
        let number = state.next;
        state.next += 1;
        state.queues[class].entry(sharer).or_default().push_back((number, job));
        Ok(())
    }

    /// Whether so many quick requests wait before somebody at `address`: those of addresses that have many times as many as
    /// that one do not count.
    pub(super) fn quick_waiting(&self, address: IpAddr, most: usize) -> bool {
        let state = self.lock();
        let own = state.quick.get(&network(address)).copied().unwrap_or(0);
        let mut left = most;
        let alike = state.quick.values().filter(|count| **count <= STARVED_FACTOR * (own + 1));
        alike.copied().any(|count| {
            left = left.saturating_sub(count);
            left == 0
        })
    }

    /// The sorts that need one more thread, which is counted from now on.
    pub(super) fn wants_thread(&self) -> Option<Class> {
        let mut state = self.lock();
        let wants = |class: &Class| {
            let index = *class as usize;
            state.threads[index] < self.capacity[index] && self.pick(&state, *class).is_some()
        };
        let class = Class::ALL.into_iter().find(wants)?;
        state.threads[class as usize] += 1;
        Some(class)
    }

    /// The next request for a thread of this sort; `None` ends the thread.
    pub(super) fn take(&self, class: Class) -> Option<(Job, Turn<'_>)> {
        let mut state = self.lock();
        let Some(sharer) = self.pick(&state, class) else {
            self.leave(&mut state, class);
            return None;
        };
        let queue = state.queues[class as usize].get_mut(&sharer)?;
        let (id, job) = queue.pop_front()?;
        if queue.is_empty() {
            state.queues[class as usize].remove(&sharer);
        }
        if let Some(address) = job.counts_as_quick() {
            uncount(&mut state.quick, &address);
        }
        let (socket, meter) = (Arc::clone(&job.session.socket), Arc::<Meter>::default());
        *state.held.entry((class as usize, sharer.clone())).or_default() += 1;
        state.running.insert(id, Running { socket, class, sharer, meter: Arc::clone(&meter) });
        Some((job, Turn { slots: self, id, meter, class }))
    }

    /// A thread could not be started.
    pub(super) fn without(&self, class: Class) {
        self.leave(&mut self.lock(), class);
    }

    /// Where somebody waits, asks those to come again who bring next to nothing.
    pub(super) fn press(&self) {
        let state = self.lock();
        for class in Class::ALL {
            let (index, queues) = (class as usize, &state.queues[class as usize]);
            let waiting = queues.values().map(VecDeque::len).sum();
            // An answer of a few bytes waits only for one who never reads.
            let yields = if class == Class::Ready { self.yields / 4 } else { self.yields };
            let full = state.threads[index] >= self.capacity[index];
            let helps =
                |running: &Running| running.class == class && (full || queues.contains_key(&running.sharer));
            let mut slow: Vec<_> = state
                .running
                .values()
                .filter(|running| waiting > 0 && !running.meter.dismissed() && helps(running))
                .filter_map(|running| Some((running.meter.rate(yields)?, running)))
                .filter(|(rate, _)| *rate < self.pressed_rate)
                .collect();
            let held = |running: &Running| state.held.get(&(index, running.sharer.clone())).copied();
            slow.sort_by_key(|(rate, running)| (std::cmp::Reverse(held(running)), *rate));
            for (rate, running) in slow.into_iter().take(waiting) {
                let who = running.sharer.principal.as_deref().unwrap_or("a peer");
                log::debug!("{who} brings {rate} bytes a second while others wait");
                running.meter.end(&running.socket);
            }
        }
    }

    /// Connections shall not go on after their request.
    pub(super) fn close(&self) {
        self.lock().closing = true;
    }

    /// Ends everything.
    pub(super) fn abort(&self) {
        let mut state = self.lock();
        state.aborted = true;
        state.queues.iter_mut().for_each(HashMap::clear);
        state.quick.clear();
        for running in state.running.values() {
            let _ = running.socket.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    /// Whether nobody has a turn or waits for one; waits for that up to `limit`.
    pub(super) fn is_empty_within(&self, limit: Duration) -> bool {
        let empty = |state: &State| state.threads == [0; 3] && state.queues.iter().all(HashMap::is_empty);
        let state = self.lock();
        if empty(&state) {
            return true;
        }
        let waited = self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner);
        empty(&waited.0)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held leaves nothing half-done here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose request is next: of those that have fewest of this sort under way, who has waited longest.
    fn pick(&self, state: &State, class: Class) -> Option<Sharer> {
        let (index, capacity) = (class as usize, self.capacity[class as usize]);
        let next = |(sharer, queue): (&Sharer, &VecDeque<(u64, Job)>)| {
            let held = state.held.get(&(index, sharer.clone())).copied().unwrap_or(0);
            let number = queue.front()?.0;
            (held < self.part(capacity, sharer)).then(|| (held, number, sharer.clone()))
        };
        let first =
            state.queues[index].iter().filter_map(next).min_by_key(|(held, number, _)| (*held, *number));
        first.map(|(.., sharer)| sharer)
    }

    /// What of `all` somebody may have: guests an eighth, those with a name the rest among them.
    fn part(&self, all: usize, sharer: &Sharer) -> usize {
        match (&sharer.principal, sharer.nameless) {
            (_, true) => (all / 8).max(1),
            // Without TLS nobody has a name.
            (None, false) => all,
            (Some(_), _) => self.part_of_one(all),
        }
    }

    /// What of `all` one with a name may have.
    pub(super) fn part_of_one(&self, all: usize) -> usize {
        let rest = all - all / 8;
        (rest / self.principals.max(1)).min(all - all / 4).max(1)
    }

    fn leave(&self, state: &mut State, class: Class) {
        state.threads[class as usize] -= 1;
        self.changed.notify_all();
    }
}

impl Turn<'_> {
    /// Notes that its request was told to come again.
    pub(super) fn refused(&self, peer: &Peer, path: &str) {
        self.slots.refused.note(peer, path, true);
    }

    /// Whether all shall end.
    pub(super) fn closing(&self) -> bool {
        self.slots.lock().closing
    }

    /// The answer takes long: it moves to the threads for that; false if those are all taken.
    pub(super) fn becomes_large(&mut self) -> bool {
        if self.class == Class::Large {
            return true;
        }
        let large = Class::Large as usize;
        let mut state = self.slots.lock();
        if state.threads[large] >= self.slots.capacity[large] {
            return false;
        }
        let Some(running) = state.running.get_mut(&self.id) else { return false };
        running.class = Class::Large;
        let sharer = running.sharer.clone();
        state.release(self.class, &sharer);
        *state.held.entry((large, sharer)).or_default() += 1;
        state.threads[self.class as usize] -= 1;
        state.threads[large] += 1;
        self.class = Class::Large;
        true
    }
}

impl State {
    fn release(&mut self, class: Class, sharer: &Sharer) {
        uncount(&mut self.held, &(class as usize, sharer.clone()));
    }
}

/// One less of `key`; what there is none of is forgotten.
pub(super) fn uncount<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        if let Some(running) = state.running.remove(&self.id) {
            state.release(running.class, &running.sharer);
        }
    }
}
