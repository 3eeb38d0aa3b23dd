//! A whole run in a cluster, as the aggregator's pod performs it.
//!
//! Reads settings and definitions, combines the steps, and makes them resumable: a container that
//! restarts in the same pod finds the folder of its run, which may be on a volume with others,
//! continues with the same identity, authority and expectations, and adopts its plugins. Calls to
//! the API are retried long enough for the run to survive an outage of the API server. Starts
//! the thread `status_service`, and joins it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::conduct;
use super::context::{ClusterRun, RunContext, uid};
use super::marks::{self, NodeMarker};
use super::publisher::StatusPublisher;
use super::status_service::StatusService;
use super::{pack, retry, review, upload};
use crate::remote::state;
use base::at::At as _;
use base::json::json;
use base::proxy::authority;
use base::stop::Stop;
use base::{archive, logger, small, sys, temp};
use client::protocol::{Failure, ResultId};
use http::Server;
use kube::{self, Object as _, Resource, Selector};
use model::names::{self, AGGREGATOR_SELECTORS};
use model::nodes::Ring;
use model::plugin::{self, Definition};
use model::timings::{self, Stopwatch};
use model::verdict::RunEnd;
use model::{config, layout, status};
use run::aggregator::Aggregator;
use run::backplane::Authority;
use run::driver::cluster::Roster;
use run::driver::{self, Driver as _};
use run::query::{self, Query, Redactor};

/// Time during which refusals are retried: a run's permissions are created just before its pod, and
/// a busy server applies them late.
const RIGHTS_SETTLE: Duration = Duration::from_secs(4);
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// Time limit for the first contact with the API server; later outages may last longer.
const FIRST_CONTACT_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of an identity file.
const MAX_IDENTITY_BYTES: u64 = 4 << 10;
/// Maximum errors of a snapshot that are logged individually.
const TOLD_TROUBLES: usize = 20;

impl ClusterRun<'_> {
    /// Runs everything; returns whether all went well, and `Err` if the published status does not
    /// tell that: the container has to end, so that its state does.
    pub(crate) fn run(mut self, stop: &Stop) -> Result<bool> {
        let pod = self.own_pod()?;
        let pod = pod.as_ref();
        let rights = FreshPermissions {
            stop,
            settled: Instant::now() + RIGHTS_SETTLE,
        };
        fs::create_dir_all(self.folder).at("cannot create", self.folder)?;
        // A killed container may have left a part of them.
        for name in [layout::LAST_STATUS, layout::COMPLETE] {
            temp::clean(self.folder, name).at("cannot read", self.folder)?;
        }
        let uid = pod.map(uid).filter(|uid| !uid.is_empty());
        if uid.is_some()
            && fs::read_to_string(self.folder.join(layout::COMPLETE))
                .ok()
                .as_deref()
                == uid
        {
            log::info!(
                "the run is complete; its archive is in `{}`",
                self.folder.display()
            );
            let publisher = StatusPublisher::new(&self, pod);
            self.republish_last_status(&publisher, stop);
            publisher.repeat_failed(stop);
            return Ok(true);
        }
        let identity = self.identity(uid, &rights);
        let new_authority = match self.interrupted(&identity)? {
            Some(uuid) => {
                log::info!("resuming run {uuid} where it was interrupted");
                temp::clean(self.folder, &uuid).at("cannot read", self.folder)?;
                self.config.uuid = uuid;
                None
            }
            None => {
                self.put_aside();
                let run_dir = self.folder.join(&self.config.uuid);
                if !self.config.uuid.is_empty()
                    && (run_dir.exists() || layout::state_dir(&run_dir).exists())
                {
                    log::warn!(
                        "`UUID` {} is that of an interrupted run; this run gets another",
                        self.config.uuid
                    );
                    self.config.uuid.clear();
                }
                conduct::identify(&mut self.config, &self.definitions)?
            }
        };
        let run_dir = self.folder.join(&self.config.uuid);
        conduct::begin(&run_dir, &self.config)?;

        let publisher = StatusPublisher::new(&self, pod);
        let outcome = self.run_in(
            &run_dir,
            new_authority,
            &identity,
            &rights,
            &publisher,
            stop,
        );
        logger::untee();
        if let Err(error) = &outcome
            && !stop.stopped()
        {
            let failed = status::Run {
                status: status::FAILED.into(),
                error: Some(format!("{error:#}")),
                ..status::Run::default()
            };
            // The details are in the log; a command that follows the status must not wait forever.
            publisher.settle(failed);
        }
        match outcome {
            Err(error) if !publisher.is_published() => Err(error),
            Err(error) => {
                log::error!("{error:#}");
                Ok(false)
            }
            Ok(clean) => {
                publisher.repeat_failed(stop);
                Ok(clean)
            }
        }
    }

    fn run_in(
        &self,
        run_dir: &Path,
        new_authority: Option<Authority>,
        identity: &str,
        rights: &FreshPermissions<'_>,
        publisher: &StatusPublisher<'_>,
        stop: &Stop,
    ) -> Result<bool> {
        let started = SystemTime::now();
        let (expected, failures, ring) = self.expected(run_dir, rights)?;
        let settings = conduct::settings(&self.config, &self.definitions, new_authority);
        let mut aggregator = Aggregator::open(run_dir, &expected.concat(), settings)?;
        aggregator.identify(identity)?;
        aggregator.store.lock().uploads = self.upload.is_some();
        // If launched, they would send results that are no longer awaited.
        failures
            .iter()
            .for_each(|failure| aggregator.store.record(failure));
        self.tell_authority(&aggregator.authority().certificate_pem(), publisher.pod);
        let at = &self.config.server;
        let server = Server::bind(&authority(
            at.bind_address.trim_matches(['[', ']']),
            at.bind_port,
        ))?;

        let Some(pod) = publisher
            .pod
            .or_else(|| self.definitions.is_empty().then_some(&Value::Null))
        else {
            bail!(
                "the aggregator's own pod cannot be found in namespace `{}` by any of the labels \
                 {AGGREGATOR_SELECTORS:?}",
                self.config.namespace
            );
        };
        let retry_definitions = retry::attempts(&self.config, &self.definitions);
        let roster = Roster::default();
        let by_node = self.certifies_nodes(pod, rights)?;
        if by_node {
            aggregator = aggregator.certifies(Box::new(review::ClusterReviewer {
                client: self.client.once(review::REVIEW_TIMEOUT),
                config: self.config.clone(),
                definitions: self
                    .definitions
                    .iter()
                    .chain(&retry_definitions)
                    .cloned()
                    .collect(),
                owner: uid(pod).to_owned(),
                roster: roster.clone(),
            }));
        }
        let aggregator = Arc::new(aggregator);
        if let Some(status_service) = self.status_service {
            let aggregator = Arc::clone(&aggregator);
            status_service.show(move || aggregator.status());
        }
        let hosts = aggregator.addresses(&self.config.server.advertise_address)?;
        let server = conduct::server(server, &hosts, by_node, &aggregator, &self.config)?;
        let driver = driver::cluster::ClusterDriver {
            client: self.client.clone(),
            config: &self.config,
            authority: aggregator.authority(),
            audience: by_node.then(|| review::audience(&self.config)),
            has_own_workers: self.has_own_workers(pod),
            owner: (pod.name().to_owned(), uid(pod).to_owned()),
            roster,
            ring,
            heard: &|id| aggregator.store.lock().heard(id),
            receiving: &|id| aggregator.store.lock().is_uploading(id),
            settled: &|id| aggregator.store.lock().is_settled(id),
            keep_logs: &|pod| self.keep_logs(run_dir, pod, stop),
        };
        let context = RunContext {
            aggregator: &aggregator,
            run_dir,
            config: &self.config,
            plugins: retry::launches(&self.definitions, expected),
            attempts: &retry_definitions,
        };
        let redactor = Redactor::new(&self.config.redaction)?;
        let redactor = redactor.as_ref();
        let mut is_recorded = false;
        let mut stopwatch = Stopwatch::start();
        // A container being stopped could not send it any more, and the next one has more to
        // report.
        let publish = |status: &status::Run| {
            if stop.stopped() {
                Ok(())
            } else {
                publisher.publish(status)
            }
        };
        let marker = NodeMarker::new(&self.config, &self.client);
        let run = |finish_marks: &mut dyn FnMut() -> Option<String>| {
            let finish = || {
                if stop.stopped() {
                    bail!(
                        "the run was interrupted; it resumes when this container is started again"
                    );
                }
                let timed_out = aggregator
                    .status()
                    .plugins
                    .iter()
                    .flatten()
                    .any(|entry| entry.timed_out);
                stopwatch.end_plugins(aggregator.store.lock().milestones);
                let errors = usize::from(timed_out) + self.query(run_dir, redactor, stop);
                stopwatch.end(timings::SNAPSHOT);
                for plugin in context.to_remove() {
                    if let Err(error) = driver.remove(plugin) {
                        log::warn!("plugin `{}` could not be removed: {error:#}", plugin.name());
                    }
                }
                let measured = stopwatch.timings(kube::sent_requests());
                pack::write_json(&run_dir.join(layout::TIMINGS), &json!(measured))?;
                let (path, archive, failed) = pack::pack(&context, redactor, self.folder, started)?;
                stopwatch.end(timings::ARCHIVE);
                let measured = stopwatch.timings(kube::sent_requests());
                aggregator.store.lock().timings = Some(measured);
                let not_marked = finish_marks().inspect(|reason| log::warn!("{reason}"));
                let errors = errors + usize::from(not_marked.is_some());
                aggregator.store.lock().not_marked = not_marked;
                is_recorded = self.record_end(publisher, pod, &aggregator.last_status(&archive));
                log::info!("Results available at {}", path.display());
                Ok((path, archive, errors + failed))
            };
            conduct::run(&server, &driver, &context, publish, finish, stop)
        };
        let (archive, errors) = marks::beside(marker, &context, stop, run)?;
        if is_recorded {
            self.remove_run(&self.config.uuid);
        }
        Ok(errors + self.upload(&archive, aggregator.status(), publisher, stop) == 0)
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
        let sent = upload::upload(&[archive.to_owned()], url, stop);
        if stop.stopped() {
            // The next container uploads it.
            return 0;
        }
        last.upload = Some(
            if sent.is_ok() {
                status::COMPLETE
            } else {
                status::FAILED
            }
            .into(),
        );
        last.error = sent.err().map(|error| format!("{error:#}"));
        if let Some(error) = &last.error {
            log::error!("{error}");
        }
        let errors = usize::from(last.error.is_some());
        if let Err(error) = publisher.keep(&last) {
            log::warn!("{error:#}");
        }
        publisher.settle(last);
        errors
    }

    /// Records that the run is over: the next container of the pod only publishes its last status.
    /// Without this record it resumes the run, which then still needs its state and results.
    fn record_end(&self, publisher: &StatusPublisher<'_>, pod: &Value, last: &status::Run) -> bool {
        let marker = self.folder.join(layout::COMPLETE);
        // Whoever finds the marker must also find the status.
        let recorded = publisher
            .keep(last)
            .and_then(|()| temp::write(&marker, 0o600, uid(pod)).at("cannot write", &marker));
        if let Err(error) = &recorded {
            log::warn!(
                "cannot record that the run is over; if this container is restarted, it packs the \
                 archive again: {error:#}"
            );
        }
        recorded.is_ok()
    }

    /// Removes what only a resumed run needs: its keys, and its results, which are in the archive.
    fn remove_run(&self, uuid: &str) {
        let run_dir = self.folder.join(uuid);
        for folder in [layout::state_dir(&run_dir), run_dir] {
            if let Err(error) = base::found(fs::remove_dir_all(&folder)) {
                log::warn!("cannot remove `{}`: {error}", folder.display());
            }
        }
    }

    /// Publishes the authority's certificate in the namespace, for checking the seal of the
    /// archive. Without permission, the run continues, since it does not need it itself.
    fn tell_authority(&self, certificate: &str, pod: Option<&Value>) {
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

    /// Expected results of each plugin, in the order of the definitions. A plugin that runs on
    /// nodes has a single result, which this returns as a failure, if the nodes are unknown or
    /// none was chosen. Also returns the nodes that plugins can probe.
    fn expected(
        &self,
        run_dir: &Path,
        rights: &FreshPermissions<'_>,
    ) -> Result<(Vec<Vec<ResultId>>, Vec<Failure>, Ring)> {
        let mut nodes = Vec::new();
        let mut list = || {
            nodes.clear();
            self.client
                .each(&Resource::NODES, "", &Selector::all(), &mut |mut node| {
                    driver::cluster::shrink_node(&mut node);
                    nodes.push(node);
                    Ok(())
                })
        };
        let per_node = |definition: &Definition| definition.config.driver.is_per_node();
        let mut unseen = None;
        if self.definitions.iter().any(per_node) {
            match rights.ask(&mut list, |answer| {
                answer.as_ref().is_err_and(kube::Error::is_forbidden)
            }) {
                Ok(_) => {}
                Err(error) if error.is_forbidden() => {
                    let why = format!(
                        "it runs on each node, but the run may not list the nodes: allow more \
                         with `--aggregator-permissions` ({error})"
                    );
                    log::warn!("plugins that run on each node are skipped: {why}");
                    unseen = Some(why);
                }
                Err(error) => return Err(error).context("listing the nodes"),
            }
        }
        let (mut expected, mut failures, mut excluded) = (Vec::new(), Vec::new(), BTreeMap::new());
        for definition in &self.definitions {
            let (name, global) = (definition.name(), ResultId::global(definition.name()));
            if let Some(why) = unseen.as_ref().filter(|_| per_node(definition)) {
                failures.push(Failure::skipped(global.clone(), why));
                expected.push(vec![global]);
                continue;
            }
            let (mut ids, others) =
                driver::cluster::expected(definition, &self.config, &nodes, &self.config.uuid);
            if definition.config.driver == plugin::DriverKind::Nodes && ids.is_empty() {
                let why = others
                    .first_key_value()
                    .map(|(node, why)| format!(": on `{node}`, {why}"));
                let why = format!("no node was chosen{}", why.unwrap_or_default());
                failures.push(Failure::new(global.clone(), why));
                ids.push(global);
            }
            if !others.is_empty() {
                log::info!(
                    "plugin `{name}`: {} of {} nodes are excluded, listed in `{}`",
                    others.len(),
                    nodes.len(),
                    layout::EXCLUDED
                );
                excluded.insert(name, others);
            }
            expected.push(ids);
        }
        if !excluded.is_empty() {
            pack::write_json(&run_dir.join(layout::EXCLUDED), &json!(excluded))?;
        }
        Ok((expected, failures, Ring::of(&nodes)))
    }

    /// Whether workers are in the image of this aggregator's pod, which contains this program. The
    /// capabilities of workers in other images are unknown.
    fn has_own_workers(&self, pod: &Value) -> bool {
        let mut containers = pod["spec"]["containers"].items();
        containers.any(|container| container["image"] == *self.config.worker_image)
    }

    /// Whether each worker gets its own certificate: if it can request one, and tokens may be
    /// reviewed.
    fn certifies_nodes(&self, pod: &Value, rights: &FreshPermissions<'_>) -> Result<bool> {
        let config = &self.config;
        if config.identity == config::IdentityMode::Plugin || self.definitions.is_empty() {
            return Ok(false);
        }
        let asked_for = config.identity == config::IdentityMode::Node;
        if !asked_for && !self.has_own_workers(pod) {
            log::info!(
                "workers share the certificate of their plugin: `{}` is not the image of this \
                 aggregator",
                config.worker_image
            );
            return Ok(false);
        }
        let allowed = || self.client.allowed("create", &Resource::TOKEN_REVIEWS, "");
        let allowed = rights.ask(allowed, |answer| !matches!(answer, Ok(true)));
        match allowed.context("asking whether tokens may be reviewed") {
            Ok(true) => Ok(true),
            Ok(false) if asked_for => bail!(
                "the run may not review tokens, which certificates for each node need: give its \
                 account the verb `create` for `tokenreviews.authentication.k8s.io`, or use \
                 `--identity auto`"
            ),
            Err(error) if asked_for => Err(error),
            refused => {
                let why = refused
                    .err()
                    .map(|error| format!(": {error:#}"))
                    .unwrap_or_default();
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
                let more = summary.errors.len().saturating_sub(TOLD_TROUBLES);
                if more > 0 {
                    log::warn!(
                        "{more} more errors of the snapshot are listed in `{}`",
                        layout::QUERY_ERRORS
                    );
                }
                for trouble in summary.errors.iter().take(TOLD_TROUBLES) {
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
        let outcome = Redactor::new(&self.config.redaction).and_then(|redactor| {
            let redactor = redactor.as_ref();
            let (client, config) = (&self.client, &self.config);
            Query {
                client,
                config,
                redactor,
                folder: run_dir,
                workers: 1,
            }
            .keep_logs(pod, stop)
        });
        if let Err(error) = outcome {
            log::warn!(
                "the logs of {} are lost: {error:#}",
                pod["metadata"]["name"]
            );
        }
    }

    /// Publishes the last status of a run that an earlier container completed, and does what that
    /// container did not: removes the run's state, and uploads the archive.
    fn republish_last_status(&self, publisher: &StatusPublisher<'_>, stop: &Stop) {
        let last = self.last_status();
        publisher.settle(last.clone());
        let archive = &last.archive.name;
        if let Some(uuid) = layout::run_of_archive(archive).filter(|uuid| config::is_run(uuid)) {
            self.remove_run(uuid);
        }
        if !RunEnd::of(&last).is_over() {
            self.upload(&self.folder.join(archive), last, publisher, stop);
        }
    }

    /// The last status of a complete run; that of a failed run if it cannot be read, so that no
    /// command waits for it forever.
    fn last_status(&self) -> status::Run {
        let path = self.folder.join(layout::LAST_STATUS);
        let text = fs::read_to_string(&path).at("cannot read", &path);
        let why = match text.and_then(|text| status::Run::parse(&text).at("cannot read", &path)) {
            Ok(last) if last.status == status::COMPLETE => return last,
            Ok(last) => format!("`{}` says `{}`", path.display(), last.status),
            Err(error) => format!("{error:#}"),
        };
        let error = format!(
            "the run is complete, but its last status cannot be read: {why}; its archive is in \
             `{}` of the aggregator's pod",
            self.folder.display()
        );
        log::error!("{error}");
        status::Run {
            status: status::FAILED.into(),
            error: Some(error),
            ..status::Run::default()
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

    /// Identity that the cluster gives this run, one value per line: uid and version of its two
    /// config maps, which a recreated pod finds unchanged, and the uid of this pod.
    fn identity(&self, pod: Option<&str>, rights: &FreshPermissions<'_>) -> String {
        let of_map = |name: &str| {
            let get = || {
                self.client
                    .get(&Resource::CONFIG_MAPS, &self.config.namespace, name)
            };
            let map = rights.ask(get, |answer| {
                answer.as_ref().is_err_and(kube::Error::is_forbidden)
            });
            let map = map
                .map_err(|error| log::debug!("only this pod resumes the run: {error}"))
                .ok()?;
            let metadata = &map["metadata"];
            Some(format!(
                "{}@{}",
                metadata["uid"].as_str()?,
                metadata["resourceVersion"].as_str()?
            ))
        };
        let maps = of_map(names::CONFIG_MAP).zip(of_map(names::PLUGINS_MAP));
        let maps = maps.map(|(settings, plugins)| format!("{settings} {plugins}"));
        maps.into_iter()
            .chain(pod.map(str::to_owned))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Interrupted run with this `identity`. A folder that outlives pods may contain others.
    fn interrupted(&self, identity: &str) -> Result<Option<String>> {
        for entry in fs::read_dir(self.folder)
            .at("cannot read", self.folder)?
            .flatten()
        {
            let name = entry.file_name();
            let uuid = name.to_str().and_then(layout::run_of_state);
            let Some(uuid) = uuid.filter(|uuid| config::is_run(uuid)) else {
                continue;
            };
            let stored_identity =
                small::read(&entry.path().join(layout::IDENTITY), MAX_IDENTITY_BYTES);
            let why = match stored_identity.and_then(small::text) {
                Ok(stored_identity)
                    if stored_identity
                        .lines()
                        .any(|line| identity.lines().any(|own| own == line)) =>
                {
                    return Ok(Some(uuid.to_owned()));
                }
                Ok(_) => "this is another run".to_owned(),
                Err(error) => format!("its state cannot be read: {error}"),
            };
            log::warn!("run {uuid} was interrupted and is not resumed: {why}");
        }
        Ok(None)
    }

    /// Moves archives of earlier runs aside, so that they are not mistaken for this run's.
    fn put_aside(&self) {
        let earlier = self.folder.join(layout::EARLIER);
        for path in archive::finished(self.folder).unwrap_or_default() {
            let aside = earlier.join(path.file_name().unwrap_or_default());
            let moved = fs::create_dir_all(&earlier).and_then(|()| {
                for (from, to) in layout::seal(&path).iter().zip(layout::seal(&aside)) {
                    // Archives from older versions have no seal.
                    let _ = fs::rename(from, to);
                }
                fs::rename(&path, &aside)
            });
            match moved {
                Ok(()) => log::info!(
                    "the archive of an earlier run is kept as `{}`",
                    aside.display()
                ),
                Err(error) => log::warn!("cannot move `{}` aside: {error}", path.display()),
            }
        }
    }
}

/// Permissions of a run that has just begun.
struct FreshPermissions<'a> {
    stop: &'a Stop,
    /// Time from which refusals are final.
    settled: Instant,
}

impl FreshPermissions<'_> {
    /// Calls `ask`, again while a refusal may pass.
    fn ask<T>(&self, mut ask: impl FnMut() -> T, is_refused: impl Fn(&T) -> bool) -> T {
        loop {
            let answer = ask();
            if !is_refused(&answer)
                || Instant::now() >= self.settled
                || self.stop.wait(REFUSED_PAUSE)
            {
                return answer;
            }
        }
    }
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
    let selected: Option<Vec<String>> = config
        .plugins
        .as_ref()
        .map(|plugins| plugins.iter().map(|plugin| plugin.name.clone()).collect());
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
    let over = stop.child();
    std::thread::scope(|scope| {
        if let Some(status_service) = &status_service {
            let serve = || {
                if let Err(error) = status_service.serve(&over) {
                    log::error!("the status service ended: {error:#}");
                }
            };
            base::thread("status_service").spawn_scoped(scope, serve)?;
        }
        let clean = see_through(run, no_exit, stop);
        over.stop();
        clean
    })
}

/// Runs everything, and stays afterwards if requested; returns whether all went well.
fn see_through(run: ClusterRun<'_>, no_exit: bool, stop: &Stop) -> Result<bool> {
    let outcome = run.run(stop);
    if stop.stopped() {
        if let Err(error) = outcome {
            log::error!("{error:#}");
        }
        return Ok(false);
    }
    let clean = outcome?;
    if no_exit {
        log::info!("no-exit was specified, sonobuoy is now blocking");
        stop.wait_forever();
        return Ok(true);
    }
    Ok(clean)
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
    let opened = StatusService::open(Path::new(&certificates), port, folder);
    opened
        .map_err(|error| log::error!("there will be no status service: {error:#}"))
        .ok()
}
