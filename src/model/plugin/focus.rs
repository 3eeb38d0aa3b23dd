//! Selects the tests that a plugin runs: the variables for that, the modes of the e2e plugin, an
//! exact list of tests, and a split into parallel parts.
//!
//! Receives the names of tests from its caller. The tests that the mode `conformance-lite` skips
//! are in `conformance-lite.txt`, one pattern per line.

use anyhow::{Context as _, Result, anyhow, ensure};

use super::Definition;
use crate::layout;
use base::Joined as _;
use base::pattern;

/// Variables with the patterns of tests to run and to skip, and whether to run tests in parallel.
pub const FOCUS: &str = "E2E_FOCUS";
/// See [`FOCUS`].
pub const SKIP: &str = "E2E_SKIP";
/// See [`FOCUS`].
pub const PARALLEL: &str = "E2E_PARALLEL";

/// Maximum length of a variable on Linux, with a margin.
const MAX_FOCUS_BYTES: usize = 96 << 10;
/// Labels of tests that must not run in parallel with others.
const ALONE: [&str; 2] = ["[Serial]", "[Disruptive]"];

/// Pattern that matches exactly these tests; `None` if it exceeds the limit of a variable.
pub fn exactly<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let names = names
        .into_iter()
        .map(|name| pattern::quote(name.trim()))
        .joined("|");
    // Frameworks match the name including that of the suite.
    let pattern = format!("(^| )({names})$");
    (pattern.len() <= MAX_FOCUS_BYTES).then_some(pattern)
}

/// The same plugin, with exactly these tests; `None` if they are too many.
pub fn only<'n>(
    definition: &Definition,
    tests: impl IntoIterator<Item = &'n str>,
    alone: bool,
) -> Option<Definition> {
    let mut only = definition.clone();
    only.set_env([(FOCUS, &*exactly(tests)?), (SKIP, "")]);
    if alone && definition.env(PARALLEL).is_some() {
        only.set_env([(PARALLEL, "false")]);
    }
    Some(only)
}

/// Splits a plugin into parallel ones, each with its share of the tests that the plugin selects
/// from `names`, and a later one for tests that must not run in parallel. All of them are parts of
/// the first.
pub fn split(definition: &Definition, names: &[String], parts: usize) -> Result<Vec<Definition>> {
    let name = definition.name();
    let compiled = |variable: &str| {
        let text = definition.env(variable).unwrap_or_default();
        pattern::compile(text).map_err(|error| anyhow!("plugin `{name}`: `{variable}`: {error}"))
    };
    let (focus, skip) = (compiled(FOCUS)?, compiled(SKIP)?);
    let skips = !definition.env(SKIP).unwrap_or_default().is_empty();
    let chosen = names
        .iter()
        .map(String::as_str)
        .filter(|test| focus.is_match(test) && !(skips && skip.is_match(test)));
    let is_alone = |test: &&str| ALONE.iter().any(|mark| test.contains(mark));
    let (alone, together): (Vec<&str>, Vec<&str>) = chosen.partition(is_alone);
    ensure!(
        !together.is_empty(),
        "plugin `{name}`: none of its tests can run beside others, so there is nothing to split"
    );
    let parts = parts.min(together.len());
    let mut all: Vec<(usize, Vec<&str>)> = Vec::new();
    for part in 0..parts {
        // Neighbours in the list are often alike, and go to different parts.
        let share = together.iter().copied().skip(part).step_by(parts);
        all.push((part + 1, share.collect()));
    }
    if !alone.is_empty() {
        all.push((0, alone));
    }
    all.into_iter()
        .map(|(number, tests)| {
            let (own, is_alone) = (layout::part(name, number), number == 0);
            let count = tests.len();
            let mut part = only(definition, tests, is_alone).with_context(|| {
            format!(
                "plugin `{name}`: {count} tests are too many for one part; choose fewer tests, or \
                 more parts"
            )
        })?;
            if own != name {
                part.config.part_of = Some(name.to_owned());
            }
            part.config.order += i64::from(is_alone);
            part.config.plugin_name = own;
            Ok(part)
        })
        .collect()
}

/// Which e2e tests run, and how.
pub struct Mode {
    /// Name for `--mode`.
    pub name: &'static str,
    /// Human-readable description.
    pub description: &'static str,
    /// `E2E_FOCUS`.
    pub focus: &'static str,
    /// `E2E_PARALLEL`.
    pub parallel: &'static str,
    /// Patterns of tests to skip, one per line.
    skip: &'static str,
}

/// Mode required for certification.
pub const CERTIFIED: &str = "certified-conformance";

/// The names of all modes, in order.
pub const NAMES: &[&str] = &[
    CERTIFIED,
    "conformance-lite",
    "non-disruptive-conformance",
    "quick",
];

const CONFORMANCE: &str = r"\[Conformance\]";

/// All modes, by name.
pub const MODES: &[Mode] = &[
    Mode {
        name: CERTIFIED,
        description: "Certified conformance mode runs the entire conformance suite, even \
                      disruptive tests. This is typically run in a dev environment to earn the \
                      CNCF Certified Kubernetes status.",
        focus: CONFORMANCE,
        skip: "",
        parallel: "false",
    },
    Mode {
        name: "conformance-lite",
        description: "An unofficial mode of running the e2e tests which removes some of the \
                      longest running tests so that your tests can complete in the fastest time \
                      possible while maximizing coverage.",
        focus: CONFORMANCE,
        skip: include_str!("conformance-lite.txt"),
        parallel: "true",
    },
    Mode {
        name: "non-disruptive-conformance",
        description: "Non-destructive conformance mode runs all of the conformance tests except \
                      those that would disrupt other cluster operations (e.g. tests that may \
                      cause nodes to be restarted or impact cluster permissions).",
        focus: CONFORMANCE,
        skip: r"\[Disruptive\]|NoExecuteTaintManager",
        parallel: "false",
    },
    Mode {
        name: "quick",
        description: "Quick mode runs a single test to create and destroy a pod. Fastest way to \
                      check basic cluster operation.",
        focus: "Pods should be submitted and removed",
        skip: "",
        parallel: "false",
    },
];

impl Mode {
    /// Finds a mode by name, ignoring case.
    pub fn named(name: &str) -> Option<&'static Self> {
        MODES
            .iter()
            .find(|mode| mode.name.eq_ignore_ascii_case(name))
    }

    /// `E2E_SKIP`; if empty, the variable must be unset.
    pub fn skip(&self) -> String {
        self.skip.lines().joined("|")
    }
}

/// The name in a line of the test program's output, which begins with the test's location.
pub fn listed_test(line: &str) -> Option<&str> {
    let (place, name) = line.trim().split_once(": ")?;
    place.contains(".go:").then_some(name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::DriverKind;
    use base::json::json;

    fn plugin(env: &[(&str, &str)]) -> Definition {
        let env: Vec<_> = env
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        Definition::new("e2e", DriverKind::Job, json!({"name": "e2e", "env": env}))
    }

    #[test]
    fn pattern_matches_exactly_the_tests() {
        let tests = ["[sig-a] Is (1.5) + $x [Conformance]", " b "];
        let pattern = regex::Regex::new(&exactly(tests).unwrap()).unwrap();
        for name in tests.map(str::trim) {
            assert!(
                pattern.is_match(name) && pattern.is_match(&format!("Kubernetes e2e suite {name}")),
                "{name}"
            );
            assert!(
                !pattern.is_match(&format!("{name} too")) && !pattern.is_match(&format!("x{name}")),
                "{name}"
            );
        }
        let many: Vec<String> = (0..10_000)
            .map(|number| format!("a rather long name {number}"))
            .collect();
        assert_eq!(exactly(many.iter().map(String::as_str)), None);
    }

    #[test]
    fn parts_share_the_tests_and_serial_ones_follow() {
        let names = ["a x", "b x", "c x", "d x [Serial]", "e x [Slow]", "f y"].map(str::to_owned);
        let whole = plugin(&[(FOCUS, "x"), (SKIP, r"\[Slow\]"), (PARALLEL, "true")]);
        let parts = split(&whole, &names, 2).unwrap();
        let shown: Vec<_> = parts
            .iter()
            .map(|part| {
                let env = |name| part.env(name).unwrap_or("-").to_owned();
                (
                    part.name(),
                    part.config.part_of.as_deref(),
                    part.config.order,
                    env(FOCUS),
                    env(SKIP),
                    env(PARALLEL),
                )
            })
            .collect();
        let told = |tests: &str| format!("(^| )({tests})$");
        let (none, on, off) = (
            String::from("-"),
            String::from("true"),
            String::from("false"),
        );
        assert_eq!(
            shown,
            [
                ("e2e", None, 0, told("a x|c x"), none.clone(), on.clone()),
                ("e2e-part-2", Some("e2e"), 0, told("b x"), none.clone(), on),
                (
                    "e2e-serial",
                    Some("e2e"),
                    1,
                    told(r"d x \[Serial\]"),
                    none,
                    off
                ),
            ]
        );
        assert_eq!(
            split(&whole, &names, 9).unwrap().len(),
            4,
            "no part is empty"
        );
        let serial = plugin(&[(FOCUS, "Serial")]);
        assert!(
            split(&serial, &names, 2)
                .unwrap_err()
                .to_string()
                .contains("nothing to split")
        );
        assert!(split(&plugin(&[(FOCUS, "(")]), &names, 2).is_err());
    }

    #[test]
    fn every_name_has_its_mode_and_every_skip_compiles() {
        assert_eq!(
            MODES.iter().map(|mode| mode.name).collect::<Vec<_>>(),
            NAMES
        );
        assert!(NAMES.is_sorted());
        assert!(Mode::named("non-disruptive-conformance").is_some());
        for mode in MODES {
            regex::Regex::new(&mode.skip()).unwrap();
            regex::Regex::new(mode.focus).unwrap();
        }
    }

    #[test]
    fn conformance_lite_skips_only_what_it_names() {
        let skip = regex::Regex::new(&Mode::named("Conformance-Lite").unwrap().skip()).unwrap();
        assert!(skip.is_match("[sig-apps] Job should delete a job [Conformance]"));
        assert!(skip.is_match(
            "[sig-node] Probing container should be restarted with a exec \"cat /tmp/health\" \
             liveness probe [NodeConformance] [Conformance]"
        ));
        assert!(!skip.is_match(
            "[sig-node] Pods should be submitted and removed [NodeConformance] [Conformance]"
        ));
    }

    #[test]
    fn names_follow_the_places_of_tests() {
        let of_jobs = "    k8s.io/kubernetes/test/e2e/apps/job.go:74: [sig-apps] Job should: run";
        for (line, expected) in [
            (of_jobs, Some("[sig-apps] Job should: run")),
            (
                "The following spec names can be used with 'ginkgo run --focus/skip':",
                None,
            ),
            ("", None),
        ] {
            assert_eq!(listed_test(line), expected);
        }
    }
}
