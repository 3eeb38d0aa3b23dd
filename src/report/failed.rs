//! Which tests of a plugin failed, for running only those again.

use super::{Depth, open};
use crate::item::read::{Visit, Writer, read};
use crate::item::{FAILED, Item, TIMEOUT};
use crate::layout;

/// What the test framework puts before the name of a test.
const PREFIX: &str = "[It]";

/// The names of the failed tests of a plugin in an archive, in their order; a blank after the prefix stays, as in the
/// pattern of the original.
pub(crate) fn failed(archive: &str, plugin: &str) -> anyhow::Result<Vec<String>> {
    let opened = open(archive, Some(plugin), Depth::Trees)?;
    let tree = layout::tree(plugin);
    let content = opened.files.open(&tree)?;
    let content = content.ok_or_else(|| anyhow::anyhow!("it holds no results of the plugin `{plugin}`"))?;
    let mut names = Names::default();
    read(content, Writer::Aggregator, &mut names)?;
    Ok(names.0)
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
        // A test without a name would be every test.
        if [FAILED, TIMEOUT].contains(&item.status.as_str()) && !name.trim().is_empty() {
            self.0.push(name.to_owned());
        }
        Ok(())
    }
}
