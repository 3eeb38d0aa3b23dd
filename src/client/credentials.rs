//! A client's credentials: the trusted authority, its certificate, its key.
//!
//! Reads PEM as a worker's environment holds it, keys as SEC1 or PKCS#8. Matching the server's name is up to the TLS
//! library.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Error;

/// A client's credentials, checked: using them later cannot fail because a part is malformed.
pub struct Credentials {
    authority: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Credentials {
    /// Reads and checks all three; the first suitable block of each PEM text counts.
    pub fn read(authority_pem: &str, certificate_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let authority = certificate(authority_pem, "certificate of the authority")?;
        let certificate = certificate(certificate_pem, "client certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|e| Error::Settings(format!("the client key is not a PEM private key: {e}")))?;
        let credentials = Self { authority, certificate, key };
        credentials.client_config()?;
        Ok(credentials)
    }

    /// TLS settings that trust only this authority and present this certificate.
    pub fn client_config(&self) -> Result<rustls::ClientConfig, Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(self.authority.clone())
            .map_err(|e| Error::Settings(format!("cannot trust the certificate of the authority: {e}")))?;
        let mut config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|e| Error::Settings(format!("cannot set up TLS: {e}")))?
                .with_root_certificates(roots)
                .with_client_auth_cert(vec![self.certificate.clone()], self.key.clone_key())
                .map_err(|e| Error::Settings(format!("cannot use client certificate and key: {e}")))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn certificate(pem: &str, what: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|e| Error::Settings(format!("the {what} is not a PEM certificate: {e}")))
}
