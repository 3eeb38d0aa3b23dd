//! What is expected, what stands where, and who was heard of when: the state of a run without any I/O.
//!
//! Every change is one method, made under the store's lock, which is never held longer, and ends the [`Stop`] of each waiter.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::Uploads;
use super::limits::{self, LimitExceeded};
use super::progress;
use super::receipt::Receipt;
use crate::status::{self, Archive, Entry, Run};
use crate::{causes, item};
use base::clock;
use base::stop::Stop;
use client::protocol::{FailureKind, Progress, ResultId};

/// What stands in the place of one expected result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standing {
    /// Nothing yet.
    Awaited,
    /// The last upload could not be stored; its sender may try again for a while.
    Refused {
        /// When the first upload was spoiled.
        first: Instant,
        /// When the last one was.
        last: Instant,
        /// Why.
        reason: String,
    },
    /// An error, which a real result still replaces.
    Failed {
        /// The sentence.
        error: String,
        /// What sort of failure it is.
        kind: FailureKind,
    },
    /// The real result.
    Accepted {
        /// How closely its sender is known: by its plugin, or by its node.
        identity: Option<String>,
    },
}

impl Standing {
    /// Whether nothing more has to come.
    pub(super) fn settled(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Accepted { .. })
    }
}

/// One expected result.
struct Slot {
    id: ResultId,
    standing: Standing,
    /// Somebody is just putting files in place.
    busy: bool,
    launched: Option<Instant>,
    heard: Option<Instant>,
    /// Whether its worker sends heartbeats; the original's does not.
    beats: bool,
    /// What its uploads have brought when that was looked at last.
    brought: u64,
    /// What is wrong just now, as whoever watches the plugin says.
    trouble: Option<String>,
    progress: Option<Arc<Progress>>,
    /// The last limit that it ran into, for the status.
    limited: Option<LimitExceeded>,
    uploads: Uploads,
    result_status: String,
    result_counts: Option<BTreeMap<String, u64>>,
    /// What is known of its arrival.
    receipt: Receipt,
}

/// How the run as a whole ended.
enum End {
    Archive(Archive),
    Error(String),
}

/// The state of a run.
#[derive(Default)]
pub(super) struct State {
    slots: Vec<Slot>,
    index: HashMap<ResultId, usize>,
    /// How many results each plugin has.
    sizes: HashMap<String, usize>,
    /// What is kept of the progress of all.
    progress_kept: u64,
    /// Why no worker gets a certificate just now.
    held_up: Option<String>,
    end: Option<End>,
    /// Told of every change that people would see.
    onlookers: Vec<Stop>,
    /// Told when something settled or is not busy any more.
    waiters: Vec<Stop>,
}

/// Why a slot cannot be taken just now.
#[derive(Debug, PartialEq)]
pub(super) enum Taken {
    /// Nobody expects it.
    Unexpected,
    /// The real result is there.
    Duplicate,
    /// Somebody else is at it.
    Busy,
    /// Another upload of it is under way.
    Uploading,
}

impl State {
    /// A state that expects `ids`, each once, and keeps so many bytes of their progress.
    pub(super) fn new(ids: Vec<ResultId>, progress_kept: u64) -> Self {
        let mut state = Self { progress_kept, ..Self::default() };
        for id in ids {
            state.add(id, None);
        }
        state
    }

    /// Expects one more result, of a plugin that is under way.
    pub(super) fn expect(&mut self, id: ResultId, now: Instant) {
        self.add(id, Some(now));
        wake(&mut self.onlookers);
    }

    /// Whether nothing more has to come of `plugin`.
    pub(super) fn settled(&self, plugin: &str) -> bool {
        self.slots.iter().filter(|slot| slot.id.plugin == plugin).all(|slot| slot.standing.settled())
    }

    /// Notes trouble that may pass, or that it has passed.
    pub(super) fn trouble(&mut self, id: &ResultId, trouble: Option<String>) {
        if let Some(slot) = self.slot(id) {
            slot.trouble = trouble;
            wake(&mut self.onlookers);
        }
    }

    /// All expected results in their order.
    pub(super) fn ids(&self) -> impl Iterator<Item = &ResultId> {
        self.slots.iter().map(|slot| &slot.id)
    }

    /// What stands in the place of `id`, if it is expected.
    pub(super) fn standing(&self, id: &ResultId) -> Option<&Standing> {
        self.index.get(id).map(|at| &self.slots[*at].standing)
    }

    /// Whether a time limit stands in the place of `id`.
    pub(super) fn timed_out(&self, id: &ResultId) -> bool {
        matches!(self.standing(id), Some(Standing::Failed { kind: FailureKind::TimedOut, .. }))
    }

    /// Whether a result for `id` would be taken.
    pub(super) fn takes(&self, id: &ResultId) -> Result<(), Taken> {
        match self.standing(id) {
            None => Err(Taken::Unexpected),
            Some(Standing::Accepted { .. }) => Err(Taken::Duplicate),
            Some(_) => Ok(()),
        }
    }

    /// Notes that `id` ran into a limit.
    pub(super) fn limited(&mut self, id: &ResultId, limit: &LimitExceeded) {
        if let Some(slot) = self.slot(id) {
            slot.limited = Some(limit.clone());
            wake(&mut self.onlookers);
        }
    }

    /// Takes the slot of `id` for a change of files, which [`State::settle`] or [`State::release`] ends.
    pub(super) fn take(&mut self, id: &ResultId) -> Result<(), Taken> {
        self.takes(id)?;
        let slot = self.slot(id).ok_or(Taken::Unexpected)?;
        if std::mem::replace(&mut slot.busy, true) { Err(Taken::Busy) } else { Ok(()) }
    }

    /// Gives the slot back with nothing changed.
    pub(super) fn release(&mut self, id: &ResultId) {
        if let Some(slot) = self.slot(id) {
            slot.busy = false;
        }
        wake(&mut self.waiters);
    }

    /// Puts `standing` in place of what was there, and gives the slot back.
    pub(super) fn settle(&mut self, id: &ResultId, standing: Standing) {
        if let Some(slot) = self.slot(id) {
            slot.standing = standing;
            slot.busy = false;
        }
        wake(&mut self.waiters);
        wake(&mut self.onlookers);
    }

    /// Notes that an upload for `id` could not be stored. What stands there already is not touched.
    pub(super) fn refuse(&mut self, id: &ResultId, reason: String, now: Instant) {
        let Some(slot) = self.slot(id) else { return };
        let first = match slot.standing {
            Standing::Awaited => now,
            Standing::Refused { first, .. } => first,
            Standing::Failed { .. } | Standing::Accepted { .. } => return,
        };
        slot.standing = Standing::Refused { first, last: now, reason };
        wake(&mut self.waiters);
        wake(&mut self.onlookers);
    }

    /// Those whose last upload was spoiled more than `window` ago, or the first one more than `limit`.
    pub(super) fn given_up(
        &self,
        window: Duration,
        limit: Duration,
        now: Instant,
    ) -> Vec<(ResultId, String)> {
        let over = |since: &Instant, span| now.saturating_duration_since(*since) >= span;
        let given_up = |slot: &Slot| match &slot.standing {
            Standing::Refused { first, last, reason } if over(last, window) || over(first, limit) => {
                Some((slot.id.clone(), reason.clone()))
            }
            _ => None,
        };
        self.slots.iter().filter_map(given_up).collect()
    }

    /// Notes why no worker gets a certificate just now, or that they do.
    pub(super) fn certificates_held_up(&mut self, why: Option<String>) {
        if self.held_up != why {
            self.held_up = why;
            wake(&mut self.onlookers);
        }
    }

    /// Notes that the worker of `id` spoke; false if nobody expects it.
    pub(super) fn hear(&mut self, id: &ResultId, now: Instant) -> bool {
        let Some(slot) = self.slot(id) else { return false };
        let first = slot.heard.replace(now).is_none();
        // Later ones change only an age, which is not worth telling at once.
        if first {
            slot.receipt.first_heartbeat.get_or_insert_with(clock::now);
            wake(&mut self.onlookers);
        }
        true
    }

    /// Notes a heartbeat of the worker of `id`: from now on its silence is a failure. False if `id` is not expected.
    pub(super) fn beat(&mut self, id: &ResultId, now: Instant) -> bool {
        if let Some(slot) = self.slot(id) {
            slot.beats = true;
        }
        self.hear(id, now)
    }

    /// Workers that sent heartbeats and nothing for `limit`, and for how long. What an upload brings counts.
    pub(super) fn gone_silent(&mut self, limit: Duration, now: Instant) -> Vec<(ResultId, Duration)> {
        let silent = |slot: &mut Slot| {
            let brought = slot.uploads.bytes();
            if std::mem::replace(&mut slot.brought, brought) != brought {
                slot.heard = Some(now);
            }
            let quiet = now.saturating_duration_since(slot.heard?);
            (quiet >= limit).then(|| (slot.id.clone(), quiet))
        };
        let awaited = self.slots.iter_mut().filter(|slot| slot.beats && slot.standing == Standing::Awaited);
        awaited.filter_map(silent).collect()
    }

    /// Whether the worker of `id` ever spoke, or need not any more.
    pub(super) fn heard(&self, id: &ResultId) -> bool {
        self.index.get(id).is_none_or(|at| !self.slots[*at].waits())
    }

    /// Lays `update` over the progress of `id`; false if nobody expects it.
    pub(super) fn progress(&mut self, id: &ResultId, update: Progress, now: String) -> bool {
        let results = self.sizes.get(&id.plugin).copied().unwrap_or(1);
        let share = limits::progress_share(self.progress_kept, self.sizes.len(), results);
        let Some(slot) = self.slot(id) else { return false };
        let before = slot.progress.take().map(Arc::unwrap_or_clone);
        let (after, cut) = progress::merged(id, before, update, now, share);
        slot.progress = Some(Arc::new(after));
        slot.limited = cut.then_some(LimitExceeded::Kept(share));
        wake(&mut self.onlookers);
        true
    }

    /// Notes that `plugin` was started: from now on its workers may be missed.
    pub(super) fn launched(&mut self, plugin: &str, now: Instant) {
        for slot in self.slots.iter_mut().filter(|slot| slot.id.plugin == plugin) {
            slot.launched.get_or_insert(now);
        }
    }

    /// Notes what processing made of the results of `plugin`: for each its status and its leaves by status. One that
    /// processing did not see is passed over.
    pub(super) fn processed(
        &mut self,
        plugin: &str,
        of: impl Fn(&ResultId) -> Option<(String, BTreeMap<String, u64>)>,
    ) {
        for slot in self.slots.iter_mut().filter(|slot| slot.id.plugin == plugin) {
            if let Some((status, counts)) = of(&slot.id) {
                slot.result_status = status;
                slot.result_counts = Some(counts);
            }
        }
        wake(&mut self.onlookers);
    }

    /// Notes that the archive is there and the run over.
    pub(super) fn finished(&mut self, archive: Archive) {
        self.end = Some(End::Archive(archive));
        wake(&mut self.onlookers);
    }

    /// Notes that the run ended without an archive.
    pub(super) fn failed(&mut self, error: String) {
        self.end = Some(End::Error(error));
        wake(&mut self.onlookers);
    }

    /// Ends `waiter` at the next change of what stands where.
    pub(super) fn wait_here(&mut self, waiter: Stop) {
        // Those who gave up waiting have stopped theirs.
        self.waiters.retain(|waiter| !waiter.stopped());
        self.waiters.push(waiter);
    }

    /// Ends `onlooker` at the next change of anything that the document shows.
    pub(super) fn wake_on_change(&mut self, onlooker: Stop) {
        self.onlookers.retain(|onlooker| !onlooker.stopped());
        self.onlookers.push(onlooker);
    }

    /// The status document. A worker is named as silent when nothing was heard of it for `silence`.
    pub(super) fn document(&self, silence: Duration, now: Instant) -> Run {
        let settled = self.slots.iter().filter(|slot| slot.standing.settled()).count();
        let mut run = Run {
            plugins: Some(self.slots.iter().map(|slot| slot.entry(silence, now)).collect()),
            ..Run::default()
        };
        let entries = self.slots.iter().zip(run.plugins.iter_mut().flatten());
        for (_, entry) in entries.filter(|(slot, entry)| slot.waits() && entry.message.is_none()) {
            let held_up = |why| format!("waiting for its worker's certificate: {why}");
            entry.message = self.held_up.as_ref().map(held_up);
        }
        if !self.slots.is_empty() {
            #[allow(clippy::cast_precision_loss, reason = "exact for any number of nodes there can be")]
            let share = settled as f64 / self.slots.len() as f64;
            run.percent_complete = Some((share * 10_000.0).floor() / 10_000.0);
        }
        match &self.end {
            Some(End::Archive(archive)) => {
                run.status = status::COMPLETE.into();
                run.archive = archive.clone();
            }
            Some(End::Error(error)) => {
                run.status = status::FAILED.into();
                run.error = Some(error.clone());
            }
            None if settled == self.slots.len() => run.status = status::POST_PROCESSING.into(),
            None => {}
        }
        run
    }

    fn add(&mut self, id: ResultId, launched: Option<Instant>) {
        if self.index.contains_key(&id) {
            return;
        }
        *self.sizes.entry(id.plugin.clone()).or_default() += 1;
        self.index.insert(id.clone(), self.slots.len());
        self.slots.push(Slot {
            id,
            standing: Standing::Awaited,
            busy: false,
            launched,
            heard: None,
            beats: false,
            brought: 0,
            trouble: None,
            progress: None,
            limited: None,
            uploads: Uploads::default(),
            result_status: String::new(),
            result_counts: None,
            receipt: Receipt::default(),
        });
    }

    /// The uploads for `id` that are under way.
    pub(super) fn uploads(&mut self, id: &ResultId) -> Option<&mut Uploads> {
        self.slot(id).map(|slot| &mut slot.uploads)
    }

    /// What is known of the arrival of `id`.
    pub(super) fn receipt(&self, id: &ResultId) -> Option<&Receipt> {
        self.index.get(id).map(|at| &self.slots[*at].receipt)
    }

    /// The same, to add to it.
    pub(super) fn receipt_mut(&mut self, id: &ResultId) -> Option<&mut Receipt> {
        self.slot(id).map(|slot| &mut slot.receipt)
    }

    /// The same of all results of `plugin`.
    pub(super) fn receipts(&mut self, plugin: &str) -> impl Iterator<Item = &mut Receipt> {
        self.slots.iter_mut().filter(move |slot| slot.id.plugin == plugin).map(|slot| &mut slot.receipt)
    }

    fn slot(&mut self, id: &ResultId) -> Option<&mut Slot> {
        self.index.get(id).map(|at| &mut self.slots[*at])
    }
}

impl Slot {
    fn entry(&self, silence: Duration, now: Instant) -> Entry {
        let since = |then: Instant| now.saturating_duration_since(then);
        let mut entry = Entry {
            plugin: self.id.plugin.clone(),
            node: self.id.node.clone(),
            status: status::RUNNING.into(),
            result_status: self.result_status.clone(),
            result_counts: self.result_counts.clone(),
            progress: self.progress.clone(),
            last_heartbeat: self.heard.map(|then| since(then).as_secs()),
            ..Entry::default()
        };
        match &self.standing {
            Standing::Awaited => {
                let limited = || self.limited.as_ref().map(LimitExceeded::to_string);
                entry.message = self.trouble.clone().or_else(|| self.silent(silence, now)).or_else(limited);
            }
            Standing::Refused { reason, .. } => {
                let refused = format!("the last upload was refused and may be sent again: {reason}");
                entry.message = Some(causes::advised(&refused));
            }
            // Nothing went wrong: there is nobody who could send anything.
            Standing::Failed { error, kind: FailureKind::Skipped } => {
                entry.status = status::COMPLETE.into();
                entry.result_status = item::SKIPPED.into();
                entry.message = Some(error.clone());
            }
            Standing::Failed { error, kind } => {
                entry.status = status::FAILED.into();
                entry.message = Some(causes::advised(error));
                entry.timed_out = *kind == FailureKind::TimedOut;
            }
            Standing::Accepted { identity } => {
                entry.status = status::COMPLETE.into();
                entry.identity.clone_from(identity);
                // Its age says nothing once the worker has done its work.
                entry.last_heartbeat = None;
            }
        }
        entry
    }

    /// Whether its worker was started and has not come through yet.
    fn waits(&self) -> bool {
        self.standing == Standing::Awaited && self.launched.is_some() && self.heard.is_none()
    }

    /// What is probably wrong with a worker that says nothing.
    fn silent(&self, silence: Duration, now: Instant) -> Option<String> {
        let quiet = now.saturating_duration_since(self.heard.or(self.launched)?);
        (quiet >= silence).then(|| {
            let seconds = quiet.as_secs();
            match self.heard {
                None => format!(
                    "the worker has not been heard from in the {seconds} s since the plugin was started: its image may not be there yet, it cannot reach the aggregator (DNS, network policy, firewall), or its version sends no heartbeats"
                ),
                Some(_) => format!(
                    "the worker was last heard from {seconds} s ago: its node or the network to it may be down, or its version sends no heartbeats"
                ),
            }
        })
    }
}

fn wake(waiting: &mut Vec<Stop>) {
    for stop in waiting.drain(..) {
        stop.stop();
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
