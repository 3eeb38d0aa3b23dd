//! Merges several launches of a plugin into one result: parallel parts, and further attempts at
//! failed tests.
//!
//! A test framework lists every test in each of its files, including those that another part ran.
//! So each test is taken once, from the part that ran it. A test that failed and passed in a later
//! attempt is flaky; its details contain all attempts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::{PluginFiles, ReadingRules, junit};
use base::Joined as _;
use base::json::json;
use base::visible::cut_bytes;
use model::item::{
    ATTEMPTS, FAILED, FAILURE, FLAKY, Item, PASSED, RESUMED, SKIPPED, Step, TIMEOUT,
};
use model::layout::RESULTS;

/// Maximum text kept of one attempt at a test; the attempt's own files contain the rest.
const MAX_ATTEMPT_BYTES: usize = 64 << 10;

/// Maximum memory for names and attempts of tests; a conformance suite needs a hundredth.
const MAX_INDEX_BYTES: usize = 64 << 20;

/// Where each test ran.
#[derive(Default)]
pub(super) struct AttemptIndex {
    /// Tests that any part ran, if there are several parts.
    pub(super) ran: HashSet<String>,
    /// Outcomes of further attempts, by test.
    retries: HashMap<String, Vec<Value>>,
    /// Counts of each attempt, by name.
    pub(super) attempts: Vec<(String, BTreeMap<String, u64>)>,
}

impl AttemptIndex {
    /// Reads the files of parts and attempts. Logs those that cannot be read; the tree also reports
    /// its own.
    pub(super) fn read(dir: &Path, rules: &ReadingRules) -> Result<Self> {
        let mut index = Self::default();
        let mut room = MAX_INDEX_BYTES;
        if !rules.parts.is_empty() {
            for source in std::iter::once(&rules.name).chain(&rules.parts) {
                each_test(dir, source, rules, &mut room, |item| {
                    index.ran.extend([item.name]);
                })?;
            }
        }
        for source in &rules.attempts {
            let mut counts = BTreeMap::new();
            each_test(dir, source, rules, &mut room, |item| {
                *counts.entry(item.status.clone()).or_default() += 1;
                index
                    .retries
                    .entry(item.name.clone())
                    .or_default()
                    .push(attempt(&item));
            })?;
            index.attempts.push((source.clone(), counts));
        }
        anyhow::ensure!(
            room > 0,
            "the names of its tests take more than {} MiB",
            MAX_INDEX_BYTES >> 20
        );
        Ok(index)
    }

    /// Outcome of a failed test after all attempts.
    pub(super) fn judge(&self, item: &mut Item) {
        let Some(retries) = self
            .retries
            .get(&item.name)
            .filter(|_| item.status == FAILED)
        else {
            return;
        };
        let all: Vec<Value> = std::iter::once(attempt(item))
            .chain(retries.iter().cloned())
            .collect();
        let has = |status: &str| retries.iter().any(|attempt| attempt["status"] == status);
        if has(PASSED) && !has(TIMEOUT) {
            item.status = FLAKY.into();
        }
        item.details.insert(ATTEMPTS.into(), all.into());
    }

    /// Replaces a test that did not run by its outcome in the previous run.
    pub(super) fn resume(&self, item: &mut Item, why: String, run: &str) {
        item.status = if why.is_empty() { PASSED } else { FAILED }.into();
        item.details = [(RESUMED.to_owned(), run.into())].into();
        if !why.is_empty() {
            item.details.insert(FAILURE.into(), why.into());
        }
        self.judge(item);
    }
}

/// Bytes of an item in memory besides its name and text.
const ITEM_OVERHEAD_BYTES: usize = 128;

/// Passes the tests that ran, according to the files of one source, to `take` until `room` bytes
/// are used.
fn each_test(
    dir: &Path,
    source: &str,
    rules: &ReadingRules,
    room: &mut usize,
    mut take: impl FnMut(Item),
) -> Result<()> {
    let mut visit = |step| {
        if let Step::Item(item) = step {
            let texts = item.details.values().filter_map(Value::as_str);
            let text_bytes: usize = texts.map(str::len).sum();
            let kept_bytes = text_bytes.min(MAX_ATTEMPT_BYTES);
            *room = room.saturating_sub(item.name.len() + kept_bytes + ITEM_OVERHEAD_BYTES);
            if item.status != SKIPPED && *room > 0 {
                take(item);
            }
        }
        Ok(())
    };
    let files = PluginFiles::beside(dir, source, rules);
    for (path, name) in files.list(Path::new(RESULTS))? {
        if !rules.selects(&name) {
            continue;
        }
        let read = files
            .open(&path)
            .and_then(|file| junit::read(file, None, "", &mut visit));
        if let Err(error) = read {
            log::warn!(
                "cannot read the result `{}` of plugin `{source}`: {error:#}",
                path.display()
            );
        }
    }
    Ok(())
}

/// Outcome of one attempt.
fn attempt(item: &Item) -> Value {
    let messages = [FAILURE, "error"]
        .iter()
        .filter_map(|key| item.details.get(*key)?.as_str());
    match &*cut_bytes(&messages.joined("\n"), MAX_ATTEMPT_BYTES) {
        "" => json!({"status": item.status}),
        text => json!({"status": item.status, (FAILURE): text}),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PluginOutcome, process};
    use super::*;
    use std::fs;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    /// A JUnit file of Ginkgo, which lists every test: `.` passed, `F` failed, `-` did not run.
    fn junit(outcomes: &str) -> String {
        let tests = NAMES.iter().zip(outcomes.chars()).map(|(name, outcome)| {
            let inside = match outcome {
                'F' => format!("<failure message=\"no {name}\">at {name}.go:1</failure>"),
                '-' => "<skipped/>".into(),
                _ => String::new(),
            };
            format!("<testcase name=\"[It] {name}\">{inside}</testcase>")
        });
        format!(
            "<testsuite name=\"s\">{}</testsuite>",
            tests.collect::<String>()
        )
    }

    /// Writes the files of a plugin with its parts and attempts; returns its outcome and tree.
    fn merged(sources: &[(&str, &str)]) -> (PluginOutcome, String) {
        let root = base::temp::Folder::new().unwrap();
        for (source, outcomes) in sources {
            let folder = root.join(source).join("results/global");
            fs::create_dir_all(&folder).unwrap();
            let text = if *outcomes == "broken" {
                "<testsuite".into()
            } else {
                junit(outcomes)
            };
            fs::write(folder.join("junit_01.xml"), text).unwrap();
        }
        let named = |part: &str| {
            let names = sources.iter().map(|(name, _)| (*name).to_owned());
            names
                .filter(|name| name.starts_with(part))
                .collect::<Vec<_>>()
        };
        let rules = ReadingRules {
            name: "p".into(),
            format: "junit".into(),
            parts: named("part"),
            attempts: named("retry"),
            ..ReadingRules::default()
        };
        let dir = root.join("p");
        let outcome = process(&dir, &rules).unwrap();
        (
            outcome,
            fs::read_to_string(dir.join(model::layout::TREE)).unwrap(),
        )
    }

    fn counts(outcome: &PluginOutcome) -> String {
        outcome
            .counts
            .iter()
            .map(|(status, count)| format!("{status} {count} "))
            .collect()
    }

    #[test]
    fn test_passing_in_a_later_attempt_is_flaky() {
        let (outcome, tree) = merged(&[("p", ".FF-"), ("retry-1", "-F.-"), ("retry-2", "-F--")]);
        assert_eq!(
            counts(&outcome),
            "failed 1 flaky 1 passed 1 skipped 1 ",
            "{tree}"
        );
        assert_eq!(outcome.status, FAILED);
        let attempts = |of: &str| {
            let from = tree
                .split(&format!("[It] {of}'"))
                .nth(1)
                .unwrap_or_else(|| panic!("{tree}"));
            from.split("- name")
                .next()
                .unwrap()
                .matches("- failure: no ")
                .count()
        };
        assert_eq!((attempts("b"), attempts("c")), (3, 1), "{tree}");
        let told: Vec<_> = outcome
            .nodes
            .iter()
            .map(|(name, outcome)| (name.as_str(), outcome.status.as_str()))
            .collect();
        assert_eq!(told, [("retry-1", FAILED), ("retry-2", FAILED)]);

        let (outcome, _) = merged(&[("p", ".FF-"), ("retry-1", "-..-")]);
        assert_eq!(
            (outcome.status.as_str(), counts(&outcome).as_str()),
            (PASSED, "flaky 2 passed 1 skipped 1 ")
        );
    }

    #[test]
    fn attempt_leaves_passed_tests_and_unreadable_ones_count_nothing() {
        let (outcome, _) = merged(&[("p", ".F--"), ("retry-1", "F---"), ("retry-2", "broken")]);
        assert_eq!(counts(&outcome), "failed 1 passed 1 skipped 2 ");
    }

    #[test]
    fn parts_merge_into_one_result() {
        let (outcome, tree) = merged(&[("p", ".---"), ("part-2", "-F--"), ("retry-1", "-.--")]);
        assert_eq!(counts(&outcome), "flaky 1 passed 1 skipped 2 ", "{tree}");
        assert!(
            tree.contains("file: ../part-2/results/global/junit_01.xml"),
            "{tree}"
        );
        // A part without selected tests adds nothing.
        let (outcome, tree) = merged(&[("p", "..--"), ("part-2", "----")]);
        assert_eq!(counts(&outcome), "passed 2 skipped 2 ", "{tree}");
        // The first part is unreadable: its tests are unknown, the others count.
        let (outcome, _) = merged(&[("p", "broken"), ("part-2", ".F--")]);
        assert_eq!(counts(&outcome), "failed 1 passed 1 unknown 1 ");
    }
}
