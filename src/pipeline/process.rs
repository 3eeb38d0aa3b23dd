//! The step between the last result and the archive: processes what plugins sent, and writes their definitions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use super::retry::Retries;
use crate::aggregator::Aggregator;
use crate::config;
use crate::driver::Plugin;
use crate::process::Rules;
use crate::{layout, process};
use base::json::json;

/// Processes the results of all `plugins` in `run_dir`, and writes their definitions there. Those of parts and attempts become
/// part of another plugin's. If one plugin fails, that is logged and counted, and does not affect the others.
pub(super) fn process(aggregator: &Aggregator, retries: &Retries<'_>) -> usize {
    let mut errors = 0;
    for plugin in retries.plugins {
        if let Err(error) = process_one(aggregator, plugin, retries) {
            log::error!("plugin `{}`: {error:#}", plugin.definition.name());
            errors += 1;
        }
    }
    errors
}

/// Writes the definition of a plugin into its folder, which this returns.
pub(super) fn describe(plugin: &Plugin<'_>, config: &config::Run, run_dir: &Path) -> anyhow::Result<PathBuf> {
    let dir = run_dir.join(layout::plugin(plugin.definition.name()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot make `{}`", dir.display()))?;
    write_json(&dir.join(layout::DEFINITIONS[0]), &description(plugin, config))?;
    Ok(dir)
}

/// How the results of a plugin are to be read, with those of its parts and of the attempts there were.
pub(super) fn rules(
    aggregator: &Aggregator,
    plugin: &Plugin<'_>,
    plugins: &[Plugin<'_>],
    attempts: &[Plugin<'_>],
) -> Rules {
    let name = plugin.definition.name();
    let own = |plugins: &[Plugin<'_>]| {
        let definitions = plugins.iter().map(|plugin| plugin.definition);
        let own = definitions.filter(|one| one.config.part_of.as_deref() == Some(name));
        own.map(|one| one.name().to_owned()).filter(|one| aggregator.expects(one)).collect::<Vec<_>>()
    };
    Rules { parts: own(plugins), attempts: own(attempts), ..(&plugin.definition.config).into() }
}

fn process_one(aggregator: &Aggregator, plugin: &Plugin<'_>, retries: &Retries<'_>) -> anyhow::Result<()> {
    let config = retries.config;
    let name = plugin.definition.name();
    let dir = describe(plugin, config, retries.run_dir)?;
    if plugin.definition.config.part_of.is_some() {
        return Ok(());
    }
    let rules = rules(aggregator, plugin, retries.plugins, retries.attempts);
    let outcome = match process::process_apart(&dir, &rules, &config.limits.processing) {
        Ok(outcome) => outcome,
        Err(error) => {
            // A failure of this plugin only: the archive says so.
            let outcome = process::unprocessed(&dir, &rules, &format!("{error:#}"))?;
            aggregator.processed(name, |_| Some((outcome.status.clone(), outcome.counts.clone())));
            return Err(error);
        }
    };
    let of = |name: &str| {
        let (_, own) = outcome.nodes.iter().find(|(other, _)| other == name)?;
        Some((own.status.clone(), own.counts.clone()))
    };
    aggregator.processed(name, |id| match id.is_global() {
        true => Some((outcome.status.clone(), outcome.counts.clone())),
        false => of(&id.node),
    });
    for part in rules.parts.iter().chain(&rules.attempts) {
        aggregator.processed(part, |_| of(part));
    }
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
