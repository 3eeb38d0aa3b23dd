//! What to run again: the failed e2e tests, and those that an interrupted run lacks; and the
//! average duration of a test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::archive::{ArchiveSource, Depth, OpenedArchive, PassAction};
use super::run::Report;
use base::visible::head;
use model::item::read::items;
use model::item::{
    FAILED, FAILURE, Item, NOT_RUN, SKIPPED, UNKNOWN, is_failure, is_suite_node, plain,
};
use model::layout;
use model::plugin::builtin::E2E;
use model::plugin::focus::{FOCUS, SKIP};

/// The test framework's prefix of test names.
const PREFIX: &str = "[It]";

/// The names of the failed e2e tests in an archive, in order; the blank after the prefix remains,
/// as in the original's pattern.
pub fn failed(archive: &str) -> Result<Vec<String>> {
    failed_in(OpenedArchive::open(archive, Some(E2E), Depth::Trees)?.tree(E2E)?)
}

/// Average duration of an e2e test: of the `chosen` ones, if the archive has any.
pub fn per_test(archive: &str, chosen: &dyn Fn(&str) -> bool) -> Result<Duration> {
    let archive = OpenedArchive::open(archive, Some(E2E), Depth::Tests)?;
    let (mut of_chosen, mut of_all) = (Vec::new(), Vec::new());
    for plugin in Report::read(&archive, None)?.plugins {
        plugin.cases.each(|case| {
            let took = case
                .duration
                .filter(|_| case.status != SKIPPED && !is_suite_node(case.name));
            of_all.extend(took);
            of_chosen.extend(took.filter(|_| chosen(plain(case.name))));
            Ok(())
        })?;
    }
    let took = if of_chosen.is_empty() {
        of_all
    } else {
        of_chosen
    };
    ensure!(
        !took.is_empty(),
        "it does not say how long any test of the plugin `{E2E}` took"
    );
    Ok(Duration::try_from_secs_f64(
        took.iter().sum::<f64>() / took.len() as f64,
    )?)
}

/// The names of the tests in a tree of results that failed, or did not run although they were
/// selected.
pub fn failed_in(tree: impl Read) -> Result<Vec<String>> {
    let mut names = Vec::new();
    items(tree, None, |_, item| {
        let name = item.name.strip_prefix(PREFIX).unwrap_or(&item.name);
        // A suite that ran out of time names the tests that it did not reach.
        let is_failed = is_failure(&item.status) || item.details.contains_key(NOT_RUN);
        if is_test(&item, name) && is_failed {
            names.push(name.to_owned());
        }
        Ok(())
    })?;
    Ok(names)
}

/// Whether an item of this name is a test. That of a missing or unreadable result names its file; a
/// test has that of its group. A test without a name would match every test.
fn is_test(item: &Item, name: &str) -> bool {
    !item.meta.contains_key("file") && !is_suite_node(name) && !name.trim().is_empty()
}

/// A run that was interrupted.
pub struct Interrupted {
    /// Its id.
    pub run: String,
    /// The focus and the skip pattern of its tests.
    pub focus: String,
    /// See `focus`.
    pub skip: String,
    /// The tests that have run, with the reason if failed, else empty.
    pub ran: BTreeMap<String, String>,
}

/// Maximum bytes of a failure's reason passed to the next run, and of all reasons.
const MAX_FAILURE_BYTES: usize = 1 << 10;
const MAX_FAILURES_BYTES: usize = 64 << 10;

/// The interrupted run of the e2e tests in an archive.
pub fn interrupted(archive: &str) -> Result<Interrupted> {
    let mut failed = BTreeSet::new();
    let files = ArchiveSource::open(archive)?.extract(|_, name, _, _| {
        let delivered = layout::delivered(name).filter(|delivered| !delivered.is_result);
        failed.extend(delivered.map(|delivered| delivered.plugin.to_owned()));
        Ok(PassAction::keep_if(
            name == layout::CONFIG
                || layout::is_definition(name)
                || layout::is_tree(name)
                || layout::plugin_of_ran(name).is_some(),
        ))
    })?;
    let (mut focuses, mut skip, mut ran, mut is_whole) =
        (Vec::new(), String::new(), BTreeMap::new(), true);
    for name in files.folders(layout::PLUGINS) {
        let definition = layout::definition(&name);
        let definition: Value = files.json(&definition)?;
        let results_plugin = definition
            .pointer("/Definition/sonobuoy-config/part-of")
            .and_then(Value::as_str);
        if results_plugin.unwrap_or(&name) != E2E || layout::is_attempt(&name, E2E) {
            continue;
        }
        let variables = definition
            .pointer("/Definition/spec/env")
            .and_then(Value::as_array);
        let env = |wanted: &str| {
            let mut all = variables.into_iter().flatten();
            all.find(|variable| variable["name"] == wanted)?["value"]
                .as_str()
                .map(str::to_owned)
        };
        focuses.push(env(FOCUS).unwrap_or_default());
        skip = env(SKIP).unwrap_or(skip);
        is_whole &= !failed.contains(&name);
        let list = files.small(&layout::ran(&name))?.unwrap_or_default();
        ran.extend(String::from_utf8_lossy(&list).lines().filter_map(|line| {
            let why = if line.starts_with(layout::FAILED_TEST) {
                FAILED
            } else {
                ""
            };
            Some((layout::ran_test(line)?.to_owned(), why.to_owned()))
        }));
    }
    ensure!(!focuses.is_empty(), "it has no plugin `{E2E}`");
    ensure!(
        !is_whole,
        "all of its tests have run; `--rerun-failed` runs the failed ones again"
    );
    if let Some(tree) = files.open(&layout::tree(E2E)) {
        let mut room = MAX_FAILURES_BYTES;
        items(tree, None, |_, item| {
            ran.extend(outcome(&item, &mut room));
            Ok(())
        })?;
    }
    let config: Value = files.json(layout::CONFIG)?;
    // The interrupted run may itself have resumed another one.
    for (name, why) in config["ResumedTests"].as_object().into_iter().flatten() {
        ran.entry(name.clone())
            .or_insert_with(|| why.as_str().unwrap_or_default().to_owned());
    }
    ensure!(
        !ran.is_empty(),
        "it does not say which tests have run; start a new run"
    );
    let run = config["UUID"]
        .as_str()
        .context("it does not say which run it belongs to")?
        .to_owned();
    Ok(Interrupted {
        run,
        focus: focuses.join("|"),
        skip,
        ran,
    })
}

/// A test that ran, with the reason if it failed; `room` is the number of bytes left for reasons.
fn outcome(item: &Item, room: &mut usize) -> Option<(String, String)> {
    let name = plain(&item.name);
    if !is_test(item, name) || [SKIPPED, UNKNOWN, ""].contains(&&*item.status) {
        return None;
    }
    let mut why = String::new();
    if is_failure(&item.status) {
        let text = item
            .details
            .get(FAILURE)
            .and_then(Value::as_str)
            .unwrap_or(FAILED);
        let text = head(text, MAX_FAILURE_BYTES.min(*room));
        *room -= text.len();
        why = if text.trim().is_empty() { FAILED } else { text }.to_owned();
    }
    Some((name.to_owned(), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_sums_the_chosen_tests() {
        let folder = base::temp::Folder::new().unwrap();
        let plugin = folder.join(layout::plugin("e2e"));
        std::fs::create_dir_all(plugin.join("results/global")).unwrap();
        let tests = [
            ("a", 10, "passed"),
            ("b", 20, "failed"),
            ("slow", 600, "passed"),
            ("not", 7, "skipped"),
        ];
        let (mut tree, mut junit) = (
            String::from("name: e2e\nstatus: failed\nitems:\n"),
            String::from("<testsuite>"),
        );
        tree.push_str(
            "- name: junit_01.xml\n  status: failed\n  meta:\n    file: \
             results/global/junit_01.xml\n  items:\n",
        );
        for (name, seconds, status) in tests {
            tree.push_str(&format!("  - name: '[It] {name}'\n    status: {status}\n"));
            junit.push_str(&format!("<testcase name='[It] {name}' time='{seconds}'/>"));
        }
        tree.push_str("  - name: '[BeforeSuite]'\n    status: passed\n");
        junit.push_str("<testcase name='[BeforeSuite]' time='900'/></testsuite>");
        std::fs::write(plugin.join(layout::TREE), tree).unwrap();
        std::fs::write(plugin.join("results/global/junit_01.xml"), junit).unwrap();
        let archive = folder.display().to_string();
        let of = |chosen: &dyn Fn(&str) -> bool| per_test(&archive, chosen).unwrap().as_secs();
        assert_eq!(of(&|name| name.len() == 1), 15);
        assert_eq!(of(&|_| true), 210);
        assert_eq!(of(&|name| name == "not"), 210, "none of them has run");
    }
}
