//! The cluster of a command line: `--kubeconfig`, `--context`, `--as`, `--request-timeout`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::ArgMatches;

use super::flag::value;
use super::usage;
use crate::image::release;
use base::clock;
use base::kube::{Client, Config, Method, Options, Request};
use base::stop::Stop;

/// A client for the cluster; sends nothing yet.
pub(crate) fn client(matches: &ArgMatches, stop: &Stop) -> anyhow::Result<Client> {
    let request_timeout = match value(matches, "request-timeout") {
        None => None,
        // As in kubectl, a bare number means seconds.
        Some(limit) => Some(
            clock::parse_duration(limit).or_else(|| clock::parse_duration(&format!("{limit}s"))).ok_or_else(
                || {
                    usage::error(format!(
                        "invalid argument {limit:?} for \"--request-timeout\": write 30s or 2m"
                    ))
                },
            )?,
        ),
    };
    let options = Options {
        path: value(matches, "kubeconfig").map(PathBuf::from),
        context: value(matches, "context").map(str::to_owned),
        as_user: value(matches, "as").map(str::to_owned),
        as_groups: matches.get_many("as-group").unwrap_or_default().cloned().collect(),
        request_timeout,
    };
    Ok(Client::new(Config::load(&options)?, stop)?)
}

/// The API server's version, such as `v1.31.2`, including vendor suffixes.
pub(crate) fn version(client: &Client) -> anyhow::Result<String> {
    let answer = client.send(&Request::raw(Method::Get, "/version"))?;
    let version = answer.get("gitVersion").and_then(serde_json::Value::as_str);
    version.map(str::to_owned).ok_or_else(|| anyhow!("the cluster does not report its version"))
}

/// The Kubernetes release of the cluster.
pub(crate) fn release(client: &Client) -> anyhow::Result<String> {
    let version = version(client)?;
    release::of_server(&version)
        .ok_or_else(|| anyhow!("the cluster reports version `{version}`, which is not a release"))
}
