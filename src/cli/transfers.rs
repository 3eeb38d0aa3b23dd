//! Transfers images one after the other: a board on a terminal, lines and heartbeats elsewhere.
//!
//! Owns the counts, and continues after the failure of an image. Knows nothing of registries.

use std::cell::RefCell;
use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};

use super::flag::Args;
use super::shown::{self, Plain};
use crate::board::{Board, ProgressOutput, Scene, Task, Unit};
use base::oci::Descriptor;
use base::temp;

/// A sequence of transfers.
pub(super) struct Transfers<'a> {
    board: &'a Board,
    title: String,
    /// Whether a board is drawn, which other programs' progress output would garble.
    pub(super) drawn: bool,
    all: RefCell<Task>,
    current: RefCell<Current>,
}

/// The current image: its name, and its layers by digest with size and bytes transferred.
#[derive(Default)]
struct Current {
    name: String,
    layers: HashMap<String, (u64, u64)>,
}

/// Calls `step` for each image, described by `name`; a dry run only says what would be done.
pub(super) fn each<T>(
    args: Args,
    verb: &str,
    images: &[T],
    name: impl Fn(&T) -> String,
    step: impl Fn(&T, &Transfers<'_>) -> Result<()>,
) -> Result<()> {
    if args.on("dry-run") {
        images.iter().for_each(|image| log::info!("would {verb} {}", name(image)));
        return Ok(());
    }
    let output = shown::or_plain(args);
    shown::with(output, Plain::Log, |board| {
        let all =
            Task { name: "all".into(), unit: Unit::Images, total: images.len() as u64, ..Task::default() };
        let transfers = Transfers {
            board,
            title: format!("{verb} images"),
            drawn: output == ProgressOutput::Board,
            all: all.into(),
            current: RefCell::default(),
        };
        for image in images {
            let name = name(image).rsplit('/').next().unwrap_or_default().to_owned();
            transfers.current.replace(Current { name, ..Current::default() });
            transfers.show()?;
            let ended = step(image, &transfers);
            if let Err(error) = &ended {
                // The output is closed, so stop the transfers.
                if super::output::left(error) {
                    return ended;
                }
                log::error!("{error:#}");
            }
            transfers.current.take();
            let mut all = transfers.all.borrow_mut();
            all.done += 1;
            all.failed += u64::from(ended.is_err());
            all.over = all.done == all.total;
            drop(all);
            transfers.show()?;
        }
        let failed = transfers.all.borrow().failed;
        ensure!(failed == 0, "failed with {failed} image{}", if failed == 1 { "" } else { "s" });
        Ok(())
    })
}

/// A temporary folder for blobs.
pub(super) fn work() -> Result<temp::Folder> {
    shown::exit_on_signal()?;
    temp::Folder::new().context("cannot create a temporary folder")
}

impl Transfers<'_> {
    /// Records the progress of a layer of the image.
    pub(super) fn watch(&self, layer: &Descriptor, done: u64) {
        let known = self.current.borrow_mut().layers.insert(layer.digest.clone(), (layer.size, done));
        if known != Some((layer.size, done)) {
            // A closed output is reported when the image has ended.
            let _ = self.show();
        }
    }

    fn show(&self) -> Result<()> {
        let Current { name, layers } = &*self.current.borrow();
        let all = self.all.borrow().clone();
        let state = (if all.over { "done" } else { "at work" }).into();
        let mut tasks = vec![all];
        if !name.is_empty() {
            let (unit, total) = match layers.is_empty() {
                true => (Unit::Once, 1),
                false => (Unit::Bytes, layers.values().map(|(size, _)| size).sum()),
            };
            let done = layers.values().map(|(_, done)| done).sum();
            tasks.push(Task { name: name.clone(), unit, done, total, ..Task::default() });
        }
        let hint = "Ctrl-C stops the transfer; the same command resumes it";
        let footer = vec![hint.into()];
        self.board.show(Scene { title: self.title.clone(), state, tasks, footer, ..Scene::default() })
    }
}
