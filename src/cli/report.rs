//! The output of `run` and `wait` from an archive: the report, files for other programs, the exit code.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::annotate;
use super::certify::Submission;
use super::flag::Args;
use super::{output, shown};
use crate::report::{self, Archive, Depth, Look, Mode, Report, Terminal, View};
use base::at::At as _;
use base::sys;
use base::temp::NewFile;

/// The requested files.
pub(crate) struct Outputs<'a> {
    junit: Option<PathBuf>,
    html: Option<PathBuf>,
    submission: Option<Submission<'a>>,
}

impl<'a> Outputs<'a> {
    /// Checks the requirements of `--junit`, `--html` and `--certify` before hours of work.
    pub(crate) fn open(args: Args<'a>) -> Result<Self> {
        let open = |id: &str| {
            let Some(path) = args.text(id) else { return Ok(None) };
            let check = || {
                // A link's target is replaced, not the link.
                let path = Path::new(path);
                let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                match path.metadata() {
                    Ok(about) if about.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
                    // Opening a pipe twice would end it.
                    Ok(about) if !about.is_file() => {}
                    _ => drop(NewFile::create(&path, 0o600)?),
                }
                io::Result::Ok(path)
            };
            check().map(Some).with_context(|| format!("cannot write `{path}`, which --{id} names"))
        };
        Ok(Self { junit: open("junit")?, html: open("html")?, submission: Submission::asked(args)? })
    }

    /// Whether any file is requested.
    pub(crate) fn is_any(&self) -> bool {
        self.junit.is_some() || self.html.is_some() || self.submission.is_some()
    }

    /// The part of the archive that the files need.
    fn depth(&self) -> Depth {
        match (&self.html, &self.junit) {
            (Some(_), _) => Depth::Page,
            (None, Some(_)) => Depth::Tests,
            (None, None) => Depth::Run,
        }
    }

    /// Writes the requested files with this content.
    pub(super) fn write(
        &self,
        junit: impl FnOnce(&mut dyn Write) -> Result<()>,
        html: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let junit = self.junit.as_ref().map(|path| write(path, junit));
        let html = self.html.as_ref().map(|path| write(path, html));
        junit.into_iter().chain(html).collect()
    }
}

/// Shows `plugins`, or all and the health of the cluster, writes `outputs`, and returns the exit code of `--fail-on`.
/// `kept` is whether the archive remains at its path.
pub(crate) fn report(
    args: Args,
    outputs: &Outputs<'_>,
    archive: &Path,
    plugins: Option<&[String]>,
    kept: bool,
) -> Result<u8> {
    let path = archive.display().to_string();
    let depth = if annotate::is_on(args) { Depth::Tests } else { Depth::Run };
    let opened = Archive::open(&path, None, outputs.depth().max(depth))?;
    let mut report = Report::read(&opened, None)?;
    let events = shown::is_json(args);
    let people = std::io::stdout().is_terminal();
    let mut out = if events { BufWriter::new(Box::new(io::sink()) as _) } else { output::buffered(people) };
    let explained = if people || annotate::is_on(args) { report.explain() } else { Ok(()) };
    let shown = if people {
        explained.and_then(|()| Terminal { look: look(args), out: &mut out }.report(&report))
    } else {
        let view = View { mode: Mode::Report, node: None, skip_prefix: false };
        view.show(&opened, plugins.unwrap_or(&opened.plugins), &mut out)
    };
    // Report the path before any later failure.
    if kept && events {
        shown::archive(&path)?;
    } else if kept {
        writeln!(out, "\nArchive: {path}")?;
    }
    out.flush()?;
    annotate::annotate(args, &report);
    outputs.write(|out| report::write_junit(&report, out), |out| report::write_html(&report, None, out))?;
    shown.at("cannot show all of", &path)?;
    let code = ending(verdict(args, &report));
    let judged = outputs.submission.as_ref().map(|submission| submission.judge(&path)).transpose()?;
    Ok(judged.unwrap_or_default().max(code))
}

/// The value of `--fail-on`; `--min-success` implies `failed`.
pub(crate) fn limit(args: Args<'_>) -> &str {
    match args.text("fail-on").unwrap_or("never") {
        "never" if args.given("min-success") => "failed",
        limit => limit,
    }
}

/// The exit code that both flags ask for, with its reason.
pub(super) fn verdict(args: Args, report: &Report<'_>) -> Option<(u8, String)> {
    let percent = u64::try_from(args.number("min-success")).ok().filter(|percent| *percent > 0);
    report.ending(limit(args), percent)
}

/// Prints the reason of an exit code other than 0.
pub(crate) fn ending(ending: Option<(u8, String)>) -> u8 {
    let Some((code, reason)) = ending else { return 0 };
    // A closed output is acceptable: the exit code has the same information.
    let line = format!("exit {code}: {}\n", base::visible::line(&reason));
    let _ = std::io::stderr().write_all(line.as_bytes());
    code
}

/// Colours and width on a terminal only, unless `--color` says otherwise; `NO_COLOR` disables colours.
pub(crate) fn look(args: Args) -> Look {
    let width = sys::stdout_width();
    let colour = match args.text("color") {
        Some("always") => true,
        Some("never") => false,
        _ => {
            let forced = sys::variable("FORCE_COLOR").is_some_and(|value| value != "0");
            sys::variable("NO_COLOR").is_none() && (forced || width.is_some() && sys::colours())
        }
    };
    Look { colour, width: width.filter(|width| *width > 0) }
}

/// Writes to a pipe or device, or replaces a file once the content is complete.
fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let write = || -> Result<()> {
        // Readable only by the user, unless the file exists with other permissions.
        let mode = match path.metadata() {
            Ok(about) if about.is_file() => sys::mode(&about),
            Ok(_) => {
                let mut out = BufWriter::new(File::options().write(true).open(path)?);
                content(&mut out)?;
                return Ok(out.flush()?);
            }
            Err(_) => 0o600,
        };
        let mut out = BufWriter::with_capacity(64 << 10, NewFile::create(path, mode)?);
        content(&mut out)?;
        Ok(out.into_inner().map_err(io::IntoInnerError::into_error)?.commit(true)?)
    };
    write().at("cannot write", path)
}
