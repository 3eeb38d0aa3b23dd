//! From the files of plugins to reports for users and pipelines.
//!
//! Post-processing (`process`) converts a plugin's files to one tree of items: `junit` over `xml`, `gojson`,
//! `failure`, manual results by `read`; `tree` writes it. Reports start with `open`: `source` is the archive or
//! folder, `spool` holds extracted files, `read` passes a tree item by item to a view (`text`, with `health`). Works
//! on folders and archives; does not know how the files arrived. All data that grows with the input is streamed.

mod column;
mod compact;
mod diff;
mod facts;
mod failed;
mod headline;
mod health;
mod json;
mod leaf;
mod logs;
mod look;
mod many;
mod missing;
mod open;
mod overview;
mod page;
mod people;
mod resume;
mod select;
mod snapshot;
mod source;
mod spool;
mod suites;
mod survey;
mod tails;
mod text;
mod times;
mod words;

pub(crate) use diff::Diff;
pub(crate) use facts::Facts;
pub(crate) use failed::{failed, failed_in, is_suite_node, per_test};
pub(crate) use json::write as write_json;
pub(crate) use look::Look;
pub(crate) use many::Many;
pub(crate) use open::{Depth, Opened, open};
pub(crate) use overview::Overview;
pub(crate) use page::{write as write_html, write_diff as write_diff_html};
pub(crate) use people::write as write_people;
pub(crate) use resume::{Interrupted, interrupted};
pub(crate) use snapshot::Objects;
pub(crate) use source::{Files, Source, locate};
pub(crate) use suites::{write as write_junit, write_diff as write_diff_junit};
pub(crate) use text::{Mode, View, known_nodes, show};
