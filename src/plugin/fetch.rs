//! Fetching a file by its URL: a plugin definition, a list of tests. Knows nothing of what is in it.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// As long as the original waits.
const LIMIT: Duration = Duration::from_secs(10);

/// Fetches at most `most` bytes. HTTPS trusts the public roots or `$SSL_CERT_FILE`; proxies are those of the environment.
pub fn fetch(url: &str, most: u64) -> anyhow::Result<Vec<u8>> {
    let tls = TlsConfig::builder()
        .root_certs(roots()?)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(LIMIT))
        .http_status_as_error(false)
        // Whoever asked for a safe connection is not led to another.
        .https_only(url.starts_with("https:"))
        .build()
        .into();
    let response = agent.get(url).call().with_context(|| format!("fetching `{url}`"))?;
    if response.status().as_u16() > 399 {
        bail!("fetching `{url}`: the server answered {}", response.status());
    }
    let mut bytes = Vec::new();
    let mut body = response.into_body().into_reader().take(most + 1);
    body.read_to_end(&mut bytes).with_context(|| format!("fetching `{url}`"))?;
    if bytes.len() as u64 > most {
        bail!("fetching `{url}`: more than {most} bytes, which is more than such a file can have");
    }
    Ok(bytes)
}

/// The certificates in `$SSL_CERT_FILE`, where a company names its own, else the public ones.
fn roots() -> anyhow::Result<RootCerts> {
    let Some(path) = std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) else {
        return Ok(RootCerts::WebPki);
    };
    let describe = || format!("certificates in `{}` (SSL_CERT_FILE)", path.display());
    let pem = std::fs::read(&path).with_context(describe)?;
    let certificates: Vec<Certificate> = CertificateDer::pem_slice_iter(&pem)
        .map(|certificate| Ok(Certificate::from_der(&certificate?).to_owned()))
        .collect::<Result<_, rustls_pki_types::pem::Error>>()
        .with_context(describe)?;
    anyhow::ensure!(!certificates.is_empty(), "{}: there are none; it must be PEM", describe());
    Ok(RootCerts::new_with_certs(&certificates))
}
