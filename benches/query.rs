//! Cost of a snapshot of a large cluster: peak memory, speed of parallel compared with sequential
//! requests, and time if no kubelet responds (`cargo bench --bench query -- silent`). The server is
//! in this process and responds after 5 ms, with lists built before.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for developers"
)]

mod place;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::stop::Stop;
use serde_json::{Value, json};

const OBJECTS: usize = 20_000;
const PAGE: usize = 500;
const NAMESPACES: usize = 100;
const NODES: usize = 200;
const LATENCY: Duration = Duration::from_millis(5);
const ROUNDS: usize = 3;

/// Number of nodes with silent kubelets. The API server reports every other one; for the rest it is
/// silent as long as it waits for the kubelet.
const SILENT: usize = 5_000;
const REFUSAL: Duration = Duration::from_millis(50);
const DIAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Additional behaviour of a server.
struct Cluster {
    answers: HashMap<String, Vec<u8>>,
    silent: bool,
    asked: AtomicUsize,
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            speed();
            silence();
        }
        ["speed"] => speed(),
        ["silent"] => silence(),
        _ => panic!("there are `speed` and `silent`"),
    }
}

/// Duration of a snapshot of nodes with silent kubelets, with the logs of their pods.
fn silence() {
    let (folder, cluster) = start(SILENT, true);
    let config = r#"{"QPS": 100, "Limits": {"PodLogs": {"Namespaces": ".*"}}}"#;
    std::fs::write(folder.join("config.json"), config).unwrap();
    let begin = Instant::now();
    let status = command(&folder, "16").spawn().unwrap().wait().unwrap();
    let time = begin.elapsed();
    assert!(status.success(), "{status}");
    let errors = std::fs::read(folder.join("out/meta/query-errors.json")).unwrap();
    let errors: Value = serde_json::from_slice(&errors).unwrap();
    let told = errors
        .as_array()
        .unwrap()
        .iter()
        .filter(|error| error["queryobj"] == "Nodes")
        .count();
    std::fs::remove_dir_all(&folder).unwrap();
    let asked = cluster.asked.load(Ordering::Relaxed);
    let word = |met| if met { "ok" } else { "MISSED" };
    println!(
        "query, s for {SILENT} silent kubelets: {:.0} (at most 150: {})",
        time.as_secs_f64(),
        word(time.as_secs() <= 150)
    );
    println!(
        "query, requests of it: {asked} (under 6000: {})",
        word(asked < 6_000)
    );
    println!(
        "query, silent nodes reported: {told} (all {SILENT}: {})",
        word(told == SILENT)
    );
}

/// A server, and a folder with its kubeconfig.
fn start(nodes: usize, silent: bool) -> (std::path::PathBuf, Arc<Cluster>) {
    let base = place::base();
    let folder = base.join(format!("bench-{}-query", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let cluster = Arc::new(Cluster {
        answers: answers(nodes),
        silent,
        asked: AtomicUsize::new(0),
    });
    let served = Arc::clone(&cluster);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let cluster = Arc::clone(&served);
            std::thread::spawn(move || serve(stream, &cluster));
        }
    });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(folder.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    std::fs::write(folder.join("config.json"), r#"{"QPS":0}"#).unwrap();
    (folder, cluster)
}

fn speed() {
    let (folder, _) = start(NODES, false);
    let (mut ratios, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (one, _) = snapshot(&folder, "1");
        let (many, peak) = snapshot(&folder, "16");
        println!(
            "{OBJECTS} pods and as many config maps: sequential {one:.2?}, parallel {many:.2?}, \
             {peak:.1} MiB"
        );
        ratios.push(one.as_secs_f64() / many.as_secs_f64());
        peaks.push(peak);
    }
    std::fs::remove_dir_all(&folder).unwrap();
    ratios.sort_by(f64::total_cmp);
    let worst = peaks.into_iter().fold(0.0, f64::max);
    let word = |met| if met { "ok" } else { "MISSED" };
    let ratio = ratios[ROUNDS / 2];
    println!(
        "query, speedup over sequential requests: {ratio:.2} (at least 3: {})",
        word(ratio >= 3.0)
    );
    println!(
        "query, peak memory in MiB: {worst:.1} (under 48: {})",
        word(worst < 48.0)
    );
}

/// Takes a snapshot; returns its time and peak memory.
fn snapshot(folder: &Path, workers: &str) -> (Duration, f64) {
    let out = folder.join("out");
    let begin = Instant::now();
    let mut child = command(folder, workers).spawn().unwrap();
    let (never, mut peak) = (Stop::new(), 0.0);
    let status = loop {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        if let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
            peak = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0;
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        never.wait(Duration::from_millis(5));
    };
    let time = begin.elapsed();
    assert!(status.success(), "{status}");
    let errors = std::fs::read_to_string(out.join("meta/query-errors.json")).unwrap();
    assert_eq!(errors, "[]");
    let health: Value =
        serde_json::from_slice(&std::fs::read(out.join("meta/clusterhealth.json")).unwrap())
            .unwrap();
    assert_eq!(health["pod_health"]["total_nodes"], OBJECTS);
    std::fs::remove_dir_all(out).unwrap();
    (time, peak)
}

fn command(folder: &Path, workers: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonobuoy"));
    command
        .args([
            "query",
            "--config",
            "config.json",
            "--kubeconfig",
            "kubeconfig",
            "-o",
            "out",
        ])
        .current_dir(folder)
        .env("SONOBUOY_QUERY_WORKERS", workers)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Responses by path, with `continue` for further pages.
fn answers(nodes: usize) -> HashMap<String, Vec<u8>> {
    let kinds = [
        ("namespaces", "Namespace", "Cluster"),
        ("nodes", "Node", "Cluster"),
        ("pods", "Pod", "Namespaced"),
        ("configmaps", "ConfigMap", "Namespaced"),
    ];
    let kinds = kinds.map(|(plural, kind, scope)| {
        json!({"resource": plural, "responseKind": {"kind": kind}, "scope": scope, "verbs": ["list"]})
    });
    let discovery = |items: Value| json!({"kind": "APIGroupDiscoveryList", "items": items});
    let core = json!([{"metadata": {}, "versions": [{"version": "v1", "resources": kinds, "freshness": "Current"}]}]);
    let mut answers = HashMap::from([
        ("/api".to_owned(), discovery(core).to_string().into_bytes()),
        (
            "/apis".to_owned(),
            discovery(json!([])).to_string().into_bytes(),
        ),
        (
            "/version".to_owned(),
            br#"{"gitVersion":"v1.34.0"}"#.to_vec(),
        ),
    ]);
    let meta = |name: String, index: usize| {
        json!({
            "name": name, "namespace": format!("ns{:03}", index * NAMESPACES / OBJECTS), "uid": format!("{index:036}"),
            "labels": {"app.kubernetes.io/name": "bench", "tier": "backend"}, "resourceVersion": index.to_string(),
            "managedFields": [{"manager": "m", "fieldsV1": {"f:metadata": {"f:labels": {"f:tier": {}}}}}],
        })
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"});
    let container = json!({
        "name": "main", "image": "registry.example/app:1.2.3", "args": ["--port=8080", "--verbose"],
        "env": [{"name": "DB_PASSWORD", "value": "geheim"}, {"name": "MODE", "value": "production"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}, "volumeMounts": [{"name": "v", "mountPath": "/data"}],
    });
    let pod = |index: usize| {
        json!({
            "metadata": meta(format!("pod-{index:05}"), index),
            "spec": {"nodeName": format!("node{:03}", index % nodes), "containers": [container, container], "volumes": [{"name": "v", "emptyDir": {}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [condition("Ready"), condition("PodScheduled")]},
        })
    };
    let map = |index: usize| json!({"metadata": meta(format!("map-{index:05}"), index), "data": {"config.yaml": "key: value\n".repeat(100)}});
    let mut add = |plural: &str, total: usize, object: &dyn Fn(usize) -> Value| {
        for from in (0..total).step_by(PAGE) {
            let items: Vec<_> = (from..total.min(from + PAGE)).map(object).collect();
            let next = if from + PAGE < total {
                (from + PAGE).to_string()
            } else {
                String::new()
            };
            let page =
                json!({"metadata": {"resourceVersion": "1", "continue": next}, "items": items});
            answers.insert(
                format!("/api/v1/{plural}@{from}"),
                page.to_string().into_bytes(),
            );
        }
    };
    add("pods", OBJECTS, &pod);
    add("configmaps", OBJECTS, &map);
    add(
        "namespaces",
        NAMESPACES,
        &|index| json!({"metadata": {"name": format!("ns{index:03}")}}),
    );
    add(
        "nodes",
        nodes,
        &|index| json!({"metadata": {"name": format!("node{index:03}")}, "status": {"conditions": [condition("Ready")]}}),
    );
    answers
}

fn serve(stream: TcpStream, cluster: &Cluster) {
    let answers = &cluster.answers;
    stream.set_nodelay(true).unwrap();
    let never = Stop::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        let target = line.split(' ').nth(1).unwrap().to_owned();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).unwrap_or_default() == 0 {
                return;
            }
        }
        line.clear();
        cluster.asked.fetch_add(1, Ordering::Relaxed);
        if cluster.silent && (target.contains("/proxy/") || target.contains("/log?")) {
            let answers = target.bytes().map(usize::from).sum::<usize>() % 2 == 0;
            never.wait(if answers { REFUSAL } else { DIAL_TIMEOUT });
            let body = "dial tcp: i/o timeout";
            let head = format!(
                "HTTP/1.1 500 Error\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            if writer.write_all(head.as_bytes()).is_err() {
                return;
            }
            continue;
        }
        never.wait(LATENCY);
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let from = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("continue="))
            .unwrap_or("0");
        let body = answers
            .get(path)
            .or_else(|| answers.get(&format!("{path}@{from}")));
        let body = body.map_or(&b"{\"kubeletconfig\":{}}"[..], Vec::as_slice);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if writer
            .write_all(head.as_bytes())
            .and_then(|()| writer.write_all(body))
            .is_err()
        {
            return;
        }
    }
}
