//! Connections played from memory, for tests and fuzzing: whatever comes, however it is split, means one thing.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::connection::{self, Next};
use super::guest::{Session, Stage};
use super::meter::Meter;
use super::slots::{Job, Slots};
use super::wire::{Input, Wire};
use super::{Limits, Peer, Refused, Request, Response};

/// What a handler saw of one request: method, path, body, and whether the body was complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
    pub complete: bool,
}

/// A peer that says `bytes` in pieces of the given sizes, over and over, and then goes away.
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
        self.bytes.read(&mut buffer[..piece])
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Script {
    fn set_patient(&mut self, _: Option<Arc<Meter>>) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self) {}
}

/// Plays a connection; returns what the handler saw and what was answered, without dates.
pub(super) fn play(bytes: &[u8], pieces: &[usize]) -> (Vec<Seen>, String) {
    static SOCKET: OnceLock<Arc<TcpStream>> = OnceLock::new();
    let socket = SOCKET.get_or_init(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen for a stand-in");
        Arc::new(TcpStream::connect(listener.local_addr().expect("its port")).expect("a stand-in"))
    });
    let peer =
        Peer { address: (Ipv4Addr::LOCALHOST, 1).into(), certificate: None, open: std::sync::Arc::default() };
    let seen = Mutex::new(Vec::new());
    let answers = Arc::<Mutex<Vec<u8>>>::default();
    let bytes = io::Cursor::new(bytes.to_vec());
    let script = Script { bytes, pieces: pieces.to_vec(), turn: 0, answers: Arc::clone(&answers) };
    let limits = Limits { rate: 0, ..Limits::default() };
    let handler = |request: &mut Request<'_>| {
        let mut body = Vec::new();
        let mut complete = true;
        // A path that says so is answered without reading.
        if !request.path.starts_with("/early") {
            complete = request.body().read_to_end(&mut body).is_ok();
        }
        let (method, path) = (request.method.clone(), request.path.clone());
        let answer = Response::text(if complete { 200 } else { 500 }, body.len());
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(Seen { method, path, body, complete });
        answer
    };
    let refused = Refused::default();
    let slots = Slots::new(&limits, &refused);
    let mut session = Session::new(Arc::clone(socket), Input::new(Box::new(script)), peer, None);
    loop {
        match connection::next(&mut session, limits.head_bytes) {
            Next::Request(head) => {
                let submitted = slots.submit(Job { session, head });
                assert!(submitted.is_ok(), "it is alone");
                let class = slots.wants_thread().expect("its turn");
                let (job, mut turn) = slots.take(class).expect("its turn");
                let Some(Stage::Session(same)) = connection::serve(job, &limits, &mut turn, &handler) else {
                    break;
                };
                drop(turn);
                slots.without(class);
                session = *same;
            }
            Next::Refuse(refusal) => {
                let answer = Response::text(refusal.status, refusal.reason);
                answer.write(&mut *session.input.wire, true, true).expect("it is in memory");
                break;
            }
            Next::Wait | Next::End => break,
        }
    }
    let text = String::from_utf8_lossy(&answers.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    let undated: Vec<&str> = text.split("\r\n").filter(|line| !line.starts_with("date: ")).collect();
    (seen.into_inner().unwrap_or_else(PoisonError::into_inner), undated.join("\r\n"))
}

/// Panics if the same bytes mean different things in different pieces, or a cut stream more than the whole.
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
                    assert_eq!(index + 1, seen.len(), "nothing follows a request that was cut");
                }
                None => panic!("cut at {cut}, there is one more request: {request:?}"),
            }
        }
    }
}
