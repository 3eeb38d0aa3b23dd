//! The original's worker against our aggregator.
//!
//! Runs only where `SONOBUOY_ORIGINAL` names that program; `tests/original.sh` builds it where Go
//! is installed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::fixture::{Scratch, limits, tar_gz};
use super::server::{Running, access, serving};
use crate::aggregator::{AggregatorSettings, WaitOutcome};
use base::stop::Stop;
use client::protocol::ResultId;

/// Far longer than the original's polling interval.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn original() -> Option<String> {
    let program = std::env::var("SONOBUOY_ORIGINAL").ok();
    if program.is_none() {
        base::testing::skipped(
            "original",
            "SONOBUOY_ORIGINAL does not name the original program",
        );
    }
    program
}

/// A worker of the original, ended with the test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, running: &Running<'_>, id: &ResultId, results: &Path, port: u16) -> Worker {
    let access = access(running.aggregator.authority(), running.address, &id.plugin);
    let mut command = Command::new(program);
    if id.is_global() {
        command.args(["worker", "global", "--level=trace", "-v=6", "--logtostderr"]);
    } else {
        command.args([
            "worker",
            "single-node",
            "--level=trace",
            "-v=6",
            "--logtostderr",
            "--sleep=0",
        ]);
    }
    let child = command
        .env_clear()
        .env("AGGREGATOR_URL", access.aggregator_url)
        .env("CA_CERT", access.ca_cert)
        .env("CLIENT_CERT", access.client_cert)
        .env("CLIENT_KEY", access.client_key)
        .env("RESULT_TYPE", &id.plugin)
        .env("NODE_NAME", &id.node)
        .env("SONOBUOY_RESULTS_DIR", results)
        .env("SONOBUOY_PROGRESS_PORT", port.to_string())
        .env("SONOBUOY_DONE_FILE_DELAY", "0s")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Worker(child)
}

/// Runs one worker and returns its exit code.
fn run(
    program: &str,
    running: &Running<'_>,
    id: &ResultId,
    results: &Path,
    done: &Path,
) -> Option<i32> {
    std::fs::write(results.join("done"), done.as_os_str().as_encoded_bytes()).unwrap();
    let mut worker = start(program, running, id, results, free_port());
    let deadline = Instant::now() + WAIT_TIMEOUT;
    running
        .aggregator
        .wait(&id.plugin, Some(deadline), &Stop::new());
    worker.0.wait().unwrap().code()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn worker_of_the_original_submits_files_folders_and_archives() {
    let Some(program) = original() else { return };
    let scratch = Scratch::new();
    let ids = [
        ResultId::global("archive"),
        ResultId::on_node("file", "n1"),
        ResultId::global("folder"),
        ResultId::global("damaged"),
    ];
    let settings = AggregatorSettings {
        limits: limits(),
        ..AggregatorSettings::default()
    };
    serving(&scratch.run(), &ids, settings, |running| {
        let folder = |name: &str| {
            let path = scratch.run().with_file_name(format!("run-{name}"));
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let results = folder("archive");
        let tar = tar_gz(&[(tar::EntryType::Regular, "./e2e.log", 0o644, "", b"log")]);
        std::fs::write(results.join("e2e.tar.gz"), tar).unwrap();
        assert_eq!(
            run(
                &program,
                running,
                &ids[0],
                &results,
                &results.join("e2e.tar.gz")
            ),
            Some(0)
        );
        let results = folder("file");
        std::fs::write(results.join("junit_01.xml"), "<x/>").unwrap();
        assert_eq!(
            run(
                &program,
                running,
                &ids[1],
                &results,
                &results.join("junit_01.xml")
            ),
            Some(0)
        );
        assert_eq!(
            run(
                &program,
                running,
                &ids[1],
                &results,
                &results.join("junit_01.xml")
            ),
            Some(0),
            "409 is success"
        );
        let results = folder("folder");
        std::fs::create_dir_all(results.join("out/deep")).unwrap();
        std::fs::write(results.join("out/deep/a"), "1").unwrap();
        assert_eq!(
            run(&program, running, &ids[2], &results, &results.join("out")),
            Some(0)
        );
        let results = folder("damaged");
        std::fs::write(results.join("x.gz"), "no gzip").unwrap();
        std::fs::write(
            results.join("done"),
            results.join("x.gz").as_os_str().as_encoded_bytes(),
        )
        .unwrap();
        let mut worker = start(&program, running, &ids[3], &results, free_port());
        assert_eq!(
            worker.0.wait().unwrap().code(),
            Some(1),
            "500 is an error after its three attempts"
        );
        assert_eq!(running.aggregator.outstanding(), ids[3..]);
    });
    assert_eq!(
        scratch.tree(),
        [
            "plugins/archive/results/global/e2e.log=log",
            "plugins/file/results/n1/junit_01.xml=<x/>",
            "plugins/folder/results/global/deep/a=1",
        ]
    );
}

#[test]
fn relay_of_the_original_forwards_both_kinds_of_progress() {
    let Some(program) = original() else { return };
    let scratch = Scratch::new();
    let ids = [ResultId::global("p"), ResultId::on_node("d", "n1")];
    let settings = AggregatorSettings {
        limits: limits(),
        ..AggregatorSettings::default()
    };
    serving(&scratch.run(), &ids, settings, |running| {
        for id in &ids {
            let results = scratch.run().with_file_name(format!("run-{}", id.plugin));
            std::fs::create_dir_all(&results).unwrap();
            let port = free_port();
            let _worker = start(&program, running, id, &results, port);
            let mut answer = String::new();
            connect(port).read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        let told = running.aggregator.status().plugins.unwrap();
        assert!(
            told.iter()
                .all(|entry| entry.progress.as_ref().is_some_and(|p| p.msg == "hi")),
            "{told:?}"
        );
        assert_eq!(
            running
                .aggregator
                .wait(&ids[0].plugin, Some(Instant::now()), &Stop::new()),
            WaitOutcome::TimeOver
        );
    });
}

/// A request to the worker's relay, sent as soon as it listens.
fn connect(port: u16) -> TcpStream {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) {
            let body = r#"{"msg":"hi","total":3}"#;
            let head = format!(
                "POST /progress HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: \
                 {}\r\n\r\n",
                body.len()
            );
            socket.write_all((head + body).as_bytes()).unwrap();
            return socket;
        }
        assert!(Instant::now() < deadline, "the relay does not listen");
        Stop::new().wait(Duration::from_millis(20));
    }
}
