//! Retrieves the archives of a run: counted, verified, and renamed only when they are complete.
//!
//! The aggregator's container sends them through the API server as one gzip tar. A broken stream resumes where it
//! ended, if the remote program supports that; the original's sends everything again. Memory holds a few pieces of
//! the stream. Threads while reading a stream: one that unpacks it.
//!
//! If the cluster is unreachable or forbids commands in pods, the archive comes from the run's status service.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{anyhow, bail};

use super::authority::Authorities;
use super::download::download;
use super::partial::PartialFile;
use super::received::{ReceivedArchive, archive_name};
use super::seal;
use super::wanted::Retrieval;
use super::{IDLE_LIMIT, SILENCE_TIMEOUT, state};
use crate::backplane::{MAX_SIGNATURE_BYTES, MAX_STATEMENT_BYTES, Seal};
use crate::causes;
use crate::names::{AGGREGATOR_CONTAINER, ANNOTATION_STATUS, RUNS_DIR, SONOBUOY};
use crate::{layout, status};
use base::archive::{self, Gunzip, Kind, Limits, Reader};
use base::at::At as _;
use base::kube;
use base::retry::Attempts;
use base::stop::Stop;
use base::visible;

/// Maximum pieces queued for unpacking; the server sends at most 32 KiB per piece.
const MAX_QUEUED_PIECES: usize = 16;
/// A run has one archive; a volume claim may hold those of many runs. The total limit depends on the bytes received.
const LIMITS: Limits = Limits { entries: 1_000, total: u64::MAX, file: u64::MAX };
/// Maximum ratio of unpacked to received bytes, beyond an initial allowance: archives are compressed already, so a
/// higher one is an attempt to fill the disk.
const MAX_RATIO: u64 = 16;
const MAX_START_BYTES: u64 = 64 << 20;
/// Maximum size of the packed seals of a directory's archives.
const MAX_SEALS_BYTES: u64 = 256 << 10;
/// Maximum complete repetitions, if the stream cannot resume or the content is wrong.
const RESTARTS: u32 = 5;

/// Why nothing was retrieved.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Unknown whether there is a run.
    Unasked(anyhow::Error),
    /// The run has no archive yet.
    NotReady(anyhow::Error),
    /// The transfer failed or is incomplete.
    Transfer(anyhow::Error),
}

/// Why a stream ended early.
enum Cut {
    /// Broken connection; resuming may help.
    Line(String),
    /// The remote command failed.
    Remote(String),
    /// Commands cannot be run at all.
    Refused(String),
    /// Local failure.
    Here(anyhow::Error),
}

impl Retrieval<'_> {
    /// Fetches all archives; returns their paths in the order of arrival.
    pub(crate) fn fetch(&self, stop: &Stop) -> Result<Vec<PathBuf>, Failure> {
        fs::create_dir_all(self.into).at("cannot create", self.into).map_err(Failure::Transfer)?;
        let Some(client) = self.client else {
            return self.by_service("no cluster is configured", stop);
        };
        let pod = match state::find(client, self.namespace) {
            // The original fails only when it runs the command.
            Ok(pod) => pod.ok_or_else(|| Failure::Transfer(absent(self.namespace)))?,
            Err(error) if error.is_passing() && self.service.is_some() && !self.partial => {
                return self.by_service(&error.to_string(), stop);
            }
            Err(error) => return Err(Failure::Unasked(error.into())),
        };
        // Another directory is read regardless of the run's status.
        let run = pod["metadata"]["annotations"][ANNOTATION_STATUS].as_str();
        let run = run.and_then(|text| status::Run::parse(text).ok());
        let known = promised(run.as_ref()).filter(|_| self.from == RUNS_DIR);
        let pod = pod["metadata"]["name"].as_str().unwrap_or(SONOBUOY);
        if self.partial {
            return self.fetch_partial(client, pod, stop).map(|path| vec![path]);
        }
        let mut attempts = Attempts::new(RESTARTS + 1, stop);
        loop {
            let destination =
                Destination { into: self.into, name: self.name, known: known.as_ref(), force: self.force };
            match self.stream(client, pod, &destination, stop) {
                Ok(landed) if landed.is_empty() => {
                    let finished = run.as_ref().map(finished).unwrap_or_default();
                    let namespace = self.namespace;
                    return Err(Failure::Transfer(anyhow!(
                        "no valid entries in result: the run is not finished{finished}; wait for it with `sonobuoy wait -n {namespace}`, \
                         or fetch what has arrived with `--partial`"
                    )));
                }
                Ok(landed) => return Ok(landed),
                Err(Again::Never(failure)) => return Err(failure),
                Err(Again::Perhaps(error)) => {
                    if !attempts.again(false) {
                        return Err(Failure::Transfer(error));
                    }
                    log::warn!("{error:#}; fetching everything again");
                }
            }
        }
    }

    /// Reads one stream completely, over as many connections as necessary.
    fn stream(
        &self,
        client: &kube::Client,
        pod: &str,
        destination: &Destination<'_>,
        stop: &Stop,
    ) -> Result<Vec<PathBuf>, Again> {
        let (sender, receiver) = sync_channel(MAX_QUEUED_PIECES);
        let (outcome, landed) = std::thread::scope(|scope| {
            let landed = std::thread::Builder::new().name("unpack".into()).spawn_scoped(scope, || {
                let received = AtomicU64::new(0);
                let chunks = Chunks { receiver, piece: Vec::new(), at: 0, received: &received };
                destination.unpack(chunks, &received)
            });
            let landed = match landed {
                Ok(landed) => landed,
                Err(error) => return (Err(Cut::Here(error.into())), Ok(Vec::new())),
            };
            let outcome = self.receive(client, pod, destination.known, &sender, stop);
            // Signals the end to the unpacking thread.
            drop(sender);
            let landed = landed.join().unwrap_or_else(|_| Err(anyhow!("unpacking panicked")));
            (outcome, landed)
        });
        let landed = match outcome {
            Ok(()) => landed.map_err(unless_local)?,
            // The unpacking thread has the cause; the stream only failed to write.
            Err(Cut::Here(error)) => {
                return Err(unless_local(landed.err().unwrap_or(error)));
            }
            Err(Cut::Line(why)) => {
                return Err(Again::Perhaps(anyhow!("the transfer was cut and could not be resumed: {why}")));
            }
            Err(Cut::Remote(why)) => return Err(Again::Never(Failure::NotReady(anyhow!("{why}")))),
            Err(Cut::Refused(why)) => {
                let refused = format!("commands cannot be run in the aggregator's container: {why}");
                return self.by_service(&refused, stop).map_err(Again::Never);
            }
        };
        if landed.is_empty() {
            return Ok(Vec::new());
        }
        let seals = self.seals(client, pod, stop);
        self.settle(landed, &seals).map_err(|error| Again::Never(Failure::Transfer(error)))
    }

    /// Checks the seals of archives, then renames all files, or none if one of them cannot be renamed.
    fn settle(
        &self,
        landed: Vec<ReceivedArchive>,
        seals: &BTreeMap<String, Seal>,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let (mut archives, mut others) = (Vec::new(), Vec::new());
        for ReceivedArchive { name, file } in landed {
            let seal = seals.get(&name);
            self.judge(&name, &file, seal)?;
            if let (Some(seal), true) = (seal, self.keep_seal) {
                for (path, content) in
                    layout::seal(file.path()).iter().zip([&seal.statement, &seal.signature])
                {
                    others.push(file.beside(path, content)?);
                }
            }
            archives.push(file);
        }
        archives.iter().chain(&others).try_for_each(PartialFile::check)?;
        for file in others {
            file.commit()?;
        }
        archives.into_iter().map(PartialFile::commit).collect()
    }

    /// Reports the check of an archive's seal; fails if it is wrong, or missing where one is required.
    fn judge(&self, name: &str, file: &PartialFile, seal: Option<&Seal>) -> anyhow::Result<()> {
        let run = seal.and_then(|seal| seal.statement().ok()).map(|statement| statement.run);
        let run = run.as_deref().or_else(|| layout::run_of_archive(name)).unwrap_or_default();
        let kept = Authorities::of_user().ok();
        let mut certificate = kept.as_ref().and_then(|kept| kept.of(run));
        if let (None, Some(kept)) = (&certificate, &kept)
            && self.client.is_some_and(|client| kept.learn(client, self.namespace))
        {
            certificate = kept.of(run);
        }
        match (seal, certificate) {
            (Some(seal), certificate) => {
                let checked = seal::check(seal, file.size(), &file.sha256(), certificate.as_ref())?;
                if checked.statement.name != name {
                    bail!("`{name}` arrived with the seal of another archive, `{}`", checked.statement.name);
                }
                checked.tell();
            }
            (None, Some(_)) => {
                let path = kept.and_then(|kept| kept.path(run)).unwrap_or_default();
                bail!(
                    "`{name}` arrived without its seal, although its run has an authority; remove `{}` to accept it as it is",
                    path.display()
                );
            }
            (None, None) => log::warn!("`{name}` has no seal, and was not checked against one"),
        }
        Ok(())
    }

    /// Seals of the archives in the container, by name; none if it does not support them.
    fn seals(&self, client: &kube::Client, pod: &str, stop: &Stop) -> BTreeMap<String, Seal> {
        let mut packed = Vec::new();
        let mut sink = |piece: &[u8]| {
            packed.extend_from_slice(piece);
            if packed.len() as u64 > MAX_SEALS_BYTES { Err("more than a seal".to_owned()) } else { Ok(()) }
        };
        let place = (self.namespace, pod, AGGREGATOR_CONTAINER);
        let command = ["/sonobuoy", "splat", self.from, "--seals"];
        let mut seals = BTreeMap::new();
        let read = match client.under(stop).exec(place, &command, Some(SILENCE_TIMEOUT), &mut sink) {
            Ok(exit) if exit.success() => read_seals(&packed, &mut seals),
            Ok(exit) => Err(anyhow!("{}", exit.stderr.trim())),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = read {
            log::debug!("the aggregator provides no seal: {error:#}");
        }
        seals
    }

    /// Downloads the archive from the status service after the cluster `refused` access.
    fn by_service(&self, refused: &str, stop: &Stop) -> Result<Vec<PathBuf>, Failure> {
        let Some(credentials) = self.service else {
            return Err(Failure::Transfer(anyhow!(
                "{refused}; the archive of a run with `--status-service` can be fetched without commands"
            )));
        };
        log::warn!("{refused}; asking the run's status service for the archive");
        let (landed, seal) = download(credentials, self, stop).map_err(Failure::Transfer)?;
        let seals = seal.into_iter().map(|seal| (landed.name.clone(), seal)).collect();
        self.settle(vec![landed], &seals).map_err(Failure::Transfer)
    }

    /// Forwards the stream in pieces, resuming after interruptions.
    fn receive(
        &self,
        client: &kube::Client,
        pod: &str,
        known: Option<&status::Archive>,
        sender: &SyncSender<Vec<u8>>,
        stop: &Stop,
    ) -> Result<(), Cut> {
        let total = known.map_or(0, |known| known.size);
        let mut received = 0_u64;
        let mut attempts = Attempts::new(IDLE_LIMIT, stop);
        loop {
            let before = received;
            let offset = received.to_string();
            let mut command = vec!["/sonobuoy", "splat", self.from];
            if received > 0 {
                command.extend(["--offset", &offset]);
            }
            let mut sink = |piece: &[u8]| {
                received += piece.len() as u64;
                // Slightly larger than the archive, since it is packed once more.
                (self.watch)(if total == 0 { received } else { received.min(total) }, total);
                sender.send(piece.to_vec()).map_err(|_| "nobody unpacks any more".to_owned())
            };
            let place = (self.namespace, pod, AGGREGATOR_CONTAINER);
            let why = match client.exec(place, &command, Some(SILENCE_TIMEOUT), &mut sink) {
                Ok(exit) if exit.success() => return Ok(()),
                Ok(exit) => {
                    let said = exit.stderr.trim();
                    let said = if said.is_empty() { exit.message.as_str() } else { said };
                    if before > 0 && exit.code > 0 {
                        return Err(Cut::Line(format!("the aggregator cannot resume the transfer: {said}")));
                    }
                    if exit.code < 0 {
                        return Err(Cut::Refused(said.to_owned()));
                    }
                    return Err(Cut::Remote(format!(
                        "the results are not ready, or the aggregator cannot send them: {}",
                        causes::message(said)
                    )));
                }
                Err(kube::Error::Sink(why)) => return Err(Cut::Here(anyhow!(why))),
                Err(kube::Error::Stopped) => return Err(Cut::Here(anyhow!("interrupted"))),
                Err(error) if before == 0 && received == 0 && error.code().is_some_and(|code| code < 500) => {
                    return Err(Cut::Refused(error.to_string()));
                }
                Err(error) => error.to_string(),
            };
            let again = attempts.again(received > before);
            if stop.stopped() {
                return Err(Cut::Here(anyhow!("interrupted")));
            }
            if !again {
                return Err(if received == 0 { Cut::Refused(why) } else { Cut::Line(why) });
            }
            log::warn!("the transfer was cut after {received} bytes, resuming there: {why}");
        }
    }

    /// Packs and fetches the current files of an unfinished run. They change continuously, so an interruption is
    /// final.
    fn fetch_partial(&self, client: &kube::Client, pod: &str, stop: &Stop) -> Result<PathBuf, Failure> {
        let name = self.name.map_or_else(
            || format!("{}_sonobuoy_partial.tar.gz", base::clock::stamp(std::time::SystemTime::now())),
            ToOwned::to_owned,
        );
        let mut file = PartialFile::create(self.into, &name, self.force).map_err(Failure::Transfer)?;
        let command = ["/sonobuoy", "splat", self.from, "--partial"];
        let mut sink = |piece: &[u8]| {
            file.write(piece).map_err(|error| format!("{error:#}"))?;
            (self.watch)(file.size(), 0);
            Ok(())
        };
        let place = (self.namespace, pod, AGGREGATOR_CONTAINER);
        let exit = client.under(stop).exec(place, &command, Some(SILENCE_TIMEOUT), &mut sink);
        match exit.map_err(|error| Failure::Transfer(error.into()))? {
            exit if exit.success() => file.commit().map_err(Failure::Transfer),
            exit => Err(Failure::NotReady(anyhow!(
                "there is nothing to fetch in parts: {}",
                causes::message(exit.stderr.trim())
            ))),
        }
    }
}

enum Again {
    /// Would fail again.
    Never(Failure),
    /// A complete repetition may help.
    Perhaps(anyhow::Error),
}

fn absent(namespace: &str) -> anyhow::Error {
    anyhow!("there is no aggregator in the namespace `{namespace}`: start a run, or name another with -n")
}

/// Archive that the status of the run announces.
fn promised(run: Option<&status::Run>) -> Option<status::Archive> {
    let archive = &run?.archive;
    (!archive.name.is_empty() && !archive.sha256.is_empty()).then(|| archive.clone())
}

/// Number of finished plugins of a run: ` (4 of 6 plugins)`.
fn finished(run: &status::Run) -> String {
    let mut plugins = BTreeMap::new();
    for entry in run.plugins.iter().flatten() {
        *plugins.entry(&entry.plugin).or_insert(true) &= entry.status != status::RUNNING;
    }
    let done = plugins.values().filter(|done| **done).count();
    if plugins.is_empty() { String::new() } else { format!(" ({done} of {} plugins)", plugins.len()) }
}

/// A complete repetition may help, except after a local disk error or an exceeded limit.
fn unless_local(error: anyhow::Error) -> Again {
    let local = error.downcast_ref::<io::Error>().is_some()
        || matches!(error.downcast_ref(), Some(archive::Error::Output(_) | archive::Error::TooLarge(_)));
    if local { Again::Never(Failure::Transfer(error)) } else { Again::Perhaps(error) }
}

struct Destination<'a> {
    into: &'a Path,
    name: Option<&'a str>,
    known: Option<&'a status::Archive>,
    force: bool,
}

impl Destination<'_> {
    /// Returns the name of an entry to unpack; logs entries that are not archives.
    fn wanted<'n>(&self, name: &'n str, kind: Kind) -> Option<&'n str> {
        if kind == Kind::Folder {
            return None;
        }
        let Some(archive) = archive_name(name).filter(|_| kind == Kind::File) else {
            log::warn!("skipped `{}`: not an archive, or not a name for one", visible::short(name));
            return None;
        };
        match self.known.filter(|known| known.name != archive) {
            Some(known) => log::warn!("skipped `{archive}`: the archive of the run is `{}`", known.name),
            None => return Some(archive),
        }
        None
    }

    /// Unpacks every archive of the stream, of which `received` bytes have arrived.
    fn unpack(&self, stream: Chunks<'_>, received: &AtomicU64) -> anyhow::Result<Vec<ReceivedArchive>> {
        let mut content = 0_u64;
        let mut reader = Reader::new(Gunzip::new(BufReader::new(stream)), LIMITS);
        let mut landed = Vec::new();
        let mut piece = vec![0; 64 << 10];
        // Skipped entries count as well, since they take as long.
        let mut next = |reader: &mut Reader<_>, piece: &mut [u8]| {
            // As text, so that it is not mistaken for a disk error.
            let read = reader.read(piece);
            let count = read.map_err(|error| anyhow!("the archive was damaged in transit: {error}"))?;
            content += count as u64;
            let (unpacked, sent) = (content + reader.extensions(), received.load(Ordering::Relaxed));
            if unpacked > MAX_START_BYTES.saturating_add(sent.saturating_mul(MAX_RATIO)) {
                let why = format!(
                    "what the aggregator sends unpacks to more than {MAX_RATIO} times its size: {unpacked} bytes of {sent}"
                );
                return Err(archive::Error::TooLarge(why).into());
            }
            Ok::<_, anyhow::Error>(count)
        };
        while let Some(entry) = reader.next_entry()? {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let Some(name) = self.wanted(&name, entry.kind) else {
                while next(&mut reader, &mut piece)? > 0 {}
                continue;
            };
            let target = self.name.map_or_else(|| name.to_owned(), |wanted| numbered(wanted, landed.len()));
            let mut file = PartialFile::create(self.into, &target, self.force)?;
            loop {
                let count = next(&mut reader, &mut piece)?;
                file.write(&piece[..count])?;
                // Stops reading at the announced size.
                if count == 0 || self.known.is_some_and(|known| file.size() > known.size) {
                    break;
                }
            }
            self.known.map_or(Ok(()), |known| file.verify(known))?;
            landed.push(ReceivedArchive { name: name.to_owned(), file });
        }
        Ok(landed)
    }
}

/// Reads the seals that an aggregator sends.
fn read_seals(packed: &[u8], seals: &mut BTreeMap<String, Seal>) -> anyhow::Result<()> {
    let mut reader = Reader::new(Gunzip::new(packed), LIMITS);
    while let Some(entry) = reader.next_entry()? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let mut content = Vec::new();
        let most = MAX_STATEMENT_BYTES.max(MAX_SIGNATURE_BYTES);
        reader.by_ref().take(most + 1).read_to_end(&mut content)?;
        if content.len() as u64 > most {
            bail!("`{name}` is larger than any part of a seal");
        }
        if let Some((archive, part)) = layout::sealed(&name) {
            let seal: &mut Seal = seals.entry(archive.to_owned()).or_default();
            *if part == 0 { &mut seal.statement } else { &mut seal.signature } = content;
        }
    }
    Ok(())
}

/// `x.tgz`, `x-01.tgz`, `x-02.tgz`, …; the extension starts at the last dot, as scripts expect.
fn numbered(name: &str, number: usize) -> String {
    if number == 0 {
        return name.to_owned();
    }
    let last = name.rfind('/').map_or(0, |at| at + 1);
    let dot = name[last..].rfind('.').map_or(name.len(), |at| last + at);
    let (stem, ending) = name.split_at(dot);
    format!("{stem}-{number:02}{ending}")
}

/// Reads the pieces of a stream as one.
struct Chunks<'a> {
    receiver: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
    received: &'a AtomicU64,
}

impl Read for Chunks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            let Ok(next) = self.receiver.recv() else { return Ok(0) };
            self.received.fetch_add(next.len() as u64, Ordering::Relaxed);
            (self.piece, self.at) = (next, 0);
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_archives_are_numbered_before_their_ending() {
        for (name, number, expected) in [
            ("r.tar.gz", 0, "r.tar.gz"),
            ("r.tar.gz", 1, "r.tar-01.gz"),
            ("r", 2, "r-02"),
            ("r.tgz", 12, "r-12.tgz"),
            (".hidden", 1, "-01.hidden"),
            ("a.b/r", 1, "a.b/r-01"),
        ] {
            assert_eq!(numbered(name, number), expected);
        }
    }
}
