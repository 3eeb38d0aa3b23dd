//! `sonobuoy doctor`: checks that the cluster and access to it are ready for a run.

use anyhow::{Result, bail};
use serde_json::Value;

use super::flag::Args;
use super::run::{checks, objects, read_given, skipped};
use super::run_args::{Purpose, RunArgs};
use super::{cluster, error, output, shown};
use crate::deploy::Preflight;
use crate::doctor::{self, Check, Sample, Subject};
use base::kube::Client;

/// Exit code if a run would fail.
const NOT_READY: u8 = 3;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    let request = RunArgs::new(args, Purpose::Run)?;
    let stop = shown::stop_on_signal()?;
    let client = cluster::client(args)?.under(&stop);
    let format = args.text("format").unwrap_or("text");
    let tell = |check: &Check| match format {
        "text" => output::print(&check.lines()),
        _ => Ok(()),
    };
    let checks = diagnose(&client, &tell, |server| {
        let (objects, namespace) = objects(request, read_given(args)?, |_| Ok(()))?;
        let skip = skipped(args)?;
        let preflight = checks(args, &objects, &namespace, &skip);
        examine(&client, server, &objects, &preflight, &sample(args)?, &tell)
    })?;
    output::print(&match format {
        "text" => doctor::verdict(&checks),
        _ => doctor::show(&checks, format),
    })?;
    Ok(if doctor::is_ready(&checks) { 0 } else { NOT_READY })
}

/// Checks the cluster for `run --doctor`.
pub(crate) fn before(client: &Client, objects: &[Value], preflight: &Preflight) -> Result<()> {
    let tell = |check: &Check| {
        check.lines().lines().for_each(|line| log::info!("{line}"));
        Ok(())
    };
    let sample = Sample::Count(doctor::SAMPLE);
    let checks =
        diagnose(client, &tell, |server| examine(client, server, objects, preflight, &sample, &tell))?;
    log::info!("{}", doctor::verdict(&checks).trim_end());
    if !doctor::is_ready(&checks) {
        bail!("`--doctor` found something that would fail: nothing was created");
    }
    Ok(())
}

/// Reaches the server, without which a run cannot be assessed, and examines the rest.
fn diagnose(
    client: &Client,
    tell: &dyn Fn(&Check) -> Result<()>,
    examine: impl FnOnce(Check) -> Result<Vec<Check>>,
) -> Result<Vec<Check>> {
    match doctor::reach(client) {
        (server, true) => examine(server),
        (server, false) => {
            tell(&server)?;
            Ok(vec![server])
        }
    }
}

fn examine(
    client: &Client,
    server: Check,
    objects: &[Value],
    preflight: &Preflight,
    sample: &Sample,
    tell: &dyn Fn(&Check) -> Result<()>,
) -> Result<Vec<Check>> {
    let subject = Subject::new(objects, preflight.namespace)?;
    let checks = doctor::examine(client, server, &subject, preflight, sample, tell)?;
    if client.stop().stopped() {
        let said = "interrupted; everything that was created for the checks has been removed";
        return Err(error::interrupted(said));
    }
    Ok(checks)
}

fn sample(args: Args) -> Result<Sample> {
    let given: Vec<&str> = args.all("nodes").collect();
    Ok(match given[..] {
        ["all"] => Sample::All,
        [word] if word.bytes().all(|byte| byte.is_ascii_digit()) => Sample::Count(word.parse()?),
        _ => Sample::Named(given.into_iter().map(str::to_owned).collect()),
    })
}
