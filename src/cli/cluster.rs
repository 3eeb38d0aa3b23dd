//! The cluster of a command line: `--kubeconfig`, `--context`, `--as`, `--request-timeout`,
//! `--namespace`; and access to a run in it: through the API server, or through the run's status
//! service (`--credentials`).
//!
//! Owns the choice between the two. Knows nothing of what a command does with the run.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::flag::{Args, invalid};
use crate::doctor::MAX_REQUESTS_PER_SECOND;
use crate::image::release;
use crate::remote::service::{self, Credentials};
use crate::remote::state::{self, StatusSource};
use base::stop::Stop;
use base::{clock, sys};
use kube::{Client, Config, Options};
use model::names;

/// An empty variable in a script would otherwise mean all namespaces.
pub(crate) const NO_NAMESPACE: &str =
    "the namespace is empty; name the run's namespace with --namespace";

/// Where a variable names the namespace of runs.
pub(crate) const NAMESPACE: &str = "SONOBUOY_NAMESPACE";

/// Tells the process of one of many clusters to limit its rate of requests.
pub(super) const ONE_OF_MANY: &str = "SONOBUOY_ONE_OF_MANY";

/// Timeout after which the status service is not used.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// The client of a process for one of many clusters.
static SHARED: OnceLock<Client> = OnceLock::new();

/// A client for the cluster; sends nothing yet.
pub(crate) fn client(args: Args) -> Result<Client> {
    let client = Client::new(Config::load(&options(args)?)?, &Stop::new())?;
    Ok(match sys::variable(ONE_OF_MANY) {
        // Several of them may be behind one gateway. All clients of this process share the rate.
        Some(_) => SHARED
            .get_or_init(|| client.rate(MAX_REQUESTS_PER_SECOND, 1))
            .clone(),
        None => client,
    })
}

pub(crate) fn options(args: Args) -> Result<Options> {
    // As in kubectl, a bare number means seconds.
    let limit = |text: &str| {
        let limit =
            clock::parse_duration(text).or_else(|| clock::parse_duration(&format!("{text}s")));
        limit.ok_or_else(|| invalid("request-timeout", text, "write 30s or 2m"))
    };
    Ok(Options {
        path: args.text("kubeconfig").map(PathBuf::from),
        context: args.text("context").map(str::to_owned),
        as_user: args.text("as").map(str::to_owned),
        as_groups: args.all("as-group").map(str::to_owned).collect(),
        request_timeout: args.text("request-timeout").map(limit).transpose()?,
    })
}

/// The namespace of the run: that of the flag or the variable, else `sonobuoy`.
pub(crate) fn namespace(args: Args) -> Result<String> {
    if args.given("namespace") {
        return args
            .text("namespace")
            .map(str::to_owned)
            .context(NO_NAMESPACE);
    }
    Ok(sys::variable(NAMESPACE).unwrap_or_else(|| names::SONOBUOY.into()))
}

/// The namespace of the run to look at: as [`namespace`], but if neither flag nor variable names
/// one, and only the namespace of the kubeconfig's context has a run, that one.
pub(crate) fn namespace_of_run(args: Args) -> Result<String> {
    let name = namespace(args)?;
    if names_namespace(args) {
        return Ok(name);
    }
    let has_run = |client: &Client, namespace: &str| {
        state::find(client, namespace).is_ok_and(|pod| pod.is_some())
    };
    if let Ok(config) = Config::find(&options(args)?)
        && let Some(of_context) = config
            .namespace
            .clone()
            .filter(|of_context| *of_context != name)
        && let Ok(client) = Client::new(config, &Stop::new())
        && !has_run(&client, &name)
        && has_run(&client, &of_context)
    {
        return Ok(of_context);
    }
    Ok(name)
}

/// Whether the flag or the variable names a namespace.
pub(super) fn names_namespace(args: Args) -> bool {
    args.given("namespace") || sys::variable(NAMESPACE).is_some()
}

/// The namespace of the run to look at, and the credentials of its status service. Credentials that
/// the user names say which run is meant; without them, or with a namespace as well, `namespace`
/// decides.
pub(crate) fn run_of(
    args: Args,
    namespace: impl FnOnce() -> Result<String>,
) -> Result<(String, Option<Credentials>)> {
    if named(args) && !names_namespace(args) {
        let service = service(args, None, false)?;
        let of_file = service.as_ref().map(|service| service.namespace.clone());
        return Ok((
            of_file
                .filter(|name| !name.is_empty())
                .map_or_else(namespace, Ok)?,
            service,
        ));
    }
    let namespace = namespace()?;
    let service = service(args, Some(&namespace), false)?;
    Ok((namespace, service))
}

/// The API server's version, such as `v1.31.2`, including vendor suffixes.
pub(crate) fn version(args: Args) -> Result<String> {
    let answer = client(args)?.version()?;
    let version = answer["gitVersion"]
        .as_str()
        .context("the cluster does not report its version")?;
    Ok(version.to_owned())
}

/// The Kubernetes release of the cluster.
pub(crate) fn release(args: Args) -> Result<String> {
    let version = version(args)?;
    release::of_server(&version)
        .with_context(|| format!("the cluster reports version `{version}`, which is not a release"))
}

/// The file with the credentials of a run's status service.
pub(crate) fn credentials(args: Args) -> PathBuf {
    args.text_or("credentials", "SONOBUOY_CREDENTIALS")
        .unwrap_or_else(|| service::FILE.into())
        .into()
}

/// The credentials of the status service of the run in `namespace`, or of any run, if they are
/// usable. A named file that does not exist is an error, unless this command `writes` it: then its
/// failure was reported.
pub(crate) fn service(
    args: Args,
    namespace: Option<&str>,
    writes: bool,
) -> Result<Option<Credentials>> {
    let path = credentials(args);
    if path.as_os_str() != service::STREAM {
        let found = Credentials::read(&path, namespace);
        if matches!(found, Ok(None)) && named(args) && !writes {
            bail!(
                "--credentials: `{}` does not exist; name the file that `sonobuoy run \
                 --status-service` wrote",
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
    Ok(usable(
        args,
        Credentials::take(stdin.lock(), namespace).context("standard input"),
    ))
}

/// Access to a run: its namespace, and its cluster, its status service, or both.
pub(crate) fn to_run(
    args: Args,
    stop: &Stop,
) -> Result<(String, Option<Client>, Option<Credentials>)> {
    let (namespace, service) = run_of(args, || namespace_of_run(args))?;
    Ok(match client(args) {
        Err(_) if service.is_some() => (namespace, None, service),
        client => (namespace, Some(client?.under(stop)), service),
    })
}

/// The source of the status: the service if it responds, else the cluster. The default credentials
/// file is only used for a single read, since watching the cluster reports more: pods that do not
/// start, and deleted pods.
pub(crate) fn source(
    args: Args,
    service: Option<&Credentials>,
    follows: bool,
    stop: &Stop,
) -> Result<StatusSource> {
    let service = service.and_then(|found| usable(args, found.source(stop)));
    let asked = service.as_ref().filter(|_| named(args) || !follows);
    let answer = asked.map(|service| service.probe(ANSWER_TIMEOUT));
    match (client(args), service, answer) {
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

/// Logs why the service is not used. A named file must be valid; the default one may belong to
/// another run.
fn usable<T>(args: Args, found: Result<T>) -> Option<T> {
    let level = if named(args) {
        log::Level::Warn
    } else {
        log::Level::Debug
    };
    found
        .inspect_err(|error| log::log!(level, "the status service was not asked: {error:#}"))
        .ok()
}
