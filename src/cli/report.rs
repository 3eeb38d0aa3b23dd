//! What `run` and `wait` make of an archive once they have it: the report, files for other programs, the exit code.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context as _;
use clap::ArgMatches;

use super::output;
use crate::report::{self, Depth, Mode, Opened, Overview, View};

/// Shows `plugins`, or all and the health of the cluster, writes what `--junit` and `--html` name, and says which
/// exit code `--fail-on` wants. `kept` is whether the archive stays where it is.
pub(crate) fn report(
    matches: &ArgMatches,
    archive: &Path,
    plugins: Option<&[String]>,
    kept: bool,
) -> anyhow::Result<u8> {
    let path = archive.display().to_string();
    let text =
        |name: &str| matches.get_one::<String>(name).map(String::as_str).filter(|text| !text.is_empty());
    let opened = report::open(&path, None, Depth::Whole)?;
    let overview = Overview::whole(&opened, None)?;
    if let Some(file) = text("junit") {
        write(file, |out| report::write_junit(&overview, out))?;
    }
    if let Some(file) = text("html") {
        write(file, |out| report::write_html(&overview, out))?;
    }
    let mut out = BufWriter::with_capacity(64 << 10, output::stdout());
    let shown = show(&opened, plugins.unwrap_or(&opened.plugins), &mut out);
    if kept {
        writeln!(out, "\nArchive: {path}")?;
    }
    out.flush()?;
    shown.with_context(|| format!("cannot show all of `{path}`"))?;
    Ok(overview.exit_code(text("fail-on").unwrap_or("never")))
}

fn show(opened: &Opened, plugins: &[String], out: &mut impl Write) -> anyhow::Result<()> {
    let view = View { mode: Mode::Report, node: None, skip_prefix: false };
    report::show(&opened.source, &opened.files, plugins, view, out)
}

fn write(path: &str, content: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let describe = || format!("cannot write `{path}`");
    let mut out = BufWriter::new(File::create(path).with_context(describe)?);
    content(&mut out).with_context(describe)?;
    out.flush().with_context(describe)
}
