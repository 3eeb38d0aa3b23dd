//! What runs inside a cluster, or on one machine in a local run.
//!
//! [`driver`] starts plugins and watches them, [`worker`] uploads what they wrote, [`aggregator`]
//! receives and stores it under the authority of [`backplane`], [`query`] takes the snapshot of the
//! cluster, and [`process`] turns stored results into trees. Modules that meet do so in the program,
//! which owns the course of a run.

#![allow(
    missing_docs,
    rustdoc::private_intra_doc_links,
    reason = "an internal crate: names and headers say it"
)]

pub mod aggregator;
#[doc(hidden)]
pub mod alone;
pub mod backplane;
pub mod driver;
pub mod process;
pub mod query;
pub mod worker;

/// What the fuzzers under `fuzz/` call.
#[cfg(any(fuzzing, test))]
pub mod fuzzing {
    pub use crate::aggregator::tests::fuzz::{journal, progress};
    pub use crate::process::{fuzz_file as file, fuzz_tree as tree};
}
