//! Names in a cluster: objects, labels, annotations, ports, folders inside pods, variables.
//!
//! Every name that two modules must agree on is defined here once; `tests/tidy.rs` rejects it
//! anywhere else. Most are the original's, so that both programs find each other's objects. Does
//! not know the structure of objects.

use serde_json::Value;

use base::json::json;

/// The default namespace of a run, the name of its aggregator's pod, and the label of its objects.
pub(crate) const SONOBUOY: &str = "sonobuoy";
/// The container of the aggregator.
pub(crate) const AGGREGATOR_CONTAINER: &str = "kube-sonobuoy";
/// Its service.
pub(crate) const AGGREGATOR_SERVICE: &str = "sonobuoy-aggregator";
/// The config map with the run's settings, and their key in it.
pub(crate) const CONFIG_MAP: &str = "sonobuoy-config-cm";
pub(crate) const CONFIG_KEY: &str = "config.json";
/// The config map with the run's plugins.
pub(crate) const PLUGINS_MAP: &str = "sonobuoy-plugins-cm";
/// The config map with the certificate of a run's authority, and its keys for the certificate and
/// the run's UUID.
pub(crate) const AUTHORITY_MAP: &str = "sonobuoy-authority";
pub(crate) const AUTHORITY_KEY: &str = "authority.crt";
pub(crate) const RUN_KEY: &str = "run";
/// The key for the aggregator's pod in the same map, if its results are on a volume claim.
pub(crate) const POD_KEY: &str = "pod.json";
/// The role of a run's account in its namespace, regardless of their names.
pub(crate) const RUN_ROLE: &str = "sonobuoy-serviceaccount-sonobuoy";
/// The service account of the aggregator, if it has its own.
pub(crate) const AGGREGATOR_ACCOUNT: &str = "sonobuoy-aggregator";
/// The default service account of a run.
pub(crate) const SERVICE_ACCOUNT: &str = "sonobuoy-serviceaccount";
/// The status service, its secret, and the name in its certificate, whatever its address.
pub(crate) const STATUS_SERVICE: &str = "sonobuoy-status";
/// The secret for the aggregator's upload of the archive, and its keys: the URL, and the
/// authorities to trust.
pub(crate) const UPLOAD_SECRET: &str = "sonobuoy-upload";
pub(crate) const UPLOAD_KEY: &str = "url";
pub(crate) const UPLOAD_CA_KEY: &str = "ca.crt";
/// The container that submits a plugin's results.
pub(crate) const WORKER_CONTAINER: &str = "sonobuoy-worker";
/// The volume that a plugin shares with the worker beside it.
pub(crate) const RESULTS_VOLUME: &str = "results";
/// The folder with a pod's token, inside the container that requests a certificate.
pub(crate) const TOKEN_DIR: &str = "/var/run/secrets/sonobuoy";
/// The placeholder for this program's image in a definition.
pub(crate) const OWN_IMAGE: &str = "$SONOBUOY_IMAGE";
/// The placeholder for the version of the cluster in the name of an image.
pub(crate) const VERSION_PLACEHOLDER: &str = "$SONOBUOY_K8S_VERSION";
/// The version of this program, as printed by `version --short` and recorded in archives.
pub(crate) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// The user agent of requests to registries.
pub(crate) const USER_AGENT: &str = concat!("sonobuoy/v", env!("CARGO_PKG_VERSION"));

/// Kubernetes' path of a container's termination message.
pub(crate) const TERMINATION_LOG: &str = "/dev/termination-log";

/// The port of the aggregator.
pub(crate) const AGGREGATOR_PORT: u16 = 8080;
/// The port for progress reports inside a plugin's pod.
pub(crate) const PROGRESS_PORT: u16 = 8099;
/// The ports for progress reports of plugins on their node's network, which they share with the
/// plugins of other runs: below those of services and of connections.
pub(crate) const HOST_PROGRESS_PORTS: std::ops::Range<u16> = 20_000..30_000;
/// The port of the status service.
pub(crate) const STATUS_PORT: u16 = 8443;

/// Folder of runs and their archives in the aggregator's pod.
pub(crate) const RUNS_DIR: &str = "/tmp/sonobuoy";
/// Folder of results in a plugin's pod.
pub(crate) const RESULTS_DIR: &str = "/tmp/sonobuoy/results";
/// Path of the results of an unfinished run at the status service, below that of the archive.
pub(crate) const PARTIAL_RESULTS: &str = "/partial";
/// Folder of the definition's files in a plugin's pod.
pub(crate) const PLUGIN_CONFIG_DIR: &str = "/tmp/sonobuoy/config";
/// Folder of registry credentials for the e2e tests.
pub(crate) const CREDENTIALS_DIR: &str = "/tmp/sonobuoy/credentials";
/// Folders of the aggregator's settings, of its plugins, and of the status service's certificates.
pub(crate) const CONFIG_DIR: &str = "/etc/sonobuoy";
pub(crate) const PLUGINS_DIR: &str = "/plugins.d";
pub(crate) const STATUS_DIR: &str = "/etc/sonobuoy-status";
/// Folder of the upload's secret in the aggregator's container.
pub(crate) const UPLOAD_DIR: &str = "/etc/sonobuoy-upload";

/// The label of every object of a run; its value is [`SONOBUOY`].
pub(crate) const LABEL_ALL: &str = "component";
/// The label of pods that says which part of a run they are.
pub(crate) const LABEL_PART: &str = "sonobuoy-component";
/// Its two values.
pub(crate) const AGGREGATOR: &str = "aggregator";
pub(crate) const PLUGIN: &str = "plugin";
/// The label, and annotation, that names the plugin.
pub(crate) const LABEL_PLUGIN: &str = "sonobuoy-plugin";
/// The part of diagnostic checks, and the prefix of their objects' names.
pub(crate) const DOCTOR: &str = "sonobuoy-doctor";
/// The label with the session, which identifies a driver's objects.
pub(crate) const LABEL_SESSION: &str = "sonobuoy-run";
/// The annotation with the driver.
pub(crate) const ANNOTATION_DRIVER: &str = "sonobuoy-driver";
/// The annotation of the aggregator's pod with the status of the run.
pub(crate) const ANNOTATION_STATUS: &str = "sonobuoy.hept.io/status";

/// Selects every object of a run, except for some with names given by others.
pub(crate) const SELECTOR: &str = "component=sonobuoy";
/// Selects aggregator pods; the second is for manifests from before v0.18.
pub(crate) const AGGREGATOR_SELECTORS: [&str; 2] =
    ["sonobuoy-component=aggregator", "run=sonobuoy-master"];

/// Whether a text is a DNS label as Kubernetes requires it: at most 63 of `a-z`, `0-9` and `-`,
/// which is not at the ends.
pub(crate) fn is_label(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(fits)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Selects the pods of one plugin or of all.
pub(crate) fn plugin_selector(plugin: Option<&str>) -> String {
    match plugin {
        Some(plugin) => format!("{LABEL_PART}={PLUGIN},{LABEL_PLUGIN}={plugin}"),
        None => format!("{LABEL_PART}={PLUGIN}"),
    }
}

/// The labels of objects that do not belong to one part of a run.
pub(crate) fn labels() -> Value {
    json!({LABEL_ALL: SONOBUOY})
}

/// Adds the labels that Kubernetes recommends, which tools know, to metadata.
pub(crate) fn recommend(metadata: &mut Value) {
    let labels = &mut metadata["labels"];
    if let Some(part) = labels.get(LABEL_PART).cloned() {
        labels["app.kubernetes.io/component"] = part;
    }
    for (key, value) in [
        ("name", SONOBUOY),
        ("managed-by", SONOBUOY),
        ("version", VERSION),
    ] {
        labels[format!("app.kubernetes.io/{key}")] = json!(value);
    }
}

/// The labels of objects that a run creates itself.
pub(crate) fn own_labels() -> Value {
    let mut metadata = json!({"labels": labels()});
    recommend(&mut metadata);
    metadata["labels"].take()
}

/// The name of the config map with a plugin's files.
pub(crate) fn plugin_map(plugin: &str) -> String {
    format!("plugin-{plugin}-cm")
}

/// The name of the secret with the certificate of a plugin's workers.
pub(crate) fn worker_secret(plugin: &str, session: &str) -> String {
    format!("sonobuoy-plugin-{plugin}-{session}")
}

/// The service account of a plugin whose definition declares permissions.
pub(crate) fn plugin_account(plugin: &str) -> String {
    format!("sonobuoy-plugin-{plugin}")
}

/// Whether the path of a pod's log belongs to a plugin's pod.
pub(crate) fn is_of_plugin(log: &str, plugin: &str) -> bool {
    log.contains(&format!("/sonobuoy-{plugin}-"))
}

/// Whether the path of a pod's log is that of an aggregator or a worker.
pub(crate) fn is_own_log(log: &str) -> bool {
    let container = log
        .rsplit('/')
        .next()
        .and_then(|file| file.strip_suffix(".txt"));
    [Some(AGGREGATOR_CONTAINER), Some(WORKER_CONTAINER)].contains(&container)
}

/// Variables shared between parts of a run. Those of the client are in `client::env`.
pub(crate) mod env {
    /// The address that the aggregator gives to workers.
    pub(crate) const ADVERTISE_IP: &str = "SONOBUOY_ADVERTISE_IP";
    /// The authority, with its key, of an aggregator that only echoes.
    pub(crate) const ECHO_AUTHORITY: &str = "SONOBUOY_ECHO_AUTHORITY";
    /// The port of that aggregator.
    pub(crate) const ECHO_PORT: &str = "SONOBUOY_ECHO_PORT";
    /// The address of the aggregator, for plugins on this machine.
    pub(crate) const AGGREGATOR_URL: &str = "SONOBUOY_AGGREGATOR_URL";
    /// Folder of the definition's files.
    pub(crate) const CONFIG_DIR: &str = "SONOBUOY_CONFIG_DIR";
    /// Delay after a done file appears.
    pub(crate) const DONE_FILE_DELAY: &str = "SONOBUOY_DONE_FILE_DELAY";
    /// The version of the cluster.
    pub(crate) const K8S_VERSION: &str = "SONOBUOY_K8S_VERSION";
    /// The mode that determines the end of a worker.
    pub(crate) const LIFELINE: &str = "SONOBUOY_LIFELINE";
    /// The namespace of a worker.
    pub(crate) const NAMESPACE: &str = "SONOBUOY_NS";
    /// Folder of results, under the variable's old name.
    pub(crate) const OLD_RESULTS_DIR: &str = "RESULTS_DIR";
    /// The file that signals the success of the other containers.
    pub(crate) const OTHERS_ENDED_FILE: &str = "SONOBUOY_OTHERS_ENDED_FILE";
    /// The pod of a worker.
    pub(crate) const PLUGIN_POD: &str = "SONOBUOY_PLUGIN_POD";
    /// Port for progress reports to the worker beside a plugin.
    pub(crate) const PROGRESS_PORT: &str = "SONOBUOY_PROGRESS_PORT";
    /// Whether a done file may name something outside the results folder: `true`.
    pub(crate) const RESULTS_ANYWHERE: &str = "SONOBUOY_RESULTS_ANYWHERE";
    /// Folder for a plugin's results.
    pub(crate) const RESULTS_DIR: &str = "SONOBUOY_RESULTS_DIR";
    /// Additional mount of the results in the plugin's container, for definitions of earlier
    /// versions.
    pub(crate) const RESULTS_MOUNT: &str = "SONOBUOY_RESULTS_MOUNT";
    /// Time that a worker continues after a termination signal.
    pub(crate) const SHUTDOWN_GRACE: &str = "SONOBUOY_SHUTDOWN_GRACE";
    /// Destination of the aggregator's upload of the archive.
    pub(crate) const UPLOAD_URL: &str = "SONOBUOY_UPLOAD_URL";
    /// Time limit for retrying an upload.
    pub(crate) const UPLOAD_LIMIT: &str = "SONOBUOY_UPLOAD_LIMIT";
    /// The container of a worker.
    pub(crate) const WORKER_CONTAINER: &str = "SONOBUOY_WORKER_CONTAINER";
}
/// The volume claim of the aggregator's pod, if its results are on one.
pub(crate) fn claim(pod: &Value) -> Option<&str> {
    let mut volumes = pod["spec"]["volumes"].as_array()?.iter();
    volumes.find_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
}

/// A pod as it was created, without what the server, the scheduler and the run added.
pub(crate) fn bare(pod: &Value) -> Value {
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
