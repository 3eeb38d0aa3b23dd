//! Access to a run in a cluster: through the API server, or through the run's status service (`--credentials`).
//!
//! Owns the choice between the two. Knows nothing of what a command does with the run.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::cluster;
use super::flag::Args;
use crate::remote::service::{self, Credentials};
use crate::remote::state::StatusSource;
use base::kube::Client;
use base::stop::Stop;

/// Timeout after which the status service is not used.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// The file with the credentials of a run's status service.
pub(crate) fn credentials(args: Args) -> PathBuf {
    args.text_or("credentials", "SONOBUOY_CREDENTIALS").unwrap_or_else(|| service::FILE.into()).into()
}

/// The credentials of the run's status service, if they are usable. A named file that does not exist is an error,
/// unless this command `writes` it: then its failure was reported.
pub(crate) fn service(args: Args, namespace: &str, writes: bool) -> Result<Option<Credentials>> {
    let path = credentials(args);
    if path.as_os_str() != service::STREAM {
        let found = Credentials::read(&path, namespace);
        if matches!(found, Ok(None)) && named(args) && !writes {
            bail!(
                "--credentials: `{}` does not exist; name the file that `sonobuoy run --status-service` wrote",
                path.display()
            );
        }
        return Ok(usable(args, found).flatten());
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        log::warn!("`--credentials -` reads them from standard input, which is a terminal");
        return Ok(None);
    }
    Ok(usable(args, Credentials::take(stdin.lock(), namespace).context("standard input")))
}

/// Access to a run: its cluster, its status service, or both.
pub(crate) fn to_run(
    args: Args,
    namespace: &str,
    stop: &Stop,
) -> Result<(Option<Client>, Option<Credentials>)> {
    let service = service(args, namespace, false)?;
    Ok(match cluster::client(args) {
        Err(_) if service.is_some() => (None, service),
        client => (Some(client?.under(stop)), service),
    })
}

/// The source of the status: the service if it responds, else the cluster. The default credentials file is only used
/// for a single read, since watching the cluster reports more: pods that do not start, and deleted pods.
pub(crate) fn source(
    args: Args,
    service: Option<&Credentials>,
    follows: bool,
    stop: &Stop,
) -> Result<StatusSource> {
    let service = service.and_then(|found| usable(args, found.source(stop)));
    let asked = service.as_ref().filter(|_| named(args) || !follows);
    let answer = asked.map(|service| service.probe(ANSWER_TIMEOUT));
    match (cluster::client(args), service, answer) {
        (_, Some(service), Some(Ok(()))) => Ok(service),
        (Ok(client), _, answer) => {
            usable(args, answer.transpose());
            Ok(StatusSource::pod(client.under(stop)))
        }
        (Err(_), _, Some(Err(error))) if !follows => {
            Err(error.context("the run's status service cannot be asked"))
        }
        (Err(_), Some(service), _) => Ok(service),
        (Err(error), None, _) => Err(error),
    }
}

fn named(args: Args) -> bool {
    args.given("credentials")
}

/// Logs why the service is not used. A named file must be valid; the default one may belong to another run.
fn usable<T>(args: Args, found: Result<T>) -> Option<T> {
    let level = if named(args) { log::Level::Warn } else { log::Level::Debug };
    found.inspect_err(|error| log::log!(level, "the status service was not asked: {error:#}")).ok()
}
