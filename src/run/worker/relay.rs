//! Receives progress from the plugin on loopback and forwards it to the aggregator.
//!
//! `senders` sums the progress of several senders. Listens on loopback only, which the containers
//! of a pod share: a port of the node that accepts posts from anywhere would be worse than none. A
//! worker without a port continues, since progress is not the result. The worker that has the port
//! cannot distinguish the plugins, so it is asked to drop their progress.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::senders::Senders;
use base::json::json;
use base::stop::Stop;
use base::{lock, visible};
use client::Client;
use http::{Headers, Request, Response, Server};

/// Path for progress.
const PATH: &str = "/progress";
/// Path for the offset between the clocks of node and aggregator, which only workers can query.
const CLOCK: &str = "/clock";
/// Path for the notice that another plugin was given the same port.
const SHARED: &str = "/shared";
const SHARED_REQUEST: &[u8] =
    b"POST /shared HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
/// Interval of notices: another worker may get the port meanwhile.
const SHARED_INTERVAL: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum bytes of an update; lists of failures can be long.
const BODY_LIMIT: u64 = 1 << 20;
/// Attempts to get a port that is free on both addresses.
const MAX_ATTEMPTS: usize = 16;
const HOSTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// Listens on both loopback addresses, if available, at a port that is free on both: `localhost`
/// may resolve to either.
pub(super) fn listen(port: Option<u16>) -> Vec<Server> {
    let Some(port) = port else { return Vec::new() };
    (0..MAX_ATTEMPTS)
        .find_map(|_| listen_at(port))
        .unwrap_or_else(|| {
            log::warn!("progress of the plugin is not relayed: port {port} is taken");
            Vec::new()
        })
}

/// Listens at one port; `None` if it is taken.
fn listen_at(mut port: u16) -> Option<Vec<Server>> {
    let is_taken = |address: SocketAddr| {
        TcpListener::bind(address).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };
    let mut relays = Vec::new();
    for host in HOSTS {
        let address = SocketAddr::new(host, port);
        match Server::bind(&address.to_string()) {
            Ok(server) => {
                // The second socket uses the port of the first.
                port = server.local_addr().port();
                relays.push(server);
            }
            Err(_) if is_taken(address) => return None,
            // Machines with a single address family are common; plugins then use that one.
            Err(error) => {
                log::debug!("progress is not relayed from one loopback address: {error:#}");
            }
        }
    }
    Some(relays)
}

/// Tells the worker on an occupied port that another plugin reports there, and the aggregator why
/// progress is missing.
pub(super) fn share(port: u16, client: &Client, stop: &Stop) {
    lacks_progress(client, &format!("port {port} is taken"));
    loop {
        for host in HOSTS {
            // Other programs ignore the request.
            let socket = TcpStream::connect_timeout(&SocketAddr::new(host, port), CONNECT_TIMEOUT);
            drop(socket.and_then(|mut socket| socket.write_all(SHARED_REQUEST)));
        }
        if stop.wait(SHARED_INTERVAL) {
            return;
        }
    }
}

/// Shows in the status of the run why progress is missing.
fn lacks_progress(client: &Client, why: &str) {
    let update = json!({"msg": format!("progress is not relayed: {why}")}).to_string();
    // The worker's log contains it, too.
    drop(client.relay_progress(update.as_bytes()));
}

/// Prints the port on standard output if any free one was requested.
pub(super) fn announce(wanted: Option<u16>, relays: &[Server]) -> io::Result<()> {
    if wanted == Some(0) {
        let port = relays.first().map_or(0, |relay| relay.local_addr().port());
        writeln!(io::stdout(), "{port}")?;
    }
    Ok(())
}

/// Serves one loopback address until `stop`.
pub(super) fn run(relay: &Server, client: &Client, senders: &Mutex<Senders>, stop: &Stop) {
    let port = relay.local_addr().port();
    let serve = |request: &mut Request<'_>| match refused(&request.headers, port) {
        Some(refusal) => refusal,
        None => answer(request, client, senders),
    };
    if let Err(error) = relay.run(stop, serve) {
        log::warn!("progress of the plugin is not relayed any more: {error:#}");
    }
}

/// A refusal of what a page in a browser sends: it names its origin, or the host of its own
/// address.
fn refused(headers: &Headers, port: u16) -> Option<Response> {
    if headers.get("origin").is_some() {
        return Some(Response::text(403, "requests of web pages are refused"));
    }
    let foreign = headers.all("host").find(|host| !is_own_host(host, port))?;
    let host = visible::short(foreign);
    Some(Response::text(
        403,
        format_args!("`{host}` is not the host `localhost:{port}`"),
    ))
}

/// Whether a `Host` header names this relay; clients written by hand omit the port.
fn is_own_host(host: &str, port: u16) -> bool {
    let names = ["localhost", "127.0.0.1", "[::1]"];
    let is_name = |name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    is_name(host) || host.strip_suffix(&format!(":{port}")).is_some_and(is_name)
}

fn answer(request: &mut Request<'_>, client: &Client, senders: &Mutex<Senders>) -> Response {
    const WHY: &str = "another plugin on the node was given the same port";
    if request.path == SHARED && request.method == "POST" {
        let is_known = std::mem::replace(&mut lock(senders).shared, true);
        if !is_known {
            log::warn!("progress of the plugin is not relayed any more: {WHY}");
            lacks_progress(client, WHY);
        }
        return Response::empty(200);
    }
    if request.path == CLOCK && request.method == "GET" {
        return match client.clock() {
            Ok(clock) => Response::json(200, &clock),
            Err(error) => Response::text(502, error),
        };
    }
    if request.path != PATH {
        return Response::text(404, "progress is posted to /progress");
    }
    if lock(senders).shared {
        return Response::text(409, WHY);
    }
    // Read before the lock is taken: a slow client must not delay the others.
    let body = match request.read(BODY_LIMIT) {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let connection = Arc::clone(&request.peer.open);
    let sum = lock(senders).take(&connection, &body);
    let answer = client.relay_progress(sum.as_deref().unwrap_or(&body));
    lock(senders).answered(&connection);
    match answer {
        Ok(answer) if answer.text.is_empty() => Response::empty(answer.status),
        Ok(answer) => Response::text(answer.status, answer.text),
        Err(error) => {
            log::debug!("progress is lost: {error}");
            Response::text(500, error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_relay_are_told_from_foreign_ones() {
        for (host, own) in [
            ("localhost:8099", true),
            ("LOCALHOST:8099", true),
            ("127.0.0.1:8099", true),
            ("[::1]:8099", true),
            ("localhost", true),
            ("localhost:80", false),
            ("evil.example", false),
            ("evil.example:8099", false),
            ("localhost.evil.example:8099", false),
            ("127.0.0.1.evil.example", false),
            (":8099", false),
            ("", false),
        ] {
            assert_eq!(is_own_host(host, 8099), own, "{host}");
        }
    }
}
