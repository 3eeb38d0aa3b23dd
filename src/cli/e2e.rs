//! `sonobuoy e2e`: the names of the e2e tests of a Kubernetes version, or their tags.
//!
//! A list is plain text or gzip, one name a line. A list that begins with `#OTHER` is the difference to the list
//! OTHER: `+name` adds a test, `-name` removes one.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::ArgMatches;
use regex::Regex;

use super::{cluster, output, usage};
use crate::plugin::release;
use base::fetch::{Refused, fetch};
use base::pattern;
use base::stop::Stop;

/// Where the original keeps its lists.
const ONLINE: &str =
    "https://raw.githubusercontent.com/vmware-tanzu/sonobuoy/main/cmd/sonobuoy/app/e2e/customTestLists";
/// More than any list has, unpacked: a real one has about 1 MiB.
const MOST: u64 = 64 << 20;
/// So many lists may refer to each other.
const DEEPEST: usize = 32;

/// Prints the tests that were asked for.
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
                log::warn!("--mode={other} is none of tests, tags and tagCounts; tests are printed");
            }
            // As the original does, one empty line for no test at all.
            format!("{}\n", names.join("\n"))
        }
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn regex(matches: &ArgMatches, id: &str) -> anyhow::Result<Option<Regex>> {
    let Some(text) = matches.get_one::<String>(id).filter(|text| !text.is_empty()) else { return Ok(None) };
    let compiled = pattern::compile(text);
    compiled.map(Some).map_err(|why| usage::error(format!("--{id}: {why}")))
}

/// Each `[...]` of the names, with how many tests bear it.
fn tags(names: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        let mut rest = name.as_str();
        while let Some(start) = rest.find('[') {
            let Some(length) = rest[start..].find(']') else { break };
            *counts.entry(&rest[start..=start + length]).or_default() += 1;
            rest = &rest[start + length + 1..];
        }
    }
    counts
}

/// Where lists come from.
enum Source<'a> {
    Stdin,
    File(&'a Path),
    Online(&'a str),
}

fn list(matches: &ArgMatches) -> anyhow::Result<Vec<String>> {
    let url = matches.get_one::<String>("url").map(|url| url.trim_end_matches('/'));
    match matches.get_one::<String>("input").map_or("online", String::as_str) {
        "-" => Source::Stdin.whole("standard input", url),
        "offline" => bail!(
            "no lists are built into this program; save one where there is network (`sonobuoy e2e --version VERSION > FILE`) \
             and use it with `--input FILE`, or name a server of yours with `--url`"
        ),
        "online" => Source::Online(url.unwrap_or(ONLINE)).whole(&version(matches)?, url),
        file => Source::File(Path::new(file)).whole(file, url),
    }
}

fn version(matches: &ArgMatches) -> anyhow::Result<String> {
    match matches.get_one::<String>("version").map(String::as_str) {
        None | Some("" | "auto") => {
            let client = cluster::client(matches, &Stop::new());
            client
                .and_then(|client| cluster::release(&client))
                .context("no --version, so the cluster is asked")
        }
        Some(version) => release::parse(version).map_err(|why| usage::error(format!("--version: {why}"))),
    }
}

impl Source<'_> {
    /// The list, sorted, with everything that it refers to.
    fn whole(&self, name: &str, url: Option<&str>) -> anyhow::Result<Vec<String>> {
        let mut changes = Vec::new();
        let mut text = self.read(name)?;
        let mut seen = 0;
        while let Some(other) = text.lines().next().and_then(|line| line.strip_prefix('#')) {
            let other = other.trim().to_owned();
            seen += 1;
            if seen > DEEPEST {
                bail!("the list {name} refers to one that refers to another, more than {DEEPEST} times");
            }
            // It becomes part of a path: nothing but a version is one.
            let other =
                release::parse(&other).map_err(|why| anyhow!("the list {name} refers to another: {why}"))?;
            let base = match (self, url) {
                (Source::Stdin, None) => {
                    bail!("the list refers to that of {other}; name where lists are with `--url`")
                }
                (Source::Stdin, Some(url)) => Source::Online(url).read(&other)?,
                _ => self.read(&other)?,
            };
            changes.push(std::mem::replace(&mut text, base));
        }
        // Lines as they are: blanks at their end belong to the names.
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        for change in changes.iter().rev() {
            for line in change.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                // Some tests have one name together, and each of them is a line.
                if let Some(name) = line.strip_prefix('-') {
                    names.iter().position(|known| known == name).map(|at| names.swap_remove(at));
                } else {
                    names.push(line.strip_prefix('+').unwrap_or(line).to_owned());
                }
            }
        }
        // A list that stands alone keeps its order.
        if !changes.is_empty() {
            names.sort();
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> anyhow::Result<String> {
        let (place, bytes) = match self {
            Source::Stdin => {
                let mut bytes = Vec::new();
                std::io::stdin()
                    .lock()
                    .take(MOST)
                    .read_to_end(&mut bytes)
                    .context("reading standard input")?;
                ("standard input".to_owned(), bytes)
            }
            Source::File(file) => {
                let beside = file.with_file_name(format!("{name}.gz"));
                let path = if file.as_os_str() == name { *file } else { beside.as_path() };
                (
                    path.display().to_string(),
                    std::fs::read(path).with_context(|| format!("reading `{}`", path.display()))?,
                )
            }
            Source::Online(base) => {
                let url = format!("{base}/{name}.gz");
                let bytes = fetch(&url, MOST).map_err(|error| {
                    // A server that is not reached says nothing about the list.
                    let missing = error.downcast_ref::<Refused>().is_some_and(Refused::is_not_found);
                    let what = if missing { "there is no list" } else { "cannot get the list" };
                    error.context(format!(
                        "{what} for Kubernetes {name}; use one of your own with `--input FILE`"
                    ))
                })?;
                (url, bytes)
            }
        };
        let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut unpacked = Vec::new();
            let decoder = flate2::read::MultiGzDecoder::new(bytes.as_slice());
            decoder.take(MOST).read_to_end(&mut unpacked).with_context(|| format!("unpacking `{place}`"))?;
            unpacked
        } else {
            bytes
        };
        String::from_utf8(bytes)
            .map_err(|error| anyhow!("`{place}` is no list of tests: {}", error.utf8_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_counted_in_order() {
        let names = ["[sig-b] x [Slow]", "[sig-a] y [Slow] [", "z"].map(str::to_owned);
        let counts: Vec<_> = tags(&names).into_iter().collect();
        assert_eq!(counts, [("[Slow]", 2), ("[sig-a]", 1), ("[sig-b]", 1)]);
    }
}
