//! Uploads archives, and their seals, to a store.

use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use base::at::At as _;
use base::fetch;
use base::stop::Stop;
use model::layout;

/// Uploads archives. Below a folder, whose URL ends with `/`, each keeps its name; else the newest
/// one is uploaded to the URL.
/// `watch` is given how many bytes of how many of an archive were sent.
pub(crate) fn upload(
    paths: &[PathBuf],
    url: &str,
    stop: &Stop,
    watch: &dyn Fn(u64, u64),
) -> Result<()> {
    if url.ends_with('/') {
        return paths.iter().try_for_each(|path| {
            upload_archive(path, &format!("{url}{}", name(path)), stop, watch)
        });
    }
    report::newest(paths).map_or(Ok(()), |path| upload_archive(path, url, stop, watch))
}

fn upload_archive(path: &Path, url: &str, stop: &Stop, watch: &dyn Fn(u64, u64)) -> Result<()> {
    let digest = base::file_sha256(path).at("cannot read", path)?;
    let digest = format!("sha-256=:{}:", BASE64.encode(digest));
    fetch::upload(
        url,
        path,
        &[
            ("content-type", "application/gzip"),
            ("repr-digest", &digest),
        ],
        stop,
        watch,
    )?;
    log::info!(
        "the archive `{}` was uploaded to `{}`",
        name(path),
        fetch::origin(url)
    );
    let seal: Vec<_> = layout::SEAL
        .iter()
        .zip(layout::seal(path))
        .filter(|(_, file)| file.exists())
        .collect();
    if url.contains('?') {
        if !seal.is_empty() {
            log::warn!("a presigned URL is for one file: the archive's seal is not uploaded");
        }
        return Ok(());
    }
    for (ending, file) in seal {
        fetch::upload(
            &format!("{url}{ending}"),
            &file,
            &[("content-type", "application/octet-stream")],
            stop,
            &|_, _| {},
        )?;
    }
    Ok(())
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
