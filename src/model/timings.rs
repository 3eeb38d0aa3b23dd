//! How long the parts of a run took: the command line begins the list, the aggregator measures its
//! parts of it, and `run --timings` prints all of them.
//!
//! Owns the names of the parts, their order and the table. The parts follow each other: each begins
//! where the one before it ended.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Time of the command line until its first request that creates something.
pub const VALIDATION: &str = "validation";
/// Creation of the objects, with dry runs.
pub const OBJECTS: &str = "objects";
/// From the last object until the aggregator publishes a status.
pub const AGGREGATOR_POD: &str = "aggregator pod";
/// From the start of the plugins until the last worker has contacted the aggregator.
pub const PLUGIN_PODS: &str = "plugin pods";
/// Until the last result begins to arrive.
pub const PLUGIN: &str = "plugin";
/// Until the last result is stored.
pub const UPLOAD: &str = "upload";
/// Snapshot of the cluster.
pub const SNAPSHOT: &str = "snapshot";
/// Processing and packing.
pub const ARCHIVE: &str = "archive";
/// Until the command line knows that the run is complete, less the parts of the aggregator.
pub const STATUS: &str = "status";
/// Transfer of the archive.
pub const DOWNLOAD: &str = "download";
/// Report on the archive.
pub const REPORT: &str = "report";
/// Removal of the run.
pub const REMOVAL: &str = "removal";

/// One part of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    pub name: String,
    pub seconds: f64,
}

/// The parts of a run that one program has measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timings {
    pub parts: Vec<Part>,
    /// Requests to the API server.
    pub requests: u64,
}

/// When the results of the plugins came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Milestones {
    /// The last time that a worker made its first contact.
    pub contact: Option<Instant>,
    /// The last time that a result began to arrive.
    pub arrival: Option<Instant>,
    /// The last time that a result was settled.
    pub settled: Option<Instant>,
}

/// Measures parts that follow each other.
pub struct Stopwatch {
    timings: Timings,
    /// End of the last part.
    since: Instant,
}

impl Stopwatch {
    /// The first part begins now.
    pub fn start() -> Self {
        Self {
            timings: Timings::default(),
            since: Instant::now(),
        }
    }

    /// The current part has ended now.
    pub fn end(&mut self, name: &str) {
        self.end_at(name, Some(Instant::now()));
    }

    /// The current part ended at that time; without one it took no time.
    pub fn end_at(&mut self, name: &str, end: Option<Instant>) {
        let end = end.unwrap_or(self.since).max(self.since);
        let duration = end.saturating_duration_since(self.since);
        self.since = end;
        self.add(name, duration);
    }

    /// The parts that the milestones separate.
    pub fn end_plugins(&mut self, milestones: Milestones) {
        self.end_at(PLUGIN_PODS, milestones.contact);
        self.end_at(PLUGIN, milestones.arrival);
        self.end_at(UPLOAD, milestones.settled);
    }

    /// The current part has ended now, and another program has measured parts of it; what they do
    /// not explain gets the name `rest`.
    pub fn end_with(&mut self, measured: &Timings, rest: &str) {
        let now = Instant::now();
        let duration = now.saturating_duration_since(self.since);
        let explained: f64 = measured.parts.iter().map(|part| part.seconds).sum();
        self.timings.parts.extend(measured.parts.iter().cloned());
        self.timings.requests = self.timings.requests.saturating_add(measured.requests);
        let explained = Duration::try_from_secs_f64(explained).unwrap_or(duration);
        self.add(rest, duration.saturating_sub(explained));
        self.since = now;
    }

    /// The parts so far, and the requests of this program besides those that others have reported.
    pub fn timings(&self, requests: u64) -> Timings {
        let mut timings = self.timings.clone();
        timings.requests = timings.requests.saturating_add(requests);
        timings
    }

    fn add(&mut self, name: &str, taken: Duration) {
        // Milliseconds are enough, and short.
        let seconds = (taken.as_secs_f64() * 1000.0).round() / 1000.0;
        self.timings.parts.push(Part {
            name: name.to_owned(),
            seconds,
        });
    }
}

impl Timings {
    /// A line for each part, their sum, and the number of requests.
    pub fn table(&self) -> String {
        let total = Part {
            name: "total".into(),
            seconds: self.parts.iter().map(|part| part.seconds).sum(),
        };
        let mut text = String::new();
        for part in self.parts.iter().chain([&total]) {
            let _ = writeln!(text, "{:<16}{:>9.2} s", part.name, part.seconds);
        }
        let _ = writeln!(text, "{:<16}{:>9}", "API requests", self.requests);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_and_seconds(stopwatch: &Stopwatch) -> Vec<(String, f64)> {
        let parts = stopwatch.timings(0).parts.into_iter();
        parts.map(|part| (part.name, part.seconds)).collect()
    }

    #[test]
    fn parts_follow_each_other() {
        let mut stopwatch = Stopwatch::start();
        let after = |millis| stopwatch.since + Duration::from_millis(millis);
        let milestones = Milestones {
            contact: Some(after(1500)),
            // A clock of events may see the last contact of another plugin later.
            arrival: Some(after(1000)),
            settled: Some(after(2250)),
        };
        stopwatch.end_plugins(milestones);
        let expected = [(PLUGIN_PODS, 1.5), (PLUGIN, 0.0), (UPLOAD, 0.75)];
        let expected = expected.map(|(name, seconds)| (name.to_owned(), seconds));
        assert_eq!(names_and_seconds(&stopwatch), expected);
    }

    #[test]
    fn parts_of_the_aggregator_explain_the_wait() {
        let mut stopwatch = Stopwatch::start();
        stopwatch.since -= Duration::from_secs(5);
        let part = Part {
            name: SNAPSHOT.into(),
            seconds: 4.0,
        };
        let measured = Timings {
            parts: vec![part],
            requests: 40,
        };
        stopwatch.end_with(&measured, STATUS);
        let timings = stopwatch.timings(2);
        assert_eq!(timings.requests, 42);
        assert_eq!(timings.parts[0], measured.parts[0]);
        assert!(
            (1.0..2.0).contains(&timings.parts[1].seconds),
            "{timings:?}"
        );
        let table = timings.table();
        assert!(table.contains("snapshot             4.00 s\n"), "{table}");
        assert!(table.ends_with("API requests           42\n"), "{table}");
    }
}
