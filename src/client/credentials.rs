//! A client's credentials: the trusted authority, its certificate, its key.
//!
//! Reads PEM as a worker's environment holds it, keys as SEC1 or PKCS#8. Matching the server's name is up to the TLS
//! library.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ureq::tls::{Certificate, ClientCert, PrivateKey};

/// Why credentials are unusable, as a sentence that names the faulty part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A client's credentials, checked: using them later cannot fail because a part is malformed.
pub struct Credentials {
    authority: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Credentials {
    /// Reads and checks all three; the first suitable block of each PEM text counts.
    pub fn read(authority_pem: &str, certificate_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let authority = authority(authority_pem)?;
        let certificate = certificate(certificate_pem, "client certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|e| Error(format!("the client key is not a PEM private key: {e}")))?;
        let credentials = Self { authority, certificate, key };
        credentials.client_config()?;
        Ok(credentials)
    }

    /// The trusted authority.
    pub(crate) fn authority(&self) -> Certificate<'static> {
        Certificate::from_der(&self.authority).to_owned()
    }

    /// The certificate with its key.
    pub(crate) fn client_cert(&self) -> Result<ClientCert, ureq::Error> {
        let certificate = Certificate::from_der(&self.certificate).to_owned();
        Ok(ClientCert::new_with_certs(&[certificate], PrivateKey::from_pem(self.key_pem().as_bytes())?))
    }

    /// The client's key as PEM, in the form in which it was read.
    pub fn key_pem(&self) -> String {
        match &self.key {
            PrivateKeyDer::Sec1(der) => base::tls::pem("EC PRIVATE KEY", der.secret_sec1_der()),
            PrivateKeyDer::Pkcs1(der) => base::tls::pem("RSA PRIVATE KEY", der.secret_pkcs1_der()),
            key => base::tls::pem("PRIVATE KEY", key.secret_der()),
        }
    }

    /// TLS settings that trust only this authority and present this certificate.
    pub fn client_config(&self) -> Result<rustls::ClientConfig, Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(self.authority.clone())
            .map_err(|e| Error(format!("cannot trust the certificate of the authority: {e}")))?;
        let mut config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|e| Error(format!("cannot set up TLS: {e}")))?
                .with_root_certificates(roots)
                .with_client_auth_cert(vec![self.certificate.clone()], self.key.clone_key())
                .map_err(|e| Error(format!("cannot use client certificate and key: {e}")))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The authority to trust.
pub(crate) fn authority(pem: &str) -> Result<CertificateDer<'static>, Error> {
    certificate(pem, "certificate of the authority")
}

fn certificate(pem: &str, what: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|e| Error(format!("the {what} is not a PEM certificate: {e}")))
}
