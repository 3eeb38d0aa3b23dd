//! The exit code of a report for what `--fail-on` and `--min-success` ask for, with its reason.

use std::collections::BTreeMap;

use super::{FAILED, FLAKY, Outcome, UNKNOWN, is_failure};
use base::Joined as _;
use base::words::count;

/// The exit code of a command that failed at something else than judging.
const ERROR_CODE: u8 = 1;
/// The exit code if something failed.
const FAILED_CODE: u8 = 3;
/// The exit code if nothing failed but something is unknown.
const UNKNOWN_CODE: u8 = 4;

/// The value of `--fail-on`: how bad results must be for an exit code other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailOn {
    /// Nothing is bad enough.
    Never,
    /// Failed tests and missing results.
    Failed,
    /// Also plugins that are unknown as a whole.
    Incomplete,
    /// Also any unknown result.
    Unknown,
    /// Also flaky tests.
    Flaky,
    /// Of a comparison: only tests that vanished.
    Vanished,
}

impl FailOn {
    /// Reads a value that the command line has checked.
    pub fn parse(word: &str) -> Self {
        match word {
            "failed" => Self::Failed,
            "incomplete" => Self::Incomplete,
            "unknown" => Self::Unknown,
            "flaky" => Self::Flaky,
            "vanished" => Self::Vanished,
            _ => Self::Never,
        }
    }
}

/// What decides between 0 and another exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// See [`FailOn`].
    pub fail_on: FailOn,
    /// A plugin that has passed on this share of its nodes, in percent, has passed.
    pub min_success: Option<u64>,
}

impl Limit {
    /// Combines both flags: a share implies `--fail-on failed`.
    pub fn new(fail_on: FailOn, min_success: Option<u64>) -> Self {
        let is_implied = min_success.is_some() && fail_on == FailOn::Never;
        Self {
            fail_on: if is_implied { FailOn::Failed } else { fail_on },
            min_success,
        }
    }

    /// Whether any result can lead to an exit code other than 0.
    pub fn judges(self) -> bool {
        self.fail_on != FailOn::Never
    }
}

/// An exit code other than 0, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The exit code.
    pub code: u8,
    /// The reason, without the code.
    pub reason: String,
}

impl Exit {
    fn new(code: u8, reason: String) -> Self {
        Self { code, reason }
    }

    /// The worse of two: that something failed (3) is worse than that it is unknown (4).
    pub fn worse(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        first.into_iter().chain(second).min_by_key(|exit| exit.code)
    }
}

/// The exit code of a command that would end with `code`, and failed at something else: at writing
/// to standard output, at writing a requested file, at sending an archive. A verdict is worth more
/// than that the command failed.
pub fn code_after_error(code: u8) -> u8 {
    code.max(ERROR_CODE)
}

/// What a report read about a plugin.
pub struct PluginResult<'a> {
    /// Its name.
    pub name: &'a str,
    /// The status of its tree.
    pub status: &'a str,
    /// Its tests by status.
    pub counts: &'a BTreeMap<String, u64>,
    /// The outcomes of its nodes, if it runs on each.
    pub nodes: Vec<Outcome>,
}

impl PluginResult<'_> {
    fn outcome(&self) -> Outcome {
        Outcome::of(self.status, self.counts)
    }

    /// Whether it runs on nodes, and has passed on so many percent of them.
    fn has_passed_on(&self, percent: u64) -> bool {
        let passed = self
            .nodes
            .iter()
            .filter(|node| **node == Outcome::Passed)
            .count();
        passed > 0 && passed as u64 * 100 >= percent * self.nodes.len() as u64
    }

    fn count_of(&self, status: &str) -> u64 {
        let is_counted = |other: &str| other == status || status == FAILED && is_failure(other);
        self.counts
            .iter()
            .filter(|(other, _)| is_counted(other))
            .map(|(_, count)| count)
            .sum()
    }
}

/// The exit code for the results of a run; `None` means 0. See the table in `docs/results.md`.
pub fn exit_of_run(plugins: &[PluginResult<'_>], limit: Limit) -> Option<Exit> {
    let is_tolerated = |plugin: &&PluginResult<'_>| {
        limit
            .min_success
            .is_some_and(|share| plugin.has_passed_on(share))
    };
    let counted: Vec<_> = plugins
        .iter()
        .filter(|plugin| !is_tolerated(plugin))
        .collect();
    let outcome = if counted.is_empty() && !plugins.is_empty() {
        Outcome::Passed
    } else {
        Outcome::worst(counted.iter().map(|plugin| plugin.outcome()))
    };
    let worst: Vec<_> = counted
        .into_iter()
        .filter(|plugin| plugin.outcome() == outcome)
        .collect();
    let is_incomplete = worst.iter().any(|plugin| plugin.status == UNKNOWN);
    match (outcome, limit.fail_on) {
        (_, FailOn::Never | FailOn::Vanished) => None,
        (Outcome::Failed, _) => Some(Exit::new(FAILED_CODE, reason(&worst, FAILED))),
        (Outcome::Unknown, FailOn::Failed) => None,
        (Outcome::Unknown, FailOn::Incomplete) if !is_incomplete => None,
        (Outcome::Unknown, _) => Some(Exit::new(UNKNOWN_CODE, reason(&worst, UNKNOWN))),
        (Outcome::Passed, FailOn::Flaky)
            if plugins.iter().any(|plugin| plugin.count_of(FLAKY) > 0) =>
        {
            Some(Exit::new(FAILED_CODE, reason(&worst, FLAKY)))
        }
        (Outcome::Passed, _) => None,
    }
}

/// Number of tests with a status, and the plugins that have them: `4 tests failed in e2e`.
fn reason(plugins: &[&PluginResult<'_>], status: &str) -> String {
    let counted: Vec<_> = plugins
        .iter()
        .map(|plugin| (plugin.name, plugin.count_of(status)))
        .collect();
    let tests = counted.iter().map(|(_, tests)| tests).sum();
    let names = counted
        .iter()
        .filter(|(_, of)| tests == 0 || *of > 0)
        .map(|(name, _)| *name)
        .joined(", ");
    let verb = match (status, tests) {
        (FAILED, _) => "",
        (_, 1) => "is ",
        _ => "are ",
    };
    match tests {
        _ if names.is_empty() => "the archive has no results".into(),
        0 => format!("the results of {names} {verb}{status}"),
        tests => format!("{} {verb}{status} in {names}", count(tests, "test")),
    }
}

/// The numbers of tests that a comparison of two runs found.
#[derive(Clone, Copy, Default)]
pub struct Changes {
    /// Tests that fail now, and did not before.
    pub newly_failing: u64,
    /// Tests that are flaky now, and were not before.
    pub newly_flaky: u64,
    /// Tests that are missing now.
    pub vanished: u64,
    /// Tests that are unknown now, and were not before.
    pub newly_unknown: u64,
}

/// The exit code for a comparison; `None` means 0. See the table in `docs/results.md`.
pub fn exit_of_changes(changes: &Changes, fail_on: FailOn) -> Option<Exit> {
    use FailOn::{Failed, Flaky, Incomplete, Unknown, Vanished};
    let rules: [(u8, &str, u64, &[FailOn]); 4] = [
        (
            FAILED_CODE,
            "newly failing",
            changes.newly_failing,
            &[Failed, Incomplete, Unknown, Flaky],
        ),
        (FAILED_CODE, "newly flaky", changes.newly_flaky, &[Flaky]),
        (
            UNKNOWN_CODE,
            "vanished",
            changes.vanished,
            &[Vanished, Incomplete, Unknown, Flaky],
        ),
        (
            UNKNOWN_CODE,
            "newly unknown",
            changes.newly_unknown,
            &[Unknown, Flaky],
        ),
    ];
    rules
        .into_iter()
        .find(|(_, _, tests, limits)| *tests > 0 && limits.contains(&fail_on))
        .map(|(code, words, tests, _)| Exit::new(code, format!("{} {words}", count(tests, "test"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: [FailOn; 5] = [
        FailOn::Never,
        FailOn::Failed,
        FailOn::Incomplete,
        FailOn::Unknown,
        FailOn::Flaky,
    ];

    /// The exit codes for one plugin at every limit, in the order of [`LIMITS`].
    fn codes(
        status: &str,
        counts: &[(&str, u64)],
        nodes: &[Outcome],
        min_success: Option<u64>,
    ) -> [u8; 5] {
        let counts = counts
            .iter()
            .map(|(status, count)| ((*status).to_owned(), *count))
            .collect();
        LIMITS.map(|fail_on| {
            let plugin = PluginResult {
                name: "p",
                status,
                counts: &counts,
                nodes: nodes.to_vec(),
            };
            exit_of_run(&[plugin], Limit::new(fail_on, min_success)).map_or(0, |exit| exit.code)
        })
    }

    #[test]
    fn error_hides_no_verdict() {
        for (code, expected) in [(0, 1), (1, 1), (3, 3), (4, 4)] {
            assert_eq!(code_after_error(code), expected);
        }
    }

    #[test]
    fn every_outcome_has_its_code_at_every_limit() {
        for (status, counts, expected) in [
            ("passed", &[("passed", 2)][..], [0, 0, 0, 0, 0]),
            ("passed", &[("passed", 2), ("skipped", 1)], [0, 0, 0, 0, 0]),
            ("passed", &[("skipped", 1)], [0, 0, 0, 0, 0]),
            ("passed", &[("passed", 1), ("flaky", 1)], [0, 0, 0, 0, 3]),
            ("good: 1", &[("good", 1)], [0, 0, 0, 0, 0]),
            ("unknown", &[("unknown", 1)], [0, 0, 4, 4, 4]),
            ("unknown", &[], [0, 0, 4, 4, 4]),
            (
                "unknown",
                &[("passed", 1), ("flaky", 1), ("unknown", 1)],
                [0, 0, 4, 4, 4],
            ),
            (
                "good: 1, unknown: 1",
                &[("good", 1), ("unknown", 1)],
                [0, 0, 0, 4, 4],
            ),
            ("failed", &[("failed", 1)], [0, 3, 3, 3, 3]),
            ("failed", &[("timeout", 1)], [0, 3, 3, 3, 3]),
            (
                "failed",
                &[("unknown", 1), ("failed", 1), ("flaky", 1)],
                [0, 3, 3, 3, 3],
            ),
            (
                "good: 1, failed: 1",
                &[("good", 1), ("failed", 1)],
                [0, 3, 3, 3, 3],
            ),
        ] {
            assert_eq!(
                codes(status, counts, &[], None),
                expected,
                "{status} {counts:?}"
            );
        }
    }

    #[test]
    fn archive_without_results_is_incomplete() {
        let codes =
            LIMITS.map(|fail_on| exit_of_run(&[], Limit::new(fail_on, None)).map(|exit| exit.code));
        assert_eq!(codes, [None, None, None, Some(4), Some(4)]);
    }

    #[test]
    fn share_of_nodes_tolerates_failures() {
        let nodes = [
            Outcome::Passed,
            Outcome::Passed,
            Outcome::Passed,
            Outcome::Failed,
        ];
        let counts = &[("passed", 3), ("failed", 1)];
        assert_eq!(codes("failed", counts, &nodes, None), [0, 3, 3, 3, 3]);
        assert_eq!(codes("failed", counts, &nodes, Some(75)), [0, 0, 0, 0, 0]);
        assert_eq!(codes("failed", counts, &nodes, Some(76)), [3, 3, 3, 3, 3]);
        assert_eq!(
            codes("failed", counts, &[Outcome::Failed], Some(1)),
            [3, 3, 3, 3, 3]
        );
        assert_eq!(
            codes("failed", counts, &[], Some(1)),
            [3, 3, 3, 3, 3],
            "it does not run on nodes"
        );
    }

    #[test]
    fn reasons_name_the_worst_plugins_only() {
        let failed: BTreeMap<String, u64> = [("failed".into(), 2), ("timeout".into(), 1)].into();
        let unknown: BTreeMap<String, u64> = [("unknown".into(), 1)].into();
        let none = BTreeMap::new();
        let plugin = |name, status, counts| PluginResult {
            name,
            status,
            counts,
            nodes: Vec::new(),
        };
        let reason = |plugins: &[PluginResult<'_>]| {
            exit_of_run(plugins, Limit::new(FailOn::Unknown, None))
                .unwrap()
                .reason
        };
        let plugins = [
            plugin("a", "failed", &failed),
            plugin("b", "unknown", &unknown),
        ];
        assert_eq!(reason(&plugins), "3 tests failed in a");
        assert_eq!(reason(&plugins[1..]), "1 test is unknown in b");
        assert_eq!(
            reason(&[plugin("c", "unknown", &none)]),
            "the results of c are unknown"
        );
        assert_eq!(reason(&[]), "the archive has no results");
    }

    #[test]
    fn worst_exit_of_several_archives_is_3() {
        let exit = |code| Some(Exit::new(code, String::new()));
        assert_eq!(Exit::worse(exit(4), exit(3)), exit(3));
        assert_eq!(Exit::worse(exit(3), exit(4)), exit(3));
        assert_eq!(Exit::worse(None, exit(4)), exit(4));
        assert_eq!(Exit::worse(None, None), None);
    }

    #[test]
    fn changes_have_codes_at_every_limit() {
        let limits = [
            FailOn::Never,
            FailOn::Failed,
            FailOn::Incomplete,
            FailOn::Unknown,
            FailOn::Flaky,
            FailOn::Vanished,
        ];
        let none = Changes::default();
        for (changes, expected) in [
            (none, [0, 0, 0, 0, 0, 0]),
            (
                Changes {
                    newly_failing: 1,
                    ..none
                },
                [0, 3, 3, 3, 3, 0],
            ),
            (
                Changes {
                    newly_flaky: 1,
                    ..none
                },
                [0, 0, 0, 0, 3, 0],
            ),
            (
                Changes {
                    vanished: 2,
                    ..none
                },
                [0, 0, 4, 4, 4, 4],
            ),
            (
                Changes {
                    newly_unknown: 1,
                    ..none
                },
                [0, 0, 0, 4, 4, 0],
            ),
            (
                Changes {
                    newly_failing: 1,
                    vanished: 1,
                    ..none
                },
                [0, 3, 3, 3, 3, 4],
            ),
        ] {
            let codes =
                limits.map(|limit| exit_of_changes(&changes, limit).map_or(0, |exit| exit.code));
            assert_eq!(codes, expected);
        }
        let exit = exit_of_changes(
            &Changes {
                vanished: 2,
                ..none
            },
            FailOn::Vanished,
        )
        .unwrap();
        assert_eq!(exit.reason, "2 tests vanished");
    }
}
