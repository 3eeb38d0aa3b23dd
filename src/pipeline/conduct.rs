//! The course of all runs: the aggregator serves, the status is published, the plugins run; then
//! the caller's last steps create the archive.
//!
//! Groups of plugins with the same `order` run together; the next one starts when all results of
//! the previous one are in, including errors. Each plugin has the whole time limit, from its own
//! start. The server ends before the last steps begin, so that a result that was acknowledged is in
//! the archive, and nothing changes below the packer. Starts the threads `aggregator` and `status`,
//! one for each plugin of a group and one for its driver, and joins them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::context::RunContext;
use super::pack::write_json;
use crate::progress_view;
use base::at::At as _;
use base::json::json;
use base::stop::{Stop, StopOnDrop, caught};
use base::{clock, logger};
use client::protocol::{Failure, Finding};
use http::Server;
use model::plugin::Definition;
use model::{config, layout, status};
use run::aggregator::{Aggregator, AggregatorSettings, WaitOutcome, connections};
use run::backplane::{Authority, plugin_of, server_config};
use run::driver::{Driver, PluginLaunch, session};

/// Validity of the certificates of a run without a time limit.
const UNLIMITED: Duration = Duration::from_secs(365 * 86_400);
/// Time for uploads under way at the end of the plugins. Shorter than the server's own, so that
/// those that it is too short for still receive a response.
const UPLOAD_GRACE: Duration = Duration::from_secs(8);
/// Maximum queued findings.
const FINDINGS: usize = 64;

/// Creates the folder of a run, with its log and its settings.
pub(super) fn begin(run_dir: &Path, config: &config::Run) -> Result<()> {
    let meta = run_dir.join(layout::META);
    fs::create_dir_all(&meta).at("cannot create", &meta)?;
    let log = run_dir.join(layout::RUN_LOG);
    logger::tee(&log).at("cannot write", &log)?;
    let path = run_dir.join(layout::CONFIG);
    fs::write(&path, config.to_json()).at("cannot write", &path)
}

/// Derives the identifier of a new run from the key of a new authority, so that no other authority
/// can seal the archive of that name. A run that the configuration names keeps its name.
pub(super) fn name_run(
    config: &mut config::Run,
    definitions: &[Definition],
) -> Result<Option<Authority>> {
    if !config.uuid.is_empty() {
        return Ok(None);
    }
    let authority = Authority::new(total(config, definitions).unwrap_or(UNLIMITED))?;
    config.uuid = authority.run();
    Ok(Some(authority))
}

/// The settings of the aggregator of a run; `authority` is that of a new run which was identified
/// by it.
pub(super) fn settings(
    config: &config::Run,
    definitions: &[Definition],
    authority: Option<Authority>,
) -> AggregatorSettings {
    AggregatorSettings {
        limits: config.limits.clone(),
        silent: config.graces.silent,
        valid: total(config, definitions).unwrap_or(UNLIMITED),
        authority,
        ..AggregatorSettings::default()
    }
}

/// The server of a run, which workers know by one of these `hosts`. It is open to `guests`, who may
/// request certificates.
pub(super) fn server(
    bound: Server,
    hosts: &[String],
    guests: bool,
    aggregator: &Aggregator,
    config: &config::Run,
) -> Result<Server> {
    let authority = aggregator.authority();
    let tls = server_config(
        &authority.certificate_pem(),
        &authority.server_at(hosts)?,
        guests,
    )?;
    Ok(bound
        .tls(tls)
        .principal(plugin_of)
        .limits(connections(&config.limits.connections)))
}

/// Runs the plugins, then `finish`, which creates the archive as [`pack`](super::pack::pack) does,
/// and may rely on results that no longer change. The last status is published before this returns
/// the path of the archive and the number of errors.
pub(super) fn run(
    server: &Server,
    driver: &dyn Driver,
    context: &RunContext<'_>,
    mut publish: impl FnMut(&status::Run) -> Result<()> + Send,
    finish: impl FnOnce() -> Result<(PathBuf, status::Archive, usize)>,
    stop: &Stop,
) -> Result<(PathBuf, usize)> {
    let aggregator = context.aggregator;
    let published = Stop::new();
    thread::scope(|scope| {
        let _published = StopOnDrop(&published);
        base::thread("status").spawn_scoped(scope, || {
            aggregator.publish(&published, |status| publish(status));
        })?;
        let received = receive(server, driver, context, stop)
            .inspect_err(|error| stop.stop_because(format!("{error:#}")));
        let finished = finish().and_then(|finished| received.map(|()| finished));
        match &finished {
            Ok((_, archive, _)) => aggregator.finished(archive.clone()),
            // A run that was stopped may be resumed.
            Err(_) if stop.stopped() => {}
            Err(error) => aggregator.failed(format!("{error:#}")),
        }
        finished.map(|(path, _, errors)| (path, errors))
    })
}

/// Serves workers while the plugins run. When this returns, no result changes any more: every
/// upload has been stored or refused.
fn receive(
    server: &Server,
    driver: &dyn Driver,
    context: &RunContext<'_>,
    stop: &Stop,
) -> Result<()> {
    let aggregator = context.aggregator;
    let (serving, served) = (Stop::new(), Stop::new());
    let (findings, receiver) = sync_channel(FINDINGS);
    thread::scope(|scope| {
        let serve = || {
            let _served = StopOnDrop(&served);
            let ended = caught(|| aggregator.serve(server, receiver, &serving));
            if !serving.stopped() {
                // Nothing could arrive any more.
                stop.stop_because(match &ended {
                    Err(error) => format!("{error:#}"),
                    Ok(()) => "the server ended".into(),
                });
            }
            ended
        };
        let serve = base::thread("aggregator").spawn_scoped(scope, serve)?;
        {
            let _serving = StopOnDrop(&serving);
            launch(driver, context, &findings, stop);
        }
        let grace = if stop.stopped() {
            Duration::ZERO
        } else {
            UPLOAD_GRACE
        };
        if !served.wait(grace) {
            aggregator.store.close();
        }
        serve
            .join()
            .unwrap_or_else(|_| bail!("the aggregator panicked"))
    })
}

/// How long a plugin may take: according to the run's settings, else its definition, else the
/// general limit.
fn limit(config: &config::Run, definition: &Definition) -> Option<Duration> {
    let of_settings = config.plugin_timeouts.get(definition.name()).copied();
    let limit = match of_settings.or(definition.config.timeout) {
        Some(span) => span.0,
        // A negative number means no limit, as zero does.
        None => Duration::from_secs(u64::try_from(config.server.timeout_seconds).ok()?),
    };
    (!limit.is_zero()).then_some(limit)
}

/// How long all groups together may take; `None` if one of them has no limit.
fn total(config: &config::Run, definitions: &[Definition]) -> Option<Duration> {
    let mut groups: BTreeMap<i64, Duration> = BTreeMap::new();
    for definition in definitions {
        let group = groups.entry(definition.config.order).or_default();
        let attempts = if definition.can_retry() {
            config.retry_failed
        } else {
            0
        };
        let launches = u32::try_from(attempts)
            .unwrap_or_default()
            .saturating_add(1);
        let longest = limit(config, definition)?.saturating_mul(launches);
        *group = longest.max(*group);
    }
    let mut total = Duration::ZERO;
    for group in groups.values() {
        total = total.saturating_add(*group);
    }
    Some(total)
}

/// Runs all plugins, and retries their failed tests. Returns when every result is in or replaced by
/// an error, or at once on a stop.
fn launch(
    driver: &dyn Driver,
    context: &RunContext<'_>,
    findings: &SyncSender<Finding>,
    stop: &Stop,
) {
    let mut groups: BTreeMap<i64, Vec<&PluginLaunch<'_>>> = BTreeMap::new();
    let aggregator = context.aggregator;
    for plugin in &context.plugins {
        // Explains the plugin's results, also before the end.
        if let Err(error) = describe(plugin, context) {
            log::error!("plugin `{}`: {error:#}", plugin.definition.name());
        }
        groups
            .entry(plugin.definition.config.order)
            .or_default()
            .push(plugin);
    }
    for (order, mut group) in groups {
        if stop.stopped() {
            break;
        }
        group.sort_by_key(|plugin| plugin.definition.name());
        let names: Vec<&str> = group
            .iter()
            .map(|plugin| plugin.definition.name())
            .collect();
        log::info!("starting plugins of order {order}: {}", names.join(", "));
        let launch =
            |plugin: &PluginLaunch<'_>| launch_one(context, driver, plugin, findings, stop);
        each(aggregator, group.into_iter(), &launch);
        let ended = context
            .plugins
            .iter()
            .filter(|plugin| last_order(&context.plugins, plugin) == order);
        each(aggregator, ended, &|plugin| {
            context.retry_failed(plugin, launch, stop);
        });
    }
}

/// Does `work` for each plugin in a separate thread. A plugin whose thread cannot start, or panics,
/// has failed.
fn each<'p>(
    aggregator: &Aggregator,
    plugins: impl Iterator<Item = &'p PluginLaunch<'p>>,
    work: &(dyn Fn(&PluginLaunch<'_>) + Sync),
) {
    thread::scope(|scope| {
        for plugin in plugins {
            let work = || {
                let worked = caught(|| {
                    work(plugin);
                    Ok(())
                });
                worked.unwrap_or_else(|error| fail(aggregator, plugin, &error));
            };
            if let Err(error) = base::thread("plugin").spawn_scoped(scope, work) {
                fail(aggregator, plugin, &error.into());
            }
        }
    });
}

/// Records an error for every result of a plugin that did not arrive.
fn fail(aggregator: &Aggregator, plugin: &PluginLaunch<'_>, error: &anyhow::Error) {
    let name = plugin.definition.name();
    let why = format!("plugin `{name}` could not be started: {error:#}");
    aggregator
        .store
        .end_plugin(name, |id| Failure::new(id, &why));
}

/// Order of the last group that contains a plugin or a part of it; the plugin ends with that group.
fn last_order(plugins: &[PluginLaunch<'_>], plugin: &PluginLaunch<'_>) -> i64 {
    let mut last_order = plugin.definition.config.order;
    for other in plugins {
        if other.definition.results_plugin() == plugin.definition.name() {
            last_order = last_order.max(other.definition.config.order);
        }
    }
    last_order
}

/// Records an error for every result that did not arrive before the stop.
pub(super) fn give_up(aggregator: &Aggregator, stop: &Stop) {
    if stop.stopped() {
        let reason = stop.reason().unwrap_or_else(|| "it was stopped".into());
        for id in aggregator.outstanding() {
            let why = format!("the run ended before the result arrived: {reason}");
            aggregator.store.record_end(Failure::new(id, why));
        }
    }
}

fn launch_one(
    context: &RunContext<'_>,
    driver: &dyn Driver,
    plugin: &PluginLaunch<'_>,
    findings: &SyncSender<Finding>,
    stop: &Stop,
) {
    let (aggregator, name) = (context.aggregator, plugin.definition.name());
    if !plugin.ids.is_empty() && aggregator.store.lock().settled(name) {
        // From before a restart: its pods may be gone by now, and would be recreated.
        log::info!("plugin `{name}` had already ended");
        return;
    }
    let over = stop.child();
    aggregator.store.launched(name);
    thread::scope(|scope| {
        let _over = StopOnDrop(&over);
        let drive = || {
            let ran = caught(|| driver.run(plugin, findings, &over));
            ran.unwrap_or_else(|error| fail(aggregator, plugin, &error));
        };
        if let Err(error) = base::thread("driver").spawn_scoped(scope, drive) {
            fail(aggregator, plugin, &error.into());
        }
        let limit = limit(context.config, plugin.definition);
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        if let (WaitOutcome::TimeOver, Some(limit)) = (aggregator.wait(name, deadline, stop), limit)
        {
            let why = format!(
                "no result within the time limit of {}",
                clock::duration(limit)
            );
            let status = aggregator.status();
            let entry = status
                .plugins
                .iter()
                .flatten()
                .find(|entry| entry.plugin == name);
            let test = entry.and_then(|entry| progress_view::running(entry.progress.as_deref()?));
            let why = test.map_or(why.clone(), |test| format!("{why}, while it ran {test}"));
            aggregator
                .store
                .end_plugin(name, |id| Failure::timed_out(id, &why));
        }
    });
}

/// Writes the definition of a plugin, with the settings of its launch, into its folder.
pub(super) fn describe(plugin: &PluginLaunch<'_>, context: &RunContext<'_>) -> Result<()> {
    let config = context.config;
    let dir = context
        .run_dir
        .join(layout::plugin(plugin.definition.name()));
    fs::create_dir_all(&dir).at("cannot create", &dir)?;
    let description = json!({
        "Definition": plugin.definition.to_value(),
        "SessionID": session(config, plugin.definition.name()),
        "Namespace": config.namespace,
        "SonobuoyImage": config.worker_image,
        "CleanedUp": !plugin.definition.config.skip_cleanup,
        "ImagePullPolicy": config.image_pull_policy,
        "ImagePullSecrets": config.image_pull_secrets,
        // Null without any, as Go writes a map that was never made.
        "CustomAnnotations": Some(&config.custom_annotations).filter(|given| !given.is_empty()),
    });
    write_json(&dir.join(layout::DEFINITIONS[0]), &description)
}
