//! Where everything stands inside an archive, and inside the folder of a run, which becomes one.
//!
//! Every path that two rooms must agree on stands here once; `tests/tidy.rs` finds it anywhere else. Paths of an archive
//! have `/` on every system. Reads and writes nothing, and does not check names: who gives one has made it harmless.

use std::path::{Path, PathBuf};

/// What an archive says about its run.
pub(crate) const META: &str = "meta";
/// Which plugins it holds.
pub(crate) const INFO: &str = "meta/info.json";
/// The run's settings, the version among them.
pub(crate) const CONFIG: &str = "meta/config.json";
/// The aggregator's log.
pub(crate) const RUN_LOG: &str = "meta/run.log";
/// How long each question of the snapshot took.
pub(crate) const QUERY_TIMES: &str = "meta/query-time.json";
/// Which of them could not be answered.
pub(crate) const QUERY_ERRORS: &str = "meta/query-errors.json";
/// The health of the cluster.
pub(crate) const HEALTH: &str = "meta/clusterhealth.json";
/// How much was hidden.
pub(crate) const REDACTIONS: &str = "meta/redactions.json";
/// Which results came when, how large, from whom.
pub(crate) const RECEIVED: &str = "meta/results.json";
/// The version of the API server.
pub(crate) const SERVER_VERSION: &str = "serverversion.json";
/// The groups of its API.
pub(crate) const SERVER_GROUPS: &str = "servergroups.json";

/// Objects of the cluster, by namespace.
pub(crate) const RESOURCES: &str = "resources";
/// What kubelets say, by node.
pub(crate) const HOSTS: &str = "hosts";
/// Logs of pods, by namespace and pod.
pub(crate) const POD_LOGS: &str = "podlogs";
/// What plugins brought.
pub(crate) const PLUGINS: &str = "plugins";

/// A plugin's results, by node, inside its folder.
pub(crate) const RESULTS: &str = "results";
/// Errors in place of results.
pub(crate) const ERRORS: &str = "errors";
/// A plugin's definition, inside its folder; archives until 2021 misspell the name.
pub(crate) const DEFINITIONS: [&str; 2] = ["definition.json", "defintion.json"];
/// A plugin's tree of results, inside its folder.
pub(crate) const TREE: &str = "sonobuoy_results.yaml";
/// What workers and the aggregator call their error reports.
pub(crate) const ERROR_FILE: &str = "error.json";

/// When each result was asked for and came: a list, one entry a result.
pub(crate) const ARRIVALS: &str = "meta/results.json";

/// A kubelet's settings, inside the folder of its node.
pub(crate) const KUBELET_CONFIG: &str = "configz.json";
/// Whether it calls itself healthy.
pub(crate) const KUBELET_HEALTH: &str = "healthz.json";
/// Its figures.
pub(crate) const KUBELET_METRICS: &str = "metrics-resource.txt";

/// The journal, inside the folder of what must outlive a crash.
pub(crate) const JOURNAL: &str = "journal";
/// Bodies that are being received, inside it.
pub(crate) const INCOMING: &str = "incoming";
/// The run's authority with its key, inside it.
pub(crate) const AUTHORITY: &str = "authority.pem";
/// Beside the folders of runs: the uid of the pod whose run is over.
pub(crate) const COMPLETE: &str = "complete";
/// Beside them: archives of earlier runs.
pub(crate) const EARLIER: &str = "earlier";

/// What the folder of a run is followed by in the name of its neighbour.
const STATE: &str = ".state";
/// Objects that belong to a namespace, and the others; the second was spelled differently in old archives.
const NAMESPACED: &str = "ns";
const CLUSTER: [&str; 2] = ["cluster", "non-ns"];

/// The folder of a plugin.
pub(crate) fn plugin(name: &str) -> String {
    format!("{PLUGINS}/{name}")
}

/// The tree of a plugin's results.
pub(crate) fn tree(plugin: &str) -> String {
    format!("{PLUGINS}/{plugin}/{TREE}")
}

/// Whether a path is that of a tree.
pub(crate) fn is_tree(path: &str) -> bool {
    matches!(path.split('/').collect::<Vec<_>>()[..], [PLUGINS, _, TREE])
}

/// The folder of the objects of a namespace; of those that belong to none.
pub(crate) fn resources(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{RESOURCES}/{NAMESPACED}/{namespace}"),
        None => format!("{RESOURCES}/{}", CLUSTER[0]),
    }
}

/// The namespace, empty for none, and the file's name of a path below [`RESOURCES`].
pub(crate) fn resource_file(path: &str) -> Option<(&str, &str)> {
    match path.split('/').collect::<Vec<_>>()[..] {
        [RESOURCES, NAMESPACED, namespace, name] => Some((namespace, name)),
        [RESOURCES, place, name] if CLUSTER.contains(&place) => Some(("", name)),
        _ => None,
    }
}

/// The folder of the logs of a pod.
pub(crate) fn pod_logs(namespace: &str, pod: &str) -> String {
    format!("{POD_LOGS}/{namespace}/{pod}/logs")
}

/// The log of one of its containers.
pub(crate) fn pod_log(namespace: &str, pod: &str, container: &str) -> String {
    format!("{}/{container}.txt", pod_logs(namespace, pod))
}

/// A path below [`POD_LOGS`], without that.
pub(crate) fn below_pod_logs(path: &str) -> Option<&str> {
    path.strip_prefix(POD_LOGS)?.strip_prefix('/')
}

/// What a plugin brought from one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered<'p> {
    /// The plugin.
    pub plugin: &'p str,
    /// The node, or the word for the whole cluster.
    pub node: &'p str,
    /// The path of the file inside the plugin's folder.
    pub file: &'p str,
    /// Whether it is a result, not an error in its place.
    pub is_result: bool,
}

/// What a path of an archive says of a file that a plugin brought.
pub(crate) fn delivered(path: &str) -> Option<Delivered<'_>> {
    let (plugin, file) = path.strip_prefix(PLUGINS)?.strip_prefix('/')?.split_once('/')?;
    match file.splitn(3, '/').collect::<Vec<_>>()[..] {
        [folder @ (RESULTS | ERRORS), node, _] => {
            Some(Delivered { plugin, node, file, is_result: folder == RESULTS })
        }
        _ => None,
    }
}

/// The folder beside `run_dir` for what must outlive a crash but belongs into no archive.
pub(crate) fn state_dir(run_dir: &Path) -> PathBuf {
    let mut name = run_dir.file_name().unwrap_or_default().to_owned();
    name.push(STATE);
    run_dir.with_file_name(name)
}

/// The run whose state is in the folder of this name.
pub(crate) fn run_of_state(name: &str) -> Option<&str> {
    name.strip_suffix(STATE)
}

/// What the name of an archive ends with.
pub(crate) const ARCHIVE: &str = ".tar.gz";
/// What follows the name of an archive in those of the two files of its seal, the statement and the signature.
pub(crate) const SEAL: [&str; 2] = [".sha256", ".sig"];
/// What follows it while the archive has no seal yet.
pub(crate) const UNSEALED: &str = ".unsealed";
/// What separates the time from the run in it.
const RUN: &str = "_sonobuoy_";

/// The run whose archive is called so.
pub(crate) fn run_of_archive(name: &str) -> Option<&str> {
    Some(name.strip_suffix(ARCHIVE)?.split_once(RUN)?.1)
}

/// Where the two files of the seal of an archive lie: beside it.
pub(crate) fn seal(archive: &Path) -> [PathBuf; 2] {
    SEAL.map(|ending| {
        let mut path = archive.as_os_str().to_owned();
        path.push(ending);
        path.into()
    })
}

/// The archive that a file of this name is a part of the seal of, and which.
pub(crate) fn sealed(name: &str) -> Option<(&str, usize)> {
    SEAL.iter().enumerate().find_map(|(part, ending)| Some((name.strip_suffix(ending)?, part)))
}

/// The name of an archive.
pub(crate) fn archive(stamp: &str, uuid: &str) -> String {
    format!("{stamp}{RUN}{uuid}{ARCHIVE}")
}
