//! Runs diagnostic and conformance plugins over a Kubernetes cluster and brings every node's results home.
//!
//! This page is the map of the code. One binary plays four roles: the **command line** puts an aggregator
//! into a cluster; the **aggregator** launches plugins, receives results over mutual TLS, packs one archive;
//! the **worker** waits beside a plugin for its `done` file and uploads what it names; the **gatherer** reads
//! the facts and logs of a node. `run --local` plays all of them on one machine.
//!
//! # Rows
//!
//! A module imports only from rows strictly below its own; neighbours in a row never import each other.
//! `tests/tidy.rs` reads the block below and fails on an upward or sideways import, on a module missing from
//! it, and on a file without a header. `|` only groups.
//!
//! ```text
//! cli
//! pipeline deploy
//! aggregator driver worker query gather results image
//! plugin config
//! client
//! status item | kube backplane http archive
//! protocol | stop logger yaml pattern trust proxy
//! clock json
//! ```
//!
//! | to find | look in |
//! | --- | --- |
//! | a command, its flags, what it prints | `cli/<command>.rs`; the table of all flags: `cli/table.rs` |
//! | one run from start to archive, in a cluster or locally | `pipeline` |
//! | what a run puts into a cluster, and takes away | `deploy` |
//! | who may send a result, what happens to it, what status says | `aggregator` |
//! | how a plugin is started and watched | `driver` |
//! | the done file, uploading, progress relay, heartbeats | `worker`, [`client`] |
//! | the snapshot of the cluster | `query` |
//! | facts and logs of a node | `gather` |
//! | JUnit, gojson, raw, manual results; reports | `results` |
//! | container images without a daemon | `image` |
//! | plugin definitions, built-ins, installed ones | `plugin` |
//! | one run's settings and every default | `config` |
//! | routes, headers, progress, heartbeats: what both ends say | [`protocol`] |
//! | the status document / the tree of results | [`status`] / [`item`] |
//! | the Kubernetes API | `kube` |
//! | certificates and TLS settings | `backplane` |
//! | the HTTPS server | `http` |
//! | packing and unpacking gzip tars | `archive` |
//! | whom this machine trusts | `trust` |
//! | which proxy stands before a server | `proxy` |
//! | JSON built in code | `json` |
//!
//! # The way of the data
//!
//! definition → manifests → aggregator pod → driver's pods → producer writes `done` → worker PUTs over mutual
//! TLS → store (temporary file, digest, rename, journal) → item tree → archive → retrieve → report.
//! Each arrow is one function call or one request; none goes back.
//!
//! # Invariants
//!
//! * The aggregator knows neither Kubernetes nor drivers; drivers report failures as [`protocol`] values down
//!   a channel; `kube` knows no word of this project; only `pipeline` lets the services meet.
//! * Plain threads, named, scoped, joined by the function that starts them. No async runtime, no `unsafe`.
//! * All waiting goes through [`stop::Stop`], so everything ends when asked.
//! * Everything from the network, an archive or a cluster is hostile: sizes bounded, no path outside its
//!   folder, an error to the peer, never a panic.
//! * Partial failure is data, recorded in the results; only failing to produce an archive is an error.
//!
//! # The client library
//!
//! With `default-features = false` this crate is what a plugin written in Rust needs to report by itself,
//! without the worker beside it: [`protocol`], [`client`] and what they stand on.

pub mod cli;

mod aggregator;
#[cfg(test)]
#[path = "../tests/support/api_server/mod.rs"]
mod api_server;
mod backplane;
mod config;
mod deploy;
mod driver;
mod gather;
mod item;
mod layout;
mod pipeline;
mod plugin;
mod process;
mod query;
mod report;
mod status;
mod worker;

/// What benchmarks and black-box tests call to have the aggregator alone, without a run around it.
#[doc(hidden)]
pub mod outside {
    pub use crate::aggregator::serve_alone;
    pub use crate::backplane::{Authority, Identity, server_config};
    pub use base::archive::{Packed, pack_file};
    pub use base::http::Limits;
}

/// What the fuzzers under `fuzz/` call.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::process::{fuzz_file as file, fuzz_tree as tree};
    pub use base::archive::consistent as archive;
    pub use base::http::consistent as http;
}

/// The version of this program, as `version --short` prints it and archives record it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
