//! Start and end times of a run, its plugins and its nodes: from the list of arrivals in the archive, else from its
//! log and from modification times.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize, Serializer};

use super::files::ExtractedFiles;
use super::survey::Survey;
use crate::layout::{RECEIVED, RUN_LOG};
use base::clock::{parse_rfc3339, rfc3339};
use base::json::nullable;

/// Times of one result. Texts are RFC 3339, empty if unknown.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Arrival {
    /// The plugin.
    pub plugin: String,
    /// The node, `global` for a plugin that runs once.
    pub node: String,
    /// Time of the start.
    #[serde(deserialize_with = "nullable")]
    pub started: String,
    /// Time of its worker's first heartbeat.
    #[serde(deserialize_with = "nullable")]
    pub first_heartbeat: String,
    /// Time when its result was stored.
    #[serde(deserialize_with = "nullable")]
    pub arrived: String,
    /// Time when it was given up.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub failed: String,
}

/// A period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Period {
    /// The start.
    pub from: SystemTime,
    /// The end.
    pub to: SystemTime,
}

impl Period {
    /// The duration in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.to.duration_since(self.from).unwrap_or_default().as_secs_f64()
    }

    /// The shortest period that contains all the given ones.
    pub(crate) fn around(spans: impl Iterator<Item = Self>) -> Option<Self> {
        spans.reduce(|a, b| Self { from: a.from.min(b.from), to: a.to.max(b.to) })
    }
}

/// In seconds.
impl Serialize for Period {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(self.seconds())
    }
}

/// The times of each result, sorted, and the first and the last time of the run, as recorded.
pub(crate) fn read(files: &ExtractedFiles, survey: &Survey) -> (Vec<Arrival>, Option<[String; 2]>) {
    let log = log_times(files);
    let mut arrivals: Vec<Arrival> = files.list(RECEIVED);
    let told: HashSet<String> = arrivals.iter().map(|arrival| arrival.plugin.clone()).collect();
    let at = |seconds: &u64| rfc3339(UNIX_EPOCH + Duration::from_secs(*seconds));
    // Results missing from the list started with the run, and arrived when their files were written.
    let began = log.first().cloned().unwrap_or_default();
    let written = survey.written.iter().filter(|((plugin, _), _)| !told.contains(plugin));
    arrivals.extend(written.map(|((plugin, node), seconds)| Arrival {
        plugin: plugin.clone(),
        node: node.clone(),
        started: began.clone(),
        arrived: at(seconds),
        ..Arrival::default()
    }));
    arrivals.sort_by(|a, b| (&a.plugin, &a.node).cmp(&(&b.plugin, &b.node)));
    // The log ends before the archive is packed, and its start may have been rotated away.
    let packed = survey.packed.as_ref().map(at);
    let moments = arrivals.iter().flat_map(|arrival| [&arrival.started, &arrival.arrived, &arrival.failed]);
    let run = bounds(log.iter().chain(moments).chain(&packed).map(String::as_str));
    (arrivals, run)
}

/// The first and the last of some timestamps; of equal ones, the first spelling.
fn bounds<'t>(moments: impl Iterator<Item = &'t str>) -> Option<[String; 2]> {
    let known: Vec<_> = moments.filter_map(|text| Some((parse_rfc3339(text)?, text))).collect();
    let first = known.iter().min_by_key(|(time, _)| *time)?;
    let last = known.iter().rev().max_by_key(|(time, _)| *time)?;
    Some([first.1.to_owned(), last.1.to_owned()])
}

impl Arrival {
    /// From its start until it arrived or was given up.
    pub(crate) fn span(&self) -> Option<Period> {
        let first = |texts: [&str; 2]| texts.into_iter().find_map(parse_rfc3339);
        let from = first([&self.started, &self.first_heartbeat])?;
        let to = first([&self.arrived, &self.failed])?;
        (from <= to).then_some(Period { from, to })
    }
}

/// The first and the last timestamp in the aggregator's log.
fn log_times(files: &ExtractedFiles) -> Vec<String> {
    #[derive(Deserialize)]
    struct Line {
        time: String,
    }
    // An oversized log does not prevent showing the rest.
    let log = files.small(RUN_LOG).ok().flatten().unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let time = |line: &str| Some(serde_json::from_str::<Line>(line).ok()?.time);
    log.lines().find_map(time).into_iter().chain(log.lines().rev().find_map(time)).collect()
}

/// A timestamp to the minute, in UTC; empty for any other text.
pub(crate) fn minute(moment: &str) -> String {
    let utc = parse_rfc3339(moment).map(rfc3339).unwrap_or_default();
    utc.get(..16).map(|minute| format!("{} UTC", minute.replace('T', " "))).unwrap_or_default()
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
    fn spans_are_formatted_for_people() {
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
    fn run_spans_its_first_and_last_event() {
        let moments =
            ["2026-01-01T00:00:05Z", "2026-01-01T00:05:00Z", "", "2026-01-01T00:00:04Z", "nonsense"];
        let found = bounds(moments.into_iter());
        assert_eq!(found, Some(["2026-01-01T00:00:04Z".into(), "2026-01-01T00:05:00Z".into()]));
    }
}
