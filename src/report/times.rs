//! Start and end times of a run, its plugins and its nodes: from the list of arrivals in the archive, else from its
//! log and from modification times.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::source::Files;
use super::survey::Survey;
use crate::layout::{RECEIVED, RUN_LOG};
use base::clock;

/// Times of one result. Texts are RFC 3339, empty if unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Arrival {
    /// The plugin.
    pub plugin: String,
    /// The node, `global` for a plugin that runs once.
    pub node: String,
    /// Time of the start.
    #[serde(deserialize_with = "text")]
    pub started: String,
    /// Time of its worker's first heartbeat.
    #[serde(deserialize_with = "text")]
    pub first_heartbeat: String,
    /// Time when its result was stored.
    #[serde(deserialize_with = "text")]
    pub arrived: String,
    /// Time when it was given up.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub failed: String,
}

/// A period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// The start.
    pub from: SystemTime,
    /// The end.
    pub to: SystemTime,
}

impl Span {
    /// The duration.
    pub(crate) fn length(&self) -> Duration {
        self.to.duration_since(self.from).unwrap_or_default()
    }
}

/// All times of an archive.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// The first and the last known timestamp, as recorded.
    pub run: Option<(String, String)>,
    /// Each result, sorted.
    pub arrivals: Vec<Arrival>,
}

impl Times {
    /// Reads the times.
    pub(crate) fn read(files: &Files, survey: &Survey) -> Self {
        let mut run = log_times(files);
        let mut arrivals: Vec<Arrival> = files
            .small(RECEIVED)
            .ok()
            .flatten()
            .and_then(|bytes| base::json::from_slice(&bytes).and_then(Vec::deserialize).ok())
            .unwrap_or_default();
        let told: BTreeMap<&str, bool> =
            arrivals.iter().map(|arrival| (arrival.plugin.as_str(), true)).collect();
        // Results missing from the list started with the run, and arrived when their files were written.
        let began = run.as_ref().map(|(from, _)| from.clone()).unwrap_or_default();
        let written = survey.written.iter().filter(|((plugin, _), _)| !told.contains_key(plugin.as_str()));
        let written: Vec<Arrival> = written
            .map(|((plugin, node), seconds)| Arrival {
                plugin: plugin.clone(),
                node: node.clone(),
                started: began.clone(),
                first_heartbeat: String::new(),
                arrived: at(*seconds),
                failed: String::new(),
            })
            .collect();
        arrivals.extend(written);
        arrivals.sort_by(|a, b| (&a.plugin, &a.node).cmp(&(&b.plugin, &b.node)));
        // The log ends before the archive is packed, and its start may have been rotated away.
        let packed = survey.packed.map(at);
        for moment in arrivals.iter().flat_map(|a| [&a.started, &a.arrived, &a.failed]).chain(&packed) {
            widen(&mut run, moment);
        }
        Self { run, arrivals }
    }

    /// The period of the run.
    pub(crate) fn whole(&self) -> Option<Span> {
        let (from, to) = self.run.as_ref()?;
        Some(Span { from: clock::parse_rfc3339(from)?, to: clock::parse_rfc3339(to)? })
    }

    /// Whether the results of a plugin on a node arrived.
    pub(crate) fn arrived(&self, plugin: &str, node: &str) -> bool {
        let mut of = self.arrivals.iter().filter(|arrival| arrival.plugin == plugin && arrival.node == node);
        of.all(|arrival| arrival.failed.is_empty())
    }

    /// The period of a plugin, on one node or on all.
    pub(crate) fn of(&self, plugin: &str, node: Option<&str>) -> Option<Span> {
        // Binary search: the list is sorted, and long for a large run.
        let from = self.arrivals.partition_point(|arrival| {
            (arrival.plugin.as_str(), arrival.node.as_str()) < (plugin, node.unwrap_or_default())
        });
        let spans = self.arrivals[from..]
            .iter()
            .take_while(|arrival| arrival.plugin == plugin && node.is_none_or(|node| arrival.node == node));
        spans.filter_map(Arrival::span).reduce(|a, b| Span { from: a.from.min(b.from), to: a.to.max(b.to) })
    }
}

impl Arrival {
    /// From its start until it arrived or was given up.
    pub(crate) fn span(&self) -> Option<Span> {
        let from =
            [&self.started, &self.first_heartbeat].into_iter().find_map(|text| clock::parse_rfc3339(text));
        let span = Span {
            from: from?,
            to: [&self.arrived, &self.failed].into_iter().find_map(|text| clock::parse_rfc3339(text))?,
        };
        (span.from <= span.to).then_some(span)
    }
}

fn at(seconds: u64) -> String {
    clock::rfc3339(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Extends the period by a timestamp; equal timestamps keep their first spelling.
fn widen(run: &mut Option<(String, String)>, moment: &str) {
    let Some(time) = clock::parse_rfc3339(moment) else { return };
    match run {
        None => *run = Some((moment.to_owned(), moment.to_owned())),
        Some((from, to)) => {
            if clock::parse_rfc3339(from).is_none_or(|from| time < from) {
                moment.clone_into(from);
            }
            if clock::parse_rfc3339(to).is_none_or(|to| time > to) {
                moment.clone_into(to);
            }
        }
    }
}

fn text<'de, D: serde::Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(input)?.unwrap_or_default())
}

/// The first and the last timestamp in the aggregator's log.
fn log_times(files: &Files) -> Option<(String, String)> {
    // An oversized log does not prevent showing the rest.
    let Ok(Some(log)) = files.small(RUN_LOG) else { return None };
    let log = String::from_utf8_lossy(&log);
    let time = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(line.get("time")?.as_str()?.to_owned())
    };
    log.lines().find_map(time).zip(log.lines().rev().find_map(time))
}

/// Formats a duration: `0.4 s`, `12 s`, `3 min 5 s`, `1 h 2 min`, `3 d 4 h`.
pub(crate) fn spoken(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, _) if seconds < 0.000_5 => "0 s".into(),
        (0, 0, _) if seconds < 0.1 => format!("{:.0} ms", seconds * 1e3),
        (0, 0, _) if seconds < 9.95 => format!("{seconds:.1} s"),
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours @ ..48, minutes, _) => format!("{hours} h {minutes} min"),
        (hours, ..) => format!("{} d {} h", hours / 24, hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_as_people_say_them() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.004, "4 ms"),
            (0.44, "0.4 s"),
            (9.96, "10 s"),
            (59.4, "59 s"),
            (185.2, "3 min 5 s"),
            (3725.0, "1 h 2 min"),
            (7_795_800.0, "90 d 5 h"),
        ] {
            assert_eq!(spoken(seconds), text);
        }
    }

    #[test]
    fn a_run_reaches_from_its_first_moment_to_its_last() {
        let mut run = Some(("2026-01-01T00:00:05Z".to_owned(), "2026-01-01T00:00:05Z".to_owned()));
        for moment in ["2026-01-01T00:05:00Z", "", "2026-01-01T00:00:04Z", "nonsense"] {
            widen(&mut run, moment);
        }
        let times = Times { run, arrivals: Vec::new() };
        assert_eq!(times.whole().unwrap().length().as_secs(), 296);
    }
}
