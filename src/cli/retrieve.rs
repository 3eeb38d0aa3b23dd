//! `sonobuoy retrieve`: fetches the archives of a run, and unpacks them if requested. Prints only
//! file names on stdout.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::flag::{Args, interrupted};
use super::{cluster, output};
use crate::progress_view::{Scene, Task, Unit};
use crate::remote::{Retrieval, RetrievalError};
use base::archive;
use base::at::At as _;
use base::stop::Stop;
use base::sys;

/// Exit code of a failed transfer, as opposed to earlier failures.
pub(super) const TRANSFER: u8 = 2;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    let stop = output::stop_on_signal()?;
    // What is private as an archive is private unpacked.
    sys::create_private_files();
    let into = Path::new(args.text("dir").unwrap_or("."));
    let (namespace, client, service) = cluster::to_run(args, &stop)?;
    let retrieval = Retrieval {
        client: client.as_ref(),
        from: args.word("retrieve-path"),
        name: args.text("filename"),
        partial: args.on("partial"),
        service: service.as_ref(),
        force: args.on("force"),
        keep_seal: !args.on("extract"),
        ..Retrieval::new(&namespace, into)
    };
    let fetched = fetch(args, &retrieval, &stop).and_then(|mut paths| {
        if args.on("extract") {
            // Unpacked archives are gone, so no path is printed.
            for path in paths.drain(..) {
                unpack(&path, into)?;
                fs::remove_file(&path).at("cannot remove", &path)?;
            }
        }
        Ok(paths)
    });
    match fetched {
        Ok(paths) => {
            for path in paths {
                output::line(path.strip_prefix(".").unwrap_or(&path).display());
            }
            Ok(0)
        }
        Err(failure) if output::is_interrupted() => Err(interrupted_transfer(failure)),
        Err(RetrievalError::Unasked(error)) => Err(error),
        Err(RetrievalError::NotReady(error)) => {
            output::error("Results not ready yet. Check `sonobuoy status` for status.\n");
            Err(error)
        }
        Err(failure) => {
            output::error(&format!(
                "error retrieving results: {:#}\n",
                failure.into_error()
            ));
            Ok(TRANSFER)
        }
    }
}

/// The error for a transfer that Ctrl-C ended.
pub(super) fn interrupted_transfer(failure: RetrievalError) -> anyhow::Error {
    log::debug!("{:#}", failure.into_error());
    interrupted("the transfer was interrupted; nothing is left of it")
}

/// Fetches the wanted archives; returns the paths in order of arrival.
pub(super) fn fetch(
    args: Args,
    retrieval: &Retrieval<'_>,
    stop: &Stop,
) -> Result<Vec<PathBuf>, RetrievalError> {
    let fetched = output::with_board(output::or_quiet(args), |board| {
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
