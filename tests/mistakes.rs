//! Typing mistakes of new, tired users or users of other programs: each is answered once, with a
//! suggestion.

use crate::support::system::symlink;
use crate::support::{Folder, Sonobuoy};

/// Arguments, and the end of the first line of the response.
const MISTAKES: &[(&str, &str)] = &[
    ("rnu", "did you mean `run`?"),
    ("RUN", "did you mean `run`?"),
    (
        "list",
        "did you mean `status --all-namespaces` or `plugin list` or `images list`?",
    ),
    ("install", "did you mean `plugin install`?"),
    ("statsu", "did you mean `status`?"),
    ("agent", "did you mean `worker`?"),
    ("retreive", "did you mean `retrieve`?"),
    ("result", "did you mean `results`?"),
    ("ls", "did you mean `status --all-namespaces`?"),
    ("start", "did you mean `run`?"),
    ("stop", "did you mean `delete`?"),
    ("log", "did you mean `logs`?"),
    ("diff", "did you mean `results diff`?"),
    ("plugin instal", "did you mean `plugin install`?"),
    ("get pos", "did you mean `get pod`?"),
    ("gather host-fact", "did you mean `gather host-facts`?"),
    ("gen plugn", "did you mean `gen plugin`?"),
    ("images psh", "did you mean `images push`?"),
    ("help rnu", "did you mean `run`?"),
    ("results dif", "did you mean `results diff`?"),
    ("run --local disk.yaml", "did you mean `-p disk.yaml`?"),
    ("run systemd-logs", "did you mean `-p systemd-logs`?"),
    (
        "gen --kubernetes-version v1.30.0 -p systemd-log",
        "did you mean `systemd-logs` or `systemd-logs-native`?",
    ),
    (
        "run -p systemd-logs-nativ",
        "did you mean `systemd-logs-native`?",
    ),
    (
        "gen -n UX_Bad --kubernetes-version v1.30.0",
        "use at most 63 lowercase letters, digits and `-`, not at the ends",
    ),
    (
        "run --max-parallel 0",
        "--max-parallel is `0`; write a number of nodes from 1, or a share from 1% to 100%",
    ),
    (
        "doctor --nodes all",
        "--measure-from all selects the nodes to measure from",
    ),
    (
        "run -n UX_Bad",
        "use at most 63 lowercase letters, digits and `-`, not at the ends",
    ),
    ("run --image-pull-policy always", "did you mean `Always`?"),
    (
        "run --systemd-logs-image /x:latest",
        "it names no registry or repository; is a variable unset?",
    ),
    (
        "images verify --archive nope.tar",
        "cannot read `nope.tar`: No such file or directory",
    ),
    ("status", "set KUBECONFIG or pass `--kubeconfig`"),
    (
        "gen",
        "without a cluster, name it with --kubernetes-version",
    ),
    (
        "run -p systemd-log",
        "did you mean `systemd-logs` or `systemd-logs-native`?",
    ),
    (
        "gen --kubernetes-version v1.11+",
        "a tag cannot contain `+`; write v1.11.0, auto, ignore or latest",
    ),
    (
        "run --timeout 1x",
        "write seconds, or a duration such as 90m or 1h30m",
    ),
    (
        "run --wait=soon",
        "write minutes, or a duration such as 90m or 1h30m",
    ),
    ("run --wait 60", "did you mean `--wait=60`?"),
    ("delete --wait 5", "did you mean `--wait=5`?"),
    ("run --mode quik", "did you mean `quick`?"),
    ("run --mod quick", "did you mean `--mode`?"),
    ("run --namspace x", "did you mean `--namespace`?"),
    ("run --kube-config x", "did you mean `--kubeconfig`?"),
    ("run --plugins x", "did you mean `--plugin`?"),
    ("run --ns x", "did you mean `--namespace`?"),
    ("run --verbose", "did you mean `--level=debug`?"),
    ("run -N x", "did you mean `-n`?"),
    ("run --version", "`sonobuoy --version` prints the version"),
    ("-v", "`sonobuoy --version` prints the version"),
    ("status --folow", "did you mean `--watch`?"),
    (
        "status mynamespace",
        "a namespace is named by `-n mynamespace`",
    ),
    ("version --shrt", "did you mean `--short`?"),
    (
        "completion tcsh",
        "for \"SHELL\": it must be one of bash, zsh, fish, powershell",
    ),
    ("completion zhs", "did you mean `zsh`?"),
    ("results --format htm x", "did you mean `html`?"),
    ("delete --al", "did you mean `--all`?"),
    ("retrieve --forse", "did you mean `--force`?"),
    ("run --rbac enabled", "did you mean `Enable`?"),
    ("plugin remove x", "did you mean `plugin uninstall`?"),
    (
        "plugin install x.yaml",
        "as in `plugin install disk disk.yaml`",
    ),
    (
        "gen plugin",
        "or `--example shell` for one that works as it is",
    ),
    (
        "results diff a",
        "write the earlier archive and the later one",
    ),
    (
        "run --context prod",
        "there is no kubeconfig that could have it; name one with `--kubeconfig`",
    ),
    (
        "frobnicate",
        "unknown command \"frobnicate\" for \"sonobuoy\"",
    ),
    (
        "results --open",
        "`results latest` takes the newest in this folder",
    ),
    ("results --json", "did you mean `--format=json`?"),
    ("results --html latest", "did you mean `--format=html`?"),
    ("results --web latest", "did you mean `--open`?"),
    ("results --yaml latest", "did you mean `--format=yaml`?"),
    ("results latest --junit", "did you mean `--format=junit`?"),
    (
        "results latest --markdown",
        "did you mean `--format=markdown`?",
    ),
    ("results latest -q", "did you mean `--level=error`?"),
    ("results latest --no-color", "did you mean `--color=never`?"),
    ("results latest --colour always", "did you mean `--color`?"),
    (
        "results http://host.invalid/a.tar.gz",
        "`curl -L http://host.invalid/a.tar.gz | sonobuoy results -` reads it",
    ),
    ("results latst", "did you mean `latest`?"),
    (
        "results none.tar.gz",
        "could not process archive: none.tar.gz: stat none.tar.gz: no such file or directory",
    ),
    ("results latest", "`sonobuoy retrieve` fetches one"),
    (
        "results -n sonobuoy",
        "`results latest` takes the newest in this folder",
    ),
    (
        "results --format pdf latest",
        "it must be one of text, json, yaml, junit, html, markdown, csv, openmetrics",
    ),
    ("results --mode detail latest", "did you mean `detailed`?"),
    (
        "results --fail-on error latest",
        "for \"--fail-on\": it must be one of failed, unknown, incomplete, flaky, never",
    ),
    (
        "results --live --from-cluster",
        "--live and --from-cluster cannot be used together; leave one out",
    ),
    ("results .", "`sonobuoy retrieve` fetches one"),
    (
        "results /dev/null",
        "`-` reads an archive from standard input",
    ),
    (
        "status -a",
        "unknown shorthand flag: -a; did you mean `-A`?",
    ),
    (
        "status --all-namespaces -n x",
        "--all-namespaces and --namespace cannot be used together; leave one out",
    ),
    ("status -q", "did you mean `--level=error`?"),
    (
        "status --no-color",
        "`NO_COLOR=1` in the environment turns colours off",
    ),
    ("status --follow", "did you mean `--watch`?"),
    ("status x", "a namespace is named by `-n x`"),
    ("status --namespaces x", "did you mean `--namespace`?"),
    ("status -n", "flag needs an argument: --namespace"),
    (
        "status -o table",
        "\"--output\": it must be one of json, yaml, wide, name, markdown, plain, board",
    ),
    ("run -q", "did you mean `--level=error`?"),
    ("run --quiet", "did you mean `--level=error`?"),
    ("run -A", "unknown shorthand flag: -A"),
    ("run hello", "did you mean `-p hello`?"),
    ("run quick", "did you mean `--mode quick`?"),
    (
        "run certified-conformance",
        "did you mean `--mode certified-conformance`?",
    ),
    ("run all", "\"sonobuoy run\" takes no argument \"all\""),
    (
        "run -p -",
        "plugin definition `standard input`, line 1, column 1: there is no plugin definition",
    ),
    (
        "run -p none.yaml",
        "`none.yaml`: no installed plugin, built-in plugin, file or folder has this name",
    ),
    ("run -p helo", "did you mean `hello`?"),
    (
        "run -p hello@x",
        "save `sonobuoy gen plugin hello` to a file and rename that",
    ),
    (
        "run -p /dev/null",
        "plugin definition `/dev/null`, line 1, column 1: there is no plugin definition",
    ),
    (
        "run -f https://host.invalid/m.yaml",
        "it is a URL, and this has to be a file; download it first",
    ),
    (
        "run -f none.yaml",
        "cannot read `none.yaml`: No such file or directory",
    ),
    ("run -f -", "`standard input`: it contains no objects"),
    (
        "run --config https://host.invalid/c.json",
        "it is a URL, and this has to be a file; download it first",
    ),
    (
        "run --config none",
        "cannot read `none`: No such file or directory",
    ),
    (
        "run --rerun-failed https://host.invalid/a.tar.gz",
        "`curl -L https://host.invalid/a.tar.gz | sonobuoy results -` reads it",
    ),
    (
        "run --rerun-failed latest",
        "`sonobuoy retrieve` fetches one",
    ),
    ("run --resume latest", "`sonobuoy retrieve` fetches one"),
    ("run --local", "name it with `-p FILE`"),
    (
        "run --local -p none.yaml",
        "`none.yaml`: no installed plugin, built-in plugin, file or folder has this name",
    ),
    (
        "run --local -p hello --wait=3s",
        "limit it with `--timeout`",
    ),
    (
        "run --dry-run=yes",
        "invalid argument \"yes\" for \"--dry-run\": it must be one of none, client, server",
    ),
    (
        "run --timeout -5",
        "--timeout is negative; 0 means no limit",
    ),
    (
        "run --timeout 1h --timeout",
        "flag needs an argument: --timeout",
    ),
    (
        "run --wait=-1",
        "argument \"-1\" for \"--wait\": write minutes, or a duration such as 90m or 1h30m",
    ),
    ("run -w", "did you mean `--wait`?"),
    (
        "run --kubernetes-version 1.30",
        "write it as v1.31.2, auto, ignore or latest",
    ),
    (
        "run --kubernetes-version v1.30",
        "a pod; set KUBECONFIG or pass `--kubeconfig`; `run --local` needs no cluster",
    ),
    (
        "run --kubernetes-version latest1",
        "write it as v1.31.2, auto, ignore or latest",
    ),
    (
        "run --plugin-env FOO=bar",
        "for \"--plugin-env\": write PLUGIN.NAME=VALUE, or PLUGIN.NAME to remove it",
    ),
    (
        "run --plugin-env p.",
        "\"p.\" for \"--plugin-env\": write PLUGIN.NAME=VALUE, or PLUGIN.NAME to remove it",
    ),
    (
        "run --plugin-image x",
        "invalid argument \"x\" for \"--plugin-image\": write PLUGIN:IMAGE",
    ),
    ("run --image x", "did you mean `--plugin-image`?"),
    ("run --env A=b", "did you mean `--plugin-env`?"),
    ("run --focus x", "did you mean `--e2e-focus`?"),
    ("run --mode", "flag needs an argument: --mode"),
    (
        "run --mode all",
        "of certified-conformance, conformance-lite, non-disruptive-conformance, quick",
    ),
    (
        "run --namespace Abc",
        "name: use at most 63 lowercase letters, digits and `-`, not at the ends",
    ),
    (
        "run --kubeconfig none",
        "cannot ask the cluster for its version: kubeconfig `none`: No such file or directory",
    ),
    (
        "run --kubeconfig https://host.invalid/k",
        "it is a URL, and this has to be a file; download it first",
    ),
    ("run --context none", "name one with `--kubeconfig`"),
    ("run --as", "flag needs an argument: --as"),
    (
        "run --level loud",
        "it must be one of trace, debug, info, warn, warning, error, fatal, panic",
    ),
    ("run --level", "flag needs an argument: --level"),
    (
        "run --junit /none/x.xml --kubeconfig none",
        "cannot write `/none/x.xml`, which --junit names: `/none`: No such file or directory",
    ),
    (
        "run --html /none/x.html --kubeconfig none",
        "cannot write `/none/x.html`, which --html names: `/none`: No such file or directory",
    ),
    ("run --keep 0", "write a number, at least 1"),
    (
        "run --min-success 101%",
        "invalid argument \"101%\" for \"--min-success\": write a share from 1% to 100%",
    ),
    (
        "run --fail-on error",
        "for \"--fail-on\": it must be one of failed, unknown, incomplete, flaky, never",
    ),
    (
        "run --split 1",
        "invalid argument \"1\" for \"--split\": write a number from 2 to 20",
    ),
    (
        "run --retry-failed 99",
        "invalid argument \"99\" for \"--retry-failed\": write a number from 0 to 10",
    ),
    (
        "run --output yaml",
        "invalid argument \"yaml\" for \"--output\": it must be one of plain, board, json",
    ),
    ("run --nodes", "flag needs an argument: --nodes"),
    ("run --sample 0", "write a number, at least 1"),
    (
        "run --wait --no-color",
        "`NO_COLOR=1` in the environment turns colours off",
    ),
    (
        "wait --wait=0x",
        "argument \"0x\" for \"--wait\": write minutes, or a duration such as 90m or 1h30m",
    ),
    ("wait x", "a namespace is named by `-n x`"),
    ("retrieve -f", "flag needs an argument: --filename"),
    (
        "retrieve --partial -x y z",
        "\"sonobuoy retrieve\" takes no argument \"z\"",
    ),
    ("logs -p", "flag needs an argument: --plugin"),
    ("logs --tail x", "write a number, at least 0"),
    (
        "logs --since yesterday",
        "\"yesterday\" for \"--since\": write seconds, or a duration such as 90m or 1h30m",
    ),
    ("logs -f -q", "did you mean `--level=error`?"),
    ("logs --lines 5", "did you mean `--tail`?"),
    ("delete all", "did you mean `--all`?"),
    ("delete x", "a namespace is named by `-n x`"),
    (
        "plugin check",
        "name a definition, as in `plugin check disk.yaml`",
    ),
    (
        "plugin check none.yaml",
        "`none.yaml`: no installed plugin, built-in plugin, file or folder has this name",
    ),
    (
        "plugin check -",
        "plugin definition `standard input`, line 1, column 1: there is no plugin definition",
    ),
    ("plugin lint x", "did you mean `plugin check`?"),
    ("plugin validate x", "did you mean `plugin check`?"),
    ("plugin test x", "did you mean `run --local -p`?"),
    (
        "plugin new perl",
        "invalid argument \"perl\" for \"LANGUAGE\": it must be one of shell, python, go, rust",
    ),
    ("plugin new --lang go", "unknown flag: --lang"),
    ("plugin init", "did you mean `plugin new`?"),
    ("plugin create x", "did you mean `plugin new`?"),
    ("plugin ls", "did you mean `plugin list`?"),
    ("plugin show", "`plugin list` lists the plugins"),
    (
        "plugin uninstall hello",
        "the plugin `hello` is built in, so it cannot be removed",
    ),
    ("plugin uninstall", "`plugin list` lists the plugins"),
    (
        "plugin install x",
        "write a name and where the definition is, as in `plugin install disk disk.yaml`",
    ),
    (
        "plugin install x none.yaml",
        "cannot read `none.yaml`: No such file or directory",
    ),
    (
        "plugin install a/b x.yaml",
        "cannot read `x.yaml`: No such file or directory",
    ),
    ("plugin get x", "did you mean `plugin show`?"),
    ("gen plugin helo", "did you mean `gen plugin hello`?"),
    (
        "gen plugin --example java",
        "invalid argument \"java\" for \"--example\": it must be one of shell, python, go, rust",
    ),
    (
        "gen config x",
        "\"sonobuoy gen config\" takes no argument \"x\"",
    ),
    (
        "gen --config none",
        "cannot read `none`: No such file or directory",
    ),
    ("doctor -q", "did you mean `--level=error`?"),
    ("doctor x", "\"sonobuoy doctor\" takes no argument \"x\""),
    ("gather x", "unknown command \"x\" for \"sonobuoy gather\""),
    ("schema", "`schema plugin` is that of definitions"),
    (
        "schema x",
        "invalid argument \"x\" for \"NAME\": it must be one of plugin, config",
    ),
    ("version x", "\"sonobuoy version\" takes no argument \"x\""),
    ("help reslts", "did you mean `results`?"),
    ("help run x", "no help for \"x\": unknown command"),
    ("-q", "did you mean `--level=error`?"),
    ("-A", "unknown shorthand flag: -A"),
    (
        "--no-color",
        "`NO_COLOR=1` in the environment turns colours off",
    ),
    ("--json", "unknown flag: --json"),
    ("ps", "did you mean `status --all-namespaces`?"),
    ("show", "did you mean `results` or `plugin show`?"),
    ("open", "did you mean `results --open`?"),
    ("compare", "did you mean `results diff`?"),
    ("rerun", "did you mean `run --rerun-failed`?"),
    ("resume", "did you mean `run --resume`?"),
    ("check", "did you mean `doctor` or `plugin check`?"),
    ("lint", "did you mean `plugin check`?"),
    ("new", "did you mean `plugin new`?"),
    ("init", "did you mean `plugin new`?"),
    ("down", "did you mean `delete`?"),
    ("kill", "did you mean `delete`?"),
    ("tail", "did you mean `logs --follow`?"),
    ("events", "did you mean `status --watch`?"),
    ("info", "did you mean `version`?"),
    ("man", "did you mean `help`?"),
    ("réseau", "unknown command \"réseau\" for \"sonobuoy\""),
    (
        "results dangling.tar.gz",
        "dangling.tar.gz: no such file or directory",
    ),
    ("status -f", "did you mean `--watch`?"),
    ("run --wait 2h", "did you mean `--wait=2h`?"),
    ("run --output-dir x", "did you mean `--retrieve`?"),
    (
        "run -p dangling.yaml",
        "it is a link to a file that does not exist",
    ),
    (
        "run -p archive.tar.gz",
        "it is a compressed file and not text",
    ),
    ("run -p latin.yaml", "it is not text: byte 3 is not UTF-8"),
    ("retrieve -o x", "did you mean `--filename`?"),
    ("retrieve --output x", "did you mean `--filename`?"),
    ("delete -y", "nothing is asked, so leave it out"),
    ("delete --yes", "nothing is asked, so leave it out"),
    ("delete --force", "nothing is asked, so leave it out"),
    ("delete", "KUBECONFIG or pass `--kubeconfig`"),
    ("e2e", "KUBECONFIG or pass `--kubeconfig`"),
    ("plugin list x", "did you mean `plugin show x`?"),
    (
        "verify none",
        "cannot read `none`: No such file or directory",
    ),
    (
        "verify https://host.invalid/a",
        "it is a URL, and this has to be a file; download it first",
    ),
    (
        "certify",
        "`certify latest` takes the newest in this folder",
    ),
    ("version -s", "did you mean `--short`?"),
    ("export", "did you mean `results --format json`?"),
];

/// Command lines in the way of other programs, and the first line of what they print.
const UNDERSTOOD: &[(&str, &str)] = &[
    ("run help", "Run plugins, in a cluster or on this machine"),
    ("help run", "Run plugins, in a cluster or on this machine"),
    ("results help", "Report on an archive"),
    (
        "plugin new help",
        "Print a plugin that works as it is, to begin with",
    ),
    ("help help", "Print the help of a command"),
    (
        "run --help --none",
        "Run plugins, in a cluster or on this machine",
    ),
    ("plugin", "Write, check and install plugins"),
    ("plugins list -o name", "e2e"),
    ("plugin show hello", "sonobuoy-config:"),
    ("gen plugin hello", "sonobuoy-config:"),
    ("gen plugin network", "podSpec:"),
    (
        "plugin check hello",
        "hello: plugin `hello` is valid: driver Job, result-format manual",
    ),
    ("-V", concat!("sonobuoy v", env!("CARGO_PKG_VERSION"))),
    ("version --short", concat!("v", env!("CARGO_PKG_VERSION"))),
];

#[test]
fn words_of_other_programs_are_understood() {
    for (line, first) in UNDERSTOOD {
        let done = Sonobuoy::new(line).run_any();
        assert_eq!(
            done.stdout.lines().next(),
            Some(*first),
            "`sonobuoy {line}`"
        );
    }
}

#[test]
fn mistakes_are_answered_with_suggestions() {
    for (line, ending) in MISTAKES {
        let call = Sonobuoy::new(line)
            .file("archive.tar.gz", b"\x1f\x8b\x08\x00")
            .file("latin.yaml", b"a: \xe4\n");
        symlink("nowhere", call.folder().join("dangling.yaml"));
        let done = call.status(1).stdout("").run_any();
        let answer = done.stderr.lines().next().unwrap_or_default();
        // Some are found before the command is known whose usage could be printed.
        let answer = answer.trim_end_matches('"');
        assert!(
            answer.ends_with(ending.trim_end_matches('"')),
            "`sonobuoy {line}`: {}",
            done.stderr
        );
        assert!(
            !done.stderr.contains("splat"),
            "what is hidden is not suggested: {}",
            done.stderr
        );
    }
}

#[test]
fn files_of_another_kind_are_identified() {
    let definition =
        "sonobuoy-config: {driver: Job, plugin-name: p}\nspec: {name: plugin, image: i:1}\n";
    let first = |words: &str, name: &str, content: &str| {
        Sonobuoy::new(words)
            .file(name, content)
            .status(1)
            .stdout("")
            .run_any()
            .stderr
    };
    for (words, content, expected) in [
        (
            "run -f p.yaml",
            definition,
            "`p.yaml` is a plugin definition and not a manifest; run it with `-p p.yaml`",
        ),
        (
            "gen config --config p.yaml",
            "a: b",
            "configuration `p.yaml` is not JSON; `sonobuoy gen config` prints an example",
        ),
        (
            "run -p p.yaml",
            "sonobuoy-config: {driver: Job, plugin_name: p}\nspec: {name: plugin}\n",
            "unknown key `plugin_name` in `sonobuoy-config`; did you mean `plugin-name`?",
        ),
    ] {
        let answer = first(words, "p.yaml", content);
        assert!(
            answer.contains(expected) && answer.lines().count() == 1,
            "{words}: {answer}"
        );
    }
    let empty = Sonobuoy::new("run -p").arg("").status(1).run_any().stderr;
    assert!(
        empty.contains("`-p` is empty: is a variable unset?"),
        "{empty}"
    );
}

#[test]
fn usage_is_printed_for_invalid_command_lines_only() {
    for words in [
        "plugin show none",
        "e2e --input none",
        "run --rerun-failed none",
        "run --resume none",
    ] {
        let done = Sonobuoy::new(words).status(1).run_any();
        assert!(
            !done.stderr.contains("Usage:") && done.stderr.lines().count() == 1,
            "{words}: {}",
            done.stderr
        );
        assert!(
            done.stderr.contains("level=error") && !done.stderr.contains("os error"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn help_lists_flags_and_examples() {
    let help = |words: &str| {
        Sonobuoy::new(words)
            .arg("--help")
            .stdout_has("Usage:")
            .run()
            .stdout
    };
    let wait = help("wait");
    for (flag, is_shown) in [
        ("--wait", true),
        ("--retrieve", true),
        ("--kubeconfig", true),
        ("--e2e-focus", false),
        ("--plugin", false),
    ] {
        assert_eq!(
            wait.contains(&format!("{flag} ")) || wait.contains(&format!("{flag}[")),
            is_shown,
            "{flag}: {wait}"
        );
    }
    // The others are accepted, as in the original.
    Sonobuoy::new("wait --e2e-focus x --kubeconfig none")
        .status(1)
        .stderr_has("kubeconfig `none`: No such file or directory")
        .run();
    assert!(help("run").contains(
        "Examples:\n  Try a plugin on this machine:\n    sonobuoy run --local -p disk.yaml"
    ));
    for (words, argument) in [
        ("plugin install", "<SAVE-AS>"),
        ("plugin install", "<SOURCE>"),
        ("results diff", "<BEFORE>"),
        ("results diff", "<AFTER>"),
    ] {
        let help = help(words);
        let line = help
            .lines()
            .find(|line| line.trim().starts_with(argument))
            .unwrap_or_default();
        assert!(line.split_whitespace().count() > 2, "{argument}: {help}");
    }
}

#[test]
fn version_has_several_spellings() {
    for line in ["--version", "-V"] {
        Sonobuoy::new(line)
            .stdout(&format!("sonobuoy v{}\n", env!("CARGO_PKG_VERSION")))
            .run_any();
    }
}

#[test]
fn timeouts_are_seconds_or_durations() {
    for (flag, expected) in [
        ("--timeout=3600", 3600),
        ("--timeout=1h", 3600),
        ("--timeout=90m", 5400),
        ("--timeout=1h30m", 5400),
        ("--timeout=0", 0),
        ("--timeout=1500ms", 2),
    ] {
        let done = Sonobuoy::new("gen config").arg(flag).run_any();
        assert!(
            done.stdout
                .contains(&format!("\"timeoutseconds\":{expected}")),
            "{flag}: {}",
            done.stdout
        );
    }
    Sonobuoy::new("gen config --wait=1h").run_any();
}

#[test]
fn ineffective_flags_are_reported() {
    let definition = concat!(env!("CARGO_MANIFEST_DIR"), "/plugins.d/hello.yaml");
    let local = |words: &str| Sonobuoy::new(&format!("run --local {words} -p")).arg(definition);
    let archives = |folder: &Folder| {
        folder
            .names()
            .into_iter()
            .filter(|name| name.ends_with(".tar.gz"))
            .count()
    };
    for (words, named) in [
        (
            "--kubeconfig x --delete",
            "--kubeconfig and --delete would do nothing",
        ),
        ("--mode quick", "--mode would do nothing"),
        ("--dry-run", "--dry-run would do nothing"),
        ("--nodes a", "--nodes would do nothing"),
        ("--max-parallel 2", "--max-parallel would do nothing"),
        ("--parallel 2", "--parallel would do nothing"),
        ("--load", "--load would do nothing"),
        ("--harden off", "--harden would do nothing"),
    ] {
        let refused = local(words).status(1).stderr_has(named).run_any();
        assert_eq!(archives(&refused.folder), 0, "{words} ran the plugin");
    }
    let done =
        local("--timeout 1h --wait --dry-run=none --delete=false --keep 2 --retrieve .").run_any();
    assert_eq!(archives(&done.folder), 1);
    Sonobuoy::new("run --local-nodes 3 --kubeconfig none")
        .status(1)
        .stderr_has("does nothing without --local")
        .run_any();
    Sonobuoy::new("run --output json --kubeconfig none")
        .status(1)
        .stderr_has("nothing is waited for without --wait: --output does nothing")
        .run_any();
}

#[test]
fn empty_files_are_called_empty() {
    let run = Sonobuoy::new("results a.tar.gz")
        .file("a.tar.gz", "")
        .status(1);
    run.stderr_has("a.tar.gz: the file is empty").run_any();
    let run = Sonobuoy::new("status --kubeconfig kube")
        .file("kube", "apiVersion: v1\nkind: Config\n")
        .status(1);
    run.stderr_has("kubeconfig `kube` has no clusters, contexts and users")
        .run_any();
}

#[test]
fn version_independent_plugin_needs_no_cluster() {
    let definition = concat!(env!("CARGO_MANIFEST_DIR"), "/plugins.d/hello.yaml");
    let done = Sonobuoy::new("gen --rbac Enable -p")
        .arg(definition)
        .stderr_has("plugins do not receive the cluster's version")
        .run_any();
    assert!(
        done.stdout.contains("plugin-name: hello"),
        "{}",
        done.stdout
    );
    Sonobuoy::new("gen --rbac Enable -p e2e")
        .status(1)
        .stderr_has("--kubernetes-version")
        .run_any();
}

#[test]
fn examples_run_unchanged() {
    for (language, needs) in [
        ("shell", "sh"),
        ("python", "python3"),
        ("go", "go"),
        ("rust", "rustc"),
    ] {
        if crate::support::program(needs).is_none() {
            continue;
        }
        let definition = Sonobuoy::new(&format!("gen plugin --example {language} --name mine"))
            .run_any()
            .stdout;
        let mut run = Sonobuoy::new("run --local --fail-on incomplete -p plugin.yaml")
            .file("plugin.yaml", definition);
        // Compilers keep their caches, and rustup its own.
        for variable in ["HOME", "RUSTUP_HOME", "CARGO_HOME", "GOCACHE"] {
            if let Some(value) = std::env::var_os(variable) {
                run = run.env(variable, value);
            }
        }
        run.stdout_has("Plugin: mine\nStatus: passed").run_any();
    }
    Sonobuoy::new("gen plugin --example python --format gojson")
        .status(1)
        .stderr_has("--example and --format cannot be used together")
        .run_any();
    Sonobuoy::new("gen plugin --example perl")
        .status(1)
        .stderr_has("it must be one of shell, python, go, rust")
        .run_any();
    Sonobuoy::new("gen plugin --name x")
        .status(1)
        .stderr_has("missing: --image")
        .run_any();
}
