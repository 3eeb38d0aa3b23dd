//! The images that plugins need.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::docker;
use crate::names::{OWN_IMAGE, VERSION_PLACEHOLDER};
use crate::plugin::{self, Definition, builtin};

/// What a set of plugins needs.
pub(crate) struct Wanted {
    images: BTreeSet<String>,
    conformance: Option<String>,
    /// The version of Kubernetes, if an image depends on it.
    pub version: Option<String>,
}

impl Wanted {
    /// Nothing but the image of this program.
    pub(crate) fn new(own: &str) -> Self {
        Self { images: BTreeSet::from([own.to_owned()]), conformance: None, version: None }
    }

    /// Adds what a plugin needs, where `own` is the image of this program. The version of the cluster is asked for only
    /// if an image depends on it.
    pub(crate) fn add(
        &mut self,
        found: plugin::Found,
        own: &str,
        version: impl Fn() -> Result<String>,
    ) -> Result<()> {
        let e2e = found.built_in && found.definition.name() == builtin::E2E;
        for image in images_of(found.definition) {
            let mut image = if image == OWN_IMAGE { own.to_owned() } else { image };
            if image.contains(VERSION_PLACEHOLDER) {
                let version = match self.version.take() {
                    Some(version) => version,
                    None => version()?,
                };
                image = image.replace(VERSION_PLACEHOLDER, &version);
                self.version = Some(version);
            }
            if e2e {
                self.conformance = Some(image.clone());
            }
            self.images.insert(image);
        }
        Ok(())
    }

    /// Without those that only the conformance image knows.
    pub(crate) fn without_tests(self) -> BTreeSet<String> {
        self.images
    }

    /// With the images that the tests use, which only the conformance image knows; `env` is what it is started with.
    pub(crate) fn all(self, env: &[(String, String)]) -> Result<BTreeSet<String>> {
        let mut images = self.images;
        if let Some(conformance) = self.conformance {
            let why = "only the conformance image knows the images of its tests, and docker starts it; \
                       --dry-run leaves them out, and so does a list of plugins without e2e (-p)";
            if !docker::is_here(&conformance) {
                docker::pull(&conformance).context(why)?;
            }
            let listed = docker::test_images(&conformance, env).context(why)?;
            let listed = listed.lines().map(str::trim).filter(|line| !line.is_empty());
            images.extend(listed.map(ToOwned::to_owned));
        }
        Ok(images)
    }
}

fn images_of(mut definition: Definition) -> Vec<String> {
    let inits = definition.pod_spec.as_ref().map(|pod| pod["initContainers"].clone()).unwrap_or_default();
    let inits = inits.as_array().cloned().unwrap_or_default();
    let containers = definition.containers_mut().map(|container| container.clone());
    let all: Vec<Value> = containers.chain(inits).collect();
    all.iter().filter_map(|container| container["image"].as_str().map(ToOwned::to_owned)).collect()
}
