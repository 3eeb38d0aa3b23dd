//! Invariants of progress updates and damaged journals, called by the fuzzers and, with their
//! corpus, by a test.

use crate::aggregator::limits;
use crate::aggregator::run::progress;
use crate::aggregator::store::journal::{line, replay};

/// Accepts or rejects an update; the stored part stays within its limit.
pub fn progress(bytes: &[u8]) {
    if let Ok(update) = progress::decode(bytes) {
        let texts = update
            .failures
            .iter()
            .chain(&update.errors)
            .chain(&update.append_failing);
        let kept: usize = texts.map(String::len).sum();
        assert!(kept <= 4 * limits::MAX_PROGRESS_BYTES, "{kept} bytes");
    }
}

/// Reads a journal of arbitrary bytes; its records can be written and read again.
pub fn journal(bytes: &[u8]) {
    let records = replay(bytes).expect("memory does not fail").records;
    let mut text = Vec::new();
    for record in &records {
        text.extend(line(record).expect("a record").into_bytes());
    }
    assert_eq!(
        replay(text.as_slice())
            .expect("memory does not fail")
            .records
            .len(),
        records.len()
    );
}

#[cfg(test)]
mod tests {
    use base::testing::corpus;

    #[test]
    fn fuzz_findings_stay_fixed() {
        corpus("progress").for_each(|bytes| super::progress(&bytes));
        corpus("journal").for_each(|bytes| super::journal(&bytes));
    }
}
