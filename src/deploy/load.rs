//! Loads an image archive into nodes that no registry serves: one privileged pod per node, which hands the archive to the
//! node's runtime.
//!
//! Justified by docs/install.md. The archive travels in ConfigMaps of a separate namespace, which is deleted afterwards;
//! the pods use an image that their node already has.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use crate::names;
use base::json::json;
use base::kube::{Client, Object as _, Resource, Selector};
use base::stop::Stop;
use base::visible;

/// Bytes of the archive per ConfigMap, which holds at most one MiB.
const PART_BYTES: usize = 700 << 10;
/// Maximum parts: more belongs into a registry.
const MAX_PARTS: usize = 60;
/// The account of the pods, without permissions.
const ACCOUNT: &str = "load";
const TIMEOUT: Duration = Duration::from_secs(180);
const INTERVAL: Duration = Duration::from_millis(500);
/// Parts of names of images with a shell and `chroot`.
const LOADERS: [&str; 6] = ["busybox", "alpine", "debian", "ubuntu", "fedora", "toolbox"];
/// Joins the parts, and imports them on the node.
const SCRIPT: &str = include_str!("../../scripts/load-node");

/// Whether every node has the image already, as far as kubelets tell.
pub(crate) fn is_everywhere(client: &Client, image: &str) -> Result<bool> {
    let nodes = client.list(&Resource::NODES, "", &Selector::all())?;
    Ok(!nodes.is_empty() && nodes.iter().all(|node| images(node).any(|name| name == image)))
}

/// Names of the images that a node has, as far as its kubelet tells.
pub(crate) fn images(node: &Value) -> impl Iterator<Item = &str> {
    node["status"]["images"].items().flat_map(|image| image["names"].items()).filter_map(Value::as_str)
}

/// Loads the archive into every node; returns the number of nodes. `with` is the image of the pods, instead of one that
/// each node has.
pub(crate) fn load(client: &Client, archive: &[u8], with: Option<&str>) -> Result<usize> {
    let nodes = client.list(&Resource::NODES, "", &Selector::all())?;
    let mut pods = BTreeMap::new();
    for node in &nodes {
        let name = node.name();
        let is_loader =
            |image: &&str| LOADERS.iter().any(|part| image.contains(part)) && !image.contains('@');
        let image = with.or_else(|| images(node).find(is_loader)).with_context(|| {
            format!("node `{name}` has no image with a shell, such as busybox; name one that it has or can pull with --load-with")
        })?;
        pods.insert(name, image);
    }
    let parts: Vec<_> = archive.chunks(PART_BYTES).collect();
    if parts.len() > MAX_PARTS {
        bail!(
            "the archive has {} MiB, too much for a cluster's API; push it to a registry",
            archive.len() >> 20
        );
    }
    let labels =
        json!({(names::LABEL_ALL): names::SONOBUOY, "pod-security.kubernetes.io/enforce": "privileged"});
    let metadata = json!({"generateName": "sonobuoy-load-", "labels": labels});
    let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    let home = client
        .create(&Resource::NAMESPACES, "", &home)
        .context("cannot create a namespace for the pods that load the image")?;
    let namespace = home.name();
    let outcome = within(client, namespace, &parts, &pods);
    let deleted = client.under(&Stop::new()).delete(&Resource::NAMESPACES, "", namespace);
    if let Err(error) = deleted {
        log::warn!(
            "namespace `{namespace}` remains: {error}; delete it with `kubectl delete namespace {namespace}`"
        );
    }
    outcome.map(|()| pods.len())
}

fn within(client: &Client, namespace: &str, parts: &[&[u8]], pods: &BTreeMap<&str, &str>) -> Result<()> {
    let name = |at: usize| format!("part-{at:03}");
    // Pods need not wait for the account of a new namespace.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}});
    client.create(&Resource::SERVICE_ACCOUNTS, namespace, &account)?;
    for (at, part) in parts.iter().enumerate() {
        let data = BASE64_STANDARD.encode(part);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(at)}, "binaryData": {"part": data},
        });
        client.create(&Resource::CONFIG_MAPS, namespace, &map)?;
    }
    let sources: Value = (0..parts.len()).map(|at| {
        json!({"configMap": {"name": name(at), "items": [{"key": "part", "path": format!("{}/part", name(at))}]}})
    }).collect();
    for (at, (node, image)) in pods.iter().enumerate() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("load-{at}")},
            "spec": {
                "nodeName": node, "restartPolicy": "Never", "hostPID": true, "serviceAccountName": ACCOUNT, "automountServiceAccountToken": false,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "load", "image": image, "imagePullPolicy": "IfNotPresent",
                    "command": ["/bin/sh", "-c", SCRIPT], "env": [{"name": "NODE", "value": node}], "securityContext": {"privileged": true, "runAsUser": 0},
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [{"name": "host", "mountPath": "/host"}, {"name": "parts", "mountPath": "/parts"}],
                }],
                "volumes": [
                    {"name": "host", "hostPath": {"path": "/"}},
                    {"name": "parts", "projected": {"sources": sources}},
                ],
            },
        });
        client.create(&Resource::PODS, namespace, &pod).with_context(|| format!("node `{node}`"))?;
    }
    wait(client, namespace, pods.len())
}

fn wait(client: &Client, namespace: &str, count: usize) -> Result<()> {
    let until = Instant::now() + TIMEOUT;
    loop {
        let pods = client.list(&Resource::PODS, namespace, &Selector::all())?;
        let is = |pod: &Value, phase: &str| pod["status"]["phase"] == phase;
        let number = |phase: &str| pods.iter().filter(|pod| is(pod, phase)).count();
        let loaded = number("Succeeded");
        if loaded == count {
            return Ok(());
        }
        let over = Instant::now() > until;
        if over || number("Failed") > 0 && number("Pending") + number("Running") == 0 {
            let failed: Vec<_> = pods.iter().filter(|pod| over || is(pod, "Failed")).map(told).collect();
            bail!("the image was loaded into {loaded} of {count} nodes; {}", failed.join("; "));
        }
        if client.stop().wait(INTERVAL) {
            bail!("loading the image was interrupted");
        }
    }
}

/// The node of a pod, and why it has not succeeded.
fn told(pod: &Value) -> String {
    let state = &pod["status"]["containerStatuses"][0]["state"];
    let said = [&state["terminated"]["message"], &state["waiting"]["message"], &pod["status"]["message"]];
    let mut said = said.into_iter().map(|said| said.text().trim()).filter(|said| !said.is_empty());
    let said = visible::line(said.next().unwrap_or("no reason given"));
    format!("node `{}`: {said}", pod["spec"]["nodeName"].text())
}
