//! `sonobuoy retrieve`: fetches the archives of a run, and unpacks them if requested. Prints only
//! file names on stdout.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::cluster::{ClusterFlags, CredentialsFlag, NamespaceFlag, RunAccess};
use super::clusters::{self, ClustersFlags, Fleet, Printed};
use super::flag::{Filled as _, examples};
use super::output;
use super::transfer::{TRANSFER, fetch, interrupted_transfer, unpack};
use crate::remote::{Retrieval, RetrievalError};
use base::at::At as _;
use base::sys;
use model::names;

/// Fetch the archive of a run; prints its file name
#[derive(clap::Args)]
#[command(after_help = examples(&[
    ("Fetch the archive; its name is printed", "sonobuoy retrieve"),
    ("Look at what has arrived so far", "sonobuoy retrieve --partial"),
]))]
pub(crate) struct RetrieveArgs {
    /// Folder to write into
    #[arg(value_name = "DIR", default_value = ".")]
    dir: String,
    #[command(flatten)]
    namespace: NamespaceFlag,
    /// Unpack the archive and remove it
    #[arg(short = 'x', long)]
    extract: bool,
    /// File name instead of the archive's own
    #[arg(short, long, value_name = "NAME")]
    filename: Option<String>,
    /// Where the aggregator keeps its archives
    #[arg(long, value_name = "DIR", default_value = names::RUNS_DIR)]
    retrieve_path: String,
    /// Fetch what has arrived so far from an unfinished run
    #[arg(long)]
    partial: bool,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    credentials: CredentialsFlag,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    clusters: ClustersFlags,
}

impl RetrieveArgs {
    /// The archives of several clusters, if several are named.
    pub(crate) fn fleet(&self) -> Option<Fleet<'_>> {
        let mut fleet = Fleet::new(
            "retrieve",
            &self.clusters,
            &self.cluster,
            self.namespace.namespace.as_deref(),
        )?;
        fleet.refuse_stream("--credentials -", &self.credentials.credentials);
        fleet.is_quiet = true;
        fleet.printed = Printed::FileNames;
        fleet.folder = Some(self.dir.as_str()).filter(|dir| !dir.is_empty());
        Some(fleet)
    }

    /// The arguments for one of several clusters.
    pub(crate) fn narrowed(self) -> Self {
        let Some(folder) = self.clusters.one_folder().map(str::to_owned) else {
            return self;
        };
        Self {
            dir: folder,
            clusters: self.clusters.narrowed(),
            ..self
        }
    }
}

/// Runs the command in one cluster or in several.
pub(crate) fn dispatch(args: RetrieveArgs) -> Result<u8> {
    if let Some(fleet) = args.fleet() {
        return clusters::run(&fleet);
    }
    run(&args.narrowed())
}

/// Runs the command.
pub(super) fn run(args: &RetrieveArgs) -> Result<u8> {
    let stop = output::stop_on_signal()?;
    // What is private as an archive is private unpacked.
    sys::create_private_files();
    let into = Path::new(if args.dir.is_empty() { "." } else { &args.dir });
    let access = RunAccess {
        cluster: &args.cluster,
        namespace: args.namespace.namespace.as_deref(),
        credentials: args.credentials.credentials.as_deref(),
    };
    let (namespace, client, service) = access.connect(&stop)?;
    let retrieval = Retrieval {
        client: client.as_ref(),
        from: &args.retrieve_path,
        name: args.filename.filled(),
        partial: args.partial,
        service: service.as_ref(),
        force: args.force,
        keep_seal: !args.extract,
        ..Retrieval::new(&namespace, into)
    };
    let fetched = fetch(None, &retrieval, &stop).and_then(|mut paths| {
        if args.extract {
            // Unpacked archives are gone, so no path is printed.
            for path in paths.drain(..) {
                unpack(&path, into)?;
                fs::remove_file(&path).at("cannot remove", &path)?;
            }
        }
        Ok(paths)
    });
    match fetched {
        Ok(paths) => {
            for path in paths {
                output::line(path.strip_prefix(".").unwrap_or(&path).display());
            }
            Ok(0)
        }
        Err(failure) if output::is_interrupted() => Err(interrupted_transfer(failure)),
        Err(RetrievalError::Unasked(error)) => Err(error),
        Err(RetrievalError::NotReady(error)) => {
            output::error("Results not ready yet. Check `sonobuoy status` for status.\n");
            Err(error)
        }
        Err(failure) => {
            output::error(&format!(
                "error retrieving results: {:#}\n",
                failure.into_error()
            ));
            Ok(TRANSFER)
        }
    }
}
