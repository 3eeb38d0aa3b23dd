//! Pulls images: a pod on a node of each architecture, with a container for each image.
//!
//! The containers run nothing: their command exists in no image, so that they fail right after a successful pull.
//! Starts a thread that ends the waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::nodes::Nodes;
use super::trial_namespace::{TrialNamespace, pin};
use crate::config;
use base::json::json;
use base::kube::{Client, Object as _, Resource};

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

/// Outcomes by architecture and node, and by image.
type Pulls = BTreeMap<(String, String), BTreeMap<String, Pulled>>;

/// Pulls `images` on a node of each architecture, with the run's pull policy and pull secret.
pub(crate) fn pull(
    client: &Client,
    nodes: &Nodes,
    images: &[String],
    run: &config::Run,
    credentials: Option<&Value>,
    limit: Duration,
) -> Result<Pulls> {
    let targets = nodes.one_each();
    ensure!(!targets.is_empty(), "no node is ready to pull anything");
    let trial_namespace =
        TrialNamespace::create(client, None, json!({})).context("cannot create a namespace to pull in")?;
    if let Some(config) = credentials {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": trial_namespace.metadata(&trial_namespace.account_name()),
            "stringData": {".dockerconfigjson": config.to_string()},
        });
        let created = client.create(&Resource::SECRETS, &trial_namespace.namespace, &secret);
        created.context("cannot create the pull secret")?;
    }
    let container = |(number, image): (usize, &String)| {
        let name = format!("image-{number}");
        json!({"name": name, "image": image, "imagePullPolicy": run.image_pull_policy, "command": [NO_COMMAND]})
    };
    for (architecture, node) in &targets {
        let name = format!("{}-{architecture}", trial_namespace.account_name());
        let mut pod = trial_namespace.pod(&name, images.iter().enumerate().map(container).collect(), true);
        if credentials.is_some() {
            pod["spec"]["imagePullSecrets"] = json!([{"name": trial_namespace.account_name()}]);
        }
        pin(&mut pod, node);
        client
            .create(&Resource::PODS, &trial_namespace.namespace, &pod)
            .context("cannot create a pod that pulls")?;
    }
    let waiting: BTreeMap<_, _> = images.iter().map(|image| (image.clone(), Pulled::Waiting)).collect();
    let mut found: Pulls = targets.into_iter().map(|target| (target, waiting.clone())).collect();
    let watched = trial_namespace.watch(client, limit, |pod| {
        let of_node = found.iter_mut().find(|((_, node), _)| pod["spec"]["nodeName"] == node.as_str());
        of_node.into_iter().for_each(|(_, seen)| note_pulls(pod, images, seen));
        found.values().flat_map(BTreeMap::values).any(|pulled| *pulled == Pulled::Waiting)
    });
    watched.map(|()| found)
}

/// Records the state of each image in a pod. A failure may pass, as when a registry is busy.
fn note_pulls(pod: &Value, images: &[String], seen: &mut BTreeMap<String, Pulled>) {
    for status in pod["status"]["containerStatuses"].items() {
        let number =
            status["name"].text().strip_prefix("image-").and_then(|number| number.parse::<usize>().ok());
        let Some(entry) = number.and_then(|number| seen.get_mut(images.get(number)?)) else { continue };
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"].text();
        let ended = status["state"]["terminated"].is_object() || status["state"]["running"].is_object();
        if ended || STARTED.contains(&reason) {
            *entry = Pulled::Here;
        } else if FAILURES.contains(&reason) && *entry != Pulled::Here {
            let why = waiting["message"].text();
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
    fn missing_command_proves_that_the_image_exists() {
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
