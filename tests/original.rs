//! Archives of this program, read by the original's `results`: a judge that shares no code with
//! ours.
//!
//! The golden files record the original's output, and `results` must print the same. Where
//! `SONOBUOY_ORIGINAL` names the original, its output is compared, too.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::diff::assert_golden;
use crate::support::{Sonobuoy, skipped};

/// Compares the output of both programs for an archive with a golden file, command by command.
#[track_caller]
fn both_print(archive: &Path, golden: &str, calls: &[&str]) {
    let ours = |words: &&str| {
        Sonobuoy::new("results")
            .arg(archive)
            .args(words)
            .run_any()
            .stdout
    };
    assert_golden(golden, &told(calls, ours));
    let Ok(original) = std::env::var("SONOBUOY_ORIGINAL") else {
        return skipped(
            "original",
            "SONOBUOY_ORIGINAL does not name the original program",
        );
    };
    let theirs = |words: &&str| {
        let out = Command::new(&original)
            .arg("results")
            .arg(archive)
            .args(words.split_whitespace())
            .output();
        let out = out.unwrap();
        assert!(
            out.status.success(),
            "results {words}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8(out.stdout).unwrap()
    };
    assert_golden(golden, &told(calls, theirs));
}

fn told(calls: &[&str], print: impl Fn(&&str) -> String) -> String {
    let text: String = calls
        .iter()
        .map(|words| format!("$ results {words}\n{}", print(words)))
        .collect();
    // Pod names contain a random number.
    let random = regex::Regex::new("-(job|daemon-set)-[0-9a-f]{16}").unwrap();
    random.replace_all(&text, "-$1-0").into_owned()
}

/// The only archive in a folder.
fn archive_in(folder: &Path) -> PathBuf {
    let mut paths = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .find(|path| path.to_string_lossy().ends_with(".tar.gz"))
        .unwrap()
}

#[test]
fn archives_of_local_runs_are_read() {
    let suite = "<testsuite name=\"s\"><testcase name=\"good\"/><testcase name=\"bad\"><failure message=\"m\">one\ntwo</failure></testcase>\
         <testcase name=\"not run\"><skipped/></testcase></testsuite>";
    let definition = |name: &str, format: &str, file: &str, body: &str| {
        format!(
            "sonobuoy-config: {{driver: Job, plugin-name: {name}, result-format: {format}}}\nspec:\n  name: c\n  \
             command: [sh, -c, \"printf '%s' \\\"$BODY\\\" > $RESULTS_DIR/{file}; echo $RESULTS_DIR/{file} > $RESULTS_DIR/done\"]\n  \
             env: [{{name: BODY, value: {}}}]\n",
            json!(body)
        )
    };
    let tree = "name: t\nstatus: degraded\nitems:\n- {name: a b, status: degraded, details: {free: 5, list: [x]}}\n";
    let run = Sonobuoy::new("run --local -p suite.yaml -p text.yaml -p tree.yaml")
        .file(
            "suite.yaml",
            definition("suite", "junit", "junit.xml", suite),
        )
        .file(
            "text.yaml",
            definition("text", "raw", "r.txt", "line one\nline two\n"),
        )
        .file("tree.yaml", definition("tree", "manual", "r.yaml", tree));
    let done = run.run_any();
    let calls = [
        "",
        "-m detailed",
        "-m report -p suite",
        "-m detailed -p suite",
        "-m detailed -p suite -n bad",
        "-m dump -p suite",
        "-m readable -p suite",
        "-m detailed -p text",
        "-m detailed -p text --skip-prefix",
        "-m report -p tree",
        "-m detailed -p tree",
        "-m dump -p tree",
    ];
    both_print(
        &archive_in(done.folder.path()),
        "results/original-local.txt",
        &calls,
    );
}

#[test]
fn archives_of_runs_in_a_cluster_are_read() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("systemd-logs", "DaemonSet", "  result-format: raw\n")
        .plugin("once", "Job", "")
        .set("Resources", Value::Null);
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("once").send("global"), 200);
    let logs = cluster.worker("systemd-logs");
    for node in ["a", "b"] {
        let lines = format!("{{\"MESSAGE\":\"one of {node}\"}}\n{{\"MESSAGE\":\"two\"}}\n");
        assert_eq!(logs.send_file(node, "systemd_logs", &lines), 200);
    }
    aggregator.ends_well();
    let calls = [
        "",
        "-m dump",
        "-m readable",
        "-m detailed",
        "-m detailed -n b -p systemd-logs",
        "-m detailed -p systemd-logs --skip-prefix",
        "-p sonobuoy",
        "-p sonobuoy -m detailed",
        "-p once -m detailed --skip-prefix",
    ];
    both_print(
        &archive_in(&cluster.folder.join("runs")),
        "results/original-cluster.txt",
        &calls,
    );
}
