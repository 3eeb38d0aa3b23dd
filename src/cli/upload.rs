//! `--upload URL`: an archive, and its seal, to a store.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::ArgMatches;

use super::usage;
use crate::layout;
use base::fetch;
use base::stop::Stop;

/// Where it goes, if that was asked for. Over HTTPS; on this machine HTTP will do.
pub(super) fn asked(matches: &ArgMatches) -> Result<Option<&str>> {
    let url = matches.get_one::<String>("upload").map(String::as_str).filter(|url| !url.is_empty());
    let Some(url) = url else { return Ok(None) };
    let host = url.strip_prefix("http://").map(|rest| rest.split(['/', ':']).next().unwrap_or_default());
    let here = host.is_some_and(|host| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    });
    if !url.starts_with("https://") && !here {
        return Err(usage::error("--upload takes a URL that begins with https://"));
    }
    Ok(Some(url))
}

/// Sends archives there. In a folder, whose URL ends with `/`, each has its own name; else the URL is that of the newest.
pub(super) fn upload(paths: &[PathBuf], url: &str, stop: &Stop) -> Result<()> {
    if url.ends_with('/') {
        return paths.iter().try_for_each(|path| {
            let name = path.file_name().context("an archive without a name")?.to_string_lossy();
            one(path, &format!("{url}{name}"), stop)
        });
    }
    // Names begin with the time.
    paths.iter().max().map_or(Ok(()), |path| one(path, url, stop))
}

fn one(path: &Path, url: &str, stop: &Stop) -> Result<()> {
    let digest = digest(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let digest = format!("sha-256=:{digest}:");
    fetch::put(url, path, &[("content-type", "application/gzip"), ("repr-digest", &digest)], stop)?;
    let shown = url.split('?').next().unwrap_or_default();
    log::info!("the archive is at `{shown}`");
    let seal: Vec<_> =
        layout::SEAL.iter().zip(layout::seal(path)).filter(|(_, file)| file.exists()).collect();
    if url.contains('?') {
        if !seal.is_empty() {
            log::warn!("a signed URL is for one file: the archive's seal is not uploaded");
        }
        return Ok(());
    }
    for (ending, file) in seal {
        fetch::put(&format!("{url}{ending}"), &file, &[("content-type", "application/octet-stream")], stop)?;
    }
    Ok(())
}

/// SHA-256 in base64.
fn digest(path: &Path) -> std::io::Result<String> {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut file = std::fs::File::open(path)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match std::io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(BASE64.encode(context.finish())),
            length => context.update(&buffer[..length]),
        }
    }
}
