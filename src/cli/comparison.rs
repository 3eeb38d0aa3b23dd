//! The comparison of two archives, for `results diff` and for a run with `--baseline`.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::flag::usage_error;
use crate::remote::seal;
use model::layout;
use report::{self, Depth, Diff, Look, Objects, OpenedArchive, TextOutput};

/// Rejects empty names of archives, which would mean the current folder.
pub(super) fn check_names<'a>(archives: impl IntoIterator<Item = &'a String>) -> Result<()> {
    if archives.into_iter().any(String::is_empty) {
        return Err(usage_error(
            "the name of an archive is empty: is a variable unset?",
        ));
    }
    Ok(())
}

/// Fails if the archive of this name differs from the seal beside it. One without a seal, or with
/// a checksum alone, which may be anybody's, is not checked.
pub(super) fn check_seal_beside(name: &str) -> Result<()> {
    let Ok(archive) = report::locate(name) else {
        return Ok(());
    };
    let path = Path::new(&archive);
    if !path.is_file() || !layout::seal(path).iter().all(|part| part.exists()) {
        return Ok(());
    }
    seal::check_file(path, None, false)
        .map(drop)
        .with_context(|| format!("`{archive}` is not as it was sealed"))
}

/// Opens an archive for a comparison.
pub(super) fn open(archive: &str) -> Result<OpenedArchive> {
    let opened = OpenedArchive::open(archive, None, Depth::Nodes);
    opened.with_context(|| format!("could not process archive: {archive}"))
}

/// Writes what changed: tests unless there are none, then objects of the cluster.
pub(super) fn write_text(
    diff: &Diff,
    has_tests: bool,
    look: Look,
    out: &mut dyn Write,
) -> Result<()> {
    if has_tests || diff.objects.is_none() {
        diff.write_text(&mut TextOutput { look, out })?;
    }
    if let Some(objects) = &diff.objects {
        out.write_all(if has_tests { b"\n" } else { b"" })?;
        let look = Look::default();
        objects.write_text(&mut TextOutput { look, out })?;
    }
    Ok(())
}

/// The archive with which a run is compared.
pub(super) struct Baseline {
    /// As the user named it.
    name: String,
    archive: OpenedArchive,
}

impl Baseline {
    /// Opens the archive before the run: a word such as `latest` means another one afterwards, and
    /// one that cannot be read must not cost hours of work.
    pub(super) fn open(name: &str) -> Result<Self> {
        let opened = || {
            check_seal_beside(name)?;
            open(name)
        };
        Ok(Self {
            name: name.to_owned(),
            archive: opened().with_context(|| format!("--baseline {name}"))?,
        })
    }

    /// What changed until `after`.
    pub(super) fn compare(&self, after: &Path) -> Result<Comparison<'_>> {
        let after = open(&after.display().to_string())?;
        let mut diff = Diff::between(&self.archive, &after)?;
        diff.objects = Objects::between(&self.archive.source, &after.source)?;
        Ok(Comparison {
            baseline: &self.name,
            has_tests: !self.archive.plugins.is_empty() || !after.plugins.is_empty(),
            diff,
        })
    }
}

/// The comparison of a run with its baseline.
pub(super) struct Comparison<'b> {
    baseline: &'b str,
    has_tests: bool,
    pub diff: Diff,
}

impl Comparison<'_> {
    /// Writes it below a report on the run.
    pub(super) fn write(&self, look: Look, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "\nCompared with `{}`:\n", self.baseline)?;
        write_text(&self.diff, self.has_tests, look, out)
    }
}
