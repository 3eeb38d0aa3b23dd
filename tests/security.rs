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
    ["src", "tests"]
        .iter()
        .for_each(|folder| tests(&root.join(folder), &mut known));
    let page = std::fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let (_, promises) = page.split_once("## What is promised").unwrap();
    let (promises, _) = promises.split_once("## What is not promised").unwrap();
    let promises: Vec<&str> = promises.split("\n* ").skip(1).collect();
    assert!(promises.len() > 30);
    for promise in promises {
        let named = promise
            .split_once("<!-- tests: ")
            .and_then(|(_, rest)| rest.split_once(" -->"));
        let named: Vec<&str> = named
            .map(|(names, _)| names.split_whitespace().collect())
            .unwrap_or_default();
        assert!(!named.is_empty(), "no test: {promise}");
        for name in named {
            assert!(
                known.iter().any(|test| test == name),
                "missing test `{name}`: {promise}"
            );
        }
    }
}

/// The names in a folder, without their extensions, in order.
fn names_in(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = entries
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn every_fuzz_target_is_compiled_and_run_nightly() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let manifest = read("fuzz/Cargo.toml");
    let binaries = manifest.split("[[bin]]\n").skip(1);
    let mut binaries: Vec<&str> = binaries
        .map(|binary| binary.split('"').nth(1).unwrap())
        .collect();
    binaries.sort_unstable();
    assert_eq!(binaries, names_in("fuzz/fuzz_targets"));
    assert_eq!(
        binaries,
        names_in("tests/fixtures/fuzz"),
        "each begins with an example"
    );
    let nightly = read(".github/workflows/fuzz.yml");
    for line in [
        "  schedule:",
        "fuzz build",
        "for target in $(cargo +nightly fuzz list)",
        "-max_total_time=60",
    ] {
        assert!(nightly.contains(line), "{line}");
    }
    assert!(
        read(".github/workflows/ci.yml").contains("cargo check --manifest-path fuzz/Cargo.toml")
    );
    let wrapped =
        "RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/ci/rustc-fuzzing cargo check --locked --lib";
    assert!(read("scripts/test").contains(wrapped));
    assert!(read("scripts/ci/rustc-fuzzing").contains("exec \"$@\" --cfg fuzzing"));
}
