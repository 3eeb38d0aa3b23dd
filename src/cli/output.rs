//! Standard output: data only; a closed output ends the program quietly. And tables in the forms of `-o`.
//!
//! Owns the treatment of control characters: text for display never contains any from untrusted sources; data for
//! programs is unchanged unless it goes to a terminal.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, Write};

use serde_json::Value;

use super::flag::Args;
use crate::report::markdown_text;
use base::json::json;
use base::visible::{self, Visible};
use base::{live, yaml};

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
pub(crate) fn raw() -> Box<dyn Write> {
    Box::new(Stdout(io::stdout()))
}

/// Standard output for much text; `escapes` is whether the caller writes escapes, as for [`raw`].
pub(crate) fn buffered(escapes: bool) -> BufWriter<Box<dyn Write>> {
    BufWriter::with_capacity(64 << 10, if escapes { raw() } else { stdout() })
}

/// Writes a line for display.
pub(crate) fn line(text: impl fmt::Display) -> anyhow::Result<()> {
    print(&format!("{text}\n"))
}

/// Writes text for display, or JSON.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    write(raw(), &visible::text(text))
}

/// Writes `text` for programs.
pub(crate) fn data(text: &str) -> anyhow::Result<()> {
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
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| match right {
            true => format!("   {cell:>width$}"),
            false => format!("{cell:width$}  "),
        });
        let line: String = cells.collect();
        format!("{}\n", if right { &line } else { line.trim_end() })
    });
    lines.collect()
}

/// Values of `-o` for a table.
pub(crate) const FORMS: &[&str] = &["json", "yaml", "wide", "name", "markdown"];

/// Prints a table in the requested form, by default the first column.
pub(crate) fn print_rows<const N: usize>(
    args: Args,
    head: [&str; N],
    rows: &[[String; N]],
) -> anyhow::Result<()> {
    print(&in_form(args, head, rows).unwrap_or_else(|| first_column(rows)))
}

fn first_column<const N: usize>(rows: &[[String; N]]) -> String {
    rows.iter().map(|row| format!("{}\n", row[0])).collect()
}

/// The text of a table in the requested form; `None` without `-o`. `wide` is the table with all columns, `name` its first column.
pub(crate) fn in_form<const N: usize>(args: Args, head: [&str; N], rows: &[[String; N]]) -> Option<String> {
    let word = args.text("output")?;
    let objects = || {
        let one = |row: &[String; N]| {
            head.iter().zip(row).map(|(key, cell)| ((*key).into(), json!(cell))).collect()
        };
        Value::Array(rows.iter().map(|row| Value::Object(one(row))).collect())
    };
    let markdown = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    Some(match word {
        "json" | "yaml" => document(word, &objects()),
        "name" => first_column(rows),
        "markdown" => {
            let cells = rows.iter().map(|row| markdown(&row.each_ref().map(|cell| markdown_text(cell))));
            markdown(&head.map(str::to_owned))
                + &markdown(&head.map(|_| "---".to_owned()))
                + &cells.collect::<String>()
        }
        _ => table(head, rows, false),
    })
}

/// A document as JSON or YAML.
pub(crate) fn document(word: &str, value: &Value) -> String {
    if word == "yaml" { yaml::write(value) + "\n" } else { format!("{value:#}\n") }
}

fn write(mut out: Box<dyn Write>, text: &str) -> anyhow::Result<()> {
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
