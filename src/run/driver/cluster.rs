//! Runs plugins in a cluster: starts and removes their objects, and says which results to expect.
//!
//! [`super::objects`] creates the objects, which [`super::pod`] defines. [`super::follower`] follows
//! them.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use serde_json::Value;

use super::node::refusal;
pub use super::node::shrink_node;
pub use super::objects::ClusterDriver;
use super::pod::ClusterLaunch;
pub use super::pod::object_name;
use super::{Driver, POD_GRACE, PluginLaunch, follower};
use base::json::json;
use base::stop::Stop;
use client::protocol::{Finding, ResultId};
use kube::{self, Object as _, Request, Resource, Selector};
use model::config;
use model::nodes::{Choice, Order, zone};
use model::plugin::{Definition, DriverKind, default_spec};

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
