//! Checks that registries have the images of the run, for the architectures of the nodes, and pulls
//! images on nodes.
//!
//! Queries registries from this machine: one that does not respond here may respond to the nodes,
//! so that is not a finding. The containers that pull run nothing: their command exists in no
//! image, so that they fail right after a successful pull. Starts a thread that ends the waiting
//! for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use super::finding::{Check, Severity};
use super::trial_namespace::{TrialNamespace, pin};
use super::{Nodes, Subject};
use crate::image::{images_of, verify};
use base::Joined as _;
use base::json::json;
use kube::{Client, Object as _, Resource};
use model::remedies::ImageUser;
use model::{config, names, remedies};

/// Short timeout, since a registry may be unreachable from here.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(4);

/// Nodes without an image that are named.
const MAX_NODES_NAMED: usize = 3;

/// Queries each image.
pub(super) fn check(client: &Client, subject: &Subject<'_>, nodes: &Nodes) -> Check {
    let mut check = Check::new("images");
    let registries = match registries(client, subject) {
        Ok(registries) => registries,
        Err(error) => return Check::skipped("images", format!("{error:#}")),
    };
    let worker_image = &*subject.run.worker_image;
    let images: BTreeSet<&str> = subject
        .plugins
        .iter()
        .flat_map(images_of)
        .map(|image| {
            if image == names::OWN_IMAGE {
                worker_image
            } else {
                image
            }
        })
        .chain([worker_image])
        .filter(|image| !image.is_empty())
        .collect();
    let (mut loaded, mut found, mut unknown, mut trouble) = (0, 0, 0, Vec::new());
    let mut silent = BTreeSet::new();
    let architectures = nodes.architectures();
    let total = images.len();
    for image in images {
        if remedies::is_local_image(image) {
            let remedy = || remedies::missing_image(image, user(image, subject), "");
            match missing(image, nodes) {
                Some((why, Severity::Warns)) if !is_on_each_node(image, subject) => {
                    loaded += 1;
                    let cause = format!("`{image}`: {why}");
                    check.add(Severity::Warns, cause, remedy().as_deref());
                }
                Some((why, _)) => trouble.push((image.to_owned(), why, remedy())),
                None => loaded += 1,
            }
            continue;
        }
        let registry = oci::Reference::parse(image)
            .map(|name| name.registry)
            .unwrap_or_default();
        // A registry that timed out once is not queried again.
        if silent.contains(&registry) || client.stop().stopped() {
            unknown += 1;
            continue;
        }
        let availability = verify::ask(&registries, image);
        if let Some(why) = availability.trouble(image, &architectures) {
            trouble.push((image.to_owned(), why, None));
        } else if let verify::Availability::Unknown(why) = availability {
            log::debug!("{why}");
            unknown += 1;
            silent.insert(registry);
        } else {
            found += 1;
        }
    }
    check.add_all(("images", total), trouble);
    check.seen = format!("{found} of {total} in their registries");
    if loaded > 0 {
        check.seen += &format!(", {loaded} loaded into nodes");
    }
    if unknown > 0 {
        check.seen += &format!(
            ", {unknown} not known here ({})",
            silent.into_iter().joined(", ")
        );
    }
    check
}

/// How many nodes lack an image that no registry has, and how bad that is for a pod on any node.
fn missing(image: &str, nodes: &Nodes) -> Option<(String, Severity)> {
    let (lacking, all) = nodes.lacking(image);
    match lacking.len() {
        0 => None,
        count if count == all => Some(("no node has it".to_owned(), Severity::Fails)),
        count => {
            let named = lacking.iter().copied().take(MAX_NODES_NAMED).joined(", ");
            let more = match count.saturating_sub(MAX_NODES_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let present = all - count;
            let why = format!("it is on {present} of {all} nodes, not on {named}{more}");
            Some((why, Severity::Warns))
        }
    }
}

/// Whether every node that runs plugins needs an image.
fn is_on_each_node(image: &str, subject: &Subject<'_>) -> bool {
    let mut plugins = subject.plugins.iter();
    plugins.any(|plugin| {
        let uses = image == subject.run.worker_image || images_of(plugin).any(|used| used == image);
        plugin.config.driver.is_per_node() && uses
    })
}

/// Who uses an image: the run itself, or the first plugin with it.
fn user<'a>(image: &str, subject: &'a Subject<'_>) -> ImageUser<'a> {
    let mut plugins = subject.plugins.iter();
    let plugin = plugins.find(|plugin| images_of(plugin).any(|used| used == image));
    match plugin {
        Some(plugin) if image != subject.run.worker_image => ImageUser::Plugin(plugin.name()),
        _ => ImageUser::Run,
    }
}

/// Uses the pull secret that the run creates or finds.
fn registries(client: &Client, subject: &Subject<'_>) -> Result<oci::Client> {
    let registries =
        oci::Client::new(names::USER_AGENT, false, client.stop())?.quick(REGISTRY_TIMEOUT)?;
    let made = within(subject.object("Secret", &subject.run.image_pull_secrets));
    Ok(match made.or_else(|| credentials(client, &subject.run)) {
        Some(config) => registries.credentials(config),
        None => registries,
    })
}

/// Content of the pull secret that a run finds, as docker's config.json.
pub(crate) fn credentials(client: &Client, run: &config::Run) -> Option<Value> {
    let name = Some(&run.image_pull_secrets).filter(|name| !name.is_empty())?;
    let secret = client.get(&Resource::SECRETS, &run.namespace, name);
    within(
        &secret
            .inspect_err(|error| log::warn!("the pull secret `{name}` is not used: {error}"))
            .ok()?,
    )
}

/// Content of a pull secret.
fn within(secret: &Value) -> Option<Value> {
    let coded = secret["data"][".dockerconfigjson"].as_str()?;
    base::json::from_slice(&BASE64_STANDARD.decode(coded).ok()?).ok()
}

/// A command that exists in no image.
const NO_COMMAND: &str = "/nothing-of-this-name";
/// Waiting reasons of a failed pull.
const FAILURES: [&str; 4] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
];
/// Reasons of a container that failed to start after its image was pulled.
const STARTED: [&str; 4] = [
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
    "StartError",
];

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
    let trial_namespace = TrialNamespace::create(client, None, json!({}))
        .context("cannot create a namespace to pull in")?;
    if let Some(config) = credentials {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": trial_namespace.metadata(&trial_namespace.account_name()),
            "stringData": {".dockerconfigjson": config.to_string()},
        });
        client
            .create(&Resource::SECRETS, &trial_namespace.namespace, &secret)
            .context("cannot create the pull secret")?;
    }
    let container = |(number, image): (usize, &String)| {
        let name = format!("image-{number}");
        json!({"name": name, "image": image, "imagePullPolicy": run.image_pull_policy, "command": [NO_COMMAND]})
    };
    for (architecture, node) in &targets {
        let name = format!("{}-{architecture}", trial_namespace.account_name());
        let mut pod = trial_namespace.pod(
            &name,
            images.iter().enumerate().map(container).collect(),
            true,
        );
        if credentials.is_some() {
            pod["spec"]["imagePullSecrets"] = json!([{"name": trial_namespace.account_name()}]);
        }
        pin(&mut pod, node);
        client
            .create(&Resource::PODS, &trial_namespace.namespace, &pod)
            .context("cannot create a pod that pulls")?;
    }
    let waiting: BTreeMap<_, _> = images
        .iter()
        .map(|image| (image.clone(), Pulled::Waiting))
        .collect();
    let mut pulls: Pulls = targets
        .into_iter()
        .map(|target| (target, waiting.clone()))
        .collect();
    trial_namespace
        .watch(client, limit, |pod| {
            let of_node = pulls
                .iter_mut()
                .find(|((_, node), _)| pod["spec"]["nodeName"] == node.as_str());
            of_node
                .into_iter()
                .for_each(|(_, seen)| note_pulls(pod, images, seen));
            pulls
                .values()
                .flat_map(BTreeMap::values)
                .any(|pulled| *pulled == Pulled::Waiting)
        })
        .map(|()| pulls)
}

/// Records the state of each image in a pod. A failure may pass, as when a registry is busy.
fn note_pulls(pod: &Value, images: &[String], seen: &mut BTreeMap<String, Pulled>) {
    for status in pod["status"]["containerStatuses"].items() {
        let number = status["name"]
            .text()
            .strip_prefix("image-")
            .and_then(|number| number.parse::<usize>().ok());
        let Some(entry) = number.and_then(|number| seen.get_mut(images.get(number)?)) else {
            continue;
        };
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"].text();
        let ended =
            status["state"]["terminated"].is_object() || status["state"]["running"].is_object();
        if ended || STARTED.contains(&reason) {
            *entry = Pulled::Here;
        } else if FAILURES.contains(&reason) && *entry == Pulled::Waiting {
            // Errors after the first attempt are less specific.
            *entry = Pulled::Failed(format!("{reason}: {}", waiting["message"].text()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_command_proves_that_the_image_exists() {
        let images = ["a", "b", "c", "d"].map(str::to_owned);
        let mut seen: BTreeMap<_, _> = images
            .iter()
            .map(|image| (image.clone(), Pulled::Waiting))
            .collect();
        let waiting = |number: u8, reason: &str| json!({"name": format!("image-{number}"), "state": {"waiting": {"reason": reason, "message": "m"}}});
        let started = json!({"name": "image-1", "state": {"terminated": {"reason": "StartError", "exitCode": 128}}});
        let statuses = json!([
            waiting(0, "ErrImagePull"),
            started,
            waiting(2, "ContainerCreating"),
            waiting(3, "CreateContainerError")
        ]);
        note_pulls(
            &json!({"status": {"containerStatuses": statuses}}),
            &images,
            &mut seen,
        );
        let failed = Pulled::Failed("ErrImagePull: m".into());
        assert_eq!(
            seen.values().cloned().collect::<Vec<_>>(),
            [failed.clone(), Pulled::Here, Pulled::Waiting, Pulled::Here]
        );
        let later = json!([waiting(0, "ImagePullBackOff")]);
        note_pulls(
            &json!({"status": {"containerStatuses": later}}),
            &images,
            &mut seen,
        );
        assert_eq!(seen["a"], failed);
    }
}
