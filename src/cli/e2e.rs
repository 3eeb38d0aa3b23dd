//! `sonobuoy e2e`: the names of the e2e tests of a Kubernetes version, or their tags; and `sonobuoy
//! modes`: the values of `--mode`.

use anyhow::{Context, Result, anyhow, bail};

use super::flag::Args;
use super::{cluster, output, run_args};
use crate::image::conformance::Tests;
use crate::image::lists::{ListSource, tags};
use crate::image::{CONFORMANCE, CONFORMANCE_LATEST};
use base::Joined as _;
use base::pattern;
use model::plugin::focus::{MODES, Mode};

/// The location of the original's lists.
const ONLINE: &str = "https://raw.githubusercontent.com/vmware-tanzu/sonobuoy/main/cmd/sonobuoy/app/e2e/customTestLists";

/// Prints the requested tests.
pub(crate) fn run(args: Args) -> Result<()> {
    let pattern = |id| args.text(id).and_then(|text| pattern::compile(text).ok());
    let (focus, skip) = (pattern("focus"), pattern("skip"));
    let mut names = list(args)?;
    if names.is_empty() && args.word("input") != "-" {
        bail!("no tests found with given options");
    }
    names.retain(|name| {
        focus.as_ref().is_none_or(|focus| focus.is_match(name))
            && !skip.as_ref().is_some_and(|skip| skip.is_match(name))
    });
    if names.is_empty() {
        log::warn!("no test matches the given options");
    }
    let mode = args.text("mode").unwrap_or("tests");
    let text = match mode {
        "tags" => tags(&names)
            .into_keys()
            .map(|tag| format!("{tag}\n"))
            .collect(),
        "tagCounts" => tags(&names)
            .into_iter()
            .map(|(tag, count)| format!("{tag}:{count}\n"))
            .collect(),
        other => {
            if other != "tests" {
                log::warn!(
                    "--mode={other} is unknown; choose tests, tags or tagCounts; tests are printed"
                );
            }
            // Like the original: one empty line for an empty list.
            format!("{}\n", names.join("\n"))
        }
    };
    output::print(&text);
    Ok(())
}

fn list(args: Args) -> Result<Vec<String>> {
    let url = args.text("url").map(|url| url.trim_end_matches('/'));
    let input = args.text("input").unwrap_or("online");
    if input == "offline" {
        log::warn!(
            "no lists are built into this program: asking the conformance image, as with `--input \
             image`"
        );
    }
    match input {
        "-" => ListSource::Stdin(url).whole("standard input"),
        "online" => ListSource::Online(url.unwrap_or(ONLINE)).whole(&version(args)?),
        "image" | "offline" => {
            let image = match args.text("kube-conformance-image") {
                Some(image) => image.to_owned(),
                None => {
                    let is_latest = args.text("version") == Some("latest");
                    let repository = if is_latest {
                        CONFORMANCE_LATEST
                    } else {
                        CONFORMANCE
                    };
                    format!("{repository}:{}", version(args)?)
                }
            };
            output::exit_on_signal()?;
            Tests::fetch(&run_args::registries(args)?, &image, args.on("unconfined"))
                .and_then(|tests| tests.names())
                .map_err(|error| {
                    anyhow!(
                        "{error:#}; save a list where there is network with `sonobuoy e2e \
                         --version VERSION > FILE`, and use it with `--input FILE`"
                    )
                })
        }
        file => run_args::kit_or_list(file),
    }
}

fn version(args: Args) -> Result<String> {
    match args.text("version") {
        None | Some("auto") => {
            cluster::release(args).context("no --version was given, so the cluster was asked")
        }
        Some("latest") => run_args::latest_version(),
        // `ignore` is passed on as it is, as in the original: the list decides.
        Some(version) => Ok(version.to_owned()),
    }
}

/// Maximum length of a line unless full output is requested.
const MAX_LINE_BYTES: usize = 200;

/// Labels of the details of a mode, in the order of the columns.
const LABELS: [&str; 5] = [
    "Mode",
    "Description",
    "E2E_FOCUS",
    "E2E_SKIP",
    "E2E_PARALLEL",
];

/// Prints all modes, by name.
pub(crate) fn modes(args: Args) {
    let row = |mode: &Mode| {
        [
            mode.name,
            mode.description,
            mode.focus,
            &mode.skip(),
            mode.parallel,
        ]
        .map(str::to_owned)
    };
    let rows: Vec<_> = MODES.iter().map(row).collect();
    let head = ["name", "description", "focus", "skip", "parallel"];
    let text = output::in_form(args.text("output"), head, &rows, || {
        let about = |row: &[String; 5]| -> String {
            LABELS
                .iter()
                .zip(row)
                .map(|(label, cell)| cut(format!("{label}: {cell}"), args))
                .collect()
        };
        rows.iter().map(about).joined("\n")
    });
    output::print(&text);
}

fn cut(line: String, args: Args) -> String {
    // All lines are ASCII, as the test of the golden file proves.
    match line.get(..MAX_LINE_BYTES) {
        Some(cut) if line.len() > MAX_LINE_BYTES && !args.on("verbose") => {
            format!("{cut}... (truncated) ...\n")
        }
        _ => line + "\n",
    }
}
