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
//! Each folder with a `Cargo.toml` is a crate; its first page says what it owns. A crate knows only
//! those below it, which Cargo enforces. `cargo test -p sonobuoy-report` builds and tests one.
//!
//! | folder | subject | knows |
//! | --- | --- | --- |
//! | `src/base` | files, time, threads, text, TLS settings, system calls | nothing of the others |
//! | `src/http` | the blocking HTTPS server with client certificates | `base` |
//! | `src/yaml` | YAML 1.1 into serde, with places | `base` |
//! | `src/kube` | the client of the Kubernetes API: kubeconfig, requests, watches, exec | `base` `yaml` |
//! | `src/oci` | registries, image archives | `base` |
//! | `src/client` | what a plugin needs to report by itself: protocol, credentials, uploads | `base` |
//! | `src/model` | the nouns: names, definitions, settings, results, the verdict | `client` and above |
//! | `src/run` | what runs in a cluster or locally: aggregator, worker, drivers, snapshot, trees | `model` `http` `kube` |
//! | `src/gather` | facts and logs of a node | `model` `kube` |
//! | `src/report` | an archive as text, page, JSON, JUnit, differences; certification | `model` |
//! | `src` | the program: commands, and the course of a run | all |
//!
//! # Layers
//!
//! Within a crate, a module imports only from layers strictly below its own; modules in one layer
//! never import each other. `|` only groups. `tests/tidy.rs` reads this block and the list below
//! it, and fails on an import that violates either, on a module missing from them, and on a file
//! without a header.
//!
//! ```text
//! cli
//! doctor
//! pipeline deploy
//! remote image
//! progress_view
//! run/alone
//! run/aggregator run/driver run/worker run/query run/process
//! run/backplane
//! model/annotation
//! model/item model/health model/remedies model/config model/plugin
//! model/nodes model/suite_log model/go_test
//! model/verdict
//! model/status
//! model/names model/layout model/timings
//! base/fuzzing
//! base/fetch
//! base/dial
//! base/proxy base/archive base/logger
//! base/clock base/pattern base/tls base/json base/xml base/temp base/retry base/live base/near base/openmetrics base/words base/workflow
//! base/stop base/quota base/fair base/ahead base/visible base/sys base/hex base/joined base/at base/testing
//! base/small base/threads
//! ```
//!
//! Layers rule out cycles. Crates that a module must not import although its crate may:
//!
//! ```never
//! run/aggregator run/process: kube
//! model/status model/verdict model/item model/health model/layout model/names: kube http
//! ```
//!
//! | to find | look in |
//! | --- | --- |
//! | a command, its flags, what it prints | `cli/<command>.rs`, or the file that `cli/mod.rs` names; all commands: `cli/arguments.rs`; the flags of a run: `cli/run_flags.rs`, their meaning: `cli/run_plan.rs` |
//! | one run from start to archive, in a cluster or locally | `pipeline` |
//! | what a run creates in a cluster, and removes | `deploy` |
//! | whether a cluster is ready for a run | `doctor` |
//! | a run in a cluster seen from outside: status, download | `remote` |
//! | the images and test lists of a Kubernetes version | `image` |
//! | the live display of runs and transfers | `progress_view` |
//! | permission to send a result, its storage, the status | [`run::aggregator`] |
//! | how a plugin is started and watched | [`run::driver`] |
//! | the done file, uploading, progress relay, heartbeats | [`run::worker`], [`client`] |
//! | the run's authority and its certificates | [`run::backplane`] |
//! | the snapshot of the cluster | [`run::query`] |
//! | JUnit, gojson, raw, manual results become one tree | [`run::process`] |
//! | facts and logs of a node | `gather` |
//! | how a suite ended according to Ginkgo's log | [`model::suite_log`] |
//! | what a suite of `go test` prints | [`model::go_test`] |
//! | how long the parts of a run took | [`model::timings`] |
//! | what passed, failed or is unknown, and the exit code | [`model::verdict`] |
//! | causes of failures, and remedies | [`model::remedies`] |
//! | plugin definitions, built-ins, installed ones | [`model::plugin`] |
//! | a run's settings and all defaults | [`model::config`] |
//! | which nodes a plugin runs on, how many at once | [`model::nodes`] |
//! | the status document / its form in an annotation | [`model::status`] / [`model::annotation`] |
//! | the tree of results and its file | [`model::item`] |
//! | the health of a cluster, and failed queries of a snapshot | [`model::health`] |
//! | names of objects in a cluster / paths in an archive | [`model::names`] / [`model::layout`] |
//! | whether a run can be certified, and its submission | [`report::certify`] |
//! | showing an archive: text, page, JSON, JUnit, differences | [`report`] |
//! | routes, headers, progress, heartbeats: the protocol of both ends | [`client::protocol`] |
//! | the Kubernetes API | [`kube`] |
//! | images, registries, image archives | [`oci`] |
//! | the HTTPS server | [`http`] |
//! | packing and unpacking gzip tars | [`base::archive`] |
//! | XML as a stream | [`base::xml`] |
//! | making untrusted text safe to show | [`base::visible`] |
//! | keeping output from being commands of GitHub Actions | [`base::workflow`] |
//! | suggestions for misspelt words | [`base::near`] |
//! | errors that name their file | [`base::at`] |
//! | reading ahead on a second thread | [`base::ahead`] |
//! | lines of a terminal that are redrawn | [`base::live`] |
//! | authorities that this machine trusts, settings of TLS | [`base::tls`] |
//! | connections to servers: proxies, TLS, stops | [`base::dial`] |
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
