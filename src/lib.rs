//! Runs diagnostic and conformance plugins on a Kubernetes cluster and collects the results of
//! every node.
//!
//! This page is the map of the code. One binary plays four roles: the **command line** starts an
//! aggregator in a cluster; the **aggregator** launches plugins, receives results over mutual TLS,
//! and packs an archive; the **worker** waits beside a plugin for its `done` file and uploads what
//! it names; the **gatherer** reads the facts and logs of a node. `run --local` plays all of them
//! on one machine.
//!
//! # Crates
//!
//! | folder | crate | knows |
//! | --- | --- | --- |
//! | `src/base` | `sonobuoy-base` | nothing about Sonobuoy: Kubernetes' API, HTTP, YAML, images, archives |
//! | `src/client` | `sonobuoy-client` | what a plugin needs to report by itself: protocol, credentials, uploads |
//! | `src` | `sonobuoy` | the program: the modules below |
//!
//! # Layers
//!
//! A module imports only from layers strictly below its own; modules in one layer never import each
//! other. `|` only groups. `tests/tidy.rs` reads this block and the list below it, and fails on an
//! import that violates either, on a module missing from them, and on a file without a header.
//! `base/` and `client/` are the crates of that name.
//!
//! ```text
//! cli
//! doctor
//! pipeline deploy certify
//! remote | aggregator driver worker query gather image | process report
//! plugin config
//! progress_view
//! item health remedies nodes | backplane
//! verdict
//! status
//! names layout
//! client/
//! base/fuzzing
//! base/kube base/oci
//! base/fetch
//! base/dial
//! base/http base/yaml base/proxy base/archive base/logger
//! base/clock base/pattern base/tls base/json base/xml base/temp base/retry base/live base/near base/openmetrics base/words base/workflow
//! base/stop base/quota base/fair base/ahead base/visible base/sys base/hex base/joined base/at base/testing
//! base/small base/threads
//! ```
//!
//! Layers rule out cycles. Imports that are prohibited regardless of the layers:
//!
//! ```never
//! aggregator: driver base/kube
//! driver worker gather query: aggregator
//! process report: base/kube base/oci remote deploy
//! client: base/kube base/http base/yaml
//! status verdict item health layout names: base/kube base/http
//! ```
//!
//! | to find | look in |
//! | --- | --- |
//! | a command, its flags, what it prints | `cli/<command>.rs`, or the file that `cli/mod.rs` names; the table of all flags: `cli/table.rs`; their meaning for runs: `cli/run_args.rs` |
//! | one run from start to archive, in a cluster or locally | `pipeline` |
//! | what a run creates in a cluster, and removes | `deploy` |
//! | whether a cluster is ready for a run | `doctor` |
//! | a run in a cluster seen from outside: status, download | `remote` |
//! | permission to send a result, its storage, the status | `aggregator` |
//! | how a plugin is started and watched | `driver` |
//! | the done file, uploading, progress relay, heartbeats | `worker`, [`client`] |
//! | the snapshot of the cluster | `query` |
//! | facts and logs of a node | `gather` |
//! | the images and test lists of a Kubernetes version | `image` |
//! | JUnit, gojson, raw, manual results become one tree | `process` |
//! | what passed, failed or is unknown, and the exit code | `verdict` |
//! | causes of failures, and remedies | `remedies` |
//! | whether a run can be certified, and its submission | `certify` |
//! | showing an archive: text, page, JSON, JUnit, differences | `report` |
//! | plugin definitions, built-ins, installed ones | `plugin` |
//! | a run's settings and all defaults | `config` |
//! | routes, headers, progress, heartbeats: the protocol of both ends | [`client::protocol`] |
//! | which nodes a plugin runs on, how many at once | `nodes` |
//! | the status document / the tree of results and its file | `status` / `item` |
//! | the health of a cluster, and failed queries of a snapshot | `health` |
//! | the live display of runs and transfers | `progress_view` |
//! | the run's authority and its certificates | `backplane` |
//! | names of objects in a cluster / paths in an archive | `names` / `layout` |
//! | the Kubernetes API | [`kube`] |
//! | images, registries, image archives | [`oci`] |
//! | the HTTPS server | [`http`] |
//! | XML as a stream | [`base::xml`] |
//! | packing and unpacking gzip tars | [`base::archive`] |
//! | making untrusted text safe to show | [`base::visible`] |
//! | keeping output from being commands of GitHub Actions | [`base::workflow`] |
//! | suggestions for misspelt words | [`base::near`] |
//! | errors that name their file | [`base::at`] |
//! | reading ahead on a second thread | [`base::ahead`] |
//! | lines of a terminal that are redrawn | [`base::live`] |
//! | authorities that this machine trusts, settings of TLS | [`base::tls`] |
//! | connections to servers: proxies, TLS, stops | `base::dial` |
//! | the OpenMetrics text format | [`base::openmetrics`] |
//! | pauses between attempts, and how many attempts | [`base::retry`] |
//! | differences between Linux, macOS and Windows | [`base::sys`] |
//! | JSON literals, untrusted JSON within limits | [`mod@base::json`] |
//!
//! # How data flows
//!
//! definition → manifests → aggregator pod → driver's pods → plugin writes `done` → worker PUTs
//! over mutual TLS → store (temporary file, digest, rename, journal) → item tree → archive →
//! retrieve → report. Each arrow is one function call or one request; none goes back.
//!
//! # Invariants
//!
//! * The aggregator knows neither Kubernetes nor drivers; drivers report failures as
//!   [`client::protocol`] values through a channel; only `pipeline` and `cli` bring the services
//!   together.
//! * Plain threads, named, scoped, joined by the function that starts them. No async runtime, no
//!   `unsafe`.
//! * All waiting goes through [`base::stop::Stop`], so everything can be stopped.
//! * Everything from the network, an archive or a cluster is hostile: sizes bounded, no path
//!   outside its folder, an error to the peer, never a panic.
//! * Partial failure is data, recorded in the results; only failing to produce an archive is an
//!   error.

mod cli;

mod deploy;
mod doctor;
mod image;
mod pipeline;
mod progress_view;
mod remote;

#[doc(hidden)]
pub use cli::commands;
pub use cli::run;

/// For benchmarks and black-box tests that need the aggregator alone, without a run around it.
#[doc(hidden)]
pub mod outside {
    pub use base::archive::{Packed, pack_file};
    pub use http::Limits;
    pub use run::alone::{serve_alone, serve_certifying, serve_shared};
    pub use run::backplane::{Authority, Identity, SigningRequest, server_config};
}

/// What the fuzzers under `fuzz/` call.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use base::fuzzing::*;
    pub use http::consistent as http;
    pub use kube::fuzz::{frames, kubeconfig};
    pub use oci::fuzz::consistent as registry;
    pub use run::fuzzing::*;
    pub use yaml::fuzz::consistent as yaml;
}
