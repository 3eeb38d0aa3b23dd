//! Fetching a file by its URL: a plugin definition, a list of tests. Knows nothing of what is in it.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use ureq::tls::TlsConfig;

use base::proxy::Proxy;
use base::tls;

/// As long as the original waits.
const LIMIT: Duration = Duration::from_secs(10);

/// Fetches at most `most` bytes. HTTPS trusts whom this machine trusts; proxies are those of the environment.
pub(crate) fn fetch(url: &str, most: u64) -> anyhow::Result<Vec<u8>> {
    let tls = TlsConfig::builder()
        .root_certs(tls::roots()?)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .proxy(url.parse().ok().map_or(Ok(None), |url| Proxy::before(&url))?)
        .timeout_global(Some(LIMIT))
        .http_status_as_error(false)
        // Whoever asked for a safe connection is not led to another.
        .https_only(url.starts_with("https:"))
        .build()
        .into();
    let response =
        agent.get(url).call().map_err(tls::explained).with_context(|| format!("fetching `{url}`"))?;
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
