//! Sockets.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};

/// A listening socket cannot be shut down here: connections wait until it is dropped.
pub fn stop_listening(_listener: &TcpListener) -> io::Result<()> {
    Ok(())
}

/// Asks a silent peer for life after `pause`, so many times as often.
pub fn keep_alive(tcp: &TcpStream, pause: Duration, times: u32) -> io::Result<()> {
    sockopt::set_socket_keepalive(tcp, true)?;
    // Versions before 2019 do not know these; the system's own two hours count then.
    let _ = sockopt::set_tcp_keepidle(tcp, pause);
    let _ = sockopt::set_tcp_keepintvl(tcp, pause);
    let _ = sockopt::set_tcp_keepcnt(tcp, times);
    Ok(())
}

/// A socket for that address, not connected yet.
pub fn socket(address: SocketAddr) -> io::Result<TcpStream> {
    // The standard library does this at its own first socket only.
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.get().is_none() {
        rustix::net::wsa_startup()?;
        let _ = STARTED.set(());
    }
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, Some(ipproto::TCP))?;
    Ok(TcpStream::from(socket))
}

/// Listens at a port of all addresses of this machine, whatever its default for IPv4 in a socket of IPv6 is.
pub fn listen_at_all(port: u16) -> io::Result<TcpListener> {
    let socket = rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, Some(ipproto::TCP))?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    rustix::net::listen(&socket, crate::sys::connect::BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// There is no limit worth a name.
pub fn raise_open_files(needed: u64) -> u64 {
    needed
}
