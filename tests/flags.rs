//! Flags: every flag of the original is accepted where the original accepts it, in every spelling.

use serde_json::Value;

use crate::support::{Sonobuoy, fixture_text};

fn inventory() -> Vec<(Vec<String>, Vec<Value>)> {
    let all: Value = serde_json::from_str(&fixture_text("cli-flags.json")).unwrap();
    let commands = all["commands"].as_object().unwrap();
    assert!(commands.len() > 30, "the inventory is whole");
    commands
        .iter()
        .map(|(name, command)| {
            let words = name.split(' ').skip(1).map(str::to_owned).collect();
            (words, command["flags"].as_array().unwrap().clone())
        })
        .collect()
}

/// A valid value of the flag.
fn value(flag: &Value) -> Option<&str> {
    Some(match flag["type"].as_str().unwrap_or_default() {
        "bool" => return None,
        "int" => "7",
        "level" => "debug",
        "RBACMode" => "dISABLE",
        "Mode" => "Quick",
        "pluginDriver" => "daemonset",
        _ if flag["name"]
            .as_str()
            .unwrap_or_default()
            .ends_with("version") =>
        {
            "v1.30"
        }
        _ if flag["name"] == "wait-output" => "silent",
        _ if flag["name"] == "mode" => "detailed",
        _ => "-value, with=all:kinds.of [signs]",
    })
}

/// With `--help` a line is parsed up to that word and no command runs.
fn accepted(words: &[String], flags: Vec<String>) {
    Sonobuoy::with(words.iter().chain(&flags))
        .arg("--help")
        .stdout_has("Usage:")
        .run();
}

#[test]
fn flags_of_the_original_are_accepted_with_and_without_equals() {
    for (words, flags) in inventory() {
        let (mut joined, mut apart, mut short) = (Vec::new(), Vec::new(), Vec::new());
        for flag in &flags {
            let name = flag["name"].as_str().unwrap();
            match value(flag) {
                Some(value) => {
                    joined.push(format!("--{name}={value}"));
                    if flag["value_when_bare"].is_null() {
                        apart.extend([format!("--{name}"), value.to_owned()]);
                    } else {
                        apart.push(format!("--{name}"));
                    }
                    if let Some(letter) = flag["short"].as_str() {
                        short.extend([
                            format!("-{letter}{}", value.trim_start_matches('-')),
                            format!("-{letter}={value}"),
                        ]);
                        short.extend([format!("-{letter}"), value.to_owned()]);
                    }
                }
                None => {
                    joined.extend([format!("--{name}=true"), format!("--{name}=F")]);
                    apart.push(format!("--{name}"));
                    short.extend(flag["short"].as_str().map(|letter| format!("-{letter}")));
                }
            }
        }
        accepted(&words, joined);
        accepted(&words, apart);
        accepted(&words, short);
    }
}

#[test]
fn flags_of_other_commands_are_rejected_even_with_help() {
    for line in [
        "version --focus=x --help",
        "status --extract --help",
        "modes -p x --help",
    ] {
        Sonobuoy::new(line)
            .status(1)
            .stderr_has("unknown")
            .stdout("")
            .run();
    }
}

#[test]
fn go_logging_flags_are_accepted_and_ignored() {
    for flags in [
        "-v=4 --alsologtostderr",
        "-v=6 --logtostderr",
        "-v 5",
        "-v5 --logtostderr=true --log_dir=/x --log_file y --log_file_max_size=1 --add_dir_header --skip_headers \
         --skip_log_headers=false --stderrthreshold=2 --vmodule=a=1 --log_backtrace_at=x:1",
    ] {
        Sonobuoy::new(&format!("version --short {flags}"))
            .stdout_has("v")
            .run();
        Sonobuoy::new(&format!("{flags} version --short"))
            .stdout_has("v")
            .run();
    }
    Sonobuoy::new("aggregator --no-exit --level=info -v=4 --alsologtostderr --help")
        .stdout_has("Usage")
        .run();
    Sonobuoy::new("worker global -v=6 --logtostderr --help")
        .stdout_has("Usage")
        .run();
}

#[test]
fn log_levels_ignore_case_and_reject_other_words() {
    for level in [
        "panic", "fatal", "error", "warn", "warning", "INFO", "debug", "trace",
    ] {
        Sonobuoy::new(&format!("--level {level} version --short"))
            .stdout_has("v")
            .run();
        Sonobuoy::new(&format!("version --short --level={level}"))
            .stdout_has("v")
            .run();
    }
    Sonobuoy::new("version --level=loud")
        .status(1)
        .stderr_has("invalid argument \"loud\" for \"--level\"")
        .run();
    Sonobuoy::new("version --short -d")
        .stdout_has("v")
        .stderr_has("level=warning msg=\"--debug")
        .run();
}

#[test]
fn command_aliases_work() {
    for line in [
        "plugins list -h",
        "get pods -h",
        "worker job -h",
        "worker daemonset --sleep=-1 -h",
        "images bundle -h",
    ] {
        Sonobuoy::new(line).stdout_has("Usage:").run();
    }
}

#[test]
fn flags_may_precede_the_command() {
    Sonobuoy::new("--short version").stdout_has("v0").run();
    Sonobuoy::new("--verbose modes")
        .stdout_has("Mode: quick")
        .run();
    // The value of a flag is not mistaken for a command.
    Sonobuoy::new("-n version gen plugin -h")
        .stdout_has("sonobuoy gen plugin")
        .run();
    Sonobuoy::new("--level error help run")
        .stdout_has("sonobuoy run")
        .run();
}

#[test]
fn conflicting_flags_are_rejected_before_the_run() {
    let check = |line: &str, message: &str| {
        Sonobuoy::new(line)
            .status(1)
            .stdout("")
            .stderr_has(&format!("Error: {message}"))
            .run();
    };
    for command in ["run", "gen", "gen config", "gen plugin e2e", "wait"] {
        check(
            &format!("{command} --mode quick --e2e-focus x"),
            "--mode and --e2e-focus cannot be used together",
        );
        check(
            &format!("{command} -m quick --e2e-skip="),
            "--mode and --e2e-skip cannot be used together",
        );
    }
    check(
        "run --rerun-failed x --e2e-focus=x",
        "--rerun-failed and --e2e-focus cannot be used together",
    );
    check(
        "run --rerun-failed x --e2e-skip=x",
        "--rerun-failed and --e2e-skip cannot be used together",
    );
    check(
        "run --rerun-failed x -m quick",
        "--rerun-failed and --mode cannot be used together",
    );
    check(
        "gen --e2e-repo x --e2e-repo-config y",
        "--e2e-repo and --e2e-repo-config cannot be used together",
    );
    check(
        "gen --e2e-docker-config-file x --kubernetes-version v1.26.9",
        "--e2e-docker-config-file needs Kubernetes 1.27",
    );
    check(
        "gen --timeout 5 --config x",
        "--config comes after --timeout",
    );
    check(
        "run -n other --config x",
        "--config comes after --namespace",
    );
}

#[test]
fn invalid_values_are_named_with_valid_ones() {
    let check = |line: &str, message: &str| {
        Sonobuoy::new(line)
            .status(1)
            .stdout("")
            .stderr_has(message)
            .run();
    };
    check(
        "run --mode fast",
        "it must be one of certified-conformance, conformance-lite, non-disruptive-conformance, quick",
    );
    check(
        "run --wait=soon",
        "invalid argument \"soon\" for \"--wait\": write minutes, or a duration",
    );
    check("run --wait 60", "did you mean `--wait=60`?");
    check(
        "query --redact x --no-redact",
        "Error: --redact and --no-redact cannot be used together; leave one out",
    );
    check("results one two", "could not process archive: one: ");
    check(
        "results one --mode detail",
        "it must be one of summary, report, detailed, dump, readable",
    );
    check(
        "run --rbac maybe",
        "it must be one of Enable, Disable, Detect",
    );
    check(
        "run --redact x -f y",
        "Error: --redact and --file cannot be used together; leave one out",
    );
    check(
        "gen --file y --no-redact",
        "--file and --no-redact cannot be used together",
    );
    check("delete --all=perhaps", "write true or false");
    check("gen --e2e-focus=(", "Error: --e2e-focus: ");
    check("gen --e2e-skip=a)b", "Error: --e2e-skip: ");
    check(
        "gen --kubernetes-version 1.31",
        "Error: --kubernetes-version: `1.31` is not a Kubernetes version",
    );
    check(
        "images list --kubernetes-version newest",
        "write it as v1.31.2, auto, ignore or latest",
    );
    check("run --mode", "flag needs an argument: --mode");
    check(
        "run --mod quick",
        "unknown flag: --mod; did you mean `--mode`?",
    );
    check("run -Z", "unknown shorthand flag: -Z");
}

#[test]
fn doctor_accepts_the_flags_of_run() {
    let after =
        "--wait=3h --retrieve . --junit a --html b --upload https://x/ --delete --fail-on failed";
    for command in ["run", "wait", "doctor"] {
        Sonobuoy::new(&format!("{command} {after} --help"))
            .stdout_has("Usage: ")
            .run();
    }
    let run = "--load=i.tar --load-with b --sample 1 --per-zone 1 --joined ignore --max-parallel 1 --dry-run --doctor --nodes a";
    for command in ["run", "doctor"] {
        Sonobuoy::new(&format!("{command} {run} --help"))
            .stdout_has("Usage: ")
            .run();
    }
    Sonobuoy::new("doctor --local")
        .status(1)
        .stderr_has("unknown flag: --local")
        .run();
}

#[test]
fn old_name_of_the_version_flag_works_and_warns() {
    Sonobuoy::new("gen --kube-conformance-image-version v1.30.0")
        .stdout_has("conformance:v1.30.0")
        .stderr_has("--kube-conformance-image-version is an old name; use --kubernetes-version")
        .run();
}
