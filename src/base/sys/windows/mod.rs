//! Windows: no modes, only the console's signals, jobs instead of process groups.

pub(super) mod files;
#[cfg(feature = "program")]
pub(super) mod net;
#[cfg(feature = "program")]
pub(super) mod process;
#[cfg(feature = "program")]
pub(super) mod terminal;
