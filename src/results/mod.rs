//! From what plugins sent to what people and pipelines read.
//!
//! Post-processing (`process`) makes one tree of items of a plugin's files: `junit` over `xml`, `gojson`, `failure`,
//! manual results by `read`; `tree` writes it. Showing begins with `open`: `source` is the archive or folder, `spool`
//! what was taken out of it, `read` tells a tree item by item to whoever shows it (`text`, with `health`). Works on
//! folders and archives; does not know how the files got there. Everything that grows with the input streams.

mod compact;
mod diff;
mod failed;
mod failure;
#[cfg(any(fuzzing, test))]
mod fuzz;
mod gojson;
mod health;
mod html;
mod json;
mod junit;
mod leaf;
mod logs;
mod markup;
mod open;
mod overview;
mod process;
mod read;
mod snapshot;
mod source;
mod spool;
mod suites;
mod text;
mod tree;
mod utf16;
mod xml;

pub use diff::{Diff, Look};
pub use failed::failed;
#[cfg(fuzzing)]
pub use fuzz::{file as fuzz_file, tree as fuzz_tree};
pub use html::write as write_html;
pub use json::write as write_json;
pub use open::{Depth, Opened, open};
pub use overview::Overview;
pub use process::{RESULTS_FILE, Rules, process};
pub use snapshot::Objects;
pub use suites::write as write_junit;
pub use text::{Mode, View, show};
