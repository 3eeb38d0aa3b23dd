//! The results of a run on the disk: written as streams, renamed into place whole, remembered over
//! a crash.
//!
//! A result is in `plugins/<plugin>/results/<node>/`, an error in its place in
//! `plugins/<plugin>/errors/<node>/error.json`. Both are written to a folder beside the run
//! directory, on the same disk, and renamed. Everything else that must survive a crash (journal,
//! authority, partial bodies) is in the folder `<run directory>.state`, which no archive contains.
//!
//! `body` reads an upload; `disk` shares the disk among results; `journal` has a record of each
//! change. Nothing is written or read under the lock of the state. Knows neither HTTP nor
//! permissions.

mod body;
mod disk;
pub(super) mod journal;

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};

use crate::aggregator::limits::{self, Refusal};
use crate::aggregator::run::{Arrived, Receipt, Record, ResultState, State};
use base::at::{At as _, entries};
use base::quota::{Permit, Quota};
use base::{archive, clock, hex, sys, visible};
use body::BodyReader;
pub(super) use body::{Sha256, Upload};
use client::protocol::{DEFAULT_FILE_NAME, Failure, FailureKind, Lost, ResultId};
use disk::{Claim, Disk, Space};
use http::Meter;
use journal::{Journal, Replayed};
use model::config::{self, ResultLimits};
use model::layout;

/// How long an upload waits for another one of the same result.
const TURN_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum bytes of the list of finished tests of a plugin; the names of all tests of Kubernetes
/// have two MiB.
const MAX_FINISHED_BYTES: u64 = 4 << 20;

/// The store of one run.
pub struct Store {
    plugins: PathBuf,
    incoming: PathBuf,
    journal: Journal,
    pub limits: config::Limits,
    disk: Disk,
    state: Mutex<State>,
    /// Notified when files are in place, or an upload has ended.
    free: Condvar,
    number: AtomicU64,
    memory: Quota<String>,
}

impl Store {
    /// Opens the store of the run in `run_dir`: a new one that expects `expected`, or the one that
    /// was begun there.
    pub fn open(run_dir: &Path, expected: &[ResultId], limits: config::Limits) -> Result<Self> {
        for id in expected {
            ensure!(
                is_name(&id.plugin) && is_name(&id.node),
                "`{id}` cannot be expected: plugin and node must be usable as folder names"
            );
        }
        let (plugins, state_dir) = (run_dir.join(layout::PLUGINS), layout::state_dir(run_dir));
        make_dir(&plugins, 0o755)?;
        make_dir(&state_dir, 0o700)?;
        // First, because the folder belongs to the process that has locked the journal.
        let (journal, replayed) = Journal::open(&state_dir.join(layout::JOURNAL))?;
        // Uploads that a crash has interrupted are sent again.
        let incoming = state_dir.join(layout::INCOMING);
        remove(&incoming)?;
        make_dir(&incoming, 0o700)?;
        let expected_before = replayed.expected();
        let missing = missing(&replayed, &expected_before, expected);
        if !missing.is_empty() {
            journal
                .append(&Record::Expected(missing.clone()))
                .context("journal")?;
        } else if expected_before != expected {
            let count = expected_before.len();
            log::warn!("the run continues with the {count} results that it expected before");
        }
        let ids = [missing, expected_before].concat();
        let disk = Disk::open(&plugins, &ids, &limits);
        let store = Self {
            plugins,
            incoming,
            journal,
            disk,
            state: Mutex::new(State::new(ids, limits.progress.kept_bytes)),
            free: Condvar::new(),
            number: AtomicU64::new(0),
            memory: limits::body_memory(&limits),
            limits,
        };
        store.resume(replayed.records)?;
        Ok(store)
    }

    /// The state; not to be held during I/O.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before anything that could panic.
        base::lock(&self.state)
    }

    /// Memory for a body of `bytes` for `id`; small ones need no permit.
    pub fn memory(&self, id: &ResultId, bytes: u64) -> Result<Option<Permit<String>>, Refusal> {
        if bytes <= limits::SMALL_BODY_BYTES {
            return Ok(None);
        }
        self.memory
            .take(&id.plugin, bytes)
            .map(Some)
            .ok_or(Refusal::Memory)
    }

    /// Stores a body. Once this returns its digest, the result survives a crash.
    pub fn accept<R: Read + Send>(
        &self,
        id: &ResultId,
        upload: Upload<R>,
    ) -> Result<Sha256, Refusal> {
        let meter = Arc::clone(&upload.meter);
        let accepted = self.begin(id, &upload).and_then(|()| {
            let place = self.new_place();
            // Released after the files are removed.
            let claim = Claim::new((!upload.is_error).then_some(&self.disk), id);
            let accepted = self.store(id, upload, &place, &claim);
            remove_if_possible(&place);
            let mut state = self.lock();
            state.end(id, &meter);
            self.free.notify_all();
            match accepted {
                // Not in favour of another upload.
                Err(Refusal::Uploading) if state.is_closed() => Err(Refusal::Ended),
                accepted => accepted,
            }
        });
        if let Err(refusal) = &accepted {
            self.note(id, refusal);
        }
        accepted
    }

    /// Expects one more result, of a node that has joined.
    pub fn expect(&self, id: &ResultId) -> Result<()> {
        ensure!(
            is_name(&id.node),
            "its node's name cannot be the name of a folder"
        );
        if self.lock().result(id).is_none() {
            let record = Record::Expected(vec![id.clone()]);
            // First the journal: a result is acknowledged only if a restart would know it.
            self.journal.append(&record).context("journal")?;
            self.disk.expect(id);
            self.lock().apply(record, Instant::now());
        }
        Ok(())
    }

    pub fn run_dir(&self) -> &Path {
        self.plugins.parent().unwrap_or(&self.plugins)
    }

    /// Notes that the workers of `plugin` are started: from now on their silence counts.
    pub fn launched(&self, plugin: &str) {
        let what = format_args!("the start of plugin `{plugin}`");
        self.change(
            what,
            Record::Started {
                plugin: plugin.to_owned(),
                at: clock::now(),
            },
        );
    }

    /// Makes a change without which a restarted aggregator could continue.
    fn change(&self, what: fmt::Arguments<'_>, record: Record) {
        if let Err(error) = self.journal.append(&record) {
            log::warn!("the journal lacks {what}: {error}");
        }
        self.lock().apply(record, Instant::now());
    }

    /// Records a failure of one result that is not settled.
    pub fn record(&self, failure: &Failure) {
        let Failure { id, kind, .. } = failure;
        if !self.lock().is_outstanding(id) {
            log::info!(
                "`{id}` already has its result or expects none; ignored: {}",
                failure.error()
            );
            return;
        }
        let body = serde_json::Value::from(failure.report.clone()).to_string();
        let error = visible::cut_before_advice(failure.error(), limits::MAX_SENTENCE_BYTES);
        match self.put_error(id, &error, *kind, body.as_bytes()) {
            // A result may have arrived meanwhile.
            Ok(()) | Err(Refusal::Duplicate | Refusal::Unexpected) => {}
            Err(refusal) => {
                log::error!("`{id}`: its error could not be stored: {refusal}");
                // It counts all the same, or the run would wait forever.
                if let Ok(slot) = self.acquire(id) {
                    slot.settle(failed(id, &error, *kind));
                }
            }
        }
    }

    /// Records an end from outside, such as a time limit, after the last known problem of the
    /// result that it ends.
    pub fn record_end(&self, failure: Failure) {
        let problem = self.lock().problem(&failure.id);
        let failure = match problem {
            Some(problem) => failure.because(&problem),
            None => failure,
        };
        self.record(&failure);
    }

    /// Records such an end of every outstanding result of a plugin: `describe` makes the failure of
    /// each.
    pub fn end_plugin(&self, plugin: &str, describe: impl Fn(ResultId) -> Failure) {
        let outstanding: Vec<ResultId> = self
            .lock()
            .outstanding()
            .filter(|id| id.plugin == plugin)
            .cloned()
            .collect();
        for id in outstanding {
            self.record_end(describe(id));
        }
    }

    /// Records the loss of the pod of `id`.
    pub fn record_loss(&self, id: &ResultId, lost: Lost) {
        log::warn!("`{id}`: {lost}");
        self.change(
            format_args!("a lost pod of `{id}`"),
            Record::Lost {
                id: id.clone(),
                lost,
            },
        );
    }

    /// Turns refused uploads into failures that were not retried within `window`, or were retried
    /// for too long.
    pub fn give_up(&self, window: Duration) {
        let given_up = self.lock().given_up(window, Instant::now());
        for (id, reason) in given_up {
            self.record(&Failure::new(
                id,
                format!("the result could not be stored: {reason}"),
            ));
        }
    }

    /// Turns workers that sent heartbeats, and nothing for `limit`, into failures.
    pub fn give_up_silent(&self, limit: Duration) {
        let silent = self.lock().gone_silent(limit, Instant::now());
        for (id, quiet) in silent {
            let since = SystemTime::now()
                .checked_sub(quiet)
                .map(clock::rfc3339)
                .unwrap_or_default();
            let since = since.get(11..19).unwrap_or_default();
            let place = if id.is_global() {
                String::new()
            } else {
                format!(" on `{}`", id.node)
            };
            let why = "look at its pod, its node and the network between them";
            self.record_end(Failure::new(
                id,
                format!("worker{place} stopped reporting at {since} UTC: {why}"),
            ));
        }
    }

    /// Appends the test that the message of an update reports as finished to the list of its
    /// plugin, from which another run can resume. Best effort.
    pub fn note_finished(&self, id: &ResultId, message: &str) {
        if !id.is_global() || layout::ran_test(message).is_none() || message.contains('\n') {
            return;
        }
        let path = self.run_dir().join(layout::ran(&id.plugin));
        let append = || -> io::Result<()> {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            let mut file = File::options().create(true).append(true).open(&path)?;
            if file.metadata()?.len() < MAX_FINISHED_BYTES {
                // One write, since several threads append.
                file.write_all(format!("{message}\n").as_bytes())?;
            }
            Ok(())
        };
        if let Err(error) = append() {
            log::debug!("`{}`: {error}", path.display());
        }
    }

    /// Compares the files of all results with what arrived, once no more arrive. One that differs,
    /// or cannot be read, becomes a failure; returns how many did.
    pub fn verify(&self) -> usize {
        let arrived: Vec<(ResultId, Arrived)> = self.lock().arrived().collect();
        let mut failed = 0;
        for (id, digest) in arrived {
            let folder = self.results(&id);
            // A read error may be transient.
            if let Err(error) = verify(&folder, &digest).or_else(|_| verify(&folder, &digest)) {
                failed += 1;
                let why = format!(
                    "the aggregator's disk does not hold the result that arrived: {error:#}"
                );
                self.fail_accepted(&id, &why);
            }
        }
        failed
    }

    /// Notes that the file or folder `path` was removed from the run, which fails the result that
    /// it was part of. A folder of a result that is empty now is removed, too.
    pub fn lose_file(&self, path: &Path, why: &str) {
        let ids: Vec<ResultId> = self.lock().ids().cloned().collect();
        let Some(id) = ids
            .into_iter()
            .find(|id| path.starts_with(self.results(id)))
        else {
            return;
        };
        let folders = path
            .ancestors()
            .skip(1)
            .take_while(|folder| folder.starts_with(self.results(&id)));
        // The first that is not empty ends it.
        let _ = folders.map(fs::remove_dir).find(Result::is_err);
        self.fail_accepted(&id, why);
    }

    /// Replaces a result that has arrived by a failure.
    fn fail_accepted(&self, id: &ResultId, why: &str) {
        {
            let mut state = self.lock();
            if state.result(id) != Some(&ResultState::Accepted) {
                return;
            }
            state.settle(id, ResultState::Awaited);
        }
        self.record(&Failure::new(id.clone(), why));
    }

    /// Ends all uploads under way, and refuses more. One whose body has arrived is still stored.
    pub fn close(&self) {
        self.lock().close();
    }

    /// Removes what only a restart needs. The results stay.
    pub fn discard_state(&self) {
        self.incoming
            .parent()
            .into_iter()
            .for_each(remove_if_possible);
    }

    /// Begins an upload of `id`, a large one as soon as no other makes progress.
    fn begin<R>(&self, id: &ResultId, upload: &Upload<R>) -> Result<(), Refusal> {
        const CHECK_INTERVAL: Duration = Duration::from_millis(100);
        // A small file need not wait for another upload; a small archive may unpack to much.
        let alone = upload.is_archive
            || upload
                .length
                .is_none_or(|length| length > limits::SMALL_BODY_BYTES);
        let deadline = Instant::now() + TURN_TIMEOUT;
        let mut state = self.lock();
        loop {
            match state.begin(id, &upload.sender, &upload.meter, alone) {
                Err(Refusal::Uploading) if Instant::now() < deadline => {
                    let waited = self.free.wait_timeout(state, CHECK_INTERVAL);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                begun => return begun,
            }
        }
    }

    /// Reads a body into the folder `place`, and puts it, or the error that it reports, in place.
    fn store<R: Read + Send>(
        &self,
        id: &ResultId,
        upload: Upload<R>,
        place: &Path,
        claim: &Claim<'_>,
    ) -> Result<Sha256, Refusal> {
        let Upload {
            body,
            length,
            is_archive,
            is_error,
            name,
            digest: announced,
            sender,
            meter,
        } = upload;
        let max = if is_error {
            limits::MAX_REPORT_BYTES
        } else {
            self.limits.results.bytes
        };
        if length.is_some_and(|length| length > max) {
            return Err(Refusal::sent(max));
        }
        // An upload that certainly does not fit is not begun.
        claim.check(Space::bytes(length.unwrap_or(0)))?;
        claim.take(Space::file(0))?;
        make_dir(place, 0o755)?;
        let file = place.join(name.as_deref().unwrap_or(DEFAULT_FILE_NAME));
        let (mut reader, mut may_be_report) = (BodyReader::new(body, max), is_error);
        let mut unpacked = None;
        let mut read = || {
            let mut start = Vec::new();
            // Older workers send reports without a name, and as archives.
            if name.is_none() {
                reader
                    .by_ref()
                    .take(1)
                    .read_to_end(&mut start)
                    .map_err(anyhow::Error::from)?;
                may_be_report |= start == b"{";
            }
            if is_archive && !may_be_report {
                let body = start.chain(reader.by_ref());
                unpacked = Some(unpack(
                    id,
                    body,
                    place,
                    &self.limits.results,
                    &meter,
                    claim,
                )?);
                // The archive may end before the body does.
                io::copy(&mut reader, &mut io::sink()).map_err(anyhow::Error::from)?;
                return Ok(sys::sync_tree(place).at("cannot sync", place)?);
            }
            Ok(write_new(&file, |out| reader.copy_to(&start, out, claim))?)
        };
        read().map_err(|error: Refusal| reader.refusal().unwrap_or(error))?;
        let (size, digest) = reader.finish();
        if announced.is_some_and(|announced| announced != digest) {
            return Err(Refusal::Digest);
        }
        if may_be_report && size <= limits::MAX_REPORT_BYTES {
            // Held until the report is parsed and written, which takes more memory than the body.
            let _memory = self.memory(id, size)?;
            let body = fs::read(&file).at("cannot read", &file)?;
            if is_error || body::is_bare_report(&body) {
                return self.put_report(id, body).map(|()| digest);
            }
        }
        let earlier_receipt = self.lock().receipt(id).cloned().unwrap_or_default();
        let (arrived, sha256) = (Some(clock::now()), hex(digest));
        let files = unpacked.as_ref().map(|unpacked| unpacked.digest.text());
        let dropped = unpacked
            .map(|unpacked| unpacked.dropped)
            .unwrap_or_default();
        let unpacked = files.is_some();
        let receipt = Receipt {
            arrived,
            size,
            sha256,
            unpacked,
            files,
            dropped,
            sender,
            ..earlier_receipt
        };
        self.put_result(id, place, receipt)?;
        claim.keep();
        Ok(digest)
    }

    /// Renames the folder `place` to where the result of `id` belongs, unless another upload was
    /// faster.
    fn put_result(&self, id: &ResultId, place: &Path, receipt: Receipt) -> Result<(), Refusal> {
        let slot = self.acquire(id)?;
        let (target, errors) = (self.results(id), self.errors(id));
        self.discard(&target)?;
        let size = receipt.size;
        let record = Record::Accepted {
            id: id.clone(),
            receipt,
        };
        let stored = put_in_place(place, &target)
            .and_then(|()| self.journal.append(&record).context("journal"));
        if let Err(error) = stored {
            // The upload is not acknowledged, so its files must not be found after a restart.
            self.discard(&target)?;
            return Err(error.into());
        }
        log::info!("`{id}`: received its result, {size} bytes");
        slot.settle(record);
        // Not before the result is certain.
        if let Err(error) = self.discard(&errors) {
            log::warn!("{error:#}");
        }
        Ok(())
    }

    /// Puts a worker's report in the place of the result of `id`.
    fn put_report(&self, id: &ResultId, body: Vec<u8>) -> Result<(), Refusal> {
        let before = self.lock().result(id).cloned();
        // A time limit says more about the run than what the worker says after it.
        if matches!(
            before,
            Some(ResultState::Failed {
                kind: FailureKind::TimedOut,
                ..
            })
        ) {
            return Ok(());
        }
        let (body, error) = body::report(body);
        // Only the aggregator decides that a time limit is over.
        let skipped = FailureKind::of(&error) == FailureKind::Skipped;
        let kind = if skipped {
            FailureKind::Skipped
        } else {
            FailureKind::Failed
        };
        let error = visible::cut_before_advice(&error, limits::MAX_SENTENCE_BYTES);
        // The same report is not written again, and the number of different ones is limited.
        if before
            == Some(ResultState::Failed {
                error: error.clone(),
                kind,
            })
        {
            return Ok(());
        }
        if !self.lock().may_report(id) {
            return Err(Refusal::Duplicate);
        }
        self.put_error(id, &error, kind, &body)
    }

    /// Puts the report `body` in the place of the result of `id`, unless the result has arrived.
    fn put_error(
        &self,
        id: &ResultId,
        error: &str,
        kind: FailureKind,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let place = self.new_place();
        let slot = self.acquire(id)?;
        make_dir(&place, 0o755)?;
        write_new(&place.join(layout::ERROR_FILE), |file| file.write_all(body))?;
        let errors = self.errors(id);
        self.discard(&errors)?;
        put_in_place(&place, &errors)?;
        let record = failed(id, error, kind);
        self.journal.append(&record).context("journal")?;
        log::warn!("`{id}` failed: {error}");
        slot.settle(record);
        Ok(())
    }

    /// Waits for the right to change the files of `id`.
    fn acquire<'a>(&'a self, id: &'a ResultId) -> Result<SlotGuard<'a>, Refusal> {
        let mut state = self.lock();
        // The other thread only renames and appends to the journal, which takes moments.
        while !state.acquire(id)? {
            state = self
                .free
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(SlotGuard {
            store: self,
            id,
            settled: false,
        })
    }

    /// Notes a refusal in the state, unless it concerns the connection alone.
    fn note(&self, id: &ResultId, refusal: &Refusal) {
        match refusal {
            Refusal::Unexpected | Refusal::Duplicate | Refusal::Ended => {}
            Refusal::Cut(_) | Refusal::Stalled => {}
            // The body is not at fault.
            Refusal::Uploading | Refusal::Memory => self.lock().limited(id, refusal),
            // A retry would be as large.
            _ if refusal.code() == 413 => {
                self.record(&Failure::new(id.clone(), refusal.to_string()));
            }
            _ => self.lock().refuse(id, refusal.to_string(), Instant::now()),
        }
    }

    /// Restores the state from journal and disk. A result that is in place but not in the journal
    /// is complete, since it was renamed; its sender had no response, and will retry.
    fn resume(&self, records: Vec<Record>) -> Result<()> {
        let mut state = self.lock();
        for record in records {
            state.apply(record, Instant::now());
        }
        let ids: Vec<ResultId> = state.ids().cloned().collect();
        for id in &ids {
            let (results, errors) = (self.results(id), self.errors(id));
            let recorded = state.result(id).cloned();
            if results.is_dir() {
                self.discard(&errors)?;
                state.settle(id, ResultState::Accepted);
            } else if !(matches!(recorded, Some(ResultState::Failed { .. })) && errors.is_dir()) {
                self.discard(&errors)?;
                state.settle(id, ResultState::Awaited);
                if recorded == Some(ResultState::Accepted) {
                    log::error!(
                        "`{id}` had arrived, but `{}` no longer exists; waiting for it again",
                        results.display()
                    );
                    if let Some(receipt) = state.receipt(id) {
                        *receipt = Receipt {
                            started: receipt.started.take(),
                            ..Receipt::default()
                        };
                    }
                }
            }
            if state.is_settled(id) {
                self.disk.done(id);
            }
        }
        Ok(())
    }

    /// Removes a folder or file of the run, if it exists, so that no crash leaves a part of it:
    /// what is found in place after a restart counts as complete.
    pub fn discard(&self, path: &Path) -> Result<()> {
        let aside = self.new_place();
        let renamed = base::if_exists(fs::rename(path, &aside));
        if renamed.at("cannot remove", path)?.is_none() {
            return Ok(());
        }
        // Before anything in it is removed, or a power cut could undo the renaming alone.
        let synced = sys::sync_folder(path.parent().unwrap_or(path));
        // What remains is removed at the next start.
        if let Err(error) = synced.and_then(|()| remove_any(&aside)) {
            log::debug!(
                "`{}` remains as `{}`: {error}",
                path.display(),
                aside.display()
            );
        }
        Ok(())
    }

    /// A new path for a folder that is put in place later.
    fn new_place(&self) -> PathBuf {
        self.incoming
            .join(self.number.fetch_add(1, Ordering::Relaxed).to_string())
    }

    pub fn results(&self, id: &ResultId) -> PathBuf {
        self.plugins
            .join(&id.plugin)
            .join(layout::RESULTS)
            .join(&id.node)
    }

    fn errors(&self, id: &ResultId) -> PathBuf {
        self.plugins
            .join(&id.plugin)
            .join(layout::ERRORS)
            .join(&id.node)
    }
}

/// The right to change the files of one result, released when it is dropped.
struct SlotGuard<'a> {
    store: &'a Store,
    id: &'a ResultId,
    settled: bool,
}

impl SlotGuard<'_> {
    fn settle(mut self, record: Record) {
        self.settled = true;
        self.store.lock().apply(record, Instant::now());
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

/// Those of `expected` that the journal lacks: all in a new run, and some if its first record,
/// which has them, is damaged. Nodes that joined later have records of their own.
fn missing(replayed: &Replayed, known: &[ResultId], expected: &[ResultId]) -> Vec<ResultId> {
    if !known.is_empty() && !replayed.lacks_start {
        return Vec::new();
    }
    // A linear search for each of thousands of results would be noticed.
    let known_ids: HashSet<&ResultId> = known.iter().collect();
    let is_missing = |id: &&ResultId| !known_ids.contains(id);
    expected.iter().filter(is_missing).cloned().collect()
}

fn failed(id: &ResultId, error: &str, kind: FailureKind) -> Record {
    Record::Failed {
        id: id.clone(),
        error: error.to_owned(),
        kind,
        at: clock::now(),
    }
}

/// Compares the files of a result.
fn verify(folder: &Path, digest: &Arrived) -> Result<()> {
    match digest {
        Arrived::File(sha256) => verify_file(folder, sha256),
        Arrived::Folder(files) => {
            let digest =
                archive::TreeDigest::parse(files).context("its digest was not recorded")?;
            ensure!(
                digest.matches(folder)?,
                "its files are not those that were unpacked"
            );
            Ok(())
        }
    }
}

fn verify_file(folder: &Path, sha256: &str) -> Result<()> {
    let files = entries(folder)?;
    ensure!(files.len() == 1, "it has {} files", files.len());
    let file = files[0].path();
    let actual = hex(base::file_sha256(&file).at("cannot read", &file)?);
    ensure!(actual == sha256, "SHA-256 {actual} instead of {sha256}");
    Ok(())
}

/// Unpacks the archive `body` of `id` into the folder `place`.
fn unpack(
    id: &ResultId,
    body: impl Read,
    place: &Path,
    limits: &ResultLimits,
    meter: &Meter,
    claim: &Claim<'_>,
) -> Result<archive::Unpacked, Refusal> {
    let total = limits.unpacked_bytes;
    let limits = archive::Limits {
        entries: limits.entries,
        total,
        file: total,
    };
    let exceeded = OnceCell::new();
    let may_write = |bytes| {
        let claimed = claim
            .take(Space::file(bytes))
            .map_err(|limit| exceeded.set(limit));
        // A few bytes can unpack to much, even after another upload has replaced this one.
        claimed.is_ok() && !meter.evicted()
    };
    let unpacked = archive::unpack_within(body, place, &limits, may_write);
    if let Some(limit) = exceeded.into_inner() {
        return Err(limit);
    }
    let unpacked = unpacked?;
    if !unpacked.dropped.is_empty() {
        log::warn!("`{id}`: {}", unpacked.dropped);
    }
    Ok(unpacked)
}

fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && text.len() <= 255 && !text.contains(['/', '\\', '\0'])
}

/// Makes a folder and those above it, unless they are there.
fn make_dir(path: &Path, mode: u32) -> Result<()> {
    let made = sys::dir_builder(mode).recursive(true).create(path);
    made.at("cannot create", path)
}

/// Removes a folder and its contents, if it exists.
fn remove(path: &Path) -> Result<()> {
    base::if_exists(fs::remove_dir_all(path))
        .at("cannot remove", path)
        .map(drop)
}

/// Removes a file, or a folder and its contents.
fn remove_any(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

fn remove_if_possible(path: &Path) {
    if let Err(error) = remove(path) {
        log::warn!("{error:#}");
    }
}

/// Renames a folder to a free path, durably.
fn put_in_place(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().unwrap_or(to);
    make_dir(parent, 0o755)?;
    fs::rename(from, to)
        .and_then(|()| sys::sync_folder(parent))
        .with_context(|| format!("cannot rename `{}` to `{}`", from.display(), to.display()))
}

/// Writes a new file durably, in a folder that no other thread writes to.
fn write_new(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let open = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)?;
        write(&mut file)?;
        file.sync_data()?;
        sys::sync_folder(path.parent().unwrap_or(path))
    };
    open().at("cannot write", path)
}
