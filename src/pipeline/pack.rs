//! The last step: the run directory becomes one archive, which has its name only once it is whole.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

use super::process::write_json;
use crate::driver::Plugin;
use crate::{layout, status};
use base::json::json;
use base::{archive, clock};

/// Packs `run_dir` into a file in `out`. Gives its path and what the status says about it.
pub(super) fn pack(
    run_dir: &Path,
    plugins: &[Plugin<'_>],
    out: &Path,
    uuid: &str,
    started: SystemTime,
) -> anyhow::Result<(PathBuf, status::Archive)> {
    let names: Vec<&str> = plugins.iter().map(|plugin| plugin.definition.name()).collect();
    let info = if names.is_empty() { json!({}) } else { json!({ "plugins": names }) };
    write_json(&run_dir.join(layout::INFO), &info)?;
    let name = layout::archive(&clock::stamp(started), uuid);
    let path = out.join(&name);
    let packed = archive::pack_file(run_dir, &path).context("cannot write the archive")?;
    let created = clock::rfc3339(SystemTime::now());
    Ok((path, status::Archive { name, created, sha256: packed.sha256, size: packed.size }))
}
