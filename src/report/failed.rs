//! Which tests of a plugin failed, for running only those again.

use std::io::{Read, Seek};
use std::time::Duration;

use super::{Depth, Overview, open};
use crate::item::read::{Visit, Writer, read};
use crate::item::{FAILED, Item, SKIPPED, TIMEOUT};
use crate::layout;

/// What the test framework puts before the name of a test.
const PREFIX: &str = "[It]";

/// What it lists beside tests.
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

/// The names of the failed tests of a plugin in an archive, in their order; a blank after the prefix stays, as in the
/// pattern of the original.
pub(crate) fn failed(archive: &str, plugin: &str) -> anyhow::Result<Vec<String>> {
    let opened = open(archive, Some(plugin), Depth::Trees)?;
    let tree = layout::tree(plugin);
    let content = opened.files.open(&tree)?;
    let content = content.ok_or_else(|| anyhow::anyhow!("it holds no results of the plugin `{plugin}`"))?;
    failed_in(content)
}

/// How long a test of a plugin took on average.
pub(crate) fn per_test(archive: &str, plugin: &str) -> anyhow::Result<Duration> {
    let opened = open(archive, Some(plugin), Depth::Tests)?;
    let overview = Overview::read(&opened, None)?;
    let (mut seconds, mut count) = (0.0, 0_u32);
    for plugin in &overview.plugins {
        overview.leaves(plugin, |leaf| {
            if leaf.status() != SKIPPED
                && !is_suite_node(&leaf.item.name)
                && let Some(took) = leaf.duration
            {
                seconds += took;
                count += 1;
            }
            Ok(())
        })?;
    }
    anyhow::ensure!(count > 0, "it tells of no test of the plugin `{plugin}` how long it took");
    Ok(Duration::try_from_secs_f64(seconds / f64::from(count))?)
}

/// The names of the failed tests in a tree of results.
pub(crate) fn failed_in(tree: impl Read + Seek) -> anyhow::Result<Vec<String>> {
    let mut names = Names::default();
    read(tree, Writer::Aggregator, &mut names)?;
    Ok(names.0)
}

/// The name of a test without what the framework puts before it.
pub(super) fn plain(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name).trim()
}

/// Whether the framework lists this beside its tests; it always runs, and cannot be chosen.
pub(crate) fn is_suite_node(name: &str) -> bool {
    SUITE_NODES.iter().any(|node| name.starts_with(node))
}

#[derive(Default)]
struct Names(Vec<String>);

impl Visit for Names {
    fn enter(&mut self, _item: Item) -> anyhow::Result<()> {
        Ok(())
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        let name = item.name.strip_prefix(PREFIX).unwrap_or(&item.name);
        // What stands for a result that never came, or cannot be read, names its file; a test has that of its group.
        if item.meta.contains_key("file") || is_suite_node(name) {
            return Ok(());
        }
        // A test without a name would be every test.
        if [FAILED, TIMEOUT].contains(&item.status.as_str()) && !name.trim().is_empty() {
            self.0.push(name.to_owned());
        }
        Ok(())
    }
}
