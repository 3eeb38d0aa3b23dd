//! How a command tells what goes on: `--output`, or what standard output and standard error are.
//!
//! Owns the decision and where lines go; what they say and when is `board`'s.

use std::io::Write as _;

use anyhow::Result;
use clap::ArgMatches;

use super::output;
use crate::board::{self, Board, Output};
use base::stop::Stop;
use base::sys::{self, Signal};
use base::{clock, live, logger, temp, visible};

/// What `--output` takes.
pub(crate) const WORDS: &[&str] = &["plain", "board", "json"];
/// What the board tells already; their messages still go to the run's log.
const TOLD_BY_BOARD: &[&str] = &["sonobuoy::aggregator::store", "sonobuoy::pipeline::launch"];

/// What `--output` says; none if it says nothing. A board that cannot be drawn becomes lines.
fn asked_for(matches: &ArgMatches) -> Option<Output> {
    let word = matches.try_get_one::<String>("output").ok().flatten()?;
    match word.as_str() {
        "board" if board::possible() => Some(Output::Board),
        "board" => {
            log::warn!("--output board needs a terminal; there is a line for each change instead");
            Some(Output::Plain)
        }
        "json" => Some(Output::Json),
        _ => Some(Output::Plain),
    }
}

/// What is asked for, else a board at a terminal; none where lines of the original are expected.
pub(crate) fn or_original(matches: &ArgMatches) -> Option<Output> {
    let watched = || std::io::IsTerminal::is_terminal(&std::io::stdout()) && board::possible();
    asked_for(matches).or_else(|| watched().then_some(Output::Board))
}

/// What is asked for, else a board where one can be drawn, else lines.
pub(crate) fn or_plain(matches: &ArgMatches) -> Output {
    asked_for(matches).unwrap_or_else(usual)
}

/// A board where one can be drawn, else lines.
pub(crate) fn usual() -> Output {
    if board::possible() { Output::Board } else { Output::Plain }
}

/// A board where one can be drawn and is not refused, else signs of life alone: for what is over soon.
pub(crate) fn or_quiet(matches: &ArgMatches) -> Output {
    match or_plain(matches) {
        Output::Board => Output::Board,
        _ => Output::Quiet,
    }
}

/// Whether standard output is for events alone.
pub(crate) fn is_json(matches: &ArgMatches) -> bool {
    asked_for(matches) == Some(Output::Json)
}

/// Tells programs what came of it; `path` is where it is.
pub(crate) fn archive(path: &str) -> Result<()> {
    output::data(&format!("{}\n", board::archive_event(path)))
}

/// Whoever pressed Ctrl-C knows that it did not go well; this is what became of it.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) String);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Interrupted {}

/// What a shell reports for a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// What Ctrl-C and the end of a container or session stop.
pub(crate) fn stop_on_signal() -> Result<Stop> {
    let stop = Stop::new();
    let asked = stop.clone();
    sys::on_signal(&[Signal::Interrupt, Signal::Terminate], move || asked.stop())?;
    Ok(stop)
}

/// From now on Ctrl-C and the end of a container or session end the program, and its temporary folders.
pub(crate) fn exit_on_signal() -> Result<()> {
    Ok(sys::on_signal(&[Signal::Interrupt, Signal::Terminate], || temp::exit(INTERRUPTED.into()))?)
}

/// From now on Ctrl-C asks `stop`, and another one ends the program.
pub(crate) fn stop_on_interrupt(stop: &Stop) -> Result<()> {
    let stop = stop.clone();
    sys::on_signal(&[Signal::Interrupt, Signal::Terminate], move || {
        if stop.stopped() {
            temp::exit(INTERRUPTED.into());
        }
        stop.stop_because("it was interrupted");
    })?;
    Ok(())
}

/// Runs `work` with a board. Lines of `plain` go to standard output with the time, or to the log.
pub(crate) fn with<T>(output: Output, plain: Plain, work: impl FnOnce(&Board) -> Result<T>) -> Result<T> {
    let say = |line: &str| match (output, plain) {
        (Output::Json, _) => output::data(&format!("{line}\n")),
        (Output::Plain, Plain::Stdout) => output::print(&format!("{} {line}\n", time())),
        (Output::Plain, Plain::Log) | (Output::Quiet, _) => {
            log::info!("{line}");
            Ok(())
        }
        (Output::Board, _) => {
            let line = format!("{}\n", visible::line(line));
            // Nobody may be there any more.
            let _ = live::around(|| std::io::stderr().write_all(line.as_bytes()));
            Ok(())
        }
    };
    logger::told_elsewhere(TOLD_BY_BOARD);
    let worked = board::with(output, &say, work);
    logger::told_elsewhere(&[]);
    worked
}

/// Where plain lines go.
#[derive(Clone, Copy)]
pub(crate) enum Plain {
    /// They are what was asked for.
    Stdout,
    /// Standard output is for what comes of it.
    Log,
}

/// Now, as `HH:MM:SS` in UTC.
pub(crate) fn time() -> String {
    clock::now().get(11..19).unwrap_or_default().to_owned()
}
