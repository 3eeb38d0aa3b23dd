//! Workers and foreign clients against a running aggregator, over real mutual TLS.

use std::time::{Duration, Instant};

use super::fixture::{Scratch, limits, tar_gz};
use super::server::{Connection, access, serving};
use crate::aggregator::{Aggregator, AggregatorSettings, WaitOutcome};
use crate::backplane::Authority;
use base::stop::Stop;
use client::Submitted;
use client::protocol::{ContainersEnd, Failure, Finding, Progress, ResultId};
use model::status;

fn node(name: &str) -> ResultId {
    ResultId::on_node("p", name)
}

fn settings() -> AggregatorSettings {
    AggregatorSettings {
        limits: limits(),
        ..AggregatorSettings::default()
    }
}

#[test]
fn every_route_responds_as_documented() {
    let scratch = Scratch::new();
    let ids = [node("n1"), node("n2"), ResultId::global("q")];
    serving(&scratch.run(), &ids, settings(), |running| {
        let check = |plugin: &str, start: &str, headers: &str, body: &[u8], expected: u16| {
            let (status, text) = running.ask(plugin, start, headers, body);
            assert_eq!(status, expected, "{plugin}: {start}: {text}");
            text
        };
        let n1 = "PUT /api/v1/results/by-node/n1/p";
        check("q", n1, "", b"1", 403);
        check("p", "PUT /api/v1/results/by-node/n3/p", "", b"1", 403);
        check("p", "PUT /api/v1/results/global/p", "", b"1", 403);
        check("p", "PUT /api/v1/results/global", "", b"1", 404);
        check("p", "GET /", "", b"", 404);
        let text = check("p", "GET /api/v1/results/by-node/n1/p", "", b"", 405);
        assert!(text.contains("\r\nallow: PUT\r\n"), "{text}");
        assert!(
            text.ends_with("\r\n\r\nthis path takes PUT, not GET\n"),
            "{text}"
        );
        let digest = "Repr-Digest: sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:\r\n";
        check("p", n1, digest, b"not abc", 400);
        check("p", n1, "Repr-Digest: sha-256=abc\r\n", b"abc", 400);
        check(
            "p",
            n1,
            "Content-Type: application/gzip\r\n",
            b"no gzip at all",
            500,
        );
        check("p", n1, "", &vec![0; (2 << 20) + 1], 413);
        let text = check(
            "p",
            n1,
            &format!("{digest}Content-Disposition: attachment;filename=a.txt\r\n"),
            b"abc",
            200,
        );
        assert!(
            text.contains(
                "\r\nrepr-digest: sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:\r\n"
            ),
            "{text}"
        );
        assert!(text.ends_with("\r\n\r\n"), "no body: {text}");
        check("p", n1, "", b"again", 409);
        check(
            "p",
            "PUT /api/v1/results/by_node/n2/p?x=y",
            "Content-Disposition: a;filename=\"../b\"\r\n",
            b"2",
            200,
        );
        for path in ["progress/by-node/n1/p", "progress/by_node/n2/p"] {
            check(
                "p",
                &format!("POST /api/v1/{path}"),
                "",
                br#"{"msg":"hi","total":2}"#,
                200,
            );
        }
        check("p", "POST /api/v1/progress/by-node/n3/p", "", b"{}", 403);
        for (body, reason) in [
            (&b""[..], "EOF while parsing"),
            (br#"{"total":"five"}"#, "invalid type: string \"five\""),
            (b"[]", "invalid type: sequence, expected a progress update"),
        ] {
            let text = check("q", "POST /api/v1/progress/global/q", "", body, 400);
            let line = text.lines().last().unwrap();
            assert!(
                line.starts_with("the progress is malformed: ") && line.contains(reason),
                "{text}"
            );
        }
        check(
            "q",
            "POST /api/v1/progress/global/q",
            "",
            &vec![b' '; (4 << 20) + 1],
            413,
        );
        check("q", "GET /api/v1/health/global/q", "", b"", 200);
        check("p", "GET /api/v1/health/by-node/n3/p", "", b"", 403);
        check("p", "GET /api/v1/health/global/q", "", b"", 403);
        assert_eq!(running.aggregator.outstanding(), [ResultId::global("q")]);
        let run = running.aggregator.status();
        let entries = run.plugins.unwrap();
        let told = entries
            .iter()
            .map(|entry| entry.progress.as_ref().map(|p| (p.node.as_str(), p.total)));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [Some(("n1", 2)), Some(("n2", 2)), None]
        );
        assert!(entries[2].last_heartbeat.is_some());
        assert_eq!(
            (run.status.as_str(), run.percent_complete),
            (status::RUNNING, Some(0.6666))
        );
    });
    let results = ["plugins/p/results/n1/a.txt=abc", "plugins/p/results/n2/b=2"];
    assert_eq!(
        scratch.tree(),
        [&["plugins/p/errors/"][..], &results].concat()
    );
    assert_eq!(scratch.leftovers(), 0);
}

#[test]
fn client_and_server_interoperate() {
    let scratch = Scratch::new();
    let ids = [node("dir"), node("bytes"), node("error")];
    serving(&scratch.run(), &ids, settings(), |running| {
        let folder = scratch.run().with_file_name("run-source");
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::write(folder.join("sub/x"), "1").unwrap();
        let [dir, bytes, error] = ids.each_ref().map(|id| running.client(id));
        assert_eq!(dir.heartbeat().unwrap(), None);
        for end in [
            Some(ContainersEnd::Succeeded),
            Some(ContainersEnd::SucceededForGood),
            None,
        ] {
            running
                .aggregator
                .store
                .lock()
                .containers_ended(&ids[0], end);
            assert_eq!(
                (dir.heartbeat().unwrap(), bytes.heartbeat().unwrap()),
                (end, None)
            );
        }
        dir.progress(&Progress {
            msg: "on the way".into(),
            ..Progress::default()
        })
        .unwrap();
        assert_eq!(dir.submit_directory(&folder).unwrap(), Submitted::Accepted);
        assert_eq!(
            bytes.submit_bytes("a b.json", b"{}").unwrap(),
            Submitted::Accepted
        );
        assert_eq!(
            bytes.submit_bytes("a.json", b"{}").unwrap(),
            Submitted::AlreadyThere
        );
        assert_eq!(
            error.submit_error("no such file").unwrap(),
            Submitted::Accepted
        );
        assert_eq!(
            running.aggregator.wait("p", None, &Stop::new()),
            WaitOutcome::Complete
        );
    });
    assert_eq!(
        scratch.tree(),
        [
            r#"plugins/p/errors/error/error.json={"error":"no such file"}"#,
            "plugins/p/results/bytes/a b.json={}",
            "plugins/p/results/dir/sub/x=1",
        ]
    );
}

#[test]
fn certificates_of_another_run_are_rejected() {
    let scratch = Scratch::new();
    serving(&scratch.run(), &[node("n")], settings(), |running| {
        let own = access(running.aggregator.authority(), running.address, "p");
        let other = Authority::new(Duration::from_secs(60)).unwrap();
        let mut foreign = access(&other, running.address, "p");
        foreign.ca_cert.clone_from(&own.ca_cert);
        let mut connection = Connection::open(&foreign, running.address).unwrap();
        connection.write(
            b"PUT /api/v1/results/by-node/n/p HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n1",
        );
        assert_eq!(connection.answer().0, 0, "a certificate of another run");
        assert_eq!(running.aggregator.outstanding().len(), 1);
    });
}

#[test]
fn refusals_precede_the_body_with_expect_continue() {
    let scratch = Scratch::new();
    serving(&scratch.run(), &[node("n")], settings(), |running| {
        let ask = |path: &str, length: u64| {
            let mut connection = running.connect("p");
            let head = format!(
                "PUT {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: \
                 {length}\r\n\r\n"
            );
            connection.write(head.as_bytes());
            connection.answer().0
        };
        assert_eq!(ask("/api/v1/results/by-node/x/p", 1 << 50), 403);
        assert_eq!(ask("/api/v1/results/by-node/n/p", 1 << 50), 413);
    });
}

#[test]
fn truncated_body_leaves_no_result_and_can_be_resent() {
    let scratch = Scratch::new();
    let tar = tar_gz(&[(tar::EntryType::Regular, "x", 0o644, "", b"1")]);
    serving(&scratch.run(), &[node("n")], settings(), |running| {
        for headers in [
            "Content-Length: 9999",
            "Transfer-Encoding: chunked",
            "Content-Type: application/gzip\r\nContent-Length: 9999",
        ] {
            let mut connection = running.connect("p");
            connection.write(
                format!("PUT /api/v1/results/by-node/n/p HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n")
                    .as_bytes(),
            );
            connection.write(b"400\r\n");
            connection.write(&tar);
            drop(connection);
        }
        assert_eq!(
            running
                .client(&node("n"))
                .submit_bytes("whole", b"1")
                .unwrap(),
            Submitted::Accepted
        );
    });
    assert_eq!(scratch.tree(), ["plugins/p/results/n/whole=1"]);
    assert_eq!(scratch.leftovers(), 0);
}

#[test]
fn slow_sender_delays_no_other() {
    let scratch = Scratch::new();
    let ids: Vec<ResultId> = (0..20).map(|number| node(&number.to_string())).collect();
    serving(&scratch.run(), &ids, settings(), |running| {
        let mut slow = running.connect("p");
        slow.write(b"PUT /api/v1/results/by-node/0/p HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\nab");
        for id in &ids[1..] {
            assert_eq!(
                running.client(id).submit_bytes("f", b"1").unwrap(),
                Submitted::Accepted
            );
        }
        assert_eq!(running.aggregator.outstanding(), ids[..1]);
        slow.write(b"cd");
        assert_eq!(slow.answer().0, 200);
        assert_eq!(
            running.aggregator.wait("p", None, &Stop::new()),
            WaitOutcome::Complete
        );
    });
}

#[test]
fn late_results_replace_reported_failures() {
    let scratch = Scratch::new();
    let ids = [node("a"), node("b")];
    serving(&scratch.run(), &ids, settings(), |running| {
        let timeout = Failure::timed_out(node("a"), "late");
        running.failures.send(Finding::Failure(timeout)).unwrap();
        while running.aggregator.outstanding().len() > 1 {
            std::thread::yield_now();
        }
        let entry = running.aggregator.status().plugins.unwrap().remove(0);
        assert_eq!(
            (entry.status.as_str(), entry.timed_out),
            (status::FAILED, true)
        );
        running.aggregator.store.end_plugin("p", |id| {
            Failure::new(id, "the plugin could not be launched")
        });
        assert_eq!(
            running.aggregator.wait("p", None, &Stop::new()),
            WaitOutcome::Complete
        );
        assert_eq!(running.aggregator.status().status, status::POST_PROCESSING);
        assert_eq!(
            running.client(&ids[0]).submit_bytes("late", b"1").unwrap(),
            Submitted::Accepted
        );
        let entry = running.aggregator.status().plugins.unwrap().remove(0);
        assert_eq!(
            (entry.status.as_str(), entry.timed_out, entry.message),
            (status::COMPLETE, false, None)
        );
    });
    let [error, late] = &scratch.tree()[..] else {
        panic!("{:?}", scratch.tree())
    };
    assert!(
        error.starts_with("plugins/p/errors/b/error.json"),
        "{error}"
    );
    assert_eq!(late, "plugins/p/results/a/late=1");
}

#[test]
fn waiting_ends_with_time_limit_stop_and_closed_windows() {
    let scratch = Scratch::new();
    let ids = [node("a")];
    let settings = AggregatorSettings {
        retry_window: Duration::from_millis(300),
        ..settings()
    };
    serving(&scratch.run(), &ids, settings, |running| {
        let stop = Stop::new();
        let soon = Some(Instant::now() + Duration::from_millis(10));
        assert_eq!(
            running.aggregator.wait("p", soon, &stop),
            WaitOutcome::TimeOver
        );
        assert_eq!(
            running.aggregator.wait("other", None, &stop),
            WaitOutcome::Complete
        );
        stop.stop();
        assert_eq!(
            running.aggregator.wait("p", None, &stop),
            WaitOutcome::Stopped
        );
        let path = "PUT /api/v1/results/by-node/a/p";
        assert_eq!(
            running
                .ask("p", path, "Content-Type: application/gzip\r\n", b"bad")
                .0,
            500
        );
        assert_eq!(
            running.aggregator.outstanding(),
            ids,
            "it may be sent again"
        );
        assert_eq!(
            running.aggregator.wait("p", None, &Stop::new()),
            WaitOutcome::Complete
        );
        let message = running
            .aggregator
            .status()
            .plugins
            .unwrap()
            .remove(0)
            .message
            .unwrap();
        assert!(message.contains("gzip tar is damaged"), "{message}");
    });
}

#[test]
#[allow(clippy::print_stdout, reason = "only the test runner sees it")]
fn full_disk_is_reported_and_recovers() {
    let scratch = Scratch::new();
    let mount = scratch.run().with_file_name("run-disk");
    std::fs::create_dir_all(&mount).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(&mount)
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        println!("skipped: a small disk can be mounted only by root");
        return;
    }
    let _unmount = Unmount(mount.clone());
    let ballast = mount.join("ballast");
    std::fs::write(&ballast, vec![0; 3 << 20]).unwrap();
    let ids = [node("a"), node("b")];
    let path = "PUT /api/v1/results/by-node/a/p";
    let body = vec![7; (1 << 20) + (512 << 10)];
    // The disk fills up during the body.
    serving(&mount.join("run"), &ids, settings(), |running| {
        let mut connection = running.connect("p");
        connection.write(
            format!(
                "{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: \
                 chunked\r\n\r\n180000\r\n"
            )
            .as_bytes(),
        );
        connection.write(&body);
        connection.write(b"\r\n0\r\n\r\n");
        let (status, text) = connection.answer();
        assert_eq!(status, 507, "{text}");
        let message = running
            .aggregator
            .status()
            .plugins
            .unwrap()
            .remove(0)
            .message
            .unwrap();
        assert!(message.contains("disk is full"), "{message}");
        std::fs::remove_file(&ballast).unwrap();
        assert_eq!(
            running.ask("p", path, "", &body).0,
            200,
            "there is room again"
        );
    });
    // The reserve stays free.
    let mut settings = settings();
    settings.limits.results.free_bytes = 2 << 20;
    serving(&mount.join("run"), &ids, settings, |running| {
        let (status, text) = running.ask("p", "PUT /api/v1/results/by-node/b/p", "", &body);
        assert_eq!(status, 507, "{text}");
        assert!(text.contains("stay in reserve"), "{text}");
    });
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn status_is_published_on_change_and_at_the_end() {
    let scratch = Scratch::new();
    let id = ResultId::global("p");
    let settings = AggregatorSettings {
        publish_every: Duration::from_millis(10),
        ..settings()
    };
    serving(
        &scratch.run(),
        std::slice::from_ref(&id),
        settings,
        |running| {
            let stop = Stop::new();
            let (sender, published) = std::sync::mpsc::channel();
            let mut failing = 2;
            std::thread::scope(|scope| {
                let publisher = scope.spawn(|| {
                    running.aggregator.publish(&stop, |run| {
                        if failing > 0 {
                            failing -= 1;
                            anyhow::bail!("unreachable");
                        }
                        sender.send(run.clone())?;
                        Ok(())
                    });
                });
                let next = || published.recv_timeout(Duration::from_secs(30)).unwrap();
                assert_eq!(next().status, status::RUNNING, "what failed is sent again");
                running.client(&id).submit_bytes("f", b"1").unwrap();
                while next().status != status::POST_PROCESSING {}
                let archive = status::Archive {
                    name: "a.tar.gz".into(),
                    ..status::Archive::default()
                };
                assert_eq!(running.aggregator.last_status(&archive).archive, archive);
                running.aggregator.finished(archive.clone());
                stop.stop();
                publisher.join().unwrap();
                let last = published.try_iter().last().unwrap();
                assert_eq!(
                    (last.status.as_str(), last.archive),
                    (status::COMPLETE, archive)
                );
            });
        },
    );
}

#[test]
fn pauses_between_failed_publications_grow() {
    let scratch = Scratch::new();
    let settings = AggregatorSettings {
        publish_every: Duration::from_millis(20),
        ..settings()
    };
    let aggregator = Aggregator::open(&scratch.run(), &[node("a")], settings).unwrap();
    let (stop, begun, mut attempts) = (Stop::new(), std::time::Instant::now(), 0);
    aggregator.publish(&stop, |_| {
        attempts += 1;
        if attempts == 6 {
            stop.stop();
        }
        anyhow::bail!("unreachable")
    });
    // 40, 80, 160, 320 and 640 ms, instead of 20 each.
    assert!(
        begun.elapsed() >= Duration::from_millis(1_240),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn authority_of_a_run_is_kept_and_private() {
    let scratch = Scratch::new();
    let open = || Aggregator::open(&scratch.run(), &[node("a")], settings()).unwrap();
    let before = open().authority().certificate_pem();
    assert_eq!(open().authority().certificate_pem(), before);
    let state = model::layout::state_dir(&scratch.run());
    let mode = |path: &std::path::Path| base::sys::mode(&std::fs::metadata(path).unwrap()) & 0o777;
    assert_eq!(
        (mode(&state), mode(&state.join("authority.pem"))),
        (0o700, 0o600)
    );
}

#[test]
#[allow(clippy::print_stdout, reason = "only the test runner sees it")]
fn documented_curl_example_works() {
    let there = |program: &str| {
        let version = std::process::Command::new(program).arg("version").output();
        version.is_ok()
            || std::process::Command::new(program)
                .arg("--version")
                .output()
                .is_ok()
    };
    if !["curl", "openssl", "tar", "base64"].into_iter().all(there) {
        println!("skipped: curl, openssl, tar or base64 is not installed");
        return;
    }
    let text = include_str!("../../../../docs/protocol.md");
    let example = text
        .split("```sh\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let scratch = Scratch::new();
    let id = ResultId::global("p");
    serving(
        &scratch.run(),
        std::slice::from_ref(&id),
        settings(),
        |running| {
            let folder = |name: &str| {
                let path = scratch.run().with_file_name(name);
                std::fs::create_dir_all(&path).unwrap();
                path
            };
            let (work, results) = (folder("run-work"), folder("run-results"));
            std::fs::write(results.join("report.xml"), "<x/>").unwrap();
            let access = access(running.aggregator.authority(), running.address, "p");
            let run = |plugin: &str| {
                let url =
                    |kind: &str| format!("{}/api/v1/{kind}/global/{plugin}", access.aggregator_url);
                let output = std::process::Command::new("sh")
                    .args(["-eu", "-c", example])
                    .current_dir(&work)
                    .env("AGGREGATOR_URL", &access.aggregator_url)
                    .env("CA_CERT", &access.ca_cert)
                    .env("CLIENT_CERT", &access.client_cert)
                    .env("CLIENT_KEY", &access.client_key)
                    .env("SONOBUOY_RESULT_URL", url("results"))
                    .env("SONOBUOY_PROGRESS_URL", url("progress"))
                    .env("SONOBUOY_RESULTS_DIR", &results)
                    .output()
                    .unwrap();
                (
                    output.status.success(),
                    String::from_utf8(output.stderr).unwrap(),
                )
            };
            // The second upload conflicts with the stored result, which is success.
            assert_eq!(
                [run("p"), run("p")],
                [(true, String::new()), (true, String::new())]
            );
            // A final response ends the upload at once.
            let (ended_well, said) = run("q");
            assert!(!ended_well && said.starts_with("answered 403: "), "{said}");
            assert_eq!(
                running.aggregator.status().plugins.unwrap()[0]
                    .progress
                    .as_ref()
                    .unwrap()
                    .msg,
                "packing"
            );
        },
    );
    assert_eq!(scratch.tree(), ["plugins/p/results/global/report.xml=<x/>"]);
}

#[test]
fn joining_node_is_expected_and_trouble_shown_until_it_passes() {
    let scratch = Scratch::new();
    let ids = [node("a")];
    let joined = node("b");
    serving(&scratch.run(), &ids, settings(), |running| {
        running
            .failures
            .send(Finding::Expect(joined.clone()))
            .unwrap();
        running
            .failures
            .send(Finding::Trouble(joined.clone(), Some("no image".into())))
            .unwrap();
        let entry = || {
            running
                .aggregator
                .status()
                .plugins
                .unwrap()
                .get(1)
                .and_then(|entry| entry.message.clone())
        };
        while entry().as_deref() != Some("no image") {
            std::thread::yield_now();
        }
        running
            .failures
            .send(Finding::Trouble(joined.clone(), None))
            .unwrap();
        while entry().is_some() {
            std::thread::yield_now();
        }
        assert_eq!(
            running.client(&joined).submit_bytes("f", b"1").unwrap(),
            Submitted::Accepted
        );
        running
            .failures
            .send(Finding::Failure(Failure::skipped(
                node("a"),
                "node deleted",
            )))
            .unwrap();
        assert_eq!(
            running.aggregator.wait("p", None, &Stop::new()),
            WaitOutcome::Complete
        );
        let entry = running.aggregator.status().plugins.unwrap().remove(0);
        assert_eq!(
            (entry.status.as_str(), entry.result_status.as_str()),
            (status::COMPLETE, "skipped")
        );
    });
    let again = Aggregator::open(&scratch.run(), &ids, settings()).unwrap();
    let known: Vec<String> = again
        .store
        .lock()
        .received()
        .into_iter()
        .map(|received| received.node)
        .collect();
    assert_eq!(known, ["a", "b"], "who joined is remembered");
}

#[test]
fn only_the_exact_content_type_is_unpacked() {
    let scratch = Scratch::new();
    let tar = tar_gz(&[(tar::EntryType::Regular, "x", 0o644, "", b"x")]);
    let kinds = [
        "application/x-gzip",
        "application/gzip; x=y",
        "Application/gzip",
        "",
        "application/gzip",
    ];
    let ids: Vec<_> = (0..kinds.len())
        .map(|number| node(&number.to_string()))
        .collect();
    serving(&scratch.run(), &ids, settings(), |running| {
        for (number, kind) in kinds.into_iter().enumerate() {
            let start = format!("PUT /api/v1/results/by-node/{number}/p");
            let (status, text) =
                running.ask("p", &start, &format!("Content-Type: {kind}\r\n"), &tar);
            assert_eq!(status, 200, "{text}");
        }
    });
    let names: Vec<String> = scratch
        .tree()
        .iter()
        .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
        .collect();
    let expected = ["0/result", "1/result", "2/result", "3/result", "4/x"];
    assert_eq!(
        names,
        expected.map(|name| format!("plugins/p/results/{name}"))
    );
}
