//! The state of a run, without I/O.
//!
//! `state` has one slot for each expected result, with its `receipt` and the merged `progress` of its plugin, and writes the
//! status document.

pub(crate) mod progress;
mod receipt;
mod state;

pub(crate) use receipt::{Receipt, Received, Sender};
pub(crate) use state::{ResultState, State};
