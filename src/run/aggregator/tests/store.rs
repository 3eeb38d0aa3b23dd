//! The store alone: accepted results, replacements, and leftovers of a crash.

use std::collections::HashSet;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use tar::EntryType as Kind;

use super::fixture::{Scratch, bomb, limits, plain, put, put_tar, send, tar_gz};
use crate::aggregator::limits::Refusal;
use crate::aggregator::run::ResultState;
use crate::aggregator::run::Sender;
use crate::aggregator::store::{Store, Upload};
use client::protocol::{Failure, FailureKind, ResultId};
use http::Meter;
use model::config;
use model::layout::{self, JOURNAL, state_dir};

fn node(name: &str) -> ResultId {
    ResultId::on_node("p", name)
}

#[track_caller]
fn check(result: Result<(), Refusal>, expected: u16) {
    let got = result.as_ref().map_or_else(Refusal::code, |()| 200);
    assert_eq!(got, expected, "{result:?}");
}

fn settled(store: &Store, id: &ResultId) -> bool {
    store.lock().result(id).is_some_and(ResultState::settled)
}

#[test]
fn files_and_archives_are_stored_in_the_documented_layout() {
    let scratch = Scratch::new();
    let global = ResultId::global("e2e");
    let store = scratch.open(&[node("a"), node("b"), global.clone()]);
    check(put(&store, &node("a"), "a.xml", b"<a/>"), 200);
    let tar = tar_gz(&[
        (Kind::Directory, "./", 0o000, "", b""),
        (Kind::Regular, "./e2e.log", 0o644, "", b"log"),
        (Kind::Regular, "deep/er/junit.xml", 0o400, "", b"<x/>"),
    ]);
    check(put_tar(&store, &global, &tar), 200);
    check(send(&store, &node("b"), plain(b"")), 200);
    assert_eq!(
        scratch.tree(),
        [
            "plugins/e2e/results/global/deep/er/junit.xml=<x/>",
            "plugins/e2e/results/global/e2e.log=log",
            "plugins/p/results/a/a.xml=<a/>",
            "plugins/p/results/b/result=",
        ]
    );
    assert_eq!(scratch.leftovers(), 0);
}

#[test]
fn duplicates_and_unexpected_results_are_refused() {
    let scratch = Scratch::new();
    let store = scratch.open(&[node("a")]);
    check(put(&store, &node("x"), "a", b"1"), 403);
    check(put(&store, &ResultId::global("p"), "a", b"1"), 403);
    check(put(&store, &node("a"), "a", b"1"), 200);
    check(put(&store, &node("a"), "b", b"2"), 409);
    assert_eq!(scratch.tree(), ["plugins/p/results/a/a=1"]);
}

#[test]
fn failed_upload_leaves_nothing_and_can_be_repeated() {
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    let good = tar_gz(&[(Kind::Regular, "only", 0o644, "", b"1")]);
    let noise: Vec<u8> = (0..4_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let large = tar_gz(&[
        (Kind::Regular, "first", 0o444, "", b"1"),
        (Kind::Regular, "second", 0o644, "", &noise),
    ]);
    for end in [0, 1, 5, large.len() / 2, large.len() - 1] {
        check(put_tar(&store, &id, &large[..end]), 500);
    }
    let mut corrupt = large.clone();
    corrupt[large.len() / 2] ^= 0xff;
    check(put_tar(&store, &id, &corrupt), 500);
    check(put_tar(&store, &id, b"no gzip"), 500);
    assert!(!settled(&store, &id), "it may be repeated");
    assert!(
        store
            .lock()
            .document(std::time::Instant::now())
            .plugins
            .unwrap()[0]
            .message
            .is_some()
    );
    check(put_tar(&store, &id, &good), 200);
    assert_eq!(
        scratch.tree(),
        ["plugins/p/results/a/only=1"],
        "nothing of the failed ones is left"
    );
    assert_eq!(scratch.leftovers(), 0);
}

#[test]
fn spoiled_uploads_fail_after_their_window() {
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    check(put_tar(&store, &id, b"no gzip"), 500);
    store.give_up(Duration::from_secs(60));
    assert!(!settled(&store, &id));
    store.give_up(Duration::ZERO);
    assert!(settled(&store, &id));
    assert!(
        scratch.tree()[0].starts_with(
            "plugins/p/errors/a/error.json={\"error\":\"the result could not be stored"
        )
    );
    check(put(&store, &id, "late", b"1"), 200);
    assert_eq!(
        scratch.tree(),
        ["plugins/p/errors/", "plugins/p/results/a/late=1"]
    );
}

#[test]
fn hostile_archives_stay_in_their_folder() {
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    let tar = tar_gz(&[
        (Kind::Regular, "../../../../../climbed", 0o644, "", b"1"),
        (Kind::Regular, "/absolute", 0o4755, "", b"2"),
        (Kind::Symlink, "out", 0o777, "../../../../..", b""),
        (Kind::Regular, "out/through", 0o644, "", b"3"),
        (Kind::Symlink, "etc", 0o777, "/etc", b""),
        (Kind::Link, "hard", 0o644, "/etc/passwd", b""),
        (Kind::Char, "null", 0o666, "", b""),
        (Kind::Block, "disk", 0o666, "", b""),
        (Kind::Fifo, "pipe", 0o666, "", b""),
        (Kind::Directory, "closed", 0o000, "", b""),
        (Kind::Regular, "closed/inside", 0o000, "", b"4"),
    ]);
    check(put_tar(&store, &id, &tar), 200);
    assert_eq!(scratch.strangers(), Vec::<String>::new());
    let tree = scratch.tree();
    for line in &tree {
        assert!(
            !line.contains("climbed") && !line.contains("null") && !line.contains("pipe"),
            "{tree:?}"
        );
        assert!(
            !line.contains("etc@") && !line.contains("disk") && !line.contains("hard"),
            "{tree:?}"
        );
    }
    assert!(
        tree.contains(&"plugins/p/results/a/closed/inside=4".to_owned()),
        "{tree:?}"
    );
    let mode = |name: &str| {
        let path = scratch.run().join("plugins/p/results/a").join(name);
        base::sys::mode(&std::fs::metadata(path).unwrap())
    };
    let dropped = &store.lock().received()[0].receipt.dropped;
    assert_eq!((dropped.entries, dropped.first.len()), (7, 5), "{dropped}");
    assert_eq!(mode("absolute") & 0o7000, 0, "set-user-id bits are dropped");
    assert_eq!(mode("closed") & 0o700, 0o700, "folders stay removable");
}

#[test]
fn archive_without_its_end_is_refused_with_the_cause() {
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    let whole = tar_gz(&[(Kind::Regular, "f", 0o644, "", b"content")]);
    let mut damaged = whole.clone();
    let crc = damaged.len() - 8;
    damaged[crc] ^= 1;
    for (body, cause) in [
        (&whole[..whole.len() - 4], "truncated"),
        (&damaged, "not a valid gzip stream"),
    ] {
        let refusal = put_tar(&store, &id, body).unwrap_err();
        assert!(
            refusal.code() == 500 && refusal.to_string().contains(cause),
            "{refusal}"
        );
        assert_eq!(scratch.leftovers(), 0);
    }
    check(put_tar(&store, &id, &whole), 200);
}

#[test]
fn archive_bombs_and_floods_are_stopped() {
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    check(put_tar(&store, &id, &bomb(16 << 20)), 413);
    let name = |number: usize| format!("{number}");
    let names: Vec<String> = (0..1_001).map(name).collect();
    let many: Vec<_> = names
        .iter()
        .map(|name| (Kind::Regular, name.as_str(), 0o644, "", &b""[..]))
        .collect();
    check(put_tar(&store, &id, &tar_gz(&many)), 413);
    check(put(&store, &id, "large", &vec![0; (2 << 20) + 1]), 413);
    let declared = Upload {
        length: Some(1 << 50),
        ..plain(b"")
    };
    check(send(&store, &id, declared), 413);
    let tree = scratch.tree();
    assert!(
        tree.len() == 1 && tree[0].starts_with("plugins/p/errors/a/error.json"),
        "{tree:?}"
    );
    assert_eq!(scratch.leftovers(), 0);
    check(put(&store, &id, "small", &vec![0; 2 << 20]), 200);
}

#[test]
fn wrong_digest_is_refused_and_correct_one_accepted() {
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    check(
        send(
            &store,
            &id,
            Upload {
                digest: Some([0; 32]),
                ..plain(b"abc")
            },
        ),
        400,
    );
    let digest = ring::digest::digest(&ring::digest::SHA256, b"abc")
        .as_ref()
        .try_into()
        .unwrap();
    assert_eq!(
        store
            .accept(
                &id,
                Upload {
                    digest: Some(digest),
                    ..plain(b"abc")
                }
            )
            .unwrap(),
        digest
    );
}

#[test]
fn stored_result_replaces_an_earlier_error() {
    let scratch = Scratch::new();
    let (a, b) = (node("a"), node("b"));
    let store = scratch.open(&[a.clone(), b.clone()]);
    store.record(&Failure::new(a.clone(), "image not found"));
    store.record(&Failure::new(a.clone(), "a second one"));
    store.record(&Failure::new(node("x"), "unexpected"));
    assert_eq!(
        scratch.tree(),
        [r#"plugins/p/errors/a/error.json={"error":"image not found"}"#]
    );
    check(
        send(
            &store,
            &a,
            Upload {
                is_error: true,
                ..plain(b"{\"error\":\"no file\"}")
            },
        ),
        200,
    );
    assert_eq!(
        scratch.tree(),
        [r#"plugins/p/errors/a/error.json={"error":"no file"}"#]
    );
    check(put(&store, &a, "real", b"1"), 200);
    store.record(&Failure::new(a.clone(), "too late"));
    check(
        send(
            &store,
            &a,
            Upload {
                is_error: true,
                ..plain(b"{\"error\":\"no\"}")
            },
        ),
        409,
    );
    store.end_plugin("p", |id| Failure::new(id, "launch failed"));
    assert_eq!(
        scratch.tree(),
        [
            r#"plugins/p/errors/b/error.json={"error":"launch failed"}"#,
            "plugins/p/results/a/real=1"
        ]
    );
}

#[test]
fn failure_of_a_node_called_global_is_its_own() {
    let scratch = Scratch::new();
    let ids = ["a", "global"].map(node);
    let store = scratch.open(&ids);
    store
        .lock()
        .trouble(&ids[1], Some("its image is missing".into()));
    store.record_end(Failure::new(ids[1].clone(), "node deleted"));
    assert_eq!(
        scratch.tree(),
        [r#"plugins/p/errors/global/error.json={"error":"its image is missing; node deleted"}"#]
    );
    check(put(&store, &ids[0], "result", b"1"), 200);
}

#[test]
fn error_convention_of_older_workers_is_recognized() {
    let scratch = Scratch::new();
    let (a, b) = (node("a"), node("b"));
    let store = scratch.open(&[a.clone(), b.clone()]);
    let body = br#"{"error":"open /tmp/x: no such file"}"#;
    check(
        send(
            &store,
            &a,
            Upload {
                is_archive: true,
                ..plain(body)
            },
        ),
        200,
    );
    assert!(scratch.tree()[0].starts_with("plugins/p/errors/a/error.json="));
    check(put(&store, &b, "named.json", body), 200);
    assert!(
        scratch
            .tree()
            .iter()
            .any(|line| line.starts_with("plugins/p/results/b/named.json=")),
        "a named file is a result"
    );
}

#[test]
fn worker_cannot_extend_a_time_limit() {
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    store.record(&Failure::timed_out(id.clone(), "after 1h"));
    check(
        send(
            &store,
            &id,
            Upload {
                is_error: true,
                ..plain(b"{\"error\":\"killed\"}")
            },
        ),
        200,
    );
    let report =
        std::fs::read_to_string(scratch.run().join("plugins/p/errors/a/error.json")).unwrap();
    assert!(
        report.ends_with(r#","failure":"timeout: after 1h"}"#),
        "{report}"
    );
}

#[test]
fn error_reports_do_not_fill_the_disk() {
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    let journal = || {
        std::fs::metadata(state_dir(&scratch.run()).join(JOURNAL))
            .unwrap()
            .len()
    };
    let report = |text: &str| {
        let body = format!(r#"{{"error":"{text}"}}"#);
        send(
            &store,
            &id,
            Upload {
                is_error: true,
                ..plain(body.as_bytes())
            },
        )
    };
    check(report("one"), 200);
    let before = journal();
    (0..50).for_each(|_| check(report("one"), 200));
    assert_eq!(journal(), before, "existing files are not rewritten");
    let codes: Vec<u16> = (0..20)
        .map(|number| report(&number.to_string()).map_or_else(|refusal| refusal.code(), |()| 200))
        .collect();
    assert_eq!(
        (&codes[..15], &codes[15..]),
        (&[200; 15][..], &[409; 5][..])
    );
    check(put(&store, &id, "real", b"1"), 200);
}

#[test]
fn end_of_the_run_ends_uploads_and_removes_their_files() {
    use std::sync::mpsc::channel;
    let tar = tar_gz(&[(Kind::Regular, "x", 0o644, "", b"x")]).leak();
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    let ((asks, asked), (feed, fed)) = (channel(), channel());
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let upload = Upload {
                length: Some(tar.len() as u64),
                is_archive: true,
                name: Some("f".into()),
                ..plain(b"")
            };
            let Upload {
                length,
                is_archive,
                name,
                digest,
                is_error,
                sender,
                meter,
                ..
            } = upload;
            let body = Fed {
                asks,
                fed,
                meter: Arc::clone(&meter),
            };
            let upload = Upload {
                body,
                length,
                is_archive,
                name,
                digest,
                is_error,
                sender,
                meter,
            };
            store.accept(&id, upload).map(|_| ())
        });
        asked.recv().unwrap();
        store.close();
        feed.send(&*tar).unwrap();
        drop(feed);
        check(busy.join().unwrap(), 503);
    });
    assert_eq!(scratch.leftovers(), 0);
    store.discard_state();
    assert!(!state_dir(&scratch.run()).exists());
}

/// A body of the pieces from `fed` until an empty one, measured like a connection.
struct Fed {
    meter: Arc<Meter>,
    asks: std::sync::mpsc::Sender<()>,
    fed: std::sync::mpsc::Receiver<&'static [u8]>,
}

impl Read for Fed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The receiver may have ended.
        let _ = self.asks.send(());
        self.meter.time(false, || {
            let piece = self.fed.recv().unwrap_or_default();
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        })
    }
}

#[test]
fn concurrent_second_upload_is_refused_unless_the_first_stalls() {
    use std::sync::mpsc::channel;
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    let message = || {
        let document = store.lock().document(std::time::Instant::now());
        document.plugins.unwrap().remove(0).message
    };
    let large = || Upload {
        length: None,
        name: Some("f".into()),
        ..plain(b"third")
    };
    std::thread::scope(|scope| {
        let begin = || {
            let ((asks, asked), (feed, fed)) = (channel(), channel());
            let (store, id) = (&store, &id);
            let thread = scope.spawn(move || {
                let meter = Arc::<Meter>::default();
                let upload = Upload {
                    body: Fed {
                        asks,
                        fed,
                        meter: Arc::clone(&meter),
                    },
                    length: None,
                    is_archive: false,
                    name: Some("f".into()),
                    digest: None,
                    is_error: false,
                    sender: Sender::default(),
                    meter,
                };
                store
                    .accept(id, upload)
                    .map_or_else(|refusal| refusal.code(), |_| 200)
            });
            asked.recv().unwrap();
            (thread, asked, feed)
        };
        // A fast upload keeps its slot.
        let (busy, asked, feed) = begin();
        let second = scope.spawn(|| send(&store, &id, large()));
        while !second.is_finished() {
            feed.send(&[7; 4_096]).unwrap();
            asked.recv_timeout(Duration::from_secs(30)).unwrap();
            base::stop::Stop::new().wait(Duration::from_millis(20));
        }
        check(second.join().unwrap(), 503);
        assert!(
            message()
                .unwrap()
                .contains("another upload of this result is under way")
        );
        assert_eq!(scratch.leftovers(), 1, "the second one left nothing");
        // The upload stalls.
        let third = scope.spawn(|| send(&store, &id, large()));
        check(third.join().unwrap(), 200);
        feed.send(b"late").unwrap();
        assert_eq!(busy.join().unwrap(), 503, "its place was taken");
    });
    assert_eq!(
        (scratch.tree(), scratch.leftovers()),
        (vec!["plugins/p/results/a/f=third".to_owned()], 0)
    );
}

#[test]
fn greedy_node_leaves_the_shares_of_others() {
    let scratch = Scratch::new();
    let mut limits = limits();
    limits.run.bytes = 2 << 20;
    let ids = [node("a"), node("b"), ResultId::global("q")];
    let store = Store::open(&scratch.run(), &ids, limits.clone()).unwrap();
    let body = |kib: usize| vec![7; kib << 10];
    check(put(&store, &ids[0], "f", &body(300)), 507);
    let entries = store
        .lock()
        .document(std::time::Instant::now())
        .plugins
        .unwrap();
    let message = entries[0].message.clone().unwrap();
    assert!(
        message.contains("its share is 262144 bytes") && message.contains("Limits.Run.Bytes"),
        "{message}"
    );
    assert_eq!(scratch.leftovers(), 0);
    check(put(&store, &ids[0], "f", &body(250)), 200);
    check(put(&store, &ids[1], "f", &body(300)), 507);
    drop(store);
    // Stored results survive a restart.
    let store = Store::open(&scratch.run(), &ids, limits).unwrap();
    check(put(&store, &ids[1], "f", &body(300)), 507);
    check(put(&store, &ids[1], "f", &body(250)), 200);
    check(put(&store, &ids[2], "f", &body(508)), 200);
}

#[test]
fn archive_of_many_files_leaves_inodes_for_others() {
    let scratch = Scratch::new();
    let mut limits = limits();
    limits.plugin.inodes = 50;
    let ids = [node("a"), node("b")];
    let store = Store::open(&scratch.run(), &ids, limits).unwrap();
    let names: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    let files = |count: usize| {
        let files = names[..count]
            .iter()
            .map(|name| (Kind::Regular, name.as_str(), 0o644, "", &b""[..]));
        tar_gz(&files.collect::<Vec<_>>())
    };
    let deep = "d/".repeat(49) + "f";
    check(put_tar(&store, &ids[0], &files(60)), 413);
    check(
        put_tar(
            &store,
            &ids[0],
            &tar_gz(&[(Kind::Regular, &deep, 0o644, "", b"")]),
        ),
        413,
    );
    assert_eq!(scratch.leftovers(), 0);
    check(put_tar(&store, &ids[0], &files(40)), 200);
    check(put_tar(&store, &ids[1], &files(40)), 413);
    let message = store
        .lock()
        .document(std::time::Instant::now())
        .plugins
        .unwrap()[1]
        .message
        .clone();
    assert!(
        message
            .unwrap()
            .contains("more than 50 inodes (`Limits.Plugin`)")
    );
    check(put_tar(&store, &ids[1], &files(5)), 200);
}

#[test]
fn truncated_or_stalled_body_is_not_stored() {
    struct Cut(io::ErrorKind);
    impl Read for Cut {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
    }
    let scratch = Scratch::new();
    let id = node("a");
    let store = scratch.open(std::slice::from_ref(&id));
    let tar = tar_gz(&[(Kind::Regular, "x", 0o644, "", &[1; 1_000])]);
    let start = &tar[..tar.len() / 2];
    for (kind, expected) in [
        (io::ErrorKind::UnexpectedEof, 408),
        (io::ErrorKind::TimedOut, 408),
    ] {
        for is_archive in [false, true] {
            let body = start.chain(Cut(kind));
            let upload = Upload {
                body,
                length: None,
                is_archive,
                name: Some("f".into()),
                digest: None,
                is_error: false,
                sender: Sender::default(),
                meter: Arc::default(),
            };
            check(store.accept(&id, upload).map(|_| ()), expected);
        }
    }
    assert_eq!(
        (scratch.tree(), scratch.leftovers()),
        (vec!["plugins/".to_owned()], 0)
    );
    check(put(&store, &id, "f", b"1"), 200);
}

#[test]
fn nearly_full_disk_is_spared() {
    let scratch = Scratch::new();
    let id = node("a");
    let mut limits = limits();
    limits.results.free_bytes = u64::MAX / 2;
    let store = Store::open(&scratch.run(), std::slice::from_ref(&id), limits).unwrap();
    check(put(&store, &id, "f", b"1"), 507);
    let document = store.lock().document(std::time::Instant::now());
    let message = document.plugins.unwrap()[0].message.clone().unwrap();
    assert!(
        message.contains("disk is full") && message.contains("reserve"),
        "{message}"
    );
    assert_eq!(scratch.leftovers(), 0);
    // Reserved space also serves error reports.
    check(
        send(
            &store,
            &id,
            Upload {
                is_error: true,
                ..plain(b"{\"error\":\"no file\"}")
            },
        ),
        200,
    );
}

#[test]
fn killed_run_resumes() {
    let scratch = Scratch::new();
    let ids = ["accepted", "failed", "replaced", "unacknowledged", "open"].map(node);
    {
        let store = scratch.open(&ids);
        store.launched("p");
        check(put(&store, &ids[0], "f", b"1"), 200);
        store.record(&Failure::timed_out(ids[1].clone(), "late"));
        store.record(&Failure::new(ids[2].clone(), "too early"));
        check(put(&store, &ids[2], "f", b"2"), 200);
    }
    let plugin = scratch.run().join("plugins/p");
    // A crash between a rename and its record, and during an upload.
    std::fs::create_dir_all(plugin.join("results/unacknowledged")).unwrap();
    std::fs::write(plugin.join("results/unacknowledged/f"), "3").unwrap();
    std::fs::create_dir_all(plugin.join("errors/replaced")).unwrap();
    std::fs::create_dir_all(plugin.join("errors/open")).unwrap();
    std::fs::create_dir_all(state_dir(&scratch.run()).join("incoming/7/deep")).unwrap();
    let store = scratch.open(&[node("a stranger")]);
    let standing = |id| store.lock().result(id).cloned();
    assert_eq!(standing(&ids[0]), Some(ResultState::Accepted));
    assert_eq!(
        standing(&ids[1]),
        Some(ResultState::Failed {
            error: "timeout: late".into(),
            kind: FailureKind::TimedOut
        })
    );
    assert_eq!(standing(&ids[2]), Some(ResultState::Accepted));
    assert_eq!(
        standing(&ids[3]),
        Some(ResultState::Accepted),
        "it was whole, so it is not asked for again"
    );
    assert_eq!(standing(&ids[4]), Some(ResultState::Awaited));
    assert_eq!(standing(&node("a stranger")), None);
    assert_eq!(scratch.leftovers(), 0);
    assert_eq!(
        scratch.tree(),
        [
            // The fixture shows the beginning of a file.
            "plugins/p/errors/failed/error.json={\"error\":\"Plugin timeout while waiting for \
             results so there are no results. Check pod logs or other ",
            "plugins/p/results/accepted/f=1",
            "plugins/p/results/replaced/f=2",
            "plugins/p/results/unacknowledged/f=3",
        ]
    );
    check(put(&store, &ids[0], "f", b"1"), 409);
    check(put(&store, &ids[4], "f", b"4"), 200);

    let list = serde_json::to_value(store.lock().received()).unwrap();
    let one = ring::digest::digest(&ring::digest::SHA256, b"1");
    let one: String = one
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        (&list[0]["sha256"], &list[0]["size"]),
        (&one.into(), &1.into()),
        "over the restart"
    );
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .all(|line| line["started"] == list[0]["started"]),
        "{list}"
    );
    assert!(
        list[0]["started"].is_string() && list[0]["arrived"].is_string(),
        "{list}"
    );
    assert!(
        list[1]["failed"].is_string() && list[1]["arrived"].is_null(),
        "{list}"
    );
    assert!(
        list[2]["failed"].is_null() && list[2]["arrived"].is_string(),
        "{list}"
    );
    assert!(
        list[3]["arrived"].is_null() && list[4]["attempts"] == 1,
        "{list}"
    );
}

#[test]
fn damaged_start_of_the_journal_loses_no_expected_result() {
    let scratch = Scratch::new();
    let ids = ["a", "b", "joined"].map(node);
    {
        let store = scratch.open(&ids[..2]);
        store.expect(&ids[2]).unwrap();
        check(put(&store, &ids[1], "f", b"1"), 200);
    }
    let journal = state_dir(&scratch.run()).join(JOURNAL);
    let mut text = std::fs::read(&journal).unwrap();
    // A byte of the first record.
    text[20] ^= 1;
    std::fs::write(&journal, text).unwrap();
    // The second start finds what the first one has repaired.
    for _ in 0..2 {
        let store = scratch.open(&ids[..2]);
        let expected: Vec<ResultId> = store.lock().ids().cloned().collect();
        assert_eq!(
            expected.iter().collect::<HashSet<_>>(),
            ids.iter().collect(),
            "{expected:?}"
        );
        let awaited: HashSet<ResultId> = store.lock().outstanding().cloned().collect();
        assert_eq!(awaited, HashSet::from([ids[0].clone(), ids[2].clone()]));
    }
}

#[test]
fn names_unusable_as_folders_are_rejected() {
    let scratch = Scratch::new();
    for id in [
        node(".."),
        node("a/b"),
        node(""),
        ResultId::global("a\0b"),
        node(&"n".repeat(256)),
    ] {
        assert!(Store::open(&scratch.run(), &[id], limits()).is_err());
    }
}

#[test]
fn altered_or_missing_result_fails() {
    let scratch = Scratch::new();
    let ids = ["sound", "altered", "gone", "packed"].map(ResultId::global);
    let open = || Store::open(&scratch.run(), &ids, config::Limits::default()).unwrap();
    let store = open();
    let [_, altered, gone, packed] = &ids;
    for id in &ids[..3] {
        store
            .accept(
                id,
                Upload {
                    name: Some("f".into()),
                    ..plain(b"x")
                },
            )
            .unwrap();
    }
    let folder = base::temp::Folder::new().unwrap();
    std::fs::write(folder.join("f"), "x").unwrap();
    let archive = base::archive::pack(&folder, Vec::new()).unwrap();
    store
        .accept(
            packed,
            Upload {
                is_archive: true,
                ..plain(&archive)
            },
        )
        .unwrap();
    assert_eq!(store.verify(), 0);
    // The digests outlive the aggregator.
    drop(store);
    let store = open();
    for id in [altered, packed] {
        std::fs::write(store.results(id).join("f"), "y").unwrap();
    }
    std::fs::remove_file(store.results(gone).join("f")).unwrap();
    assert_eq!(store.verify(), 3);
    assert_eq!(store.verify(), 0, "each fails once");
    let list = serde_json::to_value(store.lock().received()).unwrap();
    for (at, words) in [
        (0, None),
        (1, Some("SHA-256")),
        (2, Some("it has 0 files")),
        (3, Some("unpacked")),
    ] {
        assert_eq!(list[at]["error"].is_string(), words.is_some(), "{list}");
        assert_eq!(list[at]["failed"].is_string(), words.is_some(), "{list}");
        if let Some(words) = words {
            let report = store
                .results(&ids[at])
                .parent()
                .unwrap()
                .with_file_name("errors/global/error.json");
            assert!(std::fs::read_to_string(report).unwrap().contains(words));
        }
    }
}

#[test]
fn finished_tests_are_recorded_up_to_the_limit() {
    let scratch = Scratch::new();
    let (id, node) = (ResultId::global("e2e"), ResultId::on_node("e2e", "n"));
    let store = scratch.open(&[id.clone(), node.clone()]);
    for message in [
        "Test Suite starting",
        "PASSED [sig-a] a",
        "FAILED b",
        "PASSED two\nlines",
        "",
    ] {
        store.note_finished(&id, message);
    }
    store.note_finished(&node, "PASSED c");
    let path = scratch.run().join(layout::ran("e2e"));
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "PASSED [sig-a] a\nFAILED b\n"
    );
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    store.note_finished(&id, "PASSED d");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 20);
    assert_eq!(layout::plugin_of_ran(&layout::ran("e2e")), Some("e2e"));
}
