//! Fetching a file by its URL. Knows nothing of what is in it.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use ureq::tls::TlsConfig;

use crate::proxy::Proxy;
use crate::tls;

/// As long as the original waits.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The server answered, and has no such file for us.
#[derive(Debug)]
pub struct Refused {
    url: String,
    status: ureq::http::StatusCode,
}

impl Refused {
    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        self.status == ureq::http::StatusCode::NOT_FOUND
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fetching `{}`: the server answered {}", self.url, self.status)
    }
}

impl std::error::Error for Refused {}

/// Fetches at most `most` bytes. HTTPS trusts whom this machine trusts; proxies are those of the environment.
pub fn fetch(url: &str, most: u64) -> anyhow::Result<Vec<u8>> {
    let tls = TlsConfig::builder()
        .root_certs(tls::roots()?)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .proxy(url.parse().ok().map_or(Ok(None), |url| Proxy::before(&url))?)
        .timeout_global(Some(FETCH_TIMEOUT))
        .http_status_as_error(false)
        // Whoever asked for a safe connection is not led to another.
        .https_only(url.starts_with("https:"))
        .build()
        .into();
    let response =
        agent.get(url).call().map_err(tls::explained).with_context(|| format!("fetching `{url}`"))?;
    let status = response.status();
    if status.as_u16() > 399 {
        return Err(Refused { url: url.into(), status }.into());
    }
    let mut bytes = Vec::new();
    let mut body = response.into_body().into_reader().take(most + 1);
    body.read_to_end(&mut bytes).with_context(|| format!("fetching `{url}`"))?;
    if bytes.len() as u64 > most {
        bail!("fetching `{url}`: more than {most} bytes, which is more than such a file can have");
    }
    Ok(bytes)
}
