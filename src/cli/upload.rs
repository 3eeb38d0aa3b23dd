//! `--upload URL`: the destination of the archive after a run, and its sender.

use std::net::IpAddr;

use anyhow::Result;
use clap::ArgMatches;
use ureq::http::Uri;

use super::flag::value;
use super::{request, usage};

/// The URL to which this machine sends the archive: if it creates or fetches it, or cannot pass the URL to the
/// aggregator.
pub(super) fn from_here(matches: &ArgMatches) -> Result<Option<&str>> {
    asked(matches, !by_aggregator(matches))
}

/// The URL to which the aggregator sends the archive.
pub(super) fn from_aggregator(matches: &ArgMatches) -> Result<Option<&str>> {
    asked(matches, by_aggregator(matches))
}

fn by_aggregator(matches: &ArgMatches) -> bool {
    let given = |id: &str| value(matches, id).is_some();
    request::is_run(matches) && !matches.get_flag("local") && !given("retrieve") && !given("file")
}

/// The URL, if meant for this sender. HTTPS, or HTTP to the machine itself.
fn asked(matches: &ArgMatches, own: bool) -> Result<Option<&str>> {
    let url = matches.get_one::<String>("upload").map(String::as_str).filter(|url| own && !url.is_empty());
    let Some(url) = url else { return Ok(None) };
    let uri = url.parse::<Uri>().map_err(|error| usage::error(format!("--upload: invalid URL: {error}")))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let here = uri.scheme_str() == Some("http")
        && !by_aggregator(matches)
        && (host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()));
    if uri.scheme_str() != Some("https") && !here {
        return Err(usage::error("--upload takes a URL that begins with https://"));
    }
    Ok(Some(url))
}
