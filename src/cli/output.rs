//! Standard output: data only. Tables in the forms of `-o`. The form of progress output:
//! `--output`, or by the type of standard output and standard error; `progress_view` owns its
//! content and timing. And signals.
//!
//! Writing to standard output never fails: after its reader has left, or its device is full, output
//! is discarded, and the command goes on to its end, its files and its exit code. [`exit_code`]
//! reports what could not be written.
//!
//! Owns the treatment of control characters: text for display never contains any from untrusted
//! sources; data for programs is unchanged unless it goes to a terminal. In a job of GitHub Actions
//! nothing that is printed is a command, except in [`command`].

use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use anyhow::Result;
use serde_json::Value;

use crate::progress_view::{self, Board, ProgressOutput};
use base::stop::Stop;
use base::sys::{self, Signal};
use base::visible::{self, Visible};
use base::workflow::{self, CommandBreaker};
use base::{clock, live, lock, logger, temp};
use model::verdict::code_after_error;
use report::markdown_text;

/// A value of `--output` about progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProgressForm {
    Plain,
    Board,
    Json,
}

/// Modules whose messages repeat the board; they still go to the run's log.
const TOLD_BY_BOARD: &[&str] = &[
    "sonobuoy_run::aggregator::store",
    "sonobuoy::pipeline::conduct",
];

/// Standard output. Buffered by line only: wrap it in a `BufWriter` for large data.
struct Stdout {
    out: io::Stdout,
    /// Whether a runner may read it for commands.
    breaks_commands: bool,
}

/// The end of what was written to standard output, which may be the start of a command.
static WRITTEN: Mutex<CommandBreaker> = Mutex::new(CommandBreaker::new());

/// Standard output of a command that does nothing but write: fails once nothing can be written.
struct StdoutStream(Stdout);

/// Why standard output cannot be written any more.
enum OutputEnd {
    /// Its reader has left.
    Closed,
    /// It failed: the reason.
    Failed(String),
}

static OUTPUT_END: OnceLock<OutputEnd> = OnceLock::new();

/// Standard output for data read by programs; on a terminal, control characters are made visible.
pub(crate) fn stdout() -> Box<dyn Write> {
    if io::stdout().is_terminal() {
        Box::new(Visible::new(Stdout::new()))
    } else {
        raw()
    }
}

/// Standard output for callers that write escapes, and pass untrusted text through [`visible`].
fn raw() -> Box<dyn Write> {
    Box::new(Stdout::new())
}

/// Runs work that does nothing but write, as [`stdout`] does: it ends once nobody reads, which is
/// no error of its own.
pub(crate) fn stream(work: impl FnOnce(Box<dyn Write + Send>) -> Result<()>) -> Result<()> {
    stream_to(Stdout::new(), work)
}

/// The same for bytes, which are no text that a runner reads.
pub(crate) fn stream_bytes(work: impl FnOnce(Box<dyn Write + Send>) -> Result<()>) -> Result<()> {
    stream_to(
        Stdout {
            out: io::stdout(),
            breaks_commands: false,
        },
        work,
    )
}

fn stream_to(stdout: Stdout, work: impl FnOnce(Box<dyn Write + Send>) -> Result<()>) -> Result<()> {
    let stream = StdoutStream(stdout);
    let out: Box<dyn Write + Send> = if io::stdout().is_terminal() {
        Box::new(Visible::new(stream))
    } else {
        Box::new(stream)
    };
    let worked = work(out);
    if OUTPUT_END.get().is_some() {
        Ok(())
    } else {
        worked
    }
}

/// The exit code of a command that ends with `code`, and an error if its output could not be
/// written. A reader that left had enough.
pub(crate) fn exit_code(code: u8) -> (u8, Option<String>) {
    match OUTPUT_END.get() {
        Some(OutputEnd::Failed(reason)) => (
            code_after_error(code),
            Some(format!("cannot write to standard output: {reason}")),
        ),
        Some(OutputEnd::Closed) | None => (code, None),
    }
}

/// Standard output for much text; `escapes` is whether the caller writes escapes, as for [`raw`].
pub(crate) fn buffered(escapes: bool) -> BufWriter<Box<dyn Write>> {
    BufWriter::with_capacity(64 << 10, if escapes { raw() } else { stdout() })
}

/// Writes a line for display.
pub(crate) fn line(text: impl fmt::Display) {
    print(&format!("{text}\n"));
}

/// Writes text for display, or JSON.
pub(crate) fn print(text: &str) {
    write(raw(), &visible::text(text));
}

/// Writes `text` for programs.
pub(crate) fn data(text: &str) {
    write(stdout(), text);
}

/// Writes text to standard error, which may be closed.
pub(crate) fn error(text: &str) {
    let text = visible::without_codes(text);
    let text = visible::text(&text);
    write_error(&workflow::safe_lines(&text));
}

/// Writes a command to the runner of GitHub Actions, which reads both streams: standard output is
/// for data.
pub(crate) fn command(text: &str) {
    write_error(&visible::text(text));
}

fn write_error(text: &str) {
    let _ = live::around(|| io::stderr().write_all(text.as_bytes()));
}

/// Aligned columns below their names: at the right after three spaces, as scripts of the original
/// expect, else at the left.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]], right: bool) -> String {
    let head = head.map(str::to_uppercase);
    let rows = std::iter::once(&head).chain(rows);
    let rows: Vec<[_; N]> = rows
        .map(|row| row.each_ref().map(|cell| visible::line(cell)))
        .collect();
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

/// The form of a table, by `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TableForm {
    Json,
    Yaml,
    Wide,
    Name,
    Markdown,
}

/// The form of a table
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct TableFormFlag {
    /// Form of the output
    #[arg(short, long, value_name = "WORD")]
    pub output: Option<TableForm>,
}

/// The form of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DocumentForm {
    Json,
    Yaml,
}

/// Prints a table in the requested form, by default the first column.
pub(crate) fn print_rows<const N: usize>(
    form: TableFormFlag,
    head: [&str; N],
    rows: &[[String; N]],
) {
    print(&in_form(form.output, head, rows, || first_column(rows)));
}

fn first_column<const N: usize>(rows: &[[String; N]]) -> String {
    rows.iter().map(|row| format!("{}\n", row[0])).collect()
}

/// The text of a table in a form of `-o`, else the usual one. `wide` is the table with all columns,
/// `name` its first column.
pub(crate) fn in_form<const N: usize>(
    form: Option<TableForm>,
    head: [&str; N],
    rows: &[[String; N]],
    usual: impl FnOnce() -> String,
) -> String {
    let objects = || -> Value {
        rows.iter()
            .map(|row| head.into_iter().zip(row.clone()).collect::<Value>())
            .collect()
    };
    match form {
        None => usual(),
        Some(TableForm::Json) => document(DocumentForm::Json, &objects()),
        Some(TableForm::Yaml) => document(DocumentForm::Yaml, &objects()),
        Some(TableForm::Name) => first_column(rows),
        Some(TableForm::Markdown) => {
            let cells = rows
                .iter()
                .map(|row| row.each_ref().map(|cell| markdown_text(cell)));
            let lines = [head.map(str::to_owned), head.map(|_| "---".into())]
                .into_iter()
                .chain(cells);
            lines
                .map(|cells| format!("| {} |\n", cells.join(" | ")))
                .collect()
        }
        Some(TableForm::Wide) => table(head, rows, false),
    }
}

/// A document as JSON or YAML.
pub(crate) fn document(form: DocumentForm, value: &Value) -> String {
    match form {
        DocumentForm::Yaml => yaml::write(value) + "\n",
        DocumentForm::Json => format!("{value:#}\n"),
    }
}

fn write(mut out: Box<dyn Write>, text: &str) {
    // A flush of nothing would erase the board.
    if text.is_empty() {
        return;
    }
    // `Stdout` keeps every error until the end of the program.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

impl Stdout {
    fn new() -> Self {
        Self {
            out: io::stdout(),
            breaks_commands: workflow::reads_commands(),
        }
    }

    /// Writes, or discards the output if it cannot be written, and returns `discarded`.
    fn attempt<T>(
        &mut self,
        discarded: T,
        write: impl FnOnce(&mut io::Stdout) -> io::Result<T>,
    ) -> io::Result<T> {
        if OUTPUT_END.get().is_some() {
            return Ok(discarded);
        }
        match live::around(|| write(&mut self.out)) {
            Ok(written) => Ok(written),
            // The caller repeats the call.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let end = match error.kind() {
                    io::ErrorKind::BrokenPipe => OutputEnd::Closed,
                    _ => OutputEnd::Failed(error.to_string()),
                };
                // The first reason counts.
                let _ = OUTPUT_END.set(end);
                Ok(discarded)
            }
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.breaks_commands {
            return self.attempt(bytes.len(), |out| out.write(bytes));
        }
        let mut written = lock(&WRITTEN);
        let safe = written.break_commands(bytes);
        self.attempt((), |out| out.write_all(&safe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), io::Stdout::flush)
    }
}

impl StdoutStream {
    fn check(&self) -> io::Result<()> {
        if OUTPUT_END.get().is_some() {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(())
        }
    }
}

impl Write for StdoutStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.check().map(|()| written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        self.check()
    }
}

/// The output of `--output`; `None` without it. A board that cannot be drawn becomes lines.
fn possible(form: Option<ProgressForm>) -> Option<ProgressOutput> {
    Some(match form? {
        ProgressForm::Board if progress_view::possible() => ProgressOutput::Board,
        ProgressForm::Board => {
            log::warn!("--output board needs a terminal; there is a line for each change instead");
            ProgressOutput::Plain
        }
        ProgressForm::Json => ProgressOutput::Json,
        ProgressForm::Plain => ProgressOutput::Plain,
    })
}

/// The requested output, else a board on a terminal; `None` for the original's lines. `has_product`
/// is whether standard output is for something else.
pub(crate) fn or_original(form: Option<ProgressForm>, has_product: bool) -> Option<ProgressOutput> {
    let is_watched = || (has_product || io::stdout().is_terminal()) && progress_view::possible();
    match possible(form) {
        Some(ProgressOutput::Plain) if has_product => Some(ProgressOutput::Log),
        None => is_watched().then_some(ProgressOutput::Board),
        output => output,
    }
}

/// The requested output, else a board if one can be drawn; lines go to the log.
pub(crate) fn or_log(form: Option<ProgressForm>) -> ProgressOutput {
    match possible(form) {
        Some(ProgressOutput::Plain) => ProgressOutput::Log,
        None if progress_view::possible() => ProgressOutput::Board,
        output => output.unwrap_or(ProgressOutput::Log),
    }
}

/// A board if one can be drawn and is not declined, else only heartbeats: for short operations.
pub(crate) fn or_quiet(form: Option<ProgressForm>) -> ProgressOutput {
    match or_log(form) {
        ProgressOutput::Board => ProgressOutput::Board,
        _ => ProgressOutput::Quiet,
    }
}

/// Reports the archive to programs; `path` is its location.
pub(crate) fn archive_event(path: &str) {
    data(&format!("{}\n", progress_view::archive_event(path)));
}

/// The exit code that a shell reports for a program ended by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// Whether Ctrl-C or the end of a container or session has asked this program to end.
static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// Signals of Ctrl-C, and of the end of a container, terminal or session.
const END_SIGNALS: &[Signal] = &[Signal::Hangup, Signal::Interrupt, Signal::Terminate];

/// Calls `act` on these signals, which interrupt the command.
pub(crate) fn on_signal(signals: &[Signal], mut act: impl FnMut() + Send + 'static) -> Result<()> {
    let act = move || {
        INTERRUPT.store(true, Ordering::SeqCst);
        act();
    };
    Ok(sys::on_signal(signals, act)?)
}

/// Whether a signal has asked this program to end: whatever fails afterwards fails because of it.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPT.load(Ordering::SeqCst)
}

/// A `Stop` that Ctrl-C and the end of a container or session trigger.
pub(crate) fn stop_on_signal() -> Result<Stop> {
    let stop = Stop::new();
    let handler_stop = stop.clone();
    on_signal(END_SIGNALS, move || handler_stop.stop())?;
    Ok(stop)
}

/// Makes Ctrl-C and the end of a container or session exit the program and delete its temporary
/// folders.
pub(crate) fn exit_on_signal() -> Result<()> {
    on_signal(END_SIGNALS, || temp::exit(INTERRUPTED.into()))
}

/// Makes Ctrl-C trigger `stop`, and a second one exit the program.
pub(crate) fn stop_on_interrupt(stop: &Stop) -> Result<()> {
    let stop = stop.clone();
    on_signal(END_SIGNALS, move || {
        if stop.stopped() {
            temp::exit(INTERRUPTED.into());
        }
        stop.stop_because("it was interrupted");
    })
}

/// Runs `work` with a board.
pub(crate) fn with_board<T>(
    output: ProgressOutput,
    work: impl FnOnce(&Board) -> Result<T>,
) -> Result<T> {
    let say = |text: &str| match output {
        ProgressOutput::Json => data(&format!("{text}\n")),
        ProgressOutput::Plain => line(format!("{} {text}", time())),
        ProgressOutput::Log | ProgressOutput::Quiet => log::info!("{text}"),
        ProgressOutput::Board => error(&format!("{}\n", visible::line(text))),
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
        const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        for module in TOLD_BY_BOARD {
            let path = module
                .replacen("sonobuoy_run", &format!("{SOURCES}/run"), 1)
                .replacen("sonobuoy", SOURCES, 1)
                .replace("::", "/");
            let exists = [format!("{path}.rs"), format!("{path}/mod.rs")]
                .iter()
                .any(|path| Path::new(path).exists());
            assert!(exists, "{module}");
        }
    }
}
