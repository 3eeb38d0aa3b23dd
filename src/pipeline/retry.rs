//! Retries failed tests of a plugin individually, in the same run.
//!
//! An attempt is another launch of the plugin, under a separate name, with the names of the failed
//! tests as its focus. Its results stay next to the plugin's; `process` merges them. After a
//! restart, the current attempt continues: the failed tests are always derived from the results.
//! Starts no thread.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::time::Instant;

use super::conduct::describe;
use super::context::RunContext;
use base::at::At as _;
use base::stop::Stop;
use client::protocol::ResultId;
use model::plugin::{Definition, builtin, focus};
use model::{config, layout};
use run::aggregator::Received;
use run::driver::PluginLaunch;
use run::process;
use run::process::{Expected, ReadingRules};

/// All attempts that a run may need, in their order.
pub(super) fn attempts(config: &config::Run, definitions: &[Definition]) -> Vec<Definition> {
    let numbers = 1..=u32::try_from(config.retry_failed).unwrap_or_default();
    let retried = definitions
        .iter()
        .filter(|definition| definition.can_retry());
    retried
        .flat_map(|definition| {
            numbers
                .clone()
                .map(move |number| attempt(definition, number))
        })
        .collect()
}

fn attempt(definition: &Definition, number: u32) -> Definition {
    let mut attempt = definition.clone();
    attempt.config.part_of = Some(definition.name().to_owned());
    attempt.config.plugin_name = layout::attempt(definition.name(), number);
    attempt
}

/// A launch of each definition, with its expected results.
pub(super) fn launches(
    definitions: &[Definition],
    expected: impl IntoIterator<Item = Vec<ResultId>>,
) -> Vec<PluginLaunch<'_>> {
    definitions
        .iter()
        .zip(expected)
        .map(|(definition, ids)| PluginLaunch { definition, ids })
        .collect()
}

impl RunContext<'_> {
    /// Retries the failed tests of `plugin` by `launch` until none is left, or no attempt.
    pub(super) fn retry_failed(
        &self,
        plugin: &PluginLaunch<'_>,
        launch: impl Fn(&PluginLaunch<'_>),
        stop: &Stop,
    ) {
        let name = plugin.definition.name();
        for attempt in self
            .attempts
            .iter()
            .filter(|attempt| attempt.results_plugin() == name)
        {
            if stop.stopped() {
                return;
            }
            let attempt_name = attempt.name();
            let state = self.aggregator.store.lock();
            let is_over = state.expects(attempt_name) && state.settled(attempt_name);
            drop(state);
            if is_over {
                // From before a restart: this attempt was launched, as its definition shows.
                continue;
            }
            let was_retried = self.failed(plugin).and_then(|failed| {
                let Some(definition) = focused(attempt, &failed) else {
                    return Ok(false);
                };
                log::info!(
                    "plugin `{name}`: {} of its tests failed, and are started again \
                     as `{attempt_name}`",
                    failed.len()
                );
                let attempt = PluginLaunch {
                    definition: &definition,
                    ids: vec![ResultId::global(attempt_name)],
                };
                describe(&attempt, self)?;
                self.aggregator.store.expect(&attempt.ids[0])?;
                launch(&attempt);
                Ok(true)
            });
            match was_retried {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    return log::warn!(
                        "plugin `{name}`: its failed tests are not started again: {error:#}"
                    );
                }
            }
        }
    }

    /// Plugins that are not parts of others.
    pub(super) fn wholes(&self) -> impl Iterator<Item = &PluginLaunch<'_>> {
        self.plugins
            .iter()
            .filter(|plugin| plugin.definition.config.part_of.is_none())
    }

    /// Plugins to remove after the run.
    pub(super) fn to_remove(&self) -> impl Iterator<Item = &Definition> {
        let attempts = self
            .attempts
            .iter()
            .filter(|attempt| self.aggregator.store.lock().expects(attempt.name()));
        let all = self
            .plugins
            .iter()
            .map(|plugin| plugin.definition)
            .chain(attempts);
        all.filter(|plugin| !plugin.config.skip_cleanup)
    }

    /// Rules for reading the results of a plugin, with those of its parts and attempts.
    pub(super) fn rules(&self, plugin: &PluginLaunch<'_>) -> ReadingRules {
        let config = &plugin.definition.config;
        let name = plugin.definition.name();
        let names_of_parts = |definitions: Vec<&Definition>| {
            let parts = definitions
                .into_iter()
                .filter(|one| one.config.part_of.as_deref() == Some(name));
            parts
                .map(|one| one.name().to_owned())
                .filter(|one| self.aggregator.store.lock().expects(one))
                .collect()
        };
        let expected = self.aggregator.store.lock().received().into_iter();
        let expected = expected.map(
            |Received {
                 plugin,
                 node,
                 error,
                 receipt,
             }| Expected {
                plugin,
                node,
                error,
                dropped: receipt.dropped,
            },
        );
        let limit = self.config.limits.processing.time;
        ReadingRules {
            name: name.to_owned(),
            per_node: config.driver.is_per_node(),
            format: config.result_format.clone(),
            files: config.result_files.clone(),
            parts: names_of_parts(
                self.plugins
                    .iter()
                    .map(|plugin| plugin.definition)
                    .collect(),
            ),
            attempts: names_of_parts(self.attempts.iter().collect()),
            expected: expected.collect(),
            limit: Instant::now().checked_add(limit).map(|end| (end, limit)),
            resumed: match name {
                builtin::E2E => (
                    self.config.resumes.clone(),
                    self.config.resumed_tests.clone(),
                ),
                _ => Default::default(),
            },
        }
    }

    /// The tests that have failed in every attempt so far.
    fn failed(&self, plugin: &PluginLaunch<'_>) -> anyhow::Result<BTreeSet<String>> {
        let dir = self.run_dir.join(layout::plugin(plugin.definition.name()));
        if ![layout::RESULTS, layout::ERRORS]
            .iter()
            .any(|part| dir.join(part).is_dir())
        {
            return Ok(BTreeSet::new());
        }
        let rules = self.rules(plugin);
        process::process(&dir, &rules)?;
        let tree = dir.join(layout::TREE);
        let file = File::open(&tree).at("cannot read", &tree)?;
        let names = report::failed_in(file)?;
        // Temporary until the run is processed.
        fs::remove_file(&tree).at("cannot remove", &tree)?;
        Ok(names
            .into_iter()
            .map(|name| name.trim().to_owned())
            .collect())
    }
}

/// Definition of an attempt at exactly these tests, in sequence; none without tests.
fn focused(definition: &Definition, tests: &BTreeSet<String>) -> Option<Definition> {
    if tests.is_empty() {
        return None;
    }
    let focused = focus::only(definition, tests.iter().map(String::as_str), true);
    if focused.is_none() {
        let (name, count) = (definition.results_plugin(), tests.len());
        log::warn!("plugin `{name}`: {count} failed tests are too many to be started again");
    }
    focused
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;
    use model::plugin::DriverKind;
    use model::plugin::focus::{FOCUS, PARALLEL};

    fn plugin(format: &str, variable: &str) -> Definition {
        let spec = json!({"name": "plugin", "env": [{"name": variable, "value": "x"}]});
        let mut definition = Definition::new("p", DriverKind::Job, spec);
        definition.config.result_format = format.into();
        definition
    }

    #[test]
    fn only_plugins_with_focus_and_tests_are_retried() {
        let mut each_node = plugin("junit", FOCUS);
        each_node.config.driver = DriverKind::DaemonSet;
        let part = attempt(&plugin("junit", FOCUS), 1);
        let all = [
            plugin("junit", FOCUS),
            plugin("raw", FOCUS),
            plugin("junit", "FOCUS"),
            each_node,
            part,
        ];
        let config = config::Run {
            retry_failed: 2,
            ..config::Run::standard()
        };
        let attempts = attempts(&config, &all);
        let names: Vec<_> = attempts
            .iter()
            .map(|one| (one.name(), one.results_plugin()))
            .collect();
        assert_eq!(names, [("p-retry-1", "p"), ("p-retry-2", "p")]);
        assert!(
            attempts
                .iter()
                .all(|one| layout::is_attempt(one.name(), "p"))
        );
        assert_eq!(super::attempts(&config::Run::standard(), &all), []);
    }

    #[test]
    fn few_failed_tests_are_retried_serially() {
        let mut definition = plugin("junit", FOCUS);
        definition.set_env([(PARALLEL, "y")]);
        let attempt = focused(&definition, &["b".to_owned()].into()).unwrap();
        assert_eq!(
            (attempt.env(PARALLEL), attempt.env(FOCUS)),
            (Some("false"), Some("(^| )(b)$"))
        );
        assert_eq!(focused(&definition, &BTreeSet::new()), None);
        let many: BTreeSet<String> = (0..10_000)
            .map(|number| format!("a rather long name {number}"))
            .collect();
        assert_eq!(focused(&definition, &many), None);
    }
}
