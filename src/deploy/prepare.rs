//! Prepares loaded plugins for the aggregator; the order of the steps is the original's.

use anyhow::{Result, bail};

use super::manifest::{self, is_original};
use super::{Edit, Plan, PluginChange, Split};
use crate::layout;
use crate::names::{self, env};
use crate::plugin::{self, Definition, RESERVED, builtin};
use base::json::{self, json};
use base::kube::Object as _;

impl Plan {
    /// The plugins after all client-side changes.
    pub(crate) fn prepared(&self) -> Result<Vec<Definition>> {
        let mut plugins = self.plugins.clone();
        plugins.sort_by_key(|plugin| plugin.name().to_lowercase());
        for plugin in &mut plugins {
            if self.show_default_pod_spec && plugin.pod_spec.is_none() {
                let driver = plugin.config.driver;
                plugin.pod_spec = Some(plugin::default_spec(driver, &self.run.service_account_name));
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
                apply(edit, plugin);
            }
        }
        if let Some(registry) = &self.registry {
            plugins.iter_mut().for_each(|plugin| relocate(plugin, registry));
        }
        for container in plugins.iter_mut().flat_map(Definition::containers_mut) {
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

/// Splits the plugins that accept a list of tests into parts.
fn parts(split: &Split, plugins: &[Definition]) -> Result<Vec<Definition>> {
    let mut all = Vec::new();
    for plugin in plugins {
        if plugin.can_retry() {
            all.extend(plugin::focus::split(plugin, &split.tests, split.parts)?);
        } else {
            all.push(plugin.clone());
        }
    }
    if !plugins.iter().any(Definition::can_retry) {
        bail!("--split: {}", cannot_choose());
    }
    plugin::check_all(&all)?;
    Ok(all)
}

fn cannot_choose() -> String {
    format!(
        "no plugin of this run can be told which tests to run; that takes a Job with the variable `{}` and results in JUnit",
        plugin::focus::FOCUS
    )
}

/// Checks that failed tests can be retried, if requested.
fn check_retries(plan: &Plan, plugins: &[Definition]) -> Result<()> {
    if plan.run.retry_failed == 0 {
        return Ok(());
    }
    let mut retried = plugins.iter().filter(|plugin| plugin.can_retry()).peekable();
    if retried.peek().is_none() {
        bail!("--retry-failed: {}", cannot_choose());
    }
    let names: Vec<&str> = plugins.iter().map(Definition::name).collect();
    let taken = retried.find_map(|one| names.iter().find(|name| layout::is_attempt(name, one.name())));
    if let Some(name) = taken {
        bail!(
            "--retry-failed: the name `{name}` is needed for an attempt; rename that plugin, as in `-p FILE@newname`"
        );
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

/// Rejects variables for a plugin that does not run, except for e2e, whose flags may set them.
fn check_env(plan: &Plan, plugins: &[Definition]) -> Result<()> {
    for name in plan.env.keys() {
        if name != RESERVED && name != builtin::E2E && !plugins.iter().any(|plugin| plugin.name() == name) {
            let known: Vec<_> = plugins.iter().map(Definition::name).collect();
            bail!(
                "--plugin-env {name}.…: no plugin of this run has that name; it has {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            );
        }
    }
    Ok(())
}

const CREDENTIALS_VOLUME: &str = "sonobuoy-credentials-vol";

fn apply(edit: &Edit, plugin: &mut Definition) {
    match edit {
        Edit::Image(image) => plugin.spec["image"] = json!(image),
        Edit::File(name, text) => drop(plugin.config_map.insert(name.clone(), text.clone())),
        Edit::Word(variable, word) => add_word(plugin, variable, word),
        Edit::SshKey => mount_ssh_key(plugin),
        Edit::Credentials(secret, name) => {
            let items = json!([{"key": manifest::DOCKER_CONFIG, "path": name}]);
            let secret = json!({"secretName": secret, "items": items});
            plugin.extra_volumes.push(json!({"name": CREDENTIALS_VOLUME, "secret": secret}));
            plugin.mount(CREDENTIALS_VOLUME, names::CREDENTIALS_DIR);
        }
    }
}

fn add_word(plugin: &mut Definition, variable: &str, word: &str) {
    let old = plugin.spec["env"].items().find(|env| env["name"] == variable);
    let value = format!("{} {word}", old.map_or("", |env| env["value"].text()));
    plugin.set_env([(variable, value.trim_start())]);
}

/// Mounts the key where the e2e tests expect it.
fn mount_ssh_key(plugin: &mut Definition) {
    const VOLUME: &str = "sshkey-vol";
    const FOLDER: &str = "/root/.ssh";
    const OWNER_READS: u32 = 0o400;
    plugin.extra_volumes.push(json!({
        "name": VOLUME,
        "secret": {"secretName": manifest::SSH_KEY, "defaultMode": OWNER_READS},
    }));
    let mount = json!({"name": VOLUME, "mountPath": FOLDER});
    json::list_in(&mut plugin.spec, "volumeMounts").push(mount);
    let file = manifest::SSH_KEY_FILE;
    let path = format!("{FOLDER}/{file}");
    plugin.set_env([("LOCAL_SSH_KEY", file), ("AWS_SSH_KEY", &path), ("KUBE_SSH_KEY", file)]);
}

/// Moves all images of a plugin to another registry, under the last part of their names.
fn relocate(plugin: &mut Definition, registry: &str) {
    for container in plugin.all_containers_mut() {
        // The image of this program is a setting of the run.
        if let Some(image) = container["image"].as_str().filter(|image| *image != names::OWN_IMAGE) {
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
    if !plugin.extra_volumes.iter().any(|known| known["name"] == volume.as_str()) {
        let config_map = names::plugin_map(plugin.name());
        plugin.extra_volumes.push(json!({"name": volume, "configMap": {"name": config_map}}));
    }
    plugin.mount(&volume, names::PLUGIN_CONFIG_DIR);
}
