//! Certificates of a run, and the TLS settings of both sides.
//!
//! Owns identities: every run has a separate authority, which signs the certificates of the
//! aggregator and its workers, and seals the archive. A worker's certificate determines the results
//! that it may send:
//!
//! | its URI | made | may send |
//! | --- | --- | --- |
//! | `sonobuoy://plugin/P/node/N` | for a key that never leaves the worker: it asks over TLS with a [`SigningRequest`] and proves by a token which pod it is; short-lived | the result of plugin P on node N (`global` for the cluster) |
//! | `sonobuoy://plugin/P` | with its key by the aggregator, where workers cannot ask: they are the original's, or tokens may not be reviewed | all results of plugin P |
//!
//! A client without a certificate is a guest, admitted by [`server_config`] only to request one.
//! Callers review tokens. Knows nothing about HTTP and routes. Starts no thread.

mod authority;
mod der;
mod request;
mod seal;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use anyhow::Context as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use client::protocol::ResultId;

pub use authority::Authority;
pub use authority::{not_after, random};
pub use request::SigningRequest;
pub use seal::{
    MAX_SIGNATURE_BYTES, MAX_STATEMENT_BYTES, Seal, Statement, certificate_in, ensure_authority,
    is_derived,
};

/// Prefix of the URI that identifies a plugin.
const PLUGIN_URI: &str = "sonobuoy://plugin/";
/// Separates the plugin's name from its node's, in certificates for one node.
const NODE: &str = "node";

/// One certificate and its private key, both PEM; the key is SEC1, which workers written in Go
/// require.
#[derive(Clone)]
pub struct Identity {
    /// The certificate alone, without its authority.
    pub cert_pem: String,
    /// The private key, `EC PRIVATE KEY`.
    pub key_pem: String,
}

/// The sender of a request, according to its verified certificate.
#[derive(Debug, PartialEq)]
pub enum Caller {
    /// Any worker of this plugin, all of which share one certificate.
    Plugin(String),
    /// The sender of this result only.
    Result(ResultId),
}

impl Caller {
    /// The holder of a certificate: identified by its only URI, else by its only DNS name, which is
    /// a plugin's. The latter supports certificates that another program requested from the
    /// same authority.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
        let mut uris = parsed.valid_uri_names();
        if let Some(uri) = uris.next() {
            let name = uri
                .strip_prefix(PLUGIN_URI)
                .filter(|_| uris.next().is_none())?;
            return match name.split('/').collect::<Vec<_>>()[..] {
                [plugin] => Some(Self::Plugin(unescape(plugin)?)),
                [plugin, NODE, node] => Some(Self::Result(ResultId::on_node(
                    unescape(plugin)?,
                    unescape(node)?,
                ))),
                _ => None,
            };
        }
        let mut names = parsed.valid_dns_names();
        let name = names.next()?;
        names
            .next()
            .is_none()
            .then(|| Self::Plugin(name.to_owned()))
    }

    /// Whether the holder may send this result.
    pub fn may(&self, id: &ResultId) -> bool {
        match self {
            Self::Plugin(plugin) => *plugin == id.plugin,
            Self::Result(own) => own == id,
        }
    }

    /// Precision of the identification: by plugin or by node, as in status and archive.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Plugin(_) => "plugin",
            Self::Result(_) => "node",
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin(plugin) => write!(f, "plugin `{plugin}`"),
            Self::Result(id) => write!(f, "`{id}`"),
        }
    }
}

/// The plugin of a certificate's holder: quotas apply to all workers of a plugin together.
pub fn plugin_of(certificate: &CertificateDer<'static>) -> Option<String> {
    Some(match Caller::of(certificate)? {
        Caller::Plugin(plugin) => plugin,
        Caller::Result(id) => id.plugin,
    })
}

/// The URI of the sender of this result.
fn result_uri(id: &ResultId) -> String {
    format!(
        "{PLUGIN_URI}{}/{NODE}/{}",
        base::percent_encoded(&id.plugin),
        base::percent_encoded(&id.node)
    )
}

fn unescape(text: &str) -> Option<String> {
    base::percent_decoded(text).filter(|name| !name.is_empty())
}

/// Settings that require a client certificate signed by `authority_pem` and present `identity`,
/// with its authority in the chain; `guests` may have none, and the caller must restrict their
/// requests. TLS 1.2 and 1.3; without session resumption, since every worker connects once.
pub fn server_config(
    authority_pem: &str,
    identity: &Identity,
    guests: bool,
) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    let authority = CertificateDer::from_pem_slice(authority_pem.as_bytes())
        .context("cannot read the certificate of the run's authority")?;
    let certificate = CertificateDer::from_pem_slice(identity.cert_pem.as_bytes())
        .context("cannot read the server's certificate")?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .context("cannot read the server's key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.clone())?;
    let mut clients = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::clone(&provider),
    );
    if guests {
        clients = clients.allow_unauthenticated();
    }
    let clients = clients.build()?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate, authority], key)
        .context("cannot use the server's certificate and key")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}
