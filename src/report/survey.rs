//! What a report takes from an archive's files other than the trees: duration, class name and
//! messages of each JUnit test, the times of results and of the run, and the ends of pod logs.
//!
//! The trees omit what tests of JUnit have, since users of the original compare whole trees. An
//! unreadable file yields nothing; its plugin's tree has the reason. Memory grows with the number
//! of tests. Times are those of the list of arrivals and of the log of the run. Logs of pods may
//! have gigabytes, of which the page shows the useful part.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, Read};
use std::time::SystemTime;

use anyhow::Result;
use serde::{Deserialize, Serialize, Serializer};

use super::files::ExtractedFiles;
use base::clock::parse_rfc3339;
use base::json::nullable;
use base::xml::{Lexer, Token};
use model::item::MessageMark;
use model::layout::{self, RECEIVED, RUN_LOG};
use model::names;

/// Maximum bytes of the data of all tests.
const MAX_BYTES: usize = 64 << 20;

/// Data of a JUnit test other than its status and failure.
#[derive(Default)]
pub struct JunitDetails {
    /// Duration in seconds.
    pub duration: Option<f64>,
    /// Where the message of its `<failure>` ends in the text of the tree.
    pub failure: MessageMark,
    /// The same of its `<error>`.
    pub error: MessageMark,
    /// Its class; empty if the file names none.
    pub class: String,
    /// Its source file; empty if the file names none.
    pub source: String,
    /// The skip reason; empty if the file has none.
    pub skipped: String,
}

/// The collected data.
#[derive(Default)]
pub struct Survey {
    /// By plugin, file and name of the test.
    tests: HashMap<u64, JunitDetails>,
    /// Bytes of their data.
    bytes: usize,
    /// Start of a suite according to its file, by plugin and file.
    pub stamps: BTreeMap<(String, String), String>,
    /// The names and sizes of logs, in archive order.
    logs: Vec<(String, u64)>,
    /// Their ends.
    ends: ExtractedFiles,
}

impl Survey {
    /// Reads the tests of a plugin's JUnit file, up to the first error.
    pub(super) fn junit(&mut self, plugin: &str, file: &str, content: &mut dyn Read) -> Result<()> {
        let mut lexer = Lexer::new(BufReader::with_capacity(64 << 10, content));
        loop {
            match lexer.next_token()? {
                Token::End => return Ok(()),
                Token::Text | Token::Close => continue,
                Token::Open => {}
            }
            let text = |name| lexer.attribute(name).unwrap_or_default().trim().to_owned();
            match lexer.name() {
                "testsuite" if !text("timestamp").is_empty() => {
                    let place = (plugin.to_owned(), file.to_owned());
                    self.stamps
                        .entry(place)
                        .or_insert_with(|| text("timestamp"));
                }
                "testcase" => {
                    let mut details = JunitDetails {
                        duration: text("time")
                            .parse()
                            .ok()
                            .filter(|time: &f64| time.is_finite() && *time > 0.0),
                        class: text("classname"),
                        source: text("file"),
                        ..JunitDetails::default()
                    };
                    let test =
                        base::digest(&(plugin, file, lexer.attribute("name").unwrap_or_default()));
                    while lexer.next_child()? {
                        let message = lexer.attribute("message").unwrap_or_default();
                        match lexer.name() {
                            "failure" => details.failure = MessageMark::new(message),
                            "error" => details.error = MessageMark::new(message),
                            "skipped" => details.skipped = message.trim().to_owned(),
                            _ => {}
                        }
                        if lexer.name() == "skipped" && details.skipped.is_empty() {
                            while let Token::Text = lexer.next_token()? {
                                // The first piece of a long text suffices.
                                if details.skipped.is_empty() {
                                    details.skipped = lexer.text().trim().to_owned();
                                }
                            }
                        } else {
                            lexer.skip_element()?;
                        }
                    }
                    self.bytes += size_of::<JunitDetails>();
                    self.bytes +=
                        details.class.len() + details.source.len() + details.skipped.len();
                    // Of several tests with one name the first counts.
                    if self.bytes <= MAX_BYTES {
                        self.tests.entry(test).or_insert(details);
                    }
                }
                _ => {}
            }
        }
    }

    /// Keeps the end of a file, if it is a log.
    pub(super) fn log(&mut self, name: &str, size: u64, content: &mut dyn Read) -> Result<()> {
        if layout::below_pod_logs(name).is_some() && size > 0 {
            self.ends.add(name, &tail(content)?[..])?;
            self.logs.push((name.to_owned(), size));
        }
        Ok(())
    }

    /// The logs to show: those of plugins that did not pass first, then those
    /// with the most `errors`, which are lines by the name of the log.
    pub(super) fn logs(
        &self,
        errors: Option<&BTreeMap<String, u64>>,
        not_passed: &[&str],
    ) -> Result<LogEnds> {
        let errors = |name: &String| {
            errors
                .and_then(|errors| errors.get(name))
                .copied()
                .unwrap_or_default()
        };
        let mut logs: Vec<_> = self.logs.iter().collect();
        logs.sort_by_cached_key(|(name, _)| {
            let has_passed = !not_passed
                .iter()
                .any(|plugin| names::is_of_plugin(name, plugin));
            (has_passed, Reverse(errors(name)), name)
        });
        let (mut left, mut shown) = (ALL, Vec::new());
        for (name, size) in &logs {
            let tail = self.ends.small(name)?.unwrap_or_default();
            let Some(rest) = left.checked_sub(tail.len()) else {
                break;
            };
            left = rest;
            shown.push(LogEnd {
                name: name.clone(),
                short: layout::below_pod_logs(name).unwrap_or(name).to_owned(),
                size: *size,
                errors: errors(name),
                tail: String::from_utf8_lossy(&tail).into_owned(),
            });
        }
        let more = logs.len() - shown.len();
        Ok(LogEnds { shown, more })
    }

    /// The data of a test's file about it.
    pub fn details_of(&self, plugin: &str, file: &str, test: &str) -> Option<&JunitDetails> {
        self.tests.get(&base::digest(&(plugin, file, test)))
    }
}

/// The ends of some logs.
pub(super) struct LogEnds {
    pub shown: Vec<LogEnd>,
    /// The number of others.
    pub more: usize,
}

/// The end of a log.
pub(super) struct LogEnd {
    pub name: String,
    /// The name below the folder of logs.
    pub short: String,
    pub size: u64,
    /// Number of lines with errors.
    pub errors: u64,
    pub tail: String,
}

/// Times of one result. Texts are RFC 3339, empty if unknown.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Arrival {
    /// The plugin.
    pub plugin: String,
    /// The node, `global` for a plugin that runs once.
    pub node: String,
    /// Time of the start.
    #[serde(deserialize_with = "nullable")]
    pub started: String,
    /// Time of its worker's first heartbeat.
    #[serde(deserialize_with = "nullable")]
    first_heartbeat: String,
    /// Time when its result was stored.
    #[serde(deserialize_with = "nullable")]
    arrived: String,
    /// Time when it was given up.
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "String::is_empty"
    )]
    pub failed: String,
}

/// A period.
#[derive(Clone, Copy)]
pub struct Period {
    /// The start.
    pub from: SystemTime,
    /// The end.
    pub to: SystemTime,
}

impl Period {
    /// The duration in seconds.
    pub fn seconds(&self) -> f64 {
        self.to
            .duration_since(self.from)
            .unwrap_or_default()
            .as_secs_f64()
    }

    /// The shortest period that contains all the given ones.
    pub fn around(spans: impl Iterator<Item = Self>) -> Option<Self> {
        spans.reduce(|a, b| Self {
            from: a.from.min(b.from),
            to: a.to.max(b.to),
        })
    }
}

/// In seconds.
impl Serialize for Period {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(self.seconds())
    }
}

/// The times of each result, sorted, and the first and the last time of the run, as recorded.
pub(super) fn times(files: &ExtractedFiles) -> (Vec<Arrival>, Option<(String, String)>) {
    let mut arrivals: Vec<Arrival> = files.list(RECEIVED);
    arrivals.sort_by(|a, b| (&a.plugin, &a.node).cmp(&(&b.plugin, &b.node)));
    // The log ends before the last result is packed, and its start may have been rotated away.
    let log = log_times(files);
    let moments = arrivals
        .iter()
        .flat_map(|arrival| [&arrival.started, &arrival.arrived, &arrival.failed]);
    let run = bounds(log.iter().chain(moments).map(String::as_str));
    (arrivals, run)
}

/// The first and the last of some timestamps; of equal ones, the first spelling.
fn bounds<'t>(moments: impl Iterator<Item = &'t str>) -> Option<(String, String)> {
    let times: Vec<_> = moments
        .filter_map(|text| Some((parse_rfc3339(text)?, text)))
        .collect();
    let first = times.iter().min_by_key(|(time, _)| *time)?;
    let last = times.iter().rev().max_by_key(|(time, _)| *time)?;
    Some((first.1.to_owned(), last.1.to_owned()))
}

impl Arrival {
    /// From its start until it arrived or was given up.
    pub fn span(&self) -> Option<Period> {
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
    log.lines()
        .find_map(time)
        .into_iter()
        .chain(log.lines().rev().find_map(time))
        .collect()
}

/// Maximum bytes of one log to keep, and of all to show.
const TAIL: usize = 12 << 10;
const ALL: usize = 200 << 10;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_spans_its_first_and_last_event() {
        let moments = [
            "2026-01-01T00:00:05Z",
            "2026-01-01T00:05:00Z",
            "",
            "2026-01-01T00:00:04Z",
            "nonsense",
        ];
        let found = bounds(moments.into_iter());
        assert_eq!(
            found,
            Some(("2026-01-01T00:00:04Z".into(), "2026-01-01T00:05:00Z".into()))
        );
    }
}
