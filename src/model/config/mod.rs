//! The settings of one run: every field, its default, its JSON.
//!
//! Owns [`Run`], which travels from the command line through a ConfigMap to the aggregator and into
//! the archive. Knows neither flags nor Kubernetes. Keys, order and defaults are the original's;
//! settings that the original lacks are left out while they have their default, so that both
//! programs can read each other's files.

mod read;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::names;
use crate::nodes::Choice;
use base::clock::{Span, span};
use base::json::{self, is_default, json};
use base::sys;
use yaml::{schema, typed};

pub use read::{Environment, is_run, load, new_uuid};

/// The page whose tables describe the keys, also to editors.
const DOCUMENTATION: &str = include_str!("../../../docs/configuration.md");

/// One run's settings. The default is empty; [`Run::standard`] has the settings of a run without
/// any flags.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Run {
    /// A free-text description.
    pub description: String,
    /// Identifies this run; the aggregator generates one if it is empty.
    #[serde(rename = "UUID", deserialize_with = "read::uuid")]
    pub uuid: String,
    /// The version of the program that wrote this.
    pub version: String,
    /// The folder inside plugin pods for results.
    pub results_dir: String,
    /// Output folder of `query`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub query_dir: String,
    /// Resources to query, by plural name; `None` means everything but secrets.
    pub resources: Option<Vec<String>>,
    /// Namespaces and objects to query.
    pub filters: Filters,
    /// Limits, including the selection of pod logs.
    pub limits: Limits,
    /// Requests per second while querying; 0 means the client's default.
    #[serde(
        rename = "QPS",
        skip_serializing_if = "is_default",
        serialize_with = "short_float"
    )]
    pub qps: f64,
    /// Maximum burst of requests while querying.
    #[serde(skip_serializing_if = "is_default")]
    pub burst: i64,
    /// Addresses and ports of the aggregator.
    pub server: Server,
    /// Selected definitions; `None` means all.
    pub plugins: Option<Vec<Selection>>,
    /// Folders with definitions.
    pub plugin_search_path: Option<Vec<String>>,
    /// The namespace of the run.
    pub namespace: String,
    /// Runs without any plugin.
    #[serde(skip_serializing_if = "is_default")]
    pub skip_plugins: bool,
    /// The image of aggregator and workers.
    pub worker_image: String,
    /// Requests and limits of the workers' containers.
    #[serde(skip_serializing_if = "is_default")]
    pub worker_resources: WorkerResources,
    /// Pull policy of the aggregator's and workers' image.
    pub image_pull_policy: String,
    /// Whether that policy applies to plugins' images, too.
    #[serde(skip_serializing_if = "is_default")]
    pub force_image_pull_policy: bool,
    /// The name of one pull secret for all pods.
    pub image_pull_secrets: String,
    /// Annotations of aggregator and plugin pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub custom_annotations: BTreeMap<String, String>,
    /// What the run may do: `clusterAdmin`, `clusterRead` or `namespaceAdmin`.
    pub aggregator_permissions: String,
    /// Additional tolerations of the aggregator pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aggregator_tolerations: Vec<Toleration>,
    /// The service account of the run.
    pub service_account_name: String,
    /// Whether that account already exists.
    #[serde(skip_serializing_if = "is_default")]
    pub existing_service_account: bool,
    /// A file with registry credentials for the e2e tests.
    #[serde(
        rename = "E2EDockerConfigFile",
        skip_serializing_if = "String::is_empty"
    )]
    pub e2e_docker_config_file: String,
    /// The Pod Security level of the namespace.
    #[serde(
        rename = "NamespacePSAEnforceLevel",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace_psa_enforce_level: String,
    /// The port inside a plugin pod for progress reports.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub progress_updates_port: String,
    /// The aggregator's user: `nonroot` or `none`.
    pub security_context_mode: String,
    /// Time limits for temporary problems of plugin pods.
    #[serde(skip_serializing_if = "is_default")]
    pub graces: Grace,
    /// Time limits of plugins by name, overriding their definition and `Server`; 0 means
    /// unlimited.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plugin_timeouts: BTreeMap<String, Span>,
    /// Redaction of the snapshot.
    #[serde(skip_serializing_if = "is_default")]
    pub redaction: Redaction,
    /// Authentication of workers.
    #[serde(skip_serializing_if = "is_default")]
    pub identity: IdentityMode,
    /// Maximum repetitions of a plugin's failed tests.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "read::attempts"
    )]
    pub retry_failed: i64,
    /// Repetitions of what was lost with a node.
    #[serde(skip_serializing_if = "is_default")]
    pub retries: Retries,
    /// The nodes of plugins with the driver Nodes.
    #[serde(skip_serializing_if = "is_default")]
    pub nodes: Choice,
    /// The condition of each Node that tells the verdict of the plugins that ran there.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "read::condition"
    )]
    pub mark_nodes: String,
    /// Seconds after the end of the run after which the aggregator deletes the namespace that was
    /// made for it; 0 for never.
    #[serde(skip_serializing_if = "is_default")]
    pub remove_after_seconds: u64,
    /// The interrupted run whose remaining tests this one runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resumes: String,
    /// The finished tests of that run, with the error of each failed one; empty for each passed
    /// one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resumed_tests: BTreeMap<String, String>,
}

/// Maximum repetitions; more would hide defects.
pub const MAX_ATTEMPTS: i64 = 10;

/// Requests and limits of a worker's container: quantities by resource, as in Kubernetes. A worker
/// needs about 25 MiB for a result of any size, and a quota on requests or limits refuses pods
/// whose containers lack them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "resources", rename_all = "PascalCase", default)]
pub struct WorkerResources {
    /// What the node reserves.
    #[serde(deserialize_with = "read::quantities")]
    pub requests: BTreeMap<String, String>,
    /// What the container may use.
    #[serde(deserialize_with = "read::quantities")]
    pub limits: BTreeMap<String, String>,
}

impl Default for WorkerResources {
    fn default() -> Self {
        let quantities = |cpu: &str, memory: &str| {
            BTreeMap::from([
                ("cpu".to_owned(), cpu.to_owned()),
                ("memory".to_owned(), memory.to_owned()),
            ])
        };
        Self {
            requests: quantities("10m", "32Mi"),
            limits: quantities("500m", "256Mi"),
        }
    }
}

/// Namespaces and objects to query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Filters {
    /// A pattern that the name must match somewhere.
    #[serde(deserialize_with = "read::pattern")]
    pub namespaces: String,
    /// A label selector.
    pub label_selector: String,
}

/// Selection of pod logs, and limits for each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PodLogs {
    /// A pattern that the namespace must match somewhere; empty means no namespace.
    #[serde(deserialize_with = "read::pattern")]
    pub namespaces: String,
    /// Whether to include the run's own namespace.
    pub sonobuoy_namespace: Option<bool>,
    /// Field selectors; pods that match any of them.
    pub field_selectors: Option<Vec<String>>,
    /// A label selector.
    pub label_selector: String,
    /// The logs of the container before the last restart.
    pub previous: bool,
    /// Maximum age in seconds.
    pub since_seconds: Option<i64>,
    /// Earliest time, RFC 3339.
    #[serde(deserialize_with = "read::time")]
    pub since_time: Option<String>,
    /// Whether to prefix each line with a timestamp.
    pub timestamps: bool,
    /// At most this many last lines.
    pub tail_lines: Option<i64>,
    /// At most this many bytes.
    pub limit_bytes: Option<i64>,
}

/// Addresses and ports of the aggregator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// The address to listen on.
    #[serde(rename = "bindaddress")]
    pub bind_address: String,
    /// The port to listen on; 0 for any.
    #[serde(rename = "bindport", deserialize_with = "read::port")]
    pub bind_port: i64,
    /// The address for workers.
    #[serde(rename = "advertiseaddress")]
    pub advertise_address: String,
    /// Time limit of plugins; 0 means unlimited.
    #[serde(rename = "timeoutseconds")]
    pub timeout_seconds: i64,
    /// Port of the external status service; 0 means none.
    #[serde(rename = "statusport", skip_serializing_if = "is_default")]
    pub status_port: i64,
}

/// One of the plugins to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Its name.
    pub name: String,
}

/// A toleration of the aggregator pod; other keys than Kubernetes' are kept without effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct Toleration(pub BTreeMap<String, String>);

/// Additional rules, or no redaction at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename = "rule", rename_all = "PascalCase", default)]
pub struct Redaction {
    /// Disables redaction.
    #[serde(skip_serializing_if = "is_default")]
    pub off: bool,
    /// Patterns for names of environment variables.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "read::patterns"
    )]
    pub env: Vec<String>,
    /// Patterns in logs and in any text of an object.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "read::text_patterns"
    )]
    pub text: Vec<String>,
    /// Whole values of objects.
    #[serde(skip_serializing_if = "is_default")]
    pub fields: Vec<Field>,
}

/// Values to hide entirely, in objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Field {
    /// The kind; case does not matter.
    #[serde(deserialize_with = "read::text")]
    pub kind: String,
    /// Keys and indices separated by dots; `*` matches any.
    #[serde(deserialize_with = "read::text")]
    pub path: String,
}

/// Authentication of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityMode {
    /// Each worker with a separate certificate.
    Node,
    /// All workers of a plugin with one certificate.
    Plugin,
    /// Each worker with a separate certificate if possible, else with the plugin's.
    #[default]
    Auto,
}

impl IdentityMode {
    /// The values of the flag.
    pub const WORDS: [&'static str; 3] = ["node", "plugin", "auto"];
}

impl Run {
    /// Whether the run takes a snapshot of the cluster; an empty list of resources means none.
    pub fn takes_snapshot(&self) -> bool {
        self.resources
            .as_ref()
            .is_none_or(|chosen| !chosen.is_empty())
    }

    /// The settings of a run without any flags.
    pub fn standard() -> Self {
        let texts = |list: &[&str]| Some(list.iter().map(|text| (*text).to_owned()).collect());
        Self {
            description: "DEFAULT".into(),
            version: names::VERSION.into(),
            results_dir: names::RESULTS_DIR.into(),
            filters: Filters {
                namespaces: ".*".into(),
                label_selector: String::new(),
            },
            limits: Limits {
                pod_logs: PodLogs {
                    namespaces: "kube-system".into(),
                    sonobuoy_namespace: Some(true),
                    field_selectors: Some(Vec::new()),
                    ..PodLogs::default()
                },
                ..Limits::default()
            },
            qps: 30.0,
            burst: 50,
            server: Server {
                bind_address: "0.0.0.0".into(),
                bind_port: names::AGGREGATOR_PORT.into(),
                timeout_seconds: 21600,
                ..Server::default()
            },
            plugin_search_path: texts(&[
                "./plugins.d",
                "/etc/sonobuoy/plugins.d",
                "~/sonobuoy/plugins.d",
            ]),
            namespace: names::SONOBUOY.into(),
            worker_image: default_image(),
            image_pull_policy: "IfNotPresent".into(),
            aggregator_permissions: "clusterAdmin".into(),
            service_account_name: names::SERVICE_ACCOUNT.into(),
            namespace_psa_enforce_level: "privileged".into(),
            progress_updates_port: names::PROGRESS_PORT.to_string(),
            security_context_mode: "nonroot".into(),
            ..Self::default()
        }
    }

    /// The JSON Schema of a configuration file, with the defaults.
    pub fn schema() -> Value {
        let mut schema = typed::schema_of::<Self>();
        let mut defaults = json!(Self::standard());
        defaults["Graces"] = json!(Grace::default());
        defaults["WorkerResources"] = json!(WorkerResources::default());
        schema::with_defaults(&mut schema, &defaults);
        schema::describe(
            &mut schema,
            &["The run's configuration", "Graces", "Limits"],
            DOCUMENTATION,
        );
        schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        schema["title"] = json!("Configuration of a Sonobuoy run");
        schema
    }

    /// The settings as JSON on one line, as Go writes it.
    pub fn to_json(&self) -> String {
        json::line(self)
    }
}

/// The default image of aggregator and workers: loaded into nodes, never pulled by accident.
pub fn default_image() -> String {
    let registry = sys::variable("SONOBUOY_DEV_REPO");
    format!(
        "{}/sonobuoy:{}",
        registry
            .as_deref()
            .or(option_env!("SONOBUOY_REGISTRY"))
            .unwrap_or("localhost"),
        names::VERSION
    )
}

fn short_float<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        out.serialize_i64(*value as i64)
    } else {
        out.serialize_f64(*value)
    }
}

/// Limits of a run's resources, section by section; 0 means unlimited where documented. The table
/// in `aggregator::limits` defines the subject of each limit, and the effect of exceeding it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Limits {
    /// Of pod logs.
    pub pod_logs: PodLogs,
    /// Of what one worker sends.
    #[serde(skip_serializing_if = "is_default")]
    pub results: ResultLimits,
    /// Of all results of a plugin.
    #[serde(skip_serializing_if = "is_default")]
    pub plugin: Share,
    /// Of the run.
    #[serde(skip_serializing_if = "is_default")]
    pub run: Whole,
    /// Of progress updates.
    #[serde(skip_serializing_if = "is_default")]
    pub progress: ProgressLimits,
    /// Of connections to the aggregator.
    #[serde(skip_serializing_if = "is_default")]
    pub connections: Connections,
    /// Of processing the results of a plugin.
    #[serde(skip_serializing_if = "is_default")]
    pub processing: Processing,
    /// Of the snapshot.
    #[serde(skip_serializing_if = "is_default")]
    pub snapshot: Snapshot,
}

/// Sections of the configuration: keys with defaults. Errors use the name in quotes, whose small
/// first letter makes the YAML reader reject unknown keys.
macro_rules! sections {
    ($($(#[$about:meta])* $called:literal $name:ident {
        $($(#[$field:meta])* $key:ident: $kind:ty = $default:expr,)+
    })+) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename = $called, rename_all = "PascalCase", default)]
        pub struct $name {
            $($(#[$field])* pub $key: $kind,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }
    )+};
}

sections! {
    /// Maximum data of one worker, and the reserved disk space.
    "limit" ResultLimits {
        /// Bytes of one result as sent. An end-to-end suite sends tens of MiB, the logs of a large node a few GiB.
        bytes: u64 = 10 << 30,
        /// Bytes that the archive of one result may unpack to.
        unpacked_bytes: u64 = 40 << 30,
        /// Entries of that archive.
        entries: u64 = 1_000_000,
        /// Bytes reserved on the aggregator's disk for status, logs and errors.
        free_bytes: u64 = 64 << 20,
        /// Files and folders reserved there, for the same reason.
        free_inodes: u64 = 4_096,
    }

    /// Maximum disk usage of all results of a plugin. 0 means an equal share, plus space that no other plugin can need.
    "limit" Share {
        /// Bytes, unpacked.
        bytes: u64 = 0,
        /// Files and folders.
        inodes: u64 = 0,
    }

    /// Maximum disk usage of a run.
    "limit" Whole {
        /// Bytes of the volume: half for results, half for the archive made from them. 0 means unlimited.
        bytes: u64 = 100 << 30,
    }

    /// Maximum memory of the aggregator for progress updates.
    "limit" ProgressLimits {
        /// Bytes of one update; a suite with all of its 7,000 tests failed needs about 1 MiB.
        bytes: u64 = 1 << 20,
        /// Bytes of all updates being read at the same time.
        reading_bytes: u64 = 16 << 20,
        /// Bytes kept for all results together.
        kept_bytes: u64 = 24 << 20,
    }

    /// Connections to the aggregator.
    "limit" Connections {
        /// Threads, each of which serves one connection at a time; further connections wait.
        threads: u64 = http::Limits::default().threads as u64,
    }

    /// Limits for processing the results of one plugin.
    "limit" Processing {
        /// Timeout; a GiB of results takes a minute.
        #[serde(with = "span")]
        time: Duration = Duration::from_secs(600),
    }

    /// Time limit of the snapshot and the logs after the plugins have ended.
    "limit" Snapshot {
        /// After this long, stops querying nodes that have not responded; a tenth of the run's time limit later everything
        /// ends. 0 means unlimited.
        #[serde(with = "span")]
        time: Duration = Duration::from_secs(120),
    }

    /// Duration after which a problem counts as a failure.
    "grace period" Grace {
        /// A pod that no node accepts: an autoscaler needs minutes to add one.
        #[serde(with = "span")]
        unschedulable: Duration = Duration::from_secs(300),
        /// An image that cannot be pulled: registries may recover.
        #[serde(with = "span")]
        image_pull: Duration = Duration::from_secs(300),
        /// A container that cannot be created, usually because of a missing config map or secret.
        #[serde(with = "span")]
        creation: Duration = Duration::from_secs(60),
        /// A container that has exited while the result is outstanding: a sidecar may still be working on it.
        #[serde(with = "span")]
        terminated: Duration = Duration::from_secs(300),
        /// Maximum restarts of a container.
        restarts: u64 = 2,
        /// A pod whose containers all succeeded without a result, which may be in transit.
        #[serde(with = "span")]
        ended: Duration = Duration::from_secs(10),
        /// An expected node without a pod, counted from the last pod of the plugin that appeared on any node: in a large
        /// cluster the controller takes minutes to create them all.
        #[serde(with = "span")]
        no_pod: Duration = Duration::from_secs(60),
        /// A running worker without any contact: the network blocks it, or its clock is wrong.
        #[serde(with = "span")]
        silence: Duration = Duration::from_secs(180),
        /// A worker whose heartbeats stopped: its node may be rebooting.
        #[serde(serialize_with = "span::serialize", deserialize_with = "read::silent")]
        silent: Duration = Duration::from_secs(300),
        /// A node that is not ready: it may be rebooting, which some tests cause. 0 never gives a node up.
        #[serde(with = "span")]
        node_not_ready: Duration = Duration::from_secs(120),
    }

    /// Repetitions of what was lost through no fault of the plugin.
    "retry" Retries {
        /// Further pods of a Job whose node or pod was lost.
        node_lost: u64 = 1,
    }
}
