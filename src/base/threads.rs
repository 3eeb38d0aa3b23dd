//! Threads that have names, for debuggers, messages of panics and failed starts, and locks that
//! survive the panic of a holder.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Locks a mutex whose value is consistent even if a holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that is to be started with this name.
pub fn thread(name: impl Into<String>) -> Thread {
    let name = name.into();
    Thread {
        builder: Builder::new().name(name.clone()),
        name,
    }
}

/// A thread that is to be started. The error of a failed start names it.
pub struct Thread {
    builder: Builder,
    name: String,
}

impl Thread {
    /// Sets the size of its stack.
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.builder = self.builder.stack_size(bytes);
        self
    }

    /// Starts it.
    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let Self { builder, name } = self;
        builder
            .spawn(work)
            .map_err(|error| cannot_start(&name, &error))
    }

    /// Starts it in a scope, which joins it.
    pub fn spawn_scoped<'scope, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        let Self { builder, name } = self;
        builder
            .spawn_scoped(scope, work)
            .map_err(|error| cannot_start(&name, &error))
    }
}

fn cannot_start(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot start thread `{name}`: {error}"),
    )
}

/// The outcomes of `work` on each item, in their order, from at most `limit` threads at once. The
/// calling thread is one of them.
pub fn in_parallel<T: Sync, R: Send>(
    name: &str,
    limit: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::with_capacity(items.len()));
    let take_all = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return };
            let outcome = work(item);
            lock(&outcomes).push((index, outcome));
        }
    };
    std::thread::scope(|scope| {
        for number in 1..limit.min(items.len()) {
            if let Err(error) = thread(format!("{name} {number}")).spawn_scoped(scope, take_all) {
                log::debug!("{error}");
            }
        }
        take_all();
    });
    let mut outcomes = outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_outcomes_keep_their_order() {
        for (limit, count) in [(1, 3), (4, 100), (4, 1), (4, 0)] {
            let items: Vec<usize> = (0..count).collect();
            let doubled = in_parallel("test", limit, &items, |item| item * 2);
            assert_eq!(
                doubled,
                items.iter().map(|item| item * 2).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn failed_start_names_the_thread() {
        // No system has that much memory.
        let huge = thread("http").stack_size(usize::MAX / 4);
        let error = huge.spawn(|| ()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot start thread `http`: "),
            "{error}"
        );
    }
}
