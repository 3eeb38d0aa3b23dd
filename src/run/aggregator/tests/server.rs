//! A running aggregator with real mutual TLS, and a client that can break the protocol.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, StreamOwned};

use crate::aggregator::{Aggregator, AggregatorSettings, Reviewer};
use crate::backplane::{Authority, server_config};
use base::stop::Stop;
use client::Credentials;
use client::protocol::{Finding, ResultId};
use client::{Access, Client, Retry};
use http::Server;

/// A running aggregator.
pub(super) struct Running<'a> {
    pub aggregator: &'a Aggregator,
    pub address: SocketAddr,
    pub failures: SyncSender<Finding>,
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
    settings: AggregatorSettings,
    test: impl FnOnce(&Running<'_>) -> T,
) -> T {
    let aggregator = Aggregator::open(run_dir, expected, settings).unwrap();
    let server = server(&aggregator);
    run(&aggregator, &server, test)
}

/// Serves the run with certificates for pods that `reviewer` recognizes.
pub(super) fn certifying<T>(
    run_dir: &Path,
    expected: &[ResultId],
    reviewer: impl Reviewer + 'static,
    test: impl FnOnce(&Running<'_>) -> T,
) -> T {
    let aggregator = Aggregator::open(run_dir, expected, AggregatorSettings::default()).unwrap();
    let aggregator = aggregator.with_certifier(Box::new(reviewer));
    let authority = aggregator.authority();
    let tls = server_config(
        &authority.certificate_pem(),
        &authority.server("127.0.0.1").unwrap(),
        true,
    );
    let server = Server::bind("127.0.0.1:0").unwrap().tls(tls.unwrap());
    run(&aggregator, &server, test)
}

fn run<T>(aggregator: &Aggregator, server: &Server, test: impl FnOnce(&Running<'_>) -> T) -> T {
    let (failures, receiver) = sync_channel(8);
    let running = Running {
        aggregator,
        address: server.local_addr(),
        failures,
        stop: Stop::new(),
    };
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
    let tls = server_config(
        &authority.certificate_pem(),
        &authority.server("127.0.0.1").unwrap(),
        false,
    )
    .unwrap();
    Server::bind("127.0.0.1:0").unwrap().tls(tls)
}

/// Environment of a worker of `plugin`.
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
    /// The project's client, without retries.
    pub(super) fn client(&self, id: &ResultId) -> Client {
        let access = access(self.aggregator.authority(), self.address, &id.plugin);
        let retry = Retry {
            limit: Duration::ZERO,
            ..Retry::default()
        };
        Client::new(&access, id.clone()).unwrap().with_retry(retry)
    }

    /// A raw connection as `plugin`.
    pub(super) fn connect(&self, plugin: &str) -> Connection {
        Connection::open(
            &access(self.aggregator.authority(), self.address, plugin),
            self.address,
        )
        .unwrap()
    }

    /// Sends a request with a body of known length as `plugin`, and returns status and head of the
    /// response.
    pub(super) fn ask(
        &self,
        plugin: &str,
        start: &str,
        headers: &str,
        body: &[u8],
    ) -> (u16, String) {
        let mut connection = self.connect(plugin);
        let head = format!(
            "{start} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: \
             {}\r\n{headers}\r\n",
            body.len()
        );
        connection.write(head.as_bytes());
        connection.write(body);
        connection.answer()
    }
}

/// A raw client connection.
pub(super) struct Connection(StreamOwned<ClientConnection, TcpStream>);

impl Connection {
    pub(super) fn open(access: &Access, address: SocketAddr) -> io::Result<Self> {
        let credentials =
            Credentials::read(&access.ca_cert, &access.client_cert, &access.client_key).unwrap();
        Self::with(credentials.client_config().unwrap(), address)
    }

    /// A connection without a client certificate.
    pub(super) fn guest(authority_pem: &str, address: SocketAddr) -> io::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority_pem.as_bytes()).unwrap())
            .unwrap();
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
        Ok(Self(StreamOwned::new(
            ClientConnection::new(config, name).unwrap(),
            socket,
        )))
    }

    /// Writes; a closed connection shows in the response.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).and_then(|()| self.0.flush());
    }

    /// Status and text of the response until the end; 0 without any.
    pub(super) fn answer(&mut self) -> (u16, String) {
        let mut bytes = Vec::new();
        // A rejecting server may close without close_notify.
        let _ = self.0.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        (status, text)
    }
}
