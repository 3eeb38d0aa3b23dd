//! `sonobuoy modes`: the values of `--mode`.

use std::fmt::Write as _;

use super::flag::Args;
use super::{form, output};
use crate::plugin::mode::{MODES, Mode};

/// Maximum length of a line unless full output is requested.
const MAX_LINE_BYTES: usize = 200;

/// Prints all modes, by name.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let rows = MODES.iter().map(|mode| {
        [mode.name, mode.description, mode.focus, &mode.skip(), if mode.parallel { "true" } else { "false" }]
            .map(str::to_owned)
    });
    let head = ["name", "description", "focus", "skip", "parallel"];
    if let Some(text) = form::table(args, head, &rows.collect::<Vec<_>>()) {
        output::print(&text)?;
        return Ok(0);
    }
    let whole = args.on("verbose");
    let mut text = String::new();
    for (index, mode) in MODES.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let Mode { name, description, focus, parallel, .. } = mode;
        let skip = mode.skip();
        let about = format!(
            "Mode: {name}\nDescription: {description}\nE2E_FOCUS: {focus}\nE2E_SKIP: {skip}\nE2E_PARALLEL: {parallel}"
        );
        for line in about.lines() {
            // All lines are ASCII, as the test of the golden file proves.
            match line.get(..MAX_LINE_BYTES) {
                Some(cut) if !whole && line.len() > MAX_LINE_BYTES => {
                    writeln!(text, "{cut}... (truncated) ...")?;
                }
                _ => writeln!(text, "{line}")?,
            }
        }
    }
    output::print(&text)?;
    Ok(0)
}
