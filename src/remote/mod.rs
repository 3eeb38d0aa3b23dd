//! A run in a cluster, seen from here: its status, its archives, the way to its service.
//!
//! Reads and downloads; creates and removes nothing (that is `deploy`).

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

/// For so long a source of bytes may say nothing.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often in a row a transfer may stop without having got any further.
const IDLE_LIMIT: u32 = 6;
