//! `sonobuoy wait`: attaches to a running run, and waits for its end.

use std::process::ExitCode;

use anyhow::bail;
use clap::ArgMatches;

use super::afterwards::Afterwards;
use super::waiting::{DAY, Wait, conclude};
use super::{cluster, request, status};
use base::kube::Resource;
use base::stop::Stop;

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let afterwards = Afterwards::asked(matches)?;
    let stop = Stop::new();
    let namespace = request::settings(matches)?.namespace;
    let service = status::service(matches, &namespace)?;
    let source = status::source(matches, service.as_ref(), true, &stop)?;
    let client = match source.cluster() {
        Some(client) => Some(client.clone()),
        // The status service has the archive; only a deletion needs the cluster.
        None => matches.get_flag("delete").then(|| cluster::client(matches, &stop)).transpose()?,
    };
    if let Some(client) = source.cluster()
        && client.get(&Resource::NAMESPACES, "", &namespace).is_err_and(|error| error.is_not_found())
    {
        bail!("namespace `{namespace}` does not exist; name the namespace of the run with `-n`");
    }
    // The original's limit is 0 here, which ends every wait at once.
    let run = Wait::asked(matches, DAY)?.map(|wait| wait.wait(&source, &namespace)).transpose()?;
    let code = afterwards.run(client.as_ref(), &namespace, run.as_ref(), service.as_ref(), &stop)?;
    Ok(run.map_or(code, |run| conclude(&run, code, &namespace)))
}
