//! `sonobuoy version`: the version of the program, and the supported clusters.

use std::process::ExitCode;

use clap::ArgMatches;

use super::flag::value;
use super::{cluster, output};
use crate::names::VERSION;
use base::stop::Stop;

/// The oldest and the newest version of Kubernetes that a run accepts without a warning.
pub(crate) const KUBERNETES: [&str; 2] = ["1.17.0", "1.99.99"];

/// Prints the version alone or all details.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if matches.get_flag("short") {
        output::print(&format!("{VERSION}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let [oldest, newest] = KUBERNETES;
    let sha = option_env!("SONOBUOY_GIT_SHA").unwrap_or("unknown");
    output::print(&format!(
        "Sonobuoy Version: {}\nMinimumKubeVersion: {oldest}\nMaximumKubeVersion: {newest}\nGitSHA: {sha}\n\
         GoVersion: none (written in Rust)\nPlatform: {}\n{}\n",
        VERSION,
        platform(),
        api_version(matches),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The line about the cluster. Only with `--kubeconfig` a cluster is queried, as in the original.
fn api_version(matches: &ArgMatches) -> String {
    if value(matches, "kubeconfig").is_some() {
        let answer = cluster::client(matches, &Stop::new()).and_then(|client| cluster::version(&client));
        match answer {
            Ok(version) => return format!("API Version:  {version}"),
            Err(error) => log::error!("{error:#}"),
        }
    }
    "API Version check skipped due to missing `--kubeconfig` or other error".into()
}

/// Operating system and architecture, in the notation of container images.
fn platform() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    };
    format!("{system}/{architecture}")
}
