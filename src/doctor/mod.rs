//! Checks whether a cluster, and the connection to it, is ready for a run: tries everything that a run needs, and
//! cleans up.
//!
//! Owns the order of the checks and their input ([`Subject`]): the run's objects, as they would be created. `causes`
//! suggests remedies. Threads: image queries and the echo run in parallel with the other checks.

mod echo;
mod finding;
mod images;
mod nodes;
mod place;
mod pull;
mod rights;
mod serve;
mod server;
mod show;

use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::config;
use crate::deploy::Preflight;
use crate::driver;
use crate::names;
use crate::plugin::{self, Definition, Driver};
use base::kube::{Client, Resource};

use finding::Severity;
use place::Place;

pub(crate) use finding::Check;
pub(crate) use images::credentials;
pub(crate) use nodes::Nodes;
pub(crate) use pull::{Pulled, pull};
pub(crate) use serve::serve;
pub(crate) use show::{FORMATS, lines, show, verdict};

/// Rate limit, so that the checks do not load the cluster.
pub(crate) const MAX_REQUESTS_PER_SECOND: f64 = 20.0;

/// Default number of nodes for the echo.
pub(crate) const SAMPLE: usize = 10;

/// Time limit for retries of a request.
const RETRY_TIMEOUT: Duration = Duration::from_secs(3);

/// The run to check for.
pub(crate) struct Subject<'a> {
    /// Objects to be created.
    pub objects: &'a [Value],
    /// Namespace of the run.
    pub namespace: &'a str,
    plugins: Vec<Definition>,
    run: config::Run,
}

/// Nodes for the echo.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sample {
    /// This number of nodes.
    Count(usize),
    /// All ready nodes.
    All,
    /// These nodes.
    Named(Vec<String>),
}

/// Outcome of all checks.
pub(crate) struct Diagnosis {
    /// Checks in the order of display.
    pub checks: Vec<Check>,
}

impl<'a> Subject<'a> {
    /// The run with these objects.
    pub(crate) fn new(objects: &'a [Value], namespace: &'a str) -> Result<Self> {
        let data = |name: &str| {
            let is = |object: &&Value| object["kind"] == "ConfigMap" && object["metadata"]["name"] == name;
            objects.iter().find(is).and_then(|map| map["data"].as_object())
        };
        let mut run = config::Run { namespace: namespace.to_owned(), ..config::Run::default() };
        if let Some(text) = data(names::CONFIG_MAP).and_then(|data| data[names::CONFIG_KEY].as_str()) {
            run.overlay(text).map_err(|error| anyhow::anyhow!("`{}`: {error}", names::CONFIG_MAP))?;
        }
        let mut plugins = Vec::new();
        for (key, text) in data(names::PLUGINS_MAP).into_iter().flatten() {
            let read = plugin::read_all(text.as_str().unwrap_or_default());
            let read = read
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("`{key}` of `{}`", names::PLUGINS_MAP))?;
            plugins.extend(read.into_iter().map(|loaded| loaded.definition));
        }
        Ok(Self { objects, namespace, plugins, run })
    }

    fn aggregator(&self) -> Option<&'a Value> {
        self.objects.iter().find(|object| rights::is_aggregator(object))
    }

    /// One pod of each plugin.
    fn pods(&self) -> impl Iterator<Item = Value> {
        self.plugins.iter().map(|plugin| driver::cluster::pod(plugin, &self.run))
    }

    /// All objects, including the pods that controllers would create.
    fn with_pods(&self) -> Vec<Value> {
        self.objects.iter().cloned().chain(self.pods()).collect()
    }

    /// Pods of the run on each node.
    fn pods_on_each_node(&self) -> u64 {
        self.plugins.iter().filter(|plugin| plugin.config.driver == Driver::DaemonSet).count() as u64
    }
}

impl Sample {
    /// Selects among the usable nodes; also returns problems with given names.
    fn of(&self, usable: &[&str]) -> (Vec<String>, Option<String>) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self {
            Self::Count(count) => (owned(&usable[..usable.len().min(*count)]), None),
            Self::All => (owned(usable), None),
            Self::Named(names) => {
                let (known, unknown): (Vec<_>, Vec<_>) =
                    names.iter().cloned().partition(|name| usable.contains(&&**name));
                let why = (!unknown.is_empty()).then(|| format!("not a ready node: {}", unknown.join(", ")));
                (known, why)
            }
        }
    }
}

impl Diagnosis {
    /// Whether no finding prevents a run.
    pub(crate) fn is_fit(&self) -> bool {
        self.checks.iter().all(|check| check.status() != "failed")
    }
}

/// Checks the connection to the server; without a response, returns the final diagnosis.
pub(crate) fn reach(client: &Client) -> Result<Check, Diagnosis> {
    let (server, reached) = server::check(client);
    if reached { Ok(server) } else { Err(Diagnosis { checks: vec![server] }) }
}

/// Makes all checks that need the server. Reports each one when it ends.
pub(crate) fn examine(
    client: &Client,
    server: Check,
    subject: &Subject<'_>,
    preflight: &Preflight<'_>,
    sample: &Sample,
    tell: &dyn Fn(&Check) -> Result<()>,
) -> Result<Diagnosis> {
    let mut checks = Vec::new();
    let mut take = |mut check: Check| -> Result<()> {
        finding::once(&checks, &mut check);
        tell(&check)?;
        checks.push(check);
        Ok(())
    };
    take(server)?;
    // Don't retry: report failures.
    let client = &client.clone().rate(MAX_REQUESTS_PER_SECOND, 1).patience(RETRY_TIMEOUT).hopeless(&[500]);
    let (nodes, seen) = match Nodes::read(client) {
        Ok(nodes) => {
            let seen = nodes.check(subject);
            (nodes, seen)
        }
        Err(error) if error.is_forbidden() => (Nodes::default(), Check::skipped("nodes", error.to_string())),
        Err(error) => {
            let mut seen = Check::new("nodes");
            seen.add(Severity::Fails, error.to_string(), None);
            (Nodes::default(), seen)
        }
    };
    take(seen)?;
    take(rights::preflight(client, preflight))?;
    let place = place(client, subject, preflight);
    let placed = nodes.take_aggregator(subject);
    let (sampled, unknown) = sample.of(&nodes.usable());
    let stop = client.stop().child();
    std::thread::scope(|scope| {
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let images = || images::check(client, subject, &nodes, &stop);
        let images = thread("images").spawn_scoped(scope, images)?;
        let echo = || match &place {
            Ok(place) if !sampled.is_empty() => echo::check(client, subject, place, &sampled, placed),
            Ok(_) => Check::skipped("echo", "no node is known to be ready"),
            Err(why) => Check::skipped("echo", why.clone()),
        };
        let echo = thread("echo").spawn_scoped(scope, echo)?;
        rights::check(client, subject, place.as_ref().ok()).into_iter().try_for_each(&mut take)?;
        take(ended(images))?;
        let mut echo = ended(echo);
        if let Some(unknown) = unknown {
            echo.add(Severity::Fails, unknown, Some("name nodes as `kubectl get nodes` does"));
        }
        take(echo)
    })?;
    if let Ok(place) = place {
        place.clear();
    }
    Ok(Diagnosis { checks })
}

fn ended(thread: ScopedJoinHandle<'_, Check>) -> Check {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Place for trial objects: the run's namespace if it exists and would be used, since its policies and quotas count;
/// else a similar one.
fn place(client: &Client, subject: &Subject<'_>, preflight: &Preflight<'_>) -> Result<Place, String> {
    let id = echo::new_id();
    let home = client.get(&Resource::NAMESPACES, "", subject.namespace);
    let used = !preflight.makes_namespace
        || preflight.pull_secret.is_some()
        || preflight.skip.iter().any(|check| check == "existingnamespace");
    let made = match &home {
        Ok(found) if used && found["metadata"]["deletionTimestamp"].is_null() => {
            Place::existing(client, &id, subject.namespace)
        }
        _ if preflight.makes_namespace => {
            let is = |object: &&Value| {
                object["kind"] == "Namespace" && object["metadata"]["name"] == subject.namespace
            };
            Place::new(client, &id, &place::labels(subject.objects.iter().find(is)))
        }
        // An account that may not read a namespace may still use it.
        Err(error) if error.is_forbidden() => Place::existing(client, &id, subject.namespace),
        _ => return Err(format!("there is no namespace `{}` to try it in", subject.namespace)),
    };
    made.map_err(|error| format!("there is no place to try it in: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_sampled_as_asked() {
        let usable = ["a", "b", "c"];
        for (sample, expected, why) in [
            (Sample::Count(2), &["a", "b"][..], None),
            (Sample::Count(9), &usable, None),
            (Sample::All, &usable, None),
            (Sample::Named(vec!["c".into(), "x".into()]), &["c"], Some("not a ready node: x")),
        ] {
            let (nodes, unknown) = sample.of(&usable);
            assert_eq!(
                (nodes.iter().map(String::as_str).collect::<Vec<_>>(), unknown.as_deref()),
                (expected.to_vec(), why)
            );
        }
    }
}
