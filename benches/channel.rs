//! Cost of the secure channel, as ratios within one run, and peak memory of both ends.
//!
//! The measured servers are separate processes: this program with a role as its first argument. All
//! files are written below `BENCH_DIR`, by default `/dev/shm`, so that the disk is not measured;
//! the large upload is also measured into a file on disk, as results are stored.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for developers"
)]

mod certificates;
mod place;
mod storm;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use base::stop::Stop;
use client::Access;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, StreamOwned};
use sonobuoy::outside::{Authority, serve_alone, server_config};

pub(crate) const PLUGIN: &str = "bench";
const MIB: u64 = 1 << 20;
const ROUNDS: usize = 9;

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["raw", dir] => raw(Path::new(dir)),
        ["aggregator", dir, nodes] => aggregator(Path::new(dir), nodes),
        [certificates::ROLE, dir, nodes] => certificates::serve(Path::new(dir), nodes),
        [storm::ROLE, dir, nodes] => storm::serve(Path::new(dir), nodes),
        [] => measure(&[
            "upload",
            "memory",
            "crowd",
            "slow",
            "live",
            "siege",
            "bodies",
            "certificates",
            "storm",
        ]),
        ref chosen => measure(chosen),
    }
}

fn measure(chosen: &[&str]) {
    let base = place::base();
    println!(
        "written under {}, {} processors",
        base.display(),
        std::thread::available_parallelism().unwrap()
    );
    for &name in chosen {
        match name {
            "upload" => {
                upload(Path::new(env!("CARGO_TARGET_TMPDIR")), Some(0.8));
                upload(&base, None);
            }
            "memory" => memory(&base),
            "crowd" => crowd(&base),
            "slow" => slow(&base),
            "live" => live(&base),
            "siege" => siege(&base),
            "bodies" => bodies(&base),
            "certificates" => certificates::measure(&base),
            "storm" => storm::measure(&base),
            other => {
                panic!(
                    "unknown measurement `{other}`; known are upload, memory, crowd, slow, live, \
                     siege, bodies, certificates, storm"
                )
            }
        }
    }
}

/// One large upload through the aggregator, next to the same bytes through TLS alone into a file.
/// In memory there is no limit to hold: SHA-256, which plain TLS lacks, is most of the work, and
/// all processors are busy. Two with 1.3 GB/s of it reach 0.7 to 0.85.
fn upload(base: &Path, least: Option<f64>) {
    const SIZE: u64 = 1024 * MIB;
    let raw = Server::start("raw", base, 0);
    let ours = Server::start("aggregator", base, ROUNDS);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let begin = Instant::now();
        let mut stream = raw.connect();
        pour(&mut stream, SIZE).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        stream.read_exact(&mut [0]).unwrap();
        times[0].push(begin.elapsed());

        let begin = Instant::now();
        let mut stream = ours.connect();
        stream.write_all(head(round, SIZE).as_bytes()).unwrap();
        pour(&mut stream, SIZE).unwrap();
        assert_eq!(status(&mut stream).unwrap(), 200);
        times[1].push(begin.elapsed());
        std::fs::remove_file(ours.stored(round)).unwrap();
    }
    let [raw_time, our_time] = times.map(median);
    let rate = |time: Duration| 1024.0 / time.as_secs_f64();
    println!(
        "upload of 1 GiB under {}: TLS alone into a file {:.0} MiB/s, aggregator {:.0} MiB/s",
        base.display(),
        rate(raw_time),
        rate(our_time)
    );
    let ratio = raw_time.as_secs_f64() / our_time.as_secs_f64();
    match least {
        Some(least) => verdict("upload, ratio", ratio, least, Better::Larger),
        None => println!("     upload, ratio: {ratio:.2}"),
    }
    verdict(
        "upload, aggregator's peak memory in MiB",
        ours.peak(),
        12.0,
        Better::Smaller,
    );
}

/// Resident pages of the program file in MiB, which are shared and reclaimable.
fn program(process: &Child) -> f64 {
    memory_of(process, "RssFile:")
}

/// Time for plain TLS from one file into another.
fn alone(base: &Path, file: &Path) -> Duration {
    let raw = Server::start("raw", base, 0);
    let begin = Instant::now();
    let mut stream = raw.connect();
    let mut file = File::open(file).unwrap();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => break,
            got => stream.write_all(&buffer[..got]).unwrap(),
        }
    }
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    stream.read_exact(&mut [0]).unwrap();
    begin.elapsed()
}

/// The program's own worker and aggregator, with a small and a large file.
fn memory(base: &Path) {
    for (size, name) in [(64 * MIB, "64 MiB"), (1024 * MIB, "1 GiB")] {
        // The fastest of each: other load on the machine only adds time.
        let (mut times, mut peaks) = ([f64::MAX; 2], [0.0_f64; 2]);
        let results = base.join(format!("bench-{}-results", std::process::id()));
        std::fs::create_dir_all(&results).unwrap();
        let file = results.join("big.bin");
        let mut out = File::create(&file).unwrap();
        for _ in 0..size / MIB {
            out.write_all(&vec![7; usize::try_from(MIB).unwrap()])
                .unwrap();
        }
        // As `echo` writes it: without a newline, the worker would wait for the rest of the path.
        std::fs::write(results.join("done"), format!("{}\n", file.display())).unwrap();
        for _ in 0..ROUNDS {
            let raw = alone(base, &file);
            let (took, worker, aggregator) = carry(base, &results);
            times = [
                times[0].min(raw.as_secs_f64()),
                times[1].min(took.as_secs_f64()),
            ];
            peaks = [peaks[0].max(worker), peaks[1].max(aggregator)];
        }
        std::fs::remove_dir_all(&results).unwrap();
        // The ratio has no limit: SHA-256, which plain TLS lacks, is half of the work where the
        // disk is memory.
        let ratio = times[1] / times[0];
        println!(
            "     {name}: TLS alone {:.2} s, worker and aggregator {:.2} s, {ratio:.2} times",
            times[0], times[1]
        );
        verdict(
            &format!("{name}, worker's peak memory in MiB"),
            peaks[0],
            9.0,
            Better::Smaller,
        );
        verdict(
            &format!("{name}, aggregator's peak memory in MiB"),
            peaks[1],
            12.0,
            Better::Smaller,
        );
    }
}

/// Makes the worker upload one file; returns the time and peak memory of both.
fn carry(base: &Path, results: &Path) -> (Duration, f64, f64) {
    // The node name `global` means the whole cluster.
    let ours = Server::start_for("aggregator", base, "global");
    let begin = Instant::now();
    let mut worker = Command::new(env!("CARGO_BIN_EXE_sonobuoy"))
        .args(["worker", "single-node", "--sleep=-1"])
        .env("AGGREGATOR_URL", &ours.access.aggregator_url)
        .env("CA_CERT", &ours.access.ca_cert)
        .env("CLIENT_CERT", &ours.access.client_cert)
        .env("CLIENT_KEY", &ours.access.client_key)
        .env("RESULT_TYPE", PLUGIN)
        .env("NODE_NAME", "global")
        .env("RESULTS_DIR", results)
        .env("SONOBUOY_RESULTS_DIR", results)
        .env("SONOBUOY_PROGRESS_PORT", "0")
        .env("SONOBUOY_DONE_FILE_DELAY", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let arrived = ours
        .dir
        .join(format!("plugins/{PLUGIN}/results/global/big.bin"));
    let never = Stop::new();
    while !arrived.exists() {
        assert!(
            worker.try_wait().unwrap().is_none(),
            "the worker ended before its result arrived"
        );
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "the result never arrived"
        );
        never.wait(Duration::from_millis(5));
    }
    let took = begin.elapsed();
    let measured = (
        took,
        peak(&worker) - program(&worker),
        ours.peak() - program(&ours.process),
    );
    let _ = worker.kill();
    let _ = worker.wait();
    measured
}

/// All workers of a large cluster at once, each with its own connection and without retries.
/// Handshakes begin up to three seconds after the connection. Once from one address, once from
/// 5,000.
fn crowd(base: &Path) {
    crowd_from(base, "one address", &|_| [127, 0, 0, 1]);
    let many = |node: usize| [127, 77, (node % 5_000 / 250) as u8, (1 + node % 250) as u8];
    crowd_from(base, "5,000 addresses", &many);
}

fn crowd_from(base: &Path, from: &str, source: &(dyn Fn(usize) -> [u8; 4] + Sync)) {
    const CROWD: usize = 10_000;
    const DELAY_MS: usize = 3000;
    let ours = Server::start("aggregator", base, CROWD);
    let (barrier, never) = (Barrier::new(CROWD), Stop::new());
    let times = Mutex::new(Vec::new());
    let lost = Mutex::new(Vec::new());
    let content = |node: usize| format!("{node:08} ").repeat(456)[..4096].to_owned();
    std::thread::scope(|scope| {
        for node in 0..CROWD {
            let (ours, content, never) = (&ours, &content, &never);
            let work = move || -> std::io::Result<u16> {
                let mut stream = ours.connect_from(source(node), &ours.client)?;
                never.wait(Duration::from_millis((node * 7919 % DELAY_MS) as u64));
                let body = content(node);
                stream.write_all((head(node, body.len() as u64) + &body).as_bytes())?;
                status(&mut stream)
            };
            let (barrier, times, lost) = (&barrier, &times, &lost);
            std::thread::Builder::new()
                .stack_size(128 * 1024)
                .spawn_scoped(scope, move || {
                    barrier.wait();
                    let begin = Instant::now();
                    match work() {
                        Ok(200) => times.lock().unwrap().push(begin.elapsed()),
                        other => lost.lock().unwrap().push(format!("{other:?}")),
                    }
                })
                .unwrap();
        }
    });
    let (times, mut lost) = (times.into_inner().unwrap(), lost.into_inner().unwrap());
    for node in 0..CROWD {
        if std::fs::read_to_string(ours.stored(node)).ok() != Some(content(node)) {
            lost.push(format!("node {node} has no result"));
        }
    }
    lost.iter()
        .take(5)
        .for_each(|reason| println!("  lost: {reason}"));
    println!(
        "crowd of {CROWD} from {from}: half after {:?}, 99 of 100 after {:?}",
        percent(&times, 50),
        percent(&times, 99)
    );
    verdict("crowd, lost", lost.len() as f64, 0.0, Better::Smaller);
    verdict(
        "crowd, aggregator's peak memory in MiB",
        ours.peak(),
        96.0,
        Better::Smaller,
    );
}

/// Heartbeats over new connections beside 4,800 half-open connections from 64 addresses, and
/// uploads of another plugin at 512 bytes a second. Closed connections are opened again.
fn siege(base: &Path) {
    const BEATS: usize = 100;
    const SLOW: usize = 512;
    let ours = Server::start_for(storm::ROLE, base, &(SLOW + 1).to_string());
    let evil = storm::evil(&ours);
    let mut greeting = Vec::new();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    ClientConnection::new(Arc::clone(&ours.client), name)
        .unwrap()
        .write_tls(&mut greeting)
        .unwrap();
    let end = Stop::new();
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        for (count, sent) in [(4_000, &greeting[..1]), (800, &greeting[..])] {
            let (ours, end) = (&ours, &end);
            scope.spawn(move || {
                let mut held: Vec<TcpStream> = Vec::new();
                while !end.wait(Duration::from_millis(50)) {
                    held.retain(|socket| {
                        socket.set_nonblocking(true).unwrap();
                        matches!((&*socket).read(&mut [0; 4096]), Ok(1..))
                            || matches!(socket.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
                    });
                    while held.len() < count && !end.stopped() {
                        let Ok(mut socket) = ours.tcp_from(storm::attacker(held.len())) else { break };
                        let _ = socket.write_all(sent);
                        held.push(socket);
                    }
                }
            });
        }
        for node in 0..SLOW {
            let (ours, end, evil) = (&ours, &end, &evil);
            let work = move || -> std::io::Result<()> {
                let mut stream = ours.connect_from(storm::attacker(node), evil)?;
                stream.write_all(storm::put(storm::EVIL, node, 100 * MIB, "").as_bytes())?;
                while !end.wait(Duration::from_millis(1000)) {
                    stream.write_all(&[7; 512])?;
                }
                Ok(())
            };
            let again = move || {
                while !end.wait(Duration::from_millis(100)) {
                    let _ = work();
                }
            };
            std::thread::Builder::new()
                .stack_size(128 * 1024)
                .spawn_scoped(scope, again)
                .unwrap();
        }
        end.wait(Duration::from_secs(5));
        let request = format!(
            "GET /api/v1/health/by-node/n{SLOW}/{} HTTP/1.1\r\nHost: a\r\nConnection: \
             close\r\n\r\n",
            storm::HONEST
        );
        for _ in 0..BEATS {
            end.wait(Duration::from_millis(100));
            let begin = Instant::now();
            let beat = || -> std::io::Result<u16> {
                let mut stream = ours.connect_from([127, 0, 3, 1], &ours.client)?;
                stream
                    .sock
                    .set_read_timeout(Some(Duration::from_secs(60)))?;
                stream.write_all(request.as_bytes())?;
                status(&mut stream)
            };
            let answered = beat();
            let lost = !matches!(answered, Ok(200));
            times.push(if lost {
                Duration::from_secs(60)
            } else {
                begin.elapsed()
            });
        }
        end.stop();
    });
    println!(
        "siege: half of the heartbeats within {:?}",
        percent(&times, 50)
    );
    verdict(
        "siege, 99 of 100 heartbeats within, in s",
        percent(&times, 99).as_secs_f64(),
        1.0,
        Better::Smaller,
    );
    verdict(
        "siege, aggregator's peak memory in MiB",
        ours.peak(),
        64.0,
        Better::Smaller,
    );
}

/// Bodies of all kinds that the protocol allows, from 64 hostile nodes at once, next to honest
/// nodes of the same plugin.
fn bodies(base: &Path) {
    const HOSTILE: usize = 64;
    const BEATS: usize = 100;
    let ours = Server::start("aggregator", base, HOSTILE + 1);
    let full = |start: &str, item: &str, end: &str| {
        let count = ((1 << 20) - start.len() - end.len() - 4) / item.len();
        format!("{start}{}{end}", item.repeat(count)).into_bytes()
    };
    let many_objects = full("{\"error\":\"x\",\"a\":[{}", ",{\"\":{}}", "]}");
    let deep = full("{\"error\":\"x\",\"a\":", "{\"\":", "");
    let names = full("{\"failures\":[\"\"", ",\"\"", "]}");
    let letters = full("{\"msg\":\"", "\u{1}", "\"}");
    let escapes = full("{\"failures\":[\"", "\\udc80", "\"]}");
    let (end, kinds) = (
        Stop::new(),
        [&many_objects, &deep, &names, &letters, &escapes],
    );
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        for node in 0..HOSTILE {
            let (ours, end) = (&ours, &end);
            let attack = move |round: usize| -> std::io::Result<()> {
                let body = kinds[(node + round) % kinds.len()];
                let mut stream = ours.connect_from(storm::attacker(node), &ours.client)?;
                stream
                    .sock
                    .set_read_timeout(Some(Duration::from_secs(20)))?;
                // Every other body is shorter than declared.
                let length = body.len() + usize::from(round % 2 == 1);
                let (method, kind) = [("PUT", "results"), ("POST", "progress")][round / 2 % 2];
                let head = format!(
                    "{method} /api/v1/{kind}/by-node/n{node}/{PLUGIN} HTTP/1.1\r\nHost: \
                     a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
                );
                stream.write_all(head.as_bytes())?;
                stream.write_all(body)?;
                stream.flush()?;
                status(&mut stream).map(drop)
            };
            let again = move || {
                for round in node.. {
                    let _ = attack(round);
                    if end.wait(Duration::from_millis(20)) {
                        return;
                    }
                }
            };
            std::thread::Builder::new()
                .stack_size(128 * 1024)
                .spawn_scoped(scope, again)
                .unwrap();
        }
        end.wait(Duration::from_secs(3));
        let update = "{\"msg\":\"half\",\"total\":2,\"completed\":1}";
        let request = format!(
            "POST /api/v1/progress/by-node/n{HOSTILE}/{PLUGIN} HTTP/1.1\r\nHost: a\r\nConnection: \
             close\r\nContent-Length: {}\r\n\r\n{update}",
            update.len()
        );
        for _ in 0..BEATS {
            end.wait(Duration::from_millis(100));
            let begin = Instant::now();
            let post = || -> std::io::Result<u16> {
                let mut stream = ours.connect_from([127, 0, 3, 1], &ours.client)?;
                stream
                    .sock
                    .set_read_timeout(Some(Duration::from_secs(60)))?;
                stream.write_all(request.as_bytes())?;
                status(&mut stream)
            };
            let lost = !matches!(post(), Ok(200));
            times.push(if lost {
                Duration::from_secs(60)
            } else {
                begin.elapsed()
            });
        }
        end.stop();
    });
    let worst = percent(&times, 99).as_secs_f64();
    verdict(
        "bodies, 99 of 100 posts of another node within, in s",
        worst,
        1.0,
        Better::Smaller,
    );
    verdict(
        "bodies, aggregator's peak memory in MiB",
        ours.peak(),
        128.0,
        Better::Smaller,
    );
}

/// Ordinary uploads with and without slow clients beside them.
fn slow(base: &Path) {
    const UPLOADS: usize = 200;
    const SLOW: usize = 50;
    let ours = Server::start("aggregator", base, UPLOADS * ROUNDS * 2 + SLOW * ROUNDS);
    let mut tails = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for (kind, tail) in tails.iter_mut().enumerate() {
            let end = Stop::new();
            let slow = if kind == 1 { SLOW } else { 0 };
            let ready = Barrier::new(slow + 1);
            std::thread::scope(|scope| {
                for number in 0..slow {
                    let (ours, ready, end) = (&ours, &ready, &end);
                    scope.spawn(move || {
                        let mut stream = ours.connect();
                        let node = UPLOADS * ROUNDS * 2 + round * SLOW + number;
                        stream.write_all(head(node, 100 * MIB).as_bytes()).unwrap();
                        ready.wait();
                        // Clients are independent: fifty that wake at the same moment would measure
                        // the crowd, not the slowness.
                        end.wait(Duration::from_millis(number as u64 * 2));
                        // 10 KiB/s.
                        while !end.wait(Duration::from_millis(100)) {
                            stream.write_all(&[7; 1024]).unwrap();
                        }
                    });
                }
                ready.wait();
                let first = (round * 2 + kind) * UPLOADS;
                tail.push(percent(&uploads(&ours, first..first + UPLOADS), 99));
                end.stop();
            });
        }
    }
    let [alone, beside] = tails.map(median);
    println!(
        "99 of 100 uploads of 1 MiB took {alone:?} alone, {beside:?} beside {SLOW} slow clients"
    );
    verdict(
        "slow, ratio",
        beside.as_secs_f64() / alone.as_secs_f64(),
        1.3,
        Better::Smaller,
    );
}

/// Ordinary uploads with and without a client that fetches the results so far, one fetch after the
/// other.
fn live(base: &Path) {
    const UPLOADS: usize = 200;
    let ours = Server::start("aggregator", base, UPLOADS * ROUNDS * 2);
    std::fs::create_dir_all(ours.dir.join("meta")).unwrap();
    let (mut tails, mut fetches) = ([Vec::new(), Vec::new()], 0);
    for round in 0..ROUNDS {
        for (kind, tail) in tails.iter_mut().enumerate() {
            let end = Stop::new();
            let first = (round * 2 + kind) * UPLOADS;
            std::thread::scope(|scope| {
                let fetching = scope.spawn(|| {
                    let mut fetches = 0;
                    while kind == 1 && !end.stopped() {
                        let mut fetch = Command::new(env!("CARGO_BIN_EXE_sonobuoy"));
                        fetch
                            .args(["splat", "--partial"])
                            .arg(ours.dir.parent().unwrap());
                        assert!(fetch.stdout(Stdio::null()).status().unwrap().success());
                        fetches += 1;
                    }
                    fetches
                });
                tail.extend(uploads(&ours, first..first + UPLOADS));
                end.stop();
                fetches += fetching.join().unwrap();
            });
        }
    }
    let [alone, beside] = tails.map(|times| percent(&times, 99));
    println!(
        "99 of 100 uploads of 1 MiB took {alone:?} alone, {beside:?} beside {fetches} fetches"
    );
    verdict(
        "live, ratio",
        beside.as_secs_f64() / alone.as_secs_f64(),
        1.1,
        Better::Smaller,
    );
}

/// Uploads of 1 MiB, four at a time; returns their durations.
fn uploads(ours: &Server, nodes: std::ops::Range<usize>) -> Vec<Duration> {
    let (nodes, times) = (Mutex::new(nodes), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(node) = nodes.lock().unwrap().next() else {
                        break;
                    };
                    let begin = Instant::now();
                    let mut stream = ours.connect();
                    stream.write_all(head(node, MIB).as_bytes()).unwrap();
                    pour(&mut stream, MIB).unwrap();
                    assert_eq!(status(&mut stream).unwrap(), 200);
                    times.lock().unwrap().push(begin.elapsed());
                }
            });
        }
    });
    times.into_inner().unwrap()
}

/// A server under measurement.
struct Server {
    process: Child,
    dir: PathBuf,
    access: Access,
    client: Arc<ClientConfig>,
}

impl Server {
    fn start(role: &str, base: &Path, nodes: usize) -> Self {
        Self::start_for(role, base, &nodes.to_string())
    }

    fn start_for(role: &str, base: &Path, nodes: &str) -> Self {
        // A parent folder for the run's, for files that the aggregator keeps next to it.
        let dir = base
            .join(format!("bench-{}-{role}", std::process::id()))
            .join("run");
        std::fs::create_dir_all(&dir).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .arg(role)
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if role != "raw" {
            command.arg(nodes);
        }
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let [aggregator_url, ca_cert, client_cert, client_key] =
            serde_json::from_str(&line).unwrap();
        let access = Access {
            aggregator_url,
            ca_cert,
            client_cert,
            client_key,
            ..Access::default()
        };
        let client = client_of(&access);
        Self {
            process,
            dir,
            access,
            client,
        }
    }

    fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        self.try_connect().unwrap()
    }

    fn try_connect(&self) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        self.connect_as(&self.client)
    }

    fn connect_as(
        &self,
        client: &Arc<ClientConfig>,
    ) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        self.connect_from([127, 0, 0, 1], client)
    }

    /// A connection from another address of the loopback network.
    fn connect_from(
        &self,
        source: [u8; 4],
        client: &Arc<ClientConfig>,
    ) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let socket = self.tcp_from(source)?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        Ok(StreamOwned::new(
            ClientConnection::new(Arc::clone(client), name).unwrap(),
            socket,
        ))
    }

    fn tcp_from(&self, source: [u8; 4]) -> std::io::Result<TcpStream> {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let address: SocketAddr = self
            .access
            .aggregator_url
            .trim_start_matches("https://")
            .parse()
            .unwrap();
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        if source != [127, 0, 0, 1] {
            bind(&socket, &SocketAddr::from((source, 0)))?;
        }
        connect(&socket, &address)?;
        Ok(socket.into())
    }

    fn stored(&self, node: usize) -> PathBuf {
        self.dir
            .join(format!("plugins/{PLUGIN}/results/n{node}/result"))
    }

    fn peak(&self) -> f64 {
        peak(&self.process)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // End of input stops the server.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(self.dir.parent().unwrap());
    }
}

/// A client's certificate and trusted CA.
pub(crate) fn client_of(access: &Access) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(access.ca_cert.as_bytes()).unwrap())
        .unwrap();
    let client =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
    let client = if access.client_cert.is_empty() {
        client.with_no_client_auth()
    } else {
        let chain = vec![CertificateDer::from_pem_slice(access.client_cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(access.client_key.as_bytes()).unwrap();
        client.with_client_auth_cert(chain, key).unwrap()
    };
    Arc::new(client)
}

/// The role of the aggregator, for N nodes or the one of that name.
fn aggregator(dir: &Path, nodes: &str) {
    let names: Vec<String> = match nodes.parse::<usize>() {
        Ok(count) => (0..count).map(|node| format!("n{node}")).collect(),
        Err(_) => vec![nodes.into()],
    };
    let stop = Stop::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until_input_ends();
            stop.stop();
        });
        serve_alone(dir, PLUGIN, &names, None, tell, &stop).unwrap();
    });
}

/// The role of the upper bound: TLS into a file.
fn raw(dir: &Path) {
    let authority = Authority::new(Duration::from_secs(3600)).unwrap();
    let client = authority.client(PLUGIN).unwrap();
    let config = server_config(
        &authority.certificate_pem(),
        &authority.server("127.0.0.1").unwrap(),
        false,
    )
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    tell(Access {
        aggregator_url: format!("https://{}", listener.local_addr().unwrap()),
        ca_cert: authority.certificate_pem(),
        client_cert: client.cert_pem,
        client_key: client.key_pem,
        ..Access::default()
    });
    std::thread::spawn(move || {
        until_input_ends();
        std::process::exit(0);
    });
    let path = dir.join("raw");
    for socket in listener.incoming() {
        let mut stream = StreamOwned::new(
            ServerConnection::new(Arc::clone(&config)).unwrap(),
            socket.unwrap(),
        );
        let mut file = File::create(&path).unwrap();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => break,
                got => file.write_all(&buffer[..got]).unwrap(),
            }
        }
        file.sync_data().unwrap();
        stream.write_all(b"k").unwrap();
        stream.flush().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

fn tell(access: Access) {
    let parts = [
        access.aggregator_url,
        access.ca_cert,
        access.client_cert,
        access.client_key,
    ];
    println!("{}", serde_json::to_string(&parts).unwrap());
    std::io::stdout().flush().unwrap();
}

fn until_input_ends() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn head(node: usize, length: u64) -> String {
    format!(
        "PUT /api/v1/results/by-node/n{node}/{PLUGIN} HTTP/1.1\r\nHost: a\r\nContent-Length: \
         {length}\r\n\r\n"
    )
}

fn pour(stream: &mut impl Write, size: u64) -> std::io::Result<()> {
    let piece: Vec<u8> = (0..64 * 1024_u32)
        .map(|number| (number * 7 + number / 251).to_le_bytes()[0])
        .collect();
    for _ in 0..size / piece.len() as u64 {
        stream.write_all(&piece)?;
    }
    stream.flush()
}

/// The status of the response, which is read completely.
fn status(stream: &mut impl Read) -> std::io::Result<u16> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    text.split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| std::io::Error::other(text.into_owned()))
}

/// Peak memory of a process in MiB.
fn peak(process: &Child) -> f64 {
    memory_of(process, "VmHWM:")
}

fn memory_of(process: &Child, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

fn percent(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

fn median(times: Vec<Duration>) -> Duration {
    percent(&times, 50)
}

enum Better {
    Larger,
    Smaller,
}

fn verdict(what: &str, value: f64, limit: f64, better: Better) {
    let (good, sign) = match better {
        Better::Larger => (value >= limit, "at least"),
        Better::Smaller => (value <= limit, "at most"),
    };
    println!(
        "{} {what}: {value:.2} ({sign} {limit})",
        if good { "ok  " } else { "OVER" }
    );
}
