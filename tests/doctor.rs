//! `doctor` against the fake API server, whose kubelet runs the pods' commands: the echo is one,
//! over the run's own TLS. The cluster is broken on purpose, in one way or two at a time.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::api_server::{ApiServer, Change};
use crate::support::cluster::{free_port, namespace, untouched};
use crate::support::command::Done;
use crate::support::reader::Reader;
use crate::support::registry::{Habits, Registry};
use crate::support::{Folder, Sonobuoy};

/// Faults of a kubelet.
#[derive(Default)]
struct Ills {
    /// Nodes that cannot reach the aggregator.
    blocked: Vec<&'static str>,
    /// No image can be pulled.
    no_images: bool,
    /// DNS is down.
    no_names: bool,
    /// No pod ever starts.
    idle: bool,
}

/// The running aggregators, by pod path.
type Running = Arc<Mutex<BTreeMap<String, Child>>>;

struct Cluster {
    api: ApiServer,
    folder: Folder,
    running: Running,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.running.lock().unwrap().values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Cluster {
    fn new(ills: Ills) -> Self {
        let (api, folder, _) = untouched();
        api.raw("/version", 200, r#"{"gitVersion": "v1.33.4"}"#);
        let dns = json!({"metadata": {"labels": {"k8s-app": "kube-dns"}}, "status": {"phase": "Running"}});
        api.put("/api/v1/namespaces/kube-system/pods/dns", dns);
        for node in ["n1", "n2"] {
            api.put(
                &format!("/api/v1/nodes/{node}"),
                json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}, "status": {
                    "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64"},
                    "allocatable": {"pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                }}),
            );
        }
        // Servers on other loopback addresses may get any port of the system's choice.
        let port = free_port();
        folder.write(
            "run.json",
            json!({"Server": {"bindport": port}}).to_string(),
        );
        let running = Running::default();
        let (started, ills) = (running.clone(), Arc::new(ills));
        api.controller(move |api, change| {
            let (api, change, started, ills) =
                (api.clone(), change.clone(), started.clone(), ills.clone());
            if change.kind == "ADDED" && change.path.contains("/pods/sonobuoy-doctor") && !ills.idle
            {
                std::thread::spawn(move || kubelet(&api, &change, &started, &ills));
            } else if change.kind == "DELETED"
                && let Some(mut child) = started.lock().unwrap().remove(&change.path)
            {
                let _ = child.kill();
                let _ = child.wait();
            }
        });
        Self {
            api,
            folder,
            running,
        }
    }

    fn doctor(&self, words: &str) -> Sonobuoy {
        let job = "sonobuoy-config: {driver: Job, plugin-name: job}\nspec: {name: plugin, image: localhost/i:1}\n";
        let each = "sonobuoy-config: {driver: DaemonSet, plugin-name: each}\nspec: {name: plugin, image: localhost/i:1}\n";
        Sonobuoy::new("doctor --rbac Enable -p job.yaml -p each.yaml --config")
            .arg(self.folder.join("run.json"))
            .arg("--kubeconfig")
            .arg(self.folder.join("kubeconfig"))
            .args(words)
            .file("job.yaml", job)
            .file("each.yaml", each)
    }

    /// Runs `doctor` and expects exactly these causes: parts of their lines.
    fn finds(&self, words: &str, causes: &[&str]) -> Done {
        let done = self
            .doctor(words)
            .status(3)
            .stdout_has("not ready: ")
            .run_any();
        let found: Vec<&str> = done
            .stdout
            .lines()
            .filter(|line| line.starts_with("FAIL"))
            .collect();
        assert_eq!(found.len(), causes.len(), "{}{}", done.stdout, done.stderr);
        for cause in causes {
            assert!(
                found.iter().any(|line| line.contains(cause)),
                "no `{cause}` in {}",
                done.stdout
            );
        }
        self.is_clean();
        done
    }

    /// Checks that no object is left.
    fn is_clean(&self) {
        let spaces = self.api.list("/api/v1/namespaces");
        let ours = |object: &Value| {
            object["metadata"]["name"]
                .as_str()
                .unwrap()
                .contains("doctor")
        };
        assert!(!spaces.iter().any(ours), "{spaces:?}");
        for kind in ["pods", "serviceaccounts"] {
            let left = self.api.list(&format!("/api/v1/{kind}"));
            assert!(!left.iter().any(ours), "{left:?}");
        }
        let requests = self.api.requests();
        let made = requests
            .iter()
            .filter(|request| request.starts_with("POST ") && !request.contains("dryRun"));
        let foreign =
            |request: &&String| !request.contains("accessreviews") && !request.contains("doctor");
        let foreign: Vec<_> = made.filter(foreign).collect();
        assert!(
            foreign
                .iter()
                .all(|request| *request == "POST /api/v1/namespaces"
                    || request.contains("/sonobuoy/")),
            "{foreign:?}"
        );
    }
}

/// Runs a pod's command and reports its state.
fn kubelet(api: &ApiServer, change: &Change, running: &Running, ills: &Ills) {
    let pod = &change.object;
    let container = &pod["spec"]["containers"][0];
    let tell = |state: Value, more: Value| {
        let mut status = json!({"startTime": "2024-01-01T00:00:00Z", "containerStatuses": [{"name": "echo", "state": state}]});
        status
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        api.merge(&change.path, &json!({"status": status}));
    };
    if ills.no_images {
        let waiting = json!({"reason": "ErrImagePull", "message": "manifest for x:1 not found"});
        return tell(json!({"waiting": waiting}), json!({}));
    }
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let command = container["command"].as_array().unwrap();
    let words: Vec<&str> = command[1..]
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let mut call = Sonobuoy::with(&words);
    for entry in container["env"].as_array().unwrap() {
        let (name, value) = (
            entry["name"].as_str().unwrap(),
            entry["value"].as_str().unwrap_or("127.0.0.1"),
        );
        let blocked = name == "AGGREGATOR_URL" && ills.blocked.contains(&node);
        call = call.env(
            name,
            if blocked {
                "https://127.0.0.1:1"
            } else {
                value
            },
        );
    }
    if words.contains(&"--echo") {
        let (mut command, _held) = call.command();
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let first = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .next()
            .unwrap()
            .unwrap();
        assert!(first.contains("answering at port"), "{first}");
        running.lock().unwrap().insert(change.path.clone(), child);
        return tell(
            json!({"running": {}}),
            json!({"podIP": "127.0.0.1", "phase": "Running"}),
        );
    }
    let done = call.arg("--to").arg("said").run_any();
    let mut said: Value = serde_json::from_str(&done.folder.read("said")).unwrap();
    // The name servers of this machine are not under test.
    let dns = said["items"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .find(|leg| leg["name"] == "dns")
        .unwrap();
    *dns = if ills.no_names {
        let error = "name server 10.96.0.10, asked for `kubernetes.default.svc.cluster.local`: did not answer: timed out";
        json!({"name": "dns", "status": "failed", "details": {"error": error}})
    } else {
        json!({"name": "dns", "status": "passed"})
    };
    tell(
        json!({"terminated": {"exitCode": 0, "message": said.to_string()}}),
        json!({"phase": "Succeeded"}),
    );
}

#[test]
fn healthy_cluster_is_ready_and_left_clean() {
    let cluster = Cluster::new(Ills::default());
    let done = cluster.doctor("").stdout_has("ready\n").run_any();
    let words: Vec<&str> = done
        .stdout
        .lines()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(
        words,
        ["ok", "ok", "ok", "ok", "ok", "ok", "ok", "ready"],
        "{}{}",
        done.stdout,
        done.stderr
    );
    assert!(
        done.stdout
            .contains("2 of 2 nodes measured, round trip up to "),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains("path MTU"), "{}", done.stdout);
    cluster.is_clean();
    let requests = cluster.api.requests();
    assert!(requests.len() < 120, "{} requests", requests.len());
    // Pods as plugins would have them are tried, too.
    let tried = requests
        .iter()
        .filter(|request| request.contains("/pods?dryRun=All"))
        .count();
    assert_eq!(tried, 3);

    let done = cluster.doctor("--format json --measure-from n2").run_any();
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(found["fit"], true);
    let echo = found["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["name"] == "echo")
        .unwrap();
    let measured = echo["measured"].as_object().unwrap();
    assert_eq!(measured.keys().collect::<Vec<_>>(), ["n2"]);
    for network in ["pods", "node"] {
        let leg = &measured["n2"][network]["aggregator"];
        for number in ["connect_ms", "handshake_ms", "round_trip_ms", "path_mtu"] {
            assert!(
                leg[number].as_f64().is_some_and(|number| number > 0.0),
                "{number}: {measured:?}"
            );
        }
        assert_eq!(measured["n2"][network]["clock"]["against"], "aggregator");
    }
}

#[test]
fn run_checks_first_on_request() {
    let cluster = Cluster::new(Ills {
        blocked: vec!["n1", "n2"],
        ..Ills::default()
    });
    let run = |words: &str| {
        Sonobuoy::new("run --doctor --rbac Enable -p p.yaml --config")
            .arg(cluster.folder.join("run.json"))
            .arg("--kubeconfig")
            .arg(cluster.folder.join("kubeconfig"))
            .args(words)
            .file("p.yaml", "sonobuoy-config: {driver: Job, plugin-name: p}\nspec: {name: plugin, image: localhost/i:1}\n")
    };
    run("")
        .status(1)
        .stderr_has("2 of 2 nodes: cannot reach the aggregator")
        .stderr_has("nothing was created")
        .run();
    assert!(cluster.api.get("/api/v1/namespaces/sonobuoy").is_none());
    let cluster = Cluster::new(Ills::default());
    let run = Sonobuoy::new("run --doctor --rbac Enable -p p.yaml --config")
        .arg(cluster.folder.join("run.json"))
        .arg("--kubeconfig")
        .arg(cluster.folder.join("kubeconfig"))
        .file(
            "p.yaml",
            "sonobuoy-config: {driver: Job, plugin-name: p}\nspec: {name: plugin, image: localhost/i:1}\n",
        );
    run.stderr_has("msg=ready")
        .stderr_has("create request issued")
        .run();
    assert!(
        cluster
            .api
            .get("/api/v1/namespaces/sonobuoy/pods/sonobuoy")
            .is_some()
    );
}

#[test]
fn blocked_connections_are_reported_per_node() {
    let blocked = "1 of 2 nodes: cannot reach the aggregator: no connection to 127.0.0.1:1: Connection refused";
    let cluster = Cluster::new(Ills {
        blocked: vec!["n2"],
        ..Ills::default()
    });
    let done = cluster.finds("", &[blocked]);
    assert!(
        done.stdout
            .contains("Connection refused (n2); a network policy or firewall"),
        "{}",
        done.stdout
    );
    cluster.finds("--measure-from n1,n9", &["not a ready node: n9"]);
    Sonobuoy::new("doctor --rbac Enable --config")
        .arg(cluster.folder.join("run.json"))
        .arg("--kubeconfig")
        .arg(cluster.folder.join("kubeconfig"))
        .args("-p nodes.yaml --nodes n1,n9")
        .file(
            "nodes.yaml",
            "sonobuoy-config: {driver: Nodes, plugin-name: p}\nspec: {name: plugin, image: localhost/i:1}\n",
        )
        .status(3)
        .stdout_has("no node of the cluster is called `n9`; it has n1, n2")
        .run_any();

    let cluster = Cluster::new(Ills {
        no_names: true,
        blocked: vec!["n2"],
        ..Ills::default()
    });
    let done = cluster.finds(
        "--format text",
        &[blocked, "2 of 2 nodes: name server 10.96.0.10"],
    );
    assert!(
        done.stdout
            .contains("check that the cluster's DNS pods are running"),
        "{}",
        done.stdout
    );

    let cluster = Cluster::new(Ills {
        no_images: true,
        ..Ills::default()
    });
    cluster.finds(
        "",
        &["the aggregator does not start: Failed to pull image for container echo: ErrImagePull"],
    );
}

#[test]
fn rejections_are_one_line_per_cause() {
    let refuse = |plural: &'static str, message: &'static str| {
        let cluster = Cluster::new(Ills::default());
        cluster.api.admission(move |kind, object| {
            let ours = object["metadata"]["labels"]["sonobuoy-component"] == "sonobuoy-doctor";
            (kind == plural && !ours).then(|| (403, "Forbidden".into(), message.into()))
        });
        cluster
    };
    refuse("configmaps", "admission webhook \"guard.example\" denied the request: not here").finds(
        "",
        &["2 of 15 objects: admission webhook \"guard.example\" denied the request: not here \
           (ConfigMap `sonobuoy-config-cm`, ConfigMap `sonobuoy-plugins-cm`); a policy of the cluster"],
    );
    refuse(
        "pods",
        "pods \"x\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1",
    )
    .finds("", &["3 of 15 objects: exceeded quota: small"]);
    let privileged = refuse("services", "no");
    privileged.api.admission(|kind, object| {
        let host = object["spec"]["hostNetwork"] == true;
        let no =
            "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces";
        (kind == "pods" && host).then(|| (403, "Forbidden".into(), no.into()))
    });
    // Echo pods with the same privileges are rejected for the same reason, which is printed once.
    privileged.finds(
        "",
        &["1 of 15 objects: violates PodSecurity \"baseline:latest\": host namespaces"],
    );

    let cluster = Cluster::new(Ills::default());
    cluster.api.forbid("create", "configmaps");
    cluster.finds(
        "",
        &["your account may not create configmaps in namespace `sonobuoy`, which `sonobuoy run` does"],
    );
}

#[test]
fn account_without_permissions_is_one_cause() {
    let cluster = Cluster::new(Ills::default());
    for plural in [
        "namespaces",
        "serviceaccounts",
        "configmaps",
        "services",
        "pods",
    ] {
        cluster.api.forbid("create", plural);
    }
    let done = cluster.finds("", &["your account lacks "]);
    assert!(
        done.stdout.contains("create configmaps, ") && done.stdout.contains("\nskip  objects "),
        "{}",
        done.stdout
    );
    assert!(
        !done.stderr.contains("by hand") && !done.stdout.contains("ok    objects"),
        "{}{}",
        done.stdout,
        done.stderr
    );
}

#[test]
fn missing_image_is_reported_with_load_commands() {
    let cluster = Cluster::new(Ills::default());
    let images = |names: &[&str]| json!({"status": {"images": [{"names": names}]}});
    let own = format!("localhost/sonobuoy:v{}", env!("CARGO_PKG_VERSION"));
    for node in ["n1", "n2"] {
        cluster
            .api
            .merge(&format!("/api/v1/nodes/{node}"), &images(&[&own]));
    }
    let load = "1 of 2 images: no node has it (localhost/i:1); `localhost/i:1` is in no registry";
    let done = cluster.finds("", &[load]);
    assert!(
        done.stdout
            .contains(": kind load docker-image localhost/i:1; "),
        "{}",
        done.stdout
    );
    let loaded = images(&[&own, "localhost/i:1"]);
    cluster.api.merge("/api/v1/nodes/n2", &loaded);
    let some = "1 of 2 images: it is on 1 of 2 nodes, not on n1 (localhost/i:1);";
    let done = cluster.finds("", &[some]);
    let flag = "then run with --plugin-image each:REGISTRY/i:1";
    assert!(done.stdout.contains(flag), "{}", done.stdout);
    cluster.api.merge("/api/v1/nodes/n1", &loaded);
    cluster
        .doctor("")
        .stdout_has("ready\n")
        .stdout_has("2 loaded into nodes")
        .run_any();
}

#[test]
fn checks_are_printed_as_they_finish() {
    let cluster = Cluster::new(Ills {
        idle: true,
        ..Ills::default()
    });
    let (mut command, _held) = cluster.doctor("").command();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let first: Vec<String> = lines
        .by_ref()
        .take(5)
        .map(|line| line.split_whitespace().nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(first, ["server", "nodes", "preflight", "rights", "objects"]);
    assert!(
        child.try_wait().unwrap().is_none(),
        "the pods of the echo are still waited for"
    );
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn unready_nodes_and_dns_are_reported() {
    let cluster = Cluster::new(Ills::default());
    for node in ["n1", "n2"] {
        let taints = json!([{"key": "mine", "value": "x", "effect": "NoSchedule"}]);
        cluster.api.merge(
            &format!("/api/v1/nodes/{node}"),
            &json!({"spec": {"taints": taints}}),
        );
    }
    cluster.finds(
        "",
        &["2 of 2 nodes: no node for the aggregator and plugin `job`: taint `mine:NoSchedule` is not tolerated (n1, n2)"],
    );

    let cluster = Cluster::new(Ills::default());
    let conditions =
        json!([{"type": "Ready", "status": "False", "message": "PLEG is not healthy"}]);
    cluster.api.merge(
        "/api/v1/nodes/n2",
        &json!({"status": {"conditions": conditions}}),
    );
    cluster
        .api
        .remove("/api/v1/namespaces/kube-system/pods/dns");
    cluster.finds(
        "",
        &[
            "1 of 2 nodes: not ready: PLEG is not healthy (n2)",
            "dnscheck: no pod in namespace `kube-system`",
        ],
    );
}

#[test]
fn images_are_checked_in_their_registries() {
    let registry = Registry::start(Habits::default());
    let settings = registry.put_blob(br#"{"os": "linux", "architecture": "s390x"}"#);
    let manifest = json!({
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": settings, "size": 40},
        "layers": [],
    });
    let kind = "application/vnd.oci.image.manifest.v1+json";
    registry.put_manifest("other", "1", kind, manifest.to_string().as_bytes());
    let cluster = Cluster::new(Ills::default());
    let image = |name: &str| format!("--plugin-image job:{}/{name}:1", registry.host());
    cluster.finds(
        &image("none"),
        &["1 of 3 images: manifest unknown: the registry does not have `127.0.0.1"],
    );
    let other = cluster.finds(
        &image("other"),
        &["is built for linux/s390x and not for nodes with amd64"],
    );
    assert!(
        other
            .stdout
            .contains("use an image that is built for the architecture of every node"),
        "{}",
        other.stdout
    );
}

#[test]
fn checks_use_the_namespace_of_the_run() {
    let cluster = Cluster::new(Ills::default());
    namespace(&cluster.api);
    cluster.finds(
        "",
        &["existingnamespace: namespace `sonobuoy` exists already"],
    );
    let done = cluster
        .doctor("--skip-preflight=existingnamespace")
        .stdout_has("ready\n")
        .run_any();
    assert!(
        done.stdout.contains("2 of 2 nodes measured"),
        "{}",
        done.stdout
    );
    assert!(cluster.api.count("POST /api/v1/namespaces/sonobuoy/pods") > 4);
    cluster.is_clean();
}

#[test]
fn no_reader_of_the_output_changes_the_exit_code() {
    for reader in Reader::EVERY {
        let cluster = Cluster::new(Ills::default());
        let read = cluster.doctor("").read_by(reader);
        assert_eq!(
            read.code,
            Some(reader.expected(0)),
            "{reader:?}: {}",
            read.stderr
        );
        cluster.is_clean();
        away(&cluster);
        let read = cluster.doctor("").read_by(reader);
        assert_eq!(
            read.code,
            Some(reader.expected(3)),
            "{reader:?}: {}",
            read.stderr
        );
    }
}

/// Makes the kubeconfig name a server that does not exist.
fn away(cluster: &Cluster) {
    let away = json!({
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
    });
    cluster.folder.write("kubeconfig", away.to_string());
}

#[test]
fn silent_server_is_a_finding() {
    let cluster = Cluster::new(Ills::default());
    away(&cluster);
    let done = cluster
        .doctor("")
        .status(3)
        .stdout_has("Connection refused")
        .run_any();
    assert_eq!(done.stdout.lines().count(), 2, "{}", done.stdout);
}

#[test]
fn interrupt_removes_all_objects() {
    let cluster = Cluster::new(Ills {
        idle: true,
        ..Ills::default()
    });
    let (mut command, _held) = cluster.doctor("").command();
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    cluster.api.wait(|api| api.list("/api/v1/pods").len() > 1);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let mut child = child;
    assert_eq!(child.wait().unwrap().code(), Some(130));
    cluster.is_clean();
}
