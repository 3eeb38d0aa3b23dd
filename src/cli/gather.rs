//! `sonobuoy gather`: gathers facts as a plugin's container, or manually on a node.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::flag::Args;
use super::output;
use base::at::At as _;
use base::sys::{self, variable};
use gather::journal::{self, LogQuery};
use gather::logs::{self, LogFormat};
use gather::{self, NodeFiles, Outbox, reach};
use model::layout;
use model::names::{self, env};
use report::FactTables;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<()> {
    let (name, args) = args.subcommand();
    let gathered = match name {
        "host-facts" => host_facts(args),
        "systemd-logs" => systemd_logs(args),
        "log-summary" => log_summary(args),
        "network" => network(args),
        "echo" => return echo(args),
        _ => return inside(args),
    };
    stay(args, gathered)
}

/// Keeps the container alive, also after a failure: a container of a DaemonSet that ends is
/// restarted, and gathers again. If not even an error could be written as the result, only the
/// container's exit can report it.
fn stay(args: Args, gathered: Result<()>) -> Result<()> {
    let seconds = args.number("sleep");
    if seconds != 0 && (gathered.is_ok() || is_left(args)) {
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

fn is_left(args: Args) -> bool {
    outbox(args)
        .ok()
        .flatten()
        .is_some_and(|outbox| outbox.path("done").exists())
}

fn host_facts(args: Args) -> Result<()> {
    let facts = NodeFiles::open(&chroot(args));
    let programs = args.on("run-facts") || variable("RUN_FACTS").as_deref() == Some("true");
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
    deliver(
        args,
        outbox(args)?,
        name,
        layout::HOST_FACTS,
        &format!("{document:#}\n"),
    )?;
    facts.map(drop)
}

/// Writes a result for the worker under this file name, else prints it: in full, or the most
/// important parts.
fn deliver(args: Args, outbox: Option<Outbox>, node: &str, file: &str, text: &str) -> Result<()> {
    if let Some(outbox) = outbox {
        return outbox.done(&outbox.put(file, text.as_bytes())?);
    }
    let format = args.word("format");
    if !["table", "csv"].contains(&format) {
        output::print(text);
        return Ok(());
    }
    let mut facts = FactTables::default();
    facts.add_file(node, file, text.as_bytes());
    facts.complete();
    let mut out = output::stdout();
    super::results::write_facts(&facts, format, super::afterwards::look(args), &mut out)?;
    Ok(out.flush()?)
}

fn systemd_logs(args: Args) -> Result<()> {
    let max_size = args.text("max-size").map(|text| {
        logs::size(text)
            .ok_or_else(|| anyhow!("`--max-size {text}` is not a size; write bytes, or 500M, 2G"))
    });
    let form = LogFormat {
        gzip: args.on("gzip"),
        summary: args.on("summary"),
        max_size: max_size.transpose()?,
    };
    let outbox =
        outbox(args)?.context("no folder for the log: name one with --output or $RESULTS_DIR")?;
    logs::keep(
        NodeFiles::open(&chroot(args)),
        &wanted(args),
        &form,
        &outbox,
    )
}

fn log_summary(args: Args) -> Result<()> {
    let outbox = outbox(args)?;
    let counted = logs::summarise(NodeFiles::open(&chroot(args)), &wanted(args), true, |_| {
        Ok(true)
    });
    let item = counted.as_ref().map_or_else(logs::no_log, Clone::clone);
    deliver(
        args,
        outbox,
        &sys::host_name(),
        layout::LOG_SUMMARY,
        &logs::text(&item),
    )?;
    counted.map(drop)
}

fn network(args: Args) -> Result<()> {
    let outbox = outbox(args)?;
    let item = reach::network(&reach::Destinations::read());
    deliver(
        args,
        outbox,
        &sys::host_name(),
        layout::NETWORK,
        &logs::text(&item),
    )
}

/// Runs in a pod of `doctor`: writes its findings to the termination log, which works without any
/// network.
fn echo(args: Args) -> Result<()> {
    let found = reach::network(&reach::Destinations::read());
    let place = args.text("to").unwrap_or(names::TERMINATION_LOG);
    std::fs::write(place, serde_json::to_string(&found)?).at("cannot write", place)
}

fn wanted(args: Args) -> LogQuery {
    let since = args.text_or("since", "LOG_MINUTES");
    LogQuery {
        since: since.unwrap_or_else(|| "60".into()),
        units: args.all("unit").map(str::to_owned).collect(),
        priority: args.text("priority").map(str::to_owned),
    }
}

fn inside(args: Args) -> Result<()> {
    let words: Vec<String> = args.all("call").map(str::to_owned).collect();
    let [root, program, args @ ..] = &words[..] else {
        bail!("expected a root and a program")
    };
    journal::inside(root.as_ref(), program, args)
}

/// The flag, else the variable set by plugins since the first version, else the root.
fn chroot(args: Args) -> PathBuf {
    args.text_or("chroot", "CHROOT_DIR")
        .unwrap_or_else(|| "/".into())
        .into()
}

/// The folder for results, if any.
fn outbox(args: Args) -> Result<Option<Outbox>> {
    let folder = args
        .text_or("output", env::OLD_RESULTS_DIR)
        .or_else(|| variable(env::RESULTS_DIR));
    folder
        .map(|folder| Outbox::open(folder.as_ref()).context("cannot leave a result"))
        .transpose()
}
