//! Flags checked against each other, before any command runs.

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::{choice, overrides, usage};
use crate::image::release;
use base::pattern;

/// Checks flags against each other before any command runs.
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
                Err(usage::error(format!("--{one} and --{other} cannot be used together; leave one out")))
            }
            None => Ok(()),
        }
    };
    if matches!(path[..], ["run" | "wait", ..] | ["gen"] | ["gen", "config"] | ["gen", "plugin", _]) {
        excluded("rerun-failed", &["e2e-focus", "e2e-skip", "mode"])?;
        excluded("resume", &["rerun-failed", "e2e-focus", "e2e-skip", "mode"])?;
        excluded("mode", &["e2e-focus", "e2e-skip"])?;
        choice::check(leaf)?;
        excluded("e2e-repo", &["e2e-repo-config"])?;
        for id in ["e2e-focus", "e2e-skip"] {
            if let Some(text) = leaf.get_one::<String>(id) {
                pattern::compile(text).map_err(|why| usage::error(format!("--{id}: {why}")))?;
            }
        }
        overrides::follow_config(leaf)?;
        if given("e2e-docker-config-file") {
            docker_config_fits(leaf)?;
        }
        let versions = ["kubernetes-version", "kube-conformance-image-version"];
        if given("kube-conformance-image-version") {
            log::warn!("--kube-conformance-image-version is an old name; use --kubernetes-version");
        }
        if given("kube-conformance-image") && versions.iter().any(|id| given(id)) {
            log::warn!(
                "--kube-conformance-image and the version flags both set the image of the e2e plugin; the last one wins"
            );
        }
    }
    if path == ["run"] {
        without_effect(leaf, &given);
    }
    if path == ["status"] && given("output") && !leaf.get_flag("watch") {
        log::warn!("--output does nothing here without --watch");
    }
    if path == ["results"]
        && let Some(word) = leaf.get_many::<String>("archive").and_then(|mut words| words.next())
        && !std::path::Path::new(word).exists()
        && !base::near::near(word, ["diff"]).is_empty()
    {
        return Err(usage::error(format!("there is no archive `{word}`; did you mean `results diff`?")));
    }
    // An empty variable in a script would otherwise mean all namespaces.
    if matches!(path[..], ["run" | "wait" | "status" | "logs" | "retrieve" | "delete"])
        && leaf.get_one::<String>("namespace").is_some_and(String::is_empty)
        && !given("file")
    {
        anyhow::bail!("the namespace is empty; name the run's namespace with -n");
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

/// Flags about clusters, which have no effect on this machine.
const OF_CLUSTERS: &[&str] = &[
    "kubeconfig",
    "context",
    "as",
    "as-group",
    "request-timeout",
    "namespace",
    "file",
    "delete",
    "doctor",
    "skip-preflight",
    "dns-namespace",
    "dns-pod-labels",
    "rbac",
    "aggregator-permissions",
    "aggregator-node-selector",
    "security-context-mode",
    "service-account-name",
    "existing-service-account",
    "namespace-psa-enforce-level",
    "identity",
    "harden",
    "results-pvc",
    "status-service",
    "credentials",
    "plugin-permissions",
    "plugin-image",
    "kube-conformance-image",
    "systemd-logs-image",
    "sonobuoy-image",
    "registry",
    "kit",
    "image-pull-policy",
    "force-image-pull-policy",
    "image-pull-secret",
    "show-default-podspec",
    "ssh-key",
    "ssh-user",
    "e2e-docker-config-file",
    "redact",
    "no-redact",
];
/// Flags about the e2e plugin, which needs a cluster unless another plugin has that name.
const OF_TESTS: &[&str] =
    &["mode", "e2e-focus", "e2e-skip", "e2e-repo", "e2e-repo-config", "rerun-failed", "resume"];

/// Rejects flags of `run` that have no effect in combination with others.
fn without_effect(leaf: &ArgMatches, given: &dyn Fn(&str) -> bool) {
    let named = |flags: &[&str]| -> Vec<String> {
        flags.iter().filter(|flag| given(flag)).map(|flag| format!("--{flag}")).collect()
    };
    if leaf.get_flag("local") {
        let has_tests =
            leaf.get_many::<String>("plugin").into_iter().flatten().any(|name| name.contains("e2e"));
        let idle = [named(OF_CLUSTERS), if has_tests { Vec::new() } else { named(OF_TESTS) }].concat();
        if !idle.is_empty() {
            log::warn!("with --local there is no cluster, and these flags do nothing: {}", idle.join(", "));
        }
        return;
    }
    if given("local-nodes") {
        log::warn!("--local-nodes does nothing without --local");
    }
    let waits =
        ["wait", "retrieve", "junit", "html", "certify", "delete", "fail-on"].iter().any(|flag| given(flag))
            || given("upload") && given("file");
    let idle = named(&["output", "wait-output"]);
    if !waits && !idle.is_empty() {
        log::warn!("nothing is waited for without --wait: {} does nothing", idle.join(" and "));
    }
}

/// Kubernetes supports registry credentials for test images from 1.27 on.
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
