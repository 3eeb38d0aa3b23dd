//! Images on their way, one after the other: a board at a terminal, lines and signs of life elsewhere.
//!
//! Owns what is counted, and that one image that fails keeps no other from its way. Knows nothing of registries.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Display;

use anyhow::{Result, ensure};

use super::shown::{self, Plain};
use crate::board::{Board, Output, Scene, Task, Unit};
use base::oci::Descriptor;

/// Images on their way.
pub(super) struct Transfers<'a> {
    board: &'a Board,
    title: &'a str,
    /// Whether there is a board, so that other programs' own progress would be in its way.
    pub(super) drawn: bool,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    all: Task,
    /// The one that is at work, by name.
    current: String,
    /// Its parts by digest: how large they are, and how much of them is there.
    parts: HashMap<String, (u64, u64)>,
}

/// Takes `step` with each image, under this title; one that only says what would be done needs no board.
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
                // Nobody is left who would see the others come.
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
    /// Takes in that so much of a part of the image is there.
    pub(super) fn watch(&self, part: &Descriptor, done: u64) {
        let known = self.state.borrow_mut().parts.insert(part.digest.clone(), (part.size, done));
        if known != Some((part.size, done)) {
            // A board that nobody sees says so when the image has ended.
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
