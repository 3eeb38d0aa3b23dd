//! Which tests of a plugin failed, for running only those again.

use super::read::{Visit, Writer, read};
use super::{Depth, RESULTS_FILE, open};
use crate::item::{FAILED, Item};

/// What the test framework puts before the name of a test.
const PREFIX: &str = "[It]";

/// The names of the failed tests of a plugin in an archive, each once, in their order.
pub fn failed(archive: &str, plugin: &str) -> anyhow::Result<Vec<String>> {
    let opened = open(archive, Some(plugin), Depth::Trees)?;
    let tree = format!("plugins/{plugin}/{RESULTS_FILE}");
    let content = opened.files.open(&tree)?;
    let content = content.ok_or_else(|| anyhow::anyhow!("it holds no results of the plugin `{plugin}`"))?;
    let mut names = Names::default();
    read(content, Writer::Aggregator, &mut names)?;
    Ok(names.list)
}

#[derive(Default)]
struct Names {
    list: Vec<String>,
    seen: std::collections::HashSet<String>,
}

impl Visit for Names {
    fn enter(&mut self, _item: Item) -> anyhow::Result<()> {
        Ok(())
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        let name = item.name.strip_prefix(PREFIX).unwrap_or(&item.name).trim();
        if item.status == FAILED && !name.is_empty() && self.seen.insert(name.to_owned()) {
            self.list.push(name.to_owned());
        }
        Ok(())
    }
}
