//! The small blocking HTTP/1.1 server, over TLS or plain: a thread per connection, strict framing, limits.
//!
//! Owns the wire: what a request is, where its body ends, how long a peer may take. Knows no route, no plugin, no
//! file. `run` starts one thread per connection, up to a limit, and one that ends them; it joins all of them.
//!
//! Every doubt about where a message ends is a refusal and the end of the connection. A body is never complete
//! because the peer went away.

mod body;
mod connection;
mod connections;
mod head;
mod response;
#[cfg(any(test, fuzzing))]
mod script;
mod wire;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustls::pki_types::CertificateDer;

use crate::stop::Stop;
use crate::sys;
pub use body::Body;
use connection::Handler;
use connections::Connections;
pub use head::Headers;
pub use response::Response;
#[cfg(fuzzing)]
pub use script::consistent;
use wire::{Input, Socket, Tls, Wire};

/// How many peers the system lets wait to be accepted. The usual 128 costs a burst of workers seconds.
const BACKLOG: i32 = 4096;
/// The stack of a connection's thread; only what is touched costs memory.
const STACK: usize = 512 * 1024;
/// What is waited when the system has no descriptor, or no thread, for another connection.
const BREATHER: Duration = Duration::from_millis(50);

/// What a peer may take. Each is for one connection but `connections`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// So many at once; more wait in the system's queue.
    pub connections: usize,
    /// For shaking hands.
    pub handshake: Duration,
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
    /// What requests that are under way get when the server stops.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(15),
            head: Duration::from_secs(15),
            head_bytes: 64 * 1024,
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            rate: 512,
            grace: Duration::from_secs(10),
        }
    }
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it comes from.
    pub address: SocketAddr,
    /// What it has shown, verified; `None` without TLS.
    pub certificate: Option<CertificateDer<'static>>,
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

/// A server that listens already.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    limits: Limits,
}

impl Server {
    /// Listens at `address`, a host and a port; port 0 is a free one.
    pub fn bind(address: &str) -> anyhow::Result<Self> {
        let listener = match TcpListener::bind(address) {
            Ok(listener) => listener,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                bail!(
                    "cannot listen at `{address}`: the port is taken; stop what listens there or choose another"
                );
            }
            Err(error) => return Err(error).with_context(|| format!("cannot listen at `{address}`")),
        };
        sys::listen(&listener, BACKLOG).with_context(|| format!("cannot listen at `{address}`"))?;
        let address = listener.local_addr().context("find out the port")?;
        Ok(Self { listener, address, tls: None, limits: Limits::default() })
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

    /// Answers requests until `stop`; then ends idle connections at once and gives the others a grace.
    pub fn run(
        &self,
        stop: &Stop,
        handler: impl Fn(&mut Request<'_>) -> Response + Sync,
    ) -> anyhow::Result<()> {
        let connections = Connections::new(room(self.limits.connections));
        let finished = Stop::new();
        std::thread::scope(|scope| {
            let closer = || {
                stop.wait_forever();
                connections.close();
                // Wakes the thread that accepts.
                if let Err(error) = sys::wake(&self.listener) {
                    log::debug!("cannot wake the thread that accepts: {error}");
                }
                if !finished.wait(self.limits.grace) {
                    connections.abort();
                }
            };
            std::thread::Builder::new()
                .name("http-close".into())
                .spawn_scoped(scope, closer)
                .context("start the thread that ends connections")?;
            while connections.wait_for_room() {
                let (socket, address) = match self.listener.accept() {
                    Ok(accepted) => accepted,
                    Err(_) if stop.stopped() => break,
                    Err(error) => {
                        // Out of descriptors, mostly; the others will give some back.
                        log::warn!("cannot accept a connection: {error}");
                        stop.wait(BREATHER);
                        continue;
                    }
                };
                let socket = Arc::new(socket);
                let ticket = connections.enter(Arc::clone(&socket));
                let handler: &Handler<'_> = &handler;
                let thread = std::thread::Builder::new().name("http".into()).stack_size(STACK);
                let started = thread.spawn_scoped(scope, move || {
                    // One connection's panic shall not be the end of the others.
                    let serve = || self.serve(socket, address, &ticket, handler);
                    match catch_unwind(AssertUnwindSafe(serve)) {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => log::debug!("no request from {address}: {error}"),
                        Err(_) => log::error!("the connection of {address} ended in a panic"),
                    }
                });
                if let Err(error) = started {
                    log::warn!("cannot start a thread for a connection: {error}");
                    stop.wait(BREATHER);
                }
            }
            connections.wait_until_empty();
            finished.stop();
            Ok(())
        })
    }

    fn serve(
        &self,
        tcp: Arc<TcpStream>,
        address: SocketAddr,
        ticket: &connections::Ticket<'_>,
        handler: &Handler<'_>,
    ) -> io::Result<()> {
        let mut socket = Socket::new(tcp, self.limits.stall)?;
        let mut peer = Peer { address, certificate: None };
        let wire: Box<dyn Wire> = match &self.tls {
            None => Box::new(socket),
            Some(config) => {
                socket.set_deadline(Instant::now().checked_add(self.limits.handshake));
                if socket.peek()?.is_some_and(|byte| byte.is_ascii_uppercase()) {
                    // A record of TLS begins otherwise; this one tries plain HTTP.
                    Response::text(400, "this port speaks HTTPS").write(&mut socket, true, true)?;
                    socket.close(true);
                    return Ok(());
                }
                ticket.greeted();
                let tls = Tls::accept(Arc::clone(config), socket)?;
                peer.certificate = tls.certificate();
                Box::new(tls)
            }
        };
        connection::serve(&mut Input::new(wire), &peer, &self.limits, ticket, handler);
        Ok(())
    }
}

/// How many connections this process can hold: each needs a descriptor, and its handler a file.
fn room(wanted: usize) -> usize {
    const OTHERS: u64 = 64;
    let got = sys::raise_open_files(wanted as u64 * 2 + OTHERS);
    wanted.min(usize::try_from(got.saturating_sub(OTHERS) / 2).unwrap_or(wanted)).max(1)
}
