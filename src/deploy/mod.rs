//! What a run puts into a cluster: preparing plugins, manifests, creating, checking, removing.
//!
//! Owns [`Plan`], all that a manifest is made of, and the order in which flags change plugins. Knows no flags and
//! makes no requests: whoever builds a plan has resolved versions and read files.

mod apply;
mod harden;
mod manifest;
mod preflight;
mod prepare;
mod remedy;
mod remove;
mod rights;
mod trial;

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::config;
use crate::plugin::{self, Definition};
use crate::remote::service;
use base::yaml;

pub(crate) use apply::{Refused, apply, from_yaml, home, makes_namespace};
pub(crate) use preflight::{CHECKS, Preflight};
pub(crate) use remedy::remedy;
pub(crate) use remove::Removal;
pub(crate) use trial::{StandIn, Trial};

/// Everything a run is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Its settings.
    pub run: config::Run,
    /// Its plugins as they were found.
    pub plugins: Vec<Definition>,
    /// What flags change in plugins, in the order of the command line.
    pub changes: Vec<Change>,
    /// Variables by plugin; an empty value removes one. Those of `sonobuoy` are the aggregator's.
    pub env: BTreeMap<String, BTreeMap<String, String>>,
    /// Stands for `$SONOBUOY_K8S_VERSION` in images.
    pub kubernetes_version: String,
    /// Whether roles and bindings are made.
    pub rbac: bool,
    /// Labels of the node that the aggregator runs on.
    pub node_selector: BTreeMap<String, String>,
    /// Writes the drivers' pod specs out in definitions without one.
    pub show_default_pod_spec: bool,
    /// A private key for the e2e tests.
    pub ssh_key: Option<Vec<u8>>,
    /// Registry credentials for the e2e tests.
    pub docker_config: Option<Vec<u8>>,
    /// How much the aggregator logs.
    pub level: String,
    /// Whether the aggregator's pod is made to survive more than the original's, and plugins have accounts of their own.
    pub harden: bool,
    /// Refuses plugins that do not say what they need.
    pub declared_only: bool,
    /// The service that publishes the status of the run, if there is one.
    pub status_service: Option<service::Service>,
    /// Where the aggregator uploads the archive to: a secret.
    pub upload: Option<String>,
    /// The authorities that the aggregator trusts for it besides its image's, as PEM.
    pub upload_authorities: String,
    /// The volume claim that keeps results; empty is the pod's own disk.
    pub results_pvc: String,
    /// Runs tests in several plugins beside each other.
    pub split: Option<Split>,
}

/// How the tests of a plugin are split.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Split {
    /// Into so many parts.
    pub parts: usize,
    /// The names of all tests there are.
    pub tests: Vec<String>,
}

/// What a flag changes in the plugin of that name, if it is part of the run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The image of its container.
    Image {
        /// The plugin's name.
        plugin: String,
        /// What is pulled.
        image: String,
    },
    /// One more file in its config map.
    File {
        /// The plugin's name.
        plugin: String,
        /// The file's name.
        name: String,
        /// What is in it.
        text: String,
    },
    /// Another word at the end of a variable.
    Word {
        /// The plugin's name.
        plugin: String,
        /// The variable.
        variable: String,
        /// The word.
        word: String,
    },
    /// The secret with the private key, where the tests look for it.
    SshKey {
        /// The plugin's name.
        plugin: String,
    },
    /// The secret with the credentials of registries, as a file.
    Credentials {
        /// The plugin's name.
        plugin: String,
        /// The secret's name.
        secret: String,
        /// The file's name.
        name: String,
    },
    /// All images of all plugins come from this registry.
    Registry(String),
}

impl Plan {
    /// The plugins with everything done to them that happens before they are sent to the cluster.
    pub(crate) fn prepared(&self) -> Result<Vec<Definition>> {
        prepare::plugins(self)
    }

    /// Sentences about plugins that may do more than they say.
    pub(crate) fn notes(&self) -> Result<Vec<String>> {
        Ok(rights::Rights::new(self, &self.plugins)?.notes())
    }

    /// The objects of the run, in the order in which they must be created.
    pub(crate) fn manifest(&self) -> Result<Vec<Value>> {
        manifest::objects(self, &self.prepared()?)
    }

    /// A selection that nothing defines would end the aggregator in its pod, unless another search path defines it there.
    pub(crate) fn check_selection(&self) -> Result<()> {
        let plugins = self.prepared()?;
        let elsewhere = self.run.plugin_search_path != config::Run::default().plugin_search_path;
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

/// Objects as one YAML text, each followed by `---`.
pub(crate) fn to_yaml(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("{}---\n", yaml::write(object))).collect()
}
