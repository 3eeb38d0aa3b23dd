//! Receives results: who may send, where they are kept, what the status says.
//!
//! Given the results that are expected, a server to answer on and a channel of findings, an [`Aggregator`] takes
//! everything in, says when it is complete, and publishes the status document. Knows neither Kubernetes nor
//! drivers nor how results are processed: `pipeline` brings those together. Killed and opened again on the same
//! run directory, it goes on where it was.
//!
//! Threads, each running until its [`Stop`]: [`Aggregator::serve`] is one that takes findings in beside those of
//! the server, [`Aggregator::publish`] is one.

mod arrivals;
mod attempt;
mod certify;
#[cfg(test)]
mod certify_tests;
#[cfg(test)]
mod crash_tests;
mod digests;
mod disk;
mod disposition;
mod finished_tests;
mod fit;
#[cfg(test)]
mod fixture;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzz;
mod intake;
mod integrity;
mod journal;
mod limits;
#[cfg(test)]
mod original_tests;
mod progress;
mod receipt;
mod report;
mod server;
mod share;
mod state;
mod store;
#[cfg(test)]
mod store_tests;
mod test_server;
mod turns;
mod upload;
#[cfg(test)]
mod wire_fixture;
#[cfg(test)]
mod wire_tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;

pub(crate) use self::arrivals::Received;
use self::certify::{Certifier, Tries};
pub(crate) use self::certify::{Holder, ReviewError, Reviewer};
pub(crate) use self::fit::{ANNOTATION_BYTES, fit};
pub(crate) use self::limits::connections;
use self::store::Store;
pub use self::test_server::{serve_alone, serve_certifying, serve_shared};
use crate::backplane::Authority;
use crate::{config, layout, status};
use base::at::At as _;
use base::http::Server;
use base::stop::{Stop, StopOnDrop};
use base::temp;
use client::protocol::{Failure, Finding, ResultId};

/// How often the intake of findings looks whether it should end, and whether a retry window closed.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How often ages of heartbeats are published when nothing else changes.
const REFRESH: Duration = Duration::from_secs(30);
/// How often the last state is offered to a publisher that fails, before it is given up.
const LAST_ATTEMPTS: u32 = 5;

/// How an aggregator behaves.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What is taken, and how much of it.
    pub limits: config::Limits,
    /// After a spoiled upload its worker has so long to try again, counted from the last attempt.
    pub retry_window: Duration,
    /// All attempts together have so long.
    pub retry_limit: Duration,
    /// A worker that was not heard of for so long is named in the status. Workers beat every 15 s, and pulling an
    /// image takes a while.
    pub silence: Duration,
    /// A worker that sends heartbeats and then none for so long has failed.
    pub silent: Duration,
    /// The status is published at most so often.
    pub publish_every: Duration,
    /// How long the run may take; its certificates are valid for longer.
    pub valid: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: config::Limits::default(),
            retry_window: Duration::from_secs(120),
            retry_limit: Duration::from_secs(600),
            silence: Duration::from_secs(120),
            silent: config::Grace::default().silent,
            publish_every: Duration::from_secs(2),
            valid: Duration::from_secs(48 * 3_600),
        }
    }
}

/// Why waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Every result is in, or an error stands for it.
    Complete,
    /// The time is over.
    TimeOver,
    /// Somebody asked to stop.
    Stopped,
}

/// The receiving end of a run.
pub(crate) struct Aggregator {
    store: Store,
    authority: Authority,
    settings: Settings,
    certifier: Option<Certifier>,
}

impl Aggregator {
    /// Opens the run in `run_dir`: a new one that expects `expected`, or the one that was begun there.
    pub(crate) fn open(run_dir: &Path, expected: &[ResultId], settings: Settings) -> anyhow::Result<Self> {
        let open = || {
            let store = Store::open(run_dir, expected, settings.limits.clone())?;
            let authority =
                kept_authority(&layout::state_dir(run_dir).join(layout::AUTHORITY), settings.valid)?;
            anyhow::Ok(Self { store, authority, settings, certifier: None })
        };
        open().at("cannot open the run directory", run_dir)
    }

    /// Gives out certificates to whom `reviewer` knows; its server has to let guests in.
    pub(crate) fn certifies(mut self, reviewer: Box<dyn Reviewer>) -> Self {
        self.certifier = Some(Certifier::new(reviewer));
        self
    }

    /// Keeps with the state of the run by what it is recognised after a restart, unless that is kept already.
    pub(crate) fn identify(&self, identity: &str) -> anyhow::Result<()> {
        let path = layout::state_dir(self.store.run_dir()).join(layout::IDENTITY);
        if path.exists() { Ok(()) } else { temp::write(&path, 0o600, identity).at("cannot write", &path) }
    }

    /// The authority of the run, the same after a restart.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// All results that the run expects.
    #[cfg(test)]
    pub(crate) fn expected(&self) -> Vec<ResultId> {
        self.store.lock().ids().cloned().collect()
    }

    /// Those that have neither come nor failed.
    pub(crate) fn outstanding(&self) -> Vec<ResultId> {
        let state = self.store.lock();
        let open = |id: &&ResultId| state.standing(id).is_some_and(|standing| !standing.settled());
        state.ids().filter(open).cloned().collect()
    }

    /// Answers workers on `server` and takes `findings` in, until `stop`.
    pub(crate) fn serve(
        &self,
        server: &Server,
        findings: Receiver<Finding>,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let stop = &stop.child();
        std::thread::scope(|scope| {
            // Whichever ends, or panics, the other does not wait for it.
            let _over = StopOnDrop(stop);
            let take = move || {
                let _over = StopOnDrop(stop);
                self.take_findings(&findings, stop);
            };
            std::thread::Builder::new()
                .name("findings".into())
                .spawn_scoped(scope, take)
                .context("starting a thread")?;
            let certifier = self.certifier.as_ref();
            let endpoints = server::Endpoints {
                store: &self.store,
                authority: &self.authority,
                certifier,
                refused: Tries::default(),
            };
            server.run(stop, |request| endpoints.answer(request))
        })
    }

    /// Waits until each result that is expected of `plugin` has come or failed. A result whose upload was spoiled is
    /// waited for as long as it may be sent again.
    pub(crate) fn wait(&self, plugin: &str, deadline: Option<Instant>, stop: &Stop) -> Waited {
        loop {
            let event = stop.child();
            {
                let mut state = self.store.lock();
                if state.settled(plugin) {
                    return Waited::Complete;
                }
                state.wait_here(event.clone());
            }
            if stop.stopped() {
                return Waited::Stopped;
            }
            match deadline {
                Some(deadline) if !event.wait_until(deadline) => {
                    event.stop();
                    return Waited::TimeOver;
                }
                Some(_) => {}
                None => event.wait_forever(),
            }
        }
    }

    /// From now on these results are waited for, too.
    pub(crate) fn expect(&self, ids: &[ResultId]) -> anyhow::Result<()> {
        ids.iter().try_for_each(|id| self.store.expect(id))
    }

    /// Whether any result of `plugin` is or was waited for.
    pub(crate) fn expects(&self, plugin: &str) -> bool {
        self.store.lock().ids().any(|id| id.plugin == plugin)
    }

    /// Notes a failure, as if it had come down the channel.
    pub(crate) fn record(&self, failure: &Failure) {
        self.store.record(failure);
    }

    /// Notes that the workers of `plugin` are being started, so that their silence means something.
    pub(crate) fn launched(&self, plugin: &str) {
        self.store.launched(plugin);
    }

    /// Whether the worker of `id` was ever heard of, or is not waited for.
    pub(crate) fn heard(&self, id: &ResultId) -> bool {
        self.store.lock().heard(id)
    }

    /// Whether an upload of `id` is under way.
    pub(crate) fn receiving(&self, id: &ResultId) -> bool {
        self.store.lock().uploads(id).is_some_and(|uploads| uploads.any())
    }

    /// What is known of the arrival of each result, once no more arrive.
    pub(crate) fn received(&self) -> Vec<arrivals::Received> {
        self.store.lock().received()
    }

    /// Compares the files of all results with what arrived, once no more arrive; returns how many have failed that.
    pub(crate) fn verify(&self) -> usize {
        integrity::verify(&self.store)
    }

    /// Notes what processing made of the results of `plugin`: for each its status and its leaves by status.
    pub(crate) fn processed(
        &self,
        plugin: &str,
        of: impl Fn(&ResultId) -> Option<(String, BTreeMap<String, u64>)>,
    ) {
        self.store.lock().processed(plugin, of);
    }

    /// Ends all uploads that are still under way: the archive is there.
    pub(crate) fn close(&self) {
        self.store.close();
    }

    /// Notes that the archive is there: the run is complete and will not be taken up again.
    pub(crate) fn finished(&self, archive: status::Archive) {
        self.store.lock().finished(archive);
        self.store.discard_state();
    }

    /// Notes that the run ended without an archive.
    pub(crate) fn failed(&self, error: impl Into<String>) {
        self.store.lock().failed(error.into());
    }

    /// The status document as it is now.
    pub(crate) fn status(&self) -> status::Run {
        self.store.lock().document(self.settings.silence, Instant::now())
    }

    /// Gives the status document to `send` whenever it changed, but not too often, until `stop`; then once more,
    /// so that the last thing sent is the last state. What could not be sent is sent again.
    pub(crate) fn publish(&self, stop: &Stop, mut send: impl FnMut(&status::Run) -> anyhow::Result<()>) {
        let mut pace = self.settings.publish_every;
        while !stop.stopped() {
            let changed = stop.child();
            self.store.lock().wake_on_change(changed.clone());
            match send(&self.status()) {
                Ok(()) => pace = self.settings.publish_every,
                Err(error) => {
                    log::warn!("the status could not be published: {error:#}");
                    pace = (pace * 2).min(REFRESH);
                }
            }
            let failed = pace != self.settings.publish_every;
            if !stop.wait(pace) && !failed {
                changed.wait(REFRESH);
            }
            changed.stop();
        }
        for attempt in 1..=LAST_ATTEMPTS {
            let Err(error) = send(&self.status()) else { return };
            log::warn!("the last status could not be published: {error:#}");
            if attempt < LAST_ATTEMPTS {
                // Nobody asks this one to stop: the time is bounded by the attempts.
                Stop::new().wait(self.settings.publish_every);
            }
        }
    }

    fn take_findings(&self, findings: &Receiver<Finding>, stop: &Stop) {
        let mut open = true;
        while !stop.stopped() {
            if open {
                match findings.recv_timeout(CHECK_INTERVAL) {
                    Ok(finding) => self.take(finding),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => open = false,
                }
            } else {
                stop.wait(CHECK_INTERVAL);
            }
            self.store.give_up(self.settings.retry_window, self.settings.retry_limit);
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
                    log::warn!("a result of `{id}` will not be taken: {error:#}");
                }
            }
        }
    }
}

/// The authority in the file `path`, or a new one, which is then kept there.
fn kept_authority(path: &Path, valid: Duration) -> anyhow::Result<Authority> {
    if path.exists() {
        let text = std::fs::read_to_string(path).at("cannot read", path)?;
        return Authority::from_pem(&text).at("cannot use", path);
    }
    let authority = Authority::new(valid)?;
    temp::write(path, 0o600, authority.to_pem()).at("cannot write", path)?;
    Ok(authority)
}
