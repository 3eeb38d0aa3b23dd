//! Connectivity of a node in its cluster: DNS, API server, aggregator, and clock skew.
//!
//! Owns the legs and their destinations. A failing leg names the step that failed; a leg without a destination, as outside a
//! cluster, is skipped with a reason. Starts a thread per leg; every step has a timeout.

use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::dial::{self, Response, Timings};
use super::{dns, network};
use crate::item::{self, Item};
use crate::names::env;
use crate::remedies;
use base::clock;
use base::json::json;
use base::kube::{Identity, Object as _, Trust};
use base::stop::Stop;
use base::sys::variable;
use client::Clock;

/// Timeout of one attempt at one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes echoed: enough for many packets of any size.
const ECHO_BYTES: usize = 64 << 10;

/// Attempts per step, since packets may be lost.
const TRIES: usize = 3;

/// Maximum clock skew in seconds; beyond it, certificates and leases of a cluster start to fail.
const SKEW: f64 = 5.0;

/// Time for the worker to start, which takes seconds on a busy node.
const WORKER_STARTS: Duration = Duration::from_secs(10);

/// Interval between checks for the worker, and between attempts at any step.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Mounted files with a pod's credentials.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The destinations of the legs, as far as this process knows them.
pub(crate) struct Destinations {
    /// Host and port of the API server.
    api: Option<(String, u16)>,
    token: Option<String>,
    authority: Option<Vec<u8>>,
    /// Host and port, if known.
    aggregator: Option<(String, u16)>,
    /// The run's authority and this worker's identity, if available.
    proof: Option<(Trust, Identity)>,
    /// This process's `/etc/resolv.conf`.
    resolver: Value,
    /// Port of this pod's worker.
    relay: Option<u16>,
    /// This node's name in the cluster.
    node: Option<String>,
}

/// Offset of this machine's clock from another one.
pub(crate) struct Skew {
    /// Seconds ahead.
    pub offset: f64,
    /// Margin of error in seconds.
    pub doubt: f64,
    /// Owner of the other clock.
    pub against: &'static str,
}

impl Skew {
    fn of_answer(answer: &Response, against: &'static str) -> Result<Self> {
        let date = answer.date.context("the answer has no date")?;
        let (offset, doubt) = clock::offset(date, answer.between.0, answer.between.1);
        Ok(Self { offset, doubt, against })
    }
}

/// Fails with the original's worker, which does not support it, and before the worker has started.
fn ask_worker(port: u16, limit: Duration) -> Result<Skew> {
    let answer = dial::get_plain(([127, 0, 0, 1], port).into(), "/clock", limit)?;
    ensure!(answer.status == 200, "the worker answers {}", answer.status);
    let clock: Clock = serde_json::from_slice(&answer.body).context("the worker's response has no date")?;
    Ok(Skew { offset: clock.offset_seconds, doubt: clock.uncertainty_seconds, against: "aggregator" })
}

impl Destinations {
    /// Reads a pod's environment and files.
    pub(crate) fn read() -> Self {
        let token = std::fs::read_to_string(format!("{ACCOUNT}/token"));
        let port = variable("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse().ok()).unwrap_or(443);
        Self {
            api: variable("KUBERNETES_SERVICE_HOST").map(|host| (host, port)),
            token: token.ok().map(|token| token.trim().to_owned()),
            authority: std::fs::read(format!("{ACCOUNT}/ca.crt")).ok(),
            aggregator: variable(env::AGGREGATOR_URL)
                .or_else(|| variable(client::env::AGGREGATOR_URL))
                .and_then(|url| host_and_port(&url)),
            proof: proof(),
            resolver: network::resolver(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()),
            relay: variable(env::PROGRESS_PORT).and_then(|port| port.parse().ok()),
            node: variable(client::env::NODE_NAME),
        }
    }

    /// Compares this machine's clock with the aggregator's through the pod's worker, else with the API server's.
    pub(crate) fn skew(&self, limit: Duration) -> Option<Result<Skew>> {
        if let Some(skew) = self.ask_relay(limit) {
            return Some(Ok(skew));
        }
        self.api.as_ref()?;
        Some(self.ask_api("/version", limit).and_then(|answer| Skew::of_answer(&answer, "API server")))
    }

    /// Waits for a worker that is not listening or responding yet; a response other than a clock means that it has none.
    fn ask_relay(&self, limit: Duration) -> Option<Skew> {
        let port = self.relay?;
        let started = Instant::now();
        loop {
            match ask_worker(port, limit) {
                Ok(skew) => return Some(skew),
                Err(error) if error.root_cause().is::<io::Error>() && started.elapsed() < WORKER_STARTS => {}
                Err(error) => {
                    log::debug!("no clock from the worker: {error:#}");
                    return None;
                }
            }
            Stop::new().wait(RETRY_INTERVAL);
        }
    }

    /// The cluster's record of this node's kubelet, container runtime and system versions, if a service account is mounted.
    pub(crate) fn node_info(&self, limit: Duration) -> Option<Result<Value>> {
        let node = self.node.as_ref().filter(|_| self.api.is_some() && self.token.is_some())?;
        Some(self.ask_api(&format!("/api/v1/nodes/{node}"), limit).and_then(|answer| {
            let status = answer.status;
            ensure!(status == 200, "the API server answers {status} when asked for this node");
            let node: Value = serde_json::from_slice(&answer.body).context("the node is not JSON")?;
            Ok(node["status"]["nodeInfo"].clone())
        }))
    }

    fn ask_api(&self, path: &str, limit: Duration) -> Result<Response> {
        let (host, port) = self.api.as_ref().context("no API server is known here")?;
        let authority =
            self.authority.clone().with_context(|| format!("no authority in `{ACCOUNT}/ca.crt`"))?;
        let trust = (Trust::Authorities(authority), Identity::default());
        dial::dial(&trust, host, *port, limit)?.get(path, self.token.as_deref())
    }
}

/// Identity from a worker's certificate and key in the environment.
fn proof() -> Option<(Trust, Identity)> {
    let identity = Identity::default();
    let (certificate, key) = (variable(client::env::CLIENT_CERT)?, variable(client::env::CLIENT_KEY)?);
    let set = identity.set(certificate.as_bytes(), key.as_bytes());
    set.inspect_err(|why| log::warn!("{}: {why}", client::env::CLIENT_CERT)).ok()?;
    Some((Trust::Authorities(variable(client::env::CA_CERT)?.into_bytes()), identity))
}

/// Outcome of a leg, and what it learned about the clock.
type Leg = (Item, Option<Result<Skew>>);
type Probe = fn(&Destinations, Item) -> Result<Leg>;

/// Tries all legs concurrently, so that blocked ones cost a single timeout.
pub(crate) fn network(around: &Destinations) -> Item {
    let legs: [(&str, Probe); 3] = [("dns", dns_leg), ("api", api_leg), ("aggregator", aggregator)];
    let [(dns, _), (api, api_skew), (aggregator, skew)] = thread::scope(|scope| {
        let threads = legs.map(|(name, leg)| {
            let leg = move || {
                let outcome = leg(around, passed(name));
                outcome.unwrap_or_else(|error| (failed(passed(name), format!("{error:#}")), None))
            };
            (leg, base::thread(name).spawn_scoped(scope, leg))
        });
        threads.map(|(leg, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => leg(),
        })
    });
    let clock = match skew.or_else(|| around.ask_relay(STEP_TIMEOUT).map(Ok)).or(api_skew) {
        None => skipped(passed("clock"), "neither the aggregator nor an API server tells the time here"),
        Some(Err(error)) => failed(passed("clock"), format!("{error:#}")),
        Some(Ok(skew)) => clock_leg(&skew),
    };
    let items = vec![dns, api, aggregator, clock];
    let failed = items.iter().any(|leg| leg.status == item::FAILED);
    Item { items, ..Item::new("network", if failed { item::FAILED } else { item::PASSED }) }
}

fn passed(name: &str) -> Item {
    Item::new(name, item::PASSED)
}

fn skipped(leg: Item, why: &str) -> Item {
    Item { status: item::SKIPPED.into(), ..leg }.with("reason", why)
}

/// A leg that failed, with a remedy if the cause is known.
fn failed(leg: Item, error: String) -> Item {
    let remedy = remedies::remedy(&error);
    let mut leg = Item { status: item::FAILED.into(), ..leg }.with("error", error);
    leg.details.extend(remedy.map(|remedy| (item::REMEDY.to_owned(), remedy.into())));
    leg
}

fn timed(leg: Item, Timings { connect, handshake }: Timings) -> Item {
    leg.with("connect_ms", millis(connect)).with("handshake_ms", millis(handshake))
}

fn api_leg(around: &Destinations, leg: Item) -> Result<Leg> {
    let Some((host, port)) = &around.api else {
        return Ok((skipped(leg, "no API server is known here"), None));
    };
    let answer = retry(|| around.ask_api("/version", STEP_TIMEOUT))?;
    let leg =
        timed(leg, answer.timings).with("address", format!("{host}:{port}")).with("code", answer.status);
    // A refusal also proves that the server is reachable.
    let leg = match answer.status {
        200..=299 | 401 | 403 => leg,
        status => failed(leg, format!("the API server answers {status} to `/version`")),
    };
    Ok((leg, Some(Skew::of_answer(&answer, "API server"))))
}

fn dns_leg(around: &Destinations, leg: Item) -> Result<Leg> {
    let servers = around.resolver["nameservers"].items();
    let servers: Vec<IpAddr> = servers.filter_map(|server| server.text().parse().ok()).collect();
    ensure!(!servers.is_empty(), "`/etc/resolv.conf` names no name server");
    let name = service_name(&around.resolver);
    let (mut answers, mut failure) = (Vec::new(), None);
    for server in servers {
        match retry(|| dns::ask(server, &name, STEP_TIMEOUT)) {
            Ok(reply) => {
                // Outside a cluster the name does not exist, but the response proves that the server is reachable.
                if around.api.is_some() && reply.addresses.is_empty() {
                    let why = format!("name server {server} does not know `{name}` (code {})", reply.code);
                    failure.get_or_insert(why);
                }
                answers.push(json!({
                    "server": server, "latency_ms": millis(reply.took), "code": reply.code,
                }));
            }
            Err(error) => drop(failure.get_or_insert_with(|| format!("{error:#}"))),
        }
    }
    let leg = leg.with("name", name).with("servers", answers);
    Ok((
        match failure {
            Some(error) => failed(leg, error),
            None => leg,
        },
        None,
    ))
}

/// The API server's name in the cluster; its domain is one of the search domains.
fn service_name(resolver: &Value) -> String {
    let domain = resolver["search"].items().map(Value::text).find(|domain| domain.starts_with("svc."));
    format!("kubernetes.default.{}", domain.unwrap_or("svc.cluster.local"))
}

fn aggregator(around: &Destinations, leg: Item) -> Result<Leg> {
    let Some((host, port)) = &around.aggregator else {
        return Ok((skipped(leg, "no aggregator is known here"), None));
    };
    let leg = leg.with("address", format!("{host}:{port}"));
    Ok(speak(around, host, *port, leg.clone())
        .unwrap_or_else(|error| (failed(leg, remedies::unreached(&format!("{error:#}"))), None)))
}

/// Connects to the aggregator as a worker does: a small request, whose response carries the time, then enough data in both
/// directions to fill many packets.
fn speak(around: &Destinations, host: &str, port: u16, leg: Item) -> Result<Leg> {
    let Some(proof) = &around.proof else {
        // The aggregator requires certificates that only workers have, so the check ends at the handshake.
        let anyone = (Trust::Anybody, Identity::default());
        let dialled = retry(|| dial::dial(&anyone, host, port, STEP_TIMEOUT))?;
        return Ok((timed(leg, dialled.timings), None));
    };
    let dial = || dial::dial(proof, host, port, STEP_TIMEOUT);
    let answer = retry(|| dial()?.get("/", None))?;
    ensure!(answer.status == 200, "the aggregator answers {}", answer.status);
    let (sent, came) = answer.between;
    let leg = timed(leg, answer.timings)
        .with("round_trip_ms", millis(came.duration_since(sent).unwrap_or_default()));
    let mtu = retry(|| dial()?.echo(ECHO_BYTES))
        .with_context(|| format!("small packets arrive, but {} KiB do not", ECHO_BYTES >> 10))?;
    let leg = if let Some(mtu) = mtu { leg.with("path_mtu", mtu) } else { leg };
    Ok((leg, Some(Skew::of_answer(&answer, "aggregator"))))
}

fn clock_leg(skew: &Skew) -> Item {
    let leg = passed("clock")
        .with("against", skew.against)
        .with("offset_seconds", rounded(skew.offset))
        .with("uncertainty_seconds", rounded(skew.doubt));
    if skew.offset.abs() - skew.doubt <= SKEW {
        return leg;
    }
    let way = if skew.offset > 0.0 { "ahead of" } else { "behind" };
    failed(leg, format!("the clock is {:.1} s {way} that of the {}", skew.offset.abs(), skew.against))
}

fn retry<T>(mut step: impl FnMut() -> Result<T>) -> Result<T> {
    let mut outcome = step();
    for _ in 1..TRIES {
        if outcome.is_err() {
            Stop::new().wait(RETRY_INTERVAL);
            outcome = step();
        }
    }
    outcome
}

fn millis(span: Duration) -> f64 {
    rounded(span.as_secs_f64() * 1_000.0)
}

/// Rounds to three decimals.
fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

/// Splits `https://[::1]:8080/path` into host and port.
fn host_and_port(url: &str) -> Option<(String, u16)> {
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    let (host, port) = authority.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn answer(date: u64, sent: f64, came: f64) -> Response {
        let at = |seconds: f64| SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds);
        Response {
            status: 200,
            date: Some(at(date as f64)),
            between: (at(sent), at(came)),
            body: Vec::new(),
            timings: Timings::default(),
        }
    }

    #[test]
    fn clock_offset_considers_uncertainty() {
        for (date, sent, came, expected) in [
            (1_000, 1_000.4, 1_000.6, item::PASSED),
            (1_000, 1_005.0, 1_006.0, item::PASSED),
            (1_000, 1_010.0, 1_010.1, item::FAILED),
            (1_000, 900.0, 900.1, item::FAILED),
        ] {
            let leg = clock_leg(&Skew::of_answer(&answer(date, sent, came), "API server").unwrap());
            assert_eq!(leg.status, expected, "{:?}", leg.details);
        }
        let behind = clock_leg(&Skew::of_answer(&answer(1_000, 900.0, 900.2), "API server").unwrap());
        assert!(behind.details["error"].as_str().unwrap().contains("100.4 s behind"), "{:?}", behind.details);
    }

    #[test]
    fn without_a_cluster_legs_are_skipped() {
        let around = Destinations {
            api: None,
            token: None,
            authority: None,
            aggregator: None,
            proof: None,
            resolver: Value::Null,
            relay: None,
            node: None,
        };
        let legs: Vec<_> = network(&around).items.into_iter().map(|leg| (leg.name, leg.status)).collect();
        let expected =
            [("dns", "failed"), ("api", "skipped"), ("aggregator", "skipped"), ("clock", "skipped")];
        assert_eq!(legs, expected.map(|(name, status)| (name.to_owned(), status.to_owned())));
    }

    #[test]
    fn missing_clock_does_not_delay_the_worker() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 512]);
            stream.write_all(b"HTTP/1.1 404 no\r\ncontent-length: 0\r\n\r\n").unwrap();
        });
        let around = Destinations { relay: Some(port), ..Destinations::read() };
        assert!(around.ask_relay(STEP_TIMEOUT).is_none());
        answering.join().unwrap();
    }

    #[test]
    fn unreachable_aggregator_is_the_failing_leg() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let around = Destinations {
            aggregator: Some(("127.0.0.1".into(), free)),
            resolver: Value::Null,
            ..Destinations::read()
        };
        let (leg, _) = aggregator(&around, passed("aggregator")).unwrap();
        assert_eq!(leg.status, item::FAILED);
        assert!(leg.details["error"].as_str().unwrap().contains("no connection to 127.0.0.1"));
    }

    #[test]
    fn names_and_addresses() {
        let resolver =
            "nameserver 10.96.0.10\nsearch sonobuoy.svc.corp.example svc.corp.example corp.example\n";
        assert_eq!(service_name(&network::resolver(resolver)), "kubernetes.default.svc.corp.example");
        assert_eq!(service_name(&Value::Null), "kubernetes.default.svc.cluster.local");
        assert_eq!(host_and_port("https://[fd00::1]:8080/x"), Some(("fd00::1".into(), 8080)));
        assert_eq!(host_and_port("http://h:1"), None);
    }
}
