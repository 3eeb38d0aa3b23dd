//! A connection that waits for its peer: how far it has got, and for how long it has kept us waiting.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConnection;

use super::Peer;
use super::head::Head;
use super::wire::{Input, Socket};

/// A connection whose peer is known, or need not be.
pub(super) struct Session {
    pub(super) socket: Arc<TcpStream>,
    pub(super) input: Input,
    pub(super) peer: Peer,
    pub(super) principal: Option<Arc<str>>,
    /// Whether it could have shown a certificate and has none.
    pub(super) nameless: bool,
    /// Whether it has had a request.
    pub(super) greeted: bool,
    /// A head whose body is not here yet.
    pub(super) head: Option<Box<Head>>,
    /// How much of the next head was looked at in vain.
    pub(super) seen: usize,
    pub(super) blank: u8,
}

pub(super) enum Stage {
    /// Nothing was read.
    Silent(Arc<TcpStream>),
    Handshake(Box<ServerConnection>, Socket),
    Session(Box<Session>),
    /// It has its last answer.
    Farewell(Arc<TcpStream>),
}

/// Which limits a stage is under.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Silent = 0,
    Handshake = 1,
    /// Between requests.
    Idle = 2,
    /// Within one.
    Speaking = 3,
    /// Hands were shaken, and nothing came yet.
    Fresh = 4,
    Farewell = 5,
    /// Hands were shaken, but it has not shown who it is.
    Nameless = 6,
}

impl Sort {
    pub(super) const ALL: [Self; 7] = [
        Self::Silent,
        Self::Handshake,
        Self::Idle,
        Self::Speaking,
        Self::Fresh,
        Self::Farewell,
        Self::Nameless,
    ];
}

/// A connection that waits, or for which a step is due.
pub(super) struct Guest {
    pub(super) id: u64,
    pub(super) address: SocketAddr,
    pub(super) stage: Stage,
    /// How long it has kept us waiting in this stage.
    pub(super) waited: Duration,
    pub(super) since: Instant,
}

impl Guest {
    pub(super) fn sort(&self) -> Sort {
        match &self.stage {
            Stage::Silent(_) => Sort::Silent,
            Stage::Handshake(..) => Sort::Handshake,
            Stage::Farewell(_) => Sort::Farewell,
            Stage::Session(session) if session.nameless => Sort::Nameless,
            Stage::Session(session) if session.head.is_some() || !session.input.pending().is_empty() => {
                Sort::Speaking
            }
            Stage::Session(session) if session.greeted => Sort::Idle,
            Stage::Session(_) => Sort::Fresh,
        }
    }

    /// Whose it is, where its certificate says so.
    pub(super) fn name(&self) -> Option<&Arc<str>> {
        match &self.stage {
            Stage::Session(session) => session.principal.as_ref(),
            _ => None,
        }
    }

    pub(super) fn shared(&self) -> Arc<TcpStream> {
        match &self.stage {
            Stage::Silent(socket) | Stage::Farewell(socket) => Arc::clone(socket),
            Stage::Handshake(_, socket) => socket.shared(),
            Stage::Session(session) => Arc::clone(&session.socket),
        }
    }

    pub(super) fn begun(&self) -> Instant {
        self.since.checked_sub(self.waited).unwrap_or(self.since)
    }
}

impl Session {
    pub(super) fn new(socket: Arc<TcpStream>, input: Input, peer: Peer, principal: Option<Arc<str>>) -> Self {
        Self {
            socket,
            input,
            peer,
            principal,
            nameless: false,
            greeted: false,
            head: None,
            seen: 0,
            blank: 0,
        }
    }
}

/// Whether the first flight of a peer is here, as far as can be seen; an error if it has gone. It stays unread.
pub(super) fn has_spoken(socket: &TcpStream, tls: bool) -> io::Result<bool> {
    /// No greeting is longer that is not an attack.
    const GREETING: usize = 4 * 1024;
    const RECORD: usize = 5;
    const HANDSHAKE: u8 = 22;
    let mut start = [0; GREETING];
    let got = match socket.peek(&mut start) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(got) => got,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error),
    };
    if !tls || start[0] != HANDSHAKE {
        return Ok(true);
    }
    let length = usize::from(u16::from_be_bytes([start[3], start[4]]));
    Ok(got >= RECORD && got >= (RECORD + length).min(GREETING))
}

#[derive(PartialEq, Eq)]
pub(super) enum Drained {
    Open,
    Ended,
}

/// Throws away some of what has come from somebody who has its last answer; there may be more.
pub(super) fn drained(socket: &TcpStream) -> Drained {
    let mut scrap = [0; 16 * 1024];
    for _ in 0..16 {
        match (&mut &*socket).read(&mut scrap) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Ok(0) | Err(_) => return Drained::Ended,
        }
    }
    Drained::Open
}
