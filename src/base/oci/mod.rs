//! Container images without a container daemon: registries over HTTP, image archives, credentials.
//!
//! Knows the OCI image and distribution formats (and docker's older media types), and nothing about runs or plugins.

mod archive;
mod credential;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod reference;
mod registry;
mod store;

pub use archive::{Beside, read as read_archive, write as write_archive};
pub use reference::Reference;
pub use registry::{Client, ImageInfo, is_unreached};
pub use store::{Platform, Store, Stored, architecture};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum bytes of an index, a manifest or another document.
const MAX_JSON_BYTES: u64 = 8 << 20;

/// Receives the number of transferred bytes of a blob: 0 at the start, all if the blob already exists at the target.
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
        Self::deserialize(value).ok().filter(|blob| hash_of(&blob.digest).is_some())
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
    let plain = digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    plain.then_some(digits)
}

/// A hash as a digest.
fn digest_of(hash: &ring::digest::Digest) -> String {
    format!("sha256:{}", crate::hex(hash))
}

/// The platform of an index entry or an image; `None` for attestations.
fn platform_of(value: &Value) -> Option<String> {
    let (system, architecture) = (value["os"].as_str()?, value["architecture"].as_str()?);
    (system != "unknown").then(|| format!("{system}/{architecture}"))
}
