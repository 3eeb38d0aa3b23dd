//! The failed tests of a plugin, to run only those again.

use std::io::{Read, Seek};
use std::time::Duration;

use super::{Depth, Overview, open};
use crate::item::read::{Visit, Writer, read};
use crate::item::{FAILED, Item, SKIPPED, TIMEOUT, plain};
use crate::layout;

/// The test framework's prefix of test names.
const PREFIX: &str = "[It]";

/// Other entries that the framework reports.
const SUITE_NODES: [&str; 9] = [
    "[BeforeSuite]",
    "[AfterSuite]",
    "[SynchronizedBeforeSuite]",
    "[SynchronizedAfterSuite]",
    "[ReportBeforeSuite]",
    "[ReportAfterSuite]",
    "[DeferCleanup (Suite)]",
    "[CleanupAfterSuite]",
    "[CleanupAfterAll]",
];

/// The names of the failed tests of a plugin in an archive, in order; the blank after the prefix remains, as in the
/// original's pattern.
pub(crate) fn failed(archive: &str, plugin: &str) -> anyhow::Result<Vec<String>> {
    let opened = open(archive, Some(plugin), Depth::Trees)?;
    let tree = layout::tree(plugin);
    let content = opened.files.open(&tree)?;
    let content =
        content.ok_or_else(|| anyhow::anyhow!("it contains no results of the plugin `{plugin}`"))?;
    failed_in(content)
}

/// Average duration of a plugin's tests: of the `chosen` ones, if the archive has any.
pub(crate) fn per_test(
    archive: &str,
    plugin: &str,
    chosen: &dyn Fn(&str) -> bool,
) -> anyhow::Result<Duration> {
    let opened = open(archive, Some(plugin), Depth::Tests)?;
    let overview = Overview::read(&opened, None)?;
    let (mut of_chosen, mut of_all) = ((0.0, 0_u32), (0.0, 0));
    for plugin in &overview.plugins {
        overview.leaves(plugin, |leaf| {
            if leaf.status() != SKIPPED
                && !is_suite_node(&leaf.item.name)
                && let Some(took) = leaf.duration
            {
                of_all = (of_all.0 + took, of_all.1 + 1);
                if chosen(plain(&leaf.item.name)) {
                    of_chosen = (of_chosen.0 + took, of_chosen.1 + 1);
                }
            }
            Ok(())
        })?;
    }
    let (seconds, count) = if of_chosen.1 > 0 { of_chosen } else { of_all };
    anyhow::ensure!(count > 0, "it does not say how long any test of the plugin `{plugin}` took");
    Ok(Duration::try_from_secs_f64(seconds / f64::from(count))?)
}

/// The names of the failed tests in a tree of results.
pub(crate) fn failed_in(tree: impl Read + Seek) -> anyhow::Result<Vec<String>> {
    let mut names = Names::default();
    read(tree, Writer::Aggregator, &mut names)?;
    Ok(names.0)
}

/// Whether the entry is a suite node, which always runs and cannot be selected.
pub(crate) fn is_suite_node(name: &str) -> bool {
    SUITE_NODES.iter().any(|node| name.starts_with(node))
}

#[derive(Default)]
struct Names(Vec<String>);

impl Visit for Names {
    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        let name = item.name.strip_prefix(PREFIX).unwrap_or(&item.name);
        // The item of a missing or unreadable result names its file; a test has that of its group.
        if item.meta.contains_key("file") || is_suite_node(name) {
            return Ok(());
        }
        // A test without a name would match every test.
        if [FAILED, TIMEOUT].contains(&item.status.as_str()) && !name.trim().is_empty() {
            self.0.push(name.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_take_as_long_as_those_that_are_chosen_took() {
        let folder = base::temp::Folder::new().unwrap();
        let plugin = folder.join(layout::plugin("e2e"));
        std::fs::create_dir_all(plugin.join("results/global")).unwrap();
        let tests =
            [("a", 10, "passed"), ("b", 20, "failed"), ("slow", 600, "passed"), ("not", 7, "skipped")];
        let (mut tree, mut junit) =
            (String::from("name: e2e\nstatus: failed\nitems:\n"), String::from("<testsuite>"));
        tree.push_str("- name: junit_01.xml\n  status: failed\n  meta:\n    file: results/global/junit_01.xml\n  items:\n");
        for (name, seconds, status) in tests {
            tree.push_str(&format!("  - name: '[It] {name}'\n    status: {status}\n"));
            junit.push_str(&format!("<testcase name='[It] {name}' time='{seconds}'/>"));
        }
        tree.push_str("  - name: '[BeforeSuite]'\n    status: passed\n");
        junit.push_str("<testcase name='[BeforeSuite]' time='900'/></testsuite>");
        std::fs::write(plugin.join(layout::TREE), tree).unwrap();
        std::fs::write(plugin.join("results/global/junit_01.xml"), junit).unwrap();
        let archive = folder.display().to_string();
        let of = |chosen: &dyn Fn(&str) -> bool| per_test(&archive, "e2e", chosen).unwrap().as_secs();
        assert_eq!(of(&|name| name.len() == 1), 15);
        assert_eq!(of(&|_| true), 210);
        assert_eq!(of(&|name| name == "not"), 210, "none of them has run");
    }
}
