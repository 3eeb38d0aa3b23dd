//! Removes a run from a cluster and waits until it is gone.
//!
//! Decides whether a run created its namespace. Neither our manifests nor the original's mark it,
//! so the decision uses the run's objects: its settings grant all permissions, so that it creates a
//! namespace; its oldest object is about as old as the namespace; and the same program created
//! both, according to the server. In any other namespace, only the objects of the run are deleted.
//! Nobody reads the results of a removed run, so its pods get little time to end. Waiting uses
//! watches; one thread ends them at the time limit.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow, bail, ensure};
use serde_json::Value;

use super::apply::delays;
use super::manifest;
use base::{Joined as _, clock, logger};
use kube::{Client, Error, Event, Object, Request, Resource, Selector};
use model::names::{self, SELECTOR};
use run::driver::POD_GRACE;

/// Kind of namespaces in the log.
const NAMESPACE: &str = "namespace";
/// Label that e2e tests put on their namespaces.
const E2E: &str = "e2e-framework,e2e-run";
/// Maximum time between the creation of a namespace and of the run's objects in it.
const AT_ONCE: Duration = Duration::from_secs(120);
/// Scope of a removal.
pub(crate) struct Removal {
    /// Namespace of the run.
    pub namespace: String,
    /// Whether roles and bindings may exist.
    pub rbac: bool,
    /// Deletes the namespace in any case, the roles of all runs without an aggregator, and
    /// leftovers of e2e tests.
    pub all: bool,
    /// Dry run on the server.
    pub dry_run: bool,
}

/// Deleted objects that may still exist.
#[derive(Debug)]
pub(crate) struct Remaining {
    targets: Vec<Target>,
    /// Whether namespaces of e2e tests are among them.
    e2e: bool,
}

#[derive(Debug)]
struct Target {
    resource: Resource,
    namespace: String,
    selector: Selector,
    /// Name in messages.
    what: String,
    /// The original's sentence once it is gone; empty for none.
    epilogue: String,
}

impl Removal {
    /// Deletes everything; missing objects are not an error. Tries all before it returns an error.
    pub(crate) fn issue(&self, client: &Client) -> Result<Remaining> {
        let mut work = RemovalInProgress {
            removal: self,
            client,
            left: Vec::new(),
            failures: Vec::new(),
            is_absent: false,
        };
        let run = RunObjects::read(client, &self.namespace)?;
        work.is_absent = run.is_absent;
        if run.is_absent {
            log::warn!(
                "namespace `{}` does not exist, and neither does a run in it",
                self.namespace
            );
        }
        let others = if self.all {
            self.others(client)?
        } else {
            BTreeSet::new()
        };
        let spared = others.iter().map(String::as_str).joined(",");
        for other in &others {
            log::info!(
                "the run in namespace {other} is spared; remove it with `sonobuoy delete -n \
                 {other}`"
            );
        }
        if run.is_foreign && !self.all {
            log::warn!("{}", self.why_kept(&run));
            work.empty(&run);
        } else {
            if !run.is_absent {
                work.end_pods(&self.namespace);
            }
            let epilogue = format!("Namespace \"{}\" has been deleted", self.namespace);
            work.namespace(&self.namespace, self.unless_nothing(&run, &epilogue));
        }
        if self.rbac && (self.all || !run.namespaced) {
            let of_this_run = format!("{SELECTOR},namespace={}", self.namespace);
            let labels = match self.all {
                false => of_this_run.clone(),
                true if spared.is_empty() => SELECTOR.to_owned(),
                true => format!("{SELECTOR},namespace notin ({spared})"),
            };
            for (resource, epilogue) in [
                (Resource::CLUSTER_ROLE_BINDINGS, ""),
                (
                    Resource::CLUSTER_ROLES,
                    "Deleted all ClusterRoles and ClusterRoleBindings.",
                ),
            ] {
                work.many(&resource, "", &labels);
                // Roles of runs that start meanwhile are kept.
                let what = format!("{} of {}", resource.plural, self.namespace);
                let epilogue = self.unless_nothing(&run, epilogue);
                work.await_end(resource, "", Selector::labels(&of_this_run), what, epilogue);
            }
        }
        if self.all && !others.is_empty() {
            log::info!("namespaces of e2e tests are spared: they may belong to a run in {spared}");
        } else if self.all {
            for found in client.list(&Resource::NAMESPACES, "", &Selector::labels(E2E))? {
                work.namespace(found.name(), String::new());
            }
        }
        ensure!(work.failures.is_empty(), "{}", work.failures.join("; "));
        Ok(Remaining {
            targets: work.left,
            e2e: self.all && others.is_empty(),
        })
    }

    /// What to print at the end: nothing, if there was nothing to delete and a warning says so.
    fn unless_nothing(&self, run: &RunObjects, epilogue: &str) -> String {
        if run.is_absent && !self.all {
            String::new()
        } else {
            epilogue.to_owned()
        }
    }

    /// Why the namespace is kept.
    fn why_kept(&self, run: &RunObjects) -> String {
        let namespace = &self.namespace;
        if run.is_unreadable {
            return format!(
                "this account may not read the namespace {namespace}, so it is not known whether \
                 the run made it: only what belongs to the run is removed"
            );
        }
        if run.is_missing {
            return format!("namespace {namespace} has no run, and is kept");
        }
        format!(
            "the run did not make the namespace {namespace}: only what belongs to the run is \
             removed; `kubectl delete namespace {namespace}` removes the rest with everything in \
             it"
        )
    }

    /// Other namespaces with an aggregator.
    fn others(&self, client: &Client) -> Result<BTreeSet<String>, Error> {
        let mut others = BTreeSet::new();
        for labels in names::AGGREGATOR_SELECTORS {
            let pods = client.list(&Resource::PODS, "", &Selector::labels(labels))?;
            others.extend(pods.iter().map(|pod| pod.namespace().to_owned()));
        }
        others.remove(&self.namespace);
        Ok(others)
    }
}

/// A removal in progress.
struct RemovalInProgress<'a> {
    removal: &'a Removal,
    client: &'a Client,
    left: Vec<Target>,
    failures: Vec<String>,
    /// Whether the namespace does not exist.
    is_absent: bool,
}

impl RemovalInProgress<'_> {
    fn namespace(&mut self, name: &str, epilogue: String) {
        self.delete_object(&Resource::NAMESPACES, "", NAMESPACE, name);
        let what = format!("namespace {name}");
        self.await_end(
            Resource::NAMESPACES,
            "",
            Selector::name(name),
            what,
            epilogue,
        );
    }

    /// Ends the pods of the run before their namespace is deleted, which would give them the time
    /// in their specs.
    fn end_pods(&self, namespace: &str) {
        let selector = Selector::labels(SELECTOR);
        let request = Request::delete_collection(&Resource::PODS, namespace, &selector);
        if let Err(error) = self.client.send(&self.dry(request.grace_period(POD_GRACE))) {
            log::debug!("the pods end with their namespace: {error}");
        }
    }

    fn await_end(
        &mut self,
        resource: Resource,
        namespace: &str,
        selector: Selector,
        what: String,
        epilogue: String,
    ) {
        self.left.push(Target {
            resource,
            namespace: namespace.to_owned(),
            selector,
            what,
            epilogue,
        });
    }

    /// Deletes the objects of the run in a namespace that is kept.
    fn empty(&mut self, run: &RunObjects) {
        let Removal {
            namespace, rbac, ..
        } = self.removal;
        // First the pods, since the deletion of a DaemonSet would give its pods the time in their
        // specs; one that its controller replaces meanwhile is deleted with it. Last what pods use.
        for resource in [
            Resource::PODS,
            Resource::DAEMON_SETS,
            Resource::CONFIG_MAPS,
            Resource::SECRETS,
            Resource::ROLE_BINDINGS,
            Resource::ROLES,
            Resource::SERVICE_ACCOUNTS,
        ] {
            if *rbac || !["roles", "rolebindings"].contains(&&*resource.plural) {
                self.many(&resource, namespace, SELECTOR);
            }
        }
        // Services could not be deleted together before Kubernetes 1.23.
        for name in [names::AGGREGATOR_SERVICE, names::STATUS_SERVICE] {
            self.delete_object(&Resource::SERVICES, namespace, "service", name);
        }
        for plugin in &run.plugins {
            self.delete_object(
                &Resource::CONFIG_MAPS,
                namespace,
                "config map",
                &names::plugin_map(plugin),
            );
        }
        if run.ssh_key {
            self.delete_object(&Resource::SECRETS, namespace, "secret", manifest::SSH_KEY);
        }
        let what = format!("pods of {namespace}");
        let selector = Selector::labels(SELECTOR);
        self.await_end(Resource::PODS, namespace, selector, what, String::new());
    }

    fn delete_object(&mut self, resource: &Resource, namespace: &str, kind: &str, name: &str) {
        let done = self
            .client
            .send(&self.dry(Request::delete(resource, namespace, name)));
        self.record(done.map(|_| true), kind, name, &[name.to_owned()]);
    }

    fn many(&mut self, resource: &Resource, namespace: &str, labels: &str) {
        let selector = Selector::labels(labels);
        let mut names = Vec::new();
        let done = self
            .client
            .list(resource, namespace, &selector)
            .and_then(|found| {
                names = found
                    .iter()
                    .map(|object| object.name().to_owned())
                    .collect();
                if !found.is_empty() {
                    let mut request = Request::delete_collection(resource, namespace, &selector);
                    if *resource == Resource::PODS {
                        request = request.grace_period(POD_GRACE);
                    }
                    self.client.send(&self.dry(request))?;
                }
                Ok(!found.is_empty())
            });
        self.record(done, &resource.plural, labels, &names);
    }

    /// Logs what was `done` in the fields of the original: true if anything was deleted. Records a
    /// failure, unless the object is gone or terminating.
    fn record(&mut self, done: Result<bool, Error>, kind: &str, what: &str, names: &[String]) {
        let dry = self.removal.dry_run;
        let (words, level) = match done {
            Ok(true) => ("delete request issued", log::Level::Info),
            Err(error) if error.is_conflict() => ("delete already in progress", log::Level::Info),
            Err(error) if !error.is_not_found() => {
                return self.failures.push(format!("{kind} {what}: {error}"));
            }
            // One sentence per absent run is enough.
            _ if self.is_absent && names.is_empty() => return,
            _ => ("already deleted", logger::detail()),
        };
        match names {
            [name] if kind == NAMESPACE => {
                log::log!(level, "dry-run" = dry, kind = kind, namespace = &**name; "{words}");
            }
            _ => {
                let names = format!("[{}]", names.join(" "));
                log::log!(level, "dry-run" = dry, kind = kind, names = &*names; "{words}");
            }
        }
    }

    fn dry(&self, request: Request) -> Request {
        if self.removal.dry_run {
            request.dry_run()
        } else {
            request
        }
    }
}

impl Remaining {
    /// Waits until everything is gone. `progress` receives what still exists and why, after each
    /// change, and what is gone.
    pub(crate) fn wait(
        &self,
        client: &Client,
        limit: Duration,
        progress: &mut dyn FnMut(&str),
    ) -> Result<()> {
        client.stop().within(limit, |over| {
            let narrow = client.under(over);
            for target in &self.targets {
                match target.gone(&narrow, progress)? {
                    None if target.epilogue.is_empty() => {}
                    None => progress(&target.epilogue),
                    Some(_) if client.stop().stopped() => bail!("stopped"),
                    Some(state) => bail!("not gone within {}: {state}", clock::duration(limit)),
                }
            }
            if self.e2e {
                progress("All E2E namespaces deleted");
            }
            Ok(())
        })?
    }
}

impl Target {
    /// Watches until no object is left; returns the remaining ones at the time limit.
    fn gone(&self, client: &Client, progress: &mut dyn FnMut(&str)) -> Result<Option<String>> {
        let (mut there, mut synced) = (BTreeSet::new(), false);
        let mut last_message = format!("{}: nothing is known yet", self.what);
        for event in client.watch(&self.resource, &self.namespace, &self.selector) {
            match event.map_err(|error| anyhow!("{}: {error}", self.what))? {
                Event::Restarted => (synced, there) = (false, BTreeSet::new()),
                Event::Synced => synced = true,
                Event::Deleted(object) => drop(there.remove(object.name())),
                Event::Applied(object) => {
                    there.insert(object.name().to_owned());
                    let state = format!("{}: {}", self.what, state(&object));
                    if state != last_message {
                        progress(&state);
                        last_message = state;
                    }
                }
            }
            if synced && there.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(last_message))
    }
}

/// Facts about the run, read from its objects.
#[derive(Default)]
struct RunObjects {
    /// Whether its namespace does not exist.
    is_absent: bool,
    /// Whether its namespace was created before the run, or by an unknown creator.
    is_foreign: bool,
    /// Whether its namespace, or an object in it that says who made it, may not be read.
    is_unreadable: bool,
    /// Whether the namespace has no object of a run.
    is_missing: bool,
    /// Permissions in its namespace alone: no roles elsewhere.
    namespaced: bool,
    plugins: Vec<String>,
    ssh_key: bool,
}

impl RunObjects {
    fn read(client: &Client, namespace: &str) -> Result<Self, Error> {
        let mut run = Self::default();
        let namespace_object = match client.find(&Resource::NAMESPACES, "", namespace) {
            Ok(None) => {
                return Ok(Self {
                    is_absent: true,
                    ..run
                });
            }
            // An account that may not read a namespace did not create it.
            Err(error) if error.is_forbidden() => {
                run.is_unreadable = true;
                Value::Null
            }
            namespace_object => namespace_object?.unwrap_or_default(),
        };
        if namespace_object.is_terminating() {
            return Ok(run);
        }
        let mut map = |name: &str| {
            let map = client.find(&Resource::CONFIG_MAPS, namespace, name);
            unless_forbidden(map, &mut run.is_unreadable)
        };
        let settings = map(names::CONFIG_MAP)?.unwrap_or_default();
        let plugins = map(names::PLUGINS_MAP)?.unwrap_or_default();
        let text = settings["data"][names::CONFIG_KEY].text();
        let read = base::json::from_slice(text.as_bytes()).unwrap_or_default();
        let permissions = read["AggregatorPermissions"]
            .as_str()
            .unwrap_or("clusterAdmin");
        run.namespaced = permissions == "namespaceAdmin";
        let texts = plugins["data"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(_, text)| text.as_str());
        for text in texts {
            run.ssh_key |= text.contains(manifest::SSH_KEY_FILE);
            let plugin = yaml::parse(text).unwrap_or_default();
            run.plugins.extend(
                plugin["sonobuoy-config"]["plugin-name"]
                    .as_str()
                    .map(str::to_owned),
            );
        }
        let (theirs, ours) = (managers(&namespace_object), managers(&settings));
        let same = theirs.is_empty() || ours.is_empty() || !theirs.is_disjoint(&ours);
        let mut traces = vec![settings];
        for resource in [Resource::SERVICE_ACCOUNTS, Resource::PODS] {
            let objects = client.list(&resource, namespace, &Selector::labels(SELECTOR));
            traces.extend(unless_forbidden(objects, &mut run.is_unreadable)?);
        }
        run.is_missing = !run.is_unreadable && traces.iter().all(Value::is_null);
        let oldest = traces.iter().filter_map(created).min();
        let is_created_by_run =
            created(&namespace_object)
                .zip(oldest)
                .is_some_and(|(made, oldest)| {
                    oldest.duration_since(made).unwrap_or_default() <= AT_ONCE
                });
        run.is_foreign = !(is_created_by_run && same && permissions == "clusterAdmin");
        Ok(run)
    }
}

/// Nothing, if the account may not look, which is recorded.
fn unless_forbidden<T: Default>(
    found: Result<T, Error>,
    is_forbidden: &mut bool,
) -> Result<T, Error> {
    found.or_else(|error| {
        if error.is_forbidden() {
            *is_forbidden = true;
            Ok(T::default())
        } else {
            Err(error)
        }
    })
}

/// Field managers of an object, including its creator; empty before Kubernetes 1.18. Distinguishes
/// `kubectl create namespace` from the run that followed.
fn managers(object: &Value) -> BTreeSet<&str> {
    object["metadata"]["managedFields"]
        .items()
        .filter_map(|entry| entry["manager"].as_str())
        .filter(|name| !name.is_empty())
        .collect()
}

fn created(object: &Value) -> Option<SystemTime> {
    clock::parse_rfc3339(object["metadata"]["creationTimestamp"].as_str()?)
}

/// Phase of an object, and what delays its deletion.
fn state(object: &Value) -> String {
    let phase = object["status"]["phase"].as_str().unwrap_or("present");
    let mut parts = vec![format!("{} is {phase}", object.name())];
    // Conditions of a terminating namespace name its remaining content, or the part of the API that
    // does not respond.
    if phase == "Terminating" {
        parts.extend(delays(object).into_iter().map(str::to_owned));
    }
    let held = object["metadata"]["finalizers"]
        .items()
        .filter_map(Value::as_str);
    parts.extend(held.map(|finalizer| format!("held by the finalizer `{finalizer}`")));
    parts.join(", ")
}

#[cfg(test)]
#[path = "remove_tests.rs"]
mod tests;
