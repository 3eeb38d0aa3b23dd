//! Who waits for how long, and who goes first when there is no more room. Pure: times are given.
//!
//! One may hold all places while nobody else wants one; when there are none left, the one that holds most loses the
//! place that has kept us waiting longest. So nobody is refused, and nobody takes another's. Those who wait for us go in
//! turn by address, the proven first.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// An address that has less than one in this number of what another has is starved by it.
pub(super) const STARVED_FACTOR: usize = 8;

/// Connections of one sort that wait for their peers, each of which has a `K`: an address or a name.
pub(super) struct Waiting<K> {
    oldest: BTreeSet<(Instant, u64, K)>,
    of_one: BTreeSet<(K, Instant, u64)>,
    counts: HashMap<K, (usize, Reverse<Instant>)>,
    /// Who has most is the last; of those who have as many, who has been waiting longest.
    ranking: BTreeSet<(usize, Reverse<Instant>, K)>,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self {
            oldest: BTreeSet::new(),
            of_one: BTreeSet::new(),
            counts: HashMap::new(),
            ranking: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Ord + Hash> Waiting<K> {
    pub(super) fn len(&self) -> usize {
        self.oldest.len()
    }

    /// Adds the connection `id` of `one`, which has been waiting since `since`.
    pub(super) fn add(&mut self, id: u64, one: K, since: Instant) {
        self.oldest.insert((since, id, one.clone()));
        self.of_one.insert((one.clone(), since, id));
        self.count(one, |count| count + 1);
    }

    /// Takes it out again; as it was added.
    pub(super) fn remove(&mut self, id: u64, one: K, since: Instant) {
        if self.oldest.remove(&(since, id, one.clone())) {
            self.of_one.remove(&(one.clone(), since, id));
            self.count(one, |count| count - 1);
        }
    }

    /// Some connection that has been waiting for `limit`.
    pub(super) fn overdue(&self, limit: Duration, now: Instant) -> Option<u64> {
        let (since, id, _) = self.oldest.first()?;
        (now.saturating_duration_since(*since) >= limit).then_some(*id)
    }

    /// Who has most, and how many.
    fn most(&self) -> Option<(usize, &K)> {
        self.ranking.last().map(|(count, _, one)| (*count, one))
    }

    /// Who makes room for another, if it has been waiting for `least`: of the one that has most, else of all but those that
    /// have next to nothing compared to that one.
    pub(super) fn yields(&self, least: Duration, now: Instant) -> Option<u64> {
        let of_all = || {
            let (_, _, one) = self.oldest.first()?;
            if self.is_starved(one) { None } else { self.overdue(least, now) }
        };
        self.yields_of(self.most()?.1, least, now).or_else(of_all)
    }

    /// Which of those of `one` makes room for another, if it has been waiting for `least`.
    pub(super) fn yields_of(&self, one: &K, least: Duration, now: Instant) -> Option<u64> {
        let (since, id) = self.first_of(one)?;
        (now.saturating_duration_since(since) >= least).then_some(id)
    }

    /// Who makes room for `one`, which has next to nothing compared to the one that has most.
    pub(super) fn yields_to(&self, one: &K, least: Duration, now: Instant) -> Option<u64> {
        if self.is_starved(one) { self.yields_of(self.most()?.1, least, now) } else { None }
    }

    fn is_starved(&self, one: &K) -> bool {
        let own = self.counts.get(one).map_or(0, |(count, _)| *count);
        self.most().is_some_and(|(most, _)| most > STARVED_FACTOR * (own + 1))
    }

    fn first_of(&self, one: &K) -> Option<(Instant, u64)> {
        let from = (one.clone(), self.oldest.first()?.0, 0);
        let (found, since, id) = self.of_one.range(from..).next()?;
        (found == one).then_some((*since, *id))
    }

    fn count(&mut self, one: K, change: impl Fn(usize) -> usize) {
        let (count, since) = self.counts.remove(&one).unwrap_or((0, Reverse(Instant::now())));
        self.ranking.remove(&(count, since, one.clone()));
        if let Some((since, _)) = self.first_of(&one) {
            let ranked = (change(count), Reverse(since));
            self.counts.insert(one.clone(), ranked);
            self.ranking.insert((ranked.0, ranked.1, one));
        }
    }
}

/// Who came through once, so many at least: an address that was never heard of is served behind it.
#[derive(Default)]
pub(super) struct Proven {
    recent: HashSet<IpAddr>,
    before: HashSet<IpAddr>,
}

impl Proven {
    const LEAST: usize = 8_192;

    pub(super) fn note(&mut self, address: IpAddr) {
        self.recent.insert(network(address));
        if self.recent.len() >= Self::LEAST {
            self.before = std::mem::take(&mut self.recent);
        }
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        let address = network(address);
        self.recent.contains(&address) || self.before.contains(&address)
    }
}

/// Those who wait for us: each address has its turn, and gives the first of its own.
pub(super) struct Turns<T> {
    queues: HashMap<IpAddr, VecDeque<T>>,
    order: VecDeque<IpAddr>,
    len: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { queues: HashMap::new(), order: VecDeque::new(), len: 0 }
    }
}

impl<T> Turns<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, address: IpAddr, one: T) {
        let address = network(address);
        let queue = self.queues.entry(address).or_default();
        if queue.is_empty() {
            self.order.push_back(address);
        }
        queue.push_back(one);
        self.len += 1;
    }

    pub(super) fn addresses(&self) -> usize {
        self.order.len()
    }

    /// The address whose turn it is.
    pub(super) fn next(&self) -> Option<IpAddr> {
        self.order.front().copied()
    }

    /// Leaves that turn to the next address.
    pub(super) fn pass(&mut self) {
        self.order.rotate_left(1.min(self.order.len()));
    }

    /// The first of that address, whose next turn comes after all others'.
    pub(super) fn pop(&mut self) -> Option<T> {
        let address = self.order.pop_front()?;
        let queue = self.queues.get_mut(&address)?;
        let one = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.queues.remove(&address);
        } else {
            self.order.push_back(address);
        }
        Some(one)
    }
}

/// How many came through lately: a crowd that comes through is honest, if slow.
#[derive(Default)]
pub(super) struct Flow {
    since: Option<Instant>,
    current: usize,
    previous: usize,
}

impl Flow {
    /// One came through.
    pub(super) fn count(&mut self, window: Duration, now: Instant) {
        self.advance(window, now);
        self.current += 1;
    }

    /// How many did within a window that is over or not: whichever had more.
    pub(super) fn recent(&mut self, window: Duration, now: Instant) -> usize {
        self.advance(window, now);
        self.current.max(self.previous)
    }

    fn advance(&mut self, window: Duration, now: Instant) {
        let passed = now.saturating_duration_since(*self.since.get_or_insert(now));
        if passed >= window {
            let previous = if passed < window * 2 { self.current } else { 0 };
            *self = Self { since: Some(now), current: 0, previous };
        }
    }
}

/// Whoever has one address of IPv6 has 2^64 of them.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => four.into(),
            None => std::net::Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_with_most_loses_what_waits_longest() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let [few, many]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let mut waiting = Waiting::default();
        waiting.add(1, few, at(0));
        for id in 2..20 {
            waiting.add(id, many, at(id));
        }
        assert_eq!(waiting.yields(Duration::ZERO, at(30)), Some(2), "not the oldest of all");
        assert_eq!(waiting.yields(Duration::from_secs(29), at(30)), None);
        assert_eq!(waiting.overdue(Duration::from_secs(30), at(30)), Some(1));
        assert_eq!(waiting.overdue(Duration::from_secs(31), at(30)), None);
        for id in 2..20 {
            waiting.remove(id, many, at(id));
        }
        assert_eq!((waiting.yields(Duration::ZERO, at(30)), waiting.len()), (Some(1), 1));
        assert_eq!(waiting.yields_of(&few, Duration::ZERO, at(30)), Some(1));
        assert_eq!(waiting.yields_of(&many, Duration::ZERO, at(30)), None);
        waiting.remove(1, few, at(0));
        assert_eq!((waiting.yields(Duration::ZERO, at(30)), waiting.len()), (None, 0));
    }

    #[test]
    fn among_many_with_one_place_each_the_longest_waiting_goes_whoever_it_is() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut waiting = Waiting::default();
        for (id, last) in [(1, 7_u8), (2, 3), (3, 9)] {
            waiting.add(id, last, at(id));
        }
        for expected in [1, 2, 3] {
            assert_eq!(waiting.yields(Duration::from_secs(2), at(9)), Some(expected));
            // It comes again.
            let one = [7, 3, 9][usize::try_from(expected).unwrap() - 1];
            waiting.remove(expected, one, at(expected));
            waiting.add(expected + 3, one, at(8));
        }
        assert_eq!(waiting.yields(Duration::from_secs(2), at(9)), None);
        // The one that has most came last; one that has waited long enough goes all the same.
        waiting.add(7, 3, at(9));
        waiting.remove(5, 3, at(8));
        waiting.add(8, 3, at(9));
        assert_eq!(waiting.most(), Some((2, &3)));
        assert_eq!(waiting.yields(Duration::ZERO, at(9)), Some(7));
        assert_eq!(waiting.yields(Duration::from_secs(1), at(9)), Some(4));
    }

    #[test]
    fn who_came_through_is_remembered_for_so_many_others() {
        let address = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        let mut proven = Proven::default();
        proven.note(address(0));
        assert!(proven.has(address(0)) && !proven.has(address(1)));
        (1..Proven::LEAST).for_each(|number| proven.note(address(number)));
        assert!(proven.has(address(0)) && proven.has(address(Proven::LEAST - 1)));
        (0..Proven::LEAST).for_each(|number| proven.note(address(Proven::LEAST + number)));
        assert!(!proven.has(address(0)) && proven.has(address(Proven::LEAST)));
    }

    #[test]
    fn one_that_has_most_makes_room_for_the_starved_alone() {
        let (start, least) = (Instant::now(), Duration::from_secs(1));
        let [asks, most]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        // How many the one who asks has, how many the other, for how many seconds; whether one of those makes room.
        let table = [
            (0, 0, 9, false),
            (0, 8, 9, false),
            (0, 9, 9, true),
            (0, 9, 1, true),
            (0, 9, 0, false),
            (1, 16, 9, false),
            (1, 17, 9, true),
            (500, 1500, 9, false),
            (1500, 0, 9, false),
        ];
        for (own, others, seconds, yields) in table {
            let mut waiting = Waiting::default();
            (0..own).for_each(|id| waiting.add(id, asks, start));
            (own..own + others).for_each(|id| waiting.add(id, most, start));
            let now = start + Duration::from_secs(seconds);
            let expected = yields.then_some(own);
            assert_eq!(waiting.yields_to(&asks, least, now), expected, "{own} {others} {seconds}");
        }
    }

    #[test]
    fn each_address_has_its_turn() {
        for (pushed, popped) in [
            ("", ""),
            ("a1 a2 a3", "a1 a2 a3"),
            ("a1 a2 a3 b1", "a1 b1 a2 a3"),
            ("a1 a2 b1 b2 c1", "a1 b1 c1 a2 b2"),
        ] {
            let mut turns = Turns::default();
            for one in pushed.split_whitespace() {
                turns.push([10, 0, 0, one.as_bytes()[0]].into(), one);
            }
            assert_eq!(turns.len(), pushed.split_whitespace().count());
            let all: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
            assert_eq!((all.join(" "), turns.len(), turns.next()), (popped.to_owned(), 0, None));
        }
        let mut turns = Turns::default();
        turns.pass();
        for last in 1..=3 {
            turns.push([10, 0, 0, last].into(), last);
        }
        turns.pass();
        assert_eq!([turns.pop(), turns.pop(), turns.pop(), turns.pop()], [Some(2), Some(3), Some(1), None]);
    }

    #[test]
    fn what_came_through_counts_for_a_window_and_the_next() {
        let (start, window) = (Instant::now(), Duration::from_secs(3));
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut flow = Flow::default();
        assert_eq!(flow.recent(window, at(0)), 0);
        for second in [0, 1, 1, 2] {
            flow.count(window, at(second));
        }
        assert_eq!([2, 3, 5].map(|second| flow.recent(window, at(second))), [4; 3]);
        flow.count(window, at(5));
        assert_eq!([6, 8, 9].map(|second| flow.recent(window, at(second))), [1, 1, 0]);
        flow.count(window, at(10));
        assert_eq!(flow.recent(window, at(20)), 0, "long ago");
    }

    #[test]
    fn addresses_that_come_by_the_billion_count_as_one() {
        let six = |text: &str| network(text.parse().unwrap());
        assert_eq!(six("2001:db8::1"), six("2001:db8::ffff:1"));
        assert_ne!(six("2001:db8::1"), six("2001:db8:0:1::1"));
        assert_ne!(six("::ffff:10.0.0.1"), six("::ffff:10.0.0.2"));
    }
}
