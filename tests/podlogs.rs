//! Logs of pods whose reported status is outdated.

use serde_json::json;

use super::support::Sonobuoy;
use super::support::api_server::ApiServer;

/// A reported pod status is seconds old: a short plugin has ended while its container is still
/// reported as being created.
#[test]
fn log_of_a_short_plugin_is_collected() {
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
    let folder = call
        .stdout("out\n")
        .stderr_has("requests were answered")
        .run()
        .folder;
    assert_eq!(
        folder.read("out/podlogs/sonobuoy/quick/logs/plugin.txt"),
        "done\n"
    );
    for absent in ["stuck", "other"] {
        assert!(
            !folder
                .join(&format!("out/podlogs/sonobuoy/{absent}"))
                .exists(),
            "{absent}"
        );
    }
    assert_eq!(
        folder.read("out/meta/query-errors.json").trim(),
        "[]",
        "what never ran has no log"
    );
    assert_eq!(
        api.count("GET /api/v1/namespaces/sonobuoy/pods/other/log"),
        0
    );
    assert!(
        api.count("GET /api/v1/namespaces/sonobuoy/pods/stuck/log") > 1,
        "it may start any moment"
    );
}
