//! Container images without a container daemon: registries over HTTP, image archives, credentials.
//!
//! Knows the OCI image and distribution formats (and docker's older media types), and nothing about
//! runs or plugins.

mod credential;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod registry;
mod store;

pub use registry::{Client, ImageInfo, is_unreached};
pub use store::{Beside, Platform, Store, Stored, architecture, read_archive, write_archive};

use std::fmt;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum bytes of an index, a manifest or another document.
const MAX_JSON_BYTES: u64 = 8 << 20;

/// Receives the number of transferred bytes of a blob: 0 at the start, all if the blob already
/// exists at the target.
pub type Watch<'a> = &'a dyn Fn(&Descriptor, u64);

/// A pointer to a blob: its type, hash and size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type.
    #[serde(default)]
    pub media_type: String,
    /// `sha256:` and 64 digits.
    pub digest: String,
    /// Bytes.
    pub size: u64,
}

impl Descriptor {
    /// Reads one from a manifest; `None` if it is invalid or uses an unsupported hash.
    fn read(value: &Value) -> Option<Self> {
        Self::deserialize(value)
            .ok()
            .filter(|blob| hash_of(&blob.digest).is_some())
    }

    /// Whether it points to an index of images for several platforms.
    fn is_index(&self) -> bool {
        [
            "application/vnd.oci.image.index.v1+json",
            "application/vnd.docker.distribution.manifest.list.v2+json",
        ]
        .contains(&self.media_type.as_str())
    }
}

/// The elements of a list; none of anything else.
fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The digits of a digest; checked, since they become a file name.
fn hash_of(digest: &str) -> Option<&str> {
    let digits = digest.strip_prefix("sha256:")?;
    let plain = digits.len() == 64
        && digits
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    plain.then_some(digits)
}

/// A hash as a digest.
fn digest_of(hash: &ring::digest::Digest) -> String {
    format!("sha256:{}", base::hex(hash))
}

/// The platform of an index entry or an image; `None` for attestations.
fn platform_of(value: &Value) -> Option<String> {
    let (system, architecture) = (value["os"].as_str()?, value["architecture"].as_str()?);
    (system != "unknown").then(|| format!("{system}/{architecture}"))
}

/// The registry of an image that names none, and the host of its API.
const DEFAULT: &str = "docker.io";
const DEFAULT_API: &str = "registry-1.docker.io";

/// The name of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Host and port.
    pub registry: String,
    /// The path in the registry.
    pub repository: String,
    /// The tag; without a digest, `latest` by default.
    pub tag: Option<String>,
    /// The digest.
    pub digest: Option<String>,
}

impl Reference {
    /// Parses a name as docker does.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => {
                ensure!(
                    hash_of(digest).is_some(),
                    "image `{text}`: `{digest}` is not a digest `sha256:…`"
                );
                (name, Some(digest.to_owned()))
            }
            None => (text, None),
        };
        let (path, tag) = match name.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag.to_owned())),
            _ => (name, None),
        };
        let (registry, repository) = match path.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => {
                (host, rest.to_owned())
            }
            Some(_) => (DEFAULT, path.to_owned()),
            None => (DEFAULT, format!("library/{path}")),
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let part = |part: &str| {
            part.starts_with(plain)
                && part.ends_with(plain)
                && part.chars().all(|c| plain(c) || "._-".contains(c))
        };
        if !repository.split('/').all(part) {
            bail!(
                "image `{text}`: `{repository}` is not a valid repository name; use lower-case \
                 letters, digits, `.`, `_`, `-`, `/`"
            );
        }
        let tagged = |tag: &String| {
            !tag.is_empty()
                && tag.len() <= 128
                && tag
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        ensure!(
            tag.as_ref().is_none_or(tagged),
            "image `{text}`: invalid tag"
        );
        let host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        ensure!(
            registry.bytes().all(host),
            "image `{text}`: `{registry}` is not a valid registry"
        );
        let tag = if tag.is_none() && digest.is_none() {
            Some("latest".to_owned())
        } else {
            tag
        };
        Ok(Self {
            registry: registry.to_owned(),
            repository,
            tag,
            digest,
        })
    }

    /// The host that serves the registry's API.
    pub fn host(&self) -> &str {
        if self.registry == DEFAULT {
            DEFAULT_API
        } else {
            &self.registry
        }
    }

    /// Identifies a manifest in requests: the digest if known, else the tag.
    pub fn wanted(&self) -> &str {
        self.digest
            .as_deref()
            .or(self.tag.as_deref())
            .unwrap_or("latest")
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        match Reference::parse(text) {
            Ok(reference) => assert_eq!(reference.to_string(), expected, "{text}"),
            Err(error) => assert!(
                expected.starts_with('!') && error.to_string().contains(&expected[1..]),
                "{text}: {error}"
            ),
        }
    }

    #[test]
    fn names_are_completed_like_docker() {
        check("busybox", "docker.io/library/busybox:latest");
        check(
            "sonobuoy/systemd-logs:v0.4",
            "docker.io/sonobuoy/systemd-logs:v0.4",
        );
        check("localhost/x", "localhost/x:latest");
        check("reg.local:5000/a/b:1", "reg.local:5000/a/b:1");
        check(
            &format!("a.b/c@sha256:{}", "0".repeat(64)),
            &format!("a.b/c@sha256:{}", "0".repeat(64)),
        );
        check("a.b/C:1", "!not a valid repository name");
        check("a.b/../c", "!not a valid repository name");
        check("a/b@md5:1", "!not a digest");
        check("a:", "!tag");
        check("", "!not a valid");
    }
}
