//! The last steps: secrets are hidden, results are processed, and the run's folder becomes one
//! archive, which gets its name only once it is complete and sealed.
//!
//! Redaction concerns the files that the run itself adds: settings, definitions, error reports, its
//! log; it uses and counts the rules of the snapshot. Starts no thread.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::context::RunContext;
use base::at::At as _;
use base::json::json;
use base::retry::patiently;
use base::stop::caught;
use base::{archive, clock, logger, small, temp};
use client::protocol::Failure;
use model::item::FAILED;
use model::remedies::{Event, Why};
use model::{layout, status};
use run::aggregator::Received;
use run::backplane::Statement;
use run::driver::PluginLaunch;
use run::process;
use run::query::Redactor;

/// Maximum size of the run's own files that are redacted.
const MAX_JSON_BYTES: u64 = 16 << 20;
/// Maximum length of a line of a log that is redacted; the remainder is cut.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Maximum bytes read of an error's file.
const MAX_ERROR_BYTES: u64 = 256 << 10;

/// Processes the results of a run, and packs its folder into a file in `out`, with its seal next to
/// it. Returns its path, its entry for the status, and the number of errors while processing. After
/// an error, what cannot be read is left out, and everything is tried once more.
pub(super) fn pack(
    context: &RunContext<'_>,
    redactor: Option<&Redactor>,
    out: &Path,
    started: SystemTime,
) -> Result<(PathBuf, status::Archive, usize)> {
    let altered = context.aggregator.store.verify();
    let mut left_out = 0;
    let packed = pack_once(context, redactor, out, started).or_else(|error| {
        let log = context.run_dir.join(layout::RUN_LOG);
        logger::tee(&log).at("cannot write", &log)?;
        log::warn!("the run could not be packed, and is packed again: {error:#}");
        left_out = leave_out_unreadable(context);
        pack_once(context, redactor, out, started)
    });
    let (path, archive, errors) = packed?;
    remove_earlier(&path, &context.config.uuid);
    Ok((path, archive, altered + left_out + errors))
}

fn pack_once(
    context: &RunContext<'_>,
    redactor: Option<&Redactor>,
    out: &Path,
    started: SystemTime,
) -> Result<(PathBuf, status::Archive, usize)> {
    let (run_dir, uuid) = (context.run_dir, &context.config.uuid);
    redact(run_dir, redactor)?;
    let mut errors = process_all(context);
    // Processing adds to the log.
    redact(run_dir, redactor)?;
    let names: Vec<&str> = context
        .wholes()
        .map(|plugin| plugin.definition.name())
        .collect();
    let info = if names.is_empty() {
        json!({})
    } else {
        json!({ "plugins": names })
    };
    write_json(&run_dir.join(layout::INFO), &info)?;
    let received = context.aggregator.store.lock().received();
    write_json(&run_dir.join(layout::RECEIVED), &json!(received))?;
    explain(&received, run_dir)?;
    let health = run_dir.join(layout::HEALTH);
    if !health.exists() {
        // The original's `results --mode detailed` fails without it.
        write_json(&health, &json!(null))?;
    }
    let name = layout::archive(&clock::stamp(started), uuid);
    let path = out.join(&name);
    // Nothing in the folder may change while it is packed.
    logger::untee();
    let (file, packed) = archive::pack_file(run_dir, &path).context("cannot write the archive")?;
    let (size, sha256) = (packed.size, packed.sha256);
    let statement = Statement {
        run: uuid.to_owned(),
        name: name.clone(),
        size,
        sha256: sha256.clone(),
    };
    let seal = context.aggregator.authority().seal(&statement)?;
    let parts = layout::seal(&path);
    let write = || {
        // A client that finds the archive must also find its seal.
        for (part, content) in parts.iter().zip([&seal.statement, &seal.signature]) {
            temp::write(part, 0o600, content).at("cannot write", part)?;
        }
        file.commit(true).at("cannot write", &path)
    };
    if let Err(error) = write() {
        let is_in_place = base::file_sha256(&path).is_ok_and(|digest| base::hex(digest) == sha256);
        if !is_in_place {
            // A seal without its archive means nothing.
            parts.iter().for_each(|part| drop(fs::remove_file(part)));
            return Err(error);
        }
        log::error!(
            "{error:#}; the archive is complete, but may be lost if this machine crashes now"
        );
        errors += 1;
    }
    let created = clock::rfc3339(SystemTime::now());
    Ok((
        path,
        status::Archive {
            name,
            created,
            sha256,
            size,
        },
        errors,
    ))
}

/// Removes archives that the same run packed before it was interrupted and resumed.
fn remove_earlier(path: &Path, uuid: &str) {
    for other in archive::finished(path.parent().unwrap_or(path)).unwrap_or_default() {
        let name = other.file_name().unwrap_or_default().to_string_lossy();
        if other == path || layout::run_of_archive(&name) != Some(uuid) {
            continue;
        }
        for file in layout::seal(&other).into_iter().chain([other.clone()]) {
            if let Err(error) = base::if_exists(fs::remove_file(&file)) {
                log::warn!("cannot remove `{}`: {error}", file.display());
            }
        }
    }
}

/// Leaves out of the archive what cannot be read, and records a failure of each result that loses a
/// file by it. Returns the number of files and folders.
fn leave_out_unreadable(context: &RunContext<'_>) -> usize {
    let mut unreadable = Vec::new();
    find_unreadable(context.run_dir, &mut unreadable);
    let store = &context.aggregator.store;
    for (path, error) in &unreadable {
        let name = path.strip_prefix(context.run_dir).unwrap_or(path).display();
        log::error!("`{name}` is left out of the archive, since it cannot be read: {error}");
        if let Err(error) = store.discard(path) {
            log::error!("{error:#}");
        }
        store.lose_file(
            path,
            &format!("the aggregator cannot read `{name}`: {error}"),
        );
    }
    unreadable.len()
}

fn find_unreadable(folder: &Path, unreadable: &mut Vec<(PathBuf, io::Error)>) {
    let list = || fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>();
    let entries = match patiently(list) {
        Ok(entries) => entries,
        Err(error) => return unreadable.push((folder.to_owned(), error)),
    };
    for entry in entries {
        let path = entry.path();
        let read = || io::copy(&mut File::open(&path)?, &mut io::sink());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => find_unreadable(&path, unreadable),
            Ok(kind) if kind.is_file() => {
                if let Err(error) = patiently(read) {
                    unreadable.push((path, error));
                }
            }
            // Links and special files are not packed.
            Ok(_) => {}
            Err(error) => unreadable.push((path, error)),
        }
    }
}

/// Processes the results of all plugins. Those of parts and attempts become part of another
/// plugin's. Returns the number of errors: expected results without files, and plugins that could
/// not be processed, which does not affect the others.
fn process_all(context: &RunContext<'_>) -> usize {
    let mut errors = 0;
    for plugin in context.wholes() {
        if let Err(error) = process_one(plugin, context) {
            log::error!("plugin `{}`: {error:#}", plugin.definition.name());
            errors += 1;
        }
    }
    errors
}

fn process_one(plugin: &PluginLaunch<'_>, context: &RunContext<'_>) -> Result<()> {
    let name = plugin.definition.name();
    let dir = context.run_dir.join(layout::plugin(name));
    let rules = context.rules(plugin);
    let outcome = match caught(|| process::process(&dir, &rules)) {
        Ok(outcome) => outcome,
        Err(error) => {
            // A failure of this plugin only: status and archive say so.
            context
                .aggregator
                .store
                .lock()
                .processed(name, |_| Some((FAILED.into(), [(FAILED.into(), 1)].into())));
            process::unprocessed(
                &dir,
                &rules,
                &format!("its results could not be processed: {error:#}"),
            )?;
            return Err(error);
        }
    };
    let of = |name: &str| {
        outcome
            .of_node(name)
            .map(|outcome| (outcome.status.clone(), outcome.counts.clone()))
    };
    context
        .aggregator
        .store
        .lock()
        .processed(name, |id| match rules.per_node {
            false => Some((outcome.status.clone(), outcome.counts.clone())),
            true => of(&id.node),
        });
    for part in rules.parts.iter().chain(&rules.attempts) {
        context
            .aggregator
            .store
            .lock()
            .processed(part, |_| of(part));
    }
    ensure!(
        outcome.missing == 0,
        "files of {} expected results are missing",
        outcome.missing
    );
    Ok(())
}

/// Hides secrets in the current files of a run's folder, and records the counts.
fn redact(run_dir: &Path, redactor: Option<&Redactor>) -> Result<()> {
    let Some(redactor) = redactor else {
        return Ok(());
    };
    redact_json(&run_dir.join(layout::CONFIG), redactor)?;
    for plugin in fs::read_dir(run_dir.join(layout::PLUGINS))
        .into_iter()
        .flatten()
        .flatten()
    {
        redact_json(&plugin.path().join(layout::DEFINITIONS[0]), redactor)?;
        for node in fs::read_dir(plugin.path().join(layout::ERRORS))
            .into_iter()
            .flatten()
            .flatten()
        {
            redact_json(&node.path().join(layout::ERROR_FILE), redactor)?;
        }
    }
    redact_log(&run_dir.join(layout::RUN_LOG), redactor)?;
    write_json(&run_dir.join(layout::REDACTIONS), &json!(redactor.counts()))
}

fn redact_json(path: &Path, redactor: &Redactor) -> Result<()> {
    let text = match base::if_exists(small::read(path, MAX_JSON_BYTES)) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(()),
        Err(error) => return Err(error).at("cannot read", path),
    };
    let parsed: Result<Value, _> = base::json::from_slice(&text);
    let Ok(mut value) = parsed else { return Ok(()) };
    if redactor.document(&mut value) {
        write_json(path, &value)?;
    }
    Ok(())
}

fn redact_log(path: &Path, redactor: &Redactor) -> Result<()> {
    let part = path.with_extension("part");
    if !path.exists() {
        // It could not be read, and was left out.
        return Ok(());
    }
    let edit = || {
        let (mut input, mut out) = (
            BufReader::new(File::open(path)?),
            BufWriter::new(File::create(&part)?),
        );
        let (mut lines, mut line) = (redactor.lines(), Vec::new());
        while input
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?
            > 0
        {
            out.write_all(lines.line(&String::from_utf8_lossy(&line)).as_bytes())?;
            line.clear();
        }
        out.into_inner()?;
        drop(input);
        fs::rename(&part, path)
    };
    logger::edit(path, edit).at("cannot write", path)
}

/// Writes the explanation if every result in `received` is an error.
fn explain(received: &[Received], run_dir: &Path) -> Result<()> {
    let events: Option<Vec<Event>> = received
        .iter()
        .map(|result| event(result, run_dir))
        .collect();
    match events {
        Some(events) if !events.is_empty() => {
            write_json(&run_dir.join(layout::WHY), &json!(Why::new(events)))
        }
        _ => Ok(()),
    }
}

/// The error in place of a result; none if the result arrived.
fn event(result: &Received, run_dir: &Path) -> Option<Event> {
    let Received {
        plugin,
        node,
        receipt,
        ..
    } = result;
    let time = receipt.failed.clone()?;
    let path = run_dir
        .join(layout::plugin(plugin))
        .join(layout::ERRORS)
        .join(node)
        .join(layout::ERROR_FILE);
    let report = small::read(&path, MAX_ERROR_BYTES)
        .ok()
        .and_then(|bytes| base::json::from_slice(&bytes).ok());
    let error = report
        .as_ref()
        .and_then(serde_json::Value::as_object)
        .map(Failure::error_in);
    let error = error.unwrap_or_default().to_owned();
    Some(Event {
        time,
        plugin: plugin.clone(),
        node: node.clone(),
        error,
    })
}

/// Writes compact JSON without a newline, like all small files of an archive.
pub(super) fn write_json(path: &Path, value: &Value) -> Result<()> {
    fs::write(path, value.to_string()).at("cannot write", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_without_any_result_is_explained() {
        let folder = base::temp::Folder::new().unwrap();
        std::fs::create_dir_all(folder.join("meta")).unwrap();
        let errors = folder.join("plugins/p/errors/n1");
        std::fs::create_dir_all(&errors).unwrap();
        std::fs::write(
            errors.join("error.json"),
            r#"{"error": "no route to host"}"#,
        )
        .unwrap();
        let result = |node: &str| Received {
            plugin: "p".into(),
            node: node.into(),
            ..Received::default()
        };
        let (mut failed, mut came) = (result("n1"), result("n2"));
        failed.receipt.failed = Some("2026-01-01T00:00:00Z".into());
        came.receipt.arrived = Some("2026-01-01T00:00:00Z".into());
        let mut received = vec![failed, came];
        for received in [&[], &received[..]] {
            explain(received, &folder).unwrap();
            assert!(!folder.join(layout::WHY).exists(), "{}", received.len());
        }
        received.pop();
        explain(&received, &folder).unwrap();
        let text = std::fs::read_to_string(folder.join(layout::WHY)).unwrap();
        let why: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(why["results"], 1);
        assert_eq!(why["first"]["error"], "no route to host");
        assert_eq!(why["causes"][0]["nodes"], 1);
        assert!(
            why["causes"][0]["remedy"]
                .as_str()
                .unwrap()
                .contains("routes")
        );
    }
}
