//! The manifest that `--file` supplies in place of a plan, and the checks before its objects are created.

use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clap::ArgMatches;
use serde_json::Value;

use super::flag::value;
use super::{request, usage};
use crate::deploy::{self, CHECKS, Preflight};
use base::small;

/// Larger than any manifest that a cluster accepts.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// The manifest of `--file`.
pub(super) fn read_given(matches: &ArgMatches) -> Result<Option<Vec<Value>>> {
    let Some(file) = value(matches, "file") else {
        return Ok(None);
    };
    if file == "-" && std::io::stdin().is_terminal() {
        bail!("`-f -` reads a manifest from standard input, and that is a terminal; pipe a manifest into it");
    }
    let objects = deploy::from_yaml(&text(file)?).with_context(|| format!("`{}`", name(file)))?;
    if objects.iter().any(|object| object.get("sonobuoy-config").is_some()) {
        bail!("`{}` is a plugin definition and not a manifest; run it with `-p {file}`", name(file));
    }
    Ok(Some(objects))
}

/// The text of a manifest; `-` is standard input.
pub(super) fn text(file: &str) -> Result<String> {
    let read = match file {
        "-" => small::read_from(std::io::stdin(), MAX_MANIFEST_BYTES),
        _ => small::read(Path::new(file), MAX_MANIFEST_BYTES),
    };
    read.and_then(small::text).with_context(|| format!("cannot read `{}`", name(file)))
}

fn name(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// The checks that `--skip-preflight` disables.
pub(super) fn skipped(matches: &ArgMatches) -> Result<Vec<String>> {
    let given = matches.get_many::<String>("skip-preflight").into_iter().flatten();
    let words: Vec<String> =
        given.map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty()).collect();
    let all = || CHECKS.iter().map(|&check| check.to_owned()).collect();
    let unknown =
        |word: &&String| !CHECKS.contains(&word.as_str()) && !["true", "false", "*"].contains(&word.as_str());
    if let Some(word) = words.iter().find(unknown) {
        return Err(usage::error(format!(
            "invalid argument {word:?} for \"--skip-preflight\": it must be one of {}",
            CHECKS.join(", ")
        )));
    }
    if words.iter().any(|word| word == "false") {
        return Ok(Vec::new());
    }
    Ok(if words.iter().any(|word| word == "true" || word == "*") { all() } else { words })
}

/// The objects of a given manifest, and the namespace of its run.
pub(super) fn with_namespace(matches: &ArgMatches, objects: Vec<Value>) -> Result<(Vec<Value>, String)> {
    // Objects without a namespace can be created all the same.
    let home = match deploy::home(&objects) {
        Some(home) => home.to_owned(),
        None => request::settings(matches)?.namespace,
    };
    Ok((objects, home))
}

/// Runs the checks before anything is created.
pub(super) fn checks<'a>(
    matches: &'a ArgMatches,
    objects: &[Value],
    namespace: &'a str,
    skip: &'a [String],
) -> Preflight<'a> {
    Preflight {
        namespace,
        makes_namespace: deploy::makes_namespace(objects, namespace),
        dns_namespace: matches.get_one::<String>("dns-namespace").map_or("kube-system", String::as_str),
        dns_labels: matches.get_many("dns-pod-labels").unwrap_or_default().cloned().collect(),
        pull_secret: value(matches, "image-pull-secret").filter(|name| !name.is_empty()),
        skip,
    }
}
