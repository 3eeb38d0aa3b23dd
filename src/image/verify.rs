//! Verifies that an image is available in its registry, and for the architectures of the nodes.
//!
//! Queries registries, or reads an archive. Starts no thread.

use std::collections::BTreeSet;

use oci::{self, ImageInfo, Reference};

/// Availability of an image.
#[derive(Debug, PartialEq)]
pub(crate) enum Availability {
    /// Available.
    Here(ImageInfo),
    /// Missing.
    Missing,
    /// The registry denies access.
    Refused(String),
    /// The registry did not respond, which says nothing about the nodes.
    Unknown(String),
}

/// Queries the registry of an image.
pub(crate) fn ask(client: &oci::Client, image: &str) -> Availability {
    match Reference::parse(image).and_then(|name| client.find_image(&name)) {
        Ok(Some(look)) => Availability::Here(look),
        Ok(None) => Availability::Missing,
        Err(error) if oci::is_unreached(&error) => Availability::Unknown(format!("{error:#}")),
        Err(error) => Availability::Refused(format!("{error:#}")),
    }
}

impl Availability {
    /// The reason why nodes of these architectures cannot run it, if any.
    pub(crate) fn trouble(&self, image: &str, architectures: &BTreeSet<String>) -> Option<String> {
        match self {
            Self::Unknown(_) => None,
            Self::Missing => Some(format!(
                "manifest unknown: the registry does not have `{image}`"
            )),
            Self::Refused(why) => Some(format!("pull access denied: {why}")),
            Self::Here(look) if look.platforms.is_empty() => None,
            Self::Here(look) => {
                let has = |architecture: &&String| {
                    !look.platforms.contains(&format!("linux/{architecture}"))
                };
                let lacking: Vec<&str> = architectures
                    .iter()
                    .filter(has)
                    .map(String::as_str)
                    .collect();
                (!lacking.is_empty()).then(|| {
                    format!(
                        "no match for platform: `{image}` is built for {} and not for nodes with \
                         {}",
                        look.platforms.join(", "),
                        lacking.join(", ")
                    )
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_must_exist_for_each_architecture() {
        let here = |platforms: &[&str]| {
            Availability::Here(ImageInfo {
                digest: "sha256:0".into(),
                platforms: platforms
                    .iter()
                    .map(|platform| (*platform).to_owned())
                    .collect(),
            })
        };
        let nodes = ["amd64", "arm64"].map(str::to_owned).into();
        for (found, expected) in [
            (here(&["linux/amd64", "linux/arm64", "windows/amd64"]), None),
            (here(&[]), None),
            (
                here(&["linux/amd64"]),
                Some(
                    "no match for platform: `i` is built for linux/amd64 and not for nodes with \
                     arm64",
                ),
            ),
            (
                Availability::Missing,
                Some("manifest unknown: the registry does not have `i`"),
            ),
            (
                Availability::Refused("no".into()),
                Some("pull access denied: no"),
            ),
            (Availability::Unknown("away".into()), None),
        ] {
            assert_eq!(found.trouble("i", &nodes).as_deref(), expected, "{found:?}");
        }
    }
}
