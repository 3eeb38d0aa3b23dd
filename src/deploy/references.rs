//! The objects that the pods of a run refer to and that the run does not create: secrets, config
//! maps, volume claims, service accounts, runtime classes.
//!
//! Without them pods wait for minutes, or are refused. Pure; [`super::preflight`] looks them up.

use std::collections::BTreeMap;

use serde_json::Value;

use super::planned;
use kube::{Object as _, Resource};
use model::names;
use run::driver;

/// Account and config map that controllers create in every namespace.
const IN_EVERY_NAMESPACE: [(&str, &str); 2] = [
    ("ServiceAccount", "default"),
    ("ConfigMap", "kube-root-ca.crt"),
];

/// An object, and who refers to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    /// Its kind.
    pub resource: Resource,
    /// Its name.
    pub name: String,
    /// `plugin x`, or `the aggregator`.
    pub user: String,
}

impl Reference {
    /// `secret x (plugin y)`.
    pub(super) fn sentence(&self) -> String {
        let (kind, name, user) = (&self.resource.kind, &self.name, &self.user);
        format!("{kind} `{name}` ({user})")
    }
}

/// What the pods of a run with these objects refer to, each object once, without those that the run
/// or every namespace contains.
pub(crate) fn references(objects: &[Value], namespace: &str) -> Vec<Reference> {
    let mut users = BTreeMap::new();
    let mut add = |user: &str, spec: &Value| {
        for (resource, name) in of_pod(spec) {
            let is_known = IN_EVERY_NAMESPACE.contains(&(&*resource.kind, name))
                || objects
                    .iter()
                    .any(|object| object["kind"] == *resource.kind && object.name() == name);
            if !is_known && !name.is_empty() {
                let key = (resource, name.to_owned());
                users.entry(key).or_insert_with(|| user.to_owned());
            }
        }
    };
    let pods = objects.iter().filter(|object| object["kind"] == "Pod");
    pods.for_each(|pod| add("the aggregator", &pod["spec"]));
    match planned(objects, namespace) {
        Ok((run, plugins)) => {
            for plugin in plugins {
                let pod = driver::cluster::pod(&plugin, &run);
                add(&format!("plugin `{}`", plugin.name()), &pod["spec"]);
            }
        }
        Err(error) => log::debug!("the definitions in the manifest cannot be read: {error:#}"),
    }
    let of_run = |name: &str| name == names::AUTHORITY_MAP || driver::cluster::is_made_later(name);
    users
        .into_iter()
        .filter(|((_, name), _)| !of_run(name))
        .map(|((resource, name), user)| Reference {
            resource,
            name,
            user,
        })
        .collect()
}

/// Kinds and names of all objects that a pod cannot start without.
fn of_pod(spec: &Value) -> Vec<(Resource, &str)> {
    let mut objects = vec![
        (
            Resource::SERVICE_ACCOUNTS,
            spec["serviceAccountName"].text(),
        ),
        (Resource::RUNTIME_CLASSES, spec["runtimeClassName"].text()),
    ];
    let pull_secrets = spec["imagePullSecrets"].items();
    objects.extend(pull_secrets.map(|secret| (Resource::SECRETS, secret["name"].text())));
    let containers = spec["initContainers"]
        .items()
        .chain(spec["containers"].items());
    for container in containers {
        for source in container["envFrom"].items() {
            objects.extend(required(Resource::SECRETS, &source["secretRef"], "name"));
            objects.extend(required(
                Resource::CONFIG_MAPS,
                &source["configMapRef"],
                "name",
            ));
        }
        for variable in container["env"].items() {
            let from = &variable["valueFrom"];
            objects.extend(required(Resource::SECRETS, &from["secretKeyRef"], "name"));
            objects.extend(required(
                Resource::CONFIG_MAPS,
                &from["configMapKeyRef"],
                "name",
            ));
        }
    }
    for volume in spec["volumes"].items() {
        objects.extend(required(Resource::SECRETS, &volume["secret"], "secretName"));
        objects.extend(required(
            Resource::CONFIG_MAPS,
            &volume["configMap"],
            "name",
        ));
        let claim = volume["persistentVolumeClaim"]["claimName"].text();
        objects.push((Resource::VOLUME_CLAIMS, claim));
        for source in volume["projected"]["sources"].items() {
            objects.extend(required(Resource::SECRETS, &source["secret"], "name"));
            objects.extend(required(
                Resource::CONFIG_MAPS,
                &source["configMap"],
                "name",
            ));
        }
    }
    objects
}

/// The object that a source names, unless it is optional.
fn required<'a>(resource: Resource, source: &'a Value, key: &str) -> Option<(Resource, &'a str)> {
    (source["optional"] != true).then(|| (resource, source[key].text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    #[test]
    fn every_reference_of_a_pod_is_found_unless_it_is_optional() {
        let spec = json!({
            "serviceAccountName": "account",
            "runtimeClassName": "class",
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "from-secret"}}, {"configMapRef": {"name": "from-map"}}]}],
            "containers": [{"env": [
                {"name": "a", "value": "b"},
                {"valueFrom": {"secretKeyRef": {"name": "key-secret", "key": "k"}}},
                {"valueFrom": {"configMapKeyRef": {"name": "key-map", "key": "k"}}},
                {"valueFrom": {"configMapKeyRef": {"name": "no", "optional": true}}},
            ]}],
            "volumes": [
                {"secret": {"secretName": "volume-secret"}},
                {"secret": {"secretName": "no", "optional": true}},
                {"configMap": {"name": "volume-map"}},
                {"persistentVolumeClaim": {"claimName": "claim"}},
                {"projected": {"sources": [{"secret": {"name": "projected-secret"}}, {"configMap": {"name": "projected-map"}}, {"configMap": {"name": "no", "optional": true}}]}},
                {"emptyDir": {}},
            ],
        });
        let found = of_pod(&spec);
        let names = |kind: &str| {
            let of_kind = found.iter().filter(|(resource, _)| resource.kind == kind);
            let mut names: Vec<_> = of_kind
                .map(|(_, name)| *name)
                .filter(|name| !name.is_empty())
                .collect();
            names.sort_unstable();
            names
        };
        for (kind, expected) in [
            ("ServiceAccount", &["account"][..]),
            ("RuntimeClass", &["class"]),
            ("PersistentVolumeClaim", &["claim"]),
            (
                "Secret",
                &[
                    "from-secret",
                    "key-secret",
                    "projected-secret",
                    "pull",
                    "volume-secret",
                ],
            ),
            (
                "ConfigMap",
                &["from-map", "key-map", "projected-map", "volume-map"],
            ),
        ] {
            assert_eq!(names(kind), expected, "{kind}");
        }
    }
}
