//! Snapshots of a cluster, against the fake API server and, if one is named, against a real
//! cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::api_server::{ApiServer, Fault};
use crate::support::{Folder, Sonobuoy, program};

/// A cluster of two nodes with one object of every kind.
pub fn cluster() -> ApiServer {
    let api = ApiServer::start();
    for node in ["n1", "n2"] {
        let ready = json!([{"type": "Ready", "status": if node == "n1" { "True" } else { "False" }, "reason": "r"}]);
        api.put(
            &format!("/api/v1/nodes/{node}"),
            json!({"status": {"conditions": ready}}),
        );
        let proxy = format!("/api/v1/nodes/{node}/proxy");
        api.raw(
            &format!("{proxy}/configz"),
            200,
            r#"{"kubeletconfig":{"b":1,"a":0.1}}"#,
        );
        api.raw(
            &format!("{proxy}/healthz"),
            if node == "n1" { 200 } else { 500 },
            "ok",
        );
        api.raw(&format!("{proxy}/metrics/resource"), 200, "node_cpu 1\n");
    }
    api.put(
        "/api/v1/namespaces/kube-system/pods/p",
        json!({
            "metadata": {"managedFields": [{}], "labels": {"app": "x"}},
            "spec": {
                "initContainers": [{"name": "init"}],
                "containers": [{"name": "main", "env": [{"name": "DB_PASSWORD", "value": "geheim"}]}, {"name": "waits"}],
                "ephemeralContainers": [{"name": "debug"}],
            },
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {"name": "main", "restartCount": 1, "state": {"running": {}}},
                    {"name": "waits", "restartCount": 0, "state": {"waiting": {}}},
                ],
            },
        }),
    );
    api.put(
        "/api/v1/namespaces/default/pods/other",
        json!({"status": {"phase": "Pending"}}),
    );
    api.put(
        "/api/v1/namespaces/default/configmaps/c",
        json!({"data": {"n": "1"}, "big": 9_007_199_254_740_993_u64}),
    );
    api.put(
        "/api/v1/namespaces/default/secrets/s",
        json!({"data": {"k": "dg=="}}),
    );
    for (group, kind) in [("one.example/v1", "Thing"), ("two.example/v1", "Thing")] {
        api.add_kind(group, "things", kind, true);
        api.put(
            &format!("/apis/{group}/namespaces/default/things/t"),
            json!({"spec": {"of": group}}),
        );
    }
    for container in ["init", "main", "debug"] {
        api.log(
            "kube-system",
            "p",
            container,
            format!("I log of {container}\nE0101 error\nAuthorization: Bearer abc123\n"),
        );
    }
    api
}

pub fn query(api: &ApiServer, words: &str) -> Sonobuoy {
    let call = Sonobuoy::new(&format!("query -o out --kubeconfig kubeconfig {words}"));
    api.kubeconfig(&call.folder());
    call
}

pub fn done(call: Sonobuoy) -> Folder {
    call.stdout("out\n")
        .stderr_has("requests were answered")
        .run()
        .folder
}

pub fn read(folder: &Folder, name: &str) -> Value {
    serde_json::from_str(&folder.read(&format!("out/{name}"))).unwrap()
}

/// Every file below a folder with its content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(below) = left.pop() {
        for entry in std::fs::read_dir(folder.join(&below)).unwrap() {
            let (path, entry) = (
                below.join(entry.as_ref().unwrap().file_name()),
                entry.unwrap(),
            );
            if entry.file_type().unwrap().is_dir() {
                left.push(path);
            } else {
                found.insert(
                    path.display().to_string().replace('\\', "/"),
                    std::fs::read(entry.path()).unwrap(),
                );
            }
        }
    }
    found
}

#[test]
fn snapshot_has_the_originals_layout() {
    let folder = done(query(&cluster(), ""));
    let names: Vec<_> = files(&folder.join("out")).into_keys().collect();
    assert_eq!(
        names.iter().map(String::as_str).collect::<Vec<_>>(),
        [
            "hosts/n1/configz.json",
            "hosts/n1/healthz.json",
            "hosts/n1/metrics-resource.txt",
            "hosts/n2/configz.json",
            "hosts/n2/healthz.json",
            "hosts/n2/metrics-resource.txt",
            "meta/clusterhealth.json",
            "meta/config.json",
            "meta/info.json",
            "meta/query-errors.json",
            "meta/query-time.json",
            "meta/redactions.json",
            "podlogs/kube-system/p/logs/debug.txt",
            "podlogs/kube-system/p/logs/init.txt",
            "podlogs/kube-system/p/logs/main.txt",
            "resources/cluster/core_v1_namespaces.json",
            "resources/cluster/core_v1_nodes.json",
            "resources/ns/default/core_v1_configmaps.json",
            "resources/ns/default/core_v1_pods.json",
            "resources/ns/default/one.example_v1_things.json",
            "resources/ns/default/two.example_v1_things.json",
            "resources/ns/kube-system/core_v1_pods.json",
            "servergroups.json",
            "serverversion.json",
        ]
    );
    let pods = folder.read("out/resources/ns/kube-system/core_v1_pods.json");
    assert!(
        pods.starts_with(
            r#"{"apiVersion":"v1","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"#
        ),
        "{pods}"
    );
    assert!(
        pods.contains(r#"],"kind":"PodList","metadata":{"resourceVersion":""#)
            && pods.ends_with("}}\n"),
        "{pods}"
    );
    assert!(!pods.contains("managedFields"), "{pods}");
    assert!(
        folder
            .read("out/resources/ns/default/core_v1_configmaps.json")
            .contains(r#""big":9007199254740993"#)
    );
    assert_eq!(
        folder.read("out/hosts/n1/configz.json"),
        r#"{"kubeletconfig":{"a":0.1,"b":1}}"#
    );
    assert_eq!(
        folder.read("out/hosts/n2/healthz.json"),
        r#"{"status":500}"#
    );
    assert_eq!(read(&folder, "meta/query-errors.json"), json!([]));
    assert_eq!(read(&folder, "servergroups.json")["groups"][0]["name"], "");
    assert_eq!(read(&folder, "serverversion.json")["gitVersion"], "v1.34.2");
    let times = read(&folder, "meta/query-time.json");
    let subjects: Vec<_> = times
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["queryobj"].as_str().unwrap())
        .collect();
    for subject in [
        "Nodes",
        "pods",
        "things",
        "serverversion",
        "servergroups",
        "PodLogs",
    ] {
        assert!(subjects.contains(&subject), "{subject} in {subjects:?}");
    }
    let health = read(&folder, "meta/clusterhealth.json");
    assert_eq!(health["api_version"], "v1.34.2");
    assert_eq!(health["node_health"]["healthy_nodes"], 1);
    assert_eq!(health["pod_health"]["total_nodes"], 2);
    assert_eq!(
        health["error_summary"]["Errors"]["podlogs/kube-system/p/logs/main.txt"],
        1
    );
}

/// What other users may access below a folder.
#[cfg(unix)]
pub fn exposed(folder: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        let about = path.symlink_metadata().unwrap();
        if about.is_dir() {
            left.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        if about.permissions().mode() & 0o077 != 0 {
            found.push(path);
        }
    }
    found
}

#[cfg(unix)]
#[test]
fn files_of_a_snapshot_are_private() {
    let folder = done(query(&cluster(), ""));
    assert!(files(&folder.join("out")).len() > 10);
    assert_eq!(exposed(&folder.join("out")), [] as [PathBuf; 0]);
}

#[test]
fn secrets_are_hidden_by_default() {
    let api = cluster();
    let rules =
        "env: ['^SHOWN$']\ntext: ['log of \\w+']\nfields: [{kind: ConfigMap, path: data.n}]\n";
    let folder = done(query(&api, "--redact rules.yaml").file("rules.yaml", rules));
    let all = files(&folder.join("out"));
    let has = |all: &BTreeMap<String, Vec<u8>>, text: &str| {
        all.values()
            .any(|content| String::from_utf8_lossy(content).contains(text))
    };
    assert!(
        !has(&all, "geheim")
            && !has(&all, "abc123")
            && !has(&all, "log of main")
            && !has(&all, "dg==")
    );
    assert_eq!(
        read(&folder, "resources/ns/default/core_v1_configmaps.json")["items"][0]["data"]["n"],
        "***HIDDEN***"
    );
    let counts = read(&folder, "meta/redactions.json");
    assert_eq!(
        (
            &counts["environment variables"],
            &counts["authorization headers"],
            &counts["ConfigMap: data.n"]
        ),
        (&json!(1), &json!(3), &json!(1))
    );
    let config = r#"{"Resources":["secrets","pods","podlogs"]}"#;
    let folder = done(query(&api, "--config c.json").file("c.json", config));
    let secrets = read(&folder, "resources/ns/default/core_v1_secrets.json");
    assert_eq!(
        secrets["items"][0]["data"]["k"], "***HIDDEN***",
        "named secrets keep their keys"
    );
    let folder = done(query(&api, "--config c.json --no-redact").file("c.json", config));
    let all = files(&folder.join("out"));
    assert!(
        has(&all, "geheim")
            && has(&all, "abc123")
            && has(&all, "dg==")
            && !all.contains_key("meta/redactions.json")
    );
    query(&api, "--redact rules.yaml")
        .file("rules.yaml", "env: ['(']")
        .status(1)
        .stderr_has(
            "redaction rules `rules.yaml`, line 1, column 7: `env[0]`: `(` is not a valid pattern: unclosed",
        )
        .run();
}

#[test]
fn redaction_rules_of_config_and_file_add_up() {
    let api = cluster();
    let config = r#"{"Resources": ["pods", "configmaps", "podlogs"],
        "redaction": {"text": ["log of \\w+"], "Fields": [{"kind": "configmap", "path": "data.n"}]}}"#;
    let rules = "env: ['^SHOWN$']\ntext: ['E0101']\n";
    let call = query(&api, "--config c.json --redact rules.yaml").file("c.json", config);
    let folder = done(call.file("rules.yaml", rules));
    let map = &read(&folder, "resources/ns/default/core_v1_configmaps.json")["items"][0];
    assert_eq!(map["data"]["n"], "***HIDDEN***");
    let log = folder.read("out/podlogs/kube-system/p/logs/main.txt");
    assert!(
        log.contains("I ***HIDDEN***\n***HIDDEN*** error\n"),
        "{log}"
    );
    assert!(
        !folder
            .read("out/resources/ns/kube-system/core_v1_pods.json")
            .contains("geheim")
    );
    let written = read(&folder, "meta/config.json")["Redaction"].clone();
    assert_eq!(
        written,
        json!({"Env": ["^SHOWN$"], "Text": ["log of \\w+", "E0101"], "Fields": [{"Kind": "configmap", "Path": "data.n"}]})
    );
    let off = r#"{"Redaction": {"Off": true}}"#;
    let shown = |words: &str| {
        let folder = done(
            query(&api, words)
                .file("c.json", off)
                .file("rules.yaml", rules),
        );
        folder
            .read("out/resources/ns/kube-system/core_v1_pods.json")
            .contains("geheim")
    };
    assert!(shown("--config c.json"));
    assert!(
        !shown("--config c.json --redact rules.yaml")
            && !shown("--config c.json --no-redact=false")
    );
    query(&api, "--config c.json")
        .file("c.json", r#"{"Redaction": {"Txt": []}}"#)
        .status(1)
        .stderr_has("configuration `c.json`, line 1, column 23: `Redaction.Txt` is not a rule")
        .run();
}

#[test]
fn settings_select_kinds_namespaces_and_objects() {
    let api = cluster();
    let taken = |config: Value| {
        let folder = done(query(&api, "--config c.json").file("c.json", config.to_string()));
        let all = files(&folder.join("out")).into_keys();
        all.filter(|name| !name.starts_with("meta/"))
            .collect::<Vec<_>>()
    };
    assert_eq!(taken(json!({"Resources": []})), [""; 0]);
    assert_eq!(
        taken(json!({"Resources": ["Thing"]})),
        [
            "resources/ns/default/one.example_v1_things.json",
            "resources/ns/default/two.example_v1_things.json",
        ]
    );
    assert_eq!(
        taken(json!({"Resources": ["two.example"]})),
        ["resources/ns/default/two.example_v1_things.json"]
    );
    let pods = json!({"Resources": ["pods"], "Filters": {"Namespaces": "^kube-[\\w-.]+$"}});
    assert_eq!(taken(pods), ["resources/ns/kube-system/core_v1_pods.json"]);
    let labelled = json!({"Resources": ["pods"], "Filters": {"LabelSelector": "app=x"}});
    assert_eq!(
        taken(labelled),
        ["resources/ns/kube-system/core_v1_pods.json"]
    );
    let unreadable = json!({"Resources": ["pods"], "Filters": {"LabelSelector": "a in in"}});
    assert_eq!(taken(unreadable).len(), 2, "an invalid selector is ignored");
    let logs = json!({"Resources": ["podlogs"], "Limits": {"PodLogs": {"Previous": true}}});
    assert_eq!(
        taken(logs),
        ["podlogs/kube-system/p/logs/main.txt"],
        "only what was restarted has an earlier log"
    );
    for (config, error) in [
        (
            json!({"Filters": {"Namespaces": "("}}),
            "`Filters.Namespaces`: `(` is not a valid pattern",
        ),
        (
            json!({"Limits": {"PodLogs": {"Namespaces": "a**"}}}),
            "`Limits.PodLogs.Namespaces`: `a**",
        ),
    ] {
        query(&api, "--config c.json")
            .file("c.json", config.to_string())
            .status(1)
            .stderr_has(error)
            .run();
    }
}

#[test]
fn log_limits_are_sent_to_the_server() {
    let api = cluster();
    let limits = json!({"TailLines": 2, "LimitBytes": 5, "SinceSeconds": 60, "Timestamps": true, "FieldSelectors": ["metadata.name=p"], "Namespaces": "", "SonobuoyNamespace": false});
    let config = json!({"Resources": ["podlogs"], "Limits": {"PodLogs": limits}});
    let folder = done(query(&api, "--config c.json").file("c.json", config.to_string()));
    assert_eq!(
        folder.read("out/podlogs/kube-system/p/logs/main.txt"),
        "E0101"
    );
    let asked = api
        .requests()
        .into_iter()
        .find(|line| line.contains("/p/log?container=main"))
        .unwrap();
    for part in [
        "timestamps=true",
        "sinceSeconds=60",
        "tailLines=2",
        "limitBytes=5",
    ] {
        assert!(asked.contains(part), "{part} in {asked}");
    }
}

#[test]
fn failing_group_node_or_log_does_not_stop_others() {
    let api = cluster();
    api.break_group("apps/v1");
    api.fault(
        Fault::on("GET /api/v1/nodes/n1/proxy/configz")
            .times(9)
            .slow(Duration::from_secs(60)),
    );
    api.fault(
        Fault::on("GET /api/v1/namespaces/kube-system/pods/p/log?container=main")
            .endless("again\n"),
    );
    api.fault(
        Fault::on("GET /api/v1/namespaces/kube-system/pods/p/log?container=init")
            .times(9)
            .status(400, "BadRequest", "no"),
    );
    let folder = done(query(&api, "--request-timeout 3s"));
    let errors = read(&folder, "meta/query-errors.json");
    let told = |queryobj: &str, name: &str, why: &str| {
        let found = errors.as_array().unwrap().iter().any(|error| {
            error["queryobj"] == queryobj
                && error["name"] == name
                && error["error"].as_str().unwrap().contains(why)
        });
        assert!(found, "{queryobj} {name} {why}: {errors:#}");
    };
    told("discovery", "apps/v1", "does not answer");
    told("Nodes", "n1", "its kubelet does not answer");
    told("PodLogs", "p/main", "did not end within 3s");
    told("PodLogs", "p/init", "no (");
    assert_eq!(errors.as_array().unwrap().len(), 4, "{errors:#}");
    let all = files(&folder.join("out"));
    assert!(all["podlogs/kube-system/p/logs/main.txt"].starts_with(b"again\nagain\n"));
    assert!(
        all.contains_key("podlogs/kube-system/p/logs/debug.txt")
            && all.contains_key("hosts/n2/configz.json")
    );
    assert!(all.contains_key("resources/ns/default/core_v1_configmaps.json"));
}

#[test]
fn expired_list_is_complete_without_duplicates() {
    let api = cluster();
    for number in 0..1100 {
        api.put(
            &format!("/api/v1/namespaces/default/configmaps/m{number:04}"),
            json!({}),
        );
    }
    api.fault(Fault::on("GET /api/v1/configmaps?limit=500&continue").gone());
    api.fault(
        Fault::on("GET /api/v1/configmaps?limit=500&continue")
            .after(1)
            .cut(20_000),
    );
    let folder = done(query(&api, ""));
    let maps = read(&folder, "resources/ns/default/core_v1_configmaps.json");
    let names: Vec<_> = maps["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|map| map["metadata"]["name"].as_str().unwrap())
        .collect();
    let mut unique = names.clone();
    unique.dedup();
    assert_eq!((names.len(), unique.len()), (1101, 1101));
    assert_eq!(read(&folder, "meta/query-errors.json"), json!([]));
}

#[test]
fn missing_permissions_are_summarized_and_recorded() {
    let api = cluster();
    for plural in [
        "configmaps",
        "services",
        "deployments",
        "jobs",
        "roles",
        "nodes",
        "events",
    ] {
        api.forbid("list", plural);
    }
    let done = query(&api, "")
        .stdout("out\n")
        .stderr_has("lack of rights: Nodes, configmaps, deployments, events")
        .run();
    let errors = read(&done.folder, "meta/query-errors.json");
    assert_eq!(errors.as_array().unwrap().len(), 8, "{errors:#}");
    assert!(
        done.folder
            .join("out/resources/ns/kube-system/core_v1_pods.json")
            .is_file()
    );
    api.forbid("list", "namespaces");
    let done = query(&api, "")
        .stdout("out\n")
        .stderr_has("lack of rights")
        .run();
    let errors = read(&done.folder, "meta/query-errors.json").to_string();
    assert!(
        errors.contains("only the namespace of the run is queried"),
        "{errors}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_ends_the_snapshot_with_one_error() {
    let api = cluster();
    let call = query(&api, "");
    let cluster = call.folder().join("out/resources/cluster");
    std::fs::create_dir_all(&cluster).unwrap();
    std::os::unix::fs::symlink("/dev/full", cluster.join("core_v1_nodes.json")).unwrap();
    let done = call
        .stdout("")
        .stderr_has("core_v1_nodes.json`: No space left on device")
        .status(1)
        .run();
    assert_eq!(
        done.stderr.matches("level=error").count(),
        1,
        "{}",
        done.stderr
    );
}

#[test]
fn snapshot_is_deterministic_and_replaces_an_earlier_one() {
    let api = cluster();
    for number in 0..40 {
        api.put(&format!("/api/v1/namespaces/ns{number:02}"), json!({}));
        api.put(
            &format!("/api/v1/namespaces/ns{number:02}/configmaps/c"),
            json!({}),
        );
    }
    let config = r#"{"UUID":"u"}"#;
    let taken = |workers: &str| {
        let call = query(&api, "--config c.json")
            .file("c.json", config)
            .env("SONOBUOY_QUERY_WORKERS", workers);
        call.folder();
        let folder = call
            .file("out/meta/query-time.json", "[]")
            .file("out/podlogs/a/b/logs/old.txt", "old");
        let folder = done(folder);
        let mut all = files(&folder.join("out"));
        all.remove("meta/query-time.json").unwrap();
        all
    };
    let (one, many) = (taken("1"), taken("16"));
    assert!(!one.contains_key("podlogs/a/b/logs/old.txt"));
    assert_eq!(
        one.keys().collect::<Vec<_>>(),
        many.keys().collect::<Vec<_>>()
    );
    for (name, content) in &one {
        assert!(content == &many[name], "{name} differs");
    }
}

#[test]
fn hostile_names_stay_inside_the_snapshot() {
    let api = cluster();
    let pod = json!({"metadata": {"name": "../../../../evil", "namespace": "../../../evil"}, "status": {"phase": "Running"}});
    let list =
        json!({"kind": "PodList", "metadata": {}, "items": [pod, "no object", {"metadata": 7}]});
    api.fault(Fault::on("GET /api/v1/pods?limit=500").garbage(&list.to_string()));
    let folder = done(query(&api, r"--config c.json").file("c.json", r#"{"Resources":["pods"]}"#));
    let all: Vec<_> = files(folder.path())
        .into_keys()
        .filter(|name| name.contains("evil"))
        .collect();
    assert_eq!(
        all,
        ["out/resources/ns/%2E%2E%2F%2E%2E%2F%2E%2E%2Fevil/core_v1_pods.json"]
    );
}

#[test]
fn results_reads_snapshot_folders() {
    let folder = done(query(&cluster(), ""));
    let out = folder.join("out").display().to_string();
    Sonobuoy::new(&format!("results {out}"))
        .stdout_has("API Server version: v1.34.2\nNode health: 1/2 (50%)\n")
        .run();
}

#[test]
fn snapshots_are_compared_object_by_object() {
    let Some(_) = program("tar") else { return };
    let api = cluster();
    let before = done(query(&api, ""));
    api.merge(
        "/api/v1/namespaces/default/configmaps/c",
        &json!({"data": {"n": "2"}}),
    );
    api.merge("/api/v1/nodes/n1", &json!({"status": {"conditions": []}}));
    api.remove("/apis/one.example/v1/namespaces/default/things/t");
    api.put("/api/v1/namespaces/kube-system/configmaps/new", json!({}));
    let after = done(query(&api, ""));
    let [a, b] = [&before, &after].map(|folder| folder.join("out").display().to_string());
    Sonobuoy::new(&format!("results diff {a} {b}"))
        .stdout(concat!(
            "Objects changed: 1\n  ConfigMap default/c\n    data.n: \"1\" -> \"2\"\n\n",
            "Objects appeared: 1\n  ConfigMap kube-system/new\n\n",
            "Objects vanished: 1\n  Thing.one.example default/t\n\n",
            "Objects unchanged: 7\n",
        ))
        .run();
    // The same for an archive packed by hand.
    let packed = before.join("a.tar.gz");
    let tar = Command::new("tar")
        .args(["-czf"])
        .arg(&packed)
        .args(["-C", &a, "."])
        .status()
        .unwrap();
    assert!(tar.success());
    let packed = packed.display();
    let json = Sonobuoy::new(&format!("results diff {packed} {b} --format json"))
        .run_any()
        .stdout;
    let document: Value = serde_json::from_str(&json).unwrap();
    let change = json!({"path": "data.n", "before": "1", "after": "2"});
    assert_eq!(
        document["objects"]["changed"][0]["differences"],
        json!([change])
    );
    assert_eq!(document["objects"]["vanished"][0]["group"], "one.example");
    assert_eq!(document["objects"]["unchanged"], 7);
    Sonobuoy::new(&format!("results {packed}"))
        .stdout_has("Node health: 1/2 (50%)")
        .run();
    let stdin = std::fs::read(before.join("a.tar.gz")).unwrap();
    Sonobuoy::new("results -")
        .stdin(stdin)
        .stdout_has("Node health: 1/2 (50%)")
        .run();
}

/// Queries the cluster named by `SONOBUOY_E2E_KUBECONFIG` with kubectl and with our binary, and
/// compares.
#[test]
fn snapshot_of_a_real_cluster_equals_kubectls_view() {
    let Some(config) = std::env::var_os("SONOBUOY_E2E_KUBECONFIG") else {
        return crate::support::skipped("cluster", "SONOBUOY_E2E_KUBECONFIG does not name one");
    };
    let kubectl = |words: &str, input: &str| {
        let mut child = Command::new("kubectl")
            .args(words.split_whitespace())
            .env("KUBECONFIG", &config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "kubectl {words}");
        String::from_utf8(output.stdout).unwrap()
    };
    let name = format!("sonobuoy-query-{}", std::process::id());
    let crd = |group: &str| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("sonobuoythings.{group}.example")},
            "spec": {
                "group": format!("{group}.example"), "scope": "Namespaced",
                "names": {"plural": "sonobuoythings", "singular": "sonobuoything", "kind": "SonobuoyThing", "listKind": "SonobuoyThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        })
    };
    let groups = [
        format!("one-{}", std::process::id()),
        format!("two-{}", std::process::id()),
    ];
    let meta = |object: &str| json!({"name": object, "namespace": name});
    let pod = json!({"initContainers": [{"name": "i", "image": "localhost/none:1"}],
        "containers": [{"name": "c", "image": "localhost/none:1", "env": [{"name": "API_TOKEN", "value": "geheim"}]}]});
    let first = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, crd(&groups[0]), crd(&groups[1]),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("c"), "data": {"a": "1.0", "b": "ü <&>"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta("s"), "stringData": {"k": "geheim"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta("p"), "spec": {"serviceAccountName": "a", "automountServiceAccountToken": false, "initContainers": pod["initContainers"], "containers": pod["containers"]}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("a")},
        {"apiVersion": "v1", "kind": "Event", "metadata": meta("e"), "involvedObject": {"kind": "Pod", "namespace": name, "name": "p"}, "message": "m"},
    ]})
    .to_string();
    let things = groups.iter().map(|group| {
        json!({"apiVersion": format!("{group}.example/v1"), "kind": "SonobuoyThing", "metadata": meta("t"),
            "spec": {"float": 0.1, "large": 9_007_199_254_740_993_u64, "text": "no"}})
    });
    let things = json!({"apiVersion": "v1", "kind": "List", "items": things.collect::<Vec<_>>()})
        .to_string();
    struct Clean<'a>(&'a dyn Fn());
    impl Drop for Clean<'_> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let clean = || {
        let crds = groups
            .iter()
            .map(|group| format!("crd/sonobuoythings.{group}.example"));
        kubectl(
            &format!(
                "delete --ignore-not-found --wait=false ns/{name} {}",
                crds.collect::<Vec<_>>().join(" ")
            ),
            "",
        );
    };
    let _clean = Clean(&clean);
    // A pod's account must exist before the pod; kubectl creates in order and continues after an
    // error.
    let account = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("a")}]});
    kubectl("apply -f -", &account.to_string());
    kubectl("apply -f -", &first);
    for group in &groups {
        kubectl(
            &format!("wait --for=condition=Established crd/sonobuoythings.{group}.example"),
            "",
        );
    }
    kubectl("apply -f -", &things);

    let config_file = json!({"Filters": {"Namespaces": format!("^{name}$")}}).to_string();
    let call = Sonobuoy::new("query -o out --config c.json")
        .file("c.json", config_file)
        .env("KUBECONFIG", &config);
    let folder = call
        .stdout("out\n")
        .stderr_has("requests were answered")
        .run()
        .folder;
    let mut compared = 0;
    let kinds = kubectl("api-resources --verbs=list -o name", "");
    for kind in kinds.lines().filter(|kind| *kind != "secrets") {
        let listed: Value =
            serde_json::from_str(&kubectl(&format!("get {kind} -n {name} -o json"), "")).unwrap();
        let (plural, group) = kind.split_once('.').unwrap_or((kind, "core"));
        for mut object in listed["items"].as_array().unwrap().iter().cloned() {
            object["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("managedFields");
            let version = object["apiVersion"]
                .as_str()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned();
            let place = match object["metadata"]["namespace"].as_str() {
                Some(namespace) => format!("ns/{namespace}"),
                None => "cluster".into(),
            };
            let ours = read(
                &folder,
                &format!("resources/{place}/{group}_{version}_{plural}.json"),
            );
            let uid = &object["metadata"]["uid"];
            let mut found = ours["items"].as_array().unwrap().iter();
            let found = found.find(|ours| ours["metadata"]["name"] == object["metadata"]["name"]);
            let mut found = found
                .unwrap_or_else(|| panic!("{kind} {uid} is missing"))
                .clone();
            if plural == "pods" {
                let hidden = found.pointer_mut("/spec/containers/0/env/0/value").unwrap();
                assert_eq!(hidden.take(), "***HIDDEN***");
                object["spec"]["containers"][0]["env"][0]["value"] = Value::Null;
                let [ours, theirs] = [&mut found, &mut object].map(|pod| {
                    pod["metadata"]["annotations"]
                        .as_object_mut()
                        .unwrap()
                        .remove("kubectl.kubernetes.io/last-applied-configuration")
                });
                assert_eq!(ours.unwrap(), "***HIDDEN***");
                assert!(theirs.unwrap().as_str().unwrap().contains("geheim"));
            }
            // Fields that a cluster changes between two reads.
            let moving = [
                "leases",
                "namespaces",
                "nodes",
                "apiservices",
                "customresourcedefinitions",
                "flowschemas",
                "events",
            ];
            if !moving.contains(&plural) {
                assert_eq!(found, object, "{kind}");
            }
            compared += 1;
        }
    }
    assert!(compared > 50, "only {compared} objects");
    println!("{compared} objects are as kubectl sees them");
    let all = files(&folder.join("out"));
    assert!(
        all.values()
            .all(|content| !String::from_utf8_lossy(content).contains("geheim"))
    );
    assert!(!all.keys().any(|name| name.ends_with("_secrets.json")));
}
