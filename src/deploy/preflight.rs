//! Checks a cluster before a run: DNS, supported version, free namespace, objects that pods refer
//! to, and, for `doctor`, each object in a dry run.
//!
//! Makes all checks and reports all failures. A missing permission to look is not a failure, since
//! the run may still succeed. [`super::apply()`] tries the objects of a run itself. Starts no
//! thread.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use super::apply::{Refused, being_deleted, refusals, resolve};
use super::references::Reference;
use kube::{Client, Error, Object as _, Resource, Selector};
use model::nodes::{self, Choice};

/// Oldest supported version.
const OLDEST: [u64; 3] = [1, 17, 0];
/// Newest tested version.
const NEWEST: [u64; 3] = [1, 99, 99];

/// Names of the checks.
pub(crate) const CHECKS: [&str; 4] = [
    "dnscheck",
    "versioncheck",
    "existingnamespace",
    "references",
];
/// Maximum objects that are looked up.
const MAX_REFERENCES: usize = 100;

/// The checks of one run.
pub(crate) struct Preflight<'a> {
    /// The namespace of the run.
    pub namespace: &'a str,
    /// Whether the run creates that namespace; else it must exist.
    pub makes_namespace: bool,
    /// Namespace of the cluster's DNS pods.
    pub dns_namespace: &'a str,
    /// Labels of these pods, at least one of which matches; none skips the check.
    pub dns_labels: Vec<String>,
    /// The user's pull secret in that namespace.
    pub pull_secret: Option<&'a str>,
    /// What the run's pods refer to.
    pub references: Vec<Reference>,
    /// Which nodes run plugins.
    pub nodes: Choice,
    /// Names of checks to skip.
    pub skip: &'a [&'a str],
}

impl Preflight<'_> {
    /// Returns the failed checks.
    pub(crate) fn failures(&self, client: &Client) -> Vec<String> {
        let (mut failures, mut skipped) = (Vec::new(), Vec::new());
        // The names of nodes are always checked: there is no reason to run with wrong ones.
        for check in CHECKS
            .iter()
            .filter(|check| !self.skip.contains(check))
            .chain(&["--nodes"])
        {
            let outcome = match *check {
                "dnscheck" => self.dns(client),
                "versioncheck" => version(client),
                "existingnamespace" => self.free(client),
                "references" => self.existing(client),
                _ => self.nodes(client),
            };
            match outcome {
                Ok(why) => failures.extend(why.map(|why| format!("{check}: {why}"))),
                Err(error) if error.is_forbidden() => {
                    log::debug!("{check}: {error}");
                    skipped.push(*check);
                }
                Err(error) => failures.push(format!("{check}: {error}")),
            }
        }
        if !skipped.is_empty() {
            log::warn!(
                "skipped, since your account lacks the rights for it: {}",
                skipped.join(", ")
            );
        }
        failures
    }

    /// Checks that the named nodes exist.
    fn nodes(&self, client: &Client) -> Result<Option<String>, Error> {
        let named = self.nodes.names();
        if named.is_empty() {
            return Ok(None);
        }
        let mut node_names = Vec::new();
        client.each(&Resource::NODES, "", &Selector::all(), &mut |node| {
            node_names.push(node.name().to_owned());
            Ok(())
        })?;
        Ok(nodes::unknown(
            &named,
            node_names.iter().map(String::as_str).collect(),
        ))
    }

    fn dns(&self, client: &Client) -> Result<Option<String>, Error> {
        let labels: Vec<_> = self
            .dns_labels
            .iter()
            .map(String::as_str)
            .filter(|l| !l.is_empty())
            .collect();
        if labels.is_empty() {
            log::info!("no labels of DNS pods are given; dnscheck is skipped");
            return Ok(None);
        }
        for label in &labels {
            if !client
                .list(
                    &Resource::PODS,
                    self.dns_namespace,
                    &Selector::labels(*label),
                )?
                .is_empty()
            {
                return Ok(None);
            }
        }
        Ok(Some(format!(
            "no pod in namespace `{}` has the label `{}`; say where DNS is with --dns-namespace \
             and --dns-pod-labels, or skip the check with --skip-preflight=dnscheck",
            self.dns_namespace,
            labels.join("` or `")
        )))
    }

    fn free(&self, client: &Client) -> Result<Option<String>, Error> {
        let namespace = self.namespace;
        let existing = client.find(&Resource::NAMESPACES, "", namespace)?;
        let is_made = self.makes_namespace && self.pull_secret.is_none();
        Ok(Some(match existing {
            None if is_made => return Ok(None),
            None => format!(
                "there is no namespace `{namespace}`, and a run with these {} does not create it: \
                 create it with `kubectl create namespace {namespace}`",
                if self.makes_namespace {
                    "settings"
                } else {
                    "permissions"
                }
            ),
            Some(existing) if existing.is_terminating() => being_deleted(namespace, &existing),
            Some(_) if !is_made => return self.pull_secret(client),
            Some(_) => format!(
                "namespace `{namespace}` exists already: remove an earlier run with `sonobuoy \
                 delete -n {namespace} --wait`, use another with `-n`, or use this one with \
                 --skip-preflight=existingnamespace"
            ),
        }))
    }

    /// Checks that everything exists that the run's pods refer to.
    fn existing(&self, client: &Client) -> Result<Option<String>, Error> {
        let namespace = self.namespace;
        // Another check looks for it.
        let is_asked = |reference: &&Reference| {
            reference.resource != Resource::SECRETS || Some(&*reference.name) != self.pull_secret
        };
        let (mut missing, mut denied) = (Vec::new(), None);
        let mut lacks_namespaced = false;
        for reference in self.references.iter().filter(is_asked).take(MAX_REFERENCES) {
            let resource = &reference.resource;
            match client.find(resource, namespace, &reference.name) {
                Ok(None) => {
                    missing.push(reference.sentence());
                    lacks_namespaced |= resource.namespaced;
                }
                Ok(Some(_)) => {}
                Err(error) if error.is_forbidden() => denied = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (missing.is_empty(), denied) {
            (true, Some(error)) => return Err(error),
            (true, None) => return Ok(None),
            (false, _) => {}
        }
        let missing = missing.join(", ");
        // Nobody can create an object in a namespace that the run has yet to create.
        let is_new = self.makes_namespace
            && lacks_namespaced
            && matches!(client.find(&Resource::NAMESPACES, "", namespace), Ok(None));
        Ok(Some(if is_new {
            format!(
                "the run creates namespace `{namespace}`, in which pods need what does not exist: \
                 {missing}; create the namespace with `kubectl create namespace {namespace}` and \
                 these objects in it, then run with --skip-preflight=existingnamespace"
            )
        } else {
            format!(
                "pods in namespace `{namespace}` need what does not exist: {missing}; create it, \
                 correct its name in the definition, or add `optional: true` there"
            )
        }))
    }

    fn pull_secret(&self, client: &Client) -> Result<Option<String>, Error> {
        let Some(name) = self.pull_secret else {
            return Ok(None);
        };
        let secret = client.find(&Resource::SECRETS, self.namespace, name)?;
        Ok(secret.is_none().then(|| {
            format!(
                "there is no secret `{name}` in namespace `{0}`: create it with `kubectl create \
                 secret docker-registry {name} -n {0}`",
                self.namespace
            )
        }))
    }
}

fn version(client: &Client) -> Result<Option<String>, Error> {
    let answer = client.version()?;
    let text = answer["gitVersion"].text();
    let [major, minor, patch] = OLDEST;
    Ok(match numbers(text) {
        None => Some(format!(
            "the server reports `{text}`, which is not a version"
        )),
        Some(version) if version < OLDEST => Some(format!(
            "the server is {text}, and a run needs v{major}.{minor}.{patch} or newer"
        )),
        Some(version) => {
            if version > NEWEST {
                log::warn!("the server is {text}, which is newer than any that was tested");
            }
            None
        }
    })
}

/// The three numbers of `v1.2.3-vendor+more`.
fn numbers(text: &str) -> Option<[u64; 3]> {
    let core = text.strip_prefix('v').unwrap_or(text);
    let mut parts = core
        .split(['-', '+'])
        .next()?
        .split('.')
        .map(|part| part.parse().ok());
    Some([
        parts.next()??,
        parts.next()??,
        parts.next().unwrap_or(Some(0))?,
    ])
}

/// Replaces the run's namespace, and its accounts, in a dry run.
pub(crate) struct StandIn {
    /// Its name.
    pub namespace: String,
    /// Name of the account.
    pub account: String,
}

/// Dry run of a run's objects: those that it would create, and those that the server would refuse,
/// admission included.
pub(crate) struct Trial {
    /// Kinds of objects and their namespaces.
    pub kinds: BTreeSet<(Resource, String)>,
    /// Refused objects.
    pub refused: Vec<Refused>,
}

impl Trial {
    /// Tries `objects` of a run in the namespace `home`.
    pub(crate) fn new(
        client: &Client,
        objects: &[Value],
        home: &str,
        stand_in: Option<StandIn>,
    ) -> Result<Self> {
        let server_kinds = client.discover()?;
        let kinds = resolve(&server_kinds, objects, home)?
            .iter()
            .map(|object| (object.resource.clone(), object.namespace.clone()))
            .collect();
        let (mut moved, mut place) = (objects.to_vec(), home);
        if let Some(StandIn { namespace, account }) = &stand_in {
            place = namespace;
            for object in moved.iter_mut().filter(|object| object.namespace() == home) {
                object["metadata"]["namespace"] = place.into();
                if object["kind"] == "Pod" {
                    object["spec"]["serviceAccountName"] = account.as_str().into();
                }
            }
        }
        let mut refused = refusals(client, &resolve(&server_kinds, &moved, place)?);
        for refused in &mut refused {
            let texts = [Some(&mut refused.why), refused.remedy.as_mut()];
            texts
                .into_iter()
                .flatten()
                .for_each(|text| *text = text.replace(place, home));
        }
        Ok(Self { kinds, refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_servers() {
        for (text, expected) in [
            ("v1.34.1", Some([1, 34, 1])),
            ("v1.17.0-gke.1", Some([1, 17, 0])),
            ("v1.28.2+k3s1", Some([1, 28, 2])),
            ("1.20", Some([1, 20, 0])),
            ("v1", None),
            ("master", None),
        ] {
            assert_eq!(numbers(text), expected, "{text}");
        }
    }
}
