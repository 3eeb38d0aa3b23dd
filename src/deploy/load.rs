//! Loads an image archive into nodes that no registry serves: one privileged pod per node, which
//! hands the archive to the node's runtime.
//!
//! Justified by docs/install.md. The archive travels in ConfigMaps of a separate namespace, which
//! is deleted afterwards. The pods run the image that the user names: what a node lists is chosen
//! by everyone who may start a pod there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use base::json::json;
use base::stop::Stop;
use base::{Joined as _, visible};
use kube::{Client, Object as _, Resource, Selector};
use model::names;
use oci::Reference;

/// Bytes of the archive per ConfigMap, which holds at most one MiB.
const PART_BYTES: usize = 700 << 10;
/// Maximum parts: more belongs into a registry.
const MAX_PARTS: usize = 60;
/// The account of the pods, without permissions.
const ACCOUNT: &str = "load";
const TIMEOUT: Duration = Duration::from_secs(180);
const INTERVAL: Duration = Duration::from_millis(500);
/// Maximum nodes named in one line.
const MAX_NAMED_NODES: usize = 5;
/// Joins the parts, and imports them on the node.
const SCRIPT: &str = include_str!("../../scripts/load-node");

/// Whether every node has the image already, as far as kubelets tell.
pub(crate) fn is_everywhere(client: &Client, image: &str) -> Result<bool> {
    let nodes = client.list(&Resource::NODES, "", &Selector::all())?;
    Ok(!nodes.is_empty()
        && nodes
            .iter()
            .all(|node| images(node).any(|name| name == image)))
}

/// Names of the images that a node has, as far as its kubelet tells.
pub(crate) fn images(node: &Value) -> impl Iterator<Item = &str> {
    node["status"]["images"]
        .items()
        .flat_map(|image| image["names"].items())
        .filter_map(Value::as_str)
}

/// Loads the archive into every node, by a privileged pod that runs `loader`; returns the number of
/// nodes.
pub(crate) fn load(client: &Client, archive: &[u8], loader: &Reference) -> Result<usize> {
    let nodes = client.list(&Resource::NODES, "", &Selector::all())?;
    let parts: Vec<_> = archive.chunks(PART_BYTES).collect();
    if parts.len() > MAX_PARTS {
        bail!(
            "the archive has {} MiB, too much for a cluster's API; push it to a registry",
            archive.len() >> 20
        );
    }
    let labels = json!({(names::LABEL_ALL): names::SONOBUOY, "pod-security.kubernetes.io/enforce": "privileged"});
    let metadata = json!({"generateName": "sonobuoy-load-", "labels": labels});
    let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    let created = client
        .create(&Resource::NAMESPACES, "", &manifest)
        .context("cannot create a namespace for the pods that load the image")?;
    let namespace = created.name();
    announce(&nodes, loader);
    let names: Vec<_> = nodes.iter().map(Value::name).collect();
    let outcome = load_within(client, namespace, &parts, loader, &names);
    let deleted = client
        .under(&Stop::new())
        .delete(&Resource::NAMESPACES, "", namespace);
    if let Err(error) = deleted {
        log::warn!(
            "namespace `{namespace}` remains: {error}; delete it with `kubectl delete namespace \
             {namespace}`"
        );
    }
    outcome.map(|()| nodes.len())
}

/// Logs which image is about to be root on which nodes, with the digests that they list.
fn announce(nodes: &[Value], loader: &Reference) {
    let mut by_origin = BTreeMap::<String, Vec<&str>>::new();
    for node in nodes {
        let origin = match listed_digest(node, loader) {
            Some(digest) => format!("which is there with the digest {}", visible::line(digest)),
            None => "which is not listed there and will be pulled".to_owned(),
        };
        by_origin.entry(origin).or_default().push(node.name());
    }
    for (origin, names) in by_origin {
        let mut named = names.iter().copied().take(MAX_NAMED_NODES).joined(", ");
        if names.len() > MAX_NAMED_NODES {
            named += &format!(" and {} more", names.len() - MAX_NAMED_NODES);
        }
        log::info!("a privileged pod runs `{loader}`, {origin}, on {named}");
    }
}

/// The digest of the image that a node has by this name, as its kubelet lists it.
fn listed_digest<'a>(node: &'a Value, wanted: &Reference) -> Option<&'a str> {
    for image in node["status"]["images"].items() {
        let mut names = image["names"].items().filter_map(Value::as_str);
        if names.clone().any(|name| is_name_of(name, wanted)) {
            return names.find_map(|name| Some(name.split_once('@')?.1));
        }
    }
    None
}

/// Whether a kubelet's name of an image is the wanted one: with the same digest if one is wanted,
/// else with the same tag.
fn is_name_of(name: &str, wanted: &Reference) -> bool {
    let Ok(listed) = Reference::parse(name) else {
        return false;
    };
    if (&listed.registry, &listed.repository) != (&wanted.registry, &wanted.repository) {
        return false;
    }
    match &wanted.digest {
        Some(_) => listed.digest == wanted.digest,
        None => listed.digest.is_none() && listed.tag == wanted.tag,
    }
}

fn load_within(
    client: &Client,
    namespace: &str,
    parts: &[&[u8]],
    loader: &Reference,
    nodes: &[&str],
) -> Result<()> {
    let name = |at: usize| format!("part-{at:03}");
    // Pods need not wait for the account of a new namespace.
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}});
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
    let image = loader.to_string();
    for (at, node) in nodes.iter().enumerate() {
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
        client
            .create(&Resource::PODS, namespace, &pod)
            .with_context(|| format!("node `{node}`"))?;
    }
    wait(client, namespace, nodes.len())
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
            let failed: Vec<_> = pods
                .iter()
                .filter(|pod| over || is(pod, "Failed"))
                .map(describe_failure)
                .collect();
            bail!(
                "the image was loaded into {loaded} of {count} nodes; {}",
                failed.join("; ")
            );
        }
        if client.stop().wait(INTERVAL) {
            bail!("loading the image was interrupted");
        }
    }
}

/// The node of a pod, and why it has not succeeded.
fn describe_failure(pod: &Value) -> String {
    let state = &pod["status"]["containerStatuses"][0]["state"];
    let messages = [
        &state["terminated"]["message"],
        &state["waiting"]["message"],
        &pod["status"]["message"],
    ];
    let mut messages = messages.iter().map(|message| message.text().trim());
    let message = messages
        .find(|message| !message.is_empty())
        .unwrap_or("no reason given");
    format!(
        "node `{}`: {}",
        pod["spec"]["nodeName"].text(),
        visible::line(message)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_digest_is_that_of_exactly_the_named_image() {
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let image = |name: &str, digit: &str| {
            let repository = name.split(':').next().unwrap();
            json!({"names": [format!("{repository}@{}", digest(digit)), name]})
        };
        let node = json!({"status": {"images": [
            image("registry.tenant.example/mallory/rootkit-alpine-busybox:1", "a"),
            image("docker.io/library/busybox:2", "b"),
            image("docker.io/library/busybox:1", "c"),
        ]}});
        for (wanted, expected) in [
            ("busybox:1".to_owned(), Some(digest("c"))),
            (format!("busybox@{}", digest("b")), Some(digest("b"))),
            (format!("busybox@{}", digest("a")), None),
            ("busybox:3".to_owned(), None),
            ("other.example/library/busybox:1".to_owned(), None),
        ] {
            let found = listed_digest(&node, &Reference::parse(&wanted).unwrap());
            assert_eq!(found, expected.as_deref(), "{wanted}");
        }
    }
}
