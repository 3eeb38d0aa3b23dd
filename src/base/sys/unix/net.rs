//! Sockets, and the limit of open files.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
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

/// Enables keep-alive: probes a silent peer after `pause`, `times` times.
pub fn keep_alive(tcp: &TcpStream, pause: Duration, times: u32) -> io::Result<()> {
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, pause)?;
    sockopt::set_tcp_keepintvl(tcp, pause)?;
    sockopt::set_tcp_keepcnt(tcp, times).map_err(io::Error::from)
}

/// An unconnected socket for that address.
pub fn socket(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, Some(ipproto::TCP))?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(TcpStream::from(socket))
}

/// Listens on a port of all addresses, IPv4 and IPv6, regardless of the system's default.
pub fn listen_at_all(port: u16) -> io::Result<TcpListener> {
    let socket = rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, Some(ipproto::TCP))?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    // As in the standard library: reuses a port that a server has just released.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    rustix::net::listen(&socket, crate::sys::connect::BACKLOG)?;
    Ok(TcpListener::from(socket))
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
