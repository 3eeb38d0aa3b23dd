//! The images that plugins need.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use crate::names::{OWN_IMAGE, VERSION_PLACEHOLDER};
use crate::plugin::{self, Definition, builtin};
use base::kube::Object as _;
use base::oci::Reference;

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
    /// Adds the images of a plugin; `own` is the image of this program. Queries the version of the cluster only if an image
    /// depends on it.
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
            if e2e && (found.built_in || Reference::parse(&image).is_ok_and(|name| is_conformance(&name))) {
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
    let more = pod["containers"].items().chain(pod["initContainers"].items());
    std::iter::once(&plugin.spec).chain(more).filter_map(|container| container["image"].as_str())
}
