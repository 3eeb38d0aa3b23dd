//! Flags checked against each other, before any command runs.

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::usage;
use crate::image::release;
use crate::names;
use base::pattern;

/// The checks of flags against each other that come before any command runs.
pub(crate) fn flags(matches: &ArgMatches) -> anyhow::Result<()> {
    let mut leaf = matches;
    let mut path = Vec::new();
    while let Some((name, inner)) = leaf.subcommand() {
        path.push(name);
        leaf = inner;
    }
    let given = |id: &str| {
        matches!(leaf.try_get_raw(id), Ok(Some(_))) && leaf.value_source(id) == Some(ValueSource::CommandLine)
    };
    let excluded = |one: &str, others: &[&str]| -> anyhow::Result<()> {
        match others.iter().find(|other| given(one) && given(other)) {
            Some(other) => {
                Err(usage::error(format!("--{one} and --{other} exclude each other; leave one out")))
            }
            None => Ok(()),
        }
    };
    if matches!(path[..], ["run" | "wait", ..] | ["gen"] | ["gen", "config"] | ["gen", "plugin", _]) {
        excluded("rerun-failed", &["e2e-focus", "e2e-skip", "mode"])?;
        excluded("mode", &["e2e-focus", "e2e-skip"])?;
        excluded("e2e-repo", &["e2e-repo-config"])?;
        for id in ["e2e-focus", "e2e-skip"] {
            if let Some(text) = leaf.get_one::<String>(id) {
                pattern::compile(text).map_err(|why| usage::error(format!("--{id}: {why}")))?;
            }
        }
        config_comes_first(leaf)?;
        if given("e2e-docker-config-file") {
            docker_config_fits(leaf)?;
        }
        let versions = ["kubernetes-version", "kube-conformance-image-version"];
        if given("kube-conformance-image-version") {
            log::warn!("--kube-conformance-image-version is an old name; use --kubernetes-version");
        }
        if given("kube-conformance-image") && versions.iter().any(|id| given(id)) {
            log::warn!(
                "of --kube-conformance-image and the version flags the later one decides on the image of the e2e plugin"
            );
        }
    }
    // An empty variable in a script would otherwise mean all namespaces.
    if matches!(path[..], ["run" | "wait" | "status" | "logs" | "retrieve" | "delete"])
        && leaf.get_one::<String>("namespace").is_some_and(String::is_empty)
        && !given("file")
    {
        anyhow::bail!("the namespace is empty; name that of the run with -n");
    }
    for id in ["kubernetes-version", "kube-conformance-image-version"] {
        let version = leaf.try_get_one::<String>(id).ok().flatten().map_or("", String::as_str);
        if !["", "auto", "ignore", "latest"].contains(&version) {
            release::parse(version)
                .map_err(|why| usage::error(format!("--{id}: {why}, auto, ignore or latest")))?;
        }
    }
    if path.first() == Some(&"images") {
        excluded("e2e-repo", &["e2e-repo-config"])?;
    }
    Ok(())
}

/// The flags that override a configuration file, with the value that changes nothing.
const OVER_CONFIG: &[(&str, &str)] = &[
    ("namespace", names::SONOBUOY),
    ("sonobuoy-image", ""),
    ("image-pull-policy", "IfNotPresent"),
    ("force-image-pull-policy", "false"),
    ("timeout", "21600"),
    ("aggregator-permissions", "clusterAdmin"),
    ("security-context-mode", "nonroot"),
    ("service-account-name", names::SERVICE_ACCOUNT),
    ("existing-service-account", "false"),
    ("namespace-psa-enforce-level", "privileged"),
    ("e2e-docker-config-file", ""),
];

fn config_comes_first(matches: &ArgMatches) -> anyhow::Result<()> {
    if matches.value_source("config") != Some(ValueSource::CommandLine) {
        return Ok(());
    }
    let Some(config) = matches.indices_of("config").and_then(Iterator::max) else { return Ok(()) };
    for (id, default) in OVER_CONFIG {
        let changed = matches.value_source(id) == Some(ValueSource::CommandLine)
            && matches.get_raw(id).and_then(Iterator::last).is_some_and(|value| value != *default);
        if changed && matches.indices_of(id).and_then(Iterator::min).is_some_and(|index| index < config) {
            return Err(usage::error(format!(
                "--config comes after --{id}, which overrides it; write --config before the other flags"
            )));
        }
    }
    Ok(())
}

/// Kubernetes takes registry credentials for test images from 1.27 on.
fn docker_config_fits(matches: &ArgMatches) -> anyhow::Result<()> {
    for id in ["kubernetes-version", "kube-conformance-image-version"] {
        let Some(version) = matches.get_one::<String>(id) else { continue };
        let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u64>);
        if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next())
            && (major, minor) < (1, 27)
        {
            return Err(usage::error(format!(
                "--e2e-docker-config-file needs Kubernetes 1.27 or later, and --{id} is {version}"
            )));
        }
    }
    Ok(())
}
