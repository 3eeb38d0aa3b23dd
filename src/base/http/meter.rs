//! What a request's peer brings while it is waited for: the measure by which a slow one is told to try again.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a peer was waited for, and what it brought.
#[derive(Default)]
pub struct Meter {
    waits: Mutex<Waits>,
    dismissed: AtomicBool,
}

/// What a meter has measured.
#[derive(Clone, Copy, Default)]
pub struct Waits {
    /// Since when the peer is waited for right now.
    pub since: Option<Instant>,
    /// How long it was waited for before.
    pub before: Duration,
    /// What it brought.
    pub bytes: u64,
    writing: bool,
}

impl Waits {
    /// How long it was waited for by then.
    pub fn until(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl Meter {
    /// Notes how long `step` takes to move how many bytes.
    pub fn time(
        &self,
        writing: bool,
        step: impl FnOnce() -> std::io::Result<usize>,
    ) -> std::io::Result<usize> {
        let begun = Instant::now();
        {
            let mut waits = self.lock();
            (waits.since, waits.writing) = (Some(begun), writing);
        }
        let moved = step();
        let mut waits = self.lock();
        waits.since = None;
        waits.before += begun.elapsed();
        waits.bytes += moved.as_ref().map_or(0, |&moved| moved as u64);
        moved
    }

    /// What it has measured so far.
    pub fn waits(&self) -> Waits {
        *self.lock()
    }

    /// Whether the peer was told to make room for others.
    pub fn dismissed(&self) -> bool {
        self.dismissed.load(Ordering::Relaxed)
    }

    /// From now on it is dismissed.
    pub fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Relaxed);
    }

    /// Bytes a second, if it was waited for as long as `least`.
    pub(super) fn rate(&self, least: Duration) -> Option<u64> {
        let waits = self.waits();
        let all = waits.until(Instant::now());
        let milliseconds = u64::try_from(all.as_millis()).unwrap_or(u64::MAX).max(1);
        (all >= least).then(|| waits.bytes.saturating_mul(1000) / milliseconds)
    }

    /// Ends what it is waited for with; who reads gets to tell it why.
    pub(super) fn end(&self, socket: &TcpStream) {
        self.dismiss();
        // It may have ended by itself.
        let _ = socket.shutdown(if self.lock().writing { Shutdown::Both } else { Shutdown::Read });
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
