//! Creates the objects of a plugin in a cluster, and removes them.
//!
//! Owns the API calls for these objects, which [`super::pod`] defines. [`super::follower`] follows
//! them.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::node::refusal;
pub use super::pod::object_name;
use super::pod::{ClusterLaunch, attempt};
use super::roster::{Roster, is_own};
use super::{Driver, POD_GRACE, PluginLaunch, follower, session};
use crate::backplane::Authority;
use base::clock::{self, passed};
use base::json::{json, list_in};
use base::stop::Stop;
use client::protocol::{Finding, ResultId};
use kube::{self, Object as _, Obstacle, Request, Resource, Selector, Stage};
use model::config;
use model::names::env;
use model::nodes::{Choice, Order, Ring, zone};
use model::plugin::{Definition, DriverKind, default_spec};

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

impl Driver for ClusterDriver<'_> {
    fn run(
        &self,
        plugin: &PluginLaunch<'_>,
        findings: &SyncSender<Finding>,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let launch = self.launch(plugin.definition);
        let driver = plugin.definition.config.driver;
        if self.audience.is_none() {
            let identity = self.authority.client(plugin.definition.name())?;
            self.create(
                &Resource::SECRETS,
                &launch.secret(&identity.cert_pem, &identity.key_pem),
                stop,
            )?;
        }
        if driver != DriverKind::Nodes && !self.was_replaced(&launch)? {
            self.create(resource(&launch), &launch.object(), stop)?;
        }
        follower::follow(self, &launch, &plugin.ids, findings, stop);
        Ok(())
    }

    fn remove(&self, plugin: &Definition) -> anyhow::Result<()> {
        let launch = self.launch(plugin);
        let (namespace, selector) = (&self.config.namespace, launch.selector());
        let pods = Request::delete_collection(&Resource::PODS, namespace, &selector);
        // Before their DaemonSet, whose deletion would give them the time in their specs.
        self.client.send(&pods.grace_period(cleanup_time(plugin)))?;
        if plugin.config.driver == DriverKind::DaemonSet {
            let sets = Request::delete_collection(&Resource::DAEMON_SETS, namespace, &selector);
            self.client.send(&sets)?;
        }
        if self.audience.is_some() {
            return Ok(());
        }
        Ok(self
            .client
            .delete(&Resource::SECRETS, namespace, &launch.secret_name())?)
    }
}

/// Results expected from a plugin, given all `nodes` of the cluster, and the reason for each node
/// without one. The same `seed` chooses the same sample.
pub fn expected(
    definition: &Definition,
    config: &config::Run,
    nodes: &[Value],
    seed: &str,
) -> (Vec<ResultId>, BTreeMap<String, String>) {
    let plugin = definition.name();
    let driver = definition.config.driver;
    if driver == DriverKind::Job {
        return (vec![ResultId::global(plugin)], BTreeMap::new());
    }
    let default = default_spec(driver, &config.service_account_name);
    let spec = definition.pod_spec.as_ref().unwrap_or(&default);
    let mut excluded = BTreeMap::new();
    let fit = nodes.iter().filter(|node| {
        refusal(spec, node)
            .map(|why| excluded.insert(node.name().to_owned(), why))
            .is_none()
    });
    let choice = if driver == DriverKind::Nodes {
        config.nodes.clone()
    } else {
        Choice::default()
    };
    let (mut chosen, others) = choice.choose(fit, seed);
    if definition.config.waves.order == Order::Zone {
        chosen.sort_by_key(|node| zone(node));
    }
    excluded.extend(others);
    (
        chosen
            .into_iter()
            .map(|node| ResultId::on_node(plugin, node.name()))
            .collect(),
        excluded,
    )
}

/// Session of a dry run.
const NO_SESSION: &str = "0000000000000000";

/// Whether a secret of this name in the pod of a dry run is created by the run.
pub fn is_made_later(name: &str) -> bool {
    name.ends_with(NO_SESSION)
}

/// The pod that a plugin would get, for a dry run.
pub fn pod(definition: &Definition, config: &config::Run) -> Value {
    let session = NO_SESSION.to_owned();
    let ca_cert = String::new();
    let launch = ClusterLaunch {
        definition,
        session,
        config,
        ca_cert,
        owner: ("", ""),
        audience: None,
    };
    let metadata = json!({
        "name": launch.object_name(),
        "namespace": config.namespace,
        "labels": launch.object()["metadata"]["labels"],
    });
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": launch.pod_spec()})
}

/// Drops the fields of a node that neither [`expected`] nor [`Ring`] reads; the list of images
/// alone can be long.
pub fn shrink_node(node: &mut Value) {
    *node = json!({
        "metadata": {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]},
        "spec": {"taints": node["spec"]["taints"]},
        "status": {
            "conditions": node.condition("Ready").as_slice(),
            "addresses": node["status"]["addresses"],
            "daemonEndpoints": node["status"]["daemonEndpoints"],
        },
    });
}

impl ClusterDriver<'_> {
    fn launch<'a>(&'a self, definition: &'a Definition) -> ClusterLaunch<'a> {
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
    fn was_replaced(&self, launch: &ClusterLaunch<'_>) -> anyhow::Result<bool> {
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

/// Deletes a namespace that was made for a run, with all that is in it or belongs to it; the
/// cluster completes that by itself. Its pods are deleted at once: one on a node that does not
/// respond would keep the namespace as long.
pub fn remove_namespace(client: &kube::Client, namespace: &str) -> Result<(), kube::Error> {
    match client.delete(&Resource::NAMESPACES, "", namespace) {
        // It is being deleted.
        Err(error) if error.is_conflict() => {}
        deleted => deleted?,
    }
    let pods = Request::delete_collection(&Resource::PODS, namespace, &Selector::all());
    client.send(&pods.grace_period(Duration::ZERO)).map(drop)
}

/// Time for the pods of a plugin to end after the run: what its definition asks for.
fn cleanup_time(plugin: &Definition) -> Duration {
    let spec = plugin.pod_spec.as_ref();
    let seconds = spec.and_then(|spec| spec["terminationGracePeriodSeconds"].as_u64());
    seconds.map_or(POD_GRACE, Duration::from_secs)
}

fn resource(launch: &ClusterLaunch<'_>) -> &'static Resource {
    let is_set = launch.definition.config.driver == DriverKind::DaemonSet;
    if is_set {
        &Resource::DAEMON_SETS
    } else {
        &Resource::PODS
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
