//! An aggregator as a worker sees it: HTTPS with client certificates, built on rustls and rcgen
//! alone, so that both ends cannot share a mistake. Stores requests and gives predefined responses.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A request with a complete body.
#[derive(Debug)]
pub struct Got {
    pub line: String,
    /// By lower-case name.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// Reaction to a request.
#[derive(Clone, Copy)]
pub enum Reply {
    /// Accept the body and respond with this status.
    Status(u16),
    /// Respond with this status before the body.
    Refuse(u16),
    /// Close the connection in the middle of the body.
    Cut,
}

/// The certificates of a run, and a worker's environment.
pub struct Certificates {
    config: Arc<rustls::ServerConfig>,
    env: Vec<(&'static str, String)>,
}

impl Certificates {
    pub fn new() -> Self {
        let key = || KeyPair::generate().unwrap();
        let ca_key = key();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_cert = ca.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(ca, ca_key);
        let leaf = |key: &KeyPair, usage, names: Vec<SanType>| {
            let mut params = CertificateParams::default();
            params.extended_key_usages = vec![usage];
            params.subject_alt_names = names;
            params.signed_by(key, &issuer).unwrap()
        };
        let (server_key, client_key) = (key(), key());
        let host = SanType::IpAddress("127.0.0.1".parse().unwrap());
        let server = leaf(&server_key, ExtendedKeyUsagePurpose::ServerAuth, vec![host]);
        let client = leaf(&client_key, ExtendedKeyUsagePurpose::ClientAuth, Vec::new());

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca_cert.der().clone()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(server.pem().as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(server_key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        let env = vec![
            ("CA_CERT", ca_cert.pem()),
            ("CLIENT_CERT", client.pem()),
            ("CLIENT_KEY", client_key.serialize_pem()),
        ];
        Self {
            config: Arc::new(config),
            env,
        }
    }

    /// The environment of a worker of `plugin` whose aggregator is at `address`.
    pub fn env(&self, address: SocketAddr, plugin: &str) -> Vec<(&'static str, String)> {
        let mut env = self.env.clone();
        env.push(("AGGREGATOR_URL", format!("https://{address}")));
        env.push(("RESULT_TYPE", plugin.into()));
        env
    }

    /// Serves at `address`; the n-th of `replies` applies to the n-th request, and 200 to the rest.
    pub fn serve(&self, address: SocketAddr, replies: &[Reply]) -> Aggregator {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, got) = channel();
        let (config, replies) = (
            Arc::clone(&self.config),
            Arc::new(Mutex::new(replies.to_vec())),
        );
        let heartbeat_headers = Arc::<Mutex<String>>::default();
        let added = Arc::clone(&heartbeat_headers);
        // The thread ends with the test program: no client connects any more, and no data can be
        // lost.
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (config, replies, sender) =
                    (Arc::clone(&config), Arc::clone(&replies), sender.clone());
                let added = added.lock().unwrap().clone();
                std::thread::spawn(move || {
                    let tls = rustls::ServerConnection::new(config).unwrap();
                    let mut stream = rustls::StreamOwned::new(tls, socket);
                    if answer(&mut stream, &replies, &added, &sender).is_ok_and(|whole| whole) {
                        stream.conn.send_close_notify();
                        let _ = stream.flush();
                    }
                });
            }
        });
        Aggregator {
            address,
            heartbeat_headers,
            got,
        }
    }
}

/// A running receiver.
pub struct Aggregator {
    pub address: SocketAddr,
    /// Further lines in the head of its answers to heartbeats.
    pub heartbeat_headers: Arc<Mutex<String>>,
    got: Receiver<Got>,
}

impl Aggregator {
    /// The next request; fails if it does not arrive in time.
    #[track_caller]
    pub fn next(&self) -> Got {
        self.got
            .recv_timeout(Duration::from_secs(60))
            .expect("a request arrives")
    }

    /// Whether no further request has arrived.
    pub fn is_empty(&self) -> bool {
        self.got.try_recv().is_err()
    }
}

/// Responds to one request; false if the connection was closed instead.
fn answer(
    stream: &mut (impl Read + Write),
    replies: &Mutex<Vec<Reply>>,
    heartbeat_headers: &str,
    sender: &Sender<Got>,
) -> std::io::Result<bool> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let line = lines
        .next()
        .unwrap_or_default()
        .trim_end_matches(" HTTP/1.1")
        .to_owned();
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    // The times of heartbeats are unpredictable.
    if line.starts_with("GET /api/v1/health/") {
        write!(
            stream,
            "HTTP/1.1 200 X\r\nconnection: close\r\n{heartbeat_headers}content-length: 0\r\n\r\n"
        )?;
        return Ok(true);
    }
    let reply = {
        let mut replies = replies.lock().unwrap();
        if replies.is_empty() {
            Reply::Status(200)
        } else {
            replies.remove(0)
        }
    };
    let length: usize = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let status = match reply {
        Reply::Refuse(status) => status,
        Reply::Status(_) | Reply::Cut => {
            if headers.contains_key("expect") {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let mut body = vec![0; length];
            if let Reply::Status(status) = reply {
                stream.read_exact(&mut body)?;
                // The test may have ended.
                let _ = sender.send(Got {
                    line,
                    headers,
                    body,
                });
                status
            } else {
                stream.read_exact(&mut body[..length / 2])?;
                return Ok(false);
            }
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )?;
    stream.flush()?;
    Ok(true)
}
