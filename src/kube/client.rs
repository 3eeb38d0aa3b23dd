//! Sends requests and reads responses: credentials, rate limits, retries, timeouts.
//!
//! Owns the rules for retries. Knows requests only as values ([`super::request`]) and responses
//! only as JSON or bytes. Starts no thread; may be shared by many.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use ureq::{Agent, SendBody, http};

use super::error::{Error, Stage};
use super::kubeconfig::Config;
use super::request::{Headers, Method, Object as _, Request, Resource};
use base::clock;
use base::dial::{Dialer, Stream};
use base::json;
use base::lock;
use base::proxy::{self, Proxy};
use base::retry::{self, Backoff};
use base::stop::Stop;
use base::tls;
use base::visible::short;

/// Requests of all clients of this process.
static SENT_REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Number of requests that this process has sent, repeated ones included.
pub fn sent_requests() -> u64 {
    SENT_REQUESTS.load(Ordering::Relaxed)
}

/// Timeout until a response starts: an admission webhook may take 30 s, and a server may call
/// several.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum silence within a body.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Default time limit of retries, once the server has been reached.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// Outages longer than this are logged.
const OUTAGE_NOTICE: Duration = Duration::from_secs(3);
/// Pauses between attempts.
pub(super) const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(200),
    max: Duration::from_secs(5),
};
/// etcd holds no object over 1.5 MiB; aggregated APIs may serve larger ones.
pub(super) const MAX_OBJECT_BYTES: u64 = 16 << 20;
/// Maximum bytes read of an error response.
const MAX_REFUSAL_BYTES: u64 = 1 << 20;
/// Maximum idle connections, more than any use of this client needs.
const MAX_IDLE_CONNECTIONS: usize = 16;

/// Access to one API server. Clones share connections, rate and credentials.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    limiter: Arc<Limiter>,
    /// Replaced when a new certificate makes open connections useless.
    agent: Arc<Mutex<Agent>>,
    dialer: Dialer,
    /// Time limits of retries, before and after the server was first reached.
    retry_timeout: [Duration; 2],
    /// Timeout of one attempt, if shorter than the configured one.
    timeout: Option<Duration>,
    /// Status codes that are not retried.
    no_retry_codes: &'static [u16],
}

struct Shared {
    /// The program that uses the client, for the server's logs.
    user_agent: &'static str,
    config: Config,
    /// The server's address.
    uri: http::Uri,
    reached: AtomicBool,
    /// Whether an outage of the server has been logged.
    away: AtomicBool,
}

impl Client {
    /// Prepares a client of the program `user_agent` without sending anything. All its calls end
    /// with `stop`.
    pub fn new(user_agent: &'static str, config: Config, stop: &Stop) -> Result<Self, Error> {
        let place = |what: &'static str| format!("{}: {what}", config.source);
        let uri: http::Uri = config.server.parse().with_context(|| place("server"))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let written = authority
            .rsplit('@')
            .next()
            .unwrap_or_default()
            .trim_end_matches(':');
        // The parser treats an invalid port as a missing one.
        if uri.port_u16().is_none() && written != uri.host().unwrap_or_default() {
            let why = format!("`{}`: its port must be a number up to 65535", config.server);
            return Err(anyhow!("{}: {why}", place("server")).into());
        }
        let (mut tls, mut server_name) = (None, None);
        if uri.scheme_str() == Some("https") {
            let settings = tls::client_config(&config.trust, &config.identity);
            tls = Some(settings.with_context(|| place("TLS"))?);
            let name = config
                .server_name
                .as_deref()
                .unwrap_or(proxy::place(&uri).0);
            server_name = Some(tls::server_name(name).with_context(|| place("server"))?);
        }
        let proxy = config
            .proxy
            .clone()
            .map_or_else(|| Proxy::before(&uri), |proxy| Ok(Some(proxy)))?;
        let dialer = Dialer {
            tls,
            server_name,
            proxy,
            stop: stop.clone(),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                user_agent,
                config,
                uri,
                reached: false.into(),
                away: false.into(),
            }),
            limiter: Arc::new(Limiter::new(0.0, 0)),
            agent: Arc::new(Mutex::new(agent(&dialer))),
            dialer,
            retry_timeout: [Duration::ZERO, RETRY_TIMEOUT],
            timeout: None,
            no_retry_codes: &[],
        })
    }

    /// The same client, limited to `qps` requests per second after the first `burst`.
    pub fn rate(mut self, qps: f64, burst: u32) -> Self {
        self.limiter = Arc::new(Limiter::new(qps, burst));
        self
    }

    /// The same client, retrying for this long, even at first contact: for programs in a cluster
    /// that must survive an outage of its API server.
    pub fn retry_timeout(mut self, timeout: Duration) -> Self {
        self.retry_timeout = [timeout; 2];
        self
    }

    /// The same client, treating these temporary codes as final: those that report the failure of a
    /// third party.
    pub fn no_retry_codes(mut self, codes: &'static [u16]) -> Self {
        self.no_retry_codes = codes;
        self
    }

    /// The same client, with this timeout for one attempt of a call, and until a stream starts.
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The same client for calls that get one short attempt.
    pub fn once(&self, limit: Duration) -> Self {
        self.clone().retry_timeout(Duration::ZERO).within(limit)
    }

    /// The same client under another `stop`, with separate connections.
    pub fn under(&self, stop: &Stop) -> Self {
        let dialer = Dialer {
            stop: stop.clone(),
            ..self.dialer.clone()
        };
        Self {
            agent: Arc::new(Mutex::new(agent(&dialer))),
            dialer,
            ..self.clone()
        }
    }

    /// The settings that it was created from.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The stop that ends all calls.
    pub fn stop(&self) -> &Stop {
        &self.dialer.stop
    }

    /// Sends any request and reads a JSON response.
    pub fn send(&self, request: &Request) -> Result<Value, Error> {
        self.call(request, &mut |body| {
            let mut body = body.take(MAX_OBJECT_BYTES);
            let answer = json::from_reader(io::BufReader::new(&mut body));
            match answer {
                Err(_) if body.limit() == 0 => Err(oversized(request)),
                answer => answer.map_err(|why| decoding(request, &why)),
            }
        })
    }

    /// Sends any request and reads its response as text of at most `limit` bytes.
    pub fn text(&self, request: &Request, limit: u64) -> Result<String, Error> {
        self.call(request, &mut |body| {
            let mut bytes = Vec::new();
            body.take(limit)
                .read_to_end(&mut bytes)
                .map_err(|why| transport(&self.address(request), why))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })
    }

    /// Reads one object.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value, Error> {
        self.send(&Request::get(resource, namespace, name))
    }

    /// Creates an object.
    pub fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        object: &Value,
    ) -> Result<Value, Error> {
        self.send(&Request::create(resource, namespace, object))
    }

    /// Reads one object, if it exists.
    pub fn find(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Error> {
        match self.get(resource, namespace, name) {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Removes an object, if it exists.
    pub fn delete(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), Error> {
        self.remove(&Request::delete(resource, namespace, name))
    }

    /// Removes an object without a grace period, as nothing else removes a pod whose node does not
    /// respond. Another object that has taken its name stays.
    pub fn delete_now(
        &self,
        resource: &Resource,
        namespace: &str,
        object: &Value,
    ) -> Result<(), Error> {
        let request = Request::delete(resource, namespace, object.name())
            .grace_period(Duration::ZERO)
            .only_uid(&object["metadata"]["uid"]);
        self.remove(&request)
    }

    fn remove(&self, request: &Request) -> Result<(), Error> {
        match self.send(request) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Merges `patch` into an object.
    pub fn merge_patch(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Error> {
        self.send(&Request::merge_patch(resource, namespace, name, patch))
    }

    /// Opens a response of unlimited duration: a log, a watch. A silence longer than `silence` is
    /// an error. Retries only the opening.
    pub fn stream(&self, request: &Request, silence: Option<Duration>) -> Result<Body, Error> {
        self.retry(request, &mut || self.open(request, [None, silence]))
    }

    /// Sends a request and calls `read` with the response; repeats both if the connection breaks
    /// and the request permits it.
    pub fn call<T>(
        &self,
        request: &Request,
        read: &mut dyn FnMut(Body) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let timeout = [self.shared.config.request_timeout, self.timeout]
            .into_iter()
            .flatten()
            .min();
        self.retry(request, &mut || {
            self.open(request, [timeout, Some(SILENCE_TIMEOUT)])
                .and_then(&mut *read)
        })
    }

    /// Offset of this machine's clock from the server's, in seconds, and the margin of error;
    /// `None` if the response has no date.
    pub fn clock(&self) -> Result<Option<(f64, f64)>, Error> {
        let sent = SystemTime::now();
        let request = Request::raw(Method::GET, "/version");
        let answer = self.exchange(&request, [self.timeout, Some(SILENCE_TIMEOUT)])?;
        Ok(clock::offset_of(answer.headers(), sent))
    }

    /// The server's certificate and the client's own, as far as they exist.
    pub fn certificates(&self) -> Result<[Option<CertificateDer<'static>>; 2], Error> {
        let (stream, _) = self.connect(&Request::raw(Method::GET, "/version"))?;
        Ok([
            stream.certificate,
            self.shared.config.identity.certificate(),
        ])
    }

    /// A new connection and the headers of a request, for upgrades.
    pub(super) fn connect(&self, request: &Request) -> Result<(Stream, Headers), Error> {
        self.limiter.take(self.stop())?;
        let headers = self.headers(request)?;
        let stream = self
            .dialer
            .dial(&self.shared.uri, self.timeout.unwrap_or(Duration::MAX));
        Ok((
            stream.map_err(|error| self.explain(request, error))?,
            headers,
        ))
    }

    /// The server's address.
    pub(super) fn uri(&self) -> &http::Uri {
        &self.shared.uri
    }

    /// The request as messages show it.
    pub(super) fn address(&self, request: &Request) -> String {
        let address = format!(
            "{} {}{}",
            request.method.as_str(),
            self.shared.config.server,
            request.path
        );
        short(&address).into_owned()
    }

    fn retry<T>(
        &self,
        request: &Request,
        attempt: &mut dyn FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let mut failures = 0;
        loop {
            let error = match attempt() {
                Ok(answer) => {
                    if self.shared.away.swap(false, Ordering::Relaxed) {
                        log::info!("`{}` is reachable again", self.shared.config.server);
                    }
                    return Ok(answer);
                }
                Err(_) if self.stop().stopped() => return Err(Error::Stopped),
                Err(error) => error,
            };
            failures += 1;
            let code = error.code();
            let is_never_retried = code.is_some_and(|code| self.no_retry_codes.contains(&code));
            // Unless repeating a request has no effect, the server must not have seen it.
            let is_repeatable = error.is_passing()
                && !is_never_retried
                && (request.idempotent() || error.is_unsent());
            // A server that names a pause knows better how long it will be busy.
            let wait = match &error {
                Error::Api(refusal) => refusal.retry_after,
                _ => None,
            };
            let wait = wait.unwrap_or_else(|| BACKOFF.pause(failures));
            // A server that has never answered is more likely misconfigured than restarting.
            let was_reached = self.shared.reached.load(Ordering::Relaxed);
            let retry_timeout = self.retry_timeout[usize::from(was_reached)];
            if !is_repeatable || started.elapsed().saturating_add(wait) > retry_timeout {
                return Err(error);
            }
            // One warning for an outage, whichever of the threads comes first.
            if started.elapsed() > OUTAGE_NOTICE && !self.shared.away.swap(true, Ordering::Relaxed)
            {
                log::warn!("{error}; retrying until it answers");
            } else {
                log::debug!("{error}; retrying in {}", clock::duration(wait));
            }
            if self.stop().wait(wait) {
                return Err(Error::Stopped);
            }
        }
    }

    /// Sends a request, again with new credentials if its own are rejected. The limits are those of
    /// the whole exchange, and of silence.
    fn open(&self, request: &Request, limits: [Option<Duration>; 2]) -> Result<Body, Error> {
        let mut response = self.exchange(request, limits)?;
        if response.status() == http::StatusCode::UNAUTHORIZED
            && self.shared.config.credential.renew()
        {
            // A new certificate only applies to new connections.
            *lock(&self.agent) = agent(&self.dialer);
            response = self.exchange(request, limits)?;
        }
        let status = response.status();
        let after = retry::after(response.headers());
        let body = Body {
            reader: response
                .into_body()
                .into_with_config()
                .limit(u64::MAX)
                .reader(),
            stop: self.stop().clone(),
        };
        if status.is_success() {
            return Ok(body);
        }
        let mut text = Vec::new();
        // A truncated explanation is better than none.
        let _ = body.take(MAX_REFUSAL_BYTES).read_to_end(&mut text);
        Err(Error::from_answer(
            status.as_u16(),
            after,
            &text,
            &self.address(request),
        ))
    }

    fn exchange(
        &self,
        request: &Request,
        [timeout, silence]: [Option<Duration>; 2],
    ) -> Result<http::Response<ureq::Body>, Error> {
        self.limiter.take(self.stop())?;
        let uri = format!("{}{}", self.shared.config.server, request.target());
        let mut builder = http::Request::builder()
            .method(request.method.as_str())
            .uri(uri);
        for (name, value) in self.headers(request)? {
            builder = builder.header(name, value);
        }
        if let Some(body) = &request.body {
            builder = builder.header("content-length", body.len());
        }
        let body = request.body.clone().map_or_else(SendBody::none, |body| {
            SendBody::from_owned_reader(io::Cursor::new(body))
        });
        let sent = builder.body(body).with_context(|| self.address(request))?;
        let agent = lock(&self.agent).clone();
        let sent = agent
            .configure_request(sent)
            .timeout_global(timeout)
            .timeout_recv_response(Some(
                self.timeout
                    .unwrap_or(RESPONSE_TIMEOUT)
                    .min(RESPONSE_TIMEOUT),
            ))
            .timeout_per_read(silence)
            .build();
        SENT_REQUESTS.fetch_add(1, Ordering::Relaxed);
        let response = agent
            .run(sent)
            .map_err(|error| self.explain(request, error))?;
        self.shared.reached.store(true, Ordering::Relaxed);
        Ok(response)
    }

    fn headers(&self, request: &Request) -> Result<Headers, Error> {
        let config = &self.shared.config;
        let mut headers = vec![("user-agent", self.shared.user_agent.to_owned())];
        headers.extend_from_slice(&request.headers);
        if !request.headers.iter().any(|(name, _)| *name == "accept") {
            headers.push(("accept", "application/json".into()));
        }
        if let Some(value) = config.credential.authorization(&config.identity)? {
            headers.push(("authorization", value));
        }
        if let Some(user) = &config.as_user {
            headers.push(("impersonate-user", user.clone()));
        }
        for group in &config.as_groups {
            headers.push(("impersonate-group", group.clone()));
        }
        Ok(headers)
    }

    fn explain(&self, request: &Request, error: ureq::Error) -> Error {
        self.failed(&self.address(request), error.into_io())
    }

    /// The error of a broken connection, unless the stop has ended it.
    pub(super) fn failed(&self, what: &str, error: io::Error) -> Error {
        if self.stop().stopped() {
            Error::Stopped
        } else {
            transport(what, error)
        }
    }
}

/// A token bucket shared by all threads of a client: lets `burst` requests through at once, and
/// then `qps` per second.
struct Limiter {
    /// The time until one token is replaced; `None` means no limit.
    step: Option<Duration>,
    burst: u32,
    /// When the bucket will be full: the further ahead, the emptier it is.
    full_at: Mutex<Instant>,
}

impl Limiter {
    /// A rate that is zero, negative or not a number means no limit.
    fn new(qps: f64, burst: u32) -> Self {
        let step = (qps > 0.0)
            .then(|| Duration::try_from_secs_f64(1.0 / qps).ok())
            .flatten();
        Self {
            step,
            burst: burst.max(1),
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits for a turn.
    fn take(&self, stop: &Stop) -> Result<(), Error> {
        let turn = self.reserve(Instant::now());
        if turn.map_or_else(|| stop.stopped(), |turn| stop.wait_until(turn)) {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    /// Takes a token, or one that will be available later; `None` if it is already available. First
    /// come, first served.
    fn reserve(&self, now: Instant) -> Option<Instant> {
        let step = self.step?;
        let mut full_at = lock(&self.full_at);
        // A bucket does not overflow: unused time earns no more than `burst` tokens.
        let before = (*full_at).max(now);
        *full_at = before + step;
        // A full bucket holds `burst` tokens.
        let turn = full_at.checked_sub(step * self.burst)?;
        (turn > now).then_some(turn)
    }
}

/// The body of a response as it arrives.
pub struct Body {
    reader: ureq::BodyReader<'static>,
    stop: Stop,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let outcome = self.reader.read(buffer);
        if self.stop.stopped() {
            // A socket that was shut down looks like the end of the stream.
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "stopped"));
        }
        outcome
    }
}

/// Explains a transport failure; failures of trust, and to connect, are distinguished.
pub(super) fn transport(what: &str, error: io::Error) -> Error {
    let (error, stage) = match error.downcast() {
        Ok(ureq::Error::Other(unconnected)) => (tls::unwrapped(unconnected), Stage::Unsent),
        Ok(ureq::Error::Timeout(ureq::Timeout::Global)) => {
            return Error::sent(what, "no complete response within the request timeout");
        }
        Ok(ureq::Error::Timeout(_)) => {
            return Error::sent(what, "timed out waiting for a response");
        }
        Ok(other) => (other.into_io(), Stage::Sent),
        Err(error) => (error, Stage::Sent),
    };
    let (why, stage) = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(tls) => (distrust(tls), Stage::Distrusted),
        None => (error.to_string(), stage),
    };
    Error::Transport {
        what: what.into(),
        why,
        stage,
    }
}

fn distrust(error: &rustls::Error) -> String {
    use rustls::{AlertDescription, CertificateError, Error as E};
    let hint = match error {
        E::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "; its authority is not the one in the kubeconfig (`certificate-authority-data` or \
             `certificate-authority`), or, if that names none, not one that this machine trusts"
        }
        E::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "; set `tls-server-name` to one of its names",
        E::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::UnknownCA,
        ) => "; the server rejected the client certificate",
        _ => "",
    };
    format!("TLS: {error}{hint}")
}

/// The error for an object that exceeds the limit; retrying does not help.
pub(super) fn oversized(request: &Request) -> Error {
    anyhow!(
        "`{request}`: the response contains an object of more than {} MiB",
        MAX_OBJECT_BYTES >> 20
    )
    .into()
}

pub(super) fn decoding(request: &Request, why: &serde_json::Error) -> Error {
    let what = request.to_string();
    if why.is_io() || why.is_eof() {
        Error::sent(&what, format!("the response was cut off: {why}"))
    } else {
        anyhow!("`{what}`: unexpected response: {why}").into()
    }
}

fn agent(dialer: &Dialer) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        // Credentials must not follow the server to another place.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(MAX_IDLE_CONNECTIONS)
        .max_idle_connections_per_host(MAX_IDLE_CONNECTIONS)
        .timeout_per_write(Some(SILENCE_TIMEOUT))
        .accept_encoding("");
    dialer.agent(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_passes_and_later_requests_follow_the_rate() {
        let limiter = Limiter::new(10.0, 3);
        let now = Instant::now() + Duration::from_secs(1);
        let turns = || limiter.reserve(now).map(|turn| turn - now);
        assert_eq!([turns(), turns(), turns()], [None; 3]);
        assert_eq!(turns(), Some(Duration::from_millis(100)));
        assert_eq!(turns(), Some(Duration::from_millis(200)));
        assert_eq!(
            limiter.reserve(now + Duration::from_secs(5)),
            None,
            "it grew back"
        );
    }

    #[test]
    fn zero_rate_is_unlimited_and_stop_ends_the_wait() {
        let stop = Stop::new();
        let open = Limiter::new(0.0, 0);
        assert!((0..1000).all(|_| open.take(&stop).is_ok()));
        let slow = Limiter::new(0.001, 1);
        assert!(slow.take(&stop).is_ok());
        stop.stop();
        assert!(slow.take(&stop).is_err());
    }
}
