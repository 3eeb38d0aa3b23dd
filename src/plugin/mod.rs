//! Plugin definitions: reading all formats, checking, writing; search paths; built-in definitions.
//!
//! Owns [`Definition`], the description of one plugin. The Kubernetes parts are kept as untyped trees, so that every
//! field
//! is preserved. Knows nothing about a run's settings or about starting plugins: `deploy` and `driver` do.

mod adjust;
pub(crate) mod builtin;
mod check;
pub(crate) mod focus;
mod legacy;
mod read;
mod shape;
mod source;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::nodes::Waves;
use base::clock::Span;
use base::json::{is_default, json};
use base::yaml;

pub(crate) use adjust::{MAX_FAILURES, default_spec, set_env};
pub(crate) use check::{check, check_all, check_content, check_name_of};
pub(crate) use read::{Rule, read, read_all, schema};
pub(crate) use source::{Installed, find, is_selected, one, search, select, user_folder};

/// Name of the aggregator and of the run as a whole, reserved.
pub(crate) const RESERVED: &str = "sonobuoy";

/// A plugin: its containers and the format of its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Definition {
    /// The `sonobuoy-config` section.
    #[serde(rename = "sonobuoy-config")]
    pub config: Config,
    /// The plugin's container, a core/v1 Container.
    pub spec: Value,
    /// The surrounding pod, a core/v1 PodSpec whose containers are sidecars; the driver has a default.
    #[serde(rename = "podSpec", skip_serializing_if = "Option::is_none")]
    pub pod_spec: Option<Value>,
    /// Additional volumes of the pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_volumes: Vec<Value>,
    /// Files by name, for the containers' config directory.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub config_map: BTreeMap<String, String>,
}

/// The result formats; `e2e` is an old name for `junit`, and none means `raw`.
pub(crate) const RESULT_FORMATS: [&str; 5] = ["raw", "junit", "gojson", "manual", "e2e"];

/// Whether results of a format are JUnit files, which list individual tests.
pub(crate) fn is_junit(format: &str) -> bool {
    ["junit", "e2e"].contains(&format)
}

/// `sonobuoy-config` of a definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Config {
    /// Whether it runs once per cluster or on each node.
    #[serde(skip)]
    pub driver: DriverKind,
    /// The driver as the definition spells it; case does not matter.
    #[serde(rename = "driver")]
    pub driver_spelling: String,
    /// Name of the plugin and of its results.
    pub plugin_name: String,
    /// Format of the results: junit, e2e, gojson, manual; any other is raw.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result_format: String,
    /// Base names of the files to read; if empty, the format decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub result_files: Vec<String>,
    /// Keeps the pods after the run.
    #[serde(skip_serializing_if = "is_default")]
    pub skip_cleanup: bool,
    /// Lets the done file name paths outside the results directory.
    #[serde(skip_serializing_if = "is_default")]
    pub results_anywhere: bool,
    /// Human-readable description.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// URL of the definition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source_url: String,
    /// Launch group; lower ones start first.
    #[serde(skip_serializing_if = "is_default")]
    pub order: i64,
    /// Time limit, unless the run's settings override it; 0 means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Permissions in the cluster; if not given, those of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// The worker that submits its results, unless the plugin does so itself.
    #[serde(skip_serializing_if = "is_default")]
    pub worker: Worker,
    /// Plugin whose results include this one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// How many nodes at once, with the driver Nodes.
    #[serde(skip_serializing_if = "is_default")]
    pub waves: Waves,
}

/// Whether a worker submits the results of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Worker {
    /// A container beside the plugin.
    #[default]
    #[serde(skip)]
    Beside,
    /// No worker.
    None,
}

/// Permissions of a plugin in the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Permissions {
    /// None: the plugin gets no token.
    None,
    /// Read access to everything, secrets included.
    Read,
    /// All permissions of the run.
    Admin,
    /// These RBAC rules.
    #[serde(untagged)]
    Rules(Vec<Rule>),
}

impl Config {
    /// Whether a worker submits the plugin's results.
    pub(crate) fn has_worker(&self) -> bool {
        self.worker == Worker::Beside
    }

    pub(crate) fn set_driver(&mut self, driver: DriverKind) {
        self.driver = driver;
        self.driver_spelling = driver.name().to_owned();
    }
}

/// A definition, with notes from reading it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loaded {
    /// The definition.
    pub definition: Definition,
    /// Whether it is built in, so that flags for image and pull policy apply.
    pub built_in: bool,
    /// Notes for the user, such as the conversion of an old form.
    pub notes: Vec<String>,
    /// The first key that is probably misspelt, with its position and a suggestion; also one of the notes.
    pub misspelt: Option<yaml::Error>,
}

impl Loaded {
    /// A built-in definition.
    pub(crate) fn built_in(definition: Definition) -> Self {
        Self { definition, built_in: true, notes: Vec::new(), misspelt: None }
    }
}

/// How the pods of a plugin are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DriverKind {
    /// One pod for the cluster.
    #[default]
    Job,
    /// A pod on each node, created by a controller.
    DaemonSet,
    /// A pod on each node that ends with its result, so many at once.
    Nodes,
}

impl DriverKind {
    /// All of them.
    const ALL: [Self; 3] = [Self::Job, Self::DaemonSet, Self::Nodes];

    /// Parses it, ignoring case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|driver| driver.name().eq_ignore_ascii_case(text))
    }

    /// Whether each node has a result.
    pub(crate) fn is_per_node(self) -> bool {
        self != Self::Job
    }

    /// What its workers submit: `global`, or the result of a `single-node`.
    pub(crate) fn worker_role(self) -> &'static str {
        if self.is_per_node() { "single-node" } else { "global" }
    }

    /// `Job`, `DaemonSet` or `Nodes`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::DaemonSet => "DaemonSet",
            Self::Nodes => "Nodes",
        }
    }
}

impl Definition {
    /// A minimal definition.
    pub(crate) fn new(name: impl Into<String>, driver: DriverKind, spec: Value) -> Self {
        let mut config = Config { plugin_name: name.into(), ..Config::default() };
        config.set_driver(driver);
        Self { config, spec, pod_spec: None, extra_volumes: Vec::new(), config_map: BTreeMap::new() }
    }

    /// Name of the plugin.
    pub(crate) fn name(&self) -> &str {
        &self.config.plugin_name
    }

    /// Plugin whose results these are: another one for a part, else this one.
    pub(crate) fn whole(&self) -> &str {
        self.config.part_of.as_deref().unwrap_or(&self.config.plugin_name)
    }

    /// Whether failed tests can be retried: requires a variable with the tests to run, and results in JUnit.
    pub(crate) fn can_retry(&self) -> bool {
        self.config.driver == DriverKind::Job
            && self.config.part_of.is_none()
            && is_junit(&self.config.result_format)
            && self.env(focus::FOCUS).is_some()
    }

    /// The definition as a value, without empty parts.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The definition as YAML with sorted keys.
    pub(crate) fn to_yaml(&self) -> String {
        yaml::write(&self.to_value())
    }

    /// The definition as YAML, with `resources: {}` in each container without resources, as `plugin show` prints it.
    pub(crate) fn to_full_yaml(&self) -> String {
        let mut whole = self.clone();
        for fields in whole.all_containers_mut().filter_map(Value::as_object_mut) {
            fields.entry("resources").or_insert_with(|| json!({}));
        }
        whole.to_yaml()
    }

    /// The plugin's container and its sidecars, without init containers.
    pub(crate) fn containers_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let cars = self.pod_spec.as_mut().and_then(|pod| pod["containers"].as_array_mut());
        std::iter::once(&mut self.spec).chain(cars.into_iter().flatten())
    }

    /// The plugin's container, its sidecars and its init containers.
    pub(crate) fn all_containers_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let fields = self.pod_spec.as_mut().and_then(Value::as_object_mut).into_iter().flatten();
        let lists = fields.filter(|(key, _)| ["containers", "initContainers"].contains(&key.as_str()));
        let others = lists.filter_map(|(_, list)| list.as_array_mut()).flatten();
        std::iter::once(&mut self.spec).chain(others)
    }
}

/// Moves an image to another registry, under the last part of its name; an image already in that registry is
/// unchanged.
pub(crate) fn relocated(image: &str, registry: &str) -> String {
    let registry = registry.trim_end_matches('/');
    if image.strip_prefix(registry).is_some_and(|rest| rest.starts_with('/')) {
        return image.to_owned();
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    format!("{registry}/{last}")
}
