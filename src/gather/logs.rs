//! Stores the node's log as a result: compressed, limited in size, summarised.
//!
//! Owns the names and the format of the result. Knows neither the sources of lines (`journal`) nor their meaning
//! (`summary`). Starts no thread.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::journal::{self, LogQuery};
use super::summary::{self, LogSummary};
use super::{NodeFiles, Outbox};
use crate::item::Item;
use crate::layout::LOG_SUMMARY;
use base::at::At as _;
use base::json::json;
use base::temp::NewFile;
use base::yaml;

/// The original plugin's name for the log.
const NAME: &str = "systemd_logs";

/// The folder of a result that consists of more than the log itself.
const FOLDER: &str = "systemd-logs";

/// How to store the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogFormat {
    /// Compressed on the fly.
    pub gzip: bool,
    /// With a summary.
    pub summary: bool,
    /// Maximum bytes before compression, cut at the end of a line.
    pub max_size: Option<u64>,
}

/// Writes the log to `outbox` and names it in `done`. On failure the result describes the error.
///
/// A plain log is the same file as the original plugin's. A compressed log, or one with a summary, is in a folder: the
/// aggregator takes a bare `.gz` for an archive and would reject it.
pub(crate) fn keep(
    node: Result<NodeFiles>,
    wanted: &LogQuery,
    form: &LogFormat,
    outbox: &Outbox,
) -> Result<()> {
    let in_folder = form.gzip || form.summary;
    let folder = outbox.path(FOLDER);
    if in_folder {
        fs::create_dir_all(&folder).at("cannot create", &folder)?;
    }
    let name = if form.gzip { "systemd_logs.gz" } else { NAME };
    let log = if in_folder { folder.join(name) } else { outbox.path(name) };
    let kept = node.and_then(|node| write(&node, wanted, form, &log));
    let put = |name: &str, content: String| {
        let name = if in_folder { format!("{FOLDER}/{name}") } else { name.to_owned() };
        outbox.put(&name, content.as_bytes()).map(drop)
    };
    match &kept {
        Ok(None) => {}
        Ok(Some(summary)) => put(LOG_SUMMARY, text(summary))?,
        Err(error) if form.summary => put(LOG_SUMMARY, text(&summary::no_log(&format!("{error:#}"))))?,
        Err(error) => put(NAME, format!("{}\n", journal::note_entry(3, &format!("{error:#}"))))?,
    }
    outbox.done(if in_folder { &folder } else { &log })?;
    kept.map(drop)
}

/// Counts problems without storing the log. Always returns an item, which reports an error if the log is unavailable.
pub(crate) fn summarise(node: Result<NodeFiles>, wanted: &LogQuery) -> (Item, Result<()>) {
    let counted = node.and_then(|node| {
        let mut summary = LogSummary::default();
        let origin = journal::read(&node, wanted, &mut |piece| {
            summary.add(piece);
            Ok(true)
        })?;
        Ok(summary.item(details(origin)))
    });
    match counted {
        Ok(item) => (item, Ok(())),
        Err(error) => (summary::no_log(&format!("{error:#}")), Err(error)),
    }
}

/// A result in the `manual` format, with the fields of each item in reading order.
pub(crate) fn text(item: &Item) -> String {
    let mut out = format!("name: {}\nstatus: {}\n", yaml::key_text(&item.name), yaml::key_text(&item.status));
    for (key, map) in [("meta", json!(item.meta)), ("details", json!(item.details))] {
        if map.as_object().is_some_and(|map| !map.is_empty()) {
            out += &format!("{key}:\n{}", indented(&yaml::write(&map), "  "));
        }
    }
    if !item.items.is_empty() {
        out += "items:\n";
    }
    for child in &item.items {
        out += &indented(&text(child), "- ");
    }
    out
}

/// Text whose first line begins with `first`, and the others with blanks.
fn indented(text: &str, first: &str) -> String {
    let line = |(number, line)| format!("{}{line}\n", if number == 0 { first } else { "  " });
    text.lines().enumerate().map(line).collect()
}

/// Streams the log into a file; returns a summary if requested.
fn write(node: &NodeFiles, wanted: &LogQuery, form: &LogFormat, path: &Path) -> Result<Option<Item>> {
    let mut file = BufWriter::new(NewFile::create(path, 0o666).at("cannot write", path)?);
    // Logs shrink to a tenth at any level; the fastest one saves the node's CPU.
    let mut gzip = form.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
    let mut summary = form.summary.then(LogSummary::default);
    let mut left = form.max_size.unwrap_or(u64::MAX);
    let mut truncated = false;
    let origin = journal::read(node, wanted, &mut |piece| {
        truncated = piece.len() as u64 > left;
        if truncated {
            return Ok(false);
        }
        left -= piece.len() as u64;
        if let Some(summary) = &mut summary {
            summary.add(piece);
        }
        let written = match &mut gzip {
            Some(gzip) => {
                gzip.write_all(piece).and_then(|()| file.write_all(&std::mem::take(gzip.get_mut())))
            }
            None => file.write_all(piece),
        };
        written.at("cannot write", path)?;
        Ok(true)
    })?;
    let rest = gzip.map(GzEncoder::finish).transpose().at("cannot write", path)?.unwrap_or_default();
    let file = file.write_all(&rest).and_then(|()| Ok(file.into_inner()?));
    file.and_then(|file| file.commit(true)).at("cannot write", path)?;
    let mut details = details(origin);
    if truncated {
        log::warn!("the log is longer than --max-size and was cut; the newest entries are missing");
        details.insert("truncated".into(), json!(true));
    }
    Ok(summary.map(|summary| summary.item(details)))
}

fn details(origin: &str) -> BTreeMap<String, serde_json::Value> {
    BTreeMap::from([("origin".to_owned(), json!(origin))])
}

/// Parses `500M`, `2Gi`, `1000000` as bytes, with powers of 1024.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (amount, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = unit.trim_end_matches('B').trim_end_matches('i').to_ascii_uppercase();
    let power = ["", "K", "M", "G", "T"].iter().position(|known| *known == unit)?;
    amount.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::node::tests::Scratch;
    use std::fs::File;
    use std::path::PathBuf;

    use super::*;

    fn wanted() -> LogQuery {
        LogQuery { since: "60".into(), units: Vec::new(), priority: None }
    }

    fn logs() -> (Scratch, Scratch, Outbox, NodeFiles) {
        let text = "eth0: Link is Down\n".repeat(5_000);
        let (scratch, node) = Scratch::node(&[("var/log/messages", &text)]);
        let out = Scratch::new();
        let outbox = Outbox::open(&out.0).unwrap();
        (scratch, out, outbox, node)
    }

    fn done(outbox: &Outbox) -> PathBuf {
        fs::read_to_string(outbox.path("done")).unwrap().into()
    }

    #[test]
    fn plain_log_is_one_file() {
        let (_node, _out, outbox, node) = logs();
        keep(Ok(node), &wanted(), &LogFormat::default(), &outbox).unwrap();
        assert_eq!(done(&outbox), outbox.path("systemd_logs"));
        assert_eq!(fs::read_to_string(done(&outbox)).unwrap().lines().count(), 5_001);
    }

    #[test]
    fn compressed_log_with_summary_is_a_folder() {
        let (_node, _out, outbox, node) = logs();
        let form = LogFormat { gzip: true, summary: true, max_size: Some(100_000) };
        keep(Ok(node), &wanted(), &form, &outbox).unwrap();
        let folder = done(&outbox);
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(folder.join("systemd_logs.gz")).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert!(
            text.len() <= 100_000 && text.len() > 99_000 && text.ends_with("}\n"),
            "{} bytes",
            text.len()
        );
        let summary: Item = serde_json::from_value(
            yaml::parse(&fs::read_to_string(folder.join(LOG_SUMMARY)).unwrap()).unwrap(),
        )
        .unwrap();
        assert_eq!((summary.status.as_str(), &summary.details["truncated"]), ("failed", &json!(true)));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing partial stays");
    }

    #[test]
    fn missing_log_is_an_error_result() {
        for form in [LogFormat::default(), LogFormat { summary: true, ..LogFormat::default() }] {
            let (_scratch, node) = Scratch::node(&[]);
            let out = Scratch::new();
            let outbox = Outbox::open(&out.0).unwrap();
            assert!(keep(Ok(node), &wanted(), &form, &outbox).is_err());
            let place = if form.summary { done(&outbox).join(LOG_SUMMARY) } else { done(&outbox) };
            assert!(fs::read_to_string(place).unwrap().contains("no log is available"));
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("5", Some(5)),
            ("2K", Some(2_048)),
            ("3Mi", Some(3 << 20)),
            ("1GB", Some(1 << 30)),
            ("x", None),
            ("5Q", None),
            ("99999999999T", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }
}
