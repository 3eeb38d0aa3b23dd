//! Limits the rate of requests: a token bucket shared by all threads of a client.
//!
//! Owns only the arithmetic and the wait; knows nothing about requests. Starts no thread.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::error::Error;
use crate::lock;
use crate::stop::Stop;

/// Lets `burst` requests through at once, and then `qps` per second.
pub(super) struct Limiter {
    /// The time until one token is replaced; `None` means no limit.
    step: Option<Duration>,
    burst: u32,
    /// When the bucket will be full: the further ahead, the emptier it is.
    full_at: Mutex<Instant>,
}

impl Limiter {
    /// A rate that is zero, negative or not a number means no limit.
    pub(super) fn new(qps: f64, burst: u32) -> Self {
        let step = (qps > 0.0).then(|| Duration::try_from_secs_f64(1.0 / qps).ok()).flatten();
        Self { step, burst: burst.max(1), full_at: Mutex::new(Instant::now()) }
    }

    /// Waits for a turn.
    pub(super) fn take(&self, stop: &Stop) -> Result<(), Error> {
        let turn = self.reserve(Instant::now());
        if turn.map_or_else(|| stop.stopped(), |turn| stop.wait_until(turn)) {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    /// Takes a token, or one that will be available later; `None` if it is already available. First come, first served.
    fn reserve(&self, now: Instant) -> Option<Instant> {
        let step = self.step?;
        let mut full_at = lock(&self.full_at);
        let before = (*full_at).max(now);
        *full_at = before + step;
        // A full bucket holds `burst` tokens.
        let turn = full_at.checked_sub(step * self.burst)?;
        (turn > now).then_some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_passes_and_later_requests_follow_the_rate() {
        let limiter = Limiter::new(10.0, 3);
        let now = Instant::now() + Duration::from_secs(1);
        let turns = || limiter.reserve(now).map(|turn| turn - now);
        assert_eq!([turns(), turns(), turns()], [None; 3]);
        assert_eq!(turns(), Some(Duration::from_millis(100)));
        assert_eq!(turns(), Some(Duration::from_millis(200)));
        assert_eq!(limiter.reserve(now + Duration::from_secs(5)), None, "it grew back");
    }

    #[test]
    fn zero_rate_is_unlimited_and_stop_ends_the_wait() {
        let stop = Stop::new();
        let open = Limiter::new(0.0, 0);
        assert!((0..1000).all(|_| open.take(&stop).is_ok()));
        let slow = Limiter::new(0.001, 1);
        assert!(slow.take(&stop).is_ok());
        stop.stop();
        assert!(slow.take(&stop).is_err());
    }
}
