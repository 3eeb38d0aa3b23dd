//! The verdict: what a test, a result, a plugin and a run came to, and the exit code that follows
//! from it.
//!
//! The only place that decides. Status, trees, reports, JUnit files and the command line print what
//! it says. Pure: readers pass what they read and what their files claim, and get outcomes with
//! causes; nothing here does I/O. The worst outcome wins at every level.

mod claims;
mod exit;
mod tally;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::status::{self, Run};
pub use claims::{SuiteClaims, SuiteContent};
pub use exit::{
    Changes, Exit, FailOn, Limit, PluginResult, code_after_error, exit_of_changes, exit_of_run,
};
pub use tally::{GroupEnd, Tally};

/// The known statuses; any other text is a custom status.
pub const PASSED: &str = "passed";
/// See [`PASSED`].
pub const FAILED: &str = "failed";
/// See [`PASSED`].
pub const SKIPPED: &str = "skipped";
/// See [`PASSED`].
pub const UNKNOWN: &str = "unknown";
/// See [`PASSED`].
pub const TIMEOUT: &str = "timeout";
/// Failed at first and passed on retry.
pub const FLAKY: &str = "flaky";

/// The name that counts items beyond the limit of distinct statuses.
pub const OTHER: &str = "other";

/// Whether a status is known or empty.
pub fn is_known(status: &str) -> bool {
    matches!(
        status,
        PASSED | FAILED | SKIPPED | UNKNOWN | TIMEOUT | FLAKY | ""
    )
}

/// Whether a status is that of a failure.
pub fn is_failure(status: &str) -> bool {
    matches!(status, FAILED | TIMEOUT)
}

/// What a result, a plugin or a run came to, from good to bad. Custom statuses are not failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Nothing failed and nothing is unknown.
    Passed,
    /// Something is undetermined, but nothing failed.
    #[default]
    Unknown,
    /// Something failed or timed out.
    Failed,
}

impl Outcome {
    /// The outcome of a plugin, or of one of its nodes, from its status and the numbers of its
    /// tests by status.
    pub fn of(status: &str, counts: &BTreeMap<String, u64>) -> Self {
        let has = |wanted: fn(&str) -> bool| {
            wanted(status)
                || counts
                    .iter()
                    .any(|(status, count)| *count > 0 && wanted(status))
        };
        if has(is_failure) {
            Self::Failed
        } else if has(|status| status == UNKNOWN) {
            Self::Unknown
        } else {
            Self::Passed
        }
    }

    /// The worst outcome of some plugins or nodes; unknown without any.
    pub fn worst(outcomes: impl IntoIterator<Item = Self>) -> Self {
        outcomes.into_iter().max().unwrap_or_default()
    }

    /// The outcome in one word, which is a status.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => PASSED,
            Self::Unknown => UNKNOWN,
            Self::Failed => FAILED,
        }
    }
}

/// What a test case came to according to the elements inside it, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestOutcome {
    /// Passed at the first attempt.
    Passed,
    /// Did not run.
    Skipped,
    /// Passed after a failure.
    Flaky,
    /// Failed, with or without a further attempt.
    Failed,
}

impl TestOutcome {
    /// What an element inside a `<testcase>` says. The worst of all such elements is the outcome of
    /// the test.
    pub fn of_element(name: &str) -> Self {
        match name {
            "failure" | "error" => Self::Failed,
            "flakyFailure" | "flakyError" | "rerunFailure" | "rerunError" => Self::Flaky,
            "skipped" => Self::Skipped,
            _ => Self::Passed,
        }
    }

    /// The status of the test.
    pub fn status(self) -> &'static str {
        match self {
            Self::Passed => PASSED,
            Self::Skipped => SKIPPED,
            Self::Flaky => FLAKY,
            Self::Failed => FAILED,
        }
    }
}

/// The status of an item that has an error: whatever else is known of it, it is not known to have
/// passed.
pub fn status_with_error(status: &str) -> &str {
    match status {
        PASSED | FLAKY | "" => UNKNOWN,
        other => other,
    }
}

/// How a run ended, according to its status document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It has not ended, or its archive is still being uploaded.
    Running,
    /// There is an archive with at least one result.
    Delivered,
    /// There is an archive, but every plugin has an error instead of a result.
    Nothing,
    /// There is no archive.
    Failed,
}

impl RunEnd {
    /// Reads the document.
    pub fn of(run: &Run) -> Self {
        if run.status == status::FAILED {
            return Self::Failed;
        }
        if run.status != status::COMPLETE || run.upload.as_deref() == Some(status::RUNNING) {
            return Self::Running;
        }
        let entries = run.plugins.as_deref().unwrap_or_default();
        if !entries.is_empty() && entries.iter().all(|entry| entry.status == status::FAILED) {
            Self::Nothing
        } else {
            Self::Delivered
        }
    }

    /// Whether the status is final.
    pub fn is_over(self) -> bool {
        self != Self::Running
    }

    /// The exit code of a command that waited for the run, given the one of the steps after it.
    pub fn exit_code(self, code: u8) -> u8 {
        match self {
            Self::Running | Self::Delivered => code,
            Self::Nothing | Self::Failed => code_after_error(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Entry;

    fn counts(text: &str) -> BTreeMap<String, u64> {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(status, count)| (status.to_owned(), count.parse().unwrap()))
            .collect()
    }

    #[test]
    fn worst_status_decides_an_outcome() {
        for (status, of, expected) in [
            ("passed", "passed=3 skipped=1", Outcome::Passed),
            ("passed", "flaky=1", Outcome::Passed),
            ("passed", "", Outcome::Passed),
            ("good", "good=2", Outcome::Passed),
            ("passed", "passed=3 unknown=1", Outcome::Unknown),
            ("unknown", "passed=3", Outcome::Unknown),
            ("passed", "failed=0 unknown=0", Outcome::Passed),
            ("passed", "failed=1 unknown=1", Outcome::Failed),
            ("passed", "timeout=1", Outcome::Failed),
            ("failed", "passed=1", Outcome::Failed),
            ("good: 1, failed: 1", "good=1 failed=1", Outcome::Failed),
        ] {
            assert_eq!(Outcome::of(status, &counts(of)), expected, "{status} {of}");
        }
        assert_eq!(Outcome::worst([]), Outcome::Unknown);
        assert_eq!(
            Outcome::worst([Outcome::Failed, Outcome::Passed]),
            Outcome::Failed
        );
    }

    #[test]
    fn run_ends_by_its_status_document() {
        let entry = |status: &str| Entry {
            status: status.into(),
            ..Entry::default()
        };
        for (status, upload, entries, expected) in [
            ("running", None, &["complete"][..], RunEnd::Running),
            ("post-processing", None, &["complete"], RunEnd::Running),
            ("", None, &[], RunEnd::Running),
            ("complete", Some("running"), &["complete"], RunEnd::Running),
            ("complete", Some("failed"), &["complete"], RunEnd::Delivered),
            ("complete", None, &["complete", "failed"], RunEnd::Delivered),
            ("complete", None, &[], RunEnd::Delivered),
            ("complete", None, &["failed", "failed"], RunEnd::Nothing),
            ("failed", None, &["complete"], RunEnd::Failed),
        ] {
            let run = Run {
                status: status.into(),
                upload: upload.map(str::to_owned),
                plugins: Some(entries.iter().map(|status| entry(status)).collect()),
                ..Run::default()
            };
            let end = RunEnd::of(&run);
            assert_eq!(end, expected, "{status} {upload:?} {entries:?}");
            assert_eq!(end.is_over(), expected != RunEnd::Running);
        }
        assert_eq!(RunEnd::Nothing.exit_code(0), 1);
        assert_eq!(RunEnd::Nothing.exit_code(3), 3);
        assert_eq!(RunEnd::Delivered.exit_code(0), 0);
    }
}
