//! `status` against the fake API server and the status service: tables, exit codes, and JSON in
//! every state.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use base64::prelude::{BASE64_STANDARD, Engine as _};

use crate::support::api_server::{ApiServer, Fault};
use crate::support::cluster::{
    AGGREGATOR, Aggregator, Cluster, STATUS, aggregator_pod, namespace, status, untouched,
};
use crate::support::{Folder, Sonobuoy};

fn cluster() -> (ApiServer, Folder, String) {
    let (api, folder, config) = untouched();
    namespace(&api);
    (api, folder, config)
}

/// `status` with arguments; credentials of another test must not be used.
fn ask(config: &str, words: &str) -> Sonobuoy {
    Sonobuoy::new(&format!("status --kubeconfig {config} {words}"))
}

fn entry(plugin: &str, node: &str, status: &str, result: &str) -> Value {
    json!({"plugin": plugin, "node": node, "status": status, "result-status": result, "result-counts": null})
}

#[test]
fn status_prints_tables_and_sentences() {
    let (api, _folder, config) = cluster();
    let mut e2e = entry("e2e", "global", "running", "");
    e2e["progress"] = json!({"name": "e2e", "node": "global", "timestamp": "2024-01-01T00:00:00Z", "msg": "m", "total": 9, "completed": 2, "failures": ["x"]});
    let entries = json!([
        e2e,
        entry("logs", "n1", "complete", "passed"),
        entry("logs", "n2", "complete", "passed")
    ]);
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &entries)),
    );
    ask(&config, "")
        .stdout_has(concat!(
            "   PLUGIN     STATUS   RESULT   COUNT                                PROGRESS\n",
            "      e2e    running                1   Passed:  2, Failed:  1, Remaining:  6\n",
            "     logs   complete   passed       2                                        \n",
            "\n",
        ))
        .stdout_has("is still running")
        .run();
    ask(&config, "--show-all --json")
        .stdout_has(concat!(
            "   PLUGIN     NODE     STATUS   RESULT                                PROGRESS\n",
            "      e2e   global    running            Passed:  2, Failed:  1, Remaining:  6\n",
            "     logs       n1   complete   passed                                        \n",
        ))
        .run();
    for (state, sentence, code) in [
        ("post-processing", "Preparing results", 0),
        ("complete", "sonobuoy retrieve", 0),
        ("failed", "sonobuoy logs", 1),
        ("else", "unknown state", 0),
    ] {
        aggregator_pod(
            &api,
            json!({"phase": "Running"}),
            Some(&status(state, &json!([]))),
        );
        ask(&config, "").status(code).stdout_has(sentence).run();
    }
}

#[test]
fn plugin_messages_do_not_push_the_table_off_screen() {
    let (api, _folder, config) = cluster();
    let message = |number: usize, text: String| {
        let mut entry = entry("p", &format!("n{number:02}"), "running", "");
        entry["message"] = text.into();
        entry
    };
    // A message of all nodes is one line; a long one loses the end of its cause, not the remedy.
    let same: Vec<Value> = (0..40)
        .map(|node| {
            message(
                node,
                format!("no disk (os error 2) {}; buy one", "x".repeat(900)),
            )
        })
        .collect();
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &json!(same))),
    );
    let done = ask(&config, "")
        .stdout_has("\np on n00, n01, n02 and 37 more: no disk xxx")
        .run();
    assert!(
        done.stdout.ends_with("x…; buy one\n") && done.stdout.lines().all(|line| line.len() < 500),
        "{}",
        done.stdout
    );
    let other: Vec<Value> = (0..40)
        .map(|node| message(node, format!("cause {}", "x".repeat(node + 1))))
        .collect();
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &json!(other))),
    );
    let done = ask(&config, "")
        .stdout_has("\nand 29 more messages; `sonobuoy status --json` has all of them\n")
        .run();
    assert!(done.stdout.lines().count() < 20, "{}", done.stdout);
}

#[test]
fn unavailable_image_is_reported_with_load_commands() {
    let (api, _folder, config) = cluster();
    let waiting =
        json!({"reason": "ErrImagePull", "message": "dial tcp 127.0.0.1:443: connection refused"});
    let containers = json!([{"name": "kube-sonobuoy", "image": "localhost/sonobuoy:v1", "state": {"waiting": waiting}}]);
    aggregator_pod(
        &api,
        json!({"phase": "Pending", "containerStatuses": containers}),
        None,
    );
    let load = "\n  kind load docker-image localhost/sonobuoy:v1\n  docker save localhost/sonobuoy:v1 | sudo k3s ctr";
    ask(&config, "")
        .status(1)
        .stdout_has(load)
        .stderr_has("unable to pull sonobuoy image")
        .run();
    let began = std::time::Instant::now();
    Sonobuoy::new(&format!("wait --kubeconfig {config}"))
        .status(1)
        .stderr_has("--sonobuoy-image REGISTRY/sonobuoy:v1")
        .stdout_has(load.split_once("  ").unwrap().1.lines().next().unwrap())
        .run();
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
}

/// An aggregator's pod that has waited long for a volume.
fn unmounted(api: &ApiServer) {
    let waiting = json!({"reason": "ContainerCreating"});
    let containers = json!([{"name": "kube-sonobuoy", "state": {"waiting": waiting}}]);
    aggregator_pod(
        api,
        json!({"phase": "Pending", "containerStatuses": containers}),
        None,
    );
    let created = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
    api.merge(AGGREGATOR, &created);
    let uid = api.get(AGGREGATOR).unwrap()["metadata"]["uid"].clone();
    for (name, of, message) in [
        ("of-another", json!("earlier"), "of a pod of the same name"),
        ("mount", uid, "configmap \"ca\" not found"),
    ] {
        api.put(
            &format!("/api/v1/namespaces/sonobuoy/events/{name}"),
            json!({"type": "Warning", "reason": "FailedMount", "message": message,
                "involvedObject": {"uid": of}, "lastTimestamp": "2026-01-01T00:00:00Z"}),
        );
    }
}

#[test]
fn event_explains_an_aggregator_that_does_not_start() {
    let (api, _folder, config) = cluster();
    unmounted(&api);
    let cause = "the aggregator's pod is Pending: FailedMount: configmap \"ca\" not found";
    ask(&config, "").stdout_has(cause).run();
    api.forbid("list", "events");
    ask(&config, "")
        .stdout_has("container kube-sonobuoy: ContainerCreating; its events, which say why")
        .run();
}

#[test]
fn retrieving_from_a_run_that_has_not_started_says_why() {
    let (api, _folder, config) = cluster();
    unmounted(&api);
    Sonobuoy::new(&format!("retrieve --kubeconfig {config}"))
        .status(1)
        .stderr_has(
            "the run has not started: the aggregator's pod is Pending: FailedMount: configmap",
        )
        .stderr_has("wait for it with `sonobuoy wait -n sonobuoy`")
        .run();
    assert_eq!(
        api.count("GET /api/v1/namespaces/sonobuoy/pods/sonobuoy/exec"),
        0
    );
}

#[test]
fn restarts_of_the_aggregator_are_one_line() {
    let (api, _folder, config) = cluster();
    let killed = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let failed = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "no API"}});
    let looping = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
    let text = status("running", &json!([entry("p", "global", "running", "")]));
    let pod = |state: &Value, last: &Value, says: Option<&str>| {
        let container =
            json!({"name": "kube-sonobuoy", "restartCount": 2, "state": state, "lastState": last});
        aggregator_pod(
            &api,
            json!({"phase": "Running", "containerStatuses": [container]}),
            says,
        );
    };
    pod(&json!({"running": {}}), &killed, Some(&text));
    ask(&config, "")
        .stdout_has("the aggregator was restarted 2 times, and goes on: exit code 137, OOMKilled")
        .run();
    pod(&looping, &failed, None);
    ask(&config, "")
        .stdout_has("restarted 2 times, and waits to be again: exit code 1: no API")
        .run();
}

#[test]
fn running_test_is_shown_with_its_duration() {
    let (api, _folder, config) = cluster();
    for (message, expected) in [
        (
            "RUNNING [sig-a] a hangs",
            "\ne2e on global runs [sig-a] a hangs, for ",
        ),
        (
            "RUNNING a since 2024-01-01T00:00:00Z",
            "\ne2e on global runs a, for ",
        ),
        (
            "RUNNING a since 9024-01-01T00:00:00Z",
            "\ne2e on global runs a\n",
        ),
        (
            "RUNNING a\u{1b}[2J",
            "\ne2e on global runs a\\u001b[2J, for ",
        ),
    ] {
        let mut e2e = entry("e2e", "global", "running", "");
        e2e["progress"] = json!({"timestamp": "2024-01-01T00:00:00Z", "msg": message, "total": 9});
        let mut over = e2e.clone();
        over["plugin"] = "over".into();
        over["status"] = "complete".into();
        let text = status("running", &json!([e2e, over]));
        aggregator_pod(&api, json!({"phase": "Running"}), Some(&text));
        let done = ask(&config, "").stdout_has(expected).run();
        assert_eq!(done.stdout.matches(" runs ").count(), 1, "{}", done.stdout);
    }
}

#[test]
fn estimate_needs_an_archive() {
    let (api, _folder, config) = cluster();
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &json!([]))),
    );
    ask(&config, "--watch --estimate-from missing")
        .status(1)
        .stderr_has("--estimate-from missing")
        .run();
}

#[test]
fn json_is_valid_in_every_state() {
    let (api, _folder, config) = cluster();
    let container = |state: Value| json!({"phase": "Pending", "containerStatuses": [{"name": "kube-sonobuoy", "state": state}]});
    let running = status("running", &json!(null));
    for (state, annotation, expected, words, code) in [
        (json!({"phase": "Pending"}), None, "running", "Pending", 0),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}),
            None,
            "running",
            "0/3 nodes",
            0,
        ),
        (
            container(json!({"waiting": {"reason": "ContainerCreating"}})),
            None,
            "running",
            "ContainerCreating",
            0,
        ),
        (
            container(
                json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}),
            ),
            None,
            "failed",
            "no such image",
            1,
        ),
        (
            container(json!({"waiting": {"reason": "ErrImagePull"}})),
            None,
            "failed",
            "ErrImagePull",
            1,
        ),
        (
            json!({"phase": "Running"}),
            None,
            "running",
            "not published its status",
            0,
        ),
        (
            json!({"phase": "Running"}),
            Some(&*running),
            "running",
            "",
            0,
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted"}),
            Some(&*running),
            "failed",
            "Evicted",
            1,
        ),
        (json!({"phase": "Unknown"}), None, "failed", "Unknown", 1),
        (json!({"phase": "Succeeded"}), None, "failed", "ended", 1),
        (
            json!({"phase": "Running"}),
            Some("{"),
            "running",
            "cannot be read",
            0,
        ),
        (
            json!({"phase": "Running"}),
            Some(""),
            "running",
            "cannot be read",
            0,
        ),
        (
            container(json!({"waiting": {"reason": "CreateContainerConfigError"}})),
            None,
            "running",
            "CreateContainerConfigError",
            0,
        ),
    ] {
        aggregator_pod(&api, state.clone(), annotation);
        // The cause is printed on stderr, too.
        let asked = |words: &str| {
            let asked = ask(&config, words).status(code);
            if code == 0 {
                asked
            } else {
                asked.stderr_has("level=error")
            }
        };
        let done = asked("--json").stdout_has("{").run();
        let told: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(told["status"], expected, "{state}");
        for key in ["plugins", "tar-info"] {
            assert!(told.get(key).is_some(), "{key} in {state}");
        }
        let said = told["message"]
            .as_str()
            .or(told["error"].as_str())
            .unwrap_or_default();
        assert!(said.contains(words), "{state}: {said}");
        // Text output has a sentence instead, with the same exit code.
        if annotation != Some(&running) || expected != "running" {
            asked("").stdout_has(words).run();
        }
    }
}

#[test]
fn status_of_any_version_prints_as_the_original() {
    let (api, _folder, config) = cluster();
    let json = |text: &str| {
        aggregator_pod(&api, json!({"phase": "Running"}), Some(text));
        ask(&config, "--json").stdout_has("{").run().stdout
    };
    assert_eq!(
        json(
            r#"{"Status":"complete","Plugins":[{"plugin":"a<b","progress":{"total":1}}],"tar-info":{"name":"x"}}"#
        ),
        concat!(
            r#"{"plugins":[{"plugin":"a\u003cb","node":"","status":"","result-status":"","result-counts":null,"#,
            r#""progress":{"name":"","node":"","timestamp":"0001-01-01T00:00:00Z","msg":"","total":1,"completed":0}}],"#,
            r#""status":"complete","tar-info":{"name":"x","created":"0001-01-01T00:00:00Z","sha256":"","size":0}}"#,
            "\n"
        )
    );
    aggregator_pod(&api, json!({"phase": "Running"}), Some("{}"));
    ask(&config, "")
        .stdout_has("   PLUGIN   STATUS   RESULT   COUNT   PROGRESS\n\n")
        .run();
}

#[test]
fn stuck_aggregator_is_an_error_on_stderr() {
    let (api, _folder, config) = cluster();
    aggregator_pod(&api, json!({"phase": "Failed", "reason": "Evicted"}), None);
    ask(&config, "")
        .status(1)
        .stdout_has("Evicted")
        .stderr_has("level=error")
        .run();
}

#[test]
fn missing_run_has_no_status() {
    let (_api, _folder, config) = cluster();
    ask(&config, "")
        .status(1)
        .stderr_has("namespace `sonobuoy` has no run")
        .run();
    ask(&config, "--namespace=")
        .status(1)
        .stderr_has("namespace is empty")
        .run();
    ask(&config, "-n elsewhere --json")
        .status(1)
        .stderr_has("namespace `elsewhere` does not exist")
        .run();
}

#[test]
fn older_aggregators_are_found() {
    let (api, _folder, config) = cluster();
    let text = status("complete", &json!([]));
    let running = |labels: Value| json!({"metadata": {"labels": labels, "annotations": {(STATUS): text}}, "status": {"phase": "Running"}});
    api.put(
        "/api/v1/namespaces/sonobuoy/pods/old",
        running(json!({"run": "sonobuoy-master"})),
    );
    ask(&config, "").stdout_has("complete").run();
    api.remove("/api/v1/namespaces/sonobuoy/pods/old");
    api.put(AGGREGATOR, running(json!({})));
    ask(&config, "").stdout_has("complete").run();
}

#[test]
fn huge_counts_are_shown() {
    let (api, _folder, config) = cluster();
    let huge = json!({
        "plugin": "e2e", "node": "n", "status": "complete", "result-status": "passed", "count": u64::MAX,
        "result-counts": {"passed": u64::MAX, "complete": u64::MAX, "failed": u64::MAX},
        "progress": {"name": "e2e", "node": "n", "timestamp": "2024-01-01T00:00:00Z", "total": i64::MAX,
            "completed": i64::MAX, "failures": ["x"]},
    });
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("complete", &json!([huge, huge, huge]))),
    );
    for words in ["", "--show-all", "--json"] {
        ask(&config, words).stdout_has("e2e").run();
    }
    Sonobuoy::new(&format!("wait --kubeconfig {config}")).run_any();
}

#[test]
fn endless_list_of_aggregators_is_an_error() {
    let (api, _folder, config) = cluster();
    for number in 0..101 {
        let labels = json!({"metadata": {"labels": {"sonobuoy-component": "aggregator"}}, "status": {"phase": "Running"}});
        api.put(
            &format!("/api/v1/namespaces/sonobuoy/pods/p{number}"),
            labels,
        );
    }
    ask(&config, "")
        .status(1)
        .stderr_has("more than 100 pods in namespace sonobuoy are aggregators")
        .run();
}

#[test]
fn status_watch_prints_changes_and_ends_with_the_run() {
    let (api, _folder, config) = cluster();
    let says = |state: &str, how: &str, result: &str| {
        status(state, &json!([entry("p", "global", how, result)]))
    };
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&says("running", "running", "")),
    );
    let (mut command, _held) = ask(&config, "--watch --show-all").command();
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut next = || {
        lines
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(next(), "PLUGIN NODE STATUS RESULT PROGRESS");
    assert_eq!(next(), "p global running");
    assert!(next().contains("is still running"));
    let annotate = |text: String| {
        api.merge(
            AGGREGATOR,
            &json!({"metadata": {"annotations": {(STATUS): text}}}),
        )
    };
    annotate(says("post-processing", "complete", ""));
    assert_eq!(next(), "p global complete");
    assert!(next().contains("Preparing results"));
    annotate(says("complete", "complete", "passed"));
    assert_eq!(next(), "p global complete passed");
    assert!(next().contains("has completed"));
    assert!(child.wait().unwrap().success());
    // In JSON each state is a line.
    let done = ask(&config, "--watch --json").stdout_has("complete").run();
    assert_eq!(done.stdout.lines().count(), 1);
}

#[test]
fn status_watch_counts_from_the_start_of_the_run() {
    let (api, _folder, config) = cluster();
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("complete", &json!([]))),
    );
    let created = api.get(AGGREGATOR).unwrap()["metadata"]["creationTimestamp"].clone();
    assert_eq!(created, "2024-01-01T00:00:00Z", "long before the watch");
    let done = ask(&config, "--watch --output json").run_any();
    let event: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert!(event["elapsed"].as_u64().unwrap() > 30 * 86_400, "{event}");
}

#[test]
fn credentials_use_standard_streams() {
    let (api, folder, config) = cluster();
    api.controller(|api, change| {
        if change.kind == "ADDED" && change.path.ends_with("/services/sonobuoy-status") {
            api.merge(&change.path, &json!({"spec": {"clusterIP": "127.0.0.1"}}));
        }
    });
    let words =
        "--kubernetes-version v1.30.0 -p systemd-logs --skip-preflight --status-service ClusterIP";
    let run = Sonobuoy::new(&format!(
        "run --kubeconfig {config} {words} --credentials -"
    ))
    .run_any();
    let credentials: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(credentials["host_address"], "https://127.0.0.1:8443/");
    assert!(
        !run.folder.join("-").exists() && !run.stderr.contains("credentials"),
        "{}",
        run.stderr
    );

    let (api, _other, config) = cluster();
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("complete", &json!([]))),
    );
    // No server listens there, so the annotation is used.
    let ask = |given: &str| {
        let ask =
            Sonobuoy::new(&format!("status --kubeconfig {config} --credentials -")).stdin(given);
        ask.stdout_has("has completed")
            .stderr_has("the status service was not asked")
            .run_any()
            .stderr
    };
    assert!(ask(&run.stdout).contains("127.0.0.1:8443"));
    assert!(ask("{}").contains("standard input"));
    drop(folder);
}

#[cfg(unix)]
#[test]
fn credentials_of_other_users_are_rejected() {
    let (api, folder, config) = cluster();
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("complete", &json!([]))),
    );
    let path = folder.path().join("c.json");
    std::fs::write(&path, "{}").unwrap();
    let name = path.display();
    Sonobuoy::new(&format!(
        "status --kubeconfig {config} --credentials {name}"
    ))
    .stdout_has("has completed")
    .stderr_has("others may read or write it")
    .run();
}

/// A run whose aggregator serves its status on this machine, and its credentials.
struct Served {
    cluster: Cluster,
    #[cfg_attr(
        not(unix),
        allow(dead_code, reason = "restarted only where there are signals")
    )]
    aggregator: Aggregator,
    credentials: Value,
}

impl Served {
    fn new(fault: Option<Fault>) -> Self {
        let (api, _folder, config) = cluster();
        api.controller(|api, change| {
            if change.kind == "ADDED" && change.path.ends_with("/services/sonobuoy-status") {
                api.merge(&change.path, &json!({"spec": {"clusterIP": "127.0.0.1"}}));
            }
        });
        let words = "--kubernetes-version v1.30.0 -p systemd-logs --skip-preflight --status-service ClusterIP";
        let run = Sonobuoy::new(&format!(
            "run --kubeconfig {config} {words} --credentials -"
        ))
        .run_any();
        let mut credentials: Value = serde_json::from_str(&run.stdout).unwrap();
        let secret = api
            .get("/api/v1/namespaces/sonobuoy/secrets/sonobuoy-status")
            .unwrap();

        let port = crate::support::cluster::free_port();
        let mut cluster = Cluster::new(&["a"]).plugin("p", "Job", "");
        cluster.settings["Server"]["statusport"] = port.into();
        for (name, content) in secret["data"].as_object().unwrap() {
            let content = BASE64_STANDARD.decode(content.as_str().unwrap()).unwrap();
            cluster.folder.write(&format!("tls/{name}"), content);
        }
        let certificates = cluster.folder.join("tls").display().to_string();
        cluster
            .env
            .insert("SONOBUOY_STATUS_DIR".into(), certificates);
        credentials["host_address"] = format!("https://127.0.0.1:{port}/").into();
        fault.into_iter().for_each(|fault| cluster.api.fault(fault));
        let aggregator = cluster.start("--no-exit");
        Self {
            cluster,
            aggregator,
            credentials,
        }
    }

    /// A command with the credentials, on a machine without a kubeconfig.
    fn ask(&self, words: &str) -> Sonobuoy {
        Sonobuoy::new(words)
            .arg("--credentials=-")
            .stdin(self.credentials.to_string())
    }
}

#[test]
fn status_watch_wait_and_retrieve_need_no_kubeconfig() {
    let served = Served::new(None);
    let worker = served.cluster.worker("p");
    served.ask("status").stdout_has("is still running").run();
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            served
                .ask("status --watch --json")
                .stdout_has("complete")
                .run()
        });
        let wait = scope.spawn(|| {
            let wait = served
                .ask("wait --retrieve out")
                .stdout_has(".tar.gz")
                .stderr_has("Sonobuoy has completed");
            wait.stderr_has("asking the run's status service for the archive")
                .run_any()
        });
        assert_eq!(worker.send("global"), 200);
        let watch = watch.join().unwrap();
        assert!(
            watch
                .stdout
                .lines()
                .last()
                .unwrap()
                .contains(r#""status":"complete""#),
            "{}",
            watch.stdout
        );
        assert_eq!(wait.join().unwrap().folder.names().len(), 1);
    });
    let done = served
        .ask("retrieve")
        .stderr_has("no cluster is configured; asking")
        .stdout_has(".tar.gz")
        .run();
    assert!(
        done.folder.join(done.stdout.trim()).exists(),
        "{}",
        done.stdout
    );
    served
        .ask("wait --delete --rbac Enable")
        .status(1)
        .stderr_has("no cluster configured")
        .run();
}

#[test]
fn prometheus_scrapes_a_run() {
    use std::process::Command;

    let (Some(prometheus), Some(curl)) = (
        crate::support::program("prometheus"),
        crate::support::program("curl"),
    ) else {
        return;
    };
    let served = Served::new(None);
    let (worker, home) = (served.cluster.worker("p"), Folder::new());
    for (name, key) in [
        ("ca.pem", "ca_cert"),
        ("client.pem", "client_cert"),
        ("client.key", "client_key"),
    ] {
        home.write(name, served.credentials[key].as_str().unwrap());
    }
    let host = served.credentials["host_address"].as_str().unwrap();
    let target = host.trim_start_matches("https://").trim_end_matches('/');
    let tls = json!({"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key",
        "server_name": served.credentials["server_name"]});
    let job = json!({"job_name": "sonobuoy", "scheme": "https", "scrape_interval": "1s", "tls_config": tls,
        "static_configs": [{"targets": [target]}]});
    home.write(
        "prometheus.yml",
        json!({"scrape_configs": [job]}).to_string(),
    );
    let port = crate::support::cluster::free_port();
    let log = std::fs::File::create(home.path().join("log")).unwrap();
    let mut server = Command::new(prometheus)
        .current_dir(home.path())
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stderr(log)
        .spawn()
        .unwrap();
    let query = |expression: &str| {
        let url = format!("http://127.0.0.1:{port}/api/v1/query");
        let data = format!("query={expression}");
        let answer = Command::new(&curl)
            .args(["-sG", "--data-urlencode", &data, &url])
            .output()
            .unwrap();
        let answer: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        answer["data"]["result"][0]["value"][1]
            .as_str()
            .map(str::to_owned)
    };
    let becomes = |expression: &str, expected: &str| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while query(expression).as_deref() != Some(expected) {
            let log = || std::fs::read_to_string(home.path().join("log")).unwrap();
            assert!(
                std::time::Instant::now() < until,
                "{expression}: {:?}: {}",
                query(expression),
                log()
            );
            base::stop::Stop::new().wait(std::time::Duration::from_millis(200));
        }
    };
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        becomes("sonobuoy_run_state{state=\"running\"}", "1");
        becomes("sonobuoy_results_expected{plugin=\"p\"}", "1");
        assert_eq!(worker.send("global"), 200);
        becomes("sonobuoy_results_received{plugin=\"p\"}", "1");
        becomes("sonobuoy_run_state{state=\"complete\"}", "1");
        becomes("sonobuoy_archive_bytes > bool 0", "1");
        becomes("sonobuoy_refusals_total", "0");
    }));
    server.kill().unwrap();
    server.wait().unwrap();
    judged.unwrap();
}

#[cfg(unix)]
#[test]
fn documented_requests_work() {
    use std::process::Command;

    let needed = ["curl", "jq", "bash"].map(crate::support::program);
    if needed.contains(&None) {
        return;
    }
    let page = include_str!("../docs/status.md");
    let script = page
        .split("```sh\n# needs: a cluster\n")
        .find(|block| block.starts_with("field() {"))
        .unwrap();
    let script = script.split("```").next().unwrap();
    let served = Served::new(None);
    assert_eq!(served.cluster.worker("p").send("global"), 200);
    served
        .ask("wait")
        .stdout_has("Sonobuoy has completed")
        .run();
    let folder = Folder::new();
    folder.write("run.json", served.credentials.to_string());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "p global complete\n"
    );
    let archive = crate::support::Archive::only_one_in(folder.path());
    assert_eq!(
        archive.text("plugins/p/results/global/r.txt"),
        "of global\n"
    );
}

#[test]
fn credentials_name_the_namespace_and_the_authority() {
    let mut served = Served::new(None);
    assert_eq!(served.cluster.worker("p").send("global"), 200);
    served
        .ask("wait")
        .stdout_has("Sonobuoy has completed")
        .run();
    let map = "/api/v1/namespaces/sonobuoy/configmaps/sonobuoy-authority";
    let published = served.cluster.api.get(map).unwrap()["data"].clone();
    served.credentials["namespace"] = json!("elsewhere");
    served
        .ask("status -n sonobuoy")
        .status(1)
        .stderr_has("belong to the run in namespace `elsewhere`")
        .run_any();
    served.ask("status").stdout_has("has completed").run_any();
    served
        .ask("retrieve")
        .stderr_has("was not checked: the certificate")
        .run_any();
    served.credentials["run"] = published["run"].clone();
    served.credentials["authority"] = published["authority.crt"].clone();
    served
        .ask("retrieve")
        .stderr_has("is sealed by the authority of run")
        .run_any();
}

#[test]
fn status_service_works_without_the_api_server() {
    let silent = Fault::on("PATCH ")
        .times(1_000)
        .slow(std::time::Duration::from_secs(60));
    let served = Served::new(Some(silent));
    assert_eq!(served.cluster.worker("p").send("global"), 200);
    served
        .ask("wait")
        .stdout_has("Sonobuoy has completed")
        .run();
    assert_eq!(
        served.cluster.status(),
        Value::Null,
        "the annotation was never written"
    );
    served.ask("retrieve").stdout_has(".tar.gz").run_any();
}

#[test]
fn output_precedes_optional_api_requests() {
    let served = Served::new(None);
    served.cluster.worker("p");
    // Accepts connections and never responds.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    for cluster in [
        json!({"server": format!("http://{address}")}),
        json!({"server": format!("https://{address}"), "insecure-skip-tls-verify": true}),
    ] {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        let began = std::time::Instant::now();
        served
            .ask("status --kubeconfig k.yaml")
            .file("k.yaml", config.to_string())
            .stdout_has("Sonobuoy is still running")
            .run_any();
        assert!(
            began.elapsed() < std::time::Duration::from_secs(15),
            "{:?}",
            began.elapsed()
        );
    }
    // The service is silent, too.
    let mut credentials = served.credentials.clone();
    credentials["host_address"] = format!("https://{address}/").into();
    Sonobuoy::new("status --credentials -")
        .stdin(credentials.to_string())
        .status(1)
        .stderr_has("the run's status service cannot be asked")
        .stderr_has("did not answer within 3s")
        .run();
    drop(silent);
}

#[cfg(unix)]
#[test]
fn rejected_credentials_file_is_explained() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    let (api, folder, config) = cluster();
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("complete", &json!([]))),
    );
    let credentials = |created: &str, namespace: &str| {
        json!({"host_address": "https://127.0.0.1:1/", "created_at": created, "ca_cert": "", "client_cert": "",
            "client_key": "", "namespace": namespace})
    };
    let created = |seconds| {
        base::clock::rfc3339(std::time::SystemTime::now() + std::time::Duration::from_secs(seconds))
    };
    for (text, mode, words) in [
        (
            credentials("2024-01-01T00:00:00Z", "sonobuoy"),
            0o600,
            "expired after 48 hours",
        ),
        (
            credentials(&created(400), "sonobuoy"),
            0o600,
            "in the future; check the clock of this machine",
        ),
        // Tolerated; the certificate is the defect.
        (
            credentials(&created(240), "sonobuoy"),
            0o600,
            "it contains no PEM certificate",
        ),
        (
            credentials("now", "sonobuoy"),
            0o600,
            "`created_at` is not a time",
        ),
        (
            credentials(&created(0), "sonobuoy"),
            0o640,
            "others may read or write it",
        ),
        (
            credentials(&created(0), "sonobuoy"),
            0o602,
            "others may read or write it",
        ),
        (
            credentials(&created(0), "other"),
            0o600,
            "belong to the run in namespace `other`, not `sonobuoy`; add `-n other`",
        ),
    ] {
        let path = folder.write("c.json", text.to_string());
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        for command in ["status", "status --watch", "wait"] {
            let path = path.display();
            let line = format!("{command} -n sonobuoy --kubeconfig {config} --credentials {path}");
            Sonobuoy::new(&line)
                .stdout_has("complete")
                .stderr_has(words)
                .run();
        }
    }
}

#[test]
fn missing_credentials_file_is_an_error() {
    let (api, _folder, config) = cluster();
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("complete", &json!([]))),
    );
    for command in ["status", "status --watch", "wait", "retrieve"] {
        let before = api.requests().len();
        let named = Sonobuoy::new(&format!(
            "{command} --kubeconfig {config} --credentials absent.json"
        ));
        named
            .status(1)
            .stdout("")
            .stderr_has("--credentials: `absent.json` does not exist")
            .run();
        assert_eq!(api.requests().len(), before, "{command}");
    }
    // The default file may be absent.
    Sonobuoy::new(&format!("status --kubeconfig {config}"))
        .env("SONOBUOY_CREDENTIALS", "absent.json")
        .stdout_has("has completed")
        .stderr("")
        .run();
}

#[cfg(unix)]
#[test]
fn restarted_aggregator_serves_status_and_archive() {
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::TERM] {
        let mut served = Served::new(None);
        assert_eq!(served.cluster.worker("p").send("global"), 200);
        served
            .ask("wait")
            .stdout_has("Sonobuoy has completed")
            .run();
        let status = |served: &Served| {
            served
                .ask("status --json")
                .stdout_has(r#""status":"complete""#)
                .run()
                .stdout
        };
        let before = status(&served);
        served.aggregator.signal(signal);
        served.aggregator.child.wait().unwrap();
        served
            .ask("status")
            .status(1)
            .stderr_has("the run's status service cannot be asked")
            .run();

        served.aggregator = served.cluster.start("--no-exit");
        served.cluster.api.wait(|_| {
            served
                .aggregator
                .said()
                .contains("the run is complete; its archive is in")
        });
        served
            .ask("wait")
            .stdout_has("Sonobuoy has completed")
            .run();
        assert_eq!(status(&served), before);
        let done = served.ask("retrieve").stdout_has(".tar.gz").run_any();
        let archive = crate::support::Archive::only_one_in(done.folder.path());
        assert_eq!(
            archive.text("plugins/p/results/global/r.txt"),
            "of global\n"
        );
    }
}

#[test]
fn credentials_path_is_checked_first_and_replaced_atomically() {
    let (api, folder, config) = cluster();
    let words =
        "--kubernetes-version v1.30.0 -p systemd-logs --skip-preflight --status-service ClusterIP";
    let run = |file: &str| {
        Sonobuoy::new(&format!(
            "run --kubeconfig {config} {words} --credentials {file}"
        ))
    };
    let missing = folder.join("missing/c.json").display().to_string();
    run(&missing)
        .status(1)
        .stderr_has("missing` is not a folder")
        .run();
    assert!(
        api.requests()
            .iter()
            .all(|request| request.starts_with("GET ")),
        "{:?}",
        api.requests()
    );

    // The credentials of a run survive a later failed attempt.
    api.controller(|api, change| {
        if change.kind == "ADDED" && change.path.ends_with("/services/sonobuoy-status") {
            api.merge(&change.path, &json!({"spec": {"clusterIP": "127.0.0.1"}}));
        }
    });
    let file = folder.join("c.json").display().to_string();
    run(&file).run_any();
    let first = folder.read("c.json");
    run(&file).arg("-p=nonesuch").status(1).run_any();
    run(&file).status(1).stderr_has("already").run_any();
    assert_eq!(folder.read("c.json"), first);
    assert_eq!(
        folder
            .names()
            .iter()
            .filter(|name| name.contains("c.json"))
            .count(),
        1
    );
}

#[test]
fn wait_fails_only_without_any_result() {
    let of = |node: &str, state: &str| entry("p", node, state, state);
    for (entries, code) in [
        (json!([of("a", "failed"), of("b", "failed")]), 1),
        (json!([of("a", "failed"), of("b", "complete")]), 0),
        (json!([]), 0),
    ] {
        let (api, _folder, config) = cluster();
        aggregator_pod(
            &api,
            json!({"phase": "Running"}),
            Some(&status("complete", &entries)),
        );
        let wait = Sonobuoy::new(&format!("wait --kubeconfig {config}")).status(code);
        let wait = if code == 1 {
            wait.stderr_has("no plugin has delivered a result")
        } else {
            wait
        };
        wait.run_any();
        ask(&config, "").status(code).run_any();
    }
}
