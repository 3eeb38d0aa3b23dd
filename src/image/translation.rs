//! Image names in clusters with private registries.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::plugin;

/// The registries of the e2e tests' images, with the keys of a file for `--e2e-repo-config`.
const REGISTRIES: [(&str, &str); 9] = [
    ("buildImageRegistry", "registry.k8s.io/build-image"),
    ("dockerGluster", "docker.io/gluster"),
    ("dockerLibraryRegistry", "docker.io/library"),
    ("e2eRegistry", "gcr.io/kubernetes-e2e-test-images"),
    ("e2eVolumeRegistry", "gcr.io/kubernetes-e2e-test-images/volume"),
    ("gcEtcdRegistry", "registry.k8s.io"),
    ("gcRegistry", "registry.k8s.io"),
    ("promoterE2eRegistry", "registry.k8s.io/e2e-test-images"),
    ("sigStorageRegistry", "registry.k8s.io/sig-storage"),
];

/// A registry of newer versions.
const NEWER: (&str, &str) = ("cloudProviderGcpRegistry", "registry.k8s.io/cloud-provider-gcp");

/// Replacement of registries.
pub(crate) enum Translation {
    /// All images in one registry, under the last component of their name.
    Registry(String),
    /// Each registry replaced by another one.
    Registries(BTreeMap<String, String>),
}

impl Translation {
    /// From a document with different values for the keys of [`registries`].
    pub(crate) fn of_document(document: &Value) -> Self {
        let pairs = REGISTRIES.into_iter();
        let pairs =
            pairs.filter_map(|(key, from)| Some((from.to_owned(), document[key].as_str()?.to_owned())));
        Self::Registries(pairs.collect())
    }

    /// The name of an image in its new place.
    pub(crate) fn apply(&self, image: &str) -> String {
        match self {
            Self::Registry(registry) => plugin::relocated(image, registry),
            Self::Registries(known) => {
                let (place, last) = image.rsplit_once('/').unwrap_or(("docker.io/library", image));
                known
                    .get(place)
                    .map_or_else(|| image.to_owned(), |to| format!("{}/{last}", to.trim_end_matches('/')))
            }
        }
    }
}

/// The registries of the e2e tests' images, as in a file for `--e2e-repo-config`.
pub(crate) fn registries() -> Value {
    REGISTRIES.into_iter().collect()
}

/// The same with those of newer versions, by key.
pub(super) fn all_registries() -> impl Iterator<Item = (&'static str, &'static str)> {
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
            ("registry.k8s.io/e2e-test-images/agnhost:2.47", "reg.local/e2e/agnhost:2.47"),
            ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9"),
            ("busybox:1", "busybox:1"),
        ] {
            assert_eq!(some.apply(image), expected);
        }
    }
}
