//! A peer of the aggregator with handwritten requests: honest, faulty or hostile.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Timeout that only a hang exceeds.
const HANG: Duration = Duration::from_secs(60);

/// Address, trust and certificate of a peer.
#[derive(Clone)]
pub struct Peer {
    address: String,
    config: Arc<ClientConfig>,
    /// The last part of the loopback address to connect from.
    source: Option<u8>,
}

impl Peer {
    /// A peer that trusts `authority`, with an optional certificate.
    pub fn new(url: &str, authority: &str, certificate_and_key: Option<(&str, &str)>) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
            .unwrap();
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots);
        let config = match certificate_and_key {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Self {
            address: url.trim_start_matches("https://").into(),
            config: Arc::new(config),
            source: None,
        }
    }

    /// The same peer at another address of the loopback network.
    #[cfg(target_os = "linux")]
    pub fn at(self, source: u8) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// A TCP connection without any data sent.
    pub fn plain(&self) -> TcpStream {
        let socket = match self.source {
            #[cfg(target_os = "linux")]
            Some(source) => connect_from(source, &self.address),
            _ => TcpStream::connect(&self.address).unwrap(),
        };
        socket.set_read_timeout(Some(HANG)).unwrap();
        socket
    }

    /// A TLS connection; the handshake starts with the first byte.
    pub fn connect(&self) -> Talk {
        let host = self.address.rsplit_once(':').unwrap().0.to_owned();
        let name = ServerName::try_from(host).unwrap();
        let connection = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        Talk(StreamOwned::new(connection, self.plain()))
    }

    /// Sends the bytes on a new connection and returns the whole response.
    pub fn say(&self, bytes: impl AsRef<[u8]>) -> String {
        self.connect().say(bytes)
    }
}

/// Connects from another address of the loopback network.
#[cfg(target_os = "linux")]
fn connect_from(source: u8, address: &str) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    use std::net::SocketAddr;

    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 1, source], 0))).unwrap();
    connect(&socket, &address.parse::<SocketAddr>().unwrap()).unwrap();
    TcpStream::from(socket)
}

/// One connection.
pub struct Talk(StreamOwned<ClientConnection, TcpStream>);

impl Talk {
    /// Sends the bytes without waiting for a response; returns whether sending succeeded.
    pub fn begin(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0
            .write_all(bytes.as_ref())
            .and_then(|()| self.0.flush())
            .is_ok()
    }

    /// Whether the response starts with `start`.
    pub fn hears(&mut self, start: &str) -> bool {
        let mut heard = vec![0; start.len()];
        self.0.read_exact(&mut heard).is_ok() && heard == start.as_bytes()
    }

    /// Sends the bytes and returns the whole response, or the error.
    pub fn say(mut self, bytes: impl AsRef<[u8]>) -> String {
        self.begin(bytes);
        self.rest()
    }

    /// Disconnects in the middle, with or without `close_notify`, and returns the remaining data.
    pub fn leave(mut self, politely: bool) -> String {
        if politely {
            self.0.conn.send_close_notify();
            let _ = self.0.flush();
        }
        let _ = self.0.sock.shutdown(Shutdown::Write);
        self.rest()
    }

    fn rest(mut self) -> String {
        let mut answer = Vec::new();
        let ended = self.0.read_to_end(&mut answer);
        match ended {
            Err(error) if answer.is_empty() => error.to_string(),
            _ => String::from_utf8_lossy(&answer).into_owned(),
        }
    }
}
