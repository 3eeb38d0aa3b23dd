//! Test helpers shared by all crates.

use std::io::Write as _;

/// Reports that a test was skipped since `missing` is missing, and the evidence. Writes to stderr
/// directly, since captured output is shown only for failed tests. Fails the test if
/// `SONOBUOY_TESTS` is `strict`, unless `SONOBUOY_TESTS_MISSING` contains that word, as in the
/// black-box tests.
#[track_caller]
pub fn skipped(missing: &str, why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}: {why}");
    let variable = |name| std::env::var(name).unwrap_or_default();
    let known = variable("SONOBUOY_TESTS_MISSING")
        .split_whitespace()
        .any(|word| word == missing);
    assert!(
        known || variable("SONOBUOY_TESTS") != "strict",
        "SONOBUOY_TESTS=strict, and SONOBUOY_TESTS_MISSING does not name `{missing}`: {why}"
    );
}

/// Files in the corpus of a fuzzer.
pub fn corpus(name: &str) -> impl Iterator<Item = Vec<u8>> {
    let dir = format!(
        "{}/../../tests/fixtures/fuzz/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir}: {error}"));
    entries.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a file"))
}
