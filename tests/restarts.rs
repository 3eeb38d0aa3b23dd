//! The end of a run in a cluster, with a container that is killed, or cannot read, write or
//! publish: one complete archive, and a last status that agrees with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::injector;
use crate::support::cluster::{
    AGGREGATOR, Aggregator, Cluster, Worker, aggregator_pod, namespace, status, untouched,
};
use crate::support::{Folder, Sonobuoy};
use base::stop::Stop;

/// Kills of [`aggregator_killed_at_the_end_of_its_run_leaves_one_archive`], by default.
const KILLS: u64 = 10;

/// A run with one plugin, whose pod is launched.
fn launched(cluster: &Cluster, flags: &str) -> (Aggregator, Worker) {
    let aggregator = cluster.start(flags);
    (aggregator, cluster.worker("p"))
}

fn cluster() -> Cluster {
    Cluster::new(&[]).plugin("p", "Job", "")
}

fn runs(cluster: &Cluster) -> PathBuf {
    cluster.folder.join("runs")
}

/// What only a resumed run needs: its folder and its state, with the keys.
fn kept_for_a_restart(cluster: &Cluster) -> Vec<String> {
    let mut names = Folder::names_of(&runs(cluster));
    names.retain(|name| name.len() == 36 || name.ends_with(".state"));
    names
}

/// Checks that the only archive has the result, and that the published status names this archive.
#[track_caller]
fn check_end(cluster: &Cluster, case: &str) {
    let archive = cluster.archive();
    assert_eq!(
        archive.text("plugins/p/results/global/r.txt"),
        "of global\n",
        "{case}"
    );
    let status = cluster.status();
    assert_eq!(status["status"], "complete", "{case}");
    let name = status["tar-info"]["name"].as_str().unwrap();
    let file = std::fs::read(runs(cluster).join(name)).unwrap();
    let digest = base::hex(base::sha256(&file));
    assert_eq!(status["tar-info"]["sha256"], digest, "{case}");
}

#[test]
fn upload_under_way_at_the_time_limit_is_in_the_archive_or_refused() {
    let body = "x".repeat(40_000);
    for completes in [true, false] {
        let mut cluster = cluster();
        cluster.settings["Server"]["timeoutseconds"] = 2.into();
        let (aggregator, worker) = launched(&cluster, "");
        let mut upload = worker.peer.connect();
        assert!(upload.begin(format!(
            "PUT /api/v1/results/global/p HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-disposition: attachment; filename=\"r.txt\"\r\n\r\n{}",
            body.len(),
            &body[..20_000]
        )));
        cluster.wait_for_status(|status| status["plugins"][0]["status"] == "failed");
        let answer = upload.say(if completes { &body[20_000..] } else { "" });
        let (_, said) = aggregator.end();
        let code = answer.split(' ').nth(1).unwrap_or(&answer);
        assert_eq!(
            code,
            if completes { "200" } else { "503" },
            "{answer}: {said}"
        );
        let archive = cluster.archive();
        let has = |folder: &str| {
            archive
                .names()
                .any(|name| name.starts_with(&format!("plugins/p/{folder}/")))
        };
        assert_eq!(
            [has("results"), has("errors")],
            [completes, !completes],
            "{said}"
        );
        let entry = cluster.status()["plugins"][0].clone();
        let expected = if completes {
            ["complete", "passed"]
        } else {
            ["failed", "failed"]
        };
        assert_eq!(
            [&entry["status"], &entry["result-status"]],
            expected,
            "{entry}"
        );
        let received: Value = serde_json::from_str(&archive.text("meta/results.json")).unwrap();
        assert_eq!(received[0]["arrived"].is_string(), completes, "{received}");
    }
}

#[test]
fn restarted_aggregator_publishes_the_last_status() {
    let cluster = cluster();
    let (aggregator, worker) = launched(&cluster, "");
    cluster.wait_for_status(|status| status["status"] == "running");
    cluster.api.forbid("patch", "pods");
    assert_eq!(worker.send("global"), 200);
    cluster
        .api
        .wait(|_| runs(&cluster).join("complete").exists());
    // Killed.
    drop(aggregator);
    assert_eq!(cluster.status()["status"], "running");
    cluster.api.forbid_nothing();
    cluster.start("").ends_well();
    check_end(&cluster, "after the restart");
    assert_eq!(kept_for_a_restart(&cluster), [""; 0]);
}

#[test]
fn last_status_is_published_once_the_api_server_accepts_it() {
    let cluster = cluster();
    let (aggregator, worker) = launched(&cluster, "--no-exit");
    cluster.wait_for_status(|status| status["status"] == "running");
    cluster.api.forbid("patch", "pods");
    assert_eq!(worker.send("global"), 200);
    cluster.api.wait(|_| {
        aggregator
            .said()
            .contains("the last status could not be published")
    });
    cluster.api.forbid_nothing();
    cluster.wait_for_status(|status| status["status"] == "complete");
}

#[test]
fn run_whose_end_cannot_be_recorded_is_resumed_without_starting_plugins() {
    let cluster = cluster();
    // A folder, which no file replaces.
    cluster.folder.write("runs/complete/full", "");
    let (aggregator, worker) = launched(&cluster, "");
    assert_eq!(worker.send("global"), 200);
    aggregator.ends_well();
    check_end(&cluster, "the end is not recorded");
    assert_eq!(
        kept_for_a_restart(&cluster).len(),
        2,
        "what a restart needs is kept"
    );
    let launches = || cluster.api.count("POST /api/v1/namespaces/sonobuoy/pods");
    let before = launches();
    for case in ["still not recorded", "recorded"] {
        if case == "recorded" {
            std::fs::remove_dir_all(runs(&cluster).join("complete")).unwrap();
        }
        cluster.start("").ends_well();
        check_end(&cluster, case);
        assert_eq!(launches(), before, "{case}");
    }
    assert_eq!(kept_for_a_restart(&cluster), [""; 0]);
}

#[test]
fn unreadable_last_status_ends_the_run_as_failed() {
    let cluster = cluster();
    let (aggregator, worker) = launched(&cluster, "");
    assert_eq!(worker.send("global"), 200);
    aggregator.ends_well();
    cluster.folder.write("runs/status.json", "{");
    cluster.start("").end();
    let status = cluster.status();
    assert_eq!(status["status"], "failed");
    assert!(
        status["error"]
            .as_str()
            .unwrap()
            .contains("its last status cannot be read"),
        "{status}"
    );
}

/// More kills with `SONOBUOY_KILLS=NUMBER`.
#[test]
fn aggregator_killed_at_the_end_of_its_run_leaves_one_archive() {
    let kills = std::env::var("SONOBUOY_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(KILLS);
    for kill in 0..kills {
        let cluster = cluster();
        let (aggregator, worker) = launched(&cluster, "");
        assert_eq!(worker.send("global"), 200);
        // Spread over the last steps, which take a few hundred milliseconds.
        let delay = Duration::from_millis(kill * 600 / kills);
        Stop::new().wait(delay);
        drop(aggregator);
        let case = format!("killed {delay:?} after the result");
        cluster.start("").ends_well();
        check_end(&cluster, &case);
        assert_eq!(kept_for_a_restart(&cluster), [""; 0], "{case}");
        let names = Folder::names_of(&runs(&cluster));
        assert!(
            !names.iter().any(|name| name.starts_with('.')),
            "{case}: {names:?}"
        );
    }
}

const UUID: &str = "5c9bc1d4-50a2-4a0c-8a1c-0c2c4c1b3f27";

/// Makes calls on files of the run fail, as the injector's syntax says, whose paths begin with
/// `path`.
fn inject(cluster: &mut Cluster, library: &Path, faults: &str, path: &str) {
    cluster.settings["UUID"] = json!(UUID);
    let below = runs(cluster).join(format!("{UUID}{path}"));
    let hit = cluster.folder.join("hit");
    for (name, value) in [
        ("LD_PRELOAD", library),
        ("FAULTS_BELOW", &below),
        ("FAULTS_HIT", &hit),
    ] {
        cluster.env.insert(name.into(), value.display().to_string());
    }
    cluster.env.insert("FAULTS".into(), faults.into());
}

#[test]
fn no_result_is_acknowledged_before_its_record_is_synced() {
    let folder = Folder::new();
    let Some(library) = injector(&folder) else {
        return;
    };
    let mut cluster = cluster();
    // All but the first, for the expected results.
    inject(&mut cluster, &library, "sync 2 0 5", ".state/journal");
    let (_aggregator, worker) = launched(&cluster, "");
    assert_eq!(worker.send("global"), 500);
    assert!(
        !runs(&cluster)
            .join(UUID)
            .join("plugins/p/results/global")
            .exists()
    );
}

#[test]
fn unreadable_result_fails_its_node_alone() {
    let folder = Folder::new();
    let Some(library) = injector(&folder) else {
        return;
    };
    let nodes = ["a", "b", "c"];
    let mut cluster = Cluster::new(&nodes)
        .daemon_sets()
        .plugin("p", "DaemonSet", "");
    inject(&mut cluster, &library, "read 1 0 5", "/plugins/p/results/b");
    let (aggregator, worker) = launched(&cluster, "");
    for node in nodes {
        assert_eq!(worker.send(node), 200);
    }
    let (code, said) = aggregator.end();
    assert_eq!(code, 1, "{said}");
    let archive = cluster.archive();
    let mut results: Vec<&str> = archive
        .names()
        .filter(|name| name.contains("/results/"))
        .collect();
    results.sort_unstable();
    assert_eq!(
        results,
        ["plugins/p/results/a/r.txt", "plugins/p/results/c/r.txt"]
    );
    let error = cluster.error("p", "b");
    assert!(error.contains("Input/output error"), "{error}");
    let tree = archive.text("plugins/p/sonobuoy_results.yaml");
    assert!(tree.contains("Input/output error"), "{tree}");
    let status = cluster.status();
    let states: Vec<&Value> = (0..3).map(|at| &status["plugins"][at]["status"]).collect();
    assert_eq!(states, ["complete", "failed", "complete"], "{status}");
}

#[test]
fn transient_read_error_costs_no_archive() {
    let folder = Folder::new();
    let Some(library) = injector(&folder) else {
        return;
    };
    for number in 1.. {
        let mut cluster = cluster();
        inject(
            &mut cluster,
            &library,
            &format!("read {number} 1 5"),
            "/meta",
        );
        let (aggregator, worker) = launched(&cluster, "");
        assert_eq!(worker.send("global"), 200);
        aggregator.ends_well();
        if !cluster.folder.join("hit").exists() {
            assert!(number > 10, "only {number} reads of the run's own files");
            return;
        }
        check_end(&cluster, &format!("read {number} failed"));
        let archive = cluster.archive();
        for file in [
            "meta/config.json",
            "meta/info.json",
            "meta/results.json",
            "meta/run.log",
        ] {
            assert!(!archive.text(file).is_empty(), "read {number}: {file}");
        }
    }
}

#[test]
fn ended_pod_of_an_unfinished_run_is_a_lost_run() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    let entries = json!([{"plugin": "p", "node": "global", "status": "running", "result-status": "", "result-counts": null}]);
    aggregator_pod(
        &api,
        json!({"phase": "Succeeded"}),
        Some(&status("running", &entries)),
    );
    assert!(api.get(AGGREGATOR).is_some());
    let message = "the aggregator's pod ended before the end of the run was published";
    Sonobuoy::new(&format!("status --kubeconfig {config}"))
        .status(1)
        .stdout_has(message)
        .run();
    Sonobuoy::new(&format!("wait --wait-output silent --kubeconfig {config}"))
        .status(1)
        .stderr_has(message)
        .run();
}
