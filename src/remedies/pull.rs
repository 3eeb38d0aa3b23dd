//! Remedies for images that nodes cannot pull: the conformance image without internet access, and images in no registry,
//! such as this program's own before it is pushed.

use base::Joined as _;

/// Texts that indicate an unreachable registry, which is not temporary.
const UNREACHABLE: &[&str] = &[
    "no such host",
    "server misbehaving",
    "name resolution",
    "connection refused",
    "no route to host",
    "network is unreachable",
    "i/o timeout",
    "deadline exceeded",
    "timed out",
];
/// Texts that indicate a reachable registry without the image.
const UNKNOWN: &[&str] = &["not found", "manifest unknown"];

/// Prefix of images that are loaded into nodes and never pulled.
const LOCAL: &str = "localhost/";

/// Whether an image is in no registry.
pub(crate) fn is_local_image(image: &str) -> bool {
    image.starts_with(LOCAL)
}

/// The commands that load an image without a registry into nodes, one per line.
pub(crate) fn load_commands(image: &str) -> String {
    let name = image.strip_prefix(LOCAL).unwrap_or(image);
    format!(
        "`{image}` is in no registry and has to be loaded into every node, for example by one of:\n  \
         kind load docker-image {image}\n  \
         docker save {image} | sudo k3s ctr images import -\n  \
         docker save {image} | sudo ctr -n k8s.io images import -\n  \
         docker tag {image} REGISTRY/{name} && docker push REGISTRY/{name}, then run with --sonobuoy-image REGISTRY/{name}"
    )
}

/// The remedy for a missing image known to this program, unless the node's error is likely temporary.
pub(crate) fn missing_image(image: &str, said: &str) -> Option<String> {
    if is_local_image(image) {
        let lines = load_commands(image).lines().map(str::trim).joined("; ");
        return Some(lines.replacen(":; ", ": ", 1));
    }
    let last = image.rsplit('/').next()?;
    let (name, tag) = last.split_once(':')?;
    if name != "conformance" || tag.contains('@') {
        return None;
    }
    let said = said.to_lowercase();
    let tells = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if tells(UNREACHABLE) {
        return Some(format!(
            "where there is internet access, `sonobuoy images download -p e2e --kubernetes-version {tag} -o images.tar` fetches it \
             with the images of its tests; here, `sonobuoy images push --archive images.tar --custom-registry REGISTRY` brings \
             them in, for `sonobuoy run --e2e-repo REGISTRY --kube-conformance-image REGISTRY/{last}`"
        ));
    }
    tells(UNKNOWN).then(|| {
        format!(
            "its registry has no `{last}`: name another version by `--kubernetes-version`, or an image by \
             `--kube-conformance-image`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_commands_are_named_where_they_help() {
        let ours = "registry.k8s.io/conformance:v1.30.0";
        for (image, said, expected) in [
            (
                ours,
                "dial tcp: lookup registry.k8s.io: No such host",
                Some("images download -p e2e --kubernetes-version v1.30.0"),
            ),
            (ours, "dial tcp 1.2.3.4:443: i/o timeout", Some("REGISTRY/conformance:v1.30.0`")),
            (
                ours,
                "failed to resolve reference: not found",
                Some("its registry has no `conformance:v1.30.0`"),
            ),
            (ours, "429 Too Many Requests", None),
            (ours, "", None),
            ("example.org/other:v1.30.0", "no such host", None),
            ("localhost:5000/conformance", "no such host", None),
            (
                "localhost/sonobuoy:v1",
                "connection refused",
                Some(": kind load docker-image localhost/sonobuoy:v1; "),
            ),
        ] {
            let found = missing_image(image, said);
            assert_eq!(found.is_some(), expected.is_some(), "{image}: {said}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()), "{image}: {said}");
        }
    }
}
