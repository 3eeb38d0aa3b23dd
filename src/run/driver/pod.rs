//! The pod of a plugin in a cluster: the plugin's containers, the worker sidecar, their shared
//! volumes.
//!
//! Owns the common part of both drivers' manifests, and the manifests themselves. Pure: builds API
//! objects without creating them. Overrides nothing in the pod spec of a definition.

use serde_json::Value;

use super::node::{ADDED, DOWN};

use base::json::{self, json};
use base::{hex, sha256};
use client::env as var;
use client::protocol::ResultId;
use kube::{Object as _, Selector};
use model::config;
use model::names::{
    self, ANNOTATION_DRIVER, HOST_PROGRESS_PORTS, LABEL_ALL, LABEL_PART, LABEL_PLUGIN,
    LABEL_SESSION, PLUGIN, RESULTS_VOLUME, RUNS_DIR, SONOBUOY, TOKEN_DIR, WORKER_CONTAINER, env,
    plugin_account, worker_secret,
};
use model::plugin::{Definition, DriverKind, Permissions, default_spec};

/// Name of the volume with the pod's token, and of the token's file.
const TOKEN_VOLUME: &str = "sonobuoy-identity";
const TOKEN: &str = "token";
/// Replaces the service account volume in pods without an account: the cluster's authority and the
/// namespace.
const CLUSTER_VOLUME: &str = "sonobuoy-cluster";
/// Mount path of a service account volume.
const ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Digits of the number in a pod's name; hashes are longer.
const MAX_ATTEMPT_DIGITS: usize = 6;
/// Minimum age of a done file in a pod whose only other container is the worker: time for a plugin
/// to write it in pieces.
const SOLE_PLUGIN_DONE_DELAY: &str = "500ms";
/// Lifetime of a token; the kubelet renews it in time.
const TOKEN_SECONDS: u32 = 3600;

/// The launch of a plugin in a cluster: inputs for its objects.
pub(super) struct ClusterLaunch<'a> {
    /// The definition.
    pub definition: &'a Definition,
    /// [`super::session`]
    pub session: String,
    /// Settings of the run.
    pub config: &'a config::Run,
    /// Certificate of the run's authority, PEM.
    pub ca_cert: String,
    /// Name and uid of the aggregator's pod, which owns everything.
    pub owner: (&'a str, &'a str),
    /// Audience of the pod's token, if workers authenticate with one.
    pub audience: Option<&'a str>,
}

impl ClusterLaunch<'_> {
    /// Name of the secret with the worker's certificate.
    pub(super) fn secret_name(&self) -> String {
        worker_secret(self.definition.name(), &self.session)
    }

    /// Name of the pod or DaemonSet.
    pub(super) fn object_name(&self) -> String {
        object_name(self.definition, &self.session)
    }

    /// The pod of a Job, not on the nodes to `avoid` if there is room elsewhere, or of a plugin in
    /// waves at its `place`: the first, or one that replaces a lost one.
    pub(super) fn pod(&self, place: &str, attempt: u64, avoid: &[String]) -> Value {
        let mut pod = self.object();
        pod["metadata"]["name"] = json!(self.pod_name(place, attempt));
        let spec = &mut pod["spec"];
        let fields = |operator: &str, node: &str| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": [node]}]});
        if self.definition.config.driver.is_per_node() {
            // As a controller of DaemonSets would; the node was chosen by the required affinity of
            // the definition.
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": [fields("In", place)]});
            spec["restartPolicy"] = json!("Never");
            let tolerations = ADDED.into_iter().chain(DOWN.map(|key| (key, "NoExecute")));
            let tolerations = tolerations
                .map(|(key, effect)| json!({"key": key, "operator": "Exists", "effect": effect}));
            push(spec, "tolerations", tolerations);
        } else if !avoid.is_empty() {
            // The field takes a single value.
            let away = avoid
                .iter()
                .map(|node| json!({"weight": 100, "preference": fields("NotIn", node)}));
            let affinity = &mut spec["affinity"]["nodeAffinity"];
            push(
                affinity,
                "preferredDuringSchedulingIgnoredDuringExecution",
                away,
            );
        }
        pod
    }

    /// Name of that pod; names of nodes may be as long as those of pods.
    pub(super) fn pod_name(&self, place: &str, attempt: u64) -> String {
        let mut name = self.object_name();
        if self.definition.config.driver.is_per_node() {
            name += &format!("-{}", hex(&sha256(place).as_ref()[..5]));
        }
        if attempt > 1 {
            format!("{name}-{attempt}")
        } else {
            name
        }
    }

    /// Selects the objects of this launch.
    pub(super) fn selector(&self) -> Selector {
        Selector::labels(format!("{LABEL_SESSION}={}", self.session))
    }

    /// Secret with the worker's certificate and key.
    pub(super) fn secret(&self, certificate: &str, key: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {
                "name": self.secret_name(),
                "namespace": self.config.namespace,
                "ownerReferences": self.owners(),
            },
            "stringData": {"tls.crt": certificate, "tls.key": key},
        })
    }

    /// The pod of a Job plugin, or the DaemonSet.
    pub(super) fn object(&self) -> Value {
        let name = self.definition.name();
        let mut annotations = json!(self.config.custom_annotations);
        annotations[ANNOTATION_DRIVER] = json!(self.definition.config.driver_spelling);
        annotations[LABEL_PLUGIN] = json!(name);
        let mut metadata = json!({
            "name": self.object_name(),
            "namespace": self.config.namespace,
            "labels": {
                LABEL_ALL: SONOBUOY,
                LABEL_PART: PLUGIN,
                LABEL_PLUGIN: name,
                LABEL_SESSION: self.session,
                "tier": "analysis",
            },
            "annotations": annotations,
            "ownerReferences": self.owners(),
        });
        names::recommend(&mut metadata);
        match self.definition.config.driver {
            DriverKind::Job | DriverKind::Nodes => {
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self.pod_spec()})
            }
            DriverKind::DaemonSet => {
                let mut template = json!({"labels": metadata["labels"]});
                if !self.config.custom_annotations.is_empty() {
                    template["annotations"] = json!(self.config.custom_annotations);
                }
                json!({
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "metadata": metadata,
                    "spec": {
                        "selector": {"matchLabels": {LABEL_SESSION: self.session}},
                        "template": {"metadata": template, "spec": self.pod_spec()},
                    },
                })
            }
        }
    }

    /// The spec of the plugin's pods.
    pub(super) fn pod_spec(&self) -> Value {
        let default = || {
            default_spec(
                self.definition.config.driver,
                &self.config.service_account_name,
            )
        };
        let mut spec = self.definition.pod_spec.clone().unwrap_or_else(default);
        if self.definition.config.permissions.is_some() {
            spec["serviceAccountName"] = json!(plugin_account(self.definition.results_plugin()));
        }
        if self.is_bare() {
            spec["automountServiceAccountToken"] = json!(false);
        }
        push(&mut spec, "containers", [self.plugin()]);
        if self.is_on_host() {
            // First, since other variables may refer to it.
            let port = variable(env::PROGRESS_PORT, &self.progress_port());
            for container in spec["containers"].as_array_mut().into_iter().flatten() {
                let env = container["env"].take();
                let others = env
                    .items()
                    .filter(|variable| variable["name"] != env::PROGRESS_PORT)
                    .cloned();
                container["env"] = std::iter::once(port.clone()).chain(others).collect();
            }
        }
        if self.definition.config.has_worker() {
            push(&mut spec, "containers", [self.worker()]);
        }
        if !self.config.image_pull_secrets.is_empty() {
            push(
                &mut spec,
                "imagePullSecrets",
                [json!({"name": self.config.image_pull_secrets})],
            );
        }
        // A volume of the same name in the definition takes precedence, even of another kind.
        let mut volumes = spec["volumes"]
            .items()
            .chain(&self.definition.extra_volumes);
        if !volumes.any(|volume| volume["name"] == RESULTS_VOLUME) {
            push(
                &mut spec,
                "volumes",
                [json!({"name": RESULTS_VOLUME, "emptyDir": {}})],
            );
        }
        if self.is_bare() {
            let authority = json!({"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}], "optional": true});
            let namespace =
                json!([{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]);
            let sources = json!([{"configMap": authority}, {"downwardAPI": {"items": namespace}}]);
            push(
                &mut spec,
                "volumes",
                [json!({"name": CLUSTER_VOLUME, "projected": {"sources": sources}})],
            );
        }
        if let Some(audience) = self.audience {
            let token = json!({
                "audience": audience, "expirationSeconds": TOKEN_SECONDS, "path": TOKEN,
            });
            let sources = json!([{"serviceAccountToken": token}]);
            push(
                &mut spec,
                "volumes",
                [json!({"name": TOKEN_VOLUME, "projected": {"sources": sources}})],
            );
        }
        push(
            &mut spec,
            "volumes",
            self.definition.extra_volumes.iter().cloned(),
        );
        spec
    }

    /// The plugin's own container, with the name of its node in its environment, and named `plugin`
    /// if the definition gives no name, since Kubernetes requires one.
    fn plugin(&self) -> Value {
        let mut plugin = self.definition.spec.clone();
        if plugin["name"].as_str().is_none_or(str::is_empty) {
            plugin["name"] = json!("plugin");
        }
        if plugin["terminationMessagePath"].is_null()
            && plugin["terminationMessagePolicy"].is_null()
        {
            // The cause of a failure is often only in the log.
            plugin["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        }
        if !has(&plugin, var::NODE_NAME) {
            push(&mut plugin, "env", [field(var::NODE_NAME, "spec.nodeName")]);
        }
        if self.is_bare() {
            // A pod without an account still needs the cluster's authority, and cannot look up the
            // aggregator.
            if !has(&plugin, env::AGGREGATOR_URL) {
                push(
                    &mut plugin,
                    "env",
                    [variable(env::AGGREGATOR_URL, &self.aggregator())],
                );
            }
            let mount = json!({"name": CLUSTER_VOLUME, "mountPath": ACCOUNT_DIR, "readOnly": true});
            push(&mut plugin, "volumeMounts", [mount]);
        }
        if !self.definition.config.has_worker() {
            // The plugin uploads by itself. Variables that refer to others come after them.
            let variables = self.channel_env();
            if let Value::Array(env) = &mut plugin["env"] {
                env.retain(|variable| {
                    !variables
                        .iter()
                        .any(|fixed| fixed["name"] == variable["name"])
                });
            }
            push(&mut plugin, "env", variables);
            push(
                &mut plugin,
                "volumeMounts",
                self.audience.map(|_| token_mount()),
            );
        }
        plugin
    }

    fn aggregator(&self) -> String {
        format!("https://{}", self.config.server.advertise_address)
    }

    /// Variables for connecting to the aggregator.
    fn channel_env(&self) -> Vec<Value> {
        let name = self.definition.name();
        let id = match self.definition.config.driver.is_per_node() {
            true => ResultId::on_node(name, var::NODE_NAME),
            false => ResultId::global(name),
        };
        // The node is unknown before scheduling.
        let path = |path: String| path.replacen(var::NODE_NAME, "$(NODE_NAME)", 1);
        let url = self.aggregator();
        let mut env = vec![
            variable(var::RESULT_TYPE, name),
            variable(var::AGGREGATOR_URL, &url),
            variable(var::CA_CERT, &self.ca_cert),
            variable(var::RESULT_URL, &format!("{url}{}", path(id.result_path()))),
            variable(
                var::PROGRESS_URL,
                &format!("{url}{}", path(id.progress_path())),
            ),
        ];
        if self.audience.is_some() {
            env.push(variable(var::TOKEN_FILE, &format!("{TOKEN_DIR}/{TOKEN}")));
            return env;
        }
        for (name, key) in [(var::CLIENT_CERT, "tls.crt"), (var::CLIENT_KEY, "tls.key")] {
            let secret = json!({"name": self.secret_name(), "key": key});
            env.push(json!({"name": name, "valueFrom": {"secretKeyRef": secret}}));
        }
        env
    }

    /// Whether the pod has no service account token.
    fn is_bare(&self) -> bool {
        let automount = |pod: &Value| pod["automountServiceAccountToken"] == true;
        self.definition.config.permissions == Some(Permissions::None)
            && !self.definition.pod_spec.as_ref().is_some_and(automount)
    }

    fn worker(&self) -> Value {
        let driver = self.definition.config.driver;
        let role = driver.worker_role();
        let mut command = vec![
            "/sonobuoy",
            "worker",
            role,
            "--level=trace",
            "-v=6",
            "--logtostderr",
        ];
        if driver == DriverKind::DaemonSet {
            // Its controller would restart a pod that ends.
            command.push("--sleep=-1");
        }
        // The original's Job has arguments.
        let args = if driver == DriverKind::Job {
            command.split_off(1)
        } else {
            Vec::new()
        };
        let mut worker = json!({
            "name": WORKER_CONTAINER,
            "image": self.config.worker_image,
            "imagePullPolicy": self.config.image_pull_policy,
            "command": command,
            "env": self.worker_env(),
            "volumeMounts": [{"name": RESULTS_VOLUME, "mountPath": self.config.results_dir}],
        });
        if !args.is_empty() {
            worker["args"] = json!(args);
        }
        let resources = &self.config.worker_resources;
        for (key, quantities) in [
            ("requests", &resources.requests),
            ("limits", &resources.limits),
        ] {
            if !quantities.is_empty() {
                worker["resources"][key] = json!(quantities);
            }
        }
        push(
            &mut worker,
            "volumeMounts",
            self.audience.map(|_| token_mount()),
        );
        let security_context = &self.definition.spec["securityContext"];
        // A plugin that meets the `restricted` level of Pod Security must not fail because of the
        // sidecar.
        if security_context["allowPrivilegeEscalation"] == false {
            worker["securityContext"] = security_context.clone();
        }
        worker
    }

    /// Whether containers run beside the plugin's and the worker's. They may process the plugin's
    /// result: they delete the done file while it does not count yet, and write another one.
    fn has_sidecars(&self) -> bool {
        let Some(spec) = &self.definition.pod_spec else {
            return false;
        };
        let containers = spec["containers"].items().next().is_some();
        let mut init_containers = spec["initContainers"].items();
        containers || init_containers.any(|container| container["restartPolicy"] == "Always")
    }

    /// The worker's own variables, and the plugin's that it does not override, sorted
    /// case-insensitively.
    fn worker_env(&self) -> Vec<Value> {
        let mut env = self.channel_env();
        env.retain(|variable| {
            variable["name"] != var::RESULT_URL && variable["name"] != var::PROGRESS_URL
        });
        env.extend([
            field(var::NODE_NAME, "spec.nodeName"),
            variable(env::OLD_RESULTS_DIR, &self.config.results_dir),
            variable(env::RESULTS_DIR, &self.config.results_dir),
            variable(env::PROGRESS_PORT, &self.progress_port()),
            variable("SONOBUOY_DIR", RUNS_DIR),
            // Workers of the original look up their pod. Ours are told when its containers end.
            field(env::NAMESPACE, "metadata.namespace"),
            field(env::PLUGIN_POD, "metadata.name"),
            variable(env::WORKER_CONTAINER, WORKER_CONTAINER),
        ]);
        if let Some(mount) = self.definition.results_mount(&self.config.results_dir) {
            env.push(variable(env::RESULTS_MOUNT, mount));
        }
        if self.definition.config.results_anywhere {
            env.push(variable(env::RESULTS_ANYWHERE, "true"));
        }
        if !self.has_sidecars() && !has(&self.definition.spec, env::DONE_FILE_DELAY) {
            env.push(variable(env::DONE_FILE_DELAY, SOLE_PLUGIN_DONE_DELAY));
        }
        let mine: Vec<Value> = env
            .iter()
            .map(|variable| variable["name"].clone())
            .collect();
        let plugin_variables = self.definition.spec["env"].items();
        env.extend(
            plugin_variables
                .filter(|variable| !mine.contains(&variable["name"]))
                .cloned(),
        );
        env.sort_by_key(|variable| variable["name"].text().to_lowercase());
        env
    }

    /// Port for progress reports to the worker. Derived from the session for pods in the node's
    /// network, where plugins of all runs share the ports.
    fn progress_port(&self) -> String {
        if self.is_on_host() {
            let number = self
                .session
                .get(..4)
                .and_then(|digits| u16::from_str_radix(digits, 16).ok());
            let of = HOST_PROGRESS_PORTS;
            return (of.start + number.unwrap_or_default() % (of.end - of.start)).to_string();
        }
        // Of several variables of a name, the last one counts.
        let mut variables = self.definition.spec["env"].items().rev();
        let variable = variables.find(|variable| variable["name"] == env::PROGRESS_PORT);
        let port = variable.map_or("", |variable| variable["value"].text());
        if port.parse::<u16>().is_ok() {
            port.to_owned()
        } else {
            self.config.progress_updates_port.clone()
        }
    }

    /// Whether the pods use the node's network.
    fn is_on_host(&self) -> bool {
        let default = default_spec(self.definition.config.driver, "");
        self.definition.pod_spec.as_ref().unwrap_or(&default)["hostNetwork"] == true
    }

    fn owners(&self) -> Value {
        json!([{"apiVersion": "v1", "kind": "Pod", "name": self.owner.0, "uid": self.owner.1}])
    }
}

/// Name of the pod or DaemonSet of a plugin.
pub fn object_name(definition: &Definition, session: &str) -> String {
    let kind = match definition.config.driver {
        DriverKind::Job => "job",
        DriverKind::DaemonSet => "daemon-set",
        DriverKind::Nodes => "node",
    };
    format!("sonobuoy-{}-{kind}-{session}", definition.name())
}

/// The number of a pod among those of the same result: the first one's name has none.
pub(super) fn attempt(pod: &Value) -> u64 {
    let name = pod.name();
    let number = name
        .rsplit('-')
        .next()
        .filter(|number| number.len() < MAX_ATTEMPT_DIGITS);
    number.and_then(|number| number.parse().ok()).unwrap_or(1)
}

fn token_mount() -> Value {
    json!({"name": TOKEN_VOLUME, "mountPath": TOKEN_DIR, "readOnly": true})
}

fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

/// Whether a container sets a variable.
fn has(container: &Value, variable: &str) -> bool {
    container["env"]
        .items()
        .any(|known| known["name"] == variable)
}

fn push(object: &mut Value, key: &str, items: impl IntoIterator<Item = Value>) {
    let mut items = items.into_iter().peekable();
    if items.peek().is_some() {
        json::list_in(object, key).extend(items);
    }
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
