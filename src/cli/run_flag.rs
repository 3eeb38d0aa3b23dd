//! The commands that share one flag set: `run`, `wait` and all of `gen`, so that they are interchangeable word for word.
//!
//! Defaults of flags that override the run's configuration are defined there, see [`super::overrides`].

use clap::{Arg, ArgAction, Command};

use super::flag::{
    bare, choice, cluster, command, credentials, fail_on, kubernetes_version, list, number, output,
    plugin_env, rbac, redaction, repeated, repositories, switch, text, waiting,
};
use super::overrides;

/// `run`.
pub(crate) fn run() -> Command {
    let heading = "On this machine";
    let local = [
        switch("local", "Run the plugins' commands on this machine, without a cluster"),
        number("local-nodes", "N", "With --local: how many nodes a DaemonSet plugin sees").default_value("1"),
    ];
    command("run", "Run plugins, in a cluster or on this machine")
        .args(shared(Made::ByRun))
        .args(afterwards())
        .arg(switch("doctor", "First check whether the cluster is fit for the run").help_heading("Cluster"))
        .args(local.map(|arg| arg.help_heading(heading)))
}

/// `doctor`.
pub(crate) fn doctor() -> Command {
    command("doctor", "Check whether a cluster is fit for a run")
        .args(shared(Made::ByRun))
        // A command line of `run` can be checked by replacing one word.
        .args(afterwards().map(|arg| arg.hide(true)))
        .arg(
            list("nodes", "N|all|NAME,...", "Nodes to measure the network from: a number, `all`, or names")
                .default_value("10")
                .help_heading("What is looked at"),
        )
        .arg(
            choice("format", crate::doctor::FORMATS, "What to print: a line for each cause, or everything")
                .default_value("text")
                .help_heading("What is looked at"),
        )
}

/// `wait`.
pub(crate) fn wait() -> Command {
    // The others are accepted, as in the original, but have no effect.
    let own =
        |arg: &Arg| OF_WAIT.contains(&arg.get_id().as_str()) || arg.get_help_heading() == Some(AFTERWARDS);
    let shared = shared(Made::ByRun).into_iter().chain(afterwards());
    command("wait", "Wait for a run to end")
        .args(shared.map(|arg| if own(&arg) { arg } else { arg.hide(true) }))
}

/// The flags that have an effect on `wait`, in addition to those of [`afterwards`].
const OF_WAIT: &[&str] = &[
    "namespace",
    "config",
    "wait",
    "wait-output",
    "output",
    "estimate-from",
    "credentials",
    "rbac",
    "kubeconfig",
    "context",
    "as",
    "as-group",
    "request-timeout",
];
/// The heading of the flags of [`afterwards`].
const AFTERWARDS: &str = "When the run is over";

/// The differences of the printed objects from those of `run`.
const OF_ORIGINAL: &str = "By default, this prints the objects of the original. With --harden on, it prints those of `run`, except that `run` \
                           collects journals with its own image (-p systemd-logs-native), has the e2e tests print their names \
                           (E2E_EXTRA_GINKGO_ARGS), and with --registry passes their registries.";

/// `gen` and everything below it.
pub(crate) fn generate() -> Command {
    command("gen", "Print the objects of a run, as YAML")
        .after_help(OF_ORIGINAL)
        .args_conflicts_with_subcommands(true)
        .args(shared(Made::ByGen))
        .subcommand(command("config", "Print the run's configuration as JSON").args(shared(Made::ByGen)))
        .subcommand(
            command("default-image-config", "Print the registries of the e2e tests' images").args(cluster()),
        )
        .subcommand(
            command("cli", "Write a Markdown page for each command")
                .hide(true)
                .arg(Arg::new("dir").value_name("DIR").help("Folder to write them into").required(true)),
        )
        .subcommand(plugin())
}

fn plugin() -> Command {
    let config_map =
        || repeated("configmap", "FILE", "File that the plugin finds in its configuration folder");
    command("plugin", "Print a new plugin definition")
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .arg(text("name", "NAME", "Name of the plugin").short('n').required_unless_present("example"))
        .arg(text("image", "IMAGE", "Image of its container").short('i').required_unless_present("example"))
        .arg(
            choice(
                "example",
                crate::plugin::builtin::LANGUAGES,
                "Example in this language, which works as it is with `run --local`",
            )
            .conflicts_with_all([
                "image",
                "format",
                "cmd",
                "arg",
                "env",
                "configmap",
                "node-selector",
                "description",
                "url",
                "show-default-podspec",
            ]),
        )
        .arg(
            choice("type", &["Job", "DaemonSet"], "Once for the cluster, or on every node")
                .short('t')
                .default_value("Job"),
        )
        .arg(
            text("format", "WORD", "Format of its results: raw, junit, gojson, manual")
                .short('f')
                .default_value("raw"),
        )
        .arg(
            repeated("cmd", "WORD", "Command of the container, one word at a time")
                .short('c')
                .default_value("./run.sh"),
        )
        .arg(repeated("arg", "WORD", "Argument of the command, one word at a time").short('a'))
        .arg(repeated("env", "NAME=VALUE", "Environment variable; without = it is removed").short('e'))
        .arg(list("node-selector", "KEY=VALUE", "Label of the nodes it runs on"))
        .arg(config_map())
        .arg(text("description", "TEXT", "What it does").short('D'))
        .arg(text("url", "URL", "Where its definition comes from").short('u'))
        .arg(show_default_pod_spec())
        .subcommand(
            command("e2e", "Print the definition of the built-in e2e plugin")
                .args(shared(Made::ByGen))
                .arg(config_map()),
        )
        .subcommand(
            command("systemd-logs", "Print the definition of the built-in systemd-logs plugin")
                .args(shared(Made::ByGen)),
        )
}

fn show_default_pod_spec() -> Arg {
    switch("show-default-podspec", "Write default pod specs out in plugin definitions")
}

/// The flags of `run` and `wait` about the end of the run.
fn afterwards() -> [Arg; 8] {
    [
        text("retrieve", "DIR", "Fetch the archive into this folder"),
        text(
            "upload",
            "URL",
            "Send the archive and its seal there by HTTPS PUT, from the aggregator, or with --retrieve from here; a URL that ends with / is a folder; SSL_CERT_FILE names the store's authority in either case",
        ),
        text("junit", "FILE", "Write all results as one JUnit file"),
        text("html", "FILE", "Write the report as one HTML page"),
        text(
            "certify",
            "DIR",
            "Check a certified conformance run, and write its submission into this folder",
        ),
        text("product", "FILE", "With --certify: description of the product (YAML)"),
        switch("delete", "Remove the run from the cluster"),
        fail_on(),
    ]
    .map(|arg| arg.help_heading(AFTERWARDS))
}

/// The command that creates the objects; some defaults depend on it.
#[derive(Clone, Copy)]
enum Made {
    /// With access to a cluster, and without a manifest to compare.
    ByRun,
    /// As in the original.
    ByGen,
}

/// `--estimate-from`.
pub(super) fn estimate() -> Arg {
    let help = "Archive of an earlier run, from which the board estimates how long the tests will take";
    text("estimate-from", "ARCHIVE", help)
}

fn shared(made: Made) -> Vec<Arg> {
    let mut flags = Vec::with_capacity(64);
    let mut add = |heading: &'static str, args: Vec<Arg>| {
        flags.extend(args.into_iter().map(|arg| overrides::with_default(arg.help_heading(heading))));
    };
    add("Plugins", plugins());
    add("E2E tests", e2e());
    add("Images", images());
    add("The run", the_run(made));
    add(
        "Waiting",
        waiting(
            "Wait for the end, at most this long (minutes, or a duration such as 2h); a day without a value",
            "1440",
        )
        .into(),
    );
    if matches!(made, Made::ByRun) {
        add("Waiting", vec![output(), estimate()]);
    }
    add("Cluster", preflight());
    flags.extend(cluster());
    flags
}

fn plugins() -> Vec<Arg> {
    vec![
        repeated(
            "plugin",
            "PLUGIN",
            "Plugin to run: file, folder, URL, installed or built-in name; @NAME renames it [default: e2e, systemd-logs]",
        )
        .short('p'),
        plugin_env(),
        choice(
            "plugin-permissions",
            &["any", "declared"],
            "Whether to run plugins that do not say what they need, with all rights of the run [default: any]",
        ),
        repeated("plugin-image", "PLUGIN:IMAGE", "Image of a plugin"),
        show_default_pod_spec(),
    ]
}

fn e2e() -> Vec<Arg> {
    let [repo, repo_config] = repositories();
    vec![
        choice(
            "mode",
            crate::plugin::mode::NAMES,
            "Which tests run; see `sonobuoy modes` [default: non-disruptive-conformance]",
        )
        .short('m')
        .value_name("MODE"),
        text("e2e-focus", "REGEX", "Only tests that match [default: \\[Conformance\\]]"),
        text(
            "e2e-skip",
            "REGEX",
            "Leave out tests that match [default: \\[Disruptive\\]|NoExecuteTaintManager]",
        ),
        text("e2e-parallel", "VALUE", "Whether tests run in parallel").hide(true),
        text("rerun-failed", "ARCHIVE", "Only the tests that failed in this archive"),
        text("resume", "ARCHIVE", "Run the tests that an interrupted run has not run"),
        number("split", "N", "Run the tests as N plugins in parallel, with one result"),
        text(
            "tests",
            "FILE",
            "With --split: names of all tests, one per line, or a kit [default: ask the conformance image]",
        ),
        number(
            "retry-failed",
            "N",
            "Run failed tests again, up to N times in the same run; those that pass then are flaky",
        ),
        repo,
        repo_config,
        text(
            "e2e-docker-config-file",
            "FILE",
            "Registry credentials that the tests use, for Kubernetes 1.27 and later",
        ),
        text("ssh-key", "FILE", "Private key for tests that log in to nodes"),
        text("ssh-user", "NAME", "User for tests that log in to nodes"),
    ]
}

fn images() -> Vec<Arg> {
    vec![
        kubernetes_version(),
        text("kube-conformance-image-version", "VERSION", "Old name of --kubernetes-version").hide(true),
        text("kube-conformance-image", "IMAGE", "Image of the e2e plugin"),
        text("systemd-logs-image", "IMAGE", "Image of the systemd-logs plugin"),
        text("sonobuoy-image", "IMAGE", "Image of aggregator and workers"),
        text("registry", "REGISTRY", "Registry with every image of every plugin and of the e2e tests"),
        text("kit", "FILE", "Kit that was loaded or pushed: use its plugins, version and images"),
        text("image-pull-policy", "POLICY", "Pull policy of our own images and the built-in plugins"),
        switch("force-image-pull-policy", "Use that policy for all plugins"),
        text(
            "image-pull-secret",
            "NAME",
            "Secret of the run's namespace with the credentials of a private registry",
        ),
    ]
}

fn the_run(made: Made) -> Vec<Arg> {
    let [redact, no_redact] = redaction().map(|arg| arg.conflicts_with("file"));
    let (rbac_default, harden) = match made {
        Made::ByRun => ("Detect", "on"),
        Made::ByGen => ("Enable", "off"),
    };
    vec![
        text("config", "FILE", "Run configuration (JSON); comes before the flags that override it"),
        text("file", "FILE", "Use this manifest instead of making one; - is stdin").short('f'),
        text("namespace", "NAME", "Namespace of the run").short('n'),
        number("timeout", "SECONDS", "Time limit of the run (seconds, or a duration such as 90m); 0 for none"),
        rbac(rbac_default, "Whether to create RBAC objects; Detect asks the cluster"),
        text(
            "aggregator-permissions",
            "WORD",
            "What the run may do: clusterAdmin, clusterRead or namespaceAdmin",
        ),
        repeated("aggregator-node-selector", "KEY:VALUE", "Label of the node the aggregator runs on"),
        text(
            "security-context-mode",
            "WORD",
            "User that the aggregator runs as: nonroot or none",
        ),
        text("service-account-name", "NAME", "Service account of the run"),
        switch("existing-service-account", "Use a service account that already exists"),
        text(
            "namespace-psa-enforce-level",
            "LEVEL",
            "Pod Security level of the namespace",
        ),
        choice(
            "identity",
            &crate::config::Identity::WORDS,
            "How workers prove who they are: each with a certificate of its own, or all of a plugin with one",
        ),
        choice(
            "harden",
            &["on", "off"],
            "Make the aggregator's pod survive restarts, with limited resources and few privileges, and give plugins accounts of their own; off creates the original's objects",
        )
        .default_value(harden),
        redact,
        no_redact,
        text("results-pvc", "NAME", "Volume claim for the results, so that they survive the loss of a node"),
        choice(
            "status-service",
            &["none", "ClusterIP", "NodePort", "LoadBalancer"],
            "Service that publishes the status of the run",
        )
        .default_value("none"),
        credentials(),
    ]
}

fn preflight() -> Vec<Arg> {
    vec![
        bare(
            list(
                "skip-preflight",
                "CHECK,...",
                "Checks to skip: dnscheck, versioncheck, existingnamespace; all without a value",
            ),
            "true",
        )
        .action(ArgAction::Append),
        text("dns-namespace", "NAME", "Namespace of the DNS pods").default_value("kube-system"),
        list("dns-pod-labels", "LABEL,...", "Labels of the DNS pods")
            .default_values(["k8s-app=kube-dns", "k8s-app=coredns"]),
    ]
}
