//! What the black-box tests stand on: running the program, temporary folders, golden files, readable differences.
//!
//! Uses no type of the crate, so that both sides cannot be wrong together.

#![allow(dead_code)]

pub mod api_server;
pub mod archive;
pub mod bounded;
pub mod cluster;
pub mod command;
pub mod diff;
pub mod folder;
pub mod peer;
pub mod receiver;
pub mod registry;
pub mod watchdog;

#[allow(unused_imports)]
pub use archive::Archive;
#[allow(unused_imports)]
pub use bounded::bounded;
#[allow(unused_imports)]
pub use command::Sonobuoy;
#[allow(unused_imports)]
pub use folder::Folder;

use std::path::PathBuf;

/// A file below `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The text of a file below `tests/fixtures`.
pub fn fixture_text(name: &str) -> String {
    let path = fixture(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Says that a test did not run, and why, where everybody sees it: what goes through `eprintln!` is shown of failed
/// tests only.
pub fn skipped(why: &str) {
    use std::io::Write as _;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Where a program is, if this machine has it.
pub fn program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
