//! Hostile and broken clients over TLS and raw sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned,
    SupportedProtocolVersion,
};

use super::super::*;
use super::{echo, exchange, with_server};
use std::io;

const SHORT: Duration = Duration::from_millis(400);
/// Reached only by a hang.
pub(super) const LONG: Duration = Duration::from_secs(30);
pub(super) const OK: &str = "HTTP/1.1 200 OK\r\n";
const HELLO: &[u8] =
    b"POST /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";

pub(super) type Pair = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// An authority created by openssl.
pub(super) struct Stranger {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Stranger {
    pub(super) fn new() -> Self {
        Self::named("the authority")
    }

    fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    fn sign(&self, usage: ExtendedKeyUsagePurpose, last_year: Option<i32>) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![
            SanType::IpAddress([127, 0, 0, 1].into()),
            SanType::DnsName("p".try_into().unwrap()),
        ];
        params.extended_key_usages = vec![usage];
        if let Some(year) = last_year {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (
            certificate.der().clone(),
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            provider.clone(),
        );
        let (certificate, key) = self.sign(ExtendedKeyUsagePurpose::ServerAuth, None);
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Arc::new(config)
    }

    pub(super) fn server(&self) -> Server {
        let limits = Limits {
            handshake: SHORT,
            head: SHORT,
            idle: SHORT,
            stall: SHORT,
            grace: SHORT,
            ..Limits::default()
        };
        Server::bind("127.0.0.1:0")
            .unwrap()
            .tls(self.config())
            .limits(limits)
    }

    pub(super) fn client(
        &self,
        pair: Option<Pair>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(versions)
                .unwrap()
                .with_root_certificates(roots);
        let config = match pair {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(vec![certificate], key)
                .unwrap(),
        };
        let name = ServerName::try_from("127.0.0.1").unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap()
    }

    pub(super) fn connect(
        &self,
        address: SocketAddr,
        pair: Option<Pair>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        StreamOwned::new(self.client(pair, rustls::DEFAULT_VERSIONS), socket)
    }

    pub(super) fn worker_pair(&self) -> Pair {
        self.sign(ExtendedKeyUsagePurpose::ClientAuth, None)
    }

    fn worker(&self, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        self.connect(address, Some(self.worker_pair()))
    }

    /// An honest worker, which must be served.
    fn is_served(&self, address: SocketAddr) {
        let answer = talk(&mut self.worker(address), HELLO).unwrap();
        assert!(
            answer.starts_with(OK) && answer.ends_with("POST /hello 2\n"),
            "{answer}"
        );
    }
}

/// Sends everything and returns the response.
pub(super) fn talk(stream: &mut (impl Read + Write), bytes: &[u8]) -> io::Result<String> {
    stream.write_all(bytes)?;
    stream.flush()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8(answer).unwrap())
}

/// Bytes until the end of the connection or an error.
fn rest(stream: &mut impl Read) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn only_valid_client_certificates_of_the_authority_are_accepted() {
    let (ours, other, namesake) = (Stranger::new(), Stranger::named("another"), Stranger::new());
    let asked = AtomicUsize::new(0);
    let handler = |request: &mut Request<'_>| {
        asked.fetch_add(1, Ordering::Relaxed);
        echo(request)
    };
    with_server(&ours.server(), handler, |address| {
        for (pair, expected) in [
            (None, "CertificateRequired"),
            (
                Some(other.sign(ExtendedKeyUsagePurpose::ClientAuth, None)),
                "UnknownCA",
            ),
            (
                Some(namesake.sign(ExtendedKeyUsagePurpose::ClientAuth, None)),
                "DecryptError",
            ),
            (
                Some(ours.sign(ExtendedKeyUsagePurpose::ServerAuth, None)),
                "UnsupportedCertificate",
            ),
            (
                Some(ours.sign(ExtendedKeyUsagePurpose::ClientAuth, Some(2020))),
                "CertificateExpired",
            ),
        ] {
            let error = talk(&mut ours.connect(address, pair), HELLO)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(expected),
                "the refusal arrives: {expected}: {error}"
            );
        }
        assert_eq!(asked.load(Ordering::Relaxed), 0, "no handler ran");
        ours.is_served(address);
    });
}

#[test]
fn certificate_reaches_the_handler() {
    let ours = Stranger::new();
    let seen = Mutex::new(None);
    let handler = |request: &mut Request<'_>| {
        seen.lock().unwrap().clone_from(&request.peer.certificate);
        Response::empty(200)
    };
    let pair = ours.sign(ExtendedKeyUsagePurpose::ClientAuth, None);
    let certificate = pair.0.clone();
    with_server(&ours.server(), handler, |address| {
        talk(&mut ours.connect(address, Some(pair)), HELLO).unwrap();
    });
    assert_eq!(seen.into_inner().unwrap(), Some(certificate));
}

#[test]
fn connection_without_a_handshake_is_closed() {
    let ours = Stranger::new();
    let mut server = ours.server();
    server.limits.waiting_timeout = SHORT;
    with_server(&server, echo, |address| {
        let before = Instant::now();
        let mut silent = TcpStream::connect(address).unwrap();
        silent.set_read_timeout(Some(LONG)).unwrap();
        assert_eq!(rest(&mut silent), "");
        assert!(before.elapsed() < LONG, "it was the server who ended it");

        let plain = exchange(address, HELLO);
        assert!(
            plain.starts_with("HTTP/1.1 400 ") && plain.contains("HTTPS"),
            "{plain}"
        );
        let mut noise = TcpStream::connect(address).unwrap();
        noise.set_read_timeout(Some(LONG)).unwrap();
        noise.write_all(&[0x16, 3, 1, 0xff, 0xff, 7, 7, 7]).unwrap();
        assert!(!rest(&mut noise).contains("HTTP"));
        ours.is_served(address);
    });
}

#[test]
fn slow_heads_and_slow_bodies_end_in_408() {
    let ours = Stranger::new();
    let mut server = ours.server();
    server.limits.rate = 1_000_000;
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n";
    with_server(&server, echo, |address| {
        // Byte by byte: every read succeeds, the head is late.
        let dribble = |start: &str, byte: &[u8]| {
            let mut stream = ours.worker(address);
            stream.write_all(start.as_bytes()).unwrap();
            stream.sock.set_read_timeout(Some(SHORT / 20)).unwrap();
            let mut answer = Vec::new();
            loop {
                let mut piece = [0; 1000];
                match stream.read(&mut piece) {
                    Ok(0) => break,
                    Ok(got) => answer.extend(&piece[..got]),
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                        ) =>
                    {
                        if stream
                            .write_all(byte)
                            .and_then(|()| stream.flush())
                            .is_err()
                        {
                            break;
                        }
                    }
                    Err(_) => break,
                }
            }
            String::from_utf8(answer).unwrap()
        };
        for (start, byte) in [("POST / HTTP/1.1\r\nX: ", "x"), (head, "x")] {
            let answer = dribble(start, byte.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 408 "), "{start:?}: {answer}");
        }
        // Then silence.
        for start in ["POST / HT", head] {
            let answer = talk(&mut ours.worker(address), start.as_bytes()).unwrap();
            assert!(answer.starts_with("HTTP/1.1 408 "), "{start:?}: {answer}");
        }
        ours.is_served(address);
    });
}

#[test]
fn truncated_body_is_never_complete() {
    let ours = Stranger::new();
    let outcomes = Mutex::new(Vec::new());
    let handler = |request: &mut Request<'_>| {
        let mut body = Vec::new();
        let outcome = request
            .body()
            .read_to_end(&mut body)
            .map_err(|error| error.kind());
        outcomes.lock().unwrap().push(outcome.is_ok());
        Response::empty(if outcome.is_ok() { 200 } else { 500 })
    };
    with_server(&ours.server(), handler, |address| {
        for start in [
            "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345",
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n123",
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n",
        ] {
            for polite in [true, false] {
                let mut stream = ours.worker(address);
                stream.write_all(start.as_bytes()).unwrap();
                if polite {
                    stream.conn.send_close_notify();
                }
                stream.flush().unwrap();
                stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
                let answer = rest(&mut stream);
                assert!(answer.starts_with("HTTP/1.1 408 "), "{start:?}: {answer}");
            }
        }
    });
    assert_eq!(*outcomes.lock().unwrap(), [false; 8]);
}

#[test]
fn silent_and_idle_connections_hold_no_thread_that_others_need() {
    let ours = Stranger::new();
    let mut server = ours.server();
    (server.limits.idle, server.limits.threads) = (LONG, 5);
    with_server(&server, echo, |address| {
        let silent: Vec<_> = (0..100)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut idle: Vec<_> = (0..5)
            .map(|_| {
                let mut stream = ours.worker(address);
                stream
                    .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                    .unwrap();
                stream.read_exact(&mut [0; 15]).unwrap();
                stream
            })
            .collect();
        let before = Instant::now();
        ours.is_served(address);
        assert!(
            before.elapsed() < LONG / 2,
            "the idle timeout was not waited for"
        );
        let ended = idle.iter_mut().map(|stream| {
            stream.sock.set_read_timeout(Some(SHORT)).unwrap();
            stream.read_to_end(&mut Vec::new()).is_ok()
        });
        assert!(
            ended.filter(|ended| *ended).count() >= 1,
            "an idle connection was ended"
        );
        drop((silent, idle));
    });
}

/// Connects from another address of the loopback network.
#[cfg(target_os = "linux")]
fn connect_from(last: u8, address: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 1, last], 0))).unwrap();
    connect(&socket, &address).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

#[test]
#[cfg(target_os = "linux")]
fn stalled_handshakes_delay_no_other_address() {
    let ours = Stranger::new();
    let mut hello = Vec::new();
    ours.client(None, rustls::DEFAULT_VERSIONS)
        .write_tls(&mut hello)
        .unwrap();
    let mut server = ours.server();
    (server.limits.threads, server.limits.handshake) = (8, SHORT);
    with_server(&server, echo, |address| {
        for sent in [&[0x16][..], &hello[..4], &hello[..hello.len() - 1], &hello] {
            let held: Vec<_> = (0..64)
                .map(|number| {
                    let mut socket = connect_from(number % 4, address);
                    socket.write_all(sent).unwrap();
                    socket
                })
                .collect();
            let before = Instant::now();
            let client = ours.client(Some(ours.worker_pair()), rustls::DEFAULT_VERSIONS);
            let mut honest = StreamOwned::new(client, connect_from(200, address));
            assert!(talk(&mut honest, HELLO).unwrap().starts_with(OK));
            // In sequence the stalled handshakes would take eight timeouts; four addresses hold two
            // threads each.
            assert!(
                before.elapsed() < SHORT * 4,
                "{} bytes: {:?}",
                sent.len(),
                before.elapsed()
            );
            drop(held);
        }
    });
}

/// Waits until the server has closed `count` of the connections.
#[cfg(target_os = "linux")]
fn await_closed(mut open: Vec<TcpStream>, count: usize) {
    let remaining = open.len() - count;
    let begun = Instant::now();
    while open.len() > remaining {
        assert!(
            begun.elapsed() < LONG / 2,
            "{} are open, not {remaining}",
            open.len()
        );
        open.retain_mut(|socket| {
            socket.set_read_timeout(Some(SHORT / 20)).unwrap();
            let read = socket.read(&mut [0]);
            matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        });
    }
}

#[test]
#[cfg(target_os = "linux")]
fn silent_and_begun_connections_share_one_bound() {
    const EVIL: u8 = 1;
    let ours = Stranger::new();
    let mut server = ours.server();
    (server.limits.threads, server.limits.waiting) = (4, 8);
    (server.limits.handshake, server.limits.waiting_timeout) = (LONG, LONG);
    with_server(&server, echo, |address| {
        let client = ours.client(Some(ours.worker_pair()), rustls::DEFAULT_VERSIONS);
        let mut honest = StreamOwned::new(client, connect_from(200, address));
        let evil = (0..40)
            .map(|number| {
                let mut socket = connect_from(EVIL, address);
                if number % 2 == 0 {
                    // Closed already if others followed.
                    let _ = socket.write_all(&[0x16]);
                }
                socket
            })
            .collect();
        // One address has one thread; the other seven wait with the honest one.
        await_closed(evil, 40 - 1 - 7);
        assert!(
            talk(&mut honest, HELLO).unwrap().starts_with(OK),
            "the oldest of all has its own address"
        );
    });
}

#[test]
#[cfg(target_os = "linux")]
fn begun_connections_without_a_thread_are_closed_in_time() {
    let ours = Stranger::new();
    let mut server = ours.server();
    (
        server.limits.threads,
        server.limits.waiting_timeout,
        server.limits.handshake,
    ) = (4, SHORT, LONG);
    with_server(&server, echo, |address| {
        let begun = (0..4)
            .map(|_| {
                let mut socket = connect_from(1, address);
                socket.write_all(&[0x16]).unwrap();
                socket
            })
            .collect();
        // All but the one that has the thread of its address, in a handshake.
        await_closed(begun, 3);
    });
}

fn principal(certificate: &CertificateDer<'static>) -> Option<String> {
    // Each certificate is a principal.
    Some(format!(
        "{:?}",
        ring::digest::digest(&ring::digest::SHA256, certificate)
    ))
}

/// A worker with this certificate in the middle of an upload.
fn begin(
    ours: &Stranger,
    pair: &Pair,
    address: SocketAddr,
    length: u64,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut stream = ours.connect(address, Some((pair.0.clone(), pair.1.clone_key())));
    let head = format!("PUT /slow HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\nabc");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[test]
fn slow_requests_yield_to_waiting_connections() {
    let ours = Stranger::new();
    let limits = Limits {
        threads: 4,
        ..Limits::default()
    };
    let server = ours.server().limits(limits).principal(principal);
    with_server(&server, echo, |address| {
        let (evil, honest) = (ours.worker_pair(), ours.worker_pair());
        let mut slow: Vec<_> = (0..4)
            .map(|_| begin(&ours, &evil, address, 20_000))
            .collect();
        let before = Instant::now();
        let honest = || ours.connect(address, Some((honest.0.clone(), honest.1.clone_key())));
        for _ in 0..3 {
            assert!(talk(&mut honest(), HELLO).unwrap().starts_with(OK));
        }
        assert!(
            before.elapsed() < LONG / 2,
            "no stall timeout was waited for"
        );
        let ended = slow.iter_mut().map(|stream| {
            stream.sock.set_read_timeout(Some(SHORT)).unwrap();
            rest(stream)
        });
        let ended: Vec<_> = ended.filter(|answer| !answer.is_empty()).collect();
        assert!(!ended.is_empty());
        for answer in ended {
            assert!(
                answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: 5\r\n"),
                "{answer}"
            );
            let reason = "the body arrived too slowly while other connections waited; try again";
            assert_eq!(answer.lines().last(), Some(reason), "{answer}");
        }
    });
}

#[test]
fn long_uploads_of_one_principal_wait_without_a_thread() {
    const LENGTH: u64 = LONG_BODY + 1;
    let ours = Stranger::new();
    // Two long uploads of one principal at a time, three in all; six may wait, of one principal
    // four.
    let limits = Limits {
        threads: 4,
        waiting_uploads: 6,
        ..Limits::default()
    };
    let server = ours.server().limits(limits).principal(principal);
    with_server(&server, echo, |address| {
        let (evil, honest) = (ours.worker_pair(), ours.worker_pair());
        let mut held: Vec<_> = (0..7)
            .map(|_| begin(&ours, &evil, address, LENGTH))
            .collect();
        // One of the seven exceeds the limit.
        let refused = held.extract_if(.., |stream| {
            stream.sock.set_read_timeout(Some(SHORT)).unwrap();
            rest(stream).starts_with("HTTP/1.1 503 ")
        });
        assert_eq!(refused.count(), 1);
        let body = vec![7; usize::try_from(LENGTH).unwrap() - 3];
        let mut other = begin(&ours, &honest, address, LENGTH);
        assert!(
            talk(&mut other, &body).unwrap().starts_with(OK),
            "another principal is not disturbed"
        );
        std::thread::scope(|scope| {
            for mut stream in held {
                let body = &body;
                stream.sock.set_read_timeout(Some(LONG)).unwrap();
                scope.spawn(move || assert!(talk(&mut stream, body).unwrap().starts_with(OK)));
            }
        });
    });
}

#[test]
fn simultaneous_crowd_is_served_completely() {
    let ours = Stranger::new();
    let limits = Limits {
        threads: 4,
        ..Limits::default()
    };
    with_server(&ours.server().limits(limits), echo, |address| {
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| ours.is_served(address));
            }
        });
    });
}

#[test]
fn refusal_of_a_large_body_arrives() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    let refuse = |_: &mut Request<'_>| Response::text(413, "no");
    with_server(&server, refuse, |address| {
        let body = vec![b'x'; 16 << 20];
        for _ in 0..8 {
            let mut socket = TcpStream::connect(address).unwrap();
            let head = format!(
                "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let answer = talk(&mut socket, &[head.as_bytes(), &body].concat());
            assert!(answer.unwrap().starts_with("HTTP/1.1 413 "));
        }
    });
}

#[test]
fn early_refusal_arrives_while_the_body_continues() {
    let handler = |_: &mut Request<'_>| Response::text(403, "not yours");
    with_server(&Server::bind("127.0.0.1:0").unwrap(), handler, |address| {
        let head = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n";
        let answer = exchange(address, &[head.as_bytes(), &vec![7; 1 << 20]].concat());
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("not yours\n"),
            "{answer}"
        );

        let absurd = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000000\r\n\r\nabc";
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(absurd.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(rest(&mut stream).starts_with("HTTP/1.1 403 "));

        // A client with `Expect` is rejected, sends no body, and is not awaited.
        let asks = "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
        let answer = exchange(address, asks.as_bytes());
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains("connection: close"),
            "{answer}"
        );

        // A small body is skipped, and the connection stays open.
        let two =
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.0\r\n\r\n";
        assert_eq!(
            exchange(address, two.as_bytes())
                .matches("HTTP/1.1 403 ")
                .count(),
            2
        );
    });
}

#[test]
fn panic_ends_only_its_request() {
    let handler = |request: &mut Request<'_>| {
        assert_ne!(request.path, "/panic", "as asked for");
        echo(request)
    };
    with_server(&Server::bind("127.0.0.1:0").unwrap(), handler, |address| {
        let answer = exchange(
            address,
            b"GET /panic HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        );
        assert!(
            answer.starts_with("HTTP/1.1 500 ") && answer.contains("connection: close"),
            "{answer}"
        );
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1);
        assert!(exchange(address, HELLO).starts_with(OK));
    });
}

#[test]
fn stop_waits_for_uploads_alone() {
    let ours = Stranger::new();
    let mut server = ours.server();
    server.limits = Limits {
        grace: LONG,
        ..Limits::default()
    };
    let stop = Stop::new();
    let before = Instant::now();
    let (begun, begins) = std::sync::mpsc::channel();
    let handler = move |request: &mut Request<'_>| {
        begun.send(()).unwrap();
        echo(request)
    };
    std::thread::scope(|scope| {
        let address = server.local_addr();
        let running = scope.spawn(|| server.run(&stop, &handler));
        let silent = TcpStream::connect(address).unwrap();
        let mut idle = ours.worker(address);
        idle.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        idle.read_exact(&mut [0; 15]).unwrap();
        begins.recv().unwrap();
        let mut upload = ours.worker(address);
        upload
            .write_all(b"PUT /late HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n12345")
            .unwrap();
        begins.recv().unwrap();
        stop.stop();
        // The upload continues once the idle connection has ended.
        rest(&mut idle);
        let answer = talk(&mut upload, &[b'x'; 9_995]).unwrap();
        assert!(
            answer.starts_with(OK) && answer.ends_with("PUT /late 10000\n"),
            "{answer}"
        );
        running.join().unwrap().unwrap();
        assert!(TcpStream::connect(address).is_err(), "the port is closed");
        drop(silent);
    });
    assert!(
        before.elapsed() < LONG / 2,
        "the silent were not waited for"
    );
}

#[test]
fn stop_waits_a_bounded_time_for_an_upload() {
    let mut server = Server::bind("127.0.0.1:0").unwrap();
    server.limits = Limits {
        grace: SHORT,
        ..Limits::default()
    };
    let stop = Stop::new();
    let handler = |request: &mut Request<'_>| {
        stop.stop();
        echo(request)
    };
    std::thread::scope(|scope| {
        let address = server.local_addr();
        let running = scope.spawn(|| server.run(&stop, handler));
        let mut upload = TcpStream::connect(address).unwrap();
        upload.set_read_timeout(Some(LONG)).unwrap();
        upload
            .write_all(b"PUT /never HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n12345")
            .unwrap();
        running.join().unwrap().unwrap();
        assert!(!rest(&mut upload).starts_with(OK));
    });
}

#[test]
fn taken_port_is_reported_at_once() {
    let first = Server::bind("127.0.0.1:0").unwrap();
    let address = first.local_addr().to_string();
    let error = format!("{:#}", Server::bind(&address).err().unwrap());
    assert_eq!(
        error,
        format!(
            "cannot listen at `{address}`: the port is taken; stop what listens there or choose \
             another"
        )
    );
    let error = format!("{:#}", Server::bind("no port").err().unwrap());
    assert!(error.starts_with("cannot listen at `no port`: "), "{error}");
}

#[test]
fn files_and_their_ranges_are_streamed() {
    let folder = base::temp::Folder::new().unwrap();
    let path = folder.join("file");
    let content: Vec<u8> = (0..300_000_u32)
        .map(|n| b'a' + u8::try_from(n % 26).unwrap())
        .collect();
    std::fs::write(&path, &content).unwrap();
    let handler = |request: &mut Request<'_>| {
        let file = std::fs::File::open(&path).unwrap();
        Response::file(file, "application/gzip", request.headers.get("range")).unwrap()
    };
    with_server(&Server::bind("127.0.0.1:0").unwrap(), handler, |address| {
        let ask = |method: &str, range: &str| {
            let request = format!(
                "{method} / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nRange: {range}\r\n\r\n"
            );
            let answer = exchange(address, request.as_bytes());
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.to_owned(), body.to_owned())
        };
        let (head, body) = ask("GET", "");
        assert!(
            head.starts_with(OK) && head.contains("content-length: 300000"),
            "{head}"
        );
        assert_eq!(body.as_bytes(), content);
        let (head, body) = ask("GET", "bytes=299990-");
        assert!(
            head.starts_with("HTTP/1.1 206 ") && head.contains("bytes 299990-299999/300000"),
            "{head}"
        );
        assert_eq!(body.as_bytes(), &content[299_990..]);
        let (head, _) = ask("GET", "bytes=300000-");
        assert!(
            head.starts_with("HTTP/1.1 416 ") && head.contains("bytes */300000"),
            "{head}"
        );
        let (head, body) = ask("HEAD", "");
        assert!(
            head.contains("content-length: 300000") && body.is_empty(),
            "{head}"
        );
    });
}
