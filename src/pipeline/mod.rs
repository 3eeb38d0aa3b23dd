//! One run from start to archive, step by step: launch, receive, query, process, pack.
//!
//! The only place where the services meet: aggregator, drivers, queries and results know nothing
//! about each other. The steps, in [`conduct`], [`retry`] and [`pack`], work the same in a cluster
//! and on this machine; the differences are in [`cluster`] and [`local`].

mod cluster;
mod conduct;
mod context;
mod expected;
mod local;
mod marks;
mod pack;
mod partial;
mod permissions;
mod publisher;
mod resume;
mod retry;
mod review;
mod status_service;
mod upload;

pub(crate) use cluster::aggregate;
pub(crate) use local::LocalRun;
pub(crate) use partial::pack_partial;
pub(crate) use upload::upload;
