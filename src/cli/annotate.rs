//! What GitHub Actions shows of a report: a summary of the job, and an annotation for each cause.

use std::fs::File;
use std::path::PathBuf;

use super::flag::Args;
use super::output;
use crate::item::plain;
use crate::report::{Report, write_markdown};
use base::at::At as _;

/// Maximum annotations per level; GitHub shows no more for a step.
const MAX_ANNOTATIONS: usize = 10;

/// Whether to annotate: in a job of GitHub Actions, unless a flag decides.
pub(super) fn is_on(args: Args) -> bool {
    match args.text("annotations") {
        Some("github") => true,
        Some("off") => false,
        _ => std::env::var("GITHUB_ACTIONS").is_ok_and(|value| value == "true"),
    }
}

/// Annotates a report whose causes are known. Problems are logged: they say nothing about the run.
pub(super) fn annotate(args: Args, report: &Report<'_>) {
    if !is_on(args) {
        return;
    }
    for (level, causes) in [("error", &report.causes), ("warning", &report.unknown_causes)] {
        for cause in causes.iter().take(MAX_ANNOTATIONS) {
            let title = format!("{} × {}", cause.count, cause.plugins.join(", "));
            let mut text = format!("{} ({})", cause.headline().0, cause.extent());
            cause.names.iter().for_each(|name| text.push_str(&format!("\n{}", plain(name))));
            cause.remedy.iter().for_each(|remedy| text.push_str(&format!("\n{remedy}")));
            // Runners read both streams, and standard output is for data.
            output::error(&format!("::{level} title={}::{}\n", encoded(&title, ":,"), encoded(&text, "")));
        }
    }
    let path = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()).map(PathBuf::from);
    let Some(path) = path else { return };
    let append = || -> anyhow::Result<()> {
        let mut text = Vec::new();
        write_markdown(report, &mut text)?;
        text.push(b'\n');
        let mut file = File::options().append(true).create(true).open(&path)?;
        Ok(std::io::Write::write_all(&mut file, &text)?)
    };
    if let Err(error) = append().at("cannot write the summary of the job to", &path) {
        log::warn!("{error:#}");
    }
}

/// Text as in a command of a workflow.
fn encoded(text: &str, more: &str) -> String {
    let is_special = |c: char| "%\r\n".contains(c) || more.contains(c);
    text.chars().map(|c| if is_special(c) { format!("%{:02X}", u32::from(c)) } else { c.into() }).collect()
}
