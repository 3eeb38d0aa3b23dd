//! What `run` adds to the aggregator's pod of the original, so that it survives more and is allowed in more places.
//!
//! Kept apart, because `gen` prints the original's pod unless told otherwise.

use serde_json::Value;

use crate::config;
use base::json::json;

/// Tells the autoscaler of a cluster to leave the pod where it is.
const KEEP: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// The image of the original: its aggregator cannot take a run up again, and holds all of a run in memory.
const ORIGINAL: &str = "sonobuoy/sonobuoy";

/// Makes the pod resume after a failure, keep its place, limit its resources, and pass the `restricted` level of Pod
/// Security where the run's settings leave that open.
pub(super) fn harden(pod: &mut Value, run: &config::Run) {
    let annotations = &mut pod["metadata"]["annotations"];
    if annotations[KEEP].is_null() {
        annotations[KEEP] = json!("false");
    }
    let spec = &mut pod["spec"];
    let mut resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    if !is_original(&run.worker_image) {
        spec["restartPolicy"] = json!("OnFailure");
        // Far above what 5,000 nodes need, and below what a node would miss.
        resources["limits"] = json!({"cpu": "2", "memory": "512Mi"});
        // Known to the aggregator, too, which stays below; beyond it the pod would be thrown out with all results.
        let bytes = run.limits.run.bytes;
        let volumes = spec["volumes"].as_array_mut().into_iter().flatten();
        for volume in volumes.filter(|volume| volume["emptyDir"].is_object() && bytes > 0) {
            volume["emptyDir"]["sizeLimit"] = json!(quantity(bytes));
        }
    }
    spec["containers"][0]["resources"] = resources;
    // `none` is for clusters and systems that set or refuse these themselves, such as Windows.
    if run.security_context_mode != "none" {
        spec["securityContext"]["runAsNonRoot"] = json!(true);
        spec["securityContext"]["seccompProfile"] = json!({"type": "RuntimeDefault"});
        spec["containers"][0]["securityContext"] =
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    }
}

/// So many bytes as Kubernetes writes them.
fn quantity(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) { format!("{}Gi", bytes >> 30) } else { bytes.to_string() }
}

/// Whether an image is the original's, in whatever registry and version.
pub(super) fn is_original(image: &str) -> bool {
    let name = image.split('@').next().unwrap_or(image);
    let end = name.rfind('/').unwrap_or(0);
    let name = match name[end..].find(':') {
        Some(colon) => &name[..end + colon],
        None => name,
    };
    name == ORIGINAL || name.ends_with(&format!("/{ORIGINAL}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volume_has_the_size_that_the_aggregator_knows_of() {
        for (bytes, image, limit) in [
            (100 << 30, "own", json!({"sizeLimit": "100Gi"})),
            (5, "own", json!({"sizeLimit": "5"})),
            (0, "own", json!({})),
            (5, ORIGINAL, json!({})),
        ] {
            let mut run = config::Run { worker_image: image.into(), ..config::Run::default() };
            run.limits.run.bytes = bytes;
            let claim = json!({"persistentVolumeClaim": {}});
            let mut pod = json!({"spec": {"containers": [{}], "volumes": [{"emptyDir": {}}, claim]}});
            harden(&mut pod, &run);
            assert_eq!(pod["spec"]["volumes"], json!([{"emptyDir": limit}, claim]));
        }
    }

    #[test]
    fn images_of_the_original_are_known_anywhere() {
        for (image, expected) in [
            ("sonobuoy/sonobuoy:v0.57.5", true),
            ("sonobuoy/sonobuoy", true),
            ("docker.io/sonobuoy/sonobuoy@sha256:00", true),
            ("registry:5000/sonobuoy/sonobuoy:v1", true),
            ("registry:5000/mine/sonobuoy:v1", false),
            ("localhost/sonobuoy:1", false),
            ("notsonobuoy/sonobuoy:1", false),
        ] {
            assert_eq!(is_original(image), expected, "{image}");
        }
    }
}
