//! The state of a run without any I/O: expected results with their receipts and uploads, contacts
//! of workers, and the status document.
//!
//! Each change is one method, called under the store's lock, and ends the [`Stop`] of each waiter;
//! those that a restarted aggregator must know are a [`Record`]. Merges the [`progress`] of
//! plugins.

pub(super) mod progress;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::aggregator::limits::{self, Refusal};
use base::archive::Dropped;
use base::clock;
use base::stop::Stop;
use client::protocol::{ContainersEnd, FailureKind, Lost, Progress, ResultId};
use http::Meter;
use model::status::{self, Archive, Entry, Run};
use model::timings::{Milestones, Timings};
use model::{item, remedies};

/// Time for all retries of refused uploads of a result.
const RETRY_LIMIT: Duration = Duration::from_secs(600);
/// Silence after which a worker is named in the status. Workers send a heartbeat every 15 s, and
/// pulling an image takes a while.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);

/// Heartbeats after which a worker sends further ones. Clients of the protocol may send a single
/// one, to try the connection.
const PROMISING_HEARTBEATS: u32 = 2;

/// Maximum bytes of the name and version of a worker.
const MAX_WORKER_BYTES: usize = 64;

/// The sender of a body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sender {
    /// The precision of its identification, as of
    /// [`Caller::kind`](crate::backplane::Caller::kind); empty if unknown.
    pub identity: String,
    /// Its name for itself: program and version.
    pub worker: String,
}

impl Sender {
    pub fn new(identity: Option<&str>, worker: Option<&str>) -> Self {
        let printable = worker
            .unwrap_or_default()
            .chars()
            .filter(|c| c.is_ascii_graphic() || *c == ' ');
        Self {
            identity: identity.unwrap_or_default().into(),
            worker: printable.take(MAX_WORKER_BYTES).collect(),
        }
    }
}

/// The arrival of one result; times are RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Receipt {
    /// When its plugin was started.
    pub started: Option<String>,
    /// When its worker was first heard of.
    pub first_heartbeat: Option<String>,
    /// When the result was in place.
    pub arrived: Option<String>,
    /// When it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Bytes of the body.
    pub size: u64,
    /// SHA-256 of the body as it was sent.
    pub sha256: String,
    /// Whether the body was an archive, of which the files are kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unpacked: bool,
    /// Digest of the files that were unpacked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// The entries of the archive that were not.
    #[serde(skip_serializing_if = "Dropped::is_empty")]
    pub dropped: Dropped,
    #[serde(flatten)]
    pub sender: Sender,
    /// Bodies sent for it, this one included.
    pub attempts: u64,
    /// The nodes and pods that were lost before it arrived.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Lost>,
}

/// The digest of a result that arrived.
pub enum Arrived {
    /// SHA-256 of its only file.
    File(String),
    /// Of all files of an unpacked archive, as [`base::archive::TreeDigest`] writes it.
    Folder(String),
}

impl Receipt {
    /// None of a result that was found after a crash without a record.
    fn digest(&self) -> Option<Arrived> {
        match &self.files {
            Some(files) => Some(Arrived::Folder(files.clone())),
            None if self.unpacked || self.sha256.is_empty() => None,
            None => Some(Arrived::File(self.sha256.clone())),
        }
    }
}

/// One entry of `meta/results.json`.
#[derive(Default, Serialize)]
pub struct Received {
    pub plugin: String,
    pub node: String,
    #[serde(flatten)]
    pub receipt: Receipt,
    /// The reason why the result is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A change that outlasts a crash; times are RFC 3339.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Record {
    /// The run began with these results expected, or a node joined.
    Expected(Vec<ResultId>),
    /// A plugin was started.
    Started { plugin: String, at: String },
    /// A result is in place.
    Accepted { id: ResultId, receipt: Receipt },
    /// An error is in the place of a result.
    Failed {
        id: ResultId,
        error: String,
        kind: FailureKind,
        at: String,
    },
    /// The pod of a result was lost.
    Lost { id: ResultId, lost: Lost },
}

/// Maximum error reports in the place of one result; a worker has one to send, or a few.
const MAX_REPORTS: u32 = 16;

/// The state of one expected result.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResultState {
    #[default]
    Awaited,
    /// The last upload could not be stored; its sender may retry for a while.
    Refused {
        first: Instant,
        last: Instant,
        reason: String,
    },
    /// An error, which a result still replaces.
    Failed {
        error: String,
        kind: FailureKind,
    },
    Accepted,
}

impl ResultState {
    /// Whether no upload is awaited.
    pub fn settled(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Accepted)
    }
}

/// One expected result.
#[derive(Default)]
struct Slot {
    id: ResultId,
    state: ResultState,
    /// Whether a thread is putting files in place.
    busy: bool,
    launched: Option<Instant>,
    last_contact: Option<Instant>,
    /// Heartbeats of a worker of ours.
    beats: u32,
    /// How the other containers of its worker's pod have ended.
    containers: Option<ContainersEnd>,
    /// The current upload; there is at most one.
    upload: Option<Arc<Meter>>,
    /// Bytes of the upload at the last check for silence.
    uploaded: u64,
    reports: u32,
    /// The driver's current finding.
    trouble: Option<String>,
    progress: Option<Arc<Progress>>,
    /// The last limit that it exceeded, for the status.
    limited: Option<String>,
    result_status: String,
    result_counts: Option<BTreeMap<String, u64>>,
    receipt: Receipt,
}

/// The state of a run.
#[derive(Default)]
pub struct State {
    /// When the results came.
    pub milestones: Milestones,
    /// How long the parts of the run took, once it is packed.
    pub timings: Option<Timings>,
    slots: Vec<Slot>,
    index: HashMap<ResultId, usize>,
    /// Number of results by plugin.
    sizes: HashMap<String, usize>,
    /// Bytes that are kept of the progress of all results.
    progress_kept: u64,
    /// Why no worker gets a certificate.
    held_up: Option<String>,
    /// Refused requests.
    pub refusals: u64,
    /// Whether the archive will be uploaded.
    pub uploads: bool,
    /// Why some nodes lack the condition that tells their verdict.
    pub not_marked: Option<String>,
    /// The archive of the run, or the error that prevented it.
    end: Option<Result<Archive, String>>,
    /// The bodies being received.
    bodies: Vec<Arc<Meter>>,
    /// Whether no more results are accepted.
    closed: bool,
    /// Ended at each change of the status document.
    onlookers: Vec<Stop>,
    /// Ended when a result settles.
    waiters: Vec<Stop>,
}

impl State {
    /// A state that expects `ids`, each once, and keeps at most `progress_kept` bytes of their
    /// progress.
    pub fn new(ids: Vec<ResultId>, progress_kept: u64) -> Self {
        let mut state = Self {
            progress_kept,
            ..Self::default()
        };
        for id in ids {
            state.add(id, None);
        }
        state
    }

    /// Makes a change.
    pub fn apply(&mut self, record: Record, now: Instant) {
        match record {
            // Of plugins that are under way.
            Record::Expected(ids) => ids.into_iter().for_each(|id| self.add(id, Some(now))),
            // From now on its workers may be silent. After a restart the first time counts.
            Record::Started { plugin, at } => {
                for slot in self.slots_of(&plugin) {
                    slot.launched.get_or_insert(now);
                    slot.receipt.started.get_or_insert_with(|| at.clone());
                }
            }
            Record::Accepted { id, receipt } => {
                if let Some(kept) = self.receipt(&id) {
                    *kept = receipt;
                }
                self.settle(&id, ResultState::Accepted);
            }
            Record::Failed {
                id,
                error,
                kind,
                at,
            } => {
                if let Some(receipt) = self.receipt(&id) {
                    receipt.failed = Some(at);
                }
                self.settle(&id, ResultState::Failed { error, kind });
            }
            Record::Lost { id, lost } => {
                if let Some(slot) = self.slot(&id) {
                    slot.receipt.lost.push(lost);
                    // They say nothing about the next pod.
                    (
                        slot.last_contact,
                        slot.beats,
                        slot.progress,
                        slot.containers,
                    ) = (None, 0, None, None);
                    slot.launched = slot.launched.and(Some(now));
                }
            }
        }
        wake(&mut self.onlookers);
    }

    /// Whether all results of `plugin` are settled.
    pub fn settled(&self, plugin: &str) -> bool {
        self.slots
            .iter()
            .filter(|slot| slot.id.plugin == plugin)
            .all(|slot| slot.state.settled())
    }

    /// Notes a problem that may be temporary, or that it is solved.
    pub fn trouble(&mut self, id: &ResultId, trouble: Option<String>) {
        if let Some(slot) = self.slot(id) {
            slot.trouble = trouble;
            wake(&mut self.onlookers);
        }
    }

    /// The last known problem of an awaited result.
    pub fn problem(&self, id: &ResultId) -> Option<String> {
        let slot = self.get(id)?;
        match &slot.state {
            ResultState::Refused { reason, .. } => Some(reason.clone()),
            ResultState::Awaited => slot.trouble.clone(),
            _ => None,
        }
    }

    /// Whether any result of `plugin` is expected.
    pub fn expects(&self, plugin: &str) -> bool {
        self.sizes.contains_key(plugin)
    }

    /// All expected results in their order.
    pub fn ids(&self) -> impl Iterator<Item = &ResultId> {
        self.slots.iter().map(|slot| &slot.id)
    }

    /// The results that have neither arrived nor failed.
    pub fn outstanding(&self) -> impl Iterator<Item = &ResultId> {
        self.slots
            .iter()
            .filter(|slot| !slot.state.settled())
            .map(|slot| &slot.id)
    }

    /// Whether `id` is expected and has neither arrived nor failed.
    pub fn is_outstanding(&self, id: &ResultId) -> bool {
        self.result(id).is_some_and(|state| !state.settled())
    }

    /// Whether `id` has arrived or failed.
    pub fn is_settled(&self, id: &ResultId) -> bool {
        self.result(id).is_some_and(ResultState::settled)
    }

    /// The state of the result of `id`, if it is expected.
    pub fn result(&self, id: &ResultId) -> Option<&ResultState> {
        self.get(id).map(|slot| &slot.state)
    }

    /// Notes that `id` exceeded a limit.
    pub fn limited(&mut self, id: &ResultId, limit: &Refusal) {
        if let Some(slot) = self.slot(id) {
            slot.limited = Some(limit.to_string());
            wake(&mut self.onlookers);
        }
    }

    /// The slot of `id`, if a result would be accepted for it.
    fn open_slot(&mut self, id: &ResultId) -> Result<&mut Slot, Refusal> {
        match self.slot(id) {
            None => Err(Refusal::Unexpected),
            Some(Slot {
                state: ResultState::Accepted,
                ..
            }) => Err(Refusal::Duplicate),
            Some(slot) => Ok(slot),
        }
    }

    /// Begins an upload of `id`. An upload that `must_be_alone` replaces a stalled upload, and is
    /// refused during any other: a worker whose connection died silently starts again, and must
    /// not wait for the dead connection.
    pub fn begin(
        &mut self,
        id: &ResultId,
        sender: &Sender,
        upload: &Arc<Meter>,
        must_be_alone: bool,
    ) -> Result<(), Refusal> {
        if self.closed {
            return Err(Refusal::Ended);
        }
        let slot = self.open_slot(id)?;
        if must_be_alone {
            if slot
                .upload
                .as_ref()
                .is_some_and(|current| !current.is_stalled())
            {
                return Err(Refusal::Uploading);
            }
            if let Some(stalled) = slot.upload.replace(Arc::clone(upload)) {
                stalled.evict();
            }
        }
        slot.receipt.attempts += 1;
        slot.receipt.sender = sender.clone();
        self.milestones.arrival = Some(Instant::now());
        self.bodies.push(Arc::clone(upload));
        Ok(())
    }

    /// Ends an upload of `id`, unless another has taken over.
    pub fn end(&mut self, id: &ResultId, upload: &Arc<Meter>) {
        self.bodies.retain(|body| !Arc::ptr_eq(body, upload));
        if let Some(slot) = self.slot(id) {
            slot.upload.take_if(|current| Arc::ptr_eq(current, upload));
        }
    }

    /// Whether an upload of `id` is under way.
    pub fn is_uploading(&self, id: &ResultId) -> bool {
        self.get(id).is_some_and(|slot| slot.upload.is_some())
    }

    /// Ends all uploads, and refuses more.
    pub fn close(&mut self) {
        self.closed = true;
        self.bodies.iter().for_each(|body| body.evict());
    }

    /// Whether no more results are accepted.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Counts one more error report for `id`; false beyond the maximum.
    pub fn may_report(&mut self, id: &ResultId) -> bool {
        self.slot(id).is_some_and(|slot| {
            slot.reports = slot.reports.saturating_add(1);
            slot.reports <= MAX_REPORTS
        })
    }

    /// Acquires `id` for a change of files, which [`State::settle`] or [`State::release`] ends;
    /// false while it is acquired.
    pub fn acquire(&mut self, id: &ResultId) -> Result<bool, Refusal> {
        self.open_slot(id)
            .map(|slot| !std::mem::replace(&mut slot.busy, true))
    }

    /// Releases `id` unchanged.
    pub fn release(&mut self, id: &ResultId) {
        if let Some(slot) = self.slot(id) {
            slot.busy = false;
        }
    }

    /// Changes the state of `id`, and releases it.
    pub fn settle(&mut self, id: &ResultId, state: ResultState) {
        if let Some(slot) = self.slot(id) {
            slot.state = state;
            slot.busy = false;
        }
        self.milestones.settled = Some(Instant::now());
        wake(&mut self.waiters);
        wake(&mut self.onlookers);
    }

    /// Notes that an upload of `id` could not be stored, unless `id` is settled.
    pub fn refuse(&mut self, id: &ResultId, reason: String, now: Instant) {
        let Some(slot) = self.slot(id) else { return };
        let first = match slot.state {
            ResultState::Awaited => now,
            ResultState::Refused { first, .. } => first,
            ResultState::Failed { .. } | ResultState::Accepted => return,
        };
        slot.state = ResultState::Refused {
            first,
            last: now,
            reason,
        };
        wake(&mut self.waiters);
        wake(&mut self.onlookers);
    }

    /// Results whose last refused upload is `window` ago, or the first one [`RETRY_LIMIT`].
    pub fn given_up(&self, window: Duration, now: Instant) -> Vec<(ResultId, String)> {
        let is_over = |since: &Instant, span| now.saturating_duration_since(*since) >= span;
        let mut given_up = Vec::new();
        for slot in &self.slots {
            if let ResultState::Refused {
                first,
                last,
                reason,
            } = &slot.state
                && (is_over(last, window) || is_over(first, RETRY_LIMIT))
            {
                given_up.push((slot.id.clone(), reason.clone()));
            }
        }
        given_up
    }

    /// Notes why no worker gets a certificate, or that workers do.
    pub fn certificates_held_up(&mut self, why: Option<String>) {
        if self.held_up != why {
            self.held_up = why;
            wake(&mut self.onlookers);
        }
    }

    /// Notes a contact of the worker of `id`; false if `id` is not expected.
    pub fn note_contact(&mut self, id: &ResultId, now: Instant) -> bool {
        let Some(slot) = self.slot(id) else {
            return false;
        };
        let first = slot.last_contact.replace(now).is_none();
        // Later contacts change only an age, which can wait for the next publication.
        if first {
            slot.receipt.first_heartbeat.get_or_insert_with(clock::now);
            self.milestones.contact = Some(now);
            wake(&mut self.onlookers);
        }
        true
    }

    /// Notes a heartbeat for `id`; false if `id` is not expected. After the
    /// [`PROMISING_HEARTBEATS`] of a worker of ours, its silence is a failure.
    pub fn beat(&mut self, id: &ResultId, is_ours: bool, now: Instant) -> bool {
        if let Some(slot) = self.slot(id) {
            slot.beats = slot.beats.saturating_add(u32::from(is_ours));
        }
        self.note_contact(id, now)
    }

    /// Notes how the other containers of the pod of `id` have ended, or that they run again.
    pub fn containers_ended(&mut self, id: &ResultId, end: Option<ContainersEnd>) {
        if let Some(slot) = self.slot(id) {
            slot.containers = end;
        }
    }

    /// How the other containers of the pod of `id` have ended.
    pub fn containers_end(&self, id: &ResultId) -> Option<ContainersEnd> {
        self.get(id)?.containers
    }

    /// Workers that promised heartbeats, and then sent neither heartbeats nor bytes of an upload
    /// for `limit`, and for how long.
    pub fn gone_silent(&mut self, limit: Duration, now: Instant) -> Vec<(ResultId, Duration)> {
        let mut silent = Vec::new();
        for slot in &mut self.slots {
            if slot.beats < PROMISING_HEARTBEATS || slot.state != ResultState::Awaited {
                continue;
            }
            // A worker whose network an upload fills may not get a heartbeat through.
            let uploaded = slot.upload.as_ref().map_or(0, |upload| upload.bytes());
            if uploaded != slot.uploaded {
                slot.uploaded = uploaded;
                slot.last_contact = Some(now);
            }
            let Some(last_contact) = slot.last_contact else {
                continue;
            };
            let silence = now.saturating_duration_since(last_contact);
            if silence >= limit {
                silent.push((slot.id.clone(), silence));
            }
        }
        silent
    }

    /// Whether the worker of `id` was ever heard from, or is no longer awaited.
    pub fn has_contacted(&self, id: &ResultId) -> bool {
        self.get(id).is_none_or(|slot| !slot.waits())
    }

    /// Merges `update` into the progress of `id`; false if `id` is not expected.
    pub fn progress(&mut self, id: &ResultId, update: Progress, now: String) -> bool {
        let results = self.sizes.get(&id.plugin).copied().unwrap_or(1);
        let share = limits::progress_share(self.progress_kept, self.sizes.len(), results);
        let Some(slot) = self.slot(id) else {
            return false;
        };
        let before = slot.progress.take().map(Arc::unwrap_or_clone);
        let (after, cut) = progress::merged(id, before, update, now, share);
        slot.progress = Some(Arc::new(after));
        slot.limited = cut.then(|| {
            format!(
                "its progress is shown in part: {share} bytes are kept for each result \
                 (`Limits.Progress.KeptBytes`)"
            )
        });
        wake(&mut self.onlookers);
        true
    }

    /// Notes the processed results of `plugin`: the status of each, and its items by status, if it
    /// has any.
    pub fn processed(
        &mut self,
        plugin: &str,
        of: impl Fn(&ResultId) -> Option<(String, BTreeMap<String, u64>)>,
    ) {
        for slot in self.slots_of(plugin) {
            if let Some((status, counts)) = of(&slot.id) {
                slot.result_status = status;
                slot.result_counts = Some(counts);
            }
        }
        wake(&mut self.onlookers);
    }

    /// Notes that the run ended, with its archive or an error.
    pub fn ended(&mut self, end: Result<Archive, String>) {
        self.end = Some(end);
        wake(&mut self.onlookers);
    }

    /// Ends `waiter` when the next result settles.
    pub fn wait_here(&mut self, waiter: Stop) {
        enter(&mut self.waiters, waiter);
    }

    /// Ends `onlooker` at the next change of the status document.
    pub fn wake_on_change(&mut self, onlooker: Stop) {
        enter(&mut self.onlookers, onlooker);
    }

    /// The status document.
    pub fn document(&self, now: Instant) -> Run {
        let settled = self
            .slots
            .iter()
            .filter(|slot| slot.state.settled())
            .count();
        let mut run = Run {
            plugins: Some(
                self.slots
                    .iter()
                    .map(|slot| slot.entry(self.held_up.as_deref(), now))
                    .collect(),
            ),
            received_bytes: self.slots.iter().map(|slot| slot.receipt.size).sum(),
            refusals: self.refusals,
            not_marked: self.not_marked.clone(),
            ..Run::default()
        };
        if !self.slots.is_empty() {
            let share = settled as f64 / self.slots.len() as f64;
            run.percent_complete = Some((share * 10_000.0).floor() / 10_000.0);
        }
        match &self.end {
            Some(Ok(archive)) => return self.completed(run, archive.clone()),
            Some(Err(error)) => {
                run.status = status::FAILED.into();
                run.error = Some(error.clone());
            }
            None if settled == self.slots.len() => run.status = status::POST_PROCESSING.into(),
            None => {}
        }
        run
    }

    /// `run` as the document of a complete run with this archive.
    pub fn completed(&self, run: Run, archive: Archive) -> Run {
        // An upload is still to come.
        let upload = self.uploads.then(|| status::RUNNING.into());
        Run {
            status: status::COMPLETE.into(),
            archive,
            upload,
            timings: self.timings.clone(),
            ..run
        }
    }

    fn add(&mut self, id: ResultId, launched: Option<Instant>) {
        if self.index.contains_key(&id) {
            return;
        }
        *self.sizes.entry(id.plugin.clone()).or_default() += 1;
        self.index.insert(id.clone(), self.slots.len());
        self.slots.push(Slot {
            id,
            launched,
            ..Slot::default()
        });
    }

    pub fn receipt(&mut self, id: &ResultId) -> Option<&mut Receipt> {
        self.slot(id).map(|slot| &mut slot.receipt)
    }

    /// The receipts of all results, in the order in which they were expected.
    pub fn received(&self) -> Vec<Received> {
        self.slots.iter().map(Slot::received).collect()
    }

    /// The results that arrived, with their digests.
    pub fn arrived(&self) -> impl Iterator<Item = (ResultId, Arrived)> {
        let accepted = self
            .slots
            .iter()
            .filter(|slot| slot.state == ResultState::Accepted);
        accepted.filter_map(|slot| Some((slot.id.clone(), slot.receipt.digest()?)))
    }

    fn slots_of(&mut self, plugin: &str) -> impl Iterator<Item = &mut Slot> {
        self.slots
            .iter_mut()
            .filter(move |slot| slot.id.plugin == plugin)
    }

    fn get(&self, id: &ResultId) -> Option<&Slot> {
        self.index.get(id).map(|at| &self.slots[*at])
    }

    fn slot(&mut self, id: &ResultId) -> Option<&mut Slot> {
        self.index.get(id).map(|at| &mut self.slots[*at])
    }
}

impl Slot {
    fn received(&self) -> Received {
        let mut receipt = self.receipt.clone();
        let error = match &self.state {
            ResultState::Accepted => {
                // A result that arrived after all has not failed.
                receipt.failed = None;
                None
            }
            ResultState::Failed { error, .. } | ResultState::Refused { reason: error, .. } => {
                Some(error.clone())
            }
            ResultState::Awaited => Some("no result arrived".into()),
        };
        Received {
            plugin: self.id.plugin.clone(),
            node: self.id.node.clone(),
            receipt,
            error,
        }
    }

    fn entry(&self, held_up: Option<&str>, now: Instant) -> Entry {
        let since = |then: Instant| now.saturating_duration_since(then);
        let mut entry = Entry {
            plugin: self.id.plugin.clone(),
            node: self.id.node.clone(),
            status: status::RUNNING.into(),
            result_status: self.result_status.clone(),
            result_counts: self.result_counts.clone(),
            progress: self.progress.clone(),
            last_heartbeat: self.last_contact.map(|then| since(then).as_secs()),
            ..Entry::default()
        };
        match &self.state {
            ResultState::Awaited => {
                let trouble = self.trouble.as_deref().map(remedies::advised);
                let problem = trouble.or_else(|| self.silence_message(now));
                let held_up = held_up.filter(|_| self.waits());
                let held_up =
                    held_up.map(|why| format!("waiting for its worker's certificate: {why}"));
                entry.message = problem.or_else(|| self.limited.clone()).or(held_up);
            }
            ResultState::Refused { reason, .. } => {
                let refused =
                    format!("the last upload was refused and may be sent again: {reason}");
                entry.message = Some(remedies::advised(&refused));
            }
            // Not an error: no worker was started.
            ResultState::Failed {
                error,
                kind: FailureKind::Skipped,
            } => {
                entry.status = status::COMPLETE.into();
                entry.result_status = item::SKIPPED.into();
                entry.message = Some(error.clone());
            }
            ResultState::Failed { error, kind } => {
                entry.status = status::FAILED.into();
                entry.message = Some(remedies::advised(error));
                entry.timed_out = *kind == FailureKind::TimedOut;
                entry.lost = self
                    .receipt
                    .lost
                    .last()
                    .filter(|_| *kind == FailureKind::NodeLost)
                    .cloned();
            }
            ResultState::Accepted => {
                entry.status = status::COMPLETE.into();
                let identity = &self.receipt.sender.identity;
                entry.identity = (!identity.is_empty()).then(|| identity.clone());
                // The age of the heartbeat means nothing once the worker has finished.
                entry.last_heartbeat = None;
            }
        }
        entry
    }

    /// Whether its worker was started and has not been heard of.
    fn waits(&self) -> bool {
        self.state == ResultState::Awaited && self.launched.is_some() && self.last_contact.is_none()
    }

    /// The likely cause of a worker's silence.
    fn silence_message(&self, now: Instant) -> Option<String> {
        let quiet = now.saturating_duration_since(self.last_contact.or(self.launched)?);
        (quiet >= SILENCE_LIMIT).then(|| {
            let seconds = quiet.as_secs();
            match self.last_contact {
                None => format!(
                    "the worker has not been heard from in the {seconds} s since the plugin was \
                     started: its image may not be there yet, it cannot reach the aggregator \
                     (DNS, network policy, firewall), or its version sends no heartbeats"
                ),
                Some(_) => format!(
                    "the worker was last heard from {seconds} s ago: its node or the network to \
                     it may be down, or its version sends no heartbeats"
                ),
            }
        })
    }
}

fn enter(waiting: &mut Vec<Stop>, stop: Stop) {
    // Those that gave up have stopped it.
    waiting.retain(|stop| !stop.stopped());
    waiting.push(stop);
}

fn wake(waiting: &mut Vec<Stop>) {
    for stop in waiting.drain(..) {
        stop.stop();
    }
}
