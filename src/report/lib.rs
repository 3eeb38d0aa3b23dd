//! Shows what is in an archive: as text, as JSON, CSV and JUnit, as a page, and as the changes
//! between two.
//!
//! `archive` reads files once, as deep as a view needs; `run` counts the trees of its plugins into
//! one `Report`, and passes on their cases. Views are functions of a report: `suites` (JUnit),
//! `brief` (text and Markdown) and `page`, `many` (several runs) and `diff`; `text` shows trees as the
//! original does. `survey` and `facts` each know some of the other files. Does not know how the
//! files arrived; all data that grows with the input is streamed or bounded.

#![allow(
    missing_docs,
    rustdoc::private_intra_doc_links,
    reason = "an internal crate: names and headers say it"
)]

mod archive;
mod brief;
pub mod certify;
mod diff;
mod facts;
mod files;
pub mod junit;
mod many;
mod page;
mod rerun;
mod run;
mod suites;
mod survey;
mod terminal;
mod text;
mod words;

/// The version of all JSON documents, raised when a key is renamed or removed or changes its
/// meaning; new keys do not raise it.
const SCHEMA_VERSION: u32 = 1;

pub use archive::{ArchiveSource, Depth, OpenedArchive, PassAction, archives, locate, newest};
pub use brief::{safe as markdown_text, write_markdown};
pub use diff::{Diff, Objects};
pub use facts::FactTables;
pub use files::ExtractedFiles;
pub use many::Many;
pub use page::{write as write_html, write_diff as write_diff_html, write_many as write_many_html};
pub use rerun::{Interrupted, failed, failed_in, interrupted, per_test};
pub use run::{Report, write_json};
pub use suites::{
    write as write_junit, write_diff as write_diff_junit, write_many as write_many_junit,
};
pub use terminal::{Look, TextOutput};
pub use text::{View, ViewMode, known_nodes};
