//! The objects of a run, made from flags or read from a manifest, and the checks of the cluster for
//! them.

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::flag::invalid;
use super::run_flags::PreflightFlags;
use super::run_plan::RunRequest;
use crate::deploy::{self, CHECKS, Plan, Preflight};
use base::at::At as _;
use base::small;

/// Larger than any manifest that a cluster accepts.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// The objects to create, and the namespace of their run: those of a given manifest, else of a
/// plan.
pub(super) fn objects(
    request: RunRequest,
    given: Option<Vec<Value>>,
    adjust: impl FnOnce(&mut Plan) -> Result<()>,
) -> Result<(Vec<Value>, String)> {
    if let Some(objects) = given {
        // Objects without a namespace can be created all the same.
        let namespace =
            deploy::run_namespace(&objects).map_or(request.config.namespace, str::to_owned);
        return Ok((objects, namespace));
    }
    let mut plan = request.plan(None)?;
    plan.check_selection()?;
    adjust(&mut plan)?;
    Ok((plan.manifest()?, plan.run.namespace))
}

/// The manifest of `--file`.
pub(super) fn read_given(file: Option<&str>) -> Result<Option<Vec<Value>>> {
    let Some(file) = file else {
        return Ok(None);
    };
    if file == "-" && std::io::stdin().is_terminal() {
        bail!(
            "`-f -` reads a manifest from standard input, and that is a terminal; pipe a manifest \
             into it"
        );
    }
    let objects = deploy::from_yaml(&read_manifest(file)?)
        .with_context(|| format!("`{}`", file_name(file)))?;
    if objects
        .iter()
        .any(|object| object.get("sonobuoy-config").is_some())
    {
        bail!(
            "`{}` is a plugin definition and not a manifest; run it with `-p {file}`",
            file_name(file)
        );
    }
    Ok(Some(objects))
}

/// The text of a manifest; `-` is standard input.
pub(super) fn read_manifest(file: &str) -> Result<String> {
    let read = match file {
        "-" => small::read_from(std::io::stdin(), MAX_MANIFEST_BYTES),
        _ => small::read(file.as_ref(), MAX_MANIFEST_BYTES),
    };
    read.and_then(small::text)
        .at("cannot read", file_name(file))
}

fn file_name(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// The checks that `--skip-preflight` disables.
pub(super) fn skipped(flags: &PreflightFlags) -> Result<Vec<&'static str>> {
    let mut words: Vec<_> = flags
        .skip_preflight
        .iter()
        .map(|word| word.trim().to_lowercase())
        .collect();
    words.retain(|word| !word.is_empty());
    let is_known = |word: &str| CHECKS.contains(&word) || ["true", "false", "*"].contains(&word);
    if let Some(word) = words.iter().find(|word| !is_known(word)) {
        return Err(invalid(
            "skip-preflight",
            word,
            &format!("it must be one of {}", CHECKS.join(", ")),
        ));
    }
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let skipped = CHECKS
        .iter()
        .filter(|check| !has("false") && (has("true") || has("*") || has(check)));
    Ok(skipped.copied().collect())
}

/// The checks before anything is created.
pub(super) fn checks<'a>(
    flags: &'a PreflightFlags,
    pull_secret: Option<&'a str>,
    objects: &[Value],
    namespace: &'a str,
    skip: &'a [&'a str],
) -> Preflight<'a> {
    Preflight {
        namespace,
        makes_namespace: deploy::makes_namespace(objects, namespace),
        dns_namespace: &flags.dns_namespace,
        dns_labels: flags.dns_pod_labels.clone(),
        pull_secret,
        nodes: deploy::chosen_nodes(objects),
        references: deploy::references(objects, namespace),
        skip,
    }
}
