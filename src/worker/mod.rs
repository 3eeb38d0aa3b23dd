//! The worker: waits for a plugin's `done` file and submits the result that it names.
//!
//! Owns the submission, and the messages to the aggregator until then: progress and heartbeats. Does not know
//! Kubernetes: [`Others`] reports the end of the other containers.
//! Starts the threads `grace`, `heartbeat`, `relay` and `suite`, and joins them.

mod done;
mod heartbeat;
mod relay;
mod senders;
mod settings;
mod suite;

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::board::{self, ProgressOutput, Scene, Task, Unit};
use base::stop::Stop;
use base::sys::{Folder, Opened};
use client::{self, Client, Retry};
use done::{DoneOutcome, ResultsDir};

pub(crate) use done::{End, Others};
pub(crate) use settings::{Scope, WorkerSettings};

/// Waits for the result of this worker's plugin and submits it. After `term`, the worker continues for the pod's
/// grace period, so that a result that is almost ready still arrives; without one it then ends, which is not an
/// error. Returns whether the aggregator has the result.
pub(crate) fn run(settings: &WorkerSettings, others: &Others, term: &Stop) -> anyhow::Result<bool> {
    let retry = Retry { limit: settings.retry_limit, ..Retry::default() };
    // `asked` and `over` end with this call, independently of `term`.
    let (asked, over) = (term.child(), Stop::new());
    let talk = Client::new(&settings.access, settings.id.clone())?;
    let client = talk.clone().with_retry(retry).with_stop(over.clone());
    let relays = relay::listen(settings.progress_port);
    let (senders, shared) = (std::sync::Mutex::default(), AtomicBool::default());
    relay::announce(settings.progress_port, &relays)?;
    thread::scope(|scope| {
        let work = || {
            base::thread("grace").spawn_scoped(scope, || {
                asked.wait_forever();
                if !over.stopped() {
                    log::info!("asked to stop: continuing for {:?}", settings.grace);
                    over.wait(settings.grace);
                    over.stop();
                }
            })?;
            base::thread("heartbeat")
                .spawn_scoped(scope, || heartbeat::run(&talk, &settings.access.aggregator_url, &over))?;
            for relay in &relays {
                base::thread("relay")
                    .spawn_scoped(scope, || relay::run(relay, &talk, &senders, &shared, &over))?;
            }
            if let Some(port) = settings.progress_port.filter(|port| relays.is_empty() && *port > 0) {
                let (talk, over) = (&talk, &over);
                base::thread("relay").spawn_scoped(scope, move || relay::share(port, talk, over))?;
            }
            if settings.progress_port.is_some() {
                let folder = &settings.results_dir;
                base::thread("suite").spawn_scoped(scope, || suite::run(folder, &talk, &senders, &over))?;
            }
            wait_and_submit(settings, &client, others, &over)
        };
        let result = work();
        over.stop();
        asked.stop();
        talk.shutdown();
        result
    })
}

/// Sleeps after success, so that the pod is not restarted. Ends with `term`.
pub(crate) fn linger(seconds: i64, term: &Stop) {
    if term.stopped() {
        return;
    }
    // Scripts look for these sentences, spaces included.
    match u64::try_from(seconds) {
        Ok(0) => {}
        Ok(limit) => {
            log::info!("Results transmitted to aggregator. Sleeping for {limit} seconds");
            term.wait(Duration::from_secs(limit));
        }
        Err(_) => {
            log::info!("Results transmitted to aggregator.  Sleeping forever.");
            term.wait(Duration::MAX);
        }
    }
}

fn wait_and_submit(
    settings: &WorkerSettings,
    client: &Client,
    others: &Others,
    over: &Stop,
) -> anyhow::Result<bool> {
    let place = ResultsDir {
        dir: &settings.results_dir,
        mount: settings.results_mount.as_deref(),
        anywhere: settings.results_anywhere,
    };
    let submitted = match done::wait(&place, settings.done_delay, others, over) {
        DoneOutcome::Result(named) => {
            log::info!("the plugin is done, its result is `{}`", named.path.display());
            submit(client, &named.path, named.open())?
        }
        DoneOutcome::OthersEnded => {
            log::info!("all other containers have ended: submitting `{}`", settings.results_dir.display());
            let opened = Folder::open(&settings.results_dir).map(Opened::Folder);
            submit(client, &settings.results_dir, opened)?
        }
        DoneOutcome::Unusable(why) => return report(client, &why),
        DoneOutcome::Stopped => {
            log::warn!("stopped before the plugin was done: submitting nothing");
            return Ok(false);
        }
    };
    match submitted {
        Ok(client::Submitted::Accepted) => log::info!("the aggregator has accepted the result"),
        Ok(client::Submitted::AlreadyThere) => log::info!("the aggregator already has this result"),
        Err(error @ client::Error::File { .. }) => return report(client, &error.to_string()),
        // The aggregator rejects the content: record that as the result.
        Err(error @ client::Error::Refused { status: 400 | 413 | 422 | 500, .. }) => {
            return report(client, &error.to_string());
        }
        Err(error) => return Err(error).context(format!("cannot submit the result of {}", client.id())),
    }
    Ok(true)
}

/// Sends a file or directory; an upload of more than a minute reports its progress.
fn submit(
    client: &Client,
    path: &Path,
    opened: io::Result<Opened>,
) -> anyhow::Result<Result<client::Submitted, client::Error>> {
    let opened = match opened {
        Ok(opened) => opened,
        Err(source) => return Ok(Err(client::Error::File { path: path.into(), source })),
    };
    let say = |line: &str| {
        log::info!("{line}");
        Ok(())
    };
    board::with(ProgressOutput::Quiet, &say, |board| {
        let watch = |done, total| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let task = Task { name, unit: Unit::Bytes, done, total, over: done == total, ..Task::default() };
            // Progress matters less than the result.
            drop(board.show(Scene { state: "sending".into(), tasks: vec![task], ..Scene::default() }));
        };
        Ok(client.submit_opened(path, opened, &watch))
    })
}

/// Reports the error to the aggregator, which then stops waiting for the result; returns the same error.
fn report(client: &Client, why: &str) -> anyhow::Result<bool> {
    match client.submit_error(why) {
        Ok(_) => bail!("{why} (reported to the aggregator)"),
        Err(error) => bail!("{why} (and reporting it to the aggregator failed: {error})"),
    }
}
