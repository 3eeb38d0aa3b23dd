//! Common part of all runs: the aggregator serves, the status is published, the plugins run; then the caller's last
//! steps create the archive.
//!
//! Starts the threads `aggregator` and `status`, and joins them.

use std::fs;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context as _, bail};

use super::launch;
use super::retry::RunContext;
use crate::driver::Driver;
use crate::{config, layout, status};
use base::at::At as _;
use base::http::Server;
use base::logger;
use base::stop::{Stop, caught};

/// Maximum queued findings.
const FINDINGS: usize = 64;

/// Creates the folder of a run, with its log and its settings.
pub(super) fn begin(run_dir: &Path, config: &config::Run) -> anyhow::Result<()> {
    let meta = run_dir.join(layout::META);
    fs::create_dir_all(&meta).at("cannot create", &meta)?;
    let log = run_dir.join(layout::RUN_LOG);
    logger::tee(&log).at("cannot write", &log)?;
    let path = run_dir.join(layout::CONFIG);
    fs::write(&path, config.to_json()).at("cannot write", &path)
}

/// Runs the plugins, then `finish`, which creates the archive and returns what the status should say about it. The last
/// status is published before this returns.
pub(super) fn run<T>(
    server: &Server,
    driver: &dyn Driver,
    context: &RunContext<'_>,
    mut publish: impl FnMut(&status::Run) -> anyhow::Result<()> + Send,
    finish: impl FnOnce() -> anyhow::Result<(status::Archive, T)>,
    stop: &Stop,
) -> anyhow::Result<T> {
    let aggregator = context.aggregator;
    let (serving, published) = (Stop::new(), Stop::new());
    let (findings, receiver) = sync_channel(FINDINGS);
    thread::scope(|scope| {
        let serve = || {
            let served = caught(|| aggregator.serve(server, receiver, &serving));
            if !serving.stopped() {
                // Nothing could arrive any more.
                stop.stop_because(
                    served.as_ref().err().map_or("the server ended".into(), |error| format!("{error:#}")),
                );
            }
            served
        };
        let serve = base::thread("aggregator").spawn_scoped(scope, serve).context("cannot start a thread")?;
        let publish = base::thread("status")
            .spawn_scoped(scope, || aggregator.publish(&published, |status| publish(status)));
        let outcome = publish.context("cannot start a thread").and_then(|_| {
            launch::launch(driver, context, &findings, stop);
            serving.stop();
            finish()
        });
        serving.stop();
        aggregator.store.close();
        let served = serve.join().unwrap_or_else(|_| bail!("the aggregator panicked"));
        let ended = outcome.and_then(|ended| served.map(|()| ended));
        let told = match ended {
            Ok((archive, told)) => {
                aggregator.finished(archive);
                Ok(told)
            }
            // A run that was stopped may be resumed.
            Err(error) if stop.stopped() => Err(error),
            Err(error) => {
                aggregator.failed(format!("{error:#}"));
                Err(error)
            }
        };
        published.stop();
        told
    })
}
