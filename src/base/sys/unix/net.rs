//! Sockets, and the limit of open files.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, ipproto};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// macOS rejects larger limits instead of capping them.
const MAX_FILES_ON_MACOS: u64 = 10_240;

/// Makes the system refuse further connections.
#[cfg(target_os = "linux")]
pub fn stop_listening(listener: &TcpListener) -> io::Result<()> {
    rustix::net::shutdown(listener, rustix::net::Shutdown::Both).map_err(io::Error::from)
}

/// Does nothing: outside Linux a listening socket cannot be shut down, and connections wait until it is dropped.
#[cfg(not(target_os = "linux"))]
pub fn stop_listening(_listener: &TcpListener) -> io::Result<()> {
    Ok(())
}

pub(crate) fn tcp_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(family, SocketType::STREAM, Some(ipproto::TCP))?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// Maximum open files and sockets of this process; raised to `needed` if the system permits.
pub fn raise_open_files(needed: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|&current| current < needed) else { return needed };
    let wanted = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = [wanted, wanted.min(MAX_FILES_ON_MACOS)].into_iter().find(|&number| {
        number > current && setrlimit(Resource::Nofile, Rlimit { current: Some(number), ..limit }).is_ok()
    });
    raised.unwrap_or(current)
}
