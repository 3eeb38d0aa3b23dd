//! A single query to a single name server (RFC 1035): which server answers, and how fast.
//!
//! Owns the message and its limits. Neither tries other servers nor caches. Starts no thread.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A server's reply.
#[derive(Debug, PartialEq)]
pub(crate) struct Reply {
    /// Response code: 0 for success, 3 for a name that does not exist.
    pub code: u8,
    /// IPv4 addresses of the name.
    pub addresses: Vec<Ipv4Addr>,
    /// Time until the reply.
    pub took: Duration,
}

/// Queries `server` for the IPv4 addresses of `name`.
pub(crate) fn ask(server: IpAddr, name: &str, limit: Duration) -> Result<Reply> {
    let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).context("no socket to ask from")?;
    // A connected socket accepts only the server's datagrams and reports a closed port at once.
    socket.connect((server, 53)).with_context(|| format!("cannot reach name server {server}"))?;
    exchange(&socket, name, limit).with_context(|| format!("name server {server}, asked for `{name}`"))
}

fn exchange(socket: &UdpSocket, name: &str, limit: Duration) -> Result<Reply> {
    socket.set_read_timeout(Some(limit))?;
    let mut id = [0; 2];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut id)
        .ok()
        .context("no random number")?;
    let started = Instant::now();
    socket.send(&question(id, name)?).context("cannot be reached")?;
    let mut buffer = [0; 1_500];
    while started.elapsed() < limit {
        let length = match socket.recv(&mut buffer) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            outcome => outcome.context("did not answer")?,
        };
        if buffer[..length].starts_with(&id) {
            let (code, addresses) = answer(&buffer[..length]).context("the answer is not a DNS message")?;
            return Ok(Reply { code, addresses, took: started.elapsed() });
        }
    }
    bail!("did not answer")
}

fn question(id: [u8; 2], name: &str) -> Result<Vec<u8>> {
    // One question, recursion desired.
    let mut message = vec![id[0], id[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length));
        message.push(length.with_context(|| format!("`{name}` is not a name"))?);
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    Ok(message)
}

fn answer(message: &[u8]) -> Option<(u8, Vec<Ipv4Addr>)> {
    let count = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    let code = message.get(3)? & 15;
    let mut at = 12;
    for _ in 0..count(4)? {
        at = skip_name(message, at)? + 4;
    }
    let mut addresses = Vec::new();
    for _ in 0..count(6)? {
        at = skip_name(message, at)?;
        let (kind, length) = (count(at)?, usize::from(count(at + 8)?));
        let data = message.get(at + 10..at + 10 + length)?;
        if kind == 1 {
            addresses.push(<[u8; 4]>::try_from(data).ok()?.into());
        }
        at += 10 + length;
    }
    Some((code, addresses))
}

fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length >= 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_server_is_queried() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let answering = std::thread::spawn(move || {
            let mut buffer = [0; 512];
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            let asked = buffer[..length].to_vec();
            // A reply to another query arrives first.
            server.send_to(&[!asked[0], asked[1], 0], from).unwrap();
            let mut reply = asked.clone();
            reply[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1]);
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 96, 0, 1]);
            server.send_to(&reply, from).unwrap();
            asked
        });
        let reply = exchange(&client, "kubernetes.default", Duration::from_secs(5)).unwrap();
        assert_eq!((reply.code, reply.addresses), (0, vec![Ipv4Addr::new(10, 96, 0, 1)]));
        let asked = answering.join().unwrap();
        assert_eq!(&asked[12..32], b"\x0akubernetes\x07default\0");
    }

    #[test]
    fn broken_dns_answers_and_names_are_refused() {
        let mut message = question([1, 2], "a.b").unwrap();
        message[7] = 1;
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 0, 0, 1]);
        assert!(answer(&message).is_some());
        for length in 0..message.len() {
            assert_eq!(answer(&message[..length]), None, "{length} bytes");
        }
        for name in ["a..b", "", &"x".repeat(64)] {
            assert!(question([0, 0], name).is_err(), "{name:?}");
        }
    }
}
