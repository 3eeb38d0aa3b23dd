//! Standard output: data only; a closed output ends the program quietly. Tables in the forms of `-o`. The form of progress
//! output: `--output`, or by the type of standard output and standard error; `board` owns its content and timing. And signals.
//!
//! Owns the treatment of control characters: text for display never contains any from untrusted sources; data for
//! programs is unchanged unless it goes to a terminal.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, Write};

use anyhow::Result;
use serde_json::Value;

use super::flag::Args;
use crate::progress_view::{self, Board, ProgressOutput};
use crate::report::markdown_text;
use base::stop::Stop;
use base::sys::{self, Signal};
use base::visible::{self, Visible};
use base::{clock, live, logger, temp, yaml};

/// Values of `--output`.
pub(crate) const PROGRESS: &[&str] = &["plain", "board", "json"];
/// Modules whose messages repeat the board; they still go to the run's log.
const TOLD_BY_BOARD: &[&str] = &["sonobuoy::aggregator::store", "sonobuoy::pipeline::conduct"];

/// Standard output. Buffered by line only: wrap it in a `BufWriter` for large data.
struct Stdout(io::Stdout);

/// The reader has closed standard output; [`left`] detects it in a chain of errors.
#[derive(Debug)]
struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("standard output was closed by its reader")
    }
}

impl std::error::Error for OutputClosed {}

/// Standard output for data read by programs; on a terminal, control characters are made visible.
pub(crate) fn stdout() -> Box<dyn Write> {
    if io::stdout().is_terminal() { Box::new(Visible::new(Stdout(io::stdout()))) } else { raw() }
}

/// Standard output for callers that write escapes, and pass untrusted text through [`visible`].
fn raw() -> Box<dyn Write> {
    Box::new(Stdout(io::stdout()))
}

/// Standard output for much text; `escapes` is whether the caller writes escapes, as for [`raw`].
pub(crate) fn buffered(escapes: bool) -> BufWriter<Box<dyn Write>> {
    BufWriter::with_capacity(64 << 10, if escapes { raw() } else { stdout() })
}

/// Writes a line for display.
pub(crate) fn line(text: impl fmt::Display) -> Result<()> {
    print(&format!("{text}\n"))
}

/// Writes text for display, or JSON.
pub(crate) fn print(text: &str) -> Result<()> {
    write(raw(), &visible::text(text))
}

/// Writes `text` for programs.
pub(crate) fn data(text: &str) -> Result<()> {
    write(stdout(), text)
}

/// Writes text to standard error, which may be closed.
pub(crate) fn error(text: &str) {
    let text = visible::without_codes(text);
    let text = visible::text(&text);
    let _ = live::around(|| io::stderr().write_all(text.as_bytes()));
}

/// Aligned columns below their names: at the right after three spaces, as scripts of the original expect, else at the
/// left.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]], right: bool) -> String {
    let head = head.map(str::to_uppercase);
    let rows = std::iter::once(&head).chain(rows);
    let rows: Vec<[_; N]> = rows.map(|row| row.each_ref().map(|cell| visible::line(cell))).collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| visible::width(rows.iter().map(|row| &*row[column])));
    let line = |row: &[_; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| match right {
            true => format!("   {cell:>width$}"),
            false => format!("{cell:width$}  "),
        });
        let line: String = cells.collect();
        format!("{}\n", if right { &line } else { line.trim_end() })
    };
    rows.iter().map(line).collect()
}

/// Values of `-o` for a table.
pub(crate) const FORMS: &[&str] = &["json", "yaml", "wide", "name", "markdown"];

/// Prints a table in the requested form, by default the first column.
pub(crate) fn print_rows<const N: usize>(args: Args, head: [&str; N], rows: &[[String; N]]) -> Result<()> {
    print(&in_form(args.text("output"), head, rows, || first_column(rows)))
}

fn first_column<const N: usize>(rows: &[[String; N]]) -> String {
    rows.iter().map(|row| format!("{}\n", row[0])).collect()
}

/// The text of a table in a form of `-o`, else the usual one. `wide` is the table with all columns, `name` its first column.
pub(crate) fn in_form<const N: usize>(
    word: Option<&str>,
    head: [&str; N],
    rows: &[[String; N]],
    usual: impl FnOnce() -> String,
) -> String {
    let Some(word) = word else { return usual() };
    match word {
        "json" | "yaml" => {
            let object = |row: &[String; N]| -> Value { head.into_iter().zip(row.clone()).collect() };
            document(word, &rows.iter().map(object).collect())
        }
        "name" => first_column(rows),
        "markdown" => {
            let cells = rows.iter().map(|row| row.each_ref().map(|cell| markdown_text(cell)));
            let lines = [head.map(str::to_owned), head.map(|_| "---".into())].into_iter().chain(cells);
            lines.map(|cells| format!("| {} |\n", cells.join(" | "))).collect()
        }
        _ => table(head, rows, false),
    }
}

/// A document as JSON or YAML.
pub(crate) fn document(word: &str, value: &Value) -> String {
    if word == "yaml" { yaml::write(value) + "\n" } else { format!("{value:#}\n") }
}

fn write(mut out: Box<dyn Write>, text: &str) -> Result<()> {
    // A flush of nothing would erase the board.
    if text.is_empty() {
        return Ok(());
    }
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Whether `error` is due to a closed standard output, as opposed to any other closed pipe.
pub(crate) fn left(error: &anyhow::Error) -> bool {
    let mut inner = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()?.get_ref());
    inner.any(<dyn std::error::Error + Send + Sync>::is::<OutputClosed>)
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        live::around(|| self.0.write(bytes)).map_err(mark)
    }

    fn flush(&mut self) -> io::Result<()> {
        live::around(|| self.0.flush()).map_err(mark)
    }
}

fn mark(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(error.kind(), OutputClosed),
        // `write_all` retries after this one.
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("cannot write to standard output: {error}")),
    }
}

/// The output of `--output`; `None` without it. A board that cannot be drawn becomes lines.
fn asked_for(args: Args) -> Option<ProgressOutput> {
    match args.word("output") {
        "board" if progress_view::possible() => Some(ProgressOutput::Board),
        "board" => {
            log::warn!("--output board needs a terminal; there is a line for each change instead");
            Some(ProgressOutput::Plain)
        }
        "json" => Some(ProgressOutput::Json),
        "plain" => Some(ProgressOutput::Plain),
        _ => None,
    }
}

/// The requested output, else a board on a terminal; `None` for the original's lines.
pub(crate) fn or_original(args: Args) -> Option<ProgressOutput> {
    let watched = || io::stdout().is_terminal() && progress_view::possible();
    asked_for(args).or_else(|| watched().then_some(ProgressOutput::Board))
}

/// The requested output, else a board if one can be drawn; lines go to the log.
pub(crate) fn or_log(args: Args) -> ProgressOutput {
    match asked_for(args) {
        Some(ProgressOutput::Plain) => ProgressOutput::Log,
        None if progress_view::possible() => ProgressOutput::Board,
        asked => asked.unwrap_or(ProgressOutput::Log),
    }
}

/// A board if one can be drawn and is not declined, else only heartbeats: for short operations.
pub(crate) fn or_quiet(args: Args) -> ProgressOutput {
    match or_log(args) {
        ProgressOutput::Board => ProgressOutput::Board,
        _ => ProgressOutput::Quiet,
    }
}

/// Whether standard output carries only events.
pub(crate) fn is_json(args: Args) -> bool {
    args.word("output") == "json"
}

/// Reports the archive to programs; `path` is its location.
pub(crate) fn archive_event(path: &str) -> Result<()> {
    data(&format!("{}\n", progress_view::archive_event(path)))
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

/// Runs `work` with a board.
pub(crate) fn with_board<T>(output: ProgressOutput, work: impl FnOnce(&Board) -> Result<T>) -> Result<T> {
    let say = |text: &str| match output {
        ProgressOutput::Json => data(&format!("{text}\n")),
        ProgressOutput::Plain => line(format!("{} {text}", time())),
        ProgressOutput::Log | ProgressOutput::Quiet => {
            log::info!("{text}");
            Ok(())
        }
        ProgressOutput::Board => {
            error(&format!("{}\n", visible::line(text)));
            Ok(())
        }
    };
    logger::told_elsewhere(TOLD_BY_BOARD);
    let worked = progress_view::with(output, &say, work);
    logger::told_elsewhere(&[]);
    worked
}

/// The current time as `HH:MM:SS` in UTC.
pub(crate) fn time() -> String {
    clock::now().get(11..19).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn modules_whose_messages_repeat_the_board_exist() {
        for module in TOLD_BY_BOARD {
            let path = module
                .replacen("sonobuoy", concat!(env!("CARGO_MANIFEST_DIR"), "/src"), 1)
                .replace("::", "/");
            let exists =
                [format!("{path}.rs"), format!("{path}/mod.rs")].iter().any(|path| Path::new(path).exists());
            assert!(exists, "{module}");
        }
    }
}
