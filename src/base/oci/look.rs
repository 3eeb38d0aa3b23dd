//! Whether a registry has an image, and for which platforms, without taking more of it than its manifests.
//!
//! Starts no thread.

use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use ureq::http::StatusCode;

use super::credential::{self, Credential};
use super::registry::{MANIFESTS, agent, header, refusal};
use super::{Client, Descriptor, Reference, Store, Stored, hash_of};
use crate::json;

/// More than any image says of itself.
const MAX_SETTINGS_BYTES: u64 = 4 << 20;

/// What a registry says about an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Of its manifest, or of the index of its manifests.
    pub digest: String,
    /// `linux/amd64`, one for each platform.
    pub platforms: Vec<String>,
}

impl Client {
    /// The same client for whoever does not wait: a single attempt, which takes no longer than that to begin.
    pub fn quick(mut self, limit: Duration) -> Result<Self> {
        self.agent = agent(self.program, limit)?;
        self.attempts = 1;
        Ok(self)
    }

    /// The same client with further credentials, as docker's config.json and pull secrets have them.
    pub fn credentials(mut self, config: Value) -> Self {
        self.config = Some(config);
        self
    }

    pub(super) fn credential(&self, registry: &str) -> Result<Option<Credential>> {
        // Helpers are this machine's, and not for somebody else's secret to start.
        let auths = self.config.as_ref().map(|config| json::json!({"auths": config["auths"]}));
        match auths.map(|auths| credential::in_config(&auths, registry)).transpose()?.flatten() {
            Some(found) => Ok(Some(found)),
            None => credential::find(registry),
        }
    }

    /// Checks that the registry has an image; returns its digest if the registry says so.
    pub fn exists(&self, image: &Reference) -> Result<Option<String>> {
        let url = self.url(image, &format!("manifests/{}", image.wanted()));
        let answer = self.repeat(|| self.call("HEAD", image, false, &url, &[("Accept", MANIFESTS)], None))?;
        match answer.status() {
            StatusCode::OK => Ok(Some(header(&answer, "docker-content-digest").unwrap_or_default())),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(refusal(answer, &url)),
        }
    }

    /// Which image the registry has under a name, if any.
    pub fn look(&self, image: &Reference) -> Result<Option<Look>> {
        if self.exists(image)?.is_none() {
            return Ok(None);
        }
        let (root, bytes) = self.manifest(image, image.wanted())?;
        let manifest: Value =
            json::from_slice(&bytes).with_context(|| format!("the manifest of `{image}`"))?;
        Look::new(root, &manifest, |blob| self.settings(image, blob)).map(Some)
    }

    fn settings(&self, image: &Reference, blob: &Descriptor) -> Result<Value> {
        hash_of(&blob.digest).context("a digest of an unsupported kind")?;
        let url = self.url(image, &format!("blobs/{}", blob.digest));
        let answer = self.repeat(|| self.call("GET", image, false, &url, &[], None))?;
        if answer.status() != StatusCode::OK {
            return Err(refusal(answer, &url));
        }
        let mut bytes = Vec::new();
        answer.into_body().into_reader().take(MAX_SETTINGS_BYTES).read_to_end(&mut bytes)?;
        json::from_slice(&bytes).with_context(|| format!("`{url}`"))
    }
}

impl Look {
    /// From the manifest, or index, of an image, and what `settings` finds in the blob of the one image.
    fn new(
        root: Descriptor,
        manifest: &Value,
        settings: impl FnOnce(&Descriptor) -> Result<Value>,
    ) -> Result<Self> {
        let platforms = if root.is_index() {
            let all = manifest["manifests"].as_array().into_iter().flatten();
            all.filter_map(|entry| platform(&entry["platform"])).collect()
        } else {
            let settings = Descriptor::read(&manifest["config"]).map(|blob| settings(&blob));
            platform(&settings.transpose()?.unwrap_or_default()).into_iter().collect()
        };
        Ok(Self { digest: root.digest, platforms })
    }
}

impl Store {
    /// What an image in it is for.
    pub fn look(&self, image: &Stored) -> Result<Look> {
        Look::new(image.root.clone(), &self.manifest(&image.root)?, |blob| self.manifest(blob))
    }
}

/// What an entry of an index, or an image, is for; attestations are for nothing.
fn platform(value: &Value) -> Option<String> {
    let (system, architecture) = (value["os"].as_str()?, value["architecture"].as_str()?);
    (system != "unknown").then(|| format!("{system}/{architecture}"))
}

/// Whether nobody answered, as opposed to somebody who refused.
pub fn is_unreached(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<ureq::Error>() || cause.is::<std::io::Error>())
}
