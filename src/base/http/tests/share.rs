//! Several principals that want all there is, and one that wants its part.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

#[cfg(target_os = "linux")]
use rustls::StreamOwned;

use super::super::*;
use super::attack::{LONG, OK, Pair, Stranger, principal, talk};
use super::{echo, with_server};

#[test]
fn however_many_are_greedy_each_has_its_part() {
    let ours = Stranger::new();
    let limits = Limits {
        ready: 8,
        small: 8,
        large: 8,
        parked: 8,
        principals: 4,
        // Just above the rate below which somebody would be asked to come again.
        pressed_rate: 0,
        stall: LONG,
        ..Limits::default()
    };
    let server = ours.server().limits(limits).principal(principal);
    with_server(&server, echo, |address: SocketAddr| {
        let greedy = [ours.worker_pair(), ours.worker_pair(), ours.worker_pair()];
        let connect = |pair: &Pair| ours.connect(address, Some((pair.0.clone(), pair.1.clone_key())));
        let mut held = Vec::new();
        for pair in &greedy {
            for number in 0..3 {
                let mut stream = connect(pair);
                let head = format!("PUT /{number} HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc");
                stream.write_all(head.as_bytes()).unwrap();
                held.push(stream);
            }
        }
        // Of each one has its turn and one waits; which is the third of them, only the server knows.
        let mut told = 0;
        for stream in &mut held {
            stream.sock.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let mut start = [0; 12];
            told += usize::from(stream.read_exact(&mut start).is_ok() && &start == b"HTTP/1.1 503");
        }
        assert_eq!(told, greedy.len());
        let refused = server.turned_away();
        assert_eq!(refused.len(), told, "{refused:?}");
        assert!(refused.iter().all(|refused| refused.peer.certificate.is_some() && !refused.dawdled));
        let honest = ours.worker_pair();
        let body = vec![b'x'; 1_000_000];
        let head = b"PUT /whole HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n";
        for _ in 0..2 {
            let answer = talk(&mut connect(&honest), &[head, &body[..]].concat()).unwrap();
            assert!(answer.starts_with(OK), "{answer}");
        }
        for stream in held {
            let _ = stream.sock.shutdown(std::net::Shutdown::Both);
        }
    });
}

/// Connects from another address than others do.
#[cfg(target_os = "linux")]
fn connect_from(ip: [u8; 4], address: SocketAddr) -> std::net::TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

    let one = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&one, &SocketAddr::from((ip, 0))).unwrap();
    connect(&one, &address).unwrap();
    one.into()
}

/// A worker at one of many addresses, who waits for its answers for less than any limit.
#[cfg(target_os = "linux")]
fn worker_from(
    ours: &Stranger,
    last: u8,
    pair: &Pair,
    address: SocketAddr,
) -> StreamOwned<rustls::ClientConnection, std::net::TcpStream> {
    let socket = connect_from([127, 0, 1, last], address);
    socket.set_read_timeout(Some(LONG / 4)).unwrap();
    let pair = (pair.0.clone(), pair.1.clone_key());
    StreamOwned::new(ours.client(Some(pair), rustls::DEFAULT_VERSIONS), socket)
}

#[test]
#[cfg(target_os = "linux")]
fn an_address_that_fills_all_places_with_half_a_request_makes_room_for_others() {
    const KNOWN: usize = 24;
    let mut server = Server::bind("127.0.0.1:0").unwrap();
    server.limits = Limits { known: KNOWN, head: LONG, yields: LONG, ..Limits::default() };
    with_server(&server, echo, |address| {
        let held: Vec<_> = (0..2 * KNOWN)
            .map(|_| {
                let mut socket = connect_from([127, 0, 0, 1], address);
                socket.write_all(b"GET /never HTTP/1.1\r\nHost").unwrap();
                socket
            })
            .collect();
        for _ in 0..3 {
            let mut honest = connect_from([127, 0, 0, 2], address);
            let before = Instant::now();
            let answer = talk(&mut honest, b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            assert!(answer.unwrap().starts_with(OK));
            assert!(before.elapsed() < LONG / 4, "no limit was waited for: {:?}", before.elapsed());
        }
        drop(held);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_name_that_fills_all_places_from_many_addresses_makes_room_before_others() {
    const KNOWN: usize = 24;
    let ours = Stranger::new();
    let limits =
        Limits { known: KNOWN, principals: 2, head: LONG, idle: LONG, stall: LONG, ..Limits::default() };
    let server = ours.server().limits(limits).principal(principal);
    with_server(&server, echo, |address| {
        let from = |last: u8, pair: &Pair| worker_from(&ours, last, pair, address);
        let (greedy, honest) = (ours.worker_pair(), ours.worker_pair());
        let mut kept = from(200, &honest);
        let mut ask_again = || {
            kept.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            let mut start = [0; OK.len()];
            kept.read_exact(&mut start).unwrap();
            assert_eq!(start, OK.as_bytes());
            while kept.read(&mut [0; 1024]).unwrap() == 1024 {}
        };
        ask_again();
        let mut held = Vec::new();
        for last in 1..=2 * u8::try_from(KNOWN).unwrap() {
            let mut stream = from(last, &greedy);
            stream.write_all(b"GET /never HTTP/1.1\r\nHost").unwrap();
            held.push(stream);
        }
        for _ in 0..3 {
            let answer =
                talk(&mut from(201, &honest), b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            assert!(answer.unwrap().starts_with(OK));
        }
        ask_again();
    });
}

#[test]
#[cfg(target_os = "linux")]
fn handshakes_that_strangers_at_many_addresses_begin_do_not_keep_out_who_came_before() {
    let ours = Stranger::new();
    let limits = Limits { handshakes: 8, handshake: LONG, handshake_yields: LONG, ..Limits::default() };
    let server = ours.server().limits(limits).principal(principal);
    with_server(&server, echo, |address| {
        let pair = ours.worker_pair();
        let is_served = || {
            let answer = talk(
                &mut worker_from(&ours, 200, &pair, address),
                b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            );
            assert!(answer.unwrap().starts_with(OK));
        };
        is_served();
        let held: Vec<_> = (1..=24)
            .map(|last| {
                let mut socket = connect_from([127, 0, 1, last], address);
                ours.client(None, rustls::DEFAULT_VERSIONS).write_tls(&mut socket).unwrap();
                socket
            })
            .collect();
        (0..3).for_each(|_| is_served());
        drop(held);
    });
}

#[test]
fn who_sends_a_large_body_that_was_refused_hears_so() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    let refuse = |_: &mut Request<'_>| Response::text(413, "no");
    with_server(&server, refuse, |address| {
        let body = vec![b'x'; 16 << 20];
        for _ in 0..8 {
            let mut socket = std::net::TcpStream::connect(address).unwrap();
            let head = format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len());
            let answer = talk(&mut socket, &[head.as_bytes(), &body].concat());
            assert!(answer.unwrap().starts_with("HTTP/1.1 413 "));
        }
    });
}

#[test]
fn a_body_that_was_refused_and_does_not_come_holds_no_thread() {
    let mut server = Server::bind("127.0.0.1:0").unwrap();
    server.limits = Limits { large: 1, pressed_rate: 0, stall: LONG, ..Limits::default() };
    let refuse = |_: &mut Request<'_>| Response::text(403, "no");
    with_server(&server, refuse, |address| {
        let before = Instant::now();
        let held: Vec<_> = (0..8)
            .map(|_| {
                let mut socket = std::net::TcpStream::connect(address).unwrap();
                socket.set_read_timeout(Some(LONG)).unwrap();
                let answer =
                    talk(&mut socket, b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc");
                assert!(answer.unwrap().starts_with("HTTP/1.1 403 "));
                socket
            })
            .collect();
        assert!(before.elapsed() < Duration::from_secs(2), "nobody waits for it: {:?}", before.elapsed());
        drop(held);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn requests_that_one_address_has_waiting_keep_no_other_out() {
    let mut server = Server::bind("127.0.0.1:0").unwrap();
    server.limits = Limits { small: 8, pressed_rate: 0, stall: LONG, ..Limits::default() };
    with_server(&server, echo, |address| {
        let slow = b"POST /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n";
        let held: Vec<_> = (0..700)
            .map(|_| {
                let mut socket = connect_from([127, 0, 0, 1], address);
                socket.write_all(slow).unwrap();
                socket
            })
            .collect();
        for _ in 0..3 {
            let mut honest = connect_from([127, 0, 0, 2], address);
            honest.set_read_timeout(Some(LONG / 4)).unwrap();
            let answer = talk(&mut honest, b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            assert!(answer.unwrap().starts_with(OK));
        }
        for socket in held {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    });
}
