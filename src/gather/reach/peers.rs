//! The leg to other nodes: which of a few peers this node reaches, how fast, and with which
//! packets.
//!
//! Every node has a kubelet that answers, so nothing has to be started at the other end: its
//! refusal of a large request proves that the way is open in both directions. Starts a thread per
//! peer, and joins it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{
    Connection, ECHO_BYTES, STEP_TIMEOUT, add, dial, fail, is_timeout, millis, retry, skip,
};
use base::Joined as _;
use base::json::json;
use base::words::count;
use kube::{Identity, Trust};
use model::item::{Item, PASSED};
use model::nodes::Peer;

/// The start of an answer.
const HTTP: [u8; 5] = *b"HTTP/";
/// Peers that an error names.
const MAX_NAMED_PEERS: usize = 3;

/// This node and a peer.
pub(super) struct Pair<'p> {
    peer: &'p Peer,
    /// What was measured, or why the peer cannot be reached.
    measured: Result<Measured, String>,
}

struct Measured {
    connect: Duration,
    handshake: Duration,
    path_mtu: Option<u32>,
}

/// Probes all peers at once, so that silent ones cost a single timeout.
pub(super) fn probe_all(peers: &[Peer]) -> Vec<Pair<'_>> {
    thread::scope(|scope| {
        let start = |peer| {
            let work = move || probe(peer);
            (peer, base::thread("peer").spawn_scoped(scope, work))
        };
        let started: Vec<_> = peers.iter().map(start).collect();
        let pairs = started.into_iter().map(|(peer, thread)| {
            let measured = match thread {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(_) => probe(peer),
            };
            let measured = measured.map_err(|error| format!("{error:#}"));
            Pair { peer, measured }
        });
        pairs.collect()
    })
}

/// Connects to the kubelet of a peer, and sends it enough data to fill many packets.
fn probe(peer: &Peer) -> Result<Measured> {
    let place = (peer.address.clone(), peer.port);
    // Who it is does not matter here.
    let anyone = (Trust::Anybody, Identity::default());
    retry(|| {
        let mut connection = dial(&anyone, &place)?;
        send_much(&mut connection).with_context(|| {
            format!("small packets arrive, but {} KiB do not", ECHO_BYTES >> 10)
        })?;
        Ok(Measured {
            connect: connection.connect,
            handshake: connection.handshake,
            path_mtu: connection.path_mtu(),
        })
    })
}

/// Sends a request that fills many packets, and waits for the beginning of the answer. A server
/// reads all of a request before it refuses it only if the connection stays open, so this asks for
/// that.
fn send_much(connection: &mut Connection) -> Result<()> {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: {ECHO_BYTES}\r\n\r\n",
        connection.host
    );
    let request = [head.into_bytes(), vec![0; ECHO_BYTES]].concat();
    let stream = &mut connection.stream;
    stream
        .write_all(&request)
        .context("the request was not accepted")?;
    let mut start = [0; HTTP.len()];
    if let Err(error) = stream.read_exact(&mut start) {
        ensure!(
            !is_timeout(&error),
            "no answer within {} s",
            STEP_TIMEOUT.as_secs()
        );
        return Err(error).context("no answer came");
    }
    ensure!(start == HTTP, "the answer is not one of HTTP");
    Ok(())
}

/// The numbers of some pairs.
#[derive(Default)]
struct Sum {
    reached: usize,
    all: usize,
    slowest: Duration,
}

impl Sum {
    fn add(&mut self, pair: &Pair<'_>) {
        self.all += 1;
        if let Ok(measured) = &pair.measured {
            self.reached += 1;
            self.slowest = self.slowest.max(measured.connect);
        }
    }

    fn to_json(&self) -> Value {
        json!({"reached": self.reached, "of": self.all, "slowest_ms": millis(self.slowest)})
    }
}

impl Pair<'_> {
    fn to_json(&self) -> Value {
        let mut pair = json!(self.peer);
        match &self.measured {
            Ok(measured) => {
                pair["connect_ms"] = json!(millis(measured.connect));
                pair["handshake_ms"] = json!(millis(measured.handshake));
                pair["path_mtu"] = json!(measured.path_mtu);
            }
            Err(error) => pair["error"] = json!(error),
        }
        pair
    }

    fn describe(&self, error: &str) -> String {
        let Peer { node, zone, .. } = self.peer;
        match zone.as_str() {
            "" => format!("`{node}`: {error}"),
            zone => format!("`{node}` (zone {zone}): {error}"),
        }
    }
}

/// The leg to all peers.
pub(super) fn leg(pairs: &[Pair<'_>]) -> Item {
    let mut leg = Item::new("peers", PASSED);
    let (mut sum, mut zones) = (Sum::default(), BTreeMap::<&str, Sum>::new());
    for pair in pairs {
        sum.add(pair);
        zones.entry(&pair.peer.zone).or_default().add(pair);
    }
    if sum.all == 0 {
        skip(&mut leg, "this node has no peer");
        return leg;
    }
    add(&mut leg, "reached", sum.reached);
    add(&mut leg, "of", sum.all);
    if sum.reached > 0 {
        add(&mut leg, "slowest_ms", millis(sum.slowest));
    }
    let measured = pairs.iter().flat_map(|pair| &pair.measured);
    if let Some(mtu) = measured.filter_map(|measured| measured.path_mtu).min() {
        add(&mut leg, "path_mtu", mtu);
    }
    zones.remove("");
    if !zones.is_empty() {
        let zones = zones.iter().map(|(zone, sum)| (*zone, sum.to_json()));
        add(&mut leg, "zones", zones.collect::<Value>());
    }
    add(
        &mut leg,
        "pairs",
        pairs.iter().map(Pair::to_json).collect::<Value>(),
    );
    let unreached: Vec<_> = pairs
        .iter()
        .filter_map(|pair| Some(pair.describe(pair.measured.as_ref().err()?)))
        .collect();
    let Some(first) = unreached.first() else {
        return leg;
    };
    if sum.reached == 0 {
        // The peers of other nodes show whether it is this node.
        let why = format!(
            "no kubelet of its {} answers, which a firewall between nodes may forbid: {first}",
            count(sum.all, "peer")
        );
        skip(&mut leg, &why);
        return leg;
    }
    let more = match unreached.len().saturating_sub(MAX_NAMED_PEERS) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named = unreached.iter().take(MAX_NAMED_PEERS).map(String::as_str);
    let error = format!(
        "{} of {} cannot be reached: {}{more}",
        unreached.len(),
        count(sum.all, "peer"),
        named.joined("; ")
    );
    fail(&mut leg, error);
    leg
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::item::{FAILED, SKIPPED};

    fn peer(number: usize, zone: &str) -> Peer {
        Peer {
            node: format!("n{number}"),
            address: format!("10.0.0.{number}"),
            port: 10250,
            zone: zone.into(),
        }
    }

    fn reached(milliseconds: u64, path_mtu: u32) -> Result<Measured, String> {
        Ok(Measured {
            connect: Duration::from_millis(milliseconds),
            handshake: Duration::from_millis(1),
            path_mtu: Some(path_mtu),
        })
    }

    fn leg_of(measured: Vec<Result<Measured, String>>) -> Item {
        let zones = ["a", "b"];
        let peers: Vec<_> = (0..measured.len())
            .map(|number| peer(number, zones[number % 2]))
            .collect();
        let pairs: Vec<_> = peers
            .iter()
            .zip(measured)
            .map(|(peer, measured)| Pair { peer, measured })
            .collect();
        leg(&pairs)
    }

    #[test]
    fn pairs_are_summed_by_zone() {
        let leg = leg_of(vec![reached(2, 1500), reached(7, 1400), reached(3, 1500)]);
        assert_eq!(leg.status, PASSED);
        for (key, value) in [
            ("reached", json!(3)),
            ("of", json!(3)),
            ("slowest_ms", json!(7.0)),
            ("path_mtu", json!(1400)),
        ] {
            assert_eq!(leg.details[key], value, "{key}");
        }
        let zones = json!({
            "a": {"reached": 2, "of": 2, "slowest_ms": 3.0},
            "b": {"reached": 1, "of": 1, "slowest_ms": 7.0},
        });
        assert_eq!(leg.details["zones"], zones);
        assert_eq!(leg.details["pairs"][1]["node"], "n1");
        assert_eq!(leg.details["pairs"][1]["connect_ms"], 7.0);
    }

    #[test]
    fn unreached_peers_are_named_with_their_zones() {
        let silent = || Err("no connection to 10.0.0.9:10250: timed out".to_owned());
        let leg = leg_of(vec![
            reached(1, 1500),
            silent(),
            silent(),
            silent(),
            silent(),
        ]);
        assert_eq!(leg.status, FAILED);
        let error = leg.details["error"].as_str().unwrap();
        assert!(
            error.starts_with("4 of 5 peers cannot be reached: `n1` (zone b): "),
            "{error}"
        );
        assert!(error.ends_with("; and 1 more"), "{error}");
        let nobody = leg_of(vec![silent(), silent()]);
        assert_eq!(nobody.status, SKIPPED);
        let reason = nobody.details["reason"].as_str().unwrap();
        assert!(reason.contains("of its 2 peers answers"), "{reason}");
        assert_eq!(
            leg_of(Vec::new()).details["reason"],
            "this node has no peer"
        );
    }
}
