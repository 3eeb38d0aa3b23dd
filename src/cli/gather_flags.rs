//! The command line of `sonobuoy gather`, which every system can show, and only Linux can run.

use super::flag::parse_seconds;

/// Collect facts and logs of this node
#[derive(clap::Args)]
pub(crate) struct GatherArgs {
    #[command(subcommand)]
    pub command: GatherCommand,
}

#[derive(clap::Subcommand)]
pub(crate) enum GatherCommand {
    HostFacts(HostFactsArgs),
    SystemdLogs(SystemdLogsArgs),
    LogSummary(LogSummaryArgs),
    Network(NetworkArgs),
    Hello(HelloArgs),
    #[command(hide = true)]
    Echo(EchoArgs),
    #[command(hide = true)]
    Inside(InsideArgs),
    #[command(hide = true)]
    Command(CommandArgs),
    #[command(hide = true)]
    Carry(CarryArgs),
}

/// Hardware, kernel, mounts, network, limits as JSON
#[derive(clap::Args)]
pub(crate) struct HostFactsArgs {
    #[command(flatten)]
    pub source: SourceFlag,
    #[command(flatten)]
    pub delivery: DeliveryFlags,
    /// What to print: everything, or a table of the most important facts
    #[arg(long, value_name = "WORD", value_enum, default_value_t = HostFactsFormat::Json)]
    pub format: HostFactsFormat,
    #[arg(
        long,
        help = "Also run programs in `facts.d`, with the rights of this process [default: \
                $RUN_FACTS]"
    )]
    pub run_facts: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum HostFactsFormat {
    Json,
    Table,
    Csv,
}

/// The journal; on nodes without one, /var/log and dmesg
#[derive(clap::Args)]
pub(crate) struct SystemdLogsArgs {
    #[command(flatten)]
    pub source: SourceFlag,
    #[command(flatten)]
    pub delivery: DeliveryFlags,
    #[command(flatten)]
    pub selection: LogFlags,
    /// Maximum size of the log, such as 500M
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,
    /// Compress the log; the result is then a folder
    #[arg(long)]
    pub gzip: bool,
    /// Add a summary of the log; the result is then a folder
    #[arg(long)]
    pub summary: bool,
}

/// Counts of problems in the logs, by unit and kind
#[derive(clap::Args)]
pub(crate) struct LogSummaryArgs {
    #[command(flatten)]
    pub source: SourceFlag,
    #[command(flatten)]
    pub delivery: DeliveryFlags,
    #[command(flatten)]
    pub format: ItemFormatFlag,
    #[command(flatten)]
    pub selection: LogFlags,
}

/// Whether this node reaches name service, API server and aggregator, and how fast
#[derive(clap::Args)]
pub(crate) struct NetworkArgs {
    #[command(flatten)]
    pub format: ItemFormatFlag,
    #[command(flatten)]
    pub delivery: DeliveryFlags,
}

/// A greeting: the smallest result of a plugin, on every system
#[derive(clap::Args)]
pub(crate) struct HelloArgs {
    #[arg(
        short,
        long,
        value_name = "DIR",
        help = "Folder to write into [default: $RESULTS_DIR]"
    )]
    pub output: Option<String>,
}

/// The same as a termination message, in pods that `doctor` starts
#[derive(clap::Args)]
pub(crate) struct EchoArgs {
    /// File to write instead of the termination message
    #[arg(long, value_name = "FILE")]
    pub to: Option<String>,
}

/// Run a program under another root
// Starts the node's own programs with the node's libraries.
#[derive(clap::Args)]
pub(crate) struct InsideArgs {
    #[arg(
        value_names = ["ROOT", "PROGRAM"],
        num_args = 2..,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub call: Vec<String>,
}

/// Run a command, and leave its output and exit code for the worker, in pods of `each`
#[derive(clap::Args)]
pub(crate) struct CommandArgs {
    #[command(flatten)]
    pub source: SourceFlag,
    /// Time limit of the command
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub words: Vec<String>,
}

/// Copy this program into a folder, for a container of another image
#[derive(clap::Args)]
pub(crate) struct CarryArgs {
    #[arg(value_name = "DIR")]
    pub folder: std::path::PathBuf,
}

/// The node to read
#[derive(clap::Args)]
pub(crate) struct SourceFlag {
    #[arg(
        long,
        value_name = "DIR",
        help = "Where the node's file system is mounted [default: $CHROOT_DIR or /]"
    )]
    pub chroot: Option<String>,
}

/// Where the result goes
#[derive(clap::Args)]
pub(crate) struct DeliveryFlags {
    #[arg(
        short,
        long,
        value_name = "DIR",
        help = "Folder to write into [default: $RESULTS_DIR]"
    )]
    pub output: Option<String>,
    /// Keep running this long after the result is written; negative means forever
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    pub sleep: i64,
}

/// The form of items
#[derive(clap::Args)]
pub(crate) struct ItemFormatFlag {
    /// What to print: everything, or a table of the most important facts
    #[arg(long, value_name = "WORD", value_enum, default_value_t = ItemFormat::Yaml)]
    pub format: ItemFormat,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum ItemFormat {
    Yaml,
    Table,
    Csv,
}

/// The part of the logs to read
#[derive(clap::Args)]
pub(crate) struct LogFlags {
    #[arg(
        long,
        value_name = "WHEN",
        help = "Minutes to look back, or a point in time [default: $LOG_MINUTES or 60]"
    )]
    pub since: Option<String>,
    /// Only these units
    #[arg(short, long, value_name = "UNIT,...", value_delimiter = ',')]
    pub unit: Vec<String>,
    /// Only this priority and above
    #[arg(long, value_name = "LEVEL")]
    pub priority: Option<String>,
}
