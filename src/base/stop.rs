//! Stops all threads: a flag that wakes every waiting thread.
//!
//! Owns waiting and deadlines. Threads call [`Stop::wait`] instead of sleeping, so that a stop
//! takes effect at once. Knows nothing about signals: `cli` maps those to [`Stop::stop`]. Starts a
//! thread only for a time limit.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::lock;

/// A shared request to stop. Clones share the same request; [`Stop::child`] creates a narrower one.
#[derive(Clone, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopped: bool,
    reason: Option<String>,
    hooks: Vec<std::sync::Weak<Action>>,
    /// Triggers this request with its parent.
    parent: Option<Hook>,
}

type Action = dyn Fn() + Send + Sync;

/// An action that runs on a stop, see [`Stop::on_stop`]; dropping this cancels it.
#[must_use = "a dropped hook never runs"]
pub struct Hook(#[allow(dead_code, reason = "held so that the stop can find it")] Arc<Action>);

/// Requests a stop when dropped, also by a panic, so that other threads do not wait forever.
pub struct StopOnDrop<'a>(pub &'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `work`; turns a panic into an error, so that no thread waits for the one that panicked.
#[cfg(feature = "program")]
pub fn caught<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(anyhow::Error::msg("its thread panicked")))
}

impl Stop {
    /// A new request, not yet triggered.
    pub fn new() -> Self {
        Self::default()
    }

    /// A request that is triggered with this one, or earlier on its own.
    pub fn child(&self) -> Self {
        let child = Self::new();
        let (parent, weak) = (self.clone(), Arc::downgrade(&child.0));
        let hook = self.on_stop(move || {
            if let Some(child) = weak.upgrade() {
                Self(child).end(parent.reason());
            }
        });
        lock(&child.0.state).parent = Some(hook);
        child
    }

    /// Runs `work` with a child request, which is also triggered after `limit`.
    pub fn within<T>(&self, limit: Duration, work: impl FnOnce(&Self) -> T) -> std::io::Result<T> {
        let over = self.child();
        std::thread::scope(|scope| {
            let timer = || {
                over.wait(limit);
                over.stop();
            };
            crate::thread("time limit").spawn_scoped(scope, timer)?;
            // Also if `work` panics: the timer must not delay the end.
            let _over = StopOnDrop(&over);
            Ok(work(&over))
        })
    }

    /// Requests a stop. Further requests have no effect.
    pub fn stop(&self) {
        self.end(None);
    }

    /// Requests a stop with a reason; the first reason is kept.
    pub fn stop_because(&self, reason: impl Into<String>) {
        self.end(Some(reason.into()));
    }

    /// Whether a stop was requested.
    pub fn stopped(&self) -> bool {
        lock(&self.0.state).stopped
    }

    /// The reason, if one was given.
    pub fn reason(&self) -> Option<String> {
        lock(&self.0.state).reason.clone()
    }

    /// Waits for `limit`; true as soon as a stop is requested, false when the time is up.
    pub fn wait(&self, limit: Duration) -> bool {
        self.wait_for(Instant::now().checked_add(limit))
    }

    /// Waits until `end`; true as soon as a stop is requested, false when the time is up.
    pub fn wait_until(&self, end: Instant) -> bool {
        self.wait_for(Some(end))
    }

    /// Waits until a stop is requested.
    pub fn wait_forever(&self) {
        self.wait_for(None);
    }

    /// Waits until `end`, or forever without one; true as soon as a stop is requested.
    fn wait_for(&self, end: Option<Instant>) -> bool {
        let mut state = lock(&self.0.state);
        while !state.stopped {
            let time_left = end.map_or(Duration::MAX, |end| {
                end.saturating_duration_since(Instant::now())
            });
            if time_left.is_zero() {
                return false;
            }
            state = self
                .0
                .changed
                .wait_timeout(state, time_left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    /// Runs `action` when a stop is requested, or now if it already was: for code that blocks
    /// outside [`Stop::wait`], such as on a socket. It runs on the requesting thread, so it
    /// must be short and must not block.
    pub fn on_stop(&self, action: impl Fn() + Send + Sync + 'static) -> Hook {
        let action: Arc<Action> = Arc::new(action);
        let mut state = lock(&self.0.state);
        if state.stopped {
            drop(state);
            action();
        } else {
            state.hooks.retain(|weak| weak.strong_count() > 0);
            state.hooks.push(Arc::downgrade(&action));
        }
        Hook(action)
    }

    fn end(&self, reason: Option<String>) {
        let hooks = {
            let mut state = lock(&self.0.state);
            if state.stopped {
                return;
            }
            state.stopped = true;
            state.reason = reason;
            std::mem::take(&mut state.hooks)
        };
        self.0.changed.notify_all();
        for action in hooks.iter().filter_map(std::sync::Weak::upgrade) {
            action();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_wakes_waiters_and_children_with_the_first_reason() {
        let stop = Stop::new();
        let child = stop.child();
        let waiter = child.clone();
        let thread = std::thread::spawn(move || waiter.wait(Duration::from_secs(60)));
        stop.stop_because("first");
        stop.stop_because("second");
        assert!(thread.join().unwrap());
        assert_eq!(child.reason().as_deref(), Some("first"));
        assert!(
            stop.child().stopped(),
            "a child of a stopped parent is stopped"
        );
    }

    #[test]
    fn child_stop_leaves_its_parent() {
        let stop = Stop::new();
        stop.child().stop();
        assert!(!stop.stopped());
        assert!(!stop.wait(Duration::from_millis(1)));
    }

    #[test]
    fn hook_runs_once_at_the_stop_and_never_after_its_drop() {
        let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let add = || {
            let count = count.clone();
            move || {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        };
        let stop = Stop::new();
        let child = stop.child();
        let kept = child.on_stop(add());
        drop(child.on_stop(add()));
        stop.stop();
        stop.stop();
        let late = child.on_stop(add());
        assert_eq!(
            count.load(std::sync::atomic::Ordering::SeqCst),
            2,
            "one at the stop, one after it"
        );
        drop((kept, late));
    }

    #[test]
    fn endless_limit_never_overflows() {
        let stop = Stop::new();
        stop.stop();
        assert!(stop.wait(Duration::MAX));
    }
}
