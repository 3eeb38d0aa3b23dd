//! Downloading the archive of a run, with its progress, for each command that needs it.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::flag::interrupted;
use super::output::{self, ProgressForm};
use crate::progress_view::{Scene, Task, Unit};
use crate::remote::{Retrieval, RetrievalError};
use base::archive;
use base::at::At as _;
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
    let fetched = output::with_board(output::or_quiet(progress), |board| {
        let show = |done, total, over: bool| {
            let task = Task {
                name: "archive".into(),
                unit: Unit::Bytes,
                done,
                total,
                over,
                ..Task::default()
            };
            let scene = Scene {
                title: format!("results of namespace {}", retrieval.namespace),
                state: (if over { "fetched" } else { "coming" }).into(),
                tasks: vec![task],
                footer: vec!["Ctrl-C ends it, and leaves nothing behind".into()],
                ..Scene::default()
            };
            board.show(scene);
        };
        let size = Cell::new(0);
        let watch = |done, total| {
            size.set(done);
            show(done, total, false);
        };
        let fetched = Retrieval {
            watch: &watch,
            ..*retrieval
        }
        .fetch(stop);
        if fetched.is_ok() {
            show(size.get(), size.get(), true);
        }
        Ok(fetched)
    });
    fetched.unwrap_or_else(|error| Err(error.into()))
}

/// Unpacks an archive into a folder.
pub(super) fn unpack(path: &Path, into: &Path) -> Result<()> {
    let file = File::open(path).at("cannot read", path)?;
    archive::unpack(file, into, &archive::Limits::default())
        .at("cannot unpack", path)
        .map(drop)
}
