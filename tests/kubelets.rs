//! A snapshot of nodes with unreachable kubelets: one query each, and a time limit for all.

#[cfg(unix)]
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::query::{cluster, done, query, read};
use crate::support::api_server::{ApiServer, Fault};

#[test]
fn unreachable_kubelet_is_queried_once() {
    let api = cluster();
    for (node, code) in [("a", 500), ("b", 502), ("c", 504)] {
        api.put(&format!("/api/v1/nodes/{node}"), json!({}));
        api.raw(
            &format!("/api/v1/nodes/{node}/proxy/configz"),
            code,
            "dial tcp: i/o timeout",
        );
        let containers: Vec<Value> = (0..9)
            .map(|number| json!({"name": format!("c{number}")}))
            .collect();
        api.put(
            &format!("/api/v1/namespaces/kube-system/pods/on-{node}"),
            json!({"spec": {"nodeName": node, "containers": containers}, "status": {"phase": "Running"}}),
        );
    }
    let folder = done(query(&api, ""));
    for node in ["a", "b", "c"] {
        assert_eq!(api.count(&format!("GET /api/v1/nodes/{node}/proxy")), 1);
        assert_eq!(
            api.count(&format!(
                "GET /api/v1/namespaces/kube-system/pods/on-{node}/log"
            )),
            0
        );
    }
    let errors = read(&folder, "meta/query-errors.json");
    let names: Vec<&str> = errors
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|error| error["name"].as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c"], "{errors:#}");
    let text = errors[0]["error"].as_str().unwrap();
    assert!(
        text.starts_with("10 requests for its data and logs are skipped")
            && text.contains("i/o timeout"),
        "{text}"
    );
}

#[test]
fn snapshot_ends_at_its_timeout() {
    let api = cluster();
    for node in 0..200 {
        api.put(&format!("/api/v1/nodes/x{node:03}"), json!({}));
        let configz = format!("GET /api/v1/nodes/x{node:03}/proxy/configz");
        api.fault(Fault::on(&configz).slow(Duration::from_secs(60)));
    }
    let settings = r#"{"Limits": {"Snapshot": {"Time": "1s"}}, "Server": {"timeoutseconds": 20}}"#;
    let began = Instant::now();
    let folder = done(query(&api, "--config config.json").file("config.json", settings));
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    let errors = read(&folder, "meta/query-errors.json");
    let of_nodes = errors
        .as_array()
        .unwrap()
        .iter()
        .filter(|error| error["queryobj"] == "Nodes");
    assert_eq!(of_nodes.count(), 200, "each node once");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_snapshot() {
    let api = cluster();
    api.fault(Fault::on("GET /api/v1/nodes/n1/proxy/configz").slow(Duration::from_secs(60)));
    let (mut command, _folder) = query(&api, "").command();
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    api.wait(|api| api.count("GET /api/v1/nodes/n1/proxy/configz") == 1);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(
        stderr.contains("the snapshot was interrupted") && output.stdout.is_empty(),
        "{stderr}"
    );
}

/// A cluster whose node `n1` says that its kubelet answers log queries.
fn log_queries() -> ApiServer {
    let api = cluster();
    let settings =
        json!({"kubeletconfig": {"enableSystemLogHandler": true, "enableSystemLogQuery": true}});
    api.raw("/api/v1/nodes/n1/proxy/configz", 200, settings.to_string());
    api
}

const LOGS: &str = "/api/v1/nodes/n1/proxy/logs/";
const LOG: &str =
    "Jan 02 kubelet[1]: I0102 started\nJan 02 kubelet[1]: to postgres://u:hunter2@db/x\n";

#[test]
fn log_of_a_kubelet_that_answers_log_queries_is_kept_without_secrets() {
    let api = log_queries();
    api.raw(LOGS, 200, LOG);
    let folder = done(query(&api, ""));
    let log = std::fs::read_to_string(folder.join("out/hosts/n1/kubelet.log")).unwrap();
    assert!(
        log.starts_with("Jan 02 kubelet[1]: I0102 started\n"),
        "{log}"
    );
    assert!(!log.contains("hunter2"), "{log}");
    assert_eq!(
        api.count(&format!("GET {LOGS}?query=kubelet&tailLines=10000")),
        1
    );
    let asked = api.requests();
    let others = asked.iter().filter(|line| line.contains("/proxy/logs"));
    assert_eq!(
        others.count(),
        1,
        "kubelets that do not say so are not asked"
    );
}

#[test]
fn log_of_a_kubelet_follows_the_limits_of_logs() {
    let api = log_queries();
    api.raw(LOGS, 200, LOG);
    let settings = r#"{"Limits": {"PodLogs": {"TailLines": 3, "LimitBytes": 9, "SinceTime": "2026-01-02T03:04:05Z"}}}"#;
    let folder = done(query(&api, "--config config.json").file("config.json", settings));
    let log = std::fs::read_to_string(folder.join("out/hosts/n1/kubelet.log")).unwrap();
    assert_eq!(log, "Jan 02 ku");
    let asked = format!("GET {LOGS}?query=kubelet&tailLines=3&sinceTime=2026-01-02T03:04:05Z");
    assert_eq!(api.count(&asked), 1, "{:#?}", api.requests());
    let api = log_queries();
    let settings = r#"{"Resources": ["nodes"]}"#;
    done(query(&api, "--config config.json").file("config.json", settings));
    assert_eq!(api.count(&format!("GET {LOGS}")), 0, "no logs are wanted");
}

#[test]
fn log_in_a_file_is_read_without_options() {
    let api = log_queries();
    api.raw(LOGS, 200, LOG);
    let refusal = "\noptions present and query resolved to log files for [kubelet]\ntry without specifying options\n";
    api.fault(Fault::on(&format!("GET {LOGS}?query=kubelet&tailLines")).garbage(refusal));
    let folder = done(query(&api, ""));
    assert!(folder.join("out/hosts/n1/kubelet.log").is_file());
}

#[test]
fn kubelet_without_a_log_is_recorded_with_the_reason() {
    let api = log_queries();
    api.raw(LOGS, 200, "\nlog not found for kubelet\n");
    let folder = done(query(&api, ""));
    assert!(!folder.join("out/hosts/n1/kubelet.log").exists());
    let errors = read(&folder, "meta/query-errors.json");
    let error = errors
        .as_array()
        .unwrap()
        .iter()
        .find(|error| error["name"] == "n1/logs");
    assert_eq!(
        error.unwrap()["error"],
        "the kubelet has no log of its own: log not found for kubelet"
    );
}
