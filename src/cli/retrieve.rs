//! `sonobuoy retrieve`: downloads the archive of a run. Prints only file names on stdout.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;

use super::flag::value;
use super::{cluster, fetching, output, shown, status};
use crate::remote::{Failure, Retrieval};
use base::at::At as _;
use base::{archive, live, visible};

/// Exit code of a failed transfer, as opposed to earlier failures.
const TRANSFER: u8 = 2;

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let stop = shown::stop_on_signal()?;
    let client = cluster::client(matches, &stop);
    let into = PathBuf::from(value(matches, "dir").unwrap_or("."));
    let namespace = value(matches, "namespace").unwrap_or_default();
    let service = status::service(matches, namespace)?;
    let client = match client {
        Err(_) if service.is_some() => None,
        client => Some(client?),
    };
    let retrieval = Retrieval {
        client: client.as_ref(),
        namespace,
        from: value(matches, "retrieve-path").unwrap_or_default(),
        into: &into,
        name: value(matches, "filename"),
        partial: matches.get_flag("partial"),
        service: service.as_ref(),
        force: matches.get_flag("force"),
        keep_seal: !matches.get_flag("extract"),
        watch: &|_, _| (),
    };
    let fetched = fetching::fetch(matches, &retrieval, &stop).and_then(|paths| {
        if matches.get_flag("extract") {
            extract(&paths, &into).map_err(Failure::Transfer)?;
            return Ok(Vec::new());
        }
        Ok(paths)
    });
    match fetched {
        Ok(paths) => {
            for path in paths {
                let path = path.strip_prefix(".").unwrap_or(&path);
                output::print(&format!("{}\n", path.display()))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(Failure::Unasked(error)) => Err(error),
        Err(Failure::NotReady(error)) => {
            say("Results not ready yet. Check `sonobuoy status` for status.");
            Err(error)
        }
        Err(Failure::Transfer(error)) => {
            say(&format!("error retrieving results: {error:#}"));
            Ok(ExitCode::from(TRANSFER))
        }
    }
}

/// Writes a line of the original, for scripts, to standard error.
fn say(line: &str) {
    let line = format!("{}\n", visible::line(&visible::without_codes(line)));
    let _ = live::around(|| std::io::stderr().write_all(line.as_bytes()));
}

/// Unpacks each archive next to it, and deletes the archive.
fn extract(paths: &[PathBuf], into: &Path) -> anyhow::Result<()> {
    for path in paths {
        let file = File::open(path).at("cannot read", path)?;
        archive::unpack(file, into, &archive::Limits::default()).at("cannot unpack", path)?;
        fs::remove_file(path).at("cannot remove", path)?;
    }
    Ok(())
}
