//! Black-box tests: one binary.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub
)]

// Tests with signals, named pipes and shell scripts are marked, and so are tests of this source
// tree; `windows` contains the equivalents for that system.
#[cfg(unix)]
mod aggregator;
mod attack;
#[cfg(unix)]
mod baseline;
#[cfg(unix)]
mod board;
mod certify;
mod certify_ai;
mod channel;
mod ci;
#[cfg(unix)]
mod client_library;
mod cluster;
#[cfg(unix)]
mod clusters;
mod commands;
mod completion;
#[cfg(unix)]
mod contributing;
#[cfg(unix)]
mod conventions;
#[cfg(unix)]
mod dependencies;
mod diff;
#[cfg(unix)]
mod docs;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod each;
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
mod load;
#[cfg(unix)]
mod local;
#[path = "../scripts/man.rs"]
mod man;
mod marks;
#[cfg(unix)]
mod mistakes;
mod nightly;
mod nodes;
#[cfg(unix)]
mod original;
#[cfg(target_os = "linux")]
mod outcomes;
#[cfg(unix)]
mod packaging;
mod page;
#[cfg(unix)]
mod parity;
#[cfg(target_os = "linux")]
mod peers;
mod permissions;
mod plugins;
mod podlogs;
mod postprocess;
mod query;
mod refusal;
#[cfg(unix)]
mod restarts;
mod results;
mod retrieve;
#[cfg(unix)]
mod retry;
mod run;
#[cfg(unix)]
mod schema;
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
