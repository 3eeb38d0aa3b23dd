//! What each principal may take of the aggregator, in one table: a connection, a plugin, one result, the whole run.
//!
//! | what | of whom | how much | beyond that |
//! | --- | --- | --- | --- |
//! | connections without a certificate | all strangers together | [`base::http::Limits::strangers`] | who has kept us waiting longest goes, of the address that holds most |
//! | handshakes under way | all together | [`base::http::Limits::handshakes`] | the next waits its turn |
//! | uploads at once | a plugin | three quarters of [`base::http::Limits::large`] | it waits; 503 with Retry-After when too many wait |
//! | small requests at once | a plugin | three quarters of [`base::http::Limits::small`] | it waits; what dawdles while others wait is told 503 with Retry-After |
//! | bytes of a progress report | a request | [`PROGRESS_BODY`] | 413 |
//! | bytes being decoded | the run | [`DECODING`] | 503 with Retry-After |
//! | a text in progress | a request | [`TEXT`] | it is cut, with a mark |
//! | progress kept | a result | its part of [`PROGRESS_KEPT`], at most [`PROGRESS_OF_ONE`] | the list ends with a mark, and `status` says so |
//! | bytes of a result, as sent and unpacked; entries | a result | `Limits.Results` | 413, recorded as its failure |
//! | disk: bytes kept free | the run | `Limits.Results` | 507 |
//! | an error report | a result | [`ERROR_REPORT`], its sentence [`SENTENCE`] | cut |
//! | processing: memory, time, distinct statuses | a plugin | `process` | its failure, with the reason |
//!
//! What is kept in memory stays below the limit of the pod, whatever the number of plugins and nodes; of the disk no
//! plugin has a share of its own yet. Owns sizes and the arithmetic
//! of shares; who is asked is decided where the request is.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest progress update; a suite with all of its 7,000 tests failed needs about 1 MiB.
pub(super) const PROGRESS_BODY: u64 = 4 << 20;
/// Bodies that are in memory at once to be decoded.
pub(super) const DECODING: u64 = 16 << 20;
/// One text of a progress update.
pub(super) const TEXT: usize = 2 << 10;
/// What is kept of the progress of all results.
pub(super) const PROGRESS_KEPT: usize = 24 << 20;
/// What is kept of the progress of one result at most.
pub(super) const PROGRESS_OF_ONE: usize = 1 << 20;
/// What may be kept of the progress of one result however many there are.
const PROGRESS_LEAST: usize = 1 << 10;
/// A worker's report that there is no result; a pod description is some tens of KiB.
pub(super) const ERROR_REPORT: u64 = 1 << 20;
/// What is kept in memory of the sentence in such a report.
pub(super) const SENTENCE: usize = 4 << 10;

/// What one result's progress may take, where `plugins` share alike and this plugin has so many `results`.
pub(super) fn progress_share(plugins: usize, results: usize) -> usize {
    (PROGRESS_KEPT / plugins.max(1) / results.max(1)).clamp(PROGRESS_LEAST, PROGRESS_OF_ONE)
}

/// `text` cut after `most` bytes at a character, with a mark.
pub(super) fn cut(text: String, most: usize) -> String {
    if text.len() <= most { text } else { beginning(&text, most).into_owned() }
}

/// As above, of a text that is not ours.
pub(super) fn beginning(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let at = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Cow::Owned([&text[..at], "…"].concat())
}

/// An amount that several take from at once.
pub(super) struct Pool {
    left: AtomicU64,
}

/// Part of a pool, given back when it is dropped.
pub(super) struct Share<'a> {
    pool: &'a Pool,
    amount: u64,
}

impl Pool {
    pub(super) const fn new(amount: u64) -> Self {
        Self { left: AtomicU64::new(amount) }
    }

    /// Takes `amount`, if so much is left.
    pub(super) fn take(&self, amount: u64) -> Option<Share<'_>> {
        let rest = |left: u64| left.checked_sub(amount);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).ok()?;
        Some(Share { pool: self, amount })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.pool.left.fetch_add(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_no_more_than_there_is() {
        for (plugins, results) in [(1, 1), (2, 1), (2, 5_000), (40, 100), (1, 20_000)] {
            let share = progress_share(plugins, results);
            assert!(share * plugins * results <= PROGRESS_KEPT, "{plugins} {results}: {share}");
        }
        assert_eq!(
            progress_share(2, 1),
            PROGRESS_OF_ONE,
            "a suite beside a plugin of many nodes is told whole"
        );
    }

    #[test]
    fn a_pool_gives_what_it_has_and_takes_it_back() {
        let pool = Pool::new(10);
        let first = pool.take(6).unwrap();
        assert!(pool.take(5).is_none());
        let second = pool.take(4).unwrap();
        drop(first);
        assert!(pool.take(6).is_some());
        drop(second);
        assert!(pool.take(10).is_some());
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        assert_eq!(cut("äöü".into(), 6), "äöü");
        assert_eq!(cut("äöü".into(), 5), "äö…");
    }
}
