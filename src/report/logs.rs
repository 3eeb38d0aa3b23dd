//! The ends of pod logs: collected while an archive is read, then selected for the page, the useful part of possibly
//! gigabytes.

use std::cmp::Reverse;
use std::io::Read;

use super::files::Files;
use super::run::{Report, Verdict};
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
    ends: Files,
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
pub(crate) struct Log<'a> {
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
    pub shown: Vec<Log<'a>>,
    /// Number of logs left out.
    more: usize,
}

impl<'a> Logs<'a> {
    /// Selects the logs to show: those of failed plugins first, then those with the most errors.
    pub(crate) fn read(report: &'a Report<'_>) -> Result<Self> {
        let Tails { ends, found } = &report.opened.tails;
        let errors = report.health.as_ref().and_then(|health| health.error_summary.get("Errors"));
        let logs = found.iter().map(|(name, size)| Log {
            name,
            short: layout::below_pod_logs(name).unwrap_or(name),
            size: *size,
            errors: errors.and_then(|errors| errors.get(name)).copied().unwrap_or_default(),
            tail: String::new(),
        });
        let mut shown: Vec<_> = logs.collect();
        let bad = report.plugins.iter().filter(|plugin| plugin.verdict() != Verdict::Passed);
        let bad: Vec<&str> = bad.map(|plugin| plugin.name).collect();
        shown.sort_by_cached_key(|log| {
            let of_failed = bad.iter().any(|plugin| names::is_of_plugin(log.name, plugin));
            (!of_failed, Reverse(log.errors), log.name)
        });
        let (mut left, mut count) = (ALL, 0);
        for log in &mut shown {
            let mut bytes = Vec::new();
            if let Some(mut tail) = ends.open(log.name) {
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
