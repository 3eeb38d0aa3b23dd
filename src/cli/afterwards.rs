//! Steps after the end of a run: fetching, the report, files for other programs, cleaning up.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ureq::http::Uri;

use super::certify::{Judgement, Submission};
use super::color::ColorChoice;
use super::comparison::{Baseline, Comparison};
use super::flag::{Filled as _, usage_error, within};
use super::output::{self, ProgressForm};
use super::transfer::{TRANSFER, fetch, interrupted_transfer, upload};
use super::verdict::{Annotations, VerdictFlags, annotate, ending, error_after_verdict};
use crate::deploy::Removal;
use crate::progress_view::comparison_event;
use crate::remote::service::Credentials;
use crate::remote::{Retrieval, RetrievalError};
use base::at::At as _;
use base::stop::Stop;
use base::sys;
use base::temp::{self, NewFile};
use kube::Client;
use model::layout;
use model::status::Run;
use model::timings::{self, Stopwatch};
use report::{self, Depth, OpenedArchive, Report, TextOutput, View, ViewMode};

/// Maximum time to wait for a deletion.
const DELETION: Duration = Duration::from_secs(3_600);

/// The steps when the run is over
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "When the run is over")]
pub(crate) struct AfterwardsFlags {
    /// Fetch the archive into this folder
    #[arg(long, value_name = "DIR")]
    pub retrieve: Option<String>,
    /// Keep only the newest archives in that folder, and that of this run
    #[arg(
        long,
        value_name = "N",
        value_parser = within::<usize>(1..=i64::from(u32::MAX)),
        hide_short_help = true
    )]
    pub keep: Option<usize>,
    /// Send the archive and its seal there by HTTPS PUT, from the aggregator, or with --retrieve
    /// from here; a URL that ends with / is a folder; SSL_CERT_FILE names the store's authority in
    /// either case
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub upload: Option<String>,
    /// Write all results as one JUnit file
    #[arg(long, value_name = "FILE")]
    pub junit: Option<String>,
    /// Write the report as one HTML page
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub html: Option<String>,
    /// Compare the results with this archive, as `results diff` does, and let --fail-on, which then
    /// is unknown by default, judge only what became worse
    #[arg(
        long,
        value_name = "ARCHIVE",
        conflicts_with = "min_success",
        hide_short_help = true
    )]
    pub baseline: Option<String>,
    /// Check a certified conformance run, and write its submission into this folder
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub certify: Option<String>,
    /// With --certify: description of the product (YAML)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub product: Option<String>,
    /// Remove the run from the cluster
    #[arg(long)]
    pub delete: bool,
    #[command(flatten)]
    pub verdict: VerdictFlags,
    /// Whether the caller shows the archive that it has asked for.
    #[arg(skip)]
    pub is_shown_by_caller: bool,
}

impl AfterwardsFlags {
    /// Whether several clusters need one report on all their archives.
    pub(crate) fn asks_for_report(&self) -> bool {
        self.retrieve.is_some()
            || self.junit.is_some()
            || self.html.is_some()
            || self.verdict.limit().judges()
    }

    /// The steps for one of several clusters, whose report is about all, with the archive in
    /// `folder`.
    pub(crate) fn narrowed(self, folder: Option<String>) -> Self {
        let verdict = VerdictFlags {
            fail_on: None,
            annotations: Annotations::Auto,
            ..self.verdict
        };
        Self {
            retrieve: folder,
            junit: None,
            html: None,
            verdict,
            ..self
        }
    }
}

/// Creates the folder for archives, and checks that it can be written to, before hours of work.
pub(crate) fn prepare_archive_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).at("cannot create", folder)?;
    temp::file(folder).with_context(|| {
        format!(
            "cannot write an archive to `{}`; name another folder with `--retrieve DIR`",
            folder.display()
        )
    })?;
    Ok(())
}

/// The requested steps.
pub(crate) struct Afterwards<'a> {
    flags: &'a AfterwardsFlags,
    reporter: Reporter<'a>,
    retrieve: Option<&'a Path>,
    upload: Option<&'a str>,
    /// Whether there may be roles to delete, if deletion is requested.
    delete: Option<bool>,
}

impl<'a> Afterwards<'a> {
    /// Checks the flags; `upload` is the URL to which this machine sends the archive, `kit` the
    /// file of `--kit`.
    pub(crate) fn prepare(
        flags: &'a AfterwardsFlags,
        progress: Option<ProgressForm>,
        upload: Option<&'a str>,
        kit: Option<&str>,
        has_rbac: impl FnOnce() -> Result<bool>,
    ) -> Result<Self> {
        let retrieve = flags.retrieve.filled().map(Path::new);
        if let Some(folder) = retrieve {
            // The folder may be needed for other requested files.
            prepare_archive_folder(folder)?;
        }
        Ok(Self {
            flags,
            reporter: Reporter::open(flags, progress, kit)?,
            retrieve,
            upload,
            delete: flags.delete.then(has_rbac).transpose()?,
        })
    }

    /// Whether any step is requested.
    pub(crate) fn is_asked(&self) -> bool {
        self.fetches() || self.delete.is_some()
    }

    /// Whether the archive itself is read.
    fn reads(&self) -> bool {
        self.reporter.is_asked()
    }

    fn fetches(&self) -> bool {
        self.has_product() || self.upload.is_some()
    }

    /// Whether the report or the path of the archive goes to standard output.
    pub(crate) fn has_product(&self) -> bool {
        self.reads() || self.retrieve.is_some()
    }

    /// Whether the report is printed: if the archive is read, and to people who get it.
    pub(crate) fn shows_report(&self) -> bool {
        let is_for_people = io::stdout().is_terminal() && !self.reporter.has_events();
        self.reads() || self.retrieve.is_some() && is_for_people
    }

    /// Whether the run is removed from the cluster.
    pub(crate) fn deletes(&self) -> bool {
        self.delete.is_some()
    }

    /// Performs the steps. The run is deleted only once its archive is safe. Without access to the
    /// cluster, the archive comes from the status service.
    pub(crate) fn run(
        &self,
        client: Option<&Client>,
        namespace: &str,
        told: Option<&Run>,
        service: Option<&Credentials>,
        stopwatch: &mut Stopwatch,
        stop: &Stop,
    ) -> Result<u8> {
        let mut code = 0;
        let advice = format!("the run is kept, try `sonobuoy retrieve -n {namespace}`");
        if self.fetches() {
            // An archive that is not to be kept is read from a temporary folder.
            let passing = self
                .retrieve
                .is_none()
                .then(temp::Folder::new)
                .transpose()?;
            let into = passing
                .as_deref()
                .or(self.retrieve)
                .unwrap_or(Path::new("."));
            let retrieval = Retrieval {
                client,
                service,
                ..Retrieval::new(namespace, into)
            };
            let paths = match fetch(self.reporter.progress, &retrieval, stop) {
                Ok(paths) => paths,
                Err(failure) if output::is_interrupted() => {
                    return Err(interrupted_transfer(failure).context(advice));
                }
                Err(RetrievalError::NotReady(error) | RetrievalError::Unasked(error)) => {
                    return Err(error.context(advice));
                }
                Err(failure) => {
                    log::error!(
                        "error retrieving results: {:#}; {advice}",
                        failure.into_error()
                    );
                    return Ok(TRANSFER);
                }
            };
            stopwatch.end(timings::DOWNLOAD);
            if let Some(url) = self.upload
                && let Err(error) = upload(self.reporter.progress, &paths, url, stop)
            {
                if output::is_interrupted() {
                    return Err(error.context(advice));
                }
                log::error!("{error:#}; {advice}");
                return Ok(TRANSFER);
            }
            code = self.report(&paths)?;
            if let Some(folder) = self.retrieve {
                prune(self.flags.keep, folder, &paths)?;
            }
            stopwatch.end(timings::REPORT);
        }
        if let Some(error) = told.and_then(Run::not_uploaded) {
            log::error!("the aggregator could not upload the archive: {error}; {advice}");
            return Ok(TRANSFER);
        }
        if let (Some(rbac), Some(client)) = (self.delete, client) {
            let removal = Removal {
                namespace: namespace.to_owned(),
                rbac,
                all: false,
                dry_run: false,
            };
            removal
                .issue(client)?
                .wait(client, DELETION, &mut |state| log::info!("{state}"))?;
            stopwatch.end(timings::REMOVAL);
        }
        Ok(code)
    }

    /// Prints the paths of the archives, or a report on the newest; returns the exit code.
    fn report(&self, paths: &[PathBuf]) -> Result<u8> {
        if self.flags.is_shown_by_caller {
            return Ok(0);
        }
        // A persistent claim holds the archives of all runs.
        let newest = report::newest(paths).filter(|_| self.shows_report());
        if let Some(path) = newest {
            let is_kept = self.retrieve.is_some();
            let reported = self.reporter.report(path, None, is_kept);
            return reported
                .with_context(|| format!("could not process archive: {}", path.display()));
        }
        // Without --retrieve, the local copy is deleted.
        for path in paths.iter().filter(|_| self.retrieve.is_some()) {
            if self.reporter.progress == Some(ProgressForm::Json) {
                output::archive_event(&path.display().to_string());
            } else {
                output::line(path.display());
            }
        }
        Ok(0)
    }
}

/// Removes all but the newest `--keep` archives of a folder, with their seals, and never one of
/// this run.
pub(super) fn prune(keep: Option<usize>, folder: &Path, of_this_run: &[PathBuf]) -> Result<()> {
    let Some(keep) = keep else { return Ok(()) };
    let is_of_this_run = |name: &str| {
        of_this_run
            .iter()
            .any(|path| path.file_name() == Some(name.as_ref()))
    };
    for name in report::archives(folder)?
        .iter()
        .skip(keep)
        .filter(|name| !is_of_this_run(name))
    {
        for ending in layout::SEAL.iter().chain(&[""]) {
            let path = folder.join(format!("{name}{ending}"));
            // Another run may remove it at the same time.
            base::if_exists(fs::remove_file(&path)).at("cannot remove", &path)?;
        }
        log::info!("removed `{name}`: --keep {keep}");
    }
    Ok(())
}

/// The URL of `--upload`: HTTPS, or HTTP to the machine itself, unless the aggregator sends there.
pub(super) fn check_upload(url: Option<&str>, by_aggregator: bool) -> Result<Option<&str>> {
    let Some(url) = url else {
        return Ok(None);
    };
    let uri = url
        .parse::<Uri>()
        .map_err(|error| usage_error(format!("--upload: invalid URL: {error}")))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(Some(url)),
        Some("http") if is_here && !by_aggregator => Ok(Some(url)),
        _ => Err(usage_error(
            "--upload takes a URL that begins with https://",
        )),
    }
}

/// The requested files.
pub(crate) struct OutputFiles<'a> {
    junit: Option<PathBuf>,
    html: Option<PathBuf>,
    submission: Option<Submission<'a>>,
}

impl<'a> OutputFiles<'a> {
    /// Checks the requirements of `--junit`, `--html` and `--certify` before hours of work.
    pub(crate) fn open(flags: &'a AfterwardsFlags, kit: Option<&str>) -> Result<Self> {
        let open = |flag: &str, path: &Option<String>| {
            let Some(path) = path.filled().map(Path::new) else {
                return Ok(None);
            };
            // A link's target is replaced, not the link.
            let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            replacement(&target).with_context(|| {
                format!("cannot write `{}`, which --{flag} names", path.display())
            })?;
            anyhow::Ok(Some(target))
        };
        Ok(Self {
            junit: open("junit", &flags.junit)?,
            html: open("html", &flags.html)?,
            submission: Submission::prepare(flags.certify.filled(), flags.product.filled(), kit)?,
        })
    }

    /// Whether any file is requested.
    fn is_any(&self) -> bool {
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

    /// Writes the requested files about one archive.
    fn write_report(&self, report: &Report<'_>, archive: &str) -> Result<Option<Judgement>> {
        self.write(
            |out| report::write_junit(report, out),
            |out| report::write_html(report, None, out),
        )?;
        self.submission
            .as_ref()
            .map(|submission| submission.judge(archive))
            .transpose()
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

/// Reports on the archive of a run.
pub(crate) struct Reporter<'a> {
    verdict: VerdictFlags,
    progress: Option<ProgressForm>,
    outputs: OutputFiles<'a>,
    baseline: Option<Baseline>,
}

impl<'a> Reporter<'a> {
    /// Checks the requirements of the requested files, and the baseline, before hours of work.
    pub(crate) fn open(
        flags: &'a AfterwardsFlags,
        progress: Option<ProgressForm>,
        kit: Option<&str>,
    ) -> Result<Self> {
        Ok(Self {
            verdict: flags.verdict,
            progress,
            outputs: OutputFiles::open(flags, kit)?,
            baseline: flags.baseline.filled().map(Baseline::open).transpose()?,
        })
    }

    /// Whether anything is requested that needs the archive.
    fn is_asked(&self) -> bool {
        self.outputs.is_any() || self.baseline.is_some() || self.verdict.limit().judges()
    }

    /// Whether events replace the report.
    fn has_events(&self) -> bool {
        self.progress == Some(ProgressForm::Json)
    }

    /// Reads the archive, writes the requested files, then shows `plugins`, or all and the health
    /// of the cluster, and the comparison with the baseline; returns the exit code of `--fail-on`.
    /// `kept` is whether the archive remains at its path.
    pub(crate) fn report(
        &self,
        archive: &Path,
        plugins: Option<&[String]>,
        kept: bool,
    ) -> Result<u8> {
        let path = archive.display().to_string();
        let is_annotated = self.verdict.annotations.is_on();
        let depth = if is_annotated || std::io::stdout().is_terminal() {
            Depth::Tests
        } else {
            Depth::Run
        };
        let opened = OpenedArchive::open(&path, None, self.outputs.depth().max(depth))?;
        let mut report = Report::read(&opened, None)?;
        let baseline = self.baseline.as_ref();
        let comparison = baseline
            .map(|baseline| baseline.compare(archive))
            .transpose()?;
        let exit = match &comparison {
            Some(comparison) => comparison.diff.exit(self.verdict.fail_on_changes()),
            None => report.exit(self.verdict.limit()),
        };
        let people = std::io::stdout().is_terminal();
        let explained = if people || is_annotated {
            report.explain()
        } else {
            Ok(())
        };
        annotate(self.verdict.annotations, &report);
        // Nothing that happens to standard output costs a file.
        let written = self.outputs.write_report(&report, &path);
        let mut out = output::buffered(people);
        let printed = explained
            .and_then(|()| self.show(&report, &opened, plugins, &mut out))
            .and_then(|()| self.show_comparison(comparison.as_ref(), &mut out));
        // Report the path before any later failure.
        if kept && self.has_events() {
            output::archive_event(&path);
        } else if kept {
            writeln!(out, "\nArchive: {path}")?;
        }
        out.flush()?;
        match printed.at("cannot show all of", &path).and(written) {
            Ok(judgement) => {
                let judged = judgement.map(|judgement| judgement.print());
                Ok(judged.unwrap_or_default().max(ending(exit)))
            }
            Err(error) => Err(error_after_verdict(&error, exit)),
        }
    }

    fn show(
        &self,
        report: &Report<'_>,
        opened: &OpenedArchive,
        plugins: Option<&[String]>,
        out: &mut dyn Write,
    ) -> Result<()> {
        if self.has_events() {
            return Ok(());
        }
        if std::io::stdout().is_terminal() {
            let look = ColorChoice::Auto.resolve();
            return TextOutput { look, out }.report(report);
        }
        let view = View {
            mode: ViewMode::Report,
            node: None,
            skip_prefix: false,
        };
        view.show(opened, plugins.unwrap_or(&opened.plugins), out)
    }

    fn show_comparison(
        &self,
        comparison: Option<&Comparison<'_>>,
        out: &mut dyn Write,
    ) -> Result<()> {
        match comparison {
            None => Ok(()),
            Some(comparison) if self.has_events() => {
                output::line(comparison_event(&comparison.diff.json()));
                Ok(())
            }
            Some(comparison) => comparison.write(ColorChoice::Auto.resolve(), out),
        }
    }
}

/// Writes to a pipe or device, or replaces a file once the content is complete.
fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let write = || -> Result<()> {
        let Some(new) = replacement(path)? else {
            let mut out = BufWriter::new(File::options().write(true).open(path)?);
            content(&mut out)?;
            return Ok(out.flush()?);
        };
        let mut out = BufWriter::with_capacity(64 << 10, new);
        content(&mut out)?;
        Ok(out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .commit(true)?)
    };
    write().at("cannot write", path)
}

/// A new file to replace one; `None` for a pipe or device. Opening a pipe twice would end it.
fn replacement(path: &Path) -> io::Result<Option<NewFile>> {
    // As the umask permits, like any report, unless the file exists with other permissions:
    // archives, which may hold keys, are private, reports are for collectors of other users.
    let mode = match path.metadata() {
        Ok(about) if about.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(about) if !about.is_file() => return Ok(None),
        about => about.map_or(0o666, |about| sys::mode(&about)),
    };
    NewFile::create(path, mode).map(Some)
}
