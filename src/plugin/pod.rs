//! The default pod specs, by driver.

use serde_json::Value;

use super::Driver;
use base::json::json;

/// The pod spec of a plugin that has none, without containers.
pub(crate) fn default_spec(driver: Driver, service_account: &str) -> Value {
    match driver {
        Driver::Job => json!({
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
        Driver::DaemonSet => json!({
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
