//! The uploads of a result that are under way: one at a time, and few small ones beside it. Another waits, or takes the
//! place of one that brings next to nothing.
//!
//! A worker whose connection died without a word begins again, and shall not wait for the dead one; nor shall an honest
//! one for somebody who holds the place of its result. Knows neither states nor connections; starts no thread.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::http::{Meter, Waits};

/// Who was waited for so long in vain makes room. Older workers try three times within two seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);
/// What brings less, in bytes a second, brings next to nothing.
const LEAST_RATE: u64 = 8 << 10;
/// Up to so many bytes a result may come beside another upload of it: that costs next to nothing, and nobody can be kept
/// from it.
const BESIDE: u64 = 64 << 10;
/// So many of those at a time.
const MAX_BESIDE: usize = 2;
/// So many reports of errors are taken in the place of one result; a worker has one to tell, or a few.
const MAX_REPORTS: u32 = 16;
/// So long another waits for the one under way to end or to make room.
pub(super) const TURN_TIMEOUT: Duration = Duration::from_secs(2);

/// The uploads of a result that are under way.
#[derive(Default)]
pub(super) struct Uploads {
    large: Vec<Arc<Attempt>>,
    small: Vec<Arc<Attempt>>,
    /// How many reports of errors came instead.
    reports: u32,
}

impl Uploads {
    /// Begins one of that length; none if too many others go on.
    pub(super) fn begin(&mut self, length: Option<u64>, now: Instant) -> Option<Arc<Attempt>> {
        let (uploads, most) = match length {
            Some(..=BESIDE) => (&mut self.small, MAX_BESIDE),
            _ => (&mut self.large, 1),
        };
        if uploads.len() >= most {
            let yielding = uploads.iter().position(|other| other.yields(now))?;
            uploads.swap_remove(yielding);
        }
        let attempt = Arc::default();
        uploads.push(Arc::clone(&attempt));
        Some(attempt)
    }

    /// One has ended, well or not.
    pub(super) fn end(&mut self, attempt: &Arc<Attempt>) {
        self.large.retain(|upload| !Arc::ptr_eq(upload, attempt));
        self.small.retain(|upload| !Arc::ptr_eq(upload, attempt));
    }

    /// What those under way have brought.
    pub(super) fn bytes(&self) -> u64 {
        self.large.iter().chain(&self.small).map(|upload| upload.0.waits().bytes).sum()
    }

    /// Counts one more report of an error; false if there were too many.
    pub(super) fn may_report(&mut self) -> bool {
        self.reports = self.reports.saturating_add(1);
        self.reports <= MAX_REPORTS
    }

    /// Nobody waits for any of them any more.
    pub(super) fn abandon(&self) {
        self.large.iter().chain(&self.small).for_each(|upload| upload.0.dismiss());
    }
}

/// An upload under way.
#[derive(Default)]
pub(super) struct Attempt(Meter);

impl Attempt {
    /// Notes how long `read` waits for the sender, and what it brings.
    pub(super) fn reading(&self, read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        self.0.time(false, read)
    }

    /// Whether another took its place.
    pub(super) fn is_superseded(&self) -> bool {
        self.0.dismissed()
    }

    /// Lets another take its place, if its sender keeps us waiting; what has come whole stays.
    fn yields(&self, now: Instant) -> bool {
        let yields = is_in_vain(&self.0.waits(), now);
        if yields {
            self.0.dismiss();
        }
        yields
    }
}

/// Whether a sender that is waited for brings next to nothing.
fn is_in_vain(waits: &Waits, now: Instant) -> bool {
    let Some(since) = waits.since else { return false };
    let waited = waits.until(now);
    let least = u128::from(LEAST_RATE) * waited.as_millis() / 1_000;
    now.saturating_duration_since(since) >= SILENCE_TIMEOUT
        || waited >= SILENCE_TIMEOUT && u128::from(waits.bytes) < least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_upload_and_two_small_ones_go_on_at_a_time() {
        let mut uploads = Uploads::default();
        for (length, most) in [(None, 1), (Some(BESIDE + 1), 1), (Some(BESIDE), 2), (Some(0), 2)] {
            let mut begin = || uploads.begin(length, Instant::now());
            let begun: Vec<_> = (0..most).map(|_| begin().unwrap()).collect();
            assert!(begin().is_none(), "{length:?}");
            uploads.end(&begun[0]);
            let again = uploads.begin(length, Instant::now()).unwrap();
            begun[1..].iter().chain([&again]).for_each(|attempt| uploads.end(attempt));
        }
    }

    #[test]
    fn only_who_is_waited_for_in_vain_loses_its_place() {
        let attempt = Attempt::default();
        let later = Instant::now() + SILENCE_TIMEOUT * 2;
        assert!(!attempt.yields(later), "it is at work");
        let read = |bytes: usize, check: &dyn Fn()| {
            let read = || {
                check();
                Ok(bytes)
            };
            attempt.reading(read).unwrap()
        };
        read(100, &|| assert!(!attempt.yields(Instant::now())));
        assert!(!attempt.is_superseded());
        read(0, &|| assert!(attempt.yields(later)));
        assert!(attempt.is_superseded());
    }

    #[test]
    fn who_trickles_loses_it_and_who_pours_does_not() {
        let now = Instant::now();
        for (bytes, yields) in [(5 * LEAST_RATE - 1, true), (6 * LEAST_RATE, false)] {
            let mut waits = Waits::default();
            (waits.since, waits.before, waits.bytes) = (Some(now), SILENCE_TIMEOUT * 5, bytes);
            assert_eq!(is_in_vain(&waits, now + SILENCE_TIMEOUT / 20), yields, "{bytes}");
        }
    }
}
