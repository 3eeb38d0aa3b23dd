//! Checks that registries have the images of the run, for the architectures of the nodes.
//!
//! Queries from this machine: a registry that does not respond here may respond to the nodes, so that is not a
//! finding.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::finding::{Check, Severity};
use super::{Nodes, Subject};
use crate::causes;
use crate::config;
use crate::image::{images_of, verify};
use crate::names;
use base::kube::{self, Resource};
use base::oci;
use base::stop::Stop;

/// Short timeout, since a registry may be unreachable from here.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(4);

/// Queries each image.
pub(super) fn check(client: &kube::Client, subject: &Subject<'_>, nodes: &Nodes, stop: &Stop) -> Check {
    let mut check = Check::new("images");
    let registries = match registries(client, subject, stop) {
        Ok(registries) => registries,
        Err(error) => return Check::skipped("images", format!("{error:#}")),
    };
    let images = images(subject);
    let absent = images.iter().filter(|image| causes::is_local_image(image) && nodes.lack(image));
    let absent =
        absent.map(|image| (image.clone(), "no node has it".to_owned(), causes::missing_image(image, "")));
    check.add_all(Severity::Fails, ("images", images.len()), absent);
    let (mut found, mut unknown, mut trouble) = (0, 0, Vec::new());
    let mut silent = BTreeSet::new();
    let architectures = nodes.architectures();
    for image in images.iter().filter(|image| !causes::is_local_image(image)) {
        let registry = oci::Reference::parse(image).map(|name| name.registry).unwrap_or_default();
        // A registry that timed out once is not queried again.
        if silent.contains(&registry) || stop.stopped() {
            unknown += 1;
            continue;
        }
        let seen = verify::ask(&registries, image);
        match &seen {
            verify::Found::Unknown(why) => {
                log::debug!("{why}");
                unknown += 1;
                silent.insert(registry);
            }
            _ => found += 1,
        }
        trouble.extend(seen.trouble(image, &architectures).map(|why| (image.clone(), why, None)));
    }
    let absent = check
        .findings
        .iter()
        .filter_map(|finding| finding.extent.as_ref())
        .map(|extent| extent.count)
        .sum::<usize>();
    check.add_all(Severity::Fails, ("images", images.len()), trouble.clone());
    let local = images.len() - found - unknown - absent;
    let mut seen = vec![format!("{} of {} in their registries", found - trouble.len(), images.len())];
    if local > 0 {
        seen.push(format!("{local} loaded into nodes"));
    }
    if unknown > 0 {
        seen.push(format!(
            "{unknown} not known here ({})",
            silent.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
    check.seen = seen.join(", ");
    check
}

fn images(subject: &Subject<'_>) -> BTreeSet<String> {
    let own = subject.run.worker_image.clone();
    let of_plugins = subject.plugins.iter().cloned().flat_map(images_of);
    let of_plugins = of_plugins.map(|image| if image == names::OWN_IMAGE { own.clone() } else { image });
    of_plugins.chain([own.clone()]).filter(|image| !image.is_empty()).collect()
}

/// Uses the pull secret that the run creates or finds.
fn registries(client: &kube::Client, subject: &Subject<'_>, stop: &Stop) -> anyhow::Result<oci::Client> {
    let registries = oci::Client::new(names::USER_AGENT, false, stop)?.quick(REGISTRY_TIMEOUT)?;
    let made = |object: &&Value| {
        object["kind"] == "Secret" && object["metadata"]["name"] == *subject.run.image_pull_secrets
    };
    let made = subject.objects.iter().find(made).cloned();
    let found = made.and_then(|secret| within(&secret)).or_else(|| credentials(client, &subject.run));
    Ok(match found {
        Some(config) => registries.credentials(config),
        None => registries,
    })
}

/// Content of the pull secret that a run finds, as docker's config.json.
pub(crate) fn credentials(client: &kube::Client, run: &config::Run) -> Option<Value> {
    let name = Some(&run.image_pull_secrets).filter(|name| !name.is_empty())?;
    let found = client.get(&Resource::SECRETS, &run.namespace, name);
    found
        .inspect_err(|error| log::warn!("the pull secret `{name}` is not used: {error}"))
        .ok()
        .as_ref()
        .and_then(within)
}

/// Content of a pull secret.
fn within(secret: &Value) -> Option<Value> {
    let coded = secret["data"][".dockerconfigjson"].as_str()?;
    base::json::from_slice(&BASE64.decode(coded).ok()?).ok()
}
