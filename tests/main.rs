//! The black-box tests: one binary for all of them.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, unreachable_pub)]

mod aggregator;
mod attack;
mod channel;
mod client_library;
mod cluster;
mod commands;
mod completion;
mod contributing;
mod dependencies;
mod docs;
mod export;
mod families;
mod flags;
mod gather;
mod generate;
mod identity;
mod images;
mod kubelets;
mod local;
mod packaging;
mod plugins;
mod podlogs;
mod postprocess;
mod query;
mod refusal;
mod results;
mod retrieve;
mod run;
mod seal;
mod status;
mod support;
mod tidy;
mod windows;
mod worker;
