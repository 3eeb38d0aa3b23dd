//! The results of a run on the disk: taken in as streams, put in place whole, remembered over a crash.
//!
//! A result lies in `plugins/<plugin>/results/<node>/`, an error that stands for one in
//! `plugins/<plugin>/errors/<node>/error.json`. Both are made as a folder beside the run directory, on the same
//! disk, and renamed into place, so that what is there is always whole. What must outlive a crash but is no
//! result (journal, authority, half-taken bodies) is in the folder `<run directory>.state`, which no archive
//! holds.
//!
//! Of the same result one upload runs at a time; the second is told so. What an upload takes of the disk is claimed
//! before it is written, see `share`. Nothing is written or read under the lock. Does not know HTTP, nor who may send. Starts no thread.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};

use super::attempt::TURN_TIMEOUT;
use super::digests::Sha256;
use super::disk::{make_dir, put_in_place, remove, sync_tree, write_new};
use super::disposition::file_name;
use super::intake::{Intake, Trouble};
use super::journal::{Journal, Record};
use super::limits::{self, LimitExceeded, Refusal, refusal};
use super::receipt::Receipt;
use super::report;
use super::share::{Claim, Disk, Room};
use super::state::{Standing, State, Taken};
use super::upload::Upload;
use crate::config::{self, Results};
use crate::layout;
use base::http::Meter;
use base::quota::{Permit, Quota};
use base::{archive, clock};
use client::protocol::{Failure, FailureKind, GZIP, ResultId};

/// The store of one run.
pub(crate) struct Store {
    plugins: PathBuf,
    incoming: PathBuf,
    journal: Journal,
    limits: config::Limits,
    disk: Disk,
    state: Mutex<State>,
    /// Told when a slot is not busy any more, or an upload over.
    free: Condvar,
    number: AtomicU64,
    /// Nobody waits for results any more.
    closing: AtomicBool,
    memory: Quota<String>,
}

impl Store {
    /// Opens the store of the run in `run_dir`. If that run was begun before, it goes on as it was, and what was
    /// expected then is what is expected now; otherwise `expected` is.
    pub(crate) fn open(
        run_dir: &Path,
        expected: &[ResultId],
        limits: config::Limits,
    ) -> anyhow::Result<Self> {
        for id in expected {
            ensure!(
                is_name(&id.plugin) && is_name(&id.node),
                "`{id}` cannot be expected: plugin and node must be usable as folder names"
            );
        }
        let (plugins, state_dir) = (run_dir.join(layout::PLUGINS), layout::state_dir(run_dir));
        make_dir(&plugins, 0o755)?;
        make_dir(&state_dir, 0o700)?;
        // First, for what is in the folder is another's while that one is at work.
        let (journal, records) = Journal::open(&state_dir.join(layout::JOURNAL))?;
        let incoming = state_dir.join(layout::INCOMING);
        remove(&incoming)?;
        make_dir(&incoming, 0o700)?;
        let begun = records.iter().any(|record| matches!(record, Record::Expected(_)));
        let ids = if begun {
            // Nodes that joined later stand in records of their own.
            let known = records.iter().filter_map(|record| match record {
                Record::Expected(ids) => Some(ids.as_slice()),
                _ => None,
            });
            let ids = known.collect::<Vec<_>>().concat();
            if ids != expected {
                log::warn!("the run continues with the {} results that it expected before", ids.len());
            }
            ids
        } else {
            journal.append(&Record::Expected(expected.to_vec())).context("journal")?;
            expected.to_vec()
        };
        let disk = Disk::open(&plugins, &ids, &limits);
        let store = Self {
            plugins,
            incoming,
            journal,
            disk,
            state: Mutex::new(State::new(ids, limits.progress.kept_bytes)),
            free: Condvar::new(),
            number: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            memory: limits::body_memory(&limits),
            limits,
        };
        store.resume(records)?;
        Ok(store)
    }

    /// The state, to look at or to change; not to be held across anything slow.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is made whole before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What may be taken.
    pub(super) fn limits(&self) -> &config::Limits {
        &self.limits
    }

    /// Memory for a body of `bytes` for `id`; small ones need no permit.
    pub(super) fn memory(&self, id: &ResultId, bytes: u64) -> Result<Option<Permit<String>>, LimitExceeded> {
        if bytes <= limits::SMALL_BODY_BYTES {
            return Ok(None);
        }
        self.memory.take(&id.plugin, bytes).map(Some).ok_or(LimitExceeded::Memory)
    }

    /// Stores a body. When this returns its digest, the result is in place and stays there.
    pub(super) fn accept<R: Read>(&self, id: &ResultId, upload: Upload<'_, R>) -> Result<Sha256, Refusal> {
        let meter = Arc::clone(&upload.meter);
        let taken = self.begin(id, &upload).and_then(|()| {
            let place = self.new_place();
            // What stays free is for reports of errors, among others.
            let disk = if upload.is_error { &Disk::endless() } else { &self.disk };
            // Given back when what it was taken for is gone.
            let claim = disk.claim(id);
            let taken = self.take_in(id, upload, &place, &claim);
            // At the end of the run all that is left goes at once.
            if !self.closing.load(Ordering::Relaxed)
                && let Err(error) = remove(&place)
            {
                log::warn!("{error:#}");
            }
            self.lock().end(id, &meter);
            self.free.notify_all();
            taken
        });
        if let Err(refusal) = &taken {
            self.note(id, refusal);
        }
        taken
    }

    /// Expects one more result, of a node that has joined.
    pub(crate) fn expect(&self, id: &ResultId) -> anyhow::Result<()> {
        ensure!(is_name(&id.node), "its node's name cannot be the name of a folder");
        if self.lock().standing(id).is_none() {
            self.journal.append(&Record::Expected(vec![id.clone()])).context("journal")?;
            self.disk.expect(id);
            self.lock().expect(id.clone(), Instant::now());
        }
        Ok(())
    }

    /// The folder of the run.
    pub(super) fn run_dir(&self) -> &Path {
        self.plugins.parent().unwrap_or(&self.plugins)
    }

    /// Notes that `plugin` is being started. Who takes the run up again goes by the first time.
    pub(super) fn launched(&self, plugin: &str) {
        let at = clock::now();
        let record = Record::Started { plugin: plugin.to_owned(), at };
        if let Err(error) = self.journal.append(&record) {
            log::warn!("the start of plugin `{plugin}` could not be recorded: {error}");
        }
        let mut state = self.lock();
        state.launched(plugin, Instant::now());
        if let Record::Started { at, .. } = &record {
            state.started(plugin, at);
        }
    }

    /// Puts an error in the place of a result that will not come. What is there already stays. A failure for the
    /// whole of a plugin that runs on nodes counts for each node whose result is outstanding.
    pub(crate) fn record(&self, failure: &Failure) {
        let ids: Vec<ResultId> = {
            let state = self.lock();
            let meant = |id: &&ResultId| {
                **id == failure.id || failure.id.is_global() && id.plugin == failure.id.plugin
            };
            let all = state.ids().filter(meant);
            all.filter(|id| state.standing(id).is_some_and(|standing| !standing.settled())).cloned().collect()
        };
        if ids.is_empty() {
            log::info!(
                "`{}` already has its result or expects none; ignored: {}",
                failure.id,
                failure.error()
            );
        }
        let failed =
            || Standing::Failed { error: report::sentence(failure.error().to_owned()), kind: failure.kind };
        let body = serde_json::Value::from(failure.report.clone()).to_string();
        for id in ids {
            match self.put_error(&id, body.as_bytes(), failed()) {
                Ok(()) => {}
                // A result came meanwhile, which is better news.
                Err(Refusal::Duplicate | Refusal::Unexpected) => {}
                Err(refusal) => {
                    log::error!("`{id}`: its error could not be stored: {refusal}");
                    // It must count all the same, or the run would wait for ever.
                    if let Ok(busy) = self.claim(&id) {
                        busy.settle(failed());
                    }
                }
            }
        }
    }

    /// Turns spoiled uploads that nobody repeated within `window`, or `limit` in all, into errors.
    pub(super) fn give_up(&self, window: Duration, limit: Duration) {
        let given_up = self.lock().given_up(window, limit, Instant::now());
        for (id, reason) in given_up {
            self.record(&Failure::new(id, format!("the result could not be stored: {reason}")));
        }
    }

    /// Turns workers that sent heartbeats and nothing for `limit` into errors.
    pub(super) fn give_up_silent(&self, limit: Duration) {
        let silent = self.lock().gone_silent(limit, Instant::now());
        for (id, quiet) in silent {
            let since = SystemTime::now().checked_sub(quiet).map(clock::rfc3339).unwrap_or_default();
            let since = since.get(11..19).unwrap_or_default();
            let place = if id.is_global() { String::new() } else { format!(" on `{}`", id.node) };
            let why = "look at its pod, its node and the network between them";
            self.record(&Failure::new(id, format!("worker{place} stopped reporting at {since} UTC: {why}")));
        }
    }

    /// Ends all uploads that are still under way.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.lock().abandon_uploads();
    }

    /// Removes what only a restart needed. The results stay.
    pub(crate) fn discard_state(&self) {
        if let Some(dir) = self.incoming.parent()
            && let Err(error) = remove(dir)
        {
            log::warn!("{error:#}");
        }
    }

    /// Begins an upload of `id`, a large one as soon as no other makes progress.
    fn begin<R>(&self, id: &ResultId, upload: &Upload<'_, R>) -> Result<(), Refusal> {
        const CHECK_INTERVAL: Duration = Duration::from_millis(100);
        // A short file costs too little to wait for another upload; a short archive may unpack to much.
        let alone =
            upload.kind == Some(GZIP) || upload.length.is_none_or(|length| length > limits::SMALL_BODY_BYTES);
        let deadline = Instant::now() + TURN_TIMEOUT;
        let mut state = self.lock();
        loop {
            match state.begin(id, alone.then_some(&upload.meter)) {
                Err(Taken::Uploading) if Instant::now() < deadline => {
                    let waited = self.free.wait_timeout(state, CHECK_INTERVAL);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Err(taken) => return Err(taken.into()),
                Ok(()) => {
                    state.attempted(id, &upload.sender);
                    return Ok(());
                }
            }
        }
    }

    fn take_in<R: Read>(
        &self,
        id: &ResultId,
        upload: Upload<'_, R>,
        place: &Path,
        claim: &Claim<'_>,
    ) -> Result<Sha256, Refusal> {
        let max = if upload.is_error { limits::MAX_REPORT_BYTES } else { self.limits.results.bytes };
        let announced = upload.length.unwrap_or(0);
        let report_length = upload.length.unwrap_or(u64::MAX).min(limits::MAX_REPORT_BYTES);
        if announced > max {
            return Err(LimitExceeded::Sent(max).into());
        }
        // The folder itself counts, and an upload that certainly does not fit is not begun.
        let fits = claim.would_take(Room { bytes: announced, inodes: 0 }) && claim.take(Room::file(0));
        if let Some(limit) = claim.hit().filter(|_| !fits) {
            return Err(limit.into());
        }
        make_dir(place, 0o755)?;
        // Held until the report is parsed and written.
        let memory = if upload.is_error { self.memory(id, report_length)? } else { None };
        let mut intake = Intake::new(upload.body, max, claim);
        let stored = if upload.is_error {
            read_all(&mut intake).map(|body| Some((body, memory)))
        } else {
            let described = (upload.kind, upload.disposition, report_length);
            self.store_body(id, &mut intake, described, (place, &upload.meter, claim))
        };
        match (intake.trouble(), claim.hit()) {
            (Some(Trouble::NoRoom) | None, Some(limit)) if stored.is_err() => return Err(limit.into()),
            (Some(trouble), _) => return Err(refusal(trouble, max)),
            (None, _) => {}
        }
        let report = stored?;
        let size = intake.taken();
        let digest = intake.digest();
        if upload.digest.is_some_and(|announced| announced != digest) {
            return Err(Refusal::Digest);
        }
        match report {
            // A time limit says more about the run than what the worker says after it.
            Some(_) if self.lock().timed_out(id) => {}
            Some((body, _memory)) => {
                let (body, error) = report::parse(body);
                // Only the aggregator decides that a time limit is over.
                let skipped = FailureKind::of(&error) == FailureKind::Skipped;
                let kind = if skipped { FailureKind::Skipped } else { FailureKind::Failed };
                let failed = Standing::Failed { error, kind };
                // The same report again is not written again, and different ones are capped.
                if self.lock().standing(id) != Some(&failed) {
                    if !self.lock().may_report(id) {
                        return Err(Refusal::Duplicate);
                    }
                    self.put_error(id, &body, failed)?;
                }
            }
            None => {
                let mut receipt = self.lock().receipt_of(id, &upload.sender, size, &digest);
                receipt.unpacked = upload.kind == Some(GZIP);
                self.put_result(id, place, receipt)?;
                claim.keep();
            }
        }
        Ok(digest)
    }

    /// Writes a body of this type and disposition into the folder `place`, or returns it if it is an error report.
    fn store_body<R: Read>(
        &self,
        id: &ResultId,
        intake: &mut Intake<'_, R>,
        (kind, disposition, report_length): (Option<&str>, Option<&str>, u64),
        (place, meter, claim): (&Path, &Meter, &Claim<'_>),
    ) -> Result<Option<Report>, Refusal> {
        // Older workers report errors as nameless bodies of the type that the result would have had.
        let mut start = Vec::new();
        if disposition.is_none() {
            let memory;
            (start, memory) = self.start_of(id, intake, report_length)?;
            if report::is_bare(&start) {
                return Ok(Some((start, memory)));
            }
        }
        if kind == Some(GZIP) {
            let Results { entries, unpacked_bytes: total, .. } = self.limits.results;
            let limits = archive::Limits { entries, total, file: total };
            // A few bytes of a body can unpack to much, even after another upload has taken over.
            let room = |bytes| !meter.evicted() && claim.take(Room::file(bytes));
            let body = start.chain(intake.by_ref());
            let skipped = archive::unpack_within(body, place, &limits, room)?.skipped;
            if skipped > 0 {
                log::warn!("`{id}`: {skipped} entries of its archive were skipped");
            }
            // The archive may end before the body does.
            io::copy(intake, &mut io::sink()).map_err(anyhow::Error::from)?;
            sync_tree(place)?;
        } else {
            write_new(&place.join(file_name(disposition)), |file| {
                file.write_all(&start)?;
                intake.copy_to(file, start.len() as u64)
            })?;
        }
        Ok(None)
    }

    /// Reads just enough to recognise an error report: all of one.
    fn start_of<R: Read>(
        &self,
        id: &ResultId,
        intake: &mut Intake<'_, R>,
        length: u64,
    ) -> Result<Report, Refusal> {
        let mut start = Vec::new();
        let mut read = |max: u64, start: &mut Vec<u8>| {
            intake.by_ref().take(max).read_to_end(start).map_err(anyhow::Error::from)
        };
        read(report::REPORT_START_BYTES, &mut start)?;
        if !report::may_be_bare(&start) {
            return Ok((start, None));
        }
        let memory = self.memory(id, length)?;
        read(limits::MAX_REPORT_BYTES - report::REPORT_START_BYTES, &mut start)?;
        Ok((start, memory))
    }

    /// Renames the folder `place` to where the result of `id` belongs, unless another upload was faster.
    fn put_result(&self, id: &ResultId, place: &Path, receipt: Receipt) -> Result<(), Refusal> {
        let busy = self.claim(id)?;
        let (target, errors) = (self.results(id), self.errors(id));
        remove(&target)?;
        let record = Record::Accepted { id: id.clone(), receipt: receipt.clone() };
        let kept =
            put_in_place(place, &target).and_then(|()| self.journal.append(&record).context("journal"));
        if let Err(error) = kept {
            // Not acknowledged, so it must not look as if it were.
            remove(&target)?;
            return Err(error.into());
        }
        let identity = Some(receipt.sender.identity.clone()).filter(|identity| !identity.is_empty());
        let size = receipt.size;
        self.lock().keep(id, receipt);
        busy.settle(Standing::Accepted { identity });
        log::info!("`{id}`: received its result, {size} bytes");
        // Only now: until the result is certain the error stands.
        if let Err(error) = remove(&errors) {
            log::warn!("`{id}`: {error:#}");
        }
        Ok(())
    }

    /// Puts the report `body` in the place of the result of `id`, unless a real one is there.
    fn put_error(&self, id: &ResultId, body: &[u8], failed: Standing) -> Result<(), Refusal> {
        let Standing::Failed { error, kind } = &failed else { return Ok(()) };
        let place = self.new_place();
        let busy = self.claim(id)?;
        make_dir(&place, 0o755)?;
        write_new(&place.join(layout::ERROR_FILE), |file| file.write_all(body))?;
        let errors = self.errors(id);
        remove(&errors)?;
        put_in_place(&place, &errors)?;
        let at = clock::now();
        let record = Record::Failed { id: id.clone(), error: error.clone(), kind: *kind, at: at.clone() };
        self.journal.append(&record).context("journal")?;
        self.lock().failed_at(id, at);
        log::warn!("`{id}` failed: {error}");
        busy.settle(failed);
        Ok(())
    }

    /// Waits until nobody else puts files in place for `id`, and is then the one who does.
    fn claim<'a>(&'a self, id: &'a ResultId) -> Result<SlotGuard<'a>, Refusal> {
        let mut state = self.lock();
        loop {
            match state.take(id) {
                Ok(()) => return Ok(SlotGuard { store: self, id, settled: false }),
                // Renames and a line of journal: this is over in moments.
                Err(Taken::Busy) => state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner),
                Err(taken) => return Err(taken.into()),
            }
        }
    }

    /// Notes in the state why an upload was not taken, if that is not just about the connection.
    fn note(&self, id: &ResultId, refusal: &Refusal) {
        match refusal {
            Refusal::Unexpected | Refusal::Duplicate | Refusal::Cut(_) | Refusal::Stalled => {}
            // A retry would be as large.
            Refusal::Limit(limit) if limit.is_final() => {
                self.record(&Failure::new(id.clone(), refusal.to_string()));
            }
            // Nothing is wrong with the body.
            Refusal::Limit(limit @ (LimitExceeded::Uploading | LimitExceeded::Memory)) => {
                self.lock().limited(id, limit);
            }
            _ => self.lock().refuse(id, refusal.to_string(), Instant::now()),
        }
    }

    /// Brings the state to what journal and disk say together. A result that is in place but not journalled is
    /// whole, since it was renamed there; its sender was not told, and will be told so when it tries again.
    fn resume(&self, records: Vec<Record>) -> anyhow::Result<()> {
        let (mut failed, mut accepted) = (HashMap::new(), HashMap::new());
        for record in records {
            match record {
                Record::Failed { id, error, kind, at } => {
                    self.lock().failed_at(&id, at);
                    failed.insert(id, Standing::Failed { error, kind });
                }
                Record::Accepted { id, receipt } => {
                    let identity = receipt.sender.identity.clone();
                    self.lock().keep(&id, receipt);
                    accepted.insert(id, Some(identity).filter(|identity| !identity.is_empty()));
                }
                Record::Started { plugin, at } => self.lock().started(&plugin, &at),
                Record::Expected(_) => {}
            }
        }
        let ids: Vec<ResultId> = self.lock().ids().cloned().collect();
        for id in ids {
            let (results, errors) = (self.results(&id), self.errors(&id));
            if results.is_dir() {
                remove(&errors)?;
                let identity = accepted.remove(&id).flatten();
                self.lock().settle(&id, Standing::Accepted { identity });
            } else if let (Some(standing), true) = (failed.remove(&id), errors.is_dir()) {
                self.lock().settle(&id, standing);
            } else {
                if accepted.contains_key(&id) {
                    log::error!(
                        "`{id}` had arrived, but `{}` no longer exists; waiting for it again",
                        results.display()
                    );
                    self.lock().lost(&id);
                }
                remove(&errors)?;
            }
        }
        let state = self.lock();
        let settled = state.ids().filter(|id| state.standing(id).is_some_and(Standing::settled));
        settled.for_each(|id| self.disk.done(id));
        Ok(())
    }

    /// Where a folder can be made before it is put in place; nobody else gets this one.
    fn new_place(&self) -> PathBuf {
        self.incoming.join(self.number.fetch_add(1, Ordering::Relaxed).to_string())
    }

    pub(super) fn results(&self, id: &ResultId) -> PathBuf {
        self.plugins.join(&id.plugin).join(layout::RESULTS).join(&id.node)
    }

    fn errors(&self, id: &ResultId) -> PathBuf {
        self.plugins.join(&id.plugin).join(layout::ERRORS).join(&id.node)
    }
}

/// An error report, with the permit for its memory.
type Report = (Vec<u8>, Option<Permit<String>>);

/// The right to change the files of one result; given back on every way out.
struct SlotGuard<'a> {
    store: &'a Store,
    id: &'a ResultId,
    settled: bool,
}

impl SlotGuard<'_> {
    fn settle(mut self, standing: Standing) {
        self.settled = true;
        self.store.lock().settle(self.id, standing);
        self.store.disk.done(self.id);
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.store.lock().release(self.id);
        }
        self.store.free.notify_all();
    }
}

fn read_all<R: Read>(intake: &mut Intake<'_, R>) -> Result<Vec<u8>, Refusal> {
    let mut body = Vec::new();
    intake.read_to_end(&mut body).map_err(anyhow::Error::from)?;
    Ok(body)
}

fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && text.len() <= 255 && !text.contains(['/', '\\', '\0'])
}
