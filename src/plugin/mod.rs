//! Plugin definitions: reading all formats, checking, writing; search paths; built-in definitions.
//!
//! Owns [`Definition`], the description of one plugin. The Kubernetes parts are kept as untyped trees, so that every
//! field
//! is preserved. Knows nothing about a run's settings or about starting plugins: `deploy` and `driver` do.

mod adjust;
pub(crate) mod builtin;
mod check;
mod file;
pub(crate) mod focus;
mod installed;
mod legacy;
pub(crate) mod mode;
pub(crate) mod pod;
mod quantity;
mod read;
mod search;
mod shape;
mod source;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use base::clock;
use base::json::json;
use base::yaml;

pub(crate) use adjust::set_env;
pub(crate) use check::{check, check_all, check_content, check_format, check_name_of};
pub(crate) use read::{read, read_all};
pub(crate) use {
    installed::{Installed, folder as user_folder},
    search::{is_selected, search, select},
    source::{Found, find, one},
};

/// Name of the aggregator and of the run as a whole, reserved.
pub(crate) const RESERVED: &str = "sonobuoy";

/// A plugin: its containers and the format of its results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    /// The `sonobuoy-config` section.
    pub config: Config,
    /// The plugin's container, a core/v1 Container.
    pub spec: Value,
    /// The surrounding pod, a core/v1 PodSpec whose containers are sidecars; the driver has a default.
    pub pod_spec: Option<Value>,
    /// Additional volumes of the pod.
    pub extra_volumes: Vec<Value>,
    /// Files by name, for the containers' config directory.
    pub config_map: BTreeMap<String, String>,
}

/// The result formats; `e2e` is an old name for `junit`, and none means `raw`.
pub(crate) const RESULT_FORMATS: [&str; 5] = ["raw", "junit", "gojson", "manual", "e2e"];

/// Whether results of a format are JUnit files, which list individual tests.
pub(crate) fn is_junit(format: &str) -> bool {
    ["junit", "e2e"].contains(&format)
}

/// `sonobuoy-config` of a definition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// Whether it runs once per cluster or on each node.
    pub driver: Driver,
    /// The driver as the definition spells it; case does not matter.
    pub driver_spelling: String,
    /// Name of the plugin and of its results.
    pub plugin_name: String,
    /// Format of the results: junit, e2e, gojson, manual; any other is raw.
    pub result_format: String,
    /// Base names of the files to read; if empty, the format decides.
    pub result_files: Vec<String>,
    /// Keeps the pods after the run.
    pub skip_cleanup: bool,
    /// Lets the done file name paths outside the results directory.
    pub results_anywhere: bool,
    /// Human-readable description.
    pub description: String,
    /// URL of the definition.
    pub source_url: String,
    /// Launch group; lower ones start first.
    pub order: i64,
    /// Time limit, unless the run's settings override it; 0 means none.
    pub timeout: Option<Duration>,
    /// Permissions in the cluster; if not given, those of the run.
    pub permissions: Option<Permissions>,
    /// Whether a worker submits its results; if not, the plugin does so itself.
    pub worker: bool,
    /// Plugin whose results include this one's.
    pub part_of: Option<String>,
}

/// Permissions of a plugin in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Permissions {
    /// None: the plugin gets no token.
    None,
    /// Read access to everything, secrets included.
    Read,
    /// All permissions of the run.
    Admin,
    /// These RBAC rules.
    Rules(Vec<Value>),
}

/// A definition, with notes from reading it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loaded {
    /// The definition.
    pub definition: Definition,
    /// Notes for the user, such as the conversion of an old form.
    pub notes: Vec<String>,
    /// The first key that is probably misspelt, with its position and a suggestion; also one of the notes.
    pub misspelt: Option<yaml::Error>,
}

/// How the pods of a plugin are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// One pod for the cluster.
    Job,
    /// A pod on each node.
    DaemonSet,
}

impl Driver {
    /// Parses it, ignoring case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Job, Self::DaemonSet].into_iter().find(|driver| driver.name().eq_ignore_ascii_case(text))
    }

    /// `Job` or `DaemonSet`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::DaemonSet => "DaemonSet",
        }
    }
}

impl Config {
    /// A configuration with defaults.
    fn new(plugin_name: String, driver: Driver) -> Self {
        Self {
            driver,
            driver_spelling: driver.name().to_owned(),
            plugin_name,
            result_format: String::new(),
            result_files: Vec::new(),
            skip_cleanup: false,
            results_anywhere: false,
            description: String::new(),
            source_url: String::new(),
            order: 0,
            timeout: None,
            permissions: None,
            worker: true,
            part_of: None,
        }
    }
}

impl Definition {
    /// A minimal definition.
    pub(crate) fn new(name: impl Into<String>, driver: Driver, spec: Value) -> Self {
        Self {
            config: Config::new(name.into(), driver),
            spec,
            pod_spec: None,
            extra_volumes: Vec::new(),
            config_map: BTreeMap::new(),
        }
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
        self.config.driver == Driver::Job
            && self.config.part_of.is_none()
            && is_junit(&self.config.result_format)
            && self.env(focus::FOCUS).is_some()
    }

    /// The definition as a value, without empty parts.
    pub(crate) fn to_value(&self) -> Value {
        let mut whole = Map::new();
        if !self.config_map.is_empty() {
            whole.insert("config-map".into(), json!(self.config_map));
        }
        if !self.extra_volumes.is_empty() {
            whole.insert("extra-volumes".into(), json!(self.extra_volumes));
        }
        if let Some(pod) = &self.pod_spec {
            whole.insert("podSpec".into(), pod.clone());
        }
        whole.insert("sonobuoy-config".into(), self.config.to_value());
        whole.insert("spec".into(), self.spec.clone());
        Value::Object(whole)
    }

    /// The definition as YAML with sorted keys.
    pub(crate) fn to_yaml(&self) -> String {
        yaml::write(&self.to_value())
    }

    /// The definition as YAML, with `resources: {}` in each container without resources, as `plugin show` prints it.
    pub(crate) fn to_full_yaml(&self) -> String {
        let mut whole = self.clone();
        let complete = |container: &mut Value| {
            if let Value::Object(fields) = container {
                fields.entry("resources").or_insert_with(|| json!({}));
            }
        };
        whole.containers_mut().for_each(complete);
        let inits = whole.pod_spec.as_mut().and_then(|pod| pod.get_mut("initContainers"));
        inits.and_then(Value::as_array_mut).into_iter().flatten().for_each(complete);
        whole.to_yaml()
    }

    /// The plugin's container and its sidecars, without init containers.
    pub(crate) fn containers_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let cars = self.pod_spec.as_mut().and_then(|pod| pod["containers"].as_array_mut());
        std::iter::once(&mut self.spec).chain(cars.into_iter().flatten())
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

impl Permissions {
    /// Parses the short form of permissions.
    fn parse(word: &str) -> Option<Self> {
        [("none", Self::None), ("read", Self::Read), ("admin", Self::Admin)]
            .into_iter()
            .find_map(|(known, permissions)| (known == word).then_some(permissions))
    }

    fn to_value(&self) -> Value {
        match self {
            Self::None => json!("none"),
            Self::Read => json!("read"),
            Self::Admin => json!("admin"),
            Self::Rules(rules) => json!(rules),
        }
    }
}

impl Config {
    fn to_value(&self) -> Value {
        let mut config = Map::new();
        let mut put = |key: &str, value: Value| config.insert(key.into(), value);
        put("driver", json!(self.driver_spelling));
        put("plugin-name", json!(self.plugin_name));
        for (key, text) in [
            ("result-format", &self.result_format),
            ("description", &self.description),
            ("source-url", &self.source_url),
        ] {
            if !text.is_empty() {
                put(key, json!(text));
            }
        }
        if !self.result_files.is_empty() {
            put("result-files", json!(self.result_files));
        }
        for (key, flag) in [("skip-cleanup", self.skip_cleanup), ("results-anywhere", self.results_anywhere)]
        {
            if flag {
                put(key, json!(true));
            }
        }
        if self.order != 0 {
            put("order", json!(self.order));
        }
        if let Some(timeout) = self.timeout {
            put("timeout", json!(clock::duration(timeout)));
        }
        if let Some(permissions) = &self.permissions {
            put("permissions", permissions.to_value());
        }
        if !self.worker {
            put("worker", json!("none"));
        }
        if let Some(whole) = &self.part_of {
            put("part-of", json!(whole));
        }
        Value::Object(config)
    }
}
