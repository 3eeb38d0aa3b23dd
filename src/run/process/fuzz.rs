//! Properties of results with arbitrary bytes; called by the fuzzers and, with their corpus, by a
//! test.

use std::fs;
use std::io::Read;

use super::{ReadingRules, process};
use model::item::Step;
use model::item::read::{self, Writer};
use model::layout::{RESULTS, TREE};

/// A plugin with the single file `bytes` yields a readable tree whose root has the plugin's name.
pub fn file(format: &str, bytes: &[u8]) {
    let suffix = match format {
        "junit" => "xml",
        "gojson" => "json",
        _ => "yaml",
    };
    let dir = base::temp::Folder::new().expect("a folder");
    let results = dir.join(RESULTS).join("global");
    fs::create_dir_all(&results).expect("a folder");
    fs::write(results.join(format!("a.{suffix}")), bytes).expect("a file");
    let rules = ReadingRules {
        name: "p".into(),
        format: format.into(),
        ..ReadingRules::default()
    };
    process(&dir, &rules).expect("a bad file is an item");
    let tree = fs::File::open(dir.join(TREE)).expect("a tree");
    let (name, depth) = walk(tree, Writer::Aggregator).expect("a tree that can be read");
    assert_eq!((name.as_str(), depth), ("p", 0));
    assert!(!dir.join("sonobuoy_results.yaml.part").exists());
}

/// A tree of arbitrary bytes is read or rejected, and reading leaves every group it enters.
pub fn tree(bytes: &[u8]) {
    if let Ok((_, depth)) = walk(bytes, Writer::Plugin) {
        assert_eq!(depth, 0);
    }
}

/// The name of a tree's root, and the number of groups that were not left.
fn walk(tree: impl Read, writer: Writer) -> anyhow::Result<(String, u32)> {
    let (mut root, mut depth) = (String::new(), 0);
    read::read(tree, writer, &mut |step| {
        match step {
            Step::Item(item) if depth == 0 => root = item.name,
            Step::Item(_) => {}
            Step::Leave => depth -= 1,
            Step::Enter(item) => {
                if depth == 0 {
                    root = item.name;
                }
                depth += 1;
            }
        }
        Ok(())
    })?;
    Ok((root, depth))
}

#[cfg(test)]
mod tests {
    use base::testing::corpus;

    #[test]
    fn fuzz_findings_stay_fixed() {
        for format in ["junit", "gojson", "manual"] {
            corpus(format).for_each(|bytes| super::file(format, &bytes));
        }
        corpus("tree").for_each(|bytes| super::tree(&bytes));
    }
}
