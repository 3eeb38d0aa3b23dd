//! Selects the form of progress output: `--output`, or by the type of standard output and standard error.
//!
//! Owns the decision and the destination of lines; `board` owns content and timing.

use anyhow::Result;

use super::flag::Args;
use super::output;
use crate::board::{self, Board, ProgressOutput};
use base::stop::Stop;
use base::sys::{self, Signal};
use base::{clock, logger, temp, visible};

/// Values of `--output`.
pub(crate) const WORDS: &[&str] = &["plain", "board", "json"];
/// Modules whose messages repeat the board; they still go to the run's log.
const TOLD_BY_BOARD: &[&str] = &["sonobuoy::aggregator::store", "sonobuoy::pipeline::launch"];

/// The output of `--output`; `None` without it. A board that cannot be drawn becomes lines.
fn asked_for(args: Args) -> Option<ProgressOutput> {
    match args.text("output")? {
        "board" if board::possible() => Some(ProgressOutput::Board),
        "board" => {
            log::warn!("--output board needs a terminal; there is a line for each change instead");
            Some(ProgressOutput::Plain)
        }
        "json" => Some(ProgressOutput::Json),
        _ => Some(ProgressOutput::Plain),
    }
}

/// The requested output, else a board on a terminal; `None` for the original's lines.
pub(crate) fn or_original(args: Args) -> Option<ProgressOutput> {
    let watched = || std::io::IsTerminal::is_terminal(&std::io::stdout()) && board::possible();
    asked_for(args).or_else(|| watched().then_some(ProgressOutput::Board))
}

/// The requested output, else a board if one can be drawn, else lines.
pub(crate) fn or_plain(args: Args) -> ProgressOutput {
    asked_for(args).unwrap_or(if board::possible() { ProgressOutput::Board } else { ProgressOutput::Plain })
}

/// A board if one can be drawn and is not declined, else only heartbeats: for short operations.
pub(crate) fn or_quiet(args: Args) -> ProgressOutput {
    match or_plain(args) {
        ProgressOutput::Board => ProgressOutput::Board,
        _ => ProgressOutput::Quiet,
    }
}

/// Whether standard output carries only events.
pub(crate) fn is_json(args: Args) -> bool {
    asked_for(args) == Some(ProgressOutput::Json)
}

/// Reports the archive to programs; `path` is its location.
pub(crate) fn archive(path: &str) -> Result<()> {
    output::data(&format!("{}\n", board::archive_event(path)))
}

/// The exit code that a shell reports for a program ended by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// Calls `act` on Ctrl-C and at the end of a container or session.
fn on_signal(act: impl FnMut() + Send + 'static) -> Result<()> {
    Ok(sys::on_signal(&[Signal::Interrupt, Signal::Terminate], act)?)
}

/// A `Stop` that Ctrl-C and the end of a container or session trigger.
pub(crate) fn stop_on_signal() -> Result<Stop> {
    let stop = Stop::new();
    let asked = stop.clone();
    on_signal(move || asked.stop())?;
    Ok(stop)
}

/// Makes Ctrl-C and the end of a container or session exit the program and delete its temporary folders.
pub(crate) fn exit_on_signal() -> Result<()> {
    on_signal(|| temp::exit(INTERRUPTED.into()))
}

/// Makes Ctrl-C trigger `stop`, and a second one exit the program.
pub(crate) fn stop_on_interrupt(stop: &Stop) -> Result<()> {
    let stop = stop.clone();
    on_signal(move || {
        if stop.stopped() {
            temp::exit(INTERRUPTED.into());
        }
        stop.stop_because("it was interrupted");
    })
}

/// Runs `work` with a board. Lines of `plain` go to standard output with the time, or to the log.
pub(crate) fn with<T>(
    output: ProgressOutput,
    plain: Plain,
    work: impl FnOnce(&Board) -> Result<T>,
) -> Result<T> {
    let say = |line: &str| match (output, plain) {
        (ProgressOutput::Json, _) => output::data(&format!("{line}\n")),
        (ProgressOutput::Plain, Plain::Stdout) => output::line(format!("{} {line}", time())),
        (ProgressOutput::Plain, Plain::Log) | (ProgressOutput::Quiet, _) => {
            log::info!("{line}");
            Ok(())
        }
        (ProgressOutput::Board, _) => {
            output::error(&format!("{}\n", visible::line(line)));
            Ok(())
        }
    };
    logger::told_elsewhere(TOLD_BY_BOARD);
    let worked = board::with(output, &say, work);
    logger::told_elsewhere(&[]);
    worked
}

/// The destination of plain lines.
#[derive(Clone, Copy)]
pub(crate) enum Plain {
    /// Standard output: the lines are the requested output.
    Stdout,
    /// The log: standard output carries the result.
    Log,
}

/// The current time as `HH:MM:SS` in UTC.
pub(crate) fn time() -> String {
    clock::now().get(11..19).unwrap_or_default().to_owned()
}
