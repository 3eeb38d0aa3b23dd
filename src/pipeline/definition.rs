//! Metadata of a plugin in the folder of a run: its definition, and the parts and attempts merged into its results.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::aggregator::{Aggregator, Received};
use crate::config;
use crate::driver::Plugin;
use crate::layout;
use crate::plugin::builtin;
use crate::process::{Expected, Rules};
use base::at::At as _;
use base::json::json;

/// Writes the definition of a plugin into its folder.
pub(super) fn describe(plugin: &Plugin<'_>, config: &config::Run, run_dir: &Path) -> anyhow::Result<()> {
    let dir = run_dir.join(layout::plugin(plugin.definition.name()));
    fs::create_dir_all(&dir).at("cannot create", &dir)?;
    write_json(&dir.join(layout::DEFINITIONS[0]), &description(plugin, config))
}

/// Rules for reading the results of a plugin, with those of its parts and attempts.
pub(super) fn rules(
    aggregator: &Aggregator,
    plugin: &Plugin<'_>,
    plugins: &[Plugin<'_>],
    attempts: &[Plugin<'_>],
    config: &config::Run,
) -> Rules {
    let name = plugin.definition.name();
    let own = |plugins: &[Plugin<'_>]| {
        let definitions = plugins.iter().map(|plugin| plugin.definition);
        let own = definitions.filter(|one| one.config.part_of.as_deref() == Some(name));
        own.map(|one| one.name().to_owned()).filter(|one| aggregator.expects(one)).collect::<Vec<_>>()
    };
    let expected = aggregator.received().into_iter();
    let expected = expected.map(|Received { plugin, node, error, .. }| Expected { plugin, node, error });
    let limit = config.limits.processing.time;
    let mut rules = Rules {
        parts: own(plugins),
        attempts: own(attempts),
        expected: expected.collect(),
        limit: Instant::now().checked_add(limit).map(|end| (end, limit)),
        ..(&plugin.definition.config).into()
    };
    if name == builtin::E2E {
        rules.resumed = (config.resumes.clone(), config.resumed_tests.clone());
    }
    rules
}

/// A definition as in archives, with the settings of its launch.
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
    fs::write(path, value.to_string()).at("cannot write", path)
}
