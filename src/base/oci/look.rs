//! Checks whether a registry has an image, and for which platforms, by fetching only manifests.
//!
//! Starts no thread.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use ureq::http::StatusCode;

use super::credential::{self, Credential};
use super::registry::{MANIFESTS, agent, header, no_progress, refusal};
use super::{Client, Descriptor, Reference, Store, Stored, hash_of};
use crate::json;

/// A registry's information about an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageInfo {
    /// Digest of its manifest, or of its index.
    pub digest: String,
    /// Platforms such as `linux/amd64`.
    pub platforms: Vec<String>,
}

impl Client {
    /// The same client with a single attempt per request, and `limit` as the timeout until a response starts.
    pub fn quick(mut self, limit: Duration) -> Result<Self> {
        self.agent = agent(self.program, limit)?;
        self.attempts = 1;
        Ok(self)
    }

    /// The same client with further credentials, in the format of docker's config.json and pull secrets.
    pub fn credentials(mut self, config: Value) -> Self {
        self.config = Some(config);
        self
    }

    pub(super) fn credential(&self, registry: &str) -> Result<Option<Credential>> {
        // Credential helpers belong to this machine and must not run on behalf of credentials from elsewhere.
        let auths = self.config.as_ref().map(|config| json::json!({"auths": config["auths"]}));
        match auths.map(|auths| credential::in_config(&auths, registry)).transpose()?.flatten() {
            Some(found) => Ok(Some(found)),
            None => credential::find(registry),
        }
    }

    /// Checks that the registry has an image; returns its digest if the registry says so.
    pub fn exists(&self, image: &Reference) -> Result<Option<String>> {
        let url = self.url(image, &format!("manifests/{}", image.wanted()));
        self.persist(no_progress, || {
            let answer = self.call("HEAD", image, false, &url, &[("Accept", MANIFESTS)], None)?;
            match answer.status() {
                StatusCode::OK => Ok(Some(header(&answer, "docker-content-digest").unwrap_or_default())),
                StatusCode::NOT_FOUND => Ok(None),
                _ => Err(refusal(answer, &url)),
            }
        })
    }

    /// The image that the registry has under a name, if any.
    pub fn look(&self, image: &Reference) -> Result<Option<ImageInfo>> {
        if self.exists(image)?.is_none() {
            return Ok(None);
        }
        let (root, bytes) = self.manifest(image, image.wanted())?;
        let manifest: Value =
            json::from_slice(&bytes).with_context(|| format!("the manifest of `{image}`"))?;
        ImageInfo::new(root, &manifest, |blob| self.settings(image, blob)).map(Some)
    }

    fn settings(&self, image: &Reference, blob: &Descriptor) -> Result<Value> {
        hash_of(&blob.digest).context("a digest of an unsupported kind")?;
        let url = self.url(image, &format!("blobs/{}", blob.digest));
        let (_, bytes) = self.fetch(image, &url, &[])?;
        json::from_slice(&bytes).with_context(|| format!("`{url}`"))
    }
}

impl ImageInfo {
    /// From the manifest or index of an image; `settings` reads the configuration blob of a single image.
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
    /// Platforms of an image in the store.
    pub fn look(&self, image: &Stored) -> Result<ImageInfo> {
        ImageInfo::new(image.root.clone(), &self.manifest(&image.root)?, |blob| self.manifest(blob))
    }
}

/// The platform of an index entry or an image; `None` for attestations.
fn platform(value: &Value) -> Option<String> {
    let (system, architecture) = (value["os"].as_str()?, value["architecture"].as_str()?);
    (system != "unknown").then(|| format!("{system}/{architecture}"))
}

/// Whether the registry did not respond, as opposed to refusing.
pub fn is_unreached(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<ureq::Error>() || cause.is::<std::io::Error>())
}
