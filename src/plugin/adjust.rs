//! Changes to a definition that both client and aggregator make: results volume, environment variables, default pod spec.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Definition, DriverKind};
use crate::names::{RESULTS_VOLUME, VERSION_PLACEHOLDER, env};
use base::json::{self, json};
use base::kube::Object as _;

/// Registry of Kubernetes until 1.26.
const FROZEN_REGISTRY: &str = "k8s.gcr.io/";

impl Definition {
    /// Mounts the results volume at `folder` in all containers.
    pub(crate) fn mount_results(&mut self, folder: &str) {
        self.mount(RESULTS_VOLUME, folder);
    }

    /// The same, and also at the container's own mount paths, so that files written there are found.
    pub(crate) fn mount_results_also(&mut self, folder: &str) {
        for container in self.containers_mut() {
            let mounts = json::list_in(container, "volumeMounts");
            let own = mounts.iter().find(|mount| mount["name"] == RESULTS_VOLUME).cloned();
            mounts.extend(own.filter(|mount| mount["mountPath"] != folder));
        }
        self.mount_results(folder);
    }

    /// Mount path of the results in the plugin's container besides `folder`.
    pub(crate) fn results_mount(&self, folder: &str) -> Option<&str> {
        let mounts = self.spec["volumeMounts"].items();
        let mut paths = mounts.filter(|mount| mount["name"] == RESULTS_VOLUME && mount["subPath"].is_null());
        paths.find_map(|mount| mount["mountPath"].as_str().filter(|path| *path != folder))
    }

    /// Mounts a volume in the plugin's container and its sidecars; an existing mount of that name is moved there.
    pub(crate) fn mount(&mut self, volume: &str, path: &str) {
        for container in self.containers_mut() {
            let mounts = json::list_in(container, "volumeMounts");
            match mounts.iter_mut().find(|mount| mount["name"] == volume) {
                Some(mount) => mount["mountPath"] = json!(path),
                None => mounts.push(json!({"mountPath": path, "name": volume})),
            }
        }
    }

    /// Sets variables in the plugin's container and its sidecars; an empty value removes one.
    pub(crate) fn set_env(
        &mut self,
        overrides: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)> + Clone,
    ) {
        for container in self.containers_mut() {
            set_env(container, overrides.clone());
        }
    }

    /// Moves the conformance image of the cluster's version to the current registry; returns whether that was
    /// necessary.
    pub(crate) fn move_to_live_registry(&mut self) -> bool {
        let image = self.spec["image"].as_str().and_then(|image| image.strip_prefix(FROZEN_REGISTRY));
        let image = image.filter(|rest| rest.ends_with(VERSION_PLACEHOLDER));
        let Some(live) = image.map(|rest| json!(format!("registry.k8s.io/{rest}"))) else { return false };
        self.spec["image"] = live;
        true
    }

    /// Value of a variable of the plugin's container; empty if it comes from a reference, `None` if unset.
    pub(crate) fn env(&self, name: &str) -> Option<&str> {
        let mut variables = self.spec["env"].items();
        let variable = variables.find(|variable| variable["name"] == name)?;
        Some(variable["value"].text())
    }

    /// Sets the pull policy of the plugin's container; an empty one leaves it to Kubernetes.
    pub(crate) fn set_pull_policy(&mut self, policy: &str) {
        self.spec["imagePullPolicy"] = policy.into();
        if let Some(spec) = self.spec.as_object_mut().filter(|_| policy.is_empty()) {
            spec.remove("imagePullPolicy");
        }
    }

    /// Points the results volume and the two variables that name it to `folder`, before the aggregator starts a
    /// plugin, so that definitions written for other paths work.
    pub(crate) fn reconcile(&mut self, folder: &str) {
        self.mount_results(folder);
        set_env(&mut self.spec, [(env::OLD_RESULTS_DIR, folder), (env::RESULTS_DIR, folder)]);
    }
}

/// Merges variables into a container's own: one per name, sorted by name; the first one wins, as in the original.
pub(crate) fn set_env(
    container: &mut Value,
    overrides: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
) {
    let env = json::list_in(container, "env");
    let mut merged: BTreeMap<String, Value> = BTreeMap::new();
    for variable in env.drain(..) {
        merged.entry(variable["name"].text().to_owned()).or_insert(variable);
    }
    for (name, value) in overrides {
        let (name, value) = (name.as_ref(), value.as_ref());
        if value.is_empty() {
            merged.remove(name);
        } else {
            merged.insert(name.to_owned(), json!({"name": name, "value": value}));
        }
    }
    env.extend(merged.into_values());
    env.sort_by_key(|variable| variable["name"].text().to_lowercase());
    if env.is_empty()
        && let Value::Object(fields) = container
    {
        fields.remove("env");
    }
}

/// Maximum restarts of a failing container in a pod with `restartPolicy: OnFailure`.
pub(crate) const MAX_FAILURES: u8 = 5;

impl Definition {
    /// Maximum failures after which a container is still restarted.
    pub(crate) fn max_failures(&self) -> u8 {
        let policy = self.pod_spec.as_ref().map(|spec| &spec["restartPolicy"]);
        if policy.is_some_and(|policy| policy == "OnFailure") { MAX_FAILURES } else { 0 }
    }
}

/// The pod spec of a plugin that has none, without containers.
pub(crate) fn default_spec(driver: DriverKind, service_account: &str) -> Value {
    match driver {
        DriverKind::Job => json!({
            "containers": [],
            "restartPolicy": "Never",
            "serviceAccountName": service_account,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [
                {"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "CriticalAddonsOnly", "operator": "Exists"},
                {"key": "kubernetes.io/e2e-evict-taint-key", "operator": "Exists"},
            ],
        }),
        DriverKind::Nodes => {
            let mut spec = default_spec(DriverKind::DaemonSet, service_account);
            spec["restartPolicy"] = "Never".into();
            spec
        }
        DriverKind::DaemonSet => json!({
            "containers": [],
            "dnsPolicy": "ClusterFirstWithHostNet",
            "hostIPC": true,
            "hostNetwork": true,
            "hostPID": true,
            "serviceAccountName": service_account,
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(spec: Value) -> Definition {
        let mut definition = Definition::new("p", DriverKind::Job, spec);
        definition.pod_spec =
            Some(json!({"containers": [{"name": "side"}], "initContainers": [{"name": "init"}]}));
        definition
    }

    #[test]
    fn results_are_mounted_everywhere_but_in_init_containers() {
        let mut one = plugin(json!({"volumeMounts": [
            {"name": "a", "mountPath": "/a"},
            {"name": "results", "mountPath": "/tmp/results", "readOnly": true},
        ]}));
        one.mount_results("/r");
        let expected = json!({"volumeMounts": [
            {"name": "a", "mountPath": "/a"},
            {"name": "results", "mountPath": "/r", "readOnly": true},
        ]});
        assert_eq!(one.spec, expected);
        assert_eq!(
            one.pod_spec.unwrap(),
            json!({
                "containers": [{"name": "side", "volumeMounts": [{"name": "results", "mountPath": "/r"}]}],
                "initContainers": [{"name": "init"}],
            })
        );
    }

    #[test]
    fn author_mounts_of_results_are_kept() {
        let own = json!({"name": "results", "mountPath": "/tmp/results"});
        let ours = json!({"name": "results", "mountPath": "/r"});
        for (before, after) in
            [(json!([own]), json!([ours, own])), (json!([ours]), json!([ours])), (json!([]), json!([ours]))]
        {
            let mut one = plugin(json!({"volumeMounts": before.clone()}));
            one.mount_results_also("/r");
            assert_eq!(one.spec["volumeMounts"], after);
            // The aggregator's later changes have no effect.
            one.mount_results("/r");
            assert_eq!(one.spec["volumeMounts"], after);
            let also = (before == json!([own])).then_some("/tmp/results");
            assert_eq!(one.results_mount("/r"), also);
        }
    }

    #[test]
    fn variables_are_merged_removed_and_sorted() {
        let mut one = plugin(json!({"env": [
            {"name": "b", "value": "1"},
            {"name": "Gone", "value": "1"},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "b", "value": "2"},
            {"name": "D", "valueFrom": {}},
        ]}));
        let overrides = [("A", "x"), ("Gone", ""), ("D", "y"), ("Never", "")];
        one.set_env(overrides);
        let expected = json!([
            {"name": "A", "value": "x"},
            {"name": "b", "value": "1"},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "D", "value": "y"},
        ]);
        assert_eq!(one.spec["env"], expected);
        let cars = one.pod_spec.unwrap();
        assert_eq!(
            cars["containers"][0]["env"],
            json!([{"name": "A", "value": "x"}, {"name": "D", "value": "y"}])
        );
    }

    #[test]
    fn variables_of_sidecars_are_unchanged() {
        let mut one = plugin(json!({"env": [{"name": "RESULTS_DIR", "value": "/tmp/results"}]}));
        one.reconcile("/r");
        let expected =
            json!([{"name": "RESULTS_DIR", "value": "/r"}, {"name": "SONOBUOY_RESULTS_DIR", "value": "/r"}]);
        assert_eq!(one.spec["env"], expected);
        assert_eq!(one.pod_spec.unwrap()["containers"][0].get("env"), None);
    }
}
