//! The connections between clients and the server, which can be cut or refused.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) struct Wire {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

/// tiny_http hands a connection to an idle thread, miscounts those when two arrive at once, and
/// then leaves one of them waiting while the other lasts. A short-lived connection makes it check
/// again.
const NUDGES: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(50),
    Duration::from_millis(300),
    Duration::from_secs(2),
];

#[derive(Default)]
struct Shared {
    /// Connections by the address that the server sees.
    open: Mutex<HashMap<SocketAddr, (TcpStream, TcpStream)>>,
    refusing: AtomicBool,
    refused: AtomicU64,
    cut_every: AtomicU64,
}

impl Wire {
    pub(super) fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Self {
            address: listener.local_addr().unwrap(),
            shared: Arc::default(),
        };
        let shared = wire.shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.refusing.load(Ordering::SeqCst) {
                    shared.refused.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let Ok(inner) = TcpStream::connect(server) else {
                    return;
                };
                std::thread::spawn(move || nudge(server));
                let (Ok(key), Ok(a), Ok(b)) =
                    (inner.local_addr(), client.try_clone(), inner.try_clone())
                else {
                    continue;
                };
                let _ = (client.set_nodelay(true), inner.set_nodelay(true));
                shared.open.lock().unwrap().insert(key, (a, b));
                let (Ok(client_in), Ok(inner_out)) = (client.try_clone(), inner.try_clone()) else {
                    continue;
                };
                std::thread::spawn(move || {
                    // A server that no longer accepts data may still send some.
                    if let Carried::All = pump(&client_in, &inner_out, || 0) {
                        close(&client_in, &inner_out);
                    }
                });
                let shared = shared.clone();
                std::thread::spawn(move || {
                    pump(&inner, &client, || shared.cut_every.load(Ordering::SeqCst));
                    close(&inner, &client);
                    shared.open.lock().unwrap().remove(&key);
                });
            }
        });
        wire
    }

    /// Ends the server's input from the client, so that the server closes; data already sent still
    /// arrives.
    pub(super) fn end(&self, peer: &SocketAddr) {
        if let Some((_, inner)) = self.shared.open.lock().unwrap().get(peer) {
            let _ = inner.shutdown(Shutdown::Write);
        }
    }

    /// Closes the connection with this address at once.
    pub(super) fn cut(&self, peer: &SocketAddr) {
        if let Some((_, inner)) = self.shared.open.lock().unwrap().get(peer) {
            let _ = inner.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn refuse(&self, refuse: bool) {
        self.shared.refusing.store(refuse, Ordering::SeqCst);
        if refuse {
            self.shared
                .open
                .lock()
                .unwrap()
                .values()
                .for_each(|(client, inner)| close(client, inner));
        }
    }

    pub(super) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::SeqCst)
    }

    pub(super) fn cut_every(&self, bytes: u64) {
        self.shared.cut_every.store(bytes, Ordering::SeqCst);
    }
}

fn nudge(server: SocketAddr) {
    let (_held, never) = std::sync::mpsc::channel::<()>();
    for pause in NUDGES {
        let _ = never.recv_timeout(pause);
        drop(TcpStream::connect(server));
    }
}

fn close(one: &TcpStream, other: &TcpStream) {
    let _ = (one.shutdown(Shutdown::Both), other.shutdown(Shutdown::Both));
}

/// Outcome of forwarding bytes.
enum Carried {
    /// Forwarded all, or up to the limit.
    All,
    /// The receiver closed the connection.
    Some,
}

/// Forwards bytes until one side ends, or up to the limit.
fn pump(mut from: &TcpStream, mut to: &TcpStream, limit: impl Fn() -> u64) -> Carried {
    let mut buffer = vec![0; 64 << 10];
    let mut carried = 0;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let limit = limit();
        let left = if limit == 0 {
            length
        } else {
            usize::try_from(limit - carried).unwrap().min(length)
        };
        if to.write_all(&buffer[..left]).is_err() {
            return Carried::Some;
        }
        carried += left as u64;
        if limit > 0 && carried >= limit {
            break;
        }
    }
    Carried::All
}
