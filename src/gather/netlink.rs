//! Addresses, routes and connections from the kernel over a netlink socket (RFC 3549).
//!
//! Owns the few messages that facts need. Read-only. Starts no thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// Upper bound for a response; the kernel responds at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

const ERROR: u16 = 2;
const DONE: u16 = 3;
const GET_ADDRESSES: u16 = 22;
const GET_ROUTE: u16 = 26;
const GET_CONNECTION: u16 = 20;
const REQUEST: u16 = 1;
const ALL: u16 = 0x300;

/// One address of an interface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Address {
    pub index: u32,
    pub address: IpAddr,
    pub prefix: u8,
    pub broadcast: Option<Ipv4Addr>,
    pub scope: u8,
    /// Whether an earlier address is in the same network.
    pub secondary: bool,
    /// The interface, or an alias such as `eth0:1`.
    pub label: Option<String>,
}

/// The route to a destination.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Route {
    pub index: Option<u32>,
    pub gateway: Option<IpAddr>,
    pub source: Option<IpAddr>,
}

/// Lists the addresses of all interfaces.
pub(crate) fn addresses() -> io::Result<Vec<Address>> {
    let messages = ask(None, GET_ADDRESSES, ALL, &[0; 8])?;
    Ok(messages.iter().filter_map(|body| address(body)).collect())
}

/// Destinations on this machine: addresses, and networks such as `127.0.0.0/8`, in the kernel's order.
pub(crate) fn local_networks(four: bool) -> io::Result<Vec<String>> {
    const LOCAL_TABLE: u8 = 255;
    const LOCAL: u8 = 2;
    let mut body = [0; 12];
    body[0] = if four { 2 } else { 10 };
    let messages = ask(None, GET_ROUTE, ALL, &body)?;
    let told = messages.iter().filter_map(|message| {
        let [family, prefix, _, _, table, _, _, kind, ..] = message[..] else { return None };
        let mine = family == body[0] && table == LOCAL_TABLE && kind == LOCAL;
        let (_, bytes) = attributes(message.get(12..)?).into_iter().find(|(kind, _)| mine && *kind == 1)?;
        let address = ip(bytes)?;
        let whole = if four { 32 } else { 128 };
        Some(if prefix == whole { address.to_string() } else { format!("{address}/{prefix}") })
    });
    let mut found: Vec<String> = Vec::new();
    for network in told {
        if !found.contains(&network) {
            found.push(network);
        }
    }
    Ok(found)
}

/// The route of a packet to `destination`; sends nothing.
pub(crate) fn route(destination: IpAddr) -> io::Result<Route> {
    let (family, bytes) = match destination {
        IpAddr::V4(address) => (2, address.octets().to_vec()),
        IpAddr::V6(address) => (10, address.octets().to_vec()),
    };
    let mut body = vec![0; 12];
    body[0] = family;
    body[1] = u8::try_from(bytes.len() * 8).unwrap_or(0);
    let length = u16::try_from(bytes.len() + 4).unwrap_or(0);
    body.extend(length.to_ne_bytes());
    body.extend(1_u16.to_ne_bytes());
    body.extend(bytes);
    let messages = ask(None, GET_ROUTE, 0, &body)?;
    let body = messages.first().ok_or_else(|| io::Error::other("the kernel names no route"))?;
    Ok(parse_route(body))
}

/// The path MTU of an open TCP connection, as known to the kernel.
pub(crate) fn path_mtu(own: SocketAddr, peer: SocketAddr) -> io::Result<u32> {
    const TCP: u8 = 6;
    const INFO: u8 = 2;
    /// Offset of the MTU in the kernel's report on a connection, including the message header.
    const MTU_AT: usize = 60;
    const MESSAGE_BYTES: usize = 72;
    let mut body = vec![if own.is_ipv4() { 2 } else { 10 }, TCP, 1 << (INFO - 1), 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(own.port().to_be_bytes());
    body.extend(peer.port().to_be_bytes());
    for address in [own.ip(), peer.ip()] {
        let mut bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        bytes.resize(16, 0);
        body.extend(bytes);
    }
    // Any interface, any cookie.
    body.extend([0; 4]);
    body.extend([0xff; 8]);
    let messages = ask(Some(netlink::SOCK_DIAG), GET_CONNECTION, 0, &body)?;
    let told = messages.first().and_then(|message| message.get(MESSAGE_BYTES..)).unwrap_or_default();
    let info = attributes(told).into_iter().find(|(kind, _)| *kind == u16::from(INFO));
    let mtu = info.and_then(|(_, info)| number(info.get(MTU_AT..MTU_AT + 4)?));
    mtu.filter(|mtu| *mtu > 0).ok_or_else(|| io::Error::other("the kernel does not tell it"))
}

fn ask(protocol: Option<Protocol>, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    let mut request = u32::try_from(16 + body.len()).unwrap_or(0).to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend((REQUEST | flags).to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut messages = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (length, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        for (kind, body) in split(&buffer[..length]) {
            match kind {
                DONE => return Ok(messages),
                ERROR => {
                    let code =
                        body.get(..4).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
                    return Err(io::Error::from_raw_os_error(-code));
                }
                _ => messages.push(body.to_vec()),
            }
        }
        if flags & ALL == 0 {
            return Ok(messages);
        }
    }
}

/// The messages in a datagram: kind and body.
fn split(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut messages = Vec::new();
    while let Some(head) = bytes.get(..16) {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(body) = bytes.get(16..length) else { break };
        messages.push((u16::from_ne_bytes([head[4], head[5]]), body));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

/// The attributes after a message's fixed part: kind and value.
fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some(head) = bytes.get(..4) {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let Some(value) = bytes.get(4..length) else { break };
        // The two highest bits only mark nesting and byte order.
        found.push((u16::from_ne_bytes([head[2], head[3]]) & 0x3fff, value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Ipv6Addr::from(sixteen).into())
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn address(body: &[u8]) -> Option<Address> {
    let [_, prefix, flags, scope, index @ ..] = body.get(..8)? else { return None };
    let (mut peer, mut local, mut broadcast, mut label) = (None, None, None, None);
    for (kind, value) in attributes(&body[8..]) {
        match kind {
            1 => peer = ip(value),
            2 => local = ip(value),
            3 => label = Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()),
            4 => broadcast = ip(value),
            _ => {}
        }
    }
    let broadcast = broadcast.and_then(|address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    // If both exist, the first is the other end of a point-to-point link.
    let address = local.or(peer)?;
    let secondary = flags & 1 == 1 && address.is_ipv4();
    Some(Address {
        index: number(index)?,
        address,
        prefix: *prefix,
        broadcast,
        scope: *scope,
        secondary,
        label,
    })
}

fn parse_route(body: &[u8]) -> Route {
    let mut route = Route::default();
    for (kind, value) in attributes(body.get(12..).unwrap_or_default()) {
        match kind {
            4 => route.index = number(value),
            5 => route.gateway = ip(value),
            7 => route.source = ip(value),
            _ => {}
        }
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_told() {
        let all = addresses().unwrap();
        let loopback = all.iter().find(|address| address.address == IpAddr::from([127, 0, 0, 1]));
        assert_eq!(loopback.map(|address| (address.prefix, address.scope)), Some((8, 254)));
        let way = route([127, 0, 0, 1].into()).unwrap();
        assert_eq!((way.gateway, way.source), (None, Some([127, 0, 0, 1].into())));
        let local = local_networks(true).unwrap();
        assert!(local.iter().any(|network| network == "127.0.0.0/8"), "{local:?}");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mtu = path_mtu(stream.local_addr().unwrap(), stream.peer_addr().unwrap()).unwrap();
        let device = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        // No IPv4 packet is longer.
        assert_eq!(mtu, device.trim().parse::<u32>().unwrap().min(65_535));
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
        assert!(attributes(&[0, 0, 0, 0]).is_empty(), "a length below the head ends it");
        assert!(split(&[0; 16]).is_empty());
    }
}
