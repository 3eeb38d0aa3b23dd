//! The default pod specs, by driver.

use serde_json::Value;

use super::{Definition, DriverKind};
use base::json::json;

/// Maximum restarts of a failing container in a pod with `restartPolicy: OnFailure`.
pub(crate) const MAX_FAILURES: u8 = 5;

impl Definition {
    /// Maximum failures after which a container is still restarted.
    pub(crate) fn max_failures(&self) -> u8 {
        let policy = self.pod_spec.as_ref().map(|spec| &spec["restartPolicy"]);
        if policy.is_some_and(|policy| policy == "OnFailure") { MAX_FAILURES } else { 0 }
    }
}

/// The pod spec of a plugin that has none, without containers.
pub(crate) fn default_spec(driver: DriverKind, service_account: &str) -> Value {
    match driver {
        DriverKind::Job => json!({
            "containers": [],
            "restartPolicy": "Never",
            "serviceAccountName": service_account,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [
                {"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "CriticalAddonsOnly", "operator": "Exists"},
                {"key": "kubernetes.io/e2e-evict-taint-key", "operator": "Exists"},
            ],
        }),
        DriverKind::Nodes => {
            let mut spec = default_spec(DriverKind::DaemonSet, service_account);
            spec["restartPolicy"] = "Never".into();
            spec
        }
        DriverKind::DaemonSet => json!({
            "containers": [],
            "dnsPolicy": "ClusterFirstWithHostNet",
            "hostIPC": true,
            "hostNetwork": true,
            "hostPID": true,
            "serviceAccountName": service_account,
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
        }),
    }
}
