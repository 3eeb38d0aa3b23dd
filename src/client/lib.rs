//! Reports the results of a Sonobuoy plugin to the aggregator of its run, over mutual TLS.
//!
//! A plugin usually leaves its results in a folder, and the worker beside it uploads them. A plugin
//! written in Rust can report directly instead:
//!
//! ```no_run
//! use sonobuoy_client::Client;
//! use sonobuoy_client::protocol::Progress;
//!
//! # fn main() -> Result<(), sonobuoy_client::Error> {
//! // Address, certificates and names come from the variables in `env`.
//! let client = Client::from_env()?;
//! client.progress(&Progress { msg: "halfway".into(), total: 2, completed: 1, ..Progress::default() })?;
//! client.submit_file(std::path::Path::new("/tmp/report.json"))?;
//! # Ok(())
//! # }
//! ```
//!
//! Submissions are retried while the aggregator is unreachable or busy, for as long as [`Retry`]
//! allows. Progress and heartbeats are sent once, since late ones are worth little. The first
//! result that arrives is kept; submitting it again yields [`Submitted::AlreadyThere`]. No call
//! starts a thread.
//!
//! [`protocol`] documents paths, headers and bodies for clients in other languages.

mod access;
mod body;
mod channel;
pub mod env;
mod error;
pub mod protocol;
#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use ureq::http::Response;
use ureq::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use ureq::{Agent, SendBody};

use crate::protocol::{
    CONTAINERS_HEADER, ContainersEnd, DIGEST_HEADER, ERROR_HEADER, FOLDER_LIMIT_HEADER, Progress,
    ResultId, TROUBLE_HEADER,
};
use base::archive::{PackError, Survey};
use base::clock;
use base::stop::Stop;
use base::sys::{Folder, Opened};

pub use access::{Access, Credentials};
pub use error::{Error, Retry};

use body::{Source, Trouble};
use channel::Channel;
use error::Failed;

/// Includes the queue of a busy server: a burst of thousands of workers takes seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// A peer that accepts no data for this long is dead.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// A server may unpack and sync a large result before it responds.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout for `100 Continue`; after that the body is sent without it.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum attempts for a file or folder that changes while it is sent or packed.
const MAX_CHANGES: u32 = 5;
/// Maximum bytes of a folder that is packed without asking for the aggregator's limit: packing them
/// takes seconds.
const MAX_UNASKED_BYTES: u64 = 1 << 30;
/// Maximum bytes of a problem in a heartbeat.
const MAX_TROUBLE_BYTES: usize = 1 << 10;
/// Timeout of progress and heartbeats, which are worth little when late.
const SHORT_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes kept of a response for messages.
const MAX_ANSWER_BYTES: u64 = 1024;

/// Comparison of this machine's clock with the aggregator's.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Clock {
    /// Seconds that this machine's clock is ahead; negative when it is behind.
    pub offset_seconds: f64,
    /// The margin of error of the offset.
    pub uncertainty_seconds: f64,
    /// The round trip of the request.
    pub latency_ms: f64,
}

/// The outcome of a successful submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The aggregator has stored it.
    Accepted,
    /// The aggregator already had this result; nothing was replaced.
    AlreadyThere,
}

/// The aggregator's response to progress, unmodified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The first kibibyte of the body.
    pub text: String,
}

/// Communicates with one aggregator about one result. Clones share the certificate and
/// [`shutdown`](Client::shutdown).
#[derive(Clone)]
pub struct Client {
    channel: Arc<Channel>,
    id: ResultId,
    retry: Retry,
    stop: Stop,
}

impl Client {
    /// A client configured by the variables in [`mod@env`].
    pub fn from_env() -> Result<Self, Error> {
        Self::new(&Access::from_env()?, ResultId::from_env()?)
    }

    /// A client for `id`. Checks certificates and key, so no later call fails because of them.
    pub fn new(access: &Access, id: ResultId) -> Result<Self, Error> {
        Ok(Self {
            channel: Arc::new(Channel::new(access)?),
            id,
            retry: Retry::default(),
            stop: Stop::new(),
        })
    }

    /// Sets the time limit and pauses of retries.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Makes submissions give up when `stop` is triggered; an attempt under way is finished first.
    #[must_use]
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// The result of this client.
    pub fn id(&self) -> &ResultId {
        &self.id
    }

    /// Submits a file under its own name. A file whose name ends in `.gz` must be a gzip-compressed
    /// tar: the aggregator unpacks it.
    pub fn submit_file(&self, path: &Path) -> Result<Submitted, Error> {
        self.submit(&mut Source::file(path)?, false)
    }

    /// Submits a folder: packs and streams it; the aggregator unpacks it.
    pub fn submit_directory(&self, path: &Path) -> Result<Submitted, Error> {
        let folder = Folder::open(path).map_err(Error::file(path))?;
        self.submit_opened(path, Opened::Folder(folder))
    }

    /// Submits an open file or folder under the last component of `path`, even if the path refers
    /// to another file by now.
    #[doc(hidden)]
    pub fn submit_opened(&self, path: &Path, opened: Opened) -> Result<Submitted, Error> {
        match opened {
            Opened::File(file) => self.submit(&mut Source::opened(path, file)?, false),
            Opened::Folder(folder) => self.submit(&mut self.pack(path, &folder)?, false),
        }
    }

    /// Submits bytes as a file called `name`.
    pub fn submit_bytes(&self, name: &str, bytes: &[u8]) -> Result<Submitted, Error> {
        self.submit(&mut Source::bytes(name, bytes), false)
    }

    /// Reports that the result will not arrive, and the reason.
    pub fn submit_error(&self, message: &str) -> Result<Submitted, Error> {
        let report = base::json::json!({ "error": message }).to_string();
        self.submit(&mut Source::bytes("error.json", report.as_bytes()), true)
    }

    /// Posts progress, without retrying: the next update supersedes it anyway.
    pub fn progress(&self, progress: &Progress) -> Result<(), Error> {
        let body = serde_json::to_vec(progress)
            .map_err(|source| Error::Settings(format!("cannot encode progress: {source}")))?;
        let answer = self.relay_progress(&body)?;
        self.expect_success(answer, "progress")
    }

    /// Posts progress given as JSON, without retrying, and returns the aggregator's response.
    pub fn relay_progress(&self, json: &[u8]) -> Result<Answer, Error> {
        let url = self.channel.url(&self.id.progress_path());
        self.send_once(&url, |agent| {
            let request = agent.post(&url).header(CONTENT_TYPE, "application/json");
            request
                .config()
                .timeout_global(Some(SHORT_REQUEST_TIMEOUT))
                .build()
                .send(json)
        })
        .map(|response| answer(response, MAX_ANSWER_BYTES))
    }

    /// Sends a heartbeat to the aggregator, without retrying; returns whether the containers that a
    /// worker waits for have ended. The second heartbeat promises that one follows every
    /// [`protocol::HEARTBEAT_INTERVAL`] until the result is sent: the aggregator treats a
    /// longer silence as a failure.
    pub fn heartbeat(&self) -> Result<Option<ContainersEnd>, Error> {
        let response = self.check_health(None)?;
        let header = response
            .headers()
            .get(CONTAINERS_HEADER)
            .and_then(|value| value.to_str().ok());
        let containers = header.and_then(ContainersEnd::parse);
        self.expect_success(answer(response, MAX_ANSWER_BYTES), "heartbeat")?;
        Ok(containers)
    }

    /// Sends a heartbeat. With a problem, it promises no other one.
    fn check_health(&self, trouble: Option<&str>) -> Result<Response<ureq::Body>, Error> {
        let url = self.channel.url(&self.id.health_path());
        self.send_once(&url, |agent| {
            let mut request = agent.get(&url);
            if let Some(trouble) = trouble {
                let trouble = base::visible::cut_bytes(trouble, MAX_TROUBLE_BYTES);
                request = request.header(TROUBLE_HEADER, base::percent_encoded(&trouble));
            }
            request
                .config()
                .timeout_global(Some(SHORT_REQUEST_TIMEOUT))
                .build()
                .call()
        })
    }

    /// Tells the aggregator why the result is late, so that a time limit can be explained. Best
    /// effort.
    fn report_trouble(&self, trouble: &str) {
        if let Err(error) = self.check_health(Some(trouble)) {
            log::debug!("the aggregator was not told that {trouble}: {error}");
        }
    }

    /// Compares this machine's clock with the aggregator's, using the `Date` of its response.
    pub fn clock(&self) -> Result<Clock, Error> {
        let url = self.channel.url(&self.id.health_path());
        // Requesting a certificate takes time that must not be measured.
        self.agent(&url)?;
        let sent = SystemTime::now();
        let answer = self.check_health(None)?;
        let latency_ms = sent.elapsed().unwrap_or_default().as_secs_f64() * 1_000.0;
        let offset = clock::offset_of(answer.headers(), sent).ok_or_else(|| Error::Refused {
            what: "request for the time".into(),
            status: answer.status().as_u16(),
            text: "the response has no date".into(),
        })?;
        let (offset_seconds, uncertainty_seconds) = offset;
        Ok(Clock {
            offset_seconds,
            uncertainty_seconds,
            latency_ms,
        })
    }

    /// Aborts requests in other threads, and makes later ones fail.
    pub fn shutdown(&self) {
        self.channel.shutdown();
    }

    fn agent(&self, url: &str) -> Result<Agent, Error> {
        self.channel.agent().map_err(|failed| match failed {
            Failed::Final(error) => error,
            Failed::Again { why, .. } => Error::Transport {
                url: url.into(),
                why,
            },
        })
    }

    /// Sends a request once. Drops a certificate that the aggregator rejects.
    fn send_once(
        &self,
        url: &str,
        send: impl FnOnce(&Agent) -> Result<Response<ureq::Body>, ureq::Error>,
    ) -> Result<Response<ureq::Body>, Error> {
        let sent = send(&self.agent(url)?);
        if error::distrusted(&sent) {
            self.channel.forget();
        }
        sent.map_err(|source| Error::Transport {
            url: url.into(),
            why: source.to_string(),
        })
    }

    /// Packs a folder; once more after each change of it.
    fn pack(&self, path: &Path, folder: &Folder) -> Result<Source<'static>, Error> {
        self.check_size(path, folder)?;
        let mut changes = 0;
        loop {
            let changed = match Source::directory(path, folder) {
                Err(PackError::Changed(changed)) => changed,
                packed => return packed.map_err(|error| pack_error(path, error)),
            };
            changes += 1;
            if changes == MAX_CHANGES {
                return Err(unsteady(&changed, "packed"));
            }
            let why = format!("`{}` changed while it was packed", changed.display());
            log::warn!(
                "attempt {changes} to pack the result of {} failed: {why}",
                self.id
            );
            if changes == 1 {
                self.report_trouble(&why);
            }
            if self.stop.wait(change_pause(changes)) {
                return Err(Error::Stopped { why });
            }
        }
    }

    /// Refuses a folder that is larger than the aggregator accepts, before hours are spent to pack
    /// it.
    fn check_size(&self, path: &Path, folder: &Folder) -> Result<(), Error> {
        let survey = Survey::take(folder, path).map_err(|error| pack_error(path, error))?;
        if survey.bytes <= MAX_UNASKED_BYTES {
            return Ok(());
        }
        let trouble = format!("the worker packs a folder of {} bytes", survey.bytes);
        let limit = self.check_health(Some(&trouble)).ok().and_then(|response| {
            let limit = response.headers().get(FOLDER_LIMIT_HEADER)?;
            limit.to_str().ok()?.parse::<u64>().ok()
        });
        match limit {
            Some(limit) if survey.bytes > limit => {
                let (largest, length) = survey.largest;
                let why = format!(
                    "the folder is too large: its files have {} bytes, more than {limit} \
                     (`Limits.Results.UnpackedBytes`); the largest, `{}`, has {length}",
                    survey.bytes,
                    largest.display()
                );
                Err(Error::file(path)(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    why,
                )))
            }
            _ => Ok(()),
        }
    }

    fn submit(&self, source: &mut Source<'_>, is_error: bool) -> Result<Submitted, Error> {
        let url = self.channel.url(&self.id.result_path());
        let started = Instant::now();
        let (mut attempt, mut changes) = (0_u32, 0);
        loop {
            attempt += 1;
            let (why, after, is_changed) = match self.attempt(&url, source, is_error) {
                Ok(submitted) => return Ok(submitted),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Again {
                    why,
                    after,
                    is_changed,
                }) => (why, after, is_changed),
            };
            changes += u32::from(is_changed);
            if changes >= MAX_CHANGES {
                return Err(unsteady(source.path(), "sent"));
            }
            if is_changed && changes == 1 {
                self.report_trouble(&why);
            }
            let time_left = self.retry.limit.saturating_sub(started.elapsed());
            if time_left.is_zero() {
                return Err(Error::GaveUp {
                    url,
                    attempts: attempt,
                    limit: self.retry.limit,
                    why,
                });
            }
            // Clients that a busy server rejected together must not all return at the same moment.
            let mut pause = after
                .unwrap_or_default()
                .saturating_add(self.retry.pause(attempt));
            if is_changed {
                pause += change_pause(changes);
            }
            let pause = pause.min(time_left);
            log::warn!(
                "attempt {attempt} to submit {} failed, retrying in {pause:.1?}: {why}",
                self.id
            );
            if self.stop.wait(pause) {
                return Err(Error::Stopped { why });
            }
        }
    }

    fn attempt(
        &self,
        url: &str,
        source: &mut Source<'_>,
        is_error: bool,
    ) -> Result<Submitted, Failed> {
        let mut body = source.body()?;
        let agent = self.channel.agent()?;
        let mut request = agent
            .put(url)
            // Without this, a refusal in the middle of a large body appears as a broken pipe.
            .header(EXPECT, "100-continue")
            .header(CONTENT_LENGTH, body.length().to_string())
            .header(CONTENT_DISPOSITION, source.disposition());
        if let Some(digest) = source.digest() {
            request = request.header(DIGEST_HEADER, digest);
        }
        if let Some(content_type) = source.content_type() {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if is_error {
            request = request.header(ERROR_HEADER, "true");
        }
        let response = request.send(SendBody::from_reader(&mut body));
        let (trouble, is_cut, sent) = (body.trouble.take(), body.is_cut(), body.sent());
        if error::distrusted(&response) && self.channel.forget() {
            return Err(Failed::temporary(
                "the aggregator rejected the certificate".into(),
            ));
        }
        let outcome = match response {
            Ok(response) => {
                let stored = response
                    .headers()
                    .get(DIGEST_HEADER)
                    .and_then(|text| text.to_str().ok());
                let damaged = sent
                    .as_ref()
                    .zip(stored)
                    .is_some_and(|(sent, stored)| Source::differs(sent, stored));
                if damaged && response.status().is_success() {
                    return Err(Error::Damaged { url: url.into() }.into());
                }
                error::judge_answer(url, response, is_cut, || source.changed())
            }
            Err(error) => Err(match trouble {
                Some(Trouble::Changed(why)) => Failed::Again {
                    why: format!("`{}` {why}", source.name),
                    after: None,
                    is_changed: true,
                },
                // The aggregator is not at fault, so retrying later is useless.
                Some(Trouble::Unreadable(error)) => Error::file(source.path())(error).into(),
                None => error::judge_error(url, error),
            }),
        };
        if let Some(sent) = sent {
            source.keep(sent);
        }
        outcome
    }

    fn expect_success(&self, answer: Answer, what: &str) -> Result<(), Error> {
        if (200..300).contains(&answer.status) {
            return Ok(());
        }
        Err(Error::Refused {
            what: format!("{what} of {}", self.id),
            status: answer.status,
            text: answer.text,
        })
    }
}

/// The pause after a change: the container may have restarted and be writing a large file again.
fn change_pause(changes: u32) -> Duration {
    Duration::from_secs(1 << changes)
}

/// The error for a file or folder that changed during each attempt.
fn unsteady(path: &Path, doing: &str) -> Error {
    let why = format!(
        "it changed while it was {doing}, {MAX_CHANGES} times: it must be complete before it is \
         named"
    );
    Error::file(path)(io::Error::other(why))
}

fn pack_error(folder: &Path, error: PackError) -> Error {
    match error {
        PackError::Changed(path) => unsteady(&path, "packed"),
        PackError::Unreadable(path, error) => Error::file(&path)(error),
        PackError::Output(error) => {
            let why = format!("its archive cannot be written: {error}");
            Error::file(folder)(io::Error::new(error.kind(), why))
        }
    }
}

fn answer(response: Response<ureq::Body>, limit: u64) -> Answer {
    let status = response.status().as_u16();
    let mut text = Vec::new();
    // A partial read only shortens a message.
    let _ = response
        .into_body()
        .into_reader()
        .take(limit)
        .read_to_end(&mut text);
    Answer {
        status,
        text: String::from_utf8_lossy(&text).trim().to_owned(),
    }
}
