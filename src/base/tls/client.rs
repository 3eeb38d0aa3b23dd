//! The TLS settings of a client.
//!
//! Owns trust, the client certificate, and the rule for servers that are not to be verified. Opens no connection.

use std::fmt;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ResolvesClientCert};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::authorities;
use crate::lock;

/// Trusted authorities.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// This machine's authorities.
    #[default]
    System,
    /// Only these authorities, in PEM.
    Authorities(Vec<u8>),
    /// Any certificate.
    Anybody,
}

/// The client certificate, which may change while connections are being opened.
#[derive(Clone, Default)]
pub struct Identity(Arc<Mutex<Option<Arc<CertifiedKey>>>>);

impl Identity {
    /// Takes a chain and key in PEM; the key may be SEC1, PKCS#8 or PKCS#1.
    pub fn set(&self, chain: &[u8], key: &[u8]) -> Result<()> {
        let chain = certificates(chain).context("client certificate")?;
        let is_encrypted = key.windows(9).any(|word| word == b"ENCRYPTED");
        ensure!(!is_encrypted, "client key: it is encrypted; store it decrypted");
        let key = PrivateKeyDer::from_pem_slice(key).context("client key")?;
        let certified =
            CertifiedKey::from_der(chain, key, &provider()).context("client certificate and key")?;
        *lock(&self.0) = Some(Arc::new(certified));
        Ok(())
    }

    /// The certificate itself, without its authorities.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.current().and_then(|certified| certified.cert.first().cloned())
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        lock(&self.0).clone()
    }
}

/// Builds the settings; `Err` says which part is wrong.
pub fn client_config(trust: &Trust, identity: &Identity) -> Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut roots = RootCertStore::empty();
    let builder = match trust {
        Trust::Anybody => {
            let algorithms = provider().signature_verification_algorithms;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(algorithms)))
        }
        Trust::System => {
            roots.add_parsable_certificates(authorities::authorities()?);
            if roots.is_empty() {
                // A machine without a bundle, such as an empty container.
                roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            }
            builder.with_root_certificates(roots)
        }
        Trust::Authorities(pem) => {
            roots.add_parsable_certificates(certificates(pem)?);
            ensure!(!roots.is_empty(), "it contains no usable certificate");
            builder.with_root_certificates(roots)
        }
    };
    let mut config = builder.with_client_cert_resolver(Arc::new(identity.clone()));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The name that the server's certificate must have.
pub fn server_name(name: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| anyhow!("`{name}` is neither a DNS name nor an IP address"))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found = authorities::certificates(pem)?;
    ensure!(!found.is_empty(), "it contains no PEM certificate");
    Ok(found)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.current().filter(|certified| certified.key.choose_scheme(schemes).is_some())
    }

    fn has_certs(&self) -> bool {
        self.current().is_some()
    }
}

/// Accepts any certificate, but not a peer that lacks its key.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
