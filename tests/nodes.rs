//! Nodes that are lost during a run, against the fake API server.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::api_server::{ApiServer, ExecAnswer};
use crate::support::cluster::{
    AGGREGATOR, Cluster, Worker, aggregator_pod, namespace, status, untouched,
};
use crate::support::{Folder, Sonobuoy};

const WHY: &str = "Kubelet stopped posting node status";

/// What the node controller writes about a node since `since`.
fn not_ready(api: &ApiServer, node: &str, since: &str) {
    let ready = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": format!("{WHY}."), "lastTransitionTime": since});
    let taint = |effect| json!({"key": "node.kubernetes.io/unreachable", "effect": effect});
    let taints = [taint("NoSchedule"), taint("NoExecute")];
    let state = json!({"spec": {"taints": taints}, "status": {"conditions": [ready]}});
    api.merge(&format!("/api/v1/nodes/{node}"), &state);
}

/// Puts the pod of a Job on a node, as the scheduler does.
fn schedule(cluster: &Cluster, plugin: &str, node: &str) -> String {
    let path = pod(cluster, plugin, 0);
    cluster.api.merge(
        &path,
        &json!({"spec": {"nodeName": node}, "status": {"phase": "Running"}}),
    );
    path
}

fn pod(cluster: &Cluster, plugin: &str, number: usize) -> String {
    cluster.api.wait(|_| cluster.pods(plugin).len() > number);
    cluster.path(
        cluster.pods(plugin)[number]["metadata"]["name"]
            .as_str()
            .unwrap(),
    )
}

fn received(cluster: &Cluster) -> Value {
    serde_json::from_str(&cluster.archive().text("meta/results.json")).unwrap()
}

#[test]
fn results_of_a_dead_node_are_lost_at_once_and_the_others_arrive() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "")
        .plugin("q", "DaemonSet", "");
    not_ready(&cluster.api, "b", "2026-01-02T11:55:54Z");
    let aggregator = cluster.start("");
    for plugin in ["p", "q"] {
        assert_eq!(cluster.worker(plugin).send("a"), 200);
    }
    aggregator.ends_well();
    let error: Value = serde_json::from_str(&cluster.error("p", "b")).unwrap();
    assert_eq!(
        error["error"],
        format!("node `b` was lost at 11:55:54: {WHY}")
    );
    assert_eq!(
        error["lost"],
        json!({"node": "b", "since": "2026-01-02T11:55:54.000Z", "reason": WHY})
    );
    let path = std::fs::read_dir(cluster.folder.join("runs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let path = path
        .into_iter()
        .find(|path| path.extension().is_some_and(|ending| ending == "gz"))
        .unwrap();
    let report = Sonobuoy::new("results --format json")
        .arg(&path)
        .run_any()
        .stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let cause = &report["causes"][0];
    assert_eq!(
        cause["cause"],
        format!("node `<node>` was lost at <time>: {WHY}"),
        "{report}"
    );
    assert_eq!(
        (&cause["count"], &cause["nodes"]),
        (&json!(2), &json!(1)),
        "{report}"
    );
    assert_eq!(
        cause["example"]["lines"][0],
        format!("node `b` was lost at 11:55:54: {WHY}")
    );
    let junit = Sonobuoy::new("results --format junit")
        .arg(&path)
        .run_any()
        .stdout;
    assert!(junit.contains("was lost at 11:55:54"), "{junit}");
    assert_eq!(received(&cluster)[1]["lost"][0]["node"], "b");
}

#[test]
fn run_with_dead_nodes_alone_reports_them() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    not_ready(&cluster.api, "a", "2026-01-02T11:55:54Z");
    not_ready(&cluster.api, "b", "2026-01-02T11:55:59Z");
    cluster.start("").ends_well();
    let why: Value = serde_json::from_str(&cluster.archive().text("meta/why.json")).unwrap();
    assert_eq!(
        why["causes"][0]["cause"],
        format!("node `<node>` was lost at <time>: {WHY}")
    );
    assert_eq!(
        (
            &why["causes"][0]["count"],
            why["causes"].as_array().unwrap().len()
        ),
        (&json!(2), 1)
    );
    let lost = &cluster.status()["plugins"][0]["lost"];
    assert_eq!(
        *lost,
        json!({"node": "a", "since": "2026-01-02T11:55:54.000Z", "reason": WHY})
    );
}

#[test]
fn result_of_a_lost_node_that_comes_back_replaces_the_failure() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    let aggregator = cluster.start("");
    let worker = cluster.worker("p");
    cluster.api.wait(|_| cluster.pods("p").len() == 2);
    not_ready(&cluster.api, "b", "2026-01-02T11:55:54Z");
    cluster.wait_for_status(|status| status.to_string().contains("was lost at 11:55:54"));
    assert_eq!(worker.send("b"), 200);
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
fn job_of_a_lost_node_is_restarted_elsewhere_once() {
    let cluster = Cluster::new(&["a", "b"]).plugin("p", "Job", "");
    let aggregator = cluster.start("");
    let first = schedule(&cluster, "p", "b");
    not_ready(&cluster.api, "b", "2026-01-02T11:55:54Z");
    let second = format!("{first}-2");
    cluster
        .api
        .wait(|api| api.get(&first).is_none() && api.get(&second).is_some());
    let pod = cluster.api.get(&second).unwrap();
    let away =
        &pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let field = json!({"key": "metadata.name", "operator": "NotIn", "values": ["b"]});
    assert_eq!(away[0]["preference"]["matchFields"], json!([field]));
    let said = format!("node `b` was lost at 11:55:54: {WHY}; it is started again");
    cluster.wait_for_status(|status| {
        let entry = &status["plugins"][0];
        entry["status"] == "running" && entry["message"].as_str() == Some(&said)
    });
    assert_eq!(cluster.worker("p").send("global"), 200);
    aggregator.ends_well();
    let received = received(&cluster);
    let lost = json!([{"node": "b", "since": "2026-01-02T11:55:54.000Z", "reason": WHY}]);
    assert_eq!(
        (&received[0]["lost"], &received[0]["error"]),
        (&lost, &Value::Null)
    );
}

#[test]
fn job_whose_second_pod_is_lost_too_has_failed() {
    let cluster = Cluster::new(&["a"]).plugin("p", "Job", "");
    let aggregator = cluster.start("");
    for number in 1..=2 {
        let path = schedule(&cluster, "p", "a");
        assert_eq!(path.ends_with("-2"), number == 2, "{path}");
        cluster.api.remove(&path);
        cluster
            .api
            .wait(|_| number == 2 || !cluster.pods("p").is_empty());
    }
    aggregator.ends_well();
    assert_eq!(received(&cluster)[0]["lost"].as_array().unwrap().len(), 2);
    assert!(
        cluster
            .error("p", "global")
            .contains("the plugin's pod was deleted before its result")
    );
}

#[test]
fn restarted_job_survives_an_aggregator_restart() {
    let cluster = Cluster::new(&["a", "b"]).plugin("p", "Job", "");
    let aggregator = cluster.start("");
    let first = schedule(&cluster, "p", "b");
    // A dead node confirms no deletion.
    cluster.api.merge(
        &first,
        &json!({"metadata": {"finalizers": ["test/kubelet"]}}),
    );
    not_ready(&cluster.api, "b", "2026-01-02T11:55:54Z");
    cluster.api.wait(|_| cluster.pods("p").len() == 2);
    #[cfg(unix)]
    aggregator.signal(rustix::process::Signal::KILL);
    drop(aggregator);
    let aggregator = cluster.start("");
    cluster
        .api
        .wait(|_| aggregator.said().matches("starting plugins").count() == 2);
    let failed = json!({"status": {"phase": "Failed", "reason": "NodeLost"}});
    cluster.api.merge(&first, &failed);
    cluster.api.wait(|api| {
        api.count("GET /api/v1/namespaces/sonobuoy/pods?labelSelector=sonobuoy-run") > 5
    });
    assert_eq!(cluster.worker("p").send("global"), 200);
    aggregator.ends_well();
    assert_eq!(
        cluster.api.count("POST /api/v1/namespaces/sonobuoy/pods"),
        2
    );
    assert_eq!(received(&cluster)[0]["lost"][0]["node"], "b");
}

#[test]
fn time_limit_names_the_last_known_cause_first() {
    let cluster =
        Cluster::new(&["a", "b"])
            .daemon_sets()
            .plugin("p", "DaemonSet", "  timeout: 3s\n");
    let cluster = cluster.set("Graces", json!({"NodeNotReady": "0s"}));
    let aggregator = cluster.start("");
    let worker: Worker = cluster.worker("p");
    assert_eq!(worker.send("a"), 200);
    not_ready(&cluster.api, "b", "2026-01-02T11:55:54Z");
    let (code, said) = aggregator.end();
    assert_eq!(code, 1, "{said}");
    let error = cluster.error("p", "b");
    let cause = format!(
        "node `b` is not ready since 11:55:54: {WHY}; timeout: no result within the time limit of 3s"
    );
    assert!(error.contains(&cause), "{error}");
    let tree = cluster.archive().text("plugins/p/sonobuoy_results.yaml");
    assert!(tree.contains("status: timeout"), "{tree}");
}

#[test]
fn node_lost_while_the_api_server_is_away_is_noticed_after_its_return() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("p").send("a"), 200);
    cluster.api.wait(|_| cluster.pods("p").len() == 2);
    let before = cluster.api.refusals();
    cluster.api.away(|| {
        cluster.api.wait(|api| api.refusals() > before + 1);
        not_ready(&cluster.api, "b", "2026-01-02T11:55:54Z");
    });
    aggregator.ends_well();
    assert!(
        cluster
            .error("p", "b")
            .contains("node `b` was lost at 11:55:54")
    );
}

#[test]
fn node_recreated_under_its_name_delivers_its_result() {
    let name = "n".repeat(253);
    let cluster = Cluster::new(&["a", &name])
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    let aggregator = cluster.start("");
    let worker = cluster.worker("p");
    cluster.api.wait(|_| cluster.pods("p").len() == 2);
    // A list and a watch.
    cluster.api.wait(|api| {
        api.count("GET /api/v1/namespaces/sonobuoy/pods?labelSelector=sonobuoy-run") == 2
    });
    let path = format!("/api/v1/nodes/{name}");
    cluster.api.remove(&path);
    cluster.wait_for_status(|status| {
        status
            .to_string()
            .contains("it was deleted with the plugin's pod on it")
    });
    cluster.api.put(
        &path,
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    assert_eq!(worker.send(&name), 200);
    assert_eq!(worker.send("a"), 200);
    aggregator.ends_well();
    assert_eq!(received(&cluster).as_array().unwrap().len(), 2);
    assert!(
        cluster
            .archive()
            .names()
            .all(|name| !name.contains("errors/"))
    );
}

/// A run whose aggregator is on the node `n`, with its results on this volume claim.
fn run_on_node(claim: Option<&str>) -> (ApiServer, Folder, String) {
    let (api, folder, config) = untouched();
    namespace(&api);
    api.put(
        "/api/v1/nodes/n",
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &json!([]))),
    );
    let volume = claim.map(
        |claim| json!({"name": "output-volume", "persistentVolumeClaim": {"claimName": claim}}),
    );
    let volumes: Vec<_> = volume
        .into_iter()
        .chain([json!({"name": "kube-api-access-x"})])
        .collect();
    let spec = json!({"nodeName": "n", "volumes": volumes, "containers": [{"name": "kube-sonobuoy", "image": "i"}]});
    api.merge(
        AGGREGATOR,
        &json!({"metadata": {"namespace": "sonobuoy"}, "spec": spec}),
    );
    (api, folder, config)
}

const TERMINATING: &str = "2026-01-02T12:00:54Z";

#[test]
fn status_and_wait_report_the_node_of_the_aggregator() {
    let (api, _folder, config) = run_on_node(None);
    let run = |words: &str| Sonobuoy::new(&format!("{words} --kubeconfig {config}"));
    assert!(
        !run("status")
            .run_any()
            .stdout
            .contains("has not been ready")
    );
    not_ready(&api, "n", "2026-01-02T11:55:54Z");
    let text = run("status").status(0).run_any().stdout;
    assert!(
        text.contains("the aggregator's node `n` has not been ready for "),
        "{text}"
    );
    assert!(text.contains("; the results are on it\n"), "{text}");
    let document: Value = serde_json::from_str(&run("status --json").run_any().stdout).unwrap();
    assert!(
        document["message"]
            .as_str()
            .unwrap()
            .starts_with("the aggregator's node `n` has not"),
        "{document}"
    );
    assert_eq!(document["status"], "running");
    let (mut command, _held) = run("wait --output plain").command();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let told = lines.find(|line| line.contains("the aggregator's node `n` has not been ready for"));
    assert!(told.is_some());
    let deleted = json!({"deletionTimestamp": TERMINATING, "finalizers": ["test/kubelet"]});
    api.merge(AGGREGATOR, &json!({"metadata": deleted}));
    lines.for_each(drop);
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    for words in [
        "the aggregator's pod was evicted from its node `n`, which has not been ready for",
        "and the results with it; remove the run with `sonobuoy delete -n sonobuoy`",
    ] {
        assert!(said.contains(words), "{said}");
    }
    run("status").status(1).run_any();
}

#[test]
fn wait_ends_when_the_node_of_the_aggregator_is_deleted() {
    let (api, _folder, config) = run_on_node(None);
    api.remove("/api/v1/nodes/n");
    let wait = Sonobuoy::new(&format!("wait --kubeconfig {config}"));
    wait.status(1)
        .stderr_has("the aggregator's node `n` was deleted, and the results with it")
        .run_any();
}

#[test]
fn wait_ends_with_the_next_steps_when_the_aggregator_is_drained() {
    let (api, _folder, config) = run_on_node(None);
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting"});
    let deleted = json!({"deletionTimestamp": TERMINATING, "finalizers": ["test/kubelet"]});
    api.merge(
        AGGREGATOR,
        &json!({"metadata": deleted, "status": {"phase": "Failed", "conditions": [condition]}}),
    );
    let said = Sonobuoy::new(&format!("wait --kubeconfig {config}"))
        .status(1)
        .run_any()
        .stderr;
    for words in [
        "Eviction API: evicting",
        "and the results with it; remove the run with `sonobuoy delete",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn node_that_may_not_be_read_is_no_problem() {
    let (api, _folder, config) = run_on_node(None);
    api.forbid("get", "nodes");
    Sonobuoy::new(&format!("status --kubeconfig {config}"))
        .status(0)
        .stdout_has("is still running")
        .run_any();
}

/// A volume for the claim `c`, which only the nodes of these names can mount.
fn volume(api: &ApiServer, nodes: Option<&[&str]>) {
    let terms = nodes.map(|nodes| {
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": nodes}]);
        json!({"required": {"nodeSelectorTerms": [{"matchFields": fields}]}})
    });
    api.add_kind("v1", "persistentvolumes", "PersistentVolume", false);
    api.add_kind(
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        true,
    );
    api.put(
        "/api/v1/persistentvolumes/v",
        json!({"spec": {"nodeAffinity": terms}}),
    );
    api.put(
        "/api/v1/namespaces/sonobuoy/persistentvolumeclaims/c",
        json!({"spec": {"volumeName": "v"}}),
    );
}

#[test]
fn aggregator_is_recovered_where_its_claim_can_be_mounted() {
    let (api, _folder, config) = run_on_node(Some("c"));
    not_ready(&api, "n", "2026-01-02T11:55:54Z");
    let deleted = json!({"deletionTimestamp": TERMINATING, "finalizers": ["test/kubelet"]});
    api.merge(AGGREGATOR, &json!({"metadata": deleted}));
    let run = |words: &str| Sonobuoy::new(&format!("{words} --kubeconfig {config}"));
    let said = run("wait").status(1).run_any().stderr;
    assert!(
        said.contains("`sonobuoy wait --recover -n sonobuoy` continues the run in a new pod"),
        "{said}"
    );
    volume(&api, Some(&["n"]));
    run("wait --recover")
        .status(1)
        .stderr_has("the volume of the claim `c` can only be mounted on n, which is not ready")
        .run_any();
    assert!(api.get(AGGREGATOR).is_some(), "kept");
    volume(&api, None);
    api.put(
        "/api/v1/nodes/m",
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    api.controller(|api, change| {
        if change.kind == "ADDED" && change.path == AGGREGATOR {
            let done = json!({"metadata": {"annotations": {"sonobuoy.hept.io/status": status("complete", &json!([]))}},
                "spec": {"nodeName": "m"}, "status": {"phase": "Running"}});
            api.merge(AGGREGATOR, &done);
        }
    });
    std::thread::scope(|scope| {
        let words = "continues in a new pod, with the volume claim `c`";
        scope.spawn(|| run("wait --recover").status(0).stderr_has(words).run_any());
        // A forced deletion needs no kubelet.
        api.wait(|api| api.count(&format!("DELETE {AGGREGATOR}")) == 1);
        api.merge(AGGREGATOR, &json!({"metadata": {"finalizers": null}}));
    });
    let pod = api.get(AGGREGATOR).unwrap();
    assert_eq!(
        (
            &pod["spec"]["nodeName"],
            pod["spec"]["volumes"].as_array().unwrap().len()
        ),
        (&json!("m"), 1)
    );
    assert_eq!(pod["metadata"]["deletionTimestamp"], Value::Null);
    run("wait --recover")
        .status(1)
        .stderr_has("the run is complete; `sonobuoy retrieve")
        .run_any();
}

#[test]
fn deleted_aggregator_is_recovered_from_what_it_published() {
    let cluster = Cluster::new(&["a"]).plugin("p", "Job", "");
    let volumes = json!([{"name": "output-volume", "persistentVolumeClaim": {"claimName": "c"}}]);
    let spec = json!({"nodeName": "a", "volumes": volumes, "containers": [{"name": "kube-sonobuoy", "image": "i"}]});
    cluster.api.merge(
        AGGREGATOR,
        &json!({"metadata": {"namespace": "sonobuoy"}, "spec": spec}),
    );
    volume(&cluster.api, None);
    let aggregator = cluster.start("");
    cluster.worker("p");
    drop(aggregator);
    cluster.api.remove(AGGREGATOR);
    let config = cluster.folder.join("kubeconfig");
    let run = |words: &str| Sonobuoy::new(words).arg("--kubeconfig").arg(&config);
    let said = run("status").status(1).run_any().stdout;
    assert!(
        said.contains("the aggregator's pod was deleted; the results are on the volume claim `c`"),
        "{said}"
    );
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| run("wait --recover").status(0).run_any());
        cluster.api.wait(|api| api.get(AGGREGATOR).is_some());
        cluster
            .api
            .merge(AGGREGATOR, &json!({"status": {"phase": "Running"}}));
        let aggregator = cluster.start("");
        cluster
            .api
            .wait(|_| aggregator.said().matches("starting plugins").count() == 2);
        assert_eq!(cluster.worker("p").send("global"), 200);
        aggregator.ends_well();
        wait.join().unwrap();
    });
    assert_eq!(
        cluster.archive().text("plugins/p/results/global/r.txt"),
        "of global\n"
    );
}

#[test]
fn run_without_a_claim_is_not_recovered() {
    let (api, _folder, config) = run_on_node(None);
    not_ready(&api, "n", "2026-01-02T11:55:54Z");
    Sonobuoy::new(&format!("wait --recover --kubeconfig {config}"))
        .status(1)
        .stderr_has("the results of the run were in its pod only, so it cannot be continued")
        .run_any();
}

/// Schedules pods where their affinity says, and gives them a log.
fn scheduler(cluster: &Cluster) {
    cluster.api.controller(|api, change| {
        let required = &change.object["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let node = &required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
        if change.kind == "ADDED" && change.path.contains("/pods/") && node.is_string() {
            let name = change.object["metadata"]["name"].as_str().unwrap();
            api.log("sonobuoy", name, "plugin", format!("log of {}\n", node.as_str().unwrap()));
            api.end_log("sonobuoy", name, "plugin");
            api.merge(&change.path, &json!({"spec": {"nodeName": node}, "status": {"phase": "Running"}}));
        }
    });
}

/// Nodes that have a pod.
fn occupied(cluster: &Cluster) -> Vec<String> {
    let mut nodes: Vec<String> = cluster
        .pods("p")
        .iter()
        .filter_map(|pod| Some(pod["spec"]["nodeName"].as_str()?.to_owned()))
        .collect();
    nodes.sort();
    nodes
}

#[test]
fn plugin_runs_on_nodes_in_waves_and_each_pod_ends_with_its_result() {
    let cluster = Cluster::new(&["a", "b", "c"]).plugin("p", "Nodes", "  waves: {parallel: 2}\n");
    let cluster = cluster
        .set("Resources", json!(["podlogs"]))
        .set("Limits", json!({"PodLogs": {"SonobuoyNamespace": true}}));
    scheduler(&cluster);
    let aggregator = cluster.start("");
    let worker = cluster.worker("p");
    cluster.api.wait(|_| occupied(&cluster) == ["a", "b"]);
    let pod = &cluster.pods("p")[0];
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert!(!pod.to_string().contains("--sleep"), "{pod}");
    assert_eq!(worker.send("a"), 200);
    cluster.api.wait(|_| occupied(&cluster) == ["b", "c"]);
    assert_eq!((worker.send("b"), worker.send("c")), (200, 200));
    aggregator.ends_well();
    assert_eq!(
        cluster
            .api
            .count("POST /apis/apps/v1/namespaces/sonobuoy/daemonsets"),
        0
    );
    let archive = cluster.archive();
    for node in ["a", "b", "c"] {
        assert_eq!(
            archive.text(&format!("plugins/p/results/{node}/r.txt")),
            format!("of {node}\n")
        );
    }
    // Its pod was deleted long before the snapshot.
    let log = archive
        .names()
        .find(|name| name.starts_with("podlogs/") && archive.text(name) == "log of a\n");
    assert!(log.is_some(), "{:?}", archive.names().collect::<Vec<_>>());
}

#[test]
fn chosen_nodes_run_the_plugin_and_every_other_has_a_reason() {
    let spec = "podSpec: {containers: []}\n";
    let cluster = Cluster::new(&["a", "b", "c"]).plugin("p", "Nodes", spec);
    let taint = json!([{"key": "k", "effect": "NoSchedule"}]);
    cluster
        .api
        .merge("/api/v1/nodes/b", &json!({"spec": {"taints": taint}}));
    let cluster = cluster.set("Nodes", json!({"Only": "a,b"}));
    scheduler(&cluster);
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("p").send("a"), 200);
    aggregator.ends_well();
    let excluded: Value = serde_json::from_str(&cluster.archive().text("meta/nodes.json")).unwrap();
    let expected =
        json!({"b": "taint `k:NoSchedule` is not tolerated", "c": "it is not among `a,b`"});
    assert_eq!(excluded["p"], expected);
    let results = Sonobuoy::new("results --format html").arg(cluster.folder.join("runs"));
    let page = results.run_any().stdout;
    for line in [
        "Did not run on 2 of its nodes",
        "<b>b</b> taint <code>k:NoSchedule</code>",
        "<b>c</b> it is not among",
    ] {
        assert!(page.contains(line), "{line}");
    }
}

#[test]
fn selector_without_matches_fails_the_plugin() {
    let cluster = Cluster::new(&["a"])
        .plugin("p", "Nodes", "")
        .set("Nodes", json!({"Only": "gpu=x"}));
    cluster.start("").ends_well();
    let error = cluster.error("p", "global");
    assert!(
        error.contains("no node was chosen: on `a`, it is not among `gpu=x`"),
        "{error}"
    );
}

#[test]
fn pod_deleted_by_hand_is_replaced_once_in_a_wave() {
    let cluster = Cluster::new(&["a"]).plugin("p", "Nodes", "");
    scheduler(&cluster);
    let aggregator = cluster.start("");
    let first = pod(&cluster, "p", 0);
    cluster.api.wait(|_| occupied(&cluster) == ["a"]);
    cluster.api.remove(&first);
    let second = format!("{first}-2");
    cluster
        .api
        .wait(|api| api.get(&second).is_some() && occupied(&cluster) == ["a"]);
    cluster.api.remove(&second);
    aggregator.ends_well();
    assert!(
        cluster
            .error("p", "a")
            .contains("the plugin's pod was deleted before its result")
    );
    assert_eq!(received(&cluster)[0]["lost"].as_array().unwrap().len(), 2);
}

#[test]
fn deleted_node_that_returns_gets_another_pod() {
    let cluster = Cluster::new(&["a", "b"]).plugin("p", "Nodes", "");
    scheduler(&cluster);
    let aggregator = cluster.start("");
    cluster.api.wait(|_| occupied(&cluster) == ["a", "b"]);
    let worker = cluster.worker("p");
    // The aggregator must know the pod on the node before the node goes.
    let on_b = cluster
        .pods("p")
        .into_iter()
        .find(|pod| pod["spec"]["nodeName"] == "b")
        .unwrap();
    let waiting = json!({"waiting": {"reason": "CreateContainerError", "message": "seen"}});
    let status = json!({"status": {"containerStatuses": [{"name": "plugin", "state": waiting}]}});
    cluster.api.merge(
        &cluster.path(on_b["metadata"]["name"].as_str().unwrap()),
        &status,
    );
    cluster.wait_for_status(|status| status.to_string().contains("seen"));
    cluster.api.remove("/api/v1/nodes/b");
    cluster.wait_for_status(|status| {
        status
            .to_string()
            .contains("it was deleted with the plugin's pod on it")
    });
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.api.put("/api/v1/nodes/b", ready);
    cluster.api.wait(|_| {
        cluster
            .pods("p")
            .iter()
            .any(|pod| pod["metadata"]["name"].as_str().unwrap().ends_with("-2"))
    });
    assert_eq!((worker.send("b"), worker.send("a")), (200, 200));
    aggregator.ends_well();
    assert!(
        cluster
            .archive()
            .names()
            .all(|name| !name.contains("errors/"))
    );
}

#[test]
fn waves_continue_after_an_aggregator_restart() {
    let cluster = Cluster::new(&["a", "b"]).plugin("p", "Nodes", "  waves: {parallel: 1}\n");
    scheduler(&cluster);
    let aggregator = cluster.start("");
    cluster.api.wait(|_| occupied(&cluster) == ["a"]);
    drop(aggregator);
    let aggregator = cluster.start("");
    cluster
        .api
        .wait(|_| aggregator.said().matches("starting plugins").count() == 2);
    let worker = cluster.worker("p");
    assert_eq!(worker.send("a"), 200);
    cluster.api.wait(|_| occupied(&cluster) == ["b"]);
    assert_eq!(worker.send("b"), 200);
    aggregator.ends_well();
    assert_eq!(
        cluster.api.count("POST /api/v1/namespaces/sonobuoy/pods"),
        2
    );
}

#[test]
fn invalid_waves_are_rejected_with_their_place() {
    for value in ["0", "101%", "-1", "many"] {
        let text = format!(
            "sonobuoy-config:\n  driver: Nodes\n  plugin-name: p\n  waves: {{parallel: {value}}}\nspec: {{name: p, image: i}}\n"
        );
        let said = Sonobuoy::new("gen -p p.yaml --kubernetes-version v1.30.0")
            .file("p.yaml", text)
            .status(1)
            .run_any()
            .stderr;
        assert!(
            said.contains("write a number of nodes from 1, or a share from 1% to 100%"),
            "{said}"
        );
        let flag = Sonobuoy::new("gen --kubernetes-version v1.30.0 --max-parallel")
            .arg(value)
            .status(1)
            .run_any()
            .stderr;
        assert!(flag.contains("from 1% to 100%"), "{flag}");
    }
}

#[test]
fn choice_of_nodes_is_rejected_if_a_plugin_would_ignore_it() {
    let (api, folder, config) = untouched();
    api.raw("/version", 200, r#"{"gitVersion": "v1.33.4"}"#);
    for node in ["node-1", "node-2", "node-10"] {
        api.put(&format!("/api/v1/nodes/{node}"), json!({}));
    }
    for driver in ["Job", "DaemonSet", "Nodes"] {
        let name = driver.to_lowercase();
        let text = format!(
            "sonobuoy-config: {{driver: {driver}, plugin-name: {name}}}\nspec: {{name: plugin, image: i}}\n"
        );
        folder.write(&format!("{name}.yaml"), text);
    }
    folder.write("c.json", r#"{"Nodes": {"Only": "node-1"}}"#);
    let call = |words: &str| {
        let mut call = Sonobuoy::new(words.split(' ').next().unwrap())
            .arg("--kubeconfig")
            .arg(&config);
        for word in words.split(' ').skip(1) {
            let path = folder.join(word);
            call = if path.is_file() {
                call.arg(path)
            } else {
                call.arg(word)
            };
        }
        call
    };
    let nodes_only = "applies only to plugins with `driver: Nodes`, and would be ignored by";
    for (words, expected) in [
        (
            "-p daemonset.yaml --nodes node-1",
            format!("--nodes {nodes_only} `daemonset` (`driver: DaemonSet`)"),
        ),
        (
            "-p job.yaml --nodes node-1",
            format!("--nodes {nodes_only} `job` (`driver: Job`)"),
        ),
        (
            "-p job.yaml --sample 1 --per-zone 1",
            format!("--sample, --per-zone {nodes_only} `job`"),
        ),
        (
            "-p job.yaml --joined ignore",
            format!("--joined {nodes_only} `job`"),
        ),
        (
            "-p nodes.yaml -p job.yaml -p daemonset.yaml --max-parallel 2",
            format!(
                "--max-parallel {nodes_only} `daemonset` (`driver: DaemonSet`), `job` (`driver: Job`)"
            ),
        ),
        (
            "-p job.yaml --config c.json",
            format!("`Nodes.Only` of --config {nodes_only} `job`"),
        ),
    ] {
        for command in ["run", "gen", "doctor"] {
            call(&format!("{command} {words}"))
                .status(1)
                .stderr_has(&expected)
                .run_any();
        }
    }
    call("gen -p host-facts --nodes node-1")
        .status(1)
        .stderr_has("add `--harden on`")
        .run_any();
    for words in [
        "gen -p host-facts --nodes node-1 --harden on",
        "gen -p nodes.yaml --nodes node-1",
    ] {
        call(words).stdout_has("\"Only\":\"node-1\"").run_any();
    }
    let known = "called `noed-2`; it has node-1, node-2, node-10; did you mean `node-2`?";
    for command in ["run", "run --dry-run=server", "run --skip-preflight"] {
        call(&format!("{command} -p nodes.yaml --nodes node-1,noed-2"))
            .status(1)
            .stderr_has(known)
            .run_any();
    }
    assert_eq!(
        api.count("POST /api/v1/namespaces"),
        0,
        "{:?}",
        api.requests()
    );
}

/// Runs the commands that are sent to the aggregator's container, on the folder of its runs.
fn container(cluster: &Cluster) {
    let runs = cluster.folder.join("runs");
    cluster.api.on_exec(move |exec| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sonobuoy"));
        let done = command
            .arg("splat")
            .arg(&runs)
            .args(&exec.command[3..])
            .output()
            .unwrap();
        match done.status.code() {
            Some(0) => ExecAnswer::ok(done.stdout),
            code => ExecAnswer::failed(code.unwrap_or(-1), done.stderr),
        }
    });
}

#[test]
fn results_so_far_are_shown_at_any_time() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    container(&cluster);
    let aggregator = cluster.start("");
    let worker = cluster.worker("p");
    assert_eq!(worker.send("a"), 200);
    let config = cluster.folder.join("kubeconfig");
    let run = |words: &str| Sonobuoy::new(words).arg("--kubeconfig").arg(&config);
    let shown = run("results --live --format json").run_any();
    let report: Value = serde_json::from_str(&shown.stdout).unwrap();
    let plugin = &report["plugins"][0];
    assert_eq!(
        (&report["unfinished"], &plugin["nodes"][0]["name"]),
        (&json!(true), &json!("a")),
        "{report}"
    );
    assert_eq!(
        plugin["nodes"].as_array().unwrap().len(),
        1,
        "only complete results: {report}"
    );
    assert!(
        shown.stderr.contains("the run has not ended"),
        "{}",
        shown.stderr
    );
    let page = run("results --live --format html").run_any().stdout;
    assert!(page.contains("the run continues"), "{page}");
    run("results --live -m summary")
        .stdout_has("the run continues")
        .run_any();
    run("results --live")
        .stdout_has("Plugin: p\nStatus: passed\nTotal: 1\n")
        .run_any();
    assert_eq!(worker.send("b"), 200);
    aggregator.ends_well();
    run("results --live").stdout_has("Run Details").run_any();
    let report: Value =
        serde_json::from_str(&run("results --live --format json").run_any().stdout).unwrap();
    assert_eq!(
        (&report["unfinished"], &report["plugins"][0]["total"]),
        (&Value::Null, &json!(2)),
        "{report}"
    );
}

#[test]
fn every_node_of_a_large_cluster_is_in_the_whole_status() {
    let names: Vec<String> = (0..1_500)
        .map(|number| format!("node-{number:05}.{}", "x".repeat(99)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cluster = Cluster::new(&names).plugin("p", "Nodes", "  waves: {parallel: 1}\n");
    container(&cluster);
    let _aggregator = cluster.start("");
    cluster.wait_for_status(|status| status["plugins"].is_array());
    assert_eq!(cluster.status()["truncated"], true);
    let config = cluster.folder.join("kubeconfig");
    let entries = |words: &str| {
        let said = Sonobuoy::new(words)
            .arg("--kubeconfig")
            .arg(&config)
            .run_any();
        let status: Value =
            serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{}", said.stderr));
        status["plugins"].as_array().unwrap().len()
    };
    assert_eq!(entries("status --json --all"), names.len());
    assert!(entries("status --json") < names.len());
}

#[test]
fn enough_nodes_are_a_success() {
    let cluster = Cluster::new(&["a", "b", "c"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    not_ready(&cluster.api, "b", "2026-01-02T11:55:54Z");
    let aggregator = cluster.start("");
    let worker = cluster.worker("p");
    assert_eq!((worker.send("a"), worker.send("c")), (200, 200));
    aggregator.ends_well();
    let path = std::fs::read_dir(cluster.folder.join("runs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let path = path
        .into_iter()
        .find(|path| path.extension().is_some_and(|ending| ending == "gz"))
        .unwrap();
    for (flags, code) in [
        ("--fail-on failed", 3),
        ("--min-success 67%", 3),
        ("--min-success 66%", 0),
        ("--min-success 66 --fail-on unknown", 0),
    ] {
        Sonobuoy::new(&format!("results {flags}"))
            .arg(&path)
            .status(code)
            .run_any();
    }
    for share in ["0", "0%", "101%", "-1", "most"] {
        let said = Sonobuoy::new("results --min-success")
            .arg(share)
            .arg(&path)
            .status(1)
            .run_any()
            .stderr;
        assert!(said.contains("from 1% to 100%"), "{said}");
    }
}
