//! The small HTTP/1.1 server, over TLS or plain: a thread for each request that has its turn, strict framing, limits.
//!
//! Owns the wire: what a request is, where its body ends, how long a peer may take. Knows no route, no plugin, no
//! file. Who connects waits in the `lobby`, where nobody holds a thread: one looks who has something to say, a few
//! shake hands and read heads. A request whose head is here waits in `slots` for one of the threads of its sort, which
//! reads and answers as if it were alone. `run` starts all of them, and one that ends them; it joins them all.
//!
//! What has shown no certificate lives in a pool of its own, and takes no place of what has. Whoever speaks is
//! answered, if only with 503; who keeps us waiting while others wait for its place makes room for them, as `places` says.
//!
//! Every doubt about where a message ends is a refusal and the end of the connection. A body is never complete
//! because the peer went away.

mod body;
mod connection;
mod guest;
mod head;
mod listen;
mod lobby;
mod meter;
mod places;
mod response;
#[cfg(any(test, fuzzing))]
mod script;
mod slots;
mod waiting;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustls::pki_types::CertificateDer;

use crate::stop::Stop;
use crate::sys::{self, Found};
pub use body::Body;
use connection::Handler;
use guest::Stage;
pub use head::Headers;
use lobby::Lobby;
pub use meter::{Meter, Waits};
pub use response::Response;
#[cfg(any(fuzzing, test))]
pub use script::consistent;
use slots::{Class, Job, Slots, Turn};

/// How many peers the system lets wait to be accepted. The usual 128 costs a burst of workers seconds.
const BACKLOG: i32 = 4096;
/// The stack of a connection's thread; only what is touched costs memory.
const STACK: usize = 512 * 1024;
/// How often is looked who has kept us waiting too long.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How many threads shake hands and read heads.
const STEPS: usize = 2;
/// What the poller calls the socket that listens; connections are counted from 1.
const LISTENER: u64 = 0;

/// What peers may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections that have not said anything yet.
    pub strangers: usize,
    /// Connections that are shaking hands; more wait.
    pub handshakes: usize,
    /// Connections that have shaken hands and wait for a request; who idles makes room.
    pub known: usize,
    /// Requests without a body, or with a body that is here, answered at once.
    pub ready: usize,
    /// Requests with a small body, served at once.
    pub small: usize,
    /// Requests with a large body or answer, served at once.
    pub large: usize,
    /// Requests with a large body that wait for their turn; more are told to come again.
    pub parked: usize,
    /// How many principals share all that alike, where that is known; none gets more than three quarters.
    pub principals: usize,
    /// How long a peer may keep us waiting until hands are shaken.
    pub handshake: Duration,
    /// Who has kept us waiting so long with a handshake makes room for others. An honest crowd on a busy machine needs
    /// seconds for its own part.
    pub handshake_yields: Duration,
    /// For a whole head from its first byte, and for that byte after shaking hands.
    pub head: Duration,
    /// The longest head, in bytes.
    pub head_bytes: usize,
    /// Between two requests.
    pub idle: Duration,
    /// Without a single byte, in either direction.
    pub stall: Duration,
    /// The least a body must bring, in bytes per second, beyond a start of `stall`; 0 for any.
    pub rate: u64,
    /// The least it must bring while others wait for its place.
    pub pressed_rate: u64,
    /// Who has kept us waiting so long makes room for others.
    pub yields: Duration,
    /// What requests that are under way get when the server stops.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            strangers: 16_384,
            handshakes: 2_048,
            known: 2_048,
            ready: 80,
            small: 96,
            large: 256,
            parked: 4_096,
            principals: 0,
            handshake: Duration::from_secs(10),
            handshake_yields: Duration::from_secs(3),
            head: Duration::from_secs(15),
            head_bytes: 16 * 1024,
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            rate: 512,
            pressed_rate: 8 * 1024,
            yields: Duration::from_secs(1),
            grace: Duration::from_secs(10),
        }
    }
}

/// Whose a certificate is: those with the same name share what there is for one.
pub type Principal = fn(&CertificateDer<'static>) -> Option<String>;

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it comes from.
    pub address: SocketAddr,
    /// What it has shown, verified; `None` without TLS.
    pub certificate: Option<CertificateDer<'static>>,
    /// The same for all requests of a connection; nobody else holds it when the connection is gone.
    pub open: Arc<()>,
}

/// A request whose body is still to be read.
pub struct Request<'a> {
    /// As it was sent; methods are case-sensitive.
    pub method: String,
    /// Percent-encoded, without the query, never with empty or dot segments.
    pub path: String,
    /// What follows the `?`.
    pub query: Option<String>,
    /// All header lines.
    pub headers: Headers,
    /// Who sent it.
    pub peer: &'a Peer,
    length: Option<u64>,
    body: Body<'a>,
}

impl<'a> Request<'a> {
    /// The body. A client that waits for a go-ahead gets it at the first read, so look at everything else first.
    pub fn body(&mut self) -> &mut Body<'a> {
        &mut self.body
    }

    /// How long the body says it is, 0 without one; `None` if only its end will tell.
    pub fn declared_length(&self) -> Option<u64> {
        self.length
    }
}

/// A request that was told to come again for want of a turn.
#[derive(Clone, Debug)]
pub struct TurnedAway {
    /// Who sent it.
    pub peer: Peer,
    /// What it asked for.
    pub path: String,
    /// Whether it had its turn and brought next to nothing; else too many were waiting.
    pub dawdled: bool,
}

/// The last of those, so many at most.
#[derive(Default)]
struct Refused(Mutex<VecDeque<TurnedAway>>);

impl Refused {
    const MAX_NOTED: usize = 256;

    fn note(&self, peer: &Peer, path: &str, dawdled: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == Self::MAX_NOTED {
            all.pop_front();
        }
        all.push_back(TurnedAway { peer: peer.clone(), path: path.to_owned(), dawdled });
    }
}

/// A server that listens already.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    principal: Option<Principal>,
    limits: Limits,
    refused: Refused,
}

impl Server {
    /// Listens at `address`, a host and a port; port 0 is a free one. The wildcard of either family is that of both.
    pub fn bind(address: &str) -> anyhow::Result<Self> {
        let listener = match listen::listen(address) {
            Ok(listener) => listener,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                bail!(
                    "cannot listen at `{address}`: the port is taken; stop what listens there or choose another"
                );
            }
            Err(error) => return Err(error).with_context(|| format!("cannot listen at `{address}`")),
        };
        sys::listen(&listener, BACKLOG).with_context(|| format!("cannot listen at `{address}`"))?;
        let address = listener.local_addr().context("cannot get the port")?;
        Ok(Self {
            listener,
            address,
            tls: None,
            principal: None,
            limits: Limits::default(),
            refused: Refused::default(),
        })
    }

    /// Speaks TLS.
    #[must_use]
    pub fn tls(mut self, config: Arc<rustls::ServerConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Sets other limits than the usual.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Tells whose a certificate is, so that nobody takes what is another's.
    #[must_use]
    pub fn principal(mut self, principal: Principal) -> Self {
        self.principal = Some(principal);
        self
    }

    /// The last requests that were told to come again, each once.
    pub fn turned_away(&self) -> Vec<TurnedAway> {
        self.refused.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Answers requests until `stop`; then ends idle connections at once and gives the others a grace.
    pub fn run(
        &self,
        stop: &Stop,
        handler: impl Fn(&mut Request<'_>) -> Response + Sync,
    ) -> anyhow::Result<()> {
        let limits = room(self.limits.clone());
        let slots = Slots::new(&limits, &self.refused);
        let lobby = Lobby::new(&limits, self.tls.as_ref(), self.principal, &slots)
            .context("cannot wait for connections")?;
        self.listener.set_nonblocking(true).context("cannot wait for connections")?;
        lobby.poller.add(&self.listener, LISTENER).context("cannot wait for connections")?;
        let finished = Stop::new();
        let handler: &Handler<'_> = &handler;
        let serve = |class| {
            while let Some((job, mut turn)) = slots.take(class) {
                let address = job.session.peer.address;
                let stays = serve(job, &limits, &mut turn, handler);
                let moved = turn.class != class;
                drop(turn);
                if let Some(stage) = stays {
                    lobby.return_to(stage, address);
                }
                lobby.turn_over();
                if moved {
                    return slots.without(Class::Large);
                }
            }
        };
        std::thread::scope(|scope| {
            let closer = || {
                stop.wait_forever();
                slots.close();
                lobby.close();
                // Wakes the thread that accepts.
                if let Err(error) = sys::wake(&self.listener) {
                    log::debug!("cannot wake the thread that accepts: {error}");
                }
                if !finished.wait(limits.grace) {
                    slots.abort();
                }
            };
            std::thread::Builder::new()
                .name("http-close".into())
                .spawn_scoped(scope, closer)
                .context("cannot start the thread that ends connections")?;
            let (serve, slots, lobby) = (&serve, &slots, &lobby);
            let start = move || {
                while let Some(class) = slots.wants_thread() {
                    let thread = std::thread::Builder::new().name("http".into()).stack_size(STACK);
                    if let Err(error) = thread.spawn_scoped(scope, move || serve(class)) {
                        // What waits is looked at again in a moment.
                        log::warn!("cannot start a thread for a request: {error}");
                        return slots.without(class);
                    }
                }
            };
            for _ in 0..STEPS {
                std::thread::Builder::new()
                    .name("http-steps".into())
                    .stack_size(STACK)
                    .spawn_scoped(scope, move || lobby.work(start))
                    .context("cannot start a thread that shakes hands")?;
            }
            let mut tidied = Instant::now();
            while !lobby.closing() {
                match lobby.poller.wait(STALL_CHECK_INTERVAL) {
                    Ok(Found::These(ids)) => {
                        if ids.contains(&LISTENER) {
                            self.accept(lobby, stop);
                        }
                        lobby.look_at(&ids);
                    }
                    Ok(Found::Anybody) => {
                        self.accept(lobby, stop);
                        lobby.look_at(&lobby.everybody());
                    }
                    Err(error) => {
                        log::warn!("cannot wait for connections: {error}");
                        stop.wait(STALL_CHECK_INTERVAL);
                    }
                }
                if tidied.elapsed() >= STALL_CHECK_INTERVAL {
                    tidied = Instant::now();
                    lobby.tidy();
                    slots.press();
                    start();
                    // One that could not be accepted, for want of a descriptor, rings no second time.
                    self.accept(lobby, stop);
                }
            }
            while !slots.is_empty_within(STALL_CHECK_INTERVAL) {
                start();
            }
            lobby.close();
            finished.stop();
            Ok(())
        })
    }

    /// Lets in who is at the door.
    fn accept(&self, lobby: &Lobby<'_>, stop: &Stop) {
        while lobby.has_room() && !stop.stopped() {
            match self.listener.accept() {
                Ok((socket, address)) => {
                    let address = listen::canonical(address);
                    if let Err(error) = lobby.enter(socket, address) {
                        log::debug!("cannot let {address} in: {error}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Somebody who left at the door.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Out of descriptors, mostly; the others will give some back.
                    log::warn!("cannot accept a connection: {error}");
                    return;
                }
            }
        }
    }
}

/// One request and its answer.
fn serve(job: Job, limits: &Limits, turn: &mut Turn<'_>, handler: &Handler<'_>) -> Option<Stage> {
    let address = job.session.peer.address;
    // One connection's panic shall not be the end of the others.
    let serve = || connection::serve(job, limits, turn, handler);
    catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|_| {
        log::error!("the connection of {address} ended in a panic");
        None
    })
}

/// What this process can hold: each connection needs a descriptor, each request a file, and as many as are known may be
/// leaving.
fn room(limits: Limits) -> Limits {
    const OTHERS: u64 = 64;
    let turns = limits.ready + limits.small + limits.large;
    let needed =
        (limits.strangers + limits.handshakes + limits.known * 2 + limits.parked + turns * 2) as u64 + OTHERS;
    let got = sys::raise_open_files(needed).min(needed);
    let part = |wanted: usize| {
        let part = (wanted as u64 * got.saturating_sub(OTHERS)).div_ceil(needed);
        usize::try_from(part).unwrap_or(wanted).clamp(1, wanted)
    };
    let (strangers, handshakes, known) =
        (part(limits.strangers), part(limits.handshakes), part(limits.known));
    let (ready, small, large) = (part(limits.ready), part(limits.small), part(limits.large));
    Limits { strangers, handshakes, known, ready, small, large, parked: part(limits.parked), ..limits }
}
