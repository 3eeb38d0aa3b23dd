//! The way to the aggregator as somebody it knows: by a certificate that was given, or by one that is asked for, renewed
//! in time, and asked for again when the aggregator does not take it any more.
//!
//! Shared by all threads of a plugin. One of them asks at a time; nobody waits for it who still has a certificate.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::tls::TlsConfig;

use super::request::Key;
use super::retry::{self, Outcome, Wish};
use super::{Access, Error, answer};
use crate::protocol::{CERTIFICATE_PATH, RENEW_HEADER};

/// The aggregator asks the API server before it answers.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);
/// After a renewal that failed, while the certificate before still counts.
const RENEW_PAUSE: Duration = Duration::from_secs(30);
/// An answer that does not say when to come again.
const RENEW_DEFAULT: Duration = Duration::from_secs(600);
/// No certificate is longer.
const CERTIFICATE_BYTES: u64 = 16 << 10;

/// The way to one aggregator.
pub(super) enum Channel {
    /// By a certificate that was given.
    Given(Agent),
    /// By one that is asked for.
    Asked(Box<Asked>),
}

pub(super) struct Asked {
    access: Access,
    url: String,
    guest: Agent,
    key: Key,
    held: Mutex<Held>,
    asking: Mutex<()>,
}

#[derive(Default)]
struct Held {
    agent: Option<Agent>,
    renew_at: Option<Instant>,
    closed: bool,
    /// What was said last about why there is none.
    complaint: String,
}

impl Channel {
    /// Checks everything that can be checked without a connection.
    pub(super) fn new(access: &Access) -> Result<Self, Error> {
        let base = access.base()?;
        if !access.asks() {
            return Ok(Self::Given(agent(access.tls()?)));
        }
        Ok(Self::Asked(Box::new(Asked {
            access: access.clone(),
            url: format!("{base}{CERTIFICATE_PATH}"),
            guest: agent(access.guest_tls()?),
            key: Key::new()?,
            held: Mutex::default(),
            asking: Mutex::default(),
        })))
    }

    /// What sends requests as somebody whom the aggregator knows.
    pub(super) fn agent(&self) -> Result<Agent, Outcome> {
        match self {
            Self::Given(agent) => Ok(agent.clone()),
            Self::Asked(asked) => asked.agent(),
        }
    }

    /// Throws the certificate away, which was not taken; false if there will be no other.
    pub(super) fn forget(&self) -> bool {
        let Self::Asked(asked) = self else { return false };
        asked.held().agent = None;
        true
    }

    /// Ends what is under way, and lets nothing begin.
    pub(super) fn shutdown(&self) {
        match self {
            Self::Given(agent) => agent.clone().shutdown(),
            Self::Asked(asked) => {
                asked.guest.clone().shutdown();
                let mut held = asked.held();
                held.closed = true;
                held.agent.take().into_iter().for_each(Agent::shutdown);
            }
        }
    }
}

impl Asked {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn agent(&self) -> Result<Agent, Outcome> {
        if let Some(agent) = self.held().fresh() {
            return Ok(agent);
        }
        let _asking = match self.asking.try_lock() {
            Ok(asking) => asking,
            Err(TryLockError::Poisoned(asking)) => asking.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if let Some(agent) = self.held().agent.clone() {
                    return Ok(agent);
                }
                self.asking.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        // Whoever asked before may have got one.
        if let Some(agent) = self.held().fresh() {
            return Ok(agent);
        }
        let asked = self.ask();
        let mut held = self.held();
        match asked {
            Ok((agent, renew)) if !held.closed => {
                log::debug!("the aggregator has signed a certificate; the next one in {renew:?}");
                held.renew_at = Instant::now().checked_add(renew);
                held.complaint.clear();
                held.agent = Some(agent.clone());
                Ok(agent)
            }
            Ok(_) => Err(Outcome::Again { why: "everything ends".into(), after: None }),
            Err(outcome) => {
                let why = outcome.why();
                if held.complaint != why {
                    log::warn!("no certificate from the aggregator: {why}");
                    held.complaint = why;
                }
                held.renew_at = Instant::now().checked_add(RENEW_PAUSE);
                held.agent.clone().ok_or(outcome)
            }
        }
    }

    /// Asks once for a certificate.
    fn ask(&self) -> Result<(Agent, Duration), Outcome> {
        let path = &self.access.token_file;
        // Read each time: Kubernetes puts a new token there before the old one ends.
        let token = std::fs::read_to_string(path).map_err(|source| Outcome::Again {
            why: format!("cannot read the token `{path}`: {source}"),
            after: None,
        })?;
        let sent = self
            .guest
            .post(&self.url)
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(CONTENT_TYPE, "application/x-pem-file")
            .config()
            .timeout_global(Some(ASK_TIMEOUT))
            .build()
            .send(self.key.request_pem.as_bytes());
        let response = sent.map_err(|error| retry::judge_error(&self.url, error))?;
        let wish = Wish::of(response.headers());
        let renew = response.headers().get(RENEW_HEADER).and_then(|text| text.to_str().ok()?.parse().ok());
        let answer = answer(response, CERTIFICATE_BYTES);
        if answer.status != 200 {
            return Err(retry::judge_certificate(&self.url, answer, wish));
        }
        let access =
            Access { client_cert: answer.text, client_key: self.key.key_pem.clone(), ..self.access.clone() };
        let tls = access.tls().map_err(Outcome::Final)?;
        Ok((agent(tls), renew.map_or(RENEW_DEFAULT, Duration::from_secs)))
    }
}

impl Held {
    /// What there is, unless it is time for the next.
    fn fresh(&self) -> Option<Agent> {
        let due = self.renew_at.is_some_and(|renew_at| renew_at <= Instant::now());
        self.agent.clone().filter(|_| !due)
    }
}

/// Sends requests with these settings of TLS, straight to the aggregator.
fn agent(tls: TlsConfig) -> Agent {
    let config = Agent::config_builder()
        .tls_config(tls)
        // The aggregator is a neighbour; a proxy of the environment is never the way to it.
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .https_only(true)
        // A streamed body cannot be sent again if a pooled connection turns out to be dead.
        .max_idle_connections(0)
        .max_idle_connections_per_host(0)
        .user_agent(concat!("sonobuoy/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(super::CONNECT_TIMEOUT))
        .timeout_connect(Some(super::CONNECT_TIMEOUT))
        .timeout_await_100(Some(super::CONTINUE_TIMEOUT))
        .timeout_per_write(Some(super::WRITE_TIMEOUT))
        .timeout_per_read(Some(super::READ_TIMEOUT))
        .build();
    config.new_agent()
}
