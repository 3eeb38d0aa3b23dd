//! Client of a run in a cluster: its status, its archives, its status service.
//!
//! Reads and downloads; creates and removes nothing (`deploy` does).

mod retrieve;
pub(crate) mod seal;
pub(crate) mod service;
pub(crate) mod state;

pub(crate) use retrieve::{Retrieval, RetrievalError, whole_status};
