//! The black-box tests: one binary for all of them.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, unreachable_pub)]

// What asks for signals, pipes with names and scripts of `sh` is marked, and so is what looks at this source and not at
// the program; `windows` has the like for that system.
#[cfg(unix)]
mod aggregator;
mod attack;
#[cfg(unix)]
mod board;
mod certify;
mod channel;
#[cfg(unix)]
mod client_library;
mod cluster;
mod commands;
mod completion;
#[cfg(unix)]
mod contributing;
#[cfg(unix)]
mod dependencies;
mod diff;
#[cfg(unix)]
mod docs;
#[cfg(target_os = "linux")]
mod doctor;
mod export;
mod families;
#[cfg(unix)]
mod faults;
mod flags;
#[cfg(target_os = "linux")]
mod gather;
mod generate;
mod identity;
mod images;
#[cfg(target_os = "linux")]
mod isolation;
#[cfg(unix)]
mod kit;
mod kubelets;
#[cfg(unix)]
mod local;
#[cfg(unix)]
mod mistakes;
#[cfg(unix)]
mod original;
#[cfg(unix)]
mod packaging;
mod page;
mod permissions;
mod plugins;
mod podlogs;
mod postprocess;
mod query;
mod refusal;
mod results;
mod retrieve;
#[cfg(unix)]
mod retry;
mod run;
#[cfg(unix)]
mod seal;
#[cfg(unix)]
mod secrets;
mod security;
mod sentences;
#[cfg(unix)]
mod split;
mod status;
mod support;
#[cfg(unix)]
mod tidy;
#[cfg(unix)]
mod upload;
#[cfg(windows)]
mod windows;
#[cfg(unix)]
mod worker;
