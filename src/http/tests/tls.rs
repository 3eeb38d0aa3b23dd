//! TLS: records of every size, key updates, and damaged streams.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, SupportedProtocolVersion};

use super::super::Limits;
use super::super::wire::{Meter, Wire as _, handshake};
use super::attack::{Stranger, talk};
use super::{echo, with_server};

/// Reached only by a hang.
const LONG: Duration = Duration::from_secs(30);

/// Pseudo-random bytes from a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most.max(1)
    }
}

/// An echo server that reads up to `pieces` bytes at a time.
fn mirror(
    stranger: &Stranger,
    pieces: usize,
    meet: impl FnOnce(TcpStream),
) -> std::thread::Result<io::Result<Vec<u8>>> {
    let config = stranger.config();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || -> io::Result<Vec<u8>> {
            let limits = Limits {
                stall: LONG,
                ..Limits::default()
            };
            let meter = Arc::new(Meter::new(listener.accept()?.0, &limits)?);
            let mut tls = handshake(config, Arc::clone(&meter), LONG)?;
            meter.finish_within(None);
            let (mut seen, mut piece) = (Vec::new(), vec![0; pieces]);
            loop {
                match tls.read(&mut piece)? {
                    0 => break,
                    got => seen.extend_from_slice(&piece[..got]),
                }
            }
            tls.write_all(&seen)?;
            tls.flush()?;
            tls.close();
            Ok(seen)
        });
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        meet(socket);
        server.join()
    })
}

fn client(stranger: &Stranger, version: &'static SupportedProtocolVersion) -> ClientConnection {
    stranger.client(Some(stranger.worker_pair()), &[version])
}

#[test]
fn content_arrives_complete_in_pieces_of_any_size() {
    let ours = Stranger::new();
    let content: Vec<u8> = (0..300_000_u32)
        .map(|number| (number % 253).to_le_bytes()[0])
        .collect();
    for version in [&TLS12, &TLS13] {
        for pieces in [1, 100, 16_384, 70_000, 1 << 20] {
            let mut connection = client(&ours, version);
            let result = mirror(&ours, pieces, |mut socket| {
                let mut numbers = Numbers(pieces as u64);
                let mut left = &content[..];
                while !left.is_empty() {
                    let mut stream = rustls::Stream::new(&mut connection, &mut socket);
                    let count = (1 + numbers.below(40_000)).min(left.len());
                    stream.write_all(&left[..count]).unwrap();
                    left = &left[count..];
                    if version == &TLS13 && numbers.below(3) == 0 {
                        connection.refresh_traffic_keys().unwrap();
                    }
                }
                connection.send_close_notify();
                let mut stream = rustls::Stream::new(&mut connection, &mut socket);
                stream.flush().unwrap();
                let mut back = Vec::new();
                stream.read_to_end(&mut back).unwrap();
                assert!(back == content, "{version:?} {pieces}");
            });
            result.unwrap().unwrap();
        }
    }
}

#[test]
fn request_directly_after_a_large_body_is_answered() {
    let ours = Stranger::new();
    with_server(&ours.server(), echo, |address| {
        for size in [5_000, 70_000, 300_000, 1 << 20] {
            let head = format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n");
            let one = [head.as_bytes(), b"\r\n", &vec![7; size]].concat();
            let last = [
                head.as_bytes(),
                b"Connection: close\r\n\r\n",
                &vec![8; size],
            ]
            .concat();
            let mut stream = ours.connect(address, Some(ours.worker_pair()));
            let answer = talk(&mut stream, &[&one[..], &one, &last].concat()).unwrap();
            assert_eq!(
                answer.matches(&format!("POST /a {size}\n")).count(),
                3,
                "{answer}"
            );
        }
    });
}

#[test]
fn damaged_tls_stream_is_detected_and_never_panics() {
    let content = vec![7; 60_000];
    let ours = Stranger::new();
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        let mut connection = client(&ours, if seed % 4 == 0 { &TLS12 } else { &TLS13 });
        let hurt_at = numbers.below(if seed % 2 == 0 { 600 } else { 60_000 });
        let result = mirror(&ours, 16_384, |socket| {
            // In a deadlock the client times out; the server's timeout has another test.
            socket
                .set_read_timeout(Some(Duration::from_millis(50)))
                .unwrap();
            let end = socket.try_clone().unwrap();
            let mut damaged = Damaged {
                socket,
                sent: 0,
                hurt_at,
                numbers,
            };
            let mut stream = rustls::Stream::new(&mut connection, &mut damaged);
            // Either side may detect the damage.
            let _ = stream.write_all(&content);
            connection.send_close_notify();
            let _ = connection.write_tls(&mut damaged);
            let _ = end.shutdown(Shutdown::Write);
            let _ = (&end).read_to_end(&mut Vec::new());
        });
        let outcome = result.unwrap_or_else(|_| panic!("seed {seed}: the server panicked"));
        // Repeated bytes may be harmless; other damage must be detected.
        assert!(
            outcome.map_or(true, |seen| seen == content),
            "seed {seed}: something else arrived"
        );
    }
}

/// Changes, drops or repeats bytes.
struct Damaged {
    socket: TcpStream,
    sent: usize,
    hurt_at: usize,
    numbers: Numbers,
}

impl Read for Damaged {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.read(buffer)
    }
}

impl Write for Damaged {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let hit = self
            .hurt_at
            .checked_sub(self.sent)
            .filter(|&at| at < buffer.len());
        self.sent += buffer.len();
        let mut bytes = buffer.to_vec();
        if let Some(at) = hit {
            match self.numbers.below(3) {
                0 => bytes[at] ^= 1 << self.numbers.below(8),
                1 => drop(bytes.drain(at..(at + 1 + self.numbers.below(9)).min(buffer.len()))),
                _ => bytes
                    .splice(
                        at..at,
                        buffer[at..].iter().take(9).copied().collect::<Vec<_>>(),
                    )
                    .for_each(drop),
            }
        }
        self.socket.write_all(&bytes)?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
