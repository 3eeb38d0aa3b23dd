//! Receives the results of a run, and publishes its status.
//!
//! `http` decides who may send which request, and issues certificates to workers.
//! `store` writes uploads to the disk, within each result's share, and survives a crash with its
//! journal. `run` is the state in memory: expected results, their receipts, the progress of
//! plugins, the status document. `limits` is the table of all limits, and every refusal with its
//! status code. An [`Aggregator`] joins them: given the expected results, a server and a channel of
//! findings, it reports when the run is complete. Knows neither Kubernetes nor drivers nor how
//! results are processed: `pipeline` brings those together.
//!
//! Threads, each running until its [`Stop`]: [`Aggregator::serve`] starts one that receives
//! findings, beside those of the server; [`Aggregator::publish`] is one.

mod http;
mod limits;
mod run;
mod store;
#[cfg(any(fuzzing, test))]
pub mod tests;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;

use self::http::{Certifier, Tries};
pub use self::http::{Holder, ReviewError, Reviewer};
pub use self::limits::connections;
pub use self::run::Received;
use self::store::Store;
use crate::backplane::Authority;
use ::http::Server;
use base::at::At as _;
use base::stop::{Stop, StopOnDrop};
use base::{small, temp};
use client::protocol::{Finding, ResultId};
use model::{config, layout, status};

/// Interval of checks for the end, for retry windows and for silent workers.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum addresses that an aggregator is known by, and the size of their file.
const MAX_ADDRESSES: usize = 10;
const MAX_ADDRESSES_BYTES: u64 = 4 << 10;
/// Interval of publications of the ages of heartbeats alone.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// The settings of an aggregator.
pub struct AggregatorSettings {
    pub limits: config::Limits,
    /// Time for a retry after a refused upload.
    pub retry_window: Duration,
    /// Silence after which a worker that sent heartbeats has failed.
    pub silent: Duration,
    /// Minimum time between two publications of the status.
    pub publish_every: Duration,
    /// How long the run may take; its certificates are valid for longer.
    pub valid: Duration,
    /// The authority of a new run whose identifier is derived from it; else a new one is created.
    pub authority: Option<Authority>,
}

impl Default for AggregatorSettings {
    fn default() -> Self {
        Self {
            limits: config::Limits::default(),
            retry_window: Duration::from_secs(120),
            silent: config::Grace::default().silent,
            publish_every: Duration::from_secs(2),
            valid: Duration::from_secs(48 * 3_600),
            authority: None,
        }
    }
}

/// The reason why waiting ended.
#[derive(Debug, PartialEq)]
pub enum WaitOutcome {
    /// Every result has arrived or failed.
    Complete,
    TimeOver,
    Stopped,
}

/// The receiving end of a run.
pub struct Aggregator {
    /// The results, whose failures drivers and the steps of a run record, too.
    pub store: Store,
    authority: Authority,
    settings: AggregatorSettings,
    /// Issues certificates, if this run does.
    certifier: Option<Certifier>,
    /// Refusals that were logged, by address.
    logged: Tries,
}

impl Aggregator {
    /// Opens the run in `run_dir`: a new one that expects `expected`, or the one that was begun
    /// there.
    pub fn open(
        run_dir: &Path,
        expected: &[ResultId],
        mut settings: AggregatorSettings,
    ) -> Result<Self> {
        let open = move || {
            let store = Store::open(run_dir, expected, settings.limits.clone())?;
            let path = layout::state_dir(run_dir).join(layout::AUTHORITY);
            let authority = kept_authority(&path, settings.authority.take(), settings.valid)?;
            anyhow::Ok(Self {
                store,
                authority,
                settings,
                certifier: None,
                logged: Tries::default(),
            })
        };
        open().at("cannot open the run directory", run_dir)
    }

    /// Issues certificates to workers that `reviewer` identifies; the server must accept clients
    /// without certificate.
    pub fn with_certifier(mut self, reviewer: Box<dyn Reviewer>) -> Self {
        self.certifier = Some(Certifier::new(reviewer));
        self
    }

    /// Writes the identity of the run to its state, unless one is there: a restarted aggregator
    /// recognises the run by it.
    pub fn set_identity(&self, identity: &str) -> Result<()> {
        let path = layout::state_dir(self.store.run_dir()).join(layout::IDENTITY);
        if path.exists() {
            Ok(())
        } else {
            temp::write(&path, 0o600, identity).at("cannot write", &path)
        }
    }

    /// The addresses that workers of the run know, from now on with `latest`: plugins that were
    /// started before a restart of the node know an earlier one.
    pub fn addresses(&self, latest: &str) -> Result<Vec<String>> {
        let path = layout::state_dir(self.store.run_dir()).join(layout::ADDRESSES);
        let stored = base::if_exists(small::read(&path, MAX_ADDRESSES_BYTES));
        let stored = stored.at("cannot read", &path)?.unwrap_or_default();
        let stored = String::from_utf8_lossy(&stored);
        let mut addresses = vec![latest.to_owned()];
        for earlier in stored.lines() {
            if earlier != latest && addresses.len() < MAX_ADDRESSES {
                addresses.push(earlier.to_owned());
            }
        }
        temp::write(&path, 0o600, addresses.join("\n")).at("cannot write", &path)?;
        Ok(addresses)
    }

    /// The authority of the run, the same after a restart.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The results that have neither arrived nor failed.
    pub fn outstanding(&self) -> Vec<ResultId> {
        self.store.lock().outstanding().cloned().collect()
    }

    /// Responds to workers on `server` and records `findings`, until `stop`.
    pub fn serve(&self, server: &Server, findings: Receiver<Finding>, stop: &Stop) -> Result<()> {
        let stop = &stop.child();
        std::thread::scope(|scope| {
            // Either thread ends the other, even by a panic.
            let _over = StopOnDrop(stop);
            let take = move || {
                let _over = StopOnDrop(stop);
                self.take_findings(&findings, stop);
            };
            base::thread("findings").spawn_scoped(scope, take)?;
            server.run(stop, |request| self.answer(request))
        })
    }

    /// Waits until each expected result of `plugin` has arrived or failed. A result whose upload
    /// was refused is awaited as long as its worker may retry.
    pub fn wait(&self, plugin: &str, deadline: Option<Instant>, stop: &Stop) -> WaitOutcome {
        loop {
            let event = stop.child();
            {
                let mut state = self.store.lock();
                if state.settled(plugin) {
                    return WaitOutcome::Complete;
                }
                state.wait_here(event.clone());
            }
            if stop.stopped() {
                return WaitOutcome::Stopped;
            }
            match deadline {
                Some(deadline) if !event.wait_until(deadline) => {
                    event.stop();
                    return WaitOutcome::TimeOver;
                }
                Some(_) => {}
                None => event.wait_forever(),
            }
        }
    }

    /// Notes that the archive is complete.
    pub fn finished(&self, archive: status::Archive) {
        self.store.lock().ended(Ok(archive));
    }

    /// The status document as it will be once the run has [`finished`](Self::finished) with
    /// `archive`.
    pub fn last_status(&self, archive: &status::Archive) -> status::Run {
        let state = self.store.lock();
        state.completed(state.document(Instant::now()), archive.clone())
    }

    /// Notes that the run ended without an archive.
    pub fn failed(&self, error: String) {
        self.store.lock().ended(Err(error));
    }

    /// The status document as it is now.
    pub fn status(&self) -> status::Run {
        self.store.lock().document(Instant::now())
    }

    /// Passes the status document to `send` when it has changed, at most once per
    /// [`AggregatorSettings::publish_every`], until `stop`; then once more. A failed
    /// publication is repeated.
    pub fn publish(&self, stop: &Stop, mut send: impl FnMut(&status::Run) -> Result<()>) {
        let mut pause = self.settings.publish_every;
        while !stop.stopped() {
            let changed = stop.child();
            self.store.lock().wake_on_change(changed.clone());
            let published = send(&self.status());
            let is_published = published.is_ok();
            match published {
                Ok(()) => pause = self.settings.publish_every,
                Err(error) => {
                    log::warn!("the status could not be published: {error:#}");
                    pause = (pause * 2).min(REFRESH_INTERVAL);
                }
            }
            if !stop.wait(pause) && is_published {
                changed.wait(REFRESH_INTERVAL);
            }
            changed.stop();
        }
        if let Err(error) = send(&self.status()) {
            log::warn!("the last status could not be published: {error:#}");
        }
    }

    fn take_findings(&self, findings: &Receiver<Finding>, stop: &Stop) {
        while !stop.stopped() {
            match findings.recv_timeout(CHECK_INTERVAL) {
                Ok(finding) => self.take(finding),
                Err(RecvTimeoutError::Timeout) => {}
                // All drivers have ended.
                Err(RecvTimeoutError::Disconnected) => drop(stop.wait(CHECK_INTERVAL)),
            }
            self.store.give_up(self.settings.retry_window);
            self.store.give_up_silent(self.settings.silent);
        }
        findings.try_iter().for_each(|finding| self.take(finding));
    }

    fn take(&self, finding: Finding) {
        match finding {
            Finding::Failure(failure) => self.store.record(&failure),
            Finding::Trouble(id, trouble) => self.store.lock().trouble(&id, trouble),
            Finding::Expect(id) => {
                if let Err(error) = self.store.expect(&id) {
                    log::warn!("a result of `{id}` will not be accepted: {error:#}");
                }
            }
            Finding::Lost(id, lost) => self.store.record_loss(&id, lost),
            Finding::Ended(id, containers) => self.store.lock().containers_ended(&id, containers),
        }
    }
}

/// The authority in the file `path`; without one, `given` or a new one, which is written there.
fn kept_authority(path: &Path, given: Option<Authority>, valid: Duration) -> Result<Authority> {
    if path.exists() {
        let text = std::fs::read_to_string(path).at("cannot read", path)?;
        return Authority::from_pem(&text).at("cannot use", path);
    }
    let authority = given.map_or_else(|| Authority::new(valid), Ok)?;
    temp::write(path, 0o600, authority.to_pem()).at("cannot write", path)?;
    Ok(authority)
}
