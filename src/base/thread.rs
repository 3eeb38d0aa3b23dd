//! Threads that have names, for debuggers and messages of panics.

use std::thread::Builder;

/// A thread that is to be started with this name.
pub fn thread(name: impl Into<String>) -> Builder {
    Builder::new().name(name.into())
}
