//! The step between the last result and the archive: processes what plugins sent, and writes their definitions.

use super::definition;
use super::retry::Retries;
use crate::aggregator::Aggregator;
use crate::driver::Plugin;
use crate::process;

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

fn process_one(aggregator: &Aggregator, plugin: &Plugin<'_>, retries: &Retries<'_>) -> anyhow::Result<()> {
    let config = retries.config;
    let name = plugin.definition.name();
    let dir = definition::describe(plugin, config, retries.run_dir)?;
    if plugin.definition.config.part_of.is_some() {
        return Ok(());
    }
    let rules = definition::rules(aggregator, plugin, retries.plugins, retries.attempts, config);
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
