//! From what plugins sent to what people and pipelines read.
//!
//! Post-processing (`process`) makes one tree of items of a plugin's files: `junit` over `xml`, `gojson`, `failure`,
//! manual results by `read`; `tree` writes it. Showing begins with `open`: `source` is the archive or folder, `spool`
//! what was taken out of it, `read` tells a tree item by item to whoever shows it (`text`, with `health`). Works on
//! folders and archives; does not know how the files got there. Everything that grows with the input streams.

mod compact;
mod diff;
mod failed;
mod health;
mod html;
mod json;
mod leaf;
mod logs;
mod open;
mod overview;
mod snapshot;
mod source;
mod spool;
mod suites;
mod text;

pub use diff::{Diff, Look};
pub use failed::failed;
pub use html::write as write_html;
pub use json::write as write_json;
pub use open::{Depth, Opened, open};
pub use overview::Overview;
pub use snapshot::Objects;
pub use suites::write as write_junit;
pub use text::{Mode, View, show};
