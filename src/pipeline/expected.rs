//! Which results a run in a cluster expects: of each plugin, one, or one from each suitable node.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::context::ClusterRun;
use super::pack::write_json;
use super::permissions::FreshPermissions;
use base::json::json;
use client::protocol::{Failure, ResultId};
use kube::{self, Resource, Selector};
use model::layout;
use model::nodes::Ring;
use model::plugin::{Definition, DriverKind};
use run::driver;

/// Expected results.
#[derive(Default)]
pub(super) struct ExpectedResults {
    /// Of each plugin, in the order of the definitions.
    pub by_plugin: Vec<Vec<ResultId>>,
    /// Of plugins that run on nodes, if the nodes are unknown or none was chosen: such a plugin has
    /// a single result, which has failed.
    pub failures: Vec<Failure>,
    /// The nodes that plugins can probe.
    pub ring: Ring,
}

/// The nodes of the cluster, or why they are unknown.
enum Nodes {
    Known(Vec<Value>),
    Forbidden(String),
}

impl ClusterRun<'_> {
    /// Decides which results to expect; records in `run_dir` which nodes were excluded, and why.
    pub(super) fn expected_results(
        &self,
        run_dir: &Path,
        permissions: &FreshPermissions<'_>,
    ) -> Result<ExpectedResults> {
        let nodes = self.nodes(permissions)?;
        let mut results = ExpectedResults::default();
        if let Nodes::Known(nodes) = &nodes {
            results.ring = Ring::of(nodes);
        }
        let mut excluded = BTreeMap::new();
        for definition in &self.definitions {
            let nodes = match &nodes {
                Nodes::Forbidden(why) if definition.config.driver.is_per_node() => {
                    results.add_failed(definition, |id| Failure::skipped(id, why));
                    continue;
                }
                Nodes::Forbidden(_) => &[],
                Nodes::Known(nodes) => nodes.as_slice(),
            };
            let (ids, others) =
                driver::cluster::expected(definition, &self.config, nodes, &self.config.uuid);
            if definition.config.driver == DriverKind::Nodes && ids.is_empty() {
                let why = match others.first_key_value() {
                    Some((node, why)) => format!("no node was chosen: on `{node}`, {why}"),
                    None => "no node was chosen".to_owned(),
                };
                results.add_failed(definition, |id| Failure::new(id, why));
            } else {
                results.by_plugin.push(ids);
            }
            if !others.is_empty() {
                log::info!(
                    "plugin `{}`: {} of {} nodes are excluded, listed in `{}`",
                    definition.name(),
                    others.len(),
                    nodes.len(),
                    layout::EXCLUDED
                );
                excluded.insert(definition.name(), others);
            }
        }
        if !excluded.is_empty() {
            write_json(&run_dir.join(layout::EXCLUDED), &json!(excluded))?;
        }
        Ok(results)
    }

    /// The nodes, if a plugin needs them.
    fn nodes(&self, permissions: &FreshPermissions<'_>) -> Result<Nodes> {
        let is_per_node = |definition: &Definition| definition.config.driver.is_per_node();
        if !self.definitions.iter().any(is_per_node) {
            return Ok(Nodes::Known(Vec::new()));
        }
        match permissions.retry_forbidden(|| self.list_nodes()) {
            Ok(nodes) => Ok(Nodes::Known(nodes)),
            Err(error) if error.is_forbidden() => {
                let why = format!(
                    "it runs on each node, but the run may not list the nodes: allow more with \
                     `--aggregator-permissions` ({error})"
                );
                log::warn!("plugins that run on each node are skipped: {why}");
                Ok(Nodes::Forbidden(why))
            }
            Err(error) => Err(error).context("listing the nodes"),
        }
    }

    fn list_nodes(&self) -> Result<Vec<Value>, kube::Error> {
        let mut nodes = Vec::new();
        let mut add = |mut node| {
            driver::cluster::shrink_node(&mut node);
            nodes.push(node);
            Ok(())
        };
        self.client
            .each(&Resource::NODES, "", &Selector::all(), &mut add)?;
        Ok(nodes)
    }
}

impl ExpectedResults {
    /// Adds a plugin with a single result, which has failed.
    fn add_failed(&mut self, definition: &Definition, failure: impl FnOnce(ResultId) -> Failure) {
        let id = ResultId::global(definition.name());
        self.failures.push(failure(id.clone()));
        self.by_plugin.push(vec![id]);
    }
}
