//! Hides secrets in the files that a run itself adds to its archive: settings, definitions, error reports, its log.
//!
//! Uses and counts the rules of the snapshot. Leaves the plugins' results unchanged. Starts no thread.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::path::Path;

use serde_json::Value;

use crate::layout;
use crate::query::Redactor;
use base::at::At as _;
use base::{json, logger, small};

/// Maximum size of the run's own files.
const MAX_JSON_BYTES: u64 = 16 << 20;
/// Maximum length of a line of a log; the remainder is cut.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Hides secrets in the current files of a run's folder, and records the counts.
pub(super) fn redact(run_dir: &Path, redactor: Option<&Redactor>) -> anyhow::Result<()> {
    let Some(redactor) = redactor else { return Ok(()) };
    document(&run_dir.join(layout::CONFIG), redactor)?;
    for plugin in fs::read_dir(run_dir.join(layout::PLUGINS)).into_iter().flatten().flatten() {
        document(&plugin.path().join(layout::DEFINITIONS[0]), redactor)?;
        for node in fs::read_dir(plugin.path().join(layout::ERRORS)).into_iter().flatten().flatten() {
            document(&node.path().join(layout::ERROR_FILE), redactor)?;
        }
    }
    log(&run_dir.join(layout::RUN_LOG), redactor)?;
    let path = run_dir.join(layout::REDACTIONS);
    fs::write(&path, serde_json::to_vec(&redactor.counts())?).at("cannot write", &path)
}

fn document(path: &Path, redactor: &Redactor) -> anyhow::Result<()> {
    let read = small::read(path, MAX_JSON_BYTES).ok().and_then(|text| json::from_slice(&text).ok());
    let Some(mut value): Option<Value> = read else { return Ok(()) };
    if redactor.document(&mut value) {
        fs::write(path, value.to_string()).at("cannot write", path)?;
    }
    Ok(())
}

fn log(path: &Path, redactor: &Redactor) -> anyhow::Result<()> {
    let part = path.with_extension("part");
    let edit = || {
        let (mut input, mut out) = (BufReader::new(File::open(path)?), BufWriter::new(File::create(&part)?));
        let (mut lines, mut line) = (redactor.lines(), Vec::new());
        while input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
            out.write_all(lines.line(&String::from_utf8_lossy(&line)).as_bytes())?;
            line.clear();
        }
        out.into_inner()?;
        drop(input);
        fs::rename(&part, path)
    };
    logger::edit(path, edit).at("cannot write", path)
}
