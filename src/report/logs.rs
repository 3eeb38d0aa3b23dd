//! The ends of pod logs: collected while an archive is read, then selected for the page, the useful part of possibly
//! gigabytes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Read;

use super::files::ExtractedFiles;
use super::source::Stat;
use crate::{layout, names};
use anyhow::Result;
use serde::Serialize;

/// Maximum bytes of one log to keep, and of all to show.
const TAIL: usize = 12 << 10;
const ALL: usize = 200 << 10;

/// The ends of all logs.
#[derive(Default)]
pub(crate) struct Tails {
    ends: ExtractedFiles,
    /// Names and sizes, in archive order.
    found: Vec<(String, u64)>,
}

impl Tails {
    /// Adds a file of an archive, if it is a log.
    pub(crate) fn see(&mut self, name: &str, stat: Stat, content: &mut dyn Read) -> Result<()> {
        if layout::below_pod_logs(name).is_some() && stat.size > 0 {
            self.ends.add(name, &tail(content)?[..])?;
            self.found.push((name.to_owned(), stat.size));
        }
        Ok(())
    }
}

/// The last lines of a stream.
fn tail(content: &mut dyn Read) -> Result<Vec<u8>> {
    let mut tail = Vec::new();
    let mut cut = false;
    while content.take(64 << 10).read_to_end(&mut tail)? > 0 {
        if tail.len() > TAIL {
            tail.drain(..tail.len() - TAIL);
            cut = true;
        }
    }
    // A partial first line is misleading.
    if let (true, Some(end)) = (cut, tail.iter().position(|byte| *byte == b'\n')) {
        tail.drain(..=end);
    }
    Ok(tail)
}

/// One log.
#[derive(Serialize)]
pub(crate) struct LogExcerpt<'a> {
    /// Its path in the archive.
    pub name: &'a str,
    /// Its path without the prefix common to all.
    short: &'a str,
    /// Its length in bytes.
    size: u64,
    /// Number of lines that look like errors.
    errors: u64,
    /// Its end, if shown.
    tail: String,
}

/// The logs of an archive.
#[derive(Serialize)]
pub(crate) struct Logs<'a> {
    /// Logs with their ends, those with the most errors first.
    pub shown: Vec<LogExcerpt<'a>>,
    /// Number of logs left out.
    more: usize,
}

impl<'a> Logs<'a> {
    /// Selects the logs to show: those of plugins that did not pass first, then those with the most `errors`.
    pub(crate) fn read(
        tails: &'a Tails,
        errors: Option<&BTreeMap<String, u64>>,
        not_passed: &[&str],
    ) -> Result<Self> {
        let logs = tails.found.iter().map(|(name, size)| LogExcerpt {
            name,
            short: layout::below_pod_logs(name).unwrap_or(name),
            size: *size,
            errors: errors.and_then(|errors| errors.get(name)).copied().unwrap_or_default(),
            tail: String::new(),
        });
        let mut shown: Vec<_> = logs.collect();
        shown.sort_by_cached_key(|log| {
            let has_passed = !not_passed.iter().any(|plugin| names::is_of_plugin(log.name, plugin));
            (has_passed, Reverse(log.errors), log.name)
        });
        let (mut left, mut count) = (ALL, 0);
        for log in &mut shown {
            let mut bytes = Vec::new();
            if let Some(mut tail) = tails.ends.open(log.name) {
                tail.read_to_end(&mut bytes)?;
            }
            let Some(rest) = left.checked_sub(bytes.len()) else { break };
            (left, count) = (rest, count + 1);
            log.tail = String::from_utf8_lossy(&bytes).into_owned();
        }
        let more = shown.len() - count;
        shown.truncate(count);
        Ok(Self { shown, more })
    }
}
