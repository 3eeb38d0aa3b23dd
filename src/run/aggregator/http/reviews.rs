//! Turns for reviews of tokens: which client may ask the API server next, and which have to try
//! again.
//!
//! Reviews are bounded per second and at a time. Waiting requests take turns by network, an address
//! or a /64 of IPv6: next is that with the fewest reviews in the last minute, among equals the
//! request that has waited longest. So a network without a recent review waits for no other one
//! that repeats its requests. Each request holds a thread, so few may wait; beyond that, the newest
//! of the network with most reviews and requests is told to try again.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::fair::FairQueue;
use base::quota::{Permit, Quota};

/// Maximum reviews that begin within a second.
const REVIEWS_PER_SECOND: usize = 50;
/// Maximum reviews at a time; each occupies a thread while the API server is slow.
const MAX_REVIEWS: u64 = 64;
/// Maximum requests that wait for a review.
const MAX_WAITING: usize = 64;
/// Maximum requests of one network that wait or are reviewed.
const MAX_REQUESTS_OF_ONE: u64 = 8;
/// Timeout for a turn; the client tries again afterwards.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Reviews of this time determine whose turn is next.
const MEMORY: Duration = Duration::from_secs(60);

/// Reviews that are under way, were, or wait for their turn.
pub(super) struct Reviews {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: FairQueue<IpAddr, ()>,
    /// The number of the next request.
    next: u64,
    running: Quota<IpAddr>,
    /// The networks of the reviews in [`MEMORY`], oldest first, and when they began.
    recent: VecDeque<(Instant, Permit<IpAddr>)>,
    reviewed: Quota<IpAddr>,
}

/// A review that may be made now; its end is the next one's beginning.
pub(super) struct Turn<'a> {
    reviews: &'a Reviews,
    permit: Option<Permit<IpAddr>>,
}

impl Default for Reviews {
    fn default() -> Self {
        let state = State {
            waiting: FairQueue::default(),
            next: 0,
            running: Quota::new(MAX_REVIEWS, MAX_REQUESTS_OF_ONE),
            recent: VecDeque::new(),
            reviewed: Quota::new(u64::MAX, u64::MAX),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }
}

impl Reviews {
    /// Waits for the turn of a client in `network`; `None` if it has to try again later.
    pub(super) fn wait_for_turn(&self, network: IpAddr) -> Option<Turn<'_>> {
        let deadline = Instant::now() + TURN_TIMEOUT;
        let mut state = self.lock();
        let number = state.enter(network)?;
        loop {
            let now = Instant::now();
            if now >= deadline {
                state.waiting.remove(number);
            }
            if !state.waiting.contains(number) {
                return None;
            }
            // Only the first waits for the next moment at which a review may begin; its turn wakes
            // the others.
            let mut until = deadline;
            if state.first() == Some(number) {
                let free = state.next_start().filter(|start| *start > now);
                let Some(start) = free else {
                    let permit = state.begin(number, network, now);
                    self.changed.notify_all();
                    return permit.map(|permit| Turn {
                        reviews: self,
                        permit: Some(permit),
                    });
                };
                until = until.min(start);
            }
            let waited = self.changed.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        base::lock(&self.state)
    }
}

impl State {
    /// Lets a request wait, and returns its number, unless its network has too many.
    fn enter(&mut self, network: IpAddr) -> Option<u64> {
        let requests = self.running.held(&network) + self.waiting.len_of(&network) as u64;
        if requests >= MAX_REQUESTS_OF_ONE {
            return None;
        }
        self.next += 1;
        self.waiting.push(self.next, network, ());
        if self.waiting.len() > MAX_WAITING {
            let weight = |network: &IpAddr| {
                self.reviewed.held(network) + self.waiting.len_of(network) as u64
            };
            let heaviest = self
                .waiting
                .longest()
                .max_by_key(|(_, network)| weight(network));
            let newest = heaviest.and_then(|(_, network)| self.waiting.newest_of(network));
            newest.and_then(|newest| self.waiting.remove(newest));
        }
        self.waiting.contains(self.next).then_some(self.next)
    }

    /// The request whose turn is next, if one more review may run.
    fn first(&self) -> Option<u64> {
        let may_begin = |network: &IpAddr| self.running.has(network, 1);
        let fronts = self
            .waiting
            .fronts()
            .filter(|(_, network)| may_begin(network));
        fronts
            .min_by_key(|(_, network)| self.reviewed.held(network))
            .map(|(number, _)| number)
    }

    /// When the next review may begin; `None` if there were few in the last second.
    fn next_start(&self) -> Option<Instant> {
        let earlier = self.recent.len().checked_sub(REVIEWS_PER_SECOND)?;
        Some(self.recent[earlier].0 + Duration::from_secs(1))
    }

    /// Ends the wait of a request, and counts its review.
    fn begin(&mut self, number: u64, network: IpAddr, now: Instant) -> Option<Permit<IpAddr>> {
        self.waiting.remove(number);
        while self
            .recent
            .front()
            .is_some_and(|(begun, _)| now.saturating_duration_since(*begun) >= MEMORY)
        {
            self.recent.pop_front();
        }
        self.recent
            .push_back((now, self.reviewed.take(&network, 1)?));
        self.running.take(&network, 1)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let state = self.reviews.lock();
        self.permit = None;
        drop(state);
        self.reviews.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn state() -> State {
        Reviews::default().state.into_inner().unwrap()
    }

    /// Begins all reviews that may begin until `end`, each of which takes no time, while each
    /// network in `hostile` repeats its requests; returns when each of the requests in `honest`
    /// got its turn.
    fn turns(hostile: &[IpAddr], honest: &[u64], start: Instant, end: Duration) -> Vec<Duration> {
        let mut state = state();
        let (mut turns, mut asked) = (Vec::new(), 0);
        let mut waiting = Vec::new();
        for elapsed in (0..end.as_secs() * 50).map(|tick| Duration::from_millis(20 * tick)) {
            for network in hostile {
                state.enter(*network);
            }
            while honest
                .get(asked)
                .is_some_and(|second| elapsed >= Duration::from_secs(*second))
            {
                asked += 1;
                waiting.push((
                    network(250),
                    state.enter(network(250)).expect("room for the honest one"),
                ));
            }
            let now = start + elapsed;
            while state.next_start().is_none_or(|start| start <= now)
                && let Some(number) = state.first()
            {
                let honest = waiting.iter().position(|(_, honest)| *honest == number);
                let networks: Vec<_> = state
                    .waiting
                    .fronts()
                    .map(|(number, network)| (number, *network))
                    .collect();
                let (_, network) = networks
                    .into_iter()
                    .find(|(front, _)| *front == number)
                    .unwrap();
                drop(state.begin(number, network, now).unwrap());
                if honest.map(|honest| waiting.remove(honest)).is_some() {
                    turns.push(elapsed);
                }
            }
        }
        turns
    }

    #[test]
    fn repeated_requests_of_other_networks_delay_no_honest_one() {
        for count in [3, 64] {
            let hostile: Vec<IpAddr> = (1..=count).map(network).collect();
            let honest: &[u64] = &[1, 3, 5];
            let turns = turns(&hostile, honest, Instant::now(), Duration::from_secs(6));
            assert_eq!(turns.len(), honest.len(), "{count} networks: {turns:?}");
            for (turn, asked) in turns.iter().zip(honest) {
                let waited = *turn - Duration::from_secs(*asked);
                assert!(
                    waited < Duration::from_secs(1),
                    "{count} networks: {turns:?}"
                );
            }
        }
    }

    #[test]
    fn reviews_are_limited_per_second() {
        let start = Instant::now();
        let mut state = state();
        let mut begun = Vec::new();
        for elapsed in 0..5_000 {
            let now = start + Duration::from_millis(elapsed);
            state.enter(network(1));
            while state.next_start().is_none_or(|start| start <= now)
                && let Some(number) = state.first()
            {
                drop(state.begin(number, network(1), now).unwrap());
                begun.push(elapsed);
            }
        }
        assert!(
            begun.windows(51).all(|some| some[50] - some[0] >= 1_000),
            "{begun:?}"
        );
        assert_eq!(begun.len(), 250);
    }

    #[test]
    fn ninth_request_of_one_network_has_to_try_again() {
        let mut state = state();
        let first = state.enter(network(1)).unwrap();
        let running = state.begin(first, network(1), Instant::now()).unwrap();
        let others = (0..7).filter_map(|_| state.enter(network(1))).count();
        assert_eq!((others, state.enter(network(1))), (7, None));
        assert!(
            state.enter(network(2)).is_some(),
            "another network is not affected"
        );
        drop(running);
        assert!(state.enter(network(1)).is_some(), "a review has ended");
    }

    #[test]
    fn requests_that_wait_are_limited_in_total() {
        let mut state = state();
        for last in 0..200 {
            state.enter(network(last));
        }
        assert_eq!(state.waiting.len(), MAX_WAITING);
    }

    #[test]
    fn reviews_at_a_time_are_limited_in_total() {
        let mut state = state();
        let mut running = Vec::new();
        for (last, second) in (0..80).zip(0..) {
            state.enter(network(last));
            if let Some(number) = state.first() {
                let now = Instant::now() + Duration::from_secs(second);
                running.push(state.begin(number, network(last), now).unwrap());
            }
        }
        assert_eq!(running.len() as u64, MAX_REVIEWS);
    }

    #[test]
    fn turn_ends_when_it_is_dropped() {
        let reviews = Reviews::default();
        let held: Vec<_> = (0..8)
            .map(|_| reviews.wait_for_turn(network(1)).unwrap())
            .collect();
        assert!(reviews.wait_for_turn(network(1)).is_none());
        drop(held);
        assert!(reviews.wait_for_turn(network(1)).is_some());
    }
}
