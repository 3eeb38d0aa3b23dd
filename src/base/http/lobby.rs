//! Connections that wait for their peers, none of which holds a thread: silent, shaking hands, between requests.
//!
//! Who has shown nothing yet is told apart from who has: the one never takes the place of the other. Time counts only
//! while a peer is waited for. A few threads take the steps that are due; what has a whole head goes to `slots`. Who spoke
//! and cannot be served is told so before it is let go.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConnection;

use crate::sys::Poller;

use super::connection::{self, Next};
use super::guest::{Drained, Guest, Session, Sort, Stage, drained, has_spoken};
use super::places::Places;
use super::slots::{Job, Slots};
use super::wire::{Input, Socket, Tls};
use super::{Limits, Peer, Principal, Response};

/// How long somebody who has its answer may take to hear it.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);
/// How much a peer may say until hands are shaken. Its certificate is the most of it, and has less than 1 KiB.
const GREETING_BYTES: usize = 24 * 1024;

/// Everybody who waits.
pub(super) struct Lobby<'a> {
    limits: &'a Limits,
    tls: Option<&'a Arc<rustls::ServerConfig>>,
    principal: Option<Principal>,
    pub(super) poller: Poller,
    slots: &'a Slots<'a>,
    state: Mutex<Places>,
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
            while state.waiting[Sort::Silent as usize].len() + state.beginning() >= self.limits.strangers {
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
        self.lock().beginning() < self.limits.strangers
    }

    /// Takes a connection back from its turn, to wait for its next request or until it has heard its last answer.
    pub(super) fn return_to(&self, stage: Stage, address: SocketAddr) {
        let id = {
            let mut state = self.lock();
            state.next += 1;
            if let Stage::Session(session) = &stage {
                state.come(session.principal.as_ref());
            }
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
                        state.queue(guest);
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
                        self.settle(guest);
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
        let patience = self.lock().patience(self.limits, now);
        for sort in Sort::ALL {
            let limit = self.limit(sort) * patience;
            loop {
                let mut state = self.lock();
                let Some(id) = state.waiting[sort as usize].overdue(limit, now) else { break };
                let Some(guest) = state.remove(id) else { break };
                drop(state);
                self.dismiss(guest);
            }
        }
        let mut state = self.lock();
        let mut wanted = if patience > 1 { 0 } else { state.beginning() };
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
        state.begin = Default::default();
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
            if let Some(guest) = state.next_step(self.limits, self.slots) {
                return Some(guest);
            }
            state = self.due.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
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
                        if let Stage::Session(session) = &stage {
                            state.come(session.principal.as_ref());
                        }
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
                    let session = self.session(*connection, socket, address);
                    let mut state = self.lock();
                    state.shaking -= 1;
                    state.come(session.principal.as_ref());
                    // Those without a name have a quarter of the places at most, and take them from each other.
                    let nameless = &state.waiting[Sort::Nameless as usize];
                    let longest = nameless.yields(Duration::ZERO, Instant::now());
                    if let Some(id) = longest.filter(|_| nameless.len() > self.limits.known / 4)
                        && let Some(guest) = state.remove(id)
                    {
                        state.forget(&guest);
                    }
                    drop(state);
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
                    state.go(session.principal.as_ref());
                    if !session.greeted && !session.nameless {
                        state.came_through(self.limits, guest.address.ip());
                    }
                }
                match self.slots.submit(Job { session, head }) {
                    Ok(()) => true,
                    Err(Job { session, .. }) => {
                        self.lock().come(session.principal.as_ref());
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

    fn lock(&self) -> MutexGuard<'_, Places> {
        // A panic while the lock is held leaves nothing half-done here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
