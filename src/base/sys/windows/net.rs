//! Sockets.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};

/// Does nothing: a listening socket cannot be shut down on Windows, and connections wait until it is dropped.
pub fn stop_listening(_listener: &TcpListener) -> io::Result<()> {
    Ok(())
}

/// Enables keep-alive: probes a silent peer after `pause`, `times` times.
pub fn keep_alive(tcp: &TcpStream, pause: Duration, times: u32) -> io::Result<()> {
    sockopt::set_socket_keepalive(tcp, true)?;
    // Versions before 2019 lack these options; the system's default of two hours applies then.
    let _ = sockopt::set_tcp_keepidle(tcp, pause);
    let _ = sockopt::set_tcp_keepintvl(tcp, pause);
    let _ = sockopt::set_tcp_keepcnt(tcp, times);
    Ok(())
}

/// An unconnected socket for that address.
pub fn socket(address: SocketAddr) -> io::Result<TcpStream> {
    // The standard library initialises the socket library only with its own first socket.
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.get().is_none() {
        rustix::net::wsa_startup()?;
        let _ = STARTED.set(());
    }
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, Some(ipproto::TCP))?;
    Ok(TcpStream::from(socket))
}

/// Listens on a port of all addresses, IPv4 and IPv6, regardless of the system's default.
pub fn listen_at_all(port: u16) -> io::Result<TcpListener> {
    let socket = rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, Some(ipproto::TCP))?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    rustix::net::listen(&socket, crate::sys::connect::BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Returns `needed`: Windows has no relevant limit.
pub fn raise_open_files(needed: u64) -> u64 {
    needed
}
