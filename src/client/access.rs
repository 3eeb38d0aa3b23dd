//! The aggregator's address, and the client's certificates and key; all checked before use.
//!
//! Reads PEM as a worker's environment holds it, keys as SEC1 or PKCS#8. Otherwise generates a key,
//! which never leaves this process, and the request to certify it (PKCS #10). That request contains
//! no name: the accompanying token determines the certificate's subject.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ureq::tls::{
    Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsConfigBuilder, TlsProvider,
};

use super::Error;
use crate::env;
use base::tls::{P256_KEY, pem};

/// Address of the aggregator, its authority, and the client's identity: a certificate with its key,
/// or a token for requesting one. Certificates and keys are PEM text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// `https://host:port`; a path is ignored.
    pub aggregator_url: String,
    /// The address of the aggregator's Service, which is tried as well, since the aggregator gets
    /// another address of its own when its node starts again.
    pub service_address: Option<SocketAddr>,
    /// The run's certificate authority, the only trusted one.
    pub ca_cert: String,
    /// The certificate that names the plugin; empty to request one.
    pub client_cert: String,
    /// Its private key, SEC1 or PKCS#8.
    pub client_key: String,
    /// The file with the pod's token; only used without a certificate.
    pub token_file: String,
}

impl Access {
    /// Reads a worker's environment: `AGGREGATOR_URL` and `CA_CERT`, with either
    /// `SONOBUOY_TOKEN_FILE` or `CLIENT_CERT` and `CLIENT_KEY`, and the Service, if there is one.
    pub fn from_env() -> Result<Self, Error> {
        Self::read(|name| std::env::var(name).ok()).map_err(|missing| {
            Error::Settings(format!(
                "not set in the environment: {}",
                missing.join(", ")
            ))
        })
    }

    /// Reads the same variables through `lookup`; an empty value counts as missing. `Err` names the
    /// missing variable.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<&'static str>> {
        let variable = |name: &str| lookup(name).unwrap_or_default();
        let service = variable(env::SERVICE_HOST).parse::<IpAddr>().ok();
        let service_address = service.zip(variable(env::SERVICE_PORT).parse().ok());
        let access = Self {
            aggregator_url: variable(env::AGGREGATOR_URL),
            service_address: service_address.map(SocketAddr::from),
            ca_cert: variable(env::CA_CERT),
            client_cert: variable(env::CLIENT_CERT),
            client_key: variable(env::CLIENT_KEY),
            token_file: variable(env::TOKEN_FILE),
        };
        let asks = access.asks();
        let needed = [
            (env::AGGREGATOR_URL, &access.aggregator_url, true),
            (env::CA_CERT, &access.ca_cert, true),
            (env::CLIENT_CERT, &access.client_cert, !asks),
            (env::CLIENT_KEY, &access.client_key, !asks),
        ];
        let missing = needed
            .iter()
            .filter(|(_, value, needed)| *needed && value.is_empty());
        let missing: Vec<_> = missing.map(|(name, ..)| *name).collect();
        if missing.is_empty() {
            Ok(access)
        } else {
            Err(missing)
        }
    }

    /// Whether a certificate has to be requested.
    pub(super) fn asks(&self) -> bool {
        self.client_cert.is_empty() && !self.token_file.is_empty()
    }

    /// Scheme and authority, without path.
    pub(super) fn base(&self) -> Result<String, Error> {
        let wrong = |what: &str| {
            Error::Settings(format!(
                "`{}` is not a valid aggregator address: {what}",
                self.aggregator_url
            ))
        };
        let uri: ureq::http::Uri = self
            .aggregator_url
            .trim()
            .parse()
            .map_err(|error| wrong(&format!("{error}")))?;
        if uri.scheme_str() != Some("https") {
            return Err(wrong("it must start with `https://`"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong("it must contain a plain host name or IP address"));
        }
        // The parser treats an invalid port as a missing one.
        if authority.port_u16().is_none() && authority.host() != authority.as_str() {
            return Err(wrong("its port must be a number up to 65535"));
        }
        Ok(format!("https://{authority}"))
    }

    /// TLS settings from the certificates. Everything is parsed and matched first, because the HTTP
    /// client panics if the key does not match the certificate.
    pub(super) fn tls(&self) -> Result<TlsConfig, Error> {
        Credentials::read(&self.ca_cert, &self.client_cert, &self.client_key)?;
        let certificate = Certificate::from_pem(self.client_cert.as_bytes())
            .map_err(settings("cannot use a certificate or key"))?;
        let key = PrivateKey::from_pem(self.client_key.as_bytes())
            .map_err(settings("cannot use a certificate or key"))?;
        let identity = ClientCert::new_with_certs(&[certificate], key);
        Ok(self.trusting()?.client_cert(Some(identity)).build())
    }

    /// TLS settings that trust only the run's authority.
    pub(super) fn trusting(&self) -> Result<TlsConfigBuilder, Error> {
        let authority = Certificate::from_pem(self.ca_cert.as_bytes())
            .map_err(settings("cannot use a certificate or key"))?;
        Ok(TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&[authority])))
    }
}

fn settings<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> Error {
    move |error| Error::Settings(format!("{what}: {error}"))
}

/// A client's credentials, checked: using them later cannot fail because a part is malformed.
pub struct Credentials(rustls::ClientConfig);

impl Credentials {
    /// Reads and checks all three; the first suitable block of each PEM text counts.
    pub fn read(authority_pem: &str, certificate_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let authority = certificate(authority_pem, "certificate of the authority")?;
        let certificate = certificate(certificate_pem, "client certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(settings("the client key is not a PEM private key"))?;
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(authority)
            .map_err(settings("cannot trust the certificate of the authority"))?;
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .map_err(settings("cannot set up TLS"))?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)
        .map_err(settings("cannot use client certificate and key"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(config))
    }

    /// TLS settings that trust only this authority and present this certificate.
    pub fn client_config(&self) -> Result<rustls::ClientConfig, Error> {
        Ok(self.0.clone())
    }
}

fn certificate(pem: &str, what: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(settings(&format!("the {what} is not a PEM certificate")))
}

/// Version 1 and an empty subject.
const VERSION_AND_SUBJECT: &[u8] = &[0x02, 0x01, 0x00, 0x30, 0x00];
const NO_ATTRIBUTES: &[u8] = &[0xa0, 0x00];
const ECDSA_WITH_SHA256: &[u8] = &[
    0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02,
];
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

/// This process's key, and the request for its certificate.
pub(super) struct Key {
    /// PKCS #8, PEM.
    pub(super) key_pem: String,
    /// The request to post, PEM.
    pub(super) request_pem: String,
}

impl Key {
    /// Generates a new key.
    pub(super) fn new() -> Result<Self, Error> {
        let random = SystemRandom::new();
        let failed = "cannot generate a key";
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random);
        let der = der.map_err(settings(failed))?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der.as_ref(), &random)
            .map_err(settings(failed))?;
        let public = key.public_key().as_ref();
        let named = element(
            SEQUENCE,
            &[VERSION_AND_SUBJECT, P256_KEY, public, NO_ATTRIBUTES],
        );
        let signature = key.sign(&random, &named).map_err(settings(failed))?;
        let proof = element(BIT_STRING, &[&[0], signature.as_ref()]);
        let request = element(SEQUENCE, &[&named, ECDSA_WITH_SHA256, &proof]);
        Ok(Self {
            key_pem: pem("PRIVATE KEY", der.as_ref()),
            request_pem: pem("CERTIFICATE REQUEST", &request),
        })
    }
}

/// Encodes one DER element of at most 255 bytes.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u8::try_from(content.len()).unwrap_or(u8::MAX);
    let mut out = if length < 0x80 {
        vec![tag, length]
    } else {
        vec![tag, 0x81, length]
    };
    out.extend(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_https_with_a_host_and_without_path() {
        let base = |url: &str| {
            Access {
                aggregator_url: url.into(),
                ..Access::default()
            }
            .base()
            .ok()
        };
        assert_eq!(
            base("https://10.0.0.1:8080").as_deref(),
            Some("https://10.0.0.1:8080")
        );
        assert_eq!(
            base("https://[::1]:8080/api/v1/results").as_deref(),
            Some("https://[::1]:8080")
        );
        assert_eq!(
            base("https://aggregator.ns.svc\n").as_deref(),
            Some("https://aggregator.ns.svc")
        );
        assert_eq!(base("https://[::1]").as_deref(), Some("https://[::1]"));
        for url in [
            "",
            "10.0.0.1:8080",
            "http://10.0.0.1:8080",
            "https://",
            "https://u:p@host",
            "/x",
        ] {
            assert_eq!(base(url), None, "{url}");
        }
        for url in ["https://10.0.0.1:99999", "https://[::1]:x", "https://host:"] {
            assert_eq!(base(url), None, "{url}");
        }
    }

    #[test]
    fn all_missing_variables_are_named_at_once() {
        let missing = Access::read(|name| match name {
            "CA_CERT" => Some("x".into()),
            "CLIENT_KEY" => Some(String::new()),
            _ => None,
        });
        assert_eq!(
            missing,
            Err(vec!["AGGREGATOR_URL", "CLIENT_CERT", "CLIENT_KEY"])
        );
        let with_token =
            Access::read(|name| Some(if name.starts_with("CLIENT") { "" } else { name }.into()));
        assert!(
            with_token.is_ok_and(|access| access.asks()),
            "a token replaces certificate and key"
        );
    }

    #[test]
    fn service_is_optional() {
        let read = |host: &str| {
            Access::read(|name| {
                Some(match name {
                    env::SERVICE_HOST => host.to_owned(),
                    env::SERVICE_PORT => "8080".to_owned(),
                    _ => "x".to_owned(),
                })
            })
        };
        for (host, expected) in [
            ("10.96.0.7", Some("10.96.0.7:8080")),
            ("fd00::7", Some("[fd00::7]:8080")),
            ("", None),
            ("a name", None),
        ] {
            let address = read(host).unwrap().service_address;
            assert_eq!(address, expected.map(|text| text.parse().unwrap()));
        }
    }

    #[test]
    fn invalid_certificates_are_named() {
        let check = |access: Access, words: &str| {
            let error = access.tls().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        let nonsense = Access {
            ca_cert: "nonsense".into(),
            ..Access::default()
        };
        check(nonsense, "certificate of the authority");
    }

    #[test]
    fn mismatched_key_is_an_error() {
        let authority = run::backplane::Authority::new(std::time::Duration::from_secs(60)).unwrap();
        let (one, other) = (
            authority.client("one").unwrap(),
            authority.client("other").unwrap(),
        );
        let access = |key: &str| Access {
            ca_cert: authority.certificate_pem(),
            client_cert: one.cert_pem.clone(),
            client_key: key.to_owned(),
            ..Access::default()
        };
        assert!(access(&one.key_pem).tls().is_ok());
        assert!(access(&other.key_pem).tls().is_err());
    }
}
