//! Authenticated access to the aggregator: with a given certificate, or with one that is requested, renewed in time, and
//! requested again when the aggregator no longer accepts it.
//!
//! Shared by all threads of a plugin. Only one requests a certificate at a time; the others wait only if there is none.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, RustlsConnector, TcpConnector};

use super::request::Key;
use super::retry::{self, Again, Failed, Final, RetryAdvice};
use super::{Access, Error, answer};
use crate::protocol::{CERTIFICATE_PATH, RENEW_HEADER};

/// The aggregator consults the API server before it answers.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// After a failed renewal, while the previous certificate is still valid.
const RENEW_PAUSE: Duration = Duration::from_secs(30);
/// When a response does not say when to renew.
const DEFAULT_RENEWAL: Duration = Duration::from_secs(600);
/// No certificate is longer than this.
const MAX_CERTIFICATE_BYTES: u64 = 16 << 10;

/// Authenticated access to one aggregator.
pub(super) enum Channel {
    /// With a given certificate.
    Given(Agent),
    /// With one that is requested.
    Requested(Box<Requested>),
}

pub(super) struct Requested {
    access: Access,
    url: String,
    guest: Agent,
    key: Key,
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
    /// Checks everything that can be checked without a connection.
    pub(super) fn new(access: &Access) -> Result<Self, Error> {
        let base = access.base()?;
        if !access.asks() {
            return Ok(Self::Given(agent(access.tls()?)));
        }
        Ok(Self::Requested(Box::new(Requested {
            access: access.clone(),
            url: format!("{base}{CERTIFICATE_PATH}"),
            guest: agent(access.guest_tls()?),
            key: Key::new()?,
            held: Mutex::default(),
            requesting: Mutex::default(),
        })))
    }

    /// Sends requests with a certificate that the aggregator accepts.
    pub(super) fn agent(&self) -> Result<Agent, Failed> {
        match self {
            Self::Given(agent) => Ok(agent.clone()),
            Self::Requested(requested) => requested.agent(),
        }
    }

    /// Drops a certificate that was rejected; false if there will not be another one.
    pub(super) fn forget(&self) -> bool {
        let Self::Requested(requested) = self else { return false };
        requested.held().agent = None;
        true
    }

    /// Aborts requests under way, and makes later ones fail.
    pub(super) fn shutdown(&self) {
        match self {
            Self::Given(agent) => agent.clone().shutdown(),
            Self::Requested(requested) => {
                requested.guest.clone().shutdown();
                let mut held = requested.held();
                held.closed = true;
                held.agent.take().into_iter().for_each(Agent::shutdown);
            }
        }
    }
}

impl Requested {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn agent(&self) -> Result<Agent, Failed> {
        if let Some(agent) = self.held().fresh() {
            return Ok(agent);
        }
        let _requesting = match self.requesting.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if let Some(agent) = self.held().agent.clone() {
                    return Ok(agent);
                }
                self.requesting.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        // Another thread may have got one in the meantime.
        if let Some(agent) = self.held().fresh() {
            return Ok(agent);
        }
        let answer = self.request();
        let mut held = self.held();
        match answer {
            Ok((agent, renew)) if !held.closed => {
                log::debug!("the aggregator signed a certificate; renewal in {renew:?}");
                held.renew_at = Instant::now().checked_add(renew);
                held.failure.clear();
                held.agent = Some(agent.clone());
                Ok(agent)
            }
            Ok(_) => Err(Again::new("the client was shut down".into()).into()),
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
    fn request(&self) -> Result<(Agent, Duration), Failed> {
        let path = &self.access.token_file;
        // Read each time: Kubernetes replaces the token before it expires.
        let token = std::fs::read_to_string(path);
        let token =
            token.map_err(|source| Again::new(format!("cannot read the token `{path}`: {source}")))?;
        let sent = self
            .guest
            .post(&self.url)
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(CONTENT_TYPE, "application/x-pem-file")
            .config()
            .timeout_global(Some(REQUEST_TIMEOUT))
            .build()
            .send(self.key.request_pem.as_bytes());
        let response = sent.map_err(|error| retry::judge_error(&self.url, error))?;
        let advice = RetryAdvice::of(response.headers());
        let renew = response.headers().get(RENEW_HEADER).and_then(|text| text.to_str().ok()?.parse().ok());
        let answer = answer(response, MAX_CERTIFICATE_BYTES);
        if answer.status != 200 {
            return Err(retry::judge_certificate(&self.url, answer, advice));
        }
        let access =
            Access { client_cert: answer.text, client_key: self.key.key_pem.clone(), ..self.access.clone() };
        let tls = access.tls().map_err(Final)?;
        Ok((agent(tls), renew.map_or(DEFAULT_RENEWAL, Duration::from_secs)))
    }
}

impl Held {
    /// The current one, unless it is time to renew it.
    fn fresh(&self) -> Option<Agent> {
        let due = self.renew_at.is_some_and(|renew_at| renew_at <= Instant::now());
        self.agent.clone().filter(|_| !due)
    }
}

/// Sends requests with these TLS settings, straight to the aggregator.
fn agent(tls: TlsConfig) -> Agent {
    let config = Agent::config_builder()
        .tls_config(tls)
        // The aggregator is in the same cluster: never go through a proxy from the environment.
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .https_only(true)
        // A streamed body cannot be resent if a pooled connection turns out to be dead.
        .max_idle_connections(0)
        .max_idle_connections_per_host(0)
        .user_agent(concat!("sonobuoy/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(super::CONNECT_TIMEOUT))
        .timeout_connect(Some(super::CONNECT_TIMEOUT))
        .timeout_await_100(Some(super::CONTINUE_TIMEOUT))
        .timeout_per_write(Some(super::WRITE_TIMEOUT))
        .timeout_per_read(Some(super::READ_TIMEOUT))
        .build();
    let connector = ().chain(TcpConnector::default()).chain(RustlsConnector::default());
    Agent::with_parts(config, connector, DefaultResolver::default())
}
