//! Typing mistakes of new, tired users or users of other programs: each is answered once, with a
//! suggestion.

use crate::support::{Folder, Sonobuoy};

/// Arguments, and the end of the first line of the response.
const MISTAKES: &[(&str, &str)] = &[
    ("rnu", "did you mean `run`?"),
    ("RUN", "did you mean `run`?"),
    ("list", "did you mean `plugin list` or `images list`?"),
    ("install", "did you mean `plugin install`?"),
    ("statsu", "did you mean `status`?"),
    ("agent", "did you mean `worker`?"),
    ("retreive", "did you mean `retrieve`?"),
    ("result", "did you mean `results`?"),
    ("ls", "did you mean `plugin list`?"),
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
    (
        "status",
        "set KUBECONFIG or pass `--kubeconfig`; `run --local` needs no cluster",
    ),
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
    ("run --verbose", "did you mean `--level`?"),
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
];

#[test]
fn mistakes_are_answered_with_suggestions() {
    for (line, ending) in MISTAKES {
        let done = Sonobuoy::new(line).status(1).stdout("").run_any();
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
