//! `sonobuoy get`: parts of a run.

use super::flag::Args;
use super::{cluster, output};
use crate::names;
use base::kube::{Resource, Selector};

/// Runs `get pod`: prints the names of plugin pods, one per line.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let args = args.subcommand().map_or(args, |(_, args)| args);
    let client = cluster::client(args)?;
    let labels = names::plugin_selector(args.text("plugin"));
    let pods = client.list(&Resource::PODS, &cluster::namespace_of_run(args)?, &Selector::labels(labels))?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let rows = pods.iter().map(|pod| {
        let (about, plugin) = (&pod["metadata"], &pod["metadata"]["labels"][names::LABEL_PLUGIN]);
        [&about["name"], &about["namespace"], plugin, &pod["spec"]["nodeName"], &pod["status"]["phase"]]
            .map(text)
    });
    let rows: Vec<_> = rows.filter(|row| !row[0].is_empty()).collect();
    output::print_rows(args, ["name", "namespace", "plugin", "node", "phase"], &rows).map(|()| 0)
}
