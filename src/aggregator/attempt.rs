//! An upload under way, and whether it makes room for another of the same result: only if it brings next to nothing.
//!
//! A worker whose connection died without a word begins again, and shall not wait for the dead one; nor shall an honest
//! one for somebody who holds the place of its result. Starts no thread.

use std::io;
use std::time::{Duration, Instant};

use base::http::{Meter, Waits};

/// Who was waited for so long in vain makes room. Older workers try three times within two seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);
/// What brings less, in bytes a second, brings next to nothing.
const LEAST_RATE: u64 = 8 << 10;
/// Up to so many bytes a result may come beside another upload of it: that costs next to nothing, and nobody can be kept
/// from it.
pub(super) const BESIDE: u64 = 64 << 10;
/// So long another waits for the one under way to end or to make room.
pub(super) const TURN_TIMEOUT: Duration = Duration::from_secs(2);

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

    /// Ends it wherever it is.
    pub(super) fn abandon(&self) {
        self.0.dismiss();
    }

    /// Lets another take its place, if its sender keeps us waiting; what has come whole stays.
    pub(super) fn yields(&self, now: Instant) -> bool {
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
