//! What tests of all crates share.

use std::io::Write as _;

/// Says that a test did not run since `missing` is missing, and why that is known, where everybody sees it: what is
/// printed is shown of failed tests only. Fails it where `SONOBUOY_TESTS` is `strict`, unless
/// `SONOBUOY_TESTS_MISSING` has that word, as for the black-box tests.
#[track_caller]
pub fn skipped(missing: &str, why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}: {why}");
    let variable = |name| std::env::var(name).unwrap_or_default();
    let known = variable("SONOBUOY_TESTS_MISSING").split_whitespace().any(|word| word == missing);
    assert!(
        known || variable("SONOBUOY_TESTS") != "strict",
        "SONOBUOY_TESTS=strict, and SONOBUOY_TESTS_MISSING does not name `{missing}`: {why}"
    );
}

/// Every file in the corpus of a fuzzer.
pub fn corpus(name: &str) -> impl Iterator<Item = Vec<u8>> {
    let dir = format!("{}/../../tests/fixtures/fuzz/{name}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir}: {error}"));
    entries.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a file"))
}
