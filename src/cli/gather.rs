//! `sonobuoy gather`: gathers facts as a plugin's container, or manually on a node.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::ArgMatches;
use serde_json::Value;

use super::{output, shown};
use crate::gather::journal::{self, Since, Wanted};
use crate::gather::logs::{self, Form};
use crate::gather::{self, Node, Outbox, reach};
use crate::layout;
use crate::names::{self, env};
use crate::report::Facts;
use base::at::At as _;
use base::sys::{self, variable};

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(ExitCode::SUCCESS) };
    let gathered = match name {
        "host-facts" => host_facts(matches),
        "systemd-logs" => systemd_logs(matches),
        "log-summary" => log_summary(matches),
        "network" => network(matches),
        "echo" => return echo(matches),
        journal::INSIDE => return inside(matches),
        _ => return super::help(&["gather".into()]),
    };
    stay(matches, gathered)
}

/// Keeps the container alive, also after a failure: a container of a DaemonSet that ends is restarted, and gathers
/// again. If not even an error could be written as the result, only the container's exit can report it.
fn stay(matches: &ArgMatches, gathered: Result<()>) -> Result<ExitCode> {
    let seconds = matches.get_one::<i64>("sleep").copied().unwrap_or(0);
    if seconds != 0 && (gathered.is_ok() || is_left(matches)) {
        if let Err(error) = &gathered {
            log::error!("{error:#}");
        }
        let stop = shown::stop_on_signal()?;
        match u64::try_from(seconds) {
            Ok(seconds) => drop(stop.wait(Duration::from_secs(seconds))),
            Err(_) => stop.wait_forever(),
        }
    }
    gathered.map(|()| ExitCode::SUCCESS)
}

fn is_left(matches: &ArgMatches) -> bool {
    outbox(matches).ok().flatten().is_some_and(|outbox| outbox.path("done").exists())
}

fn host_facts(matches: &ArgMatches) -> Result<()> {
    let facts = Node::open(&chroot(matches));
    let programs = matches.get_flag("run-facts") || variable("RUN_FACTS").as_deref() == Some("true");
    let facts = facts.map(|node| gather::host_facts(&node.with_programs(programs)));
    let document = facts.as_ref().map_or_else(|error| gather::no_facts(&format!("{error:#}")), Value::clone);
    let text = format!("{document:#}\n");
    match outbox(matches)? {
        Some(outbox) => {
            let path = outbox.put(layout::HOST_FACTS, text.as_bytes())?;
            outbox.done(&path)?;
        }
        None => {
            let name = document.pointer("/ansible_facts/ansible_nodename").and_then(Value::as_str);
            show(matches, name, layout::HOST_FACTS, &text)?;
        }
    }
    facts.map(drop)
}

/// Prints the content of a file of this name: in full, or the most important parts.
fn show(matches: &ArgMatches, node: Option<&str>, file: &str, text: &str) -> Result<()> {
    let format = matches.get_one::<String>("format").map_or("json", String::as_str);
    if !["table", "csv"].contains(&format) {
        return output::print(text);
    }
    let mut facts = Facts::default();
    facts.add_file(node.unwrap_or("this machine"), file, text.as_bytes());
    super::results::write_facts(&facts, format, super::report::look(matches))
}

fn systemd_logs(matches: &ArgMatches) -> Result<()> {
    let max_size = matches.get_one::<String>("max-size").map(|text| {
        logs::size(text).ok_or_else(|| anyhow!("`--max-size {text}` is not a size; write bytes, or 500M, 2G"))
    });
    let form = Form {
        gzip: matches.get_flag("gzip"),
        summary: matches.get_flag("summary"),
        max_size: max_size.transpose()?,
    };
    let outbox =
        outbox(matches)?.context("there is no folder for the log: name one with --output or $RESULTS_DIR")?;
    logs::keep(Node::open(&chroot(matches)), &wanted(matches), &form, &outbox)
}

fn log_summary(matches: &ArgMatches) -> Result<()> {
    let outbox = outbox(matches)?;
    let (item, outcome) = logs::summarise(Node::open(&chroot(matches)), &wanted(matches));
    match outbox {
        Some(outbox) => logs::leave(layout::LOG_SUMMARY, &item, &outbox)?,
        None => show(matches, Some(&sys::host_name()), layout::LOG_SUMMARY, &logs::text(&item)?)?,
    }
    outcome
}

fn network(matches: &ArgMatches) -> Result<()> {
    let outbox = outbox(matches)?;
    let item = reach::network(&reach::Surroundings::read());
    match outbox {
        Some(outbox) => logs::leave(layout::NETWORK, &item, &outbox),
        None => show(matches, Some(&sys::host_name()), layout::NETWORK, &logs::text(&item)?),
    }
}

/// Runs in a pod of `doctor`: writes its findings to the termination log, which works without any network.
fn echo(matches: &ArgMatches) -> Result<ExitCode> {
    let found = reach::network(&reach::Surroundings::read());
    let place = matches.get_one::<String>("to").map_or(names::TERMINATION_LOG, String::as_str);
    std::fs::write(place, serde_json::to_string(&found)?).at("cannot write", place)?;
    Ok(ExitCode::SUCCESS)
}

fn wanted(matches: &ArgMatches) -> Wanted {
    let since = matches.get_one::<String>("since").cloned().or_else(|| variable("LOG_MINUTES"));
    Wanted {
        since: since.map_or(Since::Minutes(60), |text| Since::read(&text)),
        units: matches.get_many("unit").unwrap_or_default().cloned().collect(),
        priority: matches.get_one("priority").cloned(),
    }
}

fn inside(matches: &ArgMatches) -> Result<ExitCode> {
    let words: Vec<String> = matches.get_many("call").unwrap_or_default().cloned().collect();
    let [root, program, args @ ..] = &words[..] else { bail!("expected a root and a program") };
    journal::inside(root.as_ref(), program, args)?;
    Ok(ExitCode::SUCCESS)
}

/// The flag, else the variable set by plugins since the first version, else the root.
fn chroot(matches: &ArgMatches) -> PathBuf {
    let given = matches.get_one::<String>("chroot").cloned().or_else(|| variable("CHROOT_DIR"));
    given.unwrap_or_else(|| "/".into()).into()
}

/// The folder for results, if any.
fn outbox(matches: &ArgMatches) -> Result<Option<Outbox>> {
    let given = matches.get_one::<String>("output").cloned();
    let folder = given.or_else(|| variable(env::OLD_RESULTS_DIR)).or_else(|| variable(env::RESULTS_DIR));
    folder.map(|folder| Outbox::open(folder.as_ref()).context("cannot leave a result")).transpose()
}
