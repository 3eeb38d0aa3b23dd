//! Where everything stands inside an archive, and inside the folder of a run, which becomes one.
//!
//! Every path that two rooms must agree on stands here once. Reads and writes nothing.

/// A plugin's tree of results, inside its folder.
pub(crate) const RESULTS_FILE: &str = "sonobuoy_results.yaml";
/// What workers and the aggregator call their error reports.
pub(crate) const ERROR_FILE: &str = "error.json";

/// The tree of a plugin's results.
pub(crate) fn tree(plugin: &str) -> String {
    format!("plugins/{plugin}/{RESULTS_FILE}")
}
