//! Threads that have names, for debuggers, messages of panics and failed starts, and locks that
//! survive the panic of a holder.

use std::io;
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

#[cfg(test)]
mod tests {
    use super::*;

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
