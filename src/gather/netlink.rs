//! Addresses of all interfaces from the kernel over a netlink socket (RFC 3549); no file lists them.
//!
//! Read-only. Starts no thread.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Upper bound for a response; the kernel responds at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

const ERROR: u16 = 2;
const DONE: u16 = 3;
const GET_ADDRESSES: u16 = 22;
const REQUEST_ALL: u16 = 0x301;

/// One address of an interface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Address {
    pub index: u32,
    pub address: IpAddr,
    pub prefix: u8,
    pub broadcast: Option<IpAddr>,
    pub scope: u8,
    /// The interface, or an alias such as `eth0:1`.
    pub label: Option<String>,
}

/// Lists the addresses of all interfaces.
pub(crate) fn addresses() -> io::Result<Vec<Address>> {
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    let mut request = 24_u32.to_ne_bytes().to_vec();
    request.extend([GET_ADDRESSES, REQUEST_ALL].map(u16::to_ne_bytes).as_flattened());
    request.resize(24, 0);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut found = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (length, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        for (head, body) in split(&buffer[..length], 16, |head| long(head) as usize) {
            match short(&head[4..]) {
                DONE => return Ok(found),
                ERROR => return Err(io::Error::from_raw_os_error(long(body).cast_signed().wrapping_neg())),
                _ => found.extend(address(body)),
            }
        }
    }
}

/// Splits a datagram into messages or a message into attributes: head and body of each.
fn split(mut bytes: &[u8], head: usize, length: fn(&[u8]) -> usize) -> Vec<(&[u8], &[u8])> {
    let mut found = Vec::new();
    while let Some(start) = bytes.get(..head)
        && let Some(body) = bytes.get(head..length(start))
    {
        found.push((start, body));
        bytes = bytes.get(length(start).next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn short(bytes: &[u8]) -> u16 {
    bytes.first_chunk().map_or(0, |two| u16::from_ne_bytes(*two))
}

fn long(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |four| u32::from_ne_bytes(*four))
}

fn address(body: &[u8]) -> Option<Address> {
    let ([_, prefix, _, scope, index @ ..], rest) = body.split_first_chunk::<8>()?;
    let (mut peer, mut local, mut broadcast, mut label) = (None, None, None, None);
    for (head, value) in split(rest, 4, |head| short(head).into()) {
        let four = <[u8; 4]>::try_from(value).map(IpAddr::from);
        let ip = four.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok();
        match short(&head[2..]) {
            1 => peer = ip,
            2 => local = ip,
            3 => label = Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()),
            4 => broadcast = ip,
            _ => {}
        }
    }
    // If both exist, the first is the other end of a point-to-point link.
    let address = local.or(peer)?;
    Some(Address { index: long(index), address, prefix: *prefix, broadcast, scope: *scope, label })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_told() {
        let all = addresses().unwrap();
        let loopback = all.iter().find(|address| address.address == IpAddr::from([127, 0, 0, 1]));
        assert_eq!(loopback.map(|address| (address.prefix, address.scope)), Some((8, 254)));
    }

    #[test]
    fn broken_messages_give_what_is_whole() {
        let mut message = vec![2, 24, 0, 0];
        message.extend(7_u32.to_ne_bytes());
        message.extend(8_u16.to_ne_bytes());
        message.extend(2_u16.to_ne_bytes());
        message.extend([10, 0, 0, 1]);
        let whole = address(&message).unwrap();
        assert_eq!((whole.index, whole.prefix, whole.address), (7, 24, [10, 0, 0, 1].into()));
        for length in 0..message.len() {
            assert_eq!(address(&message[..length]), None, "{length} bytes");
        }
        assert!(split(&[0; 16], 4, |head| short(head).into()).is_empty(), "a length below the head ends it");
        assert!(split(&[0; 16], 16, |head| long(head) as usize).is_empty());
    }
}
