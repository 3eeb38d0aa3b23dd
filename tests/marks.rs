//! `run --mark-nodes` and `delete --unmark-nodes`: the verdict of each node as a condition of the
//! Node.

use serde_json::{Value, json};

use super::run::{cluster, created};
use crate::support::Sonobuoy;
use crate::support::api_server::ApiServer;
use crate::support::cluster::{Cluster, Worker, namespace, untouched};

const CONDITION: &str = "example.com/DiskChecked";
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// A cluster whose run marks the nodes by a plugin with manual results.
fn marking(nodes: &[&str]) -> Cluster {
    Cluster::new(nodes)
        .daemon_sets()
        .plugin("disk", "DaemonSet", "  result-format: manual\n")
        .set("MarkNodes", json!(CONDITION))
}

fn send(worker: &Worker, node: &str, status: &str) {
    let result = format!("name: disk\nstatus: {status}\nitems: [{{name: a, status: {status}}}]\n");
    assert_eq!(worker.send_file(node, "r.yaml", &result), 200);
}

fn condition(api: &ApiServer, node: &str) -> Option<Value> {
    let node = api.get(&format!("/api/v1/nodes/{node}"))?;
    let conditions = node["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|found| found["type"] == CONDITION);
    found.cloned()
}

/// Status, reason and message of the condition of a node.
fn mark(api: &ApiServer, node: &str) -> [String; 3] {
    let condition = condition(api, node).unwrap_or_else(|| panic!("`{node}` is not marked"));
    ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap().to_owned())
}

fn patches(api: &ApiServer, node: &str) -> usize {
    api.count(&format!("PATCH /api/v1/nodes/{node}/status"))
}

/// What the node controller writes about a dead node.
fn lose(api: &ApiServer, node: &str) {
    let ready = json!({"type": "Ready", "status": "Unknown", "message": "Kubelet stopped",
        "lastTransitionTime": "2026-01-02T11:55:54Z"});
    let state = json!({"status": {"conditions": [ready]}});
    api.merge(&format!("/api/v1/nodes/{node}"), &state);
}

#[test]
fn each_node_is_marked_once_by_its_verdict() {
    let cluster = marking(&["a", "b", "c"]);
    lose(&cluster.api, "c");
    let aggregator = cluster.start("");
    let worker = cluster.worker("disk");
    send(&worker, "a", "passed");
    send(&worker, "b", "failed");
    aggregator.ends_well();
    let run = cluster.archive().named("meta/info.json");
    assert!(!run.is_empty());
    for (node, status, reason, message) in [
        ("a", "True", "Passed", "disk passed"),
        ("b", "False", "Failed", "disk failed (1 of 1 test)"),
        (
            "c",
            "Unknown",
            "NoResult",
            "disk has no result: node `c` was lost at 11:55:54: Kubelet stopped",
        ),
    ] {
        let [is_status, is_reason, is_message] = mark(&cluster.api, node);
        assert_eq!((&*is_status, &*is_reason), (status, reason), "{node}");
        assert!(is_message.starts_with("run "), "{is_message}");
        assert!(is_message.contains(&format!(": {message}")), "{is_message}");
        assert_eq!(patches(&cluster.api, node), 1, "{node}");
        let node = cluster.api.get(&format!("/api/v1/nodes/{node}")).unwrap();
        assert_eq!(node["status"]["conditions"][0]["type"], "Ready", "{node}");
    }
    assert_eq!(cluster.status()["not-marked"], Value::Null);
}

#[test]
fn node_is_marked_when_its_results_are_complete() {
    let cluster = marking(&["a", "b"]).plugin("gpu", "DaemonSet", "");
    let aggregator = cluster.start("");
    let (disk, gpu) = (cluster.worker("disk"), cluster.worker("gpu"));
    send(&disk, "a", "failed");
    send(&disk, "b", "passed");
    assert_eq!(gpu.send("a"), 200);
    cluster.api.wait(|api| condition(api, "a").is_some());
    let [status, _, message] = mark(&cluster.api, "a");
    assert_eq!(status, "False");
    assert!(
        message.ends_with(": disk failed (1 of 1 test); gpu passed"),
        "{message}"
    );
    assert_eq!(condition(&cluster.api, "b"), None, "`gpu` is running there");
    assert_eq!(gpu.send("b"), 200);
    aggregator.ends_well();
    assert_eq!(mark(&cluster.api, "b")[0], "True");
    assert_eq!(
        [patches(&cluster.api, "a"), patches(&cluster.api, "b")],
        [1, 1]
    );
}

#[test]
fn node_that_joins_is_marked_while_the_run_goes_on() {
    let cluster = Cluster::new(&["a"])
        .plugin("disk", "Nodes", "  result-format: manual\n")
        .set("MarkNodes", json!(CONDITION));
    let aggregator = cluster.start("");
    cluster.api.wait(|_| cluster.pods("disk").len() == 1);
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.api.put("/api/v1/nodes/b", ready);
    cluster.api.wait(|_| cluster.pods("disk").len() == 2);
    let worker = cluster.worker("disk");
    send(&worker, "b", "passed");
    cluster.api.wait(|api| condition(api, "b").is_some());
    assert_eq!(mark(&cluster.api, "b")[0], "True");
    send(&worker, "a", "passed");
    aggregator.ends_well();
}

#[test]
fn time_of_the_last_change_remains_while_the_verdict_does() {
    let cluster = marking(&["a", "b"]);
    for (node, status) in [("a", "True"), ("b", "False")] {
        let known = json!({"type": CONDITION, "status": status, "reason": "Old", "message": "old",
            "lastHeartbeatTime": LONG_AGO, "lastTransitionTime": LONG_AGO});
        let state = json!({"status": {"conditions": [known]}});
        cluster.api.merge(&format!("/api/v1/nodes/{node}"), &state);
    }
    let aggregator = cluster.start("");
    let worker = cluster.worker("disk");
    send(&worker, "a", "passed");
    send(&worker, "b", "passed");
    aggregator.ends_well();
    let [same, changed] = ["a", "b"].map(|node| condition(&cluster.api, node).unwrap());
    assert_eq!(same["lastTransitionTime"], LONG_AGO);
    assert_ne!(same["lastHeartbeatTime"], LONG_AGO);
    assert_eq!(
        (&same["reason"], &changed["status"]),
        (&json!("Passed"), &json!("True"))
    );
    assert_ne!(changed["lastTransitionTime"], LONG_AGO);
}

#[test]
fn node_that_cannot_be_marked_is_a_warning_and_an_exit_code() {
    let cluster = marking(&["a", "b"]);
    cluster.api.forbid("patch", "nodes/status");
    let aggregator = cluster.start("");
    let worker = cluster.worker("disk");
    send(&worker, "a", "passed");
    send(&worker, "b", "passed");
    let (code, said) = aggregator.end();
    assert_eq!(code, 1, "{said}");
    let reason = format!("2 nodes did not get the condition `{CONDITION}`, such as `a`: ");
    assert!(said.contains(&reason), "{said}");
    assert!(
        said.contains("needs the verb `patch` for `nodes/status`"),
        "{said}"
    );
    assert!(
        cluster
            .archive()
            .names()
            .any(|name| name.contains("plugins/disk/results/a"))
    );
    let not_marked = cluster.status()["not-marked"].as_str().unwrap().to_owned();
    assert!(not_marked.starts_with(&reason), "{not_marked}");
    Sonobuoy::new("wait --kubeconfig")
        .arg(cluster.folder.join("kubeconfig"))
        .status(1)
        .stderr_has(&reason)
        .run_any();
}

#[test]
fn node_that_is_gone_needs_no_mark() {
    let cluster = marking(&["a", "b"]);
    let aggregator = cluster.start("");
    let worker = cluster.worker("disk");
    cluster.api.wait(|_| cluster.pods("disk").len() == 2);
    send(&worker, "b", "passed");
    cluster.api.wait(|api| condition(api, "b").is_some());
    cluster.api.remove("/api/v1/nodes/a");
    aggregator.ends_well();
    assert_eq!(patches(&cluster.api, "a"), 0);
}

const PER_NODE: &str = "sonobuoy-config: {driver: Nodes, plugin-name: p, permissions: none}\nspec: {name: plugin, image: i}\n";

/// A `run` command with a plugin that runs on each node.
fn start(config: &str, words: &str) -> Sonobuoy {
    Sonobuoy::new(&format!(
        "run --kubeconfig {config} -p p.yaml --rbac Enable {words}"
    ))
    .file("p.yaml", PER_NODE)
}

#[test]
fn marks_cost_the_aggregator_one_rule() {
    let rules = |words: &str| {
        let (api, _folder, config) = cluster();
        // Not every level of permissions includes its creation.
        namespace(&api);
        let words = format!("{words} --skip-preflight=existingnamespace");
        start(&config, &words).run_any();
        let role =
            api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/sonobuoy-aggregator-sonobuoy");
        role.unwrap()["rules"].as_array().unwrap().clone()
    };
    let marks = json!({"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]});
    for words in ["", "--no-snapshot", "--aggregator-permissions clusterRead"] {
        let mut with = rules(&format!("--mark-nodes {CONDITION} {words}"));
        assert!(with.contains(&marks), "{words}: {with:?}");
        with.retain(|rule| *rule != marks);
        assert_eq!(with, rules(words), "{words}");
    }
}

#[test]
fn marks_that_cannot_be_written_are_rejected_before_the_run() {
    let (api, _folder, config) = cluster();
    for (words, reason) in [
        (
            "--mark-nodes Ready",
            "--mark-nodes is `Ready`, a condition that Kubernetes itself writes",
        ),
        (
            "--mark-nodes a/b/c",
            "--mark-nodes is `a/b/c`, which is not the type of a condition",
        ),
        (
            "--mark-nodes x --aggregator-permissions namespaceAdmin",
            "--mark-nodes x: the run is admin of its namespace",
        ),
        (
            "--mark-nodes x --aggregator-permissions clusterRead --harden off",
            "choose `--aggregator-permissions clusterAdmin`, or `--harden on`",
        ),
    ] {
        start(&config, words).status(1).stderr_has(reason).run_any();
    }
    let job = "sonobuoy-config: {driver: Job, plugin-name: p}\nspec: {name: plugin, image: i}\n";
    start(&config, "--mark-nodes x")
        .file("p.yaml", job)
        .status(1)
        .stderr_has("--mark-nodes x needs a plugin that runs on each node")
        .run_any();
    start(&config, "--config c.json")
        .file("c.json", r#"{"MarkNodes": "-"}"#)
        .status(1)
        .stderr_has("`MarkNodes` is `-`, which is not the type of a condition")
        .run_any();
    assert_eq!(created(&api), [""; 0]);
}

/// Three nodes, of which two have the condition, beside another one.
fn marked() -> (ApiServer, crate::support::Folder, String) {
    let (api, folder, config) = untouched();
    let ready = json!({"type": "Ready", "status": "True"});
    let checked = json!({"type": CONDITION, "status": "False"});
    for (node, conditions) in [
        ("a", json!([ready, checked])),
        ("b", json!([checked, ready])),
        ("c", json!([ready])),
    ] {
        let path = format!("/api/v1/nodes/{node}");
        api.put(&path, json!({"status": {"conditions": conditions}}));
    }
    (api, folder, config)
}

fn unmark(config: &str, words: &str) -> Sonobuoy {
    Sonobuoy::new(&format!(
        "delete --kubeconfig {config} --unmark-nodes {words}"
    ))
}

#[test]
fn condition_is_removed_from_all_nodes_and_nothing_else() {
    let (api, _folder, config) = marked();
    let dry = unmark(&config, &format!("{CONDITION} --dry-run"))
        .run_any()
        .stdout;
    assert!(
        dry.contains("node/a: condition") && dry.contains("(dry run)"),
        "{dry}"
    );
    assert!(condition(&api, "a").is_some());
    let said = unmark(&config, CONDITION).run_any().stdout;
    let line = |node: &str| format!("node/{node}: condition `{CONDITION}` removed\n");
    assert_eq!(said, line("a") + &line("b"));
    for node in ["a", "b", "c"] {
        let node = api.get(&format!("/api/v1/nodes/{node}")).unwrap();
        assert_eq!(
            node["status"]["conditions"],
            json!([{"type": "Ready", "status": "True"}])
        );
    }
    assert_eq!(patches(&api, "c"), 0);
    assert_eq!(api.count("DELETE "), 0, "no run is removed");
    let again = unmark(&config, CONDITION).run_any();
    assert!(
        again.stderr.contains("no node has the condition"),
        "{}",
        again.stderr
    );
}

#[test]
fn condition_that_stays_is_an_error_with_its_node() {
    let (api, _folder, config) = marked();
    api.forbid("patch", "nodes/status");
    unmark(&config, CONDITION)
        .status(1)
        .stderr_has(&format!(
            "2 of 2 nodes keep the condition `{CONDITION}`: `a`: "
        ))
        .run_any();
    for words in ["", "Ready"] {
        let (api, _folder, config) = marked();
        Sonobuoy::new(&format!("delete --kubeconfig {config} --unmark-nodes"))
            .arg(words)
            .status(1)
            .run_any();
        assert_eq!(api.requests(), [""; 0], "an empty variable deletes no run");
    }
    unmark(&config, &format!("{CONDITION} --all"))
        .status(1)
        .stderr_has("--all")
        .run_any();
}

#[test]
fn condition_is_removed_in_several_clusters() {
    let clusters = [marked(), marked()];
    let mut command = Sonobuoy::new("delete --unmark-nodes").arg(CONDITION);
    command = command.arg("--kubeconfigs");
    let folder = crate::support::Folder::new();
    for (number, (_, _, config)) in clusters.iter().enumerate() {
        let text = std::fs::read_to_string(config).unwrap();
        command = command.arg(folder.write(&format!("c{number}"), text));
    }
    command.run_any();
    for (api, _, _) in &clusters {
        assert_eq!(condition(api, "a"), None);
    }
}
