//! Sends a heartbeat to the aggregator every 15 seconds, and logs why it fails.

use std::fmt::Display;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::remedies;
use base::stop::Stop;
use client::{Client, Error};

/// Frequent enough to detect a lost worker within a minute.
const PERIOD: Duration = Duration::from_secs(15);
/// Interval of connection attempts until the aggregator is reachable.
const PROBE_PERIOD: Duration = Duration::from_secs(3);
/// Connect timeout; longer silence indicates dropped packets.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends heartbeats to `aggregator` until `stop`. The first one follows at a random moment of the first period, since
/// the workers of a large cluster start together; the connection, which costs little, is tried at once.
pub(super) fn run(client: &Client, aggregator: &str, stop: &Stop) {
    let mut contact = Contact::default();
    while let Err(error) = probe(aggregator) {
        contact.failed(&format_args!("`{aggregator}`: {error}"));
        if stop.wait(PROBE_PERIOD) {
            return;
        }
    }
    let share = RandomState::new().hash_one(0) % 1000;
    let mut pause = PERIOD.mul_f64(share as f64 / 1000.0);
    while !stop.wait(pause) {
        pause = PERIOD;
        match client.heartbeat() {
            Ok(()) => contact.made(),
            Err(Error::Refused { status: 404 | 405, .. }) => {
                log::debug!("this aggregator does not support heartbeats");
                return;
            }
            // Reachable, but overloaded.
            Err(Error::Refused { status: 429 | 503, text, .. }) => log::debug!("{text}"),
            Err(error) => contact.failed(&error),
        }
    }
}

/// Whether the aggregator was ever reached, and the last error logged.
#[derive(Default)]
struct Contact {
    made: bool,
    said: String,
}

impl Contact {
    fn made(&mut self) {
        if !std::mem::replace(&mut self.made, true) && !self.said.is_empty() {
            log::info!("the aggregator is reachable");
        }
    }

    /// Logs the reason: without contact, the log is the only place to find it.
    fn failed(&mut self, why: &dyn Display) {
        let why = remedies::unreached(&why.to_string());
        if self.made {
            // Not an error: the next heartbeat follows soon, and the result is sent with retries.
            log::debug!("{why}");
        } else if self.said != why {
            log::error!("{why}");
            self.said = why;
        }
    }
}

/// Tries to connect to the host of `url`.
fn probe(url: &str) -> io::Result<()> {
    let authority = url.strip_prefix("https://").unwrap_or(url).split('/').next().unwrap_or_default();
    let port = |text: &str| text.parse::<u16>().ok();
    let (host, port) = authority
        .rsplit_once(':')
        .and_then(|(host, text)| Some((host, port(text)?)))
        .unwrap_or((authority, 443));
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (host.trim_matches(['[', ']']), port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PROBE_TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn route_to_the_aggregator_is_probed() {
        for host in ["127.0.0.1", "[::1]"] {
            let Ok(listener) = TcpListener::bind((host.trim_matches(['[', ']']), 0)) else { continue };
            let url = format!("https://{host}:{}/a/path", listener.local_addr().unwrap().port());
            probe(&url).unwrap();
            drop(listener);
            assert_eq!(probe(&url).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        }
        assert!(probe("https://there-is-no.such-host.invalid:1").is_err());
    }
}
