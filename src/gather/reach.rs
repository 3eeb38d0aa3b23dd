//! Connectivity of a node in its cluster: DNS, API server, aggregator, other nodes, and clock skew.
//!
//! Owns the legs and their destinations, and connections that are measured step by step: DNS (RFC
//! 1035), TCP, TLS, one HTTP/1.0 request, within limits on time and size. A failing leg names the
//! step that failed; a leg without a destination, as outside a cluster, is skipped with a reason.
//! Starts a thread per leg, and one per other node; every step has a timeout.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde::Serialize;
use serde_json::Value;
use ureq::http::Uri;

use super::network;
use base::at::At as _;
use base::clock;
use base::json::{self, json};
use base::stop::Stop;
use base::sys::variable;
use client::Clock;
use kube::{self, Identity, Method, Object as _, Trust, client_config};
use model::item::{FAILED, Item, PASSED, REMEDY, SKIPPED};
use model::names::{self, env};
use model::nodes::Peer;
use model::remedies;

mod peers;

/// Timeout of one attempt at one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes echoed: enough for many packets of any size.
const ECHO_BYTES: usize = 64 << 10;

/// Maximum bytes of a response.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// Attempts per step, since packets may be lost.
const TRIES: usize = 3;

/// Maximum clock skew in seconds; beyond it, certificates and leases of a cluster start to fail.
const SKEW: f64 = 5.0;

/// Time for the worker to start, which takes seconds on a busy node.
const WORKER_STARTS: Duration = Duration::from_secs(10);

/// Interval between attempts at any step.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Mounted files with a pod's credentials.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Host and port.
type Place = (String, u16);

/// The destinations of the legs, as far as this process knows them.
#[derive(Default)]
pub struct Destinations {
    api: Option<Place>,
    aggregator: Option<Place>,
    /// The run's authority and this worker's identity, if available.
    proof: Option<(Trust, Identity)>,
    /// This process's `/etc/resolv.conf`.
    resolver: Value,
    /// Port of this pod's worker.
    relay: Option<u16>,
    /// This node's name in the cluster.
    node: Option<String>,
    /// Other nodes to reach; `None` if this process is not to reach any.
    peers: Option<Vec<Peer>>,
}

/// Offset of this machine's clock from another one.
#[derive(Serialize)]
pub struct Skew {
    /// Seconds ahead.
    seconds: f64,
    /// Margin of error.
    uncertainty_seconds: f64,
    /// Owner of the other clock.
    against: &'static str,
}

impl Destinations {
    /// Reads a pod's environment and files.
    pub fn read() -> Self {
        let port = variable("KUBERNETES_SERVICE_PORT")
            .and_then(|port| port.parse().ok())
            .unwrap_or(443);
        Self {
            api: variable("KUBERNETES_SERVICE_HOST").map(|host| (host, port)),
            aggregator: variable(env::AGGREGATOR_URL)
                .or_else(|| variable(client::env::AGGREGATOR_URL))
                .and_then(|url| host_and_port(&url)),
            proof: proof(),
            resolver: network::resolver(
                &fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
            ),
            relay: variable(env::PROGRESS_PORT).and_then(|port| port.parse().ok()),
            node: variable(client::env::NODE_NAME),
            peers: variable(env::PEERS).and_then(|peers| {
                let peers = serde_json::from_str(&peers);
                peers
                    .inspect_err(|error| log::warn!("{}: {error}", env::PEERS))
                    .ok()
            }),
        }
    }

    /// Compares this machine's clock with the aggregator's through the pod's worker, else with the
    /// API server's.
    pub fn skew(&self) -> Result<Option<Skew>> {
        let skew = self.ask_worker();
        if skew.is_some() || self.api.is_none() {
            return Ok(skew);
        }
        Ok(self.ask_api("/version")?.1.skew("API server"))
    }

    /// The clock by the pod's worker, which may still be starting; the original's worker has none.
    fn ask_worker(&self) -> Option<Skew> {
        let worker = kube::Config::plain(format!("http://127.0.0.1:{}", self.relay?));
        let worker = kube::Client::new(names::USER_AGENT, worker, &Stop::new())
            .ok()?
            .within(STEP_TIMEOUT)
            .retry_timeout(WORKER_STARTS)
            .no_retry_codes(&[500, 502, 503, 504]);
        let answer = worker
            .send(&kube::Request::raw(Method::GET, "/clock"))
            .inspect_err(|error| log::debug!("no clock from the worker: {error}"))
            .ok()?;
        let clock: Clock = serde_json::from_value(answer).ok()?;
        Some(Skew {
            seconds: clock.offset_seconds,
            uncertainty_seconds: clock.uncertainty_seconds,
            against: "aggregator",
        })
    }

    /// The cluster's record of this node's kubelet, container runtime and system versions, if a
    /// service account is mounted.
    pub fn node_info(&self) -> Result<Value> {
        let has_account = self.api.is_some() && Path::new(TOKEN).exists();
        let Some(node) = self.node.as_ref().filter(|_| has_account) else {
            return Ok(Value::Null);
        };
        let Response { status, body, .. } = self.ask_api(&format!("/api/v1/nodes/{node}"))?.1;
        ensure!(
            status == 200,
            "the API server answers {status} when asked for this node"
        );
        Ok(json::from_slice(&body).context("the node is not JSON")?["status"]["nodeInfo"].take())
    }

    fn ask_api(&self, path: &str) -> Result<(Connection, Response)> {
        let place = self.api.as_ref().context("no API server is known here")?;
        let authority = fs::read(AUTHORITY).at("cannot read", AUTHORITY)?;
        let mut connection = dial(&(Trust::Authorities(authority), Identity::default()), place)?;
        let token = fs::read_to_string(TOKEN);
        let header = token.map(|token| format!("Authorization: Bearer {}\r\n", token.trim()));
        let answer = connection.send("GET", path, &header.unwrap_or_default(), 0)?;
        Ok((connection, answer))
    }
}

/// Identity from a worker's certificate and key in the environment.
fn proof() -> Option<(Trust, Identity)> {
    let identity = Identity::default();
    let (certificate, key) = (
        variable(client::env::CLIENT_CERT)?,
        variable(client::env::CLIENT_KEY)?,
    );
    identity
        .set(certificate.as_bytes(), key.as_bytes())
        .inspect_err(|why| log::warn!("{}: {why}", client::env::CLIENT_CERT))
        .ok()?;
    Some((
        Trust::Authorities(variable(client::env::CA_CERT)?.into_bytes()),
        identity,
    ))
}

/// Tries a leg and adds its details; returns what it learned about the clock.
type Probe = fn(&Destinations, &mut Item) -> Result<Option<Skew>>;

/// Tries all legs concurrently, so that blocked ones cost a single timeout.
pub fn network(around: &Destinations) -> Item {
    let legs: [(&str, Probe); 3] = [("dns", dns), ("api", api), ("aggregator", aggregator)];
    let mut pairs = None;
    let [(dns, _), (api, api_skew), (aggregator, skew)] = thread::scope(|scope| {
        let threads = legs.map(|(name, probe)| {
            let leg = move || {
                let mut leg = Item::new(name, PASSED);
                let skew = probe(around, &mut leg).unwrap_or_else(|error| {
                    fail(&mut leg, format!("{error:#}"));
                    None
                });
                (leg, skew)
            };
            (leg, base::thread(name).spawn_scoped(scope, leg))
        });
        pairs = around.peers.as_deref().map(peers::probe_all);
        threads.map(|(leg, thread)| match thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => leg(),
        })
    });
    let mut clock = Item::new("clock", PASSED);
    match skew.or_else(|| around.ask_worker()).or(api_skew) {
        None => skip(
            &mut clock,
            "neither the aggregator nor an API server tells the time here",
        ),
        Some(skew) => judge(&mut clock, &skew),
    }
    let mut items = vec![dns, api, aggregator];
    items.extend(pairs.as_deref().map(peers::leg));
    items.push(clock);
    let failed = items.iter().any(|leg| leg.status == FAILED);
    Item {
        items,
        ..Item::new("network", if failed { FAILED } else { PASSED })
    }
}

fn add(leg: &mut Item, key: &str, value: impl Into<Value>) {
    leg.details.insert(key.to_owned(), value.into());
}

fn skip(leg: &mut Item, why: &str) {
    leg.status = SKIPPED.into();
    add(leg, "reason", why);
}

/// Marks a leg as failed, with a remedy if the cause is known.
fn fail(leg: &mut Item, error: String) {
    leg.status = FAILED.into();
    if let Some(remedy) = remedies::remedy(&error) {
        add(leg, REMEDY, remedy);
    }
    add(leg, "error", error);
}

fn add_timings(leg: &mut Item, connection: &Connection) {
    add(leg, "connect_ms", millis(connection.connect));
    add(leg, "handshake_ms", millis(connection.handshake));
}

fn dns(around: &Destinations, leg: &mut Item) -> Result<Option<Skew>> {
    let servers: Vec<IpAddr> = around.resolver["nameservers"]
        .items()
        .filter_map(|server| server.text().parse().ok())
        .collect();
    ensure!(
        !servers.is_empty(),
        "`/etc/resolv.conf` names no name server"
    );
    let name = service_name(&around.resolver);
    let (mut answers, mut failure) = (Vec::new(), Ok(None));
    for server in servers {
        let why = match retry(|| ask_name_server((server, 53).into(), &name)) {
            Ok((code, took)) => {
                answers.push(json!({ "server": server, "latency_ms": millis(took), "code": code }));
                // Outside a cluster the name does not exist, but the response proves that the
                // server is reachable.
                if around.api.is_none() || code == 0 {
                    continue;
                }
                anyhow!("name server {server} does not know `{name}` (code {code})")
            }
            Err(error) => error.context(format!("name server {server}, asked for `{name}`")),
        };
        failure = failure.and(Err(why));
    }
    add(leg, "name", name);
    add(leg, "servers", answers);
    failure
}

/// The API server's name in the cluster; its domain is one of the search domains.
fn service_name(resolver: &Value) -> String {
    let domain = resolver["search"]
        .items()
        .map(Value::text)
        .find(|domain| domain.starts_with("svc."));
    format!(
        "kubernetes.default.{}",
        domain.unwrap_or("svc.cluster.local")
    )
}

/// Queries one server for the IPv4 addresses of `name` (RFC 1035): the response code, 0 for success
/// and 3 for a name that does not exist, and the time until the response. Neither tries other
/// servers nor caches.
fn ask_name_server(server: SocketAddr, name: &str) -> Result<(u8, Duration)> {
    let any = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any).context("no socket to ask from")?;
    socket.set_read_timeout(Some(STEP_TIMEOUT))?;
    // A connected socket accepts only the server's datagrams and reports a closed port at once.
    socket.connect(server).context("cannot be reached")?;
    // Number 1, one question, recursion desired.
    let mut question = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..64).contains(length));
        question.push(length.with_context(|| format!("`{name}` is not a name"))?);
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    let started = Instant::now();
    socket.send(&question).context("cannot be reached")?;
    let mut answer = [0; 1_500];
    match socket.recv(&mut answer) {
        Err(error) if is_timeout(&error) => bail!("did not answer"),
        length => {
            let is_answer = length.context("did not answer")? >= 12
                && answer[..2] == question[..2]
                && answer[2] & 0x80 != 0;
            ensure!(is_answer, "the answer is not a DNS message");
        }
    }
    Ok((answer[3] & 15, started.elapsed()))
}

fn api(around: &Destinations, leg: &mut Item) -> Result<Option<Skew>> {
    let Some((host, port)) = &around.api else {
        skip(leg, "no API server is known here");
        return Ok(None);
    };
    add(leg, "address", format!("{host}:{port}"));
    let (connection, answer) = retry(|| around.ask_api("/version"))?;
    add_timings(leg, &connection);
    add(leg, "code", answer.status);
    // A refusal also proves that the server is reachable.
    if !matches!(answer.status, 200..=299 | 401 | 403) {
        fail(
            leg,
            format!("the API server answers {} to `/version`", answer.status),
        );
    }
    Ok(answer.skew("API server"))
}

fn aggregator(around: &Destinations, leg: &mut Item) -> Result<Option<Skew>> {
    let Some(place) = &around.aggregator else {
        skip(leg, "no aggregator is known here");
        return Ok(None);
    };
    add(leg, "address", format!("{}:{}", place.0, place.1));
    speak(around, place, leg).map_err(|error| anyhow!(remedies::unreached(&format!("{error:#}"))))
}

/// Connects to the aggregator as a worker does: a small request, whose response carries the time,
/// then enough data in both directions to fill many packets.
fn speak(around: &Destinations, place: &Place, leg: &mut Item) -> Result<Option<Skew>> {
    let Some(proof) = &around.proof else {
        // The aggregator requires certificates that only workers have, so the check ends at the
        // handshake.
        let anyone = (Trust::Anybody, Identity::default());
        add_timings(leg, &retry(|| dial(&anyone, place))?);
        return Ok(None);
    };
    let ask = |method, bytes| {
        let mut connection = dial(proof, place)?;
        let answer = connection.send(method, "/", "", bytes)?;
        ensure!(
            answer.status == 200,
            "the aggregator answers {}",
            answer.status
        );
        Ok((connection, answer))
    };
    let (connection, answer) = retry(|| ask("GET", 0))?;
    add_timings(leg, &connection);
    add(
        leg,
        "round_trip_ms",
        millis(
            answer
                .received
                .duration_since(answer.sent)
                .unwrap_or_default(),
        ),
    );
    let mtu = retry(|| {
        let (connection, Response { body, .. }) = ask("PUT", ECHO_BYTES)?;
        ensure!(
            body.len() == ECHO_BYTES,
            "{} of {ECHO_BYTES} bytes came back",
            body.len()
        );
        Ok(connection.path_mtu())
    })
    .with_context(|| format!("small packets arrive, but {} KiB do not", ECHO_BYTES >> 10))?;
    if let Some(mtu) = mtu {
        add(leg, "path_mtu", mtu);
    }
    Ok(answer.skew("aggregator"))
}

fn judge(
    leg: &mut Item,
    Skew {
        seconds,
        uncertainty_seconds,
        against,
    }: &Skew,
) {
    add(leg, "against", *against);
    add(leg, "offset_seconds", rounded(*seconds));
    add(leg, "uncertainty_seconds", rounded(*uncertainty_seconds));
    if seconds.abs() - uncertainty_seconds > SKEW {
        let way = if *seconds > 0.0 { "ahead of" } else { "behind" };
        fail(
            leg,
            format!(
                "the clock is {:.1} s {way} that of the {against}",
                seconds.abs()
            ),
        );
    }
}

fn retry<T>(mut step: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        if let Ok(found) = step() {
            return Ok(found);
        }
        Stop::new().wait(RETRY_INTERVAL);
    }
    step()
}

fn millis(span: Duration) -> f64 {
    rounded(span.as_secs_f64() * 1_000.0)
}

/// Rounds to three decimals.
fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

/// Splits `https://[::1]:8080/path` into host and port.
fn host_and_port(url: &str) -> Option<Place> {
    let url: Uri = url.parse().ok()?;
    Some((
        url.host()?.trim_matches(['[', ']']).to_owned(),
        url.port_u16()?,
    ))
}

/// An established connection, and the durations of its TCP connect and TLS handshake.
struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    host: String,
    connect: Duration,
    handshake: Duration,
}

/// Connects and does a TLS handshake; presents a certificate if the server requests one.
fn dial((trust, identity): &(Trust, Identity), (host, port): &Place) -> Result<Connection> {
    let mut addresses = (&**host, *port)
        .to_socket_addrs()
        .with_context(|| format!("cannot look up `{host}`"))?;
    let address = addresses
        .next()
        .with_context(|| format!("`{host}` has no address"))?;
    let started = Instant::now();
    let mut tcp = TcpStream::connect_timeout(&address, STEP_TIMEOUT)
        .with_context(|| format!("no connection to {address}"))?;
    let connect = started.elapsed();
    tcp.set_read_timeout(Some(STEP_TIMEOUT))?;
    tcp.set_write_timeout(Some(STEP_TIMEOUT))?;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from(host.clone())
        .with_context(|| format!("`{host}` is not the name of a server"))?;
    let mut tls = ClientConnection::new(
        client_config(trust, identity).map_err(anyhow::Error::msg)?,
        name,
    )?;
    let started = Instant::now();
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp).map_err(|error| {
            if is_timeout(&error) {
                let seconds = STEP_TIMEOUT.as_secs();
                anyhow!(
                    "{address} accepts connections but does not answer within {seconds} s: it is \
                     overloaded, or something between drops packets"
                )
            } else {
                anyhow!(error).context(format!(
                    "{address} accepts connections but does not agree on TLS"
                ))
            }
        })?;
    }
    let handshake = started.elapsed();
    Ok(Connection {
        stream: StreamOwned::new(tls, tcp),
        host: host.clone(),
        connect,
        handshake,
    })
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// An HTTP response.
struct Response {
    status: u16,
    /// The server's time, to the second.
    date: Option<SystemTime>,
    body: Vec<u8>,
    sent: SystemTime,
    /// When its head was received.
    received: SystemTime,
}

impl Connection {
    /// The largest packet that gets to the other end, as far as the kernel knows.
    fn path_mtu(&self) -> Option<u32> {
        let tcp = &self.stream.sock;
        let mtu = match tcp.peer_addr().ok()?.is_ipv4() {
            true => sockopt::ip_mtu,
            false => sockopt::ipv6_mtu,
        };
        mtu(tcp)
            .inspect_err(|error| log::debug!("no path MTU: {error}"))
            .ok()
    }

    /// Sends a request with a header, and this many bytes.
    fn send(&mut self, method: &str, path: &str, header: &str, bytes: usize) -> Result<Response> {
        // HTTP/1.0: the response arrives unchunked and ends the connection.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\n{header}Content-Length: {bytes}\r\n\r\n",
            self.host
        );
        let sent = SystemTime::now();
        let request = [head.into_bytes(), vec![0; bytes]].concat();
        self.stream
            .write_all(&request)
            .context("the request was not accepted")?;
        let mut answer = vec![0; 4_096];
        let length = self.stream.read(&mut answer).context("no answer came")?;
        let received = SystemTime::now();
        ensure!(
            length > 0,
            "the server ended the connection without an answer"
        );
        answer.truncate(length);
        match (&mut self.stream)
            .take(MAX_ANSWER_BYTES)
            .read_to_end(&mut answer)
        {
            // Many servers close the connection without `close_notify`.
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                Err(error).context("no answer came")
            }
            _ => Response::parse(&answer, sent, received),
        }
    }
}

impl Response {
    fn parse(bytes: &[u8], sent: SystemTime, received: SystemTime) -> Result<Self> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(end) =
            head.parse(bytes).context("the answer is not HTTP")?
        else {
            bail!("the answer was cut");
        };
        let date = head
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("date"))
            .and_then(|header| clock::parse_http_date(std::str::from_utf8(header.value).ok()?));
        let (status, body) = (head.code.unwrap_or(0), bytes[end..].to_vec());
        Ok(Self {
            status,
            date,
            body,
            sent,
            received,
        })
    }

    /// The offset from the clock of the server, if it told the time.
    fn skew(&self, against: &'static str) -> Option<Skew> {
        let (seconds, uncertainty_seconds) = clock::offset(self.date?, self.sent, self.received);
        Some(Skew {
            seconds,
            uncertainty_seconds,
            against,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answer(date: u64, sent: f64, received: f64) -> Response {
        let at = |seconds: f64| SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds);
        let (sent, received) = (at(sent), at(received));
        Response {
            status: 200,
            date: Some(at(date as f64)),
            body: Vec::new(),
            sent,
            received,
        }
    }

    fn clock_leg(answer: &Response) -> Item {
        let mut leg = Item::new("clock", PASSED);
        judge(&mut leg, &answer.skew("API server").unwrap());
        leg
    }

    #[test]
    fn clock_offset_considers_uncertainty() {
        for (date, sent, came, expected) in [
            (1_000, 1_000.4, 1_000.6, PASSED),
            (1_000, 1_005.0, 1_006.0, PASSED),
            (1_000, 1_010.0, 1_010.1, FAILED),
            (1_000, 900.0, 900.1, FAILED),
        ] {
            let leg = clock_leg(&answer(date, sent, came));
            assert_eq!(leg.status, expected, "{:?}", leg.details);
        }
        let behind = clock_leg(&answer(1_000, 900.0, 900.2));
        assert!(
            behind.details["error"]
                .as_str()
                .unwrap()
                .contains("100.4 s behind"),
            "{:?}",
            behind.details
        );
    }

    #[test]
    fn without_a_cluster_legs_are_skipped() {
        let found = network(&Destinations::default()).items;
        let legs: Vec<_> = found
            .into_iter()
            .map(|leg| (leg.name, leg.status))
            .collect();
        let expected = [
            ("dns", "failed"),
            ("api", "skipped"),
            ("aggregator", "skipped"),
            ("clock", "skipped"),
        ];
        assert_eq!(
            legs,
            expected.map(|(name, status)| (name.to_owned(), status.to_owned()))
        );
    }

    #[test]
    fn missing_clock_does_not_delay_the_worker() {
        for status in ["404 no", "502 no"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let answering = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 512]);
                let answer =
                    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).unwrap();
            });
            let around = Destinations {
                relay: Some(port),
                ..Destinations::default()
            };
            assert!(around.ask_worker().is_none());
            answering.join().unwrap();
        }
    }

    #[test]
    fn unreachable_aggregator_is_the_failing_leg() {
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let around = Destinations {
            aggregator: Some(("127.0.0.1".into(), free)),
            ..Destinations::default()
        };
        let leg = network(&around).items.remove(2);
        assert_eq!(leg.status, FAILED);
        assert_eq!(leg.details["address"], format!("127.0.0.1:{free}"));
        let error = leg.details["error"].as_str().unwrap();
        assert!(
            error.contains("cannot reach the aggregator: no connection to 127.0.0.1"),
            "{error}"
        );
    }

    #[test]
    fn names_and_addresses() {
        let resolver = "nameserver 10.96.0.10\nsearch sonobuoy.svc.corp.example svc.corp.example \
                        corp.example\n";
        assert_eq!(
            service_name(&network::resolver(resolver)),
            "kubernetes.default.svc.corp.example"
        );
        assert_eq!(
            service_name(&Value::Null),
            "kubernetes.default.svc.cluster.local"
        );
        assert_eq!(
            host_and_port("https://[fd00::1]:8080/x"),
            Some(("fd00::1".into(), 8080))
        );
        assert_eq!(host_and_port("https://h"), None);
    }

    #[test]
    fn answer_has_code_date_and_body() {
        let now = SystemTime::now();
        let parse = |bytes| Response::parse(bytes, now, now);
        let answer =
            parse(b"HTTP/1.0 403 Forbidden\r\nDate: Sat, 21 Nov 2026 02:40:49 GMT\r\n\r\n{}")
                .unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (403, &b"{}"[..]));
        assert_eq!(
            clock::rfc3339(answer.date.unwrap()),
            "2026-11-21T02:40:49.000Z"
        );
        for broken in ["", "HTTP/1.0 200", "\0\0\0", "SSH-2.0-x\r\n\r\n"] {
            assert!(parse(broken.as_bytes()).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn dns_server_is_queried() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let mut buffer = [0; 512];
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            let asked = buffer[..length].to_vec();
            let mut reply = asked.clone();
            reply[2..4].copy_from_slice(&[0x81, 0x83]);
            server.send_to(&reply, from).unwrap();
            asked
        });
        assert_eq!(ask_name_server(address, "kubernetes.default").unwrap().0, 3);
        let asked = answering.join().unwrap();
        assert_eq!(&asked[12..32], b"\x0akubernetes\x07default\0");
        for name in ["a..b", &"x".repeat(64), &"x".repeat(256)] {
            let error = ask_name_server(address, name).unwrap_err().to_string();
            assert_eq!(error, format!("`{name}` is not a name"));
        }
    }
}
