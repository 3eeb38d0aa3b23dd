//! TLS settings of a server that trusts only certificates of the run's authority.

use std::sync::Arc;

use anyhow::Context as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Identity;

/// Settings that require a client certificate signed by `authority_pem` and present `identity`, with its authority in the
/// chain. TLS 1.2 and 1.3; without session resumption, since every worker connects once.
pub fn server_config(authority_pem: &str, identity: &Identity) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    config(authority_pem, identity, false)
}

/// The same for a server that also admits guests without a certificate, whose requests the caller must restrict.
/// Certificates are verified if presented.
pub(crate) fn open_server_config(
    authority_pem: &str,
    identity: &Identity,
) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    config(authority_pem, identity, true)
}

fn config(
    authority_pem: &str,
    identity: &Identity,
    guests: bool,
) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    let authority = CertificateDer::from_pem_slice(authority_pem.as_bytes())
        .context("cannot read the certificate of the run's authority")?;
    let certificate = CertificateDer::from_pem_slice(identity.cert_pem.as_bytes())
        .context("cannot read the server's certificate")?;
    let key =
        PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).context("cannot read the server's key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.clone()).context("cannot trust the run's authority")?;
    let mut clients =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    if guests {
        clients = clients.allow_unauthenticated();
    }
    let clients = clients.build().context("cannot set up the check of client certificates")?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .context("cannot set up TLS")?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate, authority], key)
        .context("cannot use the server's certificate and key")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}
