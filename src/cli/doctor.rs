//! `sonobuoy doctor`: checks that the cluster and access to it are ready for a run.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::ArgMatches;
use serde_json::Value;

use super::manifest::{checks, read_given, skipped, with_namespace};
use super::{cluster, output, request, shown};
use crate::doctor::{self, Check, Diagnosis, Sample, Subject};
use base::kube::Client;

/// Exit code if a run would fail.
const UNFIT: u8 = 3;

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let stop = shown::stop_on_signal()?;
    let client = cluster::client(matches, &stop)?;
    let format = matches.get_one::<String>("format").map_or("text", String::as_str);
    let tell = |check: &Check| match format {
        "text" => output::print(&doctor::lines(check)),
        _ => Ok(()),
    };
    let diagnosis = match doctor::reach(&client) {
        // Without the server, a run cannot be assessed.
        Err(diagnosis) => {
            diagnosis.checks.iter().try_for_each(tell)?;
            diagnosis
        }
        Ok(server) => {
            let (objects, namespace) = match read_given(matches)? {
                Some(objects) => with_namespace(matches, objects)?,
                None => {
                    let plan = request::plan(matches, None)?;
                    plan.check_selection()?;
                    (plan.manifest()?, plan.run.namespace)
                }
            };
            examine(matches, &client, server, (&objects, &namespace), &tell)?
        }
    };
    output::print(&match format {
        "text" => doctor::verdict(&diagnosis),
        _ => doctor::show(&diagnosis, format),
    })?;
    Ok(if diagnosis.is_fit() { ExitCode::SUCCESS } else { ExitCode::from(UNFIT) })
}

/// Checks the cluster for `run --doctor`.
pub(crate) fn before(
    matches: &ArgMatches,
    client: &Client,
    objects: &[Value],
    namespace: &str,
) -> Result<()> {
    let tell = |check: &Check| {
        doctor::lines(check).lines().for_each(|line| log::info!("{line}"));
        Ok(())
    };
    let diagnosis = match doctor::reach(client) {
        Err(diagnosis) => {
            diagnosis.checks.iter().try_for_each(tell)?;
            diagnosis
        }
        Ok(server) => examine(matches, client, server, (objects, namespace), &tell)?,
    };
    log::info!("{}", doctor::verdict(&diagnosis).trim_end());
    if !diagnosis.is_fit() {
        bail!("`--doctor` found something that would fail: nothing was created");
    }
    Ok(())
}

fn examine(
    matches: &ArgMatches,
    client: &Client,
    server: Check,
    (objects, namespace): (&[Value], &str),
    tell: &dyn Fn(&Check) -> Result<()>,
) -> Result<Diagnosis> {
    let skip = skipped(matches)?;
    let preflight = checks(matches, objects, namespace, &skip);
    let subject = Subject::new(objects, namespace)?;
    let diagnosis = doctor::examine(client, server, &subject, &preflight, &sample(matches)?, tell)?;
    if client.stop().stopped() {
        let said = "interrupted; everything that was created for the checks has been removed";
        return Err(shown::Interrupted(said.into()).into());
    }
    Ok(diagnosis)
}

fn sample(matches: &ArgMatches) -> Result<Sample> {
    let given: Vec<&String> = matches.try_get_many("nodes").ok().flatten().into_iter().flatten().collect();
    Ok(match given[..] {
        [] => Sample::Count(doctor::SAMPLE),
        [word] if word == "all" => Sample::All,
        [word] if word.bytes().all(|byte| byte.is_ascii_digit()) => Sample::Count(word.parse()?),
        ref names => Sample::Named(names.iter().map(|name| (*name).clone()).collect()),
    })
}
