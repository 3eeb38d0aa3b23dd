//! Transfers of the archive of a run, with their progress: downloading it, for each command that
//! needs it, and uploading it.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::flag::interrupted;
use super::output::{self, ProgressForm};
use crate::pipeline;
use crate::progress_view::{Scene, Task, Unit};
use crate::remote::{Retrieval, RetrievalError};
use base::archive;
use base::at::At as _;
use base::fetch::origin;
use base::stop::Stop;

/// Exit code of a failed transfer, as opposed to earlier failures.
pub(super) const TRANSFER: u8 = 2;

/// The error for a transfer that Ctrl-C ended.
pub(super) fn interrupted_transfer(failure: RetrievalError) -> anyhow::Error {
    log::debug!("{:#}", failure.into_error());
    interrupted("the transfer was interrupted; nothing is left of it")
}

/// Fetches the wanted archives; returns the paths in order of arrival.
pub(super) fn fetch(
    progress: Option<ProgressForm>,
    retrieval: &Retrieval<'_>,
    stop: &Stop,
) -> Result<Vec<PathBuf>, RetrievalError> {
    let transfer = Transfer {
        title: format!("results of namespace {}", retrieval.namespace),
        under_way: "coming",
        over: "fetched",
    };
    let fetched = output::with_board(output::or_quiet(progress), |board| {
        let size = Cell::new(0);
        let watch = |done, total| {
            size.set(done);
            board.show(transfer.scene(done, total, false));
        };
        let fetched = Retrieval {
            watch: &watch,
            ..*retrieval
        }
        .fetch(stop);
        if fetched.is_ok() {
            board.show(transfer.scene(size.get(), size.get(), true));
        }
        Ok(fetched)
    });
    fetched.unwrap_or_else(|error| Err(error.into()))
}

/// Uploads archives to the URL of `--upload`.
pub(super) fn upload(
    progress: Option<ProgressForm>,
    paths: &[PathBuf],
    url: &str,
    stop: &Stop,
) -> Result<()> {
    let transfer = Transfer {
        title: format!("upload to {}", origin(url)),
        under_way: "being sent",
        over: "sent",
    };
    output::with_board(output::or_quiet(progress), |board| {
        let size = Cell::new(0);
        pipeline::upload(paths, url, stop, &|done, total| {
            size.set(total);
            board.show(transfer.scene(done, total, false));
        })?;
        board.show(transfer.scene(size.get(), size.get(), true));
        Ok(())
    })
}

/// A transfer of an archive, in words.
struct Transfer {
    title: String,
    under_way: &'static str,
    over: &'static str,
}

impl Transfer {
    /// How many bytes of how many have passed.
    fn scene(&self, done: u64, total: u64, is_over: bool) -> Scene {
        let task = Task {
            name: "archive".into(),
            unit: Unit::Bytes,
            done,
            total,
            over: is_over,
            ..Task::default()
        };
        let state = if is_over { self.over } else { self.under_way };
        Scene {
            title: self.title.clone(),
            state: state.into(),
            tasks: vec![task],
            footer: vec!["Ctrl-C ends it, and leaves nothing behind".into()],
            ..Scene::default()
        }
    }
}

/// Unpacks an archive into a folder.
pub(super) fn unpack(path: &Path, into: &Path) -> Result<()> {
    let file = File::open(path).at("cannot read", path)?;
    archive::unpack(file, into, &archive::Limits::default())
        .at("cannot unpack", path)
        .map(drop)
}
