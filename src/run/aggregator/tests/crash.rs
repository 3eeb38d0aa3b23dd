//! An aggregator in a child process, killed during uploads and restarted on the same folder.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Condvar, Mutex};

use super::fixture::{Scratch, limits, tar_gz};
use super::server::{Connection, access, server};
#[cfg(unix)]
use crate::aggregator::run::ResultState;
use crate::aggregator::{Aggregator, AggregatorSettings};
use crate::backplane::Authority;
use base::stop::Stop;
use client::Access;
use client::protocol::ResultId;
use model::layout::state_dir;
#[cfg(unix)]
use model::layout::{self, JOURNAL};

/// Run directory of the child process.
const RUN_DIR: &str = "SONOBUOY_TEST_RUN_DIR";
/// Lets the child process store results, but append nothing to its journal.
#[cfg(unix)]
const FULL_JOURNAL: &str = "SONOBUOY_TEST_FULL_JOURNAL";
const UPLOADS: usize = 100;
const KILLS: usize = 2;
/// Uploads that are complete or in progress before each kill.
const BUSY: usize = 60;

fn ids() -> Vec<ResultId> {
    (0..UPLOADS)
        .map(|number| ResultId::on_node("p", format!("n{number}")))
        .collect()
}

/// Runs in the child process of the test below until it is killed; does nothing otherwise.
#[test]
#[allow(clippy::print_stdout, reason = "only the test runner sees it")]
fn child_process() {
    let Ok(run_dir) = std::env::var(RUN_DIR) else {
        return;
    };
    let settings = AggregatorSettings {
        limits: limits(),
        ..AggregatorSettings::default()
    };
    let aggregator = Aggregator::open(run_dir.as_ref(), &ids(), settings).unwrap();
    #[cfg(unix)]
    if std::env::var_os(FULL_JOURNAL).is_some() {
        fill_journal(run_dir.as_ref());
    }
    let server = server(&aggregator);
    let (_failures, receiver) = sync_channel(1);
    // The parent looks for this line among those of the test runner.
    println!("\nlistening {}", server.local_addr());
    aggregator.serve(&server, receiver, &Stop::new()).unwrap();
}

/// Makes each further record fail after a few bytes, as on a full disk.
#[cfg(unix)]
fn fill_journal(run_dir: &std::path::Path) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    base::sys::survive_file_limit().unwrap();
    let size = state_dir(run_dir).join(JOURNAL).metadata().unwrap().len();
    let limit = getrlimit(Resource::Fsize);
    setrlimit(
        Resource::Fsize,
        rustix::process::Rlimit {
            current: Some(size + 8),
            ..limit
        },
    )
    .unwrap();
}

struct Server(Child);

impl Server {
    /// Sends SIGKILL: no cleanup.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start(run_dir: &std::path::Path) -> (Server, SocketAddr) {
    start_with(run_dir, &[])
}

fn start_with(run_dir: &std::path::Path, variables: &[(&str, &str)]) -> (Server, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "aggregator::tests::crash::child_process",
        ])
        .env(RUN_DIR, run_dir)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let server = Server(child);
    let mut lines = output.lines().map_while(Result::ok);
    let address = lines.find_map(|line| {
        line.strip_prefix("listening ")
            .map(|text| text.parse().unwrap())
    });
    (server, address.expect("the child says where it listens"))
}

/// Current address of the aggregator, and the number of its starts.
struct Place {
    now: Mutex<(usize, SocketAddr)>,
    moved: Condvar,
}

impl Place {
    /// Waits for a start after the `seen`th.
    fn after(&self, seen: usize) -> (usize, SocketAddr) {
        let now = self.now.lock().unwrap();
        *self.moved.wait_while(now, |now| now.0 <= seen).unwrap()
    }
}

/// Upload of the `number`th worker: file or archive, and the expected files.
fn payload(number: usize) -> (&'static str, Vec<u8>, String, Vec<u8>) {
    let mut state = number as u64 + 1;
    let content: Vec<u8> = (0..64 << 10)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .collect();
    if number.is_multiple_of(2) {
        let headers = "Content-Disposition: attachment;filename=data\r\n";
        (
            headers,
            content.clone(),
            format!("plugins/p/results/n{number}/data"),
            content,
        )
    } else {
        let body = tar_gz(&[(tar::EntryType::Regular, "sub/data", 0o644, "", &content)]);
        let headers = "Content-Type: application/gzip\r\n";
        (
            headers,
            body,
            format!("plugins/p/results/n{number}/sub/data"),
            content,
        )
    }
}

/// Sends until the result is acknowledged. Except during the server's last life, every third worker
/// stops in the middle of its body, reports it, and keeps the connection open until the server
/// ends.
fn upload(number: usize, access: &Access, place: &Place, events: &Sender<()>) {
    let (headers, body, _, _) = payload(number);
    let mut seen = 0;
    loop {
        let (start, address) = place.after(seen);
        seen = start;
        let Ok(mut connection) = Connection::open(access, address) else {
            continue;
        };
        let head = format!(
            "PUT /api/v1/results/by-node/n{number}/p HTTP/1.1\r\nHost: a\r\nConnection: \
             close\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        connection.write(head.as_bytes());
        connection.write(&body[..body.len() / 2]);
        if start <= KILLS && number % 3 == start % 3 {
            let _ = events.send(());
            place.after(seen);
        }
        connection.write(&body[body.len() / 2..]);
        if matches!(connection.answer().0, 200 | 409) {
            let _ = events.send(());
            return;
        }
    }
}

#[test]
fn hundred_uploads_survive_two_kills() {
    let scratch = Scratch::new();
    let (mut child, address) = start(&scratch.run());
    let pem = std::fs::read_to_string(state_dir(&scratch.run()).join("authority.pem")).unwrap();
    let authority = Authority::from_pem(&pem).unwrap();
    let access = access(&authority, address, "p");
    let place = Place {
        now: Mutex::new((1, address)),
        moved: Condvar::new(),
    };
    let (sender, events) = channel();
    std::thread::scope(|scope| {
        for number in 0..UPLOADS {
            let (sender, access, place) = (sender.clone(), &access, &place);
            scope.spawn(move || upload(number, access, place, &sender));
        }
        let mut wanted = BUSY;
        for kill in 1..=KILLS {
            events.iter().take(wanted).for_each(drop);
            child.kill();
            let address;
            (child, address) = start(&scratch.run());
            *place.now.lock().unwrap() = (kill + 1, address);
            place.moved.notify_all();
            // Some results only lacked their acknowledgement.
            wanted = 20;
        }
    });
    child.kill();
    for number in 0..UPLOADS {
        let (_, _, path, content) = payload(number);
        assert!(
            std::fs::read(scratch.run().join(&path)).unwrap() == content,
            "{path}"
        );
    }
    let left = Aggregator::open(&scratch.run(), &[], AggregatorSettings::default()).unwrap();
    assert_eq!((left.outstanding(), scratch.leftovers()), (Vec::new(), 0));
}

#[cfg(unix)]
#[test]
fn no_part_of_a_refused_result_counts_after_a_kill() {
    const FILES: usize = 900;
    let names: Vec<String> = (0..FILES).map(|number| number.to_string()).collect();
    let entry = |name| (tar::EntryType::Regular, name, 0o644, "", &b"content"[..]);
    let body = tar_gz(
        &names
            .iter()
            .map(|name| entry(name.as_str()))
            .collect::<Vec<_>>(),
    );
    let id = ids().remove(0);
    for delay in 0..6 {
        let scratch = Scratch::new();
        let (mut child, address) = start_with(&scratch.run(), &[(FULL_JOURNAL, "1")]);
        let pem =
            std::fs::read_to_string(state_dir(&scratch.run()).join(layout::AUTHORITY)).unwrap();
        let access = access(&Authority::from_pem(&pem).unwrap(), address, "p");
        let folder = scratch.run().join("plugins/p/results/n0");
        let answered = Stop::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut connection = Connection::open(&access, address).unwrap();
                let head = format!(
                    "PUT /api/v1/results/by-node/n0/p HTTP/1.1\r\nHost: a\r\nConnection: \
                     close\r\nContent-Type: application/gzip\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                connection.write(head.as_bytes());
                connection.write(&body);
                let (status, text) = connection.answer();
                assert!(matches!(status, 0 | 500 | 507), "{text}");
                answered.stop();
            });
            // Until the aggregator is about to undo it.
            while !folder.exists() && !answered.stopped() {
                std::thread::yield_now();
            }
            answered.wait(std::time::Duration::from_millis(delay));
            child.kill();
        });
        let left = Aggregator::open(&scratch.run(), &[], AggregatorSettings::default()).unwrap();
        if left.store.lock().result(&id) == Some(&ResultState::Accepted) {
            assert_eq!(
                folder.read_dir().unwrap().count(),
                FILES,
                "{delay} ms after it was in place"
            );
        }
    }
}
