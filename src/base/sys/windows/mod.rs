//! Windows: no modes, no signals but those of the console, jobs in the place of process groups.

pub(super) mod files;
#[cfg(feature = "program")]
pub(super) mod net;
#[cfg(feature = "program")]
pub(super) mod process;
#[cfg(feature = "program")]
pub(super) mod terminal;
