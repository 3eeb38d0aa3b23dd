//! What tests of every wing share.

use std::io::Write as _;

/// Says that a test did not run, and why, where everybody sees it: what is printed is shown of failed tests only.
pub fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Every file in the corpus of a fuzzer.
#[cfg(test)]
pub(crate) fn corpus(name: &str) -> impl Iterator<Item = Vec<u8>> {
    let dir = format!("{}/../../tests/fixtures/fuzz/{name}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir}: {error}"));
    entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
}
