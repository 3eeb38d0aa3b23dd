//! Scripted connections for tests and fuzzing: the split of the bytes must not matter.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::connection::Connection;
use super::super::wire::Wire;
use super::super::{Limits, Party, Peer, Request, Response};

/// Method, path, body, and whether the body was complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
    pub complete: bool,
}

/// A client that sends `bytes` in pieces of the given sizes, then closes. A piece of 0 bytes is an
/// interrupted read.
struct Script {
    bytes: io::Cursor<Vec<u8>>,
    pieces: Vec<usize>,
    turn: usize,
    answers: Arc<Mutex<Vec<u8>>>,
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let piece = self.pieces[self.turn % self.pieces.len()].min(buffer.len());
        self.turn += 1;
        if piece == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.bytes.read(&mut buffer[..piece])
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Script {}

/// Plays a connection; returns the handler's requests and the responses without dates.
pub(super) fn play(bytes: &[u8], pieces: &[usize]) -> (Vec<Seen>, String) {
    let peer = Peer {
        address: (Ipv4Addr::LOCALHOST, 1).into(),
        certificate: None,
        meter: Arc::default(),
        open: Arc::default(),
    };
    let seen = Mutex::new(Vec::new());
    let answers = Arc::<Mutex<Vec<u8>>>::default();
    let bytes = io::Cursor::new(bytes.to_vec());
    let script = Script {
        bytes,
        pieces: pieces.to_vec(),
        turn: 0,
        answers: Arc::clone(&answers),
    };
    let limits = Limits::default();
    let handler = |request: &mut Request<'_>| {
        let mut body = Vec::new();
        let mut complete = true;
        // This path is answered without reading the body.
        if !request.path.starts_with("/early") {
            complete = request.body().read_to_end(&mut body).is_ok();
        }
        let (method, path) = (request.method.clone(), request.path.clone());
        let answer = Response::text(if complete { 200 } else { 500 }, body.len());
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Seen {
                method,
                path,
                body,
                complete,
            });
        answer
    };
    let mut connection = Connection::new(
        Box::new(script),
        peer,
        Party::of(Ipv4Addr::LOCALHOST.into()),
    );
    connection.serve(&limits, &mut || true, &|| false, &handler);
    let text = String::from_utf8_lossy(&answers.lock().unwrap_or_else(PoisonError::into_inner))
        .into_owned();
    let undated: Vec<&str> = text
        .split("\r\n")
        .filter(|line| !line.starts_with("date: "))
        .collect();
    (
        seen.into_inner().unwrap_or_else(PoisonError::into_inner),
        undated.join("\r\n"),
    )
}

/// Panics if the meaning depends on the split, or a truncated stream means more than the whole.
pub fn consistent(bytes: &[u8]) {
    let whole = play(bytes, &[usize::MAX]);
    for pieces in [&[1][..], &[2, 3, 1, 7], &[4095, 1], &[17, 1000]] {
        assert_eq!(whole, play(bytes, pieces), "in pieces of {pieces:?}");
    }
    let cuts = (1..=bytes.len()).rev().step_by(1 + bytes.len() / 32);
    for cut in cuts {
        let (seen, _) = play(&bytes[..cut], &[5, 64]);
        for (index, request) in seen.iter().enumerate() {
            match whole.0.get(index) {
                Some(of_whole) if request.complete => assert_eq!(request, of_whole, "cut at {cut}"),
                Some(of_whole) => {
                    assert!(of_whole.body.starts_with(&request.body), "cut at {cut}");
                    assert_eq!(
                        index + 1,
                        seen.len(),
                        "nothing follows a request that was cut"
                    );
                }
                None => panic!("cut at {cut}, there is one more request: {request:?}"),
            }
        }
    }
}
