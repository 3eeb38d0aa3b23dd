//! Fetches the archives of a run, with a board on a terminal and heartbeats elsewhere.

use std::path::PathBuf;

use clap::ArgMatches;

use super::shown::{self, Plain};
use crate::board::{Scene, Task, Unit};
use crate::remote::{Failure, Retrieval};
use base::stop::Stop;

/// Fetches the wanted archives; returns the paths in order of arrival.
pub(super) fn fetch(
    matches: &ArgMatches,
    retrieval: &Retrieval<'_>,
    stop: &Stop,
) -> Result<Vec<PathBuf>, Failure> {
    let fetched = shown::with(shown::or_quiet(matches), Plain::Log, |board| {
        let show = |done, total, over: bool| {
            let task =
                Task { name: "archive".into(), unit: Unit::Bytes, done, total, over, ..Task::default() };
            let scene = Scene {
                title: format!("results of namespace {}", retrieval.namespace),
                state: (if over { "fetched" } else { "coming" }).into(),
                tasks: vec![task],
                footer: vec!["Ctrl-C ends it, and leaves nothing behind".into()],
                ..Scene::default()
            };
            // A closed output does not stop the download.
            drop(board.show(scene));
        };
        let size = std::cell::Cell::new(0);
        let watch = |done, total| {
            size.set(done);
            show(done, total, false);
        };
        let fetched = Retrieval { watch: &watch, ..*retrieval }.fetch(stop);
        if fetched.is_ok() {
            show(size.get(), size.get(), true);
        }
        Ok(fetched)
    });
    fetched.unwrap_or_else(|error| Err(Failure::Transfer(error)))
}
