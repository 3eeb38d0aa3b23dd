//! What must hold of what workers post and of a journal that was torn; called by the fuzzers and, with their corpus, by a
//! test.

use super::{journal, limits, progress};

/// An update is taken or refused, and no more of it is kept than its limit allows.
pub fn progress(bytes: &[u8]) {
    if let Some(update) = progress::decode(bytes) {
        let texts = update.failures.iter().chain(&update.errors).chain(&update.append_failing);
        let kept: usize = texts.map(String::len).sum();
        assert!(kept <= 4 * limits::MAX_PROGRESS_BYTES, "{kept} bytes");
    }
}

/// A journal of any bytes is read; what is read can be written and read again.
pub fn journal(bytes: &[u8]) {
    let records = journal::replay(bytes).expect("memory does not fail");
    let mut text = Vec::new();
    for record in &records {
        text.extend(journal::line(record).expect("a record").into_bytes());
    }
    assert_eq!(journal::replay(text.as_slice()).expect("memory does not fail").len(), records.len());
}

#[cfg(test)]
mod tests {
    use base::testing::corpus;

    #[test]
    fn what_fuzzers_found_stays_sound() {
        corpus("progress").for_each(|bytes| super::progress(&bytes));
        corpus("journal").for_each(|bytes| super::journal(&bytes));
    }
}
