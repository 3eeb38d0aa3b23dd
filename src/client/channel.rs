//! Authenticated access to the aggregator: with a given certificate, or with a requested one, which
//! is renewed in time, and requested again when the aggregator rejects it.
//!
//! Shared by all threads of a plugin. Only one requests a certificate at a time; the others wait
//! only without a valid one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, RustlsConnector, TcpConnector,
    Transport, time,
};

use super::access::Key;
use super::error::{self, Failed};
use super::{Access, Error, answer};
use crate::protocol::{CERTIFICATE_PATH, RENEW_HEADER, USER_AGENT};
use base::lock;

/// Timeout of a certificate request; the aggregator consults the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed renewal, while the previous certificate is still valid.
const RENEW_PAUSE: Duration = Duration::from_secs(30);
/// Renewal interval if the response does not specify one.
const DEFAULT_RENEWAL: Duration = Duration::from_secs(600);
/// Time in which a connection to an address that answers is usually made.
const USUAL_CONNECT_TIME: Duration = Duration::from_secs(2);
/// Maximum addresses of the aggregator itself that are tried beside its Service.
const MAX_OWN_ADDRESSES: usize = 4;
/// Maximum bytes of a certificate.
const MAX_CERTIFICATE_BYTES: u64 = 16 << 10;

/// Authenticated access to one aggregator.
pub(super) struct Channel {
    access: Access,
    base: String,
    /// Requests certificates for the key; `None` with a given certificate.
    guest: Option<(Agent, Key)>,
    held: Mutex<Held>,
    requesting: Mutex<()>,
}

#[derive(Default)]
struct Held {
    agent: Option<Agent>,
    renew_at: Option<Instant>,
    closed: bool,
    /// The last failure that was logged.
    failure: String,
}

impl Channel {
    /// Checks everything that needs no connection.
    pub(super) fn new(access: &Access) -> Result<Self, Error> {
        let base = access.base()?;
        let (mut guest, mut held) = (None, Held::default());
        if access.asks() {
            let tls = access.trusting()?.build();
            guest = Some((agent(tls, access.service_address), Key::new()?));
        } else {
            held.agent = Some(agent(access.tls()?, access.service_address));
        }
        Ok(Self {
            access: access.clone(),
            base,
            guest,
            held: held.into(),
            requesting: Mutex::default(),
        })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Drops a rejected certificate; false if no other can be requested.
    pub(super) fn forget(&self) -> bool {
        if self.guest.is_some() {
            lock(&self.held).agent = None;
        }
        self.guest.is_some()
    }

    /// Aborts requests under way, and makes later ones fail.
    pub(super) fn shutdown(&self) {
        let mut held = lock(&self.held);
        held.closed = true;
        held.agent.take().into_iter().for_each(Agent::shutdown);
        self.guest
            .iter()
            .for_each(|(guest, _)| guest.clone().shutdown());
    }

    /// An agent with a certificate that the aggregator accepts.
    pub(super) fn agent(&self) -> Result<Agent, Failed> {
        if let Some(agent) = lock(&self.held).fresh() {
            return Ok(agent);
        }
        let _requesting = match self.requesting.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if let Some(agent) = lock(&self.held).agent.clone() {
                    return Ok(agent);
                }
                lock(&self.requesting)
            }
        };
        // Another thread may have obtained one in the meantime.
        if let Some(agent) = lock(&self.held).fresh() {
            return Ok(agent);
        }
        let closed = || Failed::temporary("the client was shut down".into());
        let (guest, key) = self.guest.as_ref().ok_or_else(closed)?;
        let answer = self.request(guest, key);
        let mut held = lock(&self.held);
        match answer {
            _ if held.closed => Err(closed()),
            Ok((agent, renew)) => {
                log::debug!("the aggregator signed a certificate; renewal in {renew:?}");
                held.renew_at = Instant::now().checked_add(renew);
                held.failure.clear();
                held.agent = Some(agent.clone());
                Ok(agent)
            }
            Err(failed) => {
                let why = failed.why();
                if held.failure != why {
                    log::warn!("failed to get a certificate from the aggregator: {why}");
                    held.failure = why;
                }
                held.renew_at = Instant::now().checked_add(RENEW_PAUSE);
                held.agent.clone().ok_or(failed)
            }
        }
    }

    /// Requests a certificate once.
    fn request(&self, guest: &Agent, key: &Key) -> Result<(Agent, Duration), Failed> {
        let url = self.url(CERTIFICATE_PATH);
        let path = &self.access.token_file;
        // Read each time, since Kubernetes replaces the token before it expires.
        let token = std::fs::read_to_string(path);
        let token = token.map_err(|source| {
            Failed::temporary(format!("cannot read the token `{path}`: {source}"))
        })?;
        let sent = guest
            .post(&url)
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(CONTENT_TYPE, "application/x-pem-file")
            .config()
            .timeout_global(Some(REQUEST_TIMEOUT))
            .build()
            .send(key.request_pem.as_bytes());
        let response = sent.map_err(|error| error::judge_error(&url, error))?;
        let after = error::after(response.headers());
        let renew = response
            .headers()
            .get(RENEW_HEADER)
            .and_then(|text| text.to_str().ok()?.parse().ok());
        let answer = answer(response, MAX_CERTIFICATE_BYTES);
        if answer.status != 200 {
            return Err(error::judge_certificate(&url, answer, after));
        }
        let client_key = key.key_pem.clone();
        let access = Access {
            client_cert: answer.text,
            client_key,
            ..self.access.clone()
        };
        let tls = access.tls()?;
        Ok((
            agent(tls, access.service_address),
            renew.map_or(DEFAULT_RENEWAL, Duration::from_secs),
        ))
    }
}

impl Held {
    /// The current agent, unless its certificate is due for renewal.
    fn fresh(&self) -> Option<Agent> {
        let due = self
            .renew_at
            .is_some_and(|renew_at| renew_at <= Instant::now());
        self.agent.clone().filter(|_| !due)
    }
}

/// An agent with these TLS settings, without proxies, which tries the address of the Service, too.
fn agent(tls: TlsConfig, service: Option<SocketAddr>) -> Agent {
    let config = Agent::config_builder()
        .tls_config(tls)
        // The aggregator is in the same cluster: ignore proxies of the environment.
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .https_only(true)
        // A streamed body cannot be resent if a pooled connection turns out to be dead.
        .max_idle_connections(0)
        .max_idle_connections_per_host(0)
        .user_agent(USER_AGENT)
        .timeout_connect(Some(super::CONNECT_TIMEOUT))
        .timeout_await_100(Some(super::CONTINUE_TIMEOUT))
        .timeout_per_write(Some(super::WRITE_TIMEOUT))
        .timeout_per_read(Some(super::READ_TIMEOUT))
        .build();
    let prefers_service = Arc::new(AtomicBool::new(false));
    let route = RouteConnector(Arc::clone(&prefers_service));
    let tcp = ().chain(TcpConnector::default()).chain(route);
    let connector = tcp
        .chain(GatheringConnector)
        .chain(RustlsConnector::default());
    let resolver = CallerResolver {
        names: DefaultResolver::default(),
        service,
        prefers_service,
    };
    Agent::with_parts(config, connector, resolver)
}

/// Changes which of two addresses is tried first after a connection that took so long that the
/// first one probably did not answer. Whose certificate is expected does not change.
#[derive(Debug)]
struct RouteConnector(Arc<AtomicBool>);

impl<T: Transport> Connector<T> for RouteConnector {
    type Out = T;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<T>,
    ) -> Result<Option<T>, ureq::Error> {
        if let time::Instant::Exact(began) = details.now
            && began.elapsed() >= USUAL_CONNECT_TIME
        {
            self.0.fetch_xor(true, Ordering::Relaxed);
        }
        Ok(chained)
    }
}

/// Makes TLS send many records in one system call instead of one.
#[derive(Debug)]
struct GatheringConnector;

impl<T: Transport> Connector<T> for GatheringConnector {
    type Out = Gathering<T>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<T>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let buffers = LazyBuffers::new(
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        Ok(chained.map(|transport| Gathering {
            transport,
            buffers,
            gathered: 0,
        }))
    }
}

/// Gathers output, and sends it when its buffer is full, or when a response is awaited.
#[derive(Debug)]
struct Gathering<T> {
    transport: T,
    buffers: LazyBuffers,
    /// Bytes at the beginning of the output buffer that are still to be sent.
    gathered: usize,
}

impl<T: Transport> Gathering<T> {
    fn send(&mut self, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let gathered = std::mem::take(&mut self.gathered);
        let mut unsent = &self.buffers.output()[..gathered];
        while !unsent.is_empty() {
            let output = self.transport.buffers().output();
            let count = unsent.len().min(output.len());
            output[..count].copy_from_slice(&unsent[..count]);
            self.transport.transmit_output(count, timeout)?;
            unsent = &unsent[count..];
        }
        Ok(())
    }
}

impl<T: Transport> Transport for Gathering<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.gathered += amount;
        if self.output().is_empty() {
            self.send(timeout)?;
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.send(timeout)?;
        let is_more = self.transport.await_input(timeout)?;
        let room = self.buffers.input_append_buf();
        let input = self.transport.buffers().input();
        let count = room.len().min(input.len());
        room[..count].copy_from_slice(&input[..count]);
        self.buffers.input_appended(count);
        self.transport.buffers().input_consume(count);
        Ok(is_more)
    }

    fn is_open(&mut self) -> bool {
        self.transport.is_open()
    }

    fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }
}

/// The buffers without the output that is still to be sent.
impl<T: Transport> Buffers for Gathering<T> {
    fn output(&mut self) -> &mut [u8] {
        &mut self.buffers.output()[self.gathered..]
    }

    fn input(&self) -> &[u8] {
        self.buffers.input()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.buffers.input_append_buf()
    }

    fn input_appended(&mut self, amount: usize) {
        self.buffers.input_appended(amount);
    }

    fn input_consume(&mut self, amount: usize) {
        self.buffers.input_consume(amount);
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        let (scratch, output) = self.buffers.tmp_and_output();
        (scratch, &mut output[self.gathered..])
    }

    fn can_use_input(&self) -> bool {
        self.buffers.can_use_input()
    }
}

/// Resolves names on the caller's thread, within the limits of the C library. With a timeout, ureq
/// starts a thread for each name, and panics where no thread can be started.
///
/// Adds the address of the aggregator's Service.
#[derive(Debug)]
struct CallerResolver {
    names: DefaultResolver,
    service: Option<SocketAddr>,
    prefers_service: Arc<AtomicBool>,
}

impl Resolver for CallerResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let resolved = self.names.resolve(
            uri,
            config,
            NextTimeout {
                after: time::Duration::NotHappening,
                ..timeout
            },
        );
        let Some(service) = self.service else {
            return resolved;
        };
        // A name that cannot be resolved is no reason not to use the Service.
        let resolved_addresses = resolved
            .iter()
            .flat_map(|addresses| addresses.iter().copied())
            .take(MAX_OWN_ADDRESSES);
        let mut addresses = self.empty();
        if self.prefers_service.load(Ordering::Relaxed) {
            addresses.push(service);
            resolved_addresses.for_each(|address| addresses.push(address));
        } else {
            resolved_addresses.for_each(|address| addresses.push(address));
            addresses.push(service);
        }
        Ok(addresses)
    }
}
