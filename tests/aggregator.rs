//! The aggregator process against the fake API server: behaviour of a run when pods, nodes, the API
//! server or the aggregator itself fail.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::channel::files;
use crate::support::Sonobuoy;
use crate::support::api_server::{ApiServer, Fault};
use crate::support::cluster::{Cluster, daemon_set_controller};

#[test]
fn worker_delivers_to_aggregator() {
    let cluster = Cluster::new(&["a"]).plugin("p", "Job", "");
    let aggregator = cluster.start("");
    let pod = cluster.pod_on("p", "global");
    let result: String = (0..10_000).map(|number| format!("{number:08}\n")).collect();
    let mut worker = Sonobuoy::new("worker global").file("results/r.txt", &result);
    let results = worker.folder().join("results");
    std::fs::write(
        results.join("done"),
        results.join("r.txt").to_str().unwrap(),
    )
    .unwrap();
    for (name, value) in cluster.environment(&pod) {
        worker = worker.env(&name, value);
    }
    worker
        .env("SONOBUOY_RESULTS_DIR", results)
        .env("SONOBUOY_DONE_FILE_DELAY", "0s")
        .env("SONOBUOY_PROGRESS_PORT", "0")
        .run_any();
    aggregator.ends_well();
    assert_eq!(cluster.status()["plugins"][0]["result-status"], "passed");
    let archive = cluster.archive();
    assert!(archive.text("plugins/p/results/global/r.txt") == result);
    assert!(
        archive
            .text("plugins/p/sonobuoy_results.yaml")
            .contains("status: passed")
    );
}

#[test]
fn run_in_groups_completes() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("early", "DaemonSet", "  order: -1\n")
        .plugin("late", "Job", "");
    let aggregator = cluster.start("");
    let early = cluster.worker("early");
    assert_eq!(early.send("a"), 200);
    assert!(
        cluster.pods("late").is_empty(),
        "the second group waits for all of the first"
    );
    assert_eq!(early.send("a"), 409);
    assert_eq!(early.send("nowhere"), 403);
    assert_eq!(early.send("b"), 200);
    assert_eq!(cluster.worker("late").send("global"), 200);
    aggregator.ends_well();
    let archive = cluster.archive();
    assert_eq!(archive.text("plugins/early/results/b/r.txt"), "of b\n");
    let status = cluster.status();
    assert_eq!(
        (&status["status"], &status["plugins"][0]["result-status"]),
        (&json!("complete"), &json!("passed"))
    );
    assert_eq!(status["tar-info"]["sha256"].as_str().unwrap().len(), 64);
    assert!(
        cluster.pods("early").is_empty() && cluster.pods("late").is_empty(),
        "cleaned up"
    );
}

#[test]
fn vanished_pod_fails_its_plugin() {
    let cluster = Cluster::new(&["a"])
        .plugin("p", "Job", "")
        .set("Retries", json!({"NodeLost": 0}));
    let aggregator = cluster.start("");
    cluster.worker("p");
    let name = cluster.pods("p")[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    cluster.api.remove(&cluster.path(&name));
    aggregator.ends_well();
    assert!(
        cluster.error("p", "global").contains("deleted"),
        "{}",
        cluster.error("p", "global")
    );
    assert_eq!(cluster.status()["plugins"][0]["status"], "failed");
    // `kubectl describe pod` shows the same.
    let mut events = cluster.api.list("/api/v1/namespaces/sonobuoy/events");
    events.sort_by_key(|event| event["reason"].to_string());
    let reasons: Vec<_> = events.iter().map(|event| &event["reason"]).collect();
    assert_eq!(reasons, ["Complete", "PluginFailed", "Started"]);
    assert_eq!(events[1]["involvedObject"]["name"], "sonobuoy");
    assert!(
        events[1]["message"].as_str().unwrap().contains("deleted"),
        "{}",
        events[1]
    );
}

/// The kubelet's message about the only pod becomes the plugin's error.
fn kubelet_says(graces: Value, status: Value, expected: &str) {
    let retries = json!({"NodeLost": 0});
    let cluster = Cluster::new(&["a"])
        .plugin("p", "Job", "")
        .set("Graces", graces)
        .set("Retries", retries);
    let aggregator = cluster.start("");
    cluster.worker("p");
    let name = cluster.pods("p")[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    cluster
        .api
        .merge(&cluster.path(&name), &json!({"status": status}));
    aggregator.ends_well();
    let error = cluster.error("p", "global");
    assert!(error.contains(expected), "no `{expected}` in {error}");
}

#[test]
fn evicted_pod_fails_its_plugin() {
    kubelet_says(
        json!({}),
        json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}),
        "Evicted: low on disk",
    );
}

#[test]
fn unschedulable_pod_fails_after_its_grace() {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes",
        "lastTransitionTime": "2024-01-01T00:00:00Z"});
    kubelet_says(
        json!({"Unschedulable": "1s"}),
        json!({"conditions": [condition]}),
        "Can't schedule pod: 0/1 nodes",
    );
}

#[test]
fn image_pull_errors_fail_the_plugin() {
    let waiting = |reason: &str| {
        json!({"startTime": "2024-01-01T00:00:00Z", "containerStatuses": [
            {"name": "plugin", "state": {"waiting": {"reason": reason, "message": "of the kubelet"}}}]})
    };
    kubelet_says(
        json!({"ImagePull": "1s"}),
        waiting("ImagePullBackOff"),
        "ImagePullBackOff: of the kubelet",
    );
    kubelet_says(
        json!({}),
        waiting("InvalidImageName"),
        "InvalidImageName: of the kubelet",
    );
}

#[test]
fn unreachable_conformance_image_fails_at_once_with_remedy() {
    let cluster = Cluster::new(&[]).plugin("e2e", "Job", "");
    let aggregator = cluster.start("");
    cluster.api.wait(|_| !cluster.pods("e2e").is_empty());
    let name = cluster.pods("e2e")[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let says = |started: &str| {
        let said =
            json!({"reason": "ErrImagePull", "message": "lookup registry.k8s.io: no such host"});
        let image = "registry.k8s.io/conformance:v1.30.0";
        let container = json!({"name": "plugin", "image": image, "state": {"waiting": said}});
        let status = json!({"startTime": started, "containerStatuses": [container]});
        cluster
            .api
            .merge(&cluster.path(&name), &json!({"status": status}));
    };
    // Well before the failure is final.
    says("2099-01-01T00:00:00Z");
    cluster.wait_for_status(|status| {
        let message = status["plugins"][0]["message"].as_str().unwrap_or_default();
        message.contains("images download -p e2e --kubernetes-version v1.30.0")
    });
    says("2024-01-01T00:00:00Z");
    aggregator.ends_well();
    assert!(
        cluster
            .error("e2e", "global")
            .contains("images push --archive")
    );
}

#[test]
fn node_deleted_before_its_pod_is_skipped() {
    let cluster = Cluster::new(&["a", "b"]).plugin("p", "DaemonSet", "");
    cluster.api.controller(|api, change| {
        let is_set = change.kind == "ADDED" && change.path.contains("/daemonsets/");
        if is_set {
            api.remove("/api/v1/nodes/b");
        }
        daemon_set_controller(api, change);
    });
    let aggregator = cluster.start("");
    let worker = cluster.worker("p");
    assert_eq!(worker.send("a"), 200);
    aggregator.ends_well();
    assert!(cluster.error("p", "b").contains("skipped: node deleted"));
    let tree = cluster.archive().text("plugins/p/sonobuoy_results.yaml");
    assert!(tree.starts_with("name: p\nstatus: passed\n"), "{tree}");
    assert!(tree.contains("- name: b\n  status: skipped\n"), "{tree}");
    let status = cluster.status();
    let of_b = status["plugins"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["node"] == "b")
        .unwrap()
        .clone();
    assert_eq!(of_b["result-status"], "skipped");
}

#[test]
fn daemon_set_pod_may_be_recreated() {
    let cluster = Cluster::new(&["a"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    let aggregator = cluster.start("");
    let worker = cluster.worker("p");
    let pod = cluster.pods("p").remove(0);
    let path = cluster.path(pod["metadata"]["name"].as_str().unwrap());
    cluster.api.remove(&path);
    cluster.api.put(
        &format!("{path}-again"),
        json!({"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}),
    );
    assert_eq!(worker.send("a"), 200);
    aggregator.ends_well();
    assert!(
        cluster
            .archive()
            .names()
            .all(|name| !name.contains("errors/"))
    );
}

#[test]
fn rejected_launch_fails_the_plugin_with_the_api_message() {
    let cluster = Cluster::new(&["a"])
        .daemon_sets()
        .plugin("denied", "DaemonSet", "")
        .plugin("fine", "Job", "");
    cluster.api.admission(|plural, _| {
        (plural == "daemonsets").then(|| {
            (
                403,
                "Forbidden".into(),
                "admission webhook \"policy\" denied the request".into(),
            )
        })
    });
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("fine").send("global"), 200);
    aggregator.ends_well();
    let archive = cluster.archive();
    let error = archive.text(&archive.named("plugins/denied/errors/"));
    assert!(
        error.contains("admission webhook \\\"policy\\\" denied the request"),
        "{error}"
    );
}

#[test]
fn creation_is_retried_after_a_lost_response() {
    let cluster = Cluster::new(&["a"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    for kind in [
        "/api/v1/namespaces/sonobuoy/secrets",
        "/apis/apps/v1/namespaces/sonobuoy/daemonsets",
    ] {
        cluster
            .api
            .fault(Fault::on(&format!("POST {kind}")).dropped());
    }
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("p").send("a"), 200);
    aggregator.ends_well();
}

#[test]
fn run_survives_an_api_server_outage() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    let aggregator = cluster.start("");
    let worker = cluster.worker("p");
    cluster.wait_for_status(|status| status["plugins"][1]["status"] == "running");
    let before = cluster.api.refusals();
    cluster.api.away(|| {
        assert_eq!(worker.send("a"), 200);
        cluster.api.wait(|api| api.refusals() > before + 2);
        cluster
            .api
            .wait(|_| aggregator.said().contains("retrying until it answers"));
    });
    cluster.wait_for_status(|status| status["plugins"][0]["status"] == "complete");
    assert_eq!(worker.send("b"), 200);
    cluster
        .api
        .wait(|_| aggregator.said().contains("is reachable again"));
    aggregator.ends_well();
    assert_eq!(cluster.status()["status"], "complete");
}

#[test]
fn killed_aggregator_resumes() {
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::TERM] {
        let cluster = Cluster::new(&["a", "b"])
            .daemon_sets()
            .plugin("p", "DaemonSet", "")
            .plugin("q", "Job", "")
            .plugin("gone", "Job", "")
            .set("Retries", json!({"NodeLost": 0}));
        let aggregator = cluster.start("");
        let (p, q) = (cluster.worker("p"), cluster.worker("q"));
        assert_eq!(p.send("a"), 200);
        cluster.worker("gone");
        let name = cluster.pods("gone")[0]["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        cluster.api.remove(&cluster.path(&name));
        cluster.wait_for_status(|status| status.to_string().contains("deleted before its result"));
        aggregator.signal(signal);
        let (code, said) = aggregator.end();
        assert_ne!(code, 0);
        assert!(
            !said.contains("the last status could not be published"),
            "a terminated worker does not retry for seconds: {said}"
        );
        let run = |cluster: &Cluster| {
            let names = std::fs::read_dir(cluster.folder.join("runs")).unwrap();
            let mut names: Vec<_> = names
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.retain(|name| name.len() == 36);
            names
        };
        let uuid = run(&cluster);
        assert_eq!(uuid.len(), 1);

        let aggregator = cluster.start("");
        cluster
            .api
            .wait(|_| aggregator.said().contains("where it was interrupted"));
        cluster
            .api
            .wait(|api| api.count("POST /api/v1/namespaces/sonobuoy/pods") >= 3);
        // The same workers, unaware of the restart.
        assert_eq!(p.send("a"), 409);
        assert_eq!(p.send("b"), 200);
        assert_eq!(q.send("global"), 200);
        aggregator.ends_well();
        let launches = cluster.api.count("POST /api/v1/namespaces/sonobuoy/pods");
        assert_eq!(launches, 3, "what has ended is not started again");
        let archive = cluster.archive();
        assert_eq!(archive.text("plugins/p/results/a/r.txt"), "of a\n");
        let config: Value = serde_json::from_str(&archive.text("meta/config.json")).unwrap();
        assert_eq!(config["UUID"], uuid[0].as_str());
        let description: Value =
            serde_json::from_str(&archive.text("plugins/q/definition.json")).unwrap();
        assert_eq!(description["SessionID"], q.session.as_str());
        // After another restart, no work is left.
        cluster.start("").ends_well();
    }
}

#[test]
fn result_replaces_an_earlier_error() {
    let cluster = Cluster::new(&["a"])
        .plugin("early", "Job", "")
        .plugin("other", "Job", "");
    let cluster = cluster.set("Retries", json!({"NodeLost": 0}));
    let aggregator = cluster.start("");
    let (early, other) = (cluster.worker("early"), cluster.worker("other"));
    let name = cluster.pods("early")[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    cluster.api.remove(&cluster.path(&name));
    cluster.wait_for_status(|status| status["plugins"][0]["status"] == "failed");
    assert_eq!(early.send("global"), 200);
    cluster.wait_for_status(|status| status["plugins"][0]["status"] == "complete");
    assert_eq!(other.send("global"), 200);
    aggregator.ends_well();
    let archive = cluster.archive();
    assert_eq!(
        archive.text("plugins/early/results/global/r.txt"),
        "of global\n"
    );
    assert!(archive.names().all(|name| !name.contains("errors/")));
}

#[test]
fn runs_in_two_namespaces_are_independent() {
    let api = ApiServer::start();
    let one = Cluster::within(api.clone(), "one", &["a"]).plugin("p", "Job", "");
    let two = Cluster::within(api, "two", &["a"]).plugin("p", "Job", "");
    let (first, second) = (one.start(""), two.start(""));
    let (of_one, of_two) = (one.worker("p"), two.worker("p"));
    assert_eq!(of_one.send("global"), 200);
    first.ends_well();
    assert_eq!(two.pods("p").len(), 1, "the other's pod stays");
    assert_eq!(of_two.send("global"), 200);
    second.ends_well();
    assert_eq!(
        (&one.status()["status"], &two.status()["status"]),
        (&json!("complete"), &json!("complete"))
    );
}

#[test]
fn plugin_timeout_takes_precedence() {
    let cluster = Cluster::new(&["a"])
        .plugin("named", "Job", "  timeout: 1h\n")
        .plugin("defined", "Job", "  timeout: 1s\n")
        .plugin("quick", "Job", "")
        .set("PluginTimeouts", json!({"named": "1s"}));
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("quick").send("global"), 200);
    let (code, said) = aggregator.end();
    assert_eq!(code, 1, "a run out of time has errors: {said}");
    for plugin in ["named", "defined"] {
        let error = cluster.error(plugin, "global");
        assert!(
            error.contains("timeout: no result within the time limit of 1s"),
            "{error}"
        );
    }
    let tree = cluster
        .archive()
        .text("plugins/named/sonobuoy_results.yaml");
    assert!(tree.contains("status: timeout"), "{tree}");
    // The item's name and the error are the original's message, byte for byte.
    let sentence = "Plugin timeout while waiting for results so there are no results. Check pod logs or other \
                    cluster details for more information as to why this occurred.";
    let tree: Value = serde_yaml::from_str(&tree).unwrap();
    let item = &tree["items"][0];
    assert_eq!(
        (&item["name"], &item["details"]["error"]),
        (&json!(sentence), &json!(sentence))
    );
    assert_eq!(
        item["details"]["failure"],
        "timeout: no result within the time limit of 1s"
    );
}

#[test]
fn daemon_set_plugins_are_skipped_visibly_without_node_access() {
    let cluster = Cluster::new(&["a"])
        .daemon_sets()
        .plugin("each", "DaemonSet", "")
        .plugin("one", "Job", "");
    cluster.api.forbid("list", "nodes");
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("one").send("global"), 200);
    aggregator.ends_well();
    let entry = cluster.status()["plugins"][0].clone();
    assert_eq!(
        (&entry["plugin"], &entry["result-status"]),
        (&json!("each"), &json!("skipped")),
        "{entry}"
    );
    assert!(
        entry["message"]
            .as_str()
            .unwrap()
            .contains("may not list the nodes"),
        "{entry}"
    );
    assert!(
        cluster.pods("each").is_empty(),
        "a plugin without expected results is not started"
    );
}

#[test]
fn daemon_set_without_pods_reports_the_controllers_reason() {
    let cluster = Cluster::new(&["a"])
        .plugin("p", "DaemonSet", "")
        .set("Graces", json!({"NoPod": "1s"}));
    cluster.api.controller(|api, change| {
        if change.kind == "ADDED" && change.path.contains("/daemonsets/") {
            let event = |name: &str, time: &str, message: &str| {
                api.put(
                    &format!("/api/v1/namespaces/sonobuoy/events/{name}"),
                    json!({
                        "involvedObject": {"name": change.object["metadata"]["name"]}, "type": "Warning",
                        "lastTimestamp": time, "message": message,
                    }),
                );
            };
            event(
                "later",
                "2024-01-01T00:00:02Z",
                "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"",
            );
            event("before", "2024-01-01T00:00:01Z", "something else");
        }
    });
    cluster.start("").ends_well();
    let error = cluster.error("p", "a");
    assert!(error.contains("No pod was scheduled on node a"), "{error}");
    assert!(
        error.contains("violates PodSecurity")
            && error.contains("give the plugin a securityContext"),
        "{error}"
    );
    assert!(!error.contains("something else"), "{error}");
}

#[test]
fn recreated_pod_resumes_the_run_from_its_volume() {
    let mut cluster = Cluster::new(&[])
        .plugin("p", "Job", "")
        .plugin("q", "Job", "");
    cluster.listens_at(std::net::Ipv4Addr::LOCALHOST);
    for name in ["sonobuoy-config-cm", "sonobuoy-plugins-cm"] {
        cluster.api.put(
            &format!("/api/v1/namespaces/sonobuoy/configmaps/{name}"),
            json!({}),
        );
    }
    cluster
        .folder
        .write("runs/before.tar.gz", "of an earlier run");
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("p").send("global"), 200);
    cluster.wait_for_status(|status| status["plugins"][0]["status"] == "complete");
    cluster.worker("q");
    aggregator.signal(rustix::process::Signal::KILL);
    aggregator.end();

    // Another pod has another identity and another address.
    let root = "/api/v1/namespaces/sonobuoy";
    let path = |plural: &str, object: &Value| {
        format!(
            "{root}/{plural}/{}",
            object["metadata"]["name"].as_str().unwrap()
        )
    };
    let secrets = cluster.api.list(&format!("{root}/secrets"));
    let mut left: Vec<String> = secrets
        .iter()
        .map(|secret| path("secrets", secret))
        .collect();
    left.extend(cluster.pods("q").iter().map(|pod| path("pods", pod)));
    cluster.api.remove(&cluster.path("sonobuoy"));
    cluster.own_pod(json!({"sonobuoy-component": "aggregator"}));
    // Objects of the first pod still exist.
    for path in &left {
        cluster.api.put(
            path,
            json!({"metadata": {"ownerReferences": [{"uid": "before"}]}}),
        );
    }
    let port = cluster.settings["Server"]["bindport"].as_u64().unwrap();
    cluster.settings["Server"]["advertiseaddress"] = format!("localhost:{port}").into();
    let creations = || {
        cluster
            .api
            .count("POST /api/v1/namespaces/sonobuoy/secrets")
    };
    let before = creations();
    let aggregator = cluster.start("");
    cluster.api.wait(|_| creations() > before + 1);
    assert!(
        aggregator.said().contains("where it was interrupted"),
        "{}",
        aggregator.said()
    );
    for path in &left {
        cluster.api.remove(path);
    }
    assert_eq!(cluster.worker("q").send("global"), 200);
    aggregator.ends_well();
    let archive = cluster.archive();
    for plugin in ["p", "q"] {
        assert_eq!(
            archive.text(&format!("plugins/{plugin}/results/global/r.txt")),
            "of global\n"
        );
    }
    assert!(
        cluster.folder.join("runs/earlier/before.tar.gz").exists(),
        "kept, and not taken for the run's own"
    );
}

#[test]
fn no_exit_keeps_the_aggregator_and_logs_it() {
    let cluster = Cluster::new(&["a"]).plugin("p", "Job", "");
    let aggregator = cluster.start("--no-exit --level=info -v=4 --alsologtostderr");
    assert_eq!(cluster.worker("p").send("global"), 200);
    cluster.api.wait(|_| {
        aggregator
            .said()
            .contains("no-exit was specified, sonobuoy is now blocking")
    });
    assert_eq!(cluster.status()["status"], "complete");
    aggregator.signal(rustix::process::Signal::TERM);
    aggregator.end();
}

#[test]
fn aggregator_deletes_its_namespace_if_the_settings_say_so() {
    let cluster = Cluster::new(&["a"])
        .plugin("p", "Job", "")
        .set("RemoveAfterSeconds", json!(1));
    let aggregator = cluster.start("--no-exit");
    assert_eq!(cluster.worker("p").send("global"), 200);
    let namespace = "/api/v1/namespaces/sonobuoy";
    let has_no_grace = |options: &Value| options["gracePeriodSeconds"] == 0;
    cluster.api.wait(|api| {
        let pods = api.deletions(&format!("{namespace}/pods"));
        api.requests().contains(&format!("DELETE {namespace}")) && pods.iter().any(has_no_grace)
    });
    aggregator.signal(rustix::process::Signal::TERM);
    aggregator.end();
}

/// The path of an event of a pod, and the event.
fn warning(pod: &Value, reason: &str, message: &str) -> (String, Value) {
    let path = format!("/api/v1/namespaces/sonobuoy/events/{reason}");
    let of = json!({"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]});
    let event = json!({"involvedObject": of, "type": "Warning", "reason": reason, "message": message,
        "lastTimestamp": "2026-01-01T00:00:00Z"});
    (path, event)
}

/// Makes a pod wait as if it had been created long ago.
fn delay(cluster: &Cluster, pod: &Value) {
    let waiting = json!({"name": "plugin", "state": {"waiting": {"reason": "ContainerCreating"}}});
    let now = base::clock::rfc3339(std::time::SystemTime::now());
    cluster.api.merge(
        &cluster.path(pod["metadata"]["name"].as_str().unwrap()),
        &json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Pending", "startTime": now, "containerStatuses": [waiting]},
        }),
    );
}

#[test]
fn event_explains_a_pod_that_does_not_start() {
    let cluster = Cluster::new(&[])
        .plugin("p", "Job", "")
        .set("Graces", json!({"Creation": "2s"}));
    let aggregator = cluster.start("");
    let pod = cluster.pod_on("p", "global");
    let (path, event) = warning(&pod, "FailedMount", "secret \"x\" not found");
    cluster.api.put(&path, event);
    delay(&cluster, &pod);
    let cause = "Pod cannot start: FailedMount: secret \"x\" not found";
    cluster.wait_for_status(|status| {
        let message = status["plugins"][0]["message"].as_str().unwrap_or_default();
        message.starts_with(cause) && message.contains("; create it in the run's namespace")
    });
    let (_, said) = aggregator.end();
    let error: Value = serde_json::from_str(&cluster.error("p", "global")).unwrap();
    assert_eq!(error["error"], cause, "{said}");
}

#[test]
fn forbidden_events_are_mentioned_and_no_error() {
    let cluster = Cluster::new(&[]).plugin("p", "Job", "");
    let _aggregator = cluster.start("");
    let pod = cluster.pod_on("p", "global");
    cluster.api.forbid("list", "events");
    delay(&cluster, &pod);
    let cause = "Pod has not started; its events, which say why, may not be read: allow `list`";
    cluster.wait_for_status(|status| {
        let message = status["plugins"][0]["message"].as_str().unwrap_or_default();
        message.starts_with(cause)
    });
    assert_eq!(cluster.worker("p").send("global"), 200);
    cluster.wait_for_status(|status| status["status"] == "complete");
}

#[test]
fn worker_finds_an_aggregator_whose_address_has_changed() {
    let mut cluster = Cluster::new(&["a"]).plugin("p", "Job", "");
    let first = cluster.start("");
    let pod = cluster.pod_on("p", "global");
    // Its node lost power, and gives the pod another address.
    drop(first);
    cluster.listens_at([127, 77, 7, 7].into());
    let server = cluster.settings["Server"].clone();
    let aggregator = cluster.start("");
    let mut worker = Sonobuoy::new("worker global").file("results/r.txt", "late\n");
    let results = worker.folder().join("results");
    std::fs::write(
        results.join("done"),
        results.join("r.txt").to_str().unwrap(),
    )
    .unwrap();
    for (name, value) in cluster.environment(&pod) {
        worker = worker.env(&name, value);
    }
    worker
        .env("SONOBUOY_RESULTS_DIR", results)
        .env("SONOBUOY_DONE_FILE_DELAY", "0s")
        .env("SONOBUOY_PROGRESS_PORT", "0")
        .env(
            "SONOBUOY_AGGREGATOR_SERVICE_HOST",
            server["bindaddress"].as_str().unwrap(),
        )
        .env(
            "SONOBUOY_AGGREGATOR_SERVICE_PORT",
            server["bindport"].to_string(),
        )
        .run_any();
    aggregator.ends_well();
    let archive = cluster.archive();
    assert_eq!(archive.text("plugins/p/results/global/r.txt"), "late\n");
}

#[test]
fn aggregator_that_nobody_would_hear_of_ends() {
    let cluster = Cluster::new(&[]).plugin("p", "Job", "");
    cluster
        .api
        .fault(
            Fault::on("GET ")
                .times(usize::MAX)
                .status(401, "Unauthorized", "who are you"),
        );
    let (code, said) = cluster.start("--no-exit").end();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("own pod cannot be found"), "{said}");
}

#[test]
fn minimal_configuration_is_sufficient() {
    // As written by tools with their own manifests: an old label, an old flag, few keys.
    let mut cluster = Cluster::new(&["a"])
        .plugin("p", "DaemonSet", "")
        .daemon_sets();
    cluster.own_pod(json!({"run": "sonobuoy-master"}));
    let server = cluster.settings["Server"].clone();
    cluster.settings = json!({
        "Description": "least", "Filters": {"LabelSelector": "none=none", "Namespaces": "none"}, "Resources": [],
        "Namespace": "sonobuoy", "PluginSearchPath": cluster.settings["PluginSearchPath"],
        "Plugins": [{"name": "p"}], "Server": {
            "bindaddress": server["bindaddress"], "bindport": server["bindport"],
            "advertiseaddress": server["advertiseaddress"], "timeoutseconds": 5400,
        },
    });
    let aggregator = cluster.start("-v=6 --logtostderr");
    assert_eq!(cluster.worker("p").send("a"), 200);
    aggregator.ends_well();
    assert_eq!(
        cluster.archive().text("plugins/p/results/a/r.txt"),
        "of a\n"
    );
}

/// A gzip tar of `thousands` × 1,000 + 1 entries: some files, then the same compressed folder
/// repeatedly, which takes no disk space. A member of 1,000 entries is packed once and repeated.
fn many_entries(thousands: usize) -> Vec<u8> {
    let member = |count: usize, name: fn(usize) -> String, kind| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for number in 0..count {
            let mut header = tar::Header::new_gnu();
            header.set_path(name(number)).unwrap();
            header.set_entry_type(kind);
            header.set_mode(0o755);
            header.set_size(0);
            header.set_cksum();
            gzip.write_all(header.as_bytes()).unwrap();
        }
        gzip.finish().unwrap()
    };
    let files = member(
        1000,
        |number| format!("d{}/f{number}", number % 10),
        tar::EntryType::Regular,
    );
    let itself = member(1000, |_| "./".into(), tar::EntryType::Directory);
    let last = member(1, |_| "last".into(), tar::EntryType::Regular);
    [files, itself.repeat(thousands - 1), last].concat()
}

#[test]
fn archive_of_a_million_entries_is_rejected() {
    let cluster = Cluster::new(&["a"])
        .plugin("p", "Job", "")
        .plugin("other", "Job", "");
    let aggregator = cluster.start("");
    let (worker, other) = (cluster.worker("p"), cluster.worker("other"));
    let body = many_entries(1000);
    let head = format!(
        "PUT /api/v1/results/global/p HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\
         content-type: application/gzip\r\ncontent-disposition: attachment;filename=r.tar.gz\r\n\r\n",
        body.len()
    );
    let answer = worker.peer.say([head.as_bytes(), &body].concat());
    assert!(
        answer.starts_with("HTTP/1.1 413 ") && answer.contains("more than 1000000 entries"),
        "{answer}"
    );
    let left = files(&cluster.folder.join("runs"));
    assert!(left < 10, "{left} files, more than the run's own");
    let memory =
        std::fs::read_to_string(format!("/proc/{}/status", aggregator.child.id())).unwrap();
    let peak = memory
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap()
        .trim_end_matches("kB");
    assert!(peak.trim().parse::<u64>().unwrap() < 100 << 10, "{memory}");
    assert_eq!(other.send("global"), 200);
    aggregator.ends_well();
    assert!(
        cluster
            .error("p", "global")
            .contains("more than 1000000 entries")
    );
}

#[test]
fn two_hundred_nodes_deliver_two_hundred_results() {
    let names: Vec<String> = (0..200).map(|number| format!("node-{number}")).collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
    let cluster = Cluster::new(&nodes)
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    let aggregator = cluster.start("");
    let worker = cluster.worker("p");
    let requests = cluster.api.requests().len();
    for node in &nodes {
        assert_eq!(worker.send(node), 200);
    }
    aggregator.ends_well();
    let archive = cluster.archive();
    assert_eq!(
        archive
            .names()
            .filter(|name| name.ends_with("/r.txt"))
            .count(),
        200
    );
    assert!(archive.names().all(|name| !name.contains("errors/")));
    assert!(
        requests < 40,
        "{requests} requests before the first result: {:#?}",
        cluster.api.requests()
    );
}

#[test]
fn configured_secrets_are_redacted() {
    let rules =
        "env: ['^PIN$']\ntext: ['card=\\d+']\nfields: [{kind: ConfigMap, path: data.code}]\n";
    let made = Sonobuoy::new("gen config --redact rules.yaml")
        .file("rules.yaml", rules)
        .run_any();
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    for (redaction, kept) in [
        (made["Redaction"].clone(), false),
        (json!({}), true),
        (json!({"Off": true}), true),
    ] {
        let cluster = Cluster::new(&["a"])
            .plugin("p", "Job", "")
            .set("Resources", json!(["pods", "configmaps", "podlogs"]))
            .set("Limits", json!({"PodLogs": {"Namespaces": "default"}}))
            .set("Redaction", redaction.clone());
        let container = json!({"name": "c", "env": [{"name": "PIN", "value": "1234567"}, {"name": "A_TOKEN", "value": "always"}]});
        let running = json!({"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]});
        cluster.api.put(
            "/api/v1/namespaces/default/pods/x",
            json!({"metadata": {"annotations": {"note": "card=1234567"}}, "spec": {"containers": [container]}, "status": running}),
        );
        cluster.api.put(
            "/api/v1/namespaces/default/configmaps/m",
            json!({"data": {"code": "1234567", "plain": "seen"}}),
        );
        cluster
            .api
            .log("default", "x", "c", "paid with card=1234567\n");
        let aggregator = cluster.start("");
        assert_eq!(cluster.worker("p").send("global"), 200);
        aggregator.ends_well();
        let archive = cluster.archive();
        let log = archive.text("podlogs/default/x/logs/c.txt");
        assert_eq!(
            log,
            if kept {
                "paid with card=1234567\n"
            } else {
                "paid with ***HIDDEN***\n"
            }
        );
        let all: String = archive.names().map(|name| archive.text(name)).collect();
        assert_eq!(all.contains("1234567"), kept, "{redaction}");
        assert_eq!(
            all.contains("always"),
            redaction["Off"] == true,
            "the built-in rules hold, too: {redaction}"
        );
        assert!(
            all.contains("seen")
                && archive.text("meta/config.json").contains("Redaction")
                    != redaction.as_object().unwrap().is_empty()
        );
    }
}
