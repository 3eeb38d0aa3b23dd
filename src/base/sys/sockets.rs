//! Sockets: functions shared by all systems, connecting one that other threads can shut down
//! meanwhile, and finding the readable ones among thousands, without a thread for each.
//!
//! Starts no thread. Polls for a stop where shutting down the socket does not end the wait. On
//! Linux the system reports each readable socket once. Elsewhere the caller tries all sockets every
//! few milliseconds: other systems serve only a handful.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use super::family::program::tcp_socket;
#[cfg(not(target_os = "linux"))]
pub use everywhere::Poller;
#[cfg(target_os = "linux")]
pub use linux::Poller;

/// Interval between two checks for a stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Default backlog of a listening socket.
const BACKLOG: i32 = 128;

/// Sets the number of connections that may wait to be accepted.
pub fn listen(listener: &TcpListener, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(listener, backlog)?)
}

/// An unconnected socket for that address.
pub fn socket(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    tcp_socket(family).map(TcpStream::from)
}

/// Listens on a port of all addresses, IPv4 and IPv6, regardless of the system's default.
pub fn listen_at_all(port: u16) -> io::Result<TcpListener> {
    let socket = tcp_socket(AddressFamily::INET6)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    // As in the standard library: reuses a port that a server has just released. On Windows it
    // would share the port.
    #[cfg(unix)]
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(
        &socket,
        &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0),
    )?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Makes the system refuse further connections. Outside Linux a listening socket cannot be shut
/// down, and connections wait until it is dropped.
pub fn stop_listening(listener: &TcpListener) -> io::Result<()> {
    if cfg!(target_os = "linux") {
        rustix::net::shutdown(listener, rustix::net::Shutdown::Both)?;
    }
    Ok(())
}

/// Enables keep-alive: probes a silent peer after `pause`, `times` times.
pub fn keep_alive(tcp: &TcpStream, pause: Duration, times: u32) -> io::Result<()> {
    sockopt::set_socket_keepalive(tcp, true)?;
    // Windows before 2019 lacks these options; the system's default of two hours applies then.
    let _ = sockopt::set_tcp_keepidle(tcp, pause);
    let _ = sockopt::set_tcp_keepintvl(tcp, pause);
    let _ = sockopt::set_tcp_keepcnt(tcp, times);
    Ok(())
}

/// Connects a socket of [`socket`] within `limit`; gives up once `stopped` returns true.
pub fn finish_connecting(
    tcp: &TcpStream,
    address: SocketAddr,
    limit: Duration,
    stopped: impl Fn() -> bool,
) -> io::Result<()> {
    tcp.set_nonblocking(true)?;
    match rustix::net::connect(tcp, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::WOULDBLOCK) => wait(tcp, Instant::now() + limit, stopped)?,
        Err(errno) => return Err(errno.into()),
    }
    tcp.set_nonblocking(false)
}

fn wait(tcp: &TcpStream, end: Instant, stopped: impl Fn() -> bool) -> io::Result<()> {
    loop {
        let time_left = end.saturating_duration_since(Instant::now());
        if time_left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: time_left.min(STOP_CHECK_INTERVAL).subsec_nanos() as _,
        };
        let mut sockets = [PollFd::new(tcp, PollFlags::OUT)];
        match poll(&mut sockets, Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return tcp.take_error()?.map_or(Ok(()), Err),
            Err(errno) => return Err(errno.into()),
        }
        if stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    use rustix::buffer::spare_capacity;
    use rustix::event::Timespec;
    use rustix::event::epoll::{self, EventData, EventFlags};

    /// The watched sockets.
    pub struct Poller(OwnedFd);

    impl Poller {
        /// Watches no socket yet.
        pub fn new() -> io::Result<Self> {
            Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
        }

        /// Watches `socket` under the number `id`.
        pub fn add(&self, socket: impl AsFd, id: u64) -> io::Result<()> {
            Ok(epoll::add(
                &self.0,
                socket,
                EventData::new_u64(id),
                flags(),
            )?)
        }

        /// Watches `socket` no longer.
        pub fn remove(&self, socket: impl AsFd) {
            // A socket that was never added needs no removal.
            let _ = epoll::delete(&self.0, socket);
        }

        /// Waits up to `limit`; returns the sockets that are readable or have ended.
        pub fn wait(&self, limit: Duration) -> io::Result<Option<Vec<u64>>> {
            let mut events = Vec::with_capacity(256);
            let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
            match epoll::wait(&self.0, spare_capacity(&mut events), Some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {
                    Ok(Some(events.iter().map(|event| event.data.u64()).collect()))
                }
                Err(error) => Err(error.into()),
            }
        }
    }

    fn flags() -> EventFlags {
        EventFlags::IN | EventFlags::RDHUP | EventFlags::ET
    }
}

#[cfg(not(target_os = "linux"))]
mod everywhere {
    use std::io;
    use std::time::Duration;

    /// Interval between two attempts.
    const INTERVAL: Duration = Duration::from_millis(10);

    /// Watches nothing.
    pub struct Poller;

    impl Poller {
        /// Watches no socket yet.
        pub fn new() -> io::Result<Self> {
            Ok(Self)
        }

        /// Watches `socket` under the number `id`.
        pub fn add<S>(&self, _: &S, _: u64) -> io::Result<()> {
            Ok(())
        }

        /// Watches `socket` no longer.
        pub fn remove<S>(&self, _: &S) {}

        /// Waits for a few milliseconds; `None`, since each socket may be readable.
        pub fn wait(&self, limit: Duration) -> io::Result<Option<Vec<u64>>> {
            std::thread::park_timeout(limit.min(INTERVAL));
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_succeeds_is_refused_or_stops() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || {
            let tcp = socket(address)?;
            finish_connecting(&tcp, address, Duration::from_secs(20), || false).map(|()| tcp)
        };
        let tcp = connect().unwrap();
        assert_eq!(tcp.peer_addr().unwrap(), address);
        drop(listener);
        assert_eq!(
            connect().unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        // A documentation address: no host responds, with or without a route.
        let nowhere = "192.0.2.1:9".parse().unwrap();
        let tcp = socket(nowhere).unwrap();
        let before = Instant::now();
        finish_connecting(&tcp, nowhere, Duration::from_secs(60), || true).unwrap_err();
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}
