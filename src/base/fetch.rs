//! Downloads a file from a URL. Does not know what is in it.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use ureq::tls::TlsConfig;

use crate::proxy::Proxy;
use crate::tls;

/// The same as the original's.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The server answered, but did not deliver the file.
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
        write!(f, "failed to fetch `{}`: the server answered {}", self.url, self.status)
    }
}

impl std::error::Error for Refused {}

/// Fetches at most `limit` bytes. HTTPS uses this machine's authorities; proxies come from the environment.
pub fn fetch(url: &str, limit: u64) -> anyhow::Result<Vec<u8>> {
    let tls = TlsConfig::builder()
        .root_certs(tls::roots()?)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .proxy(url.parse().ok().map_or(Ok(None), |url| Proxy::before(&url))?)
        .timeout_global(Some(FETCH_TIMEOUT))
        .http_status_as_error(false)
        // A redirect must not lead from a secure connection to an insecure one.
        .https_only(url.starts_with("https:"))
        .build()
        .into();
    let response =
        agent.get(url).call().map_err(tls::explained).with_context(|| format!("failed to fetch `{url}`"))?;
    let status = response.status();
    if status.as_u16() > 399 {
        return Err(Refused { url: url.into(), status }.into());
    }
    let mut bytes = Vec::new();
    let mut body = response.into_body().into_reader().take(limit + 1);
    body.read_to_end(&mut bytes).with_context(|| format!("failed to fetch `{url}`"))?;
    if bytes.len() as u64 > limit {
        bail!("failed to fetch `{url}`: it has more than {limit} bytes, which is too large for such a file");
    }
    Ok(bytes)
}
