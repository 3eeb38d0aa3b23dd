//! `sonobuoy e2e`: the names of the e2e tests of a Kubernetes version, or their tags; and `sonobuoy
//! modes`: the values of `--mode`.

use anyhow::{Context, Result, anyhow, bail};

use super::cluster::ClusterFlags;
use super::flag::{Filled as _, parse_regex, parse_version};
use super::output::{self, TableFormFlag};
use super::run_plan;
use crate::image::conformance::Tests;
use crate::image::lists::{ListSource, tags};
use crate::image::{CONFORMANCE, CONFORMANCE_LATEST};
use base::Joined as _;
use base::pattern;
use model::plugin::focus::{MODES, Mode};

/// The location of the original's lists.
const ONLINE: &str = "https://raw.githubusercontent.com/vmware-tanzu/sonobuoy/main/cmd/sonobuoy/app/e2e/customTestLists";

/// List the e2e tests of a Kubernetes version
#[derive(clap::Args)]
pub(crate) struct E2eArgs {
    /// Only tests that match
    #[arg(short, long, value_name = "REGEX", value_parser = parse_regex)]
    focus: Option<String>,
    /// Leave out tests that match
    #[arg(short, long, value_name = "REGEX", value_parser = parse_regex)]
    skip: Option<String>,
    /// Where the list comes from: online, image (executes the program of the conformance image,
    /// isolated), - (stdin) or a file
    #[arg(short, long, value_name = "SOURCE", default_value = "online")]
    input: String,
    /// What to print: tests, tags or tagCounts
    #[arg(short, long, value_name = "WORD", default_value = "tests")]
    mode: String,
    #[arg(
        long,
        value_name = "VERSION",
        value_parser = parse_version,
        help = "Kubernetes version; auto: that of the cluster, latest: the newest build, ignore: \
                none [default: auto]"
    )]
    version: Option<String>,
    /// With --input=image: the conformance image
    #[arg(long, value_name = "IMAGE")]
    kube_conformance_image: Option<String>,
    #[command(flatten)]
    isolation: IsolationFlag,
    /// With --input=online: where the lists are, as VERSION.gz each
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// The isolation of a program from an image
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct IsolationFlag {
    /// Execute the conformance image's program with your rights where it cannot be isolated
    #[arg(long)]
    pub unconfined: bool,
}

/// List the modes of the e2e plugin
#[derive(clap::Args)]
pub(crate) struct ModesArgs {
    /// Do not truncate long lines
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    form: TableFormFlag,
}

/// Prints the requested tests.
pub(crate) fn run(args: &E2eArgs) -> Result<()> {
    let compile =
        |flag: &Option<String>| flag.filled().and_then(|text| pattern::compile(text).ok());
    let (focus, skip) = (compile(&args.focus), compile(&args.skip));
    let mut names = list(args)?;
    if names.is_empty() && args.input != "-" {
        bail!("no tests found with given options");
    }
    names.retain(|name| {
        focus.as_ref().is_none_or(|focus| focus.is_match(name))
            && !skip.as_ref().is_some_and(|skip| skip.is_match(name))
    });
    if names.is_empty() {
        log::warn!("no test matches the given options");
    }
    let text = match args.mode.as_str() {
        "tags" => tags(&names)
            .into_keys()
            .map(|tag| format!("{tag}\n"))
            .collect(),
        "tagCounts" => tags(&names)
            .into_iter()
            .map(|(tag, count)| format!("{tag}:{count}\n"))
            .collect(),
        other => {
            if !["tests", ""].contains(&other) {
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

fn list(args: &E2eArgs) -> Result<Vec<String>> {
    let url = args.url.filled().map(|url| url.trim_end_matches('/'));
    let input = match args.input.as_str() {
        "" => "online",
        input => input,
    };
    if input == "offline" {
        log::warn!(
            "no lists are built into this program: asking the conformance image, as with `--input \
             image`"
        );
    }
    match input {
        "-" => ListSource::Stdin(url).resolve("standard input"),
        "online" => ListSource::Online(url.unwrap_or(ONLINE)).resolve(&version(args)?),
        "image" | "offline" => {
            let image = match args.kube_conformance_image.filled() {
                Some(image) => image.to_owned(),
                None => {
                    let is_latest = args.version.filled() == Some("latest");
                    let repository = if is_latest {
                        CONFORMANCE_LATEST
                    } else {
                        CONFORMANCE
                    };
                    format!("{repository}:{}", version(args)?)
                }
            };
            output::exit_on_signal()?;
            Tests::fetch(
                &run_plan::registries(false)?,
                &image,
                args.isolation.unconfined,
            )
            .and_then(|tests| tests.names())
            .map_err(|error| {
                anyhow!(
                    "{error:#}; save a list where there is network with `sonobuoy e2e \
                         --version VERSION > FILE`, and use it with `--input FILE`"
                )
            })
        }
        file => run_plan::kit_or_list(file),
    }
}

fn version(args: &E2eArgs) -> Result<String> {
    match args.version.filled() {
        None | Some("auto") => args
            .cluster
            .release()
            .context("no --version was given, so the cluster was asked"),
        Some("latest") => run_plan::latest_version(),
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
pub(crate) fn modes(args: &ModesArgs) {
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
    let text = output::in_form(args.form.output, head, &rows, || {
        let about = |row: &[String; 5]| -> String {
            LABELS
                .iter()
                .zip(row)
                .map(|(label, cell)| cut(format!("{label}: {cell}"), args.verbose))
                .collect()
        };
        rows.iter().map(about).joined("\n")
    });
    output::print(&text);
}

fn cut(line: String, is_verbose: bool) -> String {
    // All lines are ASCII, as the test of the golden file proves.
    match line.get(..MAX_LINE_BYTES) {
        Some(cut) if line.len() > MAX_LINE_BYTES && !is_verbose => {
            format!("{cut}... (truncated) ...\n")
        }
        _ => line + "\n",
    }
}
