//! Retries: backoff that grows with each failure, and a limit on consecutive failures.
//!
//! Knows neither the operation nor which failures are temporary. Pauses have full jitter, so that
//! thousands of clients of a failed server do not reconnect at the same moment.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::time::{Duration, Instant};

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
pub const TRANSFER: Backoff = Backoff {
    first: Duration::from_millis(500),
    max: Duration::from_secs(8),
};

impl Backoff {
    /// The pause after this many consecutive failures: random, up to the bound for that failure.
    pub fn pause(&self, failures: u32) -> Duration {
        self.first
            .saturating_mul(1 << failures.saturating_sub(1).min(16))
            .min(self.max)
            .mul_f64(fraction())
    }
}

/// Attempts at one access to a file.
const MAX_ACCESSES: u32 = 4;
/// Pause between them.
const ACCESS_PAUSE: Duration = Duration::from_millis(50);

/// Accesses a file: as often as a signal interrupts it, and a few times after another error, since
/// those of a disk may pass.
pub fn patiently<T>(mut access: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut failures = 0;
    loop {
        match access() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(error) => {
                failures += 1;
                if failures == MAX_ACCESSES {
                    return Err(error);
                }
                Stop::new().wait(ACCESS_PAUSE);
            }
            done => return done,
        }
    }
}

/// The pause that a response requests, in seconds; the other form of `Retry-After`, a date, is
/// ignored.
pub fn after(headers: &HeaderMap) -> Option<Duration> {
    headers
        .get("retry-after")?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
        .map(Duration::from_secs)
}

/// A random number between 0 and 1: the hashers of maps begin with random keys.
fn fraction() -> f64 {
    let [number @ .., _, _, _, _] = RandomState::new().hash_one(0).to_ne_bytes();
    f64::from(u32::from_ne_bytes(number)) / f64::from(u32::MAX)
}

/// Progress that counts: at least this many bytes, and this part of the whole. Otherwise a server
/// that sends a byte per attempt would never be given up.
const MIN_PROGRESS_BYTES: u64 = 1 << 20;
const MIN_PROGRESS_PARTS: u64 = 100;
/// The least rate of a transfer, measured over each window: 4 KiB/s.
const RATE_WINDOW: Duration = Duration::from_secs(60);
const MIN_WINDOW_BYTES: u64 = 240 << 10;

/// Attempts at a transfer: unlimited while they make progress, limited in a row without progress.
pub struct Attempts<'a> {
    limit: u32,
    failures: u32,
    stop: &'a Stop,
    backoff: Backoff,
    /// Bytes at the last progress that counted, and until the next.
    reached: u64,
    step: u64,
}

impl<'a> Attempts<'a> {
    /// Gives up after `limit` consecutive attempts without progress, or when `stop` is requested.
    pub fn new(limit: u32, stop: &'a Stop) -> Self {
        Self {
            limit,
            failures: 0,
            stop,
            backoff: TRANSFER,
            reached: 0,
            step: MIN_PROGRESS_BYTES,
        }
    }

    /// For a transfer of `total` bytes (0: unknown), of which `done` exist already.
    pub fn transfer(self, done: u64, total: u64) -> Self {
        Self {
            reached: done,
            step: MIN_PROGRESS_BYTES.max(total / MIN_PROGRESS_PARTS),
            ..self
        }
    }

    /// With other pauses.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Waits after an incomplete attempt, after which `done` bytes exist; returns whether to make
    /// another one.
    pub fn wait_to_retry_at(&mut self, done: u64) -> bool {
        let is_progress = done >= self.reached.saturating_add(self.step);
        if is_progress {
            self.reached = done;
        }
        self.wait_to_retry(is_progress)
    }

    /// Waits after an incomplete attempt; returns whether to make another one.
    pub fn wait_to_retry(&mut self, further: bool) -> bool {
        self.failures = if further { 0 } else { self.failures + 1 };
        self.failures < self.limit && !self.stop.wait(self.backoff.pause(self.failures))
    }
}

/// Watches the rate of one attempt at a transfer, from its first byte.
#[derive(Default)]
pub struct LeastRate {
    window: Option<Instant>,
    bytes: u64,
}

impl LeastRate {
    /// Counts bytes that arrived at `now`. `TimedOut` if they come too slowly, which a limit on
    /// silence would not notice.
    pub fn count(&mut self, bytes: u64, now: Instant) -> io::Result<()> {
        let window = *self.window.get_or_insert(now);
        self.bytes = self.bytes.saturating_add(bytes);
        if now.saturating_duration_since(window) < RATE_WINDOW {
            return Ok(());
        }
        if self.bytes < MIN_WINDOW_BYTES {
            let message = format!(
                "only {} bytes arrived in {} s",
                self.bytes,
                RATE_WINDOW.as_secs()
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        *self = Self {
            window: Some(now),
            bytes: 0,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn access_is_repeated_until_it_cannot_help() {
        use std::io::{self, ErrorKind};
        let eio = || io::Error::from_raw_os_error(5);
        let interrupted = || io::Error::from(ErrorKind::Interrupted);
        let absent = || io::Error::from(ErrorKind::NotFound);
        // The errors before a success, and how many attempts are made.
        type Errors<'a> = (&'a dyn Fn() -> io::Error, u32, u32, bool);
        let cases: [Errors<'_>; 5] = [
            (&interrupted, 99, 100, true),
            (&eio, 1, 2, true),
            (&eio, 3, 4, true),
            (&eio, 4, 4, false),
            (&absent, 1, 1, false),
        ];
        for (error, failures, attempts, succeeds) in cases {
            let mut made = 0;
            let done = super::patiently(|| {
                made += 1;
                if made <= failures {
                    Err(error())
                } else {
                    Ok(())
                }
            });
            assert_eq!(
                (made, done.is_ok()),
                (attempts, succeeds),
                "{failures} times {:?}",
                error()
            );
        }
    }

    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_are_random() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_millis(400),
        };
        for (failures, bound) in [
            (0, 100),
            (1, 100),
            (2, 200),
            (3, 400),
            (4, 400),
            (u32::MAX, 400),
        ] {
            for _ in 0..100 {
                assert!(
                    backoff.pause(failures) <= Duration::from_millis(bound),
                    "{failures}"
                );
            }
        }
        let longest = (0..200).map(|_| backoff.pause(20)).max().unwrap();
        assert!(longest > Duration::from_millis(200), "{longest:?}");
    }

    #[test]
    fn progress_resets_the_attempts() {
        let stop = Stop::new();
        let mut attempts = Attempts::new(1, &stop);
        assert!((0..3).all(|_| attempts.wait_to_retry(true)));
        assert!(!attempts.wait_to_retry(false));
        stop.stop();
        assert!(!Attempts::new(9, &stop).wait_to_retry(true));
    }

    #[test]
    fn a_byte_per_attempt_is_no_progress() {
        const NO_PAUSE: Backoff = Backoff {
            first: Duration::ZERO,
            max: Duration::ZERO,
        };
        let stop = Stop::new();
        let tries = |total: u64, step: u64| {
            let mut attempts = Attempts::new(5, &stop).backoff(NO_PAUSE).transfer(7, total);
            let mut done = 7;
            // More would be endless.
            (1..10_000).find(|_| {
                done += step;
                !attempts.wait_to_retry_at(done)
            })
        };
        for total in [0, 10, 300 << 20] {
            assert_eq!(tries(total, 1), Some(5), "{total}");
            assert_eq!(
                tries(total, (1 << 20) - 1),
                None,
                "two attempts together bring a MiB: {total}"
            );
        }
        assert_eq!(tries(300 << 20, (3 << 20) + 1), None, "a hundredth");
        assert_eq!(
            tries(100 << 30, 1 << 20),
            Some(5),
            "less than a hundredth in five attempts"
        );
        // What was lost and sent again is no progress.
        let mut attempts = Attempts::new(2, &stop).backoff(NO_PAUSE).transfer(0, 0);
        let outcome = [2 << 20, 0, 2 << 20].map(|done| attempts.wait_to_retry_at(done));
        assert_eq!(outcome, [true, true, false]);
    }

    #[test]
    fn trickling_transfer_is_interrupted() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut trickle = LeastRate::default();
        assert!((0..60).all(|second| trickle.count(1_000, at(second)).is_ok()));
        assert_eq!(
            trickle.count(1_000, at(60)).unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        let mut steady = LeastRate::default();
        assert!((0..600).all(|second| steady.count(5 << 10, at(second)).is_ok()));
        // A pause before the first byte is limited elsewhere.
        assert!(LeastRate::default().count(1, at(600)).is_ok());
    }
}
