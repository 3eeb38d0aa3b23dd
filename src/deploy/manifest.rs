//! The objects of a run. Names, labels and values match the original's, so that each program's
//! commands find the other's runs. A hardened pod also resumes after failures and passes stricter
//! admission; `gen` prints the original's.

use anyhow::{Result, bail};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use super::Plan;
use super::rights::{RunAccounts, is_original};
use base::json::{self, json};
use model::config;
use model::names::{
    self, AGGREGATOR, CONFIG_MAP, LABEL_ALL, LABEL_PART, PLUGINS_MAP, SONOBUOY, UPLOAD_DIR,
    UPLOAD_KEY, UPLOAD_SECRET,
};
use model::plugin::{self, RESERVED};

/// Secret with the private key for the e2e tests.
pub(crate) const SSH_KEY: &str = "ssh-key";
/// File name of the key.
pub(crate) const SSH_KEY_FILE: &str = "id_rsa";
/// Key in a pull secret.
pub(super) const DOCKER_CONFIG: &str = ".dockerconfigjson";
/// Log levels of the aggregator, by the verbosity of the original's second logger.
const LEVELS: [&str; 7] = ["panic", "fatal", "error", "warn", "info", "debug", "trace"];
/// Maximum size of a ConfigMap in Kubernetes.
const CONFIG_MAP_BYTES: usize = 1 << 20;

impl Plan {
    /// The objects of the run, in the order in which they must be created.
    pub(crate) fn manifest(&self) -> Result<Vec<Value>> {
        let plugins = self.prepared()?;
        let run = &self.run;
        let rights = RunAccounts::new(self, &plugins)?;
        let mut objects = Vec::new();
        if rights.makes_namespace() {
            objects.push(namespace(run));
        }
        objects.extend(rights.accounts());
        if let Some(credentials) = &self.docker_config {
            let kind = "kubernetes.io/dockerconfigjson";
            objects.push(secret(
                run,
                &run.image_pull_secrets,
                kind,
                (DOCKER_CONFIG, credentials),
            ));
        }
        if self.rbac {
            objects.extend(rights.roles());
        }
        objects.push(config_map(
            run,
            CONFIG_MAP,
            json!({(names::CONFIG_KEY): run.to_json()}),
            true,
        )?);
        if let Some(key) = &self.ssh_key {
            objects.push(secret(run, SSH_KEY, "Opaque", (SSH_KEY_FILE, key)));
        }
        if let Some(url) = &self.upload {
            if is_original(&run.worker_image) {
                bail!(
                    "--upload: the image `{}` cannot upload archives; add `--retrieve DIR`, so \
                     that your machine does",
                    run.worker_image
                );
            }
            let mut secret = secret(run, UPLOAD_SECRET, "Opaque", (UPLOAD_KEY, url.as_bytes()));
            secret["metadata"]["labels"] = names::labels();
            let authorities = &self.upload_authorities;
            if authorities.len() > CONFIG_MAP_BYTES / 2 {
                bail!(
                    "the certificates in SSL_CERT_FILE have {} bytes, which is too large for a \
                     Secret; name a file with the authority of the store alone",
                    authorities.len()
                );
            }
            if !authorities.is_empty() {
                secret["data"][names::UPLOAD_CA_KEY] = json!(BASE64_STANDARD.encode(authorities));
            }
            objects.push(secret);
        }
        let definitions = plugins
            .iter()
            .enumerate()
            .map(|(at, plugin)| (format!("plugin-{at}.yaml"), json!(plugin.to_yaml().trim())))
            .collect();
        objects.push(config_map(run, PLUGINS_MAP, definitions, true)?);
        for plugin in plugins
            .iter()
            .filter(|plugin| !plugin.config_map.is_empty())
        {
            objects.push(config_map(
                run,
                &names::plugin_map(plugin.name()),
                json!(plugin.config_map),
                false,
            )?);
        }
        objects.extend(
            self.status_service
                .as_ref()
                .map(|service| service.secret(&run.namespace)),
        );
        objects.push(aggregator(self, rights.aggregator()));
        objects.push(service(run));
        objects.extend(
            self.status_service
                .as_ref()
                .map(|service| service.service(&run.namespace)),
        );
        if self.harden {
            objects
                .iter_mut()
                .for_each(|object| names::recommend(&mut object["metadata"]));
        }
        Ok(objects)
    }
}

fn namespace(run: &config::Run) -> Value {
    let mut metadata = json!({"name": run.namespace});
    if !run.namespace_psa_enforce_level.is_empty() {
        metadata["labels"] =
            json!({"pod-security.kubernetes.io/enforce": run.namespace_psa_enforce_level});
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

fn secret(run: &config::Run, name: &str, kind: &str, (key, value): (&str, &[u8])) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name, "namespace": run.namespace},
        "data": {(key): BASE64_STANDARD.encode(value)},
    })
}

fn config_map(run: &config::Run, name: &str, data: Value, labelled: bool) -> Result<Value> {
    let bytes: usize = data
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if bytes > CONFIG_MAP_BYTES {
        bail!(
            "the ConfigMap `{name}` would have {bytes} bytes, but Kubernetes allows \
             {CONFIG_MAP_BYTES}; put large files into an image or shorten the config-map of a \
             plugin"
        );
    }
    let mut metadata = json!({"name": name, "namespace": run.namespace});
    if labelled {
        metadata["labels"] = names::labels();
    }
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    if bytes > 0 {
        object["data"] = data;
    }
    Ok(object)
}

fn aggregator(plan: &Plan, account: &str) -> Value {
    let run = &plan.run;
    let mut metadata = json!({
        "labels": {LABEL_ALL: SONOBUOY, LABEL_PART: AGGREGATOR, "tier": "analysis"},
        "name": SONOBUOY,
        "namespace": run.namespace,
    });
    if !run.custom_annotations.is_empty() {
        metadata["annotations"] = json!(run.custom_annotations);
    }
    let mut tolerations =
        vec![json!({"key": "kubernetes.io/e2e-evict-taint-key", "operator": "Exists"})];
    for toleration in &run.aggregator_tolerations {
        let mut fields = toleration.0.clone();
        fields.retain(|key, value| {
            ["key", "value", "effect", "operator"].contains(&key.as_str()) && !value.is_empty()
        });
        tolerations.push(json!(fields));
    }
    let mut spec = json!({
        "containers": [aggregator_container(plan)],
        "restartPolicy": "Never",
        "serviceAccountName": account,
        "tolerations": tolerations,
        "volumes": [
            {"name": "sonobuoy-config-volume", "configMap": {"name": CONFIG_MAP}},
            {"name": "sonobuoy-plugins-volume", "configMap": {"name": PLUGINS_MAP}},
            {"name": "output-volume", "emptyDir": {}},
        ],
    });
    if !plan.results_pvc.is_empty() {
        spec["volumes"][2] = json!({"name": "output-volume", "persistentVolumeClaim": {"claimName": plan.results_pvc}});
    }
    if run.security_context_mode != "none" {
        spec["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000});
    }
    if !plan.node_selector.is_empty() {
        spec["nodeSelector"] = json!(plan.node_selector);
    }
    if !run.image_pull_secrets.is_empty() {
        spec["imagePullSecrets"] = json!([{"name": run.image_pull_secrets}]);
    }
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    if plan.status_service.is_some() {
        mount(&mut pod, names::STATUS_SERVICE, names::STATUS_DIR);
    }
    if !plan.upload_authorities.is_empty() {
        mount(&mut pod, UPLOAD_SECRET, UPLOAD_DIR);
    }
    if plan.harden {
        harden(&mut pod, run);
    }
    pod
}

/// Mounts a secret into the aggregator's container.
fn mount(pod: &mut Value, secret: &str, folder: &str) {
    let spec = &mut pod["spec"];
    json::list_in(spec, "volumes").push(json!({"name": secret, "secret": {"secretName": secret}}));
    let mount = json!({"mountPath": folder, "name": secret, "readOnly": true});
    json::list_in(&mut spec["containers"][0], "volumeMounts").push(mount);
}

fn aggregator_container(plan: &Plan) -> Value {
    let mut env = vec![json!({
        "name": names::env::ADVERTISE_IP,
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    })];
    if plan.upload.is_some() {
        let from = json!({"secretKeyRef": {"name": UPLOAD_SECRET, "key": UPLOAD_KEY}});
        env.push(json!({"name": names::env::UPLOAD_URL, "valueFrom": from}));
    }
    if !plan.upload_authorities.is_empty() {
        // Unlike SSL_CERT_FILE, this keeps the image's own bundle.
        env.push(json!({"name": "SSL_CERT_DIR", "value": UPLOAD_DIR}));
    }
    // The original's logger rejects the `warning` that its flag offers.
    let level = if plan.level == "warning" {
        "warn"
    } else {
        &*plan.level
    };
    let verbosity = LEVELS.iter().position(|known| *known == level).unwrap_or(4);
    let mut container = json!({
        "name": names::AGGREGATOR_CONTAINER,
        "image": plan.run.worker_image,
        "command": ["/sonobuoy"],
        "args": ["aggregator", "--no-exit", format!("--level={}", LEVELS[verbosity]), format!("-v={verbosity}"), "--alsologtostderr"],
        "env": env,
        "volumeMounts": [
            {"mountPath": names::CONFIG_DIR, "name": "sonobuoy-config-volume"},
            {"mountPath": names::PLUGINS_DIR, "name": "sonobuoy-plugins-volume"},
            {"mountPath": names::RUNS_DIR, "name": "output-volume"},
        ],
    });
    if let Some(given) = plan.env.get(RESERVED) {
        plugin::set_env(&mut container, given);
    }
    if !plan.run.image_pull_policy.is_empty() {
        container["imagePullPolicy"] = json!(plan.run.image_pull_policy);
    }
    container
}

fn service(run: &config::Run) -> Value {
    // Port 0 is chosen by the system, unknown to the service.
    let port = if run.server.bind_port > 0 {
        run.server.bind_port
    } else {
        names::AGGREGATOR_PORT.into()
    };
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "labels": {LABEL_ALL: SONOBUOY, LABEL_PART: AGGREGATOR},
            "name": names::AGGREGATOR_SERVICE,
            "namespace": run.namespace,
        },
        "spec": {
            "ports": [{"port": port, "protocol": "TCP", "targetPort": port}],
            "selector": {LABEL_PART: AGGREGATOR},
            "type": "ClusterIP",
        },
    })
}

/// Keeps a cluster autoscaler from evicting the pod.
const KEEP: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Makes the pod resume after a failure, resist eviction, limit its resources, and pass the
/// `restricted` level of Pod Security where the settings of the run leave that open.
fn harden(pod: &mut Value, run: &config::Run) {
    let annotations = &mut pod["metadata"]["annotations"];
    if annotations[KEEP].is_null() {
        annotations[KEEP] = json!("false");
    }
    let spec = &mut pod["spec"];
    let mut resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    if !is_original(&run.worker_image) {
        spec["restartPolicy"] = json!("OnFailure");
        // Far above the needs of 5,000 nodes, and small for a node.
        resources["limits"] = json!({"cpu": "2", "memory": "512Mi"});
        // The aggregator knows this limit and stays below; beyond it the pod would be evicted with
        // all results.
        let bytes = run.limits.run.bytes;
        let volumes = spec["volumes"].as_array_mut().into_iter().flatten();
        for volume in volumes.filter(|volume| volume["emptyDir"].is_object() && bytes > 0) {
            let in_gib = bytes
                .is_multiple_of(1 << 30)
                .then(|| format!("{}Gi", bytes >> 30));
            volume["emptyDir"]["sizeLimit"] = json!(in_gib.unwrap_or_else(|| bytes.to_string()));
        }
    }
    spec["containers"][0]["resources"] = resources;
    // `none` is for clusters and systems that set or refuse these themselves, such as Windows.
    if run.security_context_mode != "none" {
        spec["securityContext"]["runAsNonRoot"] = json!(true);
        spec["securityContext"]["seccompProfile"] = json!({"type": "RuntimeDefault"});
        spec["containers"][0]["securityContext"] =
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::rights::ORIGINAL;

    #[test]
    fn volume_size_equals_the_aggregators_limit() {
        for (bytes, image, limit) in [
            (100 << 30, "own", json!({"sizeLimit": "100Gi"})),
            (5, "own", json!({"sizeLimit": "5"})),
            (0, "own", json!({})),
            (5, ORIGINAL, json!({})),
        ] {
            let mut run = config::Run {
                worker_image: image.into(),
                ..config::Run::standard()
            };
            run.limits.run.bytes = bytes;
            let claim = json!({"persistentVolumeClaim": {}});
            let mut pod =
                json!({"spec": {"containers": [{}], "volumes": [{"emptyDir": {}}, claim]}});
            harden(&mut pod, &run);
            assert_eq!(pod["spec"]["volumes"], json!([{"emptyDir": limit}, claim]));
        }
    }

    #[test]
    fn images_of_the_original_are_recognized_in_any_registry() {
        for (image, expected) in [
            ("sonobuoy/sonobuoy:v0.57.5", true),
            ("sonobuoy/sonobuoy", true),
            ("docker.io/sonobuoy/sonobuoy@sha256:00", true),
            ("registry:5000/sonobuoy/sonobuoy:v1", true),
            ("registry:5000/mine/sonobuoy:v1", false),
            ("localhost/sonobuoy:1", false),
            ("notsonobuoy/sonobuoy:1", false),
        ] {
            assert_eq!(is_original(image), expected, "{image}");
        }
    }
}
