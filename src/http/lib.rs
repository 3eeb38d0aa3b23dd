//! The HTTP/1.1 server, over TLS or plain: one thread per connection that has something to say,
//! strict framing, limits.
//!
//! The thread of [`Server::run`] accepts connections (`listener`) into the `queue`, where each
//! costs a descriptor and no thread. The first page of the queue says which client that has sent
//! something is served next, by one of at most [`Limits::threads`] threads. That thread performs
//! the handshake on the `wire`, and serves the `connection`: it checks each `head`, lets the
//! handler read the body, and writes the `response`. A doubt about the end of a message is a
//! refusal and the end of the connection, and a body is never complete because its sender went
//! away. Knows no routes or files.
//!
//! tiny_http was no alternative: it cannot require client certificates, accepts malformed lengths,
//! and aborts on a declared length of 10^15.

mod connection;
mod head;
mod listener;
mod queue;
mod response;
mod wire;

#[cfg(any(test, fuzzing))]
mod tests;

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use rustls::pki_types::CertificateDer;

use base::stop::Stop;
use base::{small, sys};
pub use connection::Body;
use connection::{Connection, Served};
pub use head::Headers;
use head::Refusal;
use listener::{Acceptor, listen};
use queue::{Queue, Turn, Work};
pub use response::Response;
#[cfg(any(fuzzing, test))]
pub use tests::script::consistent;
pub use wire::Meter;
use wire::Socket;

/// Connections that the system keeps until they are accepted. The usual 128 costs a burst of
/// workers seconds.
const BACKLOG: i32 = 4096;
/// The stack of a connection's thread; only touched pages cost memory.
const STACK_BYTES: usize = 512 * 1024;
/// How often deadlines of waiting connections and the pressure on threads are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A longer body, or one of unknown length, makes a request a long upload.
const LONG_BODY: u64 = 1 << 20;

/// Decides on the response to a request.
type Handler<'a> = dyn Fn(&mut Request<'_>) -> Response + Sync + 'a;

/// Limits on clients, and timeouts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Threads, each with one connection.
    pub threads: usize,
    /// Connections that wait for a thread, silent or not. The number of descriptors may lower it.
    pub waiting: usize,
    /// Long uploads that wait for a thread; others get a 503.
    pub waiting_uploads: u64,
    /// Timeout for a connection to get a thread, by which it must have sent a byte.
    pub waiting_timeout: Duration,
    /// Timeout for a handshake.
    pub handshake: Duration,
    /// Timeout for a whole head from its first byte.
    pub head: Duration,
    /// Maximum bytes of a head.
    pub head_bytes: usize,
    /// Timeout between two requests.
    pub idle: Duration,
    /// Timeout without a single byte, in either direction.
    pub stall: Duration,
    /// Minimum bytes per second of a body after the first `stall`; 0 for any.
    pub rate: u64,
    /// Timeout for requests under way when the server stops.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            threads: 256,
            waiting: 65_536,
            waiting_uploads: 2_048,
            waiting_timeout: Duration::from_secs(30),
            handshake: Duration::from_secs(3),
            head: Duration::from_secs(10),
            head_bytes: 16 * 1024,
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            rate: 512,
            grace: Duration::from_secs(10),
        }
    }
}

/// Names the principal of a certificate; limits apply to all connections of a principal together.
pub type Principal = fn(&CertificateDer<'static>) -> Option<String>;

/// A sharer of the threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Party {
    /// An address as [`network`] names it.
    Address(IpAddr),
    Principal(Arc<str>),
}

impl Party {
    /// The party of a source address.
    fn of(address: IpAddr) -> Self {
        Self::Address(network(address))
    }
}

/// The address as which limits count a client: of IPv6 its /64, since a host has 2^64 addresses of
/// one network.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// The sender of a request.
#[derive(Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Its verified certificate, if it has shown one.
    pub certificate: Option<CertificateDer<'static>>,
    /// Measures its connection.
    pub meter: Arc<Meter>,
    /// The same for all requests of a connection; no longer held by the server once it has ended.
    pub open: Arc<()>,
}

/// A request whose body is still to be read.
pub struct Request<'a> {
    /// The method as sent; it is case-sensitive.
    pub method: String,
    /// The path as sent, percent-encoded, without the query.
    pub path: String,
    /// All header lines.
    pub headers: Headers,
    /// Its sender.
    pub peer: &'a Peer,
    /// The declared length of the body, 0 without one; `None` if only its end tells.
    pub length: Option<u64>,
    body: Body<'a>,
}

impl<'a> Request<'a> {
    /// The body. The first read sends `100 Continue` to a client that waits for it, so check
    /// everything else before.
    pub fn body(&mut self) -> &mut Body<'a> {
        &mut self.body
    }

    /// The whole body; a response if it is longer than `max`, or cannot be read.
    pub fn read(&mut self, max: u64) -> Result<Vec<u8>, Response> {
        let too_large = || Response::text(413, format_args!("more than {max} bytes"));
        if self.length.is_some_and(|length| length > max) {
            return Err(too_large());
        }
        small::read_from(&mut self.body, max).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => too_large(),
            _ => Response::text(400, error),
        })
    }
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    principal: Option<Principal>,
    limits: Limits,
}

impl Server {
    /// Listens at `address`, a host and a port; port 0 is a free one. The wildcard of either family
    /// is that of both.
    pub fn bind(address: &str) -> anyhow::Result<Self> {
        let listening =
            listen(address).and_then(|listener| sys::listen(&listener, BACKLOG).map(|()| listener));
        let listener = listening.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => anyhow!(
                "cannot listen at `{address}`: the port is taken; stop what listens there or \
                 choose another"
            ),
            _ => anyhow::Error::new(error).context(format!("cannot listen at `{address}`")),
        })?;
        let address = listener.local_addr().context("cannot get the port")?;
        Ok(Self {
            listener,
            address,
            tls: None,
            principal: None,
            limits: Limits::default(),
        })
    }

    /// Requires TLS.
    #[must_use]
    pub fn tls(mut self, config: Arc<rustls::ServerConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The listening address.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Sets the function that names principals.
    #[must_use]
    pub fn principal(mut self, principal: Principal) -> Self {
        self.principal = Some(principal);
        self
    }

    /// Serves requests until `stop`; then ends idle connections at once and gives the others a
    /// grace.
    pub fn run(
        &self,
        stop: &Stop,
        handler: impl Fn(&mut Request<'_>) -> Response + Sync,
    ) -> anyhow::Result<()> {
        let limits = &Limits {
            waiting: self.waiting(),
            ..self.limits.clone()
        };
        let (queue, handler): (_, &Handler<'_>) = (&Queue::new(limits), &handler);
        let acceptor =
            Acceptor::new(&self.listener, queue).context("cannot wait for connections")?;
        std::thread::scope(|scope| {
            {
                // Ends with this block: its descriptors refer to the listener.
                let mut acceptor = acceptor;
                let mut checked = Instant::now();
                while !stop.stopped() {
                    acceptor.poll(CHECK_INTERVAL);
                    if checked.elapsed() >= CHECK_INTERVAL {
                        checked = Instant::now();
                        queue.expire();
                        queue.press();
                    }
                    while queue.wants_thread() {
                        let thread = base::thread("http").stack_size(STACK_BYTES);
                        if let Err(error) =
                            thread.spawn_scoped(scope, || self.work(queue, limits, handler))
                        {
                            queue.without_thread();
                            log::warn!("a connection waits: {error}");
                            break;
                        }
                    }
                }
            }
            // The system refuses further connections.
            if let Err(error) = sys::stop_listening(&self.listener) {
                log::debug!("cannot stop listening: {error}");
            }
            queue.close();
            if !queue.is_empty_within(limits.grace) {
                queue.abort();
            }
        });
        Ok(())
    }

    /// Serves one connection after another, as one of the threads.
    fn work(&self, queue: &Queue, limits: &Limits, handler: &Handler<'_>) {
        while let Some(turn) = queue.next() {
            // One panic must not end the thread, which the queue counts.
            if catch_unwind(AssertUnwindSafe(|| {
                self.serve(queue, turn, limits, handler);
            }))
            .is_err()
            {
                log::error!("a connection ended in a panic");
            }
        }
    }

    /// Serves a connection until its end, or until it must wait for a long upload.
    fn serve(&self, queue: &Queue, turn: Turn, limits: &Limits, handler: &Handler<'_>) {
        let Turn {
            work,
            permit,
            _busy,
        } = turn;
        let mut permit = Some(permit);
        let mut connection = match work {
            Work::Arrival(socket, address) => match self.open(socket, address, limits) {
                Ok(connection) => {
                    if connection.peer.certificate.is_some() {
                        permit
                            .take()
                            .into_iter()
                            .for_each(|unknown| queue.identified(unknown));
                    }
                    connection
                }
                Err(error) => return log::debug!("no connection with {address}: {error}"),
            },
            Work::Upload(connection, waited) => {
                drop(waited);
                connection
            }
        };
        let (party, meter) = (connection.party.clone(), Arc::clone(&connection.peer.meter));
        let _active = queue.activate(party.clone(), Arc::clone(&meter));
        let mut may_be_long = || {
            permit = permit.take().or_else(|| queue.begin_upload(&party));
            permit.is_some() || matches!(party, Party::Address(_))
        };
        let mut served = connection.serve(
            limits,
            &mut may_be_long,
            &|| queue.ends_connections(),
            handler,
        );
        if served == Served::Long {
            let Some(mut refused) = queue.postpone(connection) else {
                return;
            };
            served = refused.refuse(Refusal {
                status: 503,
                reason: "too many uploads wait; try again",
            });
        }
        if served == Served::Unread {
            meter.linger();
        }
    }

    /// Performs the handshake.
    fn open(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        limits: &Limits,
    ) -> io::Result<Box<Connection>> {
        let meter = Arc::new(Meter::new(socket, limits)?);
        let connection = |wire, certificate, party| {
            let peer = Peer {
                address,
                certificate,
                meter: Arc::clone(&meter),
                open: Arc::default(),
            };
            Box::new(Connection::new(wire, peer, party))
        };
        let plain = || {
            connection(
                Box::new(Socket(Arc::clone(&meter))),
                None,
                Party::of(address.ip()),
            )
        };
        let Some(config) = &self.tls else {
            return Ok(plain());
        };
        let mut first = [0];
        // A TLS record does not begin with a letter; a plain request does.
        if meter.socket()?.peek(&mut first).is_ok() && first[0].is_ascii_uppercase() {
            plain().refuse(Refusal {
                status: 400,
                reason: "this port speaks HTTPS",
            });
            meter.linger();
            return Err(io::ErrorKind::InvalidData.into());
        }
        match wire::handshake(Arc::clone(config), Arc::clone(&meter), limits.handshake) {
            Ok(tls) => {
                let certificate = tls.conn.peer_certificates().and_then(|chain| chain.first());
                let certificate = certificate.map(|first| first.clone().into_owned());
                let principal = certificate
                    .as_ref()
                    .and_then(|found| self.principal?(found));
                let party = principal.map_or(Party::of(address.ip()), |name| {
                    Party::Principal(name.into())
                });
                Ok(connection(Box::new(tls), certificate, party))
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::TimedOut {
                    // The peer may be sending a request already, and must still receive the alert.
                    meter.linger();
                }
                Err(error)
            }
        }
    }

    /// The number of waiting connections for which there are descriptors: each request needs one
    /// more for a file.
    fn waiting(&self) -> usize {
        const OTHERS: u64 = 64;
        let Limits {
            threads,
            waiting_uploads,
            waiting,
            ..
        } = self.limits;
        let used = threads as u64 * 2 + waiting_uploads + OTHERS;
        let files = sys::raise_open_files(used + waiting as u64);
        usize::try_from(files.saturating_sub(used))
            .unwrap_or(waiting)
            .clamp(1, waiting)
    }
}
