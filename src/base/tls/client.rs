//! The TLS settings of a client: whom it trusts, and its certificate.
//!
//! Finds certificate authorities in the order of Go programs, so that a machine configured for one
//! of them works here, too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{fmt, fs};

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

use crate::{lock, small};

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
        let chain = some_certificates(chain).context("client certificate")?;
        let is_encrypted = key.windows(9).any(|word| word == b"ENCRYPTED");
        ensure!(
            !is_encrypted,
            "client key: it is encrypted; store it decrypted"
        );
        let key = PrivateKeyDer::from_pem_slice(key).context("client key")?;
        let certified = CertifiedKey::from_der(chain, key, &provider())
            .context("client certificate and key")?;
        *lock(&self.0) = Some(Arc::new(certified));
        Ok(())
    }

    /// The certificate itself, without its authorities.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.current()
            .and_then(|certified| certified.cert.first().cloned())
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        lock(&self.0).clone()
    }
}

/// Builds the settings; `Err` says which part is wrong.
pub fn client_config(trust: &Trust, identity: &Identity) -> Result<Arc<ClientConfig>> {
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut roots = RootCertStore::empty();
    let builder = match trust {
        Trust::Anybody => {
            let algorithms = provider().signature_verification_algorithms;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(algorithms)))
        }
        Trust::System => {
            roots.add_parsable_certificates(authorities()?);
            if roots.is_empty() {
                // A machine without a bundle, such as an empty container.
                roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            }
            builder.with_root_certificates(roots)
        }
        Trust::Authorities(pem) => {
            roots.add_parsable_certificates(some_certificates(pem)?);
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

fn some_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let chain = certificates(pem)?;
    ensure!(!chain.is_empty(), "it contains no PEM certificate");
    Ok(chain)
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
        self.current()
            .filter(|certified| certified.key.choose_scheme(schemes).is_some())
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

/// Bundles of distributions, to which administrators add their own authorities.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Maximum bytes of a certificate file; the bundle of a distribution has 250 KB.
const MAX_BYTES: u64 = 16 << 20;

/// The authorities in `$SSL_CERT_FILE`, else in the distribution's bundle, and those in the folders
/// of `$SSL_CERT_DIR`.
///
/// Empty if the system has no bundle, as in an empty container: the built-in public ones apply
/// then.
fn authorities() -> Result<Vec<CertificateDer<'static>>> {
    let folders: Vec<PathBuf> = variable("SSL_CERT_DIR").map_or_else(Vec::new, |folders| {
        std::env::split_paths(&folders).collect()
    });
    among(
        variable("SSL_CERT_FILE").map(PathBuf::from).as_deref(),
        &BUNDLES.map(Path::new),
        &folders,
    )
}

/// The authorities in `$SSL_CERT_FILE` as PEM, without other content of the file; empty without the
/// variable.
pub fn named() -> Result<String> {
    let Some(path) = variable("SSL_CERT_FILE") else {
        return Ok(String::new());
    };
    let authorities = among(Some(Path::new(&path)), &[], &[])?;
    Ok(authorities
        .iter()
        .map(|certificate| super::pem("CERTIFICATE", certificate))
        .collect())
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn among(
    named: Option<&Path>,
    bundles: &[&Path],
    folders: &[PathBuf],
) -> Result<Vec<CertificateDer<'static>>> {
    let mut authorities = match named {
        // If a file is named, it must exist: falling back to the bundle would hide a typo.
        Some(path) => {
            let source = || format!("certificates in `{}` (SSL_CERT_FILE)", path.display());
            let pem = small::read(path, MAX_BYTES).with_context(source)?;
            let authorities = certificates(&pem).with_context(source)?;
            ensure!(
                !authorities.is_empty(),
                "{}: it contains none; the file must be PEM",
                source()
            );
            authorities
        }
        None => bundles
            .iter()
            .find_map(|path| readable(path))
            .unwrap_or_default(),
    };
    let files = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten();
    authorities.extend(files.filter_map(|file| readable(&file.path())).flatten());
    Ok(authorities)
}

fn readable(path: &Path) -> Option<Vec<CertificateDer<'static>>> {
    certificates(&small::read_regular(path, MAX_BYTES).ok()?)
        .ok()
        .filter(|found| !found.is_empty())
}

/// The certificates of a PEM text.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    Ok(CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

    #[test]
    fn named_file_precedes_bundles_and_folders_add_to_it() {
        let scratch = crate::temp::Folder::new().unwrap();
        let path = |name: &str| scratch.join(name);
        fs::create_dir_all(path("folder")).unwrap();
        fs::write(path("bundle"), ONE.repeat(2)).unwrap();
        fs::write(path("other"), ONE).unwrap();
        fs::write(path("empty"), "").unwrap();
        fs::write(path("folder/a.pem"), ONE.repeat(4)).unwrap();
        fs::write(path("folder/README"), "no certificate").unwrap();
        let (absent, empty, bundle, other) =
            (path("absent"), path("empty"), path("bundle"), path("other"));
        let bundles: [&Path; 4] = [&absent, &empty, &bundle, &other];
        let folders = [path("folder"), path("absent")];
        let count = |named: Option<&Path>, bundles: &[&Path], folders: &[PathBuf]| {
            among(named, bundles, folders)
                .map(|found| found.len())
                .map_err(|error| format!("{error:#}"))
        };
        assert_eq!(count(None, &bundles, &[]), Ok(2));
        assert_eq!(count(Some(&other), &bundles, &[]), Ok(1));
        assert_eq!(count(Some(&other), &bundles, &folders), Ok(5));
        assert_eq!(count(None, &[], &folders), Ok(4));
        assert_eq!(count(None, &[], &[]), Ok(0), "an empty container");
        let endless = PathBuf::from(if cfg!(unix) { "/dev/zero" } else { "absent" });
        for wrong in [&absent, &empty, &endless] {
            let error = count(Some(wrong), &bundles, &folders).unwrap_err();
            assert!(
                error.contains("SSL_CERT_FILE") && error.contains(wrong.to_str().unwrap()),
                "{error}"
            );
        }
    }
}
