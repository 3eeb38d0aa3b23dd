//! The aggregator, attacked over its socket.

#[cfg(target_os = "linux")]
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use base::stop::Stop;
use client::Access;
use sonobuoy::outside::{Limits, serve_alone};

use crate::support::Folder;
use crate::support::peer::Peer;

const PATH: &str = "/api/v1/results/by-node/n/p";
/// Much longer than any step of these tests.
const LONG: Duration = Duration::from_secs(30);

pub struct Aggregator<'a> {
    pub access: &'a Access,
    /// A well-behaved worker.
    pub worker: Peer,
    pub results: PathBuf,
}

/// Runs an aggregator that expects the result of plugin `p` from node `n`.
pub fn with_aggregator(limits: Limits, test: impl FnOnce(&Aggregator<'_>)) {
    let folder = Folder::new();
    let run = folder.path().join("run");
    let (stop, (told, telling)) = (Stop::new(), channel());
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let ready = move |access| told.send(access).unwrap();
            serve_alone(&run, "p", &["n".to_owned()], Some(limits), ready, &stop)
        });
        let ends = StopOnDrop(&stop);
        let access = telling.recv().unwrap();
        let own = Some((access.client_cert.as_str(), access.client_key.as_str()));
        let worker = Peer::new(&access.aggregator_url, &access.ca_cert, own);
        test(&Aggregator {
            access: &access,
            worker,
            results: run.join("plugins/p/results"),
        });
        drop(ends);
        serving.join().unwrap().unwrap();
    });
}

/// A failed assertion must not leave the server running, or the test hangs.
struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Aggregator<'_> {
    pub fn stored(&self) -> Option<String> {
        std::fs::read_to_string(self.results.join("n/result")).ok()
    }

    /// A worker that connects after the attack is served normally.
    pub fn takes_a_result(&self) {
        assert_eq!(files(&self.results), 0, "nothing is stored before");
        let answer = self.worker.say(put("Content-Length: 5\r\n", "whole"));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert_eq!(self.stored().as_deref(), Some("whole"));
    }
}

pub fn put(lines: &str, body: &str) -> String {
    format!("PUT {PATH} HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}")
}

/// A complete upload with arbitrary bytes.
pub fn put_bytes(lines: &str, body: &[u8]) -> Vec<u8> {
    let head = put(
        &format!(
            "{lines}Connection: close\r\nContent-Length: {}\r\n",
            body.len()
        ),
        "",
    );
    [head.as_bytes(), body].concat()
}

/// The number of files below a folder.
pub fn files(path: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(path) else {
        return 0;
    };
    entries
        .map(|entry| entry.unwrap().path())
        .map(|path| if path.is_dir() { files(&path) } else { 1 })
        .sum()
}

#[test]
fn malformed_requests_are_rejected_and_store_no_result() {
    with_aggregator(Limits::default(), |aggregator| {
        let long = format!("X: {}\r\n", "x".repeat(70_000));
        let many = "X: y\r\n".repeat(200);
        let chunked = "Transfer-Encoding: chunked\r\n";
        for (request, status) in [
            (put("Content-Length: +5\r\n", "whole"), 400),
            (put("Content-Length: -5\r\n", "whole"), 400),
            (put("Content-Length: five\r\n", "whole"), 400),
            (put("Content-Length: 5, 5\r\n", "whole"), 400),
            (
                put("Content-Length: 99999999999999999999\r\n", "whole"),
                400,
            ),
            (
                put("Content-Length: 5\r\nContent-Length: 6\r\n", "whole!"),
                400,
            ),
            (
                put(
                    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                    "0\r\n\r\n",
                ),
                400,
            ),
            (put("Transfer-Encoding: gzip\r\n", "whole"), 400),
            (
                put("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"),
                400,
            ),
            (
                put("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
                400,
            ),
            (put("Content-Length : 5\r\n", "whole"), 400),
            (
                put("X: folded\r\n line\r\nContent-Length: 5\r\n", "whole"),
                400,
            ),
            (put("X: bare\nContent-Length: 5\r\n", "whole"), 400),
            (put("X: nul\0\r\nContent-Length: 5\r\n", "whole"), 400),
            (put("Host: two\r\nContent-Length: 5\r\n", "whole"), 400),
            (put(&format!("{long}Content-Length: 5\r\n"), "whole"), 431),
            (put(&format!("{many}Content-Length: 5\r\n"), "whole"), 431),
            (put(chunked, "5\nwhole\r\n0\r\n\r\n"), 400),
            (put(chunked, "0x5\r\nwhole\r\n0\r\n\r\n"), 400),
            (put(chunked, "5\r\nwhole!\r\n0\r\n\r\n"), 400),
            (put(chunked, "fffffffffffffffff\r\nwhole\r\n0\r\n\r\n"), 400),
            (
                put(
                    chunked,
                    &format!("5;{}\r\nwhole\r\n0\r\n\r\n", "x".repeat(5000)),
                ),
                400,
            ),
            (
                put(
                    chunked,
                    &format!("5\r\nwhole\r\n0\r\n{}\r\n", "T: x\r\n".repeat(20_000)),
                ),
                400,
            ),
            (format!("PUT {PATH} HTTP/3.0\r\nHost: a\r\n\r\n"), 505),
            (format!("P(T {PATH} HTTP/1.1\r\nHost: a\r\n\r\n"), 400),
            (format!("PUT {PATH}\r\n\r\n"), 400),
        ] {
            let answer = aggregator.worker.say(&request);
            let shown = &request[..request.len().min(150)];
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{shown:?}: {answer}"
            );
            assert!(answer.contains("connection: close"), "{shown:?}: {answer}");
            assert_eq!(aggregator.stored(), None, "{shown:?}");
        }
        aggregator.takes_a_result();
    });
}

#[test]
fn truncated_body_is_not_stored_and_can_be_resent() {
    with_aggregator(Limits::default(), |aggregator| {
        for start in [
            put("Content-Length: 100\r\n", "half of it"),
            put("Transfer-Encoding: chunked\r\n", "a\r\nhalf of it\r\n"),
            put("Transfer-Encoding: chunked\r\n", "64\r\nhalf of it"),
            put(
                "Content-Type: application/gzip\r\nContent-Length: 100\r\n",
                "\x1f\u{8b}",
            ),
        ] {
            for politely in [true, false] {
                let mut talk = aggregator.worker.connect();
                assert!(talk.begin(&start));
                let answer = talk.leave(politely);
                assert!(answer.starts_with("HTTP/1.1 408 "), "{start:?}: {answer}");
            }
        }
        aggregator.takes_a_result();
    });
}

#[test]
fn unauthenticated_and_plaintext_clients_are_rejected() {
    let short = Duration::from_millis(300);
    let limits = Limits {
        handshake: short,
        waiting_timeout: short,
        ..Limits::default()
    };
    with_aggregator(limits, |aggregator| {
        let Access {
            aggregator_url,
            ca_cert,
            ..
        } = aggregator.access;
        let request = put("Content-Length: 5\r\n", "false");
        let nobody = Peer::new(aggregator_url, ca_cert, None).say(&request);
        assert!(nobody.contains("CertificateRequired"), "{nobody}");

        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["p".to_owned()]).unwrap();
        let own = params.self_signed(&key).unwrap();
        let forged = Peer::new(
            aggregator_url,
            ca_cert,
            Some((&own.pem(), &key.serialize_pem())),
        )
        .say(&request);
        assert!(forged.contains("fatal alert"), "{forged}");

        let before = Instant::now();
        let mut silent = aggregator.worker.plain();
        std::io::copy(&mut silent, &mut std::io::sink()).unwrap();
        assert!(before.elapsed() < LONG, "it was cut off");
        aggregator.takes_a_result();
    });
}

#[test]
fn idle_and_slow_connections_do_not_delay_others() {
    with_aggregator(Limits::default(), |aggregator| {
        let silent: Vec<_> = (0..200).map(|_| aggregator.worker.plain()).collect();
        let slow: Vec<_> = (0..50)
            .map(|_| {
                let mut talk = aggregator.worker.connect();
                assert!(talk.begin(put("Content-Length: 1000000\r\n", "so far")));
                talk
            })
            .collect();
        let before = Instant::now();
        aggregator.takes_a_result();
        assert!(
            before.elapsed() < LONG,
            "no limit of the others was waited for"
        );
        drop((silent, slow));
    });
}

#[test]
#[cfg(target_os = "linux")]
fn flood_of_half_open_connections_delays_no_worker() {
    const ACCEPTED: usize = 100;
    for sent in [&b""[..], b"\x16", b"\x16\x03\x01"] {
        let limits = Limits {
            waiting: ACCEPTED,
            // Nothing of the flood ends by itself.
            waiting_timeout: LONG * 4,
            handshake: LONG * 4,
            threads: 8,
            ..Limits::default()
        };
        with_aggregator(limits, |aggregator| {
            let hostile = aggregator.worker.clone().at(1);
            let flood: Vec<_> = (0..2 * ACCEPTED)
                .map(|_| {
                    let mut socket = hostile.plain();
                    // It may be closed already in favour of others.
                    let _ = socket.write_all(sent);
                    socket
                })
                .collect();
            let begun = Instant::now();
            let beat =
                "GET /api/v1/health/by-node/n/p HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            let answer = aggregator.worker.say(beat);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            aggregator.takes_a_result();
            assert!(
                begun.elapsed() < LONG / 6,
                "{sent:?}: {:?}",
                begun.elapsed()
            );
            drop(flood);
        });
    }
}
