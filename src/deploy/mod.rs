//! Deploys a run to a cluster: prepares plugins, builds manifests, creates, checks and removes
//! objects.
//!
//! Owns [`Plan`], the input of a manifest, and the order in which flags change plugins, which is
//! the original's. Knows no flags and makes no requests for a plan: its creator has resolved
//! versions and read files.

mod apply;
mod bindings;
pub(crate) mod load;
mod manifest;
mod preflight;
mod recover;
mod references;
mod remove;
mod rights;
mod unmark;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::remote::service;
use base::Joined as _;
use base::json::{self, json};
use kube::Object as _;
use model::names::{self, env};
use model::nodes::Choice;
use model::plugin::{self, Definition, RESERVED, builtin};
use model::{config, layout};
use rights::is_original;

pub(crate) use apply::{
    Refused, apply, from_yaml, makes_namespace, remedy, run_namespace, without_leftovers,
};
pub(crate) use bindings::foreign_bindings;
pub(crate) use preflight::{CHECKS, Preflight, StandIn, Trial};
pub(crate) use recover::recover;
pub(crate) use references::references;
pub(crate) use remove::Removal;
pub(crate) use unmark::unmark_nodes;

/// Inputs of a run's objects.
#[derive(Default)]
pub(crate) struct Plan {
    /// Settings of the run.
    pub run: config::Run,
    /// Plugins as they were loaded.
    pub plugins: Vec<Definition>,
    /// Changes to plugins from flags, in the order of the command line.
    pub changes: Vec<PluginChange>,
    /// Registry from which all images of all plugins are pulled.
    pub registry: Option<String>,
    /// Variables by plugin; an empty value removes one. Those of `sonobuoy` go to the aggregator.
    pub env: BTreeMap<String, BTreeMap<String, String>>,
    /// Value of `$SONOBUOY_K8S_VERSION` in images.
    pub kubernetes_version: String,
    /// Whether roles and bindings are created.
    pub rbac: bool,
    /// Node labels required by the aggregator.
    pub node_selector: BTreeMap<String, String>,
    /// Writes the drivers' pod specs out in definitions without one.
    pub show_default_pod_spec: bool,
    /// A private key for the e2e tests.
    pub ssh_key: Option<Vec<u8>>,
    /// Registry credentials for the e2e tests.
    pub docker_config: Option<Vec<u8>>,
    /// Log level of the aggregator.
    pub level: String,
    /// Whether the aggregator's pod is more robust than the original's, and plugins have separate
    /// accounts.
    pub harden: bool,
    /// Rejects plugins that declare no permissions.
    pub declared_only: bool,
    /// Status service of the run, if any.
    pub status_service: Option<service::Service>,
    /// Secret with the upload URL of the archive.
    pub upload: Option<String>,
    /// Authorities, PEM, that the aggregator trusts for uploads besides its image's.
    pub upload_authorities: String,
    /// Volume claim for results; empty is the pod's own disk.
    pub results_pvc: String,
    /// How tests are split into parallel plugins.
    pub split: Option<Split>,
}

/// How the tests of a plugin are split.
pub(crate) struct Split {
    /// Number of parts.
    pub parts: usize,
    /// Names of all existing tests.
    pub tests: Vec<String>,
}

/// A change to the plugin of that name, if it is part of the run.
pub(crate) struct PluginChange {
    /// The plugin's name.
    pub plugin: String,
    /// The change.
    pub edit: Edit,
}

/// What changes in a plugin.
pub(crate) enum Edit {
    /// Sets the image of its container.
    Image(String),
    /// Adds a file of this name and content to its config map.
    File(String, String),
    /// Appends a word to this variable.
    Word(&'static str, String),
    /// Mounts the secret with the private key where the tests expect it.
    SshKey,
    /// Mounts the secret of this name, with registry credentials, as a file of this name.
    Credentials(String, String),
}

/// The settings and the plugins in the objects of a run.
pub(crate) fn planned(
    objects: &[Value],
    namespace: &str,
) -> Result<(config::Run, Vec<Definition>)> {
    let data = |name: &str| {
        let map = objects
            .iter()
            .find(|object| object["kind"] == "ConfigMap" && object.name() == name);
        &map.unwrap_or(&Value::Null)["data"]
    };
    let mut run = config::Run {
        namespace: namespace.to_owned(),
        ..config::Run::standard()
    };
    if let Some(text) = data(names::CONFIG_MAP)[names::CONFIG_KEY].as_str() {
        run.overlay(text)
            .map_err(|error| anyhow::anyhow!("`{}`: {error}", names::CONFIG_MAP))?;
    }
    let mut plugins = Vec::new();
    let definitions = data(names::PLUGINS_MAP).as_object();
    for (key, text) in definitions.into_iter().flatten() {
        let read = plugin::read_all(text.text())
            .with_context(|| format!("`{key}` of `{}`", names::PLUGINS_MAP))?;
        plugins.extend(read.into_iter().map(|loaded| loaded.definition));
    }
    Ok((run, plugins))
}

/// The aggregator's pod in a manifest.
pub(crate) fn aggregator_pod(objects: &[Value]) -> Option<&Value> {
    let is_aggregator = |object: &&Value| {
        object["kind"] == "Pod"
            && object["metadata"]["labels"][names::LABEL_PART] == names::AGGREGATOR
    };
    objects.iter().find(is_aggregator)
}

/// The identifier that the settings in a manifest give to the run; none if its aggregator chooses
/// one.
pub(crate) fn configured_run(objects: &[Value]) -> Option<String> {
    let is_settings =
        |object: &&Value| object["kind"] == "ConfigMap" && object.name() == names::CONFIG_MAP;
    let settings = objects.iter().find(is_settings)?;
    let mut run = config::Run::default();
    run.overlay(settings["data"][names::CONFIG_KEY].as_str()?)
        .ok()?;
    Some(run.uuid).filter(|id| !id.is_empty())
}

impl Plan {
    /// Notes about plugins with more permissions than they declare.
    pub(crate) fn notes(&self) -> Result<Vec<String>> {
        Ok(rights::RunAccounts::new(self, &self.plugins)?.notes())
    }

    /// Rejects a selected plugin without definition, unless another search path may define it: the
    /// aggregator would fail.
    pub(crate) fn check_selection(&self) -> Result<()> {
        let plugins = self.prepared()?;
        let elsewhere = self.run.plugin_search_path != config::Run::standard().plugin_search_path;
        let unknown = |selected: &&config::Selection| {
            !plugins
                .iter()
                .any(|plugin| plugin::is_selected(&selected.name, plugin.name()))
        };
        let mut selected = self.run.plugins.iter().flatten().filter(|_| !elsewhere);
        if let Some(config::Selection { name }) = selected.find(unknown) {
            bail!(
                "`Plugins` of the configuration selects `{name}`, which is not defined; this run \
                 has {}: add `-p {name}`, or remove it",
                plugin_names(&plugins)
            );
        }
        Ok(())
    }

    /// The plugins after all client-side changes.
    pub(crate) fn prepared(&self) -> Result<Vec<Definition>> {
        let mut plugins = self.plugins.clone();
        plugins.sort_by_key(|plugin| plugin.name().to_lowercase());
        for plugin in &mut plugins {
            if self.show_default_pod_spec && plugin.pod_spec.is_none() {
                let driver = plugin.config.driver;
                plugin.pod_spec =
                    Some(plugin::default_spec(driver, &self.run.service_account_name));
            }
            if self.run.force_image_pull_policy {
                plugin.set_pull_policy(&self.run.image_pull_policy);
            }
        }
        if self.harden && !is_original(&self.run.worker_image) {
            plugins.iter_mut().for_each(builtin::end_with_result);
        }
        for PluginChange { plugin: name, edit } in &self.changes {
            if let Some(plugin) = plugins.iter_mut().find(|plugin| plugin.name() == name) {
                change(edit, plugin);
            }
        }
        if let Some(registry) = &self.registry {
            plugins
                .iter_mut()
                .for_each(|plugin| relocate(plugin, registry));
        }
        for container in plugins.iter_mut().flat_map(Definition::all_containers_mut) {
            if container["image"] == names::OWN_IMAGE {
                container["image"] = json!(self.run.worker_image);
            }
        }
        plugins.iter_mut().for_each(mount_config_map);
        plugin::check_all(&plugins)?;
        check_env(self, &plugins)?;
        for plugin in &mut plugins {
            if let Some(image) = plugin.spec["image"].as_str() {
                plugin.spec["image"] =
                    json!(image.replace(names::VERSION_PLACEHOLDER, &self.kubernetes_version));
            }
            if self.harden {
                plugin.mount_results_also(&self.run.results_dir);
            } else {
                plugin.mount_results(&self.run.results_dir);
            }
            if let Some(given) = self.env.get(plugin.name()) {
                plugin.set_env(given);
            }
            plugin.set_env(automatic(self));
        }
        check_retries(self, &plugins)?;
        match &self.split {
            Some(split) => parts(split, &plugins),
            None => Ok(plugins),
        }
    }
}

/// Which nodes run the plugins of a run with these objects; an unreadable choice is reported by the
/// aggregator.
pub(crate) fn chosen_nodes(objects: &[Value]) -> Choice {
    let mut maps = objects
        .iter()
        .filter(|object| object["kind"] == "ConfigMap" && object.name() == names::CONFIG_MAP);
    let mut run = config::Run::standard();
    if let Some(Err(error)) =
        maps.find_map(|map| Some(run.overlay(map["data"][names::CONFIG_KEY].as_str()?)))
    {
        log::warn!("`{}` of the manifest, {error}", names::CONFIG_MAP);
    }
    run.nodes
}

/// Formats objects as one YAML text, each followed by `---`.
pub(crate) fn to_yaml(objects: &[Value]) -> String {
    objects
        .iter()
        .map(|object| format!("{}---\n", yaml::write(object)))
        .collect()
}

/// Splits the plugins that accept a list of tests into parts.
fn parts(split: &Split, plugins: &[Definition]) -> Result<Vec<Definition>> {
    check_choice("--split", plugins)?;
    let all = plugins
        .iter()
        .map(|plugin| match plugin.can_retry() {
            true => plugin::focus::split(plugin, &split.tests, split.parts),
            false => Ok(vec![plugin.clone()]),
        })
        .collect::<Result<Vec<_>>>()?
        .concat();
    plugin::check_all(&all)?;
    Ok(all)
}

/// Checks that at least one plugin accepts a list of tests, as a flag requires.
fn check_choice(flag: &str, plugins: &[Definition]) -> Result<()> {
    ensure!(
        plugins.iter().any(Definition::can_retry),
        "{flag}: no plugin of this run can be told which tests to run; that takes a Job with the \
         variable `{}` and results in JUnit",
        plugin::focus::FOCUS
    );
    Ok(())
}

/// Checks that failed tests can be retried, if requested.
fn check_retries(plan: &Plan, plugins: &[Definition]) -> Result<()> {
    if plan.run.retry_failed == 0 {
        return Ok(());
    }
    check_choice("--retry-failed", plugins)?;
    for plugin in plugins.iter().filter(|plugin| plugin.can_retry()) {
        let mut names = plugins.iter().map(Definition::name);
        if let Some(name) = names.find(|name| layout::is_attempt(name, plugin.name())) {
            bail!(
                "--retry-failed: the name `{name}` is needed for an attempt; rename that plugin, \
                 as in `-p FILE@newname`"
            );
        }
    }
    Ok(())
}

/// Variables that every plugin gets.
fn automatic(plan: &Plan) -> [(&'static str, &str); 6] {
    [
        ("SONOBUOY", "true"),
        (env::CONFIG_DIR, names::PLUGIN_CONFIG_DIR),
        (env::K8S_VERSION, &plan.kubernetes_version),
        (env::PROGRESS_PORT, &plan.run.progress_updates_port),
        (env::RESULTS_DIR, &plan.run.results_dir),
        (env::OLD_RESULTS_DIR, &plan.run.results_dir),
    ]
}

/// The names of plugins, in messages.
fn plugin_names(plugins: &[Definition]) -> String {
    if plugins.is_empty() {
        "no plugin".into()
    } else {
        plugins.iter().map(Definition::name).joined(", ")
    }
}

/// Rejects variables for a plugin that does not run, except for e2e, whose flags may set them.
fn check_env(plan: &Plan, plugins: &[Definition]) -> Result<()> {
    for name in plan.env.keys() {
        if name != RESERVED
            && name != builtin::E2E
            && !plugins.iter().any(|plugin| plugin.name() == name)
        {
            bail!(
                "--plugin-env {name}.…: no plugin of this run has that name; it has {}",
                plugin_names(plugins)
            );
        }
    }
    Ok(())
}

const CREDENTIALS_VOLUME: &str = "sonobuoy-credentials-vol";

fn change(edit: &Edit, plugin: &mut Definition) {
    match edit {
        Edit::Image(image) => plugin.spec["image"] = json!(image),
        Edit::File(name, text) => drop(plugin.config_map.insert(name.clone(), text.clone())),
        Edit::Word(variable, word) => add_word(plugin, variable, word),
        Edit::SshKey => mount_ssh_key(plugin),
        Edit::Credentials(secret, name) => {
            let items = json!([{"key": manifest::DOCKER_CONFIG, "path": name}]);
            let secret = json!({"secretName": secret, "items": items});
            plugin
                .extra_volumes
                .push(json!({"name": CREDENTIALS_VOLUME, "secret": secret}));
            plugin.mount(CREDENTIALS_VOLUME, names::CREDENTIALS_DIR);
        }
    }
}

fn add_word(plugin: &mut Definition, variable: &str, word: &str) {
    let old = plugin.spec["env"]
        .items()
        .find(|env| env["name"] == variable);
    let value = format!("{} {word}", old.map_or("", |env| env["value"].text()));
    plugin.set_env([(variable, value.trim_start())]);
}

/// Mounts the key where the e2e tests expect it.
fn mount_ssh_key(plugin: &mut Definition) {
    const VOLUME: &str = "sshkey-vol";
    const FOLDER: &str = "/root/.ssh";
    plugin.extra_volumes.push(json!({
        "name": VOLUME,
        // Only its owner may read the key.
        "secret": {"secretName": manifest::SSH_KEY, "defaultMode": 0o400},
    }));
    let mount = json!({"name": VOLUME, "mountPath": FOLDER});
    json::list_in(&mut plugin.spec, "volumeMounts").push(mount);
    let file = manifest::SSH_KEY_FILE;
    let path = format!("{FOLDER}/{file}");
    plugin.set_env([
        ("LOCAL_SSH_KEY", file),
        ("AWS_SSH_KEY", &path),
        ("KUBE_SSH_KEY", file),
    ]);
}

/// Moves all images of a plugin to another registry, under the last part of their names.
fn relocate(plugin: &mut Definition, registry: &str) {
    for container in plugin.all_containers_mut() {
        // The image of this program is a setting of the run.
        if let Some(image) = container["image"]
            .as_str()
            .filter(|image| *image != names::OWN_IMAGE)
        {
            container["image"] = json!(plugin::relocated(image, registry));
        }
    }
}

/// Mounts the config map of a plugin. A definition that `gen plugin e2e` printed has it already.
fn mount_config_map(plugin: &mut Definition) {
    if plugin.config_map.is_empty() {
        return;
    }
    let volume = format!("sonobuoy-{}-vol", plugin.name());
    if !plugin
        .extra_volumes
        .iter()
        .any(|known| known["name"] == volume.as_str())
    {
        let config_map = names::plugin_map(plugin.name());
        plugin
            .extra_volumes
            .push(json!({"name": volume, "configMap": {"name": config_map}}));
    }
    plugin.mount(&volume, names::PLUGIN_CONFIG_DIR);
}
