//! `sonobuoy modes`: the values of `--mode`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::ArgMatches;

use super::output;
use crate::plugin::mode::MODES;

/// Maximum length of a line unless full output is requested.
const MAX_LINE_BYTES: usize = 200;

/// Prints all modes, by name.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let whole = matches.get_flag("verbose");
    let mut text = String::new();
    for (index, mode) in MODES.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        for (name, value) in [
            ("Mode", mode.name),
            ("Description", mode.description),
            ("E2E_FOCUS", mode.focus),
            ("E2E_SKIP", &mode.skip()),
            ("E2E_PARALLEL", if mode.parallel { "true" } else { "false" }),
        ] {
            let line = format!("{name}: {value}");
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
    Ok(ExitCode::SUCCESS)
}
