//! Properties of results with arbitrary bytes; called by the fuzzers and, with their corpus, by a test.

use std::fs;

use super::{Rules, process};
use crate::item::Item;
use crate::item::read::{self, Visit};
use crate::layout::{RESULTS, TREE};

/// A plugin with the single file `bytes` yields a readable tree whose root has the plugin's name.
pub fn file(format: &str, bytes: &[u8]) {
    let suffix = match format {
        "junit" => "xml",
        "gojson" => "json",
        _ => "yaml",
    };
    let dir = base::temp::Folder::in_memory().expect("a folder");
    let results = dir.join(RESULTS).join("global");
    fs::create_dir_all(&results).expect("a folder");
    fs::write(results.join(format!("a.{suffix}")), bytes).expect("a file");
    let rules = Rules { name: "p".into(), format: format.into(), ..Rules::default() };
    process(&dir, &rules).expect("a bad file is an item");
    let mut roots = Roots::default();
    let tree = fs::File::open(dir.join(TREE)).expect("a tree");
    read::read(tree, read::Writer::Aggregator, &mut roots).expect("a tree that can be read");
    assert_eq!((roots.name.as_str(), roots.depth), ("p", 0));
    assert!(!dir.join("sonobuoy_results.yaml.part").exists());
}

/// A tree of arbitrary bytes is read or rejected, and reading leaves every group it enters.
pub fn tree(bytes: &[u8]) {
    let mut roots = Roots::default();
    if read::read(std::io::Cursor::new(bytes), read::Writer::Plugin, &mut roots).is_ok() {
        assert_eq!(roots.depth, 0);
    }
}

#[derive(Default)]
struct Roots {
    depth: u32,
    name: String,
}

impl Visit for Roots {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        if self.depth == 0 {
            self.name = item.name;
        }
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        self.depth -= 1;
        Ok(())
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        if self.depth == 0 {
            self.name = item.name;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base::testing::corpus;

    #[test]
    fn what_fuzzers_found_stays_sound() {
        for format in ["junit", "gojson", "manual"] {
            corpus(format).for_each(|bytes| super::file(format, &bytes));
        }
        corpus("tree").for_each(|bytes| super::tree(&bytes));
    }
}
