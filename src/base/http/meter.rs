//! What a request's peer brings while it is waited for: the measure by which a slow one is told to come again.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a peer was waited for, and what it brought.
#[derive(Default)]
pub(super) struct Meter {
    waiting: Mutex<Waits>,
    bytes: AtomicU64,
    dismissed: AtomicBool,
}

#[derive(Default)]
struct Waits {
    since: Option<Instant>,
    writing: bool,
    all: Duration,
}

impl Meter {
    /// Notes how long `step` takes to move how many bytes.
    pub(super) fn time(
        &self,
        writing: bool,
        step: impl FnOnce() -> std::io::Result<usize>,
    ) -> std::io::Result<usize> {
        let now = Instant::now();
        let lock = || self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut waiting = lock();
            (waiting.since, waiting.writing) = (Some(now), writing);
        }
        let moved = step();
        {
            let mut waiting = lock();
            waiting.since = None;
            waiting.all += now.elapsed();
        }
        self.bytes.fetch_add(moved.as_ref().map_or(0, |&moved| moved as u64), Ordering::Relaxed);
        moved
    }

    /// Whether it was asked to come again, since others were waiting.
    pub(super) fn dismissed(&self) -> bool {
        self.dismissed.load(Ordering::Relaxed)
    }

    /// Bytes a second, if it was waited for as long as `least`.
    pub(super) fn rate(&self, least: Duration) -> Option<u64> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let all = waiting.all + waiting.since.map_or(Duration::ZERO, |since| since.elapsed());
        let bytes = self.bytes.load(Ordering::Relaxed);
        let milliseconds = u64::try_from(all.as_millis()).unwrap_or(u64::MAX).max(1);
        (all >= least).then(|| bytes.saturating_mul(1000) / milliseconds)
    }

    /// Ends what it is waited for with; who reads gets to tell it why.
    pub(super) fn dismiss(&self, socket: &TcpStream) {
        self.dismissed.store(true, Ordering::Relaxed);
        let writing = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).writing;
        // It may have ended by itself.
        let _ = socket.shutdown(if writing { Shutdown::Both } else { Shutdown::Read });
    }
}
