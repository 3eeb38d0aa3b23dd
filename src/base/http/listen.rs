//! A socket that listens: at one address, or for a wildcard at all of this machine, of IPv4 and IPv6 alike.
//!
//! Pods of a network that has IPv6 alone could not reach a server at `0.0.0.0`, and those of one that has IPv4 alone
//! must not be shut out by the lack of the other family. Starts no thread.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::sys;

/// Listens at `address`, a host and a port.
pub(super) fn listen(address: &str) -> io::Result<TcpListener> {
    let Some(port) = wildcard(address) else { return TcpListener::bind(address) };
    match sys::listen_at_all(port) {
        Ok(listener) => Ok(listener),
        // A kernel without IPv6, or one whose half of the port is somebody else's.
        Err(error) => {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
            log::info!("port {port} is open over IPv4 only: {error}");
            Ok(listener)
        }
    }
}

/// Where somebody is, without the disguise that IPv4 has in a socket of both families.
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
    fn a_wildcard_of_either_family_is_open_to_both() {
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
    fn any_other_address_is_one_alone() {
        for address in ["127.0.0.1:0", "localhost:8080", "[::1]:1", "0.0.0.0", "::"] {
            assert_eq!(wildcard(address), None, "{address}");
        }
        let taken = listen("0.0.0.0:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let again = listen(&format!("0.0.0.0:{port}")).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    }
}
