//! `sonobuoy e2e`: the names of the e2e tests of a Kubernetes version, or their tags.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::ArgMatches;
use regex::Regex;

use super::flag::value;
use super::{cluster, output, shown, usage};
use crate::image::CONFORMANCE;
use crate::image::conformance::Tests;
use crate::image::kit::Kit;
use crate::image::lists::{Source, tags};
use crate::image::release;
use crate::names;
use base::oci::Client;
use base::pattern;
use base::stop::Stop;

/// The location of the original's lists.
const ONLINE: &str =
    "https://raw.githubusercontent.com/vmware-tanzu/sonobuoy/main/cmd/sonobuoy/app/e2e/customTestLists";

/// Prints the requested tests.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let [focus, skip] = [regex(matches, "focus")?, regex(matches, "skip")?];
    let mut names = list(matches)?;
    let from_stdin = matches.get_one::<String>("input").is_some_and(|input| input == "-");
    if names.is_empty() && !from_stdin {
        bail!("no tests found with given options");
    }
    names.retain(|name| {
        focus.as_ref().is_none_or(|focus| focus.is_match(name))
            && !skip.as_ref().is_some_and(|skip| skip.is_match(name))
    });
    if names.is_empty() {
        log::warn!("no test matches the given options");
    }
    let mode = matches.get_one::<String>("mode").map_or("tests", String::as_str);
    let text = match mode {
        "tags" => tags(&names).into_keys().map(|tag| format!("{tag}\n")).collect(),
        "tagCounts" => tags(&names).into_iter().map(|(tag, count)| format!("{tag}:{count}\n")).collect(),
        other => {
            if other != "tests" {
                log::warn!("--mode={other} is unknown; choose tests, tags or tagCounts; tests are printed");
            }
            // Like the original: one empty line for an empty list.
            format!("{}\n", names.join("\n"))
        }
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn regex(matches: &ArgMatches, id: &str) -> anyhow::Result<Option<Regex>> {
    let Some(text) = value(matches, id) else { return Ok(None) };
    let compiled = pattern::compile(text);
    compiled.map(Some).map_err(|why| usage::error(format!("--{id}: {why}")))
}

fn list(matches: &ArgMatches) -> anyhow::Result<Vec<String>> {
    let url = matches.get_one::<String>("url").map(|url| url.trim_end_matches('/'));
    let input = match matches.get_one::<String>("input").map_or("online", String::as_str) {
        "offline" => {
            log::warn!(
                "no lists are built into this program: asking the conformance image, as with `--input image`"
            );
            "image"
        }
        input => input,
    };
    match input {
        "-" => Source::Stdin.whole("standard input", url),
        "online" => Source::Online(url.unwrap_or(ONLINE)).whole(&version(matches)?, url),
        "image" => {
            let image = match matches.get_one::<String>("kube-conformance-image") {
                Some(image) => image.clone(),
                None => format!("{}:{}", CONFORMANCE, version(matches)?),
            };
            let client = Client::new(names::USER_AGENT, false, &Stop::new())?;
            shown::exit_on_signal()?;
            Tests::fetch(&client, &image, matches.get_flag("unconfined")).and_then(|tests| tests.names()).map_err(|error| {
                anyhow!(
                    "{error:#}; save a list where there is network with `sonobuoy e2e --version VERSION > FILE`, and use it \
                     with `--input FILE`"
                )
            })
        }
        file => match Kit::read(Path::new(file))? {
            Some(kit) => Ok(kit.tests),
            None => Source::File(Path::new(file)).whole(file, url),
        },
    }
}

fn version(matches: &ArgMatches) -> anyhow::Result<String> {
    match matches.get_one::<String>("version").map(String::as_str) {
        None | Some("" | "auto") => {
            let client = cluster::client(matches, &Stop::new());
            client
                .and_then(|client| cluster::release(&client))
                .context("no --version was given, so the cluster was asked")
        }
        Some(version) => release::parse(version).map_err(|why| usage::error(format!("--version: {why}"))),
    }
}
