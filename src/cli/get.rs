//! `sonobuoy get`: parts of a run.

use std::process::ExitCode;

use anyhow::bail;
use clap::ArgMatches;

use super::flag::value;
use super::{cluster, output};
use crate::names;
use base::kube::{Resource, Selector};
use base::stop::Stop;

/// Runs `get pod`: prints the names of plugin pods, one per line.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Some((_, matches)) = matches.subcommand() else { bail!("name what to get: pod") };
    let client = cluster::client(matches, &Stop::new())?;
    let namespace = matches.get_one::<String>("namespace").cloned().unwrap_or_default();
    let plugin = value(matches, "plugin");
    let labels = names::plugin_selector(plugin);
    let pods = client.list(&Resource::PODS, &namespace, &Selector::labels(labels))?;
    let found = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
    output::print(&found.map(|name| format!("{name}\n")).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}
