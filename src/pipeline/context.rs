//! What the steps of a run share, in a cluster and on one machine.

use std::path::Path;

use serde_json::Value;

use super::status_service::StatusService;
use kube::{self, Object as _};
use model::config;
use model::plugin::Definition;
use run::aggregator::Aggregator;
use run::driver::PluginLaunch;

/// A run in a cluster.
pub(crate) struct ClusterRun<'a> {
    /// Settings of the run.
    pub config: config::Run,
    /// The plugins.
    pub definitions: Vec<Definition>,
    /// Access to the API.
    pub client: kube::Client,
    /// The folder for runs and archives.
    pub folder: &'a Path,
    /// The name of this host, which is usually that of the pod.
    pub own_name: String,
    /// Second publisher of the status.
    pub status_service: Option<&'a StatusService>,
    /// Secret with the upload URL of the archive.
    pub upload: Option<String>,
    /// Whether the container stays when the run is over.
    pub stays: bool,
}

/// What the steps of a run share.
pub(super) struct RunContext<'a> {
    pub aggregator: &'a Aggregator,
    pub run_dir: &'a Path,
    pub config: &'a config::Run,
    /// The run's plugins.
    pub plugins: Vec<PluginLaunch<'a>>,
    /// All attempts that the run may need.
    pub attempts: &'a [Definition],
}

pub(super) fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].text()
}
