//! The step between the last result and the archive: processes what plugins sent.

use anyhow::ensure;

use super::retry::RunContext;
use crate::driver::PluginLaunch;
use crate::item::FAILED;
use crate::{layout, process};
use base::stop::caught;

/// Processes the results of all plugins. Those of parts and attempts become part of another plugin's. Returns the number of errors: results whose files are not what arrived, expected results without files, and
/// plugins that could not be processed, which does not affect the others.
pub(super) fn process(context: &RunContext<'_>) -> usize {
    let mut errors = context.aggregator.store.verify();
    for plugin in &context.plugins {
        if let Err(error) = process_one(plugin, context) {
            log::error!("plugin `{}`: {error:#}", plugin.definition.name());
            errors += 1;
        }
    }
    errors
}

fn process_one(plugin: &PluginLaunch<'_>, context: &RunContext<'_>) -> anyhow::Result<()> {
    if plugin.definition.config.part_of.is_some() {
        return Ok(());
    }
    let name = plugin.definition.name();
    let dir = context.run_dir.join(layout::plugin(name));
    let rules = context.rules(plugin);
    let outcome = match caught(|| process::process(&dir, &rules)) {
        Ok(outcome) => outcome,
        Err(error) => {
            // A failure of this plugin only: status and archive say so.
            context.aggregator.processed(name, |_| Some((FAILED.into(), [(FAILED.into(), 1)].into())));
            process::unprocessed(&dir, &rules, &format!("its results could not be processed: {error:#}"))?;
            return Err(error);
        }
    };
    let of = |name: &str| {
        let mut own = outcome.nodes.iter().filter(|(other, _)| other == name).map(|(_, own)| own);
        // A node whose results are there and have failed all the same is listed twice.
        let (first, last) = (own.next()?, own.next_back());
        let own = last.filter(|last| last.status == FAILED).unwrap_or(first);
        Some((own.status.clone(), own.counts.clone()))
    };
    context.aggregator.processed(name, |id| match id.is_global() {
        true => Some((outcome.status.clone(), outcome.counts.clone())),
        false => of(&id.node),
    });
    for part in rules.parts.iter().chain(&rules.attempts) {
        context.aggregator.processed(part, |_| of(part));
    }
    ensure!(outcome.missing == 0, "files of {} expected results are missing", outcome.missing);
    Ok(())
}
