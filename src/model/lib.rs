//! The nouns of Sonobuoy: what a definition, a run, a result and its archive are, and what they
//! come to.
//!
//! Values alone: no thread, no request, no command. [`verdict`] decides outcomes and exit codes,
//! [`remedies`] explains them, everything above starts, stores or prints what is defined here.

#![allow(
    missing_docs,
    rustdoc::private_intra_doc_links,
    reason = "an internal crate: names and headers say it"
)]

pub mod annotation;
pub mod config;
pub mod go_test;
pub mod health;
pub mod item;
pub mod layout;
pub mod names;
pub mod nodes;
pub mod plugin;
pub mod remedies;
pub mod status;
pub mod suite_log;
pub mod timings;
pub mod verdict;
