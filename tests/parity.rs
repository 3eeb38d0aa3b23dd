//! One definition, run on this machine and in a cluster: the same results and the same exit code.
//!
//! The cluster is the fake API server with a kubelet that runs containers as processes; aggregator
//! and workers are the real program. Its workers have no access to the API.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::support::api_server::{ApiServer, Change};
use super::support::cluster::Cluster;
use super::support::watchdog::Watchdog;
use super::support::{Archive, Folder, Sonobuoy};

/// A plugin: its name, keys below `sonobuoy-config`, keys of the definition, script, exit code of
/// the run, and statuses of its items, the outermost first.
struct Case {
    name: &'static str,
    config: &'static str,
    pod: &'static str,
    script: &'static str,
    code: i32,
    statuses: &'static [&'static str],
}

const PASSED: &[&str] = &["passed", "passed"];
const FAILED: &[&str] = &["failed", "failed"];
const BARE: &str = "{driver: Job, plugin-name: p, permissions: none}";
const CASES: &[Case] = &[
    Case {
        name: "done names a file",
        config: BARE,
        pod: "",
        script: "echo 1 > $RESULTS_DIR/a; echo 2 > $RESULTS_DIR/b; echo $RESULTS_DIR/a > $RESULTS_DIR/done",
        code: 0,
        statuses: PASSED,
    },
    Case {
        name: "exit 0 without done",
        config: BARE,
        pod: "",
        script: "mkdir $RESULTS_DIR/sub; echo 1 > $RESULTS_DIR/sub/a",
        code: 0,
        statuses: PASSED,
    },
    Case {
        name: "exit 0 without done, in a pod without an account of its own",
        config: "{driver: Job, plugin-name: p}",
        pod: "podSpec: {containers: [], restartPolicy: Never}\n",
        script: "echo 1 > $RESULTS_DIR/a",
        code: 0,
        statuses: PASSED,
    },
    Case {
        name: "exit 3 without done",
        config: BARE,
        pod: "",
        script: "echo the disk is on fire; exit 3",
        code: 1,
        statuses: FAILED,
    },
    Case {
        name: "failing cleanup after done",
        config: BARE,
        pod: "",
        script: "echo 1 > $RESULTS_DIR/a; echo $RESULTS_DIR/a > $RESULTS_DIR/done; exit 3",
        code: 0,
        statuses: PASSED,
    },
    Case {
        name: "success at the third start",
        config: BARE,
        pod: "podSpec: {containers: [], restartPolicy: OnFailure}\n",
        script: "echo x >> $RESULTS_DIR/starts; [ $(wc -l < $RESULTS_DIR/starts) = 3 ]",
        code: 0,
        statuses: PASSED,
    },
    Case {
        name: "DaemonSet that ends without done",
        config: "{driver: DaemonSet, plugin-name: p, permissions: none}",
        pod: "",
        script: "echo 1 > $RESULTS_DIR/a",
        code: 0,
        statuses: &["passed", "passed", "passed"],
    },
    Case {
        name: "done names nothing",
        config: BARE,
        pod: "",
        script: "echo $RESULTS_DIR/none > $RESULTS_DIR/done",
        code: 1,
        statuses: FAILED,
    },
];

/// What a run leaves: exit code, statuses, and the files of its results below their node.
#[derive(Debug, PartialEq)]
struct Outcome {
    code: i32,
    statuses: Vec<String>,
    files: BTreeMap<String, String>,
}

impl Outcome {
    fn new(code: i32, archive: &Archive) -> Self {
        let tree = archive.text("plugins/p/sonobuoy_results.yaml");
        let statuses = tree.lines().filter_map(|line| line.split_once("status: "));
        let files = archive.names().filter_map(|name| {
            let (_node, path) = name.strip_prefix("plugins/p/results/")?.split_once('/')?;
            Some((path.to_owned(), archive.text(name).to_owned()))
        });
        Self {
            code,
            statuses: statuses.map(|(_, status)| status.to_owned()).collect(),
            files: files
                .filter(|(path, _)| !path.is_empty() && !path.ends_with('/'))
                .collect(),
        }
    }
}

impl Case {
    fn definition(&self) -> String {
        format!(
            "sonobuoy-config: {}\n{}spec:\n  name: plugin\n  image: i\n  command: [sh, -c]\n  args: ['{}']\n",
            self.config, self.pod, self.script
        )
    }

    fn run_locally(&self) -> Outcome {
        let run = Sonobuoy::new("run --local -p p.yaml").file("p.yaml", self.definition());
        let done = run.status(self.code).run_any();
        Outcome::new(self.code, &Archive::only_one_in(done.folder.path()))
    }

    fn run_in_cluster(&self) -> Outcome {
        let cluster = Cluster::new(&["n1"]).daemon_sets();
        cluster.folder.write("plugins.d/p.yaml", self.definition());
        let pods = Arc::new(Mutex::new(Vec::new()));
        let started = Arc::clone(&pods);
        cluster.api.controller(move |api, change| {
            let is_plugin = change.object["metadata"]["labels"]["sonobuoy-plugin"] == "p";
            if change.kind == "ADDED" && change.path.contains("/pods/") && is_plugin {
                let (api, change) = (api.clone(), change.clone());
                started
                    .lock()
                    .unwrap()
                    .push(thread::spawn(move || run_pod(&api, &change)));
            }
        });
        cluster.start("").ends_well();
        let pods = std::mem::take(&mut *pods.lock().unwrap());
        pods.into_iter().for_each(|pod| pod.join().unwrap());
        let config = cluster.folder.join("kubeconfig");
        let (code, _, _) = Sonobuoy::new("wait --kubeconfig")
            .arg(config)
            .run_any_status();
        Outcome::new(code, &cluster.archive())
    }
}

/// Runs the containers of a pod as processes of this machine, as a kubelet does, and reports the
/// ends of the plugin's.
fn run_pod(api: &ApiServer, change: &Change) {
    let results = Folder::new();
    let containers = change.object["spec"]["containers"].as_array().unwrap();
    let [mut plugin, mut worker] = ["plugin", "sonobuoy-worker"].map(|name| {
        let container = containers
            .iter()
            .find(|container| container["name"] == name)
            .unwrap();
        command(api, container, &results)
    });
    let mut worker = worker.env("SONOBUOY_PROGRESS_PORT", "0").spawn().unwrap();
    let _watchdog = Watchdog::over(&worker);
    let policy = change.object["spec"]["restartPolicy"]
        .as_str()
        .unwrap_or("Always");
    let code = loop {
        report(api, &change.path, &json!({"running": {}}), &json!({}));
        let code = plugin.status().unwrap().code().unwrap();
        if code == 0 || policy != "OnFailure" {
            break code;
        }
    };
    let now = base::clock::rfc3339(std::time::SystemTime::now());
    let ended = json!({"terminated": {"exitCode": code, "finishedAt": now}});
    match policy {
        // The next start would do the same.
        "Always" => report(api, &change.path, &json!({"running": {}}), &ended),
        _ => report(api, &change.path, &ended, &json!({})),
    }
    // It reads the results until it ends. That of a DaemonSet sleeps until its pod is removed.
    api.wait(|api| api.get(&change.path).is_none());
    let _ = worker.kill();
    let _ = worker.wait();
}

/// Puts the states of both containers into the status of a pod; one that was removed meanwhile has
/// none.
fn report(api: &ApiServer, path: &str, state: &Value, last: &Value) {
    if api.get(path).is_none() {
        return;
    }
    let worker = json!({"name": "sonobuoy-worker", "state": {"running": {}}});
    let plugin = json!({"name": "plugin", "state": state, "lastState": last});
    api.merge(
        path,
        &json!({"status": {"phase": "Running", "containerStatuses": [plugin, worker]}}),
    );
}

/// A container as a process: the program itself for Sonobuoy's image, with the results in `folder`.
fn command(api: &ApiServer, container: &Value, folder: &Folder) -> Command {
    let words: Vec<&str> = ["command", "args"]
        .iter()
        .flat_map(|key| container[*key].as_array().into_iter().flatten())
        .map(|word| word.as_str().unwrap())
        .collect();
    let program = if words[0] == "/sonobuoy" {
        env!("CARGO_BIN_EXE_sonobuoy")
    } else {
        words[0]
    };
    let mut command = Command::new(program);
    command.args(&words[1..]);
    command
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap());
    for variable in container["env"].as_array().into_iter().flatten() {
        let (name, secret) = (
            variable["name"].as_str().unwrap(),
            &variable["valueFrom"]["secretKeyRef"],
        );
        let value = match (variable["value"].as_str(), secret["name"].as_str()) {
            (Some(value), _) => value.to_owned(),
            (None, Some(secret_name)) => {
                let path = format!("/api/v1/namespaces/sonobuoy/secrets/{secret_name}");
                let found = api.get(&path).unwrap();
                found["stringData"][secret["key"].as_str().unwrap()]
                    .as_str()
                    .unwrap()
                    .to_owned()
            }
            (None, None) if name == "NODE_NAME" => "n1".to_owned(),
            (None, None) => continue,
        };
        command.env(name, value);
    }
    for name in ["RESULTS_DIR", "SONOBUOY_RESULTS_DIR"] {
        command.env(name, folder.path());
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

#[test]
fn definition_has_the_same_outcome_locally_and_in_a_cluster() {
    thread::scope(|scope| {
        for case in CASES {
            scope.spawn(|| {
                let local = case.run_locally();
                assert_eq!(local.statuses, case.statuses, "{}", case.name);
                let in_cluster = case.run_in_cluster();
                assert_eq!(in_cluster, local, "{}", case.name);
            });
        }
    });
}
