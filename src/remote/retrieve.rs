//! Retrieves the archives of a run: counted, verified, and renamed only when they are complete.
//!
//! Two sources: the aggregator's container, which sends a gzip tar of its archives through the API
//! server, and the run's status service, which sends the archive itself and is asked if the cluster
//! is unreachable or forbids commands in pods. A broken stream resumes where it ended; the
//! original's aggregator cannot resume, and sends everything again. Starts no thread.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Read, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ring::digest;

use super::seal::{self, Authorities, KnownAuthority, SealedFile};
use super::service::Credentials;
use super::state::{self, RunState, SILENCE_TIMEOUT, StatusSource};
use base::archive::{self, Gunzip, Kind, Limits, Reader};
use base::at::At as _;
use base::retry::{Attempts, LeastRate};
use base::stop::Stop;
use base::temp::{self, NewFile};
use base::{clock, logger, small, sys, visible};
use kube::{self, Object as _};
use model::names::{AGGREGATOR_CONTAINER, ANNOTATION_STATUS, PARTIAL_RESULTS, RUNS_DIR};
use model::{layout, status};
use run::backplane::{MAX_SIGNATURE_BYTES, MAX_STATEMENT_BYTES, Seal};

/// Maximum consecutive interruptions of a transfer without progress.
const IDLE_LIMIT: u32 = 6;
/// Maximum complete transfers, if the stream cannot resume or the content is wrong.
const MAX_TRANSFERS: u32 = 6;
/// A run has one archive; a volume claim may hold those of many runs. The total limit depends on
/// the bytes received.
const LIMITS: Limits = Limits {
    entries: 1_000,
    total: u64::MAX,
    file: u64::MAX,
};
/// Maximum ratio of unpacked to received bytes, beyond an initial allowance: archives are
/// compressed already, so a higher one is an attempt to fill the disk.
const MAX_RATIO: u64 = 16;
const MAX_START_BYTES: u64 = 64 << 20;
/// Maximum size of the packed seals of a directory's archives.
const MAX_SEALS_BYTES: usize = 256 << 10;
/// Maximum size of a status document: 100,000 nodes with several plugins.
const MAX_STATUS_BYTES: usize = 256 << 20;
/// Maximum length of an archive's name, leaving space for the suffix of a partial file.
const MAX_NAME_BYTES: usize = 200;

/// A retrieval.
pub(crate) struct Retrieval<'a> {
    /// Access to the cluster; without it, the archive comes from the status service.
    pub client: Option<&'a kube::Client>,
    /// The namespace of the run.
    pub namespace: &'a str,
    /// Directory in the container.
    pub from: &'a str,
    /// Local directory.
    pub into: &'a Path,
    /// Name that replaces the archive's.
    pub name: Option<&'a str>,
    /// Whether to fetch the current files of an unfinished run.
    pub partial: bool,
    /// Credentials of the run's status service.
    pub service: Option<&'a Credentials>,
    /// Whether to replace existing files.
    pub force: bool,
    /// Whether to keep the seal next to the archive.
    pub keep_seal: bool,
    /// Receives the bytes transferred and the total; 0 if unknown.
    pub watch: &'a dyn Fn(u64, u64),
}

/// Why nothing was retrieved.
#[derive(Debug)]
pub(crate) enum RetrievalError {
    /// Unknown whether there is a run.
    Unasked(anyhow::Error),
    /// The run has no archive yet.
    NotReady(anyhow::Error),
    /// The transfer failed or is incomplete.
    Transfer(anyhow::Error),
    /// The transfer failed with a broken connection; resuming may help.
    Line(anyhow::Error),
    /// The transfer failed; a complete repetition may help.
    Restart(anyhow::Error),
    /// The source rejects the request.
    Refused(anyhow::Error),
}

/// Receives the pieces of a stream.
type Sink<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// A complete archive before its rename, with the name that the sender gave.
type Received = (String, PartialFile);

impl<'a> Retrieval<'a> {
    /// A retrieval of finished archives under their own names, without any access yet.
    pub(crate) fn new(namespace: &'a str, into: &'a Path) -> Self {
        Self {
            client: None,
            namespace,
            from: RUNS_DIR,
            into,
            name: None,
            partial: false,
            service: None,
            force: false,
            keep_seal: true,
            watch: &|_, _| (),
        }
    }
}

impl RetrievalError {
    /// The cause.
    pub(crate) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Unasked(error)
            | Self::NotReady(error)
            | Self::Transfer(error)
            | Self::Line(error)
            | Self::Restart(error)
            | Self::Refused(error) => error,
        }
    }
}

impl From<anyhow::Error> for RetrievalError {
    fn from(error: anyhow::Error) -> Self {
        Self::Transfer(error)
    }
}

impl From<kube::Error> for RetrievalError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Sink(why) => why.into(),
            kube::Error::Stopped => anyhow!("interrupted").into(),
            error if error.is_passing() => Self::Line(error.into()),
            error => Self::Refused(error.into()),
        }
    }
}

impl Retrieval<'_> {
    /// Fetches all archives; returns their paths in the order of arrival.
    pub(crate) fn fetch(&self, stop: &Stop) -> Result<Vec<PathBuf>, RetrievalError> {
        fs::create_dir_all(self.into).at("cannot create", self.into)?;
        let Some(client) = self.client else {
            return self.by_service("no cluster is configured", stop);
        };
        let namespace = self.namespace;
        let pod = match state::find(client, namespace) {
            // The original fails only when it runs the command.
            Ok(pod) => pod.with_context(|| {
                format!(
                    "namespace `{namespace}` has no aggregator: start a run, or name another \
                     namespace with --namespace"
                )
            })?,
            Err(error) if error.is_passing() && self.service.is_some() => {
                return self.by_service(&error.to_string(), stop);
            }
            Err(error) => return Err(RetrievalError::Unasked(error.into())),
        };
        let phase = pod["status"]["phase"].text();
        if ["Pending", "Failed"].contains(&phase) {
            // No container runs in which a command could.
            let state = RunState::read_pod(client, &pod);
            return Err(RetrievalError::NotReady(if phase == "Pending" {
                anyhow!(
                    "the run has not started: {}; wait for it with `sonobuoy wait -n {namespace}`",
                    state.summary()
                )
            } else {
                anyhow!("the aggregator has ended: {}", state.summary())
            }));
        }
        let run = pod["metadata"]["annotations"][ANNOTATION_STATUS].as_str();
        let run = run.and_then(|text| status::Run::parse(text).ok());
        let aggregator = Aggregator {
            client: &client.under(stop),
            namespace,
            pod: pod.name(),
        };
        match self.by_container(&aggregator, run.as_ref()) {
            Err(RetrievalError::Refused(why)) => {
                let why = format!("commands cannot be run in the aggregator's container: {why}");
                self.by_service(&why, stop)
            }
            fetched => fetched,
        }
    }

    /// Fetches all archives from the aggregator's container, or the current files of an unfinished
    /// run.
    fn by_container(
        &self,
        aggregator: &Aggregator<'_>,
        run: Option<&status::Run>,
    ) -> Result<Vec<PathBuf>, RetrievalError> {
        if self.partial {
            let over = run.is_some_and(|run| run.status == status::COMPLETE);
            // They change continuously, so an interruption is final.
            match self.unfinished(|sink| aggregator.send(&[self.from, "--partial"], sink)) {
                Err(RetrievalError::NotReady(_)) if over => {}
                Err(RetrievalError::NotReady(said)) => {
                    let why = said.context("there is nothing to fetch in parts");
                    return Err(RetrievalError::NotReady(why));
                }
                fetched => return fetched.map(|path| vec![path]),
            }
        }
        // Another directory is read regardless of the run's status.
        let published = run.map(|run| &run.archive).filter(|archive| {
            self.from == RUNS_DIR && !archive.name.is_empty() && !archive.sha256.is_empty()
        });
        let mut attempts = Attempts::new(MAX_TRANSFERS, aggregator.client.stop());
        loop {
            match self.by_exec(aggregator, published) {
                Ok(received) if received.is_empty() => {
                    let finished = run.map(finished).unwrap_or_default();
                    let why = anyhow!(
                        "no valid entries in result: the run is not finished{finished}; wait for \
                         it with `sonobuoy wait -n {}`, or fetch what has arrived with `--partial`",
                        self.namespace
                    );
                    return Err(why.into());
                }
                Err(RetrievalError::Restart(error)) if attempts.wait_to_retry(false) => {
                    log::warn!("{error:#}; fetching everything again");
                }
                received => return Ok(self.settle(received?, &self.seals(aggregator))?),
            }
        }
    }

    /// Reads the container's stream into a file without a name, and unpacks it.
    fn by_exec(
        &self,
        aggregator: &Aggregator<'_>,
        published: Option<&status::Archive>,
    ) -> Result<Vec<Received>, RetrievalError> {
        let cannot_write = "cannot write into";
        let mut spool = temp::file(self.into).at(cannot_write, self.into)?;
        let mut write = |piece: &[u8]| spool.write_all(piece).at(cannot_write, self.into);
        let total = published.map_or(0, |published| published.size);
        let size = self.resume(
            aggregator.client.stop(),
            total,
            &mut write,
            &|offset, sink| {
                let text = offset.to_string();
                let words = [self.from, "--offset", &text];
                let words = if offset > 0 { &words } else { &words[..1] };
                aggregator
                    .send(words, sink)
                    .map_err(|failure| match failure {
                        RetrievalError::NotReady(said) if offset > 0 => RetrievalError::Restart(
                            said.context("the aggregator cannot resume the transfer"),
                        ),
                        RetrievalError::NotReady(said) => RetrievalError::NotReady(said.context(
                            "the results are not ready, or the aggregator cannot send them",
                        )),
                        failure => failure,
                    })
            },
        )?;
        spool
            .rewind()
            .at("cannot read what was written into", self.into)?;
        // What a container sends is not trusted: archives are compressed, and grow no more.
        let max = MAX_START_BYTES.saturating_add(size.saturating_mul(MAX_RATIO));
        let mut unpacked = Gunzip::new(BufReader::new(spool)).take(max);
        let received = self.unpack(&mut unpacked, published);
        if unpacked.limit() == 0 {
            return Err(anyhow!(
                "what the aggregator sends unpacks to more than {MAX_RATIO} times its size: {max} \
                 bytes of {size}"
            )
            .into());
        }
        received
    }

    /// Unpacks every archive of a tar.
    fn unpack(
        &self,
        tar: impl Read,
        published: Option<&status::Archive>,
    ) -> Result<Vec<Received>, RetrievalError> {
        let mut reader = Reader::new(tar, LIMITS);
        let mut all: Vec<Received> = Vec::new();
        let next = |reader: &mut Reader<_>| match reader.next_entry() {
            Err(error @ archive::Error::TooLarge(_)) => {
                Err(RetrievalError::from(anyhow::Error::from(error)))
            }
            entry => entry.map_err(|error| RetrievalError::Restart(error.into())),
        };
        while let Some(entry) = next(&mut reader)? {
            let sent = String::from_utf8_lossy(&entry.name);
            if entry.kind == Kind::Folder {
                continue;
            }
            let Some(name) = archive_name(&sent).filter(|_| entry.kind == Kind::File) else {
                log::warn!(
                    "skipped `{}`: not an archive, or not a name for one",
                    visible::short(&sent)
                );
                continue;
            };
            if let Some(published) = published.filter(|published| published.name != name) {
                log::warn!(
                    "skipped `{name}`: the archive of the run is `{}`",
                    published.name
                );
                continue;
            }
            let target = self
                .name
                .map_or_else(|| name.to_owned(), |wanted| numbered(wanted, all.len()));
            let mut file = PartialFile::create(&joined(self.into, &target), self.force)?;
            // One byte more than announced shows that the content is too long.
            let max = published.map_or(u64::MAX, |published| published.size.saturating_add(1));
            let content = (&mut reader).take(max);
            pump(content, &mut |piece| file.write(piece)).map_err(|failure| match failure {
                RetrievalError::Line(why) => {
                    RetrievalError::Restart(why.context("the archive was damaged in transit"))
                }
                failure => failure,
            })?;
            if let Some(published) = published {
                file.verify(published).map_err(RetrievalError::Restart)?;
            }
            all.push((name.to_owned(), file));
        }
        Ok(all)
    }

    /// Downloads the archive from the status service after the cluster `refused` access.
    fn by_service(&self, refused: &str, stop: &Stop) -> Result<Vec<PathBuf>, RetrievalError> {
        let credentials = self.service.with_context(|| {
            format!(
                "{refused}; the archive of a run with `--status-service` can be fetched without \
                 commands"
            )
        })?;
        log::warn!("{refused}; asking the run's status service for the archive");
        let source = credentials.source(stop)?;
        let run = source
            .status()
            .context("the run's status service does not answer")?;
        if self.partial && run.status != status::COMPLETE {
            let body = source
                .results(PARTIAL_RESULTS, None)
                .map_err(anyhow::Error::from)?;
            return Ok(vec![self.unfinished(|sink| pump(body, sink).map(drop))?]);
        }
        let archive = run.archive;
        if archive.name.is_empty() {
            return Err(anyhow!("the run has no archive yet").into());
        }
        let name = archive_name(&archive.name)
            .with_context(|| format!("`{}` is not a name for an archive", archive.name))?;
        let mut file =
            PartialFile::create(&joined(self.into, self.name.unwrap_or(name)), self.force)?;
        self.resume(
            stop,
            archive.size,
            &mut |piece| file.write(piece),
            &|offset, sink| {
                let body = source.results("", Some((offset, &archive.sha256)))?;
                match pump(body.take(archive.size - offset), sink)? {
                    count if offset + count < archive.size => {
                        Err(RetrievalError::Line(anyhow!("it ended early")))
                    }
                    _ => Ok(()),
                }
            },
        )?;
        file.verify(&archive)?;
        let mut seals = BTreeMap::new();
        match seal_from(&source) {
            Ok(seal) => {
                seals.insert(name.to_owned(), seal);
            }
            // Services of older versions have none.
            Err(error) => log::debug!("the status service provides no seal: {error:#}"),
        }
        Ok(self.settle(vec![(name.to_owned(), file)], &seals)?)
    }

    /// Repeats `attempt`, each from the offset that the previous one reached, until one is
    /// complete; returns the number of bytes.
    fn resume(
        &self,
        stop: &Stop,
        total: u64,
        write: &mut Sink<'_>,
        attempt: &dyn Fn(u64, &mut Sink<'_>) -> Result<(), RetrievalError>,
    ) -> Result<u64, RetrievalError> {
        let mut attempts = Attempts::new(IDLE_LIMIT, stop).transfer(0, total);
        let mut size = 0;
        loop {
            let mut rate = LeastRate::default();
            let mut is_slow = false;
            let outcome = attempt(size, &mut |piece| {
                write(piece)?;
                size += piece.len() as u64;
                rate.count(piece.len() as u64, Instant::now())
                    .inspect_err(|_| is_slow = true)?;
                // A stream is slightly larger than its archive, since it is packed once more.
                (self.watch)(if total == 0 { size } else { size.min(total) }, total);
                Ok(())
            });
            let why = match outcome {
                Ok(()) => return Ok(size),
                Err(RetrievalError::Line(why)) => why,
                Err(failure) if is_slow => failure.into_error(),
                Err(failure) => return Err(failure),
            };
            let may_retry = attempts.wait_to_retry_at(size);
            if stop.stopped() {
                return Err(kube::Error::Stopped.into());
            }
            if may_retry {
                log::warn!("the transfer was cut after {size} bytes, resuming there: {why}");
            } else if size == 0 {
                return Err(RetrievalError::Refused(why));
            } else {
                let why = why.context("the transfer was cut and could not be resumed");
                return Err(RetrievalError::Restart(why));
            }
        }
    }

    /// Checks the seals of archives, then renames all files, or none if one of them cannot be
    /// renamed.
    fn settle(
        &self,
        received: Vec<Received>,
        seals: &BTreeMap<String, Seal>,
    ) -> Result<Vec<PathBuf>> {
        let (mut archives, mut others) = (Vec::new(), Vec::new());
        for (name, file) in received {
            let seal = seals.get(&name);
            self.judge(&name, &file, seal)?;
            for seal in seal.into_iter().filter(|_| self.keep_seal) {
                let parts = [&seal.statement, &seal.signature];
                for (path, content) in layout::seal(file.path()).iter().zip(parts) {
                    let mut part = PartialFile::create(path, self.force)?;
                    part.write(content)?;
                    others.push(part);
                }
            }
            archives.push(file);
        }
        archives
            .iter()
            .chain(&others)
            .try_for_each(|file| file.exists().map(drop))?;
        for file in others {
            file.commit()?;
        }
        archives.into_iter().map(PartialFile::commit).collect()
    }

    /// Reports the check of an archive's seal; fails if it is wrong, or missing where one is
    /// required.
    fn judge(&self, name: &str, file: &PartialFile, seal: Option<&Seal>) -> Result<()> {
        let file = SealedFile {
            name,
            path: file.file.partial_path(),
            size: file.size,
            sha256: file.sha256(),
        };
        let authority = file.run().and_then(|run| self.authority(&run));
        match (seal, authority) {
            (Some(seal), authority) => {
                let checked = seal::check(seal, &file, authority)?;
                if checked.statement.name != name {
                    bail!(
                        "`{name}` arrived with the seal of another archive, `{}`",
                        checked.statement.name
                    );
                }
                checked.log();
            }
            (None, Some(authority)) => bail!(
                "`{name}` arrived without its seal, although its run has an authority; remove \
                 `{}` to accept it as it is",
                authority.path.display()
            ),
            (None, None) => log::warn!("`{name}` has no seal, and was not checked against one"),
        }
        Ok(())
    }

    /// The authority of the run that is being retrieved: the one that is known here, that of the
    /// credentials, or the one that its cluster publishes.
    fn authority(&self, run: &str) -> Option<KnownAuthority> {
        let authorities = Authorities::of_user().ok();
        let stored = authorities
            .as_ref()
            .and_then(|authorities| authorities.of(run));
        stored.or_else(|| self.service?.authority(run)).or_else(|| {
            let authorities = authorities?;
            authorities.learn(self.client?, self.namespace, Some(run))?;
            authorities.of(run)
        })
    }

    /// Seals of the archives in the container, by name; none if it does not support them.
    fn seals(&self, aggregator: &Aggregator<'_>) -> BTreeMap<String, Seal> {
        let packed = aggregator.output(&[self.from, "--seals"], MAX_SEALS_BYTES);
        let seals = packed.and_then(|packed| read_seals(&packed));
        seals
            .inspect_err(|error| log::debug!("the aggregator provides no seal: {error:#}"))
            .unwrap_or_default()
    }

    /// Writes the results of an unfinished run to a file.
    fn unfinished(
        &self,
        send: impl FnOnce(&mut Sink<'_>) -> Result<(), RetrievalError>,
    ) -> Result<PathBuf, RetrievalError> {
        let name = match self.name {
            Some(name) => name.to_owned(),
            None => {
                let time = clock::stamp(SystemTime::now());
                format!("{time}_sonobuoy_partial.tar.gz")
            }
        };
        let mut file = PartialFile::create(&joined(self.into, &name), self.force)?;
        send(&mut |piece| {
            file.write(piece)?;
            (self.watch)(file.size, 0);
            Ok(())
        })?;
        Ok(file.commit()?)
    }
}

/// A temporary file, which is removed unless it is committed.
struct PartialFile {
    file: NewFile,
    digest: digest::Context,
    size: u64,
    force: bool,
}

impl PartialFile {
    /// Creates it next to `path`, its later name; only `force` replaces an existing file.
    fn create(path: &Path, force: bool) -> Result<Self> {
        path.file_name()
            .with_context(|| format!("`{}` does not name a file", path.display()))?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at("cannot create", parent)?;
        }
        let file = NewFile::create(path, 0o600).at("cannot write", path)?;
        Ok(Self {
            file,
            digest: digest::Context::new(&digest::SHA256),
            size: 0,
            force,
        })
    }

    /// Path after the commit.
    fn path(&self) -> &Path {
        self.file.path()
    }

    /// SHA-256 of the bytes so far, in hexadecimal.
    fn sha256(&self) -> String {
        base::hex(self.digest.clone().finish())
    }

    fn write(&mut self, piece: &[u8]) -> Result<()> {
        self.digest.update(piece);
        self.size += piece.len() as u64;
        self.file.write_all(piece).at("cannot write", self.path())
    }

    /// Compares size and digest with the announced ones.
    fn verify(&self, known: &status::Archive) -> Result<()> {
        let sha256 = self.sha256();
        if self.size != known.size || sha256 != known.sha256 {
            bail!(
                "`{}` is not what the aggregator packed: received {} bytes with SHA-256 {sha256}, \
                 expected {} bytes with {}",
                known.name,
                self.size,
                known.size,
                known.sha256
            );
        }
        Ok(())
    }

    /// Whether the same content has that name already; fails if something else has it, unless it is
    /// replaced.
    fn exists(&self) -> Result<bool> {
        let path = self.path();
        let Some(about) = path.symlink_metadata().ok().filter(|_| !self.force) else {
            return Ok(false);
        };
        let is_same = about.is_file()
            && about.len() == self.size
            && base::hex(base::file_sha256(path).at("cannot read", path)?) == self.sha256();
        ensure!(
            is_same,
            "`{}` exists and contains something else; move it away, choose another name with \
             `-f`, or replace it with `--force`",
            path.display()
        );
        Ok(true)
    }

    /// Renames the file, unless the same content has that name already.
    fn commit(self) -> Result<PathBuf> {
        let path = self.path().to_owned();
        if !self.exists()? {
            self.file.commit(self.force).at("cannot write", &path)?;
        }
        Ok(path)
    }
}

/// Joins `name` to `folder` as Go does: an absolute name is below it, too, and `..` removes the
/// component before it.
fn joined(folder: &Path, name: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." if path.file_name().is_some() => {
                path.pop();
            }
            part => path.push(part),
        }
    }
    path
}

/// The status of every node, which the aggregator keeps on its disk if the annotation of its pod
/// cannot hold it.
pub(crate) fn whole_status(client: &kube::Client, namespace: &str) -> Result<status::Run> {
    let pod = state::find(client, namespace)?.context("the aggregator no longer exists")?;
    let aggregator = Aggregator {
        client,
        namespace,
        pod: pod.name(),
    };
    let text = aggregator.output(&[RUNS_DIR, "--status"], MAX_STATUS_BYTES)?;
    Ok(status::Run::parse(&String::from_utf8_lossy(&text))?)
}

/// The container of an aggregator, in which the command for sending runs.
struct Aggregator<'a> {
    client: &'a kube::Client,
    namespace: &'a str,
    pod: &'a str,
}

impl Aggregator<'_> {
    /// At most `max` bytes that the command prints.
    fn output(&self, words: &[&str], max: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut sink = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            ensure!(bytes.len() <= max, "more than {max} bytes");
            Ok(())
        };
        self.send(words, &mut sink)
            .map_err(RetrievalError::into_error)?;
        Ok(bytes)
    }

    /// Runs the command, which fails if it has nothing to send.
    fn send(&self, words: &[&str], sink: &mut Sink<'_>) -> Result<(), RetrievalError> {
        let command = [&["/sonobuoy", "splat"], words].concat();
        let place = (self.namespace, self.pod, AGGREGATOR_CONTAINER);
        let exit = self.client.exec(place, &command, SILENCE_TIMEOUT, sink)?;
        let message = match exit.stderr.trim() {
            "" => exit.message,
            log => logger::message(log),
        };
        match exit.code {
            0 => Ok(()),
            ..0 => Err(RetrievalError::Refused(anyhow!(message))),
            _ => Err(RetrievalError::NotReady(anyhow!(message))),
        }
    }
}

/// The seal that a status service provides.
fn seal_from(source: &StatusSource) -> Result<Seal> {
    let [statement, signature] = layout::SEAL;
    Ok(Seal {
        statement: small::read_from(source.results(statement, None)?, MAX_STATEMENT_BYTES)?,
        signature: small::read_from(source.results(signature, None)?, MAX_SIGNATURE_BYTES)?,
    })
}

/// Passes a stream on; returns the number of bytes.
fn pump(mut from: impl Read, sink: &mut Sink<'_>) -> Result<u64, RetrievalError> {
    let mut piece = vec![0; 64 << 10];
    let mut size = 0;
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(size),
            Ok(count) => {
                sink(&piece[..count])?;
                size += count as u64;
            }
            Err(error) => return Err(RetrievalError::Line(error.into())),
        }
    }
}

/// Number of finished plugins of a run: ` (4 of 6 plugins)`.
fn finished(run: &status::Run) -> String {
    let mut plugins = BTreeMap::new();
    for entry in run.plugins.iter().flatten() {
        *plugins.entry(&entry.plugin).or_insert(true) &= entry.status != status::RUNNING;
    }
    let done = plugins.values().filter(|done| **done).count();
    if plugins.is_empty() {
        String::new()
    } else {
        format!(" ({done} of {} plugins)", plugins.len())
    }
}

/// Safe local name of an archive: no path, not hidden, nothing that a shell or a program
/// interprets. Names from old aggregators start with `./`.
fn archive_name(sent: &str) -> Option<&str> {
    let name = sent.strip_prefix("./").unwrap_or(sent);
    let plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte));
    let first = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    let fits =
        name.len() <= MAX_NAME_BYTES && name.ends_with(layout::ARCHIVE) && sys::can_have(name);
    (plain && first && fits).then_some(name)
}

/// Reads the seals that an aggregator sends.
fn read_seals(packed: &[u8]) -> Result<BTreeMap<String, Seal>> {
    let mut seals = BTreeMap::new();
    let limits = Limits {
        file: MAX_STATEMENT_BYTES.max(MAX_SIGNATURE_BYTES),
        ..LIMITS
    };
    let mut reader = Reader::new(Gunzip::new(packed), limits);
    while let Some(entry) = reader.next_entry()? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let mut content = Vec::new();
        reader.read_to_end(&mut content)?;
        if let Some((archive, part)) = layout::sealed(&name) {
            let seal: &mut Seal = seals.entry(archive.to_owned()).or_default();
            *if part == 0 {
                &mut seal.statement
            } else {
                &mut seal.signature
            } = content;
        }
    }
    Ok(seals)
}

/// `x.tgz`, `x-01.tgz`, `x-02.tgz`, …; the extension starts at the last dot, as scripts expect.
fn numbered(name: &str, number: usize) -> String {
    if number == 0 {
        return name.to_owned();
    }
    match name.rsplit_once('.') {
        Some((stem, ending)) if !ending.contains('/') => format!("{stem}-{number:02}.{ending}"),
        _ => format!("{name}-{number:02}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::fs::File;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use base::json::json;
    use client::protocol::GZIP;
    use fake_api_server::{ApiServer, Fault};
    use http::{Response, Server};
    use model::names::STATUS_SERVICE as NAME;
    use run::backplane::{Authority, Statement, server_config};

    /// The name of an archive of run `r`.
    const NAMED: &str = "202401010000_sonobuoy_r.tar.gz";

    /// Fetches where commands are forbidden, from a service that sends `content`, truncating this
    /// many responses first, and announces this digest; returns the files in the directory
    /// afterwards.
    fn fetch(
        content: &[u8],
        cuts: u64,
        promised: &[u8],
    ) -> (
        Result<Vec<PathBuf>, RetrievalError>,
        BTreeMap<String, Vec<u8>>,
    ) {
        let folder = base::temp::Folder::new().unwrap();
        let (there, home) = (folder.join("there"), folder.join("home"));
        std::fs::create_dir_all(&there).unwrap();

        let api = ApiServer::start();
        api.put("/api/v1/namespaces/ns", json!({}));
        api.put(
            "/api/v1/namespaces/ns/pods/p",
            json!({"metadata": {"labels": {"sonobuoy-component": "aggregator"}}}),
        );
        let exec = "/api/v1/namespaces/ns/pods/p/exec";
        api.fault(Fault::on(&format!("GET {exec}")).status(
            403,
            "Forbidden",
            "pods/exec is forbidden",
        ));

        let authority = Authority::new(Duration::from_secs(3_600)).unwrap();
        let tls = server_config(
            &authority.certificate_pem(),
            &authority.server(NAME).unwrap(),
            false,
        )
        .unwrap();
        let server = Server::bind("127.0.0.1:0").unwrap().tls(tls);
        let own = authority.client("status").unwrap();
        let credentials = Credentials {
            host_address: format!("https://{}/", server.local_addr()),
            created_at: clock::now(),
            ca_cert: authority.certificate_pem(),
            client_cert: own.cert_pem,
            client_key: own.key_pem,
            server_name: NAME.into(),
            namespace: "ns".into(),
            run: String::new(),
            authority: String::new(),
            path: PathBuf::new(),
        };
        let sha256: String = ring::digest::digest(&ring::digest::SHA256, promised)
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let archive = json!({"name": NAMED, "created": clock::now(), "sha256": sha256, "size": promised.len()});
        let (run, size) = ("r".to_owned(), promised.len() as u64);
        let statement = Statement {
            run,
            name: NAMED.into(),
            size,
            sha256: sha256.clone(),
        };
        let seal = authority.seal(&statement).unwrap();
        let answers = AtomicU64::new(0);
        let stop = Stop::new();
        let fetched = std::thread::scope(|scope| {
            scope.spawn(|| {
                server.run(&stop, |request| {
                    if request.path == "/status" {
                        return Response::json(
                            200,
                            &json!({"status": "complete", "tar-info": archive}),
                        );
                    }
                    for (ending, part) in
                        layout::SEAL.iter().zip([&seal.statement, &seal.signature])
                    {
                        if request.path.ends_with(ending) {
                            return Response::bytes(200, GZIP, part.as_slice());
                        }
                    }
                    let answer = answers.fetch_add(1, Ordering::Relaxed);
                    let path = there.join(answer.to_string());
                    std::fs::write(&path, content).unwrap();
                    let range = request.headers.get("range");
                    let response = Response::file(File::open(&path).unwrap(), GZIP, range).unwrap();
                    if answer < cuts {
                        // Truncated in the middle of the file.
                        let left = content.len() as u64 * (answer + 1) / (cuts + 1);
                        File::options()
                            .write(true)
                            .open(&path)
                            .unwrap()
                            .set_len(left)
                            .unwrap();
                    }
                    response
                })
            });
            let client =
                kube::Client::new("test/1", kube::Config::plain(api.url()), &Stop::new()).unwrap();
            let (client, service) = (Some(&client), Some(&credentials));
            let retrieval = Retrieval {
                client,
                from: "/x",
                service,
                ..Retrieval::new("ns", &home)
            };
            let fetched = retrieval.fetch(&Stop::new());
            stop.stop();
            fetched
        });
        let came = std::fs::read_dir(&home).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                std::fs::read(&path).unwrap(),
            )
        });
        let came = came.collect();
        (fetched, came)
    }

    #[test]
    fn status_service_replaces_forbidden_exec() {
        let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        for cuts in [0, 3] {
            let (fetched, came) = fetch(&content, cuts, &content);
            assert_eq!(fetched.unwrap()[0].file_name().unwrap(), NAMED);
            assert!(came[NAMED] == content, "after {cuts} cuts");
            let names: Vec<_> = came.keys().map(String::as_str).collect();
            assert_eq!(
                names,
                [
                    NAMED.to_owned(),
                    format!("{NAMED}.sha256"),
                    format!("{NAMED}.sig")
                ]
            );
        }
    }

    #[test]
    fn download_unlike_the_announcement_leaves_no_file() {
        let (fetched, came) = fetch(b"something", 0, b"else");
        assert!(
            matches!(fetched, Err(RetrievalError::Transfer(error)) if error.to_string().contains("is not what"))
        );
        assert!(came.is_empty(), "{came:?}");
        let (fetched, came) = fetch(b"some", 0, b"more than there is");
        assert!(fetched.is_err() && came.is_empty(), "{came:?}");
    }

    #[test]
    fn archive_name_is_plain() {
        let uuid = "202401010000_sonobuoy_11111111-2222-4333-8444-555555555555.tar.gz";
        for name in [uuid, "a.tar.gz", "A+b_1.tar.gz"] {
            assert_eq!(archive_name(name), Some(name));
            assert_eq!(archive_name(&format!("./{name}")), Some(name));
        }
        for name in [
            "",
            ".tar.gz",
            ".bashrc",
            ".a.tar.gz",
            "a.tgz",
            "a.tar.gz.sig",
            "authorized_keys",
            "../a.tar.gz",
            "/a.tar.gz",
            "b/a.tar.gz",
            "././a.tar.gz",
            "b\\a.tar.gz",
            "c:a.tar.gz",
            "-a.tar.gz",
            "a b.tar.gz",
            "a\n.tar.gz",
            "a\0.tar.gz",
            "$(a).tar.gz",
            "\u{202e}.tar.gz",
            "\u{e9}.tar.gz",
        ] {
            assert_eq!(archive_name(name), None, "{name:?}");
        }
        assert_eq!(archive_name(&format!("{}.tar.gz", "a".repeat(300))), None);
    }

    #[test]
    fn further_archives_are_numbered_before_the_extension() {
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

    #[test]
    fn names_are_joined_like_the_original() {
        for (folder, name, expected) in [
            (".", "a.tar.gz", "./a.tar.gz"),
            (".", "./a//b.tar.gz", "./a/b.tar.gz"),
            (".", "../a", "./../a"),
            ("out", "/tmp/a", "out/tmp/a"),
            ("out", "../a", "a"),
            ("/out", "x/../../a", "/a"),
        ] {
            assert_eq!(
                joined(Path::new(folder), name),
                Path::new(expected),
                "{folder} {name}"
            );
        }
    }

    #[cfg(unix)] // its links and modes
    #[test]
    fn existing_files_are_never_overwritten() {
        let folder = base::temp::Folder::new().unwrap();
        let mode = |name: &Path| sys::mode(&folder.join(name).metadata().unwrap()) & 0o777;
        let of = |content: &str, force| {
            let mut file = PartialFile::create(&folder.join("a"), force).unwrap();
            file.write(content.as_bytes()).unwrap();
            file
        };
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        fs::write(folder.join("precious"), "precious").unwrap();
        let file = of("one", false);
        let names = fs::read_dir(&*folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let partial = names
            .into_iter()
            .find(|name| name.to_string_lossy().starts_with(".sonobuoy-"))
            .unwrap();
        assert_eq!(mode(partial.as_ref()), 0o600);
        assert_eq!(file.commit().unwrap(), folder.join("a"));
        assert_eq!(mode(Path::new("a")), 0o600);
        // Equal content is accepted, any other rejected.
        of("one", false).commit().unwrap();
        for content in ["two", "more than one"] {
            let error = of(content, false).commit().unwrap_err().to_string();
            assert!(
                error.contains("/a` exists and contains something else"),
                "{error}"
            );
            assert!(of(content, false).exists().is_err());
        }
        assert_eq!(read("a"), "one");
        of("two", true).commit().unwrap();
        assert_eq!(read("a"), "two");
        // A link is replaced, never followed.
        fs::remove_file(folder.join("a")).unwrap();
        for target in ["precious", "nowhere"] {
            sys::symlink(&folder.join(target), &folder.join("a")).unwrap();
            assert!(of("precious", false).commit().is_err(), "{target}");
            of("three", true).commit().unwrap();
            assert!(folder.join("a").symlink_metadata().unwrap().is_file());
            fs::remove_file(folder.join("a")).unwrap();
        }
        assert_eq!(
            (read("precious"), fs::read_dir(&folder).unwrap().count()),
            ("precious".into(), 1)
        );
    }
}
