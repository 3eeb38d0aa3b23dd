//! Transfers images one after the other: a board on a terminal, lines and heartbeats elsewhere.
//!
//! Owns the counts, and continues after the failure of an image. Knows nothing of registries.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Display;

use anyhow::{Result, ensure};

use super::shown::{self, Plain};
use crate::board::{Board, Output, Scene, Task, Unit};
use base::oci::Descriptor;

/// A sequence of transfers.
pub(super) struct Transfers<'a> {
    board: &'a Board,
    title: &'a str,
    /// Whether a board is drawn, which other programs' progress output would garble.
    pub(super) drawn: bool,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    all: Task,
    /// The name of the current image.
    current: String,
    /// Its layers by digest: size and bytes transferred.
    parts: HashMap<String, (u64, u64)>,
}

/// Calls `step` for each image, under this title; a dry run needs no board.
pub(super) fn each<T: Display>(
    title: &str,
    dry: bool,
    images: &[T],
    step: impl Fn(&T, &Transfers<'_>) -> Result<()>,
) -> Result<()> {
    let output = if dry { Output::Quiet } else { shown::usual() };
    shown::with(output, Plain::Log, |board| {
        let all =
            Task { name: "all".into(), unit: Unit::Images, total: images.len() as u64, ..Task::default() };
        let state = RefCell::new(State { all, ..State::default() });
        let transfers = Transfers { board, title, drawn: output == Output::Board, state };
        for image in images {
            transfers.begin(&image.to_string())?;
            let ended = step(image, &transfers);
            if let Err(error) = &ended {
                // The output is closed, so stop the transfers.
                if super::output::left(error) {
                    return ended;
                }
                log::error!("{error:#}");
            }
            transfers.end(ended.is_err())?;
        }
        let failed = transfers.state.borrow().all.failed;
        ensure!(failed == 0, "failed with {failed} image{}", if failed == 1 { "" } else { "s" });
        Ok(())
    })
}

impl Transfers<'_> {
    /// Records the progress of a layer of the image.
    pub(super) fn watch(&self, part: &Descriptor, done: u64) {
        let known = self.state.borrow_mut().parts.insert(part.digest.clone(), (part.size, done));
        if known != Some((part.size, done)) {
            // A closed output is reported when the image has ended.
            let _ = self.show();
        }
    }

    fn begin(&self, image: &str) -> Result<()> {
        let mut state = self.state.borrow_mut();
        state.current = image.rsplit('/').next().unwrap_or(image).to_owned();
        state.parts.clear();
        drop(state);
        self.show()
    }

    fn end(&self, failed: bool) -> Result<()> {
        let mut state = self.state.borrow_mut();
        state.current.clear();
        state.all.done += 1;
        state.all.failed += u64::from(failed);
        state.all.over = state.all.done == state.all.total;
        drop(state);
        self.show()
    }

    fn show(&self) -> Result<()> {
        let state = self.state.borrow();
        let sum = |of: fn(&(u64, u64)) -> u64| state.parts.values().map(of).sum();
        let current = Task {
            name: state.current.clone(),
            unit: if state.parts.is_empty() { Unit::Once } else { Unit::Bytes },
            done: sum(|(_, done)| *done),
            total: if state.parts.is_empty() { 1 } else { sum(|(size, _)| *size) },
            ..Task::default()
        };
        let mut tasks = vec![state.all.clone()];
        tasks.extend((!state.current.is_empty()).then_some(current));
        let hint = "Ctrl-C stops it; the same command then sends only what is missing";
        self.board.show(Scene {
            title: self.title.into(),
            state: (if state.all.over { "done" } else { "at work" }).into(),
            tasks,
            footer: vec![hint.into()],
            ..Scene::default()
        })
    }
}
