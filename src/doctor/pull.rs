//! Pulls images: a pod on a node of each architecture, with a container for each image.
//!
//! The containers run nothing: their command exists in no image, so that they fail right after a successful pull.
//! Starts a thread that ends the waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::echo::{new_id, pin};
use super::nodes::Nodes;
use super::place::Place;
use crate::config;
use base::json::json;
use base::kube::{Client, Event, Resource};

/// A command that exists in no image.
const NO_COMMAND: &str = "/nothing-of-this-name";
/// Waiting reasons of a failed pull.
const FAILURES: [&str; 4] = ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"];
/// Reasons of a container that failed to start after its image was pulled.
const STARTED: [&str; 4] = ["CreateContainerError", "RunContainerError", "CrashLoopBackOff", "StartError"];

/// Outcome of an image on a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pulled {
    /// Pulled.
    Here,
    /// Failed, with the reason.
    Failed(String),
    /// Timed out.
    Waiting,
}

/// Pulls `images` on a node of each architecture, with the run's pull policy and pull secret; returns outcomes by
/// architecture and node, and by image.
pub(crate) fn pull(
    client: &Client,
    nodes: &Nodes,
    images: &[String],
    run: &config::Run,
    credentials: Option<&Value>,
    limit: Duration,
) -> Result<BTreeMap<(String, String), BTreeMap<String, Pulled>>> {
    let targets = nodes.one_each();
    if targets.is_empty() {
        bail!("no node is ready to pull anything");
    }
    let place = Place::new(client, &new_id(), &json!({})).context("cannot create a namespace to pull in")?;
    let secret = credentials.map(|config| secret(client, &place, config)).transpose()?;
    for (architecture, node) in &targets {
        let mut pod = pod(&place, architecture, images, run, secret.as_deref());
        pin(&mut pod, node);
        client.create(&Resource::PODS, &place.namespace, &pod).context("cannot create a pod that pulls")?;
    }
    let found = follow(client, &place, &targets, images, limit);
    place.clear();
    found
}

fn secret(client: &Client, place: &Place, config: &Value) -> Result<String> {
    let name = place.account_name();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": place.metadata(&name),
        "stringData": {".dockerconfigjson": config.to_string()},
    });
    client.create(&Resource::SECRETS, &place.namespace, &secret).context("cannot create the pull secret")?;
    Ok(name)
}

fn pod(
    place: &Place,
    architecture: &str,
    images: &[String],
    run: &config::Run,
    secret: Option<&str>,
) -> Value {
    let container = |(number, image): (usize, &String)| {
        json!({
            "name": format!("image-{number}"),
            "image": image,
            "imagePullPolicy": run.image_pull_policy,
            "command": [NO_COMMAND],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        })
    };
    let mut spec = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "serviceAccountName": place.account_name(),
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": images.iter().enumerate().map(container).collect::<Vec<_>>(),
    });
    if let Some(secret) = secret {
        spec["imagePullSecrets"] = json!([{"name": secret}]);
    }
    let name = format!("{}-{architecture}", place.account_name());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": place.metadata(&name), "spec": spec})
}

fn follow(
    client: &Client,
    place: &Place,
    targets: &BTreeMap<String, String>,
    images: &[String],
    limit: Duration,
) -> Result<BTreeMap<(String, String), BTreeMap<String, Pulled>>> {
    let waiting = || images.iter().map(|image| (image.clone(), Pulled::Waiting)).collect::<BTreeMap<_, _>>();
    let mut found: BTreeMap<_, _> = targets.clone().into_iter().map(|target| (target, waiting())).collect();
    client.stop().within(limit, |over| {
        for event in client.under(over).watch(&Resource::PODS, &place.namespace, &place.selector()) {
            let Ok(Event::Applied(pod)) = event else { continue };
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            if let Some((_, seen)) = found.iter_mut().find(|((_, known), _)| known == node) {
                note_pulls(&pod, images, seen);
            }
            if found.values().flat_map(BTreeMap::values).all(|pulled| *pulled != Pulled::Waiting) {
                break;
            }
        }
    })?;
    if client.stop().stopped() {
        bail!("interrupted");
    }
    Ok(found)
}

/// Records the state of each image in a pod. A failure may pass, as when a registry is busy.
fn note_pulls(pod: &Value, images: &[String], seen: &mut BTreeMap<String, Pulled>) {
    for status in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
        let number =
            status["name"].as_str().and_then(|name| name.strip_prefix("image-")?.parse::<usize>().ok());
        let Some(entry) = number.and_then(|number| seen.get_mut(images.get(number)?)) else { continue };
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"].as_str().unwrap_or_default();
        let ended = status["state"]["terminated"].is_object() || status["state"]["running"].is_object();
        if ended || STARTED.contains(&reason) {
            *entry = Pulled::Here;
        } else if FAILURES.contains(&reason) && *entry != Pulled::Here {
            let why = waiting["message"].as_str().unwrap_or_default();
            // Errors after the first attempt are less specific.
            if !matches!(entry, Pulled::Failed(_)) {
                *entry = Pulled::Failed(format!("{reason}: {why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_there_when_its_container_fails_for_want_of_a_command() {
        let images = ["a", "b", "c", "d"].map(str::to_owned);
        let mut seen: BTreeMap<_, _> = images.iter().map(|image| (image.clone(), Pulled::Waiting)).collect();
        let waiting = |number: u8, reason: &str| json!({"name": format!("image-{number}"), "state": {"waiting": {"reason": reason, "message": "m"}}});
        let started =
            json!({"name": "image-1", "state": {"terminated": {"reason": "StartError", "exitCode": 128}}});
        let statuses = json!([
            waiting(0, "ErrImagePull"),
            started,
            waiting(2, "ContainerCreating"),
            waiting(3, "CreateContainerError")
        ]);
        note_pulls(&json!({"status": {"containerStatuses": statuses}}), &images, &mut seen);
        let failed = Pulled::Failed("ErrImagePull: m".into());
        assert_eq!(
            seen.values().cloned().collect::<Vec<_>>(),
            [failed.clone(), Pulled::Here, Pulled::Waiting, Pulled::Here]
        );
        let later = json!([waiting(0, "ImagePullBackOff")]);
        note_pulls(&json!({"status": {"containerStatuses": later}}), &images, &mut seen);
        assert_eq!(seen["a"], failed);
    }
}
