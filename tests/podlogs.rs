//! Logs of pods whose status is older than what they have done.

use serde_json::json;

use super::support::Sonobuoy;
use super::support::api_server::ApiServer;

/// What a cluster tells of a pod is seconds old: a quick plugin has ended while its container is still being created.
#[test]
fn the_log_of_a_plugin_that_is_quicker_than_its_status_is_taken() {
    let api = ApiServer::start();
    api.put("/api/v1/namespaces/sonobuoy", json!({}));
    for (name, component) in [("quick", "sonobuoy"), ("stuck", "sonobuoy"), ("other", "x")] {
        let pod = json!({
            "metadata": {"labels": {"component": component}},
            "spec": {"containers": [{"name": "plugin"}]},
            "status": {"phase": "Pending", "containerStatuses": [
                {"name": "plugin", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}},
            ]},
        });
        api.put(&format!("/api/v1/namespaces/sonobuoy/pods/{name}"), pod);
    }
    api.log("sonobuoy", "quick", "plugin", "done\n");
    let config = json!({"Namespace": "sonobuoy", "Resources": ["podlogs"]});
    let call = Sonobuoy::new("query -o out --kubeconfig kubeconfig --config c.json")
        .file("c.json", config.to_string());
    api.kubeconfig(&call.folder());
    let folder = call.stdout("out\n").stderr_has("requests were answered").run().folder;
    assert_eq!(folder.read("out/podlogs/sonobuoy/quick/logs/plugin.txt"), "done\n");
    for absent in ["stuck", "other"] {
        assert!(!folder.join(&format!("out/podlogs/sonobuoy/{absent}")).exists(), "{absent}");
    }
    assert_eq!(folder.read("out/meta/query-errors.json").trim(), "[]", "what never ran has no log");
    assert_eq!(api.count("GET /api/v1/namespaces/sonobuoy/pods/other/log"), 0);
    assert!(api.count("GET /api/v1/namespaces/sonobuoy/pods/stuck/log") > 1, "it may start any moment");
}
