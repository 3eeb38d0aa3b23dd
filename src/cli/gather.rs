//! `sonobuoy gather`: gathers facts as a plugin's container, or manually on a node.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::color::ColorChoice;
use super::flag::Filled as _;
use super::gather_flags::{
    CommandArgs, DeliveryFlags, EchoArgs, GatherArgs, GatherCommand, HostFactsArgs,
    HostFactsFormat, InsideArgs, ItemFormat, LogFlags, LogSummaryArgs, NetworkArgs, SourceFlag,
    SystemdLogsArgs,
};
use super::output;
use super::results::FactsFormat;
use base::at::At as _;
use base::sys::{self, variable};
use base::temp;
use gather::command::{self, NodeCommand};
use gather::journal::{self, LogQuery};
use gather::logs::{self, LogFormat};
use gather::{self, NodeFiles, Outbox, reach};
use model::layout;
use model::names::{self, env};
use report::FactTables;

/// Runs the command.
pub(crate) fn run(args: &GatherArgs) -> Result<()> {
    match &args.command {
        GatherCommand::HostFacts(args) => stay(&args.delivery, host_facts(args)),
        GatherCommand::SystemdLogs(args) => stay(&args.delivery, systemd_logs(args)),
        GatherCommand::LogSummary(args) => stay(&args.delivery, log_summary(args)),
        GatherCommand::Network(args) => stay(&args.delivery, network(args)),
        // Of every system, so that the command line runs it without this module.
        GatherCommand::Hello(args) => super::hello::run(args),
        GatherCommand::Echo(args) => echo(args),
        GatherCommand::Inside(args) => inside(args),
        GatherCommand::Command(args) => node_command(args),
        GatherCommand::Carry(args) => gather::command::carry(&args.folder),
    }
}

/// Keeps the container alive, also after a failure: a container of a DaemonSet that ends is
/// restarted, and gathers again. If not even an error could be written as the result, only the
/// container's exit can report it.
fn stay(delivery: &DeliveryFlags, gathered: Result<()>) -> Result<()> {
    let seconds = delivery.sleep;
    if seconds != 0 && (gathered.is_ok() || is_left(delivery)) {
        if let Err(error) = &gathered {
            log::error!("{error:#}");
        }
        let stop = output::stop_on_signal()?;
        match u64::try_from(seconds) {
            Ok(seconds) => drop(stop.wait(Duration::from_secs(seconds))),
            Err(_) => stop.wait_forever(),
        }
    }
    gathered
}

fn is_left(delivery: &DeliveryFlags) -> bool {
    outbox(delivery)
        .ok()
        .flatten()
        .is_some_and(|outbox| outbox.path("done").exists())
}

fn host_facts(args: &HostFactsArgs) -> Result<()> {
    let facts = NodeFiles::open(&chroot(&args.source));
    let programs = args.run_facts || variable("RUN_FACTS").as_deref() == Some("true");
    let facts = facts.map(|mut node| {
        node.programs = programs;
        gather::host_facts(&node)
    });
    let document = facts.as_ref().map_or_else(
        |error| gather::no_facts(&format!("{error:#}")),
        Value::clone,
    );
    let name = document["ansible_facts"]["ansible_nodename"]
        .as_str()
        .unwrap_or("this machine");
    let table = match args.format {
        HostFactsFormat::Json => None,
        HostFactsFormat::Table => Some(FactsFormat::Text),
        HostFactsFormat::Csv => Some(FactsFormat::Csv),
    };
    deliver(
        table,
        outbox(&args.delivery)?,
        name,
        layout::HOST_FACTS,
        &format!("{document:#}\n"),
    )?;
    facts.map(drop)
}

/// The form of a table of an item; `None` for the whole item.
fn table_of(format: ItemFormat) -> Option<FactsFormat> {
    match format {
        ItemFormat::Yaml => None,
        ItemFormat::Table => Some(FactsFormat::Text),
        ItemFormat::Csv => Some(FactsFormat::Csv),
    }
}

/// Writes a result for the worker under this file name, else prints it: in full, or the most
/// important parts as a `table`.
fn deliver(
    table: Option<FactsFormat>,
    outbox: Option<Outbox>,
    node: &str,
    file: &str,
    text: &str,
) -> Result<()> {
    if let Some(outbox) = outbox {
        return outbox.done(&outbox.write_file(file, text.as_bytes())?);
    }
    let Some(table) = table else {
        output::print(text);
        return Ok(());
    };
    let mut facts = FactTables::default();
    facts.add_file(node, file, text.as_bytes());
    facts.complete();
    let mut out = output::stdout();
    super::results::write_facts(&facts, table, ColorChoice::Auto.resolve(), &mut out)?;
    Ok(out.flush()?)
}

fn systemd_logs(args: &SystemdLogsArgs) -> Result<()> {
    let max_size = args.max_size.filled().map(|text| {
        logs::size(text)
            .ok_or_else(|| anyhow!("`--max-size {text}` is not a size; write bytes, or 500M, 2G"))
    });
    let form = LogFormat {
        gzip: args.gzip,
        summary: args.summary,
        max_size: max_size.transpose()?,
    };
    let outbox = outbox(&args.delivery)?
        .context("no folder for the log: name one with --output or $RESULTS_DIR")?;
    logs::keep(
        NodeFiles::open(&chroot(&args.source)),
        &wanted(&args.selection),
        &form,
        &outbox,
    )
}

fn log_summary(args: &LogSummaryArgs) -> Result<()> {
    let outbox = outbox(&args.delivery)?;
    let files = NodeFiles::open(&chroot(&args.source));
    let counted = logs::summarise(files, &wanted(&args.selection), true, |_| Ok(true));
    let item = counted.as_ref().map_or_else(logs::no_log, Clone::clone);
    deliver(
        table_of(args.format.format),
        outbox,
        &sys::host_name(),
        layout::LOG_SUMMARY,
        &logs::text(&item),
    )?;
    counted.map(drop)
}

fn network(args: &NetworkArgs) -> Result<()> {
    let outbox = outbox(&args.delivery)?;
    let item = reach::network(&reach::Destinations::read());
    deliver(
        table_of(args.format.format),
        outbox,
        &sys::host_name(),
        layout::NETWORK,
        &logs::text(&item),
    )
}

/// Runs in a pod of `doctor`: writes its findings to the termination log, which works without any
/// network.
fn echo(args: &EchoArgs) -> Result<()> {
    let findings = reach::network(&reach::Destinations::read());
    let place = args.to.filled().unwrap_or(names::TERMINATION_LOG);
    std::fs::write(place, serde_json::to_string(&findings)?).at("cannot write", place)
}

fn wanted(flags: &LogFlags) -> LogQuery {
    let since = flags.since.filled().map(str::to_owned);
    LogQuery {
        since: since
            .or_else(|| variable("LOG_MINUTES"))
            .unwrap_or_else(|| "60".into()),
        units: flags.unit.clone(),
        priority: flags.priority.filled().map(str::to_owned),
    }
}

fn inside(args: &InsideArgs) -> Result<()> {
    let [root, program, args @ ..] = &args.call[..] else {
        bail!("expected a root and a program")
    };
    let error = match journal::inside(root.as_ref(), program, args) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    output::error(&format!("{error:#}\n"));
    let cause = error.downcast_ref::<std::io::Error>();
    // Only a shell's exit codes tell the caller that the program never began.
    temp::exit(cause.map_or(1, command::code_without_start))
}

fn node_command(args: &CommandArgs) -> Result<()> {
    let outbox = variable(env::RESULTS_DIR)
        .context("$RESULTS_DIR is not set; this runs in pods of `each`")?;
    let command = NodeCommand {
        root: &chroot(&args.source),
        words: &args.words,
        timeout: Duration::from_secs(args.timeout),
    };
    command.run(&Outbox::open(outbox.as_ref())?)
}

/// The flag, else the variable set by plugins since the first version, else the root.
fn chroot(source: &SourceFlag) -> PathBuf {
    let flag = source.chroot.filled().map(str::to_owned);
    flag.or_else(|| variable("CHROOT_DIR"))
        .unwrap_or_else(|| "/".into())
        .into()
}

/// The folder for results, if any.
fn outbox(delivery: &DeliveryFlags) -> Result<Option<Outbox>> {
    let flag = delivery.output.filled().map(str::to_owned);
    let folder = flag
        .or_else(|| variable(env::OLD_RESULTS_DIR))
        .or_else(|| variable(env::RESULTS_DIR));
    folder
        .map(|folder| Outbox::open(folder.as_ref()).context("cannot leave a result"))
        .transpose()
}
