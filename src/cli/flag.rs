//! The kinds of flags, and the flag sets that several commands share.
//!
//! Owns the syntax of a flag's value (`--x=v`, bare, lists, any case), not its meaning. Every flag's id is its long
//! name. Switches are plain here, for help, man pages and completions; [`accepting_values`] converts them for
//! parsing: scripts may write `--all=true` and `--all=false`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::names;

/// Values of `--rbac`.
const RBAC: &[&str] = &["Enable", "Disable", "Detect"];
/// Values of `--wait-output`.
const WAIT_OUTPUT: &[&str] = &["Silent", "Spinner", "Progress"];
/// Outcomes that make a successful command exit with a code other than 0.
const FAIL_ON: &[&str] = &["failed", "unknown", "incomplete", "flaky", "never"];

/// The value of a flag; `None` if absent or empty.
pub(crate) fn value<'m>(matches: &'m ArgMatches, id: &str) -> Option<&'m str> {
    matches.get_one::<String>(id).map(String::as_str).filter(|value| !value.is_empty())
}

/// A command whose repeated flags behave as in the original: the last one counts.
pub(crate) fn command(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).args_override_self(true).disable_help_subcommand(true)
}

/// A flag with one word as its value; the last use counts.
pub(crate) fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help).allow_hyphen_values(true)
}

/// A repeatable flag; each use adds one value, unsplit.
pub(crate) fn repeated(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    text(name, value, help).action(ArgAction::Append)
}

/// A repeatable flag with comma-separated values; its first use replaces the default.
pub(crate) fn list(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    repeated(name, value, help).value_delimiter(',')
}

/// A flag without a value.
pub(crate) fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
}

/// A flag with an integer. For a time, a duration such as `1h30m` is also accepted.
pub(crate) fn number(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    match value {
        "SECONDS" => text(name, value, help).value_parser(|word: &str| span(word, "seconds", 1)),
        "MINUTES" => text(name, value, help).value_parser(|word: &str| span(word, "minutes", 60)),
        _ => text(name, value, help).value_parser(whole),
    }
}

/// A flag with one of `values`, accepted in any case and read in the spelling given here.
pub(crate) fn choice(name: &'static str, values: &'static [&'static str], help: &'static str) -> Arg {
    let canonical = move |given: String| -> String {
        values.iter().find(|value| value.eq_ignore_ascii_case(&given)).map_or(given, |value| (*value).into())
    };
    text(name, "WORD", help).ignore_case(true).value_parser(PossibleValuesParser::new(values).map(canonical))
}

/// A flag whose value needs `=`, with a separate meaning without one.
pub(crate) fn bare(arg: Arg, meaning: &'static str) -> Arg {
    arg.num_args(0..=1).require_equals(true).default_missing_value(meaning)
}

/// `-n`, `--namespace`.
pub(crate) fn namespace() -> Arg {
    text("namespace", "NAME", "Namespace of the run").short('n').default_value(names::SONOBUOY)
}

/// Access to the cluster.
pub(crate) fn cluster() -> Vec<Arg> {
    let heading = "Cluster";
    vec![
        text(
            "kubeconfig",
            "FILE",
            "Kubeconfig instead of $KUBECONFIG, ~/.kube/config or the pod's service account",
        )
        .help_heading(heading),
        text("context", "NAME", "Context of the kubeconfig to use").help_heading(heading),
        text("as", "USER", "User to impersonate").help_heading(heading),
        repeated("as-group", "GROUP", "Group to impersonate").help_heading(heading),
        text("request-timeout", "DURATION", "Time limit of one request, such as 30s; 0 for none")
            .help_heading(heading),
    ]
}

/// `--rbac` with its default.
pub(crate) fn rbac(default: &'static str, help: &'static str) -> Arg {
    choice("rbac", RBAC, help).default_value(default)
}

/// `--wait` and `--wait-output`.
pub(crate) fn waiting(wait: &'static str, meaning: &'static str) -> [Arg; 2] {
    [
        bare(number("wait", "MINUTES", wait), meaning).default_value("0").hide_default_value(true),
        choice("wait-output", WAIT_OUTPUT, "What to print while waiting").default_value("Progress"),
    ]
}

/// `--output` of long-running commands.
pub(crate) fn output() -> Arg {
    choice(
        "output",
        super::shown::WORDS,
        "How to show progress: a line for each change, a board drawn in place, or events in JSON [default: board on a terminal]",
    )
}

/// Redaction flags of commands that take a snapshot.
pub(crate) fn redaction() -> [Arg; 2] {
    [
        text("redact", "FILE", "Rules (YAML) for what else to hide in the snapshot")
            .conflicts_with("no-redact"),
        switch("no-redact", "Do not hide secrets in the snapshot"),
    ]
}

/// `--color`.
pub(crate) fn color() -> Arg {
    choice("color", &["auto", "always", "never"], "Whether the report for people has colours")
        .default_value("auto")
}

/// `--fail-on` of a comparison.
pub(crate) fn fail_on_change() -> Arg {
    let words = "Exit with 3 (newly failed, flaky) or 4 (newly unknown, vanished) when something became this bad or worse";
    choice("fail-on", &["failed", "unknown", "incomplete", "vanished", "flaky", "never"], words)
        .default_value("never")
}

/// `--fail-on`.
pub(crate) fn fail_on() -> Arg {
    choice(
        "fail-on",
        FAIL_ON,
        "Exit with 3 (failed, flaky) or 4 (unknown, incomplete) when results are this bad or worse",
    )
    .default_value("never")
}

/// `--credentials` of a run's status service.
pub(crate) fn credentials() -> Arg {
    text(
        "credentials",
        "FILE",
        "File with the credentials of the run's status service; - is stdout for `run`, else stdin [default: $SONOBUOY_CREDENTIALS or /tmp/sonobuoy.json]",
    )
}

/// `--kubernetes-version`.
pub(crate) fn kubernetes_version() -> Arg {
    text(
        "kubernetes-version",
        "VERSION",
        "Kubernetes version of the images: v1.2.3; `auto` asks the cluster, `ignore` leaves it open, `latest` is the newest build",
    )
}

/// `--plugin-env`.
pub(crate) fn plugin_env() -> Arg {
    repeated("plugin-env", "PLUGIN.NAME=VALUE", "Environment variable of a plugin; an empty value removes it")
}

/// `--e2e-repo` and `--e2e-repo-config`.
pub(crate) fn repositories() -> [Arg; 2] {
    [
        text("e2e-repo", "REGISTRY", "Registry with the images of the e2e tests"),
        text("e2e-repo-config", "FILE", "File that names registries for the images of the e2e tests"),
    ]
}

/// The flags of every command, before or after its name.
pub(crate) fn global() -> Vec<Arg> {
    let ignored = |name| text(name, "VALUE", "Accepted for old scripts, ignored").hide(true);
    let ignored_switch = |name| switch(name, "Accepted for old scripts, ignored").hide(true);
    let level = Arg::new("level")
        .long("level")
        .value_name("LEVEL")
        .help("Log level")
        .ignore_case(true)
        .value_parser(PossibleValuesParser::new(base::logger::LEVELS))
        .default_value("info")
        .help_heading("Global options");
    let mut flags = vec![
        level,
        switch("debug", "The same as --level=debug").short('d').hide(true),
        // Manifests and images of the original pass these to the aggregator and the workers.
        ignored("v").short('v'),
        ignored_switch("logtostderr"),
        ignored_switch("alsologtostderr"),
        ignored("log_dir"),
        ignored("log_file"),
        ignored("log_file_max_size"),
        ignored_switch("add_dir_header"),
        ignored_switch("one_output"),
        ignored_switch("skip_headers"),
        ignored_switch("skip_log_headers"),
        ignored("stderrthreshold"),
        ignored("vmodule"),
        ignored("log_backtrace_at"),
    ];
    for flag in &mut flags {
        *flag = std::mem::take(flag).global(true);
    }
    flags
}

/// The command and all its subcommands, with switches that also accept `=true` and `=false`.
pub(crate) fn accepting_values(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_action() {
            ArgAction::SetTrue => bare(arg.action(ArgAction::Set), "true")
                .value_name("BOOL")
                .default_value("false")
                .value_parser(boolean),
            _ => arg,
        })
        .mut_subcommands(accepting_values)
}

fn whole(word: &str) -> Result<i64, &'static str> {
    word.parse().map_err(|_| "write a whole number")
}

/// A time in `unit`, which has `seconds`; fractions of a unit are rounded up.
fn span(word: &str, unit: &str, seconds: u64) -> Result<i64, String> {
    let wrong = || format!("write {unit}, or a duration such as 90m or 1h30m");
    if let Ok(count) = word.parse() {
        return Ok(count);
    }
    let span = base::clock::parse_duration(word).ok_or_else(wrong)?;
    let whole = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    i64::try_from(whole.div_ceil(seconds)).map_err(|_| wrong())
}

/// Parses a bool in the spellings of the original's flag library.
fn boolean(word: &str) -> Result<bool, String> {
    match word {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".into()),
    }
}
