//! Checks whether a cluster, and the connection to it, is ready for a run: tries everything that a
//! run needs, and cleans up.
//!
//! Owns the order of the checks and their input ([`Subject`]): the run's objects, as they would be
//! created. `remedies` suggests remedies. A thread runs the echo in parallel with the other checks.

mod access;
mod echo;
mod finding;
mod images;
mod nodes;
mod trial_namespace;

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::deploy::{self, Preflight};
use kube::{Client, Object as _, Resource};
use model::plugin::Definition;
use model::{config, names};
use run::driver;

use trial_namespace::TrialNamespace;

pub(crate) use access::reach;
pub(crate) use echo::serve;
pub(crate) use finding::{Check, FORMATS, is_ready, show, verdict};
pub(crate) use images::{Pulled, credentials, pull};
pub(crate) use nodes::Nodes;

/// Rate limit, so that the checks do not load the cluster.
pub(crate) const MAX_REQUESTS_PER_SECOND: f64 = 20.0;

/// Default number of nodes for the echo.
pub(crate) const SAMPLE: &str = "10";

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

impl<'a> Subject<'a> {
    /// The run with these objects.
    pub(crate) fn new(objects: &'a [Value], namespace: &'a str) -> Result<Self> {
        let (run, plugins) = deploy::planned(objects, namespace)?;
        Ok(Self {
            objects,
            namespace,
            plugins,
            run,
        })
    }

    /// An object of the run; null if it creates none of this name.
    fn object(&self, kind: &str, name: &str) -> &'a Value {
        let object = self
            .objects
            .iter()
            .find(|object| object["kind"] == kind && object.name() == name);
        object.unwrap_or(&Value::Null)
    }

    fn aggregator(&self) -> Option<&'a Value> {
        self.objects.iter().find(|object| {
            object["kind"] == "Pod"
                && object["metadata"]["labels"][names::LABEL_PART] == names::AGGREGATOR
        })
    }

    /// One pod of each plugin.
    fn pods(&self) -> impl Iterator<Item = Value> {
        self.plugins
            .iter()
            .map(|plugin| driver::cluster::pod(plugin, &self.run))
    }
}

/// Selects usable nodes for the echo: a number of them, `all`, or by name; also returns problems
/// with names.
fn sample<'n>(mut usable: Vec<&'n str>, words: &[&'n str]) -> (Vec<&'n str>, Option<String>) {
    let count = match words {
        ["all"] => Some(usable.len()),
        [word] => word.parse().ok(),
        _ => None,
    };
    if let Some(count) = count {
        usable.truncate(count);
        return (usable, None);
    }
    let (known, unknown): (Vec<_>, Vec<_>) = words.iter().partition(|name| usable.contains(name));
    let why = (!unknown.is_empty()).then(|| format!("not a ready node: {}", unknown.join(", ")));
    (known, why)
}

/// Makes all checks that need the server. Reports each one when it ends.
pub(crate) fn examine(
    client: &Client,
    server: Check,
    subject: &Subject<'_>,
    preflight: &Preflight<'_>,
    words: &[&str],
    tell: &dyn Fn(&Check),
) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let mut take = |mut check: Check| -> Result<()> {
        check.once(&checks);
        tell(&check);
        checks.push(check);
        Ok(())
    };
    take(server)?;
    // Don't retry: report failures.
    let client = &client
        .clone()
        .rate(MAX_REQUESTS_PER_SECOND, 1)
        .retry_timeout(RETRY_TIMEOUT)
        .no_retry_codes(&[500]);
    let nodes = Nodes::read(client);
    take(match &nodes {
        Ok(nodes) => nodes.check(subject),
        Err(error) if error.is_forbidden() => Check::skipped("nodes", error.to_string()),
        Err(error) => Check::failed("nodes", error.to_string()),
    })?;
    let nodes = nodes.unwrap_or_default();
    take(access::preflight(client, preflight))?;
    let trial_namespace = trial_namespace(client, subject, preflight);
    let placed = subject
        .aggregator()
        .is_none_or(|pod| nodes.take(&pod["spec"]));
    let (sampled, unknown) = sample(nodes.usable().into_iter().map(Value::name).collect(), words);
    std::thread::scope(|scope| {
        let echo = || match &trial_namespace {
            Ok(trial_namespace) if !sampled.is_empty() => {
                echo::check(client, subject, trial_namespace, &sampled, placed)
            }
            Ok(_) => Check::skipped("echo", "no node is known to be ready"),
            Err(why) => Check::skipped("echo", why.clone()),
        };
        let echo = base::thread("echo").spawn_scoped(scope, echo)?;
        access::rights(client, subject, trial_namespace.as_ref().ok())
            .into_iter()
            .try_for_each(&mut take)?;
        take(images::check(client, subject, &nodes))?;
        let mut echo = echo
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let Some(unknown) = unknown {
            echo.fail(unknown, Some("name nodes as `kubectl get nodes` does"));
        }
        take(echo)
    })?;
    Ok(checks)
}

/// A namespace for trial objects: the run's namespace if it exists and would be used, since its
/// policies and quotas count; else a similar one.
fn trial_namespace(
    client: &Client,
    subject: &Subject<'_>,
    preflight: &Preflight<'_>,
) -> Result<TrialNamespace, String> {
    let run_namespace = client.get(&Resource::NAMESPACES, "", subject.namespace);
    let used = !preflight.makes_namespace
        || preflight.pull_secret.is_some()
        || preflight.skip.contains(&"existingnamespace");
    let existing = match &run_namespace {
        Ok(found) if used && !found.is_terminating() => Some(subject.namespace),
        _ if preflight.makes_namespace => None,
        // An account that may not read a namespace may still use it.
        Err(error) if error.is_forbidden() => Some(subject.namespace),
        _ => {
            return Err(format!(
                "namespace `{}`, in which it would be tried, does not exist",
                subject.namespace
            ));
        }
    };
    let labels = trial_namespace::labels(subject.object("Namespace", subject.namespace));
    TrialNamespace::create(client, existing, labels)
        .map_err(|error| format!("cannot create a namespace to try it in: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_sampled_as_requested() {
        let usable = ["a", "b", "c"];
        for (words, expected, why) in [
            (&["2"][..], &["a", "b"][..], None),
            (&["9"], &usable, None),
            (&["all"], &usable, None),
            (&["c", "x"], &["c"], Some("not a ready node: x")),
        ] {
            let (nodes, unknown) = sample(usable.to_vec(), words);
            assert_eq!((nodes, unknown.as_deref()), (expected.to_vec(), why));
        }
    }
}
