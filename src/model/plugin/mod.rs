//! Plugin definitions: reading all formats, checking, writing; search paths; built-in definitions.
//!
//! Owns [`Definition`], the description of one plugin, and what makes it valid. The Kubernetes
//! parts are kept as untyped trees, so that every field is preserved. Knows nothing about a run's
//! settings or about starting plugins: `deploy` and `driver` do.

pub mod builtin;
pub mod focus;
mod read;
mod shape;
mod source;

use std::collections::{BTreeMap, HashSet};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::names::{RESULTS_VOLUME, VERSION_PLACEHOLDER, env, is_label};
use crate::nodes::Waves;
use base::clock::Span;
use base::json::{self, json};
use kube::Object as _;

pub use read::{Rule, read, read_all, schema};
pub use source::{Installed, STDIN, find, is_selected, load_only, search, select, user_folder};

/// Name of the aggregator and of the run as a whole, reserved.
pub const RESERVED: &str = "sonobuoy";

/// A plugin: its containers and the format of its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Definition {
    /// The `sonobuoy-config` section.
    #[serde(rename = "sonobuoy-config")]
    pub config: Config,
    /// The plugin's container, a core/v1 Container.
    pub spec: Value,
    /// The surrounding pod, a core/v1 PodSpec whose containers are sidecars; the driver has a
    /// default.
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
pub const RESULT_FORMATS: [&str; 5] = ["raw", "junit", "gojson", "manual", "e2e"];

/// Whether results of a format are JUnit files, which list individual tests.
pub fn is_junit(format: &str) -> bool {
    ["junit", "e2e"].contains(&format)
}

/// `sonobuoy-config` of a definition, written by [`Definition::to_value`], which leaves out
/// defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Config {
    /// Whether it runs once per cluster or on each node.
    #[serde(skip)]
    pub driver: DriverKind,
    /// The driver as the definition spells it; case does not matter.
    #[serde(rename = "driver")]
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
    pub timeout: Option<Span>,
    /// Permissions in the cluster; if not given, those of the run.
    pub permissions: Option<Permissions>,
    /// The worker that submits its results, unless the plugin does so itself.
    pub worker: Worker,
    /// Plugin whose results include this one's.
    pub part_of: Option<String>,
    /// How many nodes at once, with the driver Nodes.
    pub waves: Waves,
    /// How many other nodes each pod is told about, with the driver Nodes.
    pub peers: u16,
}

/// Whether a worker submits the results of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Worker {
    /// A container beside the plugin; not a word of definitions.
    #[default]
    #[serde(skip_deserializing)]
    Beside,
    /// No worker.
    None,
}

/// Permissions of a plugin in the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Permissions {
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
    pub fn has_worker(&self) -> bool {
        self.worker == Worker::Beside
    }

    pub fn set_driver(&mut self, driver: DriverKind) {
        self.driver = driver;
        self.driver_spelling = driver.name().to_owned();
    }
}

/// A definition, with notes from reading it.
#[derive(Debug, PartialEq)]
pub struct Loaded {
    /// The definition.
    pub definition: Definition,
    /// Whether it is built in, so that flags for image and pull policy apply.
    pub built_in: bool,
    /// Notes for the user, such as the conversion of an old form.
    pub notes: Vec<String>,
    /// The first key that is probably misspelt, with its position and a suggestion; also one of
    /// the notes.
    pub misspelt: Option<yaml::Error>,
}

impl Loaded {
    /// A built-in definition.
    pub fn built_in(definition: Definition) -> Self {
        Self {
            definition,
            built_in: true,
            notes: Vec::new(),
            misspelt: None,
        }
    }
}

/// How the pods of a plugin are created.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum DriverKind {
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
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|driver| driver.name().eq_ignore_ascii_case(text))
    }

    /// Whether each node has a result.
    pub fn is_per_node(self) -> bool {
        self != Self::Job
    }

    /// What its workers submit: `global`, or the result of a `single-node`.
    pub fn worker_role(self) -> &'static str {
        if self.is_per_node() {
            "single-node"
        } else {
            "global"
        }
    }

    /// `Job`, `DaemonSet` or `Nodes`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::DaemonSet => "DaemonSet",
            Self::Nodes => "Nodes",
        }
    }
}

impl Definition {
    /// A minimal definition.
    pub fn new(name: impl Into<String>, driver: DriverKind, spec: Value) -> Self {
        let mut config = Config {
            plugin_name: name.into(),
            ..Config::default()
        };
        config.set_driver(driver);
        Self {
            config,
            spec,
            pod_spec: None,
            extra_volumes: Vec::new(),
            config_map: BTreeMap::new(),
        }
    }

    /// Name of the plugin.
    pub fn name(&self) -> &str {
        &self.config.plugin_name
    }

    /// Plugin whose results these are: another one for a part, else this one.
    pub fn results_plugin(&self) -> &str {
        self.config
            .part_of
            .as_deref()
            .unwrap_or(&self.config.plugin_name)
    }

    /// Whether failed tests can be retried: requires a variable with the tests to run, and results
    /// in JUnit.
    pub fn can_retry(&self) -> bool {
        self.config.driver == DriverKind::Job
            && self.config.part_of.is_none()
            && is_junit(&self.config.result_format)
            && self.env(focus::FOCUS).is_some()
    }

    /// The definition as a value, without empty parts and without settings that are the default.
    pub fn to_value(&self) -> Value {
        let (mut whole, default) = (json!(self), json!(Config::default()));
        if let Some(config) = whole["sonobuoy-config"].as_object_mut() {
            config.retain(|key, value| key == "plugin-name" || *value != default[key]);
        }
        whole
    }

    /// The definition as YAML with sorted keys.
    pub fn to_yaml(&self) -> String {
        yaml::write(&self.to_value())
    }

    /// The definition as YAML, with `resources: {}` in each container without resources, as `plugin
    /// show` prints it.
    pub fn to_full_yaml(&self) -> String {
        let mut definition = self.clone();
        for fields in definition
            .all_containers_mut()
            .filter_map(Value::as_object_mut)
        {
            fields.entry("resources").or_insert_with(|| json!({}));
        }
        definition.to_yaml()
    }

    /// The plugin's container and its sidecars, without init containers.
    pub fn containers_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let cars = self
            .pod_spec
            .as_mut()
            .and_then(|pod| pod["containers"].as_array_mut());
        std::iter::once(&mut self.spec).chain(cars.into_iter().flatten())
    }

    /// The plugin's container, its sidecars and its init containers.
    pub fn all_containers_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let fields = self
            .pod_spec
            .as_mut()
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten();
        let others = fields
            .filter(|(key, _)| ["containers", "initContainers"].contains(&key.as_str()))
            .filter_map(|(_, list)| list.as_array_mut())
            .flatten();
        std::iter::once(&mut self.spec).chain(others)
    }
}

/// Moves an image to another registry, under the last part of its name; an image already in that
/// registry is unchanged.
pub fn relocated(image: &str, registry: &str) -> String {
    let registry = registry.trim_end_matches('/');
    if image
        .strip_prefix(registry)
        .is_some_and(|rest| rest.starts_with('/'))
    {
        return image.to_owned();
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    format!("{registry}/{last}")
}

/// Maximum length of a label value, which contains the plugin's name.
const MAX_LABEL: usize = 63;
/// Maximum length of a name with a config map: the volume `sonobuoy-<name>-vol` must be a DNS
/// label.
const MAX_CONFIG_MAP_NAME: usize = 50;

/// Checks one definition.
pub fn check(definition: &Definition) -> Result<()> {
    check_name_of(definition)?;
    check_content(definition)
}

/// Checks everything but the name, which can be overridden.
pub fn check_content(definition: &Definition) -> Result<()> {
    let (name, format) = (definition.name(), &*definition.config.result_format);
    if !format.is_empty() && !RESULT_FORMATS.contains(&format) {
        bail!(
            "plugin `{name}`: unknown result format `{format}`; use one of {}",
            RESULT_FORMATS.join(", ")
        );
    }
    for (file, text) in &definition.config_map {
        // JSON is YAML, so one parser reads both, as in the original.
        let is_yaml = [".json", ".yaml", ".yml"]
            .iter()
            .any(|end| file.ends_with(end));
        if is_yaml && let Err(error) = yaml::document(text) {
            bail!("plugin `{name}`: `{file}` in its config-map, {error}");
        }
    }
    Ok(())
}

/// Checks that the name of a definition works in Kubernetes: an RFC 1123 subdomain that fits into a
/// label, and not the reserved one.
pub fn check_name_of(definition: &Definition) -> Result<()> {
    let name = definition.name();
    if name.is_empty() {
        bail!("a plugin has no name; set `plugin-name` in `sonobuoy-config`");
    }
    if name == RESERVED {
        bail!("`{RESERVED}` is reserved; choose another `plugin-name`");
    }
    if name.len() > MAX_LABEL {
        bail!(
            "plugin name `{name}` has {} characters, but a Kubernetes label allows only \
             {MAX_LABEL}",
            name.len()
        );
    }
    if !name.split('.').all(is_label) {
        bail!(
            "plugin name `{name}` cannot be used in Kubernetes: only a-z, 0-9, `-` and `.`, \
             starting and ending with a letter or digit"
        );
    }
    if !definition.config_map.is_empty() && (name.contains('.') || name.len() > MAX_CONFIG_MAP_NAME)
    {
        bail!(
            "plugin `{name}` has a config-map, so its name may have no `.` and at most \
             {MAX_CONFIG_MAP_NAME} characters: it becomes part of a volume's name"
        );
    }
    Ok(())
}

/// Checks definitions that will run together.
pub fn check_all(definitions: &[Definition]) -> Result<()> {
    let mut names = HashSet::new();
    for definition in definitions {
        check(definition)?;
        let name = definition.name();
        if !names.insert(name) {
            bail!(
                "two plugins are called `{name}`; leave one out, or rename one with `-p \
                 FILE@newname`"
            );
        }
    }
    definitions
        .iter()
        .try_for_each(|definition| check_part(definition, definitions))
}

/// Checks that a part of another plugin's results is valid.
fn check_part(definition: &Definition, all: &[Definition]) -> Result<()> {
    let Some(whole) = &definition.config.part_of else {
        return Ok(());
    };
    let name = definition.name();
    let Some(of) = all
        .iter()
        .find(|other| other.name() == whole && other.name() != name)
    else {
        bail!(
            "plugin `{name}` is part of `{whole}`, which is not a plugin of this run; add it with \
             `-p`"
        );
    };
    for (one, definition) in [(name, definition), (whole, of)] {
        let config = &definition.config;
        if config.driver != DriverKind::Job || !is_junit(&config.result_format) {
            bail!(
                "plugin `{name}` is part of `{whole}`: `{one}` must be a Job with results in JUnit"
            );
        }
    }
    if of.config.part_of.is_some() {
        bail!("plugin `{name}` is part of `{whole}`, which is itself part of another one");
    }
    Ok(())
}

/// Registry of Kubernetes until 1.26.
const FROZEN_REGISTRY: &str = "k8s.gcr.io/";

impl Definition {
    /// Mounts the results volume at `folder` in all containers.
    pub fn mount_results(&mut self, folder: &str) {
        self.mount(RESULTS_VOLUME, folder);
    }

    /// The same, and also at the container's own mount paths, so that files written there are
    /// found.
    pub fn mount_results_also(&mut self, folder: &str) {
        for container in self.containers_mut() {
            let mounts = json::list_in(container, "volumeMounts");
            let results_mount = mounts
                .iter()
                .find(|mount| mount["name"] == RESULTS_VOLUME)
                .cloned();
            mounts.extend(results_mount.filter(|mount| mount["mountPath"] != folder));
        }
        self.mount_results(folder);
    }

    /// Mount path of the results in the plugin's container besides `folder`.
    pub fn results_mount(&self, folder: &str) -> Option<&str> {
        self.spec["volumeMounts"]
            .items()
            .filter(|mount| mount["name"] == RESULTS_VOLUME && mount["subPath"].is_null())
            .find_map(|mount| mount["mountPath"].as_str().filter(|path| *path != folder))
    }

    /// Mounts a volume in the plugin's container and its sidecars; an existing mount of that name
    /// is moved there.
    pub fn mount(&mut self, volume: &str, path: &str) {
        for container in self.containers_mut() {
            let mounts = json::list_in(container, "volumeMounts");
            match mounts.iter_mut().find(|mount| mount["name"] == volume) {
                Some(mount) => mount["mountPath"] = json!(path),
                None => mounts.push(json!({"mountPath": path, "name": volume})),
            }
        }
    }

    /// Sets variables in the plugin's container and its sidecars; an empty value removes one.
    pub fn set_env(
        &mut self,
        overrides: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)> + Clone,
    ) {
        for container in self.containers_mut() {
            set_env(container, overrides.clone());
        }
    }

    /// Moves the conformance image of the cluster's version to the current registry; returns
    /// whether that was necessary.
    pub fn move_to_live_registry(&mut self) -> bool {
        let image = self.spec["image"]
            .as_str()
            .and_then(|image| image.strip_prefix(FROZEN_REGISTRY))
            .filter(|rest| rest.ends_with(VERSION_PLACEHOLDER));
        let Some(live) = image.map(|rest| json!(format!("registry.k8s.io/{rest}"))) else {
            return false;
        };
        self.spec["image"] = live;
        true
    }

    /// Value of a variable of the plugin's container; empty if it comes from a reference, `None` if
    /// unset.
    pub fn env(&self, name: &str) -> Option<&str> {
        let mut variables = self.spec["env"].items();
        let variable = variables.find(|variable| variable["name"] == name)?;
        Some(variable["value"].text())
    }

    /// Sets the pull policy of the plugin's container; an empty one leaves it to Kubernetes.
    pub fn set_pull_policy(&mut self, policy: &str) {
        self.spec["imagePullPolicy"] = policy.into();
        if let Some(spec) = self.spec.as_object_mut().filter(|_| policy.is_empty()) {
            spec.remove("imagePullPolicy");
        }
    }

    /// Points the results volume and the two variables that name it to `folder`, before the
    /// aggregator starts a plugin, so that definitions written for other paths work.
    pub fn reconcile(&mut self, folder: &str) {
        self.mount_results(folder);
        set_env(
            &mut self.spec,
            [(env::OLD_RESULTS_DIR, folder), (env::RESULTS_DIR, folder)],
        );
    }
}

/// Merges variables into a container's own: one per name, sorted by name; the first one wins, as in
/// the original.
pub fn set_env(
    container: &mut Value,
    overrides: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
) {
    let env = json::list_in(container, "env");
    let mut merged: BTreeMap<String, Value> = BTreeMap::new();
    for variable in env.drain(..) {
        merged
            .entry(variable["name"].text().to_owned())
            .or_insert(variable);
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
pub const MAX_FAILURES: u8 = 5;

impl Definition {
    /// Maximum failures after which a container is still restarted.
    pub fn max_failures(&self) -> u8 {
        let policy = self.pod_spec.as_ref().map(|spec| &spec["restartPolicy"]);
        if policy.is_some_and(|policy| policy == "OnFailure") {
            MAX_FAILURES
        } else {
            0
        }
    }
}

/// The pod spec of a plugin that has none, without containers.
pub fn default_spec(driver: DriverKind, service_account: &str) -> Value {
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

    fn plugin(name: &str, files: &[(&str, &str)]) -> Definition {
        let mut definition = Definition::new(name, DriverKind::Job, json!({"name": "plugin"}));
        definition.config_map = files
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        definition
    }

    #[test]
    fn names_follow_kubernetes() {
        let long = "a".repeat(64);
        for name in ["e2e", "systemd-logs", "05-openshift-upgrade", "a.b", "x"] {
            check(&plugin(name, &[])).expect(name);
        }
        for (name, words) in [
            ("", "no name"),
            ("sonobuoy", "reserved"),
            ("systemd_logs", "cannot be used"),
            ("E2E", "cannot be used"),
            ("-a", "cannot be used"),
            ("a-", "cannot be used"),
            ("a..b", "cannot be used"),
            ("a b", "cannot be used"),
            ("ä", "cannot be used"),
            (long.as_str(), "64 characters"),
        ] {
            let error = check(&plugin(name, &[])).expect_err(name).to_string();
            assert!(error.contains(words), "{name}: {error}");
        }
    }

    #[test]
    fn config_map_files_are_readable() {
        check(&plugin(
            "p",
            &[
                ("a.yaml", "#@ x\n---\na: 1\n"),
                ("b.json", "{\"a\": 1}"),
                ("c.txt", "{"),
            ],
        ))
        .unwrap();
        for (file, text) in [("a.yaml", "a: b: c"), ("a.yml", "["), ("a.json", "{")] {
            let error = check(&plugin("p", &[(file, text)]))
                .expect_err(file)
                .to_string();
            assert!(
                error.contains(&format!("`{file}` in its config-map, line ")),
                "{error}"
            );
        }
        assert!(
            check(&plugin("a.b", &[("c.txt", "")])).is_err(),
            "a volume's name has no dot"
        );
        assert!(
            check(&plugin(&"a".repeat(51), &[("c.txt", "")])).is_err(),
            "a volume's name has 63 characters"
        );
    }

    #[test]
    fn results_have_a_known_format() {
        let with = |format: &str| {
            let mut plugin = plugin("p", &[]);
            plugin.config.result_format = format.into();
            check(&plugin)
        };
        for format in ["", "raw", "junit", "e2e", "gojson", "manual"] {
            with(format).unwrap();
        }
        for format in ["xml", "JUnit", "junit "] {
            let error = format!("{:#}", with(format).expect_err(format));
            assert!(
                error.starts_with("plugin `p`: unknown result format `"),
                "{error}"
            );
            assert!(
                error.ends_with("use one of raw, junit, gojson, manual, e2e"),
                "{error}"
            );
        }
    }

    #[test]
    fn names_are_unique() {
        let twice = [plugin("a", &[]), plugin("a", &[])];
        assert!(
            check_all(&twice)
                .unwrap_err()
                .to_string()
                .contains("two plugins are called `a`")
        );
        check_all(&[plugin("a", &[]), plugin("b", &[])]).unwrap();
    }

    fn with_sidecar(spec: Value) -> Definition {
        let mut definition = Definition::new("p", DriverKind::Job, spec);
        definition.pod_spec =
            Some(json!({"containers": [{"name": "side"}], "initContainers": [{"name": "init"}]}));
        definition
    }

    #[test]
    fn results_are_mounted_everywhere_but_in_init_containers() {
        let mut one = with_sidecar(json!({"volumeMounts": [
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
        for (before, after) in [
            (json!([own]), json!([ours, own])),
            (json!([ours]), json!([ours])),
            (json!([]), json!([ours])),
        ] {
            let mut one = with_sidecar(json!({"volumeMounts": before.clone()}));
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
        let mut one = with_sidecar(json!({"env": [
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
        let mut one =
            with_sidecar(json!({"env": [{"name": "RESULTS_DIR", "value": "/tmp/results"}]}));
        one.reconcile("/r");
        let expected = json!([{"name": "RESULTS_DIR", "value": "/r"}, {"name": "SONOBUOY_RESULTS_DIR", "value": "/r"}]);
        assert_eq!(one.spec["env"], expected);
        assert_eq!(one.pod_spec.unwrap()["containers"][0].get("env"), None);
    }
}
