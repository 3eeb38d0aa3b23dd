//! The step between the last result and the archive: processes what plugins sent, and writes their definitions.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::aggregator::Aggregator;
use crate::config;
use crate::driver::Plugin;
use crate::{layout, process};
use base::json::json;

/// Processes the results of all `plugins` in `run_dir`, and writes their definitions there. If one plugin fails, that is
/// logged and counted, and does not affect the others.
pub(super) fn process(
    aggregator: &Aggregator,
    plugins: &[Plugin<'_>],
    config: &config::Run,
    run_dir: &Path,
) -> usize {
    let mut errors = 0;
    for plugin in plugins {
        if let Err(error) = process_one(aggregator, plugin, config, run_dir) {
            log::error!("plugin `{}`: {error:#}", plugin.definition.name());
            errors += 1;
        }
    }
    errors
}

fn process_one(
    aggregator: &Aggregator,
    plugin: &Plugin<'_>,
    config: &config::Run,
    run_dir: &Path,
) -> anyhow::Result<()> {
    let name = plugin.definition.name();
    let dir = run_dir.join(layout::plugin(name));
    fs::create_dir_all(&dir).with_context(|| format!("cannot make `{}`", dir.display()))?;
    write_json(&dir.join(layout::DEFINITIONS[0]), &description(plugin, config))?;
    let rules = (&plugin.definition.config).into();
    let outcome = match process::process_apart(&dir, &rules, &config.limits.processing) {
        Ok(outcome) => outcome,
        Err(error) => {
            // A failure of this plugin only: the archive says so.
            let outcome = process::unprocessed(&dir, &rules, &format!("{error:#}"))?;
            aggregator.processed(name, |_| Some((outcome.status.clone(), outcome.counts.clone())));
            return Err(error);
        }
    };
    aggregator.processed(name, |id| {
        if id.is_global() {
            return Some((outcome.status.clone(), outcome.counts.clone()));
        }
        let (_, of_node) = outcome.nodes.iter().find(|(node, _)| *node == id.node)?;
        Some((of_node.status.clone(), of_node.counts.clone()))
    });
    Ok(())
}

/// A definition as in archives, with what it was started with.
fn description(plugin: &Plugin<'_>, config: &config::Run) -> Value {
    json!({
        "Definition": plugin.definition.to_value(),
        "SessionID": plugin.session,
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
    fs::write(path, value.to_string()).with_context(|| format!("cannot write `{}`", path.display()))
}
