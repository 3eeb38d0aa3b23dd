//! One run from start to archive, step by step: launch, receive, query, process, pack.
//!
//! The only place where the services meet: aggregator, drivers, queries and results know nothing about each other. Each
//! step is a file and works the same in a cluster and on this machine; the differences are in [`cluster`] and [`local`].

mod aggregate;
mod annotation;
mod cluster;
mod conduct;
mod definition;
mod events;
mod launch;
mod local;
mod metrics;
mod pack;
mod partial;
mod process;
mod redact;
mod retry;
mod review;
mod status_service;
mod upload;
mod volume;
mod why;

pub(crate) use aggregate::aggregate;
pub(crate) use annotation::shorten;
use cluster::ClusterRun;
pub(crate) use local::LocalRun;
pub(crate) use partial::pack_partial;
use status_service::StatusService;
pub(crate) use upload::upload;
