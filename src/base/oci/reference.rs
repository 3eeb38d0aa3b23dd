//! Names of images, `registry/repository:tag@digest`, with optional parts.

use std::fmt;

use anyhow::{Result, bail, ensure};

/// The registry of an image that names none, and the host of its API.
const DEFAULT: &str = "docker.io";
const DEFAULT_API: &str = "registry-1.docker.io";

/// The name of one image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
                    super::hash_of(digest).is_some(),
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
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest.to_owned()),
            Some(_) => (DEFAULT, path.to_owned()),
            None => (DEFAULT, format!("library/{path}")),
        };
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let part = |part: &str| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|byte| plain(*byte))
                && bytes.last().is_some_and(|byte| plain(*byte))
                && bytes.iter().all(|byte| plain(*byte) || b"._-".contains(byte))
        };
        if !repository.split('/').all(part) {
            bail!(
                "image `{text}`: `{repository}` is not a valid repository name; use lower-case letters, digits, `.`, `_`, `-`, `/`"
            );
        }
        let tagged = |tag: &String| {
            !tag.is_empty()
                && tag.len() <= 128
                && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        ensure!(tag.as_ref().is_none_or(tagged), "image `{text}`: invalid tag");
        let host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        ensure!(registry.bytes().all(host), "image `{text}`: `{registry}` is not a valid registry");
        let tag = if tag.is_none() && digest.is_none() { Some("latest".to_owned()) } else { tag };
        Ok(Self { registry: registry.to_owned(), repository, tag, digest })
    }

    /// The host that serves the registry's API.
    pub fn host(&self) -> &str {
        if self.registry == DEFAULT { DEFAULT_API } else { &self.registry }
    }

    /// Identifies a manifest in requests: the digest if known, else the tag.
    pub fn wanted(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
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
        check("sonobuoy/systemd-logs:v0.4", "docker.io/sonobuoy/systemd-logs:v0.4");
        check("localhost/x", "localhost/x:latest");
        check("reg.local:5000/a/b:1", "reg.local:5000/a/b:1");
        check(&format!("a.b/c@sha256:{}", "0".repeat(64)), &format!("a.b/c@sha256:{}", "0".repeat(64)));
        check("a.b/C:1", "!not a valid repository name");
        check("a.b/../c", "!not a valid repository name");
        check("a/b@md5:1", "!not a digest");
        check("a:", "!tag");
        check("", "!not a valid");
    }
}
