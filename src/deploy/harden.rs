//! Changes to the original's aggregator pod that make it resume after failures and pass stricter admission.
//!
//! Separate, because `gen` prints the original's pod by default.

use serde_json::Value;

use crate::config;
use base::json::json;
use base::oci::Reference;

/// Keeps a cluster autoscaler from evicting the pod.
const KEEP: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Image of the original, whose aggregator cannot resume a run and keeps all results in memory.
const ORIGINAL: &str = "sonobuoy/sonobuoy";

/// Makes the pod resume after a failure, resist eviction, limit its resources, and pass the `restricted` level of Pod
/// Security where the settings of the run leave that open.
pub(super) fn harden(pod: &mut Value, run: &config::Run) {
    let annotations = &mut pod["metadata"]["annotations"];
    if annotations[KEEP].is_null() {
        annotations[KEEP] = json!("false");
    }
    let spec = &mut pod["spec"];
    let mut resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    if !is_original(&run.worker_image) {
        spec["restartPolicy"] = json!("OnFailure");
        // Far above the needs of 5,000 nodes, and small for a node.
        resources["limits"] = json!({"cpu": "2", "memory": "512Mi"});
        // The aggregator knows this limit and stays below; beyond it the pod would be evicted with all results.
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

/// Formats a number of bytes as Kubernetes does.
fn quantity(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) { format!("{}Gi", bytes >> 30) } else { bytes.to_string() }
}

/// Whether an image is the original's, in any registry and version.
pub(super) fn is_original(image: &str) -> bool {
    let name = Reference::parse(image.split('@').next().unwrap_or(image));
    name.is_ok_and(|name| format!("/{}", name.repository).ends_with(&format!("/{ORIGINAL}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_size_equals_the_aggregators_limit() {
        for (bytes, image, limit) in [
            (100 << 30, "own", json!({"sizeLimit": "100Gi"})),
            (5, "own", json!({"sizeLimit": "5"})),
            (0, "own", json!({})),
            (5, ORIGINAL, json!({})),
        ] {
            let mut run = config::Run { worker_image: image.into(), ..config::Run::standard() };
            run.limits.run.bytes = bytes;
            let claim = json!({"persistentVolumeClaim": {}});
            let mut pod = json!({"spec": {"containers": [{}], "volumes": [{"emptyDir": {}}, claim]}});
            harden(&mut pod, &run);
            assert_eq!(pod["spec"]["volumes"], json!([{"emptyDir": limit}, claim]));
        }
    }

    #[test]
    fn images_of_the_original_are_recognized_in_any_registry() {
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
