//! Foundations of the black-box tests: running the program, temporary folders, golden files,
//! readable differences.
//!
//! Uses no type of the crate, so that both sides cannot be wrong together.

#![allow(dead_code)]

pub use fake_api_server as api_server;
pub mod archive;
pub mod bounded;
pub mod cluster;
pub mod command;
pub mod diff;
pub mod folder;
pub mod peer;
#[cfg(target_os = "linux")]
pub mod reader;
pub mod receiver;
pub mod registry;
pub mod skip;
pub mod system;
pub mod watchdog;
pub mod web;

#[allow(unused_imports)]
pub use archive::Archive;
#[allow(unused_imports)]
pub use bounded::bounded;
#[allow(unused_imports)]
pub use command::Sonobuoy;
#[allow(unused_imports)]
pub use folder::Folder;
#[allow(unused_imports)]
pub use skip::{any_program, program, skipped};

use std::path::PathBuf;

/// A file below `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// The text of a file below `tests/fixtures`.
pub fn fixture_text(name: &str) -> String {
    let path = fixture(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
