//! The definition of a plugin in the folder of a run.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::config;
use crate::driver::{PluginLaunch, session};
use crate::layout;
use base::at::At as _;
use base::json::json;

/// Writes the definition of a plugin into its folder.
pub(super) fn describe(
    plugin: &PluginLaunch<'_>,
    config: &config::Run,
    run_dir: &Path,
) -> anyhow::Result<()> {
    let dir = run_dir.join(layout::plugin(plugin.definition.name()));
    fs::create_dir_all(&dir).at("cannot create", &dir)?;
    write_json(&dir.join(layout::DEFINITIONS[0]), &description(plugin, config))
}

/// A definition as in archives, with the settings of its launch.
fn description(plugin: &PluginLaunch<'_>, config: &config::Run) -> Value {
    json!({
        "Definition": plugin.definition.to_value(),
        "SessionID": session(config, plugin.definition.name()),
        "Namespace": config.namespace,
        "SonobuoyImage": config.worker_image,
        "CleanedUp": !plugin.definition.config.skip_cleanup,
        "ImagePullPolicy": config.image_pull_policy,
        "ImagePullSecrets": config.image_pull_secrets,
        "CustomAnnotations": config.custom_annotations,
    })
}

/// Writes compact JSON without a newline, like all small files of an archive.
pub(super) fn write_json(path: &Path, value: &Value) -> anyhow::Result<()> {
    fs::write(path, value.to_string()).at("cannot write", path)
}
