//! The verdict of a command: which results count as bad, the exit code, annotations of GitHub
//! Actions.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::TypedValueParser as _;

use super::flag::{Error, words};
use super::output;
use base::at::At as _;
use base::visible;
use model::item::plain;
use model::verdict::{Exit, FailOn, Limit};
use report::{self, Report};

/// Maximum annotations per level; GitHub shows no more for a step.
const MAX_ANNOTATIONS: usize = 10;

/// The words of `--fail-on`.
const FAIL_ON: [&str; 5] = ["failed", "unknown", "incomplete", "flaky", "never"];

/// What the exit code and annotations say about results
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct VerdictFlags {
    #[arg(
        long,
        value_name = "WORD",
        value_parser = words(&FAIL_ON).map(FailOn::parse),
        help = "Exit with 3 (failed, flaky) or 4 (unknown, incomplete) when results are this bad \
                or worse [default: never]"
    )]
    pub fail_on: Option<FailOn>,
    /// Like --fail-on failed, but a plugin that has passed on this share of its nodes, as in 95%,
    /// has passed
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, hide_short_help = true)]
    pub min_success: Option<u64>,
    /// Whether to append the report to $GITHUB_STEP_SUMMARY and print an annotation per cause; auto
    /// does in GitHub Actions
    #[arg(
        long,
        value_name = "WORD",
        value_enum,
        default_value_t = Annotations::Auto,
        hide_short_help = true
    )]
    pub annotations: Annotations,
}

impl VerdictFlags {
    /// What `--fail-on` and `--min-success` ask for.
    pub(crate) fn limit(self) -> Limit {
        Limit::new(self.fail_on.unwrap_or(FailOn::Never), self.min_success)
    }

    /// What `--fail-on` asks for in a comparison with a baseline, which is of no use otherwise.
    pub(crate) fn fail_on_changes(self) -> FailOn {
        self.fail_on.unwrap_or(FailOn::Unknown)
    }
}

fn parse_percent(word: &str) -> Result<u64, &'static str> {
    let number = word.strip_suffix('%').unwrap_or(word).parse().ok();
    number
        .filter(|number| (1..=100).contains(number))
        .ok_or("write a share from 1% to 100%")
}

/// Whether to annotate a report.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Annotations {
    Auto,
    Github,
    Off,
}

impl Annotations {
    /// Whether to annotate: in a job of GitHub Actions, unless a flag decides.
    pub(crate) fn is_on(self) -> bool {
        match self {
            Self::Github => true,
            Self::Off => false,
            Self::Auto => std::env::var("GITHUB_ACTIONS").is_ok_and(|value| value == "true"),
        }
    }
}

/// An error that leaves the verdict as it is.
pub(super) fn error_after_verdict(error: &anyhow::Error, exit: Option<Exit>) -> anyhow::Error {
    Error::Judged(format!("{error:#}"), exit).into()
}

/// Prints the reason of an exit code other than 0.
pub(crate) fn ending(exit: Option<Exit>) -> u8 {
    let Some(Exit { code, reason }) = exit else {
        return 0;
    };
    output::error(&format!("exit {code}: {}\n", visible::line(&reason)));
    code
}

/// Annotates a report whose causes are known. Problems are logged: they say nothing about the run.
pub(super) fn annotate(annotations: Annotations, report: &Report<'_>) {
    if !annotations.is_on() {
        return;
    }
    for (level, causes) in [
        ("error", &report.causes),
        ("warning", &report.unknown_causes),
    ] {
        for cause in causes.iter().take(MAX_ANNOTATIONS) {
            let title = format!("{} × {}", cause.count, cause.plugins.join(", "));
            let mut text = format!("{} ({})", cause.headline().0, cause.extent());
            text.extend(
                cause
                    .names
                    .iter()
                    .map(|place| format!("\n{}", plain(&place.text()))),
            );
            text.extend(cause.remedy.iter().map(|remedy| format!("\n{remedy}")));
            output::command(&format!(
                "::{level} title={}::{}\n",
                encoded(&title, ":,"),
                encoded(&text, "")
            ));
        }
    }
    let path = std::env::var_os("GITHUB_STEP_SUMMARY")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let Some(path) = path else { return };
    let append = || -> Result<()> {
        let mut text = Vec::new();
        report::write_markdown(report, &mut text)?;
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
    text.chars()
        .map(|c| {
            if is_special(c) {
                format!("%{:02X}", u32::from(c))
            } else {
                c.into()
            }
        })
        .collect()
}
