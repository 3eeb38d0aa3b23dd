//! Steps after the end of a run: fetching, reports, a verdict, cleaning up.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ureq::http::Uri;

use super::flag::Args;
use super::retrieve::{TRANSFER, fetch};
use super::{error, output, report, run_args, shown};
use crate::deploy::Removal;
use crate::layout;
use crate::pipeline;
use crate::remote::service::Credentials;
use crate::remote::{Failure, Retrieval};
use crate::status::Run;
use base::at::At as _;
use base::kube::Client;
use base::stop::Stop;
use base::temp;

/// Maximum time to wait for a deletion.
const DELETION: Duration = Duration::from_secs(3_600);

/// The requested steps.
pub(crate) struct Afterwards<'a> {
    args: Args<'a>,
    outputs: report::Outputs<'a>,
    retrieve: Option<&'a Path>,
    upload: Option<&'a str>,
    /// Whether the archive itself is read.
    reads: bool,
    /// Whether there may be roles to delete, if deletion is requested.
    delete: Option<bool>,
}

impl<'a> Afterwards<'a> {
    /// Reads the flags; `upload` is the URL to which this machine sends the archive.
    pub(crate) fn asked(args: Args<'a>, upload: Option<&'a str>) -> Result<Self> {
        let retrieve = args.text("retrieve").map(Path::new);
        if let Some(folder) = retrieve {
            // The folder may be needed for other requested files.
            fs::create_dir_all(folder).at("cannot create", folder)?;
        }
        let outputs = report::Outputs::open(args)?;
        Ok(Self {
            args,
            reads: outputs.is_any() || report::limit(args) != "never",
            outputs,
            retrieve,
            upload,
            delete: args.on("delete").then(|| run_args::rbac(args)).transpose()?,
        })
    }

    /// Whether any step is requested.
    pub(crate) fn is_asked(&self) -> bool {
        self.fetches() || self.delete.is_some()
    }

    fn fetches(&self) -> bool {
        self.reads || self.retrieve.is_some() || self.upload.is_some()
    }

    /// Performs the steps. The run is deleted only once its archive is safe. Without access to the cluster, the
    /// archive comes from the status service.
    pub(crate) fn run(
        &self,
        client: Option<&Client>,
        namespace: &str,
        told: Option<&Run>,
        service: Option<&Credentials>,
        stop: &Stop,
    ) -> Result<u8> {
        let mut code = 0;
        let kept = format!("the run is kept, try `sonobuoy retrieve -n {namespace}`");
        if self.fetches() {
            // An archive that is not to be kept is read from a temporary folder.
            let passing = match self.retrieve {
                Some(_) => None,
                None => Some(temp::Folder::new().context("cannot create a temporary folder")?),
            };
            let into = passing.as_deref().or(self.retrieve).unwrap_or(Path::new("."));
            let retrieval = Retrieval { client, service, ..Retrieval::new(namespace, into) };
            let paths = match fetch(self.args, &retrieval, stop) {
                Ok(paths) => paths,
                Err(Failure::NotReady(error) | Failure::Unasked(error)) => return Err(error.context(kept)),
                Err(Failure::Transfer(error)) => {
                    log::error!("error retrieving results: {error:#}; {kept}");
                    return Ok(TRANSFER);
                }
            };
            if let Some(url) = self.upload
                && let Err(error) = pipeline::upload(&paths, url, stop)
            {
                log::error!("{error:#}; {kept}");
                return Ok(TRANSFER);
            }
            code = self.report(&paths)?;
            self.prune()?;
        }
        if let Some(error) = told.and_then(Run::not_uploaded) {
            log::error!("the aggregator could not upload the archive: {error}; {kept}");
            return Ok(TRANSFER);
        }
        if let (Some(rbac), Some(client)) = (self.delete, client) {
            let removal = Removal { namespace: namespace.to_owned(), rbac, all: false, dry_run: false };
            removal.issue(client)?.wait(client, DELETION, &mut |state| log::info!("{state}"))?;
        }
        Ok(code)
    }

    /// Removes old archives, with their seals.
    fn prune(&self) -> Result<()> {
        let keep = usize::try_from(self.args.number("keep"))?;
        let Some(folder) = self.retrieve.as_ref().filter(|_| keep > 0) else { return Ok(()) };
        let entries = fs::read_dir(folder).at("cannot read", folder)?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| layout::run_of_archive(name).is_some()).collect();
        // Names begin with the start time of the run.
        names.sort_unstable_by(|a, b| b.cmp(a));
        for name in names.iter().skip(keep) {
            for ending in layout::SEAL.iter().chain(&[""]) {
                let path = folder.join(format!("{name}{ending}"));
                if path.exists() {
                    fs::remove_file(&path).at("cannot remove", &path)?;
                }
            }
            log::info!("removed `{name}`: --keep {keep}");
        }
        Ok(())
    }

    /// Prints the paths of the archives, or a report on the newest; returns the exit code.
    fn report(&self, paths: &[PathBuf]) -> Result<u8> {
        // A persistent claim holds the archives of all runs; names begin with the time.
        let newest = paths.iter().max().filter(|_| self.reads);
        if let Some(path) = newest {
            return report::report(self.args, &self.outputs, path, None, self.retrieve.is_some())
                .with_context(|| format!("could not process archive: {}", path.display()));
        }
        // Without --retrieve, the local copy is deleted.
        for path in paths.iter().filter(|_| self.retrieve.is_some()) {
            if shown::is_json(self.args) {
                shown::archive(&path.display().to_string())?;
            } else {
                output::line(path.display())?;
            }
        }
        Ok(0)
    }
}

/// The URL of `--upload`: HTTPS, or HTTP to the machine itself, unless the aggregator sends there.
pub(super) fn upload<'m>(args: Args<'m>, by_aggregator: bool) -> Result<Option<&'m str>> {
    let Some(url) = args.text("upload") else { return Ok(None) };
    let uri = url.parse::<Uri>().map_err(|error| error::usage(format!("--upload: invalid URL: {error}")))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(Some(url)),
        Some("http") if is_here && !by_aggregator => Ok(Some(url)),
        _ => Err(error::usage("--upload takes a URL that begins with https://")),
    }
}
