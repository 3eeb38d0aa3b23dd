//! A listening socket: at one address, or for a wildcard at all of IPv4 and IPv6.
//!
//! Pods in a network with IPv6 alone could not reach a server at `0.0.0.0`, and a machine with IPv4 alone must not
//! fail for lack of the other family. Starts no thread.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::sys;

/// Listens at `address`, a host and a port.
pub(super) fn listen(address: &str) -> io::Result<TcpListener> {
    let Some(port) = wildcard(address) else { return TcpListener::bind(address) };
    match sys::listen_at_all(port) {
        Ok(listener) => Ok(listener),
        // The kernel lacks IPv6, or another program has the port there.
        Err(error) => {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
            log::info!("port {port} is open over IPv4 only: {error}");
            Ok(listener)
        }
    }
}

/// The address of a peer; a socket of both families maps IPv4 into IPv6.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The port of a wildcard.
fn wildcard(address: &str) -> Option<u16> {
    let address: SocketAddr = address.parse().ok()?;
    address.ip().is_unspecified().then_some(address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpStream};

    use super::*;

    #[test]
    fn wildcard_of_either_family_accepts_both() {
        let families: [std::net::IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        for host in families {
            if TcpListener::bind((host, 0)).is_err() {
                crate::testing::skipped("ipv6", &format!("this machine has no {host}"));
                continue;
            }
            for address in ["0.0.0.0:0", "[::]:0"] {
                let listener = listen(address).unwrap();
                let port = listener.local_addr().unwrap().port();
                let client = TcpStream::connect((host, port)).unwrap();
                let (_, from) = listener.accept().unwrap();
                assert_eq!(canonical(from), client.local_addr().unwrap(), "{address} {host}");
            }
        }
    }

    #[test]
    fn other_addresses_are_taken_literally() {
        for address in ["127.0.0.1:0", "localhost:8080", "[::1]:1", "0.0.0.0", "::"] {
            assert_eq!(wildcard(address), None, "{address}");
        }
        let taken = listen("0.0.0.0:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let again = listen(&format!("0.0.0.0:{port}")).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    }
}
