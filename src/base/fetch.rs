//! Downloads a file from a URL, and uploads one to a URL. Does not interpret content.

use std::fs::File;
use std::io::{self, Read, Take};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Error, ensure};
use ureq::SendBody;

use crate::at::At as _;
use crate::dial::Dialer;
use crate::proxy::Proxy;
use crate::retry::Attempts;
use crate::stop::Stop;
use crate::visible::short;
use crate::{small, tls};

/// Timeout of a download, as in the original.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of one upload attempt.
const PUT_TIMEOUT: Duration = Duration::from_secs(3600);
/// Maximum upload attempts.
const MAX_ATTEMPTS: u32 = 5;

/// HTTPS trusts this machine's authorities; proxies come from the environment.
fn agent(url: &str, limit: Duration, stop: &Stop) -> anyhow::Result<ureq::Agent> {
    // An unusable proxy is an error at once.
    url.parse()
        .ok()
        .map_or(Ok(None), |url| Proxy::before(&url))?;
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        // A redirect must not lead from a secure connection to an insecure one.
        .https_only(url.starts_with("https:"));
    Ok(Dialer::new(stop)?.agent(config))
}

/// Scheme and host of a URL: the only printable part of a URL with secrets.
pub fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    format!("{scheme}://{}", host.rsplit('@').next().unwrap_or_default())
}

/// Uploads a file. Retries if the server is busy or the connection breaks. Messages name only the
/// server: the URL grants write access. `watch` is given how many bytes of how many were read.
pub fn upload(
    url: &str,
    file: &Path,
    headers: &[(&str, &str)],
    stop: &Stop,
    watch: &dyn Fn(u64, u64),
) -> anyhow::Result<()> {
    let server = origin(url);
    let agent = agent(url, PUT_TIMEOUT, stop)?;
    let mut attempts = Attempts::new(MAX_ATTEMPTS, stop);
    loop {
        let opened = File::open(file).at("cannot read", file)?;
        let length = opened.metadata()?.len();
        // A redirect would arrive after the whole file was sent, and its error would show the URL.
        let request = agent.put(url).config().max_redirects(0).build();
        let mut request = request.header("content-length", length.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut watched = WatchedFile {
            file: opened.take(length),
            sent: 0,
            length,
            watch,
        };
        let why = match request.send(SendBody::from_reader(&mut watched)) {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => {
                let status = answer.status();
                ensure!(
                    status.is_server_error() || [408, 429].contains(&status.as_u16()),
                    "failed to upload to `{server}`: the server answered {status}"
                );
                format!("the server answered {status}")
            }
            Err(_) if stop.stopped() => "it was interrupted".into(),
            Err(error) => {
                let error = tls::explained(error);
                if tls::is_distrust(&error) {
                    return Err(error.context(format!("failed to upload to `{server}`")));
                }
                error.to_string().replace(url, &server)
            }
        };
        ensure!(
            attempts.wait_to_retry(false),
            "failed to upload to `{server}`: {why}"
        );
        log::info!("`{server}`: {why}; trying again");
    }
}

/// A file that tells how much of it was read.
struct WatchedFile<'a> {
    file: Take<File>,
    sent: u64,
    length: u64,
    watch: &'a dyn Fn(u64, u64),
}

impl Read for WatchedFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.sent += count as u64;
        (self.watch)(self.sent, self.length);
        Ok(count)
    }
}

/// Fetches at most `limit` bytes. The error of a response that refuses the file contains its
/// `StatusCode`.
pub fn fetch(url: &str, limit: u64) -> anyhow::Result<Vec<u8>> {
    let agent = agent(url, FETCH_TIMEOUT, &Stop::new())?;
    let failed = || format!("failed to fetch `{}`", short(url));
    let response = agent
        .get(url)
        .call()
        .map_err(tls::explained)
        .with_context(failed)?;
    let status = response.status();
    if status.as_u16() > 399 {
        return Err(Error::msg(status)
            .context("the server answered")
            .context(failed()));
    }
    small::read_from(response.into_body().into_reader(), limit).with_context(failed)
}
