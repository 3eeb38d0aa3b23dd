//! Checks that registries have the images of the run, for the architectures of the nodes.
//!
//! Queries from this machine: a registry that does not respond here may respond to the nodes, so that is not a
//! finding.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::finding::Check;
use super::{Nodes, Subject};
use crate::config;
use crate::image::{images_of, verify};
use crate::names;
use crate::remedies;
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
    let own = &*subject.run.worker_image;
    let of_plugins = subject.plugins.iter().flat_map(images_of);
    let of_plugins = of_plugins.map(|image| if image == names::OWN_IMAGE { own } else { image });
    let images: BTreeSet<&str> = of_plugins.chain([own]).filter(|image| !image.is_empty()).collect();
    let of = ("images", images.len());
    let (local, remote): (Vec<&str>, Vec<&str>) =
        images.into_iter().partition(|image| remedies::is_local_image(image));
    let absent = local.iter().filter(|image| nodes.lack(image));
    let absent: Vec<_> = absent
        .map(|image| ((*image).to_owned(), "no node has it".to_owned(), remedies::missing_image(image, "")))
        .collect();
    let loaded = local.len() - absent.len();
    check.add_all(of, absent);
    let (mut found, mut unknown, mut trouble) = (0, 0, Vec::new());
    let mut silent = BTreeSet::new();
    let architectures = nodes.architectures();
    for image in remote {
        let registry = oci::Reference::parse(image).map(|name| name.registry).unwrap_or_default();
        // A registry that timed out once is not queried again.
        if silent.contains(&registry) || stop.stopped() {
            unknown += 1;
            continue;
        }
        let seen = verify::ask(&registries, image);
        let why = seen.trouble(image, &architectures);
        if let verify::Availability::Unknown(why) = seen {
            log::debug!("{why}");
            unknown += 1;
            silent.insert(registry);
        } else {
            found += usize::from(why.is_none());
        }
        trouble.extend(why.map(|why| (image.to_owned(), why, None)));
    }
    check.add_all(of, trouble);
    check.seen = format!("{found} of {} in their registries", of.1);
    if loaded > 0 {
        check.seen += &format!(", {loaded} loaded into nodes");
    }
    if unknown > 0 {
        let silent: Vec<_> = silent.into_iter().collect();
        check.seen += &format!(", {unknown} not known here ({})", silent.join(", "));
    }
    check
}

/// Uses the pull secret that the run creates or finds.
fn registries(client: &kube::Client, subject: &Subject<'_>, stop: &Stop) -> anyhow::Result<oci::Client> {
    let registries = oci::Client::new(names::USER_AGENT, false, stop)?.quick(REGISTRY_TIMEOUT)?;
    let made = subject.object("Secret", &subject.run.image_pull_secrets).and_then(within);
    Ok(match made.or_else(|| credentials(client, &subject.run)) {
        Some(config) => registries.credentials(config),
        None => registries,
    })
}

/// Content of the pull secret that a run finds, as docker's config.json.
pub(crate) fn credentials(client: &kube::Client, run: &config::Run) -> Option<Value> {
    let name = Some(&run.image_pull_secrets).filter(|name| !name.is_empty())?;
    let found = client.get(&Resource::SECRETS, &run.namespace, name);
    within(&found.inspect_err(|error| log::warn!("the pull secret `{name}` is not used: {error}")).ok()?)
}

/// Content of a pull secret.
fn within(secret: &Value) -> Option<Value> {
    let coded = secret["data"][".dockerconfigjson"].as_str()?;
    base::json::from_slice(&BASE64.decode(coded).ok()?).ok()
}
