//! A whole run in a cluster, as the aggregator's pod performs it.
//!
//! Reads settings and definitions, combines the steps, and makes them resumable: a container that
//! restarts in the same pod finds the folder of its run, which may be on a volume with others,
//! continues with the same identity, authority and expectations, and adopts its plugins. Calls to
//! the API are retried long enough for the run to survive an outage of the API server. Starts
//! the thread `status_service`, and joins it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::conduct;
use super::context::{ClusterRun, RunContext, uid};
use super::expected::ExpectedResults;
use super::marks::{self, NodeMarker};
use super::permissions::FreshPermissions;
use super::publisher::StatusPublisher;
use super::review::{self, ClusterReviewer};
use super::status_service::StatusService;
use super::{pack, retry, upload};
use crate::remote::state;
use base::at::At as _;
use base::json::json;
use base::proxy::authority;
use base::stop::Stop;
use base::{clock, logger, sys, temp};
use http::Server;
use kube::{self, Object as _, Resource};
use model::names::{self, AGGREGATOR_SELECTORS};
use model::plugin::{self, Definition};
use model::timings::{self, Stopwatch};
use model::verdict::RunEnd;
use model::{config, layout, status};
use run::aggregator::Aggregator;
use run::backplane::Authority;
use run::driver::Driver as _;
use run::driver::cluster::{ClusterDriver, remove_namespace};
use run::driver::roster::Roster;
use run::query::{self, Query, Redactor};

/// Time limit for the first contact with the API server; later outages may last longer.
const FIRST_CONTACT_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum errors of a snapshot that are logged individually.
const MAX_LOGGED_ERRORS: usize = 20;

impl ClusterRun<'_> {
    /// Runs everything; returns whether all went well, and `Err` if the published status does not
    /// tell that: the container has to end, so that its state does.
    pub(crate) fn run(mut self, stop: &Stop) -> Result<bool> {
        let pod = self.own_pod()?;
        let pod = pod.as_ref();
        let permissions = FreshPermissions::new(stop);
        self.prepare_folder()?;
        let pod_uid = pod.map(uid).filter(|uid| !uid.is_empty());
        if self.is_complete(pod_uid) {
            log::info!(
                "the run is complete; its archive is in `{}`",
                self.folder.display()
            );
            let publisher = StatusPublisher::new(&self, pod);
            self.republish_last_status(&publisher, stop);
            publisher.repeat_failed(stop);
            return Ok(true);
        }
        let identity = self.identity(pod_uid, &permissions);
        let new_authority = self.resume_or_name_run(&identity)?;
        let run_dir = self.folder.join(&self.config.uuid);
        conduct::begin(&run_dir, &self.config)?;

        let publisher = StatusPublisher::new(&self, pod);
        let outcome = self.run_in(
            &run_dir,
            new_authority,
            &identity,
            &permissions,
            &publisher,
            stop,
        );
        logger::untee();
        if let Err(error) = &outcome
            && !stop.stopped()
        {
            // The details are in the log; a command that follows the status must not wait forever.
            publisher.publish_final(status::Run {
                status: status::FAILED.into(),
                error: Some(format!("{error:#}")),
                ..status::Run::default()
            });
        }
        match outcome {
            Err(error) if !publisher.is_published() => Err(error),
            Err(error) => {
                log::error!("{error:#}");
                Ok(false)
            }
            Ok(is_clean) => {
                publisher.repeat_failed(stop);
                Ok(is_clean)
            }
        }
    }

    /// Continues the interrupted run of this identity, or names a new one; returns the authority
    /// from which a new name is derived.
    fn resume_or_name_run(&mut self, identity: &str) -> Result<Option<Authority>> {
        if let Some(uuid) = self.interrupted_run(identity)? {
            log::info!("resuming run {uuid} where it was interrupted");
            temp::clean(self.folder, &uuid).at("cannot read", self.folder)?;
            self.config.uuid = uuid;
            return Ok(None);
        }
        self.move_earlier_archives();
        let uuid = &mut self.config.uuid;
        let run_dir = self.folder.join(&*uuid);
        let is_taken = run_dir.exists() || layout::state_dir(&run_dir).exists();
        if !uuid.is_empty() && is_taken {
            log::warn!("`UUID` {uuid} is that of an interrupted run; this run gets another");
            uuid.clear();
        }
        conduct::name_run(&mut self.config, &self.definitions)
    }

    /// Runs everything in the folder of the run; returns whether all went well.
    fn run_in(
        &self,
        run_dir: &Path,
        new_authority: Option<Authority>,
        identity: &str,
        permissions: &FreshPermissions<'_>,
        publisher: &StatusPublisher<'_>,
        stop: &Stop,
    ) -> Result<bool> {
        let started = SystemTime::now();
        let expected = self.expected_results(run_dir, permissions)?;
        let aggregator = self.open_aggregator(run_dir, &expected, new_authority, identity)?;
        self.publish_authority(&aggregator, publisher.pod);
        let server = self.bind_server()?;

        let pod = self.pod_of_run(publisher)?;
        let retry_definitions = retry::attempts(&self.config, &self.definitions);
        let roster = Roster::default();
        let certifies_nodes = self.certifies_nodes(pod, permissions)?;
        let aggregator = if certifies_nodes {
            let reviewer = self.reviewer(pod, &retry_definitions, &roster);
            aggregator.with_certifier(Box::new(reviewer))
        } else {
            aggregator
        };
        let aggregator = Arc::new(aggregator);
        self.show_status(&aggregator);
        let hosts = aggregator.addresses(&self.config.server.advertise_address)?;
        let server = conduct::server(server, &hosts, certifies_nodes, &aggregator, &self.config)?;

        let store = &aggregator.store;
        let driver = ClusterDriver {
            client: self.client.clone(),
            config: &self.config,
            authority: aggregator.authority(),
            audience: certifies_nodes.then(|| review::audience(&self.config)),
            has_own_workers: self.has_own_workers(pod),
            owner: (pod.name().to_owned(), uid(pod).to_owned()),
            roster,
            ring: expected.ring,
            has_contacted: &|id| store.lock().has_contacted(id),
            is_receiving: &|id| store.lock().is_uploading(id),
            is_settled: &|id| store.lock().is_settled(id),
            keep_logs: &|pod| self.keep_logs(run_dir, pod, stop),
        };
        let context = RunContext {
            aggregator: &aggregator,
            run_dir,
            config: &self.config,
            plugins: retry::launches(&self.definitions, expected.by_plugin),
            attempts: &retry_definitions,
        };
        let mut last_steps = LastSteps {
            run: self,
            context: &context,
            driver: &driver,
            publisher,
            pod,
            redactor: Redactor::new(&self.config.redaction)?,
            started,
            stopwatch: Stopwatch::start(),
            is_recorded: false,
        };
        let marker = NodeMarker::new(&self.config, &self.client);
        let (archive, errors) = marks::beside(marker, &context, stop, |finish_marks| {
            conduct::run(
                &server,
                &driver,
                &context,
                |status| publisher.publish_unless_stopped(status, stop),
                || last_steps.take(finish_marks, stop),
                stop,
            )
        })?;
        if last_steps.is_recorded {
            self.remove_run(&self.config.uuid);
        }
        Ok(errors + self.upload(&archive, aggregator.status(), publisher, stop) == 0)
    }

    fn open_aggregator(
        &self,
        run_dir: &Path,
        expected: &ExpectedResults,
        new_authority: Option<Authority>,
        identity: &str,
    ) -> Result<Aggregator> {
        let settings = conduct::settings(&self.config, &self.definitions, new_authority);
        let aggregator = Aggregator::open(run_dir, &expected.by_plugin.concat(), settings)?;
        aggregator.set_identity(identity)?;
        aggregator.store.lock().uploads = self.upload.is_some();
        // If launched, they would send results that are no longer awaited.
        for failure in &expected.failures {
            aggregator.store.record(failure);
        }
        Ok(aggregator)
    }

    fn bind_server(&self) -> Result<Server> {
        let settings = &self.config.server;
        let host = settings.bind_address.trim_matches(['[', ']']);
        Server::bind(&authority(host, settings.bind_port))
    }

    /// The pod of this aggregator, which owns what the plugins need; null if it is unknown, and
    /// there are no plugins.
    fn pod_of_run<'p>(&self, publisher: &StatusPublisher<'p>) -> Result<&'p Value> {
        match publisher.pod {
            Some(pod) => Ok(pod),
            None if self.definitions.is_empty() => Ok(&Value::Null),
            None => bail!(
                "the aggregator's own pod cannot be found in namespace `{}` by any of the labels \
                 {AGGREGATOR_SELECTORS:?}",
                self.config.namespace
            ),
        }
    }

    /// What identifies the workers that request certificates.
    fn reviewer(&self, pod: &Value, attempts: &[Definition], roster: &Roster) -> ClusterReviewer {
        ClusterReviewer {
            client: self.client.once(review::REVIEW_TIMEOUT),
            config: self.config.clone(),
            definitions: [&self.definitions, attempts].concat(),
            owner: uid(pod).to_owned(),
            roster: roster.clone(),
        }
    }

    /// Serves the current status, if the run has a service for it.
    fn show_status(&self, aggregator: &Arc<Aggregator>) {
        if let Some(status_service) = self.status_service {
            let aggregator = Arc::clone(aggregator);
            status_service.show(move || aggregator.status());
        }
    }

    /// Uploads the archive, if a store is configured, and publishes the outcome; returns the number
    /// of errors.
    fn upload(
        &self,
        archive: &Path,
        mut last: status::Run,
        publisher: &StatusPublisher<'_>,
        stop: &Stop,
    ) -> usize {
        let Some(url) = &self.upload else { return 0 };
        let outcome = upload::upload(&[archive.to_owned()], url, stop, &|_, _| {});
        if stop.stopped() {
            // The next container uploads it.
            return 0;
        }
        let errors = usize::from(outcome.is_err());
        match outcome {
            Ok(()) => {
                last.upload = Some(status::COMPLETE.into());
                last.error = None;
            }
            Err(error) => {
                let message = format!("{error:#}");
                log::error!("{message}");
                last.upload = Some(status::FAILED.into());
                last.error = Some(message);
            }
        }
        if let Err(error) = publisher.store(&last) {
            log::warn!("{error:#}");
        }
        publisher.publish_final(last);
        errors
    }

    /// Publishes the authority's certificate in the namespace, for checking the seal of the
    /// archive. Without permission, the run continues, since it does not need it itself.
    fn publish_authority(&self, aggregator: &Aggregator, pod: Option<&Value>) {
        let certificate = aggregator.authority().certificate_pem();
        let mut data =
            json!({(names::AUTHORITY_KEY): certificate, (names::RUN_KEY): self.config.uuid});
        if let Some(pod) = pod.filter(|pod| names::claim(pod).is_some()) {
            // Another pod can continue the run if this one is lost.
            data[names::POD_KEY] = json!(names::bare(pod).to_string());
        }
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"labels": names::own_labels(), "name": names::AUTHORITY_MAP, "namespace": self.config.namespace},
            "data": data,
        });
        let (maps, namespace) = (&Resource::CONFIG_MAPS, &self.config.namespace);
        let report = match self.client.create(maps, namespace, &map) {
            Err(error) if error.already_exists() => self.client.merge_patch(
                maps,
                namespace,
                names::AUTHORITY_MAP,
                &json!({"data": data}),
            ),
            report => report,
        };
        if let Err(error) = report {
            log::warn!(
                "cannot publish the run's certificate; the archive's seal can be verified only in \
                 this pod: {error}"
            );
        }
    }

    /// Whether workers are in the image of this aggregator's pod, which contains this program. The
    /// capabilities of workers in other images are unknown.
    fn has_own_workers(&self, pod: &Value) -> bool {
        let mut containers = pod["spec"]["containers"].items();
        containers.any(|container| container["image"] == *self.config.worker_image)
    }

    /// Whether each worker gets its own certificate: if it can request one, and tokens may be
    /// reviewed.
    fn certifies_nodes(&self, pod: &Value, permissions: &FreshPermissions<'_>) -> Result<bool> {
        let config = &self.config;
        if config.identity == config::IdentityMode::Plugin || self.definitions.is_empty() {
            return Ok(false);
        }
        let is_required = config.identity == config::IdentityMode::Node;
        if !is_required && !self.has_own_workers(pod) {
            log::info!(
                "workers share the certificate of their plugin: `{}` is not the image of this \
                 aggregator",
                config.worker_image
            );
            return Ok(false);
        }
        let is_allowed = || self.client.allowed("create", &Resource::TOKEN_REVIEWS, "");
        let allowed = permissions.request(is_allowed, |answer| !matches!(answer, Ok(true)));
        match allowed.context("asking whether tokens may be reviewed") {
            Ok(true) => Ok(true),
            Ok(false) if is_required => bail!(
                "the run may not review tokens, which certificates for each node need: give its \
                 account the verb `create` for `tokenreviews.authentication.k8s.io`, or use \
                 `--identity auto`"
            ),
            Err(error) if is_required => Err(error),
            refused => {
                let why = match refused {
                    Err(error) => format!(": {error:#}"),
                    Ok(_) => String::new(),
                };
                log::warn!(
                    "workers share the certificate of their plugin: the run may not review \
                     tokens{why}"
                );
                Ok(false)
            }
        }
    }

    /// Takes the snapshot, if the run has one; returns the number of errors.
    fn query(&self, run_dir: &Path, redactor: Option<&Redactor>, stop: &Stop) -> usize {
        if !self.config.takes_snapshot() {
            return 0;
        }
        let burst = u32::try_from(self.config.burst).unwrap_or(u32::MAX);
        let client = self.client.clone().rate(self.config.qps, burst);
        let query = Query {
            client: &client,
            config: &self.config,
            redactor,
            folder: run_dir,
            workers: query::WORKERS,
        };
        match query.run(stop) {
            Ok(summary) => {
                let more = summary.errors.len().saturating_sub(MAX_LOGGED_ERRORS);
                if more > 0 {
                    log::warn!(
                        "{more} more errors of the snapshot are listed in `{}`",
                        layout::QUERY_ERRORS
                    );
                }
                for trouble in summary.errors.iter().take(MAX_LOGGED_ERRORS) {
                    log::warn!(
                        "query of {} {}{}: {}",
                        trouble.queryobj,
                        trouble.namespace,
                        trouble.name,
                        trouble.error
                    );
                }
                0
            }
            Err(error) => {
                log::error!("the cluster could not be queried: {error:#}");
                1
            }
        }
    }

    /// Keeps the logs of a pod, as the snapshot does of those that still exist at the end.
    fn keep_logs(&self, run_dir: &Path, pod: &Value, stop: &Stop) {
        let outcome = self.read_logs(run_dir, pod, stop);
        if let Err(error) = outcome {
            log::warn!(
                "the logs of {} are lost: {error:#}",
                pod["metadata"]["name"]
            );
        }
    }

    fn read_logs(&self, run_dir: &Path, pod: &Value, stop: &Stop) -> Result<()> {
        let redactor = Redactor::new(&self.config.redaction)?;
        let query = Query {
            client: &self.client,
            config: &self.config,
            redactor: redactor.as_ref(),
            folder: run_dir,
            workers: 1,
        };
        query.keep_logs(pod, stop)
    }

    /// Publishes the last status of a run that an earlier container completed, and does what that
    /// container did not: removes the run's state, and uploads the archive.
    fn republish_last_status(&self, publisher: &StatusPublisher<'_>, stop: &Stop) {
        let last = self.last_status();
        publisher.publish_final(last.clone());
        let archive = &last.archive.name;
        if let Some(uuid) = layout::run_of_archive(archive).filter(|uuid| config::is_run(uuid)) {
            self.remove_run(uuid);
        }
        if !RunEnd::of(&last).is_over() {
            self.upload(&self.folder.join(archive), last, publisher, stop);
        }
    }

    /// This pod; by its labels where the host's name is not that of the pod. An error if the API
    /// server cannot be reached at all.
    fn own_pod(&self) -> Result<Option<Value>> {
        let namespace = &self.config.namespace;
        let client = self.client.clone().retry_timeout(FIRST_CONTACT_TIMEOUT);
        let pod = match client.get(&Resource::PODS, namespace, &self.own_name) {
            Ok(pod) => return Ok(Some(pod)),
            Err(error @ kube::Error::Api(_)) => {
                log::debug!("there is no pod `{}`: {error}", self.own_name);
                state::find(&client, namespace)
            }
            Err(error) => Err(error),
        };
        match pod {
            Err(error) if error.code().is_some_and(|code| code < 500) => {
                log::warn!("cannot look up the aggregator's own pod: {error}");
                Ok(None)
            }
            pod => pod.context("the aggregator cannot reach the API server"),
        }
    }
}

/// The steps after the last result: snapshot, cleanup, archive, end.
struct LastSteps<'a> {
    run: &'a ClusterRun<'a>,
    context: &'a RunContext<'a>,
    driver: &'a ClusterDriver<'a>,
    publisher: &'a StatusPublisher<'a>,
    pod: &'a Value,
    redactor: Option<Redactor>,
    started: SystemTime,
    stopwatch: Stopwatch,
    /// Whether the end of the run is recorded, so that no container resumes it.
    is_recorded: bool,
}

impl LastSteps<'_> {
    /// Takes the steps; returns the path of the archive, its entry, and the number of errors.
    /// `finish_marks` marks nodes, and returns why some could not be marked.
    fn take(
        &mut self,
        finish_marks: &mut dyn FnMut() -> Option<String>,
        stop: &Stop,
    ) -> Result<(PathBuf, status::Archive, usize)> {
        if stop.stopped() {
            bail!("the run was interrupted; it resumes when this container is started again");
        }
        let (run, context) = (self.run, self.context);
        let (aggregator, run_dir) = (context.aggregator, context.run_dir);
        let redactor = self.redactor.as_ref();
        let has_timed_out = has_timed_out(&aggregator.status());
        self.stopwatch
            .end_plugins(aggregator.store.lock().milestones);

        // Before the pods are removed, which are part of it.
        let errors = usize::from(has_timed_out) + run.query(run_dir, redactor, stop);
        self.stopwatch.end(timings::SNAPSHOT);
        self.remove_plugins();

        // The archive cannot contain the time that its own creation takes; the status has it.
        let timings_so_far = self.stopwatch.timings(kube::sent_requests());
        pack::write_json(&run_dir.join(layout::TIMINGS), &json!(timings_so_far))?;
        let (path, archive, failed) = pack::pack(context, redactor, run.folder, self.started)?;
        self.stopwatch.end(timings::ARCHIVE);
        let all_timings = self.stopwatch.timings(kube::sent_requests());
        aggregator.store.lock().timings = Some(all_timings);

        let not_marked = finish_marks().inspect(|reason| log::warn!("{reason}"));
        let errors = errors + usize::from(not_marked.is_some());
        aggregator.store.lock().not_marked = not_marked;

        let last_status = aggregator.last_status(&archive);
        self.is_recorded = run.record_end(self.publisher, self.pod, &last_status);
        log::info!("Results available at {}", path.display());
        Ok((path, archive, errors + failed))
    }

    fn remove_plugins(&self) {
        for plugin in self.context.to_remove() {
            if let Err(error) = self.driver.remove(plugin) {
                log::warn!("plugin `{}` could not be removed: {error:#}", plugin.name());
            }
        }
    }
}

fn has_timed_out(status: &status::Run) -> bool {
    let mut entries = status.plugins.iter().flatten();
    entries.any(|entry| entry.timed_out)
}

/// Runs everything; returns whether all went well. `connect` creates the client once the settings
/// are read.
pub(crate) fn aggregate(
    connect: impl FnOnce() -> Result<kube::Client>,
    no_exit: bool,
    stop: &Stop,
) -> Result<bool> {
    let variable = |name: &str| std::env::var(name).ok();
    let host_name = sys::host_name();
    let environment = config::Environment {
        variable: &variable,
        host_name: Some(host_name.clone()),
    };
    let config = config::load(&environment)?;
    let folders = config.plugin_search_path.clone().unwrap_or_default();
    let selected = config.plugins.as_ref().map(|plugins| {
        let names = plugins.iter().map(|plugin| plugin.name.clone());
        names.collect::<Vec<_>>()
    });
    let mut definitions = plugin::search(&folders, selected.as_deref())?;
    if variable("SONOBUOY_DISABLE_RECONCILIATION").as_deref() != Some("true") {
        for definition in &mut definitions {
            definition.reconcile(&config.results_dir);
        }
    }
    let client = connect()?;
    let folder = variable("SONOBUOY_AGGREGATOR_DIR").unwrap_or_else(|| names::RUNS_DIR.into());
    let status_service = status_service(&config, Path::new(&folder), &variable);
    let run = ClusterRun {
        config,
        definitions,
        client,
        folder: Path::new(&folder),
        own_name: host_name,
        status_service: status_service.as_ref(),
        upload: variable(names::env::UPLOAD_URL).filter(|url| !url.is_empty()),
        stays: no_exit,
    };
    let service_end = stop.child();
    std::thread::scope(|scope| {
        if let Some(status_service) = &status_service {
            let serve = || {
                if let Err(error) = status_service.serve(&service_end) {
                    log::error!("the status service ended: {error:#}");
                }
            };
            base::thread("status_service").spawn_scoped(scope, serve)?;
        }
        let outcome = run_and_block(run, no_exit, stop);
        service_end.stop();
        outcome
    })
}

/// Runs everything, and stays afterwards if requested; returns whether all went well.
fn run_and_block(run: ClusterRun<'_>, no_exit: bool, stop: &Stop) -> Result<bool> {
    let removal = OwnRemoval::of(&run);
    let outcome = run.run(stop);
    if stop.stopped() {
        if let Err(error) = outcome {
            log::error!("{error:#}");
        }
        return Ok(false);
    }
    let is_clean = outcome?;
    if !no_exit {
        return Ok(is_clean);
    }
    log::info!("no-exit was specified, sonobuoy is now blocking");
    if let Some(removal) = removal {
        removal.remove_when_due(stop);
    }
    stop.wait_forever();
    Ok(true)
}

/// The removal of a run by its aggregator, in case nothing else removes it.
struct OwnRemoval {
    client: kube::Client,
    namespace: String,
    delay: Duration,
}

impl OwnRemoval {
    /// The removal that the settings of a run ask for.
    fn of(run: &ClusterRun<'_>) -> Option<Self> {
        let delay = Duration::from_secs(run.config.remove_after_seconds);
        (!delay.is_zero()).then(|| Self {
            client: run.client.clone(),
            namespace: run.config.namespace.clone(),
            delay,
        })
    }

    /// Waits, then deletes the namespace of the run, and this pod with it.
    fn remove_when_due(&self, stop: &Stop) {
        let namespace = &self.namespace;
        log::info!(
            "the namespace `{namespace}` is deleted in {}",
            clock::duration(self.delay)
        );
        if !stop.wait(self.delay)
            && let Err(error) = remove_namespace(&self.client, namespace)
        {
            log::error!("cannot delete the namespace `{namespace}`: {error}");
        }
    }
}

/// The second server, if the run has one. If it fails, the run continues: its status is available
/// in other ways, too.
fn status_service(
    config: &config::Run,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<StatusService> {
    let port = config.server.status_port;
    if port == 0 {
        return None;
    }
    let certificates = variable("SONOBUOY_STATUS_DIR").unwrap_or_else(|| names::STATUS_DIR.into());
    match StatusService::open(Path::new(&certificates), port, folder) {
        Ok(service) => Some(service),
        Err(error) => {
            log::error!("there will be no status service: {error:#}");
            None
        }
    }
}
