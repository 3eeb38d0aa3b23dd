//! The process of one cluster: its command line, its output line by line, its exit code.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use super::super::cluster::ONE_OF_MANY;
use super::{Fleet, SelectedCluster};
use crate::driver::process::{Talk, ending, start, tail};
use base::at::At as _;
use base::logger;
use base::stop::Stop;

/// Maximum bytes of output to read.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// Flags of the whole, which no process gets as they are.
const OF_ALL: &[&str] = &[
    "contexts",
    "kubeconfigs",
    "parallel",
    "retrieve",
    "resume",
    "dir",
    "junit",
    "html",
    "fail-on",
    "annotations",
];

/// The command line for a cluster.
pub(super) fn words(
    fleet: &Fleet<'_>,
    command: &str,
    cluster: &SelectedCluster,
    folder: &Path,
) -> Vec<OsString> {
    let args = fleet.args;
    let flag = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        word
    };
    // Some flags depend on their order.
    let mut given = Vec::new();
    for id in args.ids().map(clap::Id::as_str).filter(|id| args.given(id) && !OF_ALL.contains(id)) {
        let values = args.get_raw(id).into_iter().flatten();
        given.extend(args.indices_of(id).into_iter().flatten().zip(values.map(|value| flag(id, &value))));
    }
    given.sort();
    let mut words = vec![command.into()];
    words.extend(given.into_iter().map(|(_, word)| word));
    words.push(flag(cluster.flag.0, &cluster.flag.1));
    if fleet.has_events || command == "status" {
        words.push(flag("output", &"json"));
    }
    if fleet.reports {
        words.push(flag("retrieve", &folder));
    } else if command == "retrieve" {
        words.extend(["--".into(), folder.into()]);
    }
    words
}

/// Runs this program with `words`; passes each line of its output to `hear`. Returns the exit code and the last message.
pub(super) fn run(
    words: &[OsString],
    log: &Path,
    stop: &Stop,
    hear: &mut dyn FnMut(&str),
) -> Result<(u8, String)> {
    File::create(log).at("cannot write", log)?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    // Another cluster's status service must not answer for this one.
    command.args(words).env("SONOBUOY_CREDENTIALS", log.with_file_name("credentials.json"));
    command.env(ONE_OF_MANY, "true");
    let (group, mut child) = start(&mut command, log, Talk::WithUs).context("cannot start this program")?;
    drop(child.stdin.take());
    let group = Arc::new(group);
    let hook = {
        let group = Arc::clone(&group);
        stop.on_stop(move || group.terminate())
    };
    let mut output = BufReader::new(child.stdout.take().context("no output")?.take(MAX_OUTPUT_BYTES));
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).context("cannot read its output")? > 0 {
        hear(&String::from_utf8_lossy(&line));
        line.clear();
    }
    drop(output);
    let status = child.wait().context("cannot wait for its end")?;
    drop(hook);
    let message = Some(logger::message(&tail(log))).filter(|message| !message.is_empty());
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok((code, message.unwrap_or_else(|| format!("its process {}", ending(status)))))
}
