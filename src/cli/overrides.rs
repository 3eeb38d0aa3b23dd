//! The flags that override a field of the run's configuration, one row each.
//!
//! Their defaults are defined only in the configuration, where help takes them from. The flags themselves have no
//! defaults, which would hide the values of a configuration file.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};

use super::mistake;
use crate::config::{Identity, MAX_ATTEMPTS, Run};
use base::near;

/// A field set by a flag.
enum Field<'r> {
    Text(&'r mut String),
    Flag(&'r mut bool),
    Seconds(&'r mut i64),
    Attempts(&'r mut i64),
    Identity(&'r mut Identity),
}

use Field::{Attempts, Flag, Seconds, Text};

/// Returns the field of a flag.
type Find = for<'r> fn(&'r mut Run) -> Field<'r>;

/// Each flag and its field.
const ROWS: &[(&str, Find)] = &[
    ("namespace", |run| Text(&mut run.namespace)),
    ("sonobuoy-image", |run| Text(&mut run.worker_image)),
    ("image-pull-policy", |run| Text(&mut run.image_pull_policy)),
    ("force-image-pull-policy", |run| Flag(&mut run.force_image_pull_policy)),
    ("image-pull-secret", |run| Text(&mut run.image_pull_secrets)),
    ("timeout", |run| Seconds(&mut run.server.timeout_seconds)),
    ("aggregator-permissions", |run| Text(&mut run.aggregator_permissions)),
    ("security-context-mode", |run| Text(&mut run.security_context_mode)),
    ("service-account-name", |run| Text(&mut run.service_account_name)),
    ("existing-service-account", |run| Flag(&mut run.existing_service_account)),
    ("namespace-psa-enforce-level", |run| Text(&mut run.namespace_psa_enforce_level)),
    ("e2e-docker-config-file", |run| Text(&mut run.e2e_docker_config_file)),
    ("retry-failed", |run| Attempts(&mut run.retry_failed)),
    ("identity", |run| Field::Identity(&mut run.identity)),
];

impl Field<'_> {
    fn shown(&self) -> String {
        match self {
            Text(text) => (*text).clone(),
            Flag(flag) => flag.to_string(),
            Seconds(seconds) => seconds.to_string(),
            Attempts(number) => {
                Some(**number).filter(|number| *number != 0).map_or(String::new(), |n| n.to_string())
            }
            Self::Identity(identity) => identity.word().into(),
        }
    }

    fn set(&mut self, id: &str, matches: &ArgMatches) -> anyhow::Result<()> {
        let text = || matches.get_one::<String>(id).filter(|value| !value.is_empty());
        match self {
            Text(field) => text().into_iter().for_each(|value| value.clone_into(field)),
            Flag(field) => **field = matches.get_flag(id),
            Seconds(field) => {
                **field = matches.get_one(id).copied().unwrap_or_default();
                if **field < 0 {
                    return Err(mistake::error(format!("--{id} is negative; 0 means no limit")));
                }
            }
            Attempts(field) => {
                **field = matches.get_one(id).copied().unwrap_or_default();
                if !(0..=MAX_ATTEMPTS).contains(*field) {
                    return Err(mistake::error(format!("--{id} takes a number from 0 to {MAX_ATTEMPTS}")));
                }
            }
            Self::Identity(field) => {
                **field = text().and_then(|word| Identity::parse(word)).unwrap_or_default();
            }
        }
        Ok(())
    }
}

fn is_given(id: &str, matches: &ArgMatches) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// Sets the fields of the flags in use.
pub(super) fn apply(matches: &ArgMatches, run: &mut Run) -> anyhow::Result<()> {
    let mut rows = ROWS.iter().filter(|(id, _)| is_given(id, matches));
    rows.try_for_each(|(id, field)| field(run).set(id, matches))
}

/// Rejects values that the cluster would reject halfway through creating the run; warns of unknown words, since
/// Kubernetes or the aggregator may know them.
pub(super) fn check(run: &Run, creates: bool) -> anyhow::Result<()> {
    for (name, value, known) in [
        ("image-pull-policy", &run.image_pull_policy, &["Always", "IfNotPresent", "Never", ""][..]),
        ("security-context-mode", &run.security_context_mode, &["nonroot", "none", ""]),
    ] {
        if known.contains(&value.as_str()) {
            continue;
        }
        let words = known[..known.len() - 1].join(", ");
        let hint = near::hint(value, known.iter().copied());
        // Kubernetes would reject the pod with half of the run created; `gen` prints what the original prints.
        if name == "image-pull-policy" && creates {
            return Err(mistake::error(format!(
                "invalid argument {value:?} for \"--{name}\": it must be one of {words}{hint}"
            )));
        }
        log::warn!("--{name} `{value}` is not one of {words}{hint}");
    }
    if creates && !is_label(&run.namespace) {
        return Err(mistake::error(format!(
            "`-n {}` is not a valid namespace name: use at most 63 lowercase letters, digits and `-`, not at the ends",
            run.namespace
        )));
    }
    Ok(())
}

/// Whether a name is a DNS label, as required for namespaces.
fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Adds the default to the help of a flag of this table, if worth mentioning.
pub(super) fn with_default(arg: Arg) -> Arg {
    let row = ROWS.iter().find(|(id, _)| arg.get_id() == id);
    let default = row.map(|(_, field)| field(&mut Run::default()).shown()).unwrap_or_default();
    let telling = !["", "false"].contains(&default.as_str()) && arg.get_id() != "sonobuoy-image";
    match arg.get_help().filter(|_| telling).map(|help| format!("{help} [default: {default}]")) {
        Some(help) => arg.help(help),
        None => arg,
    }
}

/// Rejects flags before `--config` that its file appears to override. Flags without effect are allowed.
pub(super) fn follow_config(matches: &ArgMatches) -> anyhow::Result<()> {
    if !is_given("config", matches) {
        return Ok(());
    }
    let Some(config) = matches.indices_of("config").and_then(Iterator::max) else { return Ok(()) };
    for (id, field) in ROWS.iter().filter(|(id, _)| is_given(id, matches)) {
        let default = field(&mut Run::default()).shown();
        let changed = matches.get_raw(id).and_then(Iterator::last).is_some_and(|value| *value != *default);
        if changed && matches.indices_of(id).and_then(Iterator::min).is_some_and(|index| index < config) {
            return Err(mistake::error(format!(
                "--config comes after --{id}, which overrides it; write --config before the other flags"
            )));
        }
    }
    Ok(())
}
