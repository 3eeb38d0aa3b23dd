//! Takes progress from the plugin on loopback and hands it on to the aggregator.
//!
//! What several senders tell is summed by `senders`. Listens on loopback only, which the containers of a pod share: a port of the node that anybody may post to
//! would be worse than none. A port that is taken is no reason to end, since progress is not the result.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use super::senders::Senders;
use base::http::{Request, Response, Server};
use base::stop::Stop;
use client::Client;

/// The one path, as plugins know it.
const PATH: &str = "/progress";
/// Where a plugin learns how its node's clock stands to the aggregator's, which only workers can ask.
const CLOCK: &str = "/clock";
/// A list of failures can be long, but not endless.
const BODY_LIMIT: u64 = 4 << 20;

/// A listening socket on one loopback address.
pub(super) struct Relay(Server);

/// Listens on both loopback addresses, as far as they are to be had.
pub(super) fn listen(port: Option<u16>) -> Vec<Relay> {
    let Some(mut port) = port else { return Vec::new() };
    let (mut relays, mut errors) = (Vec::new(), Vec::new());
    for host in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let address = SocketAddr::new(host, port);
        match Server::bind(&address.to_string()) {
            Ok(server) => {
                // The second one gets the number that the first one has found.
                port = server.local_addr().port();
                relays.push(Relay(server));
            }
            // Machines that have one family alone are common; plugins then reach that one.
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    let level = if relays.is_empty() { log::Level::Warn } else { log::Level::Debug };
    for error in errors {
        log::log!(level, "progress of the plugin is not relayed: {error}");
    }
    relays
}

/// Whoever let any free port be taken is told on standard output which one it is.
pub(super) fn announce(wanted: Option<u16>, relays: &[Relay]) -> io::Result<()> {
    if wanted == Some(0) {
        let port = relays.first().map_or(0, |relay| relay.0.local_addr().port());
        writeln!(io::stdout(), "{port}")?;
    }
    Ok(())
}

impl Relay {
    /// Serves until `stop`.
    pub(super) fn run(&self, client: &Client, senders: &Mutex<Senders>, stop: &Stop) {
        if let Err(error) = self.0.run(stop, |request| answer(request, client, senders)) {
            log::warn!("progress of the plugin is not relayed any more: {error:#}");
        }
    }
}

fn answer(request: &mut Request<'_>, client: &Client, senders: &Mutex<Senders>) -> Response {
    if request.path == CLOCK && request.method == "GET" {
        return match client.clock() {
            Ok(clock) => Response::json(200, &clock),
            Err(error) => Response::text(502, error),
        };
    }
    if request.path != PATH {
        return Response::text(404, "progress is posted to /progress");
    }
    let mut body = Vec::new();
    match request.body().take(BODY_LIMIT + 1).read_to_end(&mut body) {
        Ok(_) if body.len() as u64 > BODY_LIMIT => return Response::text(413, "more than 4 MiB of progress"),
        Ok(_) => {}
        Err(error) => return Response::text(400, error),
    }
    let connection = Arc::clone(&request.peer.open);
    let lock = || senders.lock().unwrap_or_else(PoisonError::into_inner);
    let sum = lock().take(&connection, &body);
    let told = client.relay_progress(sum.as_deref().unwrap_or(&body));
    lock().answered(&connection);
    match told {
        Ok(answer) if answer.text.is_empty() => Response::empty(answer.status),
        Ok(answer) => Response::text(answer.status, answer.text),
        Err(error) => {
            log::debug!("progress is lost: {error}");
            Response::text(500, error)
        }
    }
}
