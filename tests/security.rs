//! SECURITY.md: each promise names existing tests.

use std::path::Path;

/// The names of all tests below a folder.
fn tests(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                is_test |= line == "#[test]";
                if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
                    found.extend(rest.split('(').next().map(str::to_owned));
                    is_test = false;
                }
            }
        }
    }
}

#[test]
fn promises_name_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = Vec::new();
    ["src", "tests"].iter().for_each(|folder| tests(&root.join(folder), &mut known));
    let page = std::fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let (_, promises) = page.split_once("## What is promised").unwrap();
    let (promises, _) = promises.split_once("## What is not promised").unwrap();
    let promises: Vec<&str> = promises.split("\n* ").skip(1).collect();
    assert!(promises.len() > 30);
    for promise in promises {
        let named = promise.split_once("<!-- tests: ").and_then(|(_, rest)| rest.split_once(" -->"));
        let named: Vec<&str> = named.map(|(names, _)| names.split_whitespace().collect()).unwrap_or_default();
        assert!(!named.is_empty(), "no test: {promise}");
        for name in named {
            assert!(known.iter().any(|test| test == name), "missing test `{name}`: {promise}");
        }
    }
}
