//! `worker`: the real program against an independent receiver.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::faults::injector;
use super::support::receiver::{Aggregator, Certificates, Reply};
use super::support::watchdog::Watchdog;
use super::support::{Folder, Sonobuoy, skipped};

/// A running worker and its results folder.
struct Worker {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    stdout: BufReader<ChildStdout>,
    results: Folder,
    _home: Folder,
    _watchdog: Watchdog,
}

impl Worker {
    /// Starts `worker` with arguments and additional environment variables.
    fn start(
        words: &str,
        certificates: &Certificates,
        address: SocketAddr,
        env: &[(&str, &str)],
    ) -> Self {
        Self::start_under(&[], words, certificates, address, env)
    }

    /// The same, started by another program.
    fn start_under(
        starter: &[&str],
        words: &str,
        certificates: &Certificates,
        address: SocketAddr,
        env: &[(&str, &str)],
    ) -> Self {
        let results = Folder::new();
        let mut run = Sonobuoy::new(&format!("worker {words}"))
            .env("SONOBUOY_RESULTS_DIR", results.path())
            .env("SONOBUOY_DONE_FILE_DELAY", "0s")
            .env("SONOBUOY_PROGRESS_PORT", "0")
            .env("NODE_NAME", "node-1");
        for (name, value) in certificates.env(address, "p") {
            run = run.env(name, value);
        }
        for (name, value) in env {
            run = run.env(name, value);
        }
        let (mut command, home) = run.command();
        if let Some((program, args)) = starter.split_first() {
            let mut outer = Command::new(program);
            outer
                .args(args)
                .arg(command.get_program())
                .args(command.get_args());
            outer.current_dir(home.path()).env_clear();
            outer.envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            command = outer;
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let watchdog = Watchdog::over(&child);
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stderr,
            stdout,
            results,
            _home: home,
            _watchdog: watchdog,
        }
    }

    /// Waits for the announcement of its port, which follows the signal handlers.
    fn is_up(&mut self) -> u16 {
        let mut port = String::new();
        self.stdout.read_line(&mut port).unwrap();
        port.trim().parse().unwrap()
    }

    /// Writes a result and the done file that names it.
    fn finish(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.results.write(name, content);
        self.results.write("done", format!("{}\n", path.display()));
    }

    /// Waits until the worker prints this.
    #[track_caller]
    fn says(&mut self, part: &str) -> String {
        let mut all = Vec::new();
        for line in self.stderr.by_ref() {
            let line = line.unwrap();
            if line.contains(part) {
                return all.join("\n");
            }
            all.push(line);
        }
        panic!("it never said {part:?} but {all:#?}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The worker's exit code and last messages.
    fn end(mut self) -> (Option<i32>, String) {
        let rest = self
            .stderr
            .by_ref()
            .map(|line| line.unwrap() + "\n")
            .collect();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Only a failed test leaves one.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn start(words: &str, replies: &[Reply], env: &[(&str, &str)]) -> (Worker, Aggregator) {
    let certificates = Certificates::new();
    let aggregator = certificates.serve(any_port(), replies);
    let worker = Worker::start(words, &certificates, aggregator.address, env);
    (worker, aggregator)
}

#[test]
fn missing_settings_are_reported_at_once() {
    for words in [
        "worker global",
        "worker job",
        "worker single-node",
        "worker daemonset",
    ] {
        let done = Sonobuoy::new(words)
            .env("RESULT_TYPE", "")
            .env("CA_CERT", "x")
            .status(1)
            .run_any();
        let expected =
            "not set in the environment: AGGREGATOR_URL, CLIENT_CERT, CLIENT_KEY, RESULT_TYPE";
        assert!(done.stderr.contains(expected), "{words}: {}", done.stderr);
        let of_node = words.contains("node") || words.contains("daemonset");
        assert_eq!(
            done.stderr.contains("NODE_NAME"),
            of_node,
            "{words}: {}",
            done.stderr
        );
    }
    let done = Sonobuoy::new("worker global")
        .env("AGGREGATOR_URL", "http://127.0.0.1:1")
        .env("RESULT_TYPE", "p")
        .env("CA_CERT", "x")
        .env("CLIENT_CERT", "x")
        .env("CLIENT_KEY", "x")
        .status(1)
        .run_any();
    assert!(
        done.stderr.contains("must start with `https://`"),
        "{}",
        done.stderr
    );
}

#[test]
fn result_is_sent_like_the_originals() {
    let (worker, aggregator) = start("single-node", &[], &[]);
    worker.finish("junit_01.xml", "<testsuite/>");
    let got = aggregator.next();
    assert_eq!(got.line, "PUT /api/v1/results/by-node/node-1/p");
    assert_eq!(got.body, b"<testsuite/>");
    let header = |name: &str| got.headers.get(name).map(String::as_str);
    assert_eq!(
        header("content-disposition"),
        Some("attachment;filename=junit_01.xml")
    );
    assert_eq!(header("content-type"), Some("text/xml; charset=utf-8"));
    assert_eq!(header("content-length"), Some("12"));
    assert_eq!(header("transfer-encoding"), None);
    assert_eq!(
        header("repr-digest"),
        None,
        "it is digested while it is sent"
    );
    assert_eq!(worker.end().0, Some(0));
}

#[test]
fn repeated_upload_reports_the_earlier_one() {
    let (worker, aggregator) = start("single-node", &[Reply::Status(503)], &[]);
    worker.finish("junit_01.xml", "<testsuite/>");
    let digest =
        |headers: &std::collections::BTreeMap<String, String>| headers.get("repr-digest").cloned();
    assert_eq!(digest(&aggregator.next().headers), None);
    let expected = "sha-256=:VaLE2rvdZB5W4M4oJi4dQ7j/91NM7YWA85ulc+ylbyw=:".to_owned();
    assert_eq!(digest(&aggregator.next().headers), Some(expected));
    assert_eq!(worker.end().0, Some(0));
}

#[test]
fn foreign_path_in_done_file_is_a_plugin_error() {
    let secret = Folder::new();
    let path = secret.write("secret", "secret");
    for (anywhere, is_error) in [("", true), ("true", false)] {
        let (worker, aggregator) = start(
            "single-node",
            &[],
            &[("SONOBUOY_RESULTS_ANYWHERE", anywhere)],
        );
        worker
            .results
            .write("done", format!("{}\n", path.display()));
        let got = aggregator.next();
        let body = String::from_utf8(got.body).unwrap();
        assert_eq!(
            got.headers.contains_key("x-sonobuoy-error"),
            is_error,
            "{body}"
        );
        assert_eq!(
            body.contains("lies outside the results folder"),
            is_error,
            "{body}"
        );
        assert_eq!(body == "secret", !is_error, "{body}");
        assert_eq!(worker.end().0, Some(i32::from(is_error)));
    }
}

#[test]
fn answer_to_a_heartbeat_ends_a_plugin_without_done_file() {
    let (worker, aggregator) = start("global", &[], &[]);
    worker.results.write("a.txt", "a");
    let headers = "X-Sonobuoy-Containers: succeeded-for-good\r\nX-Sonobuoy-Later: x\r\n";
    *aggregator.heartbeat_headers.lock().unwrap() = headers.into();
    let got = aggregator.next();
    assert_eq!(got.headers["content-type"], "application/gzip");
    assert_eq!(worker.end().0, Some(0));
}

#[test]
fn folder_is_sent_as_gzip_tar() {
    let (worker, aggregator) = start("global", &[], &[]);
    worker.results.write("out/a.txt", "a");
    worker
        .results
        .write("done", worker.results.join("out").to_str().unwrap());
    let got = aggregator.next();
    assert_eq!(got.line, "PUT /api/v1/results/global/p");
    assert_eq!(got.headers["content-type"], "application/gzip");
    assert_eq!(
        got.headers["content-disposition"],
        "attachment;filename=results.tar.gz"
    );
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(got.body.as_slice()));
    let mut entry = tar.entries().unwrap().next().unwrap().unwrap();
    assert_eq!(entry.path().unwrap().to_str(), Some("a.txt"));
    let mut text = String::new();
    entry.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), worker.end().0), ("a", Some(0)));
}

#[test]
fn unreadable_result_is_reported_and_fails() {
    let (worker, aggregator) = start("global", &[], &[]);
    worker.results.write("done", "/does/not/exist\n");
    let got = aggregator.next();
    assert_eq!(got.line, "PUT /api/v1/results/global/p");
    assert!(got.headers.contains_key("x-sonobuoy-error"));
    let report: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
    assert!(
        report["error"]
            .as_str()
            .unwrap()
            .contains("`/does/not/exist`"),
        "{report}"
    );
    let (code, said) = worker.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("reported to the aggregator"), "{said}");
}

#[test]
fn status_codes_decide_between_retry_and_failure() {
    for (replies, code, bodies) in [
        (&[Reply::Status(409)][..], 0, 1),
        (&[Reply::Refuse(409)], 0, 0),
        (&[Reply::Refuse(403)], 1, 0),
        (&[Reply::Status(404)], 1, 1),
        // The bytes are the problem, so a report follows.
        (&[Reply::Status(413)], 1, 2),
        (
            &[Reply::Status(503), Reply::Status(429), Reply::Status(408)],
            0,
            4,
        ),
        (&[Reply::Cut, Reply::Cut], 0, 1),
    ] {
        let (worker, aggregator) = start("global", replies, &[]);
        worker.finish("a.txt", vec![b'x'; 1 << 20]);
        let (got, said) = worker.end();
        assert_eq!(got, Some(code), "{said}");
        for _ in 0..bodies {
            aggregator.next();
        }
        assert!(aggregator.is_empty(), "{said}");
    }
}

#[test]
fn worker_waits_for_an_absent_aggregator() {
    let certificates = Certificates::new();
    // A port that was free a moment ago.
    let address = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let mut worker = Worker::start("global", &certificates, address, &[]);
    worker.finish("a.txt", "a");
    worker.says("attempt 3");
    let aggregator = certificates.serve(address, &[]);
    assert_eq!(aggregator.next().body, b"a");
    assert_eq!(worker.end().0, Some(0));
}

#[test]
fn worker_fails_at_its_deadline_without_aggregator() {
    let certificates = Certificates::new();
    let address = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let worker = Worker::start(
        "global",
        &certificates,
        address,
        &[("SONOBUOY_UPLOAD_LIMIT", "300ms")],
    );
    worker.finish("a.txt", "a");
    let (code, said) = worker.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("gave up on"), "{said}");
}

#[test]
fn peers_of_other_runs_are_rejected() {
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    let aggregator = theirs.serve(any_port(), &[]);
    let worker = Worker::start("global", &ours, aggregator.address, &[]);
    worker.finish("a.txt", "a");
    let (code, said) = worker.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot establish trust"), "{said}");

    // The worker trusts the aggregator, but not vice versa.
    let mut mixed = ours.env(aggregator.address, "p");
    mixed.retain(|(name, _)| name.starts_with("CLIENT"));
    let mixed: Vec<_> = mixed
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let worker = Worker::start("global", &theirs, aggregator.address, &mixed);
    worker.finish("a.txt", "a");
    let (code, said) = worker.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot establish trust"), "{said}");
    assert!(aggregator.is_empty());
}

#[test]
fn termination_leaves_time_for_a_result() {
    let (mut worker, aggregator) = start("global", &[], &[]);
    worker.is_up();
    worker.signal(Signal::TERM);
    worker.says("continuing for 60s");
    worker.finish("a.txt", "late");
    assert_eq!(aggregator.next().body, b"late");
    assert_eq!(worker.end().0, Some(0));
}

#[test]
fn termination_ends_the_worker_at_its_deadline() {
    let (mut worker, aggregator) = start("global", &[], &[("SONOBUOY_SHUTDOWN_GRACE", "100ms")]);
    worker.is_up();
    worker.signal(Signal::TERM);
    let (code, said) = worker.end();
    assert_eq!(code, Some(0));
    assert!(said.contains("submitting nothing"), "{said}");
    assert!(aggregator.is_empty());
}

#[test]
fn daemon_set_worker_sleeps_after_success() {
    let (mut worker, aggregator) = start(
        "single-node --sleep=-1 --level=trace -v=6 --logtostderr",
        &[],
        &[],
    );
    worker.finish("a.txt", "whole-result");
    aggregator.next();
    let said = worker.says("msg=\"Results transmitted to aggregator.  Sleeping forever.\"");
    assert!(worker.child.try_wait().unwrap().is_none());
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().0, Some(0));
    // The HTTP client would log every byte.
    assert!(
        !said.contains("whole-result") && !said.contains("HTTP/1.1"),
        "{said}"
    );

    let (worker, aggregator) = start("single-node --sleep=1", &[], &[]);
    worker.finish("a.txt", "x");
    aggregator.next();
    let (code, said) = worker.end();
    assert_eq!(code, Some(0));
    assert!(
        said.contains("msg=\"Results transmitted to aggregator. Sleeping for 1 seconds\""),
        "{said}"
    );
}

#[test]
fn progress_on_a_shared_port_is_rejected() {
    let (mut worker, aggregator) = start("global", &[Reply::Status(418)], &[]);
    let port = worker.is_up();
    let post = || {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket
            .write_all(b"POST /progress HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 11\r\n\r\n{\"total\":3}")
            .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    for header in [
        "host: evil.example",
        "host: localhost\r\norigin: http://localhost",
        "host: localhost:1",
    ] {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let head = format!(
            "POST /shared HTTP/1.1\r\n{header}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 403"),
            "a page in a browser sends {header}: {answer}"
        );
    }
    let answer = post();
    assert!(
        answer.starts_with("HTTP/1.1 418"),
        "the aggregator's own answer: {answer}"
    );
    let got = aggregator.next();
    assert_eq!(
        (got.line.as_str(), got.body.as_slice()),
        ("POST /api/v1/progress/global/p", &b"{\"total\":3}"[..])
    );

    let number = port.to_string();
    let (mut other, other_aggregator) =
        start("global", &[], &[("SONOBUOY_PROGRESS_PORT", &number)]);
    other.says("progress of the plugin is not relayed: port");
    // Both runs show the reason.
    for aggregator in [&other_aggregator, &aggregator] {
        let told = String::from_utf8(aggregator.next().body).unwrap();
        assert!(told.contains("progress is not relayed: "), "{told}");
    }
    let answer = post();
    assert!(
        answer.starts_with("HTTP/1.1 409") && answer.contains("given the same port"),
        "{answer}"
    );
    worker.finish("a.txt", "a");
    assert_eq!(aggregator.next().body, b"a", "no progress came before");
    other.finish("a.txt", "a");
    assert_eq!(other_aggregator.next().body, b"a");
    assert_eq!(other.end().0, Some(0));
    drop(worker);
}

#[test]
fn worker_polls_without_inotify() {
    // In a separate user namespace the limit affects no other process.
    let starter = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"",
        "sh",
    ];
    let possible = Command::new(starter[0])
        .args(&starter[1..])
        .arg("true")
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return skipped("user-namespaces", "a separate limit needs a user namespace");
    }
    let certificates = Certificates::new();
    let aggregator = certificates.serve(any_port(), &[]);
    let mut worker =
        Worker::start_under(&starter, "global", &certificates, aggregator.address, &[]);
    worker.says("no file events");
    worker.finish("a.txt", "a");
    assert_eq!(aggregator.next().body, b"a");
    assert_eq!(worker.end().0, Some(0));
}

#[test]
fn worker_polls_if_the_thread_for_events_cannot_start() {
    let folder = Folder::new();
    let Some(library) = injector(&folder) else {
        return;
    };
    let preload = format!("LD_PRELOAD={}", library.display());
    let certificates = Certificates::new();
    let aggregator = certificates.serve(any_port(), &[]);
    let (mut polls, mut optional) = (0, 0);
    for number in 1..=8 {
        let fault = format!("FAULTS=thread {number} 1 11");
        let starter = ["env", &preload, &fault, "FAULTS_BELOW=/"];
        let worker =
            Worker::start_under(&starter, "global", &certificates, aggregator.address, &[]);
        worker.finish("a.txt", "a");
        let (code, told) = worker.end();
        assert!(
            code.is_some() && !told.contains("this is a bug"),
            "{number}: {told}"
        );
        polls += usize::from(told.contains("no file events"));
        // Without progress, the result arrives all the same.
        if told.contains("not relayed: cannot start thread `") {
            optional += 1;
            assert_eq!(code, Some(0), "{number}: {told}");
        }
    }
    assert_eq!(polls, 1);
    // Two addresses of the relay, if this machine has both, and the log of a suite.
    assert!((2..=3).contains(&optional), "{optional}");
}
