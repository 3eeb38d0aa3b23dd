//! Cost of a run over thousands of nodes for aggregator and API server, and of downloading a large
//! archive over an unreliable connection for both ends. The cluster is the fake API server of the
//! tests; everything measured is a separate process.
//!
//! `cargo bench --bench cluster -- [nodes] [retrieve]`; `NODES` and `MIB` set the number and size
//! (5000, 1024). With `CHURN=1`, one percent of the nodes is not ready, and every minute one
//! percent is deleted and another one joins.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for developers"
)]

#[path = "../tests/support/mod.rs"]
#[allow(unreachable_pub)]
mod support;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use support::api_server::{ApiServer, Exec, ExecAnswer};
use support::cluster::{self, Cluster};
use support::{Folder, Sonobuoy};

/// Duration of the observation of an idle run.
const STEADY: Duration = Duration::from_secs(20);
const WORKERS: usize = 8;
/// A connection breaks after this many bytes.
const LINE: u64 = 50 << 20;

fn main() {
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|word| word == name);
    if wanted("nodes") {
        nodes(number("NODES", 5_000));
    }
    if wanted("retrieve") {
        retrieve(number("MIB", 1_024));
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn nodes(count: usize) {
    let names: Vec<String> = (0..count)
        .map(|number| format!("node-{number:05}.example.internal"))
        .collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
    let cluster = Cluster::new(&nodes)
        .daemon_sets()
        .plugin("bench", "DaemonSet", "");
    let churned = count * number("CHURN", 0) / 100;
    let (dead, living) = nodes.split_at(churned);
    dead.iter()
        .for_each(|node| put_node(&cluster, node, "Unknown"));
    let largest = Arc::new(AtomicUsize::new(0));
    let seen = largest.clone();
    cluster.api.controller(move |_, change| {
        if change.path.ends_with("/pods/sonobuoy") {
            let status = &change.object["metadata"]["annotations"]["sonobuoy.hept.io/status"];
            seen.fetch_max(status.as_str().unwrap_or_default().len(), Ordering::Relaxed);
        }
    });
    let aggregator = cluster.start("");
    let pid = aggregator.child.id();
    let worker = cluster.worker("bench");
    cluster.api.wait(|_| cluster.pods("bench").len() == count);
    cluster.wait_for_status(|status| status["status"] == "running" && status["plugins"].is_array());

    // Start-up cost ends when no request was sent for a while.
    let mut before = 0;
    while cluster.api.requests().len() != before {
        before = cluster.api.requests().len();
        pause(Duration::from_secs(3));
    }
    println!("{before} requests to the API server until everything is under way");
    pause(STEADY);
    let steady = cluster.api.requests().split_off(before);
    println!(
        "steady run over {count} nodes: {:.2} requests a second to the API server (limit 1)",
        steady.len() as f64 / STEADY.as_secs_f64()
    );

    let before = cluster.api.requests().len();
    let (next, lost, joined) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let started = Instant::now();
    let (peak, age) = (AtomicU64::new(0), AtomicU64::new(0));
    let published = || {
        cluster
            .api
            .count("PATCH /api/v1/namespaces/sonobuoy/pods/sonobuoy")
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(node) = living.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if worker.send(node) != 200 {
                        lost.fetch_add(1, Ordering::Relaxed);
                    }
                    peak.fetch_max(high_water(pid).unwrap_or_default(), Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let (mut last, mut since) = (published(), Instant::now());
            while next.load(Ordering::Relaxed) < living.len() {
                pause(Duration::from_millis(100));
                age.fetch_max(since.elapsed().as_millis() as u64, Ordering::Relaxed);
                if std::mem::replace(&mut last, published()) != last {
                    since = Instant::now();
                }
                // Among the last to send.
                let number = joined.load(Ordering::Relaxed);
                if number < churned * started.elapsed().as_secs() as usize / 60 {
                    cluster.api.remove(&format!("/api/v1/nodes/{}", living[living.len() - 1 - number]));
                    let node = format!("joined-{number}");
                    put_node(&cluster, &node, "True");
                    cluster.api.put(
                        &cluster.path(&format!("joined-{number}")),
                        json!({"metadata": {"labels": cluster.pods("bench")[0]["metadata"]["labels"]}, "spec": {"nodeName": node},
                            "status": {"phase": "Running"}}),
                    );
                    joined.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    });
    let (age, joined) = (age.into_inner(), joined.into_inner());
    for number in 0..joined {
        worker.send(&format!("joined-{number}"));
    }
    let took = started.elapsed();
    let busy = cluster.api.requests().split_off(before);
    println!(
        "{count} uploads in {:.1} s, {} not taken; {:.2} requests a second to the API server \
         meanwhile",
        took.as_secs_f64(),
        lost.into_inner(),
        busy.len() as f64 / took.as_secs_f64()
    );
    let over = Arc::new(AtomicBool::new(false));
    let sampling = {
        let (over, mut last) = (over.clone(), 0);
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                last = high_water(pid).unwrap_or_default().max(last);
                pause(Duration::from_millis(5));
            }
            last
        })
    };
    let (code, said) = aggregator.end();
    over.store(true, Ordering::Relaxed);
    let peak = sampling.join().unwrap().max(peak.into_inner());
    println!(
        "ended with {code} {:.1} s after the last upload began",
        (started.elapsed() - took).as_secs_f64()
    );
    let archive = cluster.archive();
    let results = archive
        .names()
        .filter(|name| name.ends_with("/r.txt"))
        .count();
    let errors = archive
        .names()
        .filter(|name| name.contains("/errors/"))
        .count();
    println!(
        "{results} results and {errors} errors in the archive, with {joined} nodes that joined"
    );
    println!("status at most {:.1} s old (limit 5)", age as f64 / 1000.0);
    let limit = if churned > 0 { 128 } else { 64 };
    println!(
        "aggregator's peak RSS {:.1} MiB (limit {limit})",
        peak as f64 / 1024.0
    );
    println!(
        "largest status annotation {:.1} KiB (limit 200)",
        largest.load(Ordering::Relaxed) as f64 / 1024.0
    );
    page(&cluster.folder.join("runs"));
    if code != 0 || results + errors < count + joined {
        println!("{said}");
    }
}

/// Writes the HTML page of the archive in this folder.
fn page(folder: &Path) {
    let to = folder.join("page.html");
    let started = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonobuoy"));
    let status = command
        .args(["results", "--format", "html"])
        .arg(folder)
        .stdout(File::create(&to).unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    println!(
        "page of {:.1} MiB written in {:.1} s (limit 3)",
        to.metadata().unwrap().len() as f64 / (1 << 20) as f64,
        started.elapsed().as_secs_f64()
    );
    if let Ok(keep) = std::env::var("KEEP_PAGE") {
        std::fs::copy(to, keep).unwrap();
    }
}

/// Puts a node in place whose condition has this status since long ago.
fn put_node(cluster: &Cluster, name: &str, ready: &str) {
    let condition =
        json!({"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-02T11:55:54Z"});
    cluster.api.put(
        &format!("/api/v1/nodes/{name}"),
        json!({"status": {"conditions": [condition]}}),
    );
}

fn retrieve(mib: usize) {
    let (there, home) = (Folder::new(), Folder::new());
    let name = "202401010000_sonobuoy_11111111-2222-4333-8444-555555555555.tar.gz";
    let mut file = File::create(there.join(name)).unwrap();
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut block = vec![0_u8; 1 << 20];
    for _ in 0..mib {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_be_bytes());
        }
        digest.update(&block);
        file.write_all(&block).unwrap();
    }
    let digest = digest.finish();
    let api = ApiServer::start();
    cluster::namespace(&api);
    let says = cluster::complete(name, digest.as_ref(), mib << 20);
    cluster::aggregator_pod(&api, json!({"phase": "Running"}), Some(&says));
    let folder = there.path().to_owned();
    let splats = Arc::new(Mutex::new(Vec::new()));
    let started_splats = splats.clone();
    api.on_exec(move |exec: &Exec| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sonobuoy"))
            .arg("splat")
            .arg(&folder)
            .args(&exec.command[3..])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answer = ExecAnswer::stream(child.stdout.take().unwrap());
        started_splats.lock().unwrap().push(child);
        answer
    });
    api.cut_every(LINE);
    let (mut command, _held) = Sonobuoy::new("retrieve")
        .arg(home.path())
        .arg("--kubeconfig")
        .arg(api.kubeconfig(there.path()))
        .command();
    let started = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut near, mut far) = (0, 0);
    let code = loop {
        near = high_water(child.id()).unwrap_or_default().max(near);
        for splat in splats.lock().unwrap().iter() {
            far = high_water(splat.id()).unwrap_or_default().max(far);
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        pause(Duration::from_millis(20));
    };
    let took = started.elapsed().as_secs_f64();
    let streams = splats.lock().unwrap().len();
    for mut splat in splats.lock().unwrap().drain(..) {
        let _ = splat.kill();
        let _ = splat.wait();
    }
    let same = Command::new("cmp")
        .arg(there.join(name))
        .arg(home.join(name))
        .status()
        .unwrap()
        .success();
    println!(
        "retrieve of {mib} MiB over a line cut every {} MiB: exit {code:?}, {}, {took:.1} s over \
         {streams} streams",
        LINE >> 20,
        if same {
            "the same file"
        } else {
            "ANOTHER FILE"
        },
    );
    println!(
        "peak RSS: retrieve {:.1} MiB, splat {:.1} MiB (limit 16)",
        near as f64 / 1024.0,
        far as f64 / 1024.0
    );
}

/// Peak memory of a process, in KiB.
fn high_water(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// A plain pause: no event is awaited here.
fn pause(time: Duration) {
    let (_held, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}
