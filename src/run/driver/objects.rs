//! What a driver has in a cluster: its settings and the client, and the creation of objects, which
//! [`super::pod`] defines.
//!
//! Owns what to do about objects of an earlier aggregator, and the remedies if one is refused.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::pod::{ClusterLaunch, attempt};
use super::roster::{Roster, is_own};
use super::session;
use crate::backplane::Authority;
use base::clock::{self, passed};
use base::json::{json, list_in};
use base::stop::Stop;
use client::protocol::ResultId;
use kube::{self, Object as _, Obstacle, Resource, Stage};
use model::config;
use model::names::env;
use model::nodes::Ring;
use model::plugin::{Definition, DriverKind};

/// Interval of checks for findings that depend on time alone.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time for a node to end a pod after the end of its grace period.
const REMOVAL_GRACE: Duration = Duration::from_secs(15);

/// Runs plugins in a cluster.
pub struct ClusterDriver<'r> {
    /// Client that retries long enough to outlast an outage of the API server.
    pub client: kube::Client,
    /// Settings of the run.
    pub config: &'r config::Run,
    /// Authority of the run.
    pub authority: &'r Authority,
    /// Audience of the tokens that Kubernetes issues to the pods, unless the workers of a plugin
    /// share a certificate.
    pub audience: Option<String>,
    /// Whether workers are in this program's image, and so send heartbeats.
    pub has_own_workers: bool,
    /// Name and uid of the aggregator's pod, which owns everything.
    pub owner: (String, String),
    /// The plugins' pods, for checking which pod a token belongs to.
    pub roster: Roster,
    /// The nodes at the start of the run, for plugins that probe others.
    pub ring: Ring,
    /// Whether the worker of a result has ever contacted the aggregator, or is not awaited.
    pub has_contacted: &'r (dyn Fn(&ResultId) -> bool + Sync),
    /// Whether a result is being received.
    pub is_receiving: &'r (dyn Fn(&ResultId) -> bool + Sync),
    /// Whether a result has arrived or failed.
    pub is_settled: &'r (dyn Fn(&ResultId) -> bool + Sync),
    /// Keeps the logs of a pod that is about to be deleted.
    pub keep_logs: &'r (dyn Fn(&Value) + Sync),
}

impl ClusterDriver<'_> {
    pub(super) fn launch<'a>(&'a self, definition: &'a Definition) -> ClusterLaunch<'a> {
        ClusterLaunch {
            definition,
            session: session(self.config, definition.name()),
            config: self.config,
            ca_cert: self.authority.certificate_pem(),
            owner: (&self.owner.0, &self.owner.1),
            audience: self.audience.as_deref(),
        }
    }

    /// Whether another pod has replaced a Job's first one, before a restart of the aggregator.
    pub(super) fn was_replaced(&self, launch: &ClusterLaunch<'_>) -> anyhow::Result<bool> {
        if launch.definition.config.driver != DriverKind::Job || self.config.retries.node_lost == 0
        {
            return Ok(false);
        }
        let pods = self
            .client
            .list(&Resource::PODS, &self.config.namespace, &launch.selector())?;
        let aggregator_uid = &self.owner.1;
        Ok(pods.iter().any(|pod| {
            is_own(&pod["metadata"]["ownerReferences"], "", aggregator_uid) && attempt(pod) > 1
        }))
    }

    /// Tells the plugin in a pod on `node` about other nodes, if it asks for them.
    pub(super) fn name_peers(&self, pod: &mut Value, plugin: &Definition, node: &str) {
        let count = usize::from(plugin.config.peers);
        if count == 0 || !plugin.config.driver.is_per_node() {
            return;
        }
        let peers = json!(self.ring.peers(node, count)).to_string();
        let containers = pod["spec"]["containers"].as_array_mut();
        let mut containers = containers.into_iter().flatten();
        let is_of_plugin = |container: &&mut Value| container["name"] == plugin.spec["name"];
        if let Some(container) = containers.find(is_of_plugin) {
            let variable = json!({"name": env::PEERS, "value": peers});
            list_in(container, "env").push(variable);
        }
    }

    /// Creates an object. Adopts an existing one of this aggregator pod, from before a restart;
    /// waits until one of an earlier pod is deleted.
    pub(super) fn create(
        &self,
        resource: &Resource,
        object: &Value,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        loop {
            match self.client.create(resource, &self.config.namespace, object) {
                // The outcome is unknown; the fixed name prevents a duplicate.
                Err(kube::Error::Transport {
                    stage: Stage::Sent, ..
                }) if !stop.wait(CHECK_INTERVAL) => {}
                Err(error)
                    if error.already_exists()
                        && self.is_left_over(resource, object)
                        && !stop.wait(CHECK_INTERVAL) => {}
                Err(error) if !error.already_exists() => {
                    let what = format!("creating {} `{}`", resource.kind, object.name());
                    return Err(match remedy(error.obstacle()) {
                        Some(remedy) => anyhow::anyhow!("{what}: {error}; {remedy}"),
                        None => anyhow::Error::new(error).context(what),
                    });
                }
                _ => return Ok(()),
            }
        }
    }

    /// Whether the object with the name of `object` is owned by another pod, or was deleted
    /// meanwhile. Removes it if its node has not done that in time.
    fn is_left_over(&self, resource: &Resource, object: &Value) -> bool {
        let namespace = &self.config.namespace;
        let existing = match self.client.find(resource, namespace, object.name()) {
            Ok(Some(existing)) => existing,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let meta = &existing["metadata"];
        if ["", &*self.owner.1].contains(&meta["ownerReferences"][0]["uid"].text()) {
            return false;
        }
        // The time of a deletion includes the grace period.
        let deleted = meta["deletionTimestamp"]
            .as_str()
            .and_then(clock::parse_rfc3339);
        if deleted.is_some_and(|deleted| passed(deleted, REMOVAL_GRACE, SystemTime::now())) {
            log::info!(
                "removing `{}` of an earlier aggregator, whose node does not respond",
                object.name()
            );
            if let Err(error) = self.client.delete_now(resource, namespace, &existing) {
                log::debug!("`{}` is not removed: {error}", object.name());
            }
        }
        true
    }
}

/// Remedy when a pod may not be created.
pub(super) fn remedy(obstacle: Option<Obstacle>) -> Option<&'static str> {
    match obstacle? {
        Obstacle::PodSecurity => Some(
            "give the plugin a securityContext that the namespace allows, or label the namespace \
             `pod-security.kubernetes.io/enforce=privileged`",
        ),
        Obstacle::Quota => {
            // A quota on limits also refuses containers without limits.
            Some(
                "raise the quota of the namespace, or give each of the plugin's containers \
                 `resources` within it, and the worker in `WorkerResources` of the configuration",
            )
        }
        _ => None,
    }
}
