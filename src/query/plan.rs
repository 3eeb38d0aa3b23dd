//! Plans the queries of a snapshot: kinds, namespaces, nodes.
//!
//! Owns the meaning of `Resources`: none means everything but secrets, an entry names a plural (`pods`), a plural with
//! its group (`deployments.apps`), a group (`apps`), a group and version (`apps/v1`) or a kind (`Pod`). Kinds of different
//! groups that share a plural are all included.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use regex::Regex;

use super::list::{Listing, SelectedNamespaces};
use super::{FailedQuery, Query, QueryTask, What};
use base::kube::{Discovery, Error, Object as _, Resource, Selector};

/// Maximum namespaces queried individually; more are queried at once, dropping other namespaces' objects.
pub(super) const MAX_SEPARATE_NAMESPACES: usize = 5;

/// Queries of a snapshot.
#[derive(Default)]
pub(super) struct QueryPlan {
    pub(super) tasks: Vec<QueryTask>,
    /// The namespaces that match.
    pub(super) namespaces: BTreeSet<String>,
    /// All namespaces, as far as known.
    pub(super) known: BTreeSet<String>,
    /// Whether anything in a namespace is wanted.
    pub(super) namespaced: bool,
    /// Whether pod logs are wanted.
    pub(super) logs: bool,
    /// Kinds that could not be queried.
    pub(super) troubles: Vec<FailedQuery>,
}

/// Makes the plan; `Err` only if the server is not reachable at all.
pub(super) fn make(query: &Query<'_>, wanted: &Regex, labels: String) -> anyhow::Result<QueryPlan> {
    let chosen = query.config.resources.as_deref();
    let mut plan = QueryPlan { logs: named(chosen, "podlogs"), ..QueryPlan::default() };
    if chosen.is_some_and(<[String]>::is_empty) {
        return Ok(plan);
    }
    let (mut troubles, mut all_known) = (Vec::new(), true);
    let discovery = query.client.discover().context("asking the API server for its kinds")?;
    let failures = discovery.failures.iter();
    troubles.extend(failures.map(|(group, error)| FailedQuery::new("discovery", "", group, error)));
    let kinds = select(&discovery, chosen, &mut troubles);
    plan.known = object_names(query, &Resource::NAMESPACES).unwrap_or_else(|error| {
        let why = format!("{error}; only the namespace of the run is queried");
        troubles.push(FailedQuery::new("namespaces", "", "", why));
        all_known = false;
        BTreeSet::from([query.config.namespace.clone()])
    });
    plan.namespaces = plan.known.iter().filter(|name| wanted.is_match(name)).cloned().collect();
    let every = all_known && plan.namespaces.len() == plan.known.len();

    if named(chosen, "nodes") {
        match object_names(query, &Resource::NODES) {
            Ok(nodes) => plan.tasks.extend(nodes.into_iter().map(|node| QueryTask {
                name: node.clone(),
                node,
                ..QueryTask::new("Nodes", "", What::Host)
            })),
            Err(error) => troubles.push(FailedQuery::new("Nodes", "", "", error.to_string())),
        }
    }
    let (namespaced, cluster): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|resource| resource.namespaced);
    let selector = Selector::labels(labels);
    let list = |resource: &Resource, namespace: &str, only: Option<Arc<SelectedNamespaces>>| {
        let (resource, selector) = (resource.clone(), selector.clone());
        QueryTask::new(&resource.plural.clone(), namespace, What::List(Listing { resource, only, selector }))
    };
    plan.tasks.extend(cluster.iter().map(|resource| list(resource, "", None)));
    for (name, what) in [("serverversion", What::Version), ("servergroups", What::Groups)] {
        plan.tasks.extend(named(chosen, name).then(|| QueryTask::new(name, "", what)));
    }
    plan.namespaced = !namespaced.is_empty();
    let scope = Arc::new(SelectedNamespaces { wanted: wanted.clone(), known: plan.namespaces.clone() });
    for resource in &namespaced {
        if every || plan.namespaces.len() > MAX_SEPARATE_NAMESPACES {
            plan.tasks.push(list(resource, "", Some(scope.clone())));
        } else {
            plan.tasks.extend(plan.namespaces.iter().map(|namespace| list(resource, namespace, None)));
        }
    }
    plan.troubles = troubles;
    Ok(plan)
}

/// Whether a non-object entry of `Resources` is selected.
fn named(chosen: Option<&[String]>, name: &str) -> bool {
    chosen.is_none_or(|chosen| chosen.iter().any(|entry| entry == name))
}

fn select(
    discovery: &Discovery,
    chosen: Option<&[String]>,
    troubles: &mut Vec<FailedQuery>,
) -> Vec<Resource> {
    let listable: Vec<&Resource> =
        discovery.preferred().filter(|kind| kind.can("list")).map(|kind| &kind.resource).collect();
    for entry in chosen.unwrap_or_default() {
        let pseudo = ["nodes", "serverversion", "servergroups", "podlogs"].contains(&entry.as_str());
        if !pseudo && !listable.iter().any(|resource| names(entry, resource)) {
            troubles.push(FailedQuery::new(entry, "", "", "the server has no such kind that can be listed"));
        }
    }
    let is_wanted = |resource: &&Resource| match chosen {
        None => resource.plural != "secrets",
        Some(chosen) => chosen.iter().any(|entry| names(entry, resource)),
    };
    listable.into_iter().filter(is_wanted).cloned().collect()
}

/// Whether an entry of `Resources` matches this kind. Secrets are only matched by name, never by their group.
fn names(entry: &str, resource: &Resource) -> bool {
    let group: &str = &resource.group;
    let by_name = entry == resource.plural
        || entry.eq_ignore_ascii_case(&resource.kind)
        || (!group.is_empty() && entry == format!("{}.{group}", resource.plural));
    let by_group = entry == group || entry == resource.api_version();
    by_name || (by_group && !group.is_empty() && resource.plural != "secrets")
}

fn object_names(query: &Query<'_>, resource: &Resource) -> Result<BTreeSet<String>, Error> {
    let mut names = BTreeSet::new();
    let mut keep = |object: serde_json::Value| {
        names.insert(object.name().to_owned());
        Ok(())
    };
    query.client.each(resource, "", &Selector::all(), &mut keep)?;
    Ok(names)
}
#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        entry: &str,
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
        expected: bool,
    ) {
        let resource = Resource {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced: true,
        };
        assert_eq!(names(entry, &resource), expected, "{entry} and {plural} of {group}/{version}");
    }

    #[test]
    fn entries_name_plurals_groups_and_kinds() {
        check("pods", "", "v1", "pods", "Pod", true);
        check("pods", "metrics.k8s.io", "v1beta1", "pods", "PodMetrics", true);
        check("pods.metrics.k8s.io", "metrics.k8s.io", "v1beta1", "pods", "PodMetrics", true);
        check("pods.metrics.k8s.io", "", "v1", "pods", "Pod", false);
        check("pod", "", "v1", "pods", "Pod", true);
        check("apps", "apps", "v1", "deployments", "Deployment", true);
        check("apps/v1", "apps", "v1", "deployments", "Deployment", true);
        check("apps/v2", "apps", "v1", "deployments", "Deployment", false);
        check("", "", "v1", "secrets", "Secret", false);
        check("v1", "", "v1", "secrets", "Secret", false);
        check("Secret", "", "v1", "secrets", "Secret", true);
        check("vault.io", "vault.io", "v1", "secrets", "VaultSecret", false);
    }
}
