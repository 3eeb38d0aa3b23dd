//! The TLS settings of a connection to an API server.
//!
//! Owns trust, the client certificate, and the rule for servers that are not to be verified. Opens no connection.

use std::fmt;
use std::sync::{Arc, Mutex};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ResolvesClientCert};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::lock;
use crate::tls;

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
    pub fn set(&self, chain: &[u8], key: &[u8]) -> Result<(), String> {
        let chain = certificates(chain).map_err(|why| format!("client certificate: {why}"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| {
            match key.windows(9).any(|w| w == b"ENCRYPTED") {
                true => "client key: it is encrypted; store it decrypted".into(),
                false => format!("client key: {why}"),
            }
        })?;
        let certified = CertifiedKey::from_der(chain, key, &provider())
            .map_err(|why| format!("client certificate and key: {why}"))?;
        *lock(&self.0) = Some(Arc::new(certified));
        Ok(())
    }

    /// The certificate itself, without its authorities.
    pub(super) fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.current().and_then(|certified| certified.cert.first().cloned())
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        lock(&self.0).clone()
    }
}

/// Builds the settings; `Err` says which part is wrong.
pub fn client_config(trust: &Trust, identity: &Identity) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    let builder = match trust {
        Trust::Anybody => {
            let algorithms = provider().signature_verification_algorithms;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(algorithms)))
        }
        Trust::System => builder.with_root_certificates(system_roots()?),
        Trust::Authorities(pem) => {
            let mut roots = RootCertStore::empty();
            let (added, _) = roots.add_parsable_certificates(certificates(pem)?);
            if added == 0 {
                return Err("it contains no usable certificate".into());
            }
            builder.with_root_certificates(roots)
        }
    };
    let mut config = builder.with_client_cert_resolver(Arc::new(identity.clone()));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The name that the server's certificate must have.
pub(super) fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| format!("`{name}` is neither a DNS name nor an IP address"))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all =
        CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|why| why.to_string())?;
    if all.is_empty() { Err("it contains no PEM certificate".into()) } else { Ok(all) }
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(tls::authorities().map_err(|why| format!("{why:#}"))?);
    if roots.is_empty() {
        // A machine without a bundle, such as an empty container.
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(roots)
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
