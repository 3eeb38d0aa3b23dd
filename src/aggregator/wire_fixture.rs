//! What the tests over the wire share: a running aggregator with real mutual TLS, and a client that is free to
//! misbehave.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, StreamOwned};

use super::{Aggregator, Reviewer, Settings};
use crate::backplane::{Authority, open_server_config, server_config};
use base::http::Server;
use base::stop::Stop;
use client::Credentials;
use client::protocol::{Finding, ResultId};
use client::{Access, Client, Retry};

/// An aggregator that answers.
pub(super) struct Running<'a> {
    pub(super) aggregator: &'a Aggregator,
    pub(super) address: SocketAddr,
    pub(super) failures: SyncSender<Finding>,
    stop: Stop,
}

impl Drop for Running<'_> {
    /// A failed assertion must not leave the server running, or the test hangs.
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// Serves the run in `run_dir` while `test` runs.
pub(super) fn serving<T>(
    run_dir: &Path,
    expected: &[ResultId],
    settings: Settings,
    test: impl FnOnce(&Running<'_>) -> T,
) -> T {
    let aggregator = Aggregator::open(run_dir, expected, settings).unwrap();
    let server = server(&aggregator);
    run(&aggregator, &server, test)
}

/// The same with certificates for those whom `reviewer` knows.
pub(super) fn certifying<T>(
    run_dir: &Path,
    expected: &[ResultId],
    reviewer: impl Reviewer + 'static,
    test: impl FnOnce(&Running<'_>) -> T,
) -> T {
    let aggregator = Aggregator::open(run_dir, expected, Settings::default()).unwrap();
    let aggregator = aggregator.certifies(Box::new(reviewer));
    let authority = aggregator.authority();
    let tls = open_server_config(&authority.certificate_pem(), &authority.server("127.0.0.1").unwrap());
    let server = Server::bind("127.0.0.1:0").unwrap().tls(tls.unwrap());
    run(&aggregator, &server, test)
}

fn run<T>(aggregator: &Aggregator, server: &Server, test: impl FnOnce(&Running<'_>) -> T) -> T {
    let (failures, receiver) = sync_channel(8);
    let running = Running { aggregator, address: server.local_addr(), failures, stop: Stop::new() };
    let stop = running.stop.clone();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| aggregator.serve(server, receiver, &stop));
        let result = test(&running);
        drop(running);
        serving.join().unwrap().unwrap();
        result
    })
}

/// A server on a free port with the certificate of the run.
pub(super) fn server(aggregator: &Aggregator) -> Server {
    let authority = aggregator.authority();
    let tls = server_config(&authority.certificate_pem(), &authority.server("127.0.0.1").unwrap()).unwrap();
    Server::bind("127.0.0.1:0").unwrap().tls(tls)
}

/// What a worker of `plugin` gets to know.
pub(super) fn access(authority: &Authority, address: SocketAddr, plugin: &str) -> Access {
    let identity = authority.client(plugin).unwrap();
    Access {
        aggregator_url: format!("https://{address}"),
        ca_cert: authority.certificate_pem(),
        client_cert: identity.cert_pem,
        client_key: identity.key_pem,
        ..Access::default()
    }
}

impl Running<'_> {
    /// The project's own client, trying once.
    pub(super) fn client(&self, id: &ResultId) -> Client {
        let access = access(self.aggregator.authority(), self.address, &id.plugin);
        let retry = Retry { limit: Duration::ZERO, ..Retry::default() };
        Client::new(&access, id.clone()).unwrap().with_retry(retry)
    }

    /// A connection as `plugin` on which anything can be written.
    pub(super) fn connect(&self, plugin: &str) -> Connection {
        Connection::open(&access(self.aggregator.authority(), self.address, plugin), self.address).unwrap()
    }

    /// Sends a request with a body of known length as `plugin`, and returns status and head of the answer.
    pub(super) fn ask(&self, plugin: &str, start: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let mut connection = self.connect(plugin);
        let head = format!(
            "{start} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        connection.write(head.as_bytes());
        connection.write(body);
        connection.answer()
    }
}

/// A connection of a client without manners.
pub(super) struct Connection(StreamOwned<ClientConnection, TcpStream>);

impl Connection {
    pub(super) fn open(access: &Access, address: SocketAddr) -> io::Result<Self> {
        let credentials =
            Credentials::read(&access.ca_cert, &access.client_cert, &access.client_key).unwrap();
        Self::with(credentials.client_config().unwrap(), address)
    }

    /// A connection of somebody without a certificate.
    pub(super) fn guest(authority_pem: &str, address: SocketAddr) -> io::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority_pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self::with(config, address)
    }

    fn with(config: rustls::ClientConfig, address: SocketAddr) -> io::Result<Self> {
        let config = Arc::new(config);
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self(StreamOwned::new(ClientConnection::new(config, name).unwrap(), socket)))
    }

    /// Writes; a peer that went away shows in the answer.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).and_then(|()| self.0.flush());
    }

    /// Status and the whole text of what comes until the end; 0 if nothing does.
    pub(super) fn answer(&mut self) -> (u16, String) {
        let mut bytes = Vec::new();
        // Peers that refuse need not say goodbye.
        let _ = self.0.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, text)
    }
}
