//! The last step: the run's folder becomes one archive, which gets its name only once it is complete and sealed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

use super::definition::write_json;
use super::why;
use crate::aggregator::Aggregator;
use crate::backplane::Statement;
use crate::driver::Plugin;
use crate::{layout, status};
use base::at::At as _;
use base::json::json;
use base::sys::{self, Open as _};
use base::{archive, clock};

/// Packs `run_dir` into a file in `out`, with its seal next to it. Returns its path and its entry for the status.
pub(super) fn pack(
    aggregator: &Aggregator,
    run_dir: &Path,
    plugins: &[Plugin<'_>],
    out: &Path,
    uuid: &str,
    started: SystemTime,
) -> anyhow::Result<(PathBuf, status::Archive)> {
    // What is part of another's results has no tree of its own.
    let wholes = plugins.iter().filter(|plugin| plugin.definition.config.part_of.is_none());
    let names: Vec<&str> = wholes.map(|plugin| plugin.definition.name()).collect();
    let info = if names.is_empty() { json!({}) } else { json!({ "plugins": names }) };
    write_json(&run_dir.join(layout::INFO), &info)?;
    let received = json!(aggregator.received());
    write_json(&run_dir.join(layout::RECEIVED), &received)?;
    why::write(&received, run_dir)?;
    let name = layout::archive(&clock::stamp(started), uuid);
    let (path, unsealed) = (out.join(&name), out.join(name.clone() + layout::UNSEALED));
    let packed = archive::pack_file(run_dir, &unsealed).context("cannot write the archive")?;
    let (size, sha256) = (packed.size, packed.sha256);
    let statement = Statement { run: uuid.to_owned(), name: name.clone(), size, sha256: sha256.clone() };
    let seal = aggregator.authority().seal(&statement)?;
    // Whoever finds the archive must also find its seal.
    for (path, content) in layout::seal(&path).iter().zip([&seal.statement, &seal.signature]) {
        write(path, content).at("cannot write", path)?;
    }
    fs::rename(&unsealed, &path).and_then(|()| sys::sync_folder(out)).at("cannot write", &path)?;
    let created = clock::rfc3339(SystemTime::now());
    Ok((path, status::Archive { name, created, sha256, size }))
}

/// Writes a file that only its owner can read, and syncs it.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
