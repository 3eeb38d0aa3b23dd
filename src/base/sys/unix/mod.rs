//! Code shared by Linux and macOS.

pub(super) mod files;
#[cfg(feature = "program")]
pub(super) mod net;
#[cfg(feature = "program")]
pub(super) mod process;
#[cfg(feature = "program")]
pub(super) mod terminal;
