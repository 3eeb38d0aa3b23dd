//! Retries: backoff that grows with each failure, and a limit on consecutive failures.
//!
//! Knows neither the operation nor which failures are temporary. Pauses have full jitter, so that thousands of clients of a
//! failed server do not reconnect at the same moment.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use ureq::http::HeaderMap;

use crate::stop::Stop;

/// Pauses between attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The upper bound of the first pause; it doubles with each failure.
    pub first: Duration,
    /// The upper bound of any pause.
    pub max: Duration,
}

/// Backoff of transfers, which may break at any time.
const TRANSFER: Backoff = Backoff { first: Duration::from_millis(500), max: Duration::from_secs(8) };

impl Backoff {
    /// The pause after this many consecutive failures: random, up to the bound for that failure.
    pub fn pause(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(self.max).mul_f64(fraction())
    }
}

/// The pause that a response requests, in seconds; the other form of `Retry-After`, a date, is ignored.
pub fn after(headers: &HeaderMap) -> Option<Duration> {
    headers.get("retry-after")?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// A random number between 0 and 1: the hashers of maps begin with random keys.
fn fraction() -> f64 {
    let [number @ .., _, _, _, _] = RandomState::new().hash_one(0).to_ne_bytes();
    f64::from(u32::from_ne_bytes(number)) / f64::from(u32::MAX)
}

/// Attempts at a transfer: unlimited while they make progress, limited in a row without progress.
pub struct Attempts<'a> {
    limit: u32,
    failures: u32,
    stop: &'a Stop,
}

impl<'a> Attempts<'a> {
    /// Gives up after `limit` consecutive attempts without progress, or when `stop` is requested.
    pub fn new(limit: u32, stop: &'a Stop) -> Self {
        Self { limit, failures: 0, stop }
    }

    /// Waits after an incomplete attempt; returns whether to make another one.
    pub fn again(&mut self, further: bool) -> bool {
        self.failures = if further { 0 } else { self.failures + 1 };
        self.failures < self.limit && !self.stop.wait(TRANSFER.pause(self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_are_random() {
        let backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_millis(400) };
        for (failures, bound) in [(0, 100), (1, 100), (2, 200), (3, 400), (4, 400), (u32::MAX, 400)] {
            for _ in 0..100 {
                assert!(backoff.pause(failures) <= Duration::from_millis(bound), "{failures}");
            }
        }
        let longest = (0..200).map(|_| backoff.pause(20)).max().unwrap();
        assert!(longest > Duration::from_millis(200), "{longest:?}");
    }

    #[test]
    fn progress_resets_the_attempts() {
        let stop = Stop::new();
        let mut attempts = Attempts::new(1, &stop);
        assert!((0..3).all(|_| attempts.again(true)));
        assert!(!attempts.again(false));
        stop.stop();
        assert!(!Attempts::new(9, &stop).again(true));
    }
}
