//! Every command: name, aliases, arguments, flags and examples; the source of help, man pages and
//! completions.
//!
//! Does not know their effects: those are in `cli/<command>.rs`. The kinds of flags are in
//! [`super::flag`]. `run`, `doctor`, `wait` and all of `gen` share one set of flags, so that they
//! are interchangeable word for word.

use clap::{Arg, ArgAction, Command};

use super::flag::{
    Args, accepting_values, argument, bare, choice, command, duration, list, number, one_of, regex,
    repeated, seconds, switch, text, version,
};
use super::load::DEFAULT_ARCHIVE;
use super::output::{FORMS, PROGRESS};
use super::run_args::default_of;
use crate::doctor;
use base::Joined as _;
use model::config::{IdentityMode, MAX_ATTEMPTS};
use model::names;
use model::plugin::{builtin, focus};

/// Advice for new users.
const FIRST_STEPS: &str = "\
First steps:
  sonobuoy run --local -p FILE             try a plugin on this machine, without a cluster
  sonobuoy run --wait --mode quick         one e2e test, in the cluster of your kubeconfig
  sonobuoy results \"$(sonobuoy retrieve)\"  fetch the results and report on them
  sonobuoy delete --wait                   clean up";

/// A note on listing images.
const EXECUTES: &str = "\
Only the conformance image knows the images of its tests: listing them
executes that image's program, isolated from this machine, or not at all.
--images-from takes a list instead, and -p plugins without e2e.";

/// How to install the scripts in shells.
const INTO_SHELLS: &str = "\
In the shell's own start file, such as ~/.bashrc:
  bash        source <(sonobuoy completion bash)
  zsh         source <(sonobuoy completion zsh)    after compinit
  fish        sonobuoy completion fish | source
  powershell  sonobuoy completion powershell | Out-String | Invoke-Expression";

/// The differences of the printed objects from those of `run`.
const OF_ORIGINAL: &str = "By default, this prints the objects of the original. With --harden on, \
                           it prints those of `run`, except that `run` collects journals with its \
                           own image (-p systemd-logs-native), has the e2e tests print their \
                           names (E2E_EXTRA_GINKGO_ARGS), and with --registry passes their \
                           registries.";

/// The words that a version of Kubernetes may be.
pub(crate) const VERSIONS: [&str; 3] = ["auto", "ignore", "latest"];
/// The flags that have an effect on `wait`, in addition to those of [`afterwards`], [`cluster`] and
/// [`clusters`].
const OF_WAIT: [&str; 8] = [
    "namespace",
    "config",
    "wait",
    "wait-output",
    "output",
    "estimate-from",
    "credentials",
    "rbac",
];

/// The flags of `run` that a run on this machine honours; every other one needs a cluster, and is
/// rejected.
const OF_LOCAL: [&str; 28] = [
    "local",
    "local-nodes",
    "plugin",
    "plugin-env",
    "kubernetes-version",
    "split",
    "tests",
    "retry-failed",
    "config",
    "namespace",
    "timeout",
    "redact",
    "no-redact",
    "no-snapshot",
    "wait",
    "wait-output",
    "output",
    "estimate-from",
    "retrieve",
    "keep",
    "upload",
    "junit",
    "html",
    "certify",
    "product",
    "fail-on",
    "min-success",
    "annotations",
];
/// Those that it honours only with a plugin for the e2e tests, whose variables they set.
const OF_LOCAL_E2E: [&str; 8] = [
    "mode",
    "e2e-focus",
    "e2e-skip",
    "e2e-parallel",
    "rerun-failed",
    "resume",
    "e2e-repo",
    "e2e-repo-config",
];

/// Examples below the help of a command: what each does, and the command line.
fn examples(rows: &[(&str, &str)]) -> String {
    let rows = rows
        .iter()
        .map(|(purpose, line)| format!("  {purpose}:\n    {line}"));
    format!("Examples:\n{}", rows.joined("\n"))
}

/// The table for display: in help, man pages and completions; built.
pub(crate) fn shown() -> Command {
    let mut table = table().bin_name(program());
    table.build();
    table
}

/// The table for parsing.
pub(crate) fn parsed() -> Command {
    accepting_values(table())
}

/// How the program was called: `sonobuoy`, or `kubectl sonobuoy` if kubectl found it as a plugin.
fn program() -> &'static str {
    let called = std::env::args_os()
        .next()
        .map(std::path::PathBuf::from)
        .unwrap_or_default();
    let name = called.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("kubectl-") {
        "kubectl sonobuoy"
    } else {
        "sonobuoy"
    }
}

/// The given flags of `run` that a run on this machine would ignore, with or without the plugin
/// `e2e`; a flag with its default is none.
pub(crate) fn ignored_locally(args: Args, has_e2e: bool) -> Vec<String> {
    let run = accepting_values(run());
    let ignored = run.get_arguments().filter(|arg| {
        let id = arg.get_id().as_str();
        let is_honoured = OF_LOCAL.contains(&id) || has_e2e && OF_LOCAL_E2E.contains(&id);
        !is_honoured && args.given(id) && {
            let defaults = arg
                .get_default_values()
                .iter()
                .map(clap::builder::OsStr::as_os_str);
            !args.raw(id).eq(defaults)
        }
    });
    ignored.map(|arg| format!("--{}", arg.get_id())).collect()
}

/// The full name of a command: `sonobuoy gen plugin`.
pub(crate) fn name(path: &[String]) -> String {
    std::iter::once(program())
        .chain(path.iter().map(String::as_str))
        .joined(" ")
}

/// The command at `path`, ready to print its help; `Err` has the unknown word.
pub(crate) fn command_at(path: &[String]) -> Result<Command, String> {
    let mut command = shown();
    for word in path {
        command = command
            .find_subcommand(word)
            .cloned()
            .ok_or_else(|| word.clone())?;
    }
    Ok(command)
}

fn table() -> Command {
    Command::new("sonobuoy")
        .about(
            "Runs diagnostic and conformance plugins across a Kubernetes cluster and collects \
             results from every node",
        )
        .after_help(FIRST_STEPS)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .args_override_self(true)
        .args(global())
        .subcommands([
            run(),
            self::doctor(),
            status(),
            wait(),
            retrieve(),
            verify(),
            certify(),
            results(),
            logs(),
            delete(),
            generate(),
            command("modes", "List the modes of the e2e plugin")
                .args([switch("--verbose", "Do not truncate long lines"), form()]),
            e2e(),
            plugin(),
            images(),
            command("query", "Take a snapshot of the cluster")
                .args([
                    text(
                        "--config FILE",
                        "Run configuration (JSON) that selects what to record",
                    ),
                    text(
                        "-o --output DIR",
                        "Folder to write into [default: a new one here]",
                    ),
                ])
                .args(redaction())
                .args(cluster()),
            gather(),
            command("get", "Print parts of a run")
                .subcommand_required(true)
                .subcommand(
                    command("pod", "Print the names of plugin pods")
                        .aliases(["pods", "po"])
                        .args([
                            namespace(),
                            text("-p --plugin NAME", "Only this plugin's pods"),
                            form(),
                        ])
                        .args(cluster()),
                ),
            completion(),
            command(
                "schema",
                "Print the JSON Schema of plugin definitions or configuration files, for editors",
            )
            .arg(
                argument("NAME", "Whose schema")
                    .required(true)
                    .value_parser(["plugin", "config"]),
            ),
            command("version", "Print the version of this program")
                .args([
                    switch("--short", "Print only the version"),
                    one_of("-o --output", &FORMS[..2], "Form of the output"),
                ])
                .args(cluster()),
            command("help", "Print the help of a command").arg(
                argument("COMMAND", "Words of the command, such as `gen plugin`").num_args(0..),
            ),
        ])
        .subcommands(internal().map(|command| command.hide(true)))
}

/// The commands that run in containers of a run.
fn internal() -> [Command; 4] {
    [
        command(
            "aggregator",
            "Receive the results of a run (inside the cluster)",
        )
        // The name in manifests of old versions.
        .alias("master")
        .args([
            switch(
                "--no-exit",
                "Keep running when the run is over, so that results can be fetched",
            ),
            switch("--echo", "Only answer checks of the connection"),
        ])
        .args(cluster()),
        command(
            "worker",
            "Send a plugin's results to the aggregator (beside a plugin)",
        )
        .subcommand_required(true)
        .subcommand(command("global", "For a plugin that runs once").alias("job"))
        .subcommand(
            command("single-node", "For a plugin that runs on every node")
                .alias("daemonset")
                .arg(sleep(
                    "Keep running this long after sending; negative means forever",
                )),
        ),
        command("splat", "Write the finished archives in a folder to stdout").args([
            argument("DIR", "Folder with archives").required(true),
            number("--offset BYTES", "Skip this many bytes", 0..=i64::MAX).default_value("0"),
            switch(
                "--partial",
                "Pack what has arrived so far of an unfinished run",
            ),
            switch("--seals", "Write the seals of the archives instead"),
            switch(
                "--status",
                "Write the latest status that was too large for the pod's annotation",
            ),
        ]),
        command(
            "post-process",
            "Write sonobuoy_results.yaml in an unpacked archive",
        )
        .arg(argument("DIR", "Unpacked archive").required(true)),
    ]
}

/// The flags of every command, before or after its name.
fn global() -> impl Iterator<Item = Arg> {
    let about = "Accepted for old scripts, ignored";
    // Manifests and images of the original pass these to the aggregator and the workers.
    let values = [
        "-v --v VALUE",
        "--log_dir VALUE",
        "--log_file VALUE",
        "--log_file_max_size VALUE",
        "--stderrthreshold VALUE",
        "--vmodule VALUE",
        "--log_backtrace_at VALUE",
    ];
    let switches = [
        "--logtostderr",
        "--alsologtostderr",
        "--add_dir_header",
        "--one_output",
        "--skip_headers",
        "--skip_log_headers",
    ];
    let ignored = values.map(|usage| text(usage, about)).into_iter();
    let ignored = ignored
        .chain(switches.map(|usage| switch(usage, about)))
        .chain([switch("-d --debug", "The same as --level=debug")]);
    let level = one_of("--level", &base::logger::LEVELS, "Log level")
        .value_name("LEVEL")
        .default_value("info")
        .help_heading("Global options");
    std::iter::once(level)
        .chain(ignored.map(|flag| flag.hide(true)))
        .map(|flag| flag.global(true))
}

fn run() -> Command {
    shared(
        command("run", "Run plugins, in a cluster or on this machine"),
        true,
    )
    .args(chosen_nodes())
    .args(afterwards())
    .args(before_the_run())
    .next_help_heading("On this machine")
    .args([
        switch(
            "--local",
            "Run the plugins' commands on this machine, without a cluster",
        ),
        number(
            "--local-nodes N",
            "With --local: how many nodes a DaemonSet plugin sees",
            1..=1_000,
        )
        .default_value("1"),
    ])
    .after_help(examples(&[
        (
            "Try a plugin on this machine",
            "sonobuoy run --local -p disk.yaml --local-nodes 3",
        ),
        (
            "One conformance test, to see whether it works",
            "sonobuoy run --wait --mode quick",
        ),
        (
            "Everything a pipeline needs",
            "sonobuoy run --wait --retrieve . --junit report.xml --delete --fail-on unknown",
        ),
        (
            "Events for another program",
            "sonobuoy run --wait=2h --timeout 90m -p disk.yaml --output json",
        ),
    ]))
}

/// The flags of `run` about what happens before the objects are created.
fn before_the_run() -> [Arg; 4] {
    let dry_run = bare(
        choice(
            "--dry-run none|client|server",
            "Create nothing: print the objects, or have the server validate each; client without \
             a value",
        ),
        "client",
    );
    let load = bare(
        text(
            "--load ARCHIVE",
            "First load Sonobuoy's image into the nodes, through kind, k3d, minikube or, with \
             --load-with, a privileged pod per node; without a value, the archive next to this \
             program or in `target`",
        ),
        DEFAULT_ARCHIVE,
    );
    let load_with = text(
        "--load-with IMAGE",
        "With --load: image with a shell for the privileged pods that load Sonobuoy's, best by \
         its digest; required unless the cluster is one of kind, k3d or minikube",
    );
    [
        dry_run.default_value("none").help_heading("Cluster"),
        load.help_heading("Images"),
        load_with.help_heading("Images"),
        switch(
            "--doctor",
            "First check whether the cluster is fit for the run",
        )
        .help_heading("Cluster"),
    ]
}

fn doctor() -> Command {
    shared(
        command("doctor", "Check whether a cluster is ready for a run"),
        true,
    )
    .args(chosen_nodes())
    // A command line of `run` can be checked by replacing one word.
    .args(afterwards().map(|arg| arg.hide(true)))
    .args(before_the_run().map(|arg| arg.hide(true)))
    .next_help_heading("Scope")
    .args([
        list(
            "--measure-from N|all|NAME,...",
            "Nodes to measure the network from: a number, `all`, or names",
        )
        .default_value(doctor::SAMPLE),
        one_of(
            "--format",
            doctor::FORMATS,
            "What to print: a line for each cause, or everything",
        )
        .default_value("text"),
    ])
    .after_help(examples(&[
        (
            "Check whether this run would succeed",
            "sonobuoy doctor -p disk.yaml",
        ),
        (
            "Measure the network of every node, for a pipeline",
            "sonobuoy doctor --measure-from all --format junit",
        ),
    ]))
}

fn wait() -> Command {
    let used: Vec<Arg> = cluster().into_iter().chain(clusters()).collect();
    shared(command("wait", "Wait for a run to end"), true)
        // The others are accepted, as in the original, but have no effect.
        .mut_args(|arg| {
            let id = arg.get_id().as_str();
            let is_used = OF_WAIT.contains(&id) || used.iter().any(|used| used.get_id() == id);
            arg.hide(!is_used)
        })
        .args(afterwards())
        .arg(switch(
            "--recover",
            "Start the aggregator again if its pod or node is lost; needs --results-pvc",
        ))
        .after_help(examples(&[
            (
                "Wait for a run that was started elsewhere",
                "sonobuoy wait --wait=2h --retrieve .",
            ),
            (
                "Continue a run whose aggregator was lost with its node",
                "sonobuoy wait --recover",
            ),
        ]))
}

fn generate() -> Command {
    let planned = |name, about| shared(command(name, about), false).args(chosen_nodes());
    planned("gen", "Print the objects of a run, as YAML")
        .after_help(OF_ORIGINAL)
        .args_conflicts_with_subcommands(true)
        .subcommand(planned("config", "Print the run's configuration as JSON"))
        .subcommand(
            command(
                "default-image-config",
                "Print the registries of the e2e tests' images",
            )
            .args(cluster()),
        )
        .subcommand(
            command("cli", "Write a Markdown page for each command")
                .hide(true)
                .arg(argument("DIR", "Folder to write them into").required(true)),
        )
        .subcommand(new_plugin())
}

fn new_plugin() -> Command {
    let config_map = || {
        repeated(
            "--configmap FILE",
            "File that the plugin finds in its configuration folder",
        )
    };
    let own = [
        text("-n --name NAME", "Name of the plugin").required_unless_present("example"),
        text("-i --image IMAGE", "Image of its container").required_unless_present("example"),
        choice(
            "-t --type Job|DaemonSet",
            "Once for the cluster, or on every node",
        )
        .default_value("Job"),
        text(
            "-f --format WORD",
            "Format of its results: raw, junit, gojson, manual",
        )
        .default_value("raw"),
        repeated(
            "-c --cmd WORD",
            "Command of the container, one word at a time",
        )
        .default_value("./run.sh"),
        repeated(
            "-a --arg WORD",
            "Argument of the command, one word at a time",
        ),
        repeated(
            "-e --env NAME=VALUE",
            "Environment variable; without = it is removed",
        ),
        list("--node-selector KEY=VALUE", "Label of the nodes it runs on"),
        config_map(),
        text("-D --description TEXT", "What it does"),
        text("-u --url URL", "Where its definition comes from"),
        show_default_pod_spec(),
    ];
    let about = "Example in this language, ready for `run --local`";
    let others = own.iter().map(|arg| arg.get_id().clone());
    let others: Vec<_> = others
        .filter(|id| !["name", "type"].contains(&id.as_str()))
        .collect();
    command("plugin", "Print a new plugin definition")
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .arg(one_of("--example", builtin::LANGUAGES, about).conflicts_with_all(others))
        .args(own)
        .subcommand(
            shared(
                command("e2e", "Print the definition of the built-in e2e plugin"),
                false,
            )
            .arg(config_map()),
        )
        .subcommand(shared(
            command(
                "systemd-logs",
                "Print the definition of the built-in systemd-logs plugin",
            ),
            false,
        ))
        .after_help(examples(&[
            (
                "An example that works as it is",
                "sonobuoy gen plugin --example python",
            ),
            (
                "From an image",
                "sonobuoy gen plugin --name disk --image registry.local/disk:v1 --type DaemonSet",
            ),
        ]))
}

fn show_default_pod_spec() -> Arg {
    switch(
        "--show-default-podspec",
        "Include the default pod specs in plugin definitions",
    )
}

/// The flags of `run` and `wait` about the end of the run.
fn afterwards() -> [Arg; 11] {
    [
        text("--retrieve DIR", "Fetch the archive into this folder"),
        number(
            "--keep N",
            "Keep only the newest archives in that folder, and that of this run",
            1..=i64::from(u32::MAX),
        ),
        text(
            "--upload URL",
            "Send the archive and its seal there by HTTPS PUT, from the aggregator, or with \
             --retrieve from here; a URL that ends with / is a folder; SSL_CERT_FILE names the \
             store's authority in either case",
        ),
        text("--junit FILE", "Write all results as one JUnit file"),
        text("--html FILE", "Write the report as one HTML page"),
        text(
            "--certify DIR",
            "Check a certified conformance run, and write its submission into this folder",
        ),
        text(
            "--product FILE",
            "With --certify: description of the product (YAML)",
        ),
        switch("--delete", "Remove the run from the cluster"),
        fail_on(),
        min_success(),
        annotations(),
    ]
    .map(|arg| arg.help_heading("When the run is over"))
}

/// The command with the flags of `run`, which `creates` objects, and of `gen`, which prints those
/// of the original by default.
fn shared(command: Command, creates: bool) -> Command {
    command
        .next_help_heading("Plugins")
        .args(plugins())
        .next_help_heading("E2E tests")
        .args(e2e_tests())
        .next_help_heading("Images")
        .args(run_images())
        .next_help_heading("The run")
        .args(the_run(creates))
        .next_help_heading("Waiting")
        .args(waiting(
            "Wait for the end, at most this long (minutes, or a duration such as 2h); a day \
             without a value",
            "1440",
        ))
        .args(
            creates
                .then(|| [output(), estimate()])
                .into_iter()
                .flatten(),
        )
        .next_help_heading("Cluster")
        .args(preflight())
        .args(cluster())
        // These have their own heading.
        .args(creates.then(clusters).into_iter().flatten())
        .next_help_heading(None)
        .mut_args(
            |arg| match (default_of(arg.get_id().as_str()), arg.get_help()) {
                (Some(default), Some(help)) => {
                    let help = format!("{help} [default: {default}]");
                    arg.help(help)
                }
                _ => arg,
            },
        )
}

/// The nodes of plugins with the driver Nodes.
fn chosen_nodes() -> [Arg; 5] {
    let any = 1..=i64::from(u32::MAX);
    [
        text(
            "--nodes NAME,...|LABEL",
            "Only these nodes: names, or labels such as zone=a,!gpu",
        ),
        number(
            "--sample N",
            "At most this many nodes, chosen at random",
            any.clone(),
        ),
        number(
            "--per-zone N",
            "At most this many nodes of each zone, chosen at random",
            any,
        ),
        choice(
            "--joined take|ignore",
            "What to do with nodes that join during the run",
        ),
        text(
            "--max-parallel N|N%",
            "At most this many nodes at once, or this share of them",
        ),
    ]
    .map(|flag| flag.help_heading("Nodes (plugins with the driver Nodes)"))
}

fn plugins() -> [Arg; 5] {
    [
        repeated(
            "-p --plugin PLUGIN",
            "Plugin to run: file, folder, URL, installed or built-in name; @NAME renames it \
             [default: e2e, systemd-logs]",
        ),
        plugin_env(),
        choice(
            "--plugin-permissions any|declared",
            "Whether to run plugins that declare no permissions, with all rights of the run \
             [default: any]",
        ),
        repeated("--plugin-image PLUGIN:IMAGE", "Image of a plugin"),
        show_default_pod_spec(),
    ]
}

fn e2e_tests() -> [Arg; 14] {
    let selection = ["e2e-focus", "e2e-skip", "mode"];
    let [repo, repo_config] = repositories();
    [
        one_of(
            "-m --mode",
            focus::NAMES,
            "Which tests run; see `sonobuoy modes` [default: non-disruptive-conformance]",
        )
        .value_name("MODE")
        .conflicts_with_all(["e2e-focus", "e2e-skip"]),
        regex(
            "--e2e-focus REGEX",
            "Only tests that match [default: \\[Conformance\\]]",
        ),
        regex(
            "--e2e-skip REGEX",
            "Leave out tests that match [default: \\[Disruptive\\]|NoExecuteTaintManager]",
        ),
        text("--e2e-parallel VALUE", "Whether tests run in parallel").hide(true),
        text(
            "--rerun-failed ARCHIVE",
            "Only the tests that failed in this archive",
        )
        .conflicts_with_all(selection),
        text(
            "--resume ARCHIVE",
            "Run the tests that an interrupted run has not run; with several clusters: run those \
             without an archive in this folder",
        ),
        number(
            "--split N",
            "Run the tests as N plugins in parallel, with one result",
            2..=super::run_args::MAX_PARTS,
        ),
        text(
            "--tests FILE",
            "With --split: names of all tests, one per line, or a kit [default: ask the \
             conformance image]",
        ),
        number(
            "--retry-failed N",
            "Run failed tests again, up to N times in the same run; those that pass then are flaky",
            0..=MAX_ATTEMPTS,
        ),
        repo,
        repo_config,
        text(
            "--e2e-docker-config-file FILE",
            "Registry credentials that the tests use, for Kubernetes 1.27 and later",
        ),
        text(
            "--ssh-key FILE",
            "Private key for tests that log in to nodes",
        ),
        text("--ssh-user NAME", "User for tests that log in to nodes"),
    ]
}

fn run_images() -> [Arg; 9] {
    [
        kubernetes_version().alias("kube-conformance-image-version"),
        text("--kube-conformance-image IMAGE", "Image of the e2e plugin"),
        text(
            "--systemd-logs-image IMAGE",
            "Image of the systemd-logs plugin",
        ),
        text("--sonobuoy-image IMAGE", "Image of aggregator and workers"),
        text(
            "--registry REGISTRY",
            "Registry with every image of every plugin and of the e2e tests",
        ),
        text(
            "--kit FILE",
            "Kit that was loaded or pushed: use its plugins, version and images",
        ),
        text(
            "--image-pull-policy POLICY",
            "Pull policy of Sonobuoy's image and of the built-in plugins",
        ),
        switch(
            "--force-image-pull-policy",
            "Use that policy for all plugins",
        ),
        text(
            "--image-pull-secret NAME",
            "Secret of the run's namespace with the credentials of a private registry",
        ),
    ]
}

fn the_run(creates: bool) -> [Arg; 19] {
    let [redact, no_redact] = redaction().map(|arg| arg.conflicts_with("file"));
    let (rbac_default, harden) = if creates {
        ("Detect", "on")
    } else {
        ("Enable", "off")
    };
    [
        text(
            "--config FILE",
            "Run configuration (JSON); comes before the flags that override it",
        ),
        text(
            "-f --file FILE",
            "Use this manifest instead of making one; - is stdin",
        ),
        text("-n --namespace NAME", "Namespace of the run"),
        seconds(
            "--timeout SECONDS",
            "Time limit of the run (seconds, or a duration such as 90m); 0 for none",
        ),
        rbac(
            rbac_default,
            "Whether to create RBAC objects; Detect asks the cluster",
        ),
        text(
            "--aggregator-permissions WORD",
            "What the run may do: clusterAdmin, clusterRead or namespaceAdmin",
        ),
        repeated(
            "--aggregator-node-selector KEY:VALUE",
            "Label of the node the aggregator runs on",
        ),
        text(
            "--security-context-mode WORD",
            "User that the aggregator runs as: nonroot or none",
        ),
        text("--service-account-name NAME", "Service account of the run"),
        switch(
            "--existing-service-account",
            "Use a service account that already exists",
        ),
        text(
            "--namespace-psa-enforce-level LEVEL",
            "Pod Security level of the namespace",
        ),
        one_of(
            "--identity",
            &IdentityMode::WORDS,
            "How workers authenticate: with one certificate per worker, or one per plugin \
             [default: auto]",
        ),
        choice(
            "--harden on|off",
            "Make the aggregator's pod survive restarts, limit its resources and privileges, and \
             give each plugin a separate account; off creates the original's objects",
        )
        .default_value(harden),
        redact,
        no_redact,
        switch(
            "--no-snapshot",
            "Take no snapshot of the cluster, and do without the permission to read it",
        )
        .conflicts_with("file"),
        text(
            "--results-pvc NAME",
            "Volume claim for the results, so that they survive the loss of a node",
        ),
        choice(
            "--status-service none|ClusterIP|NodePort|LoadBalancer",
            "Service that publishes the status of the run",
        )
        .default_value("none"),
        credentials(),
    ]
}

fn preflight() -> [Arg; 3] {
    [
        bare(
            list(
                "--skip-preflight CHECK,...",
                "Checks to skip: dnscheck, versioncheck, existingnamespace, references; all without a \
                 value",
            ),
            "true",
        )
        .action(ArgAction::Append),
        text("--dns-namespace NAME", "Namespace of the DNS pods").default_value("kube-system"),
        list("--dns-pod-labels LABEL,...", "Labels of the DNS pods")
            .default_values(["k8s-app=kube-dns", "k8s-app=coredns"]),
    ]
}

fn namespace() -> Arg {
    text(
        "-n --namespace NAME",
        "Namespace of the run [default: $SONOBUOY_NAMESPACE or sonobuoy]",
    )
}

/// Access to the cluster.
fn cluster() -> [Arg; 5] {
    [
        text(
            "--kubeconfig FILE",
            "Kubeconfig instead of $KUBECONFIG, ~/.kube/config or the pod's service account",
        ),
        text("--context NAME", "Context of the kubeconfig to use"),
        text("--as USER", "User to impersonate"),
        repeated("--as-group GROUP", "Group to impersonate"),
        text(
            "--request-timeout DURATION",
            "Time limit of one request, such as 30s; 0 for none",
        ),
    ]
    .map(|arg| arg.help_heading("Cluster"))
}

/// A choice of several clusters.
fn clusters() -> [Arg; 3] {
    [
        list(
            "--contexts NAME,...|all",
            "Do this in the clusters of these contexts, with a folder for each",
        ),
        repeated(
            "--kubeconfigs FILE",
            "Do this in the clusters of these kubeconfigs, or of all in a folder",
        )
        .num_args(1..)
        .allow_hyphen_values(false)
        .conflicts_with("contexts"),
        number(
            "--parallel N",
            "With several clusters: at most so many at once",
            1..=1_000,
        )
        .default_value("8"),
    ]
    .map(|arg| arg.help_heading("Several clusters"))
}

fn rbac(default: &'static str, help: &'static str) -> Arg {
    choice("--rbac Enable|Disable|Detect", help).default_value(default)
}

fn waiting(wait: &'static str, meaning: &'static str) -> [Arg; 2] {
    [
        bare(duration("--wait MINUTES", wait), meaning)
            .default_value("0")
            .hide_default_value(true),
        choice(
            "--wait-output Silent|Spinner|Progress",
            "What to print while waiting",
        )
        .default_value("Progress"),
    ]
}

fn output() -> Arg {
    one_of(
        "--output",
        PROGRESS,
        "How to show progress: a line for each change, a board drawn in place, or events in JSON \
         [default: board on a terminal]",
    )
}

/// The form of a table.
fn form() -> Arg {
    one_of("-o --output", FORMS, "Form of the output")
}

fn estimate() -> Arg {
    text(
        "--estimate-from ARCHIVE",
        "Archive of an earlier run, from which the board estimates the remaining time of the tests",
    )
}

fn redaction() -> [Arg; 2] {
    [
        text(
            "--redact FILE",
            "Rules (YAML) for further redaction of the snapshot",
        )
        .conflicts_with("no-redact"),
        switch("--no-redact", "Do not hide secrets in the snapshot"),
    ]
}

fn color() -> Arg {
    choice(
        "--color auto|always|never",
        "Whether the text report has colours",
    )
    .default_value("auto")
}

fn min_success() -> Arg {
    text(
        "--min-success PERCENT",
        "Like --fail-on failed, but a plugin that has passed on this share of its nodes, as in \
         95%, has passed",
    )
    .value_parser(|word: &str| {
        let number = word.strip_suffix('%').unwrap_or(word).parse::<i64>().ok();
        number
            .filter(|number| (1..=100).contains(number))
            .ok_or("write a share from 1% to 100%")
    })
}

fn fail_on() -> Arg {
    choice(
        "--fail-on failed|unknown|incomplete|flaky|never",
        "Exit with 3 (failed, flaky) or 4 (unknown, incomplete) when results are this bad or worse",
    )
    .default_value("never")
}

fn annotations() -> Arg {
    choice(
        "--annotations auto|github|off",
        "Whether to append the report to $GITHUB_STEP_SUMMARY and print an annotation per cause; \
         auto does in GitHub Actions",
    )
    .default_value("auto")
}

fn credentials() -> Arg {
    text(
        "--credentials FILE",
        "File with the credentials of the run's status service; - is stdout for `run`, else stdin \
         [default: $SONOBUOY_CREDENTIALS or /tmp/sonobuoy.json]",
    )
}

fn kubernetes_version() -> Arg {
    version(
        "--kubernetes-version VERSION",
        &VERSIONS,
        "Kubernetes version of the images: v1.2.3; `auto` asks the cluster, `ignore` leaves it \
         open, `latest` is the newest build",
    )
}

fn plugin_env() -> Arg {
    repeated(
        "--plugin-env PLUGIN.NAME=VALUE",
        "Environment variable of a plugin; an empty value removes it",
    )
}

fn repositories() -> [Arg; 2] {
    [
        text(
            "--e2e-repo REGISTRY",
            "Registry with the images of the e2e tests",
        )
        .conflicts_with("e2e-repo-config"),
        text(
            "--e2e-repo-config FILE",
            "File that names registries for the images of the e2e tests",
        ),
    ]
}

fn e2e() -> Command {
    command("e2e", "List the e2e tests of a Kubernetes version")
        .args([
            regex("-f --focus REGEX", "Only tests that match"),
            regex("-s --skip REGEX", "Leave out tests that match"),
            text(
                "-i --input SOURCE",
                "Where the list comes from: online, image (executes the program of the \
                 conformance image, isolated), - (stdin) or a file",
            )
            .default_value("online"),
            text("-m --mode WORD", "What to print: tests, tags or tagCounts")
                .default_value("tests"),
            version(
                "--version VERSION",
                &VERSIONS,
                "Kubernetes version; auto: that of the cluster, latest: the newest build, ignore: \
                 none [default: auto]",
            ),
            text(
                "--kube-conformance-image IMAGE",
                "With --input=image: the conformance image",
            ),
            unconfined(),
            text(
                "--url URL",
                "With --input=online: where the lists are, as VERSION.gz each",
            ),
        ])
        .args(cluster())
}

/// The flag that disables the isolation of a trusted image.
fn unconfined() -> Arg {
    switch(
        "--unconfined",
        "Execute the conformance image's program with your rights where it cannot be isolated",
    )
}

fn plugin() -> Command {
    let installed =
        || argument("NAME", "Name that `plugin list` prints after \"Run as\"").required(true);
    command("plugin", "Manage installed plugins")
        .alias("plugins")
        .subcommand_required(true)
        .subcommand(command("list", "List the installed plugins").arg(form()))
        .subcommand(command("show", "Print an installed plugin").arg(installed()))
        .subcommand(
            command("install", "Install a plugin from a file or URL").args([
                argument("SAVE-AS", "Name to install it under").required(true),
                argument("SOURCE", "File or URL of its definition").required(true),
            ]),
        )
        .subcommand(command("uninstall", "Remove an installed plugin").arg(installed()))
}

fn status() -> Command {
    command("status", "Show the status of a run")
        .args([
            namespace(),
            switch("--show-all", "Show one line for each plugin and node"),
            switch("--json", "Print the status document as JSON"),
            switch(
                "--all",
                "Show every node; with --json, also of a run whose status exceeds the size of an \
                 annotation",
            ),
            switch("-w --watch", "Keep showing changes until the run is over"),
            choice(
                "-o --output json|yaml|wide|name|markdown|plain|board",
                "Form of the status; with --watch, how to show progress: plain, board or json",
            ),
            estimate(),
            credentials(),
        ])
        .args(cluster())
        .args(clusters())
        .after_help(examples(&[
            ("Watch a run until it is over", "sonobuoy status --watch"),
            ("Print the whole status once", "sonobuoy status --json"),
        ]))
}

fn retrieve() -> Command {
    command(
        "retrieve",
        "Fetch the archive of a run; prints its file name",
    )
    .args([
        argument("DIR", "Folder to write into").default_value("."),
        namespace(),
        switch("-x --extract", "Unpack the archive and remove it"),
        text(
            "-f --filename NAME",
            "File name instead of the archive's own",
        ),
        text(
            "--retrieve-path DIR",
            "Where the aggregator keeps its archives",
        )
        .default_value(names::RUNS_DIR),
        switch(
            "--partial",
            "Fetch what has arrived so far from an unfinished run",
        ),
        switch("--force", "Replace files that exist"),
        credentials(),
    ])
    .args(cluster())
    .args(clusters())
    .after_help(examples(&[
        (
            "Fetch the archive; its name is printed",
            "sonobuoy retrieve",
        ),
        (
            "Look at what has arrived so far",
            "sonobuoy retrieve --partial",
        ),
    ]))
}

fn verify() -> Command {
    command("verify", "Check the seal of an archive; needs no cluster").args([
        argument("ARCHIVE", "Archive with its seal beside it").required(true),
        text(
            "--authority FILE",
            "Certificate of the run's authority (PEM) [default: the one that `run` has kept]",
        ),
        switch(
            "--digest-only",
            "Check only size and digest, without the signature",
        ),
    ])
}

fn certify() -> Command {
    command(
        "certify",
        "Check a conformance run and write its submission for certification; needs no cluster",
    )
    .args([
        argument("ARCHIVE", "Archive of the run, or its unpacked folder").required(true),
        text(
            "--product FILE",
            "Description of the product (YAML), as the submission's PRODUCT.yaml",
        ),
        text(
            "-o --output DIR",
            "New folder to write the submission into; without it, only checks",
        ),
        text(
            "--tests FILE",
            "Names of tests, one per line: those with [Conformance] must be in the archive",
        ),
    ])
    .after_help(examples(&[(
        "Check a run and write its submission",
        "sonobuoy certify run.tar.gz --product product.yaml -o submission",
    )]))
}

fn results() -> Command {
    let format = |usage, help| choice(usage, help).default_value("text");
    command("results", "Report on an archive")
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .args([
            argument(
                "ARCHIVE",
                "Archive, unpacked folder, folder of archives, `latest`, or - for stdin; several \
                 give a table",
            )
            .num_args(1..)
            .required_unless_present_any(["from-cluster", "live"]),
            switch(
                "--from-cluster",
                "Fetch the archive of the run in the cluster, and report on it",
            )
            .conflicts_with("archive"),
            switch(
                "--live",
                "Report on the results that an unfinished run in the cluster has so far",
            )
            .conflicts_with_all(["archive", "from-cluster"]),
            text(
                "--namespace NAME",
                "With --from-cluster and --live: namespace of the run",
            ),
            credentials(),
            text(
                "-p --plugin NAME",
                "Only this plugin; `sonobuoy` is the health of the cluster",
            ),
            choice(
                "-m --mode summary|report|detailed|dump|readable",
                "How much to print; on a terminal, the default is summary",
            )
            .default_value("report"),
            text(
                "-n --node NAME",
                "Only this item of the tree, such as a node",
            ),
            switch(
                "-s --skip-prefix",
                "With --mode=detailed: no file names before lines",
            ),
            bare(
                choice(
                    "--facts nodes|all",
                    "What nodes are made of, reach and log, a row for each; with `all`, every \
                     fact that differs",
                ),
                "nodes",
            ),
            format(
                "-o --format text|json|yaml|junit|html|markdown|csv|openmetrics",
                "What to print: text, json, junit, an html page, or markdown; csv of facts; \
                 openmetrics for monitoring",
            ),
            color(),
            fail_on(),
            min_success(),
            annotations(),
        ])
        .args(cluster())
        .subcommand(
            command("diff", "What changed between two archives").args([
                argument("BEFORE", "The earlier archive, as for `results`").required(true),
                argument("AFTER", "The later archive").required(true),
                text("-p --plugin NAME", "Only this plugin"),
                format(
                    "-o --format text|json|junit|html",
                    "What to print: text, json, junit, or an html page",
                ),
                color(),
                choice(
                    "--fail-on failed|unknown|incomplete|vanished|flaky|never",
                    "Exit with 3 (newly failed, flaky) or 4 (newly unknown, vanished) when \
                     something became this bad or worse",
                )
                .default_value("never"),
            ]),
        )
        .after_help(examples(&[
            (
                "Report on the newest archive in this folder",
                "sonobuoy results latest",
            ),
            (
                "A page to open in a browser",
                "sonobuoy results latest --format html",
            ),
            (
                "Report on the run in the cluster",
                "sonobuoy results --from-cluster",
            ),
            (
                "Compare two runs",
                "sonobuoy results diff before.tar.gz after.tar.gz",
            ),
        ]))
}

fn logs() -> Command {
    command("logs", "Print the logs of a run's pods")
        .args([
            namespace(),
            switch("-f --follow", "Keep printing new lines"),
            text(
                "-p --plugin NAME",
                "Only this plugin's pods; `sonobuoy` is the aggregator",
            ),
            text("-c --container NAME", "Only containers of this name"),
            number(
                "--tail LINES",
                "Only this many lines from the end of each log",
                0..=i64::MAX,
            ),
            seconds(
                "--since SECONDS",
                "Only lines newer than this (seconds, or a duration such as 10m)",
            ),
            switch("--timestamps", "Print the time of each line"),
        ])
        .args(cluster())
        .after_help(examples(&[(
            "Follow what a plugin prints",
            "sonobuoy logs -p disk --follow",
        )]))
}

fn delete() -> Command {
    command("delete", "Remove a run from the cluster")
        .args([
            namespace(),
            rbac(
                "Detect",
                "Whether to remove RBAC objects; Detect asks the cluster",
            ),
            switch(
                "--all",
                "Also remove what e2e tests and other runs left behind",
            ),
            switch("--dry-run", "Show what would be deleted"),
        ])
        .args(waiting(
            "Wait until everything is gone, at most this long (minutes, or a duration such as \
             90s); an hour without a value",
            "60",
        ))
        .args(cluster())
        .args(clusters())
        .after_help(examples(&[("Clean up", "sonobuoy delete --wait")]))
}

fn images() -> Command {
    let one = |name, about| {
        command(name, about).args(cluster()).args([
            kubernetes_version(),
            list(
                "-p --plugin NAME,...",
                "Plugins whose images to use: built-in names or files",
            )
            .default_values(["e2e", "systemd-logs"]),
            text(
                "--images-from FILE",
                "List of the tests' images, or archive with the conformance image, instead of \
                 asking its registry",
            ),
            unconfined(),
            switch("--dry-run", "Print what would be done, and do nothing"),
        ])
    };
    let platform = |help| text("--platform OS/ARCH,...", help);
    let moved = |name, about| one(name, about).args(repositories());
    let plain_http = || switch("--plain-http", "Use HTTP instead of HTTPS for registries");
    let transfer = || {
        [
            platform("Platforms of the images, or `all` [default: this machine's]"),
            plain_http(),
        ]
    };
    let custom_registry = |help| text("--custom-registry REGISTRY", help);
    let everything = "Registry that should have all images";
    let list =
        one("list", "List the images (what `images` alone does)").args([plugin_env(), form()]);
    command("images", "The container images that plugins need")
        .after_help(format!(
            "{EXECUTES}\n\n{}",
            examples(&[
                (
                    "Copy what a run needs",
                    "sonobuoy images push --custom-registry registry.local --kubernetes-version \
                     v1.33.1"
                ),
                (
                    "Save all of it in one file",
                    "sonobuoy images download --kubernetes-version v1.33.1"
                ),
            ])
        ))
        .args_conflicts_with_subcommands(true)
        .args(list.get_arguments())
        .subcommand(list.after_help(EXECUTES))
        .subcommand(moved("pull", "Pull the images to this machine"))
        .subcommand(
            moved("push", "Copy the images to another registry")
                .args([
                    custom_registry("Registry to push to; images keep the last part of their name"),
                    argument("KIT", "Kit whose images to push").conflicts_with_all([
                        "archive",
                        "e2e-repo",
                        "e2e-repo-config",
                    ]),
                    text(
                        "--archive FILE",
                        "Push the images in this archive instead of those in their registries",
                    ),
                    text(
                        "-o --output FILE",
                        "With a kit: file to write for --e2e-repo-config [default: \
                         registries.yaml]",
                    ),
                ])
                .args(transfer()),
        )
        .subcommand(
            moved("download", "Save the images in one file")
                .visible_alias("bundle")
                .arg(text(
                    "-o --output FILE",
                    "File to write [default: kubernetes_e2e_images_VERSION.tar]",
                ))
                .args(transfer()),
        )
        .subcommand(
            one(
                "kit",
                "Save everything that a version's conformance tests need in one file",
            )
            .args([
                text(
                    "-o --output FILE",
                    "File to write [default: kit-VERSION.tar]",
                ),
                text(
                    "--sonobuoy-image FILE",
                    "Archive of Sonobuoy's image [default: sonobuoy-image.tar next to this \
                     program]",
                ),
            ])
            .args(transfer()),
        )
        .subcommand(moved("delete", "Remove the images from this machine"))
        .subcommand(
            moved(
                "verify",
                "Check that every image can be pulled, for the architectures of the nodes",
            )
            .args([
                custom_registry(everything),
                text(
                    "--archive FILE",
                    "Look into this archive instead of registries",
                ),
                text(
                    "--config FILE",
                    "Run configuration (JSON), for its namespace and pull secret",
                ),
                switch("--on-nodes", "Have a node of each architecture pull them"),
                platform("Platforms to check, or `all` [default: those of the nodes]"),
                plain_http(),
            ]),
        )
        .subcommand(
            moved("inspect", "Check which images exist in their registries")
                .args([custom_registry(everything), plain_http()]),
        )
}

fn sleep(help: &'static str) -> Arg {
    seconds("--sleep SECONDS", help).default_value("0")
}

fn gather() -> Command {
    let output = || {
        text(
            "-o --output DIR",
            "Folder to write into [default: $RESULTS_DIR]",
        )
    };
    let sleep =
        || sleep("Keep running this long after the result is written; negative means forever");
    let source = |name, about| {
        command(name, about).args([
            text(
                "--chroot DIR",
                "Where the node's file system is mounted [default: $CHROOT_DIR or /]",
            ),
            output(),
            sleep(),
        ])
    };
    let format = |usage| {
        choice(
            usage,
            "What to print: everything, or a table of the most important facts",
        )
    };
    let yaml = || format("--format yaml|table|csv").default_value("yaml");
    let selection = || {
        [
            text(
                "--since WHEN",
                "Minutes to look back, or a point in time [default: $LOG_MINUTES or 60]",
            ),
            list("-u --unit UNIT,...", "Only these units"),
            text("--priority LEVEL", "Only this priority and above"),
        ]
    };
    command("gather", "Collect facts and logs of this node")
        .subcommand_required(true)
        .subcommand(
            source(
                "host-facts",
                "Hardware, kernel, mounts, network, limits as JSON",
            )
            .args([
                format("--format json|table|csv").default_value("json"),
                switch(
                    "--run-facts",
                    "Also run programs in `facts.d`, with the rights of this process [default: \
                     $RUN_FACTS]",
                ),
            ]),
        )
        .subcommand(
            source(
                "systemd-logs",
                "The journal; on nodes without one, /var/log and dmesg",
            )
            .args(selection())
            .args([
                text("--max-size SIZE", "Maximum size of the log, such as 500M"),
                switch("--gzip", "Compress the log; the result is then a folder"),
                switch(
                    "--summary",
                    "Add a summary of the log; the result is then a folder",
                ),
            ]),
        )
        .subcommand(
            source(
                "log-summary",
                "Counts of problems in the logs, by unit and kind",
            )
            .arg(yaml())
            .args(selection()),
        )
        .subcommand(
            command(
                "network",
                "Whether this node reaches name service, API server and aggregator, and how fast",
            )
            .args([yaml(), output(), sleep()]),
        )
        .subcommand(
            command(
                "echo",
                "The same as a termination message, in pods that `doctor` starts",
            )
            .hide(true)
            .arg(text(
                "--to FILE",
                "File to write instead of the termination message",
            )),
        )
        .subcommand(
            // Starts the node's own programs with the node's libraries.
            command("inside", "Run a program under another root")
                .hide(true)
                .arg(
                    Arg::new("call")
                        .value_names(["ROOT", "PROGRAM"])
                        .num_args(2..)
                        .trailing_var_arg(true)
                        .allow_hyphen_values(true),
                ),
        )
}

fn completion() -> Command {
    command(
        "completion",
        "Print a script that completes command lines in a shell",
    )
    .arg_required_else_help(true)
    .args([
        argument("SHELL", "Shell that completes with it")
            .value_parser(["bash", "zsh", "fish", "powershell"])
            .required(true),
        switch("--no-descriptions", "Leave out the descriptions"),
    ])
    .after_help(INTO_SHELLS)
}
