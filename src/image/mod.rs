//! The images that plugins need, their names in other registries, and the data that depends on a
//! Kubernetes version: tags, lists of tests.
//!
//! Owns the names of images in other registries, calls to docker, and the combination of test
//! lists. `oci` handles registries. Knows neither clusters nor flags.

pub(crate) mod conformance;
pub(crate) mod docker;
pub(crate) mod kit;
pub(crate) mod lists;
pub(crate) mod release;
pub(crate) mod verify;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::Value;

use kube::Object as _;
use model::names::{OWN_IMAGE, VERSION_PLACEHOLDER};
use model::plugin::{self, Definition, builtin};
use oci::Reference;

/// Repository of the conformance image.
pub(crate) const CONFORMANCE: &str = "registry.k8s.io/conformance";
/// Repository of its builds between releases.
pub(crate) const CONFORMANCE_LATEST: &str = "gcr.io/k8s-staging-ci-images/conformance";

/// The images of a set of plugins.
#[derive(Default)]
pub(crate) struct PluginImages {
    /// Without those that only the conformance image can list.
    pub images: BTreeSet<String>,
    /// The conformance image, if a plugin runs it.
    pub conformance: Option<String>,
    /// The Kubernetes version, if an image depends on it.
    pub version: Option<String>,
}

impl PluginImages {
    /// Adds the images of a plugin; `own` is the image of this program. Queries the version of the
    /// cluster only if an image depends on it.
    pub(crate) fn add(
        &mut self,
        found: &plugin::Loaded,
        own: &str,
        version: impl Fn() -> Result<String>,
    ) -> Result<()> {
        let e2e = found.definition.name() == builtin::E2E;
        for image in images_of(&found.definition) {
            let mut image = if image == OWN_IMAGE { own } else { image }.to_owned();
            if image.contains(VERSION_PLACEHOLDER) {
                let version = match self.version.take() {
                    Some(version) => version,
                    None => version()?,
                };
                image = image.replace(VERSION_PLACEHOLDER, &version);
                self.version = Some(version);
            }
            // A user's definition of the same name may run other tests.
            if e2e
                && (found.built_in
                    || Reference::parse(&image).is_ok_and(|name| is_conformance(&name)))
            {
                self.conformance = Some(image.clone());
            }
            self.images.insert(image);
        }
        Ok(())
    }
}

/// Whether an image has the name of the conformance image, in any registry.
pub(crate) fn is_conformance(image: &Reference) -> bool {
    image.repository.rsplit('/').next() == Some("conformance")
}

/// The images of all containers of a plugin.
pub(crate) fn images_of(plugin: &Definition) -> impl Iterator<Item = &str> {
    let pod = plugin.pod_spec.as_ref().unwrap_or(&Value::Null);
    let more = pod["containers"]
        .items()
        .chain(pod["initContainers"].items());
    std::iter::once(&plugin.spec)
        .chain(more)
        .filter_map(|container| container["image"].as_str())
}

/// The registries of the e2e tests' images, with the keys of a file for `--e2e-repo-config`.
const REGISTRIES: [(&str, &str); 9] = [
    ("buildImageRegistry", "registry.k8s.io/build-image"),
    ("dockerGluster", "docker.io/gluster"),
    ("dockerLibraryRegistry", "docker.io/library"),
    ("e2eRegistry", "gcr.io/kubernetes-e2e-test-images"),
    (
        "e2eVolumeRegistry",
        "gcr.io/kubernetes-e2e-test-images/volume",
    ),
    ("gcEtcdRegistry", "registry.k8s.io"),
    ("gcRegistry", "registry.k8s.io"),
    ("promoterE2eRegistry", "registry.k8s.io/e2e-test-images"),
    ("sigStorageRegistry", "registry.k8s.io/sig-storage"),
];

/// A registry of newer versions.
const NEWER: (&str, &str) = (
    "cloudProviderGcpRegistry",
    "registry.k8s.io/cloud-provider-gcp",
);

/// Replacement of registries.
pub(crate) enum Translation {
    /// All images in one registry, under the last component of their name.
    Registry(String),
    /// The images of a kit in one registry: those of tests under the rest of their name after the
    /// part that a file for `--e2e-repo-config` replaces, all others under the last component.
    Kit(String),
    /// Each registry replaced by another one.
    Registries(BTreeMap<String, String>),
}

impl Translation {
    /// From a document with different values for the keys of [`registries`].
    pub(crate) fn of_document(document: &Value) -> Self {
        let pairs = REGISTRIES
            .into_iter()
            .filter_map(|(key, from)| Some((from.to_owned(), document[key].as_str()?.to_owned())));
        Self::Registries(pairs.collect())
    }

    /// The name of an image in its new place.
    pub(crate) fn apply(&self, image: &str) -> String {
        match self {
            Self::Registry(registry) => plugin::relocated(image, registry),
            Self::Kit(registry) => {
                let registries = all_registries();
                let rests = registries
                    .filter_map(|(_, place)| image.strip_prefix(place)?.strip_prefix('/'));
                // That of the longest registry.
                match rests.min_by_key(|rest| rest.len()) {
                    Some(rest) => format!("{}/{rest}", registry.trim_end_matches('/')),
                    None => plugin::relocated(image, registry),
                }
            }
            Self::Registries(known) => {
                let (place, last) = image
                    .rsplit_once('/')
                    .unwrap_or(("docker.io/library", image));
                known.get(place).map_or_else(
                    || image.to_owned(),
                    |to| format!("{}/{last}", to.trim_end_matches('/')),
                )
            }
        }
    }
}

/// The registries of the e2e tests' images, as in a file for `--e2e-repo-config`.
pub(crate) fn registries() -> Value {
    REGISTRIES.into_iter().collect()
}

/// The same with those of newer versions, by key.
fn all_registries() -> impl Iterator<Item = (&'static str, &'static str)> {
    REGISTRIES.into_iter().chain([NEWER])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_move_to_other_registries() {
        let one = Translation::Registry("reg.local:5000/mirror/".into());
        assert_eq!(
            one.apply("registry.k8s.io/conformance:v1.30.0"),
            "reg.local:5000/mirror/conformance:v1.30.0"
        );
        let some = Translation::Registries(BTreeMap::from([(
            "registry.k8s.io/e2e-test-images".into(),
            "reg.local/e2e".into(),
        )]));
        for (image, expected) in [
            (
                "registry.k8s.io/e2e-test-images/agnhost:2.47",
                "reg.local/e2e/agnhost:2.47",
            ),
            ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9"),
            ("busybox:1", "busybox:1"),
        ] {
            assert_eq!(some.apply(image), expected);
        }
    }
}
