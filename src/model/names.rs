//! Names in a cluster: objects, labels, annotations, ports, folders inside pods, variables.
//!
//! Every name that two modules must agree on is defined here once; `tests/tidy.rs` rejects it
//! anywhere else. Most are the original's, so that both programs find each other's objects. Does
//! not know the structure of objects.

use serde_json::Value;

use base::json::json;

/// The default namespace of a run, the name of its aggregator's pod, and the label of its objects.
pub const SONOBUOY: &str = "sonobuoy";
/// The plugin of `sonobuoy each`.
pub const EACH: &str = "each";
/// The container of the aggregator.
pub const AGGREGATOR_CONTAINER: &str = "kube-sonobuoy";
/// Its service.
pub const AGGREGATOR_SERVICE: &str = "sonobuoy-aggregator";
/// The config map with the run's settings, and their key in it.
pub const CONFIG_MAP: &str = "sonobuoy-config-cm";
pub const CONFIG_KEY: &str = "config.json";
/// The config map with the run's plugins.
pub const PLUGINS_MAP: &str = "sonobuoy-plugins-cm";
/// The config map with the certificate of a run's authority, and its keys for the certificate and
/// the run's UUID.
pub const AUTHORITY_MAP: &str = "sonobuoy-authority";
pub const AUTHORITY_KEY: &str = "authority.crt";
pub const RUN_KEY: &str = "run";
/// The key for the aggregator's pod in the same map, if its results are on a volume claim.
pub const POD_KEY: &str = "pod.json";
/// The role of a run's account in its namespace, regardless of their names.
pub const RUN_ROLE: &str = "sonobuoy-serviceaccount-sonobuoy";
/// The service account of the aggregator, if it has its own.
pub const AGGREGATOR_ACCOUNT: &str = "sonobuoy-aggregator";
/// The default service account of a run.
pub const SERVICE_ACCOUNT: &str = "sonobuoy-serviceaccount";
/// The status service, its secret, and the name in its certificate, whatever its address.
pub const STATUS_SERVICE: &str = "sonobuoy-status";
/// The secret for the aggregator's upload of the archive, and its keys: the URL, and the
/// authorities to trust.
pub const UPLOAD_SECRET: &str = "sonobuoy-upload";
pub const UPLOAD_KEY: &str = "url";
pub const UPLOAD_CA_KEY: &str = "ca.crt";
/// The container that submits a plugin's results.
pub const WORKER_CONTAINER: &str = "sonobuoy-worker";
/// The volume that a plugin shares with the worker beside it.
pub const RESULTS_VOLUME: &str = "results";
/// The folder with a pod's token, inside the container that requests a certificate.
pub const TOKEN_DIR: &str = "/var/run/secrets/sonobuoy";
/// The placeholder for this program's image in a definition.
pub const OWN_IMAGE: &str = "$SONOBUOY_IMAGE";
/// The placeholder for the version of the cluster in the name of an image.
pub const VERSION_PLACEHOLDER: &str = "$SONOBUOY_K8S_VERSION";
/// The version of this program, as printed by `version --short` and recorded in archives.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// The user agent of requests to API servers and registries.
pub const USER_AGENT: &str = concat!("sonobuoy/v", env!("CARGO_PKG_VERSION"));

/// Kubernetes' path of a container's termination message.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// The port of the aggregator.
pub const AGGREGATOR_PORT: u16 = 8080;
/// The port for progress reports inside a plugin's pod.
pub const PROGRESS_PORT: u16 = 8099;
/// The ports for progress reports of plugins on their node's network, which they share with the
/// plugins of other runs: below those of services and of connections.
pub const HOST_PROGRESS_PORTS: std::ops::Range<u16> = 20_000..30_000;
/// The port of the status service.
pub const STATUS_PORT: u16 = 8443;

/// Folder of runs and their archives in the aggregator's pod.
pub const RUNS_DIR: &str = "/tmp/sonobuoy";
/// Folder of results in a plugin's pod.
pub const RESULTS_DIR: &str = "/tmp/sonobuoy/results";
/// Path of the results of an unfinished run at the status service, below that of the archive.
pub const PARTIAL_RESULTS: &str = "/partial";
/// Folder of the definition's files in a plugin's pod.
pub const PLUGIN_CONFIG_DIR: &str = "/tmp/sonobuoy/config";
/// Folder of registry credentials for the e2e tests.
pub const CREDENTIALS_DIR: &str = "/tmp/sonobuoy/credentials";
/// Folders of the aggregator's settings, of its plugins, and of the status service's certificates.
pub const CONFIG_DIR: &str = "/etc/sonobuoy";
pub const PLUGINS_DIR: &str = "/plugins.d";
pub const STATUS_DIR: &str = "/etc/sonobuoy-status";
/// Folder of the upload's secret in the aggregator's container.
pub const UPLOAD_DIR: &str = "/etc/sonobuoy-upload";

/// The label of every object of a run; its value is [`SONOBUOY`].
pub const LABEL_ALL: &str = "component";
/// Label of Kubernetes' own scheme: the program that manages an object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The label of pods that says which part of a run they are.
pub const LABEL_PART: &str = "sonobuoy-component";
/// Its two values.
pub const AGGREGATOR: &str = "aggregator";
pub const PLUGIN: &str = "plugin";
/// The label, and annotation, that names the plugin.
pub const LABEL_PLUGIN: &str = "sonobuoy-plugin";
/// The part of diagnostic checks, and the prefix of their objects' names.
pub const DOCTOR: &str = "sonobuoy-doctor";
/// The label with the session, which identifies a driver's objects.
pub const LABEL_SESSION: &str = "sonobuoy-run";
/// The annotation with the driver.
pub const ANNOTATION_DRIVER: &str = "sonobuoy-driver";
/// The annotation of the aggregator's pod with the status of the run.
pub const ANNOTATION_STATUS: &str = "sonobuoy.hept.io/status";

/// Selects every object of a run, except for some with names given by others.
pub const SELECTOR: &str = "component=sonobuoy";
/// Selects aggregator pods; the second is for manifests from before v0.18.
pub const AGGREGATOR_SELECTORS: [&str; 2] =
    ["sonobuoy-component=aggregator", "run=sonobuoy-master"];

/// Whether a text is a DNS label as Kubernetes requires it: at most 63 of `a-z`, `0-9` and `-`,
/// which is not at the ends.
pub fn is_label(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(fits)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Selects the pods of one plugin or of all.
pub fn plugin_selector(plugin: Option<&str>) -> String {
    match plugin {
        Some(plugin) => format!("{LABEL_PART}={PLUGIN},{LABEL_PLUGIN}={plugin}"),
        None => format!("{LABEL_PART}={PLUGIN}"),
    }
}

/// The labels of objects that do not belong to one part of a run.
pub fn labels() -> Value {
    json!({LABEL_ALL: SONOBUOY})
}

/// Adds the labels that Kubernetes recommends, which tools know, to metadata.
pub fn recommend(metadata: &mut Value) {
    let labels = &mut metadata["labels"];
    if let Some(part) = labels.get(LABEL_PART).cloned() {
        labels["app.kubernetes.io/component"] = part;
    }
    labels["app.kubernetes.io/name"] = json!(SONOBUOY);
    labels["app.kubernetes.io/version"] = json!(VERSION);
    labels[LABEL_MANAGED_BY] = json!(SONOBUOY);
}

/// The labels of objects that a run creates itself.
pub fn own_labels() -> Value {
    let mut metadata = json!({"labels": labels()});
    recommend(&mut metadata);
    metadata["labels"].take()
}

/// The name of the config map with a plugin's files.
pub fn plugin_map(plugin: &str) -> String {
    format!("plugin-{plugin}-cm")
}

/// The name of the secret with the certificate of a plugin's workers.
pub fn worker_secret(plugin: &str, session: &str) -> String {
    format!("sonobuoy-plugin-{plugin}-{session}")
}

/// The service account of a plugin whose definition declares permissions.
pub fn plugin_account(plugin: &str) -> String {
    format!("sonobuoy-plugin-{plugin}")
}

/// Whether the path of a pod's log belongs to a plugin's pod.
pub fn is_of_plugin(log: &str, plugin: &str) -> bool {
    log.contains(&format!("/sonobuoy-{plugin}-"))
}

/// Whether the path of a pod's log is that of an aggregator or a worker.
pub fn is_own_log(log: &str) -> bool {
    let container = log
        .rsplit('/')
        .next()
        .and_then(|file| file.strip_suffix(".txt"));
    [Some(AGGREGATOR_CONTAINER), Some(WORKER_CONTAINER)].contains(&container)
}

/// Variables shared between parts of a run. Those of the client are in `client::env`.
pub mod env {
    /// The address that the aggregator gives to workers.
    pub const ADVERTISE_IP: &str = "SONOBUOY_ADVERTISE_IP";
    /// The authority, with its key, of an aggregator that only echoes.
    pub const ECHO_AUTHORITY: &str = "SONOBUOY_ECHO_AUTHORITY";
    /// The port of that aggregator.
    pub const ECHO_PORT: &str = "SONOBUOY_ECHO_PORT";
    /// The address of the aggregator, for plugins on this machine.
    pub const AGGREGATOR_URL: &str = "SONOBUOY_AGGREGATOR_URL";
    /// Folder of the definition's files.
    pub const CONFIG_DIR: &str = "SONOBUOY_CONFIG_DIR";
    /// Delay after a done file appears.
    pub const DONE_FILE_DELAY: &str = "SONOBUOY_DONE_FILE_DELAY";
    /// The version of the cluster.
    pub const K8S_VERSION: &str = "SONOBUOY_K8S_VERSION";
    /// The mode that determines the end of a worker.
    pub const LIFELINE: &str = "SONOBUOY_LIFELINE";
    /// The namespace of a worker.
    pub const NAMESPACE: &str = "SONOBUOY_NS";
    /// Folder of results, under the variable's old name.
    pub const OLD_RESULTS_DIR: &str = "RESULTS_DIR";
    /// The file that signals the success of the other containers.
    pub const OTHERS_ENDED_FILE: &str = "SONOBUOY_OTHERS_ENDED_FILE";
    /// Other nodes, for a plugin that probes them: a list in JSON.
    pub const PEERS: &str = "SONOBUOY_PEERS";
    /// The pod of a worker.
    pub const PLUGIN_POD: &str = "SONOBUOY_PLUGIN_POD";
    /// Port for progress reports to the worker beside a plugin.
    pub const PROGRESS_PORT: &str = "SONOBUOY_PROGRESS_PORT";
    /// Whether a done file may name something outside the results folder: `true`.
    pub const RESULTS_ANYWHERE: &str = "SONOBUOY_RESULTS_ANYWHERE";
    /// Folder for a plugin's results.
    pub const RESULTS_DIR: &str = "SONOBUOY_RESULTS_DIR";
    /// Additional mount of the results in the plugin's container, for definitions of earlier
    /// versions.
    pub const RESULTS_MOUNT: &str = "SONOBUOY_RESULTS_MOUNT";
    /// Time that a worker continues after a termination signal.
    pub const SHUTDOWN_GRACE: &str = "SONOBUOY_SHUTDOWN_GRACE";
    /// Destination of the aggregator's upload of the archive.
    pub const UPLOAD_URL: &str = "SONOBUOY_UPLOAD_URL";
    /// Time limit for retrying an upload.
    pub const UPLOAD_LIMIT: &str = "SONOBUOY_UPLOAD_LIMIT";
    /// The container of a worker.
    pub const WORKER_CONTAINER: &str = "SONOBUOY_WORKER_CONTAINER";
}
/// The volume claim of the aggregator's pod, if its results are on one.
pub fn claim(pod: &Value) -> Option<&str> {
    let mut volumes = pod["spec"]["volumes"].as_array()?.iter();
    volumes.find_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
}

/// A pod as it was created, without what the server, the scheduler and the run added.
pub fn bare(pod: &Value) -> Value {
    let meta = &pod["metadata"];
    let mut spec = pod["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("nodeName");
    }
    let is_added = |entry: &Value| {
        entry["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("kube-api-access-"))
    };
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.retain(|volume| !is_added(volume));
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if let Some(mounts) = container["volumeMounts"].as_array_mut() {
            mounts.retain(|mount| !is_added(mount));
        }
    }
    let mut annotations = meta["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(ANNOTATION_STATUS);
    }
    let metadata =
        json!({"name": meta["name"], "labels": meta["labels"], "annotations": annotations});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}
