//! Connections that wait for their peers, none of which holds a thread: silent, shaking hands, between requests.
//!
//! Who has shown nothing yet is told apart from who has: the one never takes the place of the other. Time counts only
//! while a peer is waited for. A few threads take the steps that are due; what has a whole head goes to `slots`. Who spoke
//! and cannot be served is told so before it is let go.
//!
//! Hands are shaken with each address in its turn. When there is no more room, the address that has most unfinished
//! handshakes, or unfinished requests, makes room for one that has next to none; a name that has more than its part makes
//! room before any other, wherever it connects from; and handshakes take no more than half of the places of those who
//! idle between requests.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConnection;

use crate::sys::Poller;

use super::connection::{self, Next};
use super::guest::{Drained, Guest, Session, Sort, Stage, drained, has_spoken};
use super::slots::{Job, Slots};
use super::waiting::{Flow, Turns, Waiting, network};
use super::wire::{Input, Socket, Tls};
use super::{Limits, Peer, Principal, Response};

/// How long somebody who has its answer may take to hear it.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);
/// How much a peer may say until hands are shaken. Its certificate is the most of it, and has less than 1 KiB.
const GREETING_BYTES: usize = 24 * 1024;
/// As long as so many of the places for handshakes, one in this number, are passed on by those who show a certificate and
/// ask for something within the time after which others make room, a crowd is coming through and its slow ones are part of
/// it.
const CROWD_SHARE: usize = 16;
/// So many times the usual time they have then.
const CROWD_TIMEOUT_FACTOR: u32 = 6;
/// A handshake, or a request, that has kept us waiting so long makes room for an address that has next to none under way,
/// if its own has most.
const HANDSHAKE_TURN: Duration = Duration::from_millis(250);
/// So many addresses are asked at a time whether somebody makes room for them.
const TURNS_AHEAD: usize = 128;
/// As long as so many requests wait before somebody, no hands are shaken with it.
const QUICK_WAITING: usize = 512;

#[derive(Default)]
struct State {
    closing: bool,
    next: u64,
    guests: HashMap<u64, Guest>,
    waiting: [Waiting<IpAddr>; 7],
    /// Of the same, those with a name, and of those the ones between two requests.
    named: Waiting<Arc<str>>,
    named_idle: Waiting<Arc<str>>,
    /// Steps that are due for those who are inside.
    steps: VecDeque<Guest>,
    /// Those who have spoken first and wait to come in.
    begin: Turns<Guest>,
    /// Whose hands are being shaken, by them or by us.
    shaking: usize,
    /// How many of the known are not in `slots`.
    known: usize,
    /// Those who have shown a certificate, and said what they want.
    certified: Flow,
}

/// Everybody who waits.
pub(super) struct Lobby<'a> {
    limits: &'a Limits,
    tls: Option<&'a Arc<rustls::ServerConfig>>,
    principal: Option<Principal>,
    pub(super) poller: Poller,
    slots: &'a Slots<'a>,
    state: Mutex<State>,
    due: Condvar,
}

impl<'a> Lobby<'a> {
    pub(super) fn new(
        limits: &'a Limits,
        tls: Option<&'a Arc<rustls::ServerConfig>>,
        principal: Option<Principal>,
        slots: &'a Slots<'a>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        Ok(Self { limits, tls, principal, poller, slots, state: Mutex::default(), due: Condvar::new() })
    }

    /// Lets a connection in.
    pub(super) fn enter(&self, socket: TcpStream, address: SocketAddr) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        let id = {
            let mut state = self.lock();
            state.next += 1;
            while state.waiting[Sort::Silent as usize].len() + state.begin.len() >= self.limits.strangers {
                let now = Instant::now();
                let Some(longest) = state.waiting[Sort::Silent as usize].yields(Duration::ZERO, now) else {
                    // All of them have spoken: this one waits in the system's queue no longer than they do here.
                    break;
                };
                state.remove(longest);
            }
            state.next
        };
        let stage = Stage::Silent(Arc::new(socket));
        let guest = Guest { id, address, stage, waited: Duration::ZERO, since: Instant::now() };
        self.poller.add(&*guest.shared(), id)?;
        self.settle(guest);
        Ok(())
    }

    /// Whether there is room for more who have not spoken yet.
    pub(super) fn has_room(&self) -> bool {
        self.lock().begin.len() < self.limits.strangers
    }

    /// Takes a connection back from its turn, to wait for its next request or until it has heard its last answer.
    pub(super) fn return_to(&self, stage: Stage, address: SocketAddr) {
        let id = {
            let mut state = self.lock();
            state.next += 1;
            state.known += usize::from(matches!(stage, Stage::Session(_)));
            state.next
        };
        let guest = Guest { id, address, stage, waited: Duration::ZERO, since: Instant::now() };
        if let Err(error) = self.poller.add(&*guest.shared(), id) {
            log::debug!("cannot wait for {address}: {error}");
            return self.gone(&guest);
        }
        // There may be something that was read already.
        self.lock().steps.push_back(guest);
        self.due.notify_one();
    }

    /// A turn is over, so that another can come in.
    pub(super) fn turn_over(&self) {
        self.due.notify_one();
    }

    /// Looks at those who may have something to say.
    pub(super) fn look_at(&self, ids: &[u64]) {
        for &id in ids {
            let Some(mut guest) = self.lock().remove(id) else { continue };
            guest.waited += guest.since.elapsed();
            match &guest.stage {
                Stage::Silent(socket) => match has_spoken(socket, self.tls.is_some()) {
                    Ok(true) => {
                        let mut state = self.lock();
                        state.begin.push(guest.address.ip(), guest);
                        drop(state);
                        self.due.notify_one();
                    }
                    Ok(false) => {
                        guest.since = Instant::now();
                        self.lock().insert(guest);
                    }
                    Err(_) => {}
                },
                Stage::Farewell(socket) => {
                    if drained(socket) == Drained::Open {
                        guest.since = Instant::now();
                        self.lock().insert(guest);
                    }
                }
                _ => {
                    self.lock().steps.push_back(guest);
                    self.due.notify_one();
                }
            }
        }
    }

    /// All who wait, for systems that do not tell who has spoken.
    pub(super) fn everybody(&self) -> Vec<u64> {
        self.lock().guests.keys().copied().collect()
    }

    /// Lets those go who have kept us waiting too long, and makes room where others wait.
    pub(super) fn tidy(&self) {
        let now = Instant::now();
        let crowd = self.lock().is_crowd(self.limits, now);
        for sort in Sort::ALL {
            let limit = self.limit(sort) * if crowd { CROWD_TIMEOUT_FACTOR } else { 1 };
            loop {
                let mut state = self.lock();
                let Some(id) = state.waiting[sort as usize].overdue(limit, now) else { break };
                let Some(guest) = state.remove(id) else { break };
                drop(state);
                self.dismiss(guest);
            }
        }
        let mut state = self.lock();
        let mut wanted = if crowd { 0 } else { state.begin.len() };
        while wanted > 0 && state.is_full(self.limits) {
            let shaking = &state.waiting[Sort::Handshake as usize];
            let Some(id) = shaking.yields(self.limits.handshake_yields, now) else { break };
            let Some(guest) = state.remove(id) else { break };
            state.forget(&guest);
            wanted -= 1;
        }
        drop(state);
        self.due.notify_all();
    }

    /// Nobody waits any more, and nobody comes in.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        state.guests.clear();
        state.steps.clear();
        state.begin.clear();
        drop(state);
        self.due.notify_all();
    }

    pub(super) fn closing(&self) -> bool {
        self.lock().closing
    }

    /// Takes steps until all shall end; `started` is called when there is a request to serve.
    pub(super) fn work(&self, started: impl Fn()) {
        while let Some(guest) = self.next_step() {
            if self.step(guest) {
                started();
            }
        }
    }

    fn next_step(&self) -> Option<Guest> {
        let mut state = self.lock();
        loop {
            if state.closing {
                return None;
            }
            if let Some(guest) = state.steps.pop_front() {
                return Some(guest);
            }
            if self.has_turn(&mut state) {
                state.shaking += 1;
                return state.begin.pop();
            }
            state = self.due.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether somebody may shake hands. An address for which nobody makes room does not hold up the next.
    fn has_turn(&self, state: &mut State) -> bool {
        (0..state.begin.addresses().min(TURNS_AHEAD)).any(|_| {
            let Some(address) = state.begin.next() else { return false };
            self.slots.quick_waiting(address) < QUICK_WAITING && self.makes_room(state, address) || {
                state.begin.pass();
                false
            }
        })
    }

    /// Whether somebody at `address` may shake hands. Who keeps us waiting or idles between requests makes room.
    fn makes_room(&self, state: &mut State, address: IpAddr) -> bool {
        while state.is_full(self.limits) {
            let now = Instant::now();
            let factor = if state.is_crowd(self.limits, now) { CROWD_TIMEOUT_FACTOR } else { 1 };
            let some = self.limits.yields * factor;
            // Handshakes take places of those who are known only while they are few themselves.
            let few = state.shaking < self.limits.handshakes;
            let few_beside_idle = few && state.shaking < self.limits.known.div_ceil(2);
            let yields = |may: bool, sort: Sort, least| {
                if may { state.waiting[sort as usize].yields(least, now) } else { None }
            };
            let starved = |may: bool, sort: Sort, least| {
                if may { state.waiting[sort as usize].yields_to(&network(address), least, now) } else { None }
            };
            let of_name = |name| {
                let idle = state.named_idle.yields_of(name, Duration::ZERO, now);
                idle.or_else(|| state.named.yields_of(name, some, now))
            };
            let of_all = || {
                yields(few_beside_idle, Sort::Idle, Duration::ZERO)
                    .or_else(|| starved(few, Sort::Fresh, HANDSHAKE_TURN * factor))
                    .or_else(|| yields(few, Sort::Fresh, some))
                    .or_else(|| yields(few, Sort::Speaking, some))
            };
            // As long as one name has more than its part, no other makes room.
            let part = self.slots.part_of_one(self.limits.known);
            let greedy = state.named.most().filter(|(count, _)| *count > part);
            let id = yields(few, Sort::Nameless, some)
                .or_else(|| starved(true, Sort::Handshake, HANDSHAKE_TURN * factor))
                .or_else(|| starved(few, Sort::Speaking, HANDSHAKE_TURN))
                .or_else(|| match greedy {
                    Some((_, name)) => few.then(|| of_name(name)).flatten(),
                    None => of_all(),
                });
            let Some(id) = id else { return false };
            if let Some(guest) = state.remove(id) {
                state.forget(&guest);
            }
        }
        true
    }

    /// What can be done for `guest` now; true if a request waits for its turn.
    fn step(&self, guest: Guest) -> bool {
        let Guest { id, address, stage, waited, .. } = guest;
        let back = |stage, waited| Guest { id, address, stage, waited, since: Instant::now() };
        match stage {
            Stage::Silent(socket) => match self.begin(socket, address) {
                Ok(stage) => {
                    if !matches!(stage, Stage::Handshake(..)) {
                        let mut state = self.lock();
                        state.shaking -= 1;
                        state.known += usize::from(matches!(stage, Stage::Session(_)));
                    }
                    self.step_again(back(stage, Duration::ZERO))
                }
                Err(_) => {
                    self.lock().shaking -= 1;
                    false
                }
            },
            Stage::Handshake(mut connection, mut socket) => match connection.complete_io(&mut socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.settle(back(Stage::Handshake(connection, socket), waited));
                    false
                }
                Err(error) => {
                    log::debug!("no request from {address}: {error}");
                    // A refusal is told; somebody who has gone hears nothing.
                    let told = error.kind() == io::ErrorKind::InvalidData;
                    let gone = back(Stage::Handshake(connection, socket), waited);
                    self.lock().shaking -= 1;
                    if told {
                        self.bid_farewell(gone);
                    }
                    false
                }
                Ok(_) if connection.is_handshaking() => {
                    self.settle(back(Stage::Handshake(connection, socket), waited));
                    false
                }
                Ok(_) => {
                    {
                        let mut state = self.lock();
                        state.shaking -= 1;
                        state.known += 1;
                        // Those without a name have a quarter of the places at most, and take them from each other.
                        let nameless = &state.waiting[Sort::Nameless as usize];
                        let most = self.limits.known / 4;
                        let longest = nameless.yields(Duration::ZERO, Instant::now());
                        if let Some(id) = longest.filter(|_| nameless.len() > most)
                            && let Some(guest) = state.remove(id)
                        {
                            state.forget(&guest);
                        }
                    }
                    let session = self.session(*connection, socket, address);
                    self.step_again(back(Stage::Session(Box::new(session)), Duration::ZERO))
                }
            },
            Stage::Session(session) => {
                self.listen(back(Stage::Farewell(Arc::clone(&session.socket)), waited), *session)
            }
            Stage::Farewell(_) => {
                self.settle(back(stage, waited));
                false
            }
        }
    }

    /// The step after a step: mostly there is something to read already.
    fn step_again(&self, guest: Guest) -> bool {
        match guest.stage {
            Stage::Silent(_) | Stage::Farewell(_) => {
                self.settle(guest);
                false
            }
            _ => self.step(guest),
        }
    }

    /// Somebody who has spoken first.
    fn begin(&self, tcp: Arc<TcpStream>, address: SocketAddr) -> io::Result<Stage> {
        let mut socket = Socket::new(Arc::clone(&tcp), self.limits.stall)?;
        let Some(config) = self.tls else {
            let input = Input::new(Box::new(socket));
            let peer = Peer { address, certificate: None, open: Arc::default() };
            return Ok(Stage::Session(Box::new(Session::new(tcp, input, peer, None))));
        };
        let mut first = [0];
        if tcp.peek(&mut first)? == 1 && first[0].is_ascii_uppercase() {
            // A record of TLS begins otherwise; this one tries plain HTTP.
            Response::text(400, "this port speaks HTTPS").write(&mut socket, true, true)?;
            tcp.shutdown(std::net::Shutdown::Write)?;
            drained(&tcp);
            return Ok(Stage::Farewell(tcp));
        }
        socket.bound_greeting(Some(GREETING_BYTES));
        Ok(Stage::Handshake(Box::new(Tls::begin(Arc::clone(config))?), socket))
    }

    fn session(&self, connection: ServerConnection, socket: Socket, address: SocketAddr) -> Session {
        let tcp = socket.shared();
        let tls = Tls::new(connection, socket);
        let peer = Peer { address, certificate: tls.certificate(), open: Arc::default() };
        let principal = self.principal.and_then(|principal| principal(peer.certificate.as_ref()?));
        let nameless = peer.certificate.is_none();
        let session = Session::new(tcp, Input::new(Box::new(tls)), peer, principal.map(Into::into));
        Session { nameless, ..session }
    }

    /// Reads a head as far as it is here.
    fn listen(&self, mut guest: Guest, mut session: Session) -> bool {
        let spoke = session.head.is_some() || !session.input.pending().is_empty();
        match connection::next(&mut session, self.limits.head_bytes) {
            Next::Wait => {
                if !spoke && !session.input.pending().is_empty() {
                    guest.waited = Duration::ZERO;
                }
                guest.stage = Stage::Session(Box::new(session));
                self.settle(guest);
                false
            }
            Next::End => {
                session.input.wire.close();
                guest.stage = Stage::Session(Box::new(session));
                self.gone(&guest);
                false
            }
            Next::Refuse(refusal) => {
                log::debug!("refused a request from {}: {}", guest.address, refusal.reason);
                self.answer_and_leave(guest, session, Response::text(refusal.status, refusal.reason));
                false
            }
            Next::Request(head) => {
                self.poller.remove(&*session.socket);
                {
                    let mut state = self.lock();
                    state.known -= 1;
                    if !session.greeted && !session.nameless {
                        state.certified.count(self.limits.handshake_yields, Instant::now());
                    }
                }
                match self.slots.submit(Job { session, head }) {
                    Ok(()) => true,
                    Err(Job { session, .. }) => {
                        self.lock().known += 1;
                        let busy = Response::text(503, "too many uploads at once; try again")
                            .header("retry-after", "5");
                        // It is not polled any more, and its id is its own still.
                        let _ = self.poller.add(&*session.socket, guest.id);
                        self.answer_and_leave(guest, session, busy);
                        false
                    }
                }
            }
        }
    }

    fn answer_and_leave(&self, mut guest: Guest, mut session: Session, answer: Response) {
        // One who does not read an answer of a few bytes does not want it.
        let told = answer.write(&mut *session.input.wire, true, true);
        if told.is_ok() {
            session.input.wire.close();
        }
        guest.stage = Stage::Session(Box::new(session));
        if told.is_ok() {
            self.lock().forget(&guest);
            self.bid_farewell(guest);
        } else {
            self.gone(&guest);
        }
    }

    /// Waits a moment until somebody who was told has heard it.
    fn bid_farewell(&self, mut guest: Guest) {
        let socket = guest.shared();
        let _ = socket.shutdown(std::net::Shutdown::Write);
        if drained(&socket) == Drained::Open {
            guest.stage = Stage::Farewell(socket);
            guest.waited = Duration::ZERO;
            self.settle(guest);
        }
    }

    /// Somebody who took too long: told so if it has begun to say something.
    fn dismiss(&self, guest: Guest) {
        let Guest { id, address, stage, waited, since } = guest;
        match stage {
            Stage::Session(session) if session.head.is_some() || !session.input.pending().is_empty() => {
                let what = if session.head.is_some() { "body" } else { "head" };
                let guest =
                    Guest { id, address, stage: Stage::Farewell(Arc::clone(&session.socket)), waited, since };
                let late = Response::text(408, format_args!("the {what} arrived too slowly"));
                self.answer_and_leave(guest, *session, late);
            }
            stage => {
                let mut guest = Guest { id, address, stage, waited, since };
                if let Stage::Session(session) = &mut guest.stage {
                    session.input.wire.close();
                }
                self.gone(&guest);
            }
        }
    }

    fn gone(&self, guest: &Guest) {
        self.lock().forget(guest);
    }

    /// Waits for it.
    fn settle(&self, guest: Guest) {
        let (id, socket) = (guest.id, guest.shared());
        let mut state = self.lock();
        if state.closing {
            return;
        }
        state.insert(guest);
        // Those who have their last answer are let go sooner where they are many.
        let farewells = &state.waiting[Sort::Farewell as usize];
        let most =
            farewells.yields(Duration::ZERO, Instant::now()).filter(|_| farewells.len() > self.limits.known);
        if let Some(id) = most {
            state.remove(id);
        }
        // Under the lock, or it could be another's turn before it is told of again. What fails here is overdue later.
        if let Err(error) = self.poller.again(&*socket, id) {
            log::debug!("cannot wait for a connection: {error}");
        }
    }

    fn limit(&self, sort: Sort) -> Duration {
        match sort {
            Sort::Silent | Sort::Handshake | Sort::Nameless => self.limits.handshake,
            Sort::Idle => self.limits.idle,
            Sort::Speaking | Sort::Fresh => self.limits.head,
            Sort::Farewell => GOODBYE_TIMEOUT,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held leaves nothing half-done here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_crowd(&mut self, limits: &Limits, now: Instant) -> bool {
        self.certified.recent(limits.handshake_yields, now) >= (limits.handshakes / CROWD_SHARE).max(1)
    }

    /// Whether somebody has to make room before one more may shake hands.
    fn is_full(&self, limits: &Limits) -> bool {
        self.shaking >= limits.handshakes || self.known + self.shaking >= limits.known
    }

    fn insert(&mut self, guest: Guest) {
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

    fn remove(&mut self, id: u64) -> Option<Guest> {
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
    fn forget(&mut self, guest: &Guest) {
        if self.closing {
            return;
        }
        match guest.stage {
            Stage::Handshake(..) => self.shaking -= 1,
            Stage::Session(_) => self.known -= 1,
            Stage::Silent(_) | Stage::Farewell(_) => {}
        }
    }
}
