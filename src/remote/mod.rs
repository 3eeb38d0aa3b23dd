//! Client of a run in a cluster: its status, its archives, its status service.
//!
//! Reads and downloads; creates and removes nothing (`deploy` does).

pub(crate) mod authority;
mod download;
mod partial;
mod received;
mod retrieve;
pub(crate) mod seal;
pub(crate) mod service;
pub(crate) mod state;
mod wanted;

pub(crate) use retrieve::Failure;
pub(crate) use wanted::Retrieval;

use std::time::Duration;

/// Maximum silence of a source during a transfer.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum consecutive interruptions of a transfer without progress.
const IDLE_LIMIT: u32 = 6;
