//! What sockets of all systems share, and connecting one that others can reach while it connects.
//!
//! Starts no thread. Where shutting the socket does not end the wait, looking whether to stop does.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Between two looks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How many connections may wait to be accepted until that is set.
pub(super) const BACKLOG: i32 = 128;
/// How long connecting to this machine may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Lets this many connections wait to be accepted.
pub fn listen(listener: &TcpListener, backlog: i32) -> io::Result<()> {
    rustix::net::listen(listener, backlog).map_err(io::Error::from)
}

/// How much the system keeps of what was received.
pub fn receive_buffer(tcp: &TcpStream, bytes: usize) -> io::Result<()> {
    rustix::net::sockopt::set_socket_recv_buffer_size(tcp, bytes).map_err(io::Error::from)
}

/// Connects a socket of [`super::socket`] within `limit`, unless `stopped` says that nobody wants it any more.
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
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let pause = Timespec { tv_sec: 0, tv_nsec: left.min(STOP_CHECK_INTERVAL).subsec_nanos() as _ };
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

/// A connection to a listening socket of our own, which wakes whoever waits for one.
#[cfg_attr(target_os = "linux", allow(dead_code, reason = "shutting the socket is enough there"))]
pub(super) fn knock(listener: &TcpListener) -> io::Result<()> {
    let mut address = listener.local_addr()?;
    if address.ip().is_unspecified() {
        let own: IpAddr =
            if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        address.set_ip(own);
    }
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knock_is_heard() {
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(address).unwrap();
            knock(&listener).unwrap();
            listener.accept().unwrap();
        }
    }

    #[test]
    fn it_connects_is_refused_or_stops() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || {
            let tcp = super::super::socket(address)?;
            finish_connecting(&tcp, address, Duration::from_secs(20), || false).map(|()| tcp)
        };
        let tcp = connect().unwrap();
        assert_eq!(tcp.peer_addr().unwrap(), address);
        drop(listener);
        assert_eq!(connect().unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        // An address for documentation: nobody answers, whether or not there is a way to it.
        let nowhere = "192.0.2.1:9".parse().unwrap();
        let tcp = super::super::socket(nowhere).unwrap();
        let before = Instant::now();
        finish_connecting(&tcp, nowhere, Duration::from_secs(60), || true).unwrap_err();
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}
