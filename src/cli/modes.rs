//! `sonobuoy modes`: the values of `--mode`.

use super::flag::Args;
use super::{form, output};
use crate::plugin::focus::MODES;
use base::Joined as _;

/// Maximum length of a line unless full output is requested.
const MAX_LINE_BYTES: usize = 200;

/// Labels of the details of a mode, in the order of the columns.
const LABELS: [&str; 5] = ["Mode", "Description", "E2E_FOCUS", "E2E_SKIP", "E2E_PARALLEL"];

/// Prints all modes, by name.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let rows = MODES.iter().map(|mode| {
        [mode.name, mode.description, mode.focus, &mode.skip(), mode.parallel].map(str::to_owned)
    });
    let rows: Vec<_> = rows.collect();
    let head = ["name", "description", "focus", "skip", "parallel"];
    let text = form::table(args, head, &rows).unwrap_or_else(|| {
        let about = |row: &[String; 5]| -> String {
            LABELS.iter().zip(row).map(|(label, cell)| cut(format!("{label}: {cell}"), args)).collect()
        };
        rows.iter().map(about).joined("\n")
    });
    output::print(&text).map(|()| 0)
}

fn cut(line: String, args: Args) -> String {
    // All lines are ASCII, as the test of the golden file proves.
    match line.get(..MAX_LINE_BYTES) {
        Some(cut) if line.len() > MAX_LINE_BYTES && !args.on("verbose") => {
            format!("{cut}... (truncated) ...\n")
        }
        _ => line + "\n",
    }
}
