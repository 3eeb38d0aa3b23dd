//! The objects of the cluster: what to query, and one kind after the other, listed in pages and
//! streamed into files.
//!
//! Owns the meaning of `Resources`: none means everything but secrets, an entry names a plural
//! (`pods`), a plural with its group (`deployments.apps`), a group (`apps`), a group and version
//! (`apps/v1`) or a kind (`Pod`). Kinds of different groups that share a plural are all included.
//!
//! Owns the layout `resources/cluster/…` and `resources/ns/<namespace>/…`, one file per kind and
//! namespace. Holds one object at a time. Every server that uses etcd returns the objects of a kind
//! sorted by namespace, so only one file is open; a server that mixes namespaces costs reopening
//! files, not memory.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, Result};
use regex::Regex;
use serde_json::Value;

use super::{FailedQuery, Fault, Query, QueryTask, Records, What, component, count_object};
use base::at::At as _;
use base::json::json;
use kube::{Discovery, Error, Object as _, Resource, Selector, forget_managers};
use model::names::UPLOAD_SECRET;
use model::{config, layout};

/// Maximum namespaces queried individually; more are queried at once, dropping other namespaces'
/// objects.
pub(super) const MAX_SEPARATE_NAMESPACES: usize = 5;
/// Maximum namespaces named that refuse a list.
const MAX_REFUSED_NAMED: usize = 10;

const NAME: &str = "[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";

/// Queries of a snapshot.
#[derive(Default)]
pub(super) struct QueryPlan {
    pub tasks: Vec<QueryTask>,
    /// All namespaces, as far as known.
    pub known: BTreeSet<String>,
    /// Whether pod logs are wanted.
    pub logs: bool,
}

/// Makes the plan, and a folder for each namespace that matches; `Err` only if the server is not
/// reachable at all, or the folder not writable.
pub(super) fn plan(
    query: &Query<'_>,
    wanted: &Regex,
    labels: String,
    troubles: &mut Vec<FailedQuery>,
) -> Result<QueryPlan> {
    let chosen = query.config.resources.as_deref();
    let mut plan = QueryPlan {
        logs: includes_logs(query.config),
        ..QueryPlan::default()
    };
    if chosen.is_some_and(<[String]>::is_empty) {
        return Ok(plan);
    }
    let mut all_known = true;
    let discovery = query
        .client
        .discover()
        .context("asking the API server for its kinds")?;
    let failures = discovery.failures.iter();
    troubles.extend(failures.map(|(group, error)| FailedQuery::new("discovery", "", group, error)));
    let kinds = select(&discovery, chosen, troubles);
    plan.known = object_names(query, &Resource::NAMESPACES).unwrap_or_else(|error| {
        let why = format!("{error}; only the namespace of the run is queried");
        troubles.push(FailedQuery::new("namespaces", "", "", why));
        all_known = false;
        BTreeSet::from([query.config.namespace.clone()])
    });
    let namespaces: BTreeSet<_> = plan
        .known
        .iter()
        .filter(|name| wanted.is_match(name))
        .cloned()
        .collect();
    let every = all_known && namespaces.len() == plan.known.len();

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
    let (namespaced, cluster): (Vec<_>, Vec<_>) =
        kinds.into_iter().partition(|resource| resource.namespaced);
    let selector = Selector::labels(labels);
    let list = |resource: &Resource, namespace: &str, only: Option<Arc<SelectedNamespaces>>| {
        let (resource, selector) = (resource.clone(), selector.clone());
        QueryTask::new(
            &resource.plural.clone(),
            namespace,
            What::List(Listing {
                resource,
                only,
                selector,
            }),
        )
    };
    plan.tasks
        .extend(cluster.iter().map(|resource| list(resource, "", None)));
    for (name, what) in [
        ("serverversion", What::Version),
        ("servergroups", What::Groups),
    ] {
        plan.tasks
            .extend(named(chosen, name).then(|| QueryTask::new(name, "", what)));
    }
    if !namespaced.is_empty() {
        for namespace in &namespaces {
            let folder = query
                .folder
                .join(layout::resources(Some(&component(namespace))));
            std::fs::create_dir_all(&folder).at("cannot create", &folder)?;
        }
    }
    let scope = Arc::new(SelectedNamespaces {
        wanted: wanted.clone(),
        known: namespaces,
    });
    for resource in &namespaced {
        if every || scope.known.len() > MAX_SEPARATE_NAMESPACES {
            plan.tasks.push(list(resource, "", Some(scope.clone())));
        } else {
            plan.tasks.extend(
                scope
                    .known
                    .iter()
                    .map(|namespace| list(resource, namespace, None)),
            );
        }
    }
    Ok(plan)
}

/// Whether the snapshot includes logs of pods.
pub(super) fn includes_logs(config: &config::Run) -> bool {
    named(config.resources.as_deref(), "podlogs")
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
    let listable: Vec<&Resource> = discovery
        .preferred()
        .filter(|kind| kind.can("list"))
        .map(|kind| &kind.resource)
        .collect();
    for entry in chosen.unwrap_or_default() {
        let pseudo =
            ["nodes", "serverversion", "servergroups", "podlogs"].contains(&entry.as_str());
        if !pseudo && !listable.iter().any(|resource| names(entry, resource)) {
            troubles.push(FailedQuery::new(
                entry,
                "",
                "",
                "the server has no such kind that can be listed",
            ));
        }
    }
    let is_wanted = |resource: &&Resource| match chosen {
        None => resource.plural != "secrets",
        Some(chosen) => chosen.iter().any(|entry| names(entry, resource)),
    };
    listable.into_iter().filter(is_wanted).cloned().collect()
}

/// Whether an entry of `Resources` matches this kind. Secrets are only matched by name, never by
/// their group.
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
    let mut keep = |object: Value| {
        names.insert(object.name().to_owned());
        Ok(())
    };
    query
        .client
        .each(resource, "", &Selector::all(), &mut keep)?;
    Ok(names)
}

static SELECTOR: LazyLock<Regex> = LazyLock::new(|| {
    let key = format!("(?:[a-z0-9][-a-z0-9.]*/)?{NAME}");
    let value = format!("(?:{NAME})?");
    let compared = format!(
        r"\s*(?:==?|!=)\s*{value}|\s*[<>]\s*-?[0-9]+|\s+(?:not)?in\s*\(\s*{value}(?:\s*,\s*{value})*\s*\)"
    );
    let term = format!(r"\s*(?:!\s*{key}|{key}(?:{compared})?)\s*");
    Regex::new(&format!(r"^(?:\s*|{term}(?:,{term})*)$")).expect("a valid pattern")
});

/// The selector, or an empty one with a warning.
pub(super) fn checked(setting: &str, selector: &str) -> String {
    if SELECTOR.is_match(selector) {
        return selector.trim().to_owned();
    }
    log::warn!("`{setting}`: `{selector}` is not a label selector; it is ignored");
    String::new()
}

/// Lists one kind.
pub(super) struct Listing {
    resource: Resource,
    /// If all are listed: the namespaces to keep.
    only: Option<Arc<SelectedNamespaces>>,
    selector: Selector,
}

/// The selected namespaces.
struct SelectedNamespaces {
    /// By name; one created in the meantime is selected, too.
    wanted: Regex,
    /// Those that existed at the start.
    known: BTreeSet<String>,
}

impl Listing {
    /// Lists the objects in `namespace`; empty for all of them and for cluster-scoped objects.
    pub(super) fn fetch(&self, query: &Query<'_>, namespace: &str) -> Result<Records, Fault> {
        match (self.list(query, namespace), &self.only) {
            // Without permission to list everywhere, listing some namespaces may still be allowed.
            (Err(Fault::Forbidden(why)), Some(scope)) => self.piecemeal(query, scope, why),
            (found, _) => found,
        }
    }

    fn piecemeal(
        &self,
        query: &Query<'_>,
        scope: &SelectedNamespaces,
        why: String,
    ) -> Result<Records, Fault> {
        let mut answer = Records::default();
        let mut refused = Vec::new();
        for namespace in &scope.known {
            match self.list(query, namespace) {
                Ok(part) => answer.health.add(part.health),
                Err(Fault::Forbidden(_)) => refused.push(namespace.as_str()),
                Err(Fault::Refused(error)) => {
                    answer.troubles.push(FailedQuery::new(
                        &self.resource.plural,
                        namespace,
                        "",
                        error,
                    ));
                }
                Err(fault) => return Err(fault),
            }
        }
        let (number, all) = (refused.len(), scope.known.len());
        if number == all {
            return Err(Fault::Forbidden(why));
        }
        if number > 0 {
            refused.truncate(MAX_REFUSED_NAMED);
            let why = format!(
                "{why}; not listed in {number} of {all} namespaces: {}",
                refused.join(", ")
            );
            answer
                .troubles
                .push(FailedQuery::new(&self.resource.plural, "", "", why));
        }
        Ok(answer)
    }

    fn list(&self, query: &Query<'_>, namespace: &str) -> Result<Records, Fault> {
        let mut answer = Records::default();
        let mut files = KindFiles {
            folder: query.folder,
            resource: &self.resource,
            open: None,
            begun: BTreeSet::new(),
        };
        let mut take = |mut object: Value| {
            let place = object.namespace().to_owned();
            let is_left_out = self
                .only
                .as_ref()
                .is_some_and(|scope| !scope.wanted.is_match(&place));
            // A secret of this run alone, which permits replacing the archive.
            let is_own = self.resource.plural == "secrets" && object.name() == UPLOAD_SECRET;
            if is_left_out || is_own {
                return Ok(());
            }
            count_object(&mut answer.health, &self.resource, &object);
            if let Some(redactor) = query.redactor {
                redactor.object(&self.resource, &mut object);
            }
            files.add(&place, object)
        };
        let listed = query
            .client
            .each(&self.resource, namespace, &self.selector, &mut take);
        let version = listed
            .as_ref()
            .map(|meta| meta.version.clone())
            .unwrap_or_default();
        // The first part of an interrupted list is worth keeping; the error says that it is
        // incomplete.
        files.finish(&version)?;
        listed?;
        Ok(answer)
    }
}

/// The files of one kind.
struct KindFiles<'a> {
    folder: &'a Path,
    resource: &'a Resource,
    open: Option<(PathBuf, BufWriter<File>)>,
    begun: BTreeSet<PathBuf>,
}

impl KindFiles<'_> {
    fn path(&self, namespace: &str) -> PathBuf {
        let Resource {
            group,
            version,
            plural,
            namespaced,
            ..
        } = self.resource;
        let group = if group.is_empty() { "core" } else { group };
        let namespace = namespaced.then(|| component(namespace));
        let name = component(&format!("{group}_{version}_{plural}")) + ".json";
        self.folder
            .join(layout::resources(namespace.as_deref()))
            .join(name)
    }

    fn add(&mut self, namespace: &str, mut object: Value) -> Result<()> {
        forget_managers(&mut object);
        let path = self.path(namespace);
        let is_new = !self.begun.contains(&path);
        let mut writer = match self.open.take() {
            Some((current, writer)) if current == path => writer,
            other => {
                close(other)?;
                super::create_parent(&path)?;
                let mut options = OpenOptions::new();
                let file = options
                    .create(true)
                    .write(true)
                    .truncate(is_new)
                    .append(!is_new)
                    .open(&path);
                BufWriter::new(file.at("cannot write", &path)?)
            }
        };
        let begin = match is_new {
            true => format!(
                r#"{{"apiVersion":{},"items":["#,
                json!(self.resource.api_version())
            ),
            false => ",".to_owned(),
        };
        writer
            .write_all(begin.as_bytes())
            .at("cannot write", &path)?;
        serde_json::to_writer(&mut writer, &object).at("cannot write", &path)?;
        self.begun.insert(path.clone());
        self.open = Some((path, writer));
        Ok(())
    }

    fn finish(self, version: &str) -> Result<()> {
        close(self.open)?;
        let kind = json!(format!("{}List", self.resource.kind));
        let tail = format!(
            r#"],"kind":{kind},"metadata":{}}}"#,
            json!({"resourceVersion": version})
        );
        for path in &self.begun {
            let mut file = OpenOptions::new()
                .append(true)
                .open(path)
                .at("cannot write", path)?;
            writeln!(file, "{tail}").at("cannot write", path)?;
        }
        Ok(())
    }
}

fn close(open: Option<(PathBuf, BufWriter<File>)>) -> Result<()> {
    open.map_or(Ok(()), |(path, mut file)| {
        file.flush().at("cannot write", path)
    })
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
        assert_eq!(
            names(entry, &resource),
            expected,
            "{entry} and {plural} of {group}/{version}"
        );
    }

    #[test]
    fn entries_name_plurals_groups_and_kinds() {
        check("pods", "", "v1", "pods", "Pod", true);
        check(
            "pods",
            "metrics.k8s.io",
            "v1beta1",
            "pods",
            "PodMetrics",
            true,
        );
        check(
            "pods.metrics.k8s.io",
            "metrics.k8s.io",
            "v1beta1",
            "pods",
            "PodMetrics",
            true,
        );
        check("pods.metrics.k8s.io", "", "v1", "pods", "Pod", false);
        check("pod", "", "v1", "pods", "Pod", true);
        check("apps", "apps", "v1", "deployments", "Deployment", true);
        check("apps/v1", "apps", "v1", "deployments", "Deployment", true);
        check("apps/v2", "apps", "v1", "deployments", "Deployment", false);
        check("", "", "v1", "secrets", "Secret", false);
        check("v1", "", "v1", "secrets", "Secret", false);
        check("Secret", "", "v1", "secrets", "Secret", true);
        check(
            "vault.io",
            "vault.io",
            "v1",
            "secrets",
            "VaultSecret",
            false,
        );
    }

    #[test]
    fn selectors_are_recognized() {
        for good in [
            "",
            "a",
            "!a",
            "a=b",
            "a==b,c!=d",
            "a=",
            "app.kubernetes.io/name in (x, y),tier notin (z)",
            "n>1",
            " a = b ",
        ] {
            assert_eq!(checked("s", good), good.trim());
        }
        for bad in [
            "a=b=c", "a in x", "=b", "a,,b", "a b", "-a", "a in (", "a=b,", "é=1",
        ] {
            assert_eq!(checked("s", bad), "", "{bad}");
        }
    }
}
