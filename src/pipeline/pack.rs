//! The last steps: results are processed, and the run's folder becomes one archive, which gets its name only once it is complete and sealed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

use super::definition::write_json;
use super::retry::RunContext;
use super::{process, redact, why};
use crate::backplane::Statement;
use crate::query::Redactor;
use crate::{layout, status};
use base::at::At as _;
use base::json::json;
use base::temp::NewFile;
use base::{archive, clock};

/// Processes the results of a run, and packs its folder into a file in `out`, with its seal next to it. Returns its path, its
/// entry for the status, and the number of errors while processing.
pub(super) fn pack(
    context: &RunContext<'_>,
    redactor: Option<&Redactor>,
    out: &Path,
    started: SystemTime,
) -> anyhow::Result<(PathBuf, status::Archive, usize)> {
    let (run_dir, uuid) = (context.run_dir, &context.config.uuid);
    redact::redact(run_dir, redactor)?;
    let errors = process::process(context);
    // Processing adds to the log.
    redact::redact(run_dir, redactor)?;
    // A part of another plugin's results has no tree.
    let wholes = context.plugins.iter().filter(|plugin| plugin.definition.config.part_of.is_none());
    let names: Vec<&str> = wholes.map(|plugin| plugin.definition.name()).collect();
    let info = if names.is_empty() { json!({}) } else { json!({ "plugins": names }) };
    write_json(&run_dir.join(layout::INFO), &info)?;
    let received = json!(context.aggregator.received());
    write_json(&run_dir.join(layout::RECEIVED), &received)?;
    why::write(&received, run_dir)?;
    let health = run_dir.join(layout::HEALTH);
    if !health.exists() {
        // The original's `results --mode detailed` fails without it.
        write_json(&health, &json!(null))?;
    }
    let name = layout::archive(&clock::stamp(started), uuid);
    let path = out.join(&name);
    let (file, packed) = archive::pack_file(run_dir, &path).context("cannot write the archive")?;
    let (size, sha256) = (packed.size, packed.sha256);
    let statement = Statement { run: uuid.to_owned(), name: name.clone(), size, sha256: sha256.clone() };
    let seal = context.aggregator.authority().seal(&statement)?;
    let parts = layout::seal(&path);
    let mut files = Vec::new();
    for (path, content) in parts.iter().zip([&seal.statement, &seal.signature]) {
        let write = || {
            let mut part = NewFile::create(path, 0o600)?;
            part.write_all(content)?;
            part.sync().map(|()| part)
        };
        files.push(write().at("cannot write", path)?);
    }
    // A client that finds the archive must also find its seal.
    for file in files.into_iter().chain([file]) {
        let path = file.path().to_owned();
        if let Err(error) = file.commit(true) {
            // A seal without its archive means nothing.
            parts.iter().for_each(|part| drop(std::fs::remove_file(part)));
            return Err(error).at("cannot write", path);
        }
    }
    let created = clock::rfc3339(SystemTime::now());
    Ok((path, status::Archive { name, created, sha256, size }, errors))
}
