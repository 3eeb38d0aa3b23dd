//! Paths inside an archive, and inside the folder of a run, which becomes one.
//!
//! Every path that two modules must agree on is defined here once; `tests/tidy.rs` rejects it
//! anywhere else. Paths in an archive use `/` on every system. Performs no I/O, and does not
//! validate names: callers must.

use std::path::{Path, PathBuf};

/// Information about the run.
pub const META: &str = "meta";
/// The plugins in the archive.
pub const INFO: &str = "meta/info.json";
/// Marks an archive with the results so far of a run that continues.
pub const PARTIAL: &str = "meta/partial";
/// The run's settings, including the version.
pub const CONFIG: &str = "meta/config.json";
/// The aggregator's log.
pub const RUN_LOG: &str = "meta/run.log";
/// How long the parts of the run took until it was packed.
pub const TIMINGS: &str = "meta/timings.json";
/// Duration of each query of the snapshot.
pub const QUERY_TIMES: &str = "meta/query-time.json";
/// Failed queries.
pub const QUERY_ERRORS: &str = "meta/query-errors.json";
/// The health of the cluster.
pub const HEALTH: &str = "meta/clusterhealth.json";
/// Number of redacted values.
pub const REDACTIONS: &str = "meta/redactions.json";
/// Nodes that a plugin does not run on, with the reasons.
pub const EXCLUDED: &str = "meta/nodes.json";
/// Time, size and sender of each result.
pub const RECEIVED: &str = "meta/results.json";
/// Why a run failed that has errors instead of all results.
pub const WHY: &str = "meta/why.json";
/// The version of the API server.
pub const SERVER_VERSION: &str = "serverversion.json";
/// The groups of its API.
pub const SERVER_GROUPS: &str = "servergroups.json";

/// Objects of the cluster, by namespace.
pub const RESOURCES: &str = "resources";
/// Kubelets' information, by node.
pub const HOSTS: &str = "hosts";
/// Logs of pods, by namespace and pod.
pub const POD_LOGS: &str = "podlogs";
/// Files of plugins.
pub const PLUGINS: &str = "plugins";

/// A plugin's results, by node, inside its folder.
pub const RESULTS: &str = "results";
/// Errors in place of results.
pub const ERRORS: &str = "errors";
/// A plugin's definition, inside its folder; in archives until 2021 the name is misspelled.
pub const DEFINITIONS: [&str; 2] = ["definition.json", "defintion.json"];
/// A plugin's tree of results, inside its folder.
pub const TREE: &str = "sonobuoy_results.yaml";
/// Results of the built-in plugins: facts of a node, connectivity, log summary.
pub const HOST_FACTS: &str = "host-facts.json";
/// See [`HOST_FACTS`].
pub const NETWORK: &str = "network.yaml";
/// The result of the plugin `hello`.
pub const HELLO: &str = "hello.yaml";
/// See [`HOST_FACTS`].
pub const LOG_SUMMARY: &str = "log-summary.yaml";
/// The name of error reports from workers and the aggregator.
pub const ERROR_FILE: &str = "error.json";

/// A kubelet's settings, inside the folder of its node.
pub const KUBELET_CONFIG: &str = "configz.json";
/// The kubelet's health report.
pub const KUBELET_HEALTH: &str = "healthz.json";
/// Its metrics.
pub const KUBELET_METRICS: &str = "metrics-resource.txt";
/// The end of its log.
pub const KUBELET_LOG: &str = "kubelet.log";

/// The journal, inside the folder for what must survive a crash.
pub const JOURNAL: &str = "journal";
/// Bodies being received, inside the same folder.
pub const INCOMING: &str = "incoming";
/// The run's authority with its key, inside the same folder.
pub const AUTHORITY: &str = "authority.pem";
/// The cluster's identifier of the run, inside the same folder: a pod with the same one resumes the
/// run.
pub const IDENTITY: &str = "identity";
/// The addresses that the aggregator has had during the run, one per line, the latest first.
pub const ADDRESSES: &str = "addresses";
/// Next to the folders of runs: the uid of the pod whose run is complete.
pub const COMPLETE: &str = "complete";
/// Next to them: the last status of a complete run, or a status that the annotation of the pod
/// cannot hold.
pub const LAST_STATUS: &str = "status.json";
/// Next to them: archives of earlier runs.
pub const EARLIER: &str = "earlier";

/// The folder with the finished tests.
const RAN: &str = "ran";
/// The suffix of the folder for state, after the name of the run's folder.
const STATE: &str = ".state";
/// Objects that belong to a namespace, and the others; old archives misspell the second.
const NAMESPACED: &str = "ns";
const CLUSTER: [&str; 2] = ["cluster", "non-ns"];

/// The folder of a plugin.
pub fn plugin(name: &str) -> String {
    format!("{PLUGINS}/{name}")
}

/// The definition of a plugin, in archives since 2021.
pub fn definition(plugin: &str) -> String {
    format!("{PLUGINS}/{plugin}/{}", DEFINITIONS[0])
}

/// The name of a plugin's repeated attempt with this number, which is also that of its folder.
pub fn attempt(plugin: &str, number: u32) -> String {
    format!("{plugin}-retry-{number}")
}

/// Whether a name is that of a repeated attempt of a plugin.
pub fn is_attempt(name: &str, plugin: &str) -> bool {
    let number = name
        .strip_prefix(plugin)
        .and_then(|rest| rest.strip_prefix("-retry-"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The name of a part of a split plugin: the first has the plugin's name, `0` is the part that runs
/// after the others.
pub fn part(plugin: &str, number: usize) -> String {
    match number {
        0 => format!("{plugin}-serial"),
        1 => plugin.to_owned(),
        number => format!("{plugin}-part-{number}"),
    }
}

/// Whether a name is that of a part of a split plugin other than its first.
pub fn is_other_part(name: &str, plugin: &str) -> bool {
    let suffix = name.strip_prefix(plugin).unwrap_or_default();
    suffix == "-serial"
        || suffix
            .strip_prefix("-part-")
            .is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The finished tests of a plugin according to its progress, one per line.
pub fn ran(plugin: &str) -> String {
    format!("{META}/{RAN}/{plugin}.txt")
}

/// The plugin of such a file.
pub fn plugin_of_ran(path: &str) -> Option<&str> {
    path.strip_prefix(META)?
        .strip_prefix('/')?
        .strip_prefix(RAN)?
        .strip_prefix('/')?
        .strip_suffix(".txt")
}

/// Prefix of a line of such a file whose test failed.
pub const FAILED_TEST: &str = "FAILED ";

/// The test in a line of such a file, or in a progress message; `None` for other content.
pub fn ran_test(line: &str) -> Option<&str> {
    ["PASSED ", FAILED_TEST]
        .iter()
        .find_map(|word| line.strip_prefix(word))
        .map(str::trim)
}

/// Relative path from a plugin's folder to that of another one.
pub fn beside(other: &str) -> String {
    format!("../{other}/")
}

/// The plugin that delivered a file of another plugin's tree, and the path in its own folder.
pub fn deliverer<'p>(plugin: &'p str, file: &'p str) -> (&'p str, &'p str) {
    file.strip_prefix("../")
        .and_then(|rest| rest.split_once('/'))
        .unwrap_or((plugin, file))
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').collect()
}

/// The tree of a plugin's results.
pub fn tree(plugin: &str) -> String {
    format!("{PLUGINS}/{plugin}/{TREE}")
}

/// Whether a path is that of a tree.
pub fn is_tree(path: &str) -> bool {
    matches!(parts(path)[..], [PLUGINS, _, TREE])
}

/// Whether a path is that of a plugin's definition.
pub fn is_definition(path: &str) -> bool {
    matches!(parts(path)[..], [PLUGINS, _, file] if DEFINITIONS.contains(&file))
}

/// The folder for the objects of a namespace, or for cluster-scoped ones.
pub fn resources(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{RESOURCES}/{NAMESPACED}/{namespace}"),
        None => format!("{RESOURCES}/{}", CLUSTER[0]),
    }
}

/// The namespace, empty for none, and the file name of a path below [`RESOURCES`].
pub fn resource_file(path: &str) -> Option<(&str, &str)> {
    match parts(path)[..] {
        [RESOURCES, NAMESPACED, namespace, name] => Some((namespace, name)),
        [RESOURCES, place, name] if CLUSTER.contains(&place) => Some(("", name)),
        _ => None,
    }
}

/// The folder for the logs of a pod.
pub fn pod_logs(namespace: &str, pod: &str) -> String {
    format!("{POD_LOGS}/{namespace}/{pod}/logs")
}

/// The log of one of its containers.
pub fn pod_log(namespace: &str, pod: &str, container: &str) -> String {
    format!("{}/{container}.txt", pod_logs(namespace, pod))
}

/// The path below [`POD_LOGS`].
pub fn below_pod_logs(path: &str) -> Option<&str> {
    path.strip_prefix(POD_LOGS)?.strip_prefix('/')
}

/// A file that a plugin delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered<'p> {
    /// The plugin.
    pub plugin: &'p str,
    /// The node, or `global`.
    pub node: &'p str,
    /// The path of the file inside the plugin's folder.
    pub file: &'p str,
    /// Whether it is a result, as opposed to an error.
    pub is_result: bool,
}

/// Parses the path of a file that a plugin delivered.
pub fn delivered(path: &str) -> Option<Delivered<'_>> {
    let (plugin, file) = path
        .strip_prefix(PLUGINS)?
        .strip_prefix('/')?
        .split_once('/')?;
    match file.splitn(3, '/').collect::<Vec<_>>()[..] {
        [folder @ (RESULTS | ERRORS), node, _] => Some(Delivered {
            plugin,
            node,
            file,
            is_result: folder == RESULTS,
        }),
        _ => None,
    }
}

/// The folder next to `run_dir` for what must survive a crash but does not belong in an archive.
pub fn state_dir(run_dir: &Path) -> PathBuf {
    let mut name = run_dir.file_name().unwrap_or_default().to_owned();
    name.push(STATE);
    run_dir.with_file_name(name)
}

/// The run whose state folder has this name.
pub fn run_of_state(name: &str) -> Option<&str> {
    name.strip_suffix(STATE)
}

/// File extension of an archive.
pub const ARCHIVE: &str = ".tar.gz";
/// Suffixes of the two files of an archive's seal, the statement and the signature.
pub const SEAL: [&str; 2] = [".sha256", ".sig"];
/// Separates the time from the run in an archive's name.
const RUN: &str = "_sonobuoy_";

/// The run whose archive has this name.
pub fn run_of_archive(name: &str) -> Option<&str> {
    Some(name.strip_suffix(ARCHIVE)?.split_once(RUN)?.1)
}

/// The minute in which the run began whose archive has this name.
pub fn start_of_archive(name: &str) -> Option<&str> {
    Some(name.split_once(RUN)?.0)
}

/// The paths of the two files of an archive's seal, next to it.
pub fn seal(archive: &Path) -> [PathBuf; 2] {
    SEAL.map(|ending| {
        let mut path = archive.as_os_str().to_owned();
        path.push(ending);
        path.into()
    })
}

/// The archive's name and the part's index, if a file of this name is part of a seal.
pub fn sealed(name: &str) -> Option<(&str, usize)> {
    SEAL.iter()
        .enumerate()
        .find_map(|(part, ending)| Some((name.strip_suffix(ending)?, part)))
}

/// The name of an archive.
pub fn archive(stamp: &str, uuid: &str) -> String {
    format!("{stamp}{RUN}{uuid}{ARCHIVE}")
}
