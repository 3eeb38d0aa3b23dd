//! The cluster of a command line: `--kubeconfig`, `--context`, `--as`, `--request-timeout`,
//! `--namespace`; and access to a run in it: through the API server, or through the run's status
//! service (`--credentials`).
//!
//! Owns the choice between the two. Knows nothing of what a command does with the run.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::flag::{Filled as _, invalid};
use crate::doctor::MAX_REQUESTS_PER_SECOND;
use crate::image::release;
use crate::remote::service::{self, Credentials};
use crate::remote::state::{self, StatusSource};
use base::stop::Stop;
use base::{clock, sys};
use kube::{Client, Config, Options, Resource};
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

/// Access to the cluster
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterFlags {
    /// Kubeconfig instead of $KUBECONFIG, ~/.kube/config or the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<String>,
    /// Context of the kubeconfig to use
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// User to impersonate
    #[arg(long = "as", value_name = "USER", hide_short_help = true)]
    pub as_user: Option<String>,
    /// Group to impersonate
    #[arg(long = "as-group", value_name = "GROUP", hide_short_help = true)]
    pub as_groups: Vec<String>,
    /// Time limit of one request, such as 30s; 0 for none
    #[arg(long, value_name = "DURATION", hide_short_help = true)]
    pub request_timeout: Option<String>,
}

/// The namespace of a run
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NamespaceFlag {
    #[arg(
        short,
        long,
        value_name = "NAME",
        help = "Namespace of the run [default: $SONOBUOY_NAMESPACE or sonobuoy]"
    )]
    pub namespace: Option<String>,
}

/// The credentials of a run's status service
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CredentialsFlag {
    #[arg(
        long,
        value_name = "FILE",
        help = "File with the credentials of the run's status service; - is stdout for `run`, \
                else stdin [default: $SONOBUOY_CREDENTIALS or /tmp/sonobuoy.json]",
        hide_short_help = true
    )]
    pub credentials: Option<String>,
}

impl ClusterFlags {
    /// A client for the cluster; sends nothing yet.
    pub(crate) fn client(&self) -> Result<Client> {
        let config = Config::load(&self.options()?)?;
        let client = Client::new(names::USER_AGENT, config, &Stop::new())?;
        Ok(match sys::variable(ONE_OF_MANY) {
            // Several of them may be behind one gateway. All clients of this process share the
            // rate.
            Some(_) => SHARED
                .get_or_init(|| client.rate(MAX_REQUESTS_PER_SECOND, 1))
                .clone(),
            None => client,
        })
    }

    /// Which kubeconfig to read, and what overrides it.
    pub(crate) fn options(&self) -> Result<Options> {
        let request_timeout = self
            .request_timeout
            .filled()
            .map(parse_timeout)
            .transpose()?;
        Ok(Options {
            path: self.kubeconfig.filled().map(PathBuf::from),
            context: self.context.filled().map(str::to_owned),
            as_user: self.as_user.filled().map(str::to_owned),
            as_groups: self.as_groups.clone(),
            request_timeout,
        })
    }

    /// The API server's version, such as `v1.31.2`, including vendor suffixes.
    pub(crate) fn version(&self) -> Result<String> {
        let answer = self.client()?.version()?;
        let version = answer["gitVersion"]
            .as_str()
            .context("the cluster does not report its version")?;
        Ok(version.to_owned())
    }

    /// The Kubernetes release of the cluster.
    pub(crate) fn release(&self) -> Result<String> {
        let version = self.version()?;
        release::of_server(&version).with_context(|| {
            format!("the cluster reports version `{version}`, which is not a release")
        })
    }
}

/// The value of `--request-timeout`. As in kubectl, a bare number means seconds.
fn parse_timeout(text: &str) -> Result<Duration> {
    clock::parse_duration(text)
        .or_else(|| clock::parse_duration(&format!("{text}s")))
        .ok_or_else(|| invalid("request-timeout", text, "write 30s or 2m"))
}

/// The namespace of the run: that of the flag or the variable, else `sonobuoy`.
pub(crate) fn namespace(flag: Option<&str>) -> Result<String> {
    match flag {
        Some("") => bail!(NO_NAMESPACE),
        Some(name) => Ok(name.to_owned()),
        None => Ok(sys::variable(NAMESPACE).unwrap_or_else(|| names::SONOBUOY.into())),
    }
}

/// Fails if the namespace does not exist. A server that does not answer may later.
pub(crate) fn check_namespace(client: &Client, namespace: &str) -> Result<()> {
    let is_missing = client
        .get(&Resource::NAMESPACES, "", namespace)
        .is_err_and(|error| error.is_not_found());
    ensure!(
        !is_missing,
        "namespace `{namespace}` does not exist; name the namespace of the run with `-n`"
    );
    Ok(())
}

/// The flags that lead to a run: its cluster, its namespace, its status service.
#[derive(Clone, Copy)]
pub(crate) struct RunAccess<'a> {
    pub cluster: &'a ClusterFlags,
    pub namespace: Option<&'a str>,
    /// The file with the credentials of its status service.
    pub credentials: Option<&'a str>,
}

impl RunAccess<'_> {
    /// The namespace of the run to look at: as [`namespace`], but if neither flag nor variable
    /// names one, and only the namespace of the kubeconfig's context has a run, that one.
    pub(crate) fn find_namespace(&self) -> Result<String> {
        let name = namespace(self.namespace)?;
        if self.names_namespace() {
            return Ok(name);
        }
        let has_run = |client: &Client, namespace: &str| {
            state::find(client, namespace).is_ok_and(|pod| pod.is_some())
        };
        if let Ok(config) = Config::find(&self.cluster.options()?)
            && let Some(of_context) = config
                .namespace
                .clone()
                .filter(|of_context| *of_context != name)
            && let Ok(client) = Client::new(names::USER_AGENT, config, &Stop::new())
            && !has_run(&client, &name)
            && has_run(&client, &of_context)
        {
            return Ok(of_context);
        }
        Ok(name)
    }

    /// Whether the flag or the variable names a namespace.
    pub(super) fn names_namespace(&self) -> bool {
        self.namespace.is_some() || sys::variable(NAMESPACE).is_some()
    }

    /// Whether the user names the file with the credentials.
    fn names_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// The namespace of the run to look at, and the credentials of its status service. Credentials
    /// that the user names say which run is meant; without them, or with a namespace as well,
    /// `namespace` decides.
    pub(crate) fn run_of(
        &self,
        namespace: impl FnOnce() -> Result<String>,
    ) -> Result<(String, Option<Credentials>)> {
        if self.names_credentials() && !self.names_namespace() {
            let service = self.service(None, false)?;
            let of_file = service.as_ref().map(|service| service.namespace.clone());
            return Ok((
                of_file
                    .filter(|name| !name.is_empty())
                    .map_or_else(namespace, Ok)?,
                service,
            ));
        }
        let namespace = namespace()?;
        let service = self.service(Some(&namespace), false)?;
        Ok((namespace, service))
    }

    /// The file with the credentials of a run's status service.
    pub(crate) fn credentials_file(&self) -> PathBuf {
        let flag = self.credentials.filter(|path| !path.is_empty());
        flag.map(str::to_owned)
            .or_else(|| sys::variable("SONOBUOY_CREDENTIALS"))
            .unwrap_or_else(|| service::FILE.into())
            .into()
    }

    /// The credentials of the status service of the run in `namespace`, or of any run, if they are
    /// usable. A named file that does not exist is an error, unless this command `writes` it: then
    /// its failure was reported.
    pub(crate) fn service(
        &self,
        namespace: Option<&str>,
        writes: bool,
    ) -> Result<Option<Credentials>> {
        let path = self.credentials_file();
        if path.as_os_str() != service::STREAM {
            let credentials = Credentials::read(&path, namespace);
            if matches!(credentials, Ok(None)) && self.names_credentials() && !writes {
                bail!(
                    "--credentials: `{}` does not exist; name the file that `sonobuoy run \
                     --status-service` wrote",
                    path.display()
                );
            }
            return Ok(self.usable(credentials).flatten());
        }
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            log::warn!("`--credentials -` reads them from standard input, which is a terminal");
            return Ok(None);
        }
        Ok(self.usable(Credentials::take(stdin.lock(), namespace).context("standard input")))
    }

    /// Access to a run: its namespace, and its cluster, its status service, or both.
    pub(crate) fn connect(
        &self,
        stop: &Stop,
    ) -> Result<(String, Option<Client>, Option<Credentials>)> {
        let (namespace, service) = self.run_of(|| self.find_namespace())?;
        Ok(match self.cluster.client() {
            Err(_) if service.is_some() => (namespace, None, service),
            client => (namespace, Some(client?.under(stop)), service),
        })
    }

    /// The source of the status: the service if it responds, else the cluster. The default
    /// credentials file is only used for a single read, since watching the cluster reports more:
    /// pods that do not start, and deleted pods.
    pub(crate) fn source(
        &self,
        service: Option<&Credentials>,
        follows: bool,
        stop: &Stop,
    ) -> Result<StatusSource> {
        let service = service.and_then(|found| self.usable(found.source(stop)));
        let probed = service
            .as_ref()
            .filter(|_| self.names_credentials() || !follows);
        let answer = probed.map(|service| service.probe(ANSWER_TIMEOUT));
        match (self.cluster.client(), service, answer) {
            (_, Some(service), Some(Ok(()))) => Ok(service),
            (Ok(client), _, answer) => {
                self.usable(answer.transpose());
                Ok(StatusSource::pod(client.under(stop)))
            }
            (Err(_), _, Some(Err(error))) if !follows => {
                Err(error.context("the run's status service cannot be asked"))
            }
            (Err(_), Some(service), _) => Ok(service),
            (Err(error), None, _) => Err(error),
        }
    }

    /// Logs why the service is not used. A named file must be valid; the default one may belong to
    /// another run.
    fn usable<T>(&self, found: Result<T>) -> Option<T> {
        let level = if self.names_credentials() {
            log::Level::Warn
        } else {
            log::Level::Debug
        };
        found
            .inspect_err(|error| log::log!(level, "the status service was not asked: {error:#}"))
            .ok()
    }
}
