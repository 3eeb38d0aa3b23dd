//! The ends of pod logs: collected while an archive is read, then selected for the page, the useful part of possibly
//! gigabytes.

use std::collections::BTreeMap;
use std::io::Read;

use super::files::Files;
use super::run::{Report, Verdict};
use super::source::{Stat, objects};
use crate::{layout, names};
use anyhow::Result;

/// Maximum bytes of one log to keep, and of all to show.
const TAIL: usize = 12 << 10;
const ALL: usize = 200 << 10;
/// Maximum logs to list without content.
const MAX_LISTED: usize = 500;

/// The ends of all logs.
#[derive(Default)]
pub(crate) struct Tails {
    ends: Files,
    /// Names and sizes, in archive order.
    found: Vec<(String, u64)>,
    /// The node of each pod.
    nodes: BTreeMap<String, String>,
}

impl Tails {
    /// Adds a file of an archive, if it is a log or a list of pods.
    pub(crate) fn see(&mut self, name: &str, stat: Stat, content: &mut dyn Read) -> Result<()> {
        if layout::below_pod_logs(name).is_some() && stat.size > 0 {
            self.ends.add(name, &tail(content)?[..])?;
            self.found.push((name.to_owned(), stat.size));
        }
        // Only pods of runs matter, and their namespace has logs in the archive.
        if layout::resource_file(name).is_some_and(|(_, file)| file == "core_v1_pods.json") {
            let read = objects(content, |pod| {
                if let (Some(name), Some(node)) =
                    (pod["metadata"]["name"].as_str(), pod["spec"]["nodeName"].as_str())
                {
                    self.nodes.insert(name.to_owned(), node.to_owned());
                }
                true
            });
            read.unwrap_or_else(|error| log::debug!("`{name}`: {error}"));
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
pub(crate) struct Log<'a> {
    /// Its path in the archive.
    pub name: &'a str,
    /// Its length in bytes.
    pub size: u64,
    /// Number of lines that look like errors.
    pub errors: u64,
    /// The node of its pod, if the snapshot has it.
    node: Option<&'a String>,
    /// Its end, if shown.
    pub tail: Option<String>,
}

/// The logs of an archive, shown ones first.
pub(crate) struct Logs<'a> {
    /// Shown and listed logs.
    pub logs: Vec<Log<'a>>,
    /// Number of further logs.
    pub more: usize,
}

impl<'a> Logs<'a> {
    /// Selects the logs to show: those of failed plugins first, then those with the most errors.
    pub(crate) fn read(report: &'a Report<'_>) -> Result<Self> {
        let Tails { ends, found, nodes } = &report.opened.tails;
        let errors = report.health.as_ref().and_then(|health| health.error_summary.get("Errors"));
        let logs = found.iter().map(|(name, size)| Log {
            name,
            size: *size,
            errors: errors.and_then(|errors| errors.get(name)).copied().unwrap_or_default(),
            node: nodes.get(pod(name)),
            tail: None,
        });
        let mut logs: Vec<_> = logs.collect();
        let bad = report.plugins.iter().filter(|plugin| plugin.verdict() != Verdict::Passed);
        let bad: Vec<&str> = bad.map(|plugin| plugin.name).collect();
        logs.sort_by_cached_key(|log| {
            let of_failed = bad.iter().any(|plugin| names::is_of_plugin(log.name, plugin));
            (!of_failed, std::cmp::Reverse(log.errors), log.name)
        });
        let mut left = ALL;
        let mut shown = 0;
        for log in &mut logs {
            let mut bytes = Vec::new();
            if let Some(mut tail) = ends.open(log.name) {
                tail.read_to_end(&mut bytes)?;
            }
            let Some(rest) = left.checked_sub(bytes.len()) else { break };
            left = rest;
            shown += 1;
            log.tail = Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        let more = logs.len().saturating_sub(shown + MAX_LISTED);
        logs.truncate(shown + MAX_LISTED);
        Ok(Self { logs, more })
    }

    /// The shown logs.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Log<'a>> {
        self.logs.iter().filter(|log| log.tail.is_some())
    }

    /// The shown logs of a plugin's pod, on a given node if known.
    pub(crate) fn of_pod(&self, plugin: &str, node: Option<&str>) -> impl Iterator<Item = &Log<'a>> {
        let part = format!("/sonobuoy-{plugin}-");
        self.shown().filter(move |log| log.name.contains(&part)).filter(move |log| match (node, log.node) {
            (Some(node), Some(of)) => node == of,
            // The pod of a local run is named after its node.
            (Some(node), None) => pod(log.name).ends_with(&format!("-{node}")),
            (None, _) => true,
        })
    }
}

/// The pod of a log.
fn pod(log: &str) -> &str {
    layout::below_pod_logs(log).and_then(|path| path.split('/').nth(1)).unwrap_or_default()
}
