//! The places of those who wait, and who makes room for whom.
//!
//! Hands are shaken with each address in its turn, first with those from where somebody with a certificate came before.
//! When there is no more room, the address that has most unfinished handshakes, or unfinished requests, makes room for one
//! that has next to none; a name that has more than its part makes room before any other, wherever it connects from; and
//! handshakes take no more than half of the places of those who idle between requests.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Limits;
use super::guest::{Guest, Sort, Stage};
use super::slots::{Slots, uncount};
use super::waiting::{Flow, Proven, Turns, Waiting, network};

/// The queues of those who wait to come in.
const PROVEN: usize = 0;
const NEW: usize = 1;
/// As long as so many of the places for handshakes, one in this number, are passed on by those who show a certificate and
/// ask for something within the time after which others make room, a crowd is coming through and its slow ones are part of
/// it.
const CROWD_SHARE: usize = 16;
/// So many times the usual time they have then.
const CROWD_PATIENCE: u32 = 6;
/// A handshake, or a request, that has kept us waiting so long makes room for an address that has next to none under way,
/// if its own has most.
const HANDSHAKE_TURN: Duration = Duration::from_millis(250);
/// One step in so many lets somebody in, if somebody may come in, however many steps are due.
const TURN_SHARE: usize = 8;
/// One turn in so many is first of all for those who are new.
const NEW_SHARE: usize = 8;
/// So many addresses are asked at a time whether somebody makes room for them.
const TURNS_AHEAD: usize = 128;
/// As long as so many requests wait before somebody, no hands are shaken with it.
const QUICK_WAITING: usize = 512;

/// Who waits, for a peer or for us.
#[derive(Default)]
pub(super) struct Places {
    pub(super) closing: bool,
    pub(super) next: u64,
    pub(super) guests: HashMap<u64, Guest>,
    pub(super) waiting: [Waiting<IpAddr>; 7],
    /// Of the same, those with a name, and of those the ones between two requests.
    named: Waiting<Arc<str>>,
    named_idle: Waiting<Arc<str>>,
    /// Steps that are due for those who are inside.
    pub(super) steps: VecDeque<Guest>,
    taken: usize,
    /// Those who have spoken first and wait to come in, at addresses from where somebody came through, and at others.
    pub(super) begin: [Turns<Guest>; 2],
    proven: Proven,
    /// How many were let in.
    begun: usize,
    /// Whose hands are being shaken, by them or by us.
    pub(super) shaking: usize,
    /// How many of the known are not in `slots`, in all and by name.
    known: usize,
    known_of: HashMap<Arc<str>, usize>,
    /// Those who have shown a certificate, and said what they want.
    certified: Flow,
}

impl Places {
    /// Lets somebody wait to come in.
    pub(super) fn queue(&mut self, guest: Guest) {
        let address = guest.address.ip();
        let queue = if self.proven.has(address) { PROVEN } else { NEW };
        self.begin[queue].push(address, guest);
    }

    /// For whom a step is due: those who are inside come first, mostly.
    pub(super) fn next_step(&mut self, limits: &Limits, slots: &Slots<'_>) -> Option<Guest> {
        self.taken += 1;
        let early = if self.taken.is_multiple_of(TURN_SHARE) { self.next_turn(limits, slots) } else { None };
        early.or_else(|| self.steps.pop_front()).or_else(|| self.next_turn(limits, slots))
    }

    /// Whose hands may be shaken now.
    fn next_turn(&mut self, limits: &Limits, slots: &Slots<'_>) -> Option<Guest> {
        let queue = self.has_turn(limits, slots)?;
        self.shaking += 1;
        self.begun += 1;
        self.begin[queue].pop()
    }

    /// From which queue somebody may shake hands. An address for which nobody makes room does not hold up the next.
    fn has_turn(&mut self, limits: &Limits, slots: &Slots<'_>) -> Option<usize> {
        // What one name may have.
        let part = slots.part_of_one(limits.known);
        let queues = if self.begun.is_multiple_of(NEW_SHARE) { [NEW, PROVEN] } else { [PROVEN, NEW] };
        queues.into_iter().find(|queue| {
            (0..self.begin[*queue].addresses().min(TURNS_AHEAD)).any(|_| {
                let Some(address) = self.begin[*queue].next() else { return false };
                let is_proven = *queue == PROVEN;
                !slots.quick_waiting(address, QUICK_WAITING)
                    && self.makes_room(limits, part, address, is_proven)
                    || {
                        self.begin[*queue].pass();
                        false
                    }
            })
        })
    }

    /// Whether somebody at `address` may shake hands. Who keeps us waiting or idles between requests makes room.
    fn makes_room(&mut self, limits: &Limits, part: usize, address: IpAddr, is_proven: bool) -> bool {
        while self.is_full(limits) {
            let now = Instant::now();
            let patience = self.patience(limits, now);
            let (turn, some) = (HANDSHAKE_TURN * patience, limits.yields * patience);
            // Handshakes take places of those who are known only while they are few themselves.
            let few = self.shaking < limits.handshakes;
            let few_beside_idle = few && self.shaking < limits.known.div_ceil(2);
            let yields = |may: bool, sort: Sort, least| {
                if may { self.waiting[sort as usize].yields(least, now) } else { None }
            };
            let starved = |may: bool, sort: Sort, least| {
                if may { self.waiting[sort as usize].yields_to(&network(address), least, now) } else { None }
            };
            let of_name = |name| {
                let idle = self.named_idle.yields_of(name, Duration::ZERO, now);
                idle.or_else(|| self.named.yields_of(name, some, now))
            };
            let of_all = || {
                yields(few_beside_idle, Sort::Idle, Duration::ZERO)
                    .or_else(|| starved(few, Sort::Fresh, turn))
                    .or_else(|| yields(few, Sort::Fresh, some))
                    .or_else(|| yields(few, Sort::Speaking, some))
            };
            // As long as one name has more than its part, no other makes room.
            let mut greedy: Vec<_> = self.known_of.iter().filter(|(_, count)| **count > part).collect();
            greedy.sort_by_key(|(_, count)| Reverse(**count));
            let id = yields(few, Sort::Nameless, some)
                .or_else(|| starved(true, Sort::Handshake, turn))
                .or_else(|| yields(is_proven, Sort::Handshake, turn))
                .or_else(|| starved(few, Sort::Speaking, HANDSHAKE_TURN))
                .or_else(|| match greedy.as_slice() {
                    [] => of_all(),
                    greedy => greedy.iter().filter(|_| few).find_map(|(name, _)| of_name(name)),
                });
            let Some(id) = id else { return false };
            if let Some(guest) = self.remove(id) {
                self.forget(&guest);
            }
        }
        true
    }

    /// Somebody at `address` has shown a certificate, and said what it wants.
    pub(super) fn came_through(&mut self, limits: &Limits, address: IpAddr) {
        self.certified.count(limits.handshake_yields, Instant::now());
        self.proven.note(address);
    }

    /// One more is known.
    pub(super) fn come(&mut self, name: Option<&Arc<str>>) {
        self.known += 1;
        if let Some(name) = name {
            *self.known_of.entry(Arc::clone(name)).or_default() += 1;
        }
    }

    /// It has gone, or its request waits for its turn.
    pub(super) fn go(&mut self, name: Option<&Arc<str>>) {
        self.known -= 1;
        if let Some(name) = name {
            uncount(&mut self.known_of, name);
        }
    }

    /// How many wait to come in.
    pub(super) fn beginning(&self) -> usize {
        self.begin.iter().map(Turns::len).sum()
    }

    /// So many times the usual time everybody has now.
    pub(super) fn patience(&mut self, limits: &Limits, now: Instant) -> u32 {
        let came = self.certified.recent(limits.handshake_yields, now);
        if came >= (limits.handshakes / CROWD_SHARE).max(1) { CROWD_PATIENCE } else { 1 }
    }

    /// Whether somebody has to make room before one more may shake hands.
    pub(super) fn is_full(&self, limits: &Limits) -> bool {
        self.shaking >= limits.handshakes || self.known + self.shaking >= limits.known
    }

    pub(super) fn insert(&mut self, guest: Guest) {
        let (id, sort, begun) = (guest.id, guest.sort(), guest.begun());
        self.waiting[sort as usize].add(id, network(guest.address.ip()), begun);
        if let Some(name) = guest.name() {
            self.named.add(id, Arc::clone(name), begun);
            if sort == Sort::Idle {
                self.named_idle.add(id, Arc::clone(name), begun);
            }
        }
        self.guests.insert(id, guest);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Guest> {
        let guest = self.guests.remove(&id)?;
        let begun = guest.begun();
        self.waiting[guest.sort() as usize].remove(id, network(guest.address.ip()), begun);
        if let Some(name) = guest.name() {
            self.named.remove(id, Arc::clone(name), begun);
            self.named_idle.remove(id, Arc::clone(name), begun);
        }
        Some(guest)
    }

    /// Somebody who does not come back makes room.
    pub(super) fn forget(&mut self, guest: &Guest) {
        if self.closing {
            return;
        }
        match guest.stage {
            Stage::Handshake(..) => self.shaking -= 1,
            Stage::Session(_) => self.go(guest.name()),
            Stage::Silent(_) | Stage::Farewell(_) => {}
        }
    }
}
