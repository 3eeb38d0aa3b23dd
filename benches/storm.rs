//! All attacks of unauthenticated clients and of a plugin with its certificate at once: whether the
//! results of another plugin arrive, the peak memory, and the age of the status.
//!
//! `STORM_SECONDS` is the duration; 300 by default.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::stop::Stop;
use client::Access;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sonobuoy::outside::serve_shared;

use super::{Better, MIB, Server, client_of, percent, status, tell, until_input_ends, verdict};

pub(super) const ROLE: &str = "storm";
pub(super) const HONEST: &str = "honest";
pub(super) const EVIL: &str = "evil";
const NODES: usize = 1_000;
const EVIL_FILE: &str = "evil.json";
const STATUS_FILE: &str = "status.json";

/// The role: an aggregator of two plugins, which writes its status to a file.
pub(super) fn serve(dir: &Path, nodes: &str) {
    let names: Vec<String> = (0..nodes.parse().unwrap())
        .map(|node| format!("n{node}"))
        .collect();
    let stop = Stop::new();
    let ready = |mut access: Vec<Access>| {
        let evil = access.pop().unwrap();
        let evil = [
            evil.aggregator_url,
            evil.ca_cert,
            evil.client_cert,
            evil.client_key,
        ];
        std::fs::write(
            dir.with_file_name(EVIL_FILE),
            serde_json::to_string(&evil).unwrap(),
        )
        .unwrap();
        tell(access.pop().unwrap());
    };
    let publish = |text: String| {
        let new = dir.with_file_name("status.new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, dir.with_file_name(STATUS_FILE)).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until_input_ends();
            stop.stop();
        });
        serve_shared(dir, &[HONEST, EVIL], &names, ready, publish, &stop).unwrap();
    });
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// An attacker.
struct Attacker<'a> {
    ours: &'a Server,
    evil: Arc<ClientConfig>,
    end: &'a Stop,
    /// The attacks.
    tried: &'a AtomicUsize,
    source: [u8; 4],
}

impl Attacker<'_> {
    /// Repeats an attack, as one of N threads.
    fn repeat(&self, pause: u64, attack: impl Fn(&Self, usize) -> std::io::Result<()>) {
        let mut round = 0;
        while !self.end.wait(Duration::from_millis(pause)) {
            let _ = attack(self, round);
            self.tried.fetch_add(1, Ordering::Relaxed);
            round += 1;
        }
    }

    fn plain(&self) -> std::io::Result<TcpStream> {
        let socket = self.ours.tcp_from(self.source)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        socket.set_write_timeout(Some(Duration::from_secs(20)))?;
        Ok(socket)
    }

    fn connect(&self) -> std::io::Result<Stream> {
        let stream = self.ours.connect_from(self.source, &self.evil)?;
        stream
            .sock
            .set_read_timeout(Some(Duration::from_secs(20)))?;
        stream
            .sock
            .set_write_timeout(Some(Duration::from_secs(20)))?;
        Ok(stream)
    }

    fn say(&self, head: &str, body: &[u8]) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        stream.flush()?;
        status(&mut stream).map(drop)
    }

    /// Begins an upload and sends `bytes` each second.
    fn trickle(&self, node: usize, bytes: usize) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        stream.write_all(put(EVIL, node, 100 * MIB, "").as_bytes())?;
        while !self.end.wait(Duration::from_millis(500)) {
            stream.write_all(&vec![7; bytes / 2])?;
        }
        Ok(())
    }

    /// Sends N bytes over plain TCP and holds the connection until it is closed.
    fn hold(&self, said: &[u8]) -> std::io::Result<()> {
        let mut socket = self.plain()?;
        socket.write_all(said)?;
        socket.read_to_end(&mut Vec::new()).map(drop)
    }
}

pub(super) fn put(plugin: &str, node: usize, length: u64, lines: &str) -> String {
    format!(
        "PUT /api/v1/results/by-node/n{node}/{plugin} HTTP/1.1\r\nHost: a\r\nContent-Length: \
         {length}\r\n{lines}\r\n"
    )
}

fn progress(node: usize, body: &[u8]) -> String {
    format!(
        "POST /api/v1/progress/by-node/n{node}/{EVIL} HTTP/1.1\r\nHost: a\r\nConnection: \
         close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
}

/// An archive that unpacks to many bytes, and is truncated.
fn spoiled(files: usize, bytes: usize) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    for file in 0..files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes as u64);
        header.set_mode(0o644);
        tar.append_data(
            &mut header,
            format!("{}/{file}", file % 100),
            std::io::repeat(0).take(bytes as u64),
        )
        .unwrap();
    }
    let mut whole = tar.into_inner().unwrap().finish().unwrap();
    whole.truncate(whole.len() - 20);
    whole
}

/// One of the 64 addresses of the attackers.
pub(super) fn attacker(number: usize) -> [u8; 4] {
    [127, 0, 2, (1 + number % 64) as u8]
}

/// The hostile plugin's access to a server of this role.
pub(super) fn evil(ours: &Server) -> Arc<ClientConfig> {
    let text = std::fs::read_to_string(ours.dir.parent().unwrap().join(EVIL_FILE)).unwrap();
    let [aggregator_url, ca_cert, client_cert, client_key] = serde_json::from_str(&text).unwrap();
    client_of(&Access {
        aggregator_url,
        ca_cert,
        client_cert,
        client_key,
        ..Access::default()
    })
}

pub(super) fn measure(base: &Path) {
    let seconds = std::env::var("STORM_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(300);
    let ours = Server::start_for(ROLE, base, &NODES.to_string());
    let around = ours.dir.parent().unwrap().to_owned();
    let evil = evil(&ours);
    let mut greeting = Vec::new();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    ClientConnection::new(Arc::clone(&evil), name)
        .unwrap()
        .write_tls(&mut greeting)
        .unwrap();
    // A certificate of 60 KiB is begun and not completed.
    let record = [&[0x17, 3, 3, 0x40, 0][..], &[7; 16_000]].concat();
    let long_greeting = [&greeting[..], &record, &record, &record].concat();
    let objects = format!("{{\"a\":[{}{{}}]}}", "{\"\":0},".repeat(590_000));
    let names: Vec<String> = (0..40_000).map(|number| format!("{number:0100}")).collect();
    let names = serde_json::json!({"msg": "x", "failures": names}).to_string();
    let (inodes, bytes) = (spoiled(20_000, 0), spoiled(4, 64 << 20));
    let headers = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "A: b\r\n".repeat(50_000)
    );
    let chunks = format!(
        "PUT /api/v1/results/by-node/n1/{EVIL} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \
         chunked\r\n\r\n{}",
        "1;a=b\r\nx\r\n".repeat(20_000)
    );
    let (end, tried) = (Stop::new(), AtomicUsize::new(0));
    let seen = Seen::default();
    std::thread::scope(|scope| {
        let attacker = |number| {
            let evil = Arc::clone(&evil);
            Attacker {
                ours: &ours,
                evil,
                end: &end,
                tried: &tried,
                source: attacker(number),
            }
        };
        let many = |count: usize, pause: u64, attack: &'static str| {
            for number in 0..count {
                let (greeting, long_greeting, objects, names) =
                    (&greeting, &long_greeting, &objects, &names);
                let (inodes, bytes, headers, chunks) = (&inodes, &bytes, &headers, &chunks);
                let attacker = attacker(number);
                let work = move || {
                    attacker.repeat(pause, |attacker, round| match attack {
                        "half-open" => attacker.hold(&greeting[..1]),
                        "greeting" => attacker.hold(greeting),
                        "long greeting" => attacker.hold(long_greeting),
                        "stranger" => attacker.hold(b"GET / HTTP/1.1\r\n\r\n"),
                        "slow" => attacker.trickle(number, 512),
                        "just fast enough" => attacker.trickle(500 + number, 9 << 10),
                        "objects" => attacker.say(
                            &progress(round % NODES, objects.as_bytes()),
                            objects.as_bytes(),
                        ),
                        "names" => attacker
                            .say(&progress(round % NODES, names.as_bytes()), names.as_bytes()),
                        "inodes" | "bytes" => {
                            let body = if attack == "inodes" { inodes } else { bytes };
                            let lines = "Content-Type: application/gzip\r\nContent-Disposition: \
                                         a;filename=x\r\n";
                            attacker.say(&put(EVIL, 900 + number, body.len() as u64, lines), body)
                        }
                        "headers" => attacker.say(headers, b""),
                        _ => attacker.say(chunks, b""),
                    });
                };
                std::thread::Builder::new()
                    .stack_size(128 * 1024)
                    .spawn_scoped(scope, work)
                    .unwrap();
            }
        };
        many(1_000, 50, "half-open");
        many(300, 50, "greeting");
        many(200, 50, "long greeting");
        many(50, 100, "stranger");
        many(256, 100, "slow");
        many(256, 100, "just fast enough");
        many(8, 50, "objects");
        many(8, 50, "names");
        many(2, 500, "inodes");
        many(2, 500, "bytes");
        many(4, 100, "headers");
        many(4, 100, "chunks");
        honest(&ours, seconds, &around, &seen);
        end.stop();
    });
    let times = seen.times.into_inner().unwrap();
    println!(
        "storm of {seconds} s, {} attacks: honest results take {:?}, 99 of 100 {:?}, in {} \
         attempts",
        tried.load(Ordering::Relaxed),
        percent(&times, 50),
        percent(&times, 99),
        seen.tries.load(Ordering::Relaxed)
    );
    verdict(
        "storm, honest results that are lost",
        (NODES - times.len()) as f64,
        0.0,
        Better::Smaller,
    );
    verdict(
        "storm, status behind by s at most",
        seen.lag.into_inner().unwrap().as_secs_f64(),
        10.0,
        Better::Smaller,
    );
    verdict(
        "storm, aggregator's peak memory in MiB",
        ours.peak(),
        128.0,
        Better::Smaller,
    );
}

/// Outcome for the honest clients.
#[derive(Default)]
struct Seen {
    times: Mutex<Vec<Duration>>,
    tries: AtomicUsize,
    /// Longest period in which the status lagged behind received results.
    lag: Mutex<Duration>,
}

/// Sends the honest results, evenly over the whole time, and watches the status.
fn honest(ours: &Server, seconds: u64, around: &Path, seen: &Seen) {
    let (begin, watching, never) = (Instant::now(), Stop::new(), Stop::new());
    let body = vec![b'x'; 20 << 10];
    let upload = |node: usize| {
        let mut stream = ours.connect_from([127, 0, 3, (1 + node % 8) as u8], &ours.client)?;
        stream
            .sock
            .set_read_timeout(Some(Duration::from_secs(60)))?;
        stream
            .write_all(put(HONEST, node, body.len() as u64, "Connection: close\r\n").as_bytes())?;
        stream.write_all(&body)?;
        status(&mut stream)
    };
    let send = |node: usize| {
        let share = u32::try_from(node).unwrap();
        let due = Duration::from_secs(seconds) * share / u32::try_from(NODES).unwrap();
        never.wait(due.saturating_sub(begin.elapsed()));
        let begin = Instant::now();
        for _ in 0..20 {
            seen.tries.fetch_add(1, Ordering::Relaxed);
            if matches!(upload(node), Ok(200 | 409)) {
                seen.times.lock().unwrap().push(begin.elapsed());
                return;
            }
            never.wait(Duration::from_secs(1));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut behind = (0, Instant::now());
            while !watching.wait(Duration::from_millis(200)) {
                let text = std::fs::read_to_string(around.join(STATUS_FILE)).unwrap_or_default();
                if told(&text) >= behind.0 {
                    behind = (seen.times.lock().unwrap().len(), Instant::now());
                }
                let mut lag = seen.lag.lock().unwrap();
                *lag = (*lag).max(behind.1.elapsed());
            }
        });
        let send = &send;
        let senders: Vec<_> = (0..8)
            .map(|first| scope.spawn(move || (first..NODES).step_by(8).for_each(send)))
            .collect();
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
        watching.stop();
    });
}

/// Completed results of the honest plugin in the status; large numbers are a sum.
fn told(text: &str) -> usize {
    let status: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let entries = status["plugins"].as_array().map_or(&[][..], Vec::as_slice);
    let complete =
        |entry: &&serde_json::Value| entry["plugin"] == HONEST && entry["status"] == "complete";
    let count = |entry: &serde_json::Value| entry["count"].as_u64().unwrap_or(1);
    usize::try_from(entries.iter().filter(complete).map(count).sum::<u64>()).unwrap()
}
