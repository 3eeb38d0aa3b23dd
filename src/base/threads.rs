//! Threads that have names, for debuggers and messages of panics, and locks that survive the panic of a holder.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Locks a mutex whose value is consistent even if a holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that is to be started with this name.
pub fn thread(name: impl Into<String>) -> Builder {
    Builder::new().name(name.into())
}
