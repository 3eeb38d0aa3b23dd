//! Deploys a run to a cluster: prepares plugins, builds manifests, creates, checks and removes objects.
//!
//! Owns [`Plan`], the input of a manifest, and the order in which flags change plugins. Knows no flags and
//! makes no requests for a plan: its creator has resolved versions and read files.

mod apply;
pub(crate) mod load;
mod manifest;
mod preflight;
mod prepare;
mod recover;
mod remove;
mod rights;

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::config;
use crate::plugin::{self, Definition};
use crate::remote::service;
use base::yaml;

pub(crate) use apply::{Refused, apply, from_yaml, home, makes_namespace, remedy, validate};
pub(crate) use preflight::{CHECKS, Preflight, StandIn, Trial};
pub(crate) use recover::recover;
pub(crate) use remove::Removal;

/// Inputs of a run's objects.
#[derive(Clone, Default)]
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
    /// Whether the aggregator's pod is more robust than the original's, and plugins have separate accounts.
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
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Split {
    /// Number of parts.
    pub parts: usize,
    /// Names of all existing tests.
    pub tests: Vec<String>,
}

/// A change to the plugin of that name, if it is part of the run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PluginChange {
    /// The plugin's name.
    pub plugin: String,
    /// The change.
    pub edit: Edit,
}

/// What changes in a plugin.
#[derive(Clone, Debug, PartialEq)]
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

impl Plan {
    /// Notes about plugins with more permissions than they declare.
    pub(crate) fn notes(&self) -> Result<Vec<String>> {
        Ok(rights::RunAccounts::new(self, &self.plugins)?.notes())
    }

    /// Rejects a selected plugin without definition, unless another search path may define it: the aggregator would
    /// fail.
    pub(crate) fn check_selection(&self) -> Result<()> {
        let plugins = self.prepared()?;
        let elsewhere = self.run.plugin_search_path != config::Run::standard().plugin_search_path;
        let unknown = |selected: &&config::Selection| {
            !plugins.iter().any(|plugin| plugin::is_selected(&selected.name, plugin.name()))
        };
        let selected = self.run.plugins.iter().flatten().filter(|_| !elsewhere);
        if let Some(config::Selection { name }) = selected.into_iter().find(unknown) {
            let known: Vec<_> = plugins.iter().map(Definition::name).collect();
            bail!(
                "`Plugins` of the configuration selects `{name}`, which is not defined; this run has {}: add `-p {name}`, or remove it",
                if known.is_empty() { "no plugin".to_owned() } else { known.join(", ") }
            );
        }
        Ok(())
    }
}

/// Formats objects as one YAML text, each followed by `---`.
pub(crate) fn to_yaml(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("{}---\n", yaml::write(object))).collect()
}
