//! The names of things in a cluster: objects, labels, annotations, ports, folders inside pods, variables.
//!
//! Every name that two modules must agree on is defined here once; `tests/tidy.rs` finds it anywhere else. Most are the
//! original's, so that its commands find our objects and vice versa. Does not know what objects look like.

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
/// The config map with the certificate of a run's authority, and its keys for the certificate and the run's UUID.
pub(crate) const AUTHORITY_MAP: &str = "sonobuoy-authority";
pub(crate) const AUTHORITY_KEY: &str = "authority.crt";
pub(crate) const RUN_KEY: &str = "run";
/// The role of a run's account in its namespace, whatever both are called.
pub(crate) const RUN_ROLE: &str = "sonobuoy-serviceaccount-sonobuoy";
/// The service account of the aggregator, if it has its own.
pub(crate) const AGGREGATOR_ACCOUNT: &str = "sonobuoy-aggregator";
/// The default service account of a run.
pub(crate) const SERVICE_ACCOUNT: &str = "sonobuoy-serviceaccount";
/// The status service, its secret, and the name in its certificate, whatever its address.
pub(crate) const STATUS_SERVICE: &str = "sonobuoy-status";
/// The secret for the aggregator's upload of the archive, and its keys: the URL, and the authorities to trust.
pub(crate) const UPLOAD_SECRET: &str = "sonobuoy-upload";
pub(crate) const UPLOAD_KEY: &str = "url";
pub(crate) const UPLOAD_CA_KEY: &str = "ca.crt";
/// The container that submits a plugin's results.
pub(crate) const WORKER_CONTAINER: &str = "sonobuoy-worker";
/// The volume that a plugin shares with the worker beside it.
pub(crate) const RESULTS_VOLUME: &str = "results";
/// The folder with a pod's token, inside the container that requests a certificate.
pub(crate) const TOKEN_DIR: &str = "/var/run/secrets/sonobuoy";
/// The placeholder for our own image in a definition.
pub(crate) const OWN_IMAGE: &str = "$SONOBUOY_IMAGE";
/// The placeholder for the version of the cluster in the name of an image.
pub(crate) const VERSION_PLACEHOLDER: &str = "$SONOBUOY_K8S_VERSION";
/// The version of this program, as printed by `version --short` and recorded in archives.
pub(crate) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// How this program calls itself to registries.
pub(crate) const USER_AGENT: &str = concat!("sonobuoy/v", env!("CARGO_PKG_VERSION"));

/// Where Kubernetes looks for the last words of a container.
pub(crate) const TERMINATION_LOG: &str = "/dev/termination-log";

/// The port of the aggregator.
pub(crate) const AGGREGATOR_PORT: u16 = 8080;
/// The port for progress reports inside a plugin's pod.
pub(crate) const PROGRESS_PORT: u16 = 8099;
/// The ports for progress reports of plugins in the network of their node, which they share with the plugins of other runs:
/// below those of services and of connections.
pub(crate) const HOST_PROGRESS_PORTS: std::ops::Range<u16> = 20_000..30_000;
/// The port of the status service.
pub(crate) const STATUS_PORT: u16 = 8443;

/// Where the aggregator's pod keeps its runs and their archives.
pub(crate) const RUNS_DIR: &str = "/tmp/sonobuoy";
/// Where a plugin's pod writes its results.
pub(crate) const RESULTS_DIR: &str = "/tmp/sonobuoy/results";
/// Where it finds its definition's files.
pub(crate) const PLUGIN_CONFIG_DIR: &str = "/tmp/sonobuoy/config";
/// Where the e2e tests find the credentials of registries.
pub(crate) const CREDENTIALS_DIR: &str = "/tmp/sonobuoy/credentials";
/// Where the aggregator finds its settings; its plugins; the certificates of the status service.
pub(crate) const CONFIG_DIR: &str = "/etc/sonobuoy";
pub(crate) const PLUGINS_DIR: &str = "/plugins.d";
pub(crate) const STATUS_DIR: &str = "/etc/sonobuoy-status";
/// Where the aggregator's container finds the upload's secret.
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
/// The part of a run that only tries whether there could be one, and the beginning of its objects' names.
pub(crate) const DOCTOR: &str = "sonobuoy-doctor";
/// The label with the session, by which a driver finds its own objects.
pub(crate) const LABEL_SESSION: &str = "sonobuoy-run";
/// The annotation with the driver.
pub(crate) const ANNOTATION_DRIVER: &str = "sonobuoy-driver";
/// The annotation of the aggregator's pod with the status of the run.
pub(crate) const ANNOTATION_STATUS: &str = "sonobuoy.hept.io/status";

/// Selects every object of a run, except for some with names given by others.
pub(crate) const SELECTOR: &str = "component=sonobuoy";
/// Selects aggregator pods; the second is for manifests from before v0.18.
pub(crate) const AGGREGATOR_SELECTORS: [&str; 2] = ["sonobuoy-component=aggregator", "run=sonobuoy-master"];

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

/// The name of the config map with a plugin's files.
pub(crate) fn plugin_map(plugin: &str) -> String {
    format!("plugin-{plugin}-cm")
}

/// The name of the secret with the certificate of a plugin's workers.
pub(crate) fn worker_secret(plugin: &str, session: &str) -> String {
    format!("sonobuoy-plugin-{plugin}-{session}")
}

/// The service account of a plugin whose definition says what it needs.
pub(crate) fn plugin_account(plugin: &str) -> String {
    format!("sonobuoy-plugin-{plugin}")
}

/// Whether the path of a pod's log belongs to a plugin's pod.
pub(crate) fn is_of_plugin(log: &str, plugin: &str) -> bool {
    log.contains(&format!("/sonobuoy-{plugin}-"))
}

/// Whether the path of a pod's log is that of an aggregator or a worker.
pub(crate) fn is_own_log(log: &str) -> bool {
    let container = log.rsplit('/').next().and_then(|file| file.strip_suffix(".txt"));
    [Some(AGGREGATOR_CONTAINER), Some(WORKER_CONTAINER)].contains(&container)
}

/// Variables that one part of a run sets and another reads. Those of the client are in `client::env`.
pub(crate) mod env {
    /// The address that the aggregator gives to workers.
    pub(crate) const ADVERTISE_IP: &str = "SONOBUOY_ADVERTISE_IP";
    /// The authority, with its key, of an aggregator that only echoes.
    pub(crate) const ECHO_AUTHORITY: &str = "SONOBUOY_ECHO_AUTHORITY";
    /// The port of that aggregator.
    pub(crate) const ECHO_PORT: &str = "SONOBUOY_ECHO_PORT";
    /// The address of the aggregator, for plugins on this machine.
    pub(crate) const AGGREGATOR_URL: &str = "SONOBUOY_AGGREGATOR_URL";
    /// Where a plugin finds its definition's files.
    pub(crate) const CONFIG_DIR: &str = "SONOBUOY_CONFIG_DIR";
    /// How long to wait after a done file appears.
    pub(crate) const DONE_FILE_DELAY: &str = "SONOBUOY_DONE_FILE_DELAY";
    /// The version of the cluster.
    pub(crate) const K8S_VERSION: &str = "SONOBUOY_K8S_VERSION";
    /// What a worker's lifetime depends on.
    pub(crate) const LIFELINE: &str = "SONOBUOY_LIFELINE";
    /// The namespace of a worker.
    pub(crate) const NAMESPACE: &str = "SONOBUOY_NS";
    /// Where the results are, under the variable's old name.
    pub(crate) const OLD_RESULTS_DIR: &str = "RESULTS_DIR";
    /// The file that says that the other containers have succeeded.
    pub(crate) const OTHERS_ENDED_FILE: &str = "SONOBUOY_OTHERS_ENDED_FILE";
    /// The pod of a worker.
    pub(crate) const PLUGIN_POD: &str = "SONOBUOY_PLUGIN_POD";
    /// Where a plugin reports its progress to the worker beside it.
    pub(crate) const PROGRESS_PORT: &str = "SONOBUOY_PROGRESS_PORT";
    /// Whether a done file may name something outside the results folder: `true`.
    pub(crate) const RESULTS_ANYWHERE: &str = "SONOBUOY_RESULTS_ANYWHERE";
    /// Where a plugin writes its results.
    pub(crate) const RESULTS_DIR: &str = "SONOBUOY_RESULTS_DIR";
    /// Where the plugin's container mounts the results, too: the way a definition of before calls them.
    pub(crate) const RESULTS_MOUNT: &str = "SONOBUOY_RESULTS_MOUNT";
    /// How long a worker carries on after it was told to end.
    pub(crate) const SHUTDOWN_GRACE: &str = "SONOBUOY_SHUTDOWN_GRACE";
    /// Where the aggregator uploads the archive to.
    pub(crate) const UPLOAD_URL: &str = "SONOBUOY_UPLOAD_URL";
    /// How long an upload is retried.
    pub(crate) const UPLOAD_LIMIT: &str = "SONOBUOY_UPLOAD_LIMIT";
    /// The container of a worker.
    pub(crate) const WORKER_CONTAINER: &str = "SONOBUOY_WORKER_CONTAINER";
}
