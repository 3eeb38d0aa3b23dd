//! Every command: name, aliases, arguments and flags; the source of help, man pages and completions.
//!
//! Does not know their effects: those are in `cli/<command>.rs`. The kinds of flags and the sets that commands share
//! are in [`super::flag`], the flags of `run` and `gen` in [`super::run_flag`].

use clap::{Arg, Command};

use super::flag::{
    accepting_values, bare, choice, cluster, color, command, credentials, fail_on, fail_on_change, global,
    kubernetes_version, list, namespace, number, output, plugin_env, rbac, redaction, repositories, switch,
    text, waiting,
};
use super::run_flag::{self, estimate};
use crate::names;

/// Groups, which only print help without a subcommand.
pub(crate) const GROUPS: &[&[&str]] = &[&[], &["get"], &["gather"], &["plugin"], &["worker"]];

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

/// The table for display: in help, man pages and completions.
pub(crate) fn shown() -> Command {
    let version = command("version", "Print the version of this program")
        .arg(switch("short", "Print nothing but the version"))
        .args(cluster());
    let query = command("query", "Take a snapshot of the cluster")
        .arg(text("config", "FILE", "Run configuration (JSON) that selects what to record"))
        .arg(text("output", "DIR", "Folder to write into [default: a new one here]").short('o'))
        .args(redaction())
        .args(cluster());
    let splat = command("splat", "Write the finished archives in a folder to stdout")
        .hide(true)
        .arg(path("dir", "DIR").required(true))
        .arg(number("offset", "BYTES", "Skip this many bytes").default_value("0"))
        .arg(switch("partial", "Pack what has arrived so far of an unfinished run"))
        .arg(switch("seals", "Write the seals of the archives instead"));
    let aggregator = command("aggregator", "Receive the results of a run (inside the cluster)")
        .hide(true)
        // The name in manifests of old versions.
        .alias("master")
        .arg(switch("no-exit", "Keep running when the run is over, so that results can be fetched"))
        .args(cluster());
    let aggregator = aggregator.arg(switch("echo", "Only answer checks of the connection"));
    let post_process = command("post-process", "Write sonobuoy_results.yaml in an unpacked archive")
        .hide(true)
        .arg(path("dir", "DIR").required(true));
    let man = command("man", "Write the man pages")
        .hide(true)
        .arg(path("dir", "DIR").help("Folder to write them into").required(true));
    let help = command("help", "Print the help of a command")
        .arg(path("command", "COMMAND").help("Words of the command, such as `gen plugin`").num_args(0..));
    Command::new("sonobuoy")
        .about("Runs diagnostic and conformance plugins across a Kubernetes cluster and collects results from every node")
        .after_help(FIRST_STEPS)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args_override_self(true)
        .args(global())
        .subcommands([
            run_flag::run(),
            run_flag::doctor(),
            status(),
            run_flag::wait(),
            retrieve(),
            verify(),
            certify(),
            results(),
            logs(),
            delete(),
            run_flag::generate(),
            modes(),
            e2e(),
            plugin(),
            images(),
            query,
            gather(),
            get(),
            completion(),
            version,
            help,
        ])
        .subcommands([aggregator, worker(), splat, post_process, man])
}

/// The table for parsing.
pub(crate) fn parsed() -> Command {
    accepting_values(shown())
}

/// The full name of a command: `sonobuoy gen plugin`.
pub(crate) fn name(path: &[String]) -> String {
    std::iter::once("sonobuoy").chain(path.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

/// The command at `path`, ready to print its help; `Err` has the unknown word.
pub(crate) fn command_at(mut table: Command, path: &[String]) -> Result<Command, String> {
    table.build();
    let mut command = table;
    for word in path {
        command = command.find_subcommand(word).cloned().ok_or_else(|| word.clone())?;
    }
    Ok(command.bin_name(name(path)))
}

/// A positional argument that is a file, a folder or a URL.
fn path(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).value_name(value)
}

fn modes() -> Command {
    command("modes", "List the modes of the e2e plugin").arg(switch("verbose", "Do not truncate long lines"))
}

fn e2e() -> Command {
    command("e2e", "List the e2e tests of a Kubernetes version")
        .arg(text("focus", "REGEX", "Only tests that match").short('f'))
        .arg(text("skip", "REGEX", "Leave out tests that match").short('s'))
        .arg(
            text(
                "input",
                "SOURCE",
                "Where the list comes from: online, image (executes the program of the conformance image, isolated), - (stdin) or a file",
            )
            .short('i')
            .default_value("online"),
        )
        .arg(
            text("mode", "WORD", "What to print: tests, tags or tagCounts").short('m').default_value("tests"),
        )
        .arg(text("version", "VERSION", "Kubernetes version [default: that of the cluster]"))
        .arg(text("kube-conformance-image", "IMAGE", "With --input=image: the conformance image"))
        .arg(unconfined())
        .arg(text("url", "URL", "With --input=online: where the lists are, as VERSION.gz each"))
        .args(cluster())
}

/// The flag that disables the isolation of a trusted image.
fn unconfined() -> Arg {
    switch(
        "unconfined",
        "Execute the conformance image's program with your rights where it cannot be isolated",
    )
}

fn installed() -> Arg {
    path("name", "NAME").help("Name that `plugin list` prints after \"Run as\"").required(true)
}

fn plugin() -> Command {
    command("plugin", "Manage installed plugins")
        .alias("plugins")
        .subcommand(command("list", "List the installed plugins"))
        .subcommand(command("show", "Print an installed plugin").arg(installed()))
        .subcommand(
            command("install", "Install a plugin from a file or URL")
                .arg(path("save-as", "SAVE-AS").help("Name to install it under").required(true))
                .arg(path("source", "SOURCE").help("File or URL of its definition").required(true)),
        )
        .subcommand(command("uninstall", "Remove an installed plugin").arg(installed()))
}

fn status() -> Command {
    command("status", "Show the status of a run")
        .arg(namespace())
        .arg(switch("show-all", "Show one line for each plugin and node"))
        .arg(switch("json", "Print the status document as JSON"))
        .arg(switch("watch", "Keep showing changes until the run is over"))
        .arg(output())
        .arg(estimate())
        .arg(credentials())
        .args(cluster())
}

fn retrieve() -> Command {
    command("retrieve", "Fetch the archive of a run; prints its file name")
        .arg(path("dir", "DIR").help("Folder to write into").default_value("."))
        .arg(namespace())
        .arg(switch("extract", "Unpack the archive and remove it").short('x'))
        .arg(text("filename", "NAME", "File name instead of the archive's own").short('f'))
        .arg(
            text("retrieve-path", "DIR", "Where the aggregator keeps its archives")
                .default_value(names::RUNS_DIR),
        )
        .arg(switch("partial", "Fetch what has arrived so far from an unfinished run"))
        .arg(switch("force", "Replace files that exist"))
        .arg(credentials())
        .args(cluster())
}

fn verify() -> Command {
    command("verify", "Check the seal of an archive; needs no cluster")
        .arg(path("archive", "ARCHIVE").help("Archive with its seal beside it").required(true))
        .arg(text(
            "authority",
            "FILE",
            "Certificate of the run's authority (PEM) [default: the one that `run` has kept]",
        ))
        .arg(switch("digest-only", "Check size and digest alone, whoever sealed the archive"))
}

fn certify() -> Command {
    command("certify", "Check a conformance run and write its submission for certification; needs no cluster")
        .arg(path("archive", "ARCHIVE").help("Archive of the run, or its unpacked folder").required(true))
        .arg(text("product", "FILE", "Description of the product (YAML), as the submission's PRODUCT.yaml"))
        .arg(
            text("output", "DIR", "New folder to write the submission into; without it, only checks")
                .short('o'),
        )
        .arg(text(
            "tests",
            "FILE",
            "Names of tests, one per line: those with [Conformance] must be in the archive",
        ))
}

fn results() -> Command {
    let format = |values| {
        choice("format", values, "What to print: text for people, json, junit, or an html page; csv of facts")
            .default_value("text")
    };
    command("results", "Report on an archive")
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .arg(
            path("archive", "ARCHIVE")
                .help("Archive, unpacked folder, folder of archives, `latest`, or - for stdin; several give a table")
                .num_args(1..)
                .required(true),
        )
        .arg(text("plugin", "NAME", "Only this plugin; `sonobuoy` is the health of the cluster").short('p'))
        .arg(
            text("mode", "WORD", "How much to print: summary (the default on a terminal), report, detailed, dump or readable")
                .short('m')
                .default_value("report"),
        )
        .arg(text("node", "NAME", "Only this item of the tree, such as a node").short('n'))
        .arg(switch("skip-prefix", "With --mode=detailed: no file names before lines").short('s'))
        .arg(bare(
            choice(
                "facts",
                &["nodes", "all"],
                "What nodes are made of, reach and log, a row for each; with `all`, every fact that differs",
            ),
            "nodes",
        ))
        .arg(format(&["text", "json", "junit", "html", "csv"]))
        .arg(color())
        .arg(fail_on())
        .subcommand(
            command("diff", "What changed between two archives")
                .arg(path("before", "BEFORE").help("The earlier archive, as for `results`").required(true))
                .arg(path("after", "AFTER").help("The later archive").required(true))
                .arg(text("plugin", "NAME", "Only this plugin").short('p'))
                .arg(
                    format(&["text", "json", "junit", "html"])
                        .help("What to print: text for people, json, junit, or an html page"),
                )
                .arg(color())
                .arg(fail_on_change()),
        )
}

fn logs() -> Command {
    command("logs", "Print the logs of a run's pods")
        .arg(namespace())
        .arg(switch("follow", "Keep printing new lines").short('f'))
        .arg(text("plugin", "NAME", "Only this plugin's pods; `sonobuoy` is the aggregator").short('p'))
        .args(cluster())
}

fn delete() -> Command {
    command("delete", "Remove a run from the cluster")
        .arg(namespace())
        .arg(rbac("Detect", "Whether to remove RBAC objects; Detect asks the cluster"))
        .arg(switch("all", "Also remove what e2e tests and other runs left behind"))
        .arg(switch("dry-run", "Show what would be deleted"))
        .args(waiting("Wait until everything is gone, at most this long (minutes, or a duration such as 90s); an hour without a value", "60"))
        .args(cluster())
}

fn images() -> Command {
    let one = |name, about| {
        command(name, about)
            .args(cluster())
            .arg(kubernetes_version())
            .arg(
                list("plugin", "NAME,...", "Plugins whose images to use: built-in names or files")
                    .short('p')
                    .default_values(["e2e", "systemd-logs"]),
            )
            .arg(text(
                "images-from",
                "FILE",
                "List of the tests' images, or archive with the conformance image, instead of asking its registry",
            ))
            .arg(unconfined())
            .arg(switch("dry-run", "Only say what would be done"))
    };
    let platform = |help| text("platform", "OS/ARCH,...", help);
    let plain_http = || switch("plain-http", "Use HTTP instead of HTTPS for registries");
    let transfer = || [platform("Platforms of the images, or `all` [default: this machine's]"), plain_http()];
    let custom_registry = || text("custom-registry", "REGISTRY", "Registry that should have all images");
    command("images", "The container images that plugins need")
        .after_help(EXECUTES)
        .args_conflicts_with_subcommands(true)
        .args(one("list", "").get_arguments().cloned().collect::<Vec<_>>())
        .arg(plugin_env())
        .subcommand(
            one("list", "List the images (what `images` alone does)").arg(plugin_env()).after_help(EXECUTES),
        )
        .subcommand(one("pull", "Pull the images to this machine").args(repositories()))
        .subcommand(
            one("push", "Copy the images to another registry")
                .args(repositories())
                .arg(text(
                    "custom-registry",
                    "REGISTRY",
                    "Registry to push to; images keep the last part of their name",
                ))
                .arg(Arg::new("kit").value_name("KIT").help("Kit whose images to push").conflicts_with_all([
                    "archive",
                    "e2e-repo",
                    "e2e-repo-config",
                ]))
                .arg(text(
                    "archive",
                    "FILE",
                    "Push the images in this archive instead of those in their registries",
                ))
                .arg(
                    text(
                        "output",
                        "FILE",
                        "With a kit: file to write for --e2e-repo-config [default: registries.yaml]",
                    )
                    .short('o'),
                )
                .args(transfer()),
        )
        .subcommand(
            one("download", "Save the images in one file")
                .visible_alias("bundle")
                .args(repositories())
                .arg(
                    text("output", "FILE", "File to write [default: kubernetes_e2e_images_VERSION.tar]")
                        .short('o'),
                )
                .args(transfer()),
        )
        .subcommand(
            one("kit", "Save everything that a version's conformance tests need in one file")
                .arg(text("output", "FILE", "File to write [default: kit-VERSION.tar]").short('o'))
                .arg(text(
                    "sonobuoy-image",
                    "FILE",
                    "Archive of Sonobuoy's image [default: sonobuoy-image.tar next to this program]",
                ))
                .args(transfer()),
        )
        .subcommand(one("delete", "Remove the images from this machine").args(repositories()))
        .subcommand(
            one("verify", "Check that every image can be pulled, for the architectures of the nodes")
                .args(repositories())
                .arg(custom_registry())
                .arg(text("archive", "FILE", "Look into this archive instead of registries"))
                .arg(text("config", "FILE", "Run configuration (JSON), for its namespace and pull secret"))
                .arg(switch("on-nodes", "Have a node of each architecture pull them"))
                .arg(platform("Platforms to check, or `all` [default: those of the nodes]"))
                .arg(plain_http()),
        )
        .subcommand(
            one("inspect", "Check which images exist in their registries")
                .args(repositories())
                .arg(custom_registry())
                .arg(plain_http()),
        )
}

fn get() -> Command {
    command("get", "Print parts of a run").subcommand(
        command("pod", "Print the names of plugin pods")
            .alias("pods")
            .arg(namespace())
            .arg(text("plugin", "NAME", "Only this plugin's pods").short('p'))
            .args(cluster()),
    )
}

fn gather() -> Command {
    let sleep = || {
        number(
            "sleep",
            "SECONDS",
            "Keep running this long after the result is written; negative means for ever",
        )
        .default_value("0")
    };
    let source = |name, about| {
        command(name, about)
            .arg(text(
                "chroot",
                "DIR",
                "Where the file system of the node is mounted [default: $CHROOT_DIR or /]",
            ))
            .arg(text("output", "DIR", "Folder to write into [default: $RESULTS_DIR]").short('o'))
            .arg(sleep())
    };
    let format = |whole: &'static [&'static str]| {
        choice("format", whole, "What goes to stdout: everything, or a table of what matters most")
            .default_value(whole[0])
    };
    let minutes = "Minutes to look back, or a point in time [default: $LOG_MINUTES or 60]";
    command("gather", "Collect facts and logs of this node")
        .subcommand(
            source("host-facts", "Hardware, kernel, mounts, network, limits as JSON")
                .arg(format(&["json", "table", "csv"]))
                .arg(switch(
                    "run-facts",
                    "Also run programs in `facts.d`, with the rights of this process [default: $RUN_FACTS]",
                )),
        )
        .subcommand(
            source("systemd-logs", "The journal, or /var/log and dmesg where there is none")
                .arg(text("since", "WHEN", minutes))
                .arg(list("unit", "UNIT,...", "Only these units").short('u'))
                .arg(text("priority", "LEVEL", "Only this priority and above"))
                .arg(text("max-size", "SIZE", "Stop after this much, such as 500M"))
                .arg(switch("gzip", "Pack the log; the result is then a folder"))
                .arg(switch("summary", "Put a summary beside the log; the result is then a folder")),
        )
        .subcommand(
            source("log-summary", "Counts of what goes wrong, by unit and kind")
                .arg(format(&["yaml", "table", "csv"]))
                .arg(text("since", "WHEN", minutes))
                .arg(list("unit", "UNIT,...", "Only these units").short('u'))
                .arg(text("priority", "LEVEL", "Only this priority and above")),
        )
        .subcommand(
            command(
                "network",
                "Whether this node reaches name service, API server and aggregator, and how fast",
            )
            .arg(format(&["yaml", "table", "csv"]))
            .arg(text("output", "DIR", "Folder to write into [default: $RESULTS_DIR]").short('o'))
            .arg(sleep()),
        )
        .subcommand(
            command("echo", "The same as a termination message, in pods that `doctor` starts")
                .hide(true)
                .arg(text("to", "FILE", "File to write instead of the termination message")),
        )
        .subcommand(
            // Starts the node's own programs with the node's libraries.
            command("inside", "Run a program under another root").hide(true).arg(
                Arg::new("call")
                    .value_names(["ROOT", "PROGRAM"])
                    .num_args(2..)
                    .trailing_var_arg(true)
                    .allow_hyphen_values(true),
            ),
        )
}

fn worker() -> Command {
    command("worker", "Send a plugin's results to the aggregator (beside a plugin)")
        .hide(true)
        .subcommand(command("global", "For a plugin that runs once").alias("job"))
        .subcommand(
            command("single-node", "For a plugin that runs on every node").alias("daemonset").arg(
                number("sleep", "SECONDS", "Keep running this long after sending; negative means for ever")
                    .default_value("0"),
            ),
        )
}

fn completion() -> Command {
    command("completion", "Print a script that completes command lines in a shell")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .value_parser(["bash", "zsh", "fish", "powershell"])
                .help("Shell that completes with it"),
        )
        .arg(switch("no-descriptions", "Leave out the descriptions"))
        .after_help(INTO_SHELLS)
}
