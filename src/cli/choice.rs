//! Selects the tests of a run and the source of their names: `--split` and `--resume`; and makes the framework name
//! each test as it runs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use clap::ArgMatches;

use super::flag::value;
use super::{shown, usage};
use crate::deploy::Split;
use crate::image::CONFORMANCE;
use crate::image::conformance::Tests;
use crate::image::kit::Kit;
use crate::image::lists::listed;
use crate::plugin::mode::Mode;
use crate::plugin::{self, focus};
use crate::report::Interrupted;
use base::at::At as _;
use base::oci::Client;
use base::small;
use base::stop::Stop;

/// The list of all tests of a version has one or two MiB.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// More parts would load a cluster more than the tests do.
const MAX_PARTS: i64 = 20;

/// Rejects flags that certification forbids.
pub(super) fn check(matches: &ArgMatches) -> Result<()> {
    if !Mode::is_certified(matches.get_one("mode")) {
        return Ok(());
    }
    for (flag, asks) in [("retry-failed", "pass the first time"), ("split", "run one after the other")] {
        if matches.get_one::<i64>(flag).is_some_and(|number| *number != 0) {
            return Err(usage::error(format!(
                "--{flag}: certified conformance requires tests that {asks}; leave out the flag or the mode"
            )));
        }
    }
    Ok(())
}

/// The split of the tests, if requested.
pub(super) fn split(matches: &ArgMatches, kit: Option<&Kit>, version: &str) -> Result<Option<Split>> {
    let parts = matches.get_one::<i64>("split").copied();
    let Some(parts) = parts else { return Ok(None) };
    let number = usize::try_from(parts).ok().filter(|_| (2..=MAX_PARTS).contains(&parts));
    let Some(parts) = number else {
        return Err(usage::error(format!("--split takes a number from 2 to {MAX_PARTS}")));
    };
    let tests = match (value(matches, "tests"), kit) {
        (Some(path), _) => names(path)?,
        (None, Some(kit)) if !kit.tests.is_empty() => kit.tests.clone(),
        _ => {
            let ours = format!("{CONFORMANCE}:{version}");
            let ours = value(matches, "registry")
                .map_or(ours.clone(), |registry| plugin::relocated(&ours, registry));
            let image = value(matches, "kube-conformance-image").unwrap_or(&ours);
            let client = Client::new(crate::names::USER_AGENT, false, &Stop::new())?;
            shown::exit_on_signal()?;
            let names = Tests::fetch(&client, image, false).and_then(|tests| tests.names());
            names.context(
                "--split needs the names of the tests; name a list of them, or a kit, by --tests FILE",
            )?
        }
    };
    Ok(Some(Split { parts, tests }))
}

/// Makes the test framework name each test that it runs, unless flags say otherwise. Runs for certification keep the
/// standard flags, and the framework of versions before v1.25 does not support all of these.
pub(super) fn name_tests(matches: &ArgMatches, env: &mut BTreeMap<String, String>, version: &str) {
    const WORDS: [&str; 3] = ["-v", "--poll-progress-after=1m", "--poll-progress-interval=10m"];
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    if Mode::is_certified(matches.get_one("mode")) || minor.is_none_or(|minor| minor < 25) {
        return;
    }
    let separator = env.get("E2E_EXTRA_ARGS_SEP").filter(|text| !text.is_empty());
    let words = WORDS.join(separator.map_or(" ", String::as_str));
    env.entry("E2E_EXTRA_GINKGO_ARGS".to_owned()).or_insert(words);
}

/// The names in a list or a kit.
pub(super) fn names(path: &str) -> Result<Vec<String>> {
    let names: Vec<String> = match Kit::read(Path::new(path))? {
        Some(kit) => kit.tests,
        None => {
            let text = small::read(Path::new(path), MAX_LIST_BYTES).at("cannot read", path)?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines = text.lines().map(|line| listed(line).unwrap_or(line).trim().to_owned());
            lines.filter(|line| !line.is_empty()).collect()
        }
    };
    ensure!(!names.is_empty(), "`{path}` lists no tests");
    Ok(names)
}

/// The pattern of the tests that an interrupted run has completed.
pub(super) fn had(before: &Interrupted) -> Result<String, String> {
    let pattern = focus::exactly(before.ran.keys().map(String::as_str));
    pattern.ok_or_else(|| format!("{} tests have run, too many to exclude by name", before.ran.len()))
}
