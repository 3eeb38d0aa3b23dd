//! The command line as types: the commands, each with its arguments, and the flags of all.
//!
//! Help, man pages and completions come from these declarations. A command's own arguments are
//! declared beside the function that runs it.

use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use super::flag::{accepting_values, like_original, showing_all, showing_switches, words};
use super::{
    certify, completion, containers, delete, doctor, e2e, each, gather_flags, generate, images,
    logs, plugins, query, results, retrieve, run_args, status, version, wait,
};
use base::Joined as _;
use base::logger::LEVELS;

/// Advice for new users.
const FIRST_STEPS: &str = "\
First steps:
  sonobuoy run --local -p FILE             try a plugin on this machine, without a cluster
  sonobuoy run --wait --mode quick         one e2e test, in the cluster of your kubeconfig
  sonobuoy results \"$(sonobuoy retrieve)\"  fetch the results and report on them
  sonobuoy delete --wait                   clean up";

/// Runs diagnostic and conformance plugins across a Kubernetes cluster and collects results from
/// every node
#[derive(clap::Parser)]
#[command(
    name = "sonobuoy",
    disable_version_flag = true,
    after_help = FIRST_STEPS
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub global: GlobalFlags,
    #[command(flatten)]
    ignored: IgnoredFlags,
    #[command(subcommand)]
    pub command: Subcommand,
}

/// The flags of every command, before or after its name
#[derive(clap::Args)]
pub(crate) struct GlobalFlags {
    /// Log level
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        default_value = "info",
        value_parser = words(&LEVELS),
        help_heading = "Global options",
        hide_short_help = true
    )]
    pub level: &'static str,
    /// The same as --level=debug
    #[arg(short, long, global = true, hide = true)]
    pub debug: bool,
}

/// What manifests and images of the original pass to the aggregator and the workers: accepted for
/// old scripts, ignored
#[derive(clap::Args)]
struct IgnoredFlags {
    #[arg(
        short = 'v',
        long = "v",
        global = true,
        hide = true,
        value_name = "VALUE"
    )]
    verbosity: Option<String>,
    #[arg(long = "log_dir", global = true, hide = true, value_name = "VALUE")]
    log_dir: Option<String>,
    #[arg(long = "log_file", global = true, hide = true, value_name = "VALUE")]
    log_file: Option<String>,
    #[arg(
        long = "log_file_max_size",
        global = true,
        hide = true,
        value_name = "VALUE"
    )]
    log_file_max_size: Option<String>,
    #[arg(long, global = true, hide = true, value_name = "VALUE")]
    stderrthreshold: Option<String>,
    #[arg(long, global = true, hide = true, value_name = "VALUE")]
    vmodule: Option<String>,
    #[arg(
        long = "log_backtrace_at",
        global = true,
        hide = true,
        value_name = "VALUE"
    )]
    log_backtrace_at: Option<String>,
    #[arg(long, global = true, hide = true)]
    logtostderr: bool,
    #[arg(long, global = true, hide = true)]
    alsologtostderr: bool,
    #[arg(long = "add_dir_header", global = true, hide = true)]
    add_dir_header: bool,
    #[arg(long = "one_output", global = true, hide = true)]
    one_output: bool,
    #[arg(long = "skip_headers", global = true, hide = true)]
    skip_headers: bool,
    #[arg(long = "skip_log_headers", global = true, hide = true)]
    skip_log_headers: bool,
}

#[derive(clap::Subcommand)]
pub(crate) enum Subcommand {
    Run(Box<run_args::RunArgs>),
    Each(Box<each::EachArgs>),
    Doctor(Box<doctor::DoctorArgs>),
    Status(status::StatusArgs),
    Wait(Box<wait::WaitArgs>),
    Retrieve(retrieve::RetrieveArgs),
    Verify(results::VerifyArgs),
    Certify(certify::CertifyArgs),
    Results(Box<results::ResultsArgs>),
    Logs(logs::LogsArgs),
    Delete(delete::DeleteArgs),
    Gen(Box<generate::GenArgs>),
    Modes(e2e::ModesArgs),
    E2e(e2e::E2eArgs),
    #[command(alias = "plugins")]
    Plugin(plugins::PluginArgs),
    Images(Box<images::ImagesArgs>),
    Query(query::QueryArgs),
    Gather(gather_flags::GatherArgs),
    Get(logs::GetArgs),
    Completion(completion::CompletionArgs),
    Schema(generate::SchemaArgs),
    Version(version::VersionArgs),
    Help(HelpArgs),
    // The commands that run in containers of a run; `master` is the name in manifests of old
    // versions.
    #[command(hide = true, alias = "master")]
    Aggregator(containers::AggregatorArgs),
    #[command(hide = true)]
    Worker(containers::WorkerArgs),
    #[command(hide = true)]
    Splat(containers::SplatArgs),
    #[command(hide = true)]
    PostProcess(containers::PostProcessArgs),
}

/// Print the help of a command
#[derive(clap::Args)]
pub(crate) struct HelpArgs {
    /// Words of the command, such as `gen plugin`
    #[arg(value_name = "COMMAND", num_args = 0..)]
    pub command: Vec<String>,
}

/// The commands for display: in help, man pages and completions; built.
pub(crate) fn for_display() -> Command {
    built(showing_all(Arguments::command()))
}

/// The commands with the flags that most calls need and without examples, for `-h`; built.
fn summarized() -> Command {
    built(Arguments::command().mut_subcommands(without_examples))
}

fn without_examples(command: Command) -> Command {
    command.after_help("").mut_subcommands(without_examples)
}

fn built(command: Command) -> Command {
    let mut command = like_original(showing_switches(command)).bin_name(program());
    command.build();
    command
}

/// The commands for parsing.
pub(crate) fn parsed() -> Command {
    accepting_values(like_original(Arguments::command()))
}

/// The arguments that the parser has found.
pub(crate) fn typed(mut matches: ArgMatches) -> Result<Arguments, clap::Error> {
    Arguments::from_arg_matches_mut(&mut matches)
}

/// How the program was called: `sonobuoy`, or `kubectl sonobuoy` if kubectl found it as a plugin.
fn program() -> &'static str {
    let called = std::env::args_os()
        .next()
        .map(std::path::PathBuf::from)
        .unwrap_or_default();
    let name = called.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("kubectl-") {
        "kubectl sonobuoy"
    } else {
        "sonobuoy"
    }
}

/// The full name of a command: `sonobuoy gen plugin`.
pub(crate) fn name(path: &[String]) -> String {
    std::iter::once(program())
        .chain(path.iter().map(String::as_str))
        .joined(" ")
}

/// The command at `path`, ready to print its help; `Err` has the unknown word.
pub(crate) fn command_at(path: &[String]) -> Result<Command, String> {
    find(for_display(), path)
}

/// The command at `path`, ready to print the summary of its help.
pub(crate) fn summary_at(path: &[String]) -> Result<Command, String> {
    find(summarized(), path)
}

fn find(mut command: Command, path: &[String]) -> Result<Command, String> {
    for word in path {
        command = command
            .find_subcommand(word)
            .cloned()
            .ok_or_else(|| word.clone())?;
    }
    Ok(command)
}
