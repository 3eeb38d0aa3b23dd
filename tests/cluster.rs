//! Commands for a cluster without a run: logs, get, delete, version, against the fake API server.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

#[cfg(unix)]
use crate::board::at_terminal;
use crate::run;
use crate::support::api_server::{ApiServer, Fault};
use crate::support::cluster::{namespace, untouched};
use crate::support::{Folder, Sonobuoy};

/// A plugin's pod or the aggregator, with a running container per name.
fn pod(api: &ApiServer, name: &str, labels: Value, containers: &[&str]) -> String {
    let path = format!("/api/v1/namespaces/sonobuoy/pods/{name}");
    let list =
        |make: fn(&str) -> Value| containers.iter().map(|name| make(name)).collect::<Vec<_>>();
    api.put(
        &path,
        json!({
            "metadata": {"labels": labels},
            "spec": {"containers": list(|name| json!({"name": name}))},
            "status": {"phase": "Running", "containerStatuses": list(|name| json!({"name": name, "state": {"running": {}}}))},
        }),
    );
    path
}

fn cluster() -> (ApiServer, Folder, String) {
    let (api, folder, config) = untouched();
    namespace(&api);
    let plugin = |name: &str| json!({"component": "sonobuoy", "sonobuoy-component": "plugin", "sonobuoy-plugin": name});
    let aggregator = json!({"component": "sonobuoy", "sonobuoy-component": "aggregator"});
    pod(&api, "sonobuoy", aggregator, &["kube-sonobuoy"]);
    pod(
        &api,
        "sonobuoy-a-job",
        plugin("a"),
        &["plugin", "sonobuoy-worker"],
    );
    pod(&api, "sonobuoy-b-job", plugin("b"), &["plugin"]);
    for (pod, container) in [
        ("sonobuoy", "kube-sonobuoy"),
        ("sonobuoy-a-job", "plugin"),
        ("sonobuoy-a-job", "sonobuoy-worker"),
        ("sonobuoy-b-job", "plugin"),
    ] {
        api.log(
            "sonobuoy",
            pod,
            container,
            format!("first of {pod}/{container}\nlast, unfinished"),
        );
    }
    (api, folder, config)
}

fn header(pod: &str, container: &str) -> String {
    format!("namespace=\"sonobuoy\" pod=\"{pod}\" container=\"{container}\"\n")
}

fn part(pod: &str, container: &str) -> String {
    format!(
        "{}first of {pod}/{container}\nlast, unfinished\n",
        header(pod, container)
    )
}

#[test]
fn logs_select_all_pods_one_plugin_or_the_aggregator() {
    let (_api, _folder, config) = cluster();
    let aggregator = part("sonobuoy", "kube-sonobuoy");
    let a = part("sonobuoy-a-job", "plugin") + &part("sonobuoy-a-job", "sonobuoy-worker");
    let b = part("sonobuoy-b-job", "plugin");
    let logs = |words: &str| Sonobuoy::new(&format!("logs --kubeconfig {config} {words}"));
    logs("").stdout(&format!("{aggregator}{a}{b}")).run();
    logs("-p a").stdout(&a).run();
    logs("--plugin sonobuoy").stdout(&aggregator).run();
    logs("-n elsewhere")
        .status(1)
        .stdout("")
        .stderr_has("namespace `elsewhere` does not exist")
        .run();
    logs("-p gone")
        .stdout("")
        .stderr_has("below `podlogs/`, which `sonobuoy retrieve -n sonobuoy` fetches")
        .run();
}

#[test]
fn unreadable_log_does_not_hide_the_others() {
    let (api, _folder, config) = cluster();
    let path = "GET /api/v1/namespaces/sonobuoy/pods/";
    let waiting = |pod: &str| {
        Fault::on(&format!("{path}{pod}/log")).times(9).status(
            400,
            "BadRequest",
            "container is waiting to start",
        )
    };
    api.fault(waiting("sonobuoy-a-job"));
    Sonobuoy::new(&format!("logs --kubeconfig {config}"))
        .stdout(&(part("sonobuoy", "kube-sonobuoy") + &part("sonobuoy-b-job", "plugin")))
        .stderr_has("container is waiting to start")
        .run();
    Sonobuoy::new(&format!("logs -p a --kubeconfig {config}"))
        .status(1)
        .stderr_has("none of the 2 logs can be read")
        .run();
}

#[test]
fn followed_logs_include_new_and_restarted_containers() {
    let (api, _folder, config) = cluster();
    let (mut command, _held) =
        Sonobuoy::new(&format!("logs -f -p b --kubeconfig {config}")).command();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut next = || lines.next().unwrap() + "\n";
    assert_eq!(next(), header("sonobuoy-b-job", "plugin"));
    assert_eq!(next(), "first of sonobuoy-b-job/plugin\n");
    api.log("sonobuoy", "sonobuoy-b-job", "plugin", " no more\n");
    assert_eq!(next(), "last, unfinished no more\n");

    // Another pod of the plugin appears, and its container starts later.
    let labels = json!({"sonobuoy-component": "plugin", "sonobuoy-plugin": "b"});
    let path = pod(&api, "sonobuoy-b-2", labels, &["plugin"]);
    api.merge(
        &path,
        &json!({"status": {"containerStatuses": [{"name": "plugin", "state": {"waiting": {}}}]}}),
    );
    api.log("sonobuoy", "sonobuoy-b-2", "plugin", "second\n");
    api.merge(
        &path,
        &json!({"status": {"containerStatuses": [{"name": "plugin", "state": {"running": {}}}]}}),
    );
    assert_eq!(next(), header("sonobuoy-b-2", "plugin"));
    assert_eq!(next(), "second\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn get_pod_prints_plugin_pods_of_any_namespace() {
    let (api, _folder, config) = cluster();
    api.put("/api/v1/namespaces/other", json!({}));
    let labels = json!({"labels": {"sonobuoy-component": "plugin"}});
    api.put(
        "/api/v1/namespaces/other/pods/theirs",
        json!({"metadata": labels}),
    );
    let get = |words: &str| Sonobuoy::new(&format!("get {words} --kubeconfig {config}"));
    get("pod").stdout("sonobuoy-a-job\nsonobuoy-b-job\n").run();
    get("pods -p b").stdout("sonobuoy-b-job\n").run();
    get("pod -n other").stdout("theirs\n").run();
}

#[test]
fn delete_removes_a_run_and_reports_each_object() {
    let (api, _folder, config) = cluster();
    let delete = |words: &str| Sonobuoy::new(&format!("delete --kubeconfig {config} {words}"));
    delete("--dry-run")
        .stderr_has("delete request issued")
        .stderr_has("names=\"[]\"")
        .run();
    delete("--namespace=")
        .status(1)
        .stderr_has("namespace is empty")
        .run();
    assert!(api.get("/api/v1/namespaces/sonobuoy").is_some());
    let gone = "\nNamespace \"sonobuoy\" has been deleted\n\nDeleted all ClusterRoles and ClusterRoleBindings.\n";
    delete("--wait")
        .stdout(gone)
        .stderr_has("kind=namespace namespace=sonobuoy")
        .run();
    assert!(api.get("/api/v1/namespaces/sonobuoy").is_none());
    let log = delete("--wait")
        .stdout("")
        .stderr_has("namespace `sonobuoy` does not exist, and neither does a run in it")
        .run_any()
        .stderr;
    assert_eq!(log.matches("already deleted").count(), 1, "{log}");
}

#[test]
fn insecure_kubeconfig_is_reported_once() {
    let (api, folder, _) = cluster();
    let url = api.url();
    let plain = url.trim_start_matches("http://");
    for (name, cluster, warning) in [
        (
            "unchecked",
            json!({"server": format!("https://{plain}"), "insecure-skip-tls-verify": true}),
            Some("insecure-skip-tls-verify: anybody can pose as the API server"),
        ),
        (
            "readable",
            json!({"server": "http://api.example:8080", "proxy-url": url}),
            Some("it starts with http://, so the token or password can be read in transit"),
        ),
        ("here", json!({"server": url}), None),
    ] {
        let config = json!({
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": cluster}],
            "users": [{"name": "x", "user": {"token": "secret-of-mine"}}],
        });
        let path = folder.write(name, config.to_string());
        let (mut command, _folder) = Sonobuoy::new("get pod --kubeconfig").arg(path).command();
        let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
        let warnings: Vec<_> = said
            .lines()
            .filter(|line| line.contains("level=warning"))
            .collect();
        match warning {
            Some(words) => assert!(
                warnings.len() == 1 && warnings[0].contains(words),
                "{name}: {said}"
            ),
            None => assert!(warnings.is_empty(), "{name}: {said}"),
        }
        assert!(!said.contains("secret-of-mine"), "{said}");
    }
}

#[test]
fn wait_for_a_silent_server_ends_in_time_and_claims_nothing() {
    // Accepts connections, and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new();
    let config = json!({
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": format!("http://{}", listener.local_addr().unwrap())}}],
    });
    let config = folder.write("config", config.to_string());
    let start = std::time::Instant::now();
    let done = Sonobuoy::new("wait --wait=2s --kubeconfig")
        .arg(config)
        .status(1)
        .run_any();
    assert!(
        done.stderr.contains("there was no answer within 2s"),
        "{}",
        done.stderr
    );
    assert!(!done.stderr.contains("running"), "{}", done.stderr);
    assert!(
        start.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn unreachable_cluster_is_one_line() {
    let (api, folder, config) = cluster();
    api.demand_token(Some("other"));
    Sonobuoy::new(&format!("get pod --kubeconfig {config}"))
        .status(1)
        .stderr_has("Unauthorized")
        .run();
    folder.write("broken", "clusters: 5");
    Sonobuoy::new("get pod --kubeconfig")
        .arg(folder.path().join("broken"))
        .status(1)
        .stderr_has("clusters: must be a list")
        .run();
    let away = json!({
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
    });
    folder.write("away", away.to_string());
    Sonobuoy::new("get pod --kubeconfig")
        .arg(folder.path().join("away"))
        .status(1)
        .stderr_has(
            "cannot reach `http://127.0.0.1:1`: Connection refused; check the address in the kubeconfig, VPN",
        )
        .run();
    Sonobuoy::new("get pod")
        .status(1)
        .stderr_has("no cluster configured")
        .stderr_has("or pass `--kubeconfig`\"\n")
        .run();
    Sonobuoy::new("run -p hello")
        .status(1)
        .stderr_has("no cluster configured")
        .stderr_has("`run --local` needs no cluster")
        .run();
}

#[test]
fn missing_permissions_are_one_line_with_one_remedy() {
    let (api, _folder, config) = run::cluster();
    for plural in [
        "namespaces",
        "serviceaccounts",
        "configmaps",
        "pods",
        "services",
    ] {
        api.forbid("create", plural);
    }
    let done = run::run(&config, "").status(1).run_any();
    let lines: Vec<&str> = done
        .stderr
        .lines()
        .filter(|line| line.contains("level=error"))
        .collect();
    assert_eq!(lines.len(), 1, "{}", done.stderr);
    assert!(
        lines[0].contains("your account may not create configmaps, namespaces, pods, serviceaccounts, services: ask for these rights"),
        "{}",
        done.stderr
    );
}

#[test]
fn wait_in_a_missing_namespace_ends_at_once() {
    let (_api, _folder, config) = run::cluster();
    Sonobuoy::new(&format!("wait --kubeconfig {config} -n typo"))
        .status(1)
        .stderr_has("namespace `typo` does not exist; name the namespace of the run with `-n`")
        .run();
}

#[test]
#[cfg(unix)]
fn a_terminal_gets_a_line_for_the_run_and_what_comes_next() {
    let (api, _folder, config) = run::cluster();
    let (sent, code) = at_terminal(run::run(&config, "-n mine"), 200, 40);
    assert_eq!(code, Some(0), "{sent}");
    assert!(
        !sent.contains("create request issued") && sent.contains(" objects"),
        "{sent}"
    );
    assert!(
        sent.contains("`sonobuoy status --watch -n mine` watches it"),
        "{sent}"
    );
    // Errors are styled at a terminal, and plain in a pipe.
    let (sent, code) = at_terminal(run::run(&config, "-n mine"), 200, 40);
    assert_eq!(code, Some(1), "{sent}");
    assert!(
        sent.contains("Error: ") && !sent.contains("Usage:"),
        "{sent}"
    );
    drop(api);
    let (sent, _) = at_terminal(Sonobuoy::new("status --bogus"), 200, 40);
    assert!(
        sent.starts_with("Error: unknown flag: --bogus") && sent.contains("Usage: sonobuoy status"),
        "{sent}"
    );
    assert!(!sent.contains("ERRO"), "{sent}");
}
