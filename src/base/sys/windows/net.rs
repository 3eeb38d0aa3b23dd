//! Sockets.

use std::io;
use std::net::TcpListener;
use std::os::windows::io::OwnedSocket;
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketType, ipproto};

/// Does nothing: a listening socket cannot be shut down on Windows, and connections wait until it is dropped.
pub fn stop_listening(_listener: &TcpListener) -> io::Result<()> {
    Ok(())
}

pub(crate) fn tcp_socket(family: AddressFamily) -> io::Result<OwnedSocket> {
    // The standard library initialises the socket library only with its own first socket.
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.get().is_none() {
        rustix::net::wsa_startup()?;
        let _ = STARTED.set(());
    }
    Ok(rustix::net::socket(family, SocketType::STREAM, Some(ipproto::TCP))?)
}

/// Returns `needed`: Windows has no relevant limit.
pub fn raise_open_files(needed: u64) -> u64 {
    needed
}
